//! The operator's desk: carries out what a person decided about one operation, whoever asks (console, API, shell).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::delivery::Engine;
use crate::http::{Action, Candidate, Choice, Desk, Unresolved};
use crate::operation::transition::{Change, Event, Refused, apply};
use crate::operation::{CrmId, DestinationName, Lead, Operation, OperationId, State};
use crate::store::{Audit, StoredDelivery, Update, Updated};

/// The desk of this node.
#[derive(Debug)]
pub(super) struct OperatorDesk {
    pub(super) engine: Arc<Engine>,
}

impl OperatorDesk {
    async fn carry_out(
        &self,
        id: OperationId,
        version: i64,
        action: Action,
        actor: &str,
    ) -> Result<Operation, Unresolved> {
        let ports = self.engine.ports();
        let operation = ports.store.operation(id).await.map_err(Unresolved::Store)?.ok_or(Unresolved::NotFound)?;
        if operation.version != version {
            return Err(self.moved(&operation).await);
        }
        let line = self.engine.line(&operation.destination);
        let (event, lead, note) = match action {
            Action::Complete { crm_id, note } => {
                self.confirm(&operation, &crm_id).await?;
                (Event::Complete { crm_id }, None, note)
            }
            Action::Retry { lead, note } => {
                if lead.is_none() && operation.payload_erased_at.is_some() {
                    return Err(Unresolved::NeedsLead);
                }
                let settle = line.map(|line| line.settings.lookup.settle).unwrap_or_default();
                (Event::Retry { settle }, lead.map(|lead| *lead), note)
            }
            Action::Reject { note } => (Event::Reject, None, Some(note)),
        };
        let now = ports.clock.now();
        let after = match apply(&operation, &event, now) {
            Ok(Change::To(after)) => *after,
            Ok(Change::Evidence) => operation.clone(),
            Err(refused) => return Err(forbidden(&operation, &refused)),
        };
        let name = event_name(&event);
        let audit = Audit {
            actor: actor.to_owned(),
            at: now,
            action: name.to_owned(),
            operation_id: Some(id),
            subject: None,
            from: Some(operation.state().as_str().to_owned()),
            to: Some(after.state().as_str().to_owned()),
            note,
        };
        let waited = now.since(operation.updated_at);
        let in_review = operation.state() == State::NeedsReview;
        let update = Update {
            before: operation,
            after: after.clone(),
            event: name,
            attempt: None,
            step_done: None,
            audit: Some(audit),
            lead,
            while_active: None,
        };
        match ports.store.update(update).await.map_err(Unresolved::Store)? {
            Updated::Done => {
                if in_review {
                    ports.metrics.reviewed(waited);
                }
                tracing::info!(operation_id = %id, action = name, actor, state = after.state().as_str(), "decided by a person");
                Ok(after)
            }
            Updated::Moved(current) => Err(self.moved(&current).await),
        }
    }

    /// `complete` names an entity: where the CRM can be asked, it must exist.
    async fn confirm(&self, operation: &Operation, crm_id: &CrmId) -> Result<(), Unresolved> {
        let Some(line) = self.engine.line(&operation.destination) else { return Ok(()) };
        let Some(call) = line.connector.confirm(crm_id) else { return Ok(()) };
        let ports = self.engine.ports();
        let exchange = ports.transport.send(&call, line.settings.timeout).await;
        match line.connector.read_confirm(&exchange, ports.clock.now()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Unresolved::NotInCrm { detail: format!("the CRM has no entity {crm_id}") }),
            // An operator who knows the id is not stopped by a CRM that is away.
            Err(fault) => {
                tracing::warn!(operation_id = %operation.id, fault, "the CRM could not confirm the entity");
                Ok(())
            }
        }
    }

    async fn ask(&self, id: OperationId, actor: &str) -> Result<Vec<Candidate>, Unresolved> {
        let ports = self.engine.ports();
        let operation = ports.store.operation(id).await?.ok_or(Unresolved::NotFound)?;
        let asked = self.engine.ask(&operation, actor).await?.ok_or(Unresolved::NoLookup)?;
        let audit = Audit {
            actor: actor.to_owned(),
            at: ports.clock.now(),
            action: "look_up".to_owned(),
            operation_id: Some(id),
            subject: None,
            from: None,
            to: None,
            note: None,
        };
        ports.store.note(audit).await?;
        match asked.found {
            Ok(found) => {
                Ok(found.into_iter().map(|entity| Candidate { crm_id: entity.crm_id, shown: entity.shown }).collect())
            }
            Err(failure) => Err(Unresolved::CrmAway { detail: failure.message, retry_after: failure.retry_after }),
        }
    }

    async fn moved(&self, current: &Operation) -> Unresolved {
        let story = self.engine.ports().store.story(current.id).await.ok().flatten();
        let by = story.and_then(|story| story.audit.into_iter().next_back()).map(|entry| (entry.actor, entry.at));
        Unresolved::VersionMoved { current: current.version, by }
    }
}

fn event_name(event: &Event) -> &'static str {
    match event {
        Event::Complete { .. } => "complete",
        Event::Retry { .. } => "retry",
        _ => "reject",
    }
}

fn forbidden(operation: &Operation, refused: &Refused) -> Unresolved {
    let not_before = match refused {
        Refused::NotBefore(at) => Some(*at),
        _ => None,
    };
    let detail = match operation.status.lease() {
        Some(lease) => format!("a worker ({}) holds it until {}", lease.owner, lease.until),
        None => refused.to_string(),
    };
    Unresolved::Forbidden { detail, not_before }
}

impl Desk for OperatorDesk {
    fn resolve<'a>(
        &'a self,
        id: OperationId,
        version: i64,
        action: Action,
        actor: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Operation, Unresolved>> + Send + 'a>> {
        Box::pin(self.carry_out(id, version, action, actor))
    }

    fn look_up<'a>(
        &'a self,
        id: OperationId,
        actor: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Candidate>, Unresolved>> + Send + 'a>> {
        Box::pin(self.ask(id, actor))
    }

    fn choices(&self, operation: &Operation) -> Vec<Choice> {
        let line = self.engine.line(&operation.destination);
        let settle = line.map(|line| line.settings.lookup.settle).unwrap_or_default();
        let now = self.engine.ports().clock.now();
        let any = CrmId::try_from("1".to_owned()).ok();
        let complete = any.map(|crm_id| Event::Complete { crm_id });
        let events = complete.into_iter().chain([Event::Retry { settle }, Event::Reject]);
        let mut choices: Vec<Choice> = events
            .map(|event| {
                let refused = apply(operation, &event, now).err().map(|refused| forbidden(operation, &refused));
                let (refusal, not_before) = match refused {
                    Some(Unresolved::Forbidden { detail, not_before }) => (Some(detail), not_before),
                    _ => (None, None),
                };
                Choice { action: event_name(&event), refusal, not_before }
            })
            .collect();
        let can = line.is_some_and(|line| line.connector.can_look_up()) && operation.attempts > 0;
        let refusal = (!can).then(|| "nothing was sent to the CRM, or it cannot be asked".to_owned());
        choices.push(Choice { action: "look_up", refusal, not_before: None });
        choices
    }

    fn lead_of(&self, operation: &Operation, delivery: Option<&StoredDelivery>, edited: Option<&Lead>) -> Option<Lead> {
        self.engine.lead(operation, delivery, edited).ok()
    }

    fn link(&self, destination: &DestinationName, crm_id: &CrmId) -> Option<String> {
        self.engine.line(destination)?.connector.link(crm_id)
    }
}

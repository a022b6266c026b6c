//! A look-up that a person asks for: the CRM is asked by crm_key, and what it says is shown and logged. It changes no state: the
//! person decides.

use std::time::Duration;

use super::attempt::{change, excerpt_of, masked_failure, shown, status_of};
use super::engine::{Engine, guarded};
use crate::crm::candidates;
use crate::operation::{CrmId, Failure, FailureClass, LookupOutcome, Operation};
use crate::store::{AttemptEnd, AttemptWrite, CallKind, NewAttempt, StoreError, Update, Updated};

/// How long a person waits for the rate to let the call leave.
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(50);

/// What the CRM said.
#[derive(Debug)]
pub struct Asked {
    /// The entities that bear the operation's key; or why that is not known.
    pub found: Result<Vec<Entity>, Failure>,
}

/// An entity that bears the operation's key.
#[derive(Debug)]
pub struct Entity {
    /// Its id.
    pub crm_id: CrmId,
    /// What the CRM says about it: name and text.
    pub shown: Vec<(String, String)>,
}

impl Engine {
    /// Asks the CRM now; `None` where this kind of CRM cannot be asked.
    pub async fn ask(&self, operation: &Operation, actor: &str) -> Result<Option<Asked>, StoreError> {
        let Some(line) = self.line(&operation.destination).cloned() else { return Ok(None) };
        let Some(rate) = self.rate(&operation.destination) else { return Ok(None) };
        let work = self.ports.store.work_of(operation).await?;
        let lead = self.lead(operation, work.delivery.as_ref(), work.edited_lead.as_ref()).unwrap_or_default();
        let order = self.order(operation, &work, lead);
        let Some(call) = guarded(|| line.connector.look_up(&order)).ok().flatten() else { return Ok(None) };
        let came_at = self.ports.clock.monotonic();
        let over = || self.ports.clock.monotonic().saturating_sub(came_at) >= PATIENCE;
        let grant = loop {
            match self.grant(rate) {
                Some(grant) => break Some(grant),
                None if over() => break None,
                None => self.ports.pause.pause(STEP).await,
            }
        };
        let left = match grant {
            Some(grant) => self.pass_gate(grant, over).await,
            None => false,
        };
        if !left {
            let busy = "the CRM's rate is used up by other calls just now; try again in a moment";
            return Ok(Some(Asked { found: Err(Failure::new(FailureClass::Throttled, busy)) }));
        }
        let begun_at = self.now();
        let exchange = self.ports.transport.send(&call, line.settings.timeout).await;
        let outcome = guarded(|| line.connector.read_look_up(&order, &exchange, self.now()))
            .unwrap_or_else(|panic| LookupOutcome::Failed(Failure::new(FailureClass::Uncertain, panic)));
        let ended_at = self.now();
        let (class, found) = match outcome {
            LookupOutcome::Found(ids) => {
                let entity = |crm_id: CrmId| {
                    let members = candidates::shown(&exchange, &crm_id).into_iter();
                    Entity { crm_id, shown: members.map(|(name, text)| (name, line.connector.scrub(&text))).collect() }
                };
                ("ok", Ok(ids.into_iter().map(entity).collect::<Vec<_>>()))
            }
            LookupOutcome::Failed(failure) => {
                let failure = masked_failure(&line, failure);
                (failure.class.as_str(), Err(failure))
            }
        };
        self.ports.metrics.attempt(operation.destination.as_str(), "lookup", class, ended_at.since(begun_at));
        self.heed(operation, found.as_ref().err(), begun_at).await;
        let told = match &found {
            Ok(found) if found.is_empty() => "none".to_owned(),
            Ok(found) => found.iter().map(|entity| entity.crm_id.as_str()).collect::<Vec<_>>().join(", "),
            Err(_) => "no answer".to_owned(),
        };
        let attempt = NewAttempt {
            id: self.new_id(),
            call: CallKind::Lookup,
            number: operation.attempts,
            step: operation.step,
            epoch: operation.epoch,
            licence: None,
            started_at: begun_at,
            mapping_version: line.connector.mapping_version(),
            request: shown(&line, &call),
        };
        let end = AttemptEnd {
            id: attempt.id,
            ended_at,
            class,
            status: status_of(&exchange),
            excerpt: excerpt_of(&line, &exchange),
            decision: format!("shown to {actor}: {told}"),
        };
        // Evidence, whatever became of the operation meanwhile.
        let evidence = Update {
            attempt: Some(AttemptWrite::Whole(attempt, end)),
            ..change(operation.clone(), operation.clone(), "looked_up")
        };
        if let Updated::Moved(current) = self.ports.store.update(evidence.clone()).await? {
            let _ = self.ports.store.update(Update { before: (*current).clone(), after: *current, ..evidence }).await?;
        }
        Ok(Some(Asked { found }))
    }
}

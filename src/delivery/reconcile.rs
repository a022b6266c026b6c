//! One look-up: the CRM is asked by crm_key what became of an uncertain create.

use std::time::Duration;

use super::attempt::{change, excerpt_of, masked_failure, shown, status_of, told};
use super::engine::{Engine, guarded};
use super::rate::Grant;
use super::retry::{self, Facts};
use super::sights::send_of;
use crate::operation::transition::{Change, Event, apply};
use crate::operation::{Failure, FailureClass, LookupOutcome, Operation, Status};
use crate::store::{AttemptEnd, AttemptWrite, CallKind, NewAttempt, StoreError, Update, Updated};

impl Engine {
    /// Carries out a look-up that was taken. The operation was granted one call of the rate already.
    pub async fn look_up(&self, operation: Operation) -> Result<(), StoreError> {
        let Some(line) = self.line(&operation.destination).cloned() else { return Ok(()) };
        let Some(grant) = self.rate(&operation.destination).map(Grant::of_taken) else { return Ok(()) };
        let Status::Reconciling { send_ended_at, .. } = operation.status else { return Ok(()) };
        let policy = line.settings.lookup;
        let work = self.ports.store.work_of(&operation).await?;
        // A look-up goes by the crm_key; it does not need the lead to be readable.
        let lead = self.lead(&operation, work.delivery.as_ref(), work.edited_lead.as_ref()).unwrap_or_default();
        let order = self.order(&operation, &work, lead);
        let taken_at = self.ports.clock.monotonic();
        let over = || self.ports.clock.monotonic().saturating_sub(taken_at) >= line.settings.lease;
        if !self.pass_gate(grant, over).await {
            // By now it may be taken again.
            return Ok(());
        }
        let begun_at = self.now();
        let unsettled = match self.gap_known_since(send_ended_at) {
            Some(known) => (known + policy.settle).saturating_sub(self.ports.clock.monotonic()),
            None => self.sights(|sights, now| sights.unsettled(send_of(&operation), policy.settle, now)),
        };

        let call = guarded(|| line.connector.look_up(&order)).ok().flatten();
        let (exchange, outcome) = match &call {
            Some(call) => {
                let exchange = self.ports.transport.send(call, line.settings.timeout).await;
                let outcome = guarded(|| line.connector.read_look_up(&order, &exchange, self.now()))
                    .unwrap_or_else(|panic| LookupOutcome::Failed(Failure::new(FailureClass::Uncertain, panic)));
                let outcome = match outcome {
                    LookupOutcome::Failed(failure) => LookupOutcome::Failed(masked_failure(&line, failure)),
                    found @ LookupOutcome::Found(_) => found,
                };
                (Some(exchange), outcome)
            }
            None => {
                (None, LookupOutcome::Failed(Failure::new(FailureClass::NotSent, "the look-up could not be built")))
            }
        };
        let ended_at = self.now();
        let class = match &outcome {
            LookupOutcome::Found(_) => "ok",
            LookupOutcome::Failed(failure) => failure.class.as_str(),
        };
        self.ports.metrics.attempt(operation.destination.as_str(), "lookup", class, ended_at.since(begun_at));

        let event = Event::LookedUp {
            begun_at,
            settled_monotonic: unsettled.is_zero(),
            settle: policy.settle,
            trusted: policy.trusted,
            give_up: policy.give_up,
            outcome: outcome.clone(),
            next_lookup_at: retry::next_lookup(
                ended_at,
                send_ended_at.plus(policy.settle).max(ended_at.plus(unsettled)),
                send_ended_at,
                told_to_wait(&outcome),
                &policy,
                &line.settings.retry,
            ),
            retry_at: self.retry_at(&operation, &line.settings),
            last_step: usize::from(operation.step) + 1 == line.connector.steps().len(),
        };
        let Ok(Change::To(after)) = apply(&operation, &event, ended_at) else { return Ok(()) };
        let attempt = NewAttempt {
            id: self.new_id(),
            call: CallKind::Lookup,
            number: operation.attempts,
            step: operation.step,
            epoch: operation.epoch,
            licence: None,
            started_at: begun_at,
            mapping_version: line.connector.mapping_version(),
            request: call.as_ref().map(|call| shown(&line, call)).unwrap_or_default(),
        };
        let end = AttemptEnd {
            id: attempt.id,
            ended_at,
            class,
            status: exchange.as_ref().and_then(status_of),
            excerpt: exchange.as_ref().map(|exchange| excerpt_of(&line, exchange)).unwrap_or_default(),
            decision: told(&operation, &after),
        };
        let step_done = match &outcome {
            LookupOutcome::Found(ids) if after.step > operation.step => {
                ids.first().map(|id| (operation.step, id.clone()))
            }
            _ => None,
        };
        let update = Update {
            attempt: Some(AttemptWrite::Whole(attempt, end)),
            step_done,
            ..change(operation.clone(), (*after).clone(), "looked_up")
        };
        // As with a create: were the operation's next step written first, it could overtake the suspension.
        if exchange.is_some() {
            let failure = match &outcome {
                LookupOutcome::Found(_) => None,
                LookupOutcome::Failed(failure) => Some(failure),
            };
            self.heed(&operation, failure, begun_at).await;
        }
        // Where it moved on, a late answer or a person was faster; the look-up is taken again if it is still needed.
        if let Updated::Done = self.store_result(update).await? {
            tracing::info!(
                operation_id = %after.id,
                destination = %after.destination,
                class,
                state = after.state().as_str(),
                reason = after.status.reason(),
                crm_id = after.crm_id.as_ref().map(crate::operation::CrmId::as_str),
                "looked up"
            );
            self.note_state(&after);
        }
        Ok(())
    }

    /// When a create may start after a trusted look-up found nothing, or `None` where the budget is used up.
    fn retry_at(&self, operation: &Operation, settings: &super::Settings) -> Option<crate::clock::At> {
        let now = self.now();
        let facts = Facts {
            now,
            counted: operation.counted,
            consecutive: operation.series_attempts,
            series_since: operation.series_since.unwrap_or(now),
            retry_after: None,
        };
        retry::after_absent(&facts, &settings.retry, self.ports.entropy.fraction())
    }
}

fn told_to_wait(outcome: &LookupOutcome) -> Option<Duration> {
    match outcome {
        LookupOutcome::Failed(failure) => failure.retry_after,
        LookupOutcome::Found(_) => None,
    }
}

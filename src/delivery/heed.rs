//! Heed: what an answer means for its destination and for all that share its account, beyond the one lead.

use std::sync::PoisonError;

use super::engine::Engine;
use super::flow::{self, OUTAGE, Sign};
use crate::clock::At;
use crate::operation::{DestinationName, Failure, Operation};
use crate::store::{Flow, StoreError};

/// What a node knows of a destination beside its row.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Whether the last take found it probing.
    probing: bool,
    /// Calls in a row that failed for no lead's fault.
    failures: u32,
}

impl Engine {
    /// Notes how a take found the destination.
    pub(super) fn note_flow(&self, name: &DestinationName, flow: &Flow, now: At) {
        self.seen(name, |seen| seen.probing = flow.probing);
        if let (Some(from), Some(rate)) = (flow.ramp_from, self.rate(name)) {
            rate.share(|share| share.note_ramp(from, now, self.ports.clock.monotonic()));
        }
    }

    fn seen<T>(&self, name: &DestinationName, f: impl FnOnce(&mut Seen) -> T) -> T {
        f(self.seen.lock().unwrap_or_else(PoisonError::into_inner).entry(name.clone()).or_default())
    }

    /// Does what the answer to a call that began at `begun_at` means for its destination; no failure is a good answer.
    ///
    /// A store that is away must not cost the answer itself, which is written next and waits for it: the next such answer is
    /// heeded.
    pub(super) async fn heed(&self, operation: &Operation, failure: Option<&Failure>, begun_at: At) {
        let sign = failure.map_or(Sign::Works, |failure| Sign::of(failure.class, failure.retry_after));
        let heeded = match (sign, failure) {
            (Sign::Works, _) => self.heed_good(operation, begun_at).await,
            (Sign::Limited(told), _) => {
                tracing::warn!(destination = %operation.destination, ?told, "the CRM's rate limit: the destination slows down");
                self.slow_down(operation, begun_at, told).await
            }
            (Sign::Fails, _) => self.heed_trouble(operation, begun_at).await,
            (Sign::Stopped, Some(failure)) => self.suspend(operation, failure).await,
            (Sign::Stopped, None) => Ok(()),
        };
        if let Err(error) = heeded {
            tracing::warn!(destination = %operation.destination, %error, "the destination's state could not be written");
        }
    }

    async fn heed_good(&self, operation: &Operation, begun_at: At) -> Result<(), StoreError> {
        let probing = self.seen(&operation.destination, |seen| {
            seen.failures = 0;
            seen.probing
        });
        // While all is well nothing is written.
        if !probing {
            return Ok(());
        }
        let now = self.now();
        let pass = move |flow: &Flow| flow::passed(flow, begun_at, now);
        self.ports.store.change_flow(self.of_account(&operation.destination), pass).await
    }

    async fn heed_trouble(&self, operation: &Operation, begun_at: At) -> Result<(), StoreError> {
        let outage = self.seen(&operation.destination, |seen| {
            seen.failures = seen.failures.saturating_add(1);
            seen.probing || seen.failures >= OUTAGE
        });
        if !outage {
            return Ok(());
        }
        tracing::warn!(destination = %operation.destination, "the CRM fails call after call: the destination slows down");
        self.slow_down(operation, begun_at, None).await
    }

    async fn slow_down(
        &self,
        operation: &Operation,
        begun_at: At,
        told: Option<std::time::Duration>,
    ) -> Result<(), StoreError> {
        let Some(line) = self.line(&operation.destination) else { return Ok(()) };
        let (now, policy, jitter) = (self.now(), line.settings.retry, self.ports.entropy.fraction());
        let slow = move |flow: &Flow| flow::slowed(flow, begun_at, now, told, &policy, jitter);
        self.ports.store.change_flow(self.of_account(&operation.destination), slow).await
    }

    /// The destinations of the same account.
    fn of_account(&self, name: &DestinationName) -> Vec<DestinationName> {
        let group = self.lines.get(name).map(|line| &line.rate_group);
        let same = self.lines.iter().filter(|(_, line)| Some(&line.rate_group) == group);
        same.map(|(name, _)| name.clone()).collect()
    }

    async fn suspend(&self, operation: &Operation, failure: &Failure) -> Result<(), StoreError> {
        let name = operation.destination.clone();
        let epoch = Some(operation.series_epoch);
        let text = format!("{name} is suspended: {}", failure.message);
        if !self.ports.store.suspend(name.clone(), epoch, failure.message.clone(), None, self.now()).await? {
            return Ok(());
        }
        tracing::error!(destination = %name, reason = failure.message, "destination suspended; its leads wait for resume");
        // Suspended again before the end of the last time was noticed: that is another incident.
        let key = format!("destination_suspended:{name}");
        if !self.ports.store.open_incident(key.clone(), text.clone(), self.now()).await? {
            self.ports.store.close_incident(key.clone(), self.now()).await?;
            self.ports.store.open_incident(key, text, self.now()).await?;
        }
        Ok(())
    }
}

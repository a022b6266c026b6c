//! The gap (contract 4.1 rule 9): after a restore, what was sent between the backup and then is not on record.
//!
//! A create whose licence is that no send is on record proves nothing then: it is looked up first. Every other licence was
//! given after the gap, since restoring takes them away.

use std::time::Duration;

use super::Line;
use super::attempt::change;
use super::engine::Engine;
use crate::clock::At;
use crate::operation::transition::{Change, Event, apply};
use crate::operation::{Licence, Operation, Status};
use crate::store::StoreError;

/// A time of which the record is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// When the store was restored: no send that is not on record left later.
    pub ended_at: At,
    /// How long after that an event of before may be delivered again.
    pub redelivery: Duration,
}

impl Gap {
    /// Whether a create of this operation may have left in the gap. `can_ask`: whether this kind of CRM has a look-up.
    fn hides(&self, operation: &Operation, can_ask: bool, now: At) -> bool {
        let first = matches!(operation.status, Status::Claimed { licence: Licence::FirstSend, .. });
        // It was there before: it may have been sent, whatever the backup says.
        let old = operation.received_at <= self.ended_at;
        // It came since. Its event may have come before too, and then the CRM knows its key; without a key nothing can tell.
        let again = now < self.ended_at.plus(self.redelivery) && operation.source_key.is_some() && can_ask;
        first && (old || again)
    }
}

impl Engine {
    /// Sends a claimed create to its look-up where the gap may hide an earlier one; the operation again where it does not.
    pub(super) async fn pass_gap(&self, line: &Line, claimed: Operation) -> Result<Option<Operation>, StoreError> {
        let (now, can_ask) = (self.now(), line.connector.can_look_up());
        let Some(gap) = self.gap.filter(|gap| gap.hides(&claimed, can_ask, now)) else { return Ok(Some(claimed)) };
        let event = Event::Doubted { gap_ended_at: gap.ended_at, first_lookup_at: can_ask.then_some(now) };
        if let Ok(Change::To(after)) = apply(&claimed, &event, now) {
            self.ports.store.update(change(claimed, *after, "doubted")).await?;
        }
        Ok(None)
    }

    /// Since when, by the clock that nobody sets, this process knows that the gap is over; `None` of another send's end.
    pub(super) fn gap_known_since(&self, send_ended_at: At) -> Option<Duration> {
        self.gap.filter(|gap| gap.ended_at == send_ended_at).map(|_| self.begun)
    }
}

//! The gap (contract 4.1 rule 9): after a restore, what was sent between the backup and then is not on record.
//!
//! A create whose licence is that no send is on record proves nothing then: it is looked up first. Every other licence was
//! given after the gap, since restoring takes them away; a person's is looked up too where that can show anything.

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
    /// Whether a create of this operation may have left in the gap. `asks`: whether this kind of CRM has a look-up, and whether
    /// its empty answer is believed.
    fn hides(&self, operation: &Operation, asks: Asks, now: At) -> bool {
        let Status::Claimed { licence, .. } = operation.status else { return false };
        // It was there before: it may have been sent, whatever the backup says.
        let old = operation.received_at <= self.ended_at;
        // It came since. Its event may have come before too, and then the CRM knows its key; without a key nothing can tell.
        let again = now < self.ended_at.plus(self.redelivery) && operation.source_key.is_some() && asks.can;
        match licence {
            Licence::FirstSend => old || again,
            // A person who looked at the backup's case may have decided the same before. Where no look-up could show it, the
            // person's word stands: it would only be asked for again.
            Licence::Operator => old && asks.can && asks.trusted,
            Licence::NotExecuted | Licence::LookupAbsent => false,
        }
    }
}

/// What a destination's look-up is worth.
#[derive(Debug, Clone, Copy)]
struct Asks {
    can: bool,
    trusted: bool,
}

impl Engine {
    /// Sends a claimed create to its look-up where the gap may hide an earlier one; the operation again where it does not.
    pub(super) async fn pass_gap(&self, line: &Line, claimed: Operation) -> Result<Option<Operation>, StoreError> {
        let now = self.now();
        let asks = Asks { can: line.connector.can_look_up(), trusted: line.settings.lookup.trusted };
        let Some(gap) = self.gap.filter(|gap| gap.hides(&claimed, asks, now)) else { return Ok(Some(claimed)) };
        let event = Event::Doubted { gap_ended_at: gap.ended_at, first_lookup_at: asks.can.then_some(now) };
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

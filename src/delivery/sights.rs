//! Sights: since when this process knows, by a clock that nobody sets, that the send of an uncertain create is over.
//!
//! That is the end of the call where this process made it. Of another node's send, or one before a restart, no earlier moment
//! is proven than the first sight of the operation, so all nodes look around for uncertain operations now and then: whichever
//! comes to look one up has known it for about as long as the one that sent it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::operation::{Operation, OperationId};

/// Sights of operations that are not uncertain any more, or not yet, are kept so long: between the end of a call and the
/// commit of its result an operation is in no list.
const KEPT: Duration = Duration::from_secs(600);

/// One send of one operation: another attempt is another send.
pub(super) type Send = (OperationId, u32);

/// The last send of an operation.
pub(super) fn send_of(operation: &Operation) -> Send {
    (operation.id, operation.attempts)
}

/// What this process has seen, in monotonic time.
#[derive(Debug, Default)]
pub(super) struct Sights(HashMap<Send, Duration>);

impl Sights {
    /// This process saw the send end just now.
    pub(super) fn note_end(&mut self, send: Send, now: Duration) {
        self.0.insert(send, now);
    }

    /// How much of settle is left since the send can last have ended (contract 4.1 rule 3); the first sight begins it.
    pub(super) fn unsettled(&mut self, send: Send, settle: Duration, now: Duration) -> Duration {
        self.0.entry(send).or_insert(now).saturating_add(settle).saturating_sub(now)
    }

    /// The outcome of a send is known.
    pub(super) fn forget(&mut self, send: Send) {
        self.0.remove(&send);
    }

    /// Takes note of all sends that are uncertain now.
    pub(super) fn look_around(&mut self, uncertain: &[Send], now: Duration) {
        let open: HashSet<&Send> = uncertain.iter().collect();
        self.0.retain(|send, at| open.contains(send) || now < at.saturating_add(KEPT));
        for send in uncertain {
            self.0.entry(*send).or_insert(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const SETTLE: Duration = Duration::from_secs(120);

    fn send(number: u128, attempt: u32) -> Send {
        (OperationId(uuid::Uuid::from_u128(number)), attempt)
    }

    #[test]
    fn settle_runs_from_the_end_that_was_seen_or_the_first_sight() {
        let mut sights = Sights::default();
        sights.note_end(send(1, 1), 10 * S);
        assert_eq!(sights.unsettled(send(1, 1), SETTLE, 50 * S), 80 * S);
        assert_eq!(sights.unsettled(send(1, 1), SETTLE, 130 * S), Duration::ZERO);
        assert_eq!(sights.unsettled(send(2, 1), SETTLE, 50 * S), SETTLE, "it may have been sent just now");
        assert_eq!(sights.unsettled(send(2, 1), SETTLE, 60 * S), SETTLE - 10 * S);
    }

    #[test]
    fn another_attempt_begins_anew_whoever_made_it() {
        let mut sights = Sights::default();
        sights.look_around(&[send(1, 1)], 10 * S);
        assert_eq!(sights.unsettled(send(1, 1), SETTLE, 130 * S), Duration::ZERO);
        // Another node looked it up, sent it again, and has lost that answer too.
        assert_eq!(sights.unsettled(send(1, 2), SETTLE, 131 * S), SETTLE);
    }

    #[test]
    fn what_is_uncertain_is_seen_from_the_first_look_on_and_what_is_over_is_forgotten() {
        let mut sights = Sights::default();
        sights.note_end(send(1, 1), 10 * S);
        sights.look_around(&[send(2, 1)], 20 * S);
        sights.look_around(&[send(1, 1), send(2, 1)], 30 * S);
        assert_eq!(sights.unsettled(send(1, 1), SETTLE, 40 * S), 90 * S, "its result was not in the list yet");
        assert_eq!(sights.unsettled(send(2, 1), SETTLE, 40 * S), 100 * S);
        sights.look_around(&[send(2, 1)], 10 * S + KEPT);
        assert_eq!(sights.0.len(), 1, "{sights:?}");
        sights.forget(send(2, 1));
        assert!(sights.0.is_empty());
    }
}

//! A glance at a key on the caller's own thread: replays are answered without a queue and without a second thread (SQLite).

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use diesel::prelude::*;

use super::conn::{Purpose, connect_sqlite};
use super::reading;
use super::types::StoreError;
use crate::operation::{Operation, SourceKey, SourceName, Variant};

thread_local! {
    /// The connection of this thread, with the store it belongs to.
    static CONNECTION: RefCell<Option<(u64, SqliteConnection)>> = const { RefCell::new(None) };
}

/// A number no other store of this process has.
pub(super) fn next_instance() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whether glances pay: a look that finds nothing costs a new lead a tenth of all its work, and one that finds its operation saves
/// a replay the way through the writer. So while hardly any finds something, only one in several is made, to notice a change.
#[derive(Debug)]
pub(super) struct Odds {
    /// Moving average of what was found, of [`Odds::ALL`].
    found: AtomicU32,
    turn: AtomicU32,
}

impl Odds {
    const ALL: u32 = 1 << 16;
    /// About where the two costs meet.
    const PAYS: u32 = Self::ALL / 4;
    const ONE_IN: u32 = 16;

    pub(super) fn new() -> Self {
        Self { found: AtomicU32::new(Self::ALL), turn: AtomicU32::new(0) }
    }

    pub(super) fn worth_it(&self) -> bool {
        self.found.load(Ordering::Relaxed) >= Self::PAYS
            || self.turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(Self::ONE_IN)
    }

    /// (Of two that note at once one may be forgotten: it is an average.)
    pub(super) fn note(&self, found: bool) {
        let before = self.found.load(Ordering::Relaxed);
        let gain = if found { Self::ALL / 16 } else { 0 };
        self.found.store(before - before / 16 + gain, Ordering::Relaxed);
    }
}

/// The operation that owns the key, if it can be read at once. A lock in the way or a connection in trouble is `Ok(None)`: the
/// claim in the writer is what decides.
pub(super) fn glance(
    instance: u64,
    file: &Path,
    source: &SourceName,
    key: &SourceKey,
) -> Result<Option<Operation>, StoreError> {
    let row = CONNECTION.with(|slot| {
        let Ok(mut slot) = slot.try_borrow_mut() else { return None };
        let mut conn = match slot.take() {
            Some((of, conn)) if of == instance => conn,
            Some(_) | None => connect_sqlite(file, Purpose::Inline).ok()?,
        };
        let row = reading::of_key_sqlite(&mut conn, source, key, &Variant::First).ok()?;
        *slot = Some((instance, conn));
        row
    });
    row.map(Operation::try_from).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(odds: &Odds, deliveries: usize, replay: impl Fn(usize) -> bool) -> usize {
        let looks = (0..deliveries).filter(|number| {
            let looks = odds.worth_it();
            if looks {
                odds.note(replay(*number));
            }
            looks
        });
        looks.count()
    }

    #[test]
    fn glances_are_made_while_they_find_something_and_a_change_is_noticed() {
        let odds = Odds::new();
        assert_eq!(looks(&odds, 100, |_| true), 100);
        assert!(looks(&odds, 1_000, |_| false) < 100);
        assert!((60..=70).contains(&looks(&odds, 1_000, |number| number % 10 == 0)), "a tenth is not worth it");
        assert!(looks(&odds, 1_000, |_| true) > 850);
        assert_eq!(looks(&odds, 1_000, |number| number % 2 == 0), 1_000);
    }
}

//! A glance at a key on the caller's own thread: replays are answered without a queue and without a second thread (SQLite).

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

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

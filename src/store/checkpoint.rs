//! Checkpoints of the SQLite write-ahead log, off the writer (SQLite's slow answers come from checkpoints, not commits).
//!
//! [`super::Store::checkpoint`], called from time to time by a thread of `app`, copies the bulk back into the file on its own
//! connection and raises a flag; between two batches the writer copies the small rest, after which its next commit starts the
//! log anew. Without that hand-off the log would never start anew under steady load. Should nobody call it, the writer itself
//! keeps the log under a hard cap.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use diesel::prelude::*;
use diesel::sql_types::Integer;

use super::conn::{Address, Purpose, connect_sqlite};
use super::failure::read_error;
use super::shared::Shared;
use super::types::StoreError;

/// Pages (4 KiB) in the log that are worth a checkpoint: 16 MiB.
const WORTH_IT: i32 = 4 * 1024;
/// Pages in the log at which the writer itself makes one: 256 MiB.
const HARD_CAP: i32 = 64 * 1024;
/// Pages in the log beyond which nothing more is written while a reader keeps it from being copied back: 1 GiB. Leads that are
/// refused come again; a log that fills the disk takes everything down with it.
const LIMIT: i32 = 256 * 1024;
/// Batches between two looks of the writer at the length of the log.
const LOOK_EVERY: u32 = 64;

#[derive(QueryableByName)]
struct Progress {
    #[diesel(sql_type = Integer)]
    log: i32,
    #[diesel(sql_type = Integer)]
    checkpointed: i32,
}

/// `NOOP` only reports the length of the log; `PASSIVE` copies what it can without waiting for anybody.
fn checkpoint(conn: &mut SqliteConnection, mode: &str) -> QueryResult<Progress> {
    diesel::sql_query(format!("PRAGMA wal_checkpoint({mode})")).get_result(conn)
}

/// The side of the checkpointing thread.
#[derive(Default)]
pub(super) struct Checkpointer {
    conn: Mutex<Option<SqliteConnection>>,
    /// The bulk is copied; the writer may copy the rest.
    handed_off: AtomicBool,
}

impl Checkpointer {
    /// Copies the log back if that is worth it; whether it did.
    pub(super) fn run(&self, address: &Address) -> Result<bool, StoreError> {
        let Some(path) = address.file() else { return Ok(false) };
        let mut slot = self.conn.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut conn = match slot.take() {
            Some(conn) => conn,
            None => connect_sqlite(path, Purpose::Checkpointer)?,
        };
        let length = checkpoint(&mut conn, "NOOP").map_err(read_error)?;
        let due = length.log.saturating_sub(length.checkpointed) >= WORTH_IT;
        if due {
            checkpoint(&mut conn, "PASSIVE").map_err(read_error)?;
            self.handed_off.store(true, Ordering::Release);
        }
        *slot = Some(conn);
        Ok(due)
    }
}

/// The side of the writer.
pub(super) struct Watch {
    batches: u32,
    limit: i32,
    /// At the last look the log had reached its limit.
    full: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Self { batches: 0, limit: LIMIT, full: false }
    }
}

impl Watch {
    /// Before a batch: an error while some reader (a person's `sqlite3`, a copy being made) stays in the log so long that it has
    /// reached its limit.
    pub(super) fn before_batch(&mut self, conn: &mut SqliteConnection) -> Result<(), StoreError> {
        if self.full {
            self.copy_back(conn);
        }
        if self.full {
            let text = "the write-ahead log has reached its limit: a reader of the file does not let go of it";
            return Err(StoreError::Unavailable(text.into()));
        }
        Ok(())
    }

    /// Between two batches: the rest of a checkpoint, or all of it where the log is far too long.
    pub(super) fn after_batch(&mut self, conn: &mut SqliteConnection, shared: &Shared) {
        self.batches = self.batches.wrapping_add(1);
        let rest = shared.checkpointer.handed_off.swap(false, Ordering::AcqRel);
        let too_long = !rest
            && self.batches.is_multiple_of(LOOK_EVERY)
            && checkpoint(conn, "NOOP").is_ok_and(|p| p.log.saturating_sub(p.checkpointed) >= HARD_CAP.min(self.limit));
        if rest || too_long {
            self.copy_back(conn);
        }
    }

    fn copy_back(&mut self, conn: &mut SqliteConnection) {
        match checkpoint(conn, "PASSIVE") {
            // What is copied back whole starts anew with the next commit.
            Ok(progress) => self.full = progress.log >= self.limit && progress.checkpointed < progress.log,
            Err(error) => tracing::warn!(%error, "the write-ahead log could not be copied back"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diesel::connection::SimpleConnection;

    #[test]
    fn the_length_of_the_log_can_be_read_without_a_checkpoint() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log.db");
        let mut conn = connect_sqlite(&path, Purpose::Writer).expect("a database");
        conn.batch_execute("CREATE TABLE t (n BLOB); INSERT INTO t VALUES (randomblob(100000))").expect("written");
        let before = checkpoint(&mut conn, "NOOP").expect("reported");
        assert!(before.log > 20 && before.checkpointed == 0, "{} {}", before.log, before.checkpointed);
        let after = checkpoint(&mut conn, "PASSIVE").expect("copied");
        assert_eq!(after.log, after.checkpointed);
    }

    #[test]
    fn after_a_hand_off_the_log_starts_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log.db");
        let mut writer = connect_sqlite(&path, Purpose::Writer).expect("a database");
        let shared = Shared::for_tests();
        let bulk = "INSERT INTO t SELECT randomblob(1000000) FROM (VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9))";
        writer.batch_execute("CREATE TABLE t (n BLOB)").expect("a table");
        for _ in 0..2 {
            writer.batch_execute(bulk).expect("written");
        }
        let address = Address::Sqlite(path);
        assert!(shared.checkpointer.run(&address).expect("copied"), "18 MB are worth a checkpoint");
        assert!(!shared.checkpointer.run(&address).expect("looked"), "nothing is left to copy");
        Watch::default().after_batch(&mut writer, &shared);
        writer.batch_execute("INSERT INTO t VALUES (x'00')").expect("written");
        assert!(checkpoint(&mut writer, "NOOP").expect("reported").log < 100, "the log was started anew");
    }

    #[test]
    fn c84_a_reader_that_stays_does_not_let_the_log_grow_without_limit() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log.db");
        let mut writer = connect_sqlite(&path, Purpose::Writer).expect("a database");
        writer.batch_execute("CREATE TABLE t (n BLOB)").expect("a table");
        let shared = Shared::for_tests();
        let mut watch = Watch { limit: 500, ..Watch::default() };
        let batch = |watch: &mut Watch, writer: &mut SqliteConnection| {
            watch.before_batch(writer)?;
            writer.batch_execute("INSERT INTO t VALUES (randomblob(20000))").expect("written");
            watch.after_batch(writer, &shared);
            Ok::<(), StoreError>(())
        };
        let mut reader = SqliteConnection::establish(path.to_str().expect("text")).expect("a reader");
        reader.batch_execute("BEGIN; SELECT count(*) FROM t").expect("stays");
        let refused = (0..1_000).find_map(|_| batch(&mut watch, &mut writer).err()).expect("the log has a limit");
        assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
        let length = checkpoint(&mut writer, "NOOP").expect("reported").log;
        assert!((500..1_000).contains(&length), "{length}");
        batch(&mut watch, &mut writer).expect_err("it still stays");

        reader.batch_execute("COMMIT").expect("lets go");
        for _ in 0..2 * LOOK_EVERY {
            batch(&mut watch, &mut writer).expect("written again");
        }
        assert!(checkpoint(&mut writer, "NOOP").expect("reported").log <= length, "the log was started anew");
    }
}

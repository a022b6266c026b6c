//! What the handle and the writer share.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::{Notify, broadcast};

use super::bell::Outbox;
use super::checkpoint::Checkpointer;
use super::types::StoreError;
use crate::operation::OperationId;

/// Finished operations that a slow listener may be behind before it must look for itself.
const FINISHED_KEPT: usize = 4096;

/// Lives as long as any handle or the writer.
pub(super) struct Shared {
    pub(super) work: Arc<Notify>,
    pub(super) finished: broadcast::Sender<OperationId>,
    pub(super) checkpointer: Checkpointer,
    /// How often the writer has connected anew: whatever made it leave its connection made others bad too.
    pub(super) era: AtomicU64,
    /// What the other nodes are to be told; `None` where there can be none.
    pub(super) outbox: Option<Outbox>,
    /// Held for as long as this process serves the SQLite file; closing it gives the file free.
    _lock: Option<File>,
}

impl Shared {
    pub(super) fn new(lock: Option<File>, outbox: Option<Outbox>) -> Self {
        Self {
            work: Arc::new(Notify::new()),
            finished: broadcast::Sender::new(FINISHED_KEPT),
            checkpointer: Checkpointer::default(),
            era: AtomicU64::new(0),
            outbox,
            _lock: lock,
        }
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Self {
        Self::new(None, None)
    }

    /// What a commit of this process brought about: told to whoever waits here, and left for the other nodes.
    pub(super) fn committed(&self, work: bool, finished: &[OperationId]) {
        if work {
            self.wake();
        }
        for id in finished {
            // Nobody may be listening.
            let _ = self.finished.send(*id);
        }
        if let Some(outbox) = &self.outbox {
            outbox.put(work, finished);
        }
    }

    /// Wakes whoever waits for work now, and whoever comes next: a wake-up that falls between a worker's look and its wait
    /// is not lost.
    pub(super) fn wake(&self) {
        self.work.notify_waiters();
        self.work.notify_one();
    }
}

/// Takes the file that says "a gateway serves this database" (contract 4.1 rule 11). The lock ends with the process, however
/// it ends.
pub(super) fn lock(database: &Path) -> Result<File, StoreError> {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    let path = Path::new(&name);
    let setup = |e: &dyn std::fmt::Display| StoreError::Setup(format!("{}: {e}", path.display()));
    let file = File::options().create(true).truncate(false).write(true).open(path).map_err(|e| setup(&e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Setup(format!(
            "another leadonce process serves {} already; stop it first",
            database.display()
        ))),
        Err(TryLockError::Error(e)) => Err(setup(&e)),
    }
}

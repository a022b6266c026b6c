//! Reading: a pool of connections for each kind of reader, so that none starves another. An operator who searches millions of rows
//! holds up no sender that asks for its status, and neither holds up delivery.
//!
//! Connections are opened when they are first needed and closed when they lie idle: on a PostgreSQL with few of them, several
//! nodes live with a writer and a reader each. Every read has a time within which it is answered, by an error if need be.
//!
//! A pool has threads of its own. A single thread that steps everything has one connection instead.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use diesel::r2d2::{ManageConnection, Pool, R2D2Connection};
use tokio::sync::Semaphore;

use super::conn::{Address, AnyConn, Purpose};
use super::failure::Failure;
use super::shared::Shared;
use super::types::StoreError;

/// How long a read waits for a connection to be opened.
const OPEN_WITHIN: Duration = Duration::from_millis(1_500);
/// How long the engine and the chores wait for an answer.
const CHORES: Duration = Duration::from_secs(60);
/// How long a connection may lie idle.
const IDLE: Duration = Duration::from_secs(20);

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// Senders: what became of their leads, and who may ask.
    Intake,
    /// The engine, and the chores beside it (counting, incidents, audits, retention).
    Delivery,
    /// Operators: lists, searches, stories.
    Admin,
}

/// How reads are carried out.
#[derive(Clone)]
pub(super) enum Readers {
    /// On other threads, with a pool for each reader.
    Pooled { intake: Lane, delivery: Lane, admin: Lane },
    /// On the caller's own thread, whoever asks.
    Inline(Arc<Inline>),
}

impl Readers {
    /// Shares so many connections out: half of them to senders, the rest to the others; at least one each. Without any, reads
    /// are inline.
    pub(super) fn new(address: &Address, shared: &Arc<Shared>, connections: u32) -> Self {
        let manager = |patience| Manager { address: address.clone(), shared: Arc::clone(shared), patience };
        if connections == 0 {
            return Self::Inline(Arc::new(Inline { manager: manager(CHORES), conn: Mutex::default() }));
        }
        let lane = |connections: u32, patience: Duration| {
            let connections = connections.max(1);
            let pool = Pool::builder()
                .max_size(connections)
                .min_idle(Some(0))
                .connection_timeout(OPEN_WITHIN)
                .idle_timeout(Some(IDLE))
                .build_unchecked(manager(patience));
            Lane { pool, permits: Arc::new(Semaphore::new(usize::try_from(connections).unwrap_or(1))), patience }
        };
        Self::Pooled {
            // A sender is told within two seconds.
            intake: lane(connections.div_ceil(2), Duration::from_millis(1_800)),
            delivery: lane(connections / 4, CHORES),
            admin: lane(connections / 4, Duration::from_secs(30)),
        }
    }

    /// Reads for somebody.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        reader: Reader,
        work: impl FnOnce(&mut AnyConn) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        match (self, reader) {
            (Self::Inline(inline), _) => inline.read(work),
            (Self::Pooled { intake, .. }, Reader::Intake) => intake.read(work).await,
            (Self::Pooled { delivery, .. }, Reader::Delivery) => delivery.read(work).await,
            (Self::Pooled { admin, .. }, Reader::Admin) => admin.read(work).await,
        }
    }
}

/// One pool and the places before it.
#[derive(Clone)]
pub(super) struct Lane {
    pool: Pool<Manager>,
    /// As many permits as the pool has connections: waiting for one holds no blocking thread.
    permits: Arc<Semaphore>,
    /// The longest a reader waits for its answer.
    patience: Duration,
}

impl Lane {
    /// Reads on a blocking thread. Where the answer does not come in time the reader is told so; the connection stays taken
    /// until the database lets go of it, so that a database that hangs does not pile up threads.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut AnyConn) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        let read = async {
            let permit = self.permits.clone().acquire_owned().await;
            let permit = permit.map_err(|_| StoreError::Unavailable("the store is closed".into()))?;
            let pool = self.pool.clone();
            let done = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                let mut conn = pool.get().map_err(|e| StoreError::Unavailable(e.to_string()))?;
                work(&mut conn).map_err(StoreError::from)
            });
            done.await.map_err(|e| StoreError::Unavailable(e.to_string()))?
        };
        let late = |_| StoreError::Unavailable(format!("no answer within {:?}", self.patience));
        tokio::time::timeout(self.patience, read).await.map_err(late)?
    }
}

/// One connection, opened when it is first needed.
pub(super) struct Inline {
    manager: Manager,
    conn: Mutex<Option<Pooled>>,
}

impl Inline {
    fn read<T>(&self, work: impl FnOnce(&mut AnyConn) -> Result<T, Failure>) -> Result<T, StoreError> {
        // Taken out while it works: one that a panic leaves behind is not used again, so a poisoned lock holds nothing bad.
        let mut slot = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = slot.take().filter(|conn| !self.manager.is_of_the_past(conn));
        let mut conn = match kept {
            Some(conn) => conn,
            None => self.manager.connect()?,
        };
        let outcome = work(&mut conn).map_err(StoreError::from);
        if !self.manager.has_broken(&mut conn) {
            *slot = Some(conn);
        }
        outcome
    }
}

/// A connection that is kept.
struct Pooled {
    conn: AnyConn,
    /// The writer's era in which it was opened.
    era: u64,
}

impl Deref for Pooled {
    type Target = AnyConn;

    fn deref(&self) -> &AnyConn {
        &self.conn
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut AnyConn {
        &mut self.conn
    }
}

/// Makes connections for reading.
struct Manager {
    address: Address,
    shared: Arc<Shared>,
    patience: Duration,
}

impl Manager {
    /// The writer has connected anew since: this connection may lead to a server that was switched over, and show yesterday.
    fn is_of_the_past(&self, conn: &Pooled) -> bool {
        conn.era != self.shared.era.load(Ordering::Acquire)
    }
}

impl ManageConnection for Manager {
    type Connection = Pooled;
    type Error = StoreError;

    fn connect(&self) -> Result<Pooled, StoreError> {
        // Read first: what was opened while the writer connected anew counts as opened before.
        let era = self.shared.era.load(Ordering::Acquire);
        Ok(Pooled { conn: self.address.connect(Purpose::Reader(self.patience))?, era })
    }

    fn is_valid(&self, pooled: &mut Pooled) -> Result<(), StoreError> {
        if self.is_of_the_past(pooled) {
            return Err(StoreError::Unavailable("the writer has left for another connection".into()));
        }
        match &mut pooled.conn {
            AnyConn::Postgres(conn) => conn.ping().map_err(|e| StoreError::Unavailable(e.to_string())),
            // It does not go away by itself.
            AnyConn::Sqlite(_) => Ok(()),
        }
    }

    fn has_broken(&self, pooled: &mut Pooled) -> bool {
        std::thread::panicking() || self.is_of_the_past(pooled) || pooled.conn.is_broken()
    }
}

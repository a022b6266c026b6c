//! The store: the one memory of the gateway, on SQLite or PostgreSQL.
//!
//! Promises: a write is answered only after its commit is durable; the claim of a key is an insert under a unique constraint;
//! every change of an operation is one conditional UPDATE; no transaction stays open across a network call; an identical body
//! of queries serves both backends. It must not know sources, CRMs, retry policies or HTTP: it carries out what the
//! operation's pure functions decided.
//!
//! How it is built:
//! - One writer per process ([`Writer`]) carries out all writes. [`Store`], the handle, puts jobs (`job.rs`) into its bounded
//!   queue; the writer drains what is waiting into one transaction, commits once and answers then (`writer.rs`). What the jobs
//!   do stands in `admit.rs` (claims, with `windows.rs` for events without a key and
//!   `copies.rs` for those that look like copies), `changes.rs` (the conditional UPDATE),
//!   `take.rs` (due work) and, as closures, in the files of the rarer subjects.
//! - Reads go through small pools on blocking threads, never more at once than there are connections; intake, delivery and
//!   administration have one each (`readers.rs`). [`Store::glance`] alone reads on the caller's own thread (SQLite).
//! - `conn.rs` opens either backend by the URL's scheme; `rows.rs` is the one place that turns rows into domain values;
//!   `schema.rs` describes the tables that `migrations/` makes, with the same names in both folders.
//! - Several nodes on one PostgreSQL wake each other (`bell.rs`).
//! - Time is an argument everywhere. The writer has no thread and no timer of its own: `app` steps it, and calls
//!   [`Store::checkpoint`] from time to time.
//!
//! Durability: SQLite runs in WAL mode with `synchronous=FULL`; on PostgreSQL `synchronous_commit` is switched on where the
//! server's default is off. Times are unix microseconds; ids are UUIDs as text, so that a person can read them in a query.

mod activity;
mod admit;
mod backup;
mod bell;
mod census;
mod changes;
mod checkpoint;
mod codec;
mod conn;
mod contacts;
mod copies;
mod destinations;
mod failure;
mod glance;
mod incidents;
mod inserts;
mod job;
mod lists;
mod locks;
mod logs;
mod migrate;
mod partitions;
mod people;
#[cfg(test)]
mod plans;
mod readers;
mod reading;
mod retention;
mod rows;
mod schema;
mod sessions;
mod shared;
mod take;
mod time;
mod tokens;
mod types;
mod windows;
mod writer;

use std::sync::Arc;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast, mpsc, oneshot};

use self::bell::Outbox;
use self::codec::Sealed;
use self::conn::{Address, AnyConn, Purpose};
use self::failure::Failure;
use self::job::{Ask, Job, LogEntry, Rare};
use self::readers::{Reader, Readers};
use self::shared::Shared;
use crate::clock::At;
use crate::operation::{Lead, Operation, OperationId, SourceKey, SourceName};
pub use backup::{backup, restore};
pub use bell::Bell;
pub use types::*;
pub use writer::Writer;

/// How a process uses the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The gateway: on SQLite no second one may run on the same file.
    Serve,
    /// The same, over a store that was restored by the database's own means, or begun anew after a loss, at that moment.
    ServeRestored(At),
    /// A command beside it (`token`, `purge`).
    Tool,
}

/// Memory for bodies that a place in the queue stands for, in KiB: large ones take the room of several.
const KIB_OF_A_PLACE: usize = 64;

/// A handle to the store; cheap to clone.
#[derive(Clone)]
pub struct Store {
    jobs: mpsc::Sender<Job>,
    shared: Arc<Shared>,
    address: Address,
    readers: Readers,
    /// Memory, in KiB, that bodies in the queue may hold.
    room: Arc<Semaphore>,
    /// All of it.
    room_kib: u32,
    /// Key of the contact hashes, made once per database.
    contact_secret: Arc<[u8]>,
    /// When it was restored.
    restored_at: Option<At>,
    /// Tells the stores of one process apart, for the connections that threads keep.
    instance: u64,
    odds: Arc<glance::Odds>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store(instance {})", self.instance)
    }
}

impl Store {
    /// Opens the store, runs migrations, and gives the handle and its writer.
    ///
    /// Errors: `Setup` where the settings or the database cannot work (an unknown scheme, a second gateway on one SQLite file,
    /// a schema newer than the program), `Unavailable` where the database does not answer.
    pub fn open(settings: &Settings, how: Use) -> Result<(Self, Writer), StoreError> {
        let address = Address::parse(&settings.url)?;
        let lock = match (address.file(), how) {
            (Some(file), Use::Serve | Use::ServeRestored(_)) => Some(shared::lock(file)?),
            (Some(_), Use::Tool) | (None, _) => None,
        };
        let mut conn = address.connect(Purpose::Writer)?;
        if let AnyConn::Sqlite(conn) = &mut conn {
            conn::check_sqlite_version(conn)?;
        }
        migrate::run(&mut conn)?;
        if let Use::ServeRestored(at) = how {
            backup::mark(&mut conn, at)?;
        }
        let restored_at = backup::restored_at(&mut conn)?;
        let contact_secret = contacts::secret(&mut conn)?.into();
        let (sender, receiver) = mpsc::channel(settings.queue.max(1));
        let shared = Arc::new(Shared::new(lock, address.file().is_none().then(Outbox::default)));
        let readers = Readers::new(&address, &shared, settings.readers);
        let room = settings.queue.max(1).saturating_mul(KIB_OF_A_PLACE).min(Semaphore::MAX_PERMITS);
        let store = Self {
            jobs: sender,
            shared: shared.clone(),
            address: address.clone(),
            readers,
            room_kib: u32::try_from(room).unwrap_or(u32::MAX),
            room: Arc::new(Semaphore::new(room)),
            contact_secret,
            restored_at,
            instance: glance::next_instance(),
            odds: Arc::new(glance::Odds::new()),
        };
        Ok((store, Writer::new(receiver, shared, address, conn, settings.batch)))
    }

    /// Wakes when new work was committed (a new operation, a retry, a resume). Create the `notified()` future before looking
    /// for work: what is committed in between then wakes it.
    pub fn work(&self) -> Arc<Notify> {
        self.shared.work.clone()
    }

    /// Ids of operations that were finished: by this process, and by the other nodes as far as they are heard ([`Store::bell`]).
    pub fn finished(&self) -> broadcast::Receiver<OperationId> {
        self.shared.finished.subscribe()
    }

    /// Copies a long SQLite write-ahead log back into its file, where that is worth it; whether it did. Blocks: for a thread
    /// of its own, a few times a second. Nothing to do on PostgreSQL.
    pub fn checkpoint(&self) -> Result<bool, StoreError> {
        self.shared.checkpointer.run(&self.address)
    }

    // --- intake ---

    /// Logs a delivery and claims its events; answers after the commit is durable. `Busy` at once where the queue is full.
    pub async fn admit(&self, admit: Admit) -> Result<Vec<Admission>, StoreError> {
        if admit.events.is_empty() {
            return Err(StoreError::Inconsistent(format!("delivery {}: no events", admit.delivery.id)));
        }
        let room = self.room_for(&admit.delivery)?;
        let sealed = Sealed::new(&admit.delivery);
        let (ask, answer) = Ask::new(admit::Intake { admit, sealed });
        self.try_send(Job::Admit(Box::new(ask.holding(room))))?;
        answered(answer).await
    }

    /// An inline look at a key (SQLite: thread-local connection, microseconds). `Ok(None)` also where it is better that the
    /// caller goes through `admit`: with PostgreSQL, and while hardly any look finds something.
    pub fn glance(&self, source: &SourceName, key: &SourceKey) -> Result<Option<Operation>, StoreError> {
        match self.address.file() {
            Some(file) if self.odds.worth_it() => {
                let found = glance::glance(self.instance, file, source, key);
                self.odds.note(matches!(found, Ok(Some(_))));
                found
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Logs a delivery without an operation (rejected, test, spam, ignored), durably. `Busy` at once where the queue is full.
    pub async fn log(&self, delivery: NewDelivery, verdict: Verdict) -> Result<(), StoreError> {
        let room = self.room_for(&delivery)?;
        let sealed = Sealed::new(&delivery);
        let (ask, answer) = Ask::new(LogEntry { delivery, sealed, event_index: 0, operation: None, verdict });
        self.try_send(Job::Log(Box::new(ask.holding(room))))?;
        answered(answer).await
    }

    /// Logs an identical replay. The row may follow the answer; where the queue is half full it does not, so that those who
    /// repeat wait their turn rather than fill it, and new leads find room. `Busy` at once where it is full.
    pub async fn log_replay(
        &self,
        delivery: NewDelivery,
        event_index: u16,
        operation: OperationId,
    ) -> Result<(), StoreError> {
        let room = self.room_for(&delivery)?;
        let sealed = Sealed::new(&delivery);
        let verdict = Verdict::Replay;
        let entry = LogEntry { delivery, sealed, event_index, operation: Some(operation), verdict };
        if self.jobs.capacity() > self.jobs.max_capacity() / 2 {
            return self.try_send(Job::Log(Box::new(Ask::unattended(entry).holding(room))));
        }
        let (ask, answer) = Ask::new(entry);
        self.try_send(Job::Log(Box::new(ask.holding(room))))?;
        answered(answer).await
    }

    // --- delivery ---

    /// Claims due creates, takes due look-ups, moves expired leases, for one destination, in one commit. Creates and look-ups
    /// only while the destination is active and not throttled; one create while it is probing.
    pub async fn take(&self, take: Take) -> Result<Taken, StoreError> {
        let (ask, answer) = Ask::new(take);
        self.send(Job::Take(Box::new(ask))).await?;
        answered(answer).await
    }

    /// Operations whose outcome is uncertain, each with the number of its last create; so many at most.
    pub async fn uncertain(&self, most: usize) -> Result<Vec<(OperationId, u32)>, StoreError> {
        self.read(move |conn| take::uncertain(conn, most)).await
    }

    /// One conditional change.
    pub async fn update(&self, update: Update) -> Result<Updated, StoreError> {
        let (ask, answer) = Ask::new(update);
        self.send(Job::Update(Box::new(ask))).await?;
        answered(answer).await
    }

    /// What the engine needs to build a call.
    pub async fn work_of(&self, operation: &Operation) -> Result<Work, StoreError> {
        let operation = operation.clone();
        self.read(move |conn| reading::work(conn, &operation)).await
    }

    // --- reading one operation ---

    /// One operation.
    pub async fn operation(&self, id: OperationId) -> Result<Option<Operation>, StoreError> {
        self.read_for(Reader::Intake, move |conn| reading::operation(conn, id)).await
    }

    /// The operation that owns a key (variant `First`).
    pub async fn operation_of_key(&self, source: SourceName, key: SourceKey) -> Result<Option<Operation>, StoreError> {
        let first = crate::operation::Variant::First;
        self.read_for(Reader::Intake, move |conn| reading::of_key(conn, &source, &key, &first)).await
    }

    /// The lead as an operator corrected it.
    pub async fn edited_lead(&self, id: OperationId) -> Result<Option<Lead>, StoreError> {
        self.read(move |conn| reading::edited_lead(conn, id)).await
    }

    // --- the two ways in ---

    /// Reads for the engine and the chores beside it.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut AnyConn) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_for(Reader::Delivery, work).await
    }

    /// Reads in the way of whoever asks.
    async fn read_for<T: Send + 'static>(
        &self,
        reader: Reader,
        work: impl FnOnce(&mut AnyConn) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.readers.read(reader, work).await
    }

    /// Writes through the writer's queue, waiting for room in it. The work may be done several times until it is committed;
    /// its second argument says that an earlier commit of it may have stood.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut AnyConn, bool) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.write_and_wake(work, |_| false).await
    }

    /// The same, with the question whether what came of it wakes the workers.
    async fn write_and_wake<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut AnyConn, bool) -> Result<T, Failure> + Send + 'static,
        wakes: fn(&T) -> bool,
    ) -> Result<T, StoreError> {
        let (task, answer) = Rare::new(work, wakes);
        self.send(Job::Rare(Box::new(task))).await?;
        answered(answer).await
    }

    /// The share of the queue's memory that a delivery needs, at most all of it; `Busy` where so much is not left.
    fn room_for(&self, delivery: &NewDelivery) -> Result<OwnedSemaphorePermit, StoreError> {
        let kib = u32::try_from(delivery.body.len() / 1024).unwrap_or(u32::MAX);
        self.room.clone().try_acquire_many_owned(kib.min(self.room_kib)).map_err(|_| StoreError::Busy)
    }

    fn try_send(&self, job: Job) -> Result<(), StoreError> {
        self.jobs.try_send(job).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => stopped(),
        })
    }

    async fn send(&self, job: Job) -> Result<(), StoreError> {
        self.jobs.send(job).await.map_err(|_| stopped())
    }
}

async fn answered<T>(answer: oneshot::Receiver<Result<T, StoreError>>) -> Result<T, StoreError> {
    answer.await.unwrap_or_else(|_| Err(stopped()))
}

fn stopped() -> StoreError {
    StoreError::Unavailable("the writer has stopped".into())
}

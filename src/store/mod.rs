//! The store: the one memory of the gateway, on SQLite or PostgreSQL.
//!
//! Promises: a write is answered only after its commit is durable; the claim of a key is an insert under a unique constraint;
//! every change of an operation is one conditional UPDATE; no transaction stays open across a network call; an identical body
//! of queries serves both backends. It must not know sources, CRMs, retry policies or HTTP: it carries out what the
//! operation's pure functions decided.

mod types;

use std::sync::Arc;

use tokio::sync::{Notify, broadcast};

use crate::clock::At;
use crate::operation::{DestinationName, Lead, Operation, OperationId, SourceKey, SourceName};
pub use types::*;

/// How a process uses the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The gateway: on SQLite no second one may run on the same file.
    Serve,
    /// A command beside it (`token`, `purge`).
    Tool,
}

/// A handle to the store; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {}

/// The writer's core: whoever owns it steps it. One thread in the program (`app`), the test itself in tests.
pub struct Writer {}

impl Writer {
    /// Waits for work, then carries out one batch; `false` once every handle is gone.
    pub fn run_one(&mut self) -> bool {
        todo!()
    }
    /// Carries out what is waiting now, without waiting; the number of writes.
    pub fn step(&mut self) -> usize {
        todo!()
    }
}

impl Store {
    /// Opens the store, runs migrations, and gives the handle and its writer.
    pub fn open(settings: &Settings, how: Use) -> Result<(Self, Writer), StoreError> {
        todo!()
    }
    /// Wakes when new work was committed (a new operation, a retry, a resume).
    pub fn work(&self) -> Arc<Notify> {
        todo!()
    }
    /// Ids of operations that were finished by a commit of this process.
    pub fn finished(&self) -> broadcast::Receiver<OperationId> {
        todo!()
    }

    // --- intake ---
    /// Logs a delivery and claims its events; answers after the commit is durable. `Busy` at once where the queue is full.
    pub async fn admit(&self, admit: Admit) -> Result<Vec<Admission>, StoreError> {
        todo!()
    }
    /// An inline look at a key (SQLite: thread-local connection, microseconds). `Ok(None)` also where the backend prefers
    /// that the caller goes through `admit`.
    pub fn glance(&self, source: &SourceName, key: &SourceKey) -> Result<Option<Operation>, StoreError> {
        todo!()
    }
    /// Logs a delivery without an operation (rejected, test, spam, ignored), durably.
    pub async fn log(&self, delivery: NewDelivery, verdict: Verdict) -> Result<(), StoreError> {
        todo!()
    }
    /// Logs an identical replay; the row may follow the answer. `false` where the queue is full.
    pub fn log_replay(&self, delivery: NewDelivery, event_index: u16, operation: OperationId) -> bool {
        todo!()
    }

    // --- delivery ---
    /// Claims due creates, takes due look-ups, moves expired leases, for one destination, in one commit. Creates and look-ups
    /// only while the destination is active and not throttled; one create while it is probing.
    pub async fn take(&self, take: Take) -> Result<Taken, StoreError> {
        todo!()
    }
    /// One conditional change.
    pub async fn update(&self, update: Update) -> Result<Updated, StoreError> {
        todo!()
    }
    /// What the engine needs to build a call.
    pub async fn work_of(&self, operation: &Operation) -> Result<Work, StoreError> {
        todo!()
    }

    // --- destinations ---
    /// Makes rows for configured destinations.
    pub async fn ensure_destinations(
        &self,
        destinations: Vec<(DestinationName, String)>,
        at: At,
    ) -> Result<(), StoreError> {
        todo!()
    }
    /// All destinations.
    pub async fn destinations(&self) -> Result<Vec<Destination>, StoreError> {
        todo!()
    }
    /// Suspends, if the destination is active and (for an answer of the CRM) still in the epoch of the call; whether it did.
    pub async fn suspend(
        &self,
        name: DestinationName,
        epoch: Option<i64>,
        reason: String,
        audit: Option<Audit>,
        at: At,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    /// Resumes; whether it was suspended.
    pub async fn resume(&self, name: DestinationName, audit: Option<Audit>, at: At) -> Result<bool, StoreError> {
        todo!()
    }
    /// No call before that time; never shortens an earlier wait.
    pub async fn throttle(&self, name: DestinationName, until: At) -> Result<(), StoreError> {
        todo!()
    }
    /// A create was confirmed: ends probing, notes the time.
    pub async fn succeeded(&self, name: DestinationName, at: At) -> Result<(), StoreError> {
        todo!()
    }

    /// The account answered about a lead: ends probing.
    pub async fn probe_passed(&self, name: DestinationName) -> Result<(), StoreError> {
        todo!()
    }

    // --- reading ---
    /// One operation.
    pub async fn operation(&self, id: OperationId) -> Result<Option<Operation>, StoreError> {
        todo!()
    }
    /// The operation that owns a key (variant `First`).
    pub async fn operation_of_key(&self, source: SourceName, key: SourceKey) -> Result<Option<Operation>, StoreError> {
        todo!()
    }
    /// A page of a list, newest first.
    pub async fn list(&self, filter: Filter) -> Result<Vec<Operation>, StoreError> {
        todo!()
    }
    /// Everything about one operation.
    pub async fn story(&self, id: OperationId) -> Result<Option<Story>, StoreError> {
        todo!()
    }
    /// Counts.
    pub async fn census(&self) -> Result<Census, StoreError> {
        todo!()
    }
    /// Names of sources and of destinations that have open operations.
    pub async fn open_names(&self) -> Result<(Vec<String>, Vec<String>), StoreError> {
        todo!()
    }
    /// Writes something and takes it back, through the writer: whether the store can commit now.
    pub async fn writable(&self) -> Result<(), StoreError> {
        todo!()
    }
    /// Log rows with verdict new or conflict whose operation does not exist, counted from where the last call ended.
    pub async fn unaccounted(&self) -> Result<i64, StoreError> {
        todo!()
    }
    /// Operations that no log explains: without a delivery, or completed or in review after a create without an attempt.
    pub async fn unexplained(&self) -> Result<i64, StoreError> {
        todo!()
    }

    // --- search by phone or e-mail ---
    /// Operations not yet indexed, oldest first, received before `before`, with their delivery and corrected lead.
    pub async fn unindexed(&self, before: At, limit: usize) -> Result<Vec<(Operation, Work)>, StoreError> {
        todo!()
    }
    /// Stores keyed hashes of contacts (normal forms) and moves the index on.
    pub async fn index_contacts(&self, contacts: Vec<(OperationId, Vec<String>)>) -> Result<(), StoreError> {
        todo!()
    }
    /// Operations that bear this contact (normal form), newest first.
    pub async fn find_contact(&self, contact: String, limit: usize) -> Result<Vec<Operation>, StoreError> {
        todo!()
    }

    // --- tokens ---
    /// Makes a token; `false` where an active token of that name exists.
    pub async fn create_token(
        &self,
        name: String,
        role: Role,
        sha256: Vec<u8>,
        audit: Audit,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    /// The active token of that hash; notes its use, to the minute.
    pub async fn token(&self, sha256: Vec<u8>, at: At) -> Result<Option<Token>, StoreError> {
        todo!()
    }
    /// All tokens.
    pub async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        todo!()
    }
    /// Revokes; whether there was one.
    pub async fn revoke_token(&self, name: String, audit: Audit) -> Result<bool, StoreError> {
        todo!()
    }

    // --- incidents ---
    /// Opens an incident; whether it is new (at most one is open per key).
    pub async fn open_incident(&self, key: String, text: String, at: At) -> Result<bool, StoreError> {
        todo!()
    }
    /// Closes it; whether it was open.
    pub async fn close_incident(&self, key: String, at: At) -> Result<bool, StoreError> {
        todo!()
    }
    /// Incidents whose start or end is not told yet, oldest first; and those that are open.
    pub async fn incidents(&self) -> Result<Vec<Incident>, StoreError> {
        todo!()
    }
    /// Marks the start (or the end) as told.
    pub async fn told(&self, id: uuid::Uuid, end: bool) -> Result<(), StoreError> {
        todo!()
    }

    // --- retention ---
    /// One small step: payloads finished before `payload_before`, tombstones finished before `tombstone_before`, log rows
    /// without an operation received before `payload_before`; at most `limit` of each. With `dry_run` only counts.
    pub async fn purge(
        &self,
        payload_before: At,
        tombstone_before: At,
        limit: usize,
        dry_run: bool,
    ) -> Result<Purged, StoreError> {
        todo!()
    }
    /// The lead as an operator corrected it.
    pub async fn edited_lead(&self, id: OperationId) -> Result<Option<Lead>, StoreError> {
        todo!()
    }
}

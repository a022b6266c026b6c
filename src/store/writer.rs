//! The writer: the one way in for writes. It drains what is waiting into one transaction, commits once, and answers only after
//! the commit (G1). While one batch is being committed the next one collects, so that no timer is needed.
//!
//! A batch that fails is done again job by job: one poisoned job never fails its neighbours. Where the connection was lost, the
//! commit's fate is unknown: the batch is repeated with the same ids and answered by what is found (contract 4.1 rule 7). Where
//! the database stays away, everything that waits is told so at once, and the next batch tries again. The same holds where it
//! cannot write for a cause that is nobody's own (read-only, locked, disk full): no connection is kept that might be the cause.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use diesel::connection::SimpleConnection;
use tokio::sync::mpsc;

use super::admit::{self, Intake};
use super::checkpoint;
use super::conn::{Address, AnyConn, Purpose};
use super::failure::Failure;
use super::job::Job;
use super::rows::DeliveryRow;
use super::shared::Shared;
use super::types::{StoreError, Update, Updated};
use super::{changes, inserts, take};
use crate::operation::{Operation, OperationId, State};

/// How often one job is done where another node stands in its way.
const TRIES: usize = 5;
/// So many jobs one after the other that fail without a fault of their own: then the database is at fault, and the others are
/// not tried.
const IN_A_ROW: usize = 3;

/// The writer's core: whoever owns it steps it. One thread in the program (`app`), the test itself in tests.
pub struct Writer {
    jobs: mpsc::Receiver<Job>,
    shared: Arc<Shared>,
    address: Address,
    conn: Option<AnyConn>,
    batch: usize,
    waiting: Vec<Job>,
    log_watch: checkpoint::Watch,
    pause: Box<dyn FnMut(usize) + Send>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer(connected: {})", self.conn.is_some())
    }
}

/// What a commit brings about outside the database.
#[derive(Default)]
struct Effects {
    work: bool,
    finished: Vec<OperationId>,
}

impl Effects {
    fn of_change(&mut self, after: &Operation) {
        match after.state() {
            State::Received => self.work = true,
            State::InProgress => self.work |= matches!(after.status, crate::operation::Status::Reconciling { .. }),
            State::Completed | State::FailedTerminal | State::NeedsReview => self.finished.push(after.id),
        }
    }
}

impl Writer {
    pub(super) fn new(
        jobs: mpsc::Receiver<Job>,
        shared: Arc<Shared>,
        address: Address,
        conn: AnyConn,
        batch: usize,
    ) -> Self {
        let batch = batch.max(1);
        let log_watch = checkpoint::Watch::default();
        let waiting = Vec::with_capacity(batch);
        Self { jobs, shared, address, conn: Some(conn), batch, waiting, log_watch, pause: Box::new(drop) }
    }

    /// Waits this way before a job is done again where another node stood in its way, the first time with 1; without it, not at
    /// all. It should be short, since all others wait too, and left to chance, so that two nodes do not meet again.
    #[must_use]
    pub fn pausing(mut self, pause: impl FnMut(usize) + Send + 'static) -> Self {
        self.pause = Box::new(pause);
        self
    }

    /// Waits for work, then carries out one batch; `false` once every handle is gone. Must not be called on a thread that
    /// runs asynchronous tasks.
    pub fn run_one(&mut self) -> bool {
        let mut waiting = std::mem::take(&mut self.waiting);
        let received = self.jobs.blocking_recv_many(&mut waiting, self.batch);
        self.waiting = waiting;
        self.carry_out();
        received > 0
    }

    /// Carries out what is waiting now, without waiting; the number of writes.
    pub fn step(&mut self) -> usize {
        let mut done = 0;
        loop {
            while self.waiting.len() < self.batch {
                let Ok(job) = self.jobs.try_recv() else { break };
                self.waiting.push(job);
            }
            if self.waiting.is_empty() {
                return done;
            }
            done += self.waiting.len();
            self.carry_out();
        }
    }

    /// One batch: from the queue to the answers.
    fn carry_out(&mut self) {
        let mut jobs = std::mem::take(&mut self.waiting);
        if !jobs.is_empty() {
            self.settle(&mut jobs);
        }
        jobs.clear();
        self.waiting = jobs;
        if let Some(AnyConn::Sqlite(conn)) = &mut self.conn {
            self.log_watch.after_batch(conn, &self.shared);
        }
    }

    fn settle(&mut self, jobs: &mut [Job]) {
        if let Some(AnyConn::Sqlite(conn)) = &mut self.conn
            && let Err(error) = self.log_watch.before_batch(conn)
        {
            return self.refuse_all(jobs, &error);
        }
        let mut again = false;
        let failure = match self.commit(jobs, &mut again) {
            Ok(effects) => return self.answer(jobs, &effects),
            Err(failure) => failure,
        };
        if self.is_away(&failure) {
            self.refuse_all(jobs, &failure.into());
        } else if jobs.len() > 1 || failure.passes() {
            self.one_by_one(jobs, again);
        } else {
            refuse(jobs, &failure.into());
        }
    }

    /// Each job in a transaction of its own.
    fn one_by_one(&mut self, jobs: &mut [Job], mut again: bool) {
        let mut in_a_row = 0;
        for place in 0..jobs.len() {
            let Some((job, rest)) = jobs.get_mut(place..).and_then(<[Job]>::split_first_mut) else { return };
            let job = std::slice::from_mut(job);
            let mut tries = 1;
            let failure = loop {
                match self.commit(job, &mut again) {
                    Ok(effects) => {
                        self.answer(job, &effects);
                        break None;
                    }
                    Err(failure) if failure.passes() && tries < TRIES => {
                        (self.pause)(tries);
                        tries += 1;
                    }
                    Err(failure) => break Some(failure),
                }
            };
            let Some(failure) = failure else {
                in_a_row = 0;
                continue;
            };
            in_a_row = if failure.passes() { in_a_row + 1 } else { 0 };
            let away = self.is_away(&failure) || in_a_row == IN_A_ROW;
            let error = StoreError::from(failure);
            refuse(job, &error);
            if away {
                return self.refuse_all(rest, &error);
            }
        }
    }

    /// One transaction, repeated once on a new connection where the old one was lost (`again` tells so) or only reads. Without a
    /// connection afterwards the database is away.
    fn commit(&mut self, jobs: &mut [Job], again: &mut bool) -> Result<Effects, Failure> {
        let mut may_reconnect = self.conn.is_some();
        loop {
            let mut conn = match self.conn.take() {
                Some(conn) => conn,
                None => self.connect()?,
            };
            let failure = match conn.write(|conn| carry_out(conn, jobs, *again)) {
                Ok(effects) => {
                    self.conn = Some(conn);
                    return Ok(effects);
                }
                Err(failure) => failure,
            };
            let lost = failure.is_lost_connection() || !conn.is_alive();
            let leave = lost || failure.is_read_only();
            if !leave {
                self.conn = Some(conn);
            }
            *again |= lost;
            if !leave || !may_reconnect {
                return Err(failure);
            }
            may_reconnect = false;
            tracing::warn!(error = %StoreError::from(failure), "the connection to the database was lost, or can only read");
        }
    }

    fn connect(&self) -> Result<AnyConn, StoreError> {
        let conn = self.address.connect(Purpose::Writer)?;
        self.shared.era.fetch_add(1, Ordering::AcqRel);
        Ok(conn)
    }

    /// Whether no write can succeed now. The connection is given up, so that the next batch finds a database that has moved.
    fn is_away(&mut self, failure: &Failure) -> bool {
        if failure.hits_everyone() {
            self.conn = None;
        }
        self.conn.is_none()
    }

    fn answer(&self, jobs: &mut [Job], effects: &Effects) {
        self.shared.committed(effects.work, &effects.finished);
        for job in jobs {
            job.tell(Ok(()));
        }
    }

    /// The same answer for the jobs and for everything that waits behind them: a sender that is told quickly repeats in time.
    fn refuse_all(&mut self, jobs: &mut [Job], error: &StoreError) {
        tracing::error!(%error, "the store cannot commit");
        for job in jobs {
            job.tell(Err(error.clone()));
        }
        // No more than wait now: whoever comes meanwhile finds a database that may be there again.
        for _ in 0..self.jobs.len() {
            let Ok(mut job) = self.jobs.try_recv() else { break };
            job.tell(Err(error.clone()));
        }
    }
}

/// The answer to a write that failed by itself.
fn refuse(jobs: &mut [Job], error: &StoreError) {
    tracing::warn!(%error, "a write was refused");
    for job in jobs {
        job.tell(Err(error.clone()));
    }
}

/// All jobs of a batch, within one transaction: claims first and in the order of their keys, changes in the order of their
/// operations, so that two nodes take their locks in one order.
fn carry_out(conn: &mut AnyConn, jobs: &mut [Job], again: bool) -> Result<Effects, Failure> {
    let mut effects = Effects::default();
    admit_all(conn, jobs, &mut effects)?;
    update_all(conn, jobs, &mut effects)?;
    for job in jobs.iter_mut() {
        let Job::Take(ask) = job else { continue };
        let taken = take::take(conn, &ask.input)?;
        taken.expired.iter().for_each(|operation| effects.of_change(operation));
        ask.output = Some(taken);
    }
    log_all(conn, jobs)?;
    for job in jobs.iter_mut() {
        let Job::Rare(task) = job else { continue };
        task.run(conn, again)?;
        effects.work |= task.wakes();
    }
    Ok(effects)
}

fn admit_all(conn: &mut AnyConn, jobs: &mut [Job], effects: &mut Effects) -> Result<(), Failure> {
    let intakes: Vec<&Intake> = jobs
        .iter()
        .filter_map(|job| match job {
            Job::Admit(ask) => Some(&ask.input),
            Job::Update(_) | Job::Take(_) | Job::Log(_) | Job::Rare(_) => None,
        })
        .collect();
    if intakes.is_empty() {
        return Ok(());
    }
    let admitted = admit::admit(conn, &intakes)?;
    effects.work |= admitted.work;
    let mut admissions = admitted.admissions.into_iter();
    for job in jobs {
        if let Job::Admit(ask) = job {
            ask.output = admissions.next();
        }
    }
    Ok(())
}

fn update_all(conn: &mut AnyConn, jobs: &mut [Job], effects: &mut Effects) -> Result<(), Failure> {
    let mut asks: Vec<_> = jobs
        .iter_mut()
        .filter_map(|job| match job {
            Job::Update(ask) => Some(ask),
            Job::Admit(_) | Job::Take(_) | Job::Log(_) | Job::Rare(_) => None,
        })
        .collect();
    // Stable: changes of one operation stay in the order in which they were asked for.
    asks.sort_by_key(|ask| ask.input.before.id);
    let mut batch = changes::Batch::default();
    let updates: Vec<&Update> = asks.iter().map(|ask| &ask.input).collect();
    let updated = batch.update(conn, &updates)?;
    for (ask, updated) in asks.into_iter().zip(updated) {
        if updated == Updated::Done && ask.input.after.version != ask.input.before.version {
            effects.of_change(&ask.input.after);
        }
        ask.output = Some(updated);
    }
    batch.finish(conn)
}

fn log_all(conn: &mut AnyConn, jobs: &mut [Job]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for job in jobs {
        let Job::Log(ask) = job else { continue };
        let entry = &ask.input;
        rows.push(DeliveryRow::new(&entry.delivery, &entry.sealed, entry.event_index, entry.operation, entry.verdict));
        ask.output = Some(());
    }
    Ok(inserts::deliveries(conn, rows)?)
}

impl Drop for Writer {
    /// Nobody is left waiting for an answer that cannot come.
    fn drop(&mut self) {
        self.jobs.close();
        while let Ok(mut job) = self.jobs.try_recv() {
            job.tell(Err(StoreError::Unavailable("the writer has stopped".into())));
        }
        if let Some(AnyConn::Sqlite(conn)) = &mut self.conn {
            // What is left over is copied back when the file is opened next.
            let _ = conn.batch_execute("PRAGMA wal_checkpoint(PASSIVE)");
        }
    }
}

//! Jobs: what waits in the writer's queue, each with the caller who waits for its commit.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::admit::Intake;
use super::codec::Sealed;
use super::conn::AnyConn;
use super::failure::Failure;
use super::types::{Admission, NewDelivery, StoreError, Take, Taken, Update, Updated, Verdict};
use crate::operation::OperationId;

/// A question to the writer: what is to be done, what came of it in the present transaction, and who waits for the commit.
pub(super) struct Ask<I, O> {
    pub(super) input: I,
    pub(super) output: Option<O>,
    /// `None` where nobody waits (the log row of a replay may follow the answer).
    answer: Option<oneshot::Sender<Result<O, StoreError>>>,
    /// Its share of the memory that the queue may hold, given back with the job.
    _room: Option<OwnedSemaphorePermit>,
}

impl<I, O> Ask<I, O> {
    /// A question and the end on which its answer arrives.
    pub(super) fn new(input: I) -> (Self, oneshot::Receiver<Result<O, StoreError>>) {
        let (answer, receiver) = oneshot::channel();
        (Self { input, output: None, answer: Some(answer), _room: None }, receiver)
    }

    /// A question whose asker goes on.
    pub(super) fn unattended(input: I) -> Self {
        Self { input, output: None, answer: None, _room: None }
    }

    /// The same, with its share of the queue's memory.
    pub(super) fn holding(self, room: OwnedSemaphorePermit) -> Self {
        Self { _room: Some(room), ..self }
    }

    fn tell(&mut self, result: Result<(), StoreError>) {
        let result = result.and_then(|()| {
            self.output.take().ok_or_else(|| StoreError::Unavailable("the writer passed this write over".into()))
        });
        if let Some(answer) = self.answer.take() {
            // Whoever asked may have gone (a sender's time-out); the write stands all the same.
            let _ = answer.send(result);
        }
    }
}

/// A row for the delivery log alone.
pub(super) struct LogEntry {
    pub(super) delivery: NewDelivery,
    pub(super) sealed: Sealed,
    pub(super) event_index: u16,
    pub(super) operation: Option<OperationId>,
    pub(super) verdict: Verdict,
}

/// A rare write, as a closure that can be done again.
pub(super) trait Task: Send {
    /// Does it within the writer's transaction. `again`: an earlier try may have been committed without an answer.
    fn run(&mut self, conn: &mut AnyConn, again: bool) -> Result<(), Failure>;
    /// Tells the asker what became of it.
    fn tell(&mut self, result: Result<(), StoreError>);
    /// Whether workers are to be woken after the commit.
    fn wakes(&self) -> bool;
}

/// The one implementation of [`Task`].
pub(super) struct Rare<T, F> {
    ask: Ask<F, T>,
    wakes: fn(&T) -> bool,
}

impl<T, F> Rare<T, F> {
    /// A task and the end on which its answer arrives.
    pub(super) fn new(work: F, wakes: fn(&T) -> bool) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (ask, receiver) = Ask::new(work);
        (Self { ask, wakes }, receiver)
    }
}

impl<T: Send, F: FnMut(&mut AnyConn, bool) -> Result<T, Failure> + Send> Task for Rare<T, F> {
    fn run(&mut self, conn: &mut AnyConn, again: bool) -> Result<(), Failure> {
        self.ask.output = None;
        self.ask.output = Some((self.ask.input)(conn, again)?);
        Ok(())
    }

    fn tell(&mut self, result: Result<(), StoreError>) {
        self.ask.tell(result);
    }

    fn wakes(&self) -> bool {
        self.ask.output.as_ref().is_some_and(self.wakes)
    }
}

/// One write.
pub(super) enum Job {
    /// Log a delivery and claim its events.
    Admit(Box<Ask<Intake, Vec<Admission>>>),
    /// Change an operation.
    Update(Box<Ask<Update, Updated>>),
    /// Take due work.
    Take(Box<Ask<Take, Taken>>),
    /// Log a delivery.
    Log(Box<Ask<LogEntry, ()>>),
    /// Anything else.
    Rare(Box<dyn Task>),
}

impl Job {
    /// Answers the caller.
    pub(super) fn tell(&mut self, result: Result<(), StoreError>) {
        match self {
            Self::Admit(ask) => ask.tell(result),
            Self::Update(ask) => ask.tell(result),
            Self::Take(ask) => ask.tell(result),
            Self::Log(ask) => ask.tell(result),
            Self::Rare(task) => task.tell(result),
        }
    }
}

//! One create: recorded, sent, answered, written down.

use std::time::Duration;

use super::engine::{Engine, guarded};
use super::rate::Grant;
use super::retry::{self, Facts};
use super::sights::send_of;
use super::{Line, LookupPolicy};
use crate::clock::At;
use crate::crm::{Call, Exchange, Order};
use crate::operation::transition::{Change, Decision, Event, apply};
use crate::operation::{CreateOutcome, Failure, FailureClass, Operation, Status};
use crate::store::{AttemptEnd, AttemptWrite, CallKind, NewAttempt, StoreError, Update, Updated};

/// How often a result is applied to an operation that moves under it. Each time somebody else's change was committed in
/// between; more than a few are not possible, since only operators and expired leases move a calling operation.
const MOVES: u8 = 5;

impl Engine {
    /// Carries a claimed operation on until it is answered: one create, or one per step where the CRM needs several records.
    /// The operation was granted one call of the rate already.
    pub async fn create(&self, operation: Operation) -> Result<(), StoreError> {
        let Some(line) = self.line(&operation.destination).cloned() else { return Ok(()) };
        let Some(rate) = self.rate(&operation.destination) else { return Ok(()) };
        let (mut claimed, mut grant) = (operation, Grant::of_taken(rate));
        loop {
            let Some(next) = self.create_step(&line, claimed, grant).await? else { return Ok(()) };
            let Some(another) = self.grant(rate) else { return self.give_back(next).await };
            (claimed, grant) = (next, another);
        }
    }

    /// Gives back what was claimed and not begun (contract 4.1 rule 4).
    async fn give_back(&self, operation: Operation) -> Result<(), StoreError> {
        if let Ok(Change::To(after)) = apply(&operation, &Event::GivenBack, self.now()) {
            self.ports.store.update(change(operation, *after, "given_back")).await?;
        }
        Ok(())
    }

    /// One create of one step; the operation again where a further step is due under the same lease.
    async fn create_step(
        &self,
        line: &Line,
        claimed: Operation,
        grant: Grant<'_>,
    ) -> Result<Option<Operation>, StoreError> {
        let Some(claimed) = self.pass_gap(line, claimed).await? else { return Ok(None) };
        let work = self.ports.store.work_of(&claimed).await?;
        // Outer error: the program failed on this lead. Inner error: the lead cannot be read or mapped.
        let prepared: Result<Result<(Order, Call), String>, String> = guarded(|| {
            let lead = self.read_lead(&claimed, work.delivery.as_ref(), work.edited_lead.as_ref())?;
            let order = self.order(&claimed, &work, lead);
            let call = line.connector.create(&order)?;
            Ok((order, call))
        });
        let before = self.ports.clock.monotonic();
        let Some((calling, attempt)) = self.begin(line, claimed, call_of(&prepared)).await? else {
            return Ok(None);
        };
        let over = || self.is_over(&calling, &attempt, self.ports.clock.monotonic().saturating_sub(before));
        let exhausted = calling.counted >= line.settings.retry.max_attempts;
        let (exchange, outcome) = match prepared {
            _ if exhausted => (None, failure(FailureClass::NotExecuted, "its workers died before they could send it")),
            Ok(Ok((order, call))) => {
                // Last of all, so that the spacing holds as the calls leave, not as they were taken.
                if self.pass_gate(grant, over).await {
                    let (exchange, outcome) = self.send(line, &order, &call).await;
                    (Some(exchange), outcome)
                } else {
                    (None, failure(FailureClass::NotSent, "its lease was over before the call could leave"))
                }
            }
            Ok(Err(fault)) => (None, failure(FailureClass::Rejected, &fault)),
            Err(panic) => (None, failure(FailureClass::NotExecuted, &panic)),
        };
        let ended_at = self.now();
        self.sights(|sights, now| sights.note_end(send_of(&calling), now));
        let class = match &outcome {
            CreateOutcome::Created(_) => "ok",
            CreateOutcome::Failed(failure) => failure.class.as_str(),
        };
        let took = ended_at.since(attempt.started_at);
        self.ports.metrics.attempt(calling.destination.as_str(), "create", class, took);
        self.record(line, calling, &attempt, exchange.as_ref(), outcome, ended_at).await
    }

    /// Records the attempt; from this commit on its call may have left.
    async fn begin(
        &self,
        line: &Line,
        claimed: Operation,
        call: Option<&Call>,
    ) -> Result<Option<(Operation, NewAttempt)>, StoreError> {
        let now = self.now();
        let Status::Claimed { licence, .. } = &claimed.status else { return Ok(None) };
        let licence = licence.as_str();
        let Ok(Change::To(calling)) = apply(&claimed, &Event::AttemptBegun, now) else {
            // The lease ran out before the call: somebody else may hold it now.
            return Ok(None);
        };
        let attempt = NewAttempt {
            id: self.new_id(),
            call: CallKind::Create,
            number: calling.attempts,
            step: calling.step,
            epoch: calling.epoch,
            licence: Some(licence),
            started_at: now,
            mapping_version: line.connector.mapping_version(),
            request: call.map(|call| shown(line, call)).unwrap_or_default(),
        };
        let update = Update {
            attempt: Some(AttemptWrite::Begin(attempt.clone())),
            // The destination may have been suspended since the claim: what waits for resume is not begun.
            while_active: Some(claimed.series_epoch),
            ..change(claimed, (*calling).clone(), "attempt_begun")
        };
        match self.ports.store.update(update).await? {
            Updated::Done => Ok(Some((*calling, attempt))),
            Updated::Moved(found) => {
                if matches!(found.status, Status::Claimed { .. }) && found.epoch == calling.epoch {
                    self.give_back(*found).await?;
                }
                Ok(None)
            }
        }
    }

    /// The last check before a call leaves. The commit of its attempt may have taken long, or the process was stopped meanwhile:
    /// then another node may look the call up by now, or have made it. `took`: the time since the lease was checked, on the
    /// clock that nobody sets.
    fn is_over(&self, calling: &Operation, attempt: &NewAttempt, took: Duration) -> bool {
        let Status::Calling { lease } = &calling.status else { return true };
        lease.until <= self.ports.clock.latest() || took >= lease.until.since(attempt.started_at)
    }

    async fn send(&self, line: &Line, order: &Order, call: &Call) -> (Exchange, CreateOutcome) {
        let exchange = self.ports.transport.send(call, line.settings.timeout).await;
        let outcome = guarded(|| line.connector.read_create(order, &exchange, self.now()))
            .unwrap_or_else(|panic| failure(FailureClass::Uncertain, &panic));
        let outcome = match outcome {
            CreateOutcome::Failed(failure) => CreateOutcome::Failed(masked_failure(line, failure)),
            created @ CreateOutcome::Created(_) => created,
        };
        (exchange, outcome)
    }

    /// Writes the result under the epoch of its claim; where the operation moved on, the answer is a late one.
    async fn record(
        &self,
        line: &Line,
        calling: Operation,
        attempt: &NewAttempt,
        exchange: Option<&Exchange>,
        outcome: CreateOutcome,
        ended_at: At,
    ) -> Result<Option<Operation>, StoreError> {
        let last_step = usize::from(attempt.step) + 1 == line.connector.steps().len();
        let decision = match &outcome {
            CreateOutcome::Created(_) => Decision::Stop,
            CreateOutcome::Failed(failure) => self.decide(line, &calling, failure),
        };
        let event = Event::Answered {
            attempt: attempt.number,
            step: attempt.step,
            last_step,
            outcome: outcome.clone(),
            decision,
            ended_at,
        };
        // What the answer means for the destination is written first: were the lead released before the suspension stands,
        // it would be sent again at once.
        if exchange.is_some() {
            let failure = match &outcome {
                CreateOutcome::Created(_) => None,
                CreateOutcome::Failed(failure) => Some(failure),
            };
            self.heed(&calling, failure, attempt.started_at).await;
        }
        let mut current = calling;
        for _ in 0..MOVES {
            let after = match apply(&current, &event, self.now()) {
                Ok(Change::To(after)) => *after,
                Ok(Change::Evidence) => current.clone(),
                Err(refused) => {
                    tracing::error!(operation_id = %current.id, %refused, "an answer does not fit the operation");
                    current.clone()
                }
            };
            let end = AttemptEnd {
                id: attempt.id,
                ended_at,
                class: class_of(&outcome),
                status: exchange.and_then(status_of),
                excerpt: exchange.map(|exchange| excerpt_of(line, exchange)).unwrap_or_default(),
                decision: told(&current, &after),
            };
            let step_done = match &outcome {
                CreateOutcome::Created(id) if after.version > current.version && !last_step => {
                    Some((attempt.step, id.clone()))
                }
                _ => None,
            };
            let update = Update {
                attempt: Some(AttemptWrite::End(end)),
                step_done,
                ..change(current.clone(), after.clone(), "answered")
            };
            match self.store_result(update).await? {
                Updated::Moved(now) => current = *now,
                Updated::Done => return self.after_answer(&current, after, &outcome).await,
            }
        }
        tracing::error!(operation_id = %current.id, "an answer could not be written; the lease expires and it is looked up");
        Ok(None)
    }

    async fn after_answer(
        &self,
        before: &Operation,
        after: Operation,
        outcome: &CreateOutcome,
    ) -> Result<Option<Operation>, StoreError> {
        tracing::info!(
            operation_id = %after.id,
            destination = %after.destination,
            attempt = before.attempts,
            class = class_of(outcome),
            state = after.state().as_str(),
            reason = after.status.reason(),
            crm_id = after.crm_id.as_ref().map(crate::operation::CrmId::as_str),
            "create answered"
        );
        if let CreateOutcome::Created(_) = outcome {
            self.note_success(&after).await?;
        }
        self.note_state(&after);
        Ok(matches!(after.status, Status::Claimed { .. }).then_some(after))
    }

    fn decide(&self, line: &Line, operation: &Operation, failure: &Failure) -> Decision {
        // The CRM named an id that does not bear our key: a look-up by the key would find nothing and license a second create.
        if failure.class == FailureClass::Uncertain && failure.crm_id.is_some() {
            return Decision::AskOperator;
        }
        let counts = matches!(failure.class, FailureClass::NotExecuted);
        let facts = Facts {
            now: self.now(),
            counted: operation.counted + u32::from(counts),
            consecutive: operation.series_attempts,
            series_since: operation.series_since.unwrap_or_else(|| self.now()),
            retry_after: failure.retry_after,
        };
        let lookup: Option<&LookupPolicy> = line.connector.can_look_up().then_some(&line.settings.lookup);
        retry::decide(failure.class, &facts, &line.settings.retry, lookup, self.ports.entropy.fraction())
    }
}

fn call_of(prepared: &Result<Result<(Order, Call), String>, String>) -> Option<&Call> {
    prepared.as_ref().ok()?.as_ref().ok().map(|(_, call)| call)
}

/// A change without any of the things that may go with it.
pub(super) fn change(before: Operation, after: Operation, event: &'static str) -> Update {
    Update { before, after, event, attempt: None, step_done: None, audit: None, lead: None, while_active: None }
}

fn failure(class: FailureClass, message: &str) -> CreateOutcome {
    CreateOutcome::Failed(Failure::new(class, message))
}

fn class_of(outcome: &CreateOutcome) -> &'static str {
    match outcome {
        CreateOutcome::Created(_) => "ok",
        CreateOutcome::Failed(failure) => failure.class.as_str(),
    }
}

/// The request as the attempts log keeps it: the address masked, and whatever came from the environment or a file.
pub(super) fn shown(line: &Line, call: &Call) -> String {
    masked(line, &format!("{} {}\n{}", call.method, call.masked_url, String::from_utf8_lossy(&call.body)))
}

/// A CRM may repeat what it was sent: its words are stored, alerted and shown without our secrets.
///
/// A wait that is cut to the budget is said so (cases C05, C26): an operator sees why it is tried sooner than told.
pub(super) fn masked_failure(line: &Line, failure: Failure) -> Failure {
    let most = line.settings.retry.max_elapsed;
    let cut = failure.retry_after.filter(|told| *told > most);
    let cut =
        cut.map(|told| format!(" (it asked for a wait of {} s, which is cut to {} s)", told.as_secs(), most.as_secs()));
    Failure { message: masked(line, &failure.message) + cut.as_deref().unwrap_or(""), ..failure }
}

fn masked(line: &Line, text: &str) -> String {
    let text = line.connector.scrub(text);
    line.secrets.iter().filter(|secret| !secret.is_empty()).fold(text, |text, secret| text.replace(secret, "***"))
}

pub(super) fn status_of(exchange: &Exchange) -> Option<u16> {
    match exchange {
        Ok(answer) => Some(answer.status),
        Err(error) => error.status,
    }
}

pub(super) fn excerpt_of(line: &Line, exchange: &Exchange) -> String {
    match exchange {
        Ok(answer) => masked(line, &crate::crm::failure::excerpt(&answer.body)),
        Err(error) => error.message.clone(),
    }
}

/// What followed from an answer, for the time line.
pub(super) fn told(before: &Operation, after: &Operation) -> String {
    if before.version == after.version {
        return "evidence only".into();
    }
    match &after.status {
        Status::Received { next_attempt_at, .. } => format!("next attempt from {next_attempt_at}"),
        Status::Reconciling { next_lookup_at, .. } => format!("look-up from {next_lookup_at}"),
        Status::Completed { crm_id } => format!("completed with {crm_id}"),
        Status::FailedTerminal { reason } => format!("failed: {}", reason.as_str()),
        Status::NeedsReview { reason, .. } => format!("review: {}", reason.as_str()),
        Status::Claimed { .. } | Status::Calling { .. } => "next step".into(),
    }
}

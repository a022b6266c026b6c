//! Transitions (contract 4, 4.1): the one function that moves an operation from state to state.
//!
//! Everything that is not written here is refused. G2 hangs on one thing: [`Event::AttemptBegun`] is possible only from
//! [`Status::Claimed`], which carries a [`Licence`]; the attempt spends it, and only a class that proves non-execution, a
//! trusted look-up after the settle time, or a person gives a new one.

use std::time::Duration;

use super::id::CrmId;
use super::outcome::{CreateOutcome, Failure, FailureClass, LookupOutcome};
use super::state::{FailReason, Lease, Licence, Operation, ReviewReason, State, Status};
use crate::clock::At;

/// What the retry policy says about a failed create (`delivery::retry`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Known as not executed, budget left: try again then.
    RetryAt(At),
    /// Known as not executed, attempts or time used up.
    GiveUp,
    /// Uncertain, and the CRM can be asked: the first look-up may start then.
    ReconcileAt(At),
    /// Uncertain, and this kind of CRM has no look-up.
    AskOperator,
    /// The lead is refused, or the account stops: no retry by time.
    Stop,
}

/// Something that happened to an operation.
#[derive(Debug, Clone)]
pub enum Event {
    /// A worker claims it to send a create.
    Claimed {
        /// The worker's right.
        lease: Lease,
        /// The destination's epoch at that moment.
        destination_epoch: i64,
    },
    /// The worker gives back what it has not begun.
    GivenBack,
    /// The attempt is recorded; its call leaves right after the commit.
    AttemptBegun,
    /// Before the attempt: the record has a gap (contract 4.1 rule 9), and a create of this step may have left in it.
    Doubted {
        /// The end of the gap: no send that is not on record ended later.
        gap_ended_at: At,
        /// The first look-up, or `None` where this kind of CRM has none.
        first_lookup_at: Option<At>,
    },
    /// A create was answered, in time or late.
    Answered {
        /// The attempt's number.
        attempt: u32,
        /// The attempt's step.
        step: u16,
        /// Whether that step's entity is the operation's entity.
        last_step: bool,
        /// What came.
        outcome: CreateOutcome,
        /// What the policy says, for a failure.
        decision: Decision,
        /// The observed end of the call.
        ended_at: At,
    },
    /// The lease is over by more than the grace.
    LeaseExpired {
        /// How long after `lease.until` it counts as over.
        grace: Duration,
        /// The longest time a call can take: settle runs from lease end + timeout.
        timeout: Duration,
        /// The first look-up, or `None` where this kind of CRM has none.
        first_lookup_at: Option<At>,
    },
    /// A worker takes the due look-up and moves the next one on, so that no other worker takes the same.
    LookupTaken {
        /// When the look-up may be taken again, should this worker die.
        next_lookup_at: At,
        /// The destination's epoch at that moment.
        destination_epoch: i64,
    },
    /// A look-up came back.
    LookedUp {
        /// When it was begun, on the store's clock.
        begun_at: At,
        /// Whether settle had passed on the process's monotonic clock too when it was begun.
        settled_monotonic: bool,
        /// How long after the send an empty answer is believed.
        settle: Duration,
        /// Whether an empty answer is believed at all.
        trusted: bool,
        /// How long the CRM may fail to answer before a person decides.
        give_up: Duration,
        /// What came.
        outcome: LookupOutcome,
        /// When the next look-up may start.
        next_lookup_at: At,
        /// When a create may start, or `None` where attempts or time are used up.
        retry_at: Option<At>,
        /// Whether the step's entity is the operation's entity.
        last_step: bool,
    },
    /// An operator says which entity it is.
    Complete {
        /// The entity.
        crm_id: CrmId,
    },
    /// An operator asserts that nothing was created.
    Retry {
        /// `retry` of an uncertain outcome is refused until this long after the send.
        settle: Duration,
    },
    /// An operator refuses the lead.
    Reject,
}

/// What an event does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The operation as it is after the event, its version raised by one.
    To(Box<Operation>),
    /// Nothing changes; the event is evidence for the log.
    Evidence,
}

/// An event that the state forbids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The state does not know this event.
    #[error("not possible in state {}", .0.as_str())]
    WrongState(State),
    /// The worker's right is over.
    #[error("the lease is over")]
    LeaseOver,
    /// The lease still runs, or the grace.
    #[error("the lease of {} runs until {}", .0.owner, .0.until)]
    LeaseRuns(Lease),
    /// It is not due: the wait before the next attempt, or the settle time of an uncertain outcome, has not passed.
    #[error("not possible before {0}")]
    NotBefore(At),
    /// The CRM holds an entity of this operation already.
    #[error("the CRM holds an entity of this operation already; complete it with one of the ids")]
    EntityExists,
    /// The decision does not belong to this class of failure.
    #[error("the retry decision does not fit the failure class")]
    UnfitDecision,
}

/// Moves an operation, or says why not. `at` is the moment on the store's clock.
pub fn apply(operation: &Operation, event: &Event, at: At) -> Result<Change, Refused> {
    let mut next = operation.clone();
    let wrong = Err(Refused::WrongState(operation.state()));
    match (event, &operation.status) {
        (Event::Claimed { lease, destination_epoch }, Status::Received { next_attempt_at, licence }) => {
            if at < *next_attempt_at {
                return Err(Refused::NotBefore(*next_attempt_at));
            }
            if *destination_epoch != operation.series_epoch {
                begin_series(&mut next);
                next.series_epoch = *destination_epoch;
            }
            next.epoch += 1;
            next.status = Status::Claimed { lease: lease.clone(), licence: *licence };
        }
        (Event::GivenBack, Status::Claimed { licence, .. }) => {
            next.status = Status::Received { next_attempt_at: at, licence: *licence };
        }
        (Event::AttemptBegun, Status::Claimed { lease, .. }) => {
            if lease.until <= at {
                return Err(Refused::LeaseOver);
            }
            next.attempts += 1;
            next.series_attempts += 1;
            next.series_since.get_or_insert(at);
            next.status = Status::Calling { lease: lease.clone() };
        }
        (
            Event::Doubted { gap_ended_at, first_lookup_at },
            Status::Claimed { licence: Licence::FirstSend | Licence::Operator, .. },
        ) => {
            next.last_error =
                Some("it may have been sent before the store was restored; the outcome is uncertain".into());
            next.status = uncertain(&next, *first_lookup_at, *gap_ended_at, at);
        }
        (Event::Answered { .. }, _) => return answered(operation, event, at),
        (Event::LeaseExpired { grace, timeout, first_lookup_at }, status) => {
            let (Status::Claimed { lease, .. } | Status::Calling { lease }) = status else { return wrong };
            if at < lease.until.plus(*grace) {
                return Err(Refused::LeaseRuns(lease.clone()));
            }
            match status {
                Status::Claimed { licence, .. } => {
                    // A lead that kills its worker before the call must not do so for ever.
                    next.counted += 1;
                    next.status = Status::Received { next_attempt_at: at, licence: *licence };
                }
                _ => {
                    next.counted += 1;
                    next.last_error = Some("the worker that sent it was lost; the outcome is uncertain".into());
                    next.status = uncertain(&next, *first_lookup_at, lease.until.plus(*timeout), at);
                }
            }
        }
        (
            Event::LookupTaken { next_lookup_at, destination_epoch },
            Status::Reconciling { send_ended_at, since, .. },
        ) => {
            let renewed = *destination_epoch != operation.series_epoch;
            if renewed {
                begin_series(&mut next);
                next.series_epoch = *destination_epoch;
            }
            let since = if renewed { at } else { *since };
            next.status = Status::Reconciling { next_lookup_at: *next_lookup_at, send_ended_at: *send_ended_at, since };
        }
        (Event::LookedUp { .. }, Status::Reconciling { .. }) => looked_up(&mut next, event, at),
        (Event::Complete { crm_id }, Status::NeedsReview { .. } | Status::FailedTerminal { .. }) => {
            next.last_error = None;
            // The ids that were not chosen stay on record.
            let known = next.crm_id.take().filter(|known| known != crm_id);
            let rest = other_ids(&next).filter(|id| *id != crm_id.as_str()).map(str::to_owned);
            let rest: Vec<String> = known.map(|known| known.as_str().to_owned()).into_iter().chain(rest).collect();
            next.other_crm_ids = (!rest.is_empty()).then(|| rest.join(","));
            complete(&mut next, crm_id, at);
        }
        (Event::Retry { settle }, Status::NeedsReview { .. } | Status::FailedTerminal { .. }) => {
            // Nobody can assert that nothing was created where an id is known, refused by a person meanwhile or not.
            if operation.crm_id.is_some() {
                return Err(Refused::EntityExists);
            }
            let send_ended_at = match &operation.status {
                Status::NeedsReview { reason, send_ended_at } => {
                    if matches!(reason, ReviewReason::DuplicateEntity | ReviewReason::AmbiguousMatch) {
                        return Err(Refused::EntityExists);
                    }
                    *send_ended_at
                }
                // What a person refused with candidates on record is settled by naming one of them.
                Status::FailedTerminal { reason: FailReason::RejectedByOperator }
                    if operation.other_crm_ids.is_some() =>
                {
                    return Err(Refused::EntityExists);
                }
                // `finished_at` of a rejected case is no earlier than the end of any send.
                Status::FailedTerminal { reason: FailReason::RejectedByOperator } if operation.attempts > 0 => {
                    operation.finished_at
                }
                _ => None,
            };
            let earliest = send_ended_at.map(|ended| ended.plus(*settle));
            if let Some(earliest) = earliest.filter(|earliest| at < *earliest) {
                return Err(Refused::NotBefore(earliest));
            }
            begin_series(&mut next);
            next.finished_at = None;
            next.status = Status::Received { next_attempt_at: at, licence: Licence::Operator };
        }
        (Event::Reject, Status::NeedsReview { .. } | Status::Received { .. }) => {
            // A send of unknown outcome may end later than the rejection: settle (and retention) run from its end.
            let send_ended_at = match &operation.status {
                Status::NeedsReview { send_ended_at, .. } => *send_ended_at,
                _ => None,
            };
            next.finished_at = send_ended_at.max(Some(at));
            next.status = Status::FailedTerminal { reason: FailReason::RejectedByOperator };
        }
        (
            Event::Claimed { .. }
            | Event::GivenBack
            | Event::AttemptBegun
            | Event::Doubted { .. }
            | Event::LookupTaken { .. }
            | Event::LookedUp { .. }
            | Event::Complete { .. }
            | Event::Retry { .. }
            | Event::Reject,
            _,
        ) => return wrong,
    }
    Ok(changed(next, at))
}

fn changed(mut next: Operation, at: At) -> Change {
    next.version += 1;
    next.updated_at = at;
    Change::To(Box::new(next))
}

/// A new series: the budget of attempts and time is fresh; `attempts` keeps counting (contract 4.1 rule 5).
fn begin_series(next: &mut Operation) {
    next.counted = 0;
    next.series_attempts = 0;
    next.series_since = None;
}

fn complete(next: &mut Operation, crm_id: &CrmId, at: At) {
    next.crm_id = Some(crm_id.clone());
    next.finished_at = Some(at);
    next.status = Status::Completed { crm_id: crm_id.clone() };
}

fn other_ids(operation: &Operation) -> impl Iterator<Item = &str> {
    operation.other_crm_ids.as_deref().into_iter().flat_map(|ids| ids.split(','))
}

/// Adds ids to those on record; what is listed already is not listed twice.
fn list_others(next: &mut Operation, ids: &[&CrmId]) {
    let mut all: Vec<String> = other_ids(next).map(str::to_owned).collect();
    for id in ids {
        if !all.iter().any(|listed| listed == id.as_str()) {
            all.push(id.as_str().to_owned());
        }
    }
    next.other_crm_ids = (!all.is_empty()).then(|| all.join(","));
}

fn uncertain(operation: &Operation, first_lookup_at: Option<At>, send_ended_at: At, at: At) -> Status {
    match first_lookup_at {
        Some(next_lookup_at) => {
            // give_up runs from the first attempt of the series, as max_elapsed does (contract 4.1 rule 5).
            let since = operation.series_since.unwrap_or(at);
            Status::Reconciling { next_lookup_at, send_ended_at, since }
        }
        None => Status::NeedsReview { reason: ReviewReason::UncertainOutcome, send_ended_at: Some(send_ended_at) },
    }
}

/// The step's entity exists: the operation is done, or the next step is due.
fn step_confirmed(next: &mut Operation, crm_id: &CrmId, last_step: bool, at: At) {
    next.last_error = None;
    if last_step {
        return complete(next, crm_id, at);
    }
    next.step += 1;
    // Candidates for the step that is done are no entities of the operation.
    next.other_crm_ids = None;
    next.status = match &next.status {
        // The worker goes on with the next step under the lease it has.
        Status::Calling { lease } | Status::Claimed { lease, .. } => {
            Status::Claimed { lease: lease.clone(), licence: Licence::FirstSend }
        }
        Status::Received { .. }
        | Status::Reconciling { .. }
        | Status::Completed { .. }
        | Status::FailedTerminal { .. }
        | Status::NeedsReview { .. } => Status::Received { next_attempt_at: at, licence: Licence::FirstSend },
    };
}

fn answered(operation: &Operation, event: &Event, at: At) -> Result<Change, Refused> {
    let Event::Answered { attempt, step, last_step, outcome, decision, ended_at } = event else {
        return Err(Refused::WrongState(operation.state()));
    };
    let mut next = operation.clone();
    let of_this_step = *step == operation.step;
    // Still the last attempt, and nothing has resolved it: in time (calling) or late (reconciling).
    let unresolved = *attempt == operation.attempts
        && of_this_step
        && matches!(operation.status, Status::Calling { .. } | Status::Reconciling { .. });
    match outcome {
        CreateOutcome::Created(id) => confirmed(&mut next, id, *last_step, unresolved, of_this_step, at),
        CreateOutcome::Failed(Failure { class: FailureClass::Duplicate, crm_id: Some(id), .. }) => {
            confirmed(&mut next, id, *last_step, unresolved, of_this_step, at)
        }
        CreateOutcome::Failed(failure) if unresolved => {
            let late = matches!(operation.status, Status::Reconciling { .. });
            if late && !failure.class.proves_not_executed() {
                return Ok(Change::Evidence);
            }
            if late {
                // It was counted when its outcome became uncertain; now its class says whether it counts.
                next.counted = next.counted.saturating_sub(1);
            }
            failed(&mut next, failure, *decision, *ended_at, at)?;
            Ok(changed(next, at))
        }
        CreateOutcome::Failed(_) => Ok(Change::Evidence),
    }
}

/// An answer with an id, in time or late: what exists in the CRM is never forgotten.
fn confirmed(
    next: &mut Operation,
    id: &CrmId,
    last_step: bool,
    unresolved: bool,
    of_this_step: bool,
    at: At,
) -> Result<Change, Refused> {
    if !last_step {
        // A record on the way to the entity: a late one counts only while its step is open and no newer call is out.
        let open = matches!(next.status, Status::Received { .. } | Status::Claimed { .. } | Status::NeedsReview { .. });
        if !(unresolved || of_this_step && open && next.crm_id.is_none()) {
            return Ok(Change::Evidence);
        }
        step_confirmed(next, id, false, at);
        return Ok(changed(next.clone(), at));
    }
    match &next.crm_id {
        None => step_confirmed(next, id, true, at),
        Some(known) if known == id => return Ok(Change::Evidence),
        Some(known) => {
            let listed = other_ids(next).any(|other| other == id.as_str());
            if listed && matches!(next.status, Status::NeedsReview { reason: ReviewReason::DuplicateEntity, .. }) {
                return Ok(Change::Evidence);
            }
            next.last_error = Some(format!("the CRM made two entities, {known} and {id}"));
            list_others(next, &[id]);
            next.finished_at = None;
            next.status = Status::NeedsReview { reason: ReviewReason::DuplicateEntity, send_ended_at: None };
        }
    }
    Ok(changed(next.clone(), at))
}

fn failed(next: &mut Operation, failure: &Failure, decision: Decision, ended_at: At, at: At) -> Result<(), Refused> {
    use FailureClass as Class;
    next.last_error = Some(failure.message.clone());
    if failure.class == Class::Uncertain && failure.crm_id.is_some() {
        next.other_crm_ids = failure.crm_id.as_ref().map(|id| id.as_str().to_owned());
    }
    // Contract 4.1 rule 5: what never reached the CRM's own work does not use up attempts.
    if matches!(failure.class, Class::NotExecuted | Class::Uncertain | Class::Duplicate) {
        next.counted += 1;
    }
    next.status = match (failure.class, decision) {
        (Class::NotSent | Class::Throttled | Class::NotExecuted, Decision::RetryAt(time)) => {
            Status::Received { next_attempt_at: time, licence: Licence::NotExecuted }
        }
        (Class::NotSent | Class::Throttled | Class::NotExecuted, Decision::GiveUp) => {
            Status::NeedsReview { reason: ReviewReason::AttemptsExhausted, send_ended_at: None }
        }
        (Class::Account, Decision::Stop) => Status::Received { next_attempt_at: at, licence: Licence::NotExecuted },
        (Class::Rejected, Decision::Stop) => {
            next.finished_at = Some(at);
            Status::FailedTerminal { reason: FailReason::Rejected }
        }
        (Class::Uncertain | Class::Duplicate, Decision::ReconcileAt(first)) => {
            uncertain(next, Some(first), ended_at, at)
        }
        (Class::Uncertain | Class::Duplicate, Decision::AskOperator) => uncertain(next, None, ended_at, at),
        _ => return Err(Refused::UnfitDecision),
    };
    Ok(())
}

fn looked_up(next: &mut Operation, event: &Event, at: At) {
    let Status::Reconciling { send_ended_at, since, .. } = next.status else { return };
    let Event::LookedUp {
        begun_at,
        settled_monotonic,
        settle,
        trusted,
        give_up,
        outcome,
        next_lookup_at,
        retry_at,
        last_step,
    } = event
    else {
        return;
    };
    let review = |reason| Status::NeedsReview { reason, send_ended_at: Some(send_ended_at) };
    let again = Status::Reconciling { next_lookup_at: *next_lookup_at, send_ended_at, since };
    match outcome {
        LookupOutcome::Failed(failure) => {
            next.last_error = Some(format!("look-up: {}", failure.message));
            // An account stop suspends the destination, and give_up stands still while it lasts (contract 4.1 rules 1, 5).
            let stops = failure.class == FailureClass::Account;
            let over = !stops && at.since(since) >= *give_up;
            next.status = if over { review(ReviewReason::UncertainOutcome) } else { again };
        }
        LookupOutcome::Found(ids) => {
            next.lookups += 1;
            // An entity that is named twice is one entity.
            let mut ids: Vec<&CrmId> = ids.iter().collect();
            ids.sort_unstable();
            ids.dedup();
            match ids.as_slice() {
                [id] => step_confirmed(next, id, *last_step, at),
                [] => {
                    // Only a look-up that was begun after the settle time, on both clocks, proves anything by being empty.
                    let settled = *begun_at >= send_ended_at.plus(*settle) && *settled_monotonic;
                    next.status = match (settled, *trusted, *retry_at) {
                        (false, _, _) => again,
                        (true, false, _) => review(ReviewReason::UncertainOutcome),
                        (true, true, None) => {
                            Status::NeedsReview { reason: ReviewReason::AttemptsExhausted, send_ended_at: None }
                        }
                        (true, true, Some(time)) => {
                            Status::Received { next_attempt_at: time, licence: Licence::LookupAbsent }
                        }
                    };
                }
                several => {
                    list_others(next, several);
                    next.last_error = Some(format!("{} entities bear the crm_key", several.len()));
                    next.status = review(ReviewReason::AmbiguousMatch);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

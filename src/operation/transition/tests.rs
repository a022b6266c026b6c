//! Every row of contract 4's table and the rules of 4.1 that belong to one operation, each by name.

use super::*;
use crate::operation::{Arrival, HashRule, KeyOrigin, OperationId, PayloadHash, SourceKey};

const NOW: At = At::from_seconds(1_800_000_000);
const TIMEOUT: Duration = Duration::from_secs(15);
const SETTLE: Duration = Duration::from_secs(120);
const GRACE: Duration = Duration::from_secs(5);
const GIVE_UP: Duration = Duration::from_secs(86_400);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn id(text: &str) -> CrmId {
    CrmId::try_from(text.to_owned()).expect("an id")
}

fn lease() -> Lease {
    Lease { owner: "node-1".into(), until: NOW.plus(s(60)) }
}

/// An operation with one attempt behind it, where the state allows one.
fn operation(status: Status) -> Operation {
    let crm_id = if let Status::Completed { crm_id } = &status { Some(crm_id.clone()) } else { None };
    Operation {
        status,
        attempts: 1,
        series_since: Some(NOW),
        epoch: 3,
        version: 9,
        crm_id,
        ..Arrival {
            id: OperationId(uuid::Uuid::from_u128(7)),
            source: "site".parse().expect("a name"),
            source_key: SourceKey::from_native(b"k1"),
            key_origin: KeyOrigin::Native,
            payload_hash: PayloadHash::from([1; 32]),
            hash_rule: HashRule::current(&[]),
            destination: "crm".parse().expect("a name"),
            delivery_id: uuid::Uuid::from_u128(8),
            event_index: 0,
            at: NOW,
        }
        .operation()
    }
}

fn received() -> Operation {
    operation(Status::Received { next_attempt_at: NOW, licence: Licence::NotExecuted })
}

fn claimed() -> Operation {
    operation(Status::Claimed { lease: lease(), licence: Licence::FirstSend })
}

fn calling() -> Operation {
    operation(Status::Calling { lease: lease() })
}

fn reconciling() -> Operation {
    operation(Status::Reconciling { next_lookup_at: NOW.plus(s(5)), send_ended_at: NOW, since: NOW })
}

fn completed() -> Operation {
    operation(Status::Completed { crm_id: id("4512") })
}

fn failed_terminal() -> Operation {
    operation(Status::FailedTerminal { reason: FailReason::Rejected })
}

fn review(reason: ReviewReason) -> Operation {
    operation(Status::NeedsReview { reason, send_ended_at: None })
}

fn every_state() -> Vec<(&'static str, Operation)> {
    vec![
        ("received", received()),
        ("claimed", claimed()),
        ("calling", calling()),
        ("reconciling", reconciling()),
        ("completed", completed()),
        ("failed_terminal", failed_terminal()),
        ("needs_review", review(ReviewReason::AttemptsExhausted)),
    ]
}

fn answer(outcome: CreateOutcome, decision: Decision) -> Event {
    Event::Answered { attempt: 1, step: 0, last_step: true, outcome, decision, ended_at: NOW.plus(s(1)) }
}

fn created(text: &str) -> Event {
    answer(CreateOutcome::Created(id(text)), Decision::Stop)
}

fn failure(class: FailureClass, decision: Decision) -> Event {
    answer(CreateOutcome::Failed(Failure::new(class, "what the CRM said")), decision)
}

fn expired(first_lookup_at: Option<At>) -> Event {
    Event::LeaseExpired { grace: GRACE, timeout: TIMEOUT, first_lookup_at }
}

/// A look-up that may count: trusted, begun when settle had just passed.
fn looked_up(outcome: LookupOutcome) -> Event {
    Event::LookedUp {
        begun_at: NOW.plus(SETTLE),
        settled_monotonic: true,
        settle: SETTLE,
        trusted: true,
        give_up: GIVE_UP,
        outcome,
        next_lookup_at: NOW.plus(s(300)),
        retry_at: Some(NOW.plus(s(150))),
        last_step: true,
    }
}

fn found(ids: &[&str]) -> Event {
    looked_up(LookupOutcome::Found(ids.iter().map(|text| id(text)).collect()))
}

fn no_answer(class: FailureClass) -> Event {
    looked_up(LookupOutcome::Failed(Failure::new(class, "no answer")))
}

fn claim(destination_epoch: i64) -> Event {
    Event::Claimed { lease: lease(), destination_epoch }
}

#[track_caller]
fn after(operation: &Operation, event: &Event, at: At) -> Operation {
    match apply(operation, event, at) {
        Ok(Change::To(next)) => *next,
        other => panic!("{event:?} did not change {:?}: {other:?}", operation.status),
    }
}

#[track_caller]
fn unchanged(operation: &Operation, event: &Event, at: At) {
    assert_eq!(apply(operation, event, at), Ok(Change::Evidence), "{event:?} in {:?}", operation.status);
}

#[track_caller]
fn refused(operation: &Operation, event: &Event, at: At) -> Refused {
    apply(operation, event, at).expect_err("a refusal")
}

#[test]
fn each_event_is_refused_in_every_state_that_the_table_does_not_name() {
    let later = NOW.plus(s(3_600));
    let table: [(Event, &[&str]); 9] = [
        (claim(0), &["received"]),
        (Event::GivenBack, &["claimed"]),
        (Event::AttemptBegun, &["claimed"]),
        (expired(None), &["claimed", "calling"]),
        (Event::LookupTaken { next_lookup_at: later, destination_epoch: 0 }, &["reconciling"]),
        (found(&["1"]), &["reconciling"]),
        (Event::Complete { crm_id: id("1") }, &["failed_terminal", "needs_review"]),
        (Event::Retry { settle: SETTLE }, &["failed_terminal", "needs_review"]),
        (Event::Reject, &["received", "needs_review"]),
    ];
    for (event, allowed) in table {
        for (name, operation) in every_state() {
            let at = if matches!(event, Event::AttemptBegun) { NOW } else { later };
            match apply(&operation, &event, at) {
                Ok(Change::To(next)) => {
                    assert!(allowed.contains(&name), "{event:?} moved {name}");
                    assert_eq!((next.version, next.updated_at), (operation.version + 1, at));
                }
                other => {
                    assert_eq!(other, Err(Refused::WrongState(operation.state())), "{event:?} in {name}");
                    assert!(!allowed.contains(&name), "{event:?} was refused in {name}");
                }
            }
        }
    }
}

#[test]
fn a_claim_takes_the_lease_raises_the_epoch_and_sends_nothing() {
    let next = after(&received(), &claim(0), NOW);
    assert_eq!(next.status, Status::Claimed { lease: lease(), licence: Licence::NotExecuted });
    assert_eq!((next.epoch, next.attempts), (4, 1));
}

#[test]
fn no_claim_comes_before_the_wait_is_over() {
    let waits = operation(Status::Received { next_attempt_at: NOW.plus(s(90)), licence: Licence::NotExecuted });
    assert_eq!(refused(&waits, &claim(0), NOW.plus(s(89))), Refused::NotBefore(NOW.plus(s(90))));
    after(&waits, &claim(0), NOW.plus(s(90)));
}

#[test]
fn an_attempt_spends_the_licence_and_needs_a_live_lease() {
    let next = after(&claimed(), &Event::AttemptBegun, NOW);
    assert_eq!((next.state(), next.attempts), (State::InProgress, 2));
    assert_eq!(next.status, Status::Calling { lease: lease() });
    assert!(matches!(refused(&next, &Event::AttemptBegun, NOW), Refused::WrongState(State::InProgress)));
    assert_eq!(refused(&claimed(), &Event::AttemptBegun, NOW.plus(s(60))), Refused::LeaseOver);
}

#[test]
fn what_was_not_begun_is_given_back_with_its_licence() {
    let next = after(&claimed(), &Event::GivenBack, NOW);
    assert_eq!(next.status, Status::Received { next_attempt_at: NOW, licence: Licence::FirstSend });
    assert_eq!(next.attempts, 1);
}

#[test]
fn a_confirmed_create_completes_with_its_id() {
    let next = after(&calling(), &created("4512"), NOW);
    assert_eq!(next.status, Status::Completed { crm_id: id("4512") });
    assert_eq!((next.crm_id, next.finished_at, next.last_error), (Some(id("4512")), Some(NOW), None));
}

#[test]
fn a_duplicate_answer_with_an_id_completes_and_without_one_is_looked_up() {
    let named = Failure { crm_id: Some(id("77")), ..Failure::new(FailureClass::Duplicate, "exists") };
    let next = after(&calling(), &answer(CreateOutcome::Failed(named), Decision::Stop), NOW);
    assert_eq!(next.status, Status::Completed { crm_id: id("77") });
    let unnamed = failure(FailureClass::Duplicate, Decision::ReconcileAt(NOW.plus(s(5))));
    assert!(matches!(after(&calling(), &unnamed, NOW).status, Status::Reconciling { .. }));
}

#[test]
fn what_was_not_executed_waits_or_is_given_up() {
    for class in [FailureClass::NotSent, FailureClass::Throttled, FailureClass::NotExecuted] {
        let time = NOW.plus(s(30));
        let next = after(&calling(), &failure(class, Decision::RetryAt(time)), NOW);
        assert_eq!(next.status, Status::Received { next_attempt_at: time, licence: Licence::NotExecuted }, "{class:?}");
        assert_eq!(next.last_error.as_deref(), Some("what the CRM said"));
        let next = after(&calling(), &failure(class, Decision::GiveUp), NOW);
        assert_eq!(next.status.reason(), Some("attempts_exhausted"), "{class:?}");
    }
}

#[test]
fn a_rejected_lead_is_terminal_and_says_why() {
    let next = after(&calling(), &failure(FailureClass::Rejected, Decision::Stop), NOW);
    assert_eq!((next.state(), next.status.reason()), (State::FailedTerminal, Some("rejected")));
    assert_eq!((next.finished_at, next.last_error.as_deref()), (Some(NOW), Some("what the CRM said")));
}

#[test]
fn an_account_stop_leaves_the_lead_waiting_with_its_budget_whole() {
    let next = after(&calling(), &failure(FailureClass::Account, Decision::Stop), NOW);
    assert_eq!(next.status, Status::Received { next_attempt_at: NOW, licence: Licence::NotExecuted });
    assert_eq!(next.counted, 0);
}

#[test]
fn an_uncertain_outcome_is_looked_up_or_shown_to_a_person_and_never_repeated() {
    let next = after(&calling(), &failure(FailureClass::Uncertain, Decision::ReconcileAt(NOW.plus(s(5)))), NOW);
    let sent = NOW.plus(s(1));
    let status = Status::Reconciling { next_lookup_at: NOW.plus(s(5)), send_ended_at: sent, since: NOW };
    assert_eq!((next.state(), next.status), (State::InProgress, status));
    let next = after(&calling(), &failure(FailureClass::Uncertain, Decision::AskOperator), NOW);
    let status = Status::NeedsReview { reason: ReviewReason::UncertainOutcome, send_ended_at: Some(sent) };
    assert_eq!(next.status, status);
}

#[test]
fn a_decision_that_does_not_fit_its_class_is_refused() {
    let retry = Decision::RetryAt(NOW);
    let reconcile = Decision::ReconcileAt(NOW);
    for (class, decision) in [
        (FailureClass::Uncertain, retry),
        (FailureClass::Uncertain, Decision::GiveUp),
        (FailureClass::Uncertain, Decision::Stop),
        (FailureClass::Duplicate, retry),
        (FailureClass::Account, retry),
        (FailureClass::Rejected, retry),
        (FailureClass::NotSent, reconcile),
        (FailureClass::NotExecuted, Decision::Stop),
        (FailureClass::Throttled, Decision::AskOperator),
    ] {
        assert_eq!(
            refused(&calling(), &failure(class, decision), NOW),
            Refused::UnfitDecision,
            "{class:?} {decision:?}"
        );
    }
}

#[test]
fn a_look_up_that_finds_one_completes_at_any_time() {
    let early = Event::LookedUp {
        begun_at: NOW,
        settled_monotonic: false,
        settle: SETTLE,
        trusted: false,
        give_up: GIVE_UP,
        outcome: LookupOutcome::Found(vec![id("4512")]),
        next_lookup_at: NOW,
        retry_at: None,
        last_step: true,
    };
    assert_eq!(after(&reconciling(), &early, NOW).status, Status::Completed { crm_id: id("4512") });
    // The same entity on two pages is one entity.
    assert_eq!(after(&reconciling(), &found(&["7", "7"]), NOW).status, Status::Completed { crm_id: id("7") });
}

#[test]
fn a_look_up_that_finds_several_is_shown_to_a_person_with_all_ids() {
    let next = after(&reconciling(), &found(&["7", "9"]), NOW);
    assert_eq!((next.status.reason(), next.other_crm_ids.as_deref()), (Some("ambiguous_match"), Some("7,9")));
    assert_eq!(refused(&next, &Event::Retry { settle: SETTLE }, NOW.plus(GIVE_UP)), Refused::EntityExists);
}

#[test]
fn an_empty_look_up_counts_only_when_begun_after_settle_on_both_clocks_and_trusted() {
    let at = NOW.plus(s(200));
    let settled = NOW.plus(SETTLE);
    let early = settled.minus(Duration::from_micros(1));
    let retry = Some(NOW.plus(s(150)));
    let empty = |begun: At, monotonic: bool, believed: bool, retry: Option<At>| {
        let mut event = found(&[]);
        if let Event::LookedUp { begun_at, settled_monotonic, trusted, retry_at, .. } = &mut event {
            (*begun_at, *settled_monotonic, *trusted, *retry_at) = (begun, monotonic, believed, retry);
        }
        after(&reconciling(), &event, at)
    };
    let next = empty(settled, true, true, retry);
    let waits = Status::Received { next_attempt_at: NOW.plus(s(150)), licence: Licence::LookupAbsent };
    assert_eq!((next.status, next.lookups), (waits, 1));

    for next in [empty(early, true, true, retry), empty(settled, false, true, retry), empty(early, true, false, retry)]
    {
        assert!(matches!(next.status, Status::Reconciling { send_ended_at: NOW, since: NOW, .. }), "{:?}", next.status);
        assert_eq!(next.lookups, 1);
    }
    let untrusted = empty(settled, true, false, retry);
    assert_eq!(untrusted.status.reason(), Some("uncertain_outcome"));
    let spent = empty(settled, true, true, None);
    assert_eq!(spent.status.reason(), Some("attempts_exhausted"));
}

#[test]
fn rule_1_a_look_up_that_reaches_nobody_proves_nothing_and_does_not_count() {
    for class in FailureClass::ALL {
        let next = after(&reconciling(), &no_answer(class), NOW.plus(s(3_600)));
        let Status::Reconciling { next_lookup_at, send_ended_at, since } = next.status else { panic!("{class:?}") };
        assert_eq!((next_lookup_at, send_ended_at, since), (NOW.plus(s(300)), NOW, NOW), "{class:?}");
        assert_eq!((next.lookups, next.attempts, next.counted), (0, 1, 0), "{class:?}");
        // An account stop suspends the destination, and time stands still then: no give_up.
        let next = after(&reconciling(), &no_answer(class), NOW.plus(GIVE_UP));
        let expected = if class == FailureClass::Account { None } else { Some("uncertain_outcome") };
        assert_eq!(next.status.reason(), expected, "{class:?}");
    }
}

#[test]
fn rule_2_a_late_answer_with_an_id_counts_in_every_state() {
    for (name, before) in every_state() {
        let known = before.crm_id.is_some();
        let mut early = created("4512");
        if let Event::Answered { attempt, .. } = &mut early {
            // Of an attempt long before the last.
            *attempt = 0;
        }
        if known {
            unchanged(&before, &early, NOW);
        } else {
            assert_eq!(after(&before, &early, NOW).status, Status::Completed { crm_id: id("4512") }, "{name}");
        }
    }
}

#[test]
fn rule_2_a_second_id_is_kept_beside_the_first_and_shown_to_a_person() {
    let next = after(&completed(), &created("4513"), NOW);
    assert_eq!((next.state(), next.status.reason()), (State::NeedsReview, Some("duplicate_entity")));
    assert_eq!((next.crm_id.as_ref(), next.other_crm_ids.as_deref()), (Some(&id("4512")), Some("4513")));
    assert_eq!(next.finished_at, None);
    unchanged(&next, &created("4512"), NOW);
    unchanged(&next, &created("4513"), NOW);
    let third = after(&next, &created("4514"), NOW);
    assert_eq!(third.other_crm_ids.as_deref(), Some("4513,4514"));

    // Whichever a person chooses, the others stay on record.
    let chosen = after(&third, &Event::Complete { crm_id: id("4513") }, NOW);
    assert_eq!((chosen.crm_id, chosen.other_crm_ids.as_deref()), (Some(id("4513")), Some("4512,4514")));
}

#[test]
fn rule_2_a_late_answer_without_an_id_moves_only_the_last_and_unresolved_attempt() {
    let late = failure(FailureClass::NotExecuted, Decision::RetryAt(NOW.plus(s(9))));
    let next = after(&reconciling(), &late, NOW);
    assert_eq!(next.status, Status::Received { next_attempt_at: NOW.plus(s(9)), licence: Licence::NotExecuted });

    let mut newer = reconciling();
    newer.attempts = 2;
    unchanged(&newer, &late, NOW);
    unchanged(&reconciling(), &failure(FailureClass::Uncertain, Decision::ReconcileAt(NOW)), NOW);
    for before in [received(), claimed(), completed(), failed_terminal(), review(ReviewReason::UncertainOutcome)] {
        unchanged(&before, &late, NOW);
    }
}

#[test]
fn rule_3_a_lost_worker_leaves_an_uncertain_outcome_settled_from_lease_end_and_time_out() {
    let over = NOW.plus(s(60)).plus(GRACE);
    let first = over.plus(s(5));
    let almost = over.minus(Duration::from_micros(1));
    assert_eq!(refused(&calling(), &expired(Some(first)), almost), Refused::LeaseRuns(lease()));
    let next = after(&calling(), &expired(Some(first)), over);
    let sent = NOW.plus(s(60)).plus(TIMEOUT);
    assert_eq!(next.status, Status::Reconciling { next_lookup_at: first, send_ended_at: sent, since: NOW });
    let unasked = after(&calling(), &expired(None), over);
    assert_eq!(unasked.status.reason(), Some("uncertain_outcome"));
}

#[test]
fn a_lost_worker_that_had_sent_nothing_costs_one_of_the_budget_and_nothing_else() {
    let over = NOW.plus(s(60)).plus(GRACE);
    let next = after(&claimed(), &expired(None), over);
    assert_eq!(next.status, Status::Received { next_attempt_at: over, licence: Licence::FirstSend });
    // Case C40: a lead that kills its workers before their call must not do so for ever.
    assert_eq!((next.attempts, next.counted), (1, 1));
}

#[test]
fn rule_5_only_what_may_have_reached_the_crm_counts_toward_the_budget() {
    for (class, decision, counted) in [
        (FailureClass::NotSent, Decision::RetryAt(NOW), 0),
        (FailureClass::Throttled, Decision::RetryAt(NOW), 0),
        (FailureClass::Account, Decision::Stop, 0),
        (FailureClass::NotExecuted, Decision::RetryAt(NOW), 1),
        (FailureClass::Uncertain, Decision::ReconcileAt(NOW), 1),
        (FailureClass::Duplicate, Decision::ReconcileAt(NOW), 1),
    ] {
        assert_eq!(after(&calling(), &failure(class, decision), NOW).counted, counted, "{class:?}");
        if class.proves_not_executed() {
            // The same class coming late, after the lost worker was counted: once, or not at all.
            let lost = after(&calling(), &expired(Some(NOW)), NOW.plus(s(90)));
            assert_eq!(lost.counted, 1);
            assert_eq!(after(&lost, &failure(class, decision), NOW.plus(s(91))).counted, counted, "late {class:?}");
        }
    }
}

#[test]
fn rule_5_a_resume_begins_a_new_series_and_attempts_go_on_counting() {
    let mut worn = received();
    (worn.counted, worn.attempts) = (7, 7);
    let next = after(&after(&worn, &claim(2), NOW), &Event::AttemptBegun, NOW.plus(s(1)));
    assert_eq!((next.counted, next.attempts, next.series_epoch), (0, 8, 2));
    assert_eq!(next.series_since, Some(NOW.plus(s(1))));
    let same = after(&worn, &claim(0), NOW);
    assert_eq!((same.counted, same.series_since), (7, Some(NOW)));

    let taken = |destination_epoch| Event::LookupTaken { next_lookup_at: NOW.plus(GIVE_UP), destination_epoch };
    let resumed = after(&reconciling(), &taken(2), NOW.plus(s(5_000)));
    assert!(
        matches!(resumed.status, Status::Reconciling { since, send_ended_at: NOW, .. } if since == NOW.plus(s(5_000)))
    );
    let same = after(&reconciling(), &taken(0), NOW.plus(s(5_000)));
    assert!(matches!(same.status, Status::Reconciling { since: NOW, .. }));
}

#[test]
fn rule_5_give_up_runs_from_the_first_attempt_of_the_series() {
    let mut late = calling();
    late.series_since = Some(NOW.minus(s(4_000)));
    let next = after(&late, &failure(FailureClass::Uncertain, Decision::ReconcileAt(NOW)), NOW);
    assert!(matches!(next.status, Status::Reconciling { since, .. } if since == NOW.minus(s(4_000))));
}

#[test]
fn an_operator_completes_retries_or_rejects_a_case() {
    for before in [review(ReviewReason::UncertainOutcome), failed_terminal()] {
        let next = after(&before, &Event::Complete { crm_id: id("4512") }, NOW);
        assert_eq!((next.status, next.finished_at), (Status::Completed { crm_id: id("4512") }, Some(NOW)));
        let next = after(&before, &Event::Retry { settle: SETTLE }, NOW);
        assert_eq!(next.status, Status::Received { next_attempt_at: NOW, licence: Licence::Operator });
        assert_eq!((next.counted, next.series_since, next.finished_at, next.attempts), (0, None, None, 1));
    }
    for before in [review(ReviewReason::PayloadConflict), received()] {
        let next = after(&before, &Event::Reject, NOW);
        assert_eq!((next.status.reason(), next.finished_at), (Some("rejected_by_operator"), Some(NOW)));
    }
}

#[test]
fn rule_10_an_uncertain_case_is_not_retried_before_settle_has_passed() {
    let reason = ReviewReason::UncertainOutcome;
    let case = operation(Status::NeedsReview { reason, send_ended_at: Some(NOW) });
    let retry = Event::Retry { settle: SETTLE };
    let earliest = NOW.plus(SETTLE);
    assert_eq!(refused(&case, &retry, earliest.minus(Duration::from_micros(1))), Refused::NotBefore(earliest));
    after(&case, &retry, earliest);
}

#[test]
fn nobody_retries_where_an_entity_is_known_not_even_after_a_rejection() {
    let retry = Event::Retry { settle: SETTLE };
    let double = after(&completed(), &created("4513"), NOW);
    assert_eq!(refused(&double, &retry, NOW), Refused::EntityExists);
    let rejected = after(&double, &Event::Reject, NOW);
    assert_eq!((rejected.state(), rejected.crm_id.as_ref()), (State::FailedTerminal, Some(&id("4512"))));
    assert_eq!(refused(&rejected, &retry, NOW), Refused::EntityExists);
}

/// An answer to attempt 1 of the first of two steps.
fn contact(text: &str) -> Event {
    let outcome = CreateOutcome::Created(id(text));
    Event::Answered { attempt: 1, step: 0, last_step: false, outcome, decision: Decision::Stop, ended_at: NOW }
}

#[test]
fn rule_12_a_step_on_the_way_leads_to_the_next_step_and_not_to_the_end() {
    let next = after(&calling(), &contact("c-1"), NOW);
    assert_eq!(next.status, Status::Claimed { lease: lease(), licence: Licence::FirstSend });
    assert_eq!((next.step, next.crm_id.as_ref()), (1, None));
    // The contact's late answer comes again: that step is done.
    unchanged(&next, &contact("c-2"), NOW);

    for before in [reconciling(), received(), review(ReviewReason::UncertainOutcome)] {
        let next = after(&before, &contact("c-1"), NOW);
        assert_eq!(next.status, Status::Received { next_attempt_at: NOW, licence: Licence::FirstSend });
        assert_eq!(next.step, 1);
    }
    for before in [completed(), failed_terminal()] {
        unchanged(&before, &contact("c-1"), NOW);
    }
}

#[test]
fn rule_12_a_step_is_looked_up_by_itself() {
    let mut event = found(&["c-1"]);
    if let Event::LookedUp { last_step, .. } = &mut event {
        *last_step = false;
    }
    let next = after(&reconciling(), &event, NOW);
    assert_eq!((next.state(), next.step, next.crm_id), (State::Received, 1, None));
}

#[test]
fn rule_12_a_newer_call_of_the_step_is_waited_for() {
    let mut newer = calling();
    newer.attempts = 2;
    unchanged(&newer, &contact("c-1"), NOW);
}

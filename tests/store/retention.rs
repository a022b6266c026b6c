//! Retention: payloads go, tombstones answer (contract 4.1 rule 8, contract 8).

use std::time::Duration;

use leadonce::clock::At;
use leadonce::operation::transition::Event;
use leadonce::operation::{CrmId, HashRule, Lead, Operation, ReviewReason, Status};
use leadonce::store::{AttemptWrite, CallKind, NewAttempt, Purged, Verdict};

use crate::stage::*;

const DAY: Duration = Duration::from_secs(86_400);

fn purge(stage: &Stage, payload: At, tombstone: At) -> Purged {
    stage.wait(stage.store.purge(payload.plus(DAY), payload, tombstone, 100, false)).expect("purged")
}

fn long_ago() -> At {
    NOW.minus(1_000 * DAY)
}

/// Brought to review, then completed by an operator at that time; with everything that retention erases.
fn completed(stage: &Stage, received: &Operation, at: At) -> Operation {
    let mut review = received.clone();
    review.version += 1;
    review.status = Status::NeedsReview { reason: ReviewReason::AttemptsExhausted, send_ended_at: None };
    review.last_error = Some("Anna's phone is wrong".into());
    let mut update = plain(received, review.clone());
    update.lead = Some(Lead { name: Some("Anna".into()), ..Lead::default() });
    update.attempt = Some(AttemptWrite::Begin(NewAttempt {
        id: id_at(at),
        call: CallKind::Create,
        number: 1,
        step: 0,
        epoch: 1,
        licence: None,
        started_at: at,
        mapping_version: "m1".into(),
        request: "Anna".into(),
    }));
    stage.update(update);
    stage.wait(stage.store.index_contacts(vec![(received.id, vec!["anna@example.com".into()])])).expect("indexed");
    stage.apply(&review, &Event::Complete { crm_id: CrmId::try_from("1".to_owned()).expect("an id") }, at)
}

both! {
    fn the_tombstone_answers_replays_and_tells_changed_content(stage) {
        let received = stage.admit_one(keyed("a", "lead")).operation;
        let done = completed(&stage, &received, NOW);
        assert_eq!(purge(&stage, NOW, long_ago()), Purged::default(), "not due yet");
        let preview = stage.wait(stage.store.purge(NOW.plus(DAY), NOW.plus(DAY), long_ago(), 100, true)).expect("counted");
        let expected = Purged { payloads: 1, tombstones: 0, deliveries: 0 };
        assert_eq!(preview, expected);
        assert_eq!(purge(&stage, NOW.plus(DAY), long_ago()), expected);
        assert_eq!(purge(&stage, NOW.plus(DAY), long_ago()), Purged::default(), "once");

        let tombstone = stage.operation(done.id);
        assert!(tombstone.payload_erased_at.is_some());
        assert_eq!((tombstone.crm_id.clone(), tombstone.version), (done.crm_id.clone(), done.version));
        assert_eq!(tombstone.last_error, None);
        let story = stage.wait(stage.store.story(done.id)).expect("read").expect("known");
        assert!(story.deliveries.iter().all(|d| d.body.is_none() && d.headers.is_empty()));
        assert!(story.attempts.iter().all(|a| a.request.is_none()));
        assert_eq!(story.edited_lead, None);
        assert_eq!(stage.place.number("SELECT count(*) FROM contact_hashes"), 0);

        let replay = stage.admit_one(keyed("a", "lead"));
        assert_eq!((replay.verdict, replay.operation.crm_id), (Verdict::Replay, done.crm_id.clone()));
        assert_eq!(stage.admit_one(keyed("a", "changed")).verdict, Verdict::Conflict);
        let mut other_rule = keyed("a", "lead");
        other_rule.events[0].operation.hash_rule = HashRule::current(&["time".into()]);
        assert_eq!(stage.admit_one(other_rule).verdict, Verdict::ReplayUnverified);
        assert_eq!(stage.wait(stage.store.unaccounted()).expect("counted"), 0);
        assert_eq!(stage.wait(stage.store.unexplained()).expect("counted"), 0);
    }
}

both! {
    fn what_is_not_finished_is_never_erased(stage) {
        let received = stage.admit_one(keyed("received", "lead")).operation;
        let in_progress = stage.admit_one(keyed("in progress", "lead")).operation;
        let taken = stage.wait(stage.store.take(take_at(NOW, "node", 2))).expect("taken").creates;
        let back = taken.iter().find(|o| o.id == received.id).expect("taken");
        stage.apply(back, &Event::GivenBack, NOW);
        let mut review = stage.admit_one(keyed("review", "lead")).operation;
        let before = review.clone();
        review.version += 1;
        review.status = Status::NeedsReview { reason: ReviewReason::Unreadable, send_ended_at: None };
        stage.update(plain(&before, review.clone()));
        let future = NOW.plus(5_000 * DAY);
        assert_eq!(purge(&stage, future, future), Purged::default());
        for id in [received.id, in_progress.id, review.id] {
            let operation = stage.operation(id);
            let work = stage.wait(stage.store.work_of(&operation)).expect("read");
            assert!(work.delivery.is_some_and(|d| d.body.is_some()));
        }
    }
}

both! {
    fn a_tombstone_goes_with_everything_of_it(stage) {
        let received = stage.admit_one(keyed("a", "lead")).operation;
        completed(&stage, &received, NOW);
        stage.admit_one(keyed("a", "lead"));
        let later = NOW.plus(DAY);
        assert_eq!(purge(&stage, later, later), Purged { payloads: 1, tombstones: 1, deliveries: 0 });
        for table in ["operations", "deliveries", "transitions", "attempts", "audit", "contact_hashes", "lead_edits"] {
            assert_eq!(stage.place.number(&format!("SELECT count(*) FROM {table}")), 0, "{table}");
        }
        assert_eq!(stage.admit_one(keyed("a", "lead")).verdict, Verdict::New);
    }
}

both! {
    fn the_first_operation_stays_while_a_conflict_points_at_it(stage) {
        let first = stage.admit_one(keyed("a", "lead")).operation;
        completed(&stage, &first, NOW);
        let conflict = stage.admit_one(keyed("a", "changed")).operation;
        let later = NOW.plus(DAY);
        assert_eq!(purge(&stage, later, later).tombstones, 0);
        stage.apply(&conflict, &Event::Complete { crm_id: CrmId::try_from("2".to_owned()).expect("an id") }, NOW);
        assert_eq!(purge(&stage, later, later).tombstones, 1, "the conflict first");
        assert_eq!(purge(&stage, later, later).tombstones, 1, "then the first");
    }
}

both! {
    fn a_shared_body_stays_until_its_last_event_may_lose_it(stage) {
        let admissions = stage.admit(delivery_at(NOW, &[(Some("a"), "one"), (Some("b"), "two")]));
        let (done, open) = (admissions[0].operation.clone(), admissions[1].operation.clone());
        completed(&stage, &done, NOW);
        let later = NOW.plus(DAY);
        let first = purge(&stage, later, later);
        assert_eq!((first.payloads, first.tombstones), (1, 0));
        let work = stage.wait(stage.store.work_of(&open)).expect("read");
        assert_eq!(work.delivery.and_then(|d| d.body).as_deref(), Some(b"one\ntwo".as_slice()));
        completed(&stage, &open, NOW);
        assert_eq!(purge(&stage, later, later).payloads, 1);
        assert_eq!(stage.place.number("SELECT count(*) FROM deliveries WHERE body IS NOT NULL"), 0);
        purge(&stage, later, later);
        assert_eq!(stage.place.number("SELECT count(*) FROM operations"), 0);
    }
}

both! {
    /// An operator's retry after the erasure brings a new lead, which is erased in its turn.
    fn what_comes_after_an_erasure_is_erased_too(stage) {
        let received = stage.admit_one(keyed("a", "lead")).operation;
        let failed = stage.apply(&received, &Event::Reject, NOW);
        purge(&stage, NOW.plus(DAY), long_ago());
        let tombstone = stage.operation(failed.id);
        let retried = change(&tombstone, &Event::Retry { settle: MINUTE }, NOW.plus(10 * DAY));
        let retried = leadonce::store::Update { lead: Some(Lead::default()), ..retried };
        let again = retried.after.clone();
        stage.update(retried);
        let failed = stage.apply(&again, &Event::Reject, NOW.plus(11 * DAY));
        assert_eq!(purge(&stage, NOW.plus(5 * DAY), NOW.plus(20 * DAY)), Purged::default());
        assert_eq!(purge(&stage, NOW.plus(12 * DAY), long_ago()).payloads, 1);
        assert_eq!(stage.wait(stage.store.edited_lead(failed.id)).expect("read"), None);
    }
}

both! {
    fn refused_deliveries_go_by_their_own_age_in_small_steps(stage) {
        for n in 0..5 {
            let at = NOW.plus(n * DAY);
            let delivery = delivery_at(at, &[(None, "refused")]).delivery;
            stage.wait(stage.store.log(delivery, Verdict::Rejected)).expect("logged");
        }
        let horizon = NOW.plus(3 * DAY);
        let step = |limit| stage.wait(stage.store.purge(horizon, horizon, long_ago(), limit, false)).expect("purged").deliveries;
        assert_eq!((step(2), step(2), step(2)), (2, 1, 0));
        assert_eq!(stage.place.number("SELECT count(*) FROM deliveries"), 2);
    }
}

both! {
    /// A replay of a tombstone brings the person's data again; it goes by its own age.
    fn the_body_of_a_late_replay_is_erased_in_its_turn(stage) {
        let received = stage.admit_one(keyed("a", "lead")).operation;
        stage.apply(&received, &Event::Reject, NOW);
        purge(&stage, NOW.plus(DAY), long_ago());
        let late = delivery_at(NOW.plus(10 * DAY), &[(Some("a"), "lead"), (Some("b"), "new lead")]);
        let admissions = stage.admit(late);
        assert_eq!(admissions[0].verdict, Verdict::Replay);
        stage.admit_one(delivery_at(NOW.plus(10 * DAY), &[(Some("a"), "lead")]));
        let bodies = || stage.place.number("SELECT count(*) FROM deliveries WHERE body IS NOT NULL");
        assert_eq!(purge(&stage, NOW.plus(5 * DAY), long_ago()), Purged::default());
        assert_eq!(bodies(), 2);
        assert_eq!(purge(&stage, NOW.plus(11 * DAY), long_ago()).payloads, 1);
        assert_eq!(bodies(), 1, "the other event of that request is still to be sent");
        stage.apply(&admissions[1].operation, &Event::Reject, NOW.plus(10 * DAY));
        purge(&stage, NOW.plus(11 * DAY), long_ago());
        assert_eq!(bodies(), 0);
    }
}

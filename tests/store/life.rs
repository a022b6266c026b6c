//! Changes of an operation: one conditional UPDATE each, with all that belongs to it (contract 4, 4.1 rules 2 and 7).

use futures_util::future::{join, join_all};
use leadonce::operation::transition::{Decision, Event};
use leadonce::operation::{CreateOutcome, CrmId, Failure, FailureClass, Lead, Operation, ReviewReason, State, Status};
use leadonce::store::{
    AttemptEnd, AttemptWrite, Audit, CallKind, NewAttempt, Store, StoreError, Update, Updated, Use, Writer,
};
use uuid::Uuid;

use crate::stage::*;

fn crm_id(text: &str) -> CrmId {
    CrmId::try_from(text.to_owned()).expect("an id")
}

fn attempt(operation: &Operation, id: Uuid) -> NewAttempt {
    NewAttempt {
        id,
        call: CallKind::Create,
        number: operation.attempts + 1,
        step: operation.step,
        epoch: operation.epoch,
        licence: Some("first_send"),
        started_at: NOW,
        mapping_version: "m1".into(),
        request: "POST /deals {\0}".into(),
    }
}

fn end(id: Uuid, class: &'static str) -> AttemptEnd {
    AttemptEnd {
        id,
        ended_at: NOW.plus(MINUTE),
        class,
        status: Some(200),
        excerpt: "a\0nswer".into(),
        decision: "completed".into(),
    }
}

/// Claimed by a worker.
fn claimed(stage: &Stage) -> Operation {
    stage.admit_one(keyed("a", "lead"));
    let taken = stage.wait(stage.store.take(take_at(NOW, "node", 1))).expect("taken");
    taken.creates.into_iter().next().expect("one is due")
}

/// Its attempt recorded, with that id.
fn calling(stage: &Stage, id: Uuid) -> Operation {
    let claimed = claimed(stage);
    let mut begin = change(&claimed, &Event::AttemptBegun, NOW);
    begin.attempt = Some(AttemptWrite::Begin(attempt(&claimed, id)));
    let after = begin.after.clone();
    assert_eq!(stage.update(begin), Updated::Done);
    after
}

fn answered(operation: &Operation, outcome: CreateOutcome, decision: Decision, id: Uuid) -> Update {
    let event = Event::Answered {
        attempt: operation.attempts,
        step: 0,
        last_step: true,
        outcome,
        decision,
        ended_at: NOW.plus(MINUTE),
    };
    let mut update = change(operation, &event, NOW.plus(MINUTE));
    update.attempt = Some(AttemptWrite::End(end(id, "ok")));
    update
}

both! {
    fn a_lead_goes_its_way_and_every_step_is_logged(stage) {
        let mut finished = stage.store.finished();
        let id = id_at(NOW);
        let calling = calling(&stage, id);
        let work = stage.wait(stage.store.work_of(&calling)).expect("read");
        assert_eq!((work.last_create, work.first_sent_at), (Some((id, false)), Some(NOW)));

        let update = answered(&calling, CreateOutcome::Created(crm_id("4512")), Decision::Stop, id);
        assert_eq!(stage.update(update), Updated::Done);
        let completed = stage.operation(calling.id);
        assert_eq!(completed.status, Status::Completed { crm_id: crm_id("4512") });
        assert_eq!(finished.try_recv(), Ok(calling.id));

        let story = stage.wait(stage.store.story(calling.id)).expect("read").expect("known");
        let events: Vec<_> = story.transitions.iter().map(|t| (t.version, t.to.as_str(), t.event.as_str())).collect();
        assert_eq!(
            events,
            [(1, "received", "received"), (2, "in_progress", "claimed"), (3, "in_progress", "test"), (4, "completed", "test")]
        );
        let [logged] = story.attempts.as_slice() else { panic!("{:?}", story.attempts) };
        assert_eq!((logged.id, logged.number, logged.class.as_deref()), (id, 1, Some("ok")));
        assert_eq!((logged.request.as_deref(), logged.excerpt.as_deref()), (Some("POST /deals {}"), Some("answer")));
        let work = stage.wait(stage.store.work_of(&completed)).expect("read");
        assert_eq!(work.last_create, Some((id, true)));
        assert_eq!(stage.wait(stage.store.unexplained()).expect("counted"), 0);
    }
}

both! {
    fn every_status_survives_the_store(stage) {
        let claimed = claimed(&stage);
        assert_eq!(stage.operation(claimed.id), claimed);
        let calling = stage.apply(&claimed, &Event::AttemptBegun, NOW);
        assert_eq!(stage.operation(claimed.id), calling);
        let uncertain = CreateOutcome::Failed(Failure::new(FailureClass::Uncertain, "time-out"));
        let update = answered(&calling, uncertain, Decision::ReconcileAt(NOW.plus(2 * MINUTE)), id_at(NOW));
        let reconciling = update.after.clone();
        stage.update(update);
        assert!(matches!(reconciling.status, Status::Reconciling { .. }));
        assert_eq!(stage.operation(claimed.id), reconciling);
        let mut review = reconciling.clone();
        review.version += 1;
        review.status =
            Status::NeedsReview { reason: ReviewReason::UncertainOutcome, send_ended_at: Some(NOW.plus(MINUTE)) };
        review.other_crm_ids = Some("1,2".into());
        assert_eq!(stage.update(plain(&reconciling, review.clone())), Updated::Done);
        assert_eq!(stage.operation(claimed.id), review);
        let failed = stage.apply(&review, &Event::Reject, NOW.plus(3 * MINUTE));
        assert_eq!(failed.state(), State::FailedTerminal);
        assert_eq!(stage.operation(claimed.id), failed);
    }
}

both! {
    fn a_change_of_a_moved_operation_is_refused_with_what_stands(stage) {
        let claimed = claimed(&stage);
        let given_back = stage.apply(&claimed, &Event::GivenBack, NOW);
        let id = id_at(NOW);
        let mut late = change(&claimed, &Event::AttemptBegun, NOW);
        late.attempt = Some(AttemptWrite::Begin(attempt(&claimed, id)));
        assert_eq!(stage.update(late), Updated::Moved(Box::new(given_back.clone())));
        assert_eq!(stage.operation(claimed.id), given_back);
        assert_eq!(stage.place.number("SELECT count(*) FROM attempts"), 0);
        assert_eq!(stage.place.number("SELECT count(*) FROM transitions"), 3);
    }
}

both! {
    /// Contract 4.1 rule 7: the answer to the first commit was lost, the same update comes again.
    fn ones_own_change_found_again_is_done(stage) {
        let claimed = claimed(&stage);
        let mut begin = change(&claimed, &Event::AttemptBegun, NOW);
        begin.attempt = Some(AttemptWrite::Begin(attempt(&claimed, id_at(NOW))));
        assert_eq!(stage.update(begin.clone()), Updated::Done);
        assert_eq!(stage.update(begin.clone()), Updated::Done);
        assert_eq!(stage.place.number("SELECT count(*) FROM attempts"), 1);
        // The same target state, but another attempt: not one's own.
        begin.attempt = Some(AttemptWrite::Begin(attempt(&claimed, id_at(NOW))));
        assert!(matches!(stage.update(begin), Updated::Moved(_)));
    }
}

fn rejection(by: &str, review: &Operation) -> Update {
    let mut update = change(review, &Event::Reject, NOW);
    update.audit = Some(Audit {
        actor: by.into(),
        at: NOW,
        action: "reject".into(),
        operation_id: Some(review.id),
        subject: None,
        from: Some("received".into()),
        to: Some("failed_terminal".into()),
        note: Some("du\0plicate".into()),
    });
    update
}

both! {
    /// Two operators decide the same at the same moment: one of them is told that the operation moved on.
    fn of_two_equal_decisions_one_stands(stage) {
        let received = stage.admit_one(keyed("a", "lead")).operation;
        assert_eq!(stage.update(rejection("anna", &received)), Updated::Done);
        assert!(matches!(stage.update(rejection("boris", &received)), Updated::Moved(_)));
        assert_eq!(stage.update(rejection("anna", &received)), Updated::Done);
        let story = stage.wait(stage.store.story(received.id)).expect("read").expect("known");
        let [entry] = story.audit.as_slice() else { panic!("{:?}", story.audit) };
        assert_eq!((entry.actor.as_str(), entry.note.as_deref()), ("anna", Some("duplicate")));
    }
}

both! {
    fn a_result_is_written_once(stage) {
        let id = id_at(NOW);
        let calling = calling(&stage, id);
        let mut evidence = plain(&calling, calling.clone());
        evidence.attempt = Some(AttemptWrite::End(end(id, "uncertain")));
        assert_eq!(stage.update(evidence.clone()), Updated::Done);
        evidence.attempt = Some(AttemptWrite::End(end(id, "ok")));
        assert_eq!(stage.update(evidence), Updated::Done);
        let story = stage.wait(stage.store.story(calling.id)).expect("read").expect("known");
        assert_eq!(story.attempts[0].class.as_deref(), Some("uncertain"));
        assert_eq!(story.operation, calling, "evidence changes no state");
    }
}

both! {
    fn steps_lookups_and_corrected_leads_are_kept(stage) {
        let calling = calling(&stage, id_at(NOW));
        let mut update = plain(&calling, calling.clone());
        update.step_done = Some((0, crm_id("contact-7")));
        let mut begin = attempt(&calling, id_at(NOW));
        begin.call = CallKind::Lookup;
        update.attempt = Some(AttemptWrite::Whole(begin.clone(), end(begin.id, "ok")));
        update.lead = Some(Lead { name: Some("An\0na".into()), ..Lead::default() });
        assert_eq!(stage.update(update.clone()), Updated::Done);
        update.lead = Some(Lead { name: Some("Maria".into()), ..Lead::default() });
        update.attempt = None;
        assert_eq!(stage.update(update.clone()), Updated::Done);
        let work = stage.wait(stage.store.work_of(&calling)).expect("read");
        assert_eq!(work.steps, [(0, crm_id("contact-7"))]);
        assert_eq!(work.edited_lead, update.lead);
        assert_eq!(stage.wait(stage.store.edited_lead(calling.id)).expect("read"), update.lead);
        let story = stage.wait(stage.store.story(calling.id)).expect("read").expect("known");
        assert_eq!(story.attempts.iter().filter(|a| a.call == "lookup" && a.ended_at.is_some()).count(), 1);
    }
}

both! {
    /// The database repeats the invariants, should the code ever be wrong.
    fn an_impossible_state_cannot_be_written(stage) {
        let received = stage.admit_one(keyed("a", "lead")).operation;
        let mut sent_twice = received.clone();
        sent_twice.version += 1;
        sent_twice.crm_id = Some(crm_id("4512"));
        let refused = stage.wait(stage.store.update(plain(&received, sent_twice)));
        assert!(matches!(refused, Err(StoreError::Inconsistent(_))), "{refused:?}");
        for set in [
            "state = 'nonsense'",
            "state = 'completed', next_attempt_at = NULL, licence = NULL, finished_at = 1",
            "state = 'needs_review', next_attempt_at = NULL, licence = NULL",
            "state = 'in_progress', next_attempt_at = NULL, licence = NULL",
            "state = 'in_progress', phase = 'calling', next_attempt_at = NULL, licence = NULL",
            "state = 'in_progress', phase = 'reconciling', next_attempt_at = NULL, licence = NULL",
            "next_attempt_at = NULL",
            "lease_until = 5",
            "finished_at = 5",
            "reason = 'rejected'",
        ] {
            assert!(stage.place.try_execute(&format!("UPDATE operations SET {set}")).is_err(), "{set} was accepted");
        }
        assert_eq!(stage.operation(received.id), received);
    }
}

both! {
    fn a_corrupt_row_is_an_error_with_its_id(stage) {
        let received = stage.admit_one(keyed("a", "lead")).operation;
        stage.place.execute("UPDATE operations SET destination = 'no such name!'");
        let read = stage.wait(stage.store.operation(received.id));
        let Err(StoreError::Inconsistent(text)) = read else { panic!("{read:?}") };
        assert!(text.contains(&received.id.to_string()), "{text}");
    }
}

both! {
    fn what_was_answered_is_there_after_a_restart(stage) {
        let id = id_at(NOW);
        let calling = calling(&stage, id);
        let stage = stage.restart();
        assert_eq!(stage.operation(calling.id), calling);
        assert_eq!(stage.admit_one(keyed("a", "lead")).verdict, leadonce::store::Verdict::Replay);
        let work = stage.wait(stage.store.work_of(&calling)).expect("read");
        assert_eq!(work.last_create, Some((id, false)));
    }
}

/// What comes of work that the writer does in one batch.
fn in_one_batch<T>(stage: &Stage, writer: &mut Writer, work: impl Future<Output = T>) -> T {
    stage.wait(join(work, async { writer.step() })).0
}

both! {
    fn of_many_changes_in_one_batch_each_hits_or_misses_by_itself(stage) {
        let place = stage.place.another();
        let (store, mut writer) = Store::open(&place.settings(), Use::Serve).expect("opens");
        let names = vec![(crm(), "http".into())];
        in_one_batch(&stage, &mut writer, store.ensure_destinations(names, NOW)).expect("made");
        let admits = join_all((0..4).map(|n| store.admit(keyed(&format!("key-{n}"), "lead"))));
        in_one_batch(&stage, &mut writer, admits);
        let taken = in_one_batch(&stage, &mut writer, store.take(take_at(NOW, "node", 4))).expect("taken").creates;
        assert_eq!(taken.len(), 4);

        // Each attempt begins, and has its end in the same batch; one operation has moved on.
        let ids: Vec<Uuid> = (1..=4).map(Uuid::from_u128).collect();
        let mut sent = Vec::new();
        for (operation, id) in taken.iter().zip(&ids) {
            let mut begin = change(operation, &Event::AttemptBegun, NOW);
            begin.attempt = Some(AttemptWrite::Begin(attempt(operation, *id)));
            let created = answered(&begin.after, CreateOutcome::Created(crm_id("7")), Decision::Stop, *id);
            sent.extend([begin, created]);
        }
        sent[4].before.version -= 1;
        let work = join_all(sent.iter().cloned().map(|update| store.update(update)));
        let answers: Vec<Result<Updated, StoreError>> = in_one_batch(&stage, &mut writer, work);
        for (number, answer) in answers.into_iter().enumerate() {
            let done = matches!(answer.expect("judged"), Updated::Done);
            assert_eq!(done, number / 2 != 2, "{number}");
        }
        for (number, operation) in taken.iter().enumerate() {
            let found = stage.wait(store.operation(operation.id)).expect("read").expect("it is there");
            let expected = if number == 2 { operation } else { &sent[2 * number + 1].after };
            assert_eq!(&found, expected, "{number}");
        }
        assert_eq!(place.number("SELECT count(*) FROM transitions"), 4 + 4 + 6);
        assert_eq!(place.number("SELECT count(*) FROM attempts WHERE class = 'ok' AND ended_at IS NOT NULL"), 3);
    }
}

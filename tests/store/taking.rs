//! Due work: who gets what (contract 4, 4.1 rules 3, 4 and 6).

use std::collections::HashSet;
use std::time::Duration;

use leadonce::clock::At;
use leadonce::operation::transition::{Decision, Event};
use leadonce::operation::{CreateOutcome, Failure, FailureClass, LookupOutcome, Operation, ReviewReason, Status};
use leadonce::store::{Audit, Flow, Store, Take, Taken, Use};

use crate::stage::*;

fn take(stage: &Stage, take: Take) -> Taken {
    stage.wait(stage.store.take(take)).expect("taken")
}

fn fill(stage: &Stage, count: usize) {
    for n in 0..count {
        stage.admit_one(keyed(&format!("key-{n}"), "lead"));
    }
}

/// A call that was answered with a time-out: to be looked up a minute later.
fn reconciling(stage: &Stage) -> Operation {
    fill(stage, 1);
    let claimed = take(stage, take_at(NOW, "node", 1)).creates.remove(0);
    let calling = stage.apply(&claimed, &Event::AttemptBegun, NOW);
    let event = Event::Answered {
        attempt: 1,
        step: 0,
        last_step: true,
        outcome: CreateOutcome::Failed(Failure::new(FailureClass::Uncertain, "time-out")),
        decision: Decision::ReconcileAt(NOW.plus(MINUTE)),
        ended_at: NOW,
    };
    stage.apply(&calling, &event, NOW)
}

both! {
    /// Six workers on two nodes (two writers where the backend allows it) take a hundred operations: each once.
    fn each_operation_is_taken_once(stage) {
        fill(&stage, 100);
        let second = if stage.place.is_sqlite() {
            None
        } else {
            let (store, writer) = Store::open(&stage.place.settings(), Use::Serve).expect("opens");
            Some((store, start(writer)))
        };
        let stores = [stage.store.clone(), second.as_ref().map_or(stage.store.clone(), |(store, _)| store.clone())];
        let taken: Vec<Operation> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..6)
                .map(|n| {
                    let store = stores[n % 2].clone();
                    scope.spawn(move || {
                        let runtime = runtime();
                        let mut mine = Vec::new();
                        loop {
                            let now = NOW.plus(Duration::from_secs(1));
                            let taken = runtime.block_on(store.take(take_at(now, &format!("w{n}"), 3))).expect("taken");
                            let left = taken.next_due.is_some_and(|due| due <= now);
                            if taken.creates.is_empty() && !left {
                                return mine;
                            }
                            mine.extend(taken.creates);
                        }
                    })
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
        });
        let ids: HashSet<_> = taken.iter().map(|operation| operation.id).collect();
        assert_eq!((taken.len(), ids.len()), (100, 100));
        assert!(taken.iter().all(|operation| operation.epoch == 1));
    }
}

both! {
    fn no_more_is_taken_than_wanted_and_the_oldest_first(stage) {
        fill(&stage, 3);
        let later = stage.admit_one(delivery_at(NOW.plus(2 * MINUTE), &[(Some("later"), "lead")])).operation;
        let none = take(&stage, take_at(NOW, "node", 0));
        assert!(none.creates.is_empty());
        assert_eq!(none.next_due, Some(NOW));
        let two = take(&stage, take_at(NOW, "node", 2));
        assert_eq!(two.creates.len(), 2);
        let lease = Status::Claimed {
            lease: leadonce::operation::Lease { owner: "node".into(), until: NOW.plus(MINUTE) },
            licence: leadonce::operation::Licence::FirstSend,
        };
        assert!(two.creates.iter().all(|o| o.status == lease && o.version == 2));
        assert_eq!(take(&stage, take_at(NOW, "node", 9)).creates.len(), 1);
        let rest = take(&stage, take_at(NOW, "node", 9));
        assert!(rest.creates.is_empty());
        // The next is a lease that may expire (with the grace of five seconds), then the lead that is due later.
        assert_eq!(rest.next_due, Some(NOW.plus(MINUTE + Duration::from_secs(5))));
        let at = NOW.plus(2 * MINUTE);
        assert!(take(&stage, take_at(at, "node", 9)).creates.iter().any(|o| o.id == later.id));
    }
}

both! {
    fn other_destinations_work_is_left_alone(stage) {
        fill(&stage, 1);
        let mut other = take_at(NOW, "node", 5);
        other.destination = "another".parse().expect("a name");
        stage.wait(stage.store.ensure_destinations(vec![(other.destination.clone(), "http".into())], NOW)).expect("made");
        let taken = take(&stage, other);
        assert!(taken.creates.is_empty() && taken.next_due.is_none());
    }
}

both! {
    /// Lease over before an attempt was recorded: nothing can have left, it waits again.
    fn an_expired_claim_without_an_attempt_waits_again(stage) {
        fill(&stage, 1);
        let claimed = take(&stage, take_at(NOW, "dead", 1)).creates.remove(0);
        let within_grace = take(&stage, take_at(NOW.plus(MINUTE + Duration::from_secs(4)), "node", 0));
        assert!(within_grace.expired.is_empty());
        let later = NOW.plus(MINUTE + Duration::from_secs(5));
        let taken = take(&stage, take_at(later, "node", 1));
        assert_eq!(taken.expired.len(), 1);
        assert_eq!(taken.creates.len(), 1, "what came back is due at once");
        assert_eq!((taken.creates[0].id, taken.creates[0].epoch), (claimed.id, 2));
        let story = stage.wait(stage.store.story(claimed.id)).expect("read").expect("known");
        let events: Vec<_> = story.transitions.iter().map(|t| t.event.as_str()).collect();
        assert_eq!(events, ["received", "claimed", "lease_expired", "claimed"]);
    }
}

both! {
    /// Lease over after the attempt was recorded: the outcome is uncertain, settle runs from lease end + time-out.
    fn an_expired_call_is_looked_up_never_sent_again(stage) {
        fill(&stage, 1);
        let claimed = take(&stage, take_at(NOW, "dead", 1)).creates.remove(0);
        let calling = stage.apply(&claimed, &Event::AttemptBegun, NOW);
        let later = NOW.plus(2 * MINUTE);
        let taken = take(&stage, take_at(later, "node", 5));
        assert!(taken.creates.is_empty());
        let [expired] = taken.expired.as_slice() else { panic!("{:?}", taken.expired) };
        let expected = Status::Reconciling {
            next_lookup_at: later.plus(Duration::from_secs(5)),
            send_ended_at: NOW.plus(MINUTE + Duration::from_secs(15)),
            since: NOW,
        };
        assert_eq!((expired.id, &expired.status), (calling.id, &expected));
        assert_eq!(taken.next_due, Some(later.plus(Duration::from_secs(5))));
    }
}

both! {
    fn an_expired_call_goes_to_review_where_the_crm_cannot_be_asked(stage) {
        let mut finished = stage.store.finished();
        fill(&stage, 1);
        let claimed = take(&stage, take_at(NOW, "dead", 1)).creates.remove(0);
        stage.apply(&claimed, &Event::AttemptBegun, NOW);
        let mut request = take_at(NOW.plus(2 * MINUTE), "node", 5);
        request.first_lookup_at = None;
        let taken = take(&stage, request);
        let review = |o: &Operation| {
            matches!(o.status, Status::NeedsReview { reason: ReviewReason::UncertainOutcome, send_ended_at: Some(_) })
        };
        assert!(taken.expired.iter().all(review) && taken.expired.len() == 1);
        assert_eq!(finished.try_recv(), Ok(claimed.id));
    }
}

both! {
    fn a_due_lookup_is_taken_by_one_worker(stage) {
        let operation = reconciling(&stage);
        let early = take(&stage, take_at(NOW, "node", 5));
        assert!(early.lookups.is_empty());
        assert_eq!(early.next_due, Some(NOW.plus(MINUTE)));
        let due = NOW.plus(MINUTE);
        let taken = take(&stage, take_at(due, "node", 5));
        assert_eq!((taken.lookups.len(), taken.lookups[0].id), (1, operation.id));
        assert!(take(&stage, take_at(due, "other", 5)).lookups.is_empty());
        // Should the worker die, another takes it when its time has come again.
        assert_eq!(take(&stage, take_at(due.plus(MINUTE), "other", 5)).lookups.len(), 1);
    }
}

fn audit(action: &str) -> Option<Audit> {
    Some(Audit {
        actor: "anna".into(),
        at: NOW,
        action: action.into(),
        operation_id: None,
        subject: Some("crm".into()),
        from: None,
        to: None,
        note: None,
    })
}

both! {
    fn a_suspended_destination_gets_no_calls_until_it_is_resumed(stage) {
        let lookup = reconciling(&stage);
        stage.admit_one(keyed("waiting", "lead"));
        let later = NOW.plus(2 * MINUTE);
        let suspend = |epoch| stage.wait(stage.store.suspend(crm(), epoch, "40\x001".into(), None, NOW)).expect("written");
        assert!(!suspend(Some(7)), "an answer of another epoch suspends nothing");
        assert!(suspend(Some(1)));
        assert!(!suspend(Some(1)), "of two answers one wins");
        assert!(!suspend(None));
        let taken = take(&stage, take_at(later, "node", 5));
        assert!(taken.creates.is_empty() && taken.lookups.is_empty() && taken.next_due.is_none());
        let destination = stage.wait(stage.store.destinations()).expect("read").remove(0);
        assert_eq!((destination.suspended, destination.epoch, destination.reason.as_deref()), (true, 2, Some("401")));

        let work = stage.store.work();
        let woken = work.notified();
        assert!(stage.wait(stage.store.resume(crm(), audit("resume"), later)).expect("written"));
        stage.wait(woken);
        assert!(!stage.wait(stage.store.resume(crm(), audit("resume"), later)).expect("written"));
        assert_eq!(stage.place.number("SELECT count(*) FROM audit WHERE action = 'resume'"), 1);
        let destination = stage.wait(stage.store.destinations()).expect("read").remove(0);
        assert!(!destination.suspended && destination.flow.probing && destination.epoch == 3);
        let taken = take(&stage, take_at(later, "node", 5));
        assert_eq!((taken.creates.len(), taken.lookups.len(), taken.lookups[0].id), (0, 1, lookup.id), "it is the probe");
        let passed = |flow: &Flow| Some(Flow { probing: false, ..*flow });
        stage.wait(stage.store.change_flow(vec![crm()], passed)).expect("written");
        assert_eq!(take(&stage, take_at(later, "node", 5)).creates[0].series_epoch, 3, "a new series");
    }
}

both! {
    fn expired_leases_move_even_while_suspended(stage) {
        fill(&stage, 1);
        take(&stage, take_at(NOW, "dead", 1));
        stage.wait(stage.store.suspend(crm(), None, "paused".into(), None, NOW)).expect("written");
        let taken = take(&stage, take_at(NOW.plus(2 * MINUTE), "node", 5));
        assert_eq!((taken.expired.len(), taken.creates.len()), (1, 0));
    }
}

both! {
    fn after_resume_one_probe_goes_first(stage) {
        fill(&stage, 5);
        stage.wait(stage.store.suspend(crm(), None, "paused".into(), None, NOW)).expect("written");
        stage.wait(stage.store.resume(crm(), None, NOW)).expect("written");
        let probe = take(&stage, take_at(NOW, "node", 5)).creates;
        assert_eq!(probe.len(), 1);
        assert!(take(&stage, take_at(NOW, "other", 5)).creates.is_empty(), "the probe is under way");
        stage.apply(&probe[0], &Event::GivenBack, NOW);
        assert_eq!(take(&stage, take_at(NOW, "node", 5)).creates.len(), 1, "it shows nothing: the next one probes");
        let work = stage.store.work();
        let woken = work.notified();
        stage.wait(stage.store.succeeded(crm(), NOW)).expect("written");
        let passed = |flow: &Flow| Some(Flow { probing: false, ..*flow });
        stage.wait(stage.store.change_flow(vec![crm()], passed)).expect("written");
        stage.wait(woken);
        let taken = take(&stage, take_at(NOW, "node", 9));
        assert_eq!((taken.creates.len(), taken.flow.probing), (4, false));
        let destination = stage.wait(stage.store.destinations()).expect("read").remove(0);
        assert_eq!((destination.flow.probing, destination.last_success_at), (false, Some(NOW)));
    }
}

both! {
    fn a_throttled_destination_waits_as_long_as_it_was_told(stage) {
        fill(&stage, 1);
        let until = NOW.plus(10 * MINUTE);
        slow_down(&stage, until);
        let taken = take(&stage, take_at(NOW.plus(5 * MINUTE), "node", 5));
        assert!(taken.creates.is_empty());
        assert_eq!((taken.next_due, taken.flow.throttled_until), (Some(until), Some(until)));
        assert_eq!(take(&stage, take_at(until, "node", 5)).creates.len(), 1);
    }
}

fn slow_down(stage: &Stage, until: At) {
    let slowed = move |flow: &Flow| Some(Flow { throttled_until: Some(until), probing: true, ..*flow });
    stage.wait(stage.store.change_flow(vec![crm()], slowed)).expect("written");
}

both! {
    /// A look-up is a probe too, and one whose node died does not hold up the next for ever.
    fn the_probe_is_one_call_of_either_kind(stage) {
        let uncertain = reconciling(&stage);
        stage.admit_one(keyed("later", "lead"));
        slow_down(&stage, NOW);
        let due = NOW.plus(MINUTE);
        let probe = take(&stage, take_at(due, "node", 5));
        assert_eq!((probe.lookups.len(), probe.creates.len(), probe.lookups[0].id), (1, 0, uncertain.id));
        let while_out = take(&stage, take_at(due, "other", 5));
        assert_eq!((while_out.lookups.len(), while_out.creates.len()), (0, 0));
        let next = take(&stage, take_at(due.plus(2 * MINUTE), "other", 5));
        assert_eq!((next.lookups.len(), next.creates.len()), (1, 0));
        let event = Event::LookedUp {
            begun_at: due,
            settled_monotonic: false,
            settle: MINUTE,
            trusted: true,
            give_up: 9 * MINUTE,
            outcome: LookupOutcome::Failed(Failure::new(FailureClass::NotSent, "refused")),
            next_lookup_at: due.plus(9 * MINUTE),
            retry_at: None,
            last_step: true,
        };
        stage.apply(&next.lookups[0], &event, due.plus(2 * MINUTE));
        let after = take(&stage, take_at(due.plus(2 * MINUTE), "node", 5));
        assert_eq!((after.lookups.len(), after.creates.len()), (0, 1), "it is answered: the next one may probe");
    }
}

both! {
    fn c39_new_leads_have_a_share_beside_the_backlog_and_the_oldest_of_it_goes_first(stage) {
        let admit = |key: &str, at: At| stage.admit_one(delivery_at(at, &[(Some(key), "lead")])).operation.id;
        let old: Vec<_> = (0..8).map(|n| admit(&format!("old-{n}"), NOW.plus(Duration::from_millis(n)))).collect();
        let now = NOW.plus(10 * MINUTE);
        let new: Vec<_> = (0..4).map(|n| admit(&format!("new-{n}"), now.minus(Duration::from_secs(9 - n)))).collect();
        let mut got = Vec::new();
        for _ in 0..2 {
            let taken = take(&stage, Take { fresh: 1, ..take_at(now, "node", 4) }).creates;
            got.extend(taken.iter().map(|operation| operation.id));
        }
        let expected = [new[0], old[0], old[1], old[2], new[1], old[3], old[4], old[5]];
        assert_eq!(got, expected);
        // Without new leads, or a backlog, the share is nobody's own.
        let rest = take(&stage, Take { fresh: 3, ..take_at(now, "node", 9) }).creates;
        assert_eq!(rest.len(), 4);
    }
}

both! {
    /// One impossible row must not stop the leads behind it.
    fn an_impossible_row_does_not_stop_the_queue(stage) {
        let broken = stage.admit_one(keyed("broken", "lead")).operation;
        let sound = stage.admit_one(delivery_at(NOW.plus(MINUTE), &[(Some("sound"), "lead")])).operation;
        stage.place.execute(&format!("UPDATE operations SET source = 'not a name' WHERE operation_id = '{}'", broken.id));
        let taken = take(&stage, take_at(NOW.plus(MINUTE), "node", 1));
        assert_eq!(taken.creates.iter().map(|o| o.id).collect::<Vec<_>>(), [sound.id]);
    }
}

both! {
    fn new_work_wakes_a_worker(stage) {
        let work = stage.store.work();
        let woken = work.notified();
        stage.admit_one(keyed("a", "lead"));
        stage.wait(woken);
        // A commit between a worker's look and its wait is not lost either.
        stage.admit_one(keyed("b", "lead"));
        stage.wait(work.notified());
    }
}

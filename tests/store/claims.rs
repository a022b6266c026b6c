//! The claim of keys and windows (contract 3).

use std::collections::HashSet;
use std::time::Duration;

use leadonce::operation::{HashRule, ReviewReason, State, Status, Variant};
use leadonce::store::{Store, Use, Verdict};

use crate::stage::*;

both! {
    /// Eight threads bring the same fifty keys: each key has one winner, all others get the winner's operation.
    fn each_key_has_one_winner_however_many_bring_it(stage) {
        let admissions: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    let store = stage.store.clone();
                    scope.spawn(move || {
                        let keys = 0..50;
                        runtime().block_on(async move {
                            let all = keys.map(|n| store.admit(keyed(&format!("key-{n}"), "content")));
                            futures_util::future::join_all(all).await
                        })
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("a thread")).map(|a| a.expect("admitted")).collect()
        });
        let all: Vec<_> = admissions.into_iter().flatten().collect();
        let new: Vec<_> = all.iter().filter(|a| a.verdict == Verdict::New).collect();
        let ids: HashSet<_> = all.iter().map(|a| a.operation.id).collect();
        assert_eq!((all.len(), new.len(), ids.len()), (400, 50, 50));
        assert!(all.iter().all(|a| matches!(a.verdict, Verdict::New | Verdict::Replay)));
        assert_eq!(stage.place.number("SELECT count(*) FROM operations"), 50);
        assert_eq!(stage.place.number("SELECT count(*) FROM deliveries"), 400);
        assert_eq!(stage.place.number("SELECT count(*) FROM transitions"), 50);
    }
}

both! {
    fn a_replay_meets_the_first_operation_and_is_logged(stage) {
        let first = stage.admit_one(keyed("a", "content"));
        let again = stage.admit_one(delivery_at(NOW.plus(MINUTE), &[(Some("a"), "content")]));
        assert_eq!((first.verdict, again.verdict), (Verdict::New, Verdict::Replay));
        assert_eq!(first.operation, again.operation);
        assert_eq!(stage.operation(first.operation.id), first.operation);
        let story = stage.wait(stage.store.story(first.operation.id)).expect("read").expect("known");
        let verdicts: Vec<_> = story.deliveries.iter().map(|d| d.verdict).collect();
        assert_eq!(verdicts, [Verdict::New, Verdict::Replay]);
        assert_eq!(story.deliveries[0].body.as_deref(), Some(b"content".as_slice()));
        assert_eq!(story.deliveries[0].body_sha256, hash("content").as_bytes());
        assert_eq!(story.deliveries[0].headers, [("content-type".to_owned(), "text/plain".to_owned())]);
        assert_eq!(story.transitions.len(), 1);
        assert_eq!((story.transitions[0].from.as_deref(), story.transitions[0].to.as_str()), (None, "received"));
    }
}

both! {
    fn the_scope_of_a_key_is_its_source(stage) {
        let first = stage.admit_one(keyed("a", "content"));
        let mut other = keyed("a", "content");
        other.events[0].operation.source = "shop".parse().expect("a name");
        let second = stage.admit_one(other);
        assert_eq!(second.verdict, Verdict::New);
        assert_ne!(first.operation.id, second.operation.id);
    }
}

both! {
    /// G5: changed content waits for a person, once per content; the first goes its own way.
    fn changed_content_under_a_known_key_is_a_conflict_of_its_own(stage) {
        let first = stage.admit_one(keyed("a", "one"));
        let changed = stage.admit_one(keyed("a", "two"));
        assert_eq!(changed.verdict, Verdict::Conflict);
        assert_eq!(changed.operation.variant, Variant::Changed(hash("two")));
        assert_eq!(changed.operation.conflicts_with, Some(first.operation.id));
        let review = Status::NeedsReview { reason: ReviewReason::PayloadConflict, send_ended_at: None };
        assert_eq!(changed.operation.status, review);
        assert_ne!(changed.operation.crm_key(), first.operation.crm_key());

        let again = stage.admit_one(keyed("a", "two"));
        assert_eq!((again.verdict, again.operation.id), (Verdict::Conflict, changed.operation.id));
        let third = stage.admit_one(delivery_at(NOW.plus(MINUTE), &[(Some("a"), "three")]));
        assert_ne!(third.operation.id, changed.operation.id);
        assert_eq!(stage.admit_one(keyed("a", "one")).verdict, Verdict::Replay);
        assert_eq!(stage.operation(first.operation.id), first.operation);
        let story = stage.wait(stage.store.story(first.operation.id)).expect("read").expect("known");
        assert_eq!(story.conflicts, [changed.operation.id, third.operation.id]);
    }
}

both! {
    fn equal_keys_of_one_delivery_are_folded(stage) {
        let admit = delivery_at(NOW, &[(Some("a"), "one"), (Some("b"), "x"), (Some("a"), "one"), (Some("a"), "two")]);
        let admissions = stage.admit(admit.clone());
        let verdicts: Vec<_> = admissions.iter().map(|a| a.verdict).collect();
        assert_eq!(verdicts, [Verdict::New, Verdict::New, Verdict::Replay, Verdict::Conflict]);
        assert_eq!(admissions[2].operation.id, admissions[0].operation.id);
        assert_eq!(admissions[3].operation.conflicts_with, Some(admissions[0].operation.id));
        // The body is kept once; every event's row leads to it.
        assert_eq!(stage.place.number("SELECT count(*) FROM deliveries WHERE body IS NOT NULL"), 1);
        let work = stage.wait(stage.store.work_of(&admissions[1].operation)).expect("read");
        let delivery = work.delivery.expect("logged");
        assert_eq!((delivery.event_index, delivery.body), (1, Some(admit.delivery.body)));
    }
}

both! {
    /// Several requests in one commit: whoever came first owns the key, contents are compared inside the batch too.
    fn equal_keys_of_one_batch_are_folded(stage) {
        let place = stage.place.another();
        let (store, mut writer) = Store::open(&place.settings(), Use::Serve).expect("opens");
        let admits = ["one", "two", "one", "two"].map(|content| store.admit(keyed("a", content)));
        let (admissions, written) = runtime().block_on(async {
            futures_util::future::join(futures_util::future::join_all(admits), async { writer.step() }).await
        });
        assert_eq!(written, 4);
        let admissions: Vec<_> = admissions.into_iter().map(|a| a.expect("admitted").remove(0)).collect();
        let verdicts: Vec<_> = admissions.iter().map(|a| a.verdict).collect();
        assert_eq!(verdicts, [Verdict::New, Verdict::Conflict, Verdict::Replay, Verdict::Conflict]);
        assert_eq!(admissions[2].operation.id, admissions[0].operation.id);
        assert_eq!(admissions[3].operation.id, admissions[1].operation.id);
    }
}

both! {
    /// Contract 4.1 rule 7: what a lost commit left behind is one's own.
    fn the_same_ids_again_get_the_same_answers(stage) {
        let admits = [
            keyed("a", "one"),
            keyed("a", "two"),
            windowed(NOW, "three"),
            delivery_at(NOW, &[(None, "four")]),
        ];
        for admit in admits {
            let first = stage.admit(admit.clone());
            let again = stage.admit(admit);
            assert_eq!(first, again);
        }
        assert_eq!(stage.place.number("SELECT count(*) FROM operations"), 4);
        assert_eq!(stage.place.number("SELECT count(*) FROM deliveries"), 4);
        assert_eq!(stage.place.number("SELECT count(*) FROM transitions"), 4);
    }
}

fn under_rule(mut admit: leadonce::store::Admit, volatile: &str, content_hash: &str) -> leadonce::store::Admit {
    for event in &mut admit.events {
        event.operation.hash_rule = HashRule::current(&[volatile.to_owned()]);
        event.operation.payload_hash = hash(content_hash);
    }
    admit.rehash = std::sync::Arc::new(|delivery, _| {
        // The rule: only what stands before the first space counts.
        let body = String::from_utf8(delivery.body.clone()?).ok()?;
        body.split(' ').next().map(hash)
    });
    admit
}

both! {
    fn content_hashed_by_another_rule_is_hashed_again(stage) {
        let first = stage.admit_one(keyed("a", "lead 10:01"));
        let same = stage.admit_one(under_rule(keyed("a", "lead 10:02"), "time", "lead"));
        assert_eq!((same.verdict, same.operation.id), (Verdict::Replay, first.operation.id));
        let other = stage.admit_one(under_rule(keyed("a", "other 10:03"), "time", "other"));
        assert_eq!(other.verdict, Verdict::Conflict);
        // The conflict itself was stored by the new rule; under the old one it is found again by hashing it anew.
        let mut back = keyed("a", "other 10:03");
        back.rehash = std::sync::Arc::new(|delivery, _| String::from_utf8(delivery.body.clone()?).ok().map(|b| hash(&b)));
        let again = stage.admit_one(back);
        assert_eq!((again.verdict, again.operation.id), (Verdict::Conflict, other.operation.id));
    }
}

both! {
    fn content_that_cannot_be_compared_is_never_a_conflict(stage) {
        let first = stage.admit_one(keyed("a", "lead 10:01"));
        let mut unreadable = under_rule(keyed("a", "lead 10:02"), "time", "lead");
        unreadable.rehash = std::sync::Arc::new(|_, _| None);
        let answer = stage.admit_one(unreadable);
        assert_eq!((answer.verdict, answer.operation.id), (Verdict::ReplayUnverified, first.operation.id));
    }
}

both! {
    /// The window runs from the first delivery, is never extended, and has ended at its end.
    fn keyless_content_is_one_submission_within_its_window(stage) {
        let first = stage.admit_one(windowed(NOW, "lead"));
        let end = NOW.plus(2 * MINUTE);
        let just_before = stage.admit_one(windowed(end.minus(Duration::from_micros(1)), "lead"));
        assert_eq!((just_before.verdict, just_before.operation.id), (Verdict::Replay, first.operation.id));
        let at_the_end = stage.admit_one(windowed(end, "lead"));
        assert_eq!(at_the_end.verdict, Verdict::New);
        assert_ne!(at_the_end.operation.id, first.operation.id);
        let later = stage.admit_one(windowed(end.plus(MINUTE), "lead"));
        assert_eq!((later.verdict, later.operation.id), (Verdict::Replay, at_the_end.operation.id));
        assert_eq!(stage.admit_one(windowed(NOW, "another lead")).verdict, Verdict::New);
    }
}

both! {
    fn equal_keyless_content_of_one_batch_is_folded(stage) {
        let place = stage.place.another();
        let (store, mut writer) = Store::open(&place.settings(), Use::Serve).expect("opens");
        let end = NOW.plus(2 * MINUTE);
        let times = [NOW, NOW.plus(MINUTE), end, end.plus(MINUTE)];
        let admits = times.map(|at| store.admit(windowed(at, "lead")));
        let (admissions, _) = runtime().block_on(async {
            futures_util::future::join(futures_util::future::join_all(admits), async { writer.step() }).await
        });
        let admissions: Vec<_> = admissions.into_iter().map(|a| a.expect("admitted").remove(0)).collect();
        let verdicts: Vec<_> = admissions.iter().map(|a| a.verdict).collect();
        assert_eq!(verdicts, [Verdict::New, Verdict::Replay, Verdict::New, Verdict::Replay]);
        assert_eq!(admissions[1].operation.id, admissions[0].operation.id);
        assert_eq!(admissions[3].operation.id, admissions[2].operation.id);
        assert_eq!(place.number("SELECT count(*) FROM operations"), 2);
    }
}

both! {
    fn without_key_and_window_each_delivery_is_its_own(stage) {
        for _ in 0..2 {
            assert_eq!(stage.admit_one(delivery_at(NOW, &[(None, "lead")])).verdict, Verdict::New);
        }
    }
}

both! {
    fn a_glance_sees_what_is_committed(stage) {
        let seen = stage.store.glance(&source(), &key("a")).expect("looked");
        assert_eq!(seen, None);
        let admission = stage.admit_one(keyed("a", "lead"));
        let seen = stage.store.glance(&source(), &key("a")).expect("looked");
        let expected = stage.place.is_sqlite().then_some(admission.operation.clone());
        assert_eq!(seen, expected);
        let found = stage.wait(stage.store.operation_of_key(source(), key("a"))).expect("read");
        assert_eq!(found, Some(admission.operation.clone()));
        let logged = stage.store.log_replay(keyed("a", "lead").delivery, 0, admission.operation.id);
        stage.wait(logged).expect("queued");
        stage.wait(stage.store.writable()).expect("what was queued before is written");
        assert_eq!(stage.place.number("SELECT count(*) FROM deliveries WHERE verdict = 'replay'"), 1);
    }
}

both! {
    /// Case C34: PostgreSQL refuses the NUL character in text; the lead must not get stuck on it.
    fn a_nul_character_harms_nothing(stage) {
        let mut admit = keyed("a\0b", "An\0na");
        admit.delivery.note = Some("odd\0note".into());
        admit.delivery.headers.push(("x-odd".into(), "a\0b".into()));
        admit.events[0].operation.status = Status::NeedsReview { reason: ReviewReason::Unreadable, send_ended_at: None };
        admit.events[0].operation.last_error = Some("bad\0body".into());
        let admission = stage.admit_one(admit);
        let operation = stage.operation(admission.operation.id);
        assert_eq!(operation.state(), State::NeedsReview);
        assert_eq!(operation.source_key, Some(key("a\0b")));
        assert_eq!(operation.last_error.as_deref(), Some("badbody"));
        let story = stage.wait(stage.store.story(operation.id)).expect("read").expect("known");
        assert_eq!(story.deliveries[0].note.as_deref(), Some("oddnote"));
        assert_eq!(story.deliveries[0].headers[1].1, "a\0b");
        assert_eq!(story.deliveries[0].body.as_deref(), Some(b"An\0na".as_slice()));
    }
}

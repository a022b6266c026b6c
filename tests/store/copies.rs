//! Likely copies: one content under two keys within the window.

use std::time::Duration;

use leadonce::clock::At;
use leadonce::operation::{Likeness, ReviewReason, State, Status};
use leadonce::store::{Admission, Admit, Store, Use, Verdict};

use crate::stage::{MINUTE, NOW, both, delivery_at, hash, runtime, start, take_at};

const SECOND: Duration = Duration::from_secs(1);

/// An event whose source watches for copies; `content` is what it says beside its key.
fn watched(at: At, key: &str, content: &str) -> Admit {
    let mut admit = delivery_at(at, &[(Some(key), &format!("{key} {content}"))]);
    for event in &mut admit.events {
        event.likeness = Some(Likeness::of(hash(content), 2 * MINUTE));
    }
    admit
}

fn state(admission: &Admission) -> (Verdict, State) {
    (admission.verdict, admission.operation.state())
}

const MADE: (Verdict, State) = (Verdict::New, State::Received);
const HELD: (Verdict, State) = (Verdict::New, State::NeedsReview);

both! {
    fn c43_a_likely_copy_waits_for_a_person_and_the_first_goes_its_way(stage) {
        let first = stage.admit_one(watched(NOW, "e1", "Anna"));
        let copy = stage.admit_one(watched(NOW.plus(2 * SECOND), "e2", "Anna"));
        assert_eq!((state(&first), state(&copy)), (MADE, HELD));
        let review = Status::NeedsReview { reason: ReviewReason::LikelyCopy, send_ended_at: None };
        assert_eq!(copy.operation.status, review);
        assert!(copy.operation.last_error.as_ref().is_some_and(|told| told.contains(&first.operation.id.to_string())));
        // It stands as it was told, and its story begins with why.
        assert_eq!(stage.operation(copy.operation.id), copy.operation);
        let story = stage.wait(stage.store.story(copy.operation.id)).expect("read").expect("known");
        assert_eq!(story.transitions.iter().map(|one| one.event.as_str()).collect::<Vec<_>>(), ["likely_copy"]);
        let taken = stage.wait(stage.store.take(take_at(NOW.plus(3 * SECOND), "node", 10))).expect("taken");
        assert_eq!(taken.creates.iter().map(|operation| operation.id).collect::<Vec<_>>(), [first.operation.id]);
        let census = stage.wait(stage.store.census()).expect("counted");
        assert_eq!(census.reviews, [("likely_copy".to_owned(), 1)]);
    }
}

both! {
    fn c43_other_content_other_sources_and_later_events_are_no_copies(stage) {
        stage.admit_one(watched(NOW, "e1", "Anna"));
        assert_eq!(state(&stage.admit_one(watched(NOW, "e2", "Boris"))), MADE);
        let mut elsewhere = watched(NOW, "e3", "Anna");
        elsewhere.events[0].operation.source = "shop".parse().expect("a name");
        assert_eq!(state(&stage.admit_one(elsewhere)), MADE);
        // The window runs from the first, and a copy does not extend it.
        assert_eq!(state(&stage.admit_one(watched(NOW.plus(MINUTE), "e4", "Anna"))), HELD);
        assert_eq!(state(&stage.admit_one(watched(NOW.plus(2 * MINUTE), "e5", "Anna"))), MADE);
        assert_eq!(state(&stage.admit_one(watched(NOW.plus(3 * MINUTE), "e6", "Anna"))), HELD);
    }
}

both! {
    fn c43_a_redelivery_is_a_replay_and_claims_nothing(stage) {
        let first = stage.admit_one(watched(NOW, "e1", "Anna"));
        let copy = stage.admit_one(watched(NOW.plus(SECOND), "e2", "Anna"));
        // The first comes again when its window is over, and so does the copy.
        let later = NOW.plus(5 * MINUTE);
        let again = stage.admit_one(watched(later, "e1", "Anna"));
        assert_eq!((again.verdict, again.operation.id), (Verdict::Replay, first.operation.id));
        let again = stage.admit_one(watched(later, "e2", "Anna"));
        assert_eq!((again.verdict, &again.operation), (Verdict::Replay, &copy.operation));
        assert_eq!(state(&stage.admit_one(watched(later.plus(SECOND), "e3", "Anna"))), MADE);
        // Done again with the same ids, as after a lost commit, it gives the same answer.
        let admit = watched(later.plus(2 * SECOND), "e4", "Anna");
        let held = stage.admit_one(admit.clone());
        assert_eq!((state(&held), stage.admit_one(admit)), (HELD, held));
    }
}

both! {
    fn c43_of_one_batch_whoever_came_first_is_made(stage) {
        let place = stage.place.another();
        let (store, mut writer) = Store::open(&place.settings(), Use::Serve).expect("opens");
        // By key the later one would be the first.
        let admits = [watched(NOW, "z", "Anna"), watched(NOW.plus(SECOND), "a", "Anna")].map(|admit| store.admit(admit));
        let (admissions, written) = runtime().block_on(async {
            futures_util::future::join(futures_util::future::join_all(admits), async { writer.step() }).await
        });
        assert_eq!(written, 2);
        let states: Vec<_> = admissions.iter().map(|one| state(&one.as_ref().expect("admitted")[0])).collect();
        assert_eq!(states, [MADE, HELD]);
    }
}

both! {
    fn c43_copies_that_come_at_once_to_two_nodes_are_made_once(stage) {
        let (other, writer) = Store::open(&stage.place.settings(), Use::Tool).expect("opens");
        let thread = start(writer);
        let nodes = [&stage.store, &other];
        let admits = (0..20).map(|n: usize| nodes[n % 2].admit(watched(NOW, &format!("e{n}"), "Anna")));
        let admissions = stage.wait(futures_util::future::join_all(admits));
        let made = admissions.iter().filter(|one| state(&one.as_ref().expect("admitted")[0]) == MADE).count();
        assert_eq!(made, 1);
        drop(other);
        thread.join().expect("the writer ends with its store");
    }
}

//! Tokens, incidents, lists, counts and search.

use std::time::Duration;

use leadonce::clock::{Clock, SystemClock};
use leadonce::operation::State;
use leadonce::operation::transition::Event;
use leadonce::store::{Audit, Filter, Role, Verdict};

use crate::stage::*;

fn audit(action: &str) -> Audit {
    Audit {
        actor: "cli".into(),
        at: NOW,
        action: action.into(),
        operation_id: None,
        subject: Some("anna".into()),
        from: None,
        to: None,
        note: None,
    }
}

/// What a look shows, as soon as it shows something.
fn until<T>(look: impl Fn() -> Option<T>) -> T {
    let clock = SystemClock::default();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(clock.monotonic() < Duration::from_secs(30), "it did not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

both! {
    fn a_token_is_found_by_its_hash_until_it_is_revoked(stage) {
        let make = |hash: &[u8]| {
            let made = stage.store.create_token("anna".into(), Role::Operator, hash.to_vec(), audit("token_create"));
            stage.wait(made).expect("written")
        };
        let find = |hash: &[u8], at| stage.wait(stage.store.token(hash.to_vec(), at)).expect("read");
        assert!(make(b"hash-1"));
        assert!(!make(b"hash-2"), "one active token per name");
        let token = find(b"hash-1", NOW).expect("it is active");
        assert_eq!((token.name.as_str(), token.role, token.last_used_at), ("anna", Role::Operator, None));
        assert_eq!(find(b"hash-2", NOW), None);

        stage.wait(stage.store.writable()).expect("what was queued before is written");
        let at = NOW.plus(MINUTE / 2);
        assert_eq!(find(b"hash-1", at).and_then(|t| t.last_used_at), Some(NOW));
        stage.wait(stage.store.writable()).expect("written");
        assert_eq!(find(b"hash-1", at).and_then(|t| t.last_used_at), Some(NOW), "noted to the minute");

        let revoke = || stage.wait(stage.store.revoke_token("anna".into(), audit("token_revoke"))).expect("written");
        assert!(revoke());
        assert!(!revoke());
        assert_eq!(find(b"hash-1", NOW), None);
        assert!(make(b"hash-3"), "the name is free again");
        let all = stage.wait(stage.store.tokens()).expect("read");
        assert_eq!(all.iter().map(|t| t.revoked_at.is_some()).filter(|r| *r).count(), 1);
        assert_eq!(stage.place.number("SELECT count(*) FROM audit"), 3);
    }
}

both! {
    fn an_incident_is_told_once_at_its_start_and_once_at_its_end(stage) {
        let open = || stage.wait(stage.store.open_incident("suspended:crm".into(), "text".into(), NOW)).expect("written");
        let close = || stage.wait(stage.store.close_incident("suspended:crm".into(), NOW)).expect("written");
        let incidents = || stage.wait(stage.store.incidents()).expect("read");
        assert!(open());
        assert!(!open());
        let id = incidents()[0].id;
        stage.wait(stage.store.told(id, false)).expect("written");
        assert_eq!(incidents().len(), 1, "it is open");
        assert!(close());
        assert!(!close());
        assert_eq!(incidents().iter().map(|i| (i.told_start, i.told_end)).collect::<Vec<_>>(), [(true, false)]);
        stage.wait(stage.store.told(id, true)).expect("written");
        assert!(incidents().is_empty());
        assert!(open(), "a new one under the same key");
        assert_ne!(incidents()[0].id, id);
    }
}

both! {
    /// However rare the wanted ones are, a page looks at so many and says where to go on; nothing is left out or shown twice.
    fn a_page_of_rare_ones_ends_in_time_and_is_gone_on_with(stage) {
        let ids: Vec<_> = (0..10)
            .map(|n| stage.admit_one(delivery_at(NOW.plus(n * MINUTE), &[(Some(&format!("key-{n}")), "lead")])).operation.id)
            .collect();
        stage.place.execute(&format!("UPDATE operations SET destination = 'rare' WHERE operation_id IN ('{}', '{}')", ids[7], ids[1]));
        for oldest_first in [false, true] {
            let rare = Filter { destination: Some("rare".into()), limit: 5, oldest_first, ..Filter::default() };
            let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
            loop {
                let (page, further) =
                    stage.wait(stage.store.page(Filter { after, ..rare.clone() }, 4)).expect("read");
                found.extend(page.into_iter().map(|operation| operation.id));
                pages += 1;
                after = further;
                if after.is_none() {
                    break;
                }
            }
            let expected = if oldest_first { [ids[1], ids[7]] } else { [ids[7], ids[1]] };
            assert_eq!((found, pages), (expected.to_vec(), 3));
        }
        // Whatever an index finds needs no end.
        let all = stage.wait(stage.store.page(Filter { limit: 9, ..Filter::default() }, 4)).expect("read");
        assert_eq!((all.0.len(), all.1), (9, None));
    }
}

both! {
    fn lists_page_from_the_newest_and_filter(stage) {
        let ids: Vec<_> = (0..5)
            .map(|n| stage.admit_one(delivery_at(NOW.plus(n * MINUTE), &[(Some(&format!("key-{n}")), "lead")])).operation.id)
            .collect();
        let list = |filter: Filter| -> Vec<_> {
            let limit = if filter.limit == 0 { 100 } else { filter.limit };
            let found = stage.wait(stage.store.list(Filter { limit, ..filter })).expect("read");
            found.into_iter().map(|o| o.id).collect()
        };
        let newest: Vec<_> = ids.iter().rev().copied().collect();
        assert_eq!(list(Filter::default()), newest);
        assert_eq!(list(Filter { limit: 2, ..Filter::default() }), newest[..2]);
        assert_eq!(list(Filter { limit: 2, after: Some(newest[1]), ..Filter::default() }), newest[2..4]);
        let first = stage.operation(ids[0]);
        let failed = stage.apply(&first, &Event::Reject, NOW.plus(9 * MINUTE));
        assert_eq!(list(Filter { state: Some(State::FailedTerminal), ..Filter::default() }), [failed.id]);
        assert_eq!(list(Filter { reason: Some("rejected_by_operator".into()), ..Filter::default() }), [failed.id]);
        assert_eq!(list(Filter { source: Some("site".into()), ..Filter::default() }).len(), 5);
        assert_eq!(list(Filter { destination: Some("none".into()), ..Filter::default() }).len(), 0);
        let middle = Filter {
            received_after: Some(NOW.plus(MINUTE)),
            received_before: Some(NOW.plus(3 * MINUTE)),
            ..Filter::default()
        };
        assert_eq!(list(middle), [ids[2], ids[1]]);
        let completed = stage.apply(
            &failed,
            &Event::Complete { crm_id: "D-1".to_owned().try_into().expect("an id") },
            NOW.plus(9 * MINUTE),
        );
        for q in ["key-0", "D-1", &completed.id.to_string(), &completed.id.to_string().to_uppercase()] {
            assert_eq!(list(Filter { q: Some((*q).to_owned()), ..Filter::default() }), [completed.id], "{q}");
        }
        assert!(list(Filter { q: Some("key\0".into()), ..Filter::default() }).is_empty());
    }
}

both! {
    fn the_census_counts_what_is_there(stage) {
        stage.admit_one(keyed("a", "one"));
        stage.admit_one(keyed("a", "two"));
        stage.admit_one(delivery_at(NOW.plus(MINUTE), &[(Some("b"), "one")]));
        stage.wait(stage.store.take(take_at(NOW, "node", 1))).expect("taken");
        let census = stage.wait(stage.store.census()).expect("counted");
        let mut states = census.states;
        states.sort();
        assert_eq!(states, [(State::Received, 1), (State::InProgress, 1), (State::NeedsReview, 1)]);
        assert_eq!(census.reviews, [("payload_conflict".to_owned(), 1)]);
        assert_eq!(census.oldest, [(State::Received, NOW.plus(MINUTE)), (State::InProgress, NOW)]);
        assert_eq!(census.destinations, [(crm(), 1, 1)]);
        let (sources, destinations) = stage.wait(stage.store.open_names()).expect("read");
        assert_eq!((sources, destinations), (vec!["site".to_owned()], vec!["crm".to_owned()]));
    }
}

both! {
    /// A log row whose operation is gone, and an operation whose log is gone, are both noticed.
    fn losses_are_counted(stage) {
        let counts = || {
            let unaccounted = stage.wait(stage.store.unaccounted()).expect("counted");
            (unaccounted, stage.wait(stage.store.unexplained()).expect("counted"))
        };
        for n in 0..4 {
            stage.admit_one(delivery_at(NOW.plus(n * 10 * MINUTE), &[(Some(&format!("key-{n}")), "lead")]));
        }
        assert_eq!(counts(), (0, 0));
        let late = stage.admit_one(delivery_at(NOW.plus(40 * MINUTE), &[(Some("late"), "lead")])).operation;
        let remove = if stage.place.is_sqlite() {
            "PRAGMA foreign_keys = OFF;"
        } else {
            "SET session_replication_role = replica;"
        };
        stage.place.execute(&format!("{remove} DELETE FROM operations WHERE operation_id = '{}'", late.id));
        assert_eq!(counts(), (1, 0));
        assert_eq!(counts(), (1, 0), "counted once");
        stage.admit_one(delivery_at(NOW.plus(50 * MINUTE), &[(Some("later"), "lead")]));
        assert_eq!(counts(), (1, 0), "and remembered");
        stage.admit_one(delivery_at(NOW.plus(60 * MINUTE), &[(Some("last"), "lead")]));
        assert_eq!(counts(), (1, 0));
        stage.place.execute("DELETE FROM deliveries WHERE received_at = (SELECT max(received_at) FROM deliveries)");
        assert_eq!(counts(), (1, 1));
    }
}

both! {
    fn contacts_are_found_by_their_normal_form(stage) {
        let first = stage.admit_one(delivery_at(NOW, &[(Some("a"), "lead")])).operation;
        let second = stage.admit_one(delivery_at(NOW.plus(MINUTE), &[(Some("b"), "lead")])).operation;
        let unindexed = |limit| {
            let found = stage.wait(stage.store.unindexed(NOW.plus(10 * MINUTE), limit)).expect("read");
            found.into_iter().map(|(operation, work)| (operation.id, work.delivery.is_some())).collect::<Vec<_>>()
        };
        let find = |contact: &str| {
            let found = stage.wait(stage.store.find_contact(contact.to_owned(), 10)).expect("read");
            found.into_iter().map(|o| o.id).collect::<Vec<_>>()
        };
        let index = |list: Vec<_>| stage.wait(stage.store.index_contacts(list)).expect("written");
        assert_eq!(unindexed(1), [(first.id, true)]);
        assert!(stage.wait(stage.store.unindexed(NOW, 9)).expect("read").is_empty(), "too young");
        // Out of order: the index does not move past what it has not seen.
        index(vec![(second.id, vec!["+15551234567".into()])]);
        assert_eq!(unindexed(9).len(), 2);
        index(vec![(first.id, vec!["+15551234567".into(), "anna@example.com".into(), "anna@example.com".into()])]);
        index(vec![(second.id, vec!["+15551234567".into()])]);
        assert!(unindexed(9).is_empty());
        assert_eq!(find("+15551234567"), [second.id, first.id]);
        assert_eq!(find("anna@example.com"), [first.id]);
        assert!(find("boris@example.com").is_empty());
        assert_eq!(stage.place.number("SELECT count(*) FROM contact_hashes WHERE length(hash) = 32"), 3);

        // A corrected lead is indexed anew.
        let mut edit = plain(&first, first.clone());
        edit.lead = Some(leadonce::operation::Lead::default());
        stage.update(edit);
        assert_eq!(unindexed(9), [(first.id, true)]);
        index(vec![(first.id, vec!["anna@example.org".into()])]);
        assert!(unindexed(9).is_empty());
        assert_eq!((find("anna@example.org"), find("anna@example.com")), (vec![first.id], vec![]));
        // The key of the hashes outlives the process.
        let stage = stage.restart();
        let found = stage.wait(stage.store.find_contact("anna@example.org".into(), 10)).expect("read");
        assert_eq!(found.len(), 1);
    }
}

both! {
    fn deliveries_without_an_operation_are_logged(stage) {
        for verdict in [Verdict::Rejected, Verdict::Test, Verdict::Spam, Verdict::Ignored] {
            stage.wait(stage.store.log(keyed("a", "body").delivery, verdict)).expect("logged");
        }
        assert_eq!(stage.place.number("SELECT count(*) FROM deliveries WHERE operation_id IS NULL"), 4);
        assert_eq!(stage.place.number("SELECT count(*) FROM operations"), 0);
    }
}

both! {
    /// On PostgreSQL a change may be committed after one that was numbered later; the feed must not run past it.
    fn the_feed_skips_nothing_that_is_committed_late(stage) {
        let (first, second) = (stage.admit_one(keyed("1", "content 1")).operation.id, stage.admit_one(keyed("2", "content 2")).operation.id);
        let read = |after| {
            let horizon = stage.wait(stage.store.horizon()).expect("read");
            stage.wait(stage.store.changes(after, horizon, 100)).expect("read")
        };
        // Writes of other tests on the same server hold the feed up too.
        let read_all = |after| until(|| read(after));
        let seen = read_all(0);
        assert_eq!(seen.iter().map(|change| change.operation_id).collect::<Vec<_>>(), [first, second]);
        let after = seen.last().expect("two").seq;
        if stage.place.is_sqlite() {
            // One writer: the next change has the next number.
            let third = stage.admit_one(keyed("3", "content 3")).operation.id;
            let seen = read_all(after);
            assert_eq!((seen.len(), seen[0].operation_id, seen[0].seq > after), (1, third, true));
            return;
        }
        use diesel::connection::SimpleConnection;
        use diesel::{Connection, PgConnection};
        let mut late = PgConnection::establish(&stage.place.url).expect("the server");
        late.batch_execute(&format!(
            "BEGIN; UPDATE operations SET last_error = 'late' WHERE operation_id = '{first}'; INSERT INTO transitions \
             (operation_id, version, to_state, event, at) VALUES ('{first}', 99, 'received', 'late', 0)"
        ))
        .expect("begun");
        let third = stage.admit_one(keyed("3", "content 3")).operation.id;
        assert_eq!(read(after), None, "the third is committed, but the one before it is not");
        late.batch_execute("COMMIT").expect("committed");
        let seen = read_all(after);
        assert_eq!(seen.iter().map(|change| change.operation_id).collect::<Vec<_>>(), [first, third]);
        assert_eq!(seen[0].event, "late");
    }
}

//! What goes wrong below the store, and whom it may concern.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use leadonce::clock::{Clock, SystemClock};
use leadonce::operation::CrmId;
use leadonce::operation::transition::Event;
use leadonce::store::{Admit, Settings, Store, StoreError, Updated, Use, Verdict};

use crate::proxy::{Proxy, Way};
use crate::stage::*;

/// A delivery that the database refuses: what has an entity cannot wait to be sent.
fn poisoned(key: &str) -> Admit {
    let mut admit = keyed(key, "lead");
    admit.events[0].operation.crm_id = Some(CrmId::try_from("1".to_owned()).expect("an id"));
    admit
}

both! {
    fn a_poisoned_write_does_not_fail_its_neighbours(stage) {
        let place = stage.place.another();
        let (store, mut writer) = Store::open(&place.settings(), Use::Serve).expect("opens");
        let admits = [keyed("a", "lead"), poisoned("b"), keyed("c", "lead"), keyed("b", "lead")];
        let all = join_all(admits.into_iter().map(|admit| store.admit(admit)));
        let (answers, _) = runtime().block_on(join(all, async { writer.step() }));
        assert!(matches!(answers[1], Err(StoreError::Inconsistent(_))), "{:?}", answers[1]);
        for place in [0, 2, 3] {
            let admission = answers[place].as_ref().expect("admitted");
            assert_eq!(admission[0].verdict, Verdict::New);
        }
        assert_eq!(place.number("SELECT count(*) FROM operations"), 3);
        assert_eq!(place.number("SELECT count(*) FROM deliveries"), 3);
    }
}

both! {
    fn a_full_queue_says_busy_at_once(stage) {
        let place = stage.place.another();
        let small = Settings { queue: 2, ..place.settings() };
        let (store, mut writer) = Store::open(&small, Use::Serve).expect("opens");
        let all = join_all(["a", "b", "c"].map(|key| store.admit(keyed(key, "lead"))));
        let (answers, replay_taken) = runtime().block_on(join(all, async {
            let replay = keyed("a", "lead");
            let taken = store.log_replay(replay.delivery, 0, replay.events[0].operation.id).await;
            writer.step();
            taken
        }));
        assert!(answers[0].is_ok() && answers[1].is_ok());
        assert!(matches!(answers[2], Err(StoreError::Busy)));
        assert!(matches!(replay_taken, Err(StoreError::Busy)));
        // There is room again.
        let (answer, _) = runtime().block_on(join(store.admit(keyed("c", "lead")), async { writer.step() }));
        assert!(answer.is_ok());
    }
}

both! {
    /// Who repeats is held back by the log before new leads are.
    fn replays_wait_for_their_row_where_the_queue_is_half_full(stage) {
        let place = stage.place.another();
        let small = Settings { queue: 8, ..place.settings() };
        let (store, mut writer) = Store::open(&small, Use::Serve).expect("opens");
        let (answer, _) = runtime().block_on(join(store.admit(keyed("a", "lead")), async { writer.step() }));
        let first = answer.expect("admitted")[0].operation.id;
        let mut replays: Vec<_> = (0..8).map(|_| Box::pin(store.log_replay(keyed("a", "lead").delivery, 0, first))).collect();
        let told = replays.iter_mut().filter_map(|replay| replay.now_or_never()).filter(Result::is_ok).count();
        assert_eq!(told, 4, "these rows follow their answers");
        let (answers, _) = runtime().block_on(join(join_all(replays.split_off(4)), async { writer.step() }));
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(place.number("SELECT count(*) FROM deliveries WHERE verdict = 'replay'"), 8);
    }
}

both! {
    fn a_queue_of_large_bodies_is_full_before_memory_is(stage) {
        let place = stage.place.another();
        let small = Settings { queue: 16, batch: 8, ..place.settings() };
        let (store, mut writer) = Store::open(&small, Use::Serve).expect("opens");
        let of_size = |key: &str, kib: usize| {
            let mut admit = keyed(key, "lead");
            admit.delivery.body = vec![b'x'; kib * 1024];
            store.admit(admit)
        };
        // A place stands for 64 KiB: there is room for three of these, and for a small one beside them.
        let large = join_all(["a", "b", "c", "d", "e"].map(|key| of_size(key, 300)));
        let ((answers, small), _) =
            runtime().block_on(join(join(large, of_size("small", 1)), async { writer.step() }));
        assert_eq!(answers.iter().filter(|answer| matches!(answer, Err(StoreError::Busy))).count(), 2);
        small.expect("a lead of ordinary size has room");
        // What the commit has freed is there again; one that is larger than all takes all.
        let (answer, _) = runtime().block_on(join(of_size("huge", 5_000), async { writer.step() }));
        assert!(answer.is_ok());
    }
}

both! {
    fn without_its_writer_the_store_says_so(stage) {
        let place = stage.place.another();
        let (store, writer) = Store::open(&place.settings(), Use::Serve).expect("opens");
        let waiting = store.admit(keyed("a", "lead"));
        let (answer, ()) = runtime().block_on(join(waiting, async { drop(writer) }));
        assert!(is_unavailable(answer));
        assert!(is_unavailable(runtime().block_on(store.admit(keyed("b", "lead")))));
    }
}

#[test]
fn a_locked_sqlite_file_is_unavailable_in_time_and_recovers() {
    use diesel::Connection;
    use diesel::connection::SimpleConnection;
    let stage = Stage::sqlite();
    let path = stage.place.url.strip_prefix("sqlite://").expect("a path").to_owned();
    let mut other = diesel::SqliteConnection::establish(&path).expect("the file");
    other.batch_execute("BEGIN IMMEDIATE").expect("the lock");
    let clock = SystemClock::default();
    let all = join_all((0..200).map(|n| stage.store.admit(keyed(&format!("key-{n}"), "lead"))));
    let answers = stage.wait(all);
    assert!(answers.into_iter().all(is_unavailable));
    // Two seconds of waiting for the lock, for at most two batches; never for each write.
    assert!(clock.monotonic() < Duration::from_secs(8), "{:?}", clock.monotonic());
    other.batch_execute("ROLLBACK").expect("released");
    assert_eq!(stage.admit_one(keyed("key-0", "lead")).verdict, Verdict::New);
}

/// A store whose every connection goes through the proxy.
fn proxied() -> Option<(Stage, Proxy)> {
    let mut place = Place::postgres()?;
    let (proxy, url) = Proxy::before_url(&place.url);
    place.url = url;
    Some((Stage::on(place), proxy))
}

#[test]
fn a_lost_commit_is_answered_by_what_is_found() {
    let Some((stage, proxy)) = proxied() else { return };
    proxy.cut_next_commit_after(0);
    let admission = stage.admit_one(keyed("a", "lead"));
    assert!(!proxy.waits_for_commit(), "the commit was cut");
    assert_eq!(admission.verdict, Verdict::New);
    assert_eq!(stage.place.number("SELECT count(*) FROM operations"), 1);
    assert_eq!(stage.place.number("SELECT count(*) FROM deliveries"), 1);

    proxy.cut_next_commit_after(0);
    let rejected = change(&admission.operation, &Event::Reject, NOW);
    assert_eq!(stage.update(rejected.clone()), Updated::Done);
    assert_eq!(stage.operation(admission.operation.id), rejected.after);
    assert_eq!(stage.place.number("SELECT count(*) FROM transitions"), 2);

    // Wherever in its answer the cut falls: "CommandComplete" alone is no "ReadyForQuery".
    for bytes in [1, 5, 12] {
        proxy.cut_next_commit_after(bytes);
        assert_eq!(stage.admit_one(keyed(&format!("cut-{bytes}"), "lead")).verdict, Verdict::New);
        assert!(!proxy.waits_for_commit());
    }
    assert_eq!(stage.place.number("SELECT count(*) FROM deliveries"), 4);

    // Of a suspension too it is known that it was this one: its caller alerts.
    proxy.cut_next_commit_after(0);
    assert!(stage.wait(stage.store.suspend(crm(), Some(1), "401".into(), None, NOW)).expect("written"));
    assert!(!proxy.waits_for_commit());
}

#[test]
fn a_postgres_that_is_away_is_unavailable_in_time_and_recovers() {
    let Some((stage, proxy)) = proxied() else { return };
    proxy.set(Way::Refused);
    proxy.cut();
    let clock = SystemClock::default();
    let all = join_all((0..200).map(|n| stage.store.admit(keyed(&format!("key-{n}"), "lead"))));
    assert!(stage.wait(all).into_iter().all(is_unavailable));
    assert!(clock.monotonic() < Duration::from_secs(6), "{:?}", clock.monotonic());
    proxy.set(Way::Open);
    assert_eq!(stage.admit_one(keyed("key-0", "lead")).verdict, Verdict::New);
}

both! {
    fn a_checkpoint_beside_the_writer_loses_nothing(stage) {
        for n in 0..50 {
            stage.admit_one(keyed(&format!("key-{n}"), "lead"));
            stage.store.checkpoint().expect("looked");
        }
        assert_eq!(stage.place.number("SELECT count(*) FROM operations"), 50);
    }
}

/// Lets the next so many changes of operations fail by that SQLSTATE, with a message that says nothing.
fn failing(stage: &Stage, code: &str, times: u32) {
    stage.place.execute(&format!(
        "CREATE SEQUENCE failures;
         CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF nextval('failures') <= {times} THEN RAISE EXCEPTION 'взаимная блокировка' USING ERRCODE = '{code}'; END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON operations FOR EACH ROW EXECUTE FUNCTION fail();"
    ));
}

#[test]
fn c62_where_nodes_stand_in_each_others_way_the_database_step_is_done_again() {
    for code in ["40001", "40P01"] {
        let Some(stage) = Stage::postgres() else { return };
        let admission = stage.admit_one(keyed("first", "lead"));
        failing(&stage, code, 3);
        // The batch, then job by job: nobody hears of it.
        let all = join_all((0..20).map(|n| stage.store.admit(keyed(&format!("key-{n}"), "lead"))));
        for answer in stage.wait(all) {
            assert_eq!(answer.expect("admitted")[0].verdict, Verdict::New, "{code}");
        }
        stage.place.execute("SELECT setval('failures', 1, false)");
        let rejected = change(&admission.operation, &Event::Reject, NOW);
        assert_eq!(stage.update(rejected.clone()), Updated::Done, "{code}");
        assert_eq!(stage.operation(admission.operation.id), rejected.after);
        assert_eq!(stage.place.number("SELECT count(*) FROM deliveries"), 21);
        assert_eq!(stage.place.number("SELECT count(*) FROM operations"), 21);
    }
}

#[test]
fn c62_before_a_step_is_done_again_the_writer_waits_as_it_was_told() {
    let Some(stage) = Stage::postgres() else { return };
    let (store, writer) = Store::open(&stage.place.settings(), Use::Serve).expect("opens");
    let (told, waits) = std::sync::mpsc::channel();
    start(writer.pausing(move |tries| told.send(tries).expect("heard")));
    failing(&stage, "40P01", 4);
    let answer = stage.wait(store.admit(keyed("a", "lead"))).expect("admitted");
    assert_eq!(answer[0].verdict, Verdict::New);
    assert_eq!(waits.try_iter().collect::<Vec<_>>(), [1, 2, 3], "not before the first of its own");
}

#[test]
fn c62_a_failure_that_does_not_pass_is_bounded_and_concerns_no_later_write() {
    let Some(stage) = Stage::postgres() else { return };
    failing(&stage, "40P01", 1_000_000);
    let all = join_all((0..200).map(|n| stage.store.admit(keyed(&format!("key-{n}"), "lead"))));
    assert!(stage.wait(all).into_iter().all(is_unavailable));
    // A few jobs of each batch were tried, a few times each; never each job.
    let tried = stage.place.number("SELECT nextval('failures')");
    assert!(tried < 200, "{tried}");
    stage.place.execute("DROP TRIGGER fail ON operations");
    assert_eq!(stage.admit_one(keyed("key-0", "lead")).verdict, Verdict::New);
}

#[test]
fn c62_one_key_at_once_among_audit_rows_is_one_operation() {
    let Some(stage) = Stage::postgres() else { return };
    let other = Stage::on(Place::of(&stage.place.url));
    let (mine, theirs) = (0..20)
        .map(|_| (stage.store.admit(keyed("one", "lead")), other.store.admit(keyed("one", "lead"))))
        .unzip::<_, _, Vec<_>, Vec<_>>();
    let (mut answers, theirs) = stage.wait(join(join_all(mine), join_all(theirs)));
    answers.extend(theirs);
    let new = answers.iter().filter(|answer| answer.as_ref().expect("admitted")[0].verdict == Verdict::New).count();
    assert_eq!(new, 1);
    assert_eq!(stage.place.number("SELECT count(*) FROM operations"), 1);
    assert_eq!(stage.place.number("SELECT count(*) FROM deliveries"), 40);
}

#[test]
fn connections_to_a_server_that_only_reads_are_left_at_once() {
    let Some(stage) = Stage::postgres() else { return };
    let admission = stage.admit_one(keyed("before", "lead"));
    let name = url::Url::parse(&stage.place.url).expect("a url").path().trim_start_matches('/').to_owned();
    // What is opened from now on only reads, and goes on doing so after the switch back.
    stage.place.execute(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    stage.place.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    assert!(is_unavailable(stage.wait(stage.store.admit(keyed("during", "lead")))));
    assert!(is_unavailable(stage.wait(stage.store.writable())));
    assert_eq!(stage.operation(admission.operation.id), admission.operation, "it can be read");
    let switch = stage.place.number("SELECT extract(epoch FROM clock_timestamp()) * 1000000");
    let back = format!("BEGIN READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only; COMMIT");
    stage.place.execute(&back);
    assert_eq!(stage.admit_one(keyed("during", "lead")).verdict, Verdict::New, "at the first try");
    stage.wait(stage.store.writable()).expect("writable");
    assert_eq!(stage.operation(admission.operation.id), admission.operation);
    // Readers have left theirs too: what those lead to may have been left behind.
    let older = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
         AND extract(epoch FROM backend_start) * 1000000 < {switch}"
    );
    assert_eq!(stage.place.number(&older), 0);
}

#[test]
fn a_connection_that_turned_read_only_is_replaced_and_nobody_hears_of_it() {
    let Some(stage) = Stage::postgres() else { return };
    // Whoever writes an operation only reads from then on.
    stage.place.execute(
        "CREATE FUNCTION turn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM set_config('default_transaction_read_only', 'on', false); RETURN NEW;
         END $$;
         CREATE TRIGGER turn BEFORE INSERT ON operations FOR EACH ROW EXECUTE FUNCTION turn();",
    );
    for n in 0..5 {
        assert_eq!(stage.admit_one(keyed(&format!("key-{n}"), "lead")).verdict, Verdict::New, "at the first try");
    }
}

#[test]
fn a_database_that_does_not_answer_holds_up_nobody_for_ever() {
    let Some((stage, proxy)) = proxied() else { return };
    let admission = stage.admit_one(keyed("a", "lead"));
    let id = admission.operation.id;
    stage.operation(id);
    proxy.set(Way::Held);
    let clock = SystemClock::default();
    // More readers than there are connections.
    let reads = stage.wait(join_all((0..50).map(|_| stage.store.operation(id))));
    assert!(reads.into_iter().all(is_unavailable));
    assert!(clock.monotonic() < Duration::from_secs(6), "{:?}", clock.monotonic());
    let waiting = stage.store.admit(keyed("b", "lead"));
    let (answer, ()) = stage.wait(join(waiting, async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        proxy.set(Way::Open);
    }));
    assert_eq!(answer.expect("as soon as the database answers")[0].verdict, Verdict::New);
    assert_eq!(stage.operation(id), admission.operation);
}

#[test]
fn operators_who_search_hold_up_neither_senders_nor_delivery() {
    let Some(stage) = Stage::postgres() else { return };
    let id = stage.admit_one(keyed("a", "lead")).operation.id;
    stage.operation(id);
    stage.wait(stage.store.tokens()).expect("read");
    // Every search of a token waits for this lock, and so does its pool.
    let release = lock(&stage, "LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE");
    let searches = join_all((0..30).map(|_| stage.store.tokens()));
    let others = async {
        for n in 0..20 {
            stage.store.operation(id).await.expect("senders are answered");
            stage.store.census().await.expect("delivery goes on");
            stage.store.admit(keyed(&format!("key-{n}"), "lead")).await.expect("leads are taken");
        }
        drop(release);
    };
    stage.wait(join(searches, others));
}

/// Holds a lock until the value is dropped.
fn lock(stage: &Stage, sql: &str) -> diesel::PgConnection {
    use diesel::Connection;
    use diesel::connection::SimpleConnection;
    let mut conn = diesel::PgConnection::establish(&stage.place.url).expect("the server");
    conn.batch_execute(&format!("BEGIN; {sql}")).expect("the lock");
    conn
}

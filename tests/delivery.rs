//! The delivery engine on a real store, stepped by one thread under a clock that only the test moves, against a simulated CRM
//! that speaks Bitrix24's protocol.

#[path = "support/world.rs"]
mod world;

use std::sync::Arc;
use std::time::Duration;

use leadonce::clock::{At, Clock, ManualClock};
use leadonce::delivery::Gap;
use leadonce::operation::transition::{Change, Event, apply};
use leadonce::operation::{State, Status};
use leadonce::store::{Destination, Update};

use world::*;

#[tokio::test]
async fn c12_six_hours_of_outage_lose_nothing_and_double_nothing() {
    const LEADS: usize = 50;
    let mut world = World::new(settings()).await;
    world.crm.with(|crm| crm.always = Some(Play::Away));
    for number in 0..LEADS {
        world.deliver(&format!("lead {number}")).await;
        world.clock.advance(Duration::from_millis(1));
    }
    world.step().await;
    world.pass(Duration::from_secs(6 * 3600), Duration::from_secs(600)).await;
    assert_eq!(world.entities(), 0);
    assert_eq!(world.operation("lead 7").await.state(), State::Received, "an outage uses up no attempts");
    world.crm.with(|crm| crm.always = None);
    world.pass(Duration::from_secs(900), Duration::from_secs(60)).await;
    assert_eq!(world.entities(), LEADS);
    for number in 0..LEADS {
        assert_eq!(world.operation(&format!("lead {number}")).await.state(), State::Completed);
    }
}

#[tokio::test]
async fn an_empty_look_up_before_settle_proves_nothing() {
    let mut world = World::new(settings()).await;
    world.play(&[Play::Lost]);
    world.crm.with(|crm| crm.blind = true);
    world.deliver("slow index").await;
    world.step().await;
    world.pass(SETTLE - SECOND * 5, SECOND * 5).await;
    assert_eq!((world.creates(), world.operation("slow index").await.state()), (1, State::InProgress));
    world.crm.with(|crm| crm.blind = false);
    world.pass(SECOND * 10, SECOND).await;
    assert_eq!(world.operation("slow index").await.state(), State::Completed);
    assert_eq!((world.creates(), world.entities()), (1, 1));
}

#[tokio::test]
async fn after_settle_a_trusted_empty_look_up_allows_one_more_create() {
    let mut world = World::new(settings()).await;
    world.play(&[Play::Broken]);
    world.deliver("never arrived").await;
    world.step().await;
    world.pass(SETTLE + SECOND * 30, SECOND * 5).await;
    let operation = world.operation("never arrived").await;
    assert_eq!((operation.state(), operation.attempts), (State::Completed, 2));
    assert_eq!(world.entities(), 1);
}

#[tokio::test]
async fn an_empty_look_up_that_is_not_trusted_asks_a_person() {
    let mut untrusted = settings();
    untrusted.lookup.trusted = false;
    let mut world = World::new(untrusted).await;
    world.play(&[Play::Broken]);
    world.deliver("x").await;
    world.step().await;
    world.pass(SETTLE + SECOND * 30, SECOND * 5).await;
    let operation = world.operation("x").await;
    assert_eq!((operation.status.reason(), world.creates()), (Some("uncertain_outcome"), 1));
}

#[tokio::test]
async fn c85_a_clock_that_jumps_ahead_does_not_shorten_settle() {
    let mut world = World::new(settings()).await;
    world.play(&[Play::Lost]);
    world.crm.with(|crm| crm.blind = true);
    world.deliver("jump").await;
    world.step().await;
    world.clock.jump_to(world.now().plus(Duration::from_secs(3600)));
    world.step().await;
    assert_eq!(world.crm.with(|crm| crm.lookups), 1, "the look-up is due by the wall clock");
    assert_eq!((world.creates(), world.operation("jump").await.state()), (1, State::InProgress));
}

#[tokio::test]
async fn a_restarted_process_waits_settle_on_its_own_clock() {
    let mut world = World::new(settings()).await;
    world.play(&[Play::Lost]);
    world.crm.with(|crm| crm.blind = true);
    world.deliver("restart").await;
    world.step().await;
    // Stopped for an hour: the new process has seen none of it pass.
    world.clock.jump_to(world.now().plus(Duration::from_secs(3600)));
    world.engine = engine(&world.store, &world.clock, &world.crm, settings(), "node-2");
    world.step().await;
    assert_eq!((world.creates(), world.operation("restart").await.state()), (1, State::InProgress));
}

#[tokio::test]
async fn a_worker_lost_before_its_call_is_replaced_without_a_look_up() {
    let mut world = World::new(settings()).await;
    world.deliver("a").await;
    let taken = world.engine.take(&name("crm"), 4).await.expect("taken");
    assert_eq!(taken.creates.len(), 1);
    world.step().await;
    assert_eq!(world.creates(), 0, "the lease still runs");
    world.pass(LEASE + SECOND * 6, SECOND * 2).await;
    assert_eq!(world.operation("a").await.state(), State::Completed);
    assert_eq!((world.creates(), world.crm.with(|crm| crm.lookups)), (1, 0));
}

#[tokio::test]
async fn c40_a_lead_that_kills_its_workers_ends_in_review() {
    let mut world = World::new(settings()).await;
    world.deliver("deadly").await;
    for _ in 0..3 {
        // Each worker dies between claim and call.
        assert_eq!(world.engine.take(&name("crm"), 4).await.expect("taken").creates.len(), 1);
        world.clock.advance(LEASE + SECOND * 6);
        let expired = world.engine.take(&name("crm"), 0).await.expect("taken").expired;
        assert_eq!(expired.len(), 1);
    }
    world.step().await;
    assert_eq!(world.operation("deadly").await.status.reason(), Some("attempts_exhausted"));
    assert_eq!(world.creates(), 0);
}

#[tokio::test]
async fn c40_a_lead_that_panics_the_mapper_holds_up_no_other() {
    let mut world = World::new(settings()).await;
    world.deliver("poison").await;
    world.deliver("good").await;
    world.step().await;
    world.pass(Duration::from_secs(60), SECOND).await;
    assert_eq!(world.operation("good").await.state(), State::Completed);
    let poison = world.operation("poison").await;
    assert_eq!((poison.status.reason(), poison.attempts), (Some("attempts_exhausted"), 3));
    assert!(poison.last_error.is_some());
}

#[tokio::test]
async fn a_lead_that_cannot_be_read_is_refused_with_its_cause() {
    let mut world = World::new(settings()).await;
    world.deliver("unreadable").await;
    world.step().await;
    let operation = world.operation("unreadable").await;
    assert_eq!((operation.state(), operation.status.reason()), (State::FailedTerminal, Some("rejected")));
    assert_eq!(operation.last_error.as_deref(), Some("there is no lead in it"));
}

#[tokio::test]
async fn a_retry_after_slows_the_whole_destination() {
    let mut world = World::new(settings()).await;
    world.play(&[Play::Limit(90)]);
    world.deliver("first").await;
    world.step().await;
    world.deliver("second").await;
    world.pass(SECOND * 89, SECOND).await;
    assert_eq!(world.creates(), 1, "nobody calls before the time told");
    world.pass(SECOND * 120, SECOND).await;
    assert_eq!(world.entities(), 2);
    assert_eq!(world.crm.with(|crm| crm.lookups), 0, "a limit is not uncertain");
}

#[tokio::test]
async fn a_limit_slows_every_destination_of_the_account_and_a_good_answer_lets_all_go_on() {
    let mut world = World::new(settings()).await;
    world.play(&[Play::Limit(90)]);
    world.deliver("first").await;
    world.step().await;
    let until = world.now().plus(SECOND * 90);
    let flows = |all: Vec<Destination>| all.into_iter().map(|one| (one.flow.throttled_until, one.flow.probing));
    let all = world.store.destinations().await.expect("read");
    assert_eq!(flows(all).collect::<Vec<_>>(), [(Some(until), true); 2]);
    world.pass(SECOND * 120, SECOND).await;
    assert_eq!(world.entities(), 1);
    let all = world.store.destinations().await.expect("read");
    assert_eq!(flows(all).collect::<Vec<_>>(), [(None, false); 2]);
}

#[tokio::test]
async fn c39_an_outage_is_probed_and_its_end_is_a_ramp() {
    let mut paced = settings();
    (paced.rate_per_second, paced.burst) = (20.0, 1);
    let mut world = World::new(paced).await;
    world.crm.with(|crm| crm.always = Some(Play::Away));
    for number in 0..200 {
        world.deliver(&format!("lead {number}")).await;
    }
    world.pass(SECOND * 30, SECOND).await;
    let calls = world.creates();
    world.pass(SECOND * 300, SECOND).await;
    let probes = world.creates() - calls;
    assert!(
        (8..=25).contains(&probes),
        "{probes} calls to a CRM that is away for five minutes, {calls} in the first half one"
    );

    world.crm.with(|crm| crm.always = None);
    let (end, before) = (world.now(), world.creates());
    world.pass(SECOND * 60, SECOND / 10).await;
    let times = world.crm.with(|crm| crm.times.split_off(before));
    assert!(times[0] <= end.plus(SECOND * 31) && times.len() >= 199, "{} leads", times.len());
    // An eighth of the rate at first, twice that each two seconds.
    let within = |from: u32, to: u32| {
        let since = |at: &At| at.since(times[0]);
        times[1..].iter().filter(|at| since(at) > SECOND * from && since(at) <= SECOND * to).count()
    };
    let each: Vec<usize> = (0..12).map(|second| within(second, second + 1)).collect();
    assert!((1..=8).contains(&within(0, 2)) && within(0, 6) <= 20 * 6 * 6 / 10, "{each:?}");
    assert!(each[7..].iter().all(|calls| (17..=20).contains(calls)), "{each:?}");
    assert_eq!(world.crm.with(|crm| crm.lookups), 0);
}

#[tokio::test]
async fn a_lead_alone_that_fails_again_and_again_stops_no_other() {
    let mut world = World::new(settings()).await;
    for number in 0..8 {
        world.play(&[Play::Broken, Play::Good, Play::Good, Play::Good]);
        world.deliver(&format!("lead {number}")).await;
        world.pass(SECOND * 2, SECOND).await;
        assert!(!world.destination().await.flow.probing, "a good answer between them, so it is no outage");
    }
}

#[tokio::test]
async fn an_account_stop_suspends_once_and_resume_sends_one_probe_first() {
    let mut world = World::new(settings()).await;
    world.crm.with(|crm| crm.always = Some(Play::Denied));
    for number in 0..6 {
        world.deliver(&format!("lead {number}")).await;
    }
    world.step().await;
    world.pass(SECOND * 600, SECOND * 60).await;
    let calls = world.creates();
    assert!(calls <= 4, "{calls} calls to an account that refuses");
    assert!(world.destination().await.suspended);
    let open = world.store.incidents().await.expect("read");
    assert_eq!(open.len(), 1, "{open:?}");

    // Resumed too early: one probe finds out, and all wait again.
    assert!(world.store.resume(name("crm"), None, world.now()).await.expect("resumed"));
    world.step().await;
    assert_eq!(world.creates(), calls + 1);
    assert!(world.destination().await.suspended);

    world.crm.with(|crm| crm.always = None);
    assert!(world.store.resume(name("crm"), None, world.now()).await.expect("resumed"));
    world.pass(SECOND * 10, SECOND).await;
    assert_eq!(world.entities(), 6);
    for number in 0..6 {
        assert_eq!(world.operation(&format!("lead {number}")).await.state(), State::Completed);
    }
}

#[tokio::test]
async fn a_probe_ends_with_its_success_although_another_was_noted_a_moment_ago() {
    let mut world = World::new(settings()).await;
    world.deliver("before").await;
    world.step().await;
    assert!(world.store.suspend(name("crm"), None, "by hand".into(), None, world.now()).await.expect("suspended"));
    assert!(world.store.resume(name("crm"), None, world.now()).await.expect("resumed"));
    world.deliver("probe").await;
    world.step().await;
    assert_eq!(world.entities(), 2);
    assert!(!world.destination().await.flow.probing);
}

#[tokio::test]
async fn a_suspension_that_comes_between_claim_and_call_stops_the_call() {
    let mut world = World::new(settings()).await;
    world.deliver("a").await;
    let mut taken = world.engine.take(&name("crm"), 4).await.expect("taken");
    let claimed = taken.creates.remove(0);
    assert!(world.store.suspend(name("crm"), None, "by hand".into(), None, world.now()).await.expect("suspended"));
    world.engine.create(claimed).await.expect("given back");
    assert_eq!((world.creates(), world.operation("a").await.state()), (0, State::Received));
}

/// Delivers, and stops the process for `stopped` between its check of the lease and the commit of its attempt.
async fn stopped_before_its_call(stopped: impl Fn(&ManualClock)) -> (World, usize, State) {
    let (mut world, mut writer) = World::parts(settings(), 0);
    let (stop, done) = (std::cell::Cell::new(false), std::cell::Cell::new(false));
    let clock = Arc::clone(&world.clock);
    let work = async {
        world.open().await;
        world.deliver("stopped").await;
        let claimed = world.engine.take(&name("crm"), 4).await.expect("taken").creates.remove(0);
        stop.set(true);
        world.engine.create(claimed).await.expect("written");
        let seen = (world.creates(), world.operation("stopped").await.state());
        world.pass(SECOND * 60, SECOND).await;
        assert_eq!((world.creates(), world.operation("stopped").await.state()), (1, State::Completed));
        done.set(true);
        seen
    };
    let pump = async {
        while !done.get() {
            if stop.take() {
                stopped(&clock);
            }
            writer.step();
            tokio::task::yield_now().await;
        }
    };
    let ((creates, state), ()) = tokio::join!(work, pump);
    (world, creates, state)
}

#[tokio::test]
async fn c85_a_node_that_was_stopped_until_its_lease_was_over_does_not_call() {
    let (_, creates, state) = stopped_before_its_call(|clock| clock.advance(LEASE)).await;
    assert_eq!((creates, state), (0, State::Received));
}

#[tokio::test]
async fn c85_nor_where_its_wall_clock_was_set_back_meanwhile() {
    let back = |clock: &ManualClock| {
        let before = clock.now();
        clock.advance(LEASE);
        clock.jump_to(before.minus(SECOND));
    };
    let (_, creates, state) = stopped_before_its_call(back).await;
    assert_eq!((creates, state), (0, State::Received));
}

#[tokio::test]
async fn an_answer_that_comes_after_the_lease_completes_the_operation_all_the_same() {
    let mut world = World::new(settings()).await;
    // The call outlasts its lease; meanwhile another worker finds the lease expired.
    world.crm.with(|crm| crm.takes = LEASE + SECOND * 10);
    world.deliver("late").await;
    let claimed = world.engine.take(&name("crm"), 4).await.expect("taken").creates.remove(0);
    let other = engine(&world.store, &world.clock, &world.crm, settings(), "node-2");
    let during = async {
        while world.creates() == 0 {
            tokio::task::yield_now().await;
        }
        other.take(&name("crm"), 4).await.expect("taken")
    };
    let (created, _) = tokio::join!(world.engine.create(claimed), during);
    created.expect("written");
    world.crm.with(|crm| crm.takes = Duration::ZERO);
    world.pass(SETTLE * 2, SECOND * 10).await;
    let operation = world.operation("late").await;
    assert_eq!((operation.state(), operation.attempts, world.creates()), (State::Completed, 1, 1));
}

#[tokio::test]
async fn attempts_that_the_crm_rejects_as_invalid_are_not_repeated() {
    let mut world = World::new(settings()).await;
    world.play(&[Play::Invalid]);
    world.deliver("x").await;
    world.step().await;
    world.pass(SECOND * 600, SECOND * 60).await;
    assert_eq!((world.creates(), world.operation("x").await.state()), (1, State::FailedTerminal));
}

#[tokio::test]
async fn no_more_is_taken_than_slots_are_free() {
    let mut world = World::new(settings()).await;
    world.play(&[Play::Lost, Play::Lost, Play::Lost]);
    for number in 0..3 {
        world.deliver(&format!("uncertain {number}")).await;
    }
    world.step().await;
    for number in 0..5 {
        world.deliver(&format!("fresh {number}")).await;
    }
    world.clock.advance(SECOND * 10);
    let taken = world.engine.take(&name("crm"), 2).await.expect("taken");
    assert!(taken.creates.len() + taken.lookups.len() <= 2, "{} and {}", taken.creates.len(), taken.lookups.len());
}

#[tokio::test]
async fn settle_after_another_nodes_send_runs_from_the_first_sight_of_it() {
    let mut world = World::new(settings()).await;
    // This process has been up for a day when another node's send is lost.
    world.clock.advance(Duration::from_secs(86_400));
    let other = engine(&world.store, &world.clock, &world.crm, settings(), "node-2");
    world.play(&[Play::Lost]);
    world.crm.with(|crm| crm.blind = true);
    world.deliver("theirs").await;
    let claimed = other.take(&name("crm"), 4).await.expect("taken").creates.remove(0);
    other.create(claimed).await.expect("created");
    // The wall clock jumps ahead; this process's own clock has seen nothing pass.
    world.clock.jump_to(world.now().plus(Duration::from_secs(3600)));
    world.step().await;
    assert_eq!((world.creates(), world.operation("theirs").await.state()), (1, State::InProgress));
}

#[tokio::test]
async fn a_lead_that_never_leaves_does_not_end_the_probe() {
    let mut world = World::new(settings()).await;
    world.play(&[Play::Denied]);
    world.deliver("first").await;
    world.step().await;
    assert!(world.destination().await.suspended);
    world.deliver("unreadable").await;
    for number in 0..5 {
        world.deliver(&format!("lead {number}")).await;
    }
    world.crm.with(|crm| crm.always = Some(Play::Denied));
    let calls = world.creates();
    assert!(world.store.resume(name("crm"), None, world.now()).await.expect("resumed"));
    world.step().await;
    assert_eq!(world.creates(), calls + 1, "one probe, whatever was refused before it could be sent");
    assert!(world.destination().await.suspended);
}

#[tokio::test]
async fn after_resume_the_waits_begin_anew() {
    let mut patient = settings();
    patient.retry.jitter = 0.0;
    let mut world = World::new(patient).await;
    world.crm.with(|crm| crm.always = Some(Play::Away));
    world.deliver("x").await;
    world.step().await;
    world.pass(Duration::from_secs(3600), SECOND * 30).await;
    let before = world.operation("x").await;
    assert!(before.attempts > 8, "{}", before.attempts);
    assert!(world.store.suspend(name("crm"), None, "by hand".into(), None, world.now()).await.expect("suspended"));
    assert!(world.store.resume(name("crm"), None, world.now()).await.expect("resumed"));
    world.pass(SECOND * 301, SECOND * 301).await;
    let after = world.operation("x").await;
    let Status::Received { next_attempt_at, .. } = after.status else { panic!("{:?}", after.status) };
    assert_eq!(next_attempt_at.since(after.updated_at), SECOND, "the first wait of a new series");
}

#[tokio::test]
async fn c30_an_answer_waits_for_a_store_that_is_away_and_is_not_lost() {
    use diesel::connection::SimpleConnection;
    use diesel::{Connection, SqliteConnection};
    let mut world = World::new(settings()).await;
    world.deliver("x").await;
    // While the CRM answers, somebody locks the database; the lock goes when the engine waits for the first time.
    let file = world.folder.path().join("store.db").display().to_string();
    let state = Arc::clone(&world.crm.state);
    let lock = move || {
        let mut conn = SqliteConnection::establish(&file).expect("the store's file");
        conn.batch_execute("PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE").expect("locked");
        let release = Hook(Some(Box::new(move || drop(conn))));
        // The CRM's state is borrowed by the call that runs this: the next hook is put in place after it.
        std::thread::spawn(move || state.lock().expect("the CRM").during = release);
    };
    world.crm.with(|crm| crm.during = Hook(Some(Box::new(lock))));
    world.step().await;
    let operation = world.operation("x").await;
    assert_eq!((operation.state(), operation.attempts), (State::Completed, 1));
    assert_eq!((world.creates(), world.crm.with(|crm| crm.lookups)), (1, 0));
}

/// Threads of this process, where the system tells.
fn threads() -> Option<usize> {
    std::fs::read_dir("/proc/self/task").ok().map(Iterator::count)
}

#[test]
fn one_thread_can_step_writer_intake_and_delivery() {
    // In a process of its own, where no other test starts threads.
    let own = std::env::current_exe().expect("this program");
    let arguments = ["--exact", "stepped_by_one_thread", "--test-threads=1"];
    let run = std::process::Command::new(own).args(arguments).env("LEADONCE_TEST_ALONE", "1").output().expect("ran");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"), "the test has another name by now");
}

#[tokio::test]
async fn stepped_by_one_thread() {
    // Beside other tests their threads come and go.
    let count = || std::env::var_os("LEADONCE_TEST_ALONE").and_then(|_| threads());
    let before = count();
    let (mut world, mut writer) = World::parts(settings(), 0);
    let done = std::cell::Cell::new(false);
    let work = async {
        world.open().await;
        world.play(&[Play::Lost]);
        world.deliver("x").await;
        world.step().await;
        world.pass(SECOND * 10, SECOND).await;
        let state = world.operation("x").await.state();
        done.set(true);
        state
    };
    let pump = async {
        while !done.get() {
            writer.step();
            assert_eq!(count(), before, "a thread was started");
            tokio::task::yield_now().await;
        }
    };
    let (state, ()) = tokio::join!(work, pump);
    assert_eq!((state, count()), (State::Completed, before));
}

#[tokio::test]
async fn c12_of_a_backlog_the_oldest_goes_first() {
    let mut slow = settings();
    slow.burst = 1;
    slow.rate_per_second = 1.0;
    let mut world = World::new(slow).await;
    world.crm.with(|crm| crm.always = Some(Play::Away));
    for number in 0..10 {
        world.deliver(&format!("lead {number}")).await;
        world.pass(SECOND * 2, SECOND).await;
    }
    world.pass(SECOND * 1200, SECOND * 40).await;
    world.crm.with(|crm| crm.always = None);
    // Everything has fallen due by now; the rate lets one a second through.
    world.clock.advance(SECOND * 600);
    for number in 0..10 {
        let before = world.entities();
        while world.entities() == before {
            world.pass(SECOND, SECOND).await;
        }
        assert_eq!(world.operation(&format!("lead {number}")).await.state(), State::Completed, "lead {number} is next");
    }
}

#[tokio::test]
async fn c05_a_wait_that_is_cut_is_told() {
    let mut world = World::new(settings()).await;
    world.play(&[Play::Limit(99_999_999_999)]);
    world.deliver("x").await;
    world.step().await;
    let told = world.operation("x").await.last_error.unwrap_or_default();
    assert!(told.contains("99999999999 s, which is cut to 86400 s"), "{told}");
}

/// The world after its store was restored, just now.
fn with_gap(mut world: World) -> World {
    let gap = Gap { ended_at: world.now(), redelivery: Duration::from_secs(30 * 86_400) };
    let settings = world.engine.line(&name("crm")).expect("a destination").settings;
    world.engine = engine(&world.store, &world.clock, &world.crm, settings, "node-1").with_gap(Some(gap));
    world.clock.advance(SECOND);
    world
}

#[tokio::test]
async fn after_a_gap_a_create_waits_for_settle_and_an_empty_look_up() {
    let mut world = with_gap(World::new(settings()).await);
    world.deliver("new").await;
    world.step().await;
    world.pass(SETTLE - SECOND * 10, SECOND * 5).await;
    assert_eq!((world.creates(), world.operation("new").await.state()), (0, State::InProgress));
    world.pass(SECOND * 60, SECOND * 5).await;
    assert_eq!((world.creates(), world.entities()), (1, 1));
    assert_eq!(world.operation("new").await.state(), State::Completed);
    // Once settle has passed since the gap, others need not wait for it again.
    world.deliver("later").await;
    world.pass(SECOND * 10, SECOND).await;
    assert_eq!(world.operation("later").await.state(), State::Completed);
    world.pass(Duration::from_secs(31 * 86_400), Duration::from_secs(86_400)).await;
    let lookups = world.operation("later").await.lookups;
    world.deliver("a month later").await;
    world.step().await;
    let operation = world.operation("a month later").await;
    assert_eq!((operation.state(), operation.lookups, lookups), (State::Completed, 0, 1));
}

#[tokio::test]
async fn after_a_gap_an_untrusted_look_up_leaves_it_to_a_person() {
    let mut untrusted = settings();
    untrusted.lookup.trusted = false;
    let mut world = with_gap(World::new(untrusted).await);
    world.deliver("new").await;
    world.pass(SETTLE + SECOND * 60, SECOND * 5).await;
    let operation = world.operation("new").await;
    assert_eq!((world.creates(), operation.status.reason()), (0, Some("uncertain_outcome")));
}

#[tokio::test]
async fn after_a_gap_a_persons_retry_of_an_old_case_is_looked_up_too() {
    let mut world = World::new(settings()).await;
    world.play(&[Play::Invalid]);
    world.deliver("old").await;
    world.step().await;
    let failed = world.operation("old").await;
    assert_eq!(failed.state(), State::FailedTerminal);
    // In the gap a person had it sent again, and it was made: the backup does not know.
    world.crm.with(|crm| crm.entities.push(failed.crm_key().to_string()));
    let world = with_gap(world);
    let retry = Event::Retry { settle: SETTLE };
    let Ok(Change::To(after)) = apply(&failed, &retry, world.now()) else { panic!("a retry is possible") };
    let update = Update {
        before: failed,
        after: *after,
        event: "retried",
        attempt: None,
        step_done: None,
        audit: None,
        lead: None,
        while_active: None,
    };
    world.store.update(update).await.expect("updated");
    world.pass(SECOND * 10, SECOND).await;
    assert_eq!((world.creates(), world.entities()), (1, 1), "the create of before the gap, and no other");
    assert_eq!(world.operation("old").await.state(), State::Completed);
}

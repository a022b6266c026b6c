//! One rate for all nodes: real processes on one PostgreSQL keep the limit of one CRM account together.

#[path = "support/gateway.rs"]
mod gateway;
#[path = "support/nodes.rs"]
mod nodes;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/wall_clock.rs"]
mod wall_clock;

use std::time::Duration;

use futures_util::StreamExt;
use gateway::{PATIENCE, Setup, lead, now};
use leadonce::clock::At;
use leadonce::sandbox::{Limit, World};
use nodes::Nodes;
use serde_json::json;

/// The limit of the tests' account, in calls a second.
const LIMIT: usize = 7;
const MINUTE: Duration = Duration::from_secs(60);

fn limited(per_second: usize) -> Setup {
    let destination = format!(
        "timeout = \"2s\"\nlease = \"4s\"\nconcurrency = 8\nrate = {{ per_second = {per_second}, burst = 1 }}\n"
    );
    Setup { destination, ..Setup::default() }
}

/// So many leads, over all nodes; those whose node does not answer go to the next.
async fn deliver(nodes: &Nodes, count: usize) {
    let leads = futures_util::stream::iter(0..count).map(|number| async move {
        let key = format!("k{number}");
        let answer = nodes.deliver(&nodes.url(number % 3), &key, &lead(&key), 0).await.expect("an answer");
        assert!(matches!(answer.status, 200 | 202), "{answer:?}");
    });
    leads.buffer_unordered(20).collect::<Vec<()>>().await;
}

fn times(crm: &World) -> Vec<At> {
    crm.calls().iter().map(|call| call.at).collect()
}

/// The most calls that any second held.
fn most_in_a_second(times: &[At]) -> usize {
    let within = |from: &At| times.iter().filter(|at| *at >= from && **at < from.plus(Duration::from_secs(1))).count();
    times.iter().map(within).max().unwrap_or(0)
}

/// How many calls there were in that time.
fn within(times: &[At], from: At, to: At) -> usize {
    times.iter().filter(|at| **at >= from && **at < to).count()
}

async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c27_three_nodes_keep_one_limit_and_use_it_and_a_dead_nodes_share_moves() {
    let Some(mut nodes) = Nodes::start_for(&[0; 3], limited(LIMIT), "").await else { return };
    let crm = nodes.sandbox.world().clone();
    crm.set_limit(Some(Limit::new(LIMIT, 10, MINUTE)));
    deliver(&nodes, 500).await;
    let used = |from: At, seconds: u64| {
        let calls = within(&times(&crm), from, from.plus(Duration::from_secs(seconds)));
        let budget = LIMIT * usize::try_from(seconds).expect("few");
        assert!(calls * 10 >= budget * 9, "{calls} of {budget} calls in {seconds} s");
    };
    let begun = times(&crm)[0];
    let reached = |moment: At| move |crm: &World| crm.calls().last().is_some_and(|call| call.at >= moment);
    // All three have found their shares by then.
    let settled = begun.plus(Duration::from_secs(5));
    nodes.crm(reached(settled.plus(Duration::from_secs(15)))).await;
    used(settled, 15);
    nodes.kill(0);
    let killed = times(&crm).last().copied().expect("calls");
    // Its leases end within fifteen seconds; the others have found them three seconds later.
    let moved = killed.plus(Duration::from_secs(18));
    nodes.crm(reached(moved.plus(Duration::from_secs(12)))).await;
    used(moved, 12);
    let begun = now();
    while nodes.entities() < 500 {
        assert!(begun.elapsed() < PATIENCE, "{} entities", nodes.entities());
        pause(Duration::from_millis(100)).await;
    }
    let times = times(&crm);
    assert!(most_in_a_second(&times) <= LIMIT, "{}", most_in_a_second(&times));
    assert!(crm.calls().iter().all(|call| call.fault.is_none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c39_after_an_outage_three_nodes_send_one_probe_and_then_a_ramp() {
    const LIMIT: usize = 20;
    let mut setup = limited(LIMIT);
    // The longest wait for a probe.
    setup.destination_tables =
        setup.destination_tables.replace("[destination.retry]\n", "[destination.retry]\nmax_interval = \"4s\"\n");
    let Some(nodes) = Nodes::start_for(&[0; 3], setup, "").await else { return };
    let crm = nodes.sandbox.world().clone();
    crm.set_limit(Some(Limit::new(LIMIT, 10, MINUTE)));
    nodes.faults(json!([{"call": "any", "kind": "status_without_commit", "status": 503, "times": 1_000_000}]));
    deliver(&nodes, 300).await;
    let calls_until = |count: usize| move |crm: &World| crm.calls().len() >= count;
    nodes.crm(calls_until(5)).await;
    // Each node needs a few failures of its own to see it.
    pause(Duration::from_secs(4)).await;
    let before = crm.calls().len();
    pause(Duration::from_secs(10)).await;
    let during = crm.calls().len() - before;
    assert!((1..=20).contains(&during), "{during} calls in ten seconds of an outage");

    crm.clear_faults();
    let (begun, before) = (now(), crm.calls().len());
    while nodes.entities() < 300 {
        assert!(begun.elapsed() < 2 * PATIENCE, "{} entities", nodes.entities());
        pause(Duration::from_millis(100)).await;
    }
    let times = times(&crm).split_off(before);
    let first = times[0];
    let seconds =
        |from: u64, to: u64| within(&times, first.plus(Duration::from_secs(from)), first.plus(Duration::from_secs(to)));
    let each: Vec<usize> = (0..10).map(|second| seconds(second, second + 1)).collect();
    assert!(seconds(0, 2) <= 14, "{each:?}");
    assert!(seconds(7, 10) >= 45, "{each:?}");
    assert!(most_in_a_second(&times) <= LIMIT, "{}", most_in_a_second(&times));
    let refused = crm
        .calls()
        .iter()
        .filter(|call| call.fault == Some("throttled") || call.fault == Some("access_denied"))
        .count();
    assert_eq!(refused, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_one_node_met_stops_all_nodes_as_long_as_told() {
    let Some(nodes) = Nodes::start_for(&[0; 3], limited(20), "").await else { return };
    deliver(&nodes, 20).await;
    nodes.crm(|crm| crm.creates() >= 10).await;
    nodes.faults(json!([{"call": "create", "kind": "throttled", "retry_after": "4"}]));
    deliver(&nodes, 60).await;
    // All of them, and the one that was refused once more. An exact number of calls could be missed: more follow at once.
    nodes.crm(|crm| crm.entities().len() >= 60).await;
    let calls = nodes.sandbox.world().calls();
    let told = calls.iter().find(|call| call.fault == Some("throttled")).expect("a limit was told").at;
    // What was taken already may still leave.
    let after = told.plus(Duration::from_millis(700));
    let meanwhile = within(&times(nodes.sandbox.world()), after, told.plus(Duration::from_secs(4)));
    assert_eq!((meanwhile, nodes.entities(), nodes.sandbox.world().creates()), (0, 60, 61));
}

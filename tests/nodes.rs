//! Several nodes on one PostgreSQL keep one promise: real processes, killed, stopped and restarted at the worst moments.

#[path = "support/alerts.rs"]
mod alerts;
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

use std::collections::BTreeSet;
use std::time::Duration;

use diesel::{QueryableByName, RunQueryDsl};
use futures_util::future::join_all;
use gateway::lead;
use nodes::Nodes;
use proxy::{Proxy, Way};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c04_c63_two_hundred_parallel_deliveries_of_a_key_over_three_nodes_are_one_operation() {
    let Some(nodes) = Nodes::start(3).await else { return };
    nodes.faults(json!([{"call": "create", "kind": "delay", "ms": 1000}]));
    let sent = (0..200).map(|number| nodes.deliver(&nodes.url(number % 3), "c04", &lead("Anna"), 0));
    let answers: Vec<_> = join_all(sent).await.into_iter().map(|answer| answer.expect("an answer")).collect();
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 202)), "{answers:?}");
    let ids: BTreeSet<_> = answers.iter().map(|answer| answer.body["operation_id"].as_str()).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    let done = nodes.in_state(0, "c04", "completed").await;
    assert_eq!((nodes.entities(), nodes.sandbox.world().creates()), (1, 1));
    for place in 0..3 {
        let replay = nodes.deliver(&nodes.url(place), "c04", &lead("Anna"), 0).await.expect("an answer");
        assert_eq!((replay.status, replay.header("idempotent-replayed")), (200, "true"));
        assert_eq!((&replay.body["crm_id"], &replay.body["operation_id"]), (&done["crm_id"], &done["operation_id"]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_that_waits_is_told_whichever_node_finishes() {
    let Some(nodes) = Nodes::start(3).await else { return };
    nodes.faults(json!([{"call": "create", "kind": "delay", "ms": 1000}]));
    // One call of the CRM, so at least two of the three nodes wait for another.
    let sent = (0..3).map(|place| nodes.deliver(&nodes.url(place), "k", &lead("Anna"), 10));
    for answer in join_all(sent).await {
        let answer = answer.expect("an answer");
        assert_eq!((answer.status / 100, &answer.body["status"]), (2, &json!("completed")), "{answer:?}");
        assert!(!answer.body["crm_id"].is_null(), "{answer:?}");
    }
    assert_eq!(nodes.entities(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_at_another_node_is_told_at_once() {
    let Some(nodes) = Nodes::start(3).await else { return };
    // Who waits asks the store each half second, counted from its request: here four tenths after the end.
    nodes.faults(json!([{"call": "create", "kind": "delay", "ms": 600, "times": 100}]));
    let mut later = Vec::new();
    for round in 0..5 {
        let key = format!("k{round}");
        let sent = (0..3).map(|place| {
            let answer = nodes.deliver(&nodes.url(place), &key, &lead("Anna"), 10);
            async {
                assert_eq!(answer.await.expect("an answer").body["status"], "completed");
                gateway::now()
            }
        });
        let ends = join_all(sent).await;
        let (first, last) = (ends.iter().min().expect("three"), ends.iter().max().expect("three"));
        later.push(last.duration_since(*first));
    }
    // The best of several: a machine that is busy makes some of them late.
    assert!(later.iter().min() < Some(&Duration::from_millis(200)), "{later:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c30_what_a_killed_node_had_sent_is_looked_up_by_another() {
    let Some(mut nodes) = Nodes::start(3).await else { return };
    // The others sleep, so it is certain who calls.
    nodes.signal(1, "STOP");
    nodes.signal(2, "STOP");
    nodes.faults(json!([{"call": "create", "kind": "delay", "ms": 1000}]));
    nodes.deliver(&nodes.url(0), "c30", &lead("Anna"), 0).await.expect("an answer");
    nodes.crm(|crm| crm.creates() == 1 || !crm.calls().is_empty()).await;
    nodes.kill(0);
    nodes.signal(1, "CONT");
    nodes.signal(2, "CONT");
    let done = nodes.in_state(1, "c30", "completed").await;
    assert_eq!((nodes.entities(), nodes.sandbox.world().creates()), (1, 1));
    assert_eq!(done["crm_id"], nodes.sandbox.world().entities()[0].id.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c30_a_node_killed_in_the_midst_of_answers_leaves_nothing_twice_and_nothing_behind() {
    let Some(mut nodes) = Nodes::start(3).await else { return };
    // So slow a CRM that the node dies with calls under way.
    nodes.faults(json!([{"call": "create", "kind": "delay", "ms": 150, "times": 1000}]));
    let keys: Vec<String> = (0..60).map(|number| format!("k{number}")).collect();
    let sent = keys.iter().enumerate().map(|(place, key)| nodes.deliver(&nodes.url(place % 3), key, &lead(key), 0));
    for answer in join_all(sent).await {
        assert!(matches!(answer.expect("an answer").status, 200 | 202));
    }
    nodes.crm(|crm| crm.creates() >= 10).await;
    nodes.kill(0);
    for key in &keys {
        nodes.in_state(1, key, "completed").await;
    }
    assert_eq!(nodes.entities(), keys.len());
}

/// A node whose call the CRM has answered, and whose commit of that answer cannot reach the store; the two others sleep.
async fn answered_and_not_committed(nodes: &mut Nodes, key: &str) -> Proxy {
    let proxy = nodes.behind_proxy(0);
    nodes.signal(1, "STOP");
    nodes.signal(2, "STOP");
    nodes.faults(json!([{"call": "create", "kind": "delay", "ms": 1000}]));
    nodes.deliver(&nodes.url(0), key, &lead("Anna"), 0).await.expect("an answer");
    nodes.crm(|crm| !crm.calls().is_empty()).await;
    proxy.set(Way::Held);
    nodes.crm(|crm| crm.calls().iter().any(|call| call.status == Some(200))).await;
    proxy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c30_a_node_killed_between_the_answer_and_its_commit_is_followed_by_a_look_up() {
    let Some(mut nodes) = Nodes::start(3).await else { return };
    let _proxy = answered_and_not_committed(&mut nodes, "c30").await;
    nodes.kill(0);
    nodes.signal(1, "CONT");
    nodes.signal(2, "CONT");
    let done = nodes.in_state(1, "c30", "completed").await;
    assert_eq!((nodes.entities(), nodes.sandbox.world().creates()), (1, 1));
    assert_eq!(done["crm_id"], nodes.sandbox.world().entities()[0].id.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c85_a_node_stopped_between_the_answer_and_its_commit_changes_nothing_when_it_goes_on() {
    let Some(mut nodes) = Nodes::start(3).await else { return };
    let proxy = answered_and_not_committed(&mut nodes, "c85").await;
    nodes.signal(0, "STOP");
    nodes.signal(1, "CONT");
    nodes.signal(2, "CONT");
    let done = nodes.in_state(1, "c85", "completed").await;
    proxy.set(Way::Open);
    nodes.signal(0, "CONT");
    let fresh = nodes.deliver(&nodes.url(0), "fresh", &lead("Boris"), 10).await.expect("an answer");
    assert_eq!(fresh.body["status"], "completed", "{fresh:?}");
    let after = nodes.in_state(0, "c85", "completed").await;
    assert_eq!((&after["crm_id"], nodes.entities()), (&done["crm_id"], 2));
    assert_eq!(nodes.sandbox.world().creates(), 2);
}

#[derive(QueryableByName)]
struct Phase {
    #[diesel(sql_type = diesel::sql_types::Nullable<diesel::sql_types::Text>)]
    phase: Option<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_killed_between_claim_and_attempt_is_replaced_without_a_look_up() {
    let Some(mut nodes) = Nodes::start(3).await else { return };
    let proxy = nodes.behind_proxy(0);
    nodes.signal(1, "STOP");
    nodes.signal(2, "STOP");
    proxy.slow_commits(Duration::from_millis(400));
    let mut store = nodes.store();
    let accepted = nodes.deliver(&nodes.url(0), "claimed", &lead("Anna"), 0).await.expect("an answer");
    assert_eq!(accepted.status, 202);
    let begun = gateway::now();
    loop {
        let phases: Vec<Phase> = diesel::sql_query("SELECT phase FROM operations").load(&mut store).expect("read");
        match phases[0].phase.as_deref() {
            Some("claimed") => break,
            phase => assert!(begun.elapsed() < gateway::PATIENCE && phase.is_none(), "{phase:?}"),
        }
    }
    proxy.set(Way::Held);
    nodes.kill(0);
    nodes.signal(1, "CONT");
    nodes.signal(2, "CONT");
    let done = nodes.in_state(1, "claimed", "completed").await;
    let calls = nodes.sandbox.world().calls();
    assert_eq!((nodes.entities(), calls.len(), &done["attempts"]), (1, 1, &json!(1)), "{calls:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c63_the_locks_of_a_machine_that_is_gone_stand_in_nobodys_way_for_long() {
    let Some(mut nodes) = Nodes::start(2).await else { return };
    let proxy = nodes.behind_proxy(0);
    proxy.slow_commits(Duration::from_secs(1));
    let (mut store, begun) = (nodes.store(), gateway::now());
    let lost = tokio::spawn(nodes.deliver(&nodes.url(0), "gone", &lead("Anna"), 0));
    let open = "SELECT mode AS phase FROM pg_locks JOIN pg_stat_activity USING (pid)
                WHERE state = 'idle in transaction' AND mode = 'RowExclusiveLock' AND relation = 'deliveries'::regclass";
    while diesel::sql_query(open).load::<Phase>(&mut store).expect("read").is_empty() {
        assert!(begun.elapsed() < gateway::PATIENCE, "no transaction is open\n{}", nodes.log());
    }
    // Power and network are gone at once: the server hears nothing of it.
    proxy.set(Way::Held);
    nodes.kill(0);
    let promised = lost.await.expect("no panic").is_ok_and(|answer| answer.status < 300);
    assert!(!promised, "a promise without a commit");
    let begun = gateway::now();
    while nodes.deliver(&nodes.url(1), "gone", &lead("Anna"), 0).await.expect("an answer").status != 202 {
        assert!(begun.elapsed() < gateway::PATIENCE, "it was never taken\n{}", nodes.log());
    }
    nodes.in_state(1, "gone", "completed").await;
    assert_eq!(nodes.entities(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c63_who_loses_to_a_claim_that_is_not_committed_yet_waits_for_it_whatever_the_isolation() {
    for isolation in ["read committed", "repeatable read"] {
        let Some(mut nodes) = Nodes::start(2).await else { return };
        let set = format!("ALTER DATABASE {} SET default_transaction_isolation = '{isolation}'", nodes.database());
        diesel::sql_query(set).execute(&mut nodes.store()).expect("set");
        nodes.kill(1);
        nodes.run(1);
        let proxy = nodes.behind_proxy(0);
        proxy.slow_commits(Duration::from_millis(500));
        let (mut store, begun) = (nodes.store(), gateway::now());
        let first = tokio::spawn(nodes.deliver(&nodes.url(0), "c63", &lead("Anna"), 0));
        // All is written, and on its way is only the commit.
        let open = "SELECT mode AS phase FROM pg_locks JOIN pg_stat_activity USING (pid)
                    WHERE state = 'idle in transaction' AND mode = 'RowExclusiveLock' AND relation = 'deliveries'::regclass";
        while diesel::sql_query(open).load::<Phase>(&mut store).expect("read").is_empty() {
            assert!(begun.elapsed() < gateway::PATIENCE, "no transaction is open\n{}", nodes.log());
        }
        let others = join_all((0..20).map(|_| nodes.deliver(&nodes.url(1), "c63", &lead("Anna"), 0))).await;
        let first = first.await.expect("no panic");
        let first = first.expect("an answer");
        assert_eq!(first.status, 202, "{first:?}");
        for other in others {
            let other = other.expect("an answer");
            assert!(matches!(other.status, 200 | 202), "{other:?}");
            assert_eq!(other.body["operation_id"], first.body["operation_id"]);
        }
        nodes.in_state(1, "c63", "completed").await;
        assert_eq!((nodes.entities(), nodes.sandbox.world().creates()), (1, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c85_a_node_that_is_stopped_beyond_its_lease_makes_no_second_entity() {
    let Some(nodes) = Nodes::start(3).await else { return };
    nodes.signal(1, "STOP");
    nodes.signal(2, "STOP");
    nodes.faults(json!([{"call": "create", "kind": "delay", "ms": 500}]));
    nodes.deliver(&nodes.url(0), "c85", &lead("Anna"), 0).await.expect("an answer");
    nodes.crm(|crm| !crm.calls().is_empty()).await;
    nodes.signal(0, "STOP");
    nodes.signal(1, "CONT");
    nodes.signal(2, "CONT");
    let done = nodes.in_state(1, "c85", "completed").await;
    nodes.signal(0, "CONT");
    // It is back, and its late answer changes nothing.
    let fresh = nodes.deliver(&nodes.url(0), "fresh", &lead("Boris"), 10).await.expect("an answer");
    assert_eq!(fresh.body["status"], "completed", "{fresh:?}");
    let after = nodes.in_state(0, "c85", "completed").await;
    assert_eq!((&after["crm_id"], nodes.entities()), (&done["crm_id"], 2));
    assert_eq!(nodes.sandbox.world().creates(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c85_nodes_whose_clocks_differ_share_one_time_and_those_that_are_off_say_so() {
    // Lease and grace are nine seconds.
    let Some(nodes) = Nodes::start_ahead(&[0, 600, -600], "").await else { return };
    assert_eq!(nodes.until(0, "/readyz", |_| true).await.status, 200);
    for (place, side) in [(1, "s ahead of"), (2, "s behind")] {
        let told = nodes.until(place, "/readyz", |_| true).await;
        assert_eq!((told.status, &told.body["type"]), (503, &json!("urn:leadonce:problem:not-ready")), "{told:?}");
        assert!(told.text.contains(side), "{told:?}");
    }
    let metrics = nodes.until(1, "/metrics", |_| true).await.text;
    let offset = metrics.lines().find_map(|line| line.strip_prefix("leadonce_clock_offset_seconds ")).expect("told");
    assert!((offset.parse::<f64>().expect("a number") - 600.0).abs() < 5.0, "{offset}");

    nodes.faults(json!([{"call": "create", "kind": "delay", "ms": 1500, "times": 12}]));
    for number in 0..12 {
        let key = format!("k{number}");
        nodes.deliver(&nodes.url(number % 3), &key, &lead(&key), 0).await.expect("an answer");
    }
    nodes.crm(|crm| !crm.calls().is_empty()).await;
    nodes.set_ahead(0, 3_600);
    nodes.until(0, "/readyz", |answer| answer.status == 503).await;
    nodes.set_ahead(0, -3_600);
    for number in 0..12 {
        nodes.in_state(number % 3, &format!("k{number}"), "completed").await;
    }
    assert_eq!((nodes.entities(), nodes.sandbox.world().creates()), (12, 12));
    assert_eq!(nodes.sandbox.world().calls().len(), 12, "nobody took what another was at, so nothing was looked up");
    nodes.set_ahead(0, 0);
    nodes.until(0, "/readyz", |answer| answer.status == 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_loses_nothing_and_doubles_nothing() {
    let Some(mut nodes) = Nodes::start(3).await else { return };
    let mut keys = Vec::new();
    for place in 0..3 {
        nodes.signal(place, "TERM");
        // Senders go on, and come again under the same key at another node where theirs does not answer.
        for number in 0..40 {
            let key = format!("r{place}-{number}");
            let mut accepted = false;
            for try_at in 0..3 {
                let url = nodes.url((place + number + try_at) % 3);
                let answer = nodes.deliver(&url, &key, &lead(&key), 0).await;
                accepted |= answer.is_ok_and(|answer| matches!(answer.status, 200 | 202));
                if accepted {
                    break;
                }
            }
            assert!(accepted, "{key} found no node");
            keys.push(key);
        }
        assert!(nodes.ended(place).await, "a node did not end well");
        nodes.run(place);
    }
    for key in &keys {
        nodes.in_state(2, key, "completed").await;
    }
    assert_eq!(nodes.entities(), keys.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_that_see_one_incident_tell_it_once() {
    // So slow a receiver that the others look while one is telling.
    let (url, told) = alerts::receiver(Vec::new(), Duration::from_secs(3)).await;
    let more = format!("[alerts]\nwebhook_url = \"{url}\"\nwebhook_secret = \"{}\"\n", alerts::ALERT_SECRET);
    let Some(nodes) = Nodes::start_with(3, &more).await else { return };
    nodes.faults(json!([{"call": "create", "times": 100, "kind": "access_denied"}]));
    nodes.deliver(&nodes.url(0), "k", &lead("Anna"), 0).await.expect("an answer");
    let count = |incident: &str| {
        let told = told.lock().expect("alerts");
        told.iter().filter(|alert| alert["type"] == "incident.start" && alert["data"]["incident"] == incident).count()
    };
    nodes.crm(|_| count("destination_suspended:crm") > 0).await;
    // A second incident is told when the first was taken: by then every node has looked again.
    let conflict = json!({"name": "Boris", "phone": "+79160000002"});
    nodes.deliver(&nodes.url(1), "k", &conflict, 0).await.expect("an answer");
    nodes.crm(|_| count("review_open:payload_conflict") > 0).await;
    assert_eq!(count("destination_suspended:crm"), 1);
}

//! Stories: a real gateway process and the sandbox CRM over real sockets, on SQLite and (where it is found) PostgreSQL.
//!
//! Field cases bear their number in the name.

#[path = "support/alerts.rs"]
mod alerts;
#[path = "support/gateway.rs"]
mod gateway;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/wall_clock.rs"]
mod wall_clock;

use alerts::{ALERT_SECRET, receiver};
use futures_util::future::join_all;
use gateway::{API, Answer, FORM, Gateway, Setup, lead};
use serde_json::{Value, json};

/// Runs a story on both stores.
macro_rules! on_both {
    ($name:ident, $story:path) => {
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                $story(None).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                if let Some(database) = super::postgres::database() {
                    $story(Some(database.url().to_owned())).await;
                }
            }
        }
    };
}

fn on(store: Option<String>) -> Setup {
    Setup { store, ..Setup::default() }
}

async fn delivered_twice(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    let first = gateway.deliver("k1", &lead("Anna"), 10).await;
    assert_eq!((first.status, &first.body["status"]), (201, &json!("completed")), "{first:?}");
    let second = gateway.deliver("k1", &lead("Anna"), 10).await;
    assert_eq!((second.status, second.header("idempotent-replayed")), (200, "true"));
    assert_eq!(second.body["crm_id"], first.body["crm_id"]);
    assert_eq!(second.body["operation_id"], first.body["operation_id"]);
    assert_eq!((gateway.entities(), gateway.creates()), (1, 1));
    gateway.end().await;
}
on_both!(one_webhook_delivered_twice_makes_one_entity, super::delivered_twice);

async fn impatient_sender(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    gateway.faults(json!([{"call": "create", "kind": "delay", "ms": 1200}]));
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let answer = gateway.deliver("c01", &lead("Anna"), 0).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        assert!(answer.header("location").contains("/v1/operations/"));
        ids.insert(answer.body["operation_id"].as_str().unwrap_or("").to_owned());
    }
    assert_eq!(ids.len(), 1);
    gateway.in_state("c01", "completed").await;
    assert_eq!(gateway.creates(), 1);
    gateway.end().await;
}
on_both!(c01_a_sender_that_gives_up_early_gets_one_operation, super::impatient_sender);

async fn answer_lost(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    gateway.faults(json!([{"call": "create", "kind": "commit_then_hang"}]));
    gateway.deliver("c02", &lead("Boris"), 0).await;
    let found = gateway.in_state("c02", "completed").await;
    assert_eq!(found["crm_id"], gateway.sandbox.world().entities()[0].id.to_string());
    assert_eq!(gateway.creates(), 1);
    gateway.end().await;
}
on_both!(c02_a_lost_answer_is_looked_up_never_repeated, super::answer_lost);

async fn look_up_fails_too(store: Option<String>) {
    let mut setup = on(store);
    setup.destination_tables =
        "[destination.lookup]\nfirst_after = \"100ms\"\nsettle = \"1s\"\ngive_up = \"2s\"\n".to_owned();
    let gateway = Gateway::start(setup).await;
    gateway
        .faults(json!([{"call": "create", "kind": "commit_then_cut"}, {"call": "lookup", "times": 100, "kind": "status_without_commit", "status": 502}]));
    gateway.deliver("k", &lead("Boris"), 0).await;
    let review = gateway.in_state("k", "needs_review").await;
    assert_eq!(review["reason"], "uncertain_outcome");
    assert_eq!(gateway.creates(), 1);
    gateway.end().await;
}
on_both!(c02_with_the_look_up_failing_too_a_person_decides, super::look_up_fails_too);

async fn double_click(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    let send = || {
        let request = gateway
            .client
            .post(format!("{}/v1/intake/site", gateway.url))
            .header("content-type", "application/x-www-form-urlencoded")
            .body("name=Anna&phone=%2B79160000001");
        Answer::of(request)
    };
    let answers = join_all((0..2).map(|_| send())).await;
    assert_eq!(answers[0].body["operation_id"], answers[1].body["operation_id"], "{answers:?}");
    let id = answers[0].body["operation_id"].as_str().unwrap_or("").to_owned();
    gateway.until_path(&format!("/v1/operations/{id}"), |o| o["status"] == "completed").await;
    assert_eq!(gateway.entities(), 1);
    gateway.end().await;
}
on_both!(c03_a_double_click_without_a_key_is_one_operation, super::double_click);

async fn same_key_at_once(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    gateway.faults(json!([{"call": "create", "kind": "delay", "ms": 500}]));
    let anna = lead("Anna");
    let answers = join_all((0..50).map(|_| gateway.deliver("c04", &anna, 0))).await;
    assert!(answers.iter().all(|answer| answer.status == 202), "{answers:?}");
    let first = &answers[0].body["operation_id"];
    assert!(answers.iter().all(|answer| &answer.body["operation_id"] == first));
    gateway.in_state("c04", "completed").await;
    assert_eq!(gateway.creates(), 1);
    gateway.end().await;
}
on_both!(c04_fifty_requests_with_one_key_make_one_operation, super::same_key_at_once);

async fn changed_content(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    let first = gateway.deliver("k", &lead("Anna"), 10).await;
    for _ in 0..2 {
        let changed = gateway.deliver("k", &lead("Anna Changed"), 0).await;
        assert_eq!(changed.status, 422, "{changed:?}");
        assert_eq!(changed.header("content-type"), "application/problem+json");
        assert!(changed.text.contains(first.body["operation_id"].as_str().unwrap_or("?")), "{}", changed.text);
    }
    let page = gateway.get("/v1/admin/operations?status=needs_review&reason=payload_conflict").await;
    assert_eq!(page.body["items"].as_array().map(Vec::len), Some(1), "{page:?}");
    let conflict = page.body["items"][0]["operation_id"].as_str().unwrap_or("").to_owned();
    // Nothing is created by itself; a person may forward it as a lead of its own, under a crm_key of its own.
    assert_eq!(gateway.entities(), 1);
    let retried = gateway.resolve(&conflict, &json!({"action": "retry"})).await;
    assert_eq!(retried.status, 200, "{retried:?}");
    gateway.until_path(&format!("/v1/operations/{conflict}"), |o| o["status"] == "completed").await;
    assert_eq!(gateway.entities(), 2);
    gateway.end().await;
}
on_both!(changed_content_under_one_key_waits_for_a_person, super::changed_content);

async fn not_stored_not_confirmed(store: Option<String>) {
    let mut gateway = Gateway::start(on(store)).await;
    for round in 0..10 {
        let key = format!("c15-{round}");
        let answer = gateway.deliver(&key, &lead("Anna"), 0).await;
        assert_eq!(answer.status, 202);
        gateway.kill();
        gateway.run();
        let found = gateway.get(&format!("/v1/operations?source=shop&key={key}")).await;
        assert_eq!((found.status, &found.body["operation_id"]), (200, &answer.body["operation_id"]));
    }
    for round in 0..10 {
        gateway.in_state(&format!("c15-{round}"), "completed").await;
    }
    assert_eq!(gateway.entities(), 10);
    gateway.end().await;
}
on_both!(c15_what_was_acknowledged_survives_kill_9, super::not_stored_not_confirmed);

async fn killed_during_create(store: Option<String>) {
    let mut gateway = Gateway::start(on(store)).await;
    gateway.faults(json!([{"call": "create", "kind": "commit_then_hang"}]));
    gateway.deliver("c17", &lead("Gleb"), 0).await;
    gateway.until("c17", |operation| operation["attempts"] == 1).await;
    while gateway.entities() == 0 {
        tokio::task::yield_now().await;
    }
    gateway.kill();
    gateway.run();
    let found = gateway.in_state("c17", "completed").await;
    assert_eq!(found["attempts"], 1);
    assert_eq!(gateway.creates(), 1);
    gateway.end().await;
}
on_both!(c17_c30_a_process_that_dies_during_a_create_looks_it_up, super::killed_during_create);

async fn graceful_stop(store: Option<String>) {
    let mut gateway = Gateway::start(on(store)).await;
    gateway.faults(json!([{"call": "create", "kind": "delay", "ms": 1000}]));
    gateway.deliver("stop", &lead("Gleb"), 0).await;
    gateway.until("stop", |operation| operation["status"] == "in_progress").await;
    assert!(gateway.terminate(), "{}", gateway.log());
    assert_eq!(gateway.entities(), 1);
    gateway.run();
    let done = gateway.in_state("stop", "completed").await;
    assert_eq!(done["attempts"], 1);
    assert_eq!(gateway.lookups(), 0, "the open call was not waited for");
    gateway.end().await;
}
on_both!(c17_sigterm_lets_an_open_call_end, super::graceful_stop);

async fn look_up_sees_it_late(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    gateway
        .faults(json!([{"call": "create", "kind": "commit_then_status", "status": 504}, {"call": "lookup", "kind": "lookup_blind", "seconds": 1}]));
    gateway.deliver("c19", &lead("Dina"), 0).await;
    gateway.in_state("c19", "completed").await;
    assert_eq!(gateway.creates(), 1);
    assert!(gateway.lookups() >= 2);
    gateway.end().await;
}
on_both!(c19_a_look_up_that_finds_nothing_at_first_proves_nothing, super::look_up_sees_it_late);

async fn never_executed(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    gateway.faults(json!([{"call": "create", "kind": "status_without_commit", "status": 502}]));
    gateway.deliver("k", &lead("Dina"), 0).await;
    // Only after the settle time an empty look-up is believed, and only then a second create is lawful.
    let done = gateway.in_state("k", "completed").await;
    assert_eq!(done["attempts"], 2);
    assert_eq!((gateway.entities(), gateway.creates()), (1, 2));
    gateway.end().await;
}
on_both!(c25_a_502_without_commit_is_sent_again_after_settle, super::never_executed);

async fn contact_and_deal(store: Option<String>) {
    let mut setup = on(store);
    setup.destination.push_str("entity = \"deal\"\n");
    let gateway = Gateway::start(setup).await;
    // The contact is made; the deal's create loses its answer. Only the deal is looked up.
    gateway
        .faults(json!([{"call": "create", "kind": "delay", "ms": 1}, {"call": "create", "kind": "commit_then_hang"}]));
    gateway.deliver("c21", &lead("Egor"), 0).await;
    gateway.in_state("c21", "completed").await;
    assert_eq!((gateway.entities(), gateway.creates()), (2, 2));
    // The deal cannot be reached: it alone is sent again.
    gateway.faults(json!([{"call": "create", "kind": "delay", "ms": 1}, {"call": "create", "kind": "limit_503"}]));
    gateway.deliver("c21b", &lead("Egor"), 0).await;
    gateway.in_state("c21b", "completed").await;
    assert_eq!((gateway.entities(), gateway.creates()), (4, 5));
    gateway.end().await;
}
on_both!(c21_of_two_steps_only_the_failed_one_is_repeated, super::contact_and_deal);

async fn sender_stays_switched_on(store: Option<String>) {
    let mut setup = on(store);
    setup.sources = API.to_owned() + FORM + "[[source]]\nname = \"tilda\"\nkind = \"tilda\"\ndestination = \"crm\"\n";
    let gateway = Gateway::start(setup).await;
    let send = |body: String| {
        let request = gateway
            .client
            .post(format!("{}/v1/intake/tilda", gateway.url))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        Answer::of(request)
    };
    gateway.faults(json!([{"call": "create", "kind": "access_denied"}]));
    for body in [
        "test=test",
        "Name=A&Phone=1&tranid=1:1",
        "Name=A&Phone=1&tranid=1:1",
        "Name=B&Phone=1&tranid=1:1",
        "Name=C&Phone=2&tranid=1:2",
        "neither a form nor JSON",
    ] {
        let answer = send(body.to_owned()).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, "ok"), "{body}");
    }
    gateway.until_path("/v1/admin/destinations", |body| body["items"][0]["state"] == "suspended").await;
    // It sends on, and all that it sends is made.
    for number in 0..10 {
        let answer = send(format!("Name=Good&Phone=3&tranid=2:{number}")).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, "ok"), "{number}");
    }
    assert_eq!(gateway.post("/v1/admin/destinations/crm/resume", &json!({})).await.status, 200);
    let completed = |body: &Value| body["items"].as_array().is_some_and(|items| items.len() == 12);
    gateway.until_path("/v1/admin/operations?status=completed&limit=100", completed).await;
    let open = gateway.get("/v1/admin/operations?status=needs_review&limit=100").await;
    let mut reasons: Vec<&str> =
        open.body["items"].as_array().into_iter().flatten().filter_map(|item| item["reason"].as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["payload_conflict", "unreadable"]);
    gateway.end().await;
}
on_both!(c22_business_problems_never_look_like_delivery_failures, super::sender_stays_switched_on);

async fn suspended_and_resumed(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    gateway.faults(json!([{"call": "create", "times": 100, "kind": "html_403"}]));
    for number in 0..5 {
        assert_eq!(gateway.deliver(&format!("c07-{number}"), &lead("Zoya"), 0).await.status, 202);
    }
    let suspended = |body: &Value| body["items"][0]["state"] == "suspended";
    gateway.until_path("/v1/admin/destinations", suspended).await;
    let waiting = |body: &Value| body["items"][0]["waiting"] == 5 && body["items"][0]["in_progress"] == 0;
    gateway.until_path("/v1/admin/destinations", waiting).await;
    let calls = gateway.creates();
    assert!((1..=4).contains(&calls), "no more calls than were open when it stopped: {calls}");
    gateway.sandbox.world().clear_faults();
    assert_eq!(gateway.post("/v1/admin/destinations/crm/resume", &json!({})).await.status, 200);
    for number in 0..5 {
        gateway.in_state(&format!("c07-{number}"), "completed").await;
    }
    assert_eq!(gateway.entities(), 5);
    gateway.end().await;
}
on_both!(c07_an_account_stop_holds_every_lead_and_resume_lets_them_go, super::suspended_and_resumed);

async fn moved_address(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    gateway.faults(json!([{"call": "create", "kind": "redirect", "to": "http://169.254.169.254/", "code": 308}]));
    gateway.deliver("c53", &lead("Zoya"), 0).await;
    gateway.until_path("/v1/admin/destinations", |body| body["items"][0]["state"] == "suspended").await;
    gateway.in_state("c53", "received").await;
    assert_eq!(gateway.entities(), 0);
    gateway.end().await;
}
on_both!(c53_a_redirect_is_not_followed_and_the_leads_wait, super::moved_address);

async fn throttled(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    gateway.faults(json!([
        {"call": "create", "kind": "throttled", "retry_after": "120junk"},
        {"call": "create", "kind": "throttled", "retry_after": "1"},
        {"call": "create", "kind": "limit_503"},
    ]));
    gateway.deliver("c05", &lead("Ivan"), 0).await;
    let done = gateway.in_state("c05", "completed").await;
    assert_eq!(done["attempts"], 4);
    assert_eq!((gateway.entities(), gateway.lookups()), (1, 0));
    gateway.end().await;
}
on_both!(c05_a_rate_limit_is_not_uncertain_and_is_waited_out, super::throttled);

async fn rejected(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    gateway.faults(json!([{"call": "create", "kind": "validation_error"}]));
    let refused = gateway.deliver("k", &lead("Kira"), 10).await;
    assert_eq!((refused.status, &refused.body["reason"]), (200, &json!("rejected")), "{refused:?}");
    assert!(refused.body["last_error"].as_str().is_some_and(|text| !text.is_empty()));
    assert_eq!(gateway.creates(), 1);
    // C46: replays say so until a person opens it again, then the result of the new run under the same id.
    let id = refused.body["operation_id"].as_str().unwrap_or("").to_owned();
    assert_eq!(gateway.deliver("k", &lead("Kira"), 0).await.body["status"], "failed_terminal");
    let edited = json!({"action": "retry", "lead": {"name": "Kira", "phones": [{"text": "+79160000002"}]}, "note": "number corrected"});
    assert_eq!(gateway.resolve(&id, &edited).await.status, 200);
    let done = gateway.in_state("k", "completed").await;
    assert_eq!(done["operation_id"].as_str(), Some(id.as_str()));
    gateway.end().await;
}
on_both!(c46_a_refused_lead_is_corrected_and_sent_again, super::rejected);

async fn two_operators(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    gateway.faults(json!([{"call": "create", "kind": "validation_error"}]));
    let refused = gateway.deliver("k", &lead("Kira"), 10).await;
    let id = refused.body["operation_id"].as_str().unwrap_or("").to_owned();
    let version = refused.body["version"].to_string();
    let retry = || {
        let request = gateway
            .client
            .post(format!("{}/v1/admin/operations/{id}/resolve", gateway.url))
            .bearer_auth(&gateway.token)
            .header("if-match", format!("\"{version}\""))
            .json(&json!({"action": "retry"}));
        Answer::of(request)
    };
    let answers = join_all((0..2).map(|_| retry())).await;
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412], "{answers:?}");
    gateway.in_state("k", "completed").await;
    assert_eq!(gateway.creates(), 2);
    gateway.end().await;
}
on_both!(two_operators_at_once_carry_out_one_decision, super::two_operators);

async fn merged_in_the_crm(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    let first = gateway.deliver("c58", &lead("Lena"), 10).await;
    gateway.sandbox.world().clear_entities();
    let replay = gateway.deliver("c58", &lead("Lena"), 10).await;
    assert_eq!((replay.status, &replay.body["crm_id"]), (200, &first.body["crm_id"]));
    assert_eq!(gateway.entities(), 0);
    gateway.end().await;
}
on_both!(c58_an_entity_deleted_in_the_crm_is_not_created_again, super::merged_in_the_crm);

async fn purged(store: Option<String>) {
    let mut setup = on(store);
    setup.more = "[retention]\npayload = \"1s\"\n".to_owned();
    let gateway = Gateway::start(setup).await;
    let first = gateway.deliver("c47", &lead("Maria"), 10).await;
    let id = first.body["operation_id"].as_str().unwrap_or("").to_owned();
    loop {
        assert!(gateway.command(&["purge"]).status.success());
        let story = gateway.get(&format!("/v1/admin/operations/{id}")).await;
        if story.body["lead"].is_null() {
            assert!(!story.text.contains("Maria"), "{}", story.text);
            break;
        }
    }
    let replay = gateway.deliver("c47", &lead("Maria"), 0).await;
    assert_eq!((replay.status, &replay.body["crm_id"]), (200, &first.body["crm_id"]));
    let changed = gateway.deliver("c47", &lead("Other"), 0).await;
    assert_eq!(changed.status, 422);
    assert!(!changed.text.contains("Maria"));
    gateway.end().await;
}
on_both!(c47_after_the_purge_the_tombstone_answers, super::purged);

async fn scopes(store: Option<String>) {
    let mut setup = on(store);
    setup.sources = API.to_owned()
        + "[[source]]\nname = \"other\"\nkind = \"api\"\ndestination = \"crm\"\ntoken = \"other-token\"\n";
    let gateway = Gateway::start(setup).await;
    let mine = gateway.deliver("1", &lead("Mine"), 10).await;
    let request = gateway
        .client
        .post(format!("{}/v1/intake/other", gateway.url))
        .bearer_auth("other-token")
        .header("idempotency-key", "1")
        .header("prefer", "wait=10")
        .json(&lead("Theirs"));
    let theirs = Answer::of(request).await;
    assert_eq!((mine.status, theirs.status), (201, 201));
    assert_ne!(mine.body["crm_id"], theirs.body["crm_id"]);
    // A source's token reads its own operations and no other's.
    let peek =
        gateway.client.get(format!("{}/v1/operations?source=shop&key=1", gateway.url)).bearer_auth("other-token");
    assert!([401, 403, 404].contains(&Answer::of(peek).await.status));
    gateway.end().await;
}
on_both!(c44_two_sources_never_share_a_key, super::scopes);

async fn poison(store: Option<String>) {
    let gateway = Gateway::start(on(store)).await;
    // A lead with NUL characters and odd types, and calls that fail at random among good leads.
    gateway.faults(json!([{"call": "create", "kind": "status_without_commit", "status": 500, "times": 3}]));
    let odd = json!({"name": "x\u{0}y", "phone": ["not", {"a": "phone"}]});
    assert_eq!(gateway.deliver("odd", &odd, 0).await.status, 202);
    let names: Vec<String> = (0..20).map(|number| format!("good-{number}")).collect();
    let good = lead("Good");
    join_all(names.iter().map(|name| gateway.deliver(name, &good, 0))).await;
    for name in names.iter().map(String::as_str).chain(["odd"]) {
        gateway.in_state(name, "completed").await;
    }
    assert_eq!(gateway.entities(), 21);
    gateway.end().await;
}
on_both!(c34_a_nul_is_borne_on_both_stores_and_no_lead_holds_up_another, super::poison);

async fn told_once(store: Option<String>) {
    let (url, alerts) = receiver(Vec::new(), std::time::Duration::ZERO).await;
    let mut setup = on(store);
    setup.more = format!("[alerts]\nwebhook_url = \"{url}\"\nwebhook_secret = \"{ALERT_SECRET}\"\n");
    let gateway = Gateway::start(setup).await;
    gateway.faults(json!([{"call": "create", "times": 100, "kind": "access_denied"}]));
    for number in 0..5 {
        gateway.deliver(&format!("a-{number}"), &lead("Anna"), 0).await;
    }
    let told = |phase: &str| {
        let alerts = alerts.lock().expect("alerts");
        let of = |alert: &&Value| {
            alert["type"] == format!("incident.{phase}") && alert["data"]["incident"] == "destination_suspended:crm"
        };
        alerts.iter().filter(of).count()
    };
    gateway.until_path("/v1/admin/destinations", |_| told("start") == 1).await;
    gateway.sandbox.world().clear_faults();
    assert_eq!(gateway.post("/v1/admin/destinations/crm/resume", &json!({})).await.status, 200);
    gateway.until_path("/v1/admin/destinations", |_| told("end") == 1).await;
    for number in 0..5 {
        gateway.in_state(&format!("a-{number}"), "completed").await;
    }
    assert_eq!((told("start"), told("end")), (1, 1));
    assert!(!format!("{alerts:?}").contains("Anna"), "personal data in an alert");
    gateway.end().await;
}
on_both!(an_incident_is_told_once_at_its_start_and_once_at_its_end, super::told_once);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_alert_channel_blocks_nothing() {
    // A port where nobody listens.
    let dead = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("an address");
    let more = format!("[alerts]\nwebhook_url = \"http://{dead}/\"\nwebhook_secret = \"{ALERT_SECRET}\"\n");
    let gateway = Gateway::start(Setup { more, ..Setup::default() }).await;
    gateway
        .faults(json!([{"call": "create", "kind": "validation_error"}, {"call": "create", "kind": "access_denied"}]));
    gateway.deliver("refused", &lead("Anna"), 10).await;
    gateway.deliver("denied", &lead("Anna"), 0).await;
    gateway.until_path("/v1/admin/destinations", |body| body["items"][0]["state"] == "suspended").await;
    assert_eq!(gateway.post("/v1/admin/destinations/crm/resume", &json!({})).await.status, 200);
    gateway.in_state("denied", "completed").await;
    let logged = gateway.log().matches("destination suspended; its leads wait").count();
    assert_eq!(logged, 1, "{}", gateway.log());
    gateway.end().await;
}

async fn unreadable(store: Option<String>) {
    let mut setup = on(store);
    setup.sources = API.to_owned()
        + "[[source]]\nname = \"bot\"\nkind = \"telegram\"\ndestination = \"crm\"\nsecret = \"bot-secret\"\n";
    let gateway = Gateway::start(setup).await;
    for _ in 0..3 {
        let request = gateway
            .client
            .post(format!("{}/v1/intake/bot", gateway.url))
            .header("x-telegram-bot-api-secret-token", "bot-secret")
            .header("content-type", "application/json")
            .body("{\"update_id\": ");
        let answer = Answer::of(request).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, ""));
    }
    let page = gateway.get("/v1/admin/operations?status=needs_review&reason=unreadable").await;
    assert_eq!(
        page.body["items"].as_array().map(Vec::len),
        Some(1),
        "one case, however often it is delivered: {page:?}"
    );
    gateway.end().await;
}
on_both!(an_unreadable_body_delivered_again_meets_its_case, super::unreadable);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_on_one_sqlite_file_is_refused() {
    let gateway = Gateway::start(Setup::default()).await;
    let second = gateway.command(&["serve"]);
    assert!(!second.status.success());
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(told.contains("another") || told.contains("in use"), "{told}");
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_operations_of_a_missing_source_stop_the_start_by_name() {
    let mut gateway = Gateway::start(Setup::default()).await;
    gateway.faults(json!([{"call": "create", "kind": "access_denied"}]));
    gateway.deliver("k", &lead("Anna"), 0).await;
    gateway.until_path("/v1/admin/destinations", |body| body["items"][0]["state"] == "suspended").await;
    assert!(gateway.terminate());
    let file = gateway.file("leadonce.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration").replace("\"shop\"", "\"renamed\"");
    std::fs::write(&file, text).expect("written");
    let refused = gateway.command(&["serve"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("shop"), "{told}");
}

async fn wall_clock_is_set(store: Option<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = wall_clock::WallClock::new(folder.path(), "clock");
    let gateway = Gateway::start(Setup { environment: clock.environment(), ..on(store) }).await;
    // An hour ahead while a call is open: its lease is not over.
    gateway.faults(json!([{"call": "create", "kind": "delay", "ms": 1500}]));
    gateway.deliver("open", &lead("Anna"), 0).await;
    gateway.until("open", |operation| operation["attempts"] == 1).await;
    clock.set(3_600);
    gateway.in_state("open", "completed").await;
    assert_eq!((gateway.creates(), gateway.lookups()), (1, 0));
    // An hour behind while a lead waits for its next attempt: it waits no longer for that.
    gateway.faults(json!([{"call": "create", "kind": "limit_503", "times": 3}]));
    gateway.deliver("waits", &lead("Boris"), 0).await;
    gateway.until("waits", |operation| operation["attempts"] == 1).await;
    clock.set(-3_600);
    gateway.in_state("waits", "completed").await;
    assert_eq!((gateway.entities(), gateway.lookups()), (2, 0));
    gateway.end().await;
}
on_both!(c85_a_wall_clock_that_is_set_takes_nothing_away_early_and_lets_nothing_wait, super::wall_clock_is_set);

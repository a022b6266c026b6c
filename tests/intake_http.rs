//! Deliveries over HTTP: contract 6.1, and the field cases of intake that this room decides.

mod http_room;

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use http_room::{Got, Room, SHOP_TOKEN, START, now, until};
use leadonce::http::Settings;
use leadonce::operation::State;
use leadonce::store::Role;

#[test]
fn a_new_event_is_stored_before_it_is_answered_and_the_answer_says_where_its_status_is() {
    let room = Room::open();
    let got = room.post("shop", "a1b2=Anna");
    assert_eq!(got.status, 202);
    let body = got.json();
    assert_eq!(body["source"], "shop");
    assert_eq!(body["source_key"], "a1b2");
    assert_eq!(body["status"], "received");
    assert_eq!(body["crm"], "bitrix");
    assert_eq!(body["version"], 1);
    assert_eq!(body["received_at"], START.rfc3339());
    let location = format!("https://leads.example/v1/operations/{}", got.id());
    assert_eq!(got.header("location"), Some(location.as_str()));
    assert_eq!(got.header("cache-control"), Some("no-store"));
    let operation = room.operation(&got.id()).expect("it is stored");
    assert_eq!(got.header("x-request-id"), Some(operation.delivery_id.to_string().as_str()));
}

#[test]
fn a_replay_gets_the_stored_result_and_makes_nothing_new() {
    let room = Room::open();
    let first = room.post("shop", "a1b2=Anna");
    let open = room.post("shop", "a1b2=Anna");
    assert_eq!((open.status, open.id(), open.header("idempotent-replayed")), (202, first.id(), None));
    room.complete(&first.id(), "4512");
    let done = room.post("shop", "a1b2=Anna");
    assert_eq!((done.status, done.id()), (200, first.id()));
    assert_eq!(done.header("idempotent-replayed"), Some("true"));
    assert_eq!(done.json()["crm_id"], "4512");
    assert_eq!(done.header("location"), None);
    assert_eq!(room.operations(), 1);
    assert_eq!(room.metric("leadonce_deliveries_total{source=\"shop\",verdict=\"replay\"}"), 2.0);
}

#[test]
fn changed_content_under_a_known_key_is_told_to_a_program_and_never_to_a_webhook() {
    let room = Room::open();
    let first = room.post("shop", "a1b2=Anna");
    let changed = room.post("shop", "a1b2=Boris");
    assert_eq!((changed.status, changed.problem().as_str()), (422, "payload-conflict"));
    assert_eq!(changed.id(), first.id());
    let review = changed.json()["review_operation_id"].as_str().expect("the review").to_owned();
    assert_eq!(room.operation(&review).expect("it is stored").status.reason(), Some("payload_conflict"));
    assert_eq!(room.operation(&first.id()).expect("it stands").state(), State::Received);
    for (source, status, body) in [("tilda", 200, "ok"), ("bot", 200, "")] {
        room.post(source, "1=Anna");
        let changed = room.post(source, "1=Boris");
        assert_eq!((changed.status, changed.body.as_str()), (status, body), "{source}");
    }
    room.post("hook", "1=Anna");
    let changed = room.post("hook", "1=Boris");
    assert_eq!((changed.status, changed.json()["reason"].as_str()), (200, Some("payload_conflict")));
}

#[test]
fn one_key_of_two_sources_is_two_operations() {
    let room = Room::open();
    assert_ne!(room.post("shop", "1=Anna").id(), room.post("hook", "1=Anna").id());
}

#[test]
fn fifty_requests_with_one_key_at_once_make_one_operation_and_no_error() {
    let room = Room::open();
    let got: Vec<Got> = std::thread::scope(|scope| {
        let sent: Vec<_> = (0..50).map(|_| scope.spawn(|| room.post("shop", "a1b2=Anna"))).collect();
        sent.into_iter().map(|one| one.join().expect("an answer")).collect()
    });
    let id = got[0].id();
    assert!(got.iter().all(|got| got.status == 202 && got.id() == id), "{got:?}");
    assert_eq!(room.operations(), 1);
}

#[test]
fn several_events_of_one_request_are_operations_of_their_own() {
    let room = Room::open();
    let got = room.post("hook", "1=Anna\n2=Boris");
    assert_eq!(got.status, 202);
    assert_eq!(got.json()["operations"].as_array().map(Vec::len), Some(2));
    assert_eq!(room.operations(), 2);
}

#[test]
fn the_answer_is_held_until_the_operation_is_finished_where_the_sender_asked_for_it() {
    let room = Room::open();
    let held = std::thread::scope(|scope| {
        let held = scope.spawn(|| room.post_with("shop", "a1b2=Anna", &[("prefer", "wait=10")]));
        until("the operation is there", || room.operations() == 1);
        let id = room.post("shop", "a1b2=Anna").id();
        room.complete(&id, "4512");
        held.join().expect("an answer")
    });
    assert_eq!((held.status, held.json()["crm_id"].as_str()), (201, Some("4512")));
    assert_eq!(held.header("idempotent-replayed"), None);
    let late = room.post_with("shop", "c3=Clara", &[("prefer", "wait=1")]);
    assert_eq!(late.status, 202, "the wait is over before the CRM answered");
}

#[test]
fn a_stranger_is_refused_and_counted_but_fills_no_log() {
    let room = Room::open();
    let got = room.post_with("shop", "a1b2=Anna", &[("authorization", "Bearer wrong")]);
    assert_eq!((got.status, got.problem().as_str()), (401, "unauthorized"));
    assert!(got.header("www-authenticate").is_some());
    let flood = "x".repeat(20_000);
    assert_eq!(room.post_with("shop", &flood, &[("authorization", "Bearer wrong")]).status, 413);
    assert_eq!((room.operations(), room.logged_alone()), (0, 0));
    assert_eq!(room.metric("leadonce_refused_total{cause=\"mismatch\",source=\"shop\"}"), 1.0);
}

#[test]
fn what_an_authenticated_sender_sent_is_kept_though_it_is_refused() {
    let room = Room::open();
    let bad = room.post("shop", "broken");
    assert_eq!((bad.status, bad.problem().as_str()), (400, "bad-request"));
    let large = room.post("shop", &"x".repeat(20_000));
    assert_eq!((large.status, large.problem().as_str()), (413, "body-too-large"));
    assert_eq!(room.logged_alone(), 2);
    assert_eq!(room.metric("leadonce_deliveries_total{source=\"shop\",verdict=\"rejected\"}"), 2.0);
    assert_eq!(room.post("shop", "a1b2=Anna").status, 202, "the corrected request is new: a refusal claims nothing");
}

#[test]
fn a_sender_that_writes_all_before_it_reads_finds_the_early_answer() {
    let room = Room::open();
    let large = "x".repeat(20_000_000);
    assert_eq!(room.post("shop", &large).status, 413);
    assert_eq!(room.post("nobody", &large).status, 404);
}

#[test]
fn an_authenticated_body_that_cannot_be_read_waits_for_a_person() {
    let room = Room::open();
    let got = room.post("hook", "broken");
    assert_eq!((got.status, got.json()["reason"].as_str()), (200, Some("unreadable")));
    assert_eq!(got.json()["source_key"], serde_json::Value::Null);
    assert_eq!(got.header("idempotent-replayed"), None);
    let tilda = room.post("tilda", "broken");
    assert_eq!((tilda.status, tilda.body.as_str()), (200, "ok"));
    assert_eq!(room.operations(), 2);
}

#[test]
fn an_event_older_than_our_memory_waits_for_a_person_only_where_its_key_is_unknown() {
    let room = Room::open();
    let old = START.micros() / 1_000_000 - 401 * 86_400;
    let got = room.post("hook", &format!("1=@{old} Anna"));
    assert_eq!(got.json()["reason"], "late_after_retention");
    let again = room.post("hook", &format!("1=@{old} Anna"));
    assert_eq!((again.status, again.id()), (200, got.id()));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
}

#[test]
fn without_a_key_the_same_content_is_the_same_submission_for_a_while() {
    let room = Room::open();
    let first = room.post("hook", "~=Anna");
    assert_eq!(room.post("hook", "~=Anna").id(), first.id());
    room.clock.advance(Duration::from_secs(121));
    assert_ne!(room.post("hook", "~=Anna").id(), first.id());
}

#[test]
fn c43_one_event_under_two_ids_is_made_once_and_a_person_decides_about_the_other() {
    let room = Room::open();
    let first = room.post("twins", "e1=Anna");
    room.clock.advance(Duration::from_secs(2));
    let copy = room.post("twins", "e2=Anna");
    assert_eq!((first.status, copy.status), (202, 200));
    assert_eq!(
        (copy.json()["status"].as_str(), copy.json()["reason"].as_str()),
        (Some("needs_review"), Some("likely_copy"))
    );
    assert_eq!(copy.header("idempotent-replayed"), None);
    assert!(copy.json()["last_error"].as_str().is_some_and(|told| told.contains(&first.id())));
    // Each of them delivered again is a replay of its own operation.
    let again = room.post("twins", "e2=Anna");
    assert_eq!((again.id(), again.header("idempotent-replayed")), (copy.id(), Some("true")));
    assert_eq!(room.post("twins", "e1=Anna").id(), first.id());
    room.complete(&first.id(), "4512");
    // Changed content is a conflict, and without a key the resubmit window decides, as ever.
    assert_eq!(room.post("twins", "e1=Boris").json()["reason"], "payload_conflict");
    assert_eq!(room.post("twins", "~=Anna").json()["reason"], serde_json::Value::Null);
    // A source that does not ask for it makes both.
    assert_eq!([room.post("hook", "e1=Anna").status, room.post("hook", "e2=Anna").status], [202, 202]);
    // Some time later the same content is a new enquiry.
    room.clock.advance(Duration::from_secs(120));
    assert_eq!(room.post("twins", "e3=Anna").status, 202);
    let token = format!("Bearer {}", room.token(Role::Operator));
    let path = format!("/v1/admin/operations/{}/resolve", copy.id());
    let decided =
        room.call("POST", &path, &[("authorization", &token), ("if-match", "\"1\"")], r#"{"action":"retry"}"#);
    assert_eq!((decided.status, decided.json()["status"].as_str()), (200, Some("received")));
    room.complete(&copy.id(), "4513");
}

#[test]
fn test_calls_and_ignored_events_are_answered_counted_and_never_a_lead() {
    let room = Room::open();
    assert_eq!(room.post("tilda", "test").body, "ok");
    assert_eq!(room.post("hook", "test").status, 200);
    assert_eq!(room.post("bot", "ignored").status, 200);
    assert_eq!((room.operations(), room.logged_alone()), (0, 3));
    assert_eq!(room.metric("leadonce_deliveries_total{source=\"tilda\",verdict=\"test\"}"), 1.0);
}

#[test]
fn a_robot_cannot_tell_that_it_was_caught() {
    let room = Room::open();
    let caught = room.post("site", "spam");
    let taken = room.post("site", "~=Anna");
    let shape = |got: &Got| {
        let mut names: Vec<String> = got.headers.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        let members: Vec<String> = got.json().as_object().expect("an object").keys().cloned().collect();
        (got.status, names, members, got.json()["status"].clone(), got.json()["version"].clone())
    };
    assert_eq!(shape(&caught), shape(&taken));
    assert_eq!(room.operations(), 1);
    assert_eq!(room.metric("leadonce_deliveries_total{source=\"site\",verdict=\"spam\"}"), 1.0);
}

#[test]
fn a_browser_is_thanked_and_a_script_gets_json() {
    let room = Room::open();
    let accept = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let sent = room.post_with("site", "1=Anna", &accept);
    assert_eq!((sent.status, sent.header("location")), (303, Some("https://example.com/thanks")));
    let page = room.post_with("plain-form", "1=<b>Anna", &accept);
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.body.contains("Thank you") && !page.body.contains("Anna"));
    assert_eq!(room.post("site", "2=Boris").status, 202);
    assert_eq!(room.post_with("hook", "1=Anna", &accept).status, 202, "no other sender is ever redirected");
}

#[test]
fn a_page_of_a_named_origin_may_send_and_read_every_answer() {
    let room = Room::open();
    let ask = |origin| {
        let headers = [("origin", origin), ("access-control-request-method", "POST")];
        room.call("OPTIONS", "/v1/intake/site", &headers, "")
    };
    let granted = ask("https://example.com");
    assert_eq!((granted.status, granted.header("access-control-allow-origin")), (204, Some("https://example.com")));
    assert!(granted.header("access-control-allow-headers").is_some_and(|names| names.contains("content-type")));
    let refused = ask("https://evil.test");
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (403, None));
    let origin = [("origin", "https://example.com")];
    for body in ["1=Anna".to_owned(), "x".repeat(20_000)] {
        let got = room.post_with("site", &body, &origin);
        assert_eq!(got.header("access-control-allow-origin"), Some("https://example.com"), "{}", got.status);
    }
    let plain = room.post_with("site", "3=Clara", &[("origin", "https://elsewhere.test")]);
    assert_eq!(
        (plain.status, plain.header("access-control-allow-origin")),
        (202, None),
        "a lead is never lost to CORS"
    );
    assert_eq!(room.call("OPTIONS", "/v1/intake/hook", &origin, "").status, 405);
}

#[test]
fn other_methods_and_other_addresses_are_refused_and_never_redirected() {
    let room = Room::open();
    for (method, path, status) in [
        ("GET", "/v1/intake/shop", 405),
        ("HEAD", "/v1/intake/shop", 405),
        ("PUT", "/v1/intake/shop", 405),
        ("POST", "/v1/intake/nobody", 404),
        ("POST", "/v1/intake/no%20name", 404),
        ("POST", "/v1/intake/shop/", 404),
        ("POST", "/v1/intake/", 404),
        ("POST", "//v1/intake/shop", 404),
        ("GET", "/", 404),
        ("POST", "/v1/operations", 405),
    ] {
        let got = room.call(method, path, &[], "");
        assert_eq!(got.status, status, "{method} {path}");
        assert!(got.header("x-request-id").is_some() && got.header("location").is_none(), "{method} {path}");
        if method != "HEAD" {
            got.problem();
        }
    }
    assert_eq!(room.call("GET", "/v1/intake/shop", &[], "").header("allow"), Some("POST"));
    assert_eq!(room.metric("leadonce_refused_total{cause=\"method_get\",source=\"shop\"}"), 3.0);
}

#[test]
fn half_a_body_is_not_a_lead() {
    let room = Room::open();
    let heads = ["content-length: 500\r\n\r\n1=Anna", "transfer-encoding: chunked\r\n\r\n6\r\n1=Anna\r\n"];
    for head in heads {
        let mut stream = room.connect();
        write!(stream, "POST /v1/intake/hook HTTP/1.1\r\nhost: test\r\n{head}").expect("sent");
        stream.shutdown(Shutdown::Write).expect("closed");
        let got = Got::read(&mut stream);
        assert!(!(200..300).contains(&got.status), "{got:?}");
    }
    until("both are counted", || room.metric("leadonce_refused_total{cause=\"incomplete\",source=\"hook\"}") == 2.0);
    assert_eq!((room.operations(), room.logged_alone()), (0, 0));
}

#[test]
fn two_lengths_in_one_request_are_refused() {
    let room = Room::open();
    let both = "POST /v1/intake/hook HTTP/1.1\r\nhost: test\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n\
                6\r\n1=Anna\r\n0\r\n\r\n";
    assert_eq!(room.raw(both.as_bytes()).status, 400);
    assert_eq!(room.operations(), 0);
}

#[test]
fn a_sender_that_never_ends_is_cut_off() {
    let settings = Settings { body_deadline: Duration::from_millis(100), ..Settings::default() };
    let mut room = Room::with_writer_paused(settings);
    room.write();
    let mut stream = room.connect();
    write!(stream, "POST /v1/intake/hook HTTP/1.1\r\nhost: test\r\ncontent-length: 50\r\n\r\n1=A").expect("sent");
    let got = Got::read(&mut stream);
    assert_eq!((got.status, got.problem().as_str()), (408, "slow-body"));
    assert_eq!(room.operations(), 0);
}

#[test]
fn a_sender_that_left_after_the_last_byte_has_sent_a_lead() {
    let room = Room::open();
    let mut stream = room.connect();
    write!(stream, "POST /v1/intake/hook HTTP/1.1\r\nhost: test\r\ncontent-length: 6\r\n\r\n1=Anna").expect("sent");
    drop(stream);
    until("it is stored", || room.operations() == 1);
    assert_eq!(room.post("hook", "1=Anna").status, 202);
    assert_eq!(room.operations(), 1);
}

#[test]
fn a_source_over_its_limit_is_told_when_to_come_again() {
    let room = Room::open();
    assert_eq!(room.post("slow", "1=Anna").status, 202);
    let over = room.post("slow", "2=Boris");
    assert_eq!(
        (over.status, over.problem().as_str(), over.header("retry-after")),
        (429, "too-many-deliveries", Some("10"))
    );
    room.clock.advance(Duration::from_secs(10));
    assert_eq!(room.post("slow", "2=Boris").status, 202);
}

#[test]
fn what_cannot_be_committed_is_not_confirmed_and_its_repetition_is_safe() {
    let settings = Settings { commit_deadline: Duration::from_millis(100), ..Settings::default() };
    let mut room = Room::with_writer_paused(settings);
    let refused = room.post("shop", "a1b2=Anna");
    assert_eq!((refused.status, refused.problem().as_str()), (503, "store-unavailable"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(room.call("GET", "/readyz", &[], "").status, 503);
    assert_eq!(room.call("GET", "/healthz", &[], "").status, 200);
    room.write();
    let id = room.post("shop", "a1b2=Anna").id();
    assert_eq!(room.post("shop", "a1b2=Anna").id(), id);
    assert_eq!(room.operations(), 1);
}

#[test]
fn the_status_is_shown_to_its_source_and_to_operators_and_to_nobody_else() {
    let room = Room::open();
    let own = room.post("shop", "a:1=Anna").id();
    let foreign = room.post("hook", "b2=Boris").id();
    let viewer = format!("Bearer {}", room.token(Role::Viewer));
    let shop = format!("Bearer {SHOP_TOKEN}");
    let (own_by_key, foreign_by_key) = ("/v1/operations?source=shop&key=a%3A1", "/v1/operations?source=hook&key=b2");
    let (own, foreign) = (format!("/v1/operations/{own}"), format!("/v1/operations/{foreign}"));
    for (path, token, status) in [
        (own.as_str(), shop.as_str(), 200),
        (own_by_key, &shop, 200),
        (&foreign, &shop, 404),
        (foreign_by_key, &shop, 404),
        (&own, &viewer, 200),
        (&foreign, &viewer, 200),
        (foreign_by_key, &viewer, 200),
        ("/v1/operations?source=hook&key=none", &viewer, 404),
        ("/v1/operations/not-an-id", &viewer, 404),
        (&own, "Bearer wrong", 401),
        (&own, "", 401),
        (own_by_key, "Basic c2hvcA==", 401),
    ] {
        let got = room.call("GET", path, &[("authorization", token)], "");
        assert_eq!(got.status, status, "{path} {token}");
    }
    let shown = room.call("GET", own_by_key, &[("authorization", &shop)], "");
    assert_eq!(shown.json(), room.post("shop", "a:1=Anna").json(), "one shape everywhere");
}

#[test]
fn c48_events_without_a_key_are_counted() {
    let room = Room::open();
    let counted = |room: &Room| {
        room.call("GET", "/metrics", &[], "").body.contains("leadonce_key_missing_total{source=\"shop\"} 3")
    };
    room.post("shop", "a1b2=Anna");
    room.post("shop", "~=Boris");
    room.post("shop", "*=Clara\na3=Dora");
    assert!(!counted(&room), "two so far");
    room.post("shop", "~=Boris");
    assert!(counted(&room), "a repetition came without a key too");
}

#[test]
fn monitoring_finds_its_addresses_and_pages_their_script() {
    let room = Room::open();
    room.post("shop", "a1b2=Anna");
    assert_eq!(room.call("GET", "/healthz", &[], "").status, 200);
    assert_eq!(room.call("HEAD", "/healthz", &[], "").status, 200);
    assert_eq!(room.call("GET", "/readyz", &[], "").status, 200);
    let metrics = room.call("GET", "/metrics", &[], "");
    assert!(metrics.body.contains("leadonce_deliveries_total{source=\"shop\",verdict=\"new\"} 1"));
    let script = room.call("GET", "/static/leadonce.js", &[], "");
    assert_eq!((script.status, script.header("content-encoding")), (200, None));
    assert!(script.body.contains("leadonce:") && script.body.len() < 4_000);
    let small = room.call("GET", "/static/leadonce.js", &[("accept-encoding", "gzip")], "");
    assert_eq!((small.status, small.header("content-encoding")), (200, Some("gzip")));
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(script.header("cache-control"), Some("public, max-age=3600"));
    let tag = script.header("etag").expect("a tag");
    assert_eq!(room.call("GET", "/static/leadonce.js", &[("if-none-match", tag)], "").status, 304);
}

#[test]
fn what_the_log_keeps_of_a_request_holds_no_secret() {
    let room = Room::open();
    let bearer = format!("Bearer {SHOP_TOKEN}");
    let headers = [("authorization", bearer.as_str()), ("cookie", "session=1"), ("content-type", "text/plain")];
    let got = room.call("POST", "/v1/intake/shop?key=query-secret", &headers, "a1b2=Anna");
    let story = now(room.store.story(got.id().parse().expect("an id"))).expect("the store answers").expect("a story");
    let delivery = &story.deliveries[0];
    assert_eq!(delivery.body.as_deref(), Some(b"a1b2=Anna".as_slice()));
    assert!(delivery.headers.contains(&("content-type".into(), "text/plain".into())));
    let kept = format!("{:?} {:?}", delivery.headers, delivery.note);
    assert!(!kept.contains(SHOP_TOKEN) && !kept.contains("session") && !kept.contains("query-secret"), "{kept}");
}

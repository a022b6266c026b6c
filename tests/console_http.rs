//! The console over HTTP: signing in, what protects a write, and what the admin API has for it.

mod http_room;

use std::time::Duration;

use http_room::{Got, Room, now};
use leadonce::store::Role;
use serde_json::{Value, json};

const PASSWORD: &str = "a few quiet words";

/// Who is signed in: the cookie and the token of writes.
struct Signed {
    cookie: String,
    csrf: String,
}

fn sign_in(room: &Room, credentials: &Value) -> Got {
    room.call("POST", "/console/session", &[], &credentials.to_string())
}

fn signed(got: &Got) -> Signed {
    assert_eq!(got.status, 200, "{got:?}");
    let cookie = got.header("set-cookie").expect("a cookie");
    Signed {
        cookie: cookie.split(';').next().expect("its value").to_owned(),
        csrf: got.json()["csrf"].as_str().expect("a token").to_owned(),
    }
}

fn by_token(room: &Room, role: Role) -> Signed {
    signed(&sign_in(room, &json!({"token": room.token(role)})))
}

impl Signed {
    fn get(&self, room: &Room, path: &str) -> Got {
        room.call("GET", path, &[("cookie", &self.cookie)], "")
    }

    fn post(&self, room: &Room, path: &str, body: &Value) -> Got {
        room.call("POST", path, &[("cookie", &self.cookie), ("x-csrf-token", &self.csrf)], &body.to_string())
    }
}

fn actions(room: &Room, admin: &Signed) -> Vec<String> {
    let page = admin.get(room, "/v1/admin/audit").json();
    let items = page["items"].as_array().expect("items").iter();
    items.map(|item| item["action"].as_str().expect("an action").to_owned()).collect()
}

#[test]
fn a_session_begins_with_a_token_and_ends_with_it() {
    let room = Room::open();
    let admin = format!("Bearer {}", room.token(Role::Admin));
    let got = sign_in(&room, &json!({"token": room.token(Role::Operator)}));
    let cookie = got.header("set-cookie").expect("a cookie");
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    let operator = signed(&got);
    let who = operator.get(&room, "/console/session").json();
    assert_eq!((&who["name"], &who["role"]), (&json!("operator"), &json!("operator")));
    assert_eq!(operator.get(&room, "/v1/admin/operations").status, 200);
    let revoked = room.call("POST", "/v1/admin/tokens/operator/revoke", &[("authorization", &admin)], "");
    assert_eq!(revoked.status, 204, "{revoked:?}");
    assert_eq!(operator.get(&room, "/v1/admin/operations").status, 401);
    assert_eq!(room.call("GET", "/console/session", &[("cookie", "leadonce_session=guessed")], "").status, 401);
}

#[test]
fn a_session_ends_when_it_is_idle_or_old_or_its_holder_says_so() {
    let room = Room::open();
    let token = room.token(Role::Operator);
    let begin = || signed(&sign_in(&room, &json!({ "token": token })));
    let (idle, used, background) = (begin(), begin(), begin());
    for _ in 0..11 {
        room.clock.advance(Duration::from_secs(59 * 60));
        assert_eq!(used.get(&room, "/v1/admin/operations").status, 200);
        // Noted by the writer, some time after the answer.
        http_room::until("the use is noted", || room.store_is_idle());
        let looks = [("cookie", background.cookie.as_str()), ("x-leadonce-background", "1")];
        room.call("GET", "/v1/admin/overview", &looks, "");
    }
    assert_eq!(idle.get(&room, "/v1/admin/operations").status, 401, "idle");
    assert_eq!(background.get(&room, "/v1/admin/operations").status, 401, "a page that looks again is nobody's use");
    room.clock.advance(Duration::from_secs(3 * 3_600 / 2));
    assert_eq!(used.get(&room, "/v1/admin/operations").status, 401, "older than twelve hours");

    let (here, there, elsewhere) = (begin(), begin(), begin());
    let out = here.post(&room, "/console/session/end", &json!({}));
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").is_some_and(|cookie| cookie.contains("Max-Age=0")), "{out:?}");
    assert_eq!(here.get(&room, "/console/session").status, 401);
    assert_eq!(there.get(&room, "/console/session").status, 200);
    assert_eq!(there.post(&room, "/console/session/end", &json!({"everywhere": true})).status, 204);
    assert_eq!(elsewhere.get(&room, "/console/session").status, 401);
}

#[test]
fn people_sign_in_with_a_password_and_are_shut_out_at_once() {
    let room = Room::open();
    let admin = by_token(&room, Role::Admin);
    let anna = json!({"name": "Anna", "role": "operator", "password": PASSWORD});
    assert_eq!(admin.post(&room, "/v1/admin/people", &anna).status, 201);
    assert_eq!(admin.post(&room, "/v1/admin/people", &anna).problem(), "name-taken");
    let short = json!({"name": "Boris", "role": "viewer", "password": "short"});
    assert_eq!(admin.post(&room, "/v1/admin/people", &short).problem(), "bad-request");
    let session = signed(&sign_in(&room, &json!({"name": "Anna", "password": PASSWORD})));
    assert_eq!(session.get(&room, "/console/session").json()["role"], "operator");
    assert_eq!(sign_in(&room, &json!({"name": "Anna", "password": "another few words"})).status, 401);
    assert_eq!(sign_in(&room, &json!({"name": "Nobody", "password": PASSWORD})).status, 401);

    let change = |body: Value| admin.post(&room, "/v1/admin/people/Anna", &body).status;
    assert_eq!(change(json!({"role": "viewer"})), 200);
    assert_eq!(session.get(&room, "/console/session").json()["role"], "viewer", "an open session has the new role");
    assert_eq!(session.post(&room, "/v1/admin/destinations/bitrix/suspend", &json!({})).status, 403);
    assert_eq!(change(json!({"password": "some other words"})), 200);
    assert_eq!(session.get(&room, "/console/session").status, 401, "a new password ends the sessions");
    let again = signed(&sign_in(&room, &json!({"name": "Anna", "password": "some other words"})));
    assert_eq!(change(json!({"disabled": true})), 200);
    assert_eq!(again.get(&room, "/console/session").status, 401);
    assert_eq!(sign_in(&room, &json!({"name": "Anna", "password": "some other words"})).status, 401);
    assert_eq!(change(json!({"disabled": false})), 200);
    assert_eq!(sign_in(&room, &json!({"name": "Anna", "password": "some other words"})).status, 200);
    assert_eq!(change(json!({})), 400);
    assert_eq!(admin.post(&room, "/v1/admin/people/Nobody", &json!({"disabled": true})).status, 404);
    let people = admin.get(&room, "/v1/admin/people");
    assert!(!people.body.contains("argon2"), "{people:?}");
    for action in [
        "person_create",
        "person_role",
        "person_password",
        "person_disable",
        "person_enable",
        "sign_in",
        "sign_in_failed",
    ] {
        assert!(actions(&room, &admin).iter().any(|done| done == action), "{action} is not in the audit log");
    }
}

#[test]
fn failed_sign_ins_are_slowed_down_and_audited() {
    let room = Room::open();
    let admin = by_token(&room, Role::Admin);
    let failed = |name: &str| sign_in(&room, &json!({"name": name, "password": "not the right one"}));
    for _ in 0..5 {
        assert_eq!(failed("Anna").status, 401);
    }
    let slowed = failed("Anna");
    assert_eq!((slowed.status, slowed.problem().as_str()), (429, "too-many-sign-ins"));
    assert!(slowed.header("retry-after").is_some());
    assert_eq!(failed("Boris").status, 429, "the address is slowed, too");
    room.clock.advance(Duration::from_secs(2));
    assert_eq!(failed("Anna").status, 401);
    let failures = actions(&room, &admin).into_iter().filter(|action| action == "sign_in_failed").count();
    assert_eq!(failures, 6);
}

#[test]
fn the_first_administrator_is_made_once_with_the_secret_that_was_printed() {
    let room = Room::open_for_the_first("the-secret");
    let first = |secret: &str, name: &str| {
        room.call(
            "POST",
            "/console/first",
            &[],
            &json!({"secret": secret, "name": name, "password": PASSWORD}).to_string(),
        )
    };
    assert_eq!(first("guessed", "Eve").status, 401);
    let anna = signed(&first("the-secret", "Anna"));
    assert_eq!(anna.get(&room, "/console/session").json()["role"], "admin");
    assert_eq!(first("the-secret", "Eve").status, 401, "the link works once");
    assert_eq!(first("the-secret", "Eve").status, 401);
}

#[test]
fn nobody_is_made_by_the_link_once_somebody_can_sign_in() {
    let room = Room::open_for_the_first("the-secret");
    room.token(Role::Viewer);
    let body = json!({"secret": "the-secret", "name": "Eve", "password": PASSWORD}).to_string();
    assert_eq!(room.call("POST", "/console/first", &[], &body).status, 401);
}

#[test]
fn c82_a_foreign_page_cannot_press_a_button() {
    let room = Room::open();
    let operator = by_token(&room, Role::Operator);
    let id = room.post("hook", "1=Anna").id();
    let cookie = operator.cookie.as_str();
    let reject = r#"{"action":"reject","note":"by a foreign page"}"#;
    let path = format!("/v1/admin/operations/{id}/resolve");
    let suspend = "/v1/admin/destinations/bitrix/suspend";
    for path in [path.as_str(), suspend] {
        for headers in [
            // An image, a form without a token, with an empty one, with another's.
            &[("cookie", cookie), ("if-match", "\"1\"")][..],
            &[("cookie", cookie), ("if-match", "\"1\""), ("x-csrf-token", "")],
            &[("cookie", cookie), ("if-match", "\"1\""), ("x-csrf-token", "0123")],
            &[("cookie", cookie), ("if-match", "\"1\""), ("content-type", "text/plain")],
            &[
                ("cookie", cookie),
                ("if-match", "\"1\""),
                ("x-csrf-token", &operator.csrf),
                ("origin", "https://evil.example"),
            ],
            &[
                ("cookie", cookie),
                ("if-match", "\"1\""),
                ("x-csrf-token", &operator.csrf),
                ("sec-fetch-site", "cross-site"),
            ],
        ] {
            let got = room.call("POST", path, headers, reject);
            assert_eq!((got.status, got.problem().as_str()), (403, "foreign-request"), "{headers:?}");
        }
        let got = room.call("GET", path, &[("cookie", cookie), ("x-csrf-token", &operator.csrf)], "");
        assert_eq!(got.status, 405, "nothing is changed by a GET");
    }
    assert_eq!(operator.get(&room, &format!("/v1/admin/operations/{id}")).json()["version"], 1);
    let signing = [("origin", "https://evil.example")];
    let token = json!({"token": room.token(Role::Viewer)}).to_string();
    assert_eq!(room.call("POST", "/console/session", &signing, &token).problem(), "foreign-request");
    // The same request from our own page is carried out.
    let own = [("cookie", cookie), ("if-match", "\"1\""), ("x-csrf-token", &operator.csrf), ("origin", "http://test")];
    assert_eq!(room.call("POST", &path, &own, reject).status, 200);
}

#[test]
fn the_pages_may_not_be_framed_and_run_nothing_that_is_not_ours() {
    let room = Room::open();
    for path in ["/console", "/console/", "/console/console.js", "/console/console.css"] {
        let got = room.call("GET", path, &[], "");
        assert_eq!(got.status, 200, "{path}");
        let policy = got.header("content-security-policy").expect("a policy");
        for rule in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(rule), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(got.header("x-frame-options"), Some("DENY"));
        assert_eq!(got.header("referrer-policy"), Some("no-referrer"));
    }
    let first = room.call("GET", "/console/console.js", &[], "");
    let tag = first.header("etag").expect("a tag");
    assert_eq!(room.call("GET", "/console/console.js", &[("if-none-match", tag)], "").status, 304);
    assert_eq!(room.call("GET", "/console/../Cargo.toml", &[], "").status, 404);
    assert_eq!(room.call("POST", "/console", &[], "").status, 405);
}

#[test]
fn many_are_decided_at_once_each_by_itself() {
    let room = Room::open();
    let operator = by_token(&room, Role::Operator);
    let bulk = |body: &Value| operator.post(&room, "/v1/admin/operations/resolve", body);
    let reviews: Vec<String> = ["a", "b", "c"].map(|body| room.post("hook", &format!("broken {body}")).id()).into();
    let completed = room.post("hook", "1=Anna").id();
    room.complete(&completed, "4512");
    let items = json!([
        {"id": reviews[0], "version": 1}, {"id": reviews[1], "version": 7}, {"id": completed, "version": 4},
        {"id": "0198c0de-0000-7000-8000-00000000ffff", "version": 1},
    ]);
    let statuses = |got: &Got| -> Vec<u64> {
        got.json()["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|item| item["status"].as_u64().expect("one"))
            .collect()
    };
    let preview = bulk(&json!({"action": "reject", "note": "spam", "items": items, "preview": true}));
    assert_eq!(statuses(&preview), [200, 412, 409, 404]);
    assert_eq!(room.operation(&reviews[0]).expect("there").version, 1, "a preview changes nothing");
    let done = bulk(&json!({"action": "reject", "note": "spam", "items": items}));
    assert_eq!((statuses(&done), &done.json()["done"]), (vec![200, 412, 409, 404], &json!(1)));
    assert_eq!(statuses(&bulk(&json!({"action": "reject", "note": "spam", "items": items}))), [412, 412, 409, 404]);

    let filter = json!({"status": "needs_review", "reason": "unreadable"});
    let preview = bulk(&json!({"action": "reject", "note": "x", "filter": filter, "preview": true}));
    assert_eq!((preview.status, &preview.json()["count"]), (200, &json!(2)), "{preview:?}");
    room.post("hook", "broken d");
    let moved = bulk(&json!({"action": "reject", "note": "x", "filter": filter, "count": 2}));
    assert_eq!((moved.status, moved.problem().as_str()), (409, "count-moved"));
    let done = bulk(&json!({"action": "reject", "note": "x", "filter": filter, "count": 3}));
    assert_eq!(done.json()["done"], 3, "{done:?}");
    for wrong in [
        json!({"action": "reject", "items": items}),
        json!({"action": "complete", "items": items}),
        json!({"action": "retry", "items": [{"id": reviews[0], "version": 1, "crm_id": "1"}]}),
        json!({"action": "retry"}),
        json!({"action": "retry", "filter": filter}),
        json!({"action": "retry", "filter": {"source": "hook"}, "count": 1}),
        json!({"action": "retry", "filter": {"colour": "red"}, "count": 1}),
        json!({"action": "delete", "items": items}),
    ] {
        assert_eq!(bulk(&wrong).problem(), "bad-request", "{wrong}");
    }
}

#[test]
fn the_overview_shows_what_needs_a_person_and_what_came() {
    let room = Room::open();
    let viewer = by_token(&room, Role::Viewer);
    let anna = room.post("hook", "1=Anna").id();
    room.post("hook", "1=Anna");
    room.post("hook", "2=Boris");
    room.post("hook", "broken");
    room.complete(&anna, "4512");
    let overview = viewer.get(&room, "/v1/admin/overview").json();
    assert_eq!(
        overview["states"],
        json!({"received": 1, "in_progress": 0, "completed": 1, "failed_terminal": 0, "needs_review": 1})
    );
    assert_eq!(overview["reviews"], json!({"unreadable": 1}));
    assert_eq!(overview["oldest"], json!({"received": "2026-12-01T10:00:00.000Z", "in_progress": null}));
    assert_eq!((&overview["deliveries"]["new"], &overview["deliveries"]["replay"]), (&json!(3), &json!(1)));
    let hours = overview["hours"].as_array().expect("hours");
    assert_eq!(hours.len(), 24);
    let last = hours.last().expect("the last");
    assert_eq!((&last["sources"]["hook"], &last["replays"]), (&json!(3), &json!(1)));
    let destination = &overview["destinations"][0];
    assert_eq!(
        (&destination["name"], &destination["operations"], &destination["completed"]),
        (&json!("bitrix"), &json!(3), &json!(1))
    );
}

#[test]
fn refused_deliveries_are_listed_with_their_reason() {
    let room = Room::open();
    let viewer = by_token(&room, Role::Viewer);
    for number in 0..3 {
        room.clock.advance(Duration::from_secs(1));
        let refused = room.post_with("shop", "1=Anna", &[("authorization", &format!("Bearer wrong{number}"))]);
        assert_eq!(refused.status, 401);
    }
    room.post("shop", "no key");
    let all = viewer.get(&room, "/v1/admin/deliveries").json();
    let count = all["items"].as_array().expect("items").len();
    assert!(count >= 1, "{all}");
    assert!(all["items"][0]["note"].is_string() && all["items"][0]["source"] == "shop", "{all}");
    let page = viewer.get(&room, "/v1/admin/deliveries?verdict=rejected&limit=1").json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(viewer.get(&room, "/v1/admin/deliveries?verdict=new").status, 400);
    assert_eq!(viewer.get(&room, "/v1/admin/deliveries?source=none").json()["items"], json!([]));
}

#[test]
fn the_feed_tells_every_change_once_and_in_order() {
    let room = Room::open();
    let viewer = by_token(&room, Role::Viewer);
    let anna = room.post("hook", "1=Anna").id();
    room.post("hook", "2=Boris");
    room.complete(&anna, "4512");
    let mut after = String::new();
    let mut told = Vec::new();
    loop {
        let page = viewer.get(&room, &format!("/v1/admin/events?limit=2&after={after}")).json();
        let items = page["items"].as_array().expect("items").clone();
        after = page["next_cursor"].as_str().expect("a cursor").to_owned();
        if items.is_empty() {
            break;
        }
        told.extend(items);
    }
    let of_anna: Vec<_> = told.iter().filter(|event| event["operation_id"] == anna.as_str()).collect();
    assert_eq!(told.len(), 5, "{told:?}");
    assert_eq!(of_anna.iter().map(|event| event["version"].as_i64()).collect::<Vec<_>>(), [1, 2, 3, 4].map(Some));
    let last = of_anna.last().expect("the last");
    assert_eq!(
        (&last["from"], &last["to"], &last["source"], &last["crm"]),
        (&json!("in_progress"), &json!("completed"), &json!("hook"), &json!("bitrix"))
    );
    assert_eq!(viewer.get(&room, "/v1/admin/events?after=-1").status, 400);
}

#[test]
fn a_list_is_exported_whole_for_a_spreadsheet() {
    let room = Room::open();
    let viewer = by_token(&room, Role::Viewer);
    for number in 0..205 {
        room.clock.advance(Duration::from_millis(10));
        room.post("hook", &format!("-{number}=Anna"));
    }
    let csv = viewer.get(&room, "/v1/admin/operations.csv?source=hook");
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    assert!(
        csv.header("content-disposition").is_some_and(|value| value.contains("leadonce-operations-2026-12-01.csv")),
        "{csv:?}"
    );
    let text = csv.unchunked();
    assert!(text.starts_with("\u{feff}operation_id,received_at,"), "{}", &text[..80]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 206);
    assert!(lines[1..].iter().all(|line| line.contains(",'-")), "{}", lines[1]);
    assert_eq!(viewer.get(&room, "/v1/admin/operations.csv?status=done").status, 400);
    assert!(viewer.get(&room, "/v1/admin/audit.csv").unchunked().contains("sign_in"));
    assert!(viewer.get(&room, "/v1/admin/deliveries.csv").unchunked().starts_with("\u{feff}delivery_id,"));
    assert_eq!(viewer.get(&room, "/v1/admin/tokens.csv").status, 403);
    let admin = by_token(&room, Role::Admin);
    let person = json!({"name": "=anna", "role": "operator", "password": "correct horse battery"});
    assert_eq!(admin.post(&room, "/v1/admin/people", &person).status, 201);
    let people = admin.get(&room, "/v1/admin/people.csv").unchunked();
    assert!(people.starts_with("\u{feff}name,role,") && people.contains("\n'=anna,operator,2026-12-01T"), "{people}");
    assert_eq!(admin.get(&room, "/v1/admin/tokens.csv").unchunked().lines().count(), 3);
}

#[test]
fn secrets_are_shown_when_they_are_made_and_never_again() {
    let room = Room::open();
    let admin = by_token(&room, Role::Admin);
    let made = admin.post(&room, "/v1/admin/tokens", &json!({"name": "reports", "role": "viewer"}));
    assert_eq!(made.status, 201);
    let token = made.json()["token"].as_str().expect("a token").to_owned();
    assert_eq!(
        room.call("GET", "/v1/admin/operations", &[("authorization", &format!("Bearer {token}"))], "").status,
        200
    );
    assert_eq!(
        admin.post(&room, "/v1/admin/tokens", &json!({"name": "reports", "role": "viewer"})).problem(),
        "name-taken"
    );
    for path in ["/v1/admin/tokens", "/v1/admin/people", "/v1/admin/audit", "/console/session"] {
        assert!(!admin.get(&room, path).body.contains(&token), "{path}");
    }
    for name in ["", " ", "a/b", "a\nb"] {
        let wrong = json!({"name": name, "role": "viewer"});
        assert_eq!(admin.post(&room, "/v1/admin/tokens", &wrong).status, 400, "{name:?}");
    }
    let stored = now(room.store.tokens()).expect("tokens");
    assert!(stored.iter().any(|token| token.name == "reports"));
}

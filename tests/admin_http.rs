//! What operators do over HTTP: contract 6.2.

mod http_room;

use std::time::Duration;

use http_room::{Got, Room, now};
use leadonce::operation::OperationId;
use leadonce::store::Role;

fn bearer(room: &Room, role: Role) -> String {
    format!("Bearer {}", room.token(role))
}

fn get(room: &Room, token: &str, path: &str) -> Got {
    room.call("GET", &format!("/v1/admin{path}"), &[("authorization", token)], "")
}

fn post(room: &Room, token: &str, path: &str, body: &str) -> Got {
    room.call("POST", &format!("/v1/admin{path}"), &[("authorization", token)], body)
}

fn resolve(room: &Room, token: &str, id: &str, version: i64, body: &str) -> Got {
    let version = format!("\"{version}\"");
    let headers = [("authorization", token), ("if-match", &version)];
    room.call("POST", &format!("/v1/admin/operations/{id}/resolve"), &headers, body)
}

#[test]
fn each_address_is_open_from_its_role_on_and_to_nobody_below() {
    let room = Room::open();
    let id = room.post("hook", "1=Anna").id();
    let tokens = [Role::Viewer, Role::Operator, Role::Admin].map(|role| (role, bearer(&room, role)));
    let document = room.call("GET", "/openapi.json", &[], "").json();
    let mut seen = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let path = path.replace("{id}", &id).replace("{name}", "bitrix");
        for (method, operation) in methods.as_object().expect("methods") {
            let (method, needed) = (method.to_uppercase(), operation["x-role"].as_str().expect("a role"));
            let needed = Role::ALL.into_iter().find(|role| role.as_str() == needed).expect("a known role");
            assert_eq!(room.call(&method, &path, &[], "").status, 401, "{method} {path} without a token");
            let wrong = room.call(&method, &path, &[("authorization", "Bearer wrong")], "");
            assert_eq!(wrong.status, 401, "{method} {path} with a wrong token");
            for (role, token) in &tokens {
                let status = room.call(&method, &path, &[("authorization", token)], "").status;
                assert_eq!(status == 403, *role < needed, "{method} {path} as {role:?}: {status}");
                assert_ne!(status, 401, "{method} {path} as {role:?}");
            }
            seen += 1;
        }
    }
    assert!(seen >= 24, "{seen}");
    assert_eq!(get(&room, "Bearer shop-token", "/operations").status, 401, "a source's token is no operator's");
}

#[test]
fn nothing_is_changed_by_a_get() {
    let room = Room::open();
    let operator = bearer(&room, Role::Operator);
    let id = room.post("hook", "1=Anna").id();
    for path in [format!("/operations/{id}/resolve"), "/destinations/bitrix/suspend".into()] {
        let got = get(&room, &operator, &path);
        assert_eq!((got.status, got.header("allow")), (405, Some("POST")), "{path}");
    }
}

#[test]
fn the_list_goes_from_new_to_old_in_pages_and_shows_each_operation_once() {
    let room = Room::open();
    let viewer = bearer(&room, Role::Viewer);
    let mut sent: Vec<String> = Vec::new();
    for number in 0..5 {
        room.clock.advance(Duration::from_secs(1));
        sent.push(room.post("hook", &format!("{number}=Anna")).id());
    }
    sent.reverse();
    let mut listed = Vec::new();
    let mut path = "/operations?limit=2".to_owned();
    loop {
        let page = get(&room, &viewer, &path).json();
        let items = page["items"].as_array().expect("items").clone();
        assert!(items.len() <= 2);
        listed.extend(items.iter().map(|item| item["operation_id"].as_str().expect("an id").to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/operations?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(listed, sent);
}

#[test]
fn the_list_is_filtered_and_a_wrong_filter_is_refused() {
    let room = Room::open();
    let viewer = bearer(&room, Role::Viewer);
    let first = room.post("hook", "k1=Anna").id();
    room.post("shop", "k2=Boris");
    room.post("hook", "broken");
    let count =
        |query: &str| get(&room, &viewer, &format!("/operations?{query}")).json()["items"].as_array().map(Vec::len);
    assert_eq!(count(""), Some(3));
    assert_eq!(count("source=hook"), Some(2));
    assert_eq!(count("status=needs_review"), Some(1));
    assert_eq!(count("reason=unreadable"), Some(1));
    assert_eq!(count("q=k2"), Some(1));
    assert_eq!(count(&format!("q={first}")), Some(1));
    assert_eq!(count("received_before=2020-01-01T00:00:00Z"), Some(0));
    assert_eq!(get(&room, &viewer, "/operations?status=done").problem(), "bad-request");
}

#[test]
fn the_detail_tells_the_whole_story() {
    let room = Room::open();
    let operator = bearer(&room, Role::Operator);
    let first = room.post("hook", "1=Anna").id();
    room.clock.advance(Duration::from_millis(1));
    let conflict = room.post("hook", "1=Boris").id();
    room.clock.advance(Duration::from_millis(1));
    room.post("hook", "1=Anna");
    room.complete(&first, "4512");
    let detail = get(&room, &operator, &format!("/operations/{first}"));
    assert_eq!((detail.status, detail.header("etag")), (200, Some("\"4\"")));
    let detail = detail.json();
    assert_eq!((detail["status"].as_str(), detail["crm_id"].as_str()), (Some("completed"), Some("4512")));
    assert_eq!(detail["lead"]["name"], "Anna");
    assert_eq!(detail["attempt_log"][0]["class"], "ok");
    assert_eq!(detail["deliveries"][0]["body"], "1=Anna");
    assert_eq!(detail["deliveries"][0]["verdict"], "new");
    assert_eq!(detail["link"], "https://crm.example/4512");
    assert_eq!(detail["related"], serde_json::json!([conflict]));
    let other = get(&room, &operator, &format!("/operations/{conflict}")).json();
    assert_eq!(other["conflicts_with"], first);
    let unknown = format!("/operations/{}", OperationId(uuid::Uuid::nil()));
    assert_eq!(get(&room, &operator, &unknown).status, 404);
}

#[test]
fn a_decision_is_taken_on_the_version_that_was_seen_and_audited() {
    let room = Room::open();
    let operator = bearer(&room, Role::Operator);
    let id = room.post("hook", "broken").id();
    let path = format!("/operations/{id}/resolve");
    let complete = r#"{"action":"complete","crm_id":"4512","note":"found by hand"}"#;
    let blind = post(&room, &operator, &path, complete);
    assert_eq!((blind.status, blind.problem().as_str(), blind.id()), (428, "version-required", id.clone()));
    let late = resolve(&room, &operator, &id, 7, complete);
    assert_eq!((late.status, late.problem().as_str(), &late.json()["version"]), (412, "version-moved", &1.into()));
    let unclear = resolve(&room, &operator, &id, 1, r#"{"action":"complete"}"#);
    assert_eq!((unclear.status, unclear.problem().as_str()), (400, "bad-request"));
    let done = resolve(&room, &operator, &id, 1, complete);
    assert_eq!((done.status, done.header("etag")), (200, Some("\"2\"")));
    assert_eq!(done.json()["crm_id"], "4512");
    let again = resolve(&room, &operator, &id, 2, r#"{"action":"retry"}"#);
    assert_eq!((again.status, again.problem().as_str()), (409, "state-forbids"));
    let audit = get(&room, &operator, &format!("/operations/{id}")).json()["audit"][0].clone();
    assert_eq!(audit["actor"], "operator");
    assert_eq!((audit["from"].as_str(), audit["to"].as_str()), (Some("needs_review"), Some("completed")));
    assert_eq!(audit["note"], "found by hand");
}

#[test]
fn of_two_operators_at_once_one_decides() {
    let room = Room::open();
    let operator = bearer(&room, Role::Operator);
    let id = room.post("hook", "broken").id();
    let bodies = [r#"{"action":"retry"}"#, r#"{"action":"reject","note":"spam"}"#];
    let mut statuses: Vec<u16> = std::thread::scope(|scope| {
        let asked = bodies.map(|body| scope.spawn(|| resolve(&room, &operator, &id, 1, body).status));
        asked.into_iter().map(|one| one.join().expect("an answer")).collect()
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412]);
}

#[test]
fn a_destination_is_suspended_and_resumed_and_says_so() {
    let room = Room::open();
    let operator = bearer(&room, Role::Operator);
    room.post("hook", "1=Anna");
    let shown = get(&room, &operator, "/destinations").json()["items"][0].clone();
    assert_eq!((shown["name"].as_str(), shown["state"].as_str()), (Some("bitrix"), Some("active")));
    assert_eq!((&shown["waiting"], &shown["in_progress"]), (&1.into(), &0.into()));
    let suspended = post(&room, &operator, "/destinations/bitrix/suspend", r#"{"note":"moving the portal"}"#);
    assert_eq!((suspended.status, suspended.json()["state"].as_str()), (200, Some("suspended")));
    assert!(suspended.json()["reason"].as_str().is_some_and(|reason| reason.contains("moving the portal")));
    let again = post(&room, &operator, "/destinations/bitrix/suspend", "");
    assert_eq!(again.json()["reason"], suspended.json()["reason"]);
    let resumed = post(&room, &operator, "/destinations/bitrix/resume", "");
    assert_eq!((resumed.status, resumed.json()["state"].as_str()), (200, Some("active")));
    assert_eq!(post(&room, &operator, "/destinations/nobody/resume", "").status, 404);
}

#[test]
fn customers_are_found_by_phone_or_e_mail_in_any_spelling() {
    let room = Room::open();
    let viewer = bearer(&room, Role::Viewer);
    let id = room.post("hook", "1=Anna").id();
    room.post("hook", "2=Boris");
    let contacts = vec!["+79161234567".to_owned(), "anna@example.com".to_owned()];
    now(room.store.index_contacts(vec![(id.parse().expect("an id"), contacts)])).expect("an index");
    for body in [r#"{"phone":"+7 916 123-45-67"}"#, r#"{"email":"Anna@Example.com"}"#] {
        let found = post(&room, &viewer, "/operations/search", body).json();
        let items = found["items"].as_array().expect("items");
        assert_eq!((items.len(), items[0]["operation_id"].as_str()), (1, Some(id.as_str())), "{body}");
    }
    assert_eq!(post(&room, &viewer, "/operations/search", r#"{"name":"Anna"}"#).problem(), "bad-request");
}

#[test]
fn c42_a_customer_who_asks_again_is_never_merged_and_always_shown() {
    let room = Room::open();
    let viewer = bearer(&room, Role::Viewer);
    let phone = "+79161234567";
    // Two enquiries, the first of them again two days later, and a call: one person, four results.
    room.post("tilda", &format!("1:1={phone} first"));
    room.post("tilda", &format!("1:2={phone} second"));
    room.clock.advance(Duration::from_secs(2 * 86_400));
    room.post("tilda", &format!("1:3={phone} first"));
    room.post("hook", &format!("call-7={phone} call"));
    let list = get(&room, &viewer, "/operations").json();
    let ids: Vec<String> = list["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|item| {
            assert_eq!(item["status"], "received");
            item["operation_id"].as_str().expect("an id").to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 4);
    let contacts = ids.iter().map(|id| (id.parse().expect("an id"), vec![phone.to_owned()])).collect();
    now(room.store.index_contacts(contacts)).expect("an index");
    for id in &ids {
        let related = get(&room, &viewer, &format!("/operations/{id}")).json()["related"].clone();
        let others: Vec<&String> = ids.iter().filter(|other| *other != id).collect();
        assert_eq!(related, serde_json::json!(others), "newest first");
    }
}

//! The sandbox CRM over real sockets: it answers as the vendor documents, and misbehaves exactly as told.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use leadonce::clock::{At, ManualClock};
use leadonce::sandbox::{Cut, Fault, Kind, Options, Part, Running, Sandbox};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(10);

async fn sandbox() -> Running {
    Sandbox::start("127.0.0.1:0").await.expect("a free port")
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(TIMEOUT).build().expect("a client")
}

async fn bitrix(crm: &Running, method: &str, params: Value) -> (u16, Value) {
    let answer = client().post(format!("{}{method}", crm.bitrix_url())).json(&params).send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

fn lead(key: &str) -> Value {
    json!({ "entityTypeId": 1, "fields": { "title": "Anna", "originatorId": "leadonce", "originId": key } })
}

fn find(key: &str) -> Value {
    json!({
        "entityTypeId": 1,
        "filter": { "=originatorId": "leadonce", "=originId": key, ">=createdTime": "2020-01-01T00:00:00+03:00" },
        "select": ["id", "originId", "originatorId", "createdTime"],
        "order": { "id": "ASC" },
        "start": -1,
    })
}

/// Sends a create over a socket of its own; gives every byte of the answer and whether the end was in order.
async fn raw_create(crm: &Running, key: &str, patience: Duration) -> (Vec<u8>, End) {
    let mut stream = TcpStream::connect(("127.0.0.1", crm.port())).await.expect("a connection");
    let body = lead(key).to_string();
    let head =
        format!("POST /rest/1/sandbox/crm.item.add HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("sent");
    let mut bytes = Vec::new();
    let end = match tokio::time::timeout(patience, stream.read_to_end(&mut bytes)).await {
        Err(_) => End::Open,
        Ok(Ok(_)) => End::Closed,
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionReset => End::Reset,
        Ok(Err(error)) => panic!("{error}"),
    };
    (bytes, end)
}

/// Waits for a condition that another task brings about.
async fn until(condition: impl Fn() -> bool, or: &str) {
    let waited = tokio::time::timeout(TIMEOUT, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "{or}");
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Closed,
    Reset,
    Open,
}

#[tokio::test]
async fn a_created_item_comes_back_whole_and_is_found_by_both_keys() {
    let crm = sandbox().await;
    let mut params = lead("op-1");
    params["fields"]["orignId"] = "a typo is dropped without a word".into();
    params["fields"]["fm"] = json!([{ "typeId": "PHONE", "valueType": "WORK", "value": "+79161234567" }]);
    let (status, body) = bitrix(&crm, "crm.item.add.json", params).await;
    assert_eq!(status, 200);
    let item = &body["result"]["item"];
    assert!(item["id"].is_u64());
    assert_eq!((&item["originatorId"], &item["originId"]), (&json!("leadonce"), &json!("op-1")));
    assert_eq!(item.get("orignId"), None);
    assert!(item["createdTime"].as_str().is_some_and(|time| At::parse_rfc3339(time).is_some()));
    for part in
        ["start", "finish", "duration", "processing", "date_start", "date_finish", "operating_reset_at", "operating"]
    {
        assert!(body["time"].get(part).is_some(), "{part}");
    }

    let (_, found) = bitrix(&crm, "crm.item.list", find("op-1")).await;
    assert_eq!(found["result"]["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(found["result"]["items"][0]["id"], item["id"]);
    assert_eq!(found["result"]["items"][0].get("title"), None, "only what was selected");
    assert_eq!(found.get("total"), None, "start -1 spares the count");

    let (_, got) = bitrix(&crm, "crm.item.get", json!({ "entityTypeId": 1, "id": item["id"] })).await;
    assert_eq!(&got["result"]["item"], item);
    crm.stop().await;
}

#[tokio::test]
async fn a_look_up_keeps_to_key_originator_type_and_time() {
    let crm = sandbox().await;
    bitrix(&crm, "crm.item.add", lead("op-1")).await;
    let mut foreign = lead("op-1");
    foreign["fields"]["originatorId"] = "1c".into();
    bitrix(&crm, "crm.item.add", foreign).await;
    let mut deal = lead("op-1");
    deal["entityTypeId"] = 2.into();
    bitrix(&crm, "crm.item.add", deal).await;

    let (_, body) = bitrix(&crm, "crm.item.list", find("op-1")).await;
    assert_eq!(body["result"]["items"].as_array().map(Vec::len), Some(1));
    let (_, body) = bitrix(&crm, "crm.item.list", find("op-2")).await;
    assert_eq!(body["result"]["items"], json!([]));
    let mut later = find("op-1");
    later["filter"][">=createdTime"] = "2999-01-01T00:00:00+03:00".into();
    let (_, body) = bitrix(&crm, "crm.item.list", later).await;
    assert_eq!(body["result"]["items"], json!([]));
}

#[tokio::test]
async fn the_same_key_makes_two_items_as_on_a_real_portal() {
    let crm = sandbox().await;
    bitrix(&crm, "crm.item.add", lead("op-1")).await;
    bitrix(&crm, "crm.item.add", lead("op-1")).await;
    assert_eq!(crm.world().entities_of("op-1").len(), 2);
    let (_, body) = bitrix(&crm, "crm.item.list", find("op-1")).await;
    assert_eq!(body["result"]["items"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn lists_come_in_pages_of_fifty() {
    let crm = sandbox().await;
    for number in 0..51 {
        bitrix(&crm, "crm.item.add", lead(&format!("op-{number}"))).await;
    }
    let (_, first) = bitrix(&crm, "crm.item.list", json!({ "entityTypeId": 1 })).await;
    assert_eq!(first["result"]["items"].as_array().map(Vec::len), Some(50));
    assert_eq!((&first["total"], &first["next"]), (&json!(51), &json!(50)));
    let (_, rest) = bitrix(&crm, "crm.item.list", json!({ "entityTypeId": 1, "start": 50 })).await;
    assert_eq!(rest["result"]["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(rest.get("next"), None);
}

#[tokio::test]
async fn wrong_calls_get_the_documented_errors() {
    let crm = sandbox().await;
    for (method, params, status, code) in [
        ("crm.lead.forget", json!({}), 404, "ERROR_METHOD_NOT_FOUND"),
        ("crm.item.add", json!({ "fields": {} }), 400, "100"),
        ("crm.item.add", json!({ "entityTypeId": 1 }), 400, "100"),
        ("crm.item.add", json!({ "entityTypeId": 1, "fields": "title" }), 400, ""),
        ("crm.item.add", json!({ "entityTypeId": 99, "fields": {} }), 400, "NOT_FOUND"),
        ("crm.item.add", json!({ "entityTypeId": 1, "fields": { "fm": "+7" } }), 400, "100"),
        ("crm.item.list", json!({ "entityTypeId": 1, "filter": { "=orignId": "x" } }), 400, "INVALID_ARG_VALUE"),
        (
            "crm.item.list",
            json!({ "entityTypeId": 1, "filter": { ">=createdTime": "soon" } }),
            400,
            "INVALID_ARG_VALUE",
        ),
        ("crm.item.get", json!({ "entityTypeId": 1, "id": 1 }), 400, "NOT_FOUND"),
    ] {
        let (got, body) = bitrix(&crm, method, params.clone()).await;
        assert_eq!((got, &body["error"]), (status, &json!(code)), "{method} {params}");
        assert!(body["error_description"].is_string());
    }
    let wrong = format!("{}/rest/1/guess/crm.item.add", crm.url());
    let answer = client().post(wrong).json(&lead("op-1")).send().await.expect("an answer");
    assert_eq!(answer.status(), 401);
    assert_eq!(answer.json::<Value>().await.expect("JSON")["error"], "INVALID_CREDENTIALS");
    assert!(crm.world().entities().is_empty());
}

#[tokio::test]
async fn the_plain_api_creates_finds_and_shows() {
    let crm = sandbox().await;
    let leads = format!("{}/api/leads", crm.url());
    let create =
        |key: &str| client().post(&leads).bearer_auth("sandbox").json(&json!({ "external_key": key, "name": "A" }));

    let created = create("op 1&x").send().await.expect("an answer");
    assert_eq!(created.status(), 201);
    let location = created.headers()["location"].to_str().expect("text").to_owned();
    let id = created.json::<Value>().await.expect("JSON")["id"].clone();
    assert_eq!(location, format!("/api/leads/{id}"));

    let found = client()
        .get(format!("{leads}?external_key=op%201%26x"))
        .bearer_auth("sandbox")
        .send()
        .await
        .expect("an answer");
    let found: Value = found.json().await.expect("JSON");
    assert_eq!((&found["total"], &found["items"][0]["id"]), (&json!(1), &id));
    let none =
        client().get(format!("{leads}?external_key=op-2")).bearer_auth("sandbox").send().await.expect("an answer");
    assert_eq!(none.json::<Value>().await.expect("JSON")["items"], json!([]));
    let shown =
        client().get(format!("{}{location}", crm.url())).bearer_auth("sandbox").send().await.expect("an answer");
    assert_eq!(shown.json::<Value>().await.expect("JSON")["external_key"], "op 1&x");

    for (request, status) in [
        (client().post(&leads).json(&json!({ "external_key": "x" })), 401),
        (client().post(&leads).bearer_auth("guess").json(&json!({ "external_key": "x" })), 401),
        (client().post(&leads).bearer_auth("sandbox").json(&json!({ "name": "A" })), 422),
        (client().post(&leads).bearer_auth("sandbox").body("{"), 400),
        (client().get(format!("{leads}/999")).bearer_auth("sandbox"), 404),
        (client().delete(&leads).bearer_auth("sandbox"), 405),
    ] {
        assert_eq!(request.send().await.expect("an answer").status(), status);
    }
    assert_eq!(crm.world().entities().len(), 1);
}

#[tokio::test]
async fn with_unique_keys_the_plain_api_names_the_lead_that_exists() {
    let crm = sandbox().await;
    let leads = format!("{}/api/leads", crm.url());
    let settings = format!("{}/_sandbox/settings", crm.url());
    client().put(settings).json(&json!({ "unique_keys": true })).send().await.expect("an answer");
    let create = || client().post(&leads).bearer_auth("sandbox").json(&json!({ "external_key": "op-1" })).send();
    let first: Value = create().await.expect("an answer").json().await.expect("JSON");
    let second = create().await.expect("an answer");
    assert_eq!(second.status(), 409);
    assert_eq!(second.json::<Value>().await.expect("JSON")["id"], first["id"]);
    assert_eq!(crm.world().entities().len(), 1);
}

#[tokio::test]
async fn commit_then_hang_stores_the_lead_and_never_answers() {
    let crm = sandbox().await;
    crm.world().add_fault(Fault::on_create(Kind::CommitThenHang {}));
    let (bytes, end) = raw_create(&crm, "op-1", Duration::from_millis(300)).await;
    assert_eq!((bytes.len(), end), (0, End::Open));
    assert_eq!(crm.world().entities_of("op-1").len(), 1);
    assert_eq!(crm.world().calls()[0].status, None);
    // Only that one call.
    assert_eq!(bitrix(&crm, "crm.item.add", lead("op-2")).await.0, 200);
}

#[tokio::test]
async fn a_status_comes_with_or_without_the_commit_behind_it() {
    let crm = sandbox().await;
    for status in [500, 502, 503, 504, 520] {
        let key = format!("op-{status}");
        crm.world().add_fault(Fault::on_create(Kind::CommitThenStatus { status }));
        crm.world().add_fault(Fault::on_create(Kind::StatusWithoutCommit { status }));
        for committed in [1, 0] {
            crm.world().clear_entities();
            let send = client().post(format!("{}crm.item.add", crm.bitrix_url())).json(&lead(&key)).send();
            assert_eq!(send.await.expect("an answer").status(), status);
            assert_eq!(crm.world().entities_of(&key).len(), committed, "{status}");
        }
    }
}

#[tokio::test]
async fn an_answer_is_cut_where_told() {
    let crm = sandbox().await;
    let cut = |at, reset| Fault::on_create(Kind::CommitThenCut { at, reset });
    let mut whole = 0;
    for (number, (fault, expected)) in [
        (Fault::on_create(Kind::CommitThenClose {}), End::Closed),
        (cut(Cut::BeforeStatus, false), End::Closed),
        (cut(Cut::MidStatus, false), End::Closed),
        (cut(Cut::AfterHeaders, false), End::Closed),
        (cut(Cut::MidBody, false), End::Closed),
        (cut(Cut::BeforeStatus, true), End::Reset),
    ]
    .into_iter()
    .enumerate()
    {
        let kind = fault.kind.clone();
        crm.world().add_fault(fault);
        let key = format!("op-{number}");
        let (bytes, end) = raw_create(&crm, &key, TIMEOUT).await;
        assert_eq!(end, expected, "{kind:?}");
        assert_eq!(crm.world().entities_of(&key).len(), 1, "{kind:?}: carried out all the same");
        let text = String::from_utf8(bytes).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let promised = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse::<usize>().ok());
        match kind {
            Kind::CommitThenClose {} => {
                whole = body.len();
                assert_eq!(promised, Some(whole));
            }
            Kind::CommitThenCut { at: Cut::BeforeStatus, .. } => assert_eq!(text, ""),
            Kind::CommitThenCut { at: Cut::MidStatus, .. } => assert_eq!(text, "HTTP/1.1 2"),
            Kind::CommitThenCut { at: Cut::AfterHeaders, .. } => assert_eq!((promised, body), (Some(whole), "")),
            Kind::CommitThenCut { at: Cut::MidBody, .. } => {
                assert_eq!((promised, body.len()), (Some(whole), whole / 2));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_dripping_answer_outlasts_a_total_time_out() {
    let crm = sandbox().await;
    for (number, part) in [Part::Body, Part::All].into_iter().enumerate() {
        crm.world().add_fault(Fault::on_create(Kind::Drip { every_ms: 20, part }));
        let (bytes, end) = raw_create(&crm, &format!("op-{number}"), Duration::from_millis(500)).await;
        assert_eq!(end, End::Open);
        let text = String::from_utf8(bytes).expect("text");
        assert_eq!(text.contains("\r\n\r\n"), part == Part::Body, "{text}");
        assert!(text.len() > 3, "something came: {text}");
    }
    assert_eq!(crm.world().entities().len(), 2);
}

#[tokio::test]
async fn refusals_store_nothing_and_speak_the_vendors_words() {
    let crm = sandbox().await;
    let long_html = |body: &str| body.contains("<html>") && body.len() > 200 * 1024;
    for (kind, status, part) in [
        (Kind::Throttled { retry_after: Some("120junk".into()), date: None }, 429, "OPERATION_TIME_LIMIT"),
        (Kind::Limit503 {}, 503, "QUERY_LIMIT_EXCEEDED"),
        (Kind::ValidationError {}, 400, "CRM_FIELD_ERROR_REQUIRED"),
        (Kind::Unauthorized {}, 401, "INVALID_CREDENTIALS"),
        (Kind::AccessDenied {}, 403, "ACCESS_DENIED"),
        (Kind::Redirect { to: "http://127.0.0.1:1/".into(), code: 308 }, 308, ""),
        (Kind::Html200 {}, 200, "Please log in"),
        (Kind::Html403 {}, 403, "Forbidden"),
        (Kind::Body { status: 200, body: r#"{"result":0}"#.into() }, 200, r#"{"result":0}"#),
    ] {
        crm.world().add_fault(Fault::on_create(kind.clone()));
        let send = client().post(format!("{}crm.item.add", crm.bitrix_url())).json(&lead("op-1")).send();
        let answer = send.await.expect("an answer");
        assert_eq!(answer.status(), status, "{kind:?}");
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().expect("text").to_owned());
        match &kind {
            Kind::Throttled { retry_after, .. } => assert_eq!(&header("retry-after"), retry_after),
            Kind::Redirect { to, .. } => assert_eq!(header("location").as_ref(), Some(to)),
            _ => {}
        }
        let body = answer.text().await.expect("a body");
        assert!(body.contains(part), "{kind:?}: {body}");
        assert_eq!(long_html(&body), matches!(kind, Kind::Html200 {} | Kind::Html403 {}), "{kind:?}");
    }
    assert!(crm.world().entities().is_empty());
    assert_eq!(bitrix(&crm, "crm.item.add", lead("op-1")).await.0, 200, "then good");
    assert_eq!(crm.world().creates(), 10);
}

#[tokio::test]
async fn a_success_can_be_empty_huge_or_begin_with_a_byte_order_mark() {
    let crm = sandbox().await;
    let create = || client().post(format!("{}crm.item.add", crm.bitrix_url())).json(&lead("op-1")).send();
    for status in [200, 201, 204] {
        crm.world().add_fault(Fault::on_create(Kind::Empty2xx { status }));
        let answer = create().await.expect("an answer");
        assert_eq!(answer.status(), status);
        assert!(answer.bytes().await.expect("a body").is_empty());
    }
    crm.world().add_fault(Fault::on_create(Kind::Bom {}));
    let body = create().await.expect("an answer").bytes().await.expect("a body");
    let json = body.strip_prefix(b"\xef\xbb\xbf").expect("a byte order mark");
    assert!(serde_json::from_slice::<Value>(json).expect("JSON")["result"]["item"]["id"].is_u64());
    crm.world().add_fault(Fault::on_create(Kind::HugeBody { bytes: 3_000_000 }));
    assert_eq!(create().await.expect("an answer").bytes().await.expect("a body").len(), 3_000_000);
    assert_eq!(crm.world().entities().len(), 5, "all carried out");
}

#[tokio::test]
async fn a_delayed_create_is_carried_out_though_its_client_has_left() {
    let crm = sandbox().await;
    crm.world().add_fault(Fault::on_create(Kind::Delay { ms: 400 }));
    let (_, end) = raw_create(&crm, "op-1", Duration::from_millis(50)).await;
    assert_eq!(end, End::Open);
    assert!(crm.world().entities().is_empty(), "not yet");
    until(|| !crm.world().entities_of("op-1").is_empty(), "the create was never carried out").await;
}

#[tokio::test]
async fn a_blind_look_up_sees_an_entity_only_when_it_is_old_enough() {
    let clock = Arc::new(ManualClock::at(At::from_seconds(1_800_000_000)));
    let options = Options { clock: clock.clone(), ..Options::default() };
    let crm = Sandbox::start_with("127.0.0.1:0", options).await.expect("a free port");
    crm.world().add_fault(Fault::lookup_blind(30.0));
    bitrix(&crm, "crm.item.add", lead("op-1")).await;
    let found =
        async || bitrix(&crm, "crm.item.list", find("op-1")).await.1["result"]["items"].as_array().map(Vec::len);
    assert_eq!(found().await, Some(0));
    clock.advance(Duration::from_secs(29));
    assert_eq!(found().await, Some(0));
    clock.advance(Duration::from_secs(1));
    assert_eq!(found().await, Some(1));
}

#[tokio::test]
async fn faults_are_ordered_over_http_and_played_in_order() {
    let crm = sandbox().await;
    let faults = format!("{}/_sandbox/faults", crm.url());
    let list = json!([
        { "kind": "limit_503", "call": "create", "times": 2 },
        { "kind": "commit_then_status", "status": 502 },
        { "kind": "access_denied", "call": "lookup" },
        { "kind": "html_200", "call": "any", "commit": true },
    ]);
    let answer = client().post(&faults).json(&list).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.json::<Value>().await.expect("JSON")["faults"].as_array().map(Vec::len), Some(4));

    let status = async |method: &str, params: Value| {
        let send = client().post(format!("{}{method}", crm.bitrix_url())).json(&params).send();
        send.await.expect("an answer").status().as_u16()
    };
    assert_eq!(status("crm.item.add", lead("a")).await, 503);
    assert_eq!(status("crm.item.list", find("a")).await, 403);
    assert_eq!(status("crm.item.add", lead("a")).await, 503);
    assert_eq!(status("crm.item.add", lead("b")).await, 502);
    assert_eq!(status("crm.item.add", lead("c")).await, 200);
    assert_eq!(status("crm.item.list", find("c")).await, 200);
    let world = crm.world();
    assert_eq!([world.entities_of("a").len(), world.entities_of("b").len(), world.entities_of("c").len()], [0, 1, 1]);
    assert!(world.faults().is_empty());
    let met: Vec<Option<&str>> = world.calls().iter().map(|call| call.fault).collect();
    assert_eq!(
        met,
        [
            Some("limit_503"),
            Some("access_denied"),
            Some("limit_503"),
            Some("commit_then_status"),
            Some("html_200"),
            None
        ]
    );

    client().post(&faults).json(&json!({ "kind": "bom" })).send().await.expect("an answer");
    assert_eq!(client().delete(&faults).send().await.expect("an answer").status(), 204);
    assert!(world.faults().is_empty());
}

#[tokio::test]
async fn a_list_with_a_mistake_changes_nothing_and_says_what_is_wrong() {
    let crm = sandbox().await;
    let faults = format!("{}/_sandbox/faults", crm.url());
    for (wrong, word) in [
        (json!([{ "kind": "bom" }, { "kind": "explode" }]), "explode"),
        (json!({ "kind": "drip", "evry_ms": 5 }), "evry_ms"),
        (json!({ "kind": "bom", "call": "creat" }), "creat"),
        (json!({ "kind": "bom", "times": -1 }), "times"),
        (json!({ "call": "create" }), "kind"),
    ] {
        let answer = client().post(&faults).json(&wrong).send().await.expect("an answer");
        assert_eq!(answer.status(), 400, "{wrong}");
        let error = answer.json::<Value>().await.expect("JSON")["error"].as_str().unwrap_or_default().to_owned();
        assert!(error.contains(word), "{wrong}: {error}");
    }
    assert!(crm.world().faults().is_empty());
}

#[test]
fn every_fault_reads_the_json_it_writes_and_is_described() {
    let kinds = [
        Kind::CommitThenHang {},
        Kind::CommitThenStatus { status: 504 },
        Kind::StatusWithoutCommit { status: 520 },
        Kind::CommitThenCut { at: Cut::MidBody, reset: true },
        Kind::CommitThenClose {},
        Kind::Drip { every_ms: 5, part: Part::All },
        Kind::Throttled { retry_after: Some("-1".into()), date: Some("Wed, 21 Oct 2026 07:28:00 GMT".into()) },
        Kind::Limit503 {},
        Kind::ValidationError {},
        Kind::Unauthorized {},
        Kind::AccessDenied {},
        Kind::Redirect { to: "http://a/".into(), code: 307 },
        Kind::LookupBlind { seconds: 1.5 },
        Kind::Html200 {},
        Kind::Html403 {},
        Kind::Empty2xx { status: 204 },
        Kind::HugeBody { bytes: 7 },
        Kind::Bom {},
        Kind::Delay { ms: 3 },
        Kind::Body { status: 200, body: "x".into() },
    ];
    for kind in kinds {
        let row = format!("| `{}`", kind.name());
        assert!(include_str!("../docs/SANDBOX.md").contains(&row), "{row} is missing in docs/SANDBOX.md");
        for fault in [Fault::on_create(kind.clone()), Fault::on_any(kind).times(7).commit(true)] {
            assert_eq!(Fault::from_json(fault.to_json()), Ok(fault));
        }
    }
}

#[tokio::test]
async fn the_page_shows_everything_and_runs_nothing() {
    let crm = sandbox().await;
    let mut params = lead("<script>alert(1)</script>");
    params["fields"]["title"] = r#""><img src=x onerror=alert(1)>"#.into();
    bitrix(&crm, "crm.item.add", params).await;
    crm.world().add_fault(Fault::on_any(Kind::Body { status: 200, body: "</code><script>".into() }));
    let answer = client().get(crm.url()).send().await.expect("an answer");
    assert!(
        answer.headers()["content-security-policy"].to_str().is_ok_and(|policy| policy.contains("default-src 'none'"))
    );
    let page = answer.text().await.expect("text");
    assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
    for shown in ["&lt;script&gt;alert(1)", "onerror=alert(1)", "crm.item.add", "leadonce", "http-equiv=\"refresh\""] {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(!page.contains("rest/1/sandbox"), "the webhook's secret is not shown");
}

#[tokio::test]
async fn scripts_read_entities_and_calls() {
    let crm = sandbox().await;
    bitrix(&crm, "crm.item.add", lead("op-1")).await;
    bitrix(&crm, "crm.item.list", find("op-1")).await;
    let read = async |path: &str| -> Value {
        client().get(format!("{}{path}", crm.url())).send().await.expect("an answer").json().await.expect("JSON")
    };
    let entities = read("/_sandbox/entities").await;
    assert_eq!((&entities["entities"][0]["key"], &entities["entities"][0]["type"]), (&json!("op-1"), &json!("lead")));
    let calls = read("/_sandbox/calls").await;
    assert_eq!(calls["counts"], json!({ "crm.item.add": 1, "crm.item.list": 1 }));
    assert_eq!(calls["calls"][0]["created"], entities["entities"][0]["id"]);
    assert_eq!(calls["calls"][1]["call"], "lookup");
    let cleared = client().delete(format!("{}/_sandbox/entities", crm.url())).send().await.expect("an answer");
    assert_eq!(cleared.status(), 204);
    assert!(crm.world().entities().is_empty());
}

#[tokio::test]
async fn a_connection_carries_several_calls_in_either_framing() {
    let crm = sandbox().await;
    let mut stream = TcpStream::connect(("127.0.0.1", crm.port())).await.expect("a connection");
    let chunked = "POST /api/leads HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sandbox\r\nTransfer-Encoding: chunked\r\n\r\n\
                   9\r\n{\"externa\r\nd\r\nl_key\":\"op-1\"\r\n1;x=y\r\n}\r\n0\r\nTrailer: t\r\n\r\n";
    let last = "GET /api/leads HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sandbox\r\nConnection: close\r\n\r\n";
    stream.write_all(format!("{chunked}{last}").as_bytes()).await.expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("both answers");
    assert_eq!(text.matches("HTTP/1.1 20").count(), 2, "{text}");
    assert_eq!(crm.world().entities_of("op-1").len(), 1);
}

#[tokio::test]
async fn rubbish_on_the_line_is_answered_and_half_a_request_creates_nothing() {
    let crm = sandbox().await;
    for (sent, answer) in [
        ("hello\r\n\r\n", "HTTP/1.1 400"),
        ("POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", "HTTP/1.1 400"),
        (
            "POST /api/leads HTTP/1.1\r\nAuthorization: Bearer sandbox\r\nContent-Length: 500\r\n\r\n{\"external_key\":\"x\"}",
            "",
        ),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", crm.port())).await.expect("a connection");
        stream.write_all(sent.as_bytes()).await.expect("sent");
        stream.shutdown().await.expect("closed for writing");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an end");
        assert!(text.starts_with(answer), "{sent:?}: {text:?}");
    }
    assert!(crm.world().entities().is_empty());
}

#[tokio::test]
async fn it_does_not_listen_to_other_machines_unless_asked() {
    let refused = Sandbox::start("0.0.0.0:0").await.expect_err("open to all");
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert!(refused.to_string().contains("0.0.0.0"));
    let asked = Options { allow_remote: true, ..Options::default() };
    Sandbox::start_with("0.0.0.0:0", asked).await.expect("asked for").stop().await;
}

#[tokio::test]
async fn stopping_breaks_open_calls_and_it_goes_on_with_what_it_held() {
    let crm = sandbox().await;
    crm.world().add_fault(Fault::on_create(Kind::CommitThenHang {}));
    let port = crm.port();
    let waiting = tokio::spawn(client().post(format!("{}crm.item.add", crm.bitrix_url())).json(&lead("op-1")).send());
    until(|| !crm.world().entities().is_empty(), "the call never came").await;
    let world = crm.world().clone();
    crm.stop().await;
    assert!(waiting.await.expect("no panic").is_err(), "broken off");
    let refused = TcpStream::connect(("127.0.0.1", port)).await.expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

    let options = Options { world: Some(world), ..Options::default() };
    let crm = Sandbox::start_with(&format!("127.0.0.1:{port}"), options).await.expect("the same port");
    let (_, found) = bitrix(&crm, "crm.item.list", find("op-1")).await;
    assert_eq!(found["result"]["items"].as_array().map(Vec::len), Some(1));
}

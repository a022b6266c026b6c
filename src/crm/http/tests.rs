use serde_json::json;

use super::*;
use crate::crm::TransportError;
use crate::operation::Lead;

const NOW: At = At::from_seconds(1_796_000_000);
const KEY: &str = "00000000-0000-0000-0000-000000000000";

fn read(settings: Value) -> Result<Http, Faults> {
    let Value::Object(table) = settings else { panic!("a table") };
    Http::new(table)
}

fn settings(more: Value) -> Value {
    let mut all = json!({
        "headers": {"Authorization": "Bearer TOPSECRET", "X-Key": "{{ crm_key }}"},
        "create": {
            "url": "https://crm.example.com/api/leads?token=QUERYSECRET",
            "body": {"external_id": "{{ crm_key }}", "name": "{{ lead.name }}", "text": "{{ lead.text }}"},
        },
        "lookup": {"url": "https://crm.example.com/api/leads?external_id={{ crm_key }}", "items": "/items", "key": "/external_id"},
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
        all.extend(more);
    }
    all
}

fn connector(more: Value) -> Http {
    read(settings(more)).expect("good settings")
}

fn order() -> Order {
    sample_orders().remove(0)
}

fn answered(status: u16, body: &str) -> Exchange {
    Ok(Answer { status, headers: Vec::new(), body: body.as_bytes().to_vec() })
}

fn outcome(connector: &Http, status: u16, body: &str) -> String {
    match connector.read_create(&order(), &answered(status, body), NOW) {
        CreateOutcome::Created(id) => format!("created {id}"),
        CreateOutcome::Failed(Failure { class, crm_id: Some(id), .. }) => format!("{} {id}", class.as_str()),
        CreateOutcome::Failed(failure) => failure.class.as_str().to_owned(),
    }
}

fn looked_up(connector: &Http, status: u16, body: &str) -> String {
    match connector.read_look_up(&order(), &answered(status, body), NOW) {
        LookupOutcome::Found(ids) => ids.iter().map(CrmId::as_str).collect::<Vec<_>>().join(","),
        LookupOutcome::Failed(failure) => failure.class.as_str().to_owned(),
    }
}

#[test]
fn a_create_is_what_the_templates_say() {
    let mut order = order();
    order.lead.name = Some("\"}] {{ crm_key }}".into());
    let call = connector(json!({})).create(&order).expect("a call");
    assert_eq!((call.method, call.url.as_str()), ("POST", "https://crm.example.com/api/leads?token=QUERYSECRET"));
    assert_eq!(call.masked_url, "https://crm.example.com/api/leads?token=***");
    let body: Value = serde_json::from_slice(&call.body).expect("JSON");
    assert_eq!((&body["external_id"], &body["name"]), (&json!(KEY), &json!("\"}] {{ crm_key }}")));
    let headers: Vec<String> = call.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    for header in ["authorization: Bearer TOPSECRET", "content-type: application/json"] {
        assert!(headers.iter().any(|known| known == header), "{headers:?}");
    }
    assert!(headers.contains(&format!("x-key: {KEY}")), "{headers:?}");
}

#[test]
fn a_body_may_be_json_text_or_a_form() {
    let create = |body: Value| {
        let mut create = json!({"url": "http://localhost/x", "method": "put"});
        if let (Value::Object(create), Value::Object(body)) = (&mut create, body) {
            create.extend(body);
        }
        let call = connector(json!({"create": create})).create(&order()).expect("a call");
        assert_eq!(call.method, "PUT");
        let kind = call.headers.iter().find(|(name, _)| name == "content-type").map(|(_, kind)| kind.clone());
        (kind.unwrap_or_default(), String::from_utf8(call.body).expect("text"))
    };
    let (kind, body) =
        create(json!({"body": "[{\"name\": \"Mr {{ lead.last_name }}\", \"phones\": \"{{ lead.phones }}\"}]"}));
    assert_eq!(kind, "application/json");
    assert_eq!(
        serde_json::from_str::<Value>(&body).expect("JSON"),
        json!([{"name": "Mr Ivanova", "phones": [{"text": "+79161234567", "normal": "+79161234567"}]}])
    );
    let (kind, body) = create(json!({"form": {"oid": "1", "name": "{{ lead.name }}", "more": "{{ lead.fields.x }}"}}));
    assert_eq!(kind, "application/x-www-form-urlencoded");
    assert!(body.split('&').any(|pair| pair == "name=Anna+Ivanova"), "{body}");
    assert!(body.split('&').any(|pair| pair == "more="), "{body}");
}

#[test]
fn a_2xx_is_a_created_entity_only_with_its_id() {
    let plain = connector(json!({}));
    for (status, body, expected) in [
        (200, r#"{"id":12345}"#, "created 12345"),
        (201, r#"{"id":"12345"}"#, "created 12345"),
        (201, r#"{"id":37765128953}"#, "created 37765128953"),
        (201, r#"{"id":9007199254740993}"#, "created 9007199254740993"),
        (201, r#"{"id":"a0B5g00000XyZ"}"#, "created a0B5g00000XyZ"),
        (201, "\u{feff}{\"id\":42}", "created 42"),
        (201, r#"{"id":12345.0}"#, "uncertain"),
        (200, r#"{"id":0}"#, "uncertain"),
        (200, r#"{"id":null}"#, "uncertain"),
        (200, "{}", "uncertain"),
        (200, "Sorry, duplicate contact found", "uncertain"),
        (200, "<html>login</html>", "uncertain"),
        (204, "", "uncertain"),
        (201, "", "uncertain"),
        (400, r#"{"id":1}"#, "rejected"),
        (500, r#"{"id":1}"#, "uncertain"),
        (403, "<html>403</html>", "account"),
        (308, "", "account"),
        (409, "", "uncertain"),
        (429, "", "throttled"),
        (503, "", "uncertain"),
    ] {
        assert_eq!(outcome(&plain, status, body), expected, "{status} {body}");
    }
    let nested = connector(json!({"id": "/result/ID"}));
    assert_eq!(outcome(&nested, 200, r#"{"result":{"ID":"7"}}"#), "created 7");
    let whole = connector(json!({"id": ""}));
    assert_eq!(outcome(&whole, 200, "42"), "created 42");
}

#[test]
fn the_location_names_the_entity_where_the_configuration_says_so() {
    let exchange = |location: &str| -> Exchange {
        Ok(Answer { status: 201, headers: vec![("location".into(), location.into())], body: Vec::new() })
    };
    let (with, without) = (connector(json!({"id_from_location": true})), connector(json!({})));
    for (location, id) in [
        ("/leads/77", Some("77")),
        ("https://crm.example.com/leads/77/?a=b/c#d", Some("77")),
        ("/leads/a%20b", Some("a b")),
        ("/", None),
        ("", None),
        ("77", None),
        ("/leads/0", None),
    ] {
        let read = |connector: &Http| match connector.read_create(&order(), &exchange(location), NOW) {
            CreateOutcome::Created(id) => Some(id.to_string()),
            CreateOutcome::Failed(failure) => {
                assert_eq!(failure.class, FailureClass::Uncertain);
                None
            }
        };
        assert_eq!(read(&with).as_deref(), id, "{location}");
        assert_eq!(read(&without), None, "{location}");
    }
}

#[test]
fn rules_speak_before_the_status() {
    let connector = connector(json!({"rules": [
        {"status": 409, "body_pointer": "/code", "equals": "DUP", "class": "duplicate", "id": "/existing_id"},
        {"status": 200, "body_pointer": "/result", "equals": "duplicate", "class": "duplicate", "id": "/lead"},
        {"body_pointer": "/error/code", "equals": 7, "class": "throttled"},
        {"body_pointer": "/denied", "class": "account"},
        {"status": 503, "class": "not_executed"},
    ]}));
    for (status, body, expected) in [
        (409, r#"{"code":"DUP","existing_id":5}"#, "duplicate 5"),
        (409, r#"{"code":"DUP"}"#, "duplicate"),
        (409, r#"{"code":"OTHER","existing_id":5}"#, "uncertain"),
        (200, r#"{"result":"duplicate","lead":"u-1","id":9}"#, "duplicate u-1"),
        (200, r#"{"result":"created","id":9}"#, "created 9"),
        (200, r#"{"error":{"code":7}}"#, "throttled"),
        (400, r#"{"error":{"code":"7"}}"#, "throttled"),
        (200, r#"{"denied":true,"id":3}"#, "account"),
        (200, r#"{"denied":null,"id":3}"#, "created 3"),
        (503, "", "not_executed"),
        (502, "", "uncertain"),
    ] {
        assert_eq!(outcome(&connector, status, body), expected, "{status} {body}");
    }
}

#[test]
fn only_items_that_bear_the_key_are_found() {
    let strict = connector(json!({}));
    let ours = |id: u32| format!(r#"{{"id":{id},"external_id":"{KEY}"}}"#);
    for (status, body, expected) in [
        (200, r#"{"items":[]}"#.to_owned(), ""),
        (200, r#"{"items":null}"#.to_owned(), ""),
        (200, format!(r#"{{"items":[{}]}}"#, ours(7)), "7"),
        (200, format!(r#"{{"items":{}}}"#, ours(7)), "7"),
        (200, format!(r#"{{"items":[{},{}]}}"#, ours(7), ours(8)), "7,8"),
        (200, format!(r#"{{"items":[{{"id":1,"external_id":"x"}},{}]}}"#, ours(7)), "7"),
        (200, r#"{"items":[{"id":1,"external_id":"x"}]}"#.to_owned(), "uncertain"),
        (200, r#"{"items":[{"id":1}]}"#.to_owned(), "uncertain"),
        (200, format!(r#"{{"items":[{{"external_id":"{KEY}"}}]}}"#), "uncertain"),
        (200, "{}".to_owned(), "uncertain"),
        (200, "<html>".to_owned(), "uncertain"),
        (204, String::new(), "uncertain"),
        (404, String::new(), "account"),
        (429, String::new(), "throttled"),
        (502, String::new(), "uncertain"),
    ] {
        assert_eq!(looked_up(&strict, status, &body), expected, "{status} {body}");
    }
    let lookup = json!({"url": "http://localhost/?q={{ crm_key }}", "key": "/key", "id": "/n", "inexact": true, "absent_status": [204, 404]});
    let loose = connector(json!({"lookup": lookup}));
    for (status, body, expected) in [
        (200, r#"[{"n":1,"key":"x"}]"#.to_owned(), ""),
        (200, format!(r#"{{"n":1,"key":"{KEY}"}}"#), "1"),
        (204, String::new(), ""),
        (404, "<html>".to_owned(), ""),
        (410, String::new(), "account"),
    ] {
        assert_eq!(looked_up(&loose, status, &body), expected, "{status} {body}");
    }
}

#[test]
fn a_destination_without_a_look_up_says_so() {
    let mut settings = settings(json!({}));
    settings.as_object_mut().expect("a table").remove("lookup");
    let connector = read(settings).expect("good settings");
    assert!(!connector.can_look_up() && connector.look_up(&order()).is_none());
    // The check then asks the create's address with a method that creates nothing.
    let check = connector.check();
    assert_eq!((check.method, check.body.len()), ("GET", 0));
    assert_eq!(connector.read_check(&answered(405, ""), NOW), Ok(()));
    assert!(connector.read_check(&answered(401, ""), NOW).is_err());
}

#[test]
fn check_confirm_and_link_follow_the_configuration() {
    let connector = connector(json!({
        "check": "https://crm.example.com/me", "confirm": {"url": "https://crm.example.com/leads/{{ crm_id }}"},
        "link": "https://crm.example.com/ui/{{ crm_id }}",
    }));
    let id = CrmId::try_from("a/b".to_owned()).expect("an id");
    assert_eq!(connector.check().url, "https://crm.example.com/me");
    assert!(connector.check().headers.iter().any(|(name, _)| name == "authorization"));
    assert_eq!(connector.confirm(&id).map(|call| call.url).as_deref(), Some("https://crm.example.com/leads/a%2Fb"));
    assert_eq!(connector.link(&id).as_deref(), Some("https://crm.example.com/ui/a%2Fb"));
    let confirmed = |status| connector.read_confirm(&answered(status, ""), NOW);
    assert_eq!((confirmed(200), confirmed(404), confirmed(500).is_err()), (Ok(true), Ok(false), true));
    let fault = connector.read_check(&answered(401, "{}"), NOW).expect_err("a fault");
    assert!(fault.contains("credentials"), "{fault}");
}

#[test]
fn secrets_are_in_no_message() {
    let connector = connector(json!({
        "check": "https://user:PASSWORD9@crm.example.com/hook/abcdef0123456789abcdef/me",
    }));
    let body = "{\"message\": \"TOPSECRET QUERYSECRET PASSWORD9 abcdef0123456789abcdef\"}";
    let broken = Err(TransportError { class: FailureClass::Uncertain, message: body.into(), status: None });
    for exchange in [answered(401, body), answered(200, body), broken] {
        let shown = format!(
            "{connector:?} {:?} {:?} {:?} {:?} {:?} {:?}",
            connector.create(&order()),
            connector.check(),
            connector.read_create(&order(), &exchange, NOW),
            connector.read_look_up(&order(), &exchange, NOW),
            connector.read_check(&exchange, NOW),
            connector.read_confirm(&exchange, NOW)
        );
        for secret in ["TOPSECRET", "QUERYSECRET", "PASSWORD9", "abcdef0123456789abcdef"] {
            assert!(!connector.scrub(body).contains(secret));
            // The connector itself holds them; its Debug does print the list of what to scrub.
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
    }
}

#[test]
fn every_fault_of_the_settings_is_told_with_its_key() {
    let faults = read(json!({
        "headers": {"Host": "x", "bad name": "x", "X-N": 5, "X-L": "{{ lead.name }}"},
        "create": {"method": "GET", "url": "https://x/?n={{ lead.name }}", "body": {"a": ["{{ lead.nam }}"]}, "extra": 1},
        "id": "id",
        "lookup": {"url": "http://example.com/", "absent_status": [500]},
        "rules": [{"class": "duplicates"}, {"status": 9, "equals": 1, "class": "account", "id": "/x"}, 5],
        "confirm": "https://x/{{ crm_key }}",
        "link": "not an address {{ crm_id }}",
        "odd": 1,
    }))
    .expect_err("faults");
    let mut keys: Vec<&str> = faults.iter().map(|(key, _)| key.as_str()).collect();
    keys.dedup();
    for key in [
        "headers.X-N",
        "create.method",
        "create.url",
        "headers.Host",
        "headers.bad name",
        "headers.X-L",
        "create.body.a.0",
        "create.extra",
        "id",
        "lookup.url",
        "lookup.key",
        "lookup.absent_status",
        "rules.0.class",
        "rules.0.status",
        "rules.1.status",
        "rules.1.equals",
        "rules.1.id",
        "rules.2",
        "confirm.url",
        "link",
        "odd",
    ] {
        assert!(keys.contains(&key), "{key} is not in {faults:?}");
    }
    let missing = read(json!({})).expect_err("faults");
    assert_eq!(missing, [("create".into(), "is missing".into())]);
    for body in [json!("text"), json!("{\"a\": "), json!(5)] {
        let faults = read(json!({"create": {"url": "https://x/", "body": body}}));
        if let Ok(connector) = faults {
            panic!("{body} was taken: {connector:?}");
        }
    }
}

#[test]
fn a_changed_body_has_another_version_and_a_changed_secret_has_not() {
    let version = |more: Value| connector(more).mapping_version();
    let plain = version(json!({}));
    assert_eq!(plain, version(json!({"headers": {"Authorization": "Bearer OTHER"}})));
    assert_ne!(plain, version(json!({"create": {"url": "https://x/", "body": {"a": "b"}}})));
}

#[test]
fn an_empty_lead_can_be_sent() {
    let order = Order { lead: Lead::default(), ..order() };
    let call = connector(json!({})).create(&order).expect("a call");
    assert_eq!(serde_json::from_slice::<Value>(&call.body).expect("JSON"), json!({"external_id": KEY}));
}

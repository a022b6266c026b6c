use super::*;
use crate::crm::TransportError;
use crate::crm::template::sample_orders;
use crate::operation::Lead;
use crate::operation::lead::{Contact, Utm};

fn connector(settings: Value) -> Bitrix24 {
    let mut table = Map::from_iter([("webhook_url".to_owned(), json!("https://x.bitrix24.ru/rest/1/SECRET123/"))]);
    if let Value::Object(more) = settings {
        table.extend(more);
    }
    Bitrix24::new(table).expect("good settings")
}

fn faults(settings: Value) -> Vec<String> {
    let Value::Object(table) = settings else { panic!("a table") };
    let faults = Bitrix24::new(table).expect_err("faults");
    faults.into_iter().map(|(key, fault)| format!("{key} {fault}")).collect()
}

fn order(lead: Lead) -> Order {
    Order { lead, ..sample_orders().remove(0) }
}

fn sent(connector: &Bitrix24, order: &Order) -> Value {
    let call = connector.create(order).expect("a call");
    assert!(call.url.starts_with("https://x.bitrix24.ru/rest/1/SECRET123/crm.item."));
    serde_json::from_slice(&call.body).expect("JSON")
}

fn answered(status: u16, body: Value) -> Exchange {
    Ok(Answer { status, headers: Vec::new(), body: body.to_string().into_bytes() })
}

const NOW: At = At::from_seconds(1_796_000_000);
const KEY: &str = "00000000-0000-0000-0000-000000000000";

#[test]
fn a_lead_bears_what_the_visitor_typed_and_our_key() {
    let mut order = sample_orders().remove(0);
    order.lead.phones = vec![
        Contact { text: "8 916 123 45 67".into(), normal: Some("+79161234567".into()) },
        Contact { text: "call me".into(), normal: None },
    ];
    order.lead.utm = Utm { source: Some("google".into()), ..Utm::default() };
    let connector = connector(json!({"source_id": "WEB", "assigned_by_id": 7, "stage_id": "NEW"}));
    assert_eq!(
        sent(&connector, &order),
        json!({"entityTypeId": 1, "fields": {
            "title": "Anna Ivanova (sample)", "name": "Anna", "lastName": "Ivanova",
            "fm": [
                {"typeId": "PHONE", "valueType": "WORK", "value": "8 916 123 45 67"},
                {"typeId": "PHONE", "valueType": "WORK", "value": "call me"},
                {"typeId": "EMAIL", "valueType": "WORK", "value": "anna@example.com"},
            ],
            "utmSource": "google", "sourceId": "WEB", "sourceDescription": "sample", "assignedById": 7,
            "stageId": "NEW",
            "comments": "Please call me\n\nPage: https://example.com/\nReferrer: https://example.org/\ngclid: 1\nservice: x\ncv: cv.pdf (1 bytes)",
            "originatorId": "leadonce", "originId": KEY,
        }})
    );
}

#[test]
fn an_empty_lead_can_be_sent() {
    let fields = &sent(&connector(json!({})), &order(Lead::default()))["fields"];
    assert_eq!(
        *fields,
        json!({"title": "Lead (sample)", "sourceDescription": "sample", "originatorId": "leadonce", "originId": KEY})
    );
}

#[test]
fn what_a_column_is_too_short_for_stands_whole_in_the_comment() {
    let (name, phone) = ("й".repeat(60), "1".repeat(300));
    let lead = Lead {
        name: Some(name.clone()),
        phones: vec![Contact { text: phone.clone(), normal: None }],
        ..Lead::default()
    };
    let fields = &sent(&connector(json!({"title": "{{ lead.name }}".repeat(9)})), &order(lead.clone()))["fields"];
    assert_eq!(fields["name"], "й".repeat(50));
    assert_eq!(fields["fm"][0]["value"], "1".repeat(250));
    assert_eq!(fields["title"].as_str().map(|t| t.chars().count()), Some(255));
    let comment = fields["comments"].as_str().expect("a comment");
    assert!(comment.contains(&format!("Name: {name}")) && comment.contains(&format!("Phone: {phone}")), "{comment}");
    // The deal's comment is what people read, so it tells what the contact could not hold.
    let deal = connector(json!({"entity": "deal"}));
    let order = Order { step: 1, earlier: vec![CrmId::try_from("10".to_owned()).expect("an id")], ..order(lead) };
    let comment = sent(&deal, &order)["fields"]["comments"].clone();
    assert!(comment.as_str().is_some_and(|c| c.contains(&name) && c.contains(&phone)), "{comment}");
}

#[test]
fn a_deal_is_a_contact_and_then_the_deal_each_under_its_own_key() {
    let connector = connector(json!({
        "entity": "deal", "category_id": 3, "fields": {"ufCrmService": "{{ lead.fields.service }}"},
        "contact_fields": {"post": "{{ lead.fields.post }}"},
    }));
    assert_eq!(connector.steps(), ["contact", "deal"]);
    let mut order = sample_orders().remove(0);
    let contact = sent(&connector, &order);
    assert_eq!(
        (&contact["entityTypeId"], &contact["fields"]["originId"]),
        (&json!(3), &json!(format!("{KEY}:contact")))
    );
    assert_eq!(contact["fields"]["fm"].as_array().map(Vec::len), Some(2));
    assert!(contact["fields"].get("title").is_none() && contact["fields"].get("post").is_none());
    order.step = 1;
    assert!(connector.create(&order).is_err(), "a deal without its contact cannot be sent");
    order.earlier = vec![CrmId::try_from("10".to_owned()).expect("an id")];
    let deal = sent(&connector, &order);
    assert_eq!((&deal["entityTypeId"], &deal["fields"]["originId"]), (&json!(2), &json!(KEY)));
    assert_eq!((&deal["fields"]["contactIds"], &deal["fields"]["categoryId"]), (&json!([10]), &json!(3)));
    assert_eq!(deal["fields"]["ufCrmService"], "x");
    assert!(deal["fields"].get("fm").is_none());
    // A contact needs a name.
    let nameless =
        Order { lead: Lead { name: None, first_name: None, last_name: None, ..order.lead.clone() }, step: 0, ..order };
    assert_eq!(sent(&connector, &nameless)["fields"]["name"], "+79161234567");
}

#[test]
fn an_entity_counts_only_if_it_echoes_our_key() {
    let connector = connector(json!({}));
    let order = order(Lead::default());
    let read = |item: Value| connector.read_create(&order, &answered(200, json!({"result": {"item": item}})), NOW);
    let created = read(json!({"id": 3465, "originId": KEY, "originatorId": "leadonce"}));
    assert_eq!(created, CreateOutcome::Created(CrmId::try_from("3465".to_owned()).expect("an id")));
    for item in [
        json!({"id": 3465}),
        json!({"id": 3465, "originId": null, "originatorId": "leadonce"}),
        json!({"id": 3465, "originId": "other", "originatorId": "leadonce"}),
        json!({"id": 3465, "originId": KEY, "originatorId": "1c"}),
    ] {
        let CreateOutcome::Failed(failure) = read(item.clone()) else { panic!("{item} was believed") };
        assert_eq!(failure.class, FailureClass::Uncertain, "{item}");
        assert_eq!(failure.crm_id.as_ref().map(CrmId::as_str), Some("3465"), "the id is not forgotten: {item}");
    }
    for item in [json!({"id": 0, "originId": KEY}), json!({"id": 12.0, "originId": KEY}), json!([]), json!(null)] {
        let CreateOutcome::Failed(failure) = read(item.clone()) else { panic!("{item} was believed") };
        assert_eq!((failure.class, failure.crm_id), (FailureClass::Uncertain, None), "{item}");
    }
}

#[test]
fn a_look_up_asks_for_both_marks_and_bounds_the_time() {
    let connector = connector(json!({}));
    let mut order = order(Lead::default());
    let asked = |order: &Order| -> Value {
        let call = connector.look_up(order).expect("a call");
        assert_eq!(call.masked_url, "https://x.bitrix24.ru/rest/***/crm.item.list");
        serde_json::from_slice(&call.body).expect("JSON")
    };
    assert_eq!(asked(&order)["filter"], json!({"=originatorId": "leadonce", "=originId": KEY}));
    order.first_sent_at = At::parse_rfc3339("2026-12-01T10:00:00.123Z");
    let body = asked(&order);
    assert_eq!(body["filter"][">=createdTime"], "2026-11-30T10:00:00+00:00");
    assert_eq!((&body["start"], &body["entityTypeId"]), (&json!(-1), &json!(1)));
}

#[test]
fn only_rows_that_bear_the_key_count() {
    let connector = connector(json!({}));
    let order = order(Lead::default());
    let read = |items: Value| connector.read_look_up(&order, &answered(200, json!({"result": {"items": items}})), NOW);
    let ids = |ids: &[&str]| {
        LookupOutcome::Found(ids.iter().map(|id| CrmId::try_from((*id).to_owned()).expect("an id")).collect())
    };
    let ours = |id: u32| json!({"id": id, "originId": KEY, "originatorId": "leadonce"});
    let other = json!({"id": 9, "originId": "other", "originatorId": "leadonce"});
    let imported = json!({"id": 8, "originId": KEY, "originatorId": "1c"});
    assert_eq!(read(json!([])), ids(&[]));
    assert_eq!(read(json!([ours(7)])), ids(&["7"]));
    assert_eq!(read(json!([ours(7), ours(8)])), ids(&["7", "8"]));
    assert_eq!(read(json!([other, ours(7), imported])), ids(&["7"]));
    // A list that was not filtered may hide ours on its next page: it does not prove that there is none.
    for items in [json!([other]), json!([imported]), json!([{"id": 7}]), json!({}), json!(null), json!("none")] {
        assert!(matches!(read(items.clone()), LookupOutcome::Failed(_)), "{items}");
    }
}

#[test]
fn the_secret_is_in_no_message() {
    let connector = connector(json!({}));
    let order = order(Lead::default());
    let page = json!({"error": "ACCESS_DENIED", "error_description": "no /rest/1/SECRET123/ for you"});
    let exchange = answered(403, page);
    let broken = Err(TransportError { class: FailureClass::Uncertain, message: "at SECRET123".into(), status: None });
    for exchange in [exchange, broken] {
        let shown = format!(
            "{connector:?} {:?} {:?} {:?} {:?} {:?}",
            connector.create(&order),
            connector.read_create(&order, &exchange, NOW),
            connector.read_look_up(&order, &exchange, NOW),
            connector.read_check(&exchange, NOW),
            connector.read_confirm(&exchange, NOW)
        );
        assert!(!shown.contains("SECRET123"), "{shown}");
    }
    assert_eq!(connector.scrub("x SECRET123 y"), "x *** y");
}

#[test]
fn an_entity_is_confirmed_by_its_id() {
    let connector = connector(json!({}));
    let asked = |id: &str| -> Value {
        let call = connector.confirm(&CrmId::try_from(id.to_owned()).expect("an id")).expect("a call");
        serde_json::from_slice(&call.body).expect("JSON")
    };
    assert_eq!(asked("4512")["filter"], json!({"=id": "4512"}));
    assert_eq!(asked("4512 or so")["filter"], json!({"=id": "0"}));
    let read = |items: Value| connector.read_confirm(&answered(200, json!({"result": {"items": items}})), NOW);
    assert_eq!(read(json!([{"id": 4512}])), Ok(true));
    assert_eq!(read(json!([])), Ok(false));
    assert!(read(json!([{"id": 1}, {"id": 2}])).is_err());
    assert!(connector.read_confirm(&answered(502, json!({})), NOW).is_err());
}

#[test]
fn people_get_a_link_to_the_entity() {
    let id = CrmId::try_from("4512".to_owned()).expect("an id");
    assert_eq!(connector(json!({})).link(&id).as_deref(), Some("https://x.bitrix24.ru/crm/lead/details/4512/"));
    let deal = connector(json!({"entity": "deal"}));
    assert_eq!(deal.link(&id).as_deref(), Some("https://x.bitrix24.ru/crm/deal/details/4512/"));
    assert_eq!(deal.link(&CrmId::try_from("../x".to_owned()).expect("an id")), None);
}

#[test]
fn a_check_says_what_to_do() {
    let connector = connector(json!({}));
    assert_eq!(connector.read_check(&answered(200, json!({"result": {"items": []}})), NOW), Ok(()));
    for (exchange, words) in [
        (answered(401, json!({"error": "NO_AUTH_FOUND", "error_description": "Wrong auth data"})), "inbound webhook"),
        (answered(404, json!("<html>")), "inbound webhook"),
        (answered(200, json!({"hello": 1})), "is this the address of a Bitrix24 portal?"),
        (
            Err(TransportError { class: FailureClass::NotSent, message: "refused".into(), status: None }),
            "check the host",
        ),
    ] {
        let text = connector.read_check(&exchange, NOW).expect_err("a fault");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn every_fault_of_the_settings_is_told_with_its_key() {
    assert_eq!(
        faults(json!({
            "webhok_url": "x", "entity": "thing", "assigned_by_id": "me", "title": "{{ lead.nam }}",
            "fields": {"originId": "x", "UF_CRM_1": "x", "ufCrm1": ["{{ oops }}"]},
        }))
        .iter()
        .map(|fault| fault.split(' ').next().unwrap_or_default())
        .collect::<Vec<_>>(),
        [
            "webhook_url",
            "entity",
            "title",
            "assigned_by_id",
            "fields.UF_CRM_1",
            "fields.originId",
            "fields.ufCrm1.0",
            "webhok_url"
        ]
        .as_slice()
    );
    let only_deals = faults(json!({"webhook_url": "https://x.ru/rest/1/s/", "category_id": 1}));
    assert_eq!(only_deals, ["category_id is for entity = \"deal\" only"]);
}

#[test]
fn a_changed_mapping_has_another_version() {
    let version = |settings: Value| connector(settings).mapping_version();
    let plain = version(json!({}));
    assert_eq!(plain, version(json!({})));
    assert!(plain.starts_with("bitrix24/1/") && !plain.contains("SECRET"));
    assert_ne!(plain, version(json!({"stage_id": "NEW"})));
    assert_ne!(plain, version(json!({"fields": {"post": "x"}})));
}

#[test]
fn a_comment_that_no_column_takes_is_cut_and_says_where_the_whole_is() {
    let lead = Lead { message: Some("й".repeat(500_000)), ..Lead::default() };
    let comment = sent(&connector(json!({})), &order(lead))["fields"]["comments"].clone();
    let comment = comment.as_str().expect("a comment");
    assert!(comment.len() < 65_000 && comment.contains("operation 00000000-0000-0000-0000-000000000000"));
}

#[test]
fn a_refusal_does_not_repeat_the_leads_contacts() {
    let body = json!({"error": "ERROR_CORE", "error_description": "anna@example.com is no e-mail"});
    let CreateOutcome::Failed(failure) =
        connector(json!({})).read_create(&sample_orders().remove(0), &answered(400, body), NOW)
    else {
        panic!("it was refused");
    };
    assert_eq!(failure.message, "ERROR_CORE: *** is no e-mail");
}

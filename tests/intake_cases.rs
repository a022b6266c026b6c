//! Field cases that a recorded delivery cannot show: bombs, codings over signatures, keys of every length, NUL, time stamps.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use flate2::Compression;
use flate2::write::GzEncoder;
use hmac::{Hmac, KeyInit, Mac};
use leadonce::clock::At;
use leadonce::intake::{Answer, Event, Key, MissingKey, Received, Refused, Request, Settings, Source, registry};
use leadonce::operation::KeyOrigin;

const NOW: At = At::from_seconds(1_764_500_000);
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

fn settings(kind: &str) -> Settings {
    Settings {
        name: "site".parse().expect("a name"),
        kind: kind.to_owned(),
        destination: "crm".parse().expect("a name"),
        token: (kind == "api").then(|| "api-token".to_owned()),
        secrets: match kind {
            "standard-webhooks" => vec![format!("whsec_{}", base64::prelude::BASE64_STANDARD.encode(SECRET))],
            "telegram" => vec!["tg-secret".to_owned()],
            _ => vec![],
        },
        expired_secrets: vec![],
        allow_origins: vec![],
        thank_you_url: None,
        key: None,
        volatile: vec![],
        default_region: None,
        missing_key: None,
        resubmit_window: Duration::from_secs(120),
        hold_copies: false,
        honeypot: "website".to_owned(),
        signed_decoded: false,
        tolerance: Duration::from_secs(300),
        max_wait: Duration::from_secs(10),
        rate_per_second: None,
        max_body: 1 << 20,
    }
}

fn built(settings: &Settings) -> Arc<dyn Source> {
    registry::build(settings).expect("a source")
}

fn post(headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Request {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
    Request { method: "POST".into(), query: String::new(), headers, body: body.into() }
}

fn signed(body: impl Into<Vec<u8>>, more: &[(&str, &str)]) -> Request {
    let body = body.into();
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(SECRET).expect("any length");
    mac.update(b"msg_1.1764500000.");
    mac.update(&body);
    let signature = format!("v1,{}", base64::prelude::BASE64_STANDARD.encode(mac.finalize().into_bytes()));
    let mut headers =
        vec![("webhook-id", "msg_1"), ("webhook-timestamp", "1764500000"), ("webhook-signature", &signature)];
    headers.extend(more);
    post(&headers, body)
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).expect("memory");
    encoder.finish().expect("memory")
}

fn event(source: &dyn Source, request: &Request) -> Event {
    match source.receive(request, NOW) {
        Ok(Received::Events(mut events)) if events.len() == 1 => events.remove(0),
        other => panic!("one event expected: {other:?}"),
    }
}

#[test]
fn a_signature_covers_the_bytes_on_the_wire_compressed_or_not() {
    let source = built(&settings("standard-webhooks"));
    let plain = event(source.as_ref(), &signed(r#"{"name":"A"}"#, &[]));
    let packed = signed(gzip(br#"{ "name" : "A" }"#), &[("content-encoding", "gzip")]);
    // Which bytes are signed is a setting of the source.
    let before_packing = built(&Settings { signed_decoded: true, ..settings("standard-webhooks") });
    let signed_plain =
        Request { body: gzip(br#"{"name":"A"}"#), ..signed(r#"{"name":"A"}"#, &[("content-encoding", "gzip")]) };
    assert!(before_packing.receive(&signed_plain, NOW).is_ok());
    assert!(before_packing.receive(&packed, NOW).is_err(), "signed over the packed bytes");
    assert_eq!(event(source.as_ref(), &packed), plain);
    let over_plain =
        Request { body: gzip(br#"{"name":"A"}"#), ..signed(r#"{"name":"A"}"#, &[("content-encoding", "gzip")]) };
    assert!(matches!(source.receive(&over_plain, NOW), Err(Refused::Unauthorized { kind: "mismatch", .. })));
}

#[test]
fn a_bomb_is_too_large_and_a_broken_body_goes_to_a_person_or_back_to_the_sender() {
    let bomb = gzip(&vec![b' '; 50_000_000]);
    let (form, api, hook) = (built(&settings("form")), built(&settings("api")), built(&settings("standard-webhooks")));
    let api_headers = [("authorization", "Bearer api-token"), ("idempotency-key", "k"), ("content-encoding", "gzip")];
    let coded = [("content-encoding", "gzip")];
    assert!(matches!(form.receive(&post(&coded, bomb.clone()), NOW), Err(Refused::TooLarge(_))));
    assert!(matches!(api.receive(&post(&api_headers, bomb.clone()), NOW), Err(Refused::TooLarge(_))));
    assert!(matches!(hook.receive(&signed(bomb, &coded), NOW), Err(Refused::TooLarge(_))));
    assert!(matches!(form.receive(&post(&coded, "name=A"), NOW), Ok(Received::Unreadable(_))));
    assert!(matches!(api.receive(&post(&api_headers, "name=A"), NOW), Err(Refused::BadRequest(_))));
    assert!(matches!(hook.receive(&signed("{}", &coded), NOW), Ok(Received::Unreadable(_))));
}

#[test]
fn deep_nesting_is_an_error_for_a_signed_body_and_never_read_in_an_unsigned_one() {
    let source = built(&settings("standard-webhooks"));
    for (depth, readable) in [(127, true), (128, false), (100_000, false)] {
        let body = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let received = source.receive(&signed(body.as_str(), &[]), NOW).expect("authenticated");
        assert_eq!(matches!(received, Received::Events(_)), readable, "{depth}");
        assert!(matches!(source.receive(&post(&[], body), NOW), Err(Refused::Unauthorized { kind: "missing", .. })));
    }
    let form = built(&settings("form"));
    let deep = format!(r#"{{"name":{}1{}}}"#, r#"{"a":"#.repeat(126), "}".repeat(126));
    let event = event(form.as_ref(), &post(&[], deep.as_str()));
    assert!(form.lead(&post(&[], deep), 0).is_ok());
    assert!(matches!(event.key, Key::Window(_)));
    for many in [format!("{{{}\"z\":1}}", "\"a\":1,".repeat(100_000)), format!(r#"{{"{}":1}}"#, "k".repeat(1_000_000))]
    {
        assert!(matches!(form.receive(&post(&[], many), NOW), Ok(Received::Events(_))));
    }
}

#[test]
fn nul_is_noted_and_removed_from_the_lead_and_a_key_keeps_it() {
    let mut with_key = settings("form");
    with_key.key = Some("order".into());
    let form = built(&with_key);
    for request in [
        post(&[("content-type", "application/x-www-form-urlencoded")], "Name=Anna%00&order=a%00b"),
        post(&[("content-type", "application/json")], r#"{"Name":"Anna\u0000","order":"a\u0000b"}"#),
    ] {
        let event = event(form.as_ref(), &request);
        assert!(event.note.is_some());
        assert!(matches!(event.key, Key::Given(key, KeyOrigin::Field) if key.as_bytes() == b"a\0b"));
        let lead = form.lead(&request, 0).expect("a lead");
        assert_eq!(lead.name.as_deref(), Some("Anna"));
        assert_eq!(lead.fields, [("order".to_owned(), "ab".to_owned())]);
    }
}

#[test]
fn long_keys_of_a_field_are_hashed_not_cut_and_two_of_them_stay_two() {
    let form = built(&settings("form"));
    let key = |id: String| event(form.as_ref(), &post(&[], format!("name=A&_submission_id={id}"))).key;
    let (a, b) = (key("k".repeat(5_000)), key("k".repeat(5_001)));
    assert_ne!(a, b);
    assert!(matches!(a, Key::Given(key, KeyOrigin::Native) if key.as_bytes().starts_with(b"sha256:")));
    assert_ne!(key("AB".into()), key("ab".into()));
}

#[test]
fn without_a_key_the_sources_policy_decides() {
    let receive = |kind: &str, missing| {
        let mut settings = settings(kind);
        settings.missing_key = missing;
        built(&settings).receive(&post(&[("authorization", "Bearer api-token")], r#"{"name":"A"}"#), NOW)
    };
    let key = |received: Result<Received, Refused>| match received {
        Ok(Received::Events(events)) => events.into_iter().next().map(|event| event.key),
        _ => None,
    };
    assert!(matches!(receive("api", None), Err(Refused::BadRequest(_))));
    assert!(matches!(receive("form", Some(MissingKey::Reject)), Err(Refused::BadRequest(_))));
    assert_eq!(key(receive("api", Some(MissingKey::Generate))), Some(Key::Generate));
    assert_eq!(key(receive("form", Some(MissingKey::Generate))), Some(Key::Generate));
    assert_eq!(key(receive("form", None)), Some(Key::Window(Duration::from_secs(120))));
}

#[test]
fn two_key_headers_that_differ_are_refused_for_programs_and_noted_for_forms() {
    let headers = [("authorization", "Bearer api-token"), ("idempotency-key", "a"), ("idempotency-key", "b")];
    let request = post(&headers, r#"{"name":"A"}"#);
    assert!(matches!(built(&settings("api")).receive(&request, NOW), Err(Refused::BadRequest(_))));
    let event = event(built(&settings("form")).as_ref(), &request);
    assert!(event.note.is_some() && matches!(event.key, Key::Window(_)));
}

#[test]
fn an_event_has_its_own_time_where_the_sender_tells_it() {
    let hook = built(&settings("standard-webhooks"));
    let at = |body: &str| event(hook.as_ref(), &signed(body, &[])).event_at;
    let noon = Some(At::from_seconds(1_764_504_000));
    assert_eq!(at(r#"{"timestamp":"2025-11-30T12:00:00Z"}"#), noon);
    assert_eq!(at(r#"{"timestamp":"2025-11-30T15:00:00+03:00"}"#), noon);
    assert_eq!(at(r#"{"timestamp":1764504000}"#), noon);
    assert_eq!(at(r#"{"timestamp":1764504000000}"#), noon);
    for none in [r#"{"timestamp":"noon"}"#, r#"{"timestamp":-5}"#, r#"{"timestamp":[]}"#, "{}", "[]"] {
        assert_eq!(at(none), None, "{none}");
    }
    let telegram = built(&settings("telegram"));
    let body = r#"{"update_id":1,"message":{"date":1764504000,"text":"hi"}}"#;
    let request = post(&[("x-telegram-bot-api-secret-token", "tg-secret")], body);
    assert_eq!(event(telegram.as_ref(), &request).event_at, noon);
}

#[test]
fn each_kind_is_answered_as_its_sender_demands() {
    let answer = |kind: &str| built(&settings(kind)).answer();
    assert_eq!(answer("form"), Answer::Form { thank_you_url: None });
    assert_eq!(answer("api"), Answer::Strict);
    assert_eq!(answer("standard-webhooks"), Answer::Json);
    assert_eq!(answer("tilda"), Answer::Text("ok"));
    assert_eq!(answer("telegram"), Answer::Empty);
}

#[test]
fn a_changed_rule_is_a_changed_name_of_the_rule() {
    let rule = |change: fn(&mut Settings)| {
        let mut settings = settings("form");
        change(&mut settings);
        built(&settings).hash_rule()
    };
    let plain = rule(|_| {});
    assert_eq!(rule(|s| s.default_region = Some("DE".into())), plain);
    assert_ne!(rule(|s| s.volatile = vec!["t".into()]), plain);
    assert_ne!(rule(|s| s.honeypot = "trap".into()), plain);
}

#[test]
fn the_honeypot_catches_and_an_empty_one_does_not() {
    let form = built(&settings("form"));
    assert_eq!(form.receive(&post(&[], "name=A&website=x"), NOW), Ok(Received::Spam));
    assert_eq!(form.receive(&post(&[], r#"{"name":"A","website":"x"}"#), NOW), Ok(Received::Spam));
    let (with, without) = (post(&[], "name=A&website="), post(&[], "name=A"));
    assert_eq!(event(form.as_ref(), &with), event(form.as_ref(), &without));
    let mut off = settings("form");
    off.honeypot = String::new();
    assert!(matches!(built(&off).receive(&post(&[], "name=A&website=x"), NOW), Ok(Received::Events(_))));
}

#[test]
fn c70_who_signs_with_an_expired_secret_is_refused_and_told_apart() {
    let valid = built(&settings("standard-webhooks"));
    let other = format!("whsec_{}", base64::prelude::BASE64_STANDARD.encode(b"the new secret of this very source"));
    let rotated = built(&Settings {
        secrets: vec![other.clone()],
        expired_secrets: settings("standard-webhooks").secrets,
        ..settings("standard-webhooks")
    });
    let request = signed(r#"{"name":"A"}"#, &[]);
    assert!(valid.receive(&request, NOW).is_ok());
    let kind = |source: &dyn Source, request: &Request| match source.receive(request, NOW) {
        Err(Refused::Unauthorized { kind, .. }) => kind,
        taken => panic!("{taken:?}"),
    };
    assert_eq!(kind(rotated.as_ref(), &request), "expired_secret");
    let tampered = Request { body: br#"{"name":"B"}"#.to_vec(), ..request };
    assert_eq!(kind(rotated.as_ref(), &tampered), "mismatch");

    let rotated =
        built(&Settings { secrets: vec!["new".into()], expired_secrets: vec!["old".into()], ..settings("telegram") });
    let bearing = |secret| post(&[("x-telegram-bot-api-secret-token", secret)], r#"{"update_id":1}"#);
    assert!(rotated.receive(&bearing("new"), NOW).is_ok());
    assert_eq!(kind(rotated.as_ref(), &bearing("old")), "expired_secret");
    assert_eq!(kind(rotated.as_ref(), &bearing("older")), "mismatch");

    let both = Settings { expired_secrets: vec![other.clone()], secrets: vec![other], ..settings("standard-webhooks") };
    assert_eq!(registry::build(&both).err().map(|faults| faults.len()), Some(1), "a secret is valid or it is not");
}

#[test]
fn c43_a_source_that_watches_for_copies_sees_the_same_content_under_another_id() {
    let json = [("content-type", "application/json"), ("authorization", "Bearer api-token"), ("idempotency-key", "e")];
    // The same lead under two ids, and another lead.
    let cases: [(&str, Option<&str>, [Request; 3]); 5] = [
        ("api", None, {
            let of = |key: &str, body: &str| post(&[json[0], json[1], ("idempotency-key", key)], body);
            [of("e1", r#"{"lead":"L9"}"#), of("e2", r#"{"lead":"L9"}"#), of("e3", r#"{"lead":"L8"}"#)]
        }),
        ("api", Some("/event/id"), {
            let of = |body: &str| post(&json[..2], body);
            [
                of(r#"{"event":{"id":"e1","v":1},"lead":"L9"}"#),
                of(r#"{"lead":"L9", "event":{"v":1,"id":"e2"}}"#),
                of(r#"{"event":{"id":"e3","v":2},"lead":"L9"}"#),
            ]
        }),
        (
            "form",
            Some("id"),
            ["_submission_id=e1&id=1&n=A", "_submission_id=e2&id=2&n=A", "_submission_id=e2&n=B"]
                .map(|body| post(&[], body)),
        ),
        ("tilda", None, ["tranid=1:1&n=A", "tranid=1:2&n=A", "tranid=1:2&n=B"].map(|body| post(&[], body))),
        (
            "standard-webhooks",
            None,
            [("e1", "A"), ("e2", "A"), ("e3", "B")].map(|(id, name)| {
                let mut request = signed(format!(r#"{{"name":"{name}"}}"#), &[]);
                request.headers.retain(|(name, _)| name != "webhook-id");
                request.headers.push(("webhook-id".into(), id.into()));
                request
            }),
        ),
    ];
    for (kind, key, requests) in cases {
        let settings = Settings { key: key.map(str::to_owned), ..settings(kind) };
        let watching = built(&Settings { hold_copies: true, ..settings.clone() });
        let read = |request| watching.events(request).expect("readable").remove(0);
        let [first, copy, other] = requests.each_ref().map(read);
        assert_ne!(first.key, copy.key, "{kind}");
        assert!(first.likeness.is_some(), "{kind}");
        assert_eq!(first.likeness, copy.likeness, "{kind}");
        assert_ne!(first.likeness, other.likeness, "{kind}");
        let likeness = first.likeness.expect("taken");
        assert_eq!(likeness.window(), Duration::from_secs(120), "{kind}");
        assert_ne!(*likeness.hash(), first.payload_hash, "{kind}: it would meet the window of an event without a key");
        let plain = built(&settings);
        assert!(requests.iter().all(|request| plain.events(request).expect("readable")[0].likeness.is_none()));
    }
}

#[test]
fn c48_a_blank_key_is_no_key_and_never_one_that_all_share() {
    let keyed = |kind: &str, body: &str| {
        let source = built(&Settings {
            key: Some("/id".into()),
            missing_key: Some(MissingKey::ResubmitWindow),
            ..settings(kind)
        });
        let headers = [("authorization", "Bearer api-token"), ("content-type", "application/json")];
        event(source.as_ref(), &post(&headers, body))
    };
    for kind in ["api", "form", "tilda"] {
        for blank in ["null", r#""""#, r#"" ""#, r#""\t""#, r#"{"a":1}"#, "[]"] {
            let read = keyed(kind, &format!(r#"{{"id":{blank},"name":"A"}}"#));
            assert_eq!(read.key, Key::Window(Duration::from_secs(120)), "{kind} {blank}");
            assert!(read.note.is_some_and(|note| note.contains("id")), "{kind} {blank}: it is noted");
        }
        assert!(matches!(keyed(kind, r#"{"name":"A"}"#).key, Key::Window(_)), "{kind}");
        let zero = keyed(kind, r#"{"id":0,"name":"A"}"#).key;
        assert!(
            matches!(zero, Key::Given(key, KeyOrigin::Field) if key.as_bytes() == b"0"),
            "{kind}: a key like any other"
        );
    }
}

#[test]
fn c77_one_text_has_two_spellings_and_a_key_has_one() {
    let form = built(&Settings { key: Some("id".into()), ..settings("form") });
    let read = |id: &str, name: &str| event(form.as_ref(), &post(&[], format!("id={id}&name={name}")));
    let (composed, decomposed) = ("\u{439}\u{451}", "\u{438}\u{306}\u{435}\u{308}");
    assert_eq!(read("1", composed), read("1", decomposed), "the same name, typed elsewhere");
    assert_ne!(read("1", "\u{fb01}").payload_hash, read("1", "fi").payload_hash, "a ligature is another text");
    assert_ne!(read(composed, "A").key, read(decomposed, "A").key, "a key is bytes");
}

#[test]
fn c33_a_malformed_signature_is_refused_and_breaks_nothing() {
    let hook = built(&settings("standard-webhooks"));
    let right = signed("{}", &[]);
    let signature = right.header("webhook-signature").expect("signed").to_owned();
    let with = |signatures: &[&str]| {
        let mut request = right.clone();
        request.headers.retain(|(name, _)| name != "webhook-signature");
        let signatures = signatures.iter().map(|value| ("webhook-signature".to_owned(), value.as_bytes().to_vec()));
        request.headers.extend(signatures);
        hook.receive(&request, NOW)
    };
    assert!(with(&[&signature]).is_ok());
    assert!(with(&[signature.trim_end_matches('=')]).is_ok(), "padding is optional");
    let long = format!("v1,{}", base64::prelude::BASE64_STANDARD.encode([7; 33]));
    let (upper, cut) = (signature.to_uppercase(), &signature[..signature.len() - 4]);
    let malformed: [&[&str]; 9] = [
        &[],
        &[""],
        &["v1,"],
        &["v1"],
        &[&long],
        &[&upper],
        &[cut],
        &["sha256=0123456789abcdef"],
        &[&signature, &signature],
    ];
    for signatures in malformed {
        assert!(matches!(with(signatures), Err(Refused::Unauthorized { .. })), "{signatures:?}");
    }
}

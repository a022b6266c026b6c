//! What each lead costs before and after the store: canonical content, keys, and the meaning of a CRM's answer. Pure functions over
//! the fixtures, so the figures are stable where those of a load are not: `cargo bench --bench core`, or `-- NAME` for some.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use leadonce::clock::At;
use leadonce::crm::{self, Answer, Connector, Exchange, Order, failure};
use leadonce::delivery::retry::{self, Facts};
use leadonce::delivery::{LookupPolicy, RetryPolicy};
use leadonce::intake::{self, Received, Request, Source};
use leadonce::operation::canonical::{FormValue, hash_form, hash_json, hash_raw};
use leadonce::operation::field::FieldPath;
use leadonce::operation::json::Json;
use leadonce::operation::{
    CreateOutcome, CrmKey, FailureClass, Lead, OperationId, PayloadHash, SourceKey, SourceName, Variant,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    canonical_content(&mut criterion);
    reception(&mut criterion);
    keys(&mut criterion);
    classification(&mut criterion);
    decisions(&mut criterion);
    criterion.final_summary();
}

/// The hash that tells a replay from a conflict, alone.
fn canonical_content(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("canonical");
    let volatile = [FieldPath::parse("/sent_at").expect("a field")];
    for name in ["api/01-ok", "telegram/04-contact", "standard-webhooks/01-ok"] {
        let body = text(&format!("sources/{name}.body"));
        group.throughput(bytes(body.len()));
        group.bench_function(format!("json/{name}"), |b| {
            b.iter(|| hash_json(&Json::parse(black_box(&body)).expect("JSON"), &volatile));
        });
    }
    let body = text("sources/tilda/05-cart-order.body");
    let pairs: Vec<_> = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    group.throughput(bytes(body.len()));
    group.bench_function("form/tilda/05-cart-order", |b| {
        b.iter(|| hash_form(black_box(&pairs).iter().map(|(n, v)| (n.as_str(), FormValue::Text(v))), &volatile));
    });
    // A form with a photograph, or a body that nobody can read.
    let photograph = vec![0x5A; 1 << 20];
    group.throughput(bytes(photograph.len()));
    group.bench_function("raw/1 MiB", |b| b.iter(|| hash_raw(black_box(&photograph))));
    group.finish();
}

/// All that a request costs before it goes to the store: signature, reading, key and hash; and its lead, read for delivery.
fn reception(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reception");
    for name in [
        "form/01-urlencoded",
        "form/06-multipart-file",
        "api/01-ok",
        "standard-webhooks/01-ok",
        "tilda/05-cart-order",
        "telegram/04-contact",
    ] {
        let (source, request, now) = delivery(name);
        let received = source.receive(&request, now);
        assert!(matches!(received, Ok(Received::Events(_))), "{name}: {received:?}");
        group.throughput(bytes(request.body.len()));
        group.bench_function(format!("receive/{name}"), |b| b.iter(|| source.receive(black_box(&request), now)));
        group.bench_function(format!("lead/{name}"), |b| b.iter(|| source.lead(black_box(&request), 0)));
    }
    group.finish();
}

/// The keys: the sender's own as it is stored, and the one under which the CRM will know the entity.
fn keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("key");
    let long = "x".repeat(300);
    for (name, native) in [("uuid", "0198c0de-0000-7000-8000-000000000001"), ("300 bytes", long.as_str())] {
        group.bench_function(format!("source_key/{name}"), |b| {
            b.iter(|| SourceKey::from_native(black_box(native.as_bytes())));
        });
    }
    let (source, id) = (source_name(), operation_id());
    let key = SourceKey::from_native(b"0198c0de-0000-7000-8000-000000000001");
    let changed = Variant::Changed(PayloadHash::from([7; 32]));
    let derived_from = [
        ("first", key.as_ref(), Variant::First),
        ("changed", key.as_ref(), changed),
        ("keyless", None, Variant::First),
    ];
    for (name, key, variant) in derived_from {
        group.bench_function(format!("crm_key/{name}"), |b| {
            b.iter(|| CrmKey::derive(black_box(&source), key, &variant, id));
        });
    }
    group.finish();
}

/// What a CRM's answer means.
fn classification(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("classification");
    let (order, now) = (order(), at("2026-10-21T07:26:30Z"));
    for kind in crm::registry::kinds() {
        let connector = connector(kind);
        for case in ["created", "rejected", "rate_limited", "server_error"] {
            let exchange = exchange(&format!("{kind}/{case}"));
            let outcome = connector.read_create(&order, &exchange, now);
            assert_eq!(matches!(outcome, CreateOutcome::Created(_)), case == "created", "{kind}/{case}: {outcome:?}");
            group.throughput(bytes(exchange.as_ref().map_or(0, |answer| answer.body.len())));
            group.bench_function(format!("{kind}/{case}"), |b| {
                b.iter(|| connector.read_create(&order, black_box(&exchange), now));
            });
        }
    }
    let answer = exchange("bitrix24/proxy_502").expect("an answer");
    group.throughput(bytes(answer.body.len()));
    group.bench_function("by status/proxy_502", |b| b.iter(|| failure::by_status(black_box(&answer), now)));
    group.finish();
}

/// When to try again, after the first failure and after many.
fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("retry");
    let policy = RetryPolicy {
        max_attempts: 100,
        initial_interval: Duration::from_secs(1),
        multiplier: 2.0,
        jitter: 0.2,
        max_interval: Duration::from_secs(600),
        max_elapsed: Duration::from_secs(86_400),
    };
    let lookup = LookupPolicy {
        first_after: Duration::from_secs(2),
        settle: Duration::from_secs(90),
        give_up: Duration::from_secs(3_600),
        trusted: true,
    };
    let now = at("2026-10-21T07:26:30Z");
    for failures in [1, 10, 50] {
        let facts = Facts { now, counted: failures, consecutive: failures, series_since: now, retry_after: None };
        group.bench_function(format!("not executed/{failures}"), |b| {
            b.iter(|| retry::decide(FailureClass::NotExecuted, black_box(&facts), &policy, Some(&lookup), 0.5));
        });
    }
    group.finish();
}

fn bytes(length: usize) -> Throughput {
    Throughput::Bytes(u64::try_from(length).unwrap_or(u64::MAX))
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn read<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_str(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn at(time: &str) -> At {
    At::parse_rfc3339(time).expect("a time")
}

fn source_name() -> SourceName {
    "site".parse().expect("a name")
}

fn operation_id() -> OperationId {
    "0198c0de-0000-7000-8000-000000000001".parse().expect("a UUID")
}

/// What a bench needs of a recorded delivery (`tests/sources.rs` checks them all).
#[derive(Deserialize)]
struct Delivery {
    method: String,
    #[serde(default)]
    query: String,
    #[serde(default)]
    settings: Secrets,
    headers: BTreeMap<String, String>,
    now: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Secrets {
    token: Option<String>,
    secrets: Vec<String>,
}

fn delivery(name: &str) -> (Arc<dyn Source>, Request, At) {
    let recorded: Delivery = read(&format!("sources/{name}.json"));
    let settings = intake::Settings {
        name: source_name(),
        kind: name.split('/').next().unwrap_or_default().to_owned(),
        destination: "crm".parse().expect("a name"),
        token: recorded.settings.token,
        secrets: recorded.settings.secrets,
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
    };
    let request = Request {
        method: recorded.method,
        query: recorded.query,
        headers: recorded.headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect(),
        body: std::fs::read(fixture(&format!("sources/{name}.body"))).expect("a body"),
    };
    (intake::registry::build(&settings).expect("good settings"), request, At::from_seconds(recorded.now))
}

fn connector(kind: &str) -> Arc<dyn Connector> {
    let settings = text(&format!("crm/{kind}/settings.json")).replace("CRM", "127.0.0.1:1");
    let settings: Map<String, Value> = serde_json::from_str(&settings).expect("a table");
    crm::registry::build(kind, settings).expect("good settings")
}

/// The answer of a recorded exchange with a CRM.
fn exchange(name: &str) -> Exchange {
    let recorded: Value = read(&format!("crm/{name}/exchange.json"));
    let answer = &recorded["comes_back"]["answer"];
    let headers = answer["headers"].as_object().into_iter().flatten();
    let body = match &answer["body"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        body => body.to_string(),
    };
    Ok(Answer {
        status: answer["status"].as_u64().and_then(|status| status.try_into().ok()).expect("a status"),
        headers: headers.map(|(name, value)| (name.to_lowercase(), value.as_str().unwrap_or("").to_owned())).collect(),
        body: body.into_bytes(),
    })
}

fn order() -> Order {
    let (source, key) = (source_name(), SourceKey::from_native(b"a1b2"));
    Order {
        operation_id: operation_id(),
        crm_key: CrmKey::derive(&source, key.as_ref(), &Variant::First, operation_id()),
        source,
        lead: read::<Lead>("crm/lead.json"),
        received_at: at("2026-10-21T07:25:00Z"),
        step: 0,
        earlier: vec![],
        first_sent_at: None,
    }
}

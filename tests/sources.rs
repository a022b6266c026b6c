//! Every kind of source against its recorded deliveries in `fixtures/sources/<kind>/`.
//!
//! A case is `<name>.json` (request, settings, what is expected) and `<name>.body` (the bytes on the wire). A kind without
//! cases, or cases without a kind, is an error: that is how a new source is kept honest.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leadonce::clock::At;
use leadonce::intake::{Event, KEPT_HEADERS, Key, Received, Refused, Request, Settings, Source, registry};
use leadonce::operation::Lead;
use serde::Deserialize;

/// What every kind's fixtures must show, by a word in the name of one of its cases or by an expectation.
const OBLIGATORY: [&str; 4] = ["replay_of", "conflict_with", "unicode", "missing"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    method: String,
    #[serde(default, rename = "note")]
    _note: String,
    #[serde(default)]
    settings: CaseSettings,
    #[serde(default)]
    query: String,
    headers: BTreeMap<String, String>,
    now: i64,
    expect: Expect,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CaseSettings {
    token: Option<String>,
    secrets: Vec<String>,
    key: Option<String>,
    volatile: Vec<String>,
    default_region: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    received: Option<String>,
    refused: Option<u16>,
    kind: Option<String>,
    /// `null`: the delivery has no key of its own.
    #[serde(default, deserialize_with = "given")]
    key: Option<Option<String>>,
    origin: Option<String>,
    #[serde(default)]
    note: bool,
    replay_of: Option<String>,
    conflict_with: Option<String>,
    lead: Option<Lead>,
}

fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

fn settings(kind: &str, case: &CaseSettings) -> Settings {
    Settings {
        name: "site".parse().expect("a name"),
        kind: kind.to_owned(),
        destination: "crm".parse().expect("a name"),
        token: case.token.clone(),
        secrets: case.secrets.clone(),
        expired_secrets: vec![],
        allow_origins: vec![],
        thank_you_url: None,
        key: case.key.clone(),
        volatile: case.volatile.clone(),
        default_region: case.default_region.clone(),
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

fn fixtures() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/sources"))
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().into_string().expect("a name")).collect();
    names.sort();
    names
}

fn cases(kind: &str) -> BTreeMap<String, (Case, Request)> {
    let folder = fixtures().join(kind);
    let names = names_in(&folder).into_iter().filter_map(|name| name.strip_suffix(".json").map(str::to_owned));
    names
        .map(|name| {
            let text = std::fs::read(folder.join(format!("{name}.json"))).expect("a case");
            let case: Case = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{kind}/{name}: {error}"));
            let request = Request {
                method: case.method.clone(),
                query: case.query.clone(),
                headers: case.headers.iter().map(|(n, v)| (n.clone(), v.clone().into_bytes())).collect(),
                body: std::fs::read(folder.join(format!("{name}.body"))).expect("a body"),
            };
            (name, (case, request))
        })
        .collect()
}

fn source(kind: &str, case: &Case) -> Arc<dyn Source> {
    registry::build(&settings(kind, &case.settings)).unwrap_or_else(|faults| panic!("{kind}: {faults:?}"))
}

/// The delivery as the log gives it back: no query, only the kept headers.
fn from_log(request: &Request) -> Request {
    let headers = request.headers.iter().filter(|(name, _)| KEPT_HEADERS.contains(&name.as_str())).cloned().collect();
    Request { query: String::new(), headers, ..request.clone() }
}

fn only_event(received: &Received) -> &Event {
    match received {
        Received::Events(events) if events.len() == 1 => &events[0],
        other => panic!("one event expected: {other:?}"),
    }
}

fn check(kind: &str, name: &str, all: &BTreeMap<String, (Case, Request)>) {
    let at = format!("{kind}/{name}");
    let (case, request) = &all[name];
    let source = source(kind, case);
    let expect = &case.expect;
    let result = source.receive(request, At::from_seconds(case.now));
    if let Some(status) = expect.refused {
        let (told, word, text) = match result.expect_err(&at) {
            Refused::Unauthorized { kind, detail } => (401, Some(kind), detail),
            Refused::BadRequest(text) => (400, None, text),
            Refused::TooLarge(text) => (413, None, text),
            Refused::UnsupportedMedia(text) => (415, None, text),
        };
        assert_eq!((told, word), (status, expect.kind.as_deref()), "{at}");
        for secret in case.settings.secrets.iter().chain(&case.settings.token) {
            assert!(!text.contains(secret), "{at}: {text}");
        }
        return;
    }
    let received = result.unwrap_or_else(|refused| panic!("{at}: {refused}"));
    let word = match &received {
        Received::Events(_) => "events",
        Received::Test => "test",
        Received::Spam => "spam",
        Received::Ignored(_) => "ignored",
        Received::Unreadable(_) => "unreadable",
    };
    assert_eq!(Some(word), expect.received.as_deref(), "{at}: {received:?}");
    if word != "events" {
        return;
    }
    let event = only_event(&received);
    let key = match &event.key {
        Key::Given(key, origin) => {
            assert!(expect.origin.as_deref().is_none_or(|o| o == origin.as_str()), "{at}: {origin:?}");
            Some(key.to_text())
        }
        Key::Window(window) => {
            assert_eq!(*window, Duration::from_secs(120), "{at}");
            None
        }
        Key::Generate => panic!("{at}: generated"),
    };
    if let Some(expected) = &expect.key {
        assert_eq!(&key, expected, "{at}");
    }
    assert_eq!(event.note.is_some(), expect.note, "{at}: {:?}", event.note);

    let logged = from_log(request);
    assert_eq!(source.events(&logged).as_deref(), Ok(std::slice::from_ref(event)), "{at}: read from the log");
    assert_eq!(source.rehash(&logged, 0), Some(event.payload_hash), "{at}");
    assert_eq!(source.rehash(&logged, 1), None, "{at}");
    assert!(source.lead(&logged, 1).is_err(), "{at}");
    let lead = source.lead(&logged, 0).unwrap_or_else(|error| panic!("{at}: {error}"));
    if let Some(expected) = &expect.lead {
        let json = |lead: &Lead| serde_json::to_string_pretty(lead).expect("JSON");
        assert_eq!(json(&lead), json(expected), "{at}");
    }
    let empty = lead == Lead::default();
    assert!(!empty, "{at}: an empty lead");

    for (other, same_content) in [(&expect.replay_of, true), (&expect.conflict_with, false)] {
        let Some(other) = other else { continue };
        let (other_case, other_request) = &all[other];
        let first = self::source(kind, other_case).receive(other_request, At::from_seconds(other_case.now));
        let first = first.unwrap_or_else(|refused| panic!("{kind}/{other}: {refused}"));
        assert_eq!(event.key, only_event(&first).key, "{at} and {other}");
        assert_eq!(event.payload_hash == only_event(&first).payload_hash, same_content, "{at} and {other}");
    }
}

#[test]
fn every_kind_treats_its_recorded_deliveries_as_expected() {
    for kind in registry::kinds() {
        let all = cases(kind);
        for name in all.keys() {
            check(kind, name, &all);
        }
    }
}

#[test]
fn every_kind_has_fixtures_and_every_fixture_a_kind() {
    let mut kinds: Vec<&str> = registry::kinds().collect();
    kinds.sort_unstable();
    assert_eq!(names_in(fixtures()), kinds);
    for kind in kinds {
        let all = cases(kind);
        let shown = |word: &str| {
            all.iter().any(|(name, (case, _))| match word {
                "replay_of" => case.expect.replay_of.is_some(),
                "conflict_with" => case.expect.conflict_with.is_some(),
                word => name.contains(word),
            })
        };
        for word in OBLIGATORY {
            assert!(shown(word), "{kind}: no case shows {word}");
        }
        let refuses = all.values().any(|(case, _)| case.expect.refused == Some(401));
        assert_eq!(refuses, kind != "form", "{kind}: a bad signature or token");
        for name in names_in(&fixtures().join(kind)) {
            let stem = name.strip_suffix(".body").or_else(|| name.strip_suffix(".json"));
            assert!(stem.is_some_and(|stem| all.contains_key(stem)), "{kind}/{name} belongs to no case");
        }
    }
}

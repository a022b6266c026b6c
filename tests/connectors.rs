//! Every kind of CRM against its fixtures: what it sends, over a real connection, and what it makes of each answer.
//!
//! `fixtures/crm/KIND/settings.json` holds the kind's settings (`CRM` stands for the address), each folder beside it one case:
//! `exchange.json` says which call is made for which lead and what comes back, `expect.json` what was to be sent and what
//! it is to be taken for. `fixtures/crm/lead.json` is the lead where a case names none.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use leadonce::clock::At;
use leadonce::crm::transport::HttpTransport;
use leadonce::crm::{Answer, Call, Connector, Exchange, Order, Transport, registry};
use leadonce::operation::{
    CreateOutcome, CrmId, CrmKey, Failure, Lead, LookupOutcome, OperationId, SourceKey, SourceName, Variant,
};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Cases that every kind must have.
const OBLIGATORY: &[&str] = &[
    "created",
    "duplicate",
    "rejected",
    "rate_limited",
    "server_error",
    "timeout_after_send",
    "lookup_found",
    "lookup_absent",
];
/// Kinds whose CRM has no answer "exists already", with the reason.
const NEVER_DUPLICATE: &[(&str, &str)] = &[("bitrix24", "crm.item.add knows no unique key and no such error")];
/// What the fixtures' settings use as secrets; it may show up nowhere.
const SECRET: &str = "SECRET";
const NOW: &str = "2026-10-21T07:26:30Z";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What the case shows.
    about: String,
    /// Settings over those of the kind.
    #[serde(default)]
    settings: Map<String, Value>,
    call: Kind,
    #[serde(default)]
    step: usize,
    #[serde(default)]
    earlier: Vec<String>,
    first_sent_at: Option<String>,
    crm_id: Option<String>,
    lead: Option<Lead>,
    comes_back: ComesBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Create,
    LookUp,
    Check,
    Confirm,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ComesBack {
    /// A complete answer; a body that is no text is sent as JSON.
    Answer {
        status: u16,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default)]
        body: Value,
    },
    /// These characters, then the connection is closed.
    Wire(String),
    /// The request is read and nothing is answered.
    Silence,
    /// Nobody listens.
    Refused,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    request: Option<Sent>,
    outcome: Outcome,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Sent {
    method: Option<String>,
    path: Option<String>,
    headers: BTreeMap<String, String>,
    body: Option<Value>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Outcome {
    Created(String),
    Found(Vec<String>),
    Failed {
        class: String,
        /// A part of the message.
        message: String,
        #[serde(default)]
        retry_after: Option<u64>,
        #[serde(default)]
        crm_id: Option<String>,
    },
    /// What a check or a confirmation comes to; a fault is compared by a part of its text.
    Good,
    Exists(bool),
    Fault(String),
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/crm")
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut folders: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).filter(|p| p.is_dir()).collect();
    folders.sort();
    folders
}

fn name(path: &Path) -> String {
    path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned()
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_kind_has_its_fixtures_and_all_fixtures_have_a_kind() {
    let mut kinds: Vec<String> = registry::kinds().map(str::to_owned).collect();
    kinds.sort();
    assert_eq!(kinds, folders(&root()).iter().map(|path| name(path)).collect::<Vec<_>>());
    for kind in kinds {
        let cases: Vec<String> = folders(&root().join(&kind)).iter().map(|path| name(path)).collect();
        for case in OBLIGATORY {
            let exempt = *case == "duplicate" && NEVER_DUPLICATE.iter().any(|(exempt, _)| *exempt == kind);
            assert!(exempt != cases.iter().any(|name| name == case), "{kind}: the case {case} (exempt: {exempt})");
        }
    }
}

/// Everything that any library logs, at the lowest level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("the log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn every_fixture_is_sent_and_read_as_expected_and_no_log_line_shows_a_secret() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::level_filters::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .init();
    let transport = HttpTransport::new().expect("a transport");
    let mut wrong = Vec::new();
    for kind in folders(&root()) {
        let settings = read(&kind.join("settings.json"));
        for folder in folders(&kind) {
            let case: Case = read(&folder.join("exchange.json"));
            let expect: Expect = read(&folder.join("expect.json"));
            if let Err(difference) = play(&transport, &name(&kind), &settings, &case, &expect).await {
                wrong.push(format!("{}/{} ({}): {difference}", name(&kind), name(&folder), case.about));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let log = String::from_utf8_lossy(&log.0.lock().expect("the log")).into_owned();
    assert!(log.contains("127.0.0.1"), "the libraries' own lines are heard");
    assert!(!log.contains(SECRET), "{}", log.lines().find(|line| line.contains(SECRET)).unwrap_or_default());
}

async fn play(
    transport: &HttpTransport,
    kind: &str,
    settings: &Map<String, Value>,
    case: &Case,
    expect: &Expect,
) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let mut settings = settings.clone();
    settings.extend(case.settings.clone());
    let settings = serde_json::to_string(&settings).expect("JSON").replace("CRM", &address);
    let connector = registry::build(kind, serde_json::from_str(&settings).expect("a table"))
        .map_err(|faults| format!("settings: {faults:?}"))?;
    let order = order(case);
    let crm_id = case.crm_id.clone().map(|id| CrmId::try_from(id).expect("an id"));
    let call = match case.call {
        Kind::Create => connector.create(&order)?,
        Kind::LookUp => connector.look_up(&order).ok_or("no look-up")?,
        Kind::Check => connector.check(),
        Kind::Confirm => connector.confirm(&crm_id.ok_or("no crm_id")?).ok_or("no confirmation")?,
    };
    if call.masked_url.contains(SECRET) || format!("{call:?}").contains(SECRET) {
        return Err(format!("the secret shows in {call:?}"));
    }
    let server = match case.comes_back {
        ComesBack::Refused => {
            drop(listener);
            None
        }
        _ => Some(serve(listener, bytes(&case.comes_back))),
    };
    let timeout = if case.comes_back_late() { Duration::from_millis(300) } else { Duration::from_secs(10) };
    let exchange = transport.send(&call, timeout).await;
    let now = At::parse_rfc3339(NOW).expect("a time");
    let outcome = match case.call {
        Kind::Create => of_create(connector.read_create(&order, &exchange, now)),
        Kind::LookUp => match connector.read_look_up(&order, &exchange, now) {
            LookupOutcome::Found(ids) => Outcome::Found(ids.iter().map(ToString::to_string).collect()),
            LookupOutcome::Failed(failure) => failed(failure),
        },
        Kind::Check => connector.read_check(&exchange, now).map_or_else(Outcome::Fault, |()| Outcome::Good),
        Kind::Confirm => connector.read_confirm(&exchange, now).map_or_else(Outcome::Fault, Outcome::Exists),
    };
    if let (Some(sent), Some(server)) = (&expect.request, server) {
        let request = server.join().expect("the server's thread");
        compare_request(sent, &request)?;
    }
    compare(&outcome, &expect.outcome)?;
    no_secret(&connector, &call, &format!("{outcome:?} {exchange:?}"))
}

impl Case {
    fn comes_back_late(&self) -> bool {
        matches!(self.comes_back, ComesBack::Silence)
    }
}

fn order(case: &Case) -> Order {
    let source: SourceName = "site".parse().expect("a name");
    let key = SourceKey::from_native(b"a1b2");
    let operation_id: OperationId = "0198c0de-0000-7000-8000-000000000001".parse().expect("a UUID");
    Order {
        operation_id,
        crm_key: CrmKey::derive(&source, key.as_ref(), &Variant::First, operation_id),
        source,
        lead: case.lead.clone().unwrap_or_else(|| read(&root().join("lead.json"))),
        received_at: At::parse_rfc3339("2026-10-21T07:25:00Z").expect("a time"),
        step: case.step,
        earlier: case.earlier.iter().map(|id| CrmId::try_from(id.clone()).expect("an id")).collect(),
        first_sent_at: case.first_sent_at.as_deref().map(|at| At::parse_rfc3339(at).expect("a time")),
    }
}

fn bytes(comes_back: &ComesBack) -> Option<Vec<u8>> {
    match comes_back {
        ComesBack::Answer { status, headers, body } => {
            let body = match body {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                body => body.to_string(),
            };
            let mut answer = format!("HTTP/1.1 {status} Status\r\nContent-Length: {}\r\n", body.len());
            if matches!(status, 204 | 304) {
                answer = format!("HTTP/1.1 {status} Status\r\n");
            }
            for (name, value) in headers {
                answer.push_str(&format!("{name}: {value}\r\n"));
            }
            Some(format!("{answer}\r\n{body}").into_bytes())
        }
        ComesBack::Wire(text) => Some(text.clone().into_bytes()),
        ComesBack::Silence | ComesBack::Refused => None,
    }
}

/// Serves one request with these bytes, or with silence, and gives back what was sent.
fn serve(listener: TcpListener, answer: Option<Vec<u8>>) -> JoinHandle<String> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let request = read_request(&mut stream);
        match answer {
            Some(answer) => stream.write_all(&answer).expect("the answer is taken"),
            // Silence ends when the client gives up and closes.
            None => while matches!(stream.read(&mut [0; 64]), Ok(n) if n > 0) {},
        }
        request
    })
}

fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let n = stream.read(&mut buffer).expect("a request");
        bytes.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.to_lowercase().lines().find_map(|l| l.strip_prefix("content-length: ").map(str::to_owned));
        if body.len() >= length.map_or(0, |length| length.parse().expect("a length")) || n == 0 {
            return text;
        }
    }
}

fn compare_request(sent: &Sent, request: &str) -> Result<(), String> {
    let (head, body) = request.split_once("\r\n\r\n").unwrap_or((request, ""));
    let mut line = head.split(' ');
    let (method, path) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
    for (expected, found) in [(&sent.method, method), (&sent.path, path)] {
        if expected.as_deref().is_some_and(|expected| expected != found) {
            return Err(format!("{expected:?} was expected, {found:?} was sent"));
        }
    }
    for (name, value) in &sent.headers {
        if !head.to_lowercase().contains(&format!("{name}: {value}").to_lowercase()) {
            return Err(format!("the header {name}: {value} was not sent: {head}"));
        }
    }
    let Some(expected) = &sent.body else { return Ok(()) };
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| json!(body));
    if body == *expected { Ok(()) } else { Err(format!("the body\n{expected}\nwas expected,\n{body}\nwas sent")) }
}

fn of_create(outcome: CreateOutcome) -> Outcome {
    match outcome {
        CreateOutcome::Created(id) => Outcome::Created(id.to_string()),
        CreateOutcome::Failed(failure) => failed(failure),
    }
}

fn failed(failure: Failure) -> Outcome {
    Outcome::Failed {
        class: failure.class.as_str().to_owned(),
        message: failure.message,
        retry_after: failure.retry_after.map(|wait| wait.as_secs()),
        crm_id: failure.crm_id.map(|id| id.to_string()),
    }
}

fn compare(found: &Outcome, expected: &Outcome) -> Result<(), String> {
    let same = match (found, expected) {
        (
            Outcome::Failed { class, message, retry_after, crm_id },
            Outcome::Failed { class: c, message: m, retry_after: r, crm_id: i },
        ) => class == c && message.contains(m) && !message.is_empty() && retry_after == r && crm_id == i,
        (Outcome::Fault(found), Outcome::Fault(part)) => found.contains(part),
        (found, expected) => found == expected,
    };
    if same { Ok(()) } else { Err(format!("{expected:?} was expected, {found:?} came")) }
}

static BUILT: LazyLock<Vec<Arc<dyn Connector>>> = LazyLock::new(|| registry::kinds().map(built).collect());
static ORDER: LazyLock<Order> = LazyLock::new(|| order(&read(&root().join("http/created/exchange.json"))));

fn built(kind: &str) -> Arc<dyn Connector> {
    let settings: Map<String, Value> = read(&root().join(kind).join("settings.json"));
    let settings = serde_json::to_string(&settings).expect("JSON").replace("CRM", "127.0.0.1:1");
    registry::build(kind, serde_json::from_str(&settings).expect("a table")).expect("good settings")
}

fn any_body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        "\\{\"(result|error|id|items|code)\":(\"[A-Z_]{0,9}\"|[0-9.eE+-]{0,25}|\\[\\]|\\{\"(item|items|id)\":.{0,9}\\}|null)\\}"
            .prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_answer_breaks_a_connector_and_no_server_fault_proves_that_nothing_ran(
        status in prop_oneof![200u16..206, 200u16..600, any::<u16>()],
        retry_after in proptest::option::of(".{0,30}"),
        body in any_body(),
    ) {
        let headers = retry_after.map(|value| ("retry-after".to_owned(), value)).into_iter().collect();
        let exchange: Exchange = Ok(Answer { status, headers, body });
        let (order, now) = (&*ORDER, At::parse_rfc3339(NOW).expect("a time"));
        for connector in BUILT.iter() {
            let kind = connector.kind();
            match connector.read_create(order, &exchange, now) {
                CreateOutcome::Created(_) => prop_assert!((200..300).contains(&status), "{kind} believed {status}"),
                CreateOutcome::Failed(failure) => {
                    prop_assert!(status < 500 || !failure.class.proves_not_executed(), "{kind}: {failure:?}");
                    prop_assert!(failure.message.chars().count() <= 500 && !failure.message.is_empty());
                }
            }
            if let LookupOutcome::Found(_) = connector.read_look_up(order, &exchange, now) {
                prop_assert!((200..300).contains(&status), "{kind} believed {status}");
            }
            let _ = connector.read_check(&exchange, now);
            let _ = connector.read_confirm(&exchange, now);
        }
    }
}

/// Secrets are in the settings of every kind; an answer may repeat them.
fn no_secret(connector: &Arc<dyn Connector>, call: &Call, shown: &str) -> Result<(), String> {
    let shown = connector.scrub(shown);
    let in_body = String::from_utf8_lossy(&call.body).contains(SECRET);
    if in_body || shown.contains(SECRET) { Err(format!("the secret shows: {shown}")) } else { Ok(()) }
}

//! A world for the delivery engine: a real store, a clock that only the test moves, and a simulated CRM that speaks Bitrix24's
//! protocol. One thread can step all of it.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leadonce::clock::{At, Clock, ManualClock, SeededEntropy, uuid_v7};
use leadonce::crm::{Answer, Call, Exchange, Transport, TransportError};
use leadonce::delivery::{Engine, Line, LookupPolicy, Pause, Ports, RetryPolicy, Settings};
use leadonce::intake::{Answer as SenderAnswer, Event, Received, Refused, Request, Source};
use leadonce::operation::{
    Arrival, DestinationName, FailureClass, HashRule, KeyOrigin, Lead, Operation, OperationId, PayloadHash, SourceKey,
    SourceName,
};
use leadonce::store::{self, Admit, Destination, NewDelivery, NewEvent, Store, Use};
use leadonce::telemetry::Metrics;
use serde_json::{Value, json};

/// What the CRM does with one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Play {
    /// Carries it out and answers.
    Good,
    /// Carries it out; the answer is lost.
    Lost,
    /// Does not carry it out; the answer is lost all the same.
    Broken,
    /// Cannot be reached.
    Away,
    /// Refuses it by its rate limit, with this Retry-After in seconds.
    Limit(u64),
    /// Refuses the account.
    Denied,
    /// Refuses the lead.
    Invalid,
}

#[derive(Debug, Default)]
pub(crate) struct Crm {
    /// What comes next; `Good` after the last, or what `always` says.
    pub(crate) plays: VecDeque<Play>,
    pub(crate) always: Option<Play>,
    /// Look-ups do not see entities.
    pub(crate) blind: bool,
    /// originId of each entity, in the order of creation.
    pub(crate) entities: Vec<String>,
    pub(crate) creates: usize,
    /// When each create came.
    pub(crate) times: Vec<At>,
    pub(crate) lookups: usize,
    /// Moves the clock during a call.
    pub(crate) takes: Duration,
    /// Happens once, during the next call.
    pub(crate) during: Hook,
}

/// Something that happens once.
#[derive(Default)]
pub(crate) struct Hook(pub(crate) Option<Box<dyn FnOnce() + Send>>);

impl Hook {
    pub(crate) fn happen(&mut self) {
        if let Some(what) = self.0.take() {
            what();
        }
    }
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SimulatedCrm {
    pub(crate) state: Arc<Mutex<Crm>>,
    pub(crate) clock: Arc<ManualClock>,
}

impl SimulatedCrm {
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Crm) -> T) -> T {
        f(&mut self.state.lock().expect("the CRM"))
    }

    pub(crate) fn answer(&self, call: &Call) -> Exchange {
        let body: Value = serde_json::from_slice(&call.body).expect("a JSON call");
        self.with(|crm| {
            self.clock.advance(crm.takes);
            crm.during.happen();
            let create = call.url.contains("crm.item.add");
            if create {
                crm.creates += 1;
                crm.times.push(self.clock.now());
            } else {
                crm.lookups += 1;
            }
            let play = crm.plays.pop_front().or(crm.always).unwrap_or(Play::Good);
            let lost = |class| Err(TransportError { class, message: "the connection broke".into(), status: None });
            match play {
                Play::Away => return lost(FailureClass::NotSent),
                Play::Broken => return lost(FailureClass::Uncertain),
                Play::Limit(seconds) => {
                    let headers = vec![("retry-after".into(), seconds.to_string())];
                    let body = br#"{"error":"QUERY_LIMIT_EXCEEDED","error_description":"Too many requests"}"#.to_vec();
                    return Ok(Answer { status: 503, headers, body });
                }
                Play::Denied => return answered(401, &json!({"error": "INVALID_CREDENTIALS", "error_description": "no"})),
                Play::Invalid => {
                    return answered(400, &json!({"error": "CRM_FIELD_ERROR_REQUIRED", "error_description": "a field is missing"}));
                }
                Play::Good | Play::Lost => {}
            }
            let good = if create {
                let key = body.pointer("/fields/originId").and_then(Value::as_str).expect("an originId").to_owned();
                crm.entities.push(key.clone());
                json!({"result": {"item": {"id": crm.entities.len(), "originatorId": "leadonce", "originId": key}}})
            } else {
                let key = body.pointer("/filter/=originId").and_then(Value::as_str).expect("a filter");
                let seen = |(_, origin): &(usize, &String)| !crm.blind && origin.as_str() == key;
                let item = |(number, origin): (usize, &String)| {
                    json!({"id": number + 1, "originatorId": "leadonce", "originId": origin})
                };
                let items: Vec<Value> = crm.entities.iter().enumerate().filter(seen).map(item).collect();
                json!({"result": {"items": items}})
            };
            if play == Play::Lost { lost(FailureClass::Uncertain) } else { answered(200, &good) }
        })
    }
}

pub(crate) fn answered(status: u16, body: &Value) -> Exchange {
    let headers = vec![("content-type".into(), "application/json".into())];
    Ok(Answer { status, headers, body: body.to_string().into_bytes() })
}

impl Transport for SimulatedCrm {
    fn send<'a>(&'a self, call: &'a Call, _: Duration) -> Pin<Box<dyn Future<Output = Exchange> + Send + 'a>> {
        Box::pin(async move { self.answer(call) })
    }
}

/// A source whose lead is the body's text as a name; some bodies cannot be read, one kills whoever reads it.
#[derive(Debug)]
pub(crate) struct Plain;

impl Source for Plain {
    fn receive(&self, _: &Request, _: At) -> Result<Received, Refused> {
        Ok(Received::Test)
    }
    fn lead(&self, request: &Request, _: usize) -> Result<Lead, String> {
        let text = String::from_utf8_lossy(&request.body).into_owned();
        assert_ne!(text, "poison", "a lead that the mapper cannot bear");
        if text == "unreadable" {
            Err("there is no lead in it".into())
        } else {
            Ok(Lead { name: Some(text), ..Lead::default() })
        }
    }
    fn events(&self, _: &Request) -> Result<Vec<Event>, String> {
        Ok(Vec::new())
    }
    fn answer(&self) -> SenderAnswer {
        SenderAnswer::Empty
    }
    fn hash_rule(&self) -> HashRule {
        HashRule::current(&[])
    }
}

/// Waiting moves the clock; a hook of the CRM's state that is left over happens then.
#[derive(Debug)]
pub(crate) struct ClockPause(pub(crate) SimulatedCrm);

impl Pause for ClockPause {
    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.0.clock.advance(time);
        self.0.with(|crm| crm.during.happen());
        Box::pin(std::future::ready(()))
    }
}

pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) crm: SimulatedCrm,
    pub(crate) store: Store,
    pub(crate) engine: Engine,
    pub(crate) names: BTreeMap<String, OperationId>,
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) const SETTLE: Duration = Duration::from_secs(120);
pub(crate) const LEASE: Duration = Duration::from_secs(60);

pub(crate) fn settings() -> Settings {
    Settings {
        timeout: Duration::from_secs(15),
        concurrency: 4,
        rate_per_second: 1_000.0,
        burst: 1_000,
        lease: LEASE,
        retry: RetryPolicy {
            max_attempts: 3,
            initial_interval: Duration::from_secs(1),
            multiplier: 2.0,
            jitter: 0.5,
            max_interval: Duration::from_secs(300),
            max_elapsed: Duration::from_secs(86_400),
        },
        lookup: LookupPolicy {
            first_after: Duration::from_secs(5),
            settle: SETTLE,
            give_up: Duration::from_secs(86_400),
            trusted: true,
        },
    }
}

pub(crate) fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("a name")
}

impl World {
    pub(crate) async fn new(settings: Settings) -> Self {
        let (world, mut writer) = Self::parts(settings, 2);
        std::thread::spawn(move || while writer.run_one() {});
        world.open().await;
        world
    }

    pub(crate) async fn open(&self) {
        self.store
            .ensure_destinations(["crm", "crm2"].map(|of| (name(of), "bitrix24".into())).into(), self.now())
            .await
            .expect("rows");
    }

    pub(crate) fn parts(settings: Settings, readers: u32) -> (Self, store::Writer) {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Arc::new(ManualClock::at(At::from_seconds(1_800_000_000)));
        let url = format!("sqlite://{}", folder.path().join("store.db").display());
        let settings_of_store = store::Settings { url, queue: 4096, batch: 256, readers };
        let (store, writer) = Store::open(&settings_of_store, Use::Serve).expect("a store");
        let crm = SimulatedCrm { state: Arc::default(), clock: Arc::clone(&clock) };
        let engine = engine(&store, &clock, &crm, settings, "node-1");
        (Self { clock, crm, store, engine, names: BTreeMap::new(), folder }, writer)
    }

    pub(crate) fn now(&self) -> At {
        self.clock.now()
    }

    pub(crate) async fn deliver(&mut self, text: &str) -> OperationId {
        let entropy = SeededEntropy::new(u64::try_from(self.names.len()).expect("small") + 1);
        let (id, admit) = arriving(text, self.now(), &entropy);
        self.store.admit(admit).await.expect("admitted");
        self.names.insert(text.to_owned(), id);
        id
    }

    /// Everything that is due now, one after the other.
    pub(crate) async fn step(&self) {
        let crm: DestinationName = name("crm");
        loop {
            let taken = self.engine.take(&crm, 4).await.expect("taken");
            if taken.creates.is_empty() && taken.lookups.is_empty() {
                return;
            }
            for operation in taken.lookups {
                self.engine.look_up(operation).await.expect("looked up");
            }
            for operation in taken.creates {
                self.engine.create(operation).await.expect("created");
            }
        }
    }

    /// Lets time pass in steps, carrying out what falls due.
    pub(crate) async fn pass(&self, time: Duration, step: Duration) {
        let mut passed = Duration::ZERO;
        while passed < time {
            self.clock.advance(step);
            passed += step;
            self.step().await;
        }
    }

    pub(crate) async fn operation(&self, text: &str) -> Operation {
        self.store.operation(self.names[text]).await.expect("read").expect("an operation")
    }

    pub(crate) async fn destination(&self) -> Destination {
        self.store.destinations().await.expect("read").remove(0)
    }

    pub(crate) fn creates(&self) -> usize {
        self.crm.with(|crm| crm.creates)
    }

    pub(crate) fn entities(&self) -> usize {
        self.crm.with(|crm| crm.entities.len())
    }

    pub(crate) fn play(&self, plays: &[Play]) {
        self.crm.with(|crm| crm.plays.extend(plays));
    }
}

/// An event of the source `plain`, with its text as key and content.
pub(crate) fn arriving(text: &str, at: At, entropy: &SeededEntropy) -> (OperationId, Admit) {
    let id = OperationId(uuid_v7(at, entropy));
    let delivery_id = id.0;
    let mut hash = [0; 32];
    hash[..text.len().min(32)].copy_from_slice(&text.as_bytes()[..text.len().min(32)]);
    let operation = Arrival {
        id,
        source: name("plain"),
        source_key: SourceKey::from_native(text.as_bytes()),
        key_origin: KeyOrigin::Native,
        payload_hash: PayloadHash::from(hash),
        hash_rule: HashRule::current(&[]),
        destination: name("crm"),
        delivery_id,
        event_index: 0,
        at,
    }
    .operation();
    let delivery = NewDelivery {
        id: delivery_id,
        source: name("plain"),
        received_at: at,
        method: "POST".into(),
        headers: Vec::new(),
        body: text.as_bytes().to_vec(),
        note: None,
    };
    let admit = Admit {
        delivery,
        events: vec![NewEvent { operation, window: None, likeness: None }],
        rehash: Arc::new(|_, _| None),
    };
    (id, admit)
}

pub(crate) fn engine(
    store: &Store,
    clock: &Arc<ManualClock>,
    crm: &SimulatedCrm,
    settings: Settings,
    node: &str,
) -> Engine {
    let ports = Ports {
        store: store.clone(),
        transport: Arc::new(crm.clone()),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        entropy: Arc::new(SeededEntropy::new(7)),
        pause: Arc::new(ClockPause(crm.clone())),
        metrics: Metrics::new().expect("metrics"),
    };
    engine_over(ports, settings, node)
}

/// An engine for the destinations `crm` and `crm2` and the source `plain`.
pub(crate) fn engine_over(ports: Ports, settings: Settings, node: &str) -> Engine {
    let connector = json!({"webhook_url": "https://portal.example/rest/1/secret/"});
    let connector = connector.as_object().cloned().expect("an object");
    let connector = leadonce::crm::registry::build("bitrix24", connector).expect("a connector");
    let line = Line { settings, connector, secrets: Vec::new(), rate_group: "crm".into() };
    let lines = HashMap::from([(name("crm"), line.clone()), (name("crm2"), line)]);
    let sources: HashMap<SourceName, Arc<dyn Source>> =
        HashMap::from([(name("plain"), Arc::new(Plain) as Arc<dyn Source>)]);
    Engine::new(ports, node.to_owned(), lines, sources)
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);

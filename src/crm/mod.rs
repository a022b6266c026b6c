//! CRMs: how an operation becomes an entity, and how the CRM is asked whether it did.
//!
//! Promises: a [`Connector`] only builds calls and reads answers, both pure; [`Transport`] is the one place that touches the
//! network, once per call, without redirects and without retries (G6). Every answer falls into one class of the common
//! vocabulary, decided in one function per connector; what no rule names is `uncertain`. It must not know the store, the
//! delivery engine, or when anything is tried again.
//!
//! A new CRM is one file here, one line in `registry.rs` and its fixtures.

pub mod bitrix24;
pub mod candidates;
pub mod describe;
pub mod failure;
pub mod host;
pub mod http;
pub mod registry;
pub mod settings;
pub mod template;
pub mod transport;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::clock::At;
use crate::operation::{CreateOutcome, CrmId, CrmKey, FailureClass, Lead, LookupOutcome, OperationId, SourceName};

/// All that a connector is told about an operation.
#[derive(Debug, Clone)]
pub struct Order {
    /// The operation.
    pub operation_id: OperationId,
    /// The key the entity is to bear in the CRM.
    pub crm_key: CrmKey,
    /// The source's name.
    pub source: SourceName,
    /// The lead.
    pub lead: Lead,
    /// First reception.
    pub received_at: At,
    /// The step that is due, from 0.
    pub step: usize,
    /// Entities of the earlier steps, in their order.
    pub earlier: Vec<CrmId>,
    /// When the earliest create of this operation may have left; bounds look-ups by time. `None` before the first.
    pub first_sent_at: Option<At>,
}

/// One HTTP request to a CRM. `Debug` and `masked_url` show no secret; the body is recorded in the attempts log.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    /// `POST`, `GET` or `PATCH`.
    pub method: &'static str,
    /// The whole address; it may hold a secret.
    pub url: String,
    /// The address as logs may show it.
    pub masked_url: String,
    /// Headers; values may hold secrets and are never shown.
    pub headers: Vec<(String, String)>,
    /// The body; free of secrets (they go into the address or headers).
    pub body: Vec<u8>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} ({} bytes)", self.method, self.masked_url, self.body.len())
    }
}

/// A complete HTTP answer: status line, headers and the whole body were received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body, whole; at most `MAX_ANSWER` bytes.
    pub body: Vec<u8>,
}

impl Answer {
    /// The first header of that (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// Why there is no complete answer. The message holds no address and no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    /// `NotSent` where no byte of the request can have reached the CRM, else `Uncertain`.
    pub class: FailureClass,
    /// What happened, for people.
    pub message: String,
    /// The status line, where one came before the answer broke off.
    pub status: Option<u16>,
}

/// What a call came back with.
pub type Exchange = Result<Answer, TransportError>;

/// Sends a call: once, within its time-out. Real HTTP in `transport.rs`; a simulated CRM in tests.
pub trait Transport: Send + Sync + std::fmt::Debug {
    /// Sends.
    fn send<'a>(&'a self, call: &'a Call, timeout: Duration) -> Pin<Box<dyn Future<Output = Exchange> + Send + 'a>>;
}

/// A kind of CRM, configured. Every method is pure.
pub trait Connector: Send + Sync + std::fmt::Debug {
    /// The kind, a key of the registry.
    fn kind(&self) -> &'static str;

    /// The records that make one entity, in their order; the last one's id is the crm_id (contract 4.1 rule 12).
    fn steps(&self) -> &'static [&'static str];

    /// Version of the mapping from lead to request, recorded with each attempt.
    fn mapping_version(&self) -> String;

    /// The create of `order.step`. An error is the lead's fault (`rejected`): it cannot be mapped.
    fn create(&self, order: &Order) -> Result<Call, String>;

    /// Classifies what a create came back with. `now` serves to read Retry-After dates.
    ///
    /// An `Uncertain` failure that names a crm_id means: the CRM made that entity, but it does not bear our key, so no look-up
    /// will ever find it. An empty look-up then proves nothing and must not lead to a second create; a person decides.
    fn read_create(&self, order: &Order, exchange: &Exchange, now: At) -> CreateOutcome;

    /// The look-up of `order.step` by crm_key, or `None` where this CRM cannot be asked.
    fn look_up(&self, order: &Order) -> Option<Call>;

    /// Reads what a look-up came back with; only entities that bear the key count, compared here.
    fn read_look_up(&self, order: &Order, exchange: &Exchange, now: At) -> LookupOutcome;

    /// A call that creates nothing and shows that address, credentials and read access are good (`leadonce check --connect`).
    fn check(&self) -> Call;

    /// Reads what `check` came back with; an error says what to do.
    fn read_check(&self, exchange: &Exchange, now: At) -> Result<(), String>;

    /// A call that asks whether the entity exists, or `None` where this CRM cannot be asked (operator's `complete`).
    fn confirm(&self, crm_id: &CrmId) -> Option<Call>;

    /// Reads what `confirm` came back with: whether the entity exists; an error where the CRM did not say.
    fn read_confirm(&self, exchange: &Exchange, now: At) -> Result<bool, String>;

    /// A link to the entity for people, where the CRM has one.
    fn link(&self, crm_id: &CrmId) -> Option<String>;

    /// The text without this destination's secrets: for excerpts of answers, which may repeat an address or a token.
    fn scrub(&self, text: &str) -> String {
        text.to_owned()
    }

    /// Whether the CRM has a look-up at all.
    fn can_look_up(&self) -> bool {
        true
    }
}

/// What a kind of CRM advises, where the configuration is silent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Defaults {
    /// Calls per second.
    pub rate_per_second: f64,
    /// Calls at once after a pause.
    pub burst: u32,
    /// First look-up after an uncertain create.
    pub first_after: Duration,
    /// How long after the send an empty look-up is believed.
    pub settle: Duration,
    /// Whether it is believed at all.
    pub trusted: bool,
}

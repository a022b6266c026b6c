//! Intake: what arrives from a sender, read as events under stable keys.
//!
//! Promises: a [`Source`] checks the signature over the wire bytes before it parses, finds each event's key, takes the
//! payload_hash over the canonical content, and says how its sender wants to be answered. All of it is pure: the same request
//! gives the same result, whichever node reads it, and the lead is read again from the logged bytes when it is needed.
//! It must not know the store, the CRM, HTTP servers, or what becomes of an event.
//!
//! A new source is one file here, one line in `registry.rs` and its fixtures.
//!
//! A body goes through these hands: `body` (content coding, charset, type) → `content` (JSON or pairs, whatever the header
//! says) → the source's file (key and hash) → and, only when a connector needs it, `normalise` (the lead).

mod api;
mod body;
mod content;
mod copies;
mod fault;
pub mod form;
mod key;
mod multipart;
mod names;
mod normalise;
mod origin;
mod pairs;
mod phone;
pub mod registry;
mod script;
mod secret;
mod standard_webhooks;
mod telegram;
mod tilda;

use std::time::Duration;

use crate::clock::At;
use crate::operation::{DestinationName, HashRule, KeyOrigin, Lead, Likeness, PayloadHash, SourceKey, SourceName};

pub use origin::allows_origin;
pub use phone::{normal_email, normal_phone};
pub use script::script;
pub use standard_webhooks::sign_webhook;

/// The headers that the delivery log keeps: with them, the method and the raw body, [`Source::lead`], [`Source::events`] and
/// [`Source::rehash`] read a delivery again as it was. None of them holds a secret.
pub const KEPT_HEADERS: &[&str] = &[
    "content-type",
    "content-encoding",
    "referer",
    "origin",
    "user-agent",
    "webhook-id",
    "svix-id",
    "idempotency-key",
];

/// What is noted where a text held NUL characters.
const NUL_NOTE: &str = "NUL characters were removed from the lead's texts";

/// A request as it came over the wire: body not yet decoded, header names in lower case.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// `POST` or `GET`.
    pub method: String,
    /// The query string, without `?`; it may hold the source's key and is never logged.
    pub query: String,
    /// All headers, names in lower case, in their order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body as received, still under its content coding.
    pub body: Vec<u8>,
}

impl Request {
    /// The first header of that (lower-case) name, where it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).and_then(|(_, v)| std::str::from_utf8(v).ok())
    }

    /// All values of that (lower-case) header.
    pub fn headers_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_slice())
    }
}

/// What an accepted request holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// Events, each an operation of its own. Never empty.
    Events(Vec<Event>),
    /// A test call of the sender's set-up page: answered and counted, never a lead.
    Test,
    /// Caught by the honeypot: answered as usual, kept in the delivery log, never a lead.
    Spam,
    /// Authenticated and understood, but not a kind of event that makes a lead (an edited message): logged, answered as usual.
    Ignored(String),
    /// Authenticated, but the body cannot be read; says why.
    Unreadable(String),
}

/// One event of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Under which key it is claimed.
    pub key: Key,
    /// Hash of its canonical content.
    pub payload_hash: PayloadHash,
    /// The event's own time, where the source kind has one (contract 4.1 rule 8).
    pub event_at: Option<At>,
    /// What it has in common with a copy under another id, where the source watches for copies.
    pub likeness: Option<Likeness>,
    /// Something worth noting in the delivery log (a bad key header that was treated as missing).
    pub note: Option<String>,
}

/// Under which key an event is claimed (contract 3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The sender's own key.
    Given(SourceKey, KeyOrigin),
    /// None: the same content within this time is the same submission.
    Window(Duration),
    /// None: every delivery is an operation of its own.
    Generate,
}

/// Why a request is refused at the door. The text is for the sender and says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// 401: signature or token wrong or missing. `kind` is a short stable word for metrics (`missing`, `mismatch`, `expired_secret`, `too_old`, `too_new`).
    #[error("{detail}")]
    Unauthorized {
        /// Short stable word for logs and metrics.
        kind: &'static str,
        /// For the sender.
        detail: String,
    },
    /// 400: unreadable body, or bad or missing key (kind `api` and unauthenticated senders only).
    #[error("{0}")]
    BadRequest(String),
    /// 413: larger than allowed after decoding.
    #[error("{0}")]
    TooLarge(String),
    /// 415: content type or coding that nobody here reads.
    #[error("{0}")]
    UnsupportedMedia(String),
}

/// How a sender wants to be answered when its delivery is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The status body of contract 6.1, with 200, 201 or 202; conflicts are told (422).
    Strict,
    /// The status body with 200, 201 or 202; conflicts and unreadable bodies get their usual 2xx.
    Json,
    /// A browser form: 303 to the address or a small page for `Accept: text/html`, else as `Json`.
    Form {
        /// Where the browser is sent, if set.
        thank_you_url: Option<String>,
    },
    /// Always 200 with this text.
    Text(&'static str),
    /// Always 200 without a body.
    Empty,
}

/// A kind of source, configured.
pub trait Source: Send + Sync + std::fmt::Debug {
    /// Verifies and reads a request. `now` is for signature ages only.
    fn receive(&self, request: &Request, now: At) -> Result<Received, Refused>;

    /// Reads the lead of event number `index` from a request that [`Source::receive`] read before.
    fn lead(&self, request: &Request, index: usize) -> Result<Lead, String>;

    /// Hashes event number `index` again under the present rule, for content stored under another rule.
    fn rehash(&self, request: &Request, index: usize) -> Option<PayloadHash> {
        // The signature was checked at reception; only the content is read here.
        self.events(request).ok().and_then(|events| events.get(index).map(|event| event.payload_hash))
    }

    /// Reads the events without checking any signature.
    fn events(&self, request: &Request) -> Result<Vec<Event>, String>;

    /// How the sender is answered.
    fn answer(&self) -> Answer;

    /// The rule under which this source hashes.
    fn hash_rule(&self) -> HashRule;
}

/// A source as configured: the keys of `[[source]]` in contract 8. Which kind takes which key is checked by its file.
#[derive(Clone)]
pub struct Settings {
    /// Its name: the scope of its keys and the last part of its address.
    pub name: SourceName,
    /// Its kind, a key of the registry.
    pub kind: String,
    /// Where its leads go.
    pub destination: DestinationName,
    /// Bearer token (kind `api`) or URL/API key (kind `tilda`).
    pub token: Option<String>,
    /// Signing secrets, all valid at once.
    pub secrets: Vec<String>,
    /// Signing secrets of the past: refused like any wrong one, but told apart.
    pub expired_secrets: Vec<String>,
    /// Origins that may send from a page; empty allows none across origins.
    pub allow_origins: Vec<String>,
    /// Where a browser goes after a form.
    pub thank_you_url: Option<String>,
    /// The field that holds the key: a JSON pointer (`/id`) or a form field.
    pub key: Option<String>,
    /// Fields that change between redeliveries.
    pub volatile: Vec<String>,
    /// Region for phone numbers without a country code, ISO 3166 alpha-2.
    pub default_region: Option<String>,
    /// What to do where no key is found; `None`: the kind's default.
    pub missing_key: Option<MissingKey>,
    /// Window of `resubmit_window`, and of likely copies.
    pub resubmit_window: Duration,
    /// Whether an event with the content of another that came within the window, under another id, waits for a person.
    pub hold_copies: bool,
    /// The form field that only robots fill in; empty for none.
    pub honeypot: String,
    /// Whether the signature is over the body without its content coding, instead of the bytes received.
    pub signed_decoded: bool,
    /// How old or how far ahead a signed time stamp may be.
    pub tolerance: Duration,
    /// Longest `Prefer: wait`.
    pub max_wait: Duration,
    /// Deliveries per second that are taken (429 above), with a burst of the same number of seconds times ten; `None`: no limit.
    pub rate_per_second: Option<f64>,
    /// Largest body, after decoding, in bytes.
    pub max_body: usize,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Settings({} of kind {})", self.name, self.kind)
    }
}

/// What to do with an event that has no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingKey {
    /// 400.
    Reject,
    /// The same content within the window is the same submission.
    ResubmitWindow,
    /// Every delivery is an operation of its own.
    Generate,
}

/// The token of `Authorization: Bearer`.
fn bearer(request: &Request) -> Option<&[u8]> {
    let value = request.headers_of("authorization").next()?.trim_ascii();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// A unix time in seconds, or in milliseconds where the number says so (seconds reach 10^11 in the year 5138).
fn moment(number: i64) -> Option<At> {
    const MILLISECONDS_FROM: i64 = 100_000_000_000;
    match number {
        ..0 => None,
        0..MILLISECONDS_FROM => Some(At::from_seconds(number)),
        _ => number.checked_mul(1_000).map(At::from_micros),
    }
}

/// These kinds of sources send one event per request.
fn only_event(index: usize) -> Result<(), String> {
    if index == 0 { Ok(()) } else { Err(format!("there is no event {index} in this delivery")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proper settings of that kind.
    pub(super) fn settings(kind: &str) -> Settings {
        let secrets = match kind {
            "standard-webhooks" => vec!["whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned()],
            "telegram" => vec!["tg-secret".to_owned()],
            _ => vec![],
        };
        Settings {
            name: "site".parse().expect("a name"),
            kind: kind.to_owned(),
            destination: "crm".parse().expect("a name"),
            token: (kind == "api").then(|| "api-token".to_owned()),
            secrets,
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

    #[test]
    fn unix_times_are_read_in_seconds_and_in_milliseconds() {
        assert_eq!(moment(1_764_500_000), Some(At::from_seconds(1_764_500_000)));
        assert_eq!(moment(1_764_500_000_123), Some(At::from_micros(1_764_500_000_123_000)));
        assert_eq!(moment(-1), None);
        assert_eq!(moment(i64::MAX), None);
    }

    #[test]
    fn a_bearer_token_is_found_in_any_letter_case_of_its_scheme() {
        let with =
            |value: &str| Request { headers: vec![("authorization".into(), value.into())], ..Request::default() };
        for good in ["Bearer abc", "bearer  abc ", "BEARER abc"] {
            assert_eq!(bearer(&with(good)), Some(b"abc".as_slice()), "{good}");
        }
        for bad in ["abc", "Basic abc", "Bearerabc", ""] {
            assert_eq!(bearer(&with(bad)), None, "{bad}");
        }
    }
}

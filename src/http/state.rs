//! What all handlers share: made once at start by the application.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::admin::Counts;
use super::desk::Desk;
use super::limiter::Limiter;
use super::public::delivery;
use super::throttle::Throttle;
use crate::clock::{Clock, Entropy};
use crate::intake;
use crate::operation::SourceName;
use crate::store::{Rehash, SessionTerms, Store};
use crate::telemetry::Metrics;

/// What all handlers share.
pub struct Shared {
    /// The store.
    pub store: Store,
    /// The configured sources by name.
    pub sources: HashMap<SourceName, Arc<Inbound>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for ids.
    pub entropy: Arc<dyn Entropy>,
    /// Metrics.
    pub metrics: Metrics,
    /// Operators' decisions.
    pub desk: Arc<dyn Desk>,
    /// How contacts are brought to the form that the search index knows.
    pub normalisers: Normalisers,
    /// What the overview counted last.
    pub counts: Counts,
    /// Sign-ins.
    pub gate: Gate,
    /// Settings.
    pub settings: Settings,
}

/// What guards the sign-in.
#[derive(Debug)]
pub struct Gate {
    /// Failed ones are slowed down.
    pub(crate) throttle: Throttle,
    /// Passwords are hashed one at a time: it costs memory and a core, and anybody may ask for it.
    pub(crate) hashing: Semaphore,
    /// SHA-256 of the secret with which the first administrator is made, once.
    pub(crate) first: Mutex<Option<[u8; 32]>>,
}

impl Gate {
    /// A gate. `first`: the secret with which the first administrator may be made.
    pub fn new(first: Option<&str>) -> Self {
        Self {
            throttle: Throttle::default(),
            hashing: Semaphore::new(1),
            first: Mutex::new(first.map(|secret| Sha256::digest(secret.as_bytes()).into())),
        }
    }
}

/// Settings of this room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The address under which the world knows us, for `Location`.
    pub public_url: String,
    /// The address under which people open the console.
    pub console_url: String,
    /// How long a person stays signed in.
    pub session: SessionTerms,
    /// How long keys are remembered: an unknown key of an older event goes to review (contract 4.1 rule 8).
    pub tombstone: Duration,
    /// Time for a whole body.
    pub body_deadline: Duration,
    /// Time for the store to commit before the sender is told to come again. The sender has its answer within two seconds.
    pub commit_deadline: Duration,
    /// How far this machine's clock may be off before the node says that it is not ready.
    pub clock_tolerance: Duration,
    /// Connections that visitors may hold. Who comes beyond waits until one is free: those that say nothing are closed soon.
    pub connections: usize,
    /// Time for open requests when the server stops.
    pub stop_within: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            public_url: "http://127.0.0.1:8080".into(),
            console_url: "http://127.0.0.1:8080".into(),
            session: SessionTerms { idle: Duration::from_secs(3_600), longest: Duration::from_secs(12 * 3_600) },
            tombstone: Duration::from_secs(400 * 86_400),
            body_deadline: Duration::from_secs(30),
            commit_deadline: Duration::from_millis(1_800),
            clock_tolerance: Duration::from_secs(20),
            connections: 16_384,
            stop_within: Duration::from_secs(12),
        }
    }
}

impl Settings {
    /// The address of an operation's status.
    pub(crate) fn status_url(&self, id: crate::operation::OperationId) -> String {
        format!("{}/v1/operations/{id}", self.public_url.trim_end_matches('/'))
    }
}

/// Brings a phone number or an e-mail address in any spelling to its normal form; `None` where it is not one.
#[derive(Clone, Copy)]
pub struct Normalisers {
    /// A phone number, with the region of numbers without a country code.
    pub phone: fn(&str, Option<&str>) -> Option<String>,
    /// An e-mail address.
    pub email: fn(&str) -> Option<String>,
}

/// A configured source as intake uses it.
pub struct Inbound {
    /// Its settings.
    pub settings: intake::Settings,
    /// Its kind's code.
    pub source: Arc<dyn intake::Source>,
    /// Its inbound limit.
    pub limiter: Option<Limiter>,
    /// How the store compares content hashed under an older rule.
    pub(crate) rehash: Rehash,
    /// SHA-256 of its bearer token, to be compared in constant time.
    pub(crate) token_sha256: Option<[u8; 32]>,
}

impl Inbound {
    /// Puts a source together.
    pub fn new(settings: intake::Settings, source: Arc<dyn intake::Source>) -> Self {
        let reader = Arc::clone(&source);
        Self {
            limiter: settings.rate_per_second.map(Limiter::new),
            // It runs on the store's writer, which must outlive any content.
            rehash: Arc::new(move |stored, index| {
                let request = delivery::stored_request(stored)?;
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| reader.rehash(&request, index))).ok().flatten()
            }),
            token_sha256: settings.token.as_ref().map(|token| Sha256::digest(token.as_bytes()).into()),
            settings,
            source,
        }
    }
}

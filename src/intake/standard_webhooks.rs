//! Kind `standard-webhooks`: senders that sign as standardwebhooks.com describes, under the names `webhook-*` or `svix-*`.
//!
//! The signature is over `id.timestamp.body` with the body as received. The id is signed, so the key comes from it alone:
//! an unsigned `Idempotency-Key` could open a second operation for a captured request.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use phonenumber::country::Id as Region;
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};

use super::content::{Opened, json_has_nul};
use super::copies::CopyRule;
use super::fault::{Fault, unreadable};
use super::pairs::flattened;
use super::registry::{Kind, volatile_paths};
use super::secret::{EXPIRED, Secret};
use super::{Answer, Event, Key, NUL_NOTE, Received, Refused, Request, Settings, Source, moment, normalise};
use crate::clock::At;
use crate::operation::canonical::hash_json;
use crate::operation::field::FieldPath;
use crate::operation::json::Json;
use crate::operation::{HashRule, KeyOrigin, Lead, PayloadHash, SourceKey};

pub(super) const KIND: Kind = Kind {
    name: "standard-webhooks",
    takes: &[
        "secret",
        "secrets",
        "expired_secrets",
        "volatile",
        "default_region",
        "resubmit_window",
        "likely_copy",
        "signed",
        "tolerance",
    ],
    build: |settings| Ok(Arc::new(StandardWebhooks::new(settings)?)),
};

/// Padding at the end is left out by some libraries and demanded by others.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// No sender signs with more secrets at once; each costs a comparison.
const MOST_SIGNATURES: usize = 32;

#[derive(Debug)]
struct StandardWebhooks {
    secrets: Vec<Secret>,
    expired_secrets: Vec<Secret>,
    signed_decoded: bool,
    tolerance: Duration,
    region: Option<Region>,
    volatile: Vec<FieldPath>,
    copies: Option<CopyRule>,
    rule: HashRule,
    max_body: usize,
}

impl StandardWebhooks {
    fn new(settings: &Settings) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        if settings.secrets.is_empty() {
            faults.push("kind \"standard-webhooks\" needs a secret".to_owned());
        }
        let mut keys = |name: &str, secrets: &[String]| -> Vec<Secret> {
            let read = secrets.iter().enumerate().filter_map(|(index, secret)| match signing_key(secret) {
                Ok(key) => Some(key),
                Err(what) => {
                    faults.push(format!("{name} {} {what}", index + 1));
                    None
                }
            });
            read.collect()
        };
        let secrets = keys("secret", &settings.secrets);
        let expired_secrets = keys("expired_secrets: secret", &settings.expired_secrets);
        if !faults.is_empty() {
            return Err(faults);
        }
        let (volatile, rule) = volatile_paths(settings, &[]);
        Ok(Self {
            secrets,
            expired_secrets,
            signed_decoded: settings.signed_decoded,
            tolerance: settings.tolerance,
            region: normalise::region(settings),
            // The id is a header, and no part of the content.
            copies: CopyRule::of(settings, &volatile, &[]),
            volatile,
            rule,
            max_body: settings.max_body,
        })
    }

    fn verify(&self, request: &Request, now: At) -> Result<(), Refused> {
        let prefix = prefix(request);
        let header = |name: &str| {
            let name = format!("{prefix}-{name}");
            let mut values = request.headers_of(&name);
            match (values.next(), values.next()) {
                (None, _) => Err(refused("missing", format!("the header {name} is missing"))),
                (Some(_), Some(_)) => Err(refused("malformed", format!("the header {name} came twice"))),
                (Some(value), None) if value.trim_ascii().is_empty() => {
                    Err(refused("malformed", format!("the header {name} is empty")))
                }
                (Some(value), None) => Ok(value.to_vec()),
            }
        };
        let (id, timestamp, signatures) = (header("id")?, header("timestamp")?, header("signature")?);
        let signed_at = std::str::from_utf8(&timestamp).ok().filter(|t| t.bytes().all(|b| b.is_ascii_digit()));
        let signed_at = signed_at.and_then(|digits| digits.parse().ok()).and_then(moment);
        let signed_at =
            signed_at.ok_or_else(|| refused("malformed", "the time stamp is not a number of seconds".to_owned()))?;
        // Some senders sign before they compress (case C79). Decoding is bounded; what cannot be decoded was not signed so.
        let signed = if self.signed_decoded { super::body::decoded(request, self.max_body).ok() } else { None };
        self.verify_signature(&id, &timestamp, &signatures, signed.as_deref().unwrap_or(&request.body))?;
        // After the signature: only a sender who knows the secret is told about clocks, and only his requests are counted so.
        if now.since(signed_at) > self.tolerance {
            return Err(refused("too_old", "the time stamp is too old; check both clocks".to_owned()));
        }
        if signed_at.since(now) > self.tolerance {
            return Err(refused("too_new", "the time stamp lies in the future; check both clocks".to_owned()));
        }
        Ok(())
    }

    fn verify_signature(&self, id: &[u8], timestamp: &[u8], signatures: &[u8], body: &[u8]) -> Result<(), Refused> {
        let mut presented = Vec::new();
        for signature in signatures.split(|byte| *byte == b' ').filter(|part| !part.is_empty()).take(MOST_SIGNATURES) {
            // Versions that are not known here (v1a: ed25519) are skipped, not refused.
            let Some(encoded) = signature.strip_prefix(b"v1,") else { continue };
            if let Ok(bytes) = BASE64.decode(encoded) {
                presented.push(bytes);
            }
        }
        if presented.is_empty() {
            return Err(refused("malformed", "no signature of version v1".to_owned()));
        }
        let signed_with = |secrets: &[Secret]| {
            let mut matches = Choice::from(0);
            for secret in secrets {
                let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.bytes()) else { continue };
                for part in [id, b".", timestamp, b".", body] {
                    mac.update(part);
                }
                let expected = mac.finalize().into_bytes();
                for signature in &presented {
                    matches |= expected.as_slice().ct_eq(signature);
                }
            }
            bool::from(matches)
        };
        if signed_with(&self.secrets) {
            Ok(())
        } else if signed_with(&self.expired_secrets) {
            Err(refused(EXPIRED, "the secret of this signature has expired: sign with the new one".to_owned()))
        } else {
            Err(refused("mismatch", "the signature does not match".to_owned()))
        }
    }

    /// The event, its signature unchecked.
    fn event(&self, request: &Request) -> Result<Event, Fault> {
        let id = request.headers_of(&format!("{}-id", prefix(request))).next().and_then(SourceKey::from_native);
        let id = id.ok_or_else(|| unreadable("the id of the event is missing"))?;
        let opened = Opened::open(request, self.max_body)?;
        let json = opened.json()?;
        Ok(Event {
            key: Key::Given(id, KeyOrigin::Native),
            payload_hash: hash_json(&json, &self.volatile),
            event_at: json.get("timestamp").and_then(event_time),
            likeness: self.copies.as_ref().map(|rule| rule.json(&json)),
            note: json_has_nul(&json).then(|| NUL_NOTE.to_owned()),
        })
    }
}

/// Which names this sender uses.
fn prefix(request: &Request) -> &'static str {
    if request.headers_of("webhook-id").next().is_none() && request.headers_of("svix-id").next().is_some() {
        "svix"
    } else {
        "webhook"
    }
}

fn refused(kind: &'static str, detail: String) -> Refused {
    Refused::Unauthorized { kind, detail }
}

/// The signature of a message under Standard Webhooks (`v1,` and base64), for what we send ourselves; `None` where the secret
/// is not one.
pub fn sign_webhook(secret: &str, id: &str, timestamp: i64, body: &[u8]) -> Option<String> {
    let secret = signing_key(secret).ok()?;
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).ok()?;
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    Some(format!("v1,{}", BASE64.encode(mac.finalize().into_bytes())))
}

/// The key behind `whsec_…`. The message never shows it.
fn signing_key(secret: &str) -> Result<Secret, &'static str> {
    let secret = secret.trim();
    if secret.starts_with("whpk_") || secret.starts_with("whsk_") {
        return Err("is a key of asymmetric signatures; a symmetric one begins with whsec_");
    }
    let encoded = secret.strip_prefix("whsec_").unwrap_or(secret);
    let key = BASE64.decode(encoded).map_err(|_| "is not whsec_ and base64")?;
    Secret::new(key).ok_or("is empty")
}

/// The payload's own time: RFC 3339, as the specification recommends, or seconds or milliseconds.
fn event_time(value: &Json<'_>) -> Option<At> {
    let text = value.text()?;
    At::parse_rfc3339(text).or_else(|| moment(text.parse().ok()?))
}

impl Source for StandardWebhooks {
    fn receive(&self, request: &Request, now: At) -> Result<Received, Refused> {
        self.verify(request, now)?;
        match self.event(request) {
            Ok(event) => Ok(Received::Events(vec![event])),
            Err(fault) => fault.received(),
        }
    }

    fn lead(&self, request: &Request, index: usize) -> Result<Lead, String> {
        super::only_event(index)?;
        let opened = Opened::open(request, self.max_body).map_err(Fault::text)?;
        let json = opened.json().map_err(Fault::text)?;
        Ok(normalise::lead(&flattened(json, self.max_body).map_err(Fault::text)?, self.region))
    }

    fn rehash(&self, request: &Request, index: usize) -> Option<PayloadHash> {
        super::only_event(index).ok()?;
        let opened = Opened::open(request, self.max_body).ok()?;
        Some(hash_json(&opened.json().ok()?, &self.volatile))
    }

    fn events(&self, request: &Request) -> Result<Vec<Event>, String> {
        self.event(request).map(|event| vec![event]).map_err(Fault::text)
    }

    fn answer(&self) -> Answer {
        Answer::Json
    }

    fn hash_rule(&self) -> HashRule {
        self.rule.clone()
    }
}

//! Kind `api`: a program that knows this API, sends a bearer token and an `Idempotency-Key`, and reads the answers.

use std::sync::Arc;

use phonenumber::country::Id as Region;

use super::content::{Content, Opened};
use super::copies::CopyRule;
use super::fault::{Fault, unreadable};
use super::key::{BadHeader, KeyRule};
use super::pairs::{first_text, flattened, hash};
use super::registry::{Kind, volatile_paths};
use super::secret::{Secret, any_equals};
use super::{Answer, Event, MissingKey, NUL_NOTE, Received, Refused, Request, Settings, Source, bearer, normalise};
use crate::clock::At;
use crate::operation::canonical::hash_json;
use crate::operation::field::FieldPath;
use crate::operation::json::Json;
use crate::operation::{HashRule, Lead, PayloadHash};

pub(super) const KIND: Kind = Kind {
    name: "api",
    takes: &["token", "key", "volatile", "default_region", "missing_key", "resubmit_window", "likely_copy"],
    build: |settings| {
        let token = settings.token.clone().and_then(|token| Secret::new(token.into_bytes()));
        let token = token.ok_or_else(|| vec!["kind \"api\" needs a token that is not empty".to_owned()])?;
        Ok(Arc::new(Api::new(settings, token)))
    },
};

#[derive(Debug)]
struct Api {
    token: [Secret; 1],
    key: KeyRule,
    region: Option<Region>,
    volatile: Vec<FieldPath>,
    copies: Option<CopyRule>,
    rule: HashRule,
    max_body: usize,
}

impl Api {
    fn new(settings: &Settings, token: Secret) -> Self {
        let (volatile, rule) = volatile_paths(settings, &[]);
        Self {
            token: [token],
            key: KeyRule::of(settings, MissingKey::Reject, BadHeader::Refuse),
            region: normalise::region(settings),
            copies: CopyRule::of(settings, &volatile, &[]),
            volatile,
            rule,
            max_body: settings.max_body,
        }
    }

    fn verify(&self, request: &Request) -> Result<(), Refused> {
        let Some(token) = bearer(request) else {
            let detail = "send the source's token as Authorization: Bearer".to_owned();
            return Err(Refused::Unauthorized { kind: "missing", detail });
        };
        if !any_equals(&self.token, token) {
            let detail = "the bearer token is not the one of this source".to_owned();
            return Err(Refused::Unauthorized { kind: "mismatch", detail });
        }
        Ok(())
    }

    fn event(&self, request: &Request) -> Result<Event, Refused> {
        let opened = Opened::open(request, self.max_body).map_err(Fault::refused)?;
        let content = read(&opened).map_err(Fault::refused)?;
        let (key, note) = self.key.key_of(request, None, |path| match &content {
            Content::Json(json) => path.in_json(json).and_then(Json::text),
            Content::Form(pairs) => first_text(pairs, path.form_name()),
        })?;
        let note = note.or_else(|| content.has_nul().then(|| NUL_NOTE.to_owned()));
        let likeness = self.copies.as_ref().map(|rule| match &content {
            Content::Json(json) => rule.json(json),
            Content::Form(pairs) => rule.pairs(pairs),
        });
        Ok(Event { key, payload_hash: self.hash(&content), event_at: None, likeness, note })
    }

    fn hash(&self, content: &Content<'_>) -> PayloadHash {
        match content {
            Content::Json(json) => hash_json(json, &self.volatile),
            Content::Form(pairs) => hash(pairs, &self.volatile),
        }
    }
}

/// A JSON object with members, or a form with fields.
fn read<'o>(opened: &'o Opened<'_>) -> Result<Content<'o>, Fault> {
    let content = opened.read()?;
    match &content {
        Content::Json(Json::Object(members)) if members.is_empty() => Err(unreadable("the JSON object is empty")),
        Content::Json(Json::Object(_)) => Ok(content),
        Content::Json(_) => Err(unreadable("a JSON object is expected")),
        Content::Form(pairs) if pairs.is_empty() => Err(unreadable("the form holds no fields")),
        Content::Form(_) => Ok(content),
    }
}

impl Source for Api {
    fn receive(&self, request: &Request, _now: At) -> Result<Received, Refused> {
        self.verify(request)?;
        Ok(Received::Events(vec![self.event(request)?]))
    }

    fn lead(&self, request: &Request, index: usize) -> Result<Lead, String> {
        super::only_event(index)?;
        let opened = Opened::open(request, self.max_body).map_err(Fault::text)?;
        let pairs = match read(&opened).map_err(Fault::text)? {
            Content::Json(json) => flattened(json, self.max_body).map_err(Fault::text)?,
            Content::Form(pairs) => pairs,
        };
        Ok(normalise::lead(&pairs, self.region))
    }

    fn rehash(&self, request: &Request, index: usize) -> Option<PayloadHash> {
        super::only_event(index).ok()?;
        let opened = Opened::open(request, self.max_body).ok()?;
        Some(self.hash(&read(&opened).ok()?))
    }

    fn events(&self, request: &Request) -> Result<Vec<Event>, String> {
        self.event(request).map(|event| vec![event]).map_err(|refused| refused.to_string())
    }

    fn answer(&self) -> Answer {
        Answer::Strict
    }

    fn hash_rule(&self) -> HashRule {
        self.rule.clone()
    }
}

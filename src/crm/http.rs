//! Any JSON API, by templates and JSON pointers from the configuration.
//!
//! ```toml
//! [[destination]]
//! name = "crm"
//! kind = "http"
//! headers = { Authorization = "env:CRM_AUTH" }                    # of all requests; secrets go here or into addresses
//! create = { url = "https://crm.example.com/leads", body = { external_id = "{{ crm_key }}", name = "{{ lead.name }}" } }
//! id = "/id"                                                      # where the answer names the entity
//! lookup = { url = "https://crm.example.com/leads?external_id={{ crm_key }}", items = "/items", key = "/external_id" }
//! rules = [ { status = 409, class = "duplicate", id = "/existing_id" } ]
//! ```
//!
//! Rules are asked before the status table (contract 5). A 2xx is a created entity only if its id can be read. Without
//! `lookup` an uncertain create goes to a person.

mod request;
mod rules;

use std::time::Duration;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use self::request::{Request, Shape, checked_address, common_headers};
use self::rules::{Rule, by_rules, pointer};
use super::failure::{
    by_status, by_transport, complete, id_text, impersonal, json as read_json, message_of, scalar_text,
};
use super::settings::{Faults, Table};
use super::template::{Scope, Template, id_context, keys_context, lead_context, sample_orders};
use super::{Answer, Call, Connector, Defaults, Exchange, Order};
use crate::clock::At;
use crate::operation::id::hex;
use crate::operation::{CreateOutcome, CrmId, Failure, FailureClass, LookupOutcome};

/// The kind's name in the configuration and in the store; never renamed.
pub const KIND: &str = "http";

/// Nothing is known of an API that only the configuration describes: a modest rate, and an empty look-up is believed only if
/// the configuration says that it may be (`lookup.trusted`).
pub const DEFAULTS: Defaults = Defaults {
    rate_per_second: 5.0,
    burst: 5,
    first_after: Duration::from_secs(5),
    settle: Duration::from_secs(120),
    trusted: false,
};

/// Version of the code below; raised when it maps the same lead and settings differently.
const VERSION: u32 = 1;
const STEP: &str = "create";
const LEAD_BODY: Shape = Shape { methods: &["POST", "PUT", "PATCH"], scope: Scope::Keys, body: Some(Scope::Lead) };
const KEYS_BODY: Shape = Shape { methods: &["GET", "POST"], scope: Scope::Keys, body: Some(Scope::Keys) };
const CHECK: Shape = Shape { methods: &["GET", "POST", "HEAD"], scope: Scope::Keys, body: None };
const CONFIRM: Shape = Shape { methods: &["GET", "POST", "HEAD"], scope: Scope::CrmId, body: None };

/// An API, as configured.
#[derive(Debug)]
pub struct Http {
    create: Request,
    id: String,
    id_from_location: bool,
    lookup: Option<Lookup>,
    rules: Vec<Rule>,
    check: Option<Request>,
    confirm: Option<Request>,
    link: Option<Template>,
    // Asked by `check` where nothing better is configured.
    fallback: Call,
    version: String,
}

#[derive(Debug)]
struct Lookup {
    request: Request,
    items: String,
    id: String,
    key: String,
    absent_status: Vec<u16>,
    inexact: bool,
}

impl Http {
    /// Reads the kind's own keys: `headers`, `create`, `id`, `id_from_location`, `lookup`, `rules`, `check`, `confirm`, `link`.
    pub fn new(settings: Map<String, Value>) -> Result<Self, Faults> {
        let mut table = Table::new(settings);
        let version = version(&table);
        let common = common_headers(&mut table);
        if !table.has("create") {
            table.fault("create", "is missing");
        }
        let create = Request::read(&mut table, "create", &LEAD_BODY, &common);
        let id = pointer(&mut table, "id", Some("/id"));
        let id_from_location = table.flag("id_from_location");
        let lookup = Lookup::read(&mut table, &common);
        let rules = Rule::read_all(&mut table);
        let check = Request::read(&mut table, "check", &CHECK, &common);
        let confirm = Request::read(&mut table, "confirm", &CONFIRM, &common);
        let link = table.text("link");
        let link = link.and_then(|text| table.checked("link", checked_address(&text, Scope::CrmId)));
        let fallback = create.as_ref().zip(sample_orders().first()).and_then(|(create, order)| {
            let call = create.call(&keys_context(order, STEP), &lead_context(order, STEP)).ok()?;
            Some(Call { method: "GET", body: Vec::new(), ..call })
        });
        let faults = table.finish();
        match (create, id, fallback, faults.is_empty()) {
            (Some(create), Some(id), Some(fallback), true) => {
                Ok(Self { create, id, id_from_location, lookup, rules, check, confirm, link, fallback, version })
            }
            _ => Err(faults),
        }
    }

    fn requests(&self) -> impl Iterator<Item = &Request> {
        let lookup = self.lookup.as_ref().map(|lookup| &lookup.request);
        [Some(&self.create), lookup, self.check.as_ref(), self.confirm.as_ref()].into_iter().flatten()
    }

    /// An answer may repeat what was sent, secrets and contacts included.
    fn failure(&self, order: &Order, failure: Failure) -> Failure {
        Failure { message: message_of(&impersonal(&self.scrub(&failure.message), &order.lead)), ..failure }
    }

    /// The class of a complete answer that confirms nothing: the rules, then the status.
    fn classify(&self, answer: &Answer, body: Option<&Value>, now: At) -> Failure {
        by_rules(&self.rules, answer, body, now).unwrap_or_else(|| by_status(answer, now))
    }

    fn created(&self, exchange: &Exchange, now: At) -> Result<CrmId, Failure> {
        let answer = complete(exchange)?;
        let body = read_json(&answer.body);
        if let Some(failure) = by_rules(&self.rules, answer, body.as_ref(), now) {
            return Err(failure);
        }
        let in_body = || body.as_ref().and_then(|body| body.pointer(&self.id)).and_then(id_text);
        let in_location = || answer.header("location").filter(|_| self.id_from_location).and_then(id_of_location);
        let success = (200..300).contains(&answer.status);
        let id = success.then(|| in_body().or_else(in_location)).flatten();
        id.ok_or_else(|| by_status(answer, now))
    }

    fn found(&self, lookup: &Lookup, order: &Order, exchange: &Exchange, now: At) -> Result<Vec<CrmId>, Failure> {
        let answer = complete(exchange)?;
        let body = read_json(&answer.body);
        if let Some(failure) = by_rules(&self.rules, answer, body.as_ref(), now) {
            return Err(failure);
        }
        if lookup.absent_status.contains(&answer.status) {
            return Ok(Vec::new());
        }
        let unreadable =
            |what: &str| Failure::new(FailureClass::Uncertain, format!("the look-up proves nothing: {what}"));
        let body = match body {
            Some(body) if (200..300).contains(&answer.status) => body,
            _ => return Err(by_status(answer, now)),
        };
        let rows = lookup.rows(&body).ok_or_else(|| unreadable("the answer has no items"))?;
        let key = order.crm_key.to_string();
        let mut ids = Vec::new();
        for row in &rows {
            if row.pointer(&lookup.key).and_then(scalar_text).as_ref() == Some(&key) {
                ids.push(row.pointer(&lookup.id).and_then(id_text).ok_or_else(|| unreadable("an item has no id"))?);
            }
        }
        // An unfiltered list may hide ours on its next page; only an API that searches loosely is expected to give others.
        if ids.is_empty() && !rows.is_empty() && !lookup.inexact {
            return Err(unreadable("the items do not bear the key"));
        }
        Ok(ids)
    }
}

impl Lookup {
    fn read(outer: &mut Table, common: &[(String, String)]) -> Option<Self> {
        let mut table = outer.table("lookup")?;
        let request = Request::of(&mut table, &KEYS_BODY, common);
        let items = pointer(&mut table, "items", Some(""));
        let id = pointer(&mut table, "id", Some("/id"));
        if !table.has("key") {
            table.fault("key", "is missing; it says where an item bears crm_key");
        }
        let key = pointer(&mut table, "key", None);
        let inexact = table.flag("inexact");
        let mut absent_status = Vec::new();
        for status in table.list("absent_status") {
            match status.as_u64().and_then(|status| u16::try_from(status).ok()).filter(|s| matches!(s, 204 | 400..500))
            {
                Some(status) => absent_status.push(status),
                None => table.fault("absent_status", "must list statuses that say \"there is none\": 204 or a 4xx"),
            }
        }
        outer.close(table);
        Some(Self { request: request?, items: items?, id: id?, key: key?, absent_status, inexact })
    }

    fn rows<'a>(&self, body: &'a Value) -> Option<Vec<&'a Value>> {
        match body.pointer(&self.items)? {
            Value::Array(rows) => Some(rows.iter().collect()),
            Value::Null => Some(Vec::new()),
            row @ Value::Object(_) => Some(vec![row]),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
}

impl Connector for Http {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn steps(&self) -> &'static [&'static str] {
        &[STEP]
    }

    fn mapping_version(&self) -> String {
        self.version.clone()
    }

    fn create(&self, order: &Order) -> Result<Call, String> {
        self.create.call(&keys_context(order, STEP), &lead_context(order, STEP))
    }

    fn read_create(&self, order: &Order, exchange: &Exchange, now: At) -> CreateOutcome {
        match self.created(exchange, now) {
            Ok(id) => CreateOutcome::Created(id),
            Err(failure) => CreateOutcome::Failed(self.failure(order, failure)),
        }
    }

    fn look_up(&self, order: &Order) -> Option<Call> {
        let keys = keys_context(order, STEP);
        self.lookup.as_ref()?.request.call(&keys, &keys).ok()
    }

    fn read_look_up(&self, order: &Order, exchange: &Exchange, now: At) -> LookupOutcome {
        let Some(lookup) = &self.lookup else {
            return LookupOutcome::Failed(Failure::new(FailureClass::Uncertain, "this destination has no look-up"));
        };
        match self.found(lookup, order, exchange, now) {
            Ok(ids) => LookupOutcome::Found(ids),
            Err(failure) => LookupOutcome::Failed(self.failure(order, failure)),
        }
    }

    fn check(&self) -> Call {
        let sample = sample_orders();
        let keys = sample.first().map(|order| keys_context(order, STEP)).unwrap_or_default();
        let request = self.check.as_ref().or(self.lookup.as_ref().map(|lookup| &lookup.request));
        request.and_then(|request| request.call(&keys, &keys).ok()).unwrap_or_else(|| self.fallback.clone())
    }

    fn read_check(&self, exchange: &Exchange, now: At) -> Result<(), String> {
        let answer = match exchange {
            Ok(answer) => answer,
            Err(error) => return Err(self.scrub(&format!("{}; check the address", by_transport(error).message))),
        };
        let absent = self.lookup.as_ref().is_some_and(|lookup| lookup.absent_status.contains(&answer.status));
        // Where only the create's address is known, a GET of it is not expected to be served: that it is answered and the
        // credentials are not refused is all that can be learnt without creating anything.
        let only_reached = self.check.is_none() && self.lookup.is_none();
        let reached = only_reached && matches!(answer.status, 400 | 404 | 405 | 422);
        let body = read_json(&answer.body);
        match by_rules(&self.rules, answer, body.as_ref(), now) {
            None if (200..300).contains(&answer.status) || absent || reached => Ok(()),
            _ => {
                let failure = self.classify(answer, body.as_ref(), now);
                let advice = match failure.class {
                    FailureClass::Account => "check the address and the credentials in the headers",
                    _ => "check the address; the API did not answer as expected",
                };
                Err(self.scrub(&format!("{}; {advice}", failure.message)))
            }
        }
    }

    fn confirm(&self, crm_id: &CrmId) -> Option<Call> {
        let id = id_context(crm_id);
        self.confirm.as_ref()?.call(&id, &id).ok()
    }

    fn read_confirm(&self, exchange: &Exchange, now: At) -> Result<bool, String> {
        let answer = complete(exchange).map_err(|failure| self.scrub(&failure.message))?;
        match answer.status {
            200..=299 => Ok(true),
            404 | 410 => Ok(false),
            _ => Err(self.scrub(&self.classify(answer, read_json(&answer.body).as_ref(), now).message)),
        }
    }

    fn link(&self, crm_id: &CrmId) -> Option<String> {
        self.link.as_ref()?.render(&id_context(crm_id)).ok()
    }

    fn can_look_up(&self) -> bool {
        self.lookup.is_some()
    }

    fn scrub(&self, text: &str) -> String {
        self.requests().fold(text.to_owned(), |text, request| request.scrub(&text))
    }
}

/// The last part of a Location's path.
fn id_of_location(location: &str) -> Option<CrmId> {
    let path = location.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    let (_, last) = path.rsplit_once('/')?;
    let text = percent_encoding::percent_decode_str(last).decode_utf8().ok()?;
    id_text(&Value::String(text.into_owned()))
}

/// Changes with the code and with what decides which request a lead becomes; secrets do not count.
fn version(table: &Table) -> String {
    let create = table.peek("create");
    let part = |name: &str| create.and_then(|create| create.get(name));
    let shape = format!("{:?}{:?}{:?}", part("method"), part("body"), part("form"));
    format!("{KIND}/{VERSION}/{}", hex(&Sha256::digest(shape)).get(..8).unwrap_or_default())
}

#[cfg(test)]
mod tests;

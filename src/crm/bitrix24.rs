//! Bitrix24 by an inbound webhook (REST `crm.item.*`): a lead, or a contact and then its deal.
//!
//! Bitrix24 has no create that is idempotent and no unique external key, so it never says "exists already": every entity
//! bears originatorId `leadonce` and originId = crm_key, and an uncertain create is looked up by both. Batches are not used:
//! one status cannot speak for several leads.
//!
//! Three things the vendor's documentation warns of are checked here: unknown field names are ignored without an error, so
//! the answer must echo our originId; a list leaves out what the webhook's owner may not read; a request may run for 60 s
//! on the cloud, so an empty look-up proves nothing before that (`defaults`).

mod address;
mod errors;
mod mapping;

use std::time::Duration;

use serde_json::{Map, Value, json};

use self::address::Address;
use self::errors::classify;
use self::mapping::{Mapping, ORIGINATOR, Record};
use super::failure::{complete, id_text, impersonal, json as read_json, message_of};
use super::settings::{Faults, Table};
use super::{Answer, Call, Connector, Defaults, Exchange, Order};
use crate::clock::At;
use crate::operation::{CreateOutcome, CrmId, Failure, FailureClass, LookupOutcome};

/// The kind's name in the configuration and in the store; never renamed.
pub const KIND: &str = "bitrix24";

/// What the documentation of the limits advises (limits.md): 2 calls a second drain a bucket of 50, counted per portal and
/// source address over all applications, so a part is left to others. The cloud ends a request after 60 s; an empty look-up
/// is believed after twice that.
pub const DEFAULTS: Defaults = Defaults {
    rate_per_second: 2.0,
    burst: 40,
    first_after: Duration::from_secs(5),
    settle: Duration::from_secs(120),
    trusted: true,
};

const ADD: &str = "crm.item.add";
const LIST: &str = "crm.item.list";
/// How far before the first send the look-up begins: more than any clock of a portal is wrong.
const LOOK_BACK: Duration = Duration::from_secs(24 * 60 * 60);

/// A portal, as configured.
#[derive(Debug)]
pub struct Bitrix24 {
    address: Address,
    mapping: Mapping,
}

impl Bitrix24 {
    /// Reads the kind's own keys: `webhook_url`, `entity`, `title`, `source_id`, `assigned_by_id`, `category_id`, `stage_id`,
    /// `fields`, `contact_fields`.
    pub fn new(settings: Map<String, Value>) -> Result<Self, Faults> {
        let mut table = Table::new(settings);
        let address = table.required_text("webhook_url");
        let address = address.and_then(|text| table.checked("webhook_url", Address::parse(&text)));
        let mapping = Mapping::read(&mut table);
        let faults = table.finish();
        match (address, mapping, faults.is_empty()) {
            (Some(address), Some(mapping), true) => Ok(Self { address, mapping }),
            _ => Err(faults),
        }
    }

    fn call(&self, method: &str, body: &Value) -> Call {
        Call {
            method: "POST",
            url: self.address.of(method),
            masked_url: self.address.masked(method),
            headers: vec![
                ("content-type".into(), "application/json".into()),
                ("accept".into(), "application/json".into()),
            ],
            body: body.to_string().into_bytes(),
        }
    }

    /// A page or an error text may repeat the address that was called, or what was sent.
    fn failure(&self, order: &Order, failure: Failure) -> Failure {
        let message = impersonal(&self.address.scrub(&failure.message), &order.lead);
        Failure { message: message_of(&message), ..failure }
    }

    fn created(&self, order: &Order, exchange: &Exchange, now: At) -> Result<CrmId, Failure> {
        let answer = complete(exchange)?;
        let Some((item, id)) = created_item(answer) else { return Err(classify(answer, now)) };
        if bears(&item, &self.mapping.key(order)) {
            return Ok(id);
        }
        // An entity was made, but a look-up by key will never find it: the id is kept for the person who decides.
        Err(Failure {
            crm_id: Some(id.clone()),
            ..Failure::new(
                FailureClass::Uncertain,
                format!("Bitrix24 made {id} without our originatorId and originId; it cannot be found by key"),
            )
        })
    }

    fn found(&self, order: &Order, exchange: &Exchange, now: At) -> Result<Vec<CrmId>, Failure> {
        let answer = complete(exchange)?;
        let rows = rows(answer).ok_or_else(|| classify(answer, now))?;
        let unreadable = |what: &str| Failure::new(FailureClass::Uncertain, format!("the list proves nothing: {what}"));
        let key = self.mapping.key(order);
        let mut ids = Vec::new();
        for row in rows.iter().filter(|row| bears(row, &key)) {
            ids.push(row.get("id").and_then(id_text).ok_or_else(|| unreadable("a row has no id"))?);
        }
        if ids.is_empty() && !rows.is_empty() {
            return Err(unreadable("Bitrix24 gave rows that do not bear the key"));
        }
        Ok(ids)
    }
}

impl Connector for Bitrix24 {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn steps(&self) -> &'static [&'static str] {
        self.mapping.entity.steps()
    }

    fn mapping_version(&self) -> String {
        self.mapping.version()
    }

    fn create(&self, order: &Order) -> Result<Call, String> {
        let record = self.mapping.entity.record(order.step);
        let fields = self.mapping.fields(order)?;
        Ok(self.call(ADD, &json!({"entityTypeId": record.type_id(), "fields": fields})))
    }

    fn read_create(&self, order: &Order, exchange: &Exchange, now: At) -> CreateOutcome {
        match self.created(order, exchange, now) {
            Ok(id) => CreateOutcome::Created(id),
            Err(failure) => CreateOutcome::Failed(self.failure(order, failure)),
        }
    }

    fn look_up(&self, order: &Order) -> Option<Call> {
        let record = self.mapping.entity.record(order.step);
        let mut filter = Map::new();
        filter.insert("=originatorId".into(), json!(ORIGINATOR));
        filter.insert("=originId".into(), json!(self.mapping.key(order)));
        if let Some(sent) = order.first_sent_at {
            // Leads have an index on the time of creation and none on originId.
            filter.insert(">=createdTime".into(), json!(date_time(sent.minus(LOOK_BACK))));
        }
        Some(self.call(
            LIST,
            &json!({
                "entityTypeId": record.type_id(),
                "filter": filter,
                "select": ["id", "originId", "originatorId", "createdTime", "title"],
                "order": {"id": "ASC"},
                // No count of all rows: seconds on a large portal.
                "start": -1,
            }),
        ))
    }

    fn read_look_up(&self, order: &Order, exchange: &Exchange, now: At) -> LookupOutcome {
        match self.found(order, exchange, now) {
            Ok(ids) => LookupOutcome::Found(ids),
            Err(failure) => LookupOutcome::Failed(self.failure(order, failure)),
        }
    }

    fn check(&self) -> Call {
        let last = self.steps().len().saturating_sub(1);
        let record = self.mapping.entity.record(last);
        self.call(
            LIST,
            &json!({
                "entityTypeId": record.type_id(),
                "filter": {"=originatorId": ORIGINATOR},
                "select": ["id"],
                "order": {"id": "DESC"},
                "start": -1,
            }),
        )
    }

    fn read_check(&self, exchange: &Exchange, now: At) -> Result<(), String> {
        let failure = match complete(exchange) {
            Ok(answer) if rows(answer).is_some() => return Ok(()),
            Ok(answer) => classify(answer, now),
            Err(failure) => failure,
        };
        let advice = match failure.class {
            FailureClass::NotSent => "check the host in webhook_url, the network and the portal's certificate",
            FailureClass::Account => {
                "make an inbound webhook with the right \"crm\" for an employee who may add and read these entities, \
                 and put its address into webhook_url"
            }
            FailureClass::Throttled => "the portal's limit is used up; try again in a minute",
            FailureClass::Rejected => "this portal does not know these entities; check entity",
            FailureClass::NotExecuted | FailureClass::Uncertain | FailureClass::Duplicate => {
                "is this the address of a Bitrix24 portal? try again later"
            }
        };
        Err(self.address.scrub(&format!("{}; {advice}", failure.message)))
    }

    fn confirm(&self, crm_id: &CrmId) -> Option<Call> {
        let last = self.steps().len().saturating_sub(1);
        let record = self.mapping.entity.record(last);
        // The database would read "12abc" as 12; an id that is no number becomes one that no entity has.
        let id = if is_number(crm_id) { crm_id.as_str() } else { "0" };
        Some(self.call(
            LIST,
            &json!({
                "entityTypeId": record.type_id(),
                "filter": {"=id": id},
                "select": ["id"],
                "order": {"id": "ASC"},
                "start": -1,
            }),
        ))
    }

    fn read_confirm(&self, exchange: &Exchange, now: At) -> Result<bool, String> {
        let failure = match complete(exchange) {
            Ok(answer) => match rows(answer).as_deref() {
                Some([]) => return Ok(false),
                Some([_]) => return Ok(true),
                Some(_) => return Err("Bitrix24 did not look for this id alone".into()),
                None => classify(answer, now),
            },
            Err(failure) => failure,
        };
        Err(self.address.scrub(&failure.message))
    }

    fn link(&self, crm_id: &CrmId) -> Option<String> {
        let page = match self.mapping.entity.record(self.steps().len().saturating_sub(1)) {
            Record::Lead => "lead",
            Record::Deal => "deal",
            Record::Contact => "contact",
        };
        is_number(crm_id).then(|| format!("{}/crm/{page}/details/{crm_id}/", self.address.portal()))
    }

    fn scrub(&self, text: &str) -> String {
        self.address.scrub(text)
    }
}

fn is_number(crm_id: &CrmId) -> bool {
    crm_id.as_str().bytes().all(|b| b.is_ascii_digit())
}

/// Whether a row bears our key. Both fields are compared: import tools use originId too.
fn bears(row: &Value, key: &str) -> bool {
    let is = |name: &str, value: &str| row.get(name).and_then(Value::as_str) == Some(value);
    is("originId", key) && is("originatorId", ORIGINATOR)
}

/// The entity of a successful `crm.item.add`, and its id.
fn created_item(answer: &Answer) -> Option<(Value, CrmId)> {
    let mut body = read_json(&answer.body).filter(|_| (200..300).contains(&answer.status))?;
    let item = body.pointer_mut("/result/item").map(Value::take)?;
    let id = item.get("id").and_then(id_text)?;
    Some((item, id))
}

/// The rows of a successful `crm.item.list`.
fn rows(answer: &Answer) -> Option<Vec<Value>> {
    let mut body = read_json(&answer.body).filter(|_| answer.status == 200)?;
    match body.pointer_mut("/result/items").map(Value::take) {
        Some(Value::Array(rows)) => Some(rows),
        _ => None,
    }
}

/// ISO 8601 with seconds and an offset, as the documentation writes times.
fn date_time(at: At) -> String {
    let text = at.rfc3339();
    format!("{}+00:00", text.get(..19).unwrap_or(&text))
}

#[cfg(test)]
mod tests;

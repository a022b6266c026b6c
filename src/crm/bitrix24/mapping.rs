//! From a lead to the `fields` of `crm.item.add`.
//!
//! What has a field goes into it as the visitor typed it (phones too: the normal form serves for matching only); what has
//! none goes into the comment, and so does the whole of every text that a column is too short for: nothing that was sent is
//! lost. A deal cannot hold phones, so a contact of its own goes before it.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::crm::Order;
use crate::crm::describe::{cut, describe};
use crate::crm::settings::Table;
use crate::crm::template::{Json, Place, Scope, Template, lead_context};
use crate::operation::CrmId;
use crate::operation::id::hex;

/// The constant that, with originId, marks our entities; never a number (those name external stores in old portals).
pub(super) const ORIGINATOR: &str = "leadonce";
/// Version of the code below; raised when it maps the same lead and settings differently.
const VERSION: u32 = 1;
/// Column widths in characters (self-hosted schema; what the cloud does beyond them is not documented).
const TITLE: usize = 255;
const NAME: usize = 50;
const CONTACT_VALUE: usize = 250;
const UTM: usize = 255;
/// In bytes: a text column of MySQL holds 65 535.
const COMMENT: usize = 60_000;
const DEFAULT_TITLE: &str = "{{ lead.name or lead.phone or lead.email or 'Lead' }} ({{ source }})";
/// Fields that carry the promise or come from the steps; nobody may map over them.
const OURS: &[&str] = &["originatorId", "originId", "fm", "contactId", "contactIds", "title"];

/// What is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entity {
    Lead,
    Deal,
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    Lead,
    Deal,
    Contact,
}

impl Record {
    /// Bitrix24's number of the type.
    pub(super) const fn type_id(self) -> u32 {
        match self {
            Self::Lead => 1,
            Self::Deal => 2,
            Self::Contact => 3,
        }
    }
}

impl Entity {
    pub(super) const fn steps(self) -> &'static [&'static str] {
        match self {
            Self::Lead => &["lead"],
            Self::Deal => &["contact", "deal"],
        }
    }

    /// The record of a step; a step beyond the last is the last.
    pub(super) const fn record(self, step: usize) -> Record {
        match (self, step) {
            (Self::Lead, _) => Record::Lead,
            (Self::Deal, 0) => Record::Contact,
            (Self::Deal, _) => Record::Deal,
        }
    }
}

/// How leads are mapped, as configured.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) entity: Entity,
    title: Template,
    source_id: Option<String>,
    assigned_by_id: Option<u64>,
    category_id: Option<u64>,
    stage_id: Option<String>,
    fields: Vec<(String, Json)>,
    contact_fields: Vec<(String, Json)>,
    digest: String,
}

impl Mapping {
    /// Reads the mapping's keys; faults stay in the table.
    pub(super) fn read(table: &mut Table) -> Option<Self> {
        let entity = match table.text("entity").as_deref() {
            None | Some("lead") => Entity::Lead,
            Some("deal") => Entity::Deal,
            Some(_) => {
                table.fault("entity", "must be \"lead\" or \"deal\"");
                Entity::Lead
            }
        };
        for key in ["category_id", "contact_fields"] {
            if entity == Entity::Lead && table.has(key) {
                table.fault(key, "is for entity = \"deal\" only");
            }
        }
        let mut digest = Sha256::new();
        let mut note = |key: &str, value: &dyn std::fmt::Debug| digest.update(format!("{key}={value:?};"));
        let title = table.text("title").unwrap_or_else(|| DEFAULT_TITLE.to_owned());
        note("title", &title);
        let title = table.checked("title", Template::new(&title, Place::Text, Scope::Lead));
        let source_id = table.text("source_id");
        let assigned_by_id = table.number("assigned_by_id");
        let category_id = table.number("category_id");
        let stage_id = table.text("stage_id");
        note("rest", &(entity, &source_id, assigned_by_id, category_id, &stage_id));
        let mut fields = |key: &str| {
            let value = table.value(key);
            note(key, &value);
            value.map(|value| read_fields(table, key, &value)).unwrap_or_default()
        };
        let (own, contact) = (fields("fields"), fields("contact_fields"));
        let digest = hex(&digest.finalize()).get(..8).unwrap_or_default().to_owned();
        Some(Self {
            entity,
            title: title?,
            source_id,
            assigned_by_id,
            category_id,
            stage_id,
            fields: own,
            contact_fields: contact,
            digest,
        })
    }

    /// Changes with the code and with the settings that decide what is sent.
    pub(super) fn version(&self) -> String {
        format!("bitrix24/{VERSION}/{}", self.digest)
    }

    /// The key of a step's record: crm_key itself for the entity, crm_key and the step's name for records before it.
    pub(super) fn key(&self, order: &Order) -> String {
        match self.entity.record(order.step) {
            Record::Lead | Record::Deal => order.crm_key.to_string(),
            Record::Contact => format!("{}:contact", order.crm_key),
        }
    }

    /// The `fields` of the order's step. An error is the lead's fault.
    pub(super) fn fields(&self, order: &Order) -> Result<Map<String, Value>, String> {
        let record = self.entity.record(order.step);
        let step = self.entity.steps().get(order.step).copied().unwrap_or("lead");
        let context = lead_context(order, step);
        let mut fields = Fields::default();
        match record {
            Record::Contact => self.person(order, &mut fields, true),
            Record::Lead => self.person(order, &mut fields, false),
            Record::Deal => {
                let contact = order.earlier.first().map(CrmId::as_str).unwrap_or_default();
                let contact: u64 = contact.parse().map_err(|_| "the contact's id is no number".to_owned())?;
                fields.put("contactIds", json!([contact]));
            }
        }
        if record != Record::Contact {
            let title = self.title.render(&context)?;
            let title: Vec<&str> = title.split_whitespace().collect();
            fields.text("title", "Title", TITLE, &title.join(" "));
            fields.option("stageId", self.stage_id.as_ref());
            let utm = &order.lead.utm;
            for (name, label, text) in [
                ("utmSource", "utm_source", &utm.source),
                ("utmMedium", "utm_medium", &utm.medium),
                ("utmCampaign", "utm_campaign", &utm.campaign),
                ("utmContent", "utm_content", &utm.content),
                ("utmTerm", "utm_term", &utm.term),
            ] {
                fields.text(name, label, UTM, text.as_deref().unwrap_or_default());
            }
        }
        if record == Record::Deal {
            // What the contact's columns were too short for stands in the deal's comment, which is what people read.
            let mut person = Fields::default();
            self.person(order, &mut person, true);
            fields.whole.splice(0..0, person.whole);
            fields.option("categoryId", self.category_id.as_ref());
        }
        fields.option("sourceId", self.source_id.as_ref());
        fields.text("sourceDescription", "Source", TITLE, order.source.as_str());
        fields.option("assignedById", self.assigned_by_id.as_ref());
        if record != Record::Contact {
            let comment = [describe(&order.lead), fields.whole.join("\n")];
            let comment: Vec<&str> = comment.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
            if !comment.is_empty() {
                fields.put("comments", json!(comment_of(&comment.join("\n\n"), order)));
            }
        }
        let extra = if record == Record::Contact { &self.contact_fields } else { &self.fields };
        for (name, template) in extra {
            if let Some(value) = template.render(&context)? {
                fields.put(name, value);
            }
        }
        fields.put("originatorId", json!(ORIGINATOR));
        fields.put("originId", json!(self.key(order)));
        Ok(fields.map)
    }

    /// Name and contacts. A contact must have a name; a nameless one bears its phone or e-mail.
    fn person(&self, order: &Order, fields: &mut Fields, needs_name: bool) {
        let lead = &order.lead;
        let given = lead.first_name.as_deref().unwrap_or_default();
        let family = lead.last_name.as_deref().unwrap_or_default();
        let whole = lead.name.as_deref().unwrap_or_default();
        let contacts = || lead.phones.iter().chain(&lead.emails).map(|contact| contact.text.as_str());
        if given.is_empty() && family.is_empty() {
            let name = match needs_name && whole.is_empty() {
                true => contacts().find(|text| !text.is_empty()).unwrap_or("Lead"),
                false => whole,
            };
            fields.text("name", "Name", NAME, name);
        } else {
            fields.text("name", "First name", NAME, given);
            fields.text("lastName", "Last name", NAME, family);
            let composed = [given, family].join(" ");
            if !whole.is_empty() && whole.trim() != composed.trim() {
                fields.whole.push(format!("Name: {whole}"));
            }
        }
        let mut rows = Vec::new();
        for (kind, label, contacts) in [("PHONE", "Phone", &lead.phones), ("EMAIL", "E-mail", &lead.emails)] {
            for contact in contacts.iter().filter(|contact| !contact.text.is_empty()) {
                let value = fields.fitting(label, CONTACT_VALUE, &contact.text);
                rows.push(json!({"typeId": kind, "valueType": "WORK", "value": value}));
            }
        }
        if !rows.is_empty() {
            fields.put("fm", Value::Array(rows));
        }
    }
}

/// The comment; one that no text column takes is cut, and says where the whole stands.
fn comment_of(text: &str, order: &Order) -> String {
    if text.len() <= COMMENT {
        return text.to_owned();
    }
    let end = (0..=COMMENT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let head = text.get(..end).unwrap_or_default();
    format!("{head}…\n\n(cut; the whole text is kept in leadonce, operation {})", order.operation_id)
}

/// Reads `fields = { ufCrmService = "{{ lead.fields.service }}" }`.
fn read_fields(table: &mut Table, key: &str, value: &Value) -> Vec<(String, Json)> {
    let Value::Object(entries) = value else {
        table.fault(key, "must be a table of Bitrix24 fields");
        return Vec::new();
    };
    let mut fields = Vec::new();
    for (name, value) in entries {
        let path = format!("{key}.{name}");
        if OURS.contains(&name.as_str()) {
            table.fault(&path, "is set by leadonce and cannot be mapped");
        } else if !name.starts_with(|c: char| c.is_ascii_lowercase())
            || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        {
            // Bitrix24 ignores unknown names without a word, so a wrong spelling would lose the value.
            table.fault(&path, "must be spelled as crm.item.fields spells it: sourceId, ufCrm1700000000");
        }
        match Json::new(value, Scope::Lead) {
            Ok(template) => fields.push((name.clone(), template)),
            Err(faults) => faults.into_iter().for_each(|(inside, fault)| {
                table.fault(&format!("{path}{inside}"), fault);
            }),
        }
    }
    fields
}

/// Fields in the making, and the whole of the texts that were cut.
#[derive(Default)]
struct Fields {
    map: Map<String, Value>,
    whole: Vec<String>,
}

impl Fields {
    fn put(&mut self, name: &str, value: Value) {
        self.map.insert(name.to_owned(), value);
    }

    fn option(&mut self, name: &str, value: Option<&impl serde::Serialize>) {
        if let Some(value) = value {
            self.put(name, json!(value));
        }
    }

    fn text(&mut self, name: &str, label: &str, longest: usize, text: &str) {
        if !text.is_empty() {
            let value = self.fitting(label, longest, text);
            self.put(name, Value::String(value));
        }
    }

    /// The text as long as its column takes; the whole of a longer one is kept for the comment.
    fn fitting(&mut self, label: &str, longest: usize, text: &str) -> String {
        let fitting = cut(text, longest);
        if fitting.len() < text.len() {
            self.whole.push(format!("{label}: {text}"));
        }
        fitting.to_owned()
    }
}

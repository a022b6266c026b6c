//! Templates in a destination's configuration: how a lead becomes the text and JSON that a CRM wants.
//!
//! A template cannot break what it is put into. In JSON, only whole string values are templates, so quoting is never the
//! user's task; in an address, every value is percent-encoded, and only keys are offered, so that nobody's name ends up in a
//! URL (G8). All is checked when the configuration is loaded: syntax, names, and a trial with a full and with an empty lead.
//!
//! What a lead does not have is empty in a text and left out of JSON.

use std::collections::BTreeMap;
use std::fmt;

use minijinja::value::Value as Any;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::Order;
use super::describe::describe;
use crate::clock::At;
use crate::operation::lead::{Contact, File};
use crate::operation::{CrmId, CrmKey, Lead, OperationId, SourceName};

const NAME: &str = "template";
const RESULT: &str = "result";
/// What RFC 3986 leaves unreserved stays readable.
const IN_ADDRESS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const KEYS: &[&str] = &["crm_key", "operation_id", "source", "received_at", "step"];
const LEAD: &[&str] = &[
    "name",
    "first_name",
    "last_name",
    "phone",
    "email",
    "phones",
    "emails",
    "message",
    "utm",
    "page",
    "referrer",
    "click_ids",
    "fields",
    "field_list",
    "files",
    "text",
];
/// Functions of the template language itself.
const FUNCTIONS: &[&str] = &["range", "dict", "namespace", "debug", "loop"];

/// Which names a template may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// `lead` and the keys.
    Lead,
    /// The keys alone: crm_key, operation_id, source, received_at, step.
    Keys,
    /// `crm_id` alone.
    CrmId,
}

/// What a template's values are put into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Text; values go in as they are.
    Text,
    /// An address; values are percent-encoded.
    Address,
}

/// A checked template that gives text.
pub struct Template {
    source: String,
    environment: Environment<'static>,
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The source may hold a secret (an address, a header).
        f.write_str("Template")
    }
}

impl Template {
    /// Checks a template: syntax, names, and a trial. The fault does not repeat the template.
    pub fn new(source: &str, place: Place, scope: Scope) -> Result<Self, String> {
        let template = Self::parsed(source, source.to_owned(), place)?;
        template.check(scope)?;
        Ok(template)
    }

    fn parsed(source: &str, code: String, place: Place) -> Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_formatter(move |out, _, value| {
            if value.is_undefined() || value.is_none() {
                return Ok(());
            }
            let text = value.to_string();
            match place {
                Place::Text => out.write_str(&text)?,
                Place::Address => write!(out, "{}", utf8_percent_encode(&text, IN_ADDRESS))?,
            }
            Ok(())
        });
        environment.add_template_owned(NAME, code).map_err(|error| fault(&error))?;
        Ok(Self { source: source.to_owned(), environment })
    }

    fn check(&self, scope: Scope) -> Result<(), String> {
        let template = self.environment.get_template(NAME).map_err(|error| fault(&error))?;
        for name in template.undeclared_variables(true) {
            let mut parts = name.split('.');
            let root = parts.next().unwrap_or_default();
            let known = match scope {
                Scope::Lead => root == "lead" || KEYS.contains(&root),
                Scope::Keys => KEYS.contains(&root),
                Scope::CrmId => root == "crm_id",
            };
            if !known && !FUNCTIONS.contains(&root) {
                return Err(format!("the name {root} is not known here; known are {}", names(scope)));
            }
            let field = parts.next().filter(|field| root == "lead" && !LEAD.contains(field));
            if let Some(field) = field {
                return Err(format!("lead has no {field}; it has {}", LEAD.join(", ")));
            }
        }
        for context in samples(scope) {
            self.render(&context)?;
        }
        Ok(())
    }

    /// Renders to text.
    pub fn render(&self, context: &Any) -> Result<String, String> {
        let template = self.environment.get_template(NAME).map_err(|error| fault(&error))?;
        template.render(context).map_err(|error| fault(&error))
    }

    fn evaluate(&self, context: &Any) -> Result<Any, String> {
        let template = self.environment.get_template(NAME).map_err(|error| fault(&error))?;
        let captured = template.render_captured(context).map_err(|error| fault(&error))?;
        Ok(captured.state().lookup(RESULT).unwrap_or_default())
    }

    /// The template as it was written; it may hold a secret.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// A template's error without the template: it may stand in an address with a secret.
fn fault(error: &minijinja::Error) -> String {
    let mut text = error.kind().to_string();
    if let Some(detail) = error.detail() {
        text = format!("{text}: {detail}");
    }
    format!("is no good template: {text}")
}

fn names(scope: Scope) -> String {
    match scope {
        Scope::Lead => format!("lead, {}", KEYS.join(", ")),
        Scope::Keys => KEYS.join(", "),
        Scope::CrmId => "crm_id".to_owned(),
    }
}

/// A JSON value whose texts are templates.
#[derive(Debug)]
pub enum Json {
    /// A value without any template.
    Literal(Value),
    /// A text with values in it.
    Text(Template),
    /// One expression and nothing else (`"{{ lead.phones }}"`): it keeps its type, and is left out where it is empty.
    Expression(Template),
    /// A list.
    List(Vec<Json>),
    /// A table, in its order.
    Table(Vec<(String, Json)>),
}

impl Json {
    /// Checks all templates of a value; faults come with the path inside it (`.fields.phone`).
    pub fn new(value: &Value, scope: Scope) -> Result<Self, Vec<(String, String)>> {
        let mut faults = Vec::new();
        let json = Self::read(value, scope, "", &mut faults);
        if faults.is_empty() { Ok(json) } else { Err(faults) }
    }

    fn read(value: &Value, scope: Scope, path: &str, faults: &mut Vec<(String, String)>) -> Self {
        match value {
            Value::String(text) if ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark)) => Self::leaf(text, scope)
                .unwrap_or_else(|fault| {
                    faults.push((path.to_owned(), fault));
                    Self::Literal(Value::Null)
                }),
            Value::Array(items) => Self::List(
                (0..).zip(items).map(|(i, item)| Self::read(item, scope, &format!("{path}.{i}"), faults)).collect(),
            ),
            Value::Object(table) => Self::Table(
                table
                    .iter()
                    .map(|(key, item)| (key.clone(), Self::read(item, scope, &format!("{path}.{key}"), faults)))
                    .collect(),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Self::Literal(value.clone()),
        }
    }

    fn leaf(text: &str, scope: Scope) -> Result<Self, String> {
        let inner = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        if let Some(inner) = inner.filter(|inner| !["{{", "}}", "{%"].iter().any(|mark| inner.contains(mark))) {
            let inner = inner.trim_matches('-').trim();
            let template = Template::parsed(text, format!("{{% set {RESULT} = ({inner}) %}}"), Place::Text)?;
            template.check(scope)?;
            return Ok(Self::Expression(template));
        }
        Template::new(text, Place::Text, scope).map(Self::Text)
    }

    /// Renders; `None` where nothing is to be sent.
    pub fn render(&self, context: &Any) -> Result<Option<Value>, String> {
        Ok(match self {
            Self::Literal(value) => Some(value.clone()),
            Self::Text(template) => Some(Value::String(template.render(context)?)),
            Self::Expression(template) => {
                let value = template.evaluate(context)?;
                if value.is_undefined() || value.is_none() {
                    return Ok(None);
                }
                Some(serde_json::to_value(value).map_err(|_| "a template gives no JSON value".to_owned())?)
            }
            Self::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for item in items {
                    list.extend(item.render(context)?);
                }
                Some(Value::Array(list))
            }
            Self::Table(entries) => {
                let mut table = Map::with_capacity(entries.len());
                for (key, item) in entries {
                    if let Some(value) = item.render(context)? {
                        table.insert(key.clone(), value);
                    }
                }
                Some(Value::Object(table))
            }
        })
    }
}

/// The values for [`Scope::Lead`].
pub fn lead_context(order: &Order, step: &str) -> Any {
    let mut values = keys(order, step);
    values.insert("lead", lead_value(&order.lead));
    Any::from(values)
}

/// The values for [`Scope::Keys`].
pub fn keys_context(order: &Order, step: &str) -> Any {
    Any::from(keys(order, step))
}

/// The values for [`Scope::CrmId`].
pub fn id_context(crm_id: &CrmId) -> Any {
    Any::from(BTreeMap::from([("crm_id", Any::from(crm_id.as_str()))]))
}

fn keys(order: &Order, step: &str) -> BTreeMap<&'static str, Any> {
    BTreeMap::from([
        ("crm_key", Any::from(order.crm_key.to_string())),
        ("operation_id", Any::from(order.operation_id.to_string())),
        ("source", Any::from(order.source.as_str())),
        ("received_at", Any::from(order.received_at.rfc3339())),
        ("step", Any::from(step)),
    ])
}

fn lead_value(lead: &Lead) -> Any {
    let mut values: BTreeMap<&str, Any> = BTreeMap::new();
    let first = |contacts: &[Contact]| contacts.first().map(|contact| contact.text.clone());
    for (name, text) in [
        ("name", lead.name.clone()),
        ("first_name", lead.first_name.clone()),
        ("last_name", lead.last_name.clone()),
        ("phone", first(&lead.phones)),
        ("email", first(&lead.emails)),
        ("message", lead.message.clone()),
        ("page", lead.page.clone()),
        ("referrer", lead.referrer.clone()),
        ("text", Some(describe(lead)).filter(|text| !text.is_empty())),
    ] {
        if let Some(text) = text {
            values.insert(name, Any::from(text));
        }
    }
    values.insert("phones", Any::from_serialize(&lead.phones));
    values.insert("emails", Any::from_serialize(&lead.emails));
    values.insert("utm", Any::from_serialize(&lead.utm));
    values.insert("files", Any::from_serialize(&lead.files));
    values.insert("click_ids", Any::from_serialize(joined(&lead.click_ids)));
    values.insert("fields", Any::from_serialize(joined(&lead.fields)));
    let pair = |(name, value): &(String, String)| BTreeMap::from([("name", name.clone()), ("value", value.clone())]);
    values.insert("field_list", Any::from_serialize(lead.fields.iter().map(pair).collect::<Vec<_>>()));
    Any::from(values)
}

/// Fields by their names; equal names are joined with a comma, in their order.
fn joined(pairs: &[(String, String)]) -> BTreeMap<&str, String> {
    let mut table: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in pairs {
        table.entry(name).and_modify(|text| *text = format!("{text}, {value}")).or_insert_with(|| value.clone());
    }
    table
}

fn samples(scope: Scope) -> Vec<Any> {
    match scope {
        Scope::Lead => sample_orders().iter().map(|order| lead_context(order, "create")).collect(),
        Scope::Keys => sample_orders().iter().map(|order| keys_context(order, "create")).collect(),
        Scope::CrmId => CrmId::try_from("4512".to_owned()).iter().map(id_context).collect(),
    }
}

/// Values of a sample, for trials of what a template is put into.
pub fn sample_context(scope: Scope) -> Any {
    samples(scope).into_iter().next().unwrap_or_default()
}

/// An order with everything and one with nothing, for trials when the configuration is loaded.
pub fn sample_orders() -> Vec<Order> {
    let Ok(source) = "sample".parse::<SourceName>() else { return Vec::new() };
    let contact = |text: &str| vec![Contact { text: text.into(), normal: Some(text.into()) }];
    let text = |text: &str| Some(text.to_owned());
    let full = Lead {
        name: text("Anna Ivanova"),
        first_name: text("Anna"),
        last_name: text("Ivanova"),
        phones: contact("+79161234567"),
        emails: contact("anna@example.com"),
        message: text("Please call me"),
        page: text("https://example.com/"),
        referrer: text("https://example.org/"),
        click_ids: vec![("gclid".into(), "1".into())],
        fields: vec![("service".into(), "x".into())],
        files: vec![File { field: "cv".into(), name: "cv.pdf".into(), size: 1 }],
        ..Lead::default()
    };
    let order = |lead| Order {
        operation_id: OperationId(uuid::Uuid::nil()),
        crm_key: CrmKey(uuid::Uuid::nil()),
        source: source.clone(),
        lead,
        received_at: At::from_seconds(0),
        step: 0,
        earlier: Vec::new(),
        first_sent_at: None,
    };
    vec![order(full), order(Lead::default())]
}

#[cfg(test)]
mod tests;

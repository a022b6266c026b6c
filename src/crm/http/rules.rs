//! Rules of the configuration: what this API's answers mean where the status table does not say it.

use serde_json::Value;

use crate::clock::At;
use crate::crm::Answer;
use crate::crm::failure::{by_status, id_text, retry_after, scalar_text};
use crate::crm::settings::Table;
use crate::operation::{CrmId, Failure, FailureClass};

/// One rule: the answers it speaks of, and their class.
#[derive(Debug)]
pub(super) struct Rule {
    status: Option<u16>,
    pointer: Option<String>,
    equals: Option<String>,
    class: FailureClass,
    id: Option<String>,
}

impl Rule {
    /// Reads `rules = [ … ]`.
    pub(super) fn read_all(outer: &mut Table) -> Vec<Self> {
        let mut rules = Vec::new();
        for (i, value) in outer.list("rules").into_iter().enumerate() {
            if let Some(mut table) = outer.open(&format!("rules.{i}"), value) {
                rules.extend(Self::read(&mut table));
                outer.close(table);
            }
        }
        rules
    }

    fn read(table: &mut Table) -> Option<Self> {
        let status = table.number("status").map(|status| u16::try_from(status).unwrap_or(0));
        if status.is_some_and(|status| !(100..600).contains(&status)) {
            table.fault("status", "must be an HTTP status");
        }
        let pointer = pointer(table, "body_pointer", None);
        let equals = table.value("equals").and_then(|value| {
            let text = scalar_text(&value).ok_or_else(|| "must be a text, a number, true or false".to_owned());
            table.checked("equals", text)
        });
        if equals.is_some() && pointer.is_none() {
            table.fault("equals", "needs body_pointer");
        }
        if status.is_none() && pointer.is_none() {
            table.fault("status", "is missing; a rule needs status or body_pointer");
        }
        let class = table.required_text("class").and_then(|name| {
            let known = FailureClass::ALL.into_iter().find(|class| class.as_str() == name);
            let names = FailureClass::ALL.map(FailureClass::as_str).join(", ");
            table.checked("class", known.ok_or_else(|| format!("must be one of {names}")))
        });
        let id = pointer_of(table, "id");
        if id.is_some() && class.is_some_and(|class| class != FailureClass::Duplicate) {
            table.fault("id", "is for class = \"duplicate\" only");
        }
        Some(Self { status, pointer, equals, class: class?, id })
    }

    fn matches(&self, answer: &Answer, body: Option<&Value>) -> bool {
        if self.status.is_some_and(|status| status != answer.status) {
            return false;
        }
        let Some(pointer) = &self.pointer else { return true };
        let found = body.and_then(|body| body.pointer(pointer)).filter(|value| !value.is_null());
        match (found, &self.equals) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(value), Some(text)) => scalar_text(value).is_some_and(|found| found == *text),
        }
    }

    fn failure(&self, answer: &Answer, body: Option<&Value>, now: At) -> Failure {
        let id: Option<CrmId> = self.id.as_ref().and_then(|id| body?.pointer(id)).and_then(id_text);
        Failure { class: self.class, crm_id: id, retry_after: retry_after(answer, now), ..by_status(answer, now) }
    }
}

/// What the first rule that speaks of the answer makes of it.
pub(super) fn by_rules(rules: &[Rule], answer: &Answer, body: Option<&Value>, now: At) -> Option<Failure> {
    rules.iter().find(|rule| rule.matches(answer, body)).map(|rule| rule.failure(answer, body, now))
}

/// Reads a JSON pointer (RFC 6901): empty, or parts that begin with a slash.
pub(super) fn pointer(table: &mut Table, key: &str, default: Option<&str>) -> Option<String> {
    match table.value(key) {
        None => default.map(str::to_owned),
        Some(Value::String(text)) if text.is_empty() || text.starts_with('/') => Some(text),
        Some(_) => {
            table.fault(key, "must be a JSON pointer such as /result/id");
            None
        }
    }
}

fn pointer_of(table: &mut Table, key: &str) -> Option<String> {
    pointer(table, key, None)
}

//! What a CRM's answer says about an entity, for a person who compares it with the lead.

use serde_json::Value;

use super::{Answer, Exchange};
use crate::operation::CrmId;

/// Members shown of one entity.
const MOST: usize = 30;
/// Characters shown of one value.
const LONGEST: usize = 300;

/// The plain members of the entity with that id, wherever it stands in the answer: name and text, in the answer's order.
pub fn shown(exchange: &Exchange, id: &CrmId) -> Vec<(String, String)> {
    let Ok(Answer { body, .. }) = exchange else { return Vec::new() };
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return Vec::new() };
    entity(&answer, id.as_str()).map(members).unwrap_or_default()
}

fn entity<'a>(value: &'a Value, id: &str) -> Option<&'a serde_json::Map<String, Value>> {
    match value {
        Value::Object(object) => {
            let bears = |(name, value): (&String, &Value)| {
                name.eq_ignore_ascii_case("id") && plain(value).as_deref() == Some(id)
            };
            if object.iter().any(bears) { Some(object) } else { object.values().find_map(|value| entity(value, id)) }
        }
        Value::Array(list) => list.iter().find_map(|value| entity(value, id)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn members(object: &serde_json::Map<String, Value>) -> Vec<(String, String)> {
    let member = |(name, value): (&String, &Value)| Some((name.clone(), plain(value)?.chars().take(LONGEST).collect()));
    object.iter().filter_map(member).take(MOST).collect()
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str, id: &str) -> Vec<(String, String)> {
        let answer = Answer { status: 200, headers: Vec::new(), body: body.into() };
        shown(&Ok(answer), &CrmId::try_from(id.to_owned()).expect("an id"))
    }

    #[test]
    fn the_entity_is_found_wherever_it_stands_and_only_plain_members_are_shown() {
        let body = r#"{"result":{"items":[{"id":1,"title":"other"},{"id":2,"title":"Anna","tags":["x"],"note":"","open":true}]}}"#;
        let expected = [("id", "2"), ("open", "true"), ("title", "Anna")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        let mut found = of(body, "2");
        found.sort();
        assert_eq!(found, expected);
        assert!(of(body, "3").is_empty());
        assert!(of("<html>", "2").is_empty());
        assert_eq!(of(r#"[{"Id":"a","x":"1"}]"#, "a").len(), 2);
    }
}

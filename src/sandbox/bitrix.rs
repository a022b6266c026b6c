//! The Bitrix24 side: `crm.item.add`, `crm.item.list`, `crm.item.get` and a few harmless methods, in the shapes of the vendor's
//! documentation (apidocs.bitrix24.com: crm/universal, settings/how-to-call-rest-api, limits).
//!
//! As there: an unknown field is dropped without a word, nothing makes originId unique, and no create ever says "exists".

use serde_json::{Map, Value, json};

use super::wire::{Reply, Request};
use super::world::{CallKind, Entity, World};
use crate::clock::At;

/// Rows of one page of a list.
const PAGE: usize = 50;

/// The fields of `fields` that the portal knows; anything else it ignores, but for the account's own `ufCrm…`.
const FIELDS: [&str; 38] = [
    "title",
    "name",
    "lastName",
    "secondName",
    "honorific",
    "birthdate",
    "post",
    "companyTitle",
    "fm",
    "comments",
    "sourceId",
    "sourceDescription",
    "statusId",
    "statusDescription",
    "stageId",
    "categoryId",
    "typeId",
    "opened",
    "assignedById",
    "currencyId",
    "opportunity",
    "isManualOpportunity",
    "contactId",
    "contactIds",
    "companyId",
    "observers",
    "begindate",
    "closedate",
    "additionalInfo",
    "webformId",
    "originatorId",
    "originId",
    "originVersion",
    "utmSource",
    "utmMedium",
    "utmCampaign",
    "utmContent",
    "utmTerm",
];

/// A call to a method, read.
pub(super) struct Errand {
    pub(super) method: String,
    authorized: bool,
    params: Value,
}

impl Errand {
    /// Reads `/rest/{user}/{secret}/{method}[.json]`; `None` where the path is another.
    pub(super) fn read(request: &Request, secret: &str) -> Option<Self> {
        let mut parts = request.path.strip_prefix("/rest/")?.split('/');
        let (user, given, method) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let authorized = given == secret && !user.is_empty() && user.bytes().all(|b| b.is_ascii_digit());
        let method = method.strip_suffix(".json").unwrap_or(method).to_owned();
        // A body that is no JSON counts as no parameters, as on the portal.
        let params = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        Some(Self { method, authorized, params })
    }

    pub(super) fn call(&self) -> CallKind {
        match self.method.as_str() {
            "crm.item.add" if self.authorized => CallKind::Create,
            "crm.item.list" if self.authorized => CallKind::Lookup,
            _ => CallKind::Other,
        }
    }

    pub(super) fn key(&self) -> Option<String> {
        text(self.params.pointer("/fields/originId").or_else(|| self.params.pointer("/filter/=originId"))?)
    }

    /// The answer, and the entity that was made.
    pub(super) fn carry_out(&self, world: &World, now: At) -> (Reply, Option<u64>) {
        if !self.authorized {
            return (unauthorized(), None);
        }
        let result = match self.method.as_str() {
            "crm.item.add" => {
                return match self.add(world, now) {
                    Ok(entity) => (good(json!({ "item": shown(&entity) }), now), Some(entity.id)),
                    Err(reply) => (reply, None),
                };
            }
            "crm.item.list" => return (self.list(world, now).unwrap_or_else(|reply| reply), None),
            "crm.item.get" => self.get(world),
            "crm.item.fields" => self.entity_type().map(|_| {
                let fields = FIELDS.iter().map(|name| ((*name).to_owned(), json!({ "title": name })));
                json!({ "fields": Value::Object(fields.collect()) })
            }),
            "crm.settings.mode.get" => Ok(json!(1)),
            "profile" => Ok(json!({ "ID": super::USER, "ADMIN": true, "NAME": "Sandbox" })),
            "scope" => Ok(json!(["crm"])),
            "server.time" => Ok(json!(moment(now))),
            _ => Err(error(404, "ERROR_METHOD_NOT_FOUND", "Method not found!")),
        };
        (result.map_or_else(|reply| reply, |result| good(result, now)), None)
    }

    fn entity_type(&self) -> Result<&'static str, Reply> {
        let given = self.params.get("entityTypeId").and_then(text).ok_or_else(|| missing("entityTypeId"))?;
        match given.as_str() {
            "1" => Ok("lead"),
            "2" => Ok("deal"),
            "3" => Ok("contact"),
            "4" => Ok("company"),
            _ => Err(error(400, "NOT_FOUND", "Smart process not found")),
        }
    }

    fn add(&self, world: &World, now: At) -> Result<Entity, Reply> {
        let entity_type = self.entity_type()?;
        let given = match self.params.get("fields") {
            Some(Value::Object(fields)) => fields,
            Some(Value::Array(list)) if list.is_empty() => &Map::new(),
            Some(_) => return Err(error(400, "", "Parameter 'fields' must be array.")),
            None => return Err(missing("fields")),
        };
        if given.get("fm").is_some_and(|rows| !rows.is_array()) {
            return Err(error(400, "100", "Expected iterable value, but got scalar"));
        }
        if let Some(sum) = given.get("opportunity")
            && text(sum).is_none_or(|sum| sum.parse::<f64>().is_err())
        {
            return Err(error(400, "CRM_FIELD_ERROR_VALUE_NOT_VALID", "Invalid value for the Opportunity field"));
        }
        let known = |name: &str| FIELDS.contains(&name) || name.starts_with("ufCrm");
        let mut fields: Map<String, Value> =
            given.iter().filter(|(name, _)| known(name)).map(|(name, value)| (name.clone(), value.clone())).collect();
        for name in ["originId", "originatorId"] {
            // The column is text of 255 characters.
            let value = fields.get(name).and_then(text).map(|value| value.chars().take(255).collect::<String>());
            fields.insert(name.to_owned(), value.map_or(Value::Null, Value::String));
        }
        let key = fields.get("originId").and_then(text);
        let entity = world.create(entity_type, key, fields, false, now);
        Ok(entity.unwrap_or_else(|known| known))
    }

    fn list(&self, world: &World, now: At) -> Result<Reply, Reply> {
        let entity_type = self.entity_type()?;
        let conditions = match self.params.get("filter") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) if list.is_empty() => Vec::new(),
            Some(Value::Object(filter)) => {
                filter.iter().map(|(name, wanted)| Condition::read(name, wanted)).collect::<Result<_, _>>()?
            }
            Some(_) => return Err(error(400, "100", "Expected iterable value, but got scalar")),
        };
        let key = self.params.pointer("/filter/=originId").and_then(text);
        let mut found = world.look_up(entity_type, key.as_deref(), now);
        found.retain(|entity| conditions.iter().all(|condition| condition.holds(entity)));
        if self.params.pointer("/order/id").and_then(Value::as_str).is_some_and(|o| o.eq_ignore_ascii_case("desc")) {
            found.reverse();
        }
        let start = self.params.get("start").and_then(text).and_then(|start| start.parse::<i64>().ok()).unwrap_or(0);
        let skipped = usize::try_from(start).unwrap_or(0);
        let total = found.len();
        let page: Vec<Value> = found.iter().skip(skipped).take(PAGE).map(|entity| self.selected(entity)).collect();
        let shown = page.len();
        let mut body = json!({ "result": { "items": page }, "time": time(now) });
        // `start: -1` saves the portal the counting.
        if let (true, Some(body)) = (start >= 0, body.as_object_mut()) {
            body.insert("total".into(), total.into());
            if skipped + shown < total {
                body.insert("next".into(), (skipped + shown).into());
            }
        }
        Ok(Reply::json(200, &body))
    }

    fn selected(&self, entity: &Entity) -> Value {
        let all = shown(entity);
        let (Some(select), Value::Object(fields)) = (self.params.get("select").and_then(Value::as_array), &all) else {
            return all;
        };
        let named = |name: &str| select.iter().any(|wanted| wanted.as_str() == Some(name));
        // `fm` cannot be named; only `*` brings it.
        let wanted = |name: &str| named("*") || (named(name) && name != "fm");
        let fields = fields.iter().filter(|(name, _)| wanted(name) || *name == "id");
        Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    fn get(&self, world: &World) -> Result<Value, Reply> {
        let entity_type = self.entity_type()?;
        let id = self.params.get("id").and_then(text).ok_or_else(|| missing("id"))?;
        let entity = id.parse().ok().and_then(|id| world.entity(entity_type, id));
        let entity = entity.ok_or_else(|| error(400, "NOT_FOUND", "Element not found"))?;
        Ok(json!({ "item": shown(&entity) }))
    }
}

/// One condition of a list's filter: `=originId`, `>=createdTime` …
struct Condition {
    field: Field,
    operator: String,
    wanted: Vec<String>,
}

#[derive(Clone, Copy)]
enum Field {
    Id,
    CreatedTime,
    Text(&'static str),
}

impl Condition {
    fn read(name: &str, wanted: &Value) -> Result<Self, Reply> {
        let bad = |what: &str| error(400, "INVALID_ARG_VALUE", &format!("Invalid filter: {what}"));
        let field = name.trim_start_matches(['=', '>', '<', '!', '@']);
        let operator = name.get(..name.len() - field.len()).unwrap_or_default();
        let field = match field {
            "id" => Field::Id,
            "createdTime" => Field::CreatedTime,
            "originId" => Field::Text("originId"),
            "originatorId" => Field::Text("originatorId"),
            "title" => Field::Text("title"),
            other => return Err(bad(&format!("field '{other}' is not allowed in filter"))),
        };
        let values: Option<Vec<String>> = match wanted {
            Value::Array(list) => list.iter().map(text).collect(),
            one => text(one).map(|one| vec![one]),
        };
        let wanted = values.ok_or_else(|| bad(name))?;
        let allowed = match operator {
            "" | "=" | "@" => true,
            ">" | ">=" | "<" | "<=" => !matches!(field, Field::Text(_)),
            _ => false,
        };
        if !allowed {
            return Err(bad(name));
        }
        let readable = |value: &String| match field {
            Field::Id => value.parse::<i64>().is_ok(),
            Field::CreatedTime => read_moment(value).is_some(),
            Field::Text(_) => true,
        };
        if !wanted.iter().all(readable) {
            return Err(bad(name));
        }
        Ok(Self { field, operator: operator.to_owned(), wanted })
    }

    fn holds(&self, entity: &Entity) -> bool {
        let id = i64::try_from(entity.id).unwrap_or(i64::MAX);
        // Times are compared as the portal stores them: in whole seconds.
        let created = entity.created_at.micros().div_euclid(1_000_000);
        self.wanted.iter().any(|wanted| match self.field {
            Field::Id => wanted.parse().is_ok_and(|wanted: i64| self.compares(id.cmp(&wanted))),
            Field::CreatedTime => read_moment(wanted)
                .is_some_and(|wanted| self.compares(created.cmp(&wanted.micros().div_euclid(1_000_000)))),
            Field::Text(name) => entity.fields.get(name).and_then(text).is_some_and(|value| value == *wanted),
        })
    }

    fn compares(&self, order: std::cmp::Ordering) -> bool {
        match self.operator.as_str() {
            ">" => order.is_gt(),
            ">=" => order.is_ge(),
            "<" => order.is_lt(),
            "<=" => order.is_le(),
            _ => order.is_eq(),
        }
    }
}

/// Text of a text or a number, as the portal takes either; `None` where it is neither or empty.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn shown(entity: &Entity) -> Value {
    let mut fields = entity.fields.clone();
    fields.insert("id".into(), entity.id.into());
    let type_id = match entity.entity_type {
        "lead" => 1,
        "deal" => 2,
        "contact" => 3,
        _ => 4,
    };
    fields.insert("entityTypeId".into(), type_id.into());
    fields.insert("createdTime".into(), moment(entity.created_at).into());
    fields.insert("updatedTime".into(), moment(entity.created_at).into());
    fields.insert("createdBy".into(), 1.into());
    Value::Object(fields)
}

/// A moment as a portal in Moscow writes it.
fn moment(at: At) -> String {
    let local = at.plus(std::time::Duration::from_secs(3 * 3_600)).rfc3339();
    format!("{}+03:00", local.get(..19).unwrap_or(&local))
}

/// Reads a moment; without a zone it is the portal's.
fn read_moment(text: &str) -> Option<At> {
    let text = text.trim();
    let whole = if text.len() == 10 { format!("{text}T00:00:00") } else { text.replacen(' ', "T", 1) };
    At::parse_rfc3339(&whole).or_else(|| At::parse_rfc3339(&format!("{whole}+03:00")))
}

fn time(now: At) -> Value {
    let seconds = now.micros().div_euclid(1_000_000);
    json!({
        "start": seconds,
        "finish": seconds,
        "duration": 0.05,
        "processing": 0.03,
        "date_start": moment(now),
        "date_finish": moment(now),
        "operating_reset_at": seconds + 600,
        "operating": 0.03,
    })
}

fn good(result: Value, now: At) -> Reply {
    Reply::json(200, &json!({ "result": result, "time": time(now) }))
}

pub(super) fn error(status: u16, code: &str, description: &str) -> Reply {
    Reply::json(status, &json!({ "error": code, "error_description": description }))
}

fn missing(parameter: &str) -> Reply {
    error(400, "100", &format!("Could not find value for parameter {{{parameter}}}"))
}

pub(super) fn unauthorized() -> Reply {
    error(401, "INVALID_CREDENTIALS", "Invalid request credentials")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_with_and_without_a_zone() {
        let at = At::parse_rfc3339("2026-12-01T10:00:00Z").expect("a moment");
        assert_eq!(moment(at), "2026-12-01T13:00:00+03:00");
        let same = ["2026-12-01T13:00:00+03:00", "2026-12-01T10:00:00Z", "2026-12-01 13:00:00", "2026-12-01T13:00:00"];
        for text in same {
            assert_eq!(read_moment(text), Some(at), "{text}");
        }
        assert_eq!(read_moment("2026-12-01"), Some(at.minus(std::time::Duration::from_secs(13 * 3_600))));
        assert_eq!(read_moment("yesterday"), None);
    }
}

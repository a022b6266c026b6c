//! The plain side: a small JSON API such as any home-made CRM has, under a bearer token.
//!
//! `POST /api/leads` with `external_key` makes a lead, `GET /api/leads?external_key=…` finds it, `GET /api/leads/{id}` shows it.

use serde_json::{Map, Value, json};

use super::wire::{Reply, Request};
use super::world::{CallKind, Entity, World};
use crate::clock::At;

/// Rows of a list at most.
const PAGE: usize = 100;

/// A call to the API, read.
pub(super) struct Errand {
    what: What,
    authorized: bool,
}

enum What {
    Create(Option<Map<String, Value>>),
    Find(Option<String>),
    Show(Option<u64>),
    Nothing { known_path: bool },
}

impl Errand {
    /// Reads a request; `None` where the path is not of this API.
    pub(super) fn read(request: &Request, token: &str) -> Option<Self> {
        let rest = request.path.strip_prefix("/api/")?;
        let given = request.header("authorization").and_then(|value| value.split_once(' '));
        let authorized = given.is_some_and(|(scheme, value)| scheme.eq_ignore_ascii_case("bearer") && value == token);
        let what = match (request.method.as_str(), rest, rest.strip_prefix("leads/")) {
            ("POST", "leads", _) => What::Create(match serde_json::from_slice(&request.body) {
                Ok(Value::Object(lead)) => Some(lead),
                Ok(_) | Err(_) => None,
            }),
            ("GET", "leads", _) => What::Find(
                form_urlencoded::parse(request.query.as_bytes())
                    .find(|(name, _)| name == "external_key")
                    .map(|(_, value)| value.into_owned()),
            ),
            ("GET", _, Some(id)) => What::Show(id.parse().ok()),
            (_, "leads", _) | (_, _, Some(_)) => What::Nothing { known_path: true },
            _ => What::Nothing { known_path: false },
        };
        Some(Self { what, authorized })
    }

    pub(super) fn method(&self) -> &'static str {
        match self.what {
            What::Create(_) => "POST /api/leads",
            What::Find(_) => "GET /api/leads",
            What::Show(_) => "GET /api/leads/{id}",
            What::Nothing { .. } => "(unknown)",
        }
    }

    pub(super) fn call(&self) -> CallKind {
        match self.what {
            What::Create(_) if self.authorized => CallKind::Create,
            What::Find(_) if self.authorized => CallKind::Lookup,
            What::Create(_) | What::Find(_) | What::Show(_) | What::Nothing { .. } => CallKind::Other,
        }
    }

    pub(super) fn key(&self) -> Option<String> {
        match &self.what {
            What::Create(lead) => key_of(lead.as_ref()?),
            What::Find(key) => key.clone(),
            What::Show(_) | What::Nothing { .. } => None,
        }
    }

    /// The answer, and the entity that was made.
    pub(super) fn carry_out(&self, world: &World, now: At) -> (Reply, Option<u64>) {
        if !self.authorized {
            return (error(401, "unauthorized", "a bearer token is needed").with("WWW-Authenticate", "Bearer"), None);
        }
        let reply = match &self.what {
            What::Create(None) => error(400, "malformed", "the body is a JSON object"),
            What::Create(Some(lead)) => return create(lead, world, now),
            What::Find(key) => {
                let found = world.look_up("plain", key.as_deref(), now);
                let items: Vec<Value> = found.iter().take(PAGE).map(shown).collect();
                Reply::json(200, &json!({ "total": items.len(), "items": items }))
            }
            What::Show(id) => match id.and_then(|id| world.entity("plain", id)) {
                Some(entity) => Reply::json(200, &shown(&entity)),
                None => error(404, "not_found", "no lead has this id"),
            },
            What::Nothing { known_path: true } => error(405, "method_not_allowed", "this path knows another method"),
            What::Nothing { known_path: false } => error(404, "not_found", "no such path"),
        };
        (reply, None)
    }
}

fn create(lead: &Map<String, Value>, world: &World, now: At) -> (Reply, Option<u64>) {
    let Some(key) = key_of(lead) else {
        return (error(422, "validation", "external_key: a text that is not empty is needed"), None);
    };
    match world.create("plain", Some(key), lead.clone(), world.unique_keys(), now) {
        Ok(entity) => {
            let reply = Reply::json(201, &shown(&entity)).with("Location", format!("/api/leads/{}", entity.id));
            (reply, Some(entity.id))
        }
        Err(known) => {
            let body = json!({ "error": "duplicate", "message": "this external_key exists", "id": known.id });
            (Reply::json(409, &body), None)
        }
    }
}

fn key_of(lead: &Map<String, Value>) -> Option<String> {
    lead.get("external_key").and_then(Value::as_str).filter(|key| !key.trim().is_empty()).map(str::to_owned)
}

fn shown(entity: &Entity) -> Value {
    let mut fields = entity.fields.clone();
    fields.insert("id".into(), entity.id.into());
    fields.insert("created_at".into(), entity.created_at.rfc3339().into());
    Value::Object(fields)
}

pub(super) fn error(status: u16, code: &str, message: &str) -> Reply {
    Reply::json(status, &json!({ "error": code, "message": message }))
}

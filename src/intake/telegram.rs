//! Kind `telegram`: the webhook of a Telegram bot. Facts: WebhookActor.cpp and Client.cpp of tdlib/telegram-bot-api.
//!
//! The secret given to setWebhook comes back in a header. The answer is always empty: a JSON answer that holds `method`
//! would be carried out as a call of the bot. A message that cannot be used is answered as usual too, since Telegram holds
//! back all later messages of a chat behind one that fails.

use std::sync::Arc;

use phonenumber::country::Id as Region;

use super::content::{Opened, json_has_nul};
use super::fault::{Fault, unreadable};
use super::normalise::without_nul;
use super::registry::{Kind, volatile_paths};
use super::secret::{EXPIRED, Secret, any_equals};
use super::{Answer, Event, Key, NUL_NOTE, Received, Refused, Request, Settings, Source, moment, normalise, phone};
use crate::clock::At;
use crate::operation::canonical::hash_json;
use crate::operation::field::FieldPath;
use crate::operation::json::Json;
use crate::operation::{HashRule, KeyOrigin, Lead, PayloadHash, SourceKey};

const SECRET_HEADER: &str = "x-telegram-bot-api-secret-token";

pub(super) const KIND: Kind = Kind {
    name: "telegram",
    takes: &["secret", "secrets", "expired_secrets", "volatile", "default_region"],
    build: |settings| Ok(Arc::new(Telegram::new(settings)?)),
};

#[derive(Debug)]
struct Telegram {
    secrets: Vec<Secret>,
    expired_secrets: Vec<Secret>,
    region: Option<Region>,
    volatile: Vec<FieldPath>,
    rule: HashRule,
    max_body: usize,
}

impl Telegram {
    fn new(settings: &Settings) -> Result<Self, Vec<String>> {
        let read = |secrets: &[String]| -> Option<Vec<Secret>> {
            secrets.iter().map(|secret| Secret::new(secret.clone().into_bytes())).collect()
        };
        let secrets = read(&settings.secrets).filter(|secrets| !secrets.is_empty());
        let secrets = secrets.ok_or_else(|| vec!["kind \"telegram\" needs a secret that is not empty".to_owned()])?;
        let expired_secrets = read(&settings.expired_secrets);
        let expired_secrets =
            expired_secrets.ok_or_else(|| vec!["expired_secrets: one of them is empty".to_owned()])?;
        let (volatile, rule) = volatile_paths(settings, &[]);
        Ok(Self {
            secrets,
            expired_secrets,
            region: normalise::region(settings),
            volatile,
            rule,
            max_body: settings.max_body,
        })
    }

    fn verify(&self, request: &Request) -> Result<(), Refused> {
        let mut presented = request.headers_of(SECRET_HEADER).peekable();
        if presented.peek().is_none() {
            let detail =
                format!("the header {SECRET_HEADER} is missing: give setWebhook the source's secret as secret_token");
            return Err(Refused::Unauthorized { kind: "missing", detail });
        }
        let presented: Vec<&[u8]> = presented.collect();
        let all_of = |secrets: &[Secret]| presented.iter().all(|secret| any_equals(secrets, secret));
        if all_of(&self.secrets) {
            return Ok(());
        }
        let (kind, detail) = if all_of(&self.expired_secrets) {
            (EXPIRED, "this secret token has expired: give setWebhook the new one as secret_token")
        } else {
            ("mismatch", "the secret token is not the one of this source")
        };
        Err(Refused::Unauthorized { kind, detail: detail.to_owned() })
    }

    fn read(&self, request: &Request) -> Result<Received, Fault> {
        let opened = Opened::open(request, self.max_body)?;
        let json = opened.json()?;
        let id = json.get("update_id").and_then(Json::text).and_then(|id| SourceKey::from_native(id.as_bytes()));
        let id = id.ok_or_else(|| unreadable("the update has no update_id"))?;
        let Some(message) = json.get("message") else {
            return Ok(Received::Ignored(format!("an update of kind {}", kind_of(&json))));
        };
        if !makes_a_lead(message) {
            return Ok(Received::Ignored("a message without text and contact".into()));
        }
        Ok(Received::Events(vec![Event {
            key: Key::Given(id, KeyOrigin::Native),
            payload_hash: hash_json(&json, &self.volatile),
            event_at: message.get("date").and_then(Json::text).and_then(|date| moment(date.parse().ok()?)),
            // Each update bears ids of its message too: none is the copy of another.
            likeness: None,
            note: json_has_nul(&json).then(|| NUL_NOTE.to_owned()),
        }]))
    }
}

/// The name of the update's own member: `edited_message`, `callback_query`. Unknown names are not repeated into logs.
fn kind_of(update: &Json<'_>) -> &'static str {
    const KINDS: [&str; 8] = [
        "edited_message",
        "channel_post",
        "edited_channel_post",
        "callback_query",
        "inline_query",
        "my_chat_member",
        "chat_member",
        "business_message",
    ];
    KINDS.into_iter().find(|kind| update.get(kind).is_some()).unwrap_or("unknown")
}

fn text<'j>(json: &'j Json<'_>, name: &str) -> Option<&'j str> {
    json.get(name).and_then(Json::text).filter(|text| !text.trim().is_empty())
}

/// The words of a message: its text, or the caption of a photo or file.
fn words<'j>(message: &'j Json<'_>) -> Option<&'j str> {
    text(message, "text").or_else(|| text(message, "caption"))
}

fn makes_a_lead(message: &Json<'_>) -> bool {
    let from_bot = message.get("from").and_then(|from| from.get("is_bot")) == Some(&Json::Bool(true));
    !from_bot && (words(message).is_some() || message.get("contact").and_then(|c| text(c, "phone_number")).is_some())
}

/// What stands behind `/start` in a deep link: the campaign that led here.
fn start_payload(words: &str) -> Option<&str> {
    let (command, payload) = words.split_once(char::is_whitespace)?;
    let is_start = command == "/start" || command.starts_with("/start@");
    is_start.then(|| payload.trim()).filter(|payload| !payload.is_empty())
}

fn lead_of(message: &Json<'_>, region: Option<Region>) -> Lead {
    let nothing = Json::Null;
    let (from, contact) = (message.get("from").unwrap_or(&nothing), message.get("contact"));
    // A contact that was sent on is the person the lead is about, whoever sent it.
    let person = contact.filter(|contact| text(contact, "first_name").is_some()).unwrap_or(from);
    let mut lead = Lead {
        first_name: text(person, "first_name").map(without_nul),
        last_name: text(person, "last_name").map(without_nul),
        message: words(message).map(without_nul),
        ..Lead::default()
    };
    let parts: Vec<&str> = [&lead.first_name, &lead.last_name].into_iter().flatten().map(String::as_str).collect();
    lead.name = Some(parts.join(" ")).filter(|name| !name.is_empty());
    if let Some(number) = contact.and_then(|contact| text(contact, "phone_number")) {
        // Telegram's numbers are international ones, sent without their plus sign.
        let plus = if number.bytes().all(|byte| byte.is_ascii_digit()) { "+" } else { "" };
        lead.phones.push(phone::phone(&format!("{plus}{number}"), region));
    }
    let mut field = |name: &str, value: Option<&str>| {
        lead.fields.extend(value.map(|value| (name.to_owned(), without_nul(value))));
    };
    field("telegram_username", text(from, "username"));
    field("telegram_user_id", text(from, "id"));
    field("telegram_chat_id", message.get("chat").and_then(|chat| text(chat, "id")));
    field("telegram_message_id", text(message, "message_id"));
    field("telegram_language", text(from, "language_code"));
    field("start", words(message).and_then(start_payload));
    lead
}

impl Source for Telegram {
    fn receive(&self, request: &Request, _now: At) -> Result<Received, Refused> {
        self.verify(request)?;
        self.read(request).or_else(Fault::received)
    }

    fn lead(&self, request: &Request, index: usize) -> Result<Lead, String> {
        super::only_event(index)?;
        let opened = Opened::open(request, self.max_body).map_err(Fault::text)?;
        let json = opened.json().map_err(Fault::text)?;
        let message = json.get("message").ok_or("the update has no message")?;
        Ok(lead_of(message, self.region))
    }

    fn rehash(&self, request: &Request, index: usize) -> Option<PayloadHash> {
        super::only_event(index).ok()?;
        let opened = Opened::open(request, self.max_body).ok()?;
        Some(hash_json(&opened.json().ok()?, &self.volatile))
    }

    fn events(&self, request: &Request) -> Result<Vec<Event>, String> {
        match self.read(request).map_err(Fault::text)? {
            Received::Events(events) => Ok(events),
            Received::Ignored(_) | Received::Test | Received::Spam | Received::Unreadable(_) => Ok(Vec::new()),
        }
    }

    fn answer(&self) -> Answer {
        Answer::Empty
    }

    fn hash_rule(&self) -> HashRule {
        self.rule.clone()
    }
}

//! A source with a language of its own, so that these tests need none of the real ones.

use std::sync::Arc;
use std::time::Duration;

use leadonce::clock::At;
use leadonce::http::Inbound;
use leadonce::intake::{self, Answer, Event, Key, Received, Refused};
use leadonce::operation::lead::Contact;
use leadonce::operation::{HashRule, KeyOrigin, Lead, Likeness, PayloadHash, SourceKey};
use sha2::{Digest, Sha256};

/// A source that reads a language of its own: each line `KEY=CONTENT` is an event; key `~` has none and a window, key `*` has
/// none at all; a content that starts with `@SECONDS ` bears its own time. `test`, `spam`, `ignored` and `broken` are what they say.
#[derive(Debug)]
pub(crate) struct Lines {
    answer: Answer,
    token: Option<&'static str>,
    /// Whether it watches for likely copies.
    watches: bool,
}

const WINDOW: Duration = Duration::from_secs(120);

impl intake::Source for Lines {
    fn receive(&self, request: &intake::Request, _: At) -> Result<Received, Refused> {
        if let Some(token) = self.token
            && request.header("authorization") != Some(&format!("Bearer {token}"))
        {
            return Err(Refused::Unauthorized { kind: "mismatch", detail: "wrong token".into() });
        }
        match request.body.as_slice() {
            b"test" => Ok(Received::Test),
            b"spam" => Ok(Received::Spam),
            b"ignored" => Ok(Received::Ignored("not a lead".into())),
            _ => match self.events(request) {
                Ok(events) => Ok(Received::Events(events)),
                Err(why) if self.answer == Answer::Strict => Err(Refused::BadRequest(why)),
                Err(why) => Ok(Received::Unreadable(why)),
            },
        }
    }

    fn lead(&self, request: &intake::Request, index: usize) -> Result<Lead, String> {
        let text = std::str::from_utf8(&request.body).map_err(|_| "not text")?;
        Ok(lead(text.lines().nth(index).unwrap_or_default()))
    }

    fn events(&self, request: &intake::Request) -> Result<Vec<Event>, String> {
        let text = std::str::from_utf8(&request.body).map_err(|_| "not text")?;
        let event = |line: &str| {
            let (key, content) = line.split_once('=').ok_or("a line has no =")?;
            let key = match key {
                "~" => Key::Window(WINDOW),
                "*" => Key::Generate,
                key => Key::Given(SourceKey::from_native(key.as_bytes()).ok_or("blank key")?, KeyOrigin::Native),
            };
            let seconds = content.strip_prefix('@').and_then(|rest| rest.split(' ').next()?.parse().ok());
            let payload_hash = PayloadHash::from(<[u8; 32]>::from(Sha256::digest(content)));
            let likeness = self.watches.then(|| Likeness::of(payload_hash, WINDOW));
            Ok(Event { key, payload_hash, event_at: seconds.map(At::from_seconds), likeness, note: None })
        };
        text.lines().map(event).collect()
    }

    fn answer(&self) -> Answer {
        self.answer.clone()
    }

    fn hash_rule(&self) -> HashRule {
        HashRule::current(&[])
    }
}

/// The lead of a line: Anna, with a phone where the content begins with one.
pub(crate) fn lead(line: &str) -> Lead {
    let content = line.split_once('=').map_or("", |(_, content)| content);
    let phone = content.split(' ').next().filter(|word| word.starts_with('+'));
    let contact = |phone: &str| Contact { text: phone.to_owned(), normal: Some(phone.to_owned()) };
    Lead { name: Some("Anna".into()), phones: phone.map(contact).into_iter().collect(), ..Lead::default() }
}

/// A source of that name, put together.
pub(crate) fn inbound(name: &str, answer: Answer, token: Option<&'static str>, rate: Option<f64>) -> Inbound {
    let settings = intake::Settings {
        name: name.parse().expect("a name"),
        kind: "lines".into(),
        destination: "bitrix".parse().expect("a name"),
        token: token.map(str::to_owned),
        secrets: vec![],
        expired_secrets: vec![],
        allow_origins: vec!["https://example.com".into()],
        thank_you_url: None,
        key: None,
        volatile: vec![],
        default_region: None,
        missing_key: None,
        resubmit_window: Duration::from_secs(120),
        hold_copies: false,
        honeypot: String::new(),
        signed_decoded: false,
        tolerance: Duration::from_secs(300),
        max_wait: Duration::from_secs(10),
        rate_per_second: rate,
        max_body: 16 * 1024,
    };
    Inbound::new(settings, Arc::new(Lines { answer, token, watches: name == "twins" }))
}

//! Kind `tilda`: the webhook of the site builder Tilda. It signs nothing; an API key, set in Tilda's form settings, may come
//! in the query, in a header or in a field. Facts: help page forms/webhook, and handlers in public repositories.

use std::borrow::Cow;
use std::sync::Arc;

use phonenumber::country::Id as Region;

use super::content::Opened;
use super::copies::CopyRule;
use super::fault::Fault;
use super::key::{BadHeader, KeyRule};
use super::names::{Known, known};
use super::pairs::{Pair, first_text, hash, have_nul};
use super::registry::{Kind, volatile_paths};
use super::secret::{Secret, any_equals};
use super::{Answer, Event, MissingKey, NUL_NOTE, Received, Refused, Request, Settings, Source, bearer, normalise};
use crate::clock::At;
use crate::operation::field::FieldPath;
use crate::operation::{HashRule, Lead, PayloadHash};

/// Tilda's id of the submission, the same at its two further tries.
const NATIVE_ID: &str = "tranid";
/// The visitor's cookies, one string; they change between tries.
const COOKIES: &str = "COOKIES";
/// Fields that may hold the API key. Where a token is configured they are no content of the lead.
const KEY_FIELDS: [&str; 3] = ["key", "token", "api_key"];

pub(super) const KIND: Kind = Kind {
    name: "tilda",
    takes: &["token", "key", "volatile", "default_region", "missing_key", "resubmit_window", "likely_copy"],
    build: |settings| {
        let token = match &settings.token {
            None => None,
            Some(token) => match Secret::new(token.clone().into_bytes()) {
                None => return Err(vec!["the token is empty".to_owned()]),
                secret => secret,
            },
        };
        Ok(Arc::new(Tilda::new(settings, token)))
    },
};

#[derive(Debug)]
struct Tilda {
    token: Option<[Secret; 1]>,
    key: KeyRule,
    region: Option<Region>,
    volatile: Vec<FieldPath>,
    copies: Option<CopyRule>,
    rule: HashRule,
    max_body: usize,
}

impl Tilda {
    fn new(settings: &Settings, token: Option<Secret>) -> Self {
        let mut left_out = vec![COOKIES.to_owned()];
        if token.is_some() {
            left_out.extend(KEY_FIELDS.map(str::to_owned));
        }
        let (volatile, rule) = volatile_paths(settings, &left_out);
        Self {
            token: token.map(|token| [token]),
            key: KeyRule::of(settings, MissingKey::ResubmitWindow, BadHeader::Note),
            region: normalise::region(settings),
            copies: CopyRule::of(settings, &volatile, &[NATIVE_ID]),
            volatile,
            rule,
            max_body: settings.max_body,
        }
    }

    /// The keys that the request presents, wherever Tilda may put them.
    fn presented<'r>(request: &'r Request, pairs: &'r [Pair<'_>]) -> Vec<Cow<'r, [u8]>> {
        let mut keys: Vec<Cow<'r, [u8]>> = form_urlencoded::parse(request.query.as_bytes())
            .filter(|(name, _)| name == "key")
            .map(|(_, value)| Cow::Owned(value.into_owned().into_bytes()))
            .collect();
        keys.extend(bearer(request).map(Cow::Borrowed));
        keys.extend(request.headers_of("x-api-key").map(|key| Cow::Borrowed(key.trim_ascii())));
        let in_fields = pairs.iter().filter(|pair| KEY_FIELDS.contains(&pair.name.as_ref()));
        keys.extend(in_fields.filter_map(Pair::as_text).map(|text| Cow::Borrowed(text.as_bytes())));
        keys
    }

    /// `true` where the request bears the key; `false` where it bears none.
    fn verify(&self, request: &Request, pairs: &[Pair<'_>]) -> Result<bool, Refused> {
        let Some(token) = &self.token else { return Ok(true) };
        let presented = Self::presented(request, pairs);
        if presented.is_empty() {
            return Ok(false);
        }
        if presented.iter().any(|key| any_equals(token, key)) {
            return Ok(true);
        }
        let detail = "the API key is not the one of this source".to_owned();
        Err(Refused::Unauthorized { kind: "mismatch", detail })
    }

    fn event(&self, request: &Request, pairs: &[Pair<'_>]) -> Result<Event, Refused> {
        let native = first_text(pairs, NATIVE_ID);
        let (key, note) = self.key.key_of(request, native, |path| first_text(pairs, path.form_name()))?;
        let note = note.or_else(|| have_nul(pairs).then(|| NUL_NOTE.to_owned()));
        let likeness = self.copies.as_ref().map(|rule| rule.pairs(pairs));
        Ok(Event { key, payload_hash: hash(pairs, &self.volatile), event_at: None, likeness, note })
    }
}

/// The call that Tilda makes when a webhook is added: nothing but `test=test`, perhaps with the key.
fn is_test(pairs: &[Pair<'_>]) -> bool {
    first_text(pairs, "test") == Some("test")
        && pairs.iter().all(|pair| pair.name == "test" || KEY_FIELDS.contains(&pair.name.as_ref()))
}

/// UTM tags from the cookie TILDAUTM, where the form has none: `utm_source=vk|||utm_medium=cpc`, percent-encoded.
fn tags_of_cookies(lead: &mut Lead, cookies: &str) {
    let cookie = cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix("TILDAUTM="));
    let Some(cookie) = cookie.filter(|_| lead.utm.is_empty()) else { return };
    let tags = percent_encoding::percent_decode_str(cookie).decode_utf8_lossy();
    for (name, value) in tags.split("|||").filter_map(|tag| tag.split_once('=')) {
        if let Some(Known::Utm(tag)) = known(name)
            && !value.trim().is_empty()
        {
            normalise::utm(lead, tag).get_or_insert_with(|| normalise::without_nul(value));
        }
    }
}

impl Source for Tilda {
    fn receive(&self, request: &Request, _now: At) -> Result<Received, Refused> {
        let missing = || {
            let detail =
                "send the source's API key: in Tilda's webhook settings, or as ?key= in the address".to_owned();
            Refused::Unauthorized { kind: "missing", detail }
        };
        // The key may be a field, so the body is read first, within its limits; a stranger learns nothing from that.
        let opened = Opened::open(request, self.max_body);
        let pairs = opened.as_ref().map_err(Fault::clone).and_then(Opened::pairs);
        let bears_key = self.verify(request, pairs.as_deref().unwrap_or_default())?;
        match pairs {
            Ok(pairs) if is_test(&pairs) => Ok(Received::Test),
            _ if !bears_key => Err(missing()),
            Ok(pairs) => Ok(Received::Events(vec![self.event(request, &pairs)?])),
            Err(fault) => fault.received(),
        }
    }

    fn lead(&self, request: &Request, index: usize) -> Result<Lead, String> {
        super::only_event(index)?;
        let opened = Opened::open(request, self.max_body).map_err(Fault::text)?;
        let mut pairs = opened.pairs().map_err(Fault::text)?;
        if self.token.is_some() {
            pairs.retain(|pair| !KEY_FIELDS.contains(&pair.name.as_ref()));
        }
        let mut lead = normalise::lead(&pairs, self.region);
        if let Some(cookies) = first_text(&pairs, COOKIES) {
            tags_of_cookies(&mut lead, cookies);
        }
        Ok(lead)
    }

    fn rehash(&self, request: &Request, index: usize) -> Option<PayloadHash> {
        super::only_event(index).ok()?;
        let opened = Opened::open(request, self.max_body).ok()?;
        Some(hash(&opened.pairs().ok()?, &self.volatile))
    }

    fn events(&self, request: &Request) -> Result<Vec<Event>, String> {
        let opened = Opened::open(request, self.max_body).map_err(Fault::text)?;
        let pairs = opened.pairs().map_err(Fault::text)?;
        self.event(request, &pairs).map(|event| vec![event]).map_err(|refused| refused.to_string())
    }

    fn answer(&self) -> Answer {
        Answer::Text("ok")
    }

    fn hash_rule(&self) -> HashRule {
        self.rule.clone()
    }
}

//! Kind `form`: a website's own form, in any encoding a browser sends.
//!
//! A page can hold no secret, so nothing is verified here; origins, the honeypot and the rate limit stand at the door. The
//! sender counts as authenticated (contract 6.1): what cannot be read goes to a person instead of being refused.

use std::sync::Arc;

use phonenumber::country::Id as Region;

use super::content::Opened;
use super::copies::CopyRule;
use super::fault::Fault;
use super::key::{BadHeader, KeyRule};
use super::pairs::{Pair, first_text, hash, have_nul};
use super::registry::{Kind, volatile_paths};
use super::{Answer, Event, MissingKey, NUL_NOTE, Received, Refused, Request, Settings, Source, normalise};
use crate::clock::At;
use crate::operation::field::FieldPath;
use crate::operation::{HashRule, Lead, PayloadHash};

/// The field in which `leadonce.js` sends the id of a submission.
pub const SUBMISSION_ID: &str = "_submission_id";
/// The field in which browsers name the charset.
const CHARSET: &str = "_charset_";

pub(super) const KIND: Kind = Kind {
    name: "form",
    takes: &[
        "allow_origins",
        "thank_you_url",
        "key",
        "volatile",
        "default_region",
        "missing_key",
        "resubmit_window",
        "likely_copy",
        "honeypot",
    ],
    build: |settings| Ok(Arc::new(Form::new(settings))),
};

#[derive(Debug)]
struct Form {
    key: KeyRule,
    honeypot: Option<String>,
    thank_you_url: Option<String>,
    region: Option<Region>,
    volatile: Vec<FieldPath>,
    copies: Option<CopyRule>,
    rule: HashRule,
    max_body: usize,
}

impl Form {
    fn new(settings: &Settings) -> Self {
        let honeypot = Some(settings.honeypot.clone()).filter(|name| !name.trim().is_empty());
        // What is not content of the form: its own id, the trap, the charset. They count in the rule, since renaming the
        // trap changes every hash.
        let mut left_out = vec![SUBMISSION_ID.to_owned(), CHARSET.to_owned()];
        left_out.extend(honeypot.clone());
        let (volatile, rule) = volatile_paths(settings, &left_out);
        Self {
            key: KeyRule::of(settings, MissingKey::ResubmitWindow, BadHeader::Note),
            honeypot,
            thank_you_url: settings.thank_you_url.clone(),
            region: normalise::region(settings),
            copies: CopyRule::of(settings, &volatile, &[]),
            volatile,
            rule,
            max_body: settings.max_body,
        }
    }

    fn event(&self, request: &Request, pairs: &[Pair<'_>]) -> Result<Event, Refused> {
        let native = first_text(pairs, SUBMISSION_ID);
        let (key, note) = self.key.key_of(request, native, |path| first_text(pairs, path.form_name()))?;
        let note = note.or_else(|| have_nul(pairs).then(|| NUL_NOTE.to_owned()));
        let likeness = self.copies.as_ref().map(|rule| rule.pairs(pairs));
        Ok(Event { key, payload_hash: hash(pairs, &self.volatile), event_at: None, likeness, note })
    }

    fn is_spam(&self, pairs: &[Pair<'_>]) -> bool {
        self.honeypot.as_deref().is_some_and(|trap| first_text(pairs, trap).is_some())
    }
}

impl Source for Form {
    fn receive(&self, request: &Request, _now: At) -> Result<Received, Refused> {
        let opened = match Opened::open(request, self.max_body) {
            Ok(opened) => opened,
            Err(fault) => return fault.received(),
        };
        let pairs = match opened.pairs() {
            Ok(pairs) => pairs,
            Err(fault) => return fault.received(),
        };
        if self.is_spam(&pairs) {
            return Ok(Received::Spam);
        }
        Ok(Received::Events(vec![self.event(request, &pairs)?]))
    }

    fn lead(&self, request: &Request, index: usize) -> Result<Lead, String> {
        super::only_event(index)?;
        let opened = Opened::open(request, self.max_body).map_err(Fault::text)?;
        let mut pairs = opened.pairs().map_err(Fault::text)?;
        let own = [Some(SUBMISSION_ID), Some(CHARSET), self.honeypot.as_deref()];
        pairs.retain(|pair| !own.contains(&Some(&pair.name)));
        let mut lead = normalise::lead(&pairs, self.region);
        normalise::page_from_headers(&mut lead, request);
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
        Answer::Form { thank_you_url: self.thank_you_url.clone() }
    }

    fn hash_rule(&self) -> HashRule {
        self.rule.clone()
    }
}

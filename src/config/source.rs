//! `[[source]]`: a sender and how its deliveries are read. Which kind takes which key is checked by the kind.

use std::time::Duration;

use super::reader::{Section, did_you_mean};
use super::{Kinds, general, near, value};
use crate::intake::{MissingKey, Settings};
use crate::operation::{DestinationName, SourceName};

const WEEK: Duration = Duration::from_secs(7 * 86_400);
const MINUTE: Duration = Duration::from_secs(60);

/// Keys that only some kinds take; the others are every source's.
const KEYS_OF_KINDS: [&str; 15] = [
    "token",
    "secret",
    "secrets",
    "expired_secrets",
    "allow_origins",
    "thank_you_url",
    "key",
    "volatile",
    "default_region",
    "missing_key",
    "resubmit_window",
    "likely_copy",
    "honeypot",
    "signed",
    "tolerance",
];

/// Reads all sources; those with faults are left out. `max_body` is the server's limit, where a source has none of its own.
pub(super) fn read_all(file: &Section<'_>, kinds: &Kinds<'_>, max_body: usize) -> Vec<Settings> {
    let sections = file.sections("source");
    if !file.has("source") {
        file.fault("source", "at least one [[source]] is needed: the sender that leads come from");
    }
    let destinations = file.peek_all("destination", "name");
    let sources = sections.iter().filter_map(|section| read(section, kinds, max_body, &destinations)).collect();
    refuse_repeated_names(&sections);
    sources
}

fn read(section: &Section<'_>, kinds: &Kinds<'_>, max_body: usize, destinations: &[&str]) -> Option<Settings> {
    let name = section.need("name", value::name::<SourceName>);
    let kind = section.need("kind", value::one_of(kinds.sources));
    let destination = section.need("destination", value::name::<DestinationName>);
    let lost = |name: &&DestinationName| !destinations.is_empty() && !destinations.contains(&name.as_str());
    if let Some(destination) = destination.as_ref().filter(lost) {
        let hint = near::nearest(destination.as_str(), destinations.iter().copied());
        let hint = hint.map(did_you_mean).unwrap_or_default();
        section.fault("destination", &format!("there is no destination named \"{destination}\"{hint}"));
    }
    let positive = value::number("a number greater than 0", |number| number > 0.0);
    // A key that this kind does not take is refused here, and then read as if it were not there.
    let taken = kind.as_deref().and_then(kinds.source_keys);
    let takes = |key: &str| taken.is_none_or(|taken| taken.contains(&key));
    for key in KEYS_OF_KINDS.into_iter().filter(|key| section.has(key) && !takes(key)) {
        section.fault(key, &format!("is not for kind {}", kind.as_deref().unwrap_or_default()));
    }
    let nothing = section.nothing();
    let of = |key: &str| if takes(key) { section } else { &nothing };
    let token = of("token").take_secret("token", value::text);
    let secrets = secrets(of("secrets"));
    let expired_secrets = of("expired_secrets").secrets("expired_secrets", value::text);
    let allow_origins = of("allow_origins").list("allow_origins", value::origin);
    let thank_you_url = of("thank_you_url").take("thank_you_url", value::web_address);
    let key = of("key").take("key", value::text);
    let volatile = of("volatile").list("volatile", value::text);
    let default_region = of("default_region").take("default_region", value::region);
    let missing_key = value::one_of(&["reject", "resubmit_window", "generate"]);
    let missing_key = of("missing_key").take("missing_key", missing_key);
    let window = value::duration_within(Duration::from_millis(1)..=WEEK);
    let resubmit_window = of("resubmit_window").take("resubmit_window", window);
    let likely_copy = of("likely_copy").take("likely_copy", value::one_of(&["create", "hold"]));
    let honeypot = of("honeypot").take("honeypot", value::text);
    let signed = of("signed").take("signed", value::one_of(&["received", "decoded"]));
    let tolerance = of("tolerance").take("tolerance", value::duration);
    let max_wait = section.take("max_wait", value::duration_within(Duration::ZERO..=MINUTE));
    let rate_per_second = section.take("rate_per_second", positive);
    let own_max_body = section.take("max_body", general::max_body);

    let settings = Settings {
        name: name?,
        kind: kind?,
        destination: destination?,
        token,
        secrets,
        expired_secrets,
        allow_origins,
        thank_you_url,
        key,
        volatile,
        default_region,
        missing_key: missing_key.as_deref().and_then(policy),
        resubmit_window: resubmit_window.unwrap_or(2 * MINUTE),
        hold_copies: likely_copy.as_deref() == Some("hold"),
        honeypot: honeypot.unwrap_or_default(),
        signed_decoded: signed.as_deref() == Some("decoded"),
        tolerance: tolerance.unwrap_or(5 * MINUTE),
        max_wait: max_wait.unwrap_or(Duration::from_secs(10)),
        rate_per_second,
        max_body: own_max_body.unwrap_or(max_body),
    };
    for (key, message) in (kinds.check_source)(&settings) {
        let key = if key == "secret" && section.has("secrets") { "secrets" } else { &key };
        section.fault_below(key, &message);
    }
    Some(settings)
}

/// `secret = "…"`, or `secrets = ["…", "…"]` while one replaces another.
fn secrets(section: &Section<'_>) -> Vec<String> {
    let one = section.take_secret("secret", value::text);
    let several = section.secrets("secrets", value::text);
    if section.has("secret") && section.has("secrets") {
        section.fault("secrets", "write secret or secrets, not both");
    }
    one.into_iter().chain(several).collect()
}

fn policy(word: &str) -> Option<MissingKey> {
    match word {
        "reject" => Some(MissingKey::Reject),
        "resubmit_window" => Some(MissingKey::ResubmitWindow),
        "generate" => Some(MissingKey::Generate),
        _ => None,
    }
}

/// Notes a fault for each table whose name an earlier one has.
pub(super) fn refuse_repeated_names(sections: &[Section<'_>]) {
    let names: Vec<Option<&str>> = sections.iter().map(|section| section.peek("name")).collect();
    for (n, (section, name)) in sections.iter().zip(&names).enumerate() {
        let Some(name) = name else { continue };
        if let Some(first) = names[..n].iter().position(|earlier| *earlier == Some(name)) {
            let (first, name) = (sections[first].described(), name.escape_debug());
            section.fault("name", &format!("must be unique; {first} is named \"{name}\" too"));
        }
    }
}

//! The kinds of sources, and their construction from the configuration.

use std::sync::Arc;

use phonenumber::country::Id as Region;
use url::Url;

use super::{Settings, Source, api, form, origin, standard_webhooks, telegram, tilda};
use crate::operation::HashRule;
use crate::operation::field::FieldPath;

/// A kind of source. Its name is part of configurations and stored data: it is never renamed.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Keys of `[[source]]` that this kind takes beside [`COMMON_KEYS`].
    pub(super) takes: &'static [&'static str],
    pub(super) build: fn(&Settings) -> Built,
}

/// A source, or every fault of its settings.
pub(super) type Built = Result<Arc<dyn Source>, Vec<String>>;

/// Keys of `[[source]]` that every kind takes.
pub const COMMON_KEYS: [&str; 6] = ["name", "kind", "destination", "max_wait", "rate_per_second", "max_body"];

const KINDS: [Kind; 5] = [form::KIND, api::KIND, standard_webhooks::KIND, tilda::KIND, telegram::KIND];

/// The names of all kinds.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

/// The keys of `[[source]]` that a kind takes beside [`COMMON_KEYS`]; `None` for an unknown kind.
pub fn keys_of(kind: &str) -> Option<&'static [&'static str]> {
    KINDS.iter().find(|known| known.name == kind).map(|kind| kind.takes)
}

/// Builds a source, or tells every fault of its settings. No message repeats a secret.
///
/// A key that the kind does not take is a fault where its absence can be told from its default; for the others
/// (`resubmit_window`, `honeypot`, `tolerance`) the configuration asks [`keys_of`].
pub fn build(settings: &Settings) -> Result<Arc<dyn Source>, Vec<String>> {
    let Some(kind) = KINDS.iter().find(|kind| kind.name == settings.kind) else {
        let known: Vec<&str> = kinds().collect();
        return Err(vec![format!("unknown kind {:?}; known kinds: {}", settings.kind, known.join(", "))]);
    };
    let mut faults = faults(settings, kind);
    match (kind.build)(settings) {
        Ok(source) if faults.is_empty() => Ok(source),
        Ok(_) => Err(faults),
        Err(own) => {
            faults.extend(own);
            Err(faults)
        }
    }
}

/// The paths of the fields that do not count in the hash, and the rule that names them: the kind's own and the configured.
/// Entries that name nothing are told by [`build`].
pub(super) fn volatile_paths(settings: &Settings, own: &[String]) -> (Vec<FieldPath>, HashRule) {
    let names: Vec<String> = own.iter().chain(&settings.volatile).cloned().collect();
    (names.iter().filter_map(|name| FieldPath::parse(name)).collect(), HashRule::current(&names))
}

fn faults(settings: &Settings, kind: &Kind) -> Vec<String> {
    let mut faults = Vec::new();
    let given = [
        ("token", settings.token.is_some()),
        ("secret", !settings.secrets.is_empty()),
        ("expired_secrets", !settings.expired_secrets.is_empty()),
        ("allow_origins", !settings.allow_origins.is_empty()),
        ("thank_you_url", settings.thank_you_url.is_some()),
        ("key", settings.key.is_some()),
        ("volatile", !settings.volatile.is_empty()),
        ("default_region", settings.default_region.is_some()),
        ("missing_key", settings.missing_key.is_some()),
        ("likely_copy", settings.hold_copies),
    ];
    for (key, given) in given {
        if given && !kind.takes.contains(&key) {
            faults.push(format!("kind {:?} does not take {key}", kind.name));
        }
    }
    faults.extend(settings.allow_origins.iter().filter_map(|origin| origin::fault(origin)));
    if let Some(address) = &settings.thank_you_url
        && !Url::parse(address).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
    {
        faults.push(format!("thank_you_url: {address:?} is not an address with https:// or http://"));
    }
    if let Some(key) = &settings.key
        && FieldPath::parse(key).is_none()
    {
        faults.push(format!("key: {key:?} names no field; write a JSON pointer (\"/id\") or the name of a form field"));
    }
    for volatile in settings.volatile.iter().filter(|name| FieldPath::parse(name).is_none()) {
        faults.push(format!(
            "volatile: {volatile:?} names no field; write a JSON pointer (\"/id\") or the name of a form field"
        ));
    }
    if let Some(region) = &settings.default_region
        && region.to_ascii_uppercase().parse::<Region>().is_err()
    {
        faults.push(format!("default_region: {region:?} is not a country code of two letters, as in \"DE\""));
    }
    if settings.expired_secrets.iter().any(|expired| settings.secrets.contains(expired)) {
        faults.push("expired_secrets: one of them is among the valid secrets too".to_owned());
    }
    if settings.resubmit_window.is_zero() && kind.takes.contains(&"resubmit_window") {
        faults.push("resubmit_window must be longer than zero".to_owned());
    }
    if settings.tolerance.is_zero() && kind.takes.contains(&"tolerance") {
        faults.push("tolerance must be longer than zero".to_owned());
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::intake::tests::settings;

    fn faults_of(settings: &Settings) -> Vec<String> {
        build(settings).err().unwrap_or_default()
    }

    #[test]
    fn names_are_unique() {
        assert_eq!(kinds().collect::<HashSet<_>>().len(), KINDS.len());
    }

    #[test]
    fn every_kind_can_be_built_from_proper_settings() {
        for kind in kinds() {
            assert_eq!(faults_of(&settings(kind)), [""; 0], "{kind}");
        }
    }

    #[test]
    fn an_unknown_kind_is_told_the_known_ones() {
        let faults = faults_of(&settings("forms"));
        assert_eq!(faults, ["unknown kind \"forms\"; known kinds: form, api, standard-webhooks, tilda, telegram"]);
    }

    #[test]
    fn every_fault_is_reported_at_once() {
        let mut settings = settings("form");
        settings.token = Some("hunter2".into());
        settings.secrets = vec!["hunter3".into()];
        settings.allow_origins = vec!["*".into()];
        settings.thank_you_url = Some("thanks".into());
        settings.key = Some("/".into());
        settings.volatile = vec![String::new()];
        settings.default_region = Some("Russia".into());
        settings.resubmit_window = std::time::Duration::ZERO;
        let faults = faults_of(&settings);
        assert_eq!(faults.len(), 8, "{faults:?}");
        assert!(!faults.concat().contains("hunter"), "{faults:?}");
    }

    #[test]
    fn an_empty_or_missing_secret_is_refused() {
        for (kind, token, secrets) in [
            ("api", None, vec![]),
            ("api", Some(""), vec![]),
            ("api", Some("  "), vec![]),
            ("tilda", Some(""), vec![]),
            ("telegram", None, vec![]),
            ("telegram", None, vec![""]),
            ("telegram", None, vec!["good", " "]),
            ("standard-webhooks", None, vec![]),
            ("standard-webhooks", None, vec!["whsec_"]),
            ("standard-webhooks", None, vec![""]),
            ("standard-webhooks", None, vec!["whsec_hunter2!"]),
            ("standard-webhooks", None, vec!["whpk_hunter2="]),
        ] {
            let mut settings = settings(kind);
            settings.token = token.map(str::to_owned);
            settings.secrets = secrets.iter().map(|s| (*s).to_owned()).collect();
            let faults = faults_of(&settings);
            assert_eq!(faults.len(), 1, "{kind} {token:?} {secrets:?} {faults:?}");
            assert!(!faults.concat().contains("hunter2"), "{faults:?}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        for kind in kinds() {
            let mut settings = settings(kind);
            if settings.token.is_some() {
                settings.token = Some("c2VjcmV0c2VjcmV0".into());
            }
            if !settings.secrets.is_empty() {
                settings.secrets = vec!["c2VjcmV0c2VjcmV0".into()];
            }
            let printed = format!("{:?}", build(&settings).expect("a source"));
            assert!(
                !printed.contains("c2VjcmV0") && !printed.contains("secretsecret") && !printed.contains("115, 101")
            );
        }
    }
}

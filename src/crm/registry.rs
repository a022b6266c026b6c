//! The kinds of CRM: a new one is its file, one line here, and its fixtures.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::settings::Faults;
use super::{Connector, Defaults, bitrix24, http};

/// How a kind is built from its own keys.
type Build = fn(Map<String, Value>) -> Result<Arc<dyn Connector>, Faults>;

/// Name, how it is built, what it advises.
const KINDS: &[(&str, Build, Defaults)] = &[
    (bitrix24::KIND, |settings| Ok(Arc::new(bitrix24::Bitrix24::new(settings)?)), bitrix24::DEFAULTS),
    (http::KIND, |settings| Ok(Arc::new(http::Http::new(settings)?)), http::DEFAULTS),
];

/// The names of all kinds.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, _, _)| *name)
}

/// Builds a connector from the kind's own keys of `[[destination]]`: all keys that are not common to every kind, with `env:`
/// and `file:` resolved. Faults name the key (`create.url`, `rules.0.class`) and never repeat a value.
pub fn build(kind: &str, settings: Map<String, Value>) -> Result<Arc<dyn Connector>, Faults> {
    match KINDS.iter().find(|(name, _, _)| *name == kind) {
        Some((_, build, _)) => build(settings),
        None => {
            let known: Vec<&str> = kinds().collect();
            Err(vec![("kind".into(), format!("is not known; known are {}", known.join(", ")))])
        }
    }
}

/// What a kind advises where the configuration is silent; `None` for an unknown kind.
pub fn defaults(kind: &str) -> Option<Defaults> {
    KINDS.iter().find(|(name, _, _)| *name == kind).map(|(_, _, defaults)| *defaults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_an_unknown_one_is_told() {
        let mut names: Vec<&str> = kinds().collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KINDS.len());
        let faults = build("salesfarce", Map::new()).expect_err("no such kind");
        assert_eq!(faults, [("kind".into(), "is not known; known are bitrix24, http".into())]);
        assert_eq!(defaults("salesfarce"), None);
    }

    #[test]
    fn every_kind_bears_its_registered_name_and_sane_defaults() {
        for name in kinds() {
            let defaults = defaults(name).expect("defaults");
            assert!(defaults.rate_per_second > 0.0 && defaults.burst > 0, "{name}");
            assert!(defaults.settle > std::time::Duration::from_secs(60), "{name}");
        }
    }
}

//! From configuration to parts: what the registries of CRMs and sources make of it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::config::{self, Complaints, Config, Destination, Faults, Kinds};
use crate::delivery::Line;
use crate::operation::DestinationName;
use crate::{crm, intake};

/// Reads and checks a configuration file, the kinds' own keys included.
pub(super) fn load(path: &Path) -> Result<Config, Faults> {
    let crms: Vec<&str> = crm::registry::kinds().collect();
    let sources: Vec<&str> = intake::registry::kinds().collect();
    let kinds = Kinds {
        crms: &crms,
        crm_defaults: &crm::registry::defaults,
        check_destination: &check_destination,
        sources: &sources,
        source_keys: &intake::registry::keys_of,
        check_source: &check_source,
    };
    config::load(path, &kinds)
}

fn check_destination(destination: &Destination) -> Complaints {
    crm::registry::build(&destination.kind, destination.connector.clone()).err().unwrap_or_default()
}

/// A source's fault begins with the key it is about; the configuration gives it the line.
fn check_source(settings: &intake::Settings) -> Complaints {
    let faults = intake::registry::build(settings).err().unwrap_or_default();
    let keyed = |fault: String| match fault.split_once(": ") {
        Some((key, message)) if key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') => {
            (key.to_owned(), message.to_owned())
        }
        _ => (String::new(), fault),
    };
    faults.into_iter().map(keyed).collect()
}

/// Connectors and sources, ready to work.
pub(super) struct Parts {
    pub(super) lines: HashMap<DestinationName, Line>,
    pub(super) sources: Vec<(intake::Settings, Arc<dyn intake::Source>)>,
}

impl Parts {
    /// Builds them; a configuration that [`load`] accepted has no fault here.
    pub(super) fn from(config: &Config) -> Result<Self> {
        let mut lines = HashMap::new();
        for destination in &config.destinations {
            let connector = crm::registry::build(&destination.kind, destination.connector.clone())
                .map_err(|faults| anyhow::anyhow!("destination {}: {faults:?}", destination.name))?;
            let secrets = config.secrets_of(destination);
            let rate_group = destination.rate_group.clone();
            let line = Line { settings: destination.delivery, connector, secrets, rate_group };
            lines.insert(destination.name.clone(), line);
        }
        let mut sources = Vec::new();
        for settings in &config.sources {
            let source = intake::registry::build(settings)
                .map_err(|faults| anyhow::anyhow!("source {}: {faults:?}", settings.name))?;
            sources.push((settings.clone(), source));
        }
        Ok(Self { lines, sources })
    }
}

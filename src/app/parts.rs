//! From configuration to parts: what the registries of CRMs and sources make of it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::config::{self, Complaint, Config, Destination, Faults, Kinds};
use crate::delivery::Line;
use crate::operation::DestinationName;
use crate::{crm, intake};

/// Reads and checks a configuration file, the kinds' own keys included.
pub fn load(path: &Path) -> Result<Config, Faults> {
    let kinds = Kinds {
        crms: crm::registry::kinds(),
        crm_defaults: &crm::registry::defaults,
        check_destination: &check_destination,
        sources: intake::registry::kinds(),
        check_source: &check_source,
    };
    config::load(path, &kinds)
}

fn check_destination(destination: &Destination) -> Vec<Complaint> {
    let faults = crm::registry::build(&destination.kind, &destination.connector).err().unwrap_or_default();
    faults.into_iter().map(|(key, message)| Complaint { key, message }).collect()
}

fn check_source(settings: &intake::Settings) -> Vec<Complaint> {
    let faults = intake::registry::build(settings).err().unwrap_or_default();
    faults.into_iter().map(|(key, message)| Complaint { key: key.to_owned(), message }).collect()
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
            let connector = crm::registry::build(&destination.kind, &destination.connector)
                .map_err(|faults| anyhow::anyhow!("destination {}: {faults:?}", destination.name))?;
            lines.insert(destination.name.clone(), Line { settings: destination.delivery, connector });
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

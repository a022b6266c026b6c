//! Configuration: the file `leadonce.toml` and the environment, read once at start into values that need no further check.
//!
//! Promises: what [`parse`] returns is complete and lawful, or every fault is reported at once with its line and key; a key
//! that nobody knows is a fault; no secret appears in a fault or in [`effective()`]. It is pure but for [`load`], the one place
//! that reads the real environment and files. It must not know what a kind of CRM or source does with its settings: their
//! registries are asked through [`Kinds`].
//!
//! The way of a file: `tree` makes plain values with their places, `reader` takes them key by key, `general`, `destination`
//! and `source` say which keys there are and what they default to. docs/CONFIGURATION.md is the reference for people.

mod destination;
mod effective;
mod fault;
mod general;
mod near;
mod reader;
mod source;
mod tree;
mod units;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::operation::DestinationName;
use crate::{crm, delivery, intake, store};

pub use effective::effective;
pub use fault::{Fault, Faults, Place};
pub use units::show_duration;

/// Everything that a gateway is told. Its parts are lawful each and together.
#[derive(Clone)]
pub struct Config {
    /// Where it listens.
    pub server: Server,
    /// Where it remembers.
    pub store: store::Settings,
    /// The CRM accounts, at least one; names unique. Number `i` is `destination[i]` of the file.
    pub destinations: Vec<Destination>,
    /// The senders, at least one; names unique; each destination exists. Number `i` is `source[i]` of the file.
    pub sources: Vec<intake::Settings>,
    /// When it forgets.
    pub retention: Retention,
    /// Whom it alerts.
    pub alerts: Alerts,
    /// Where people look after it.
    pub admin: Admin,
    /// Which keys of their own the kinds of the sources take, in the order of `sources`.
    source_keys: Vec<&'static [&'static str]>,
    /// The line of every key, by its full name.
    lines: BTreeMap<String, usize>,
    /// `env:NAME` or `file:PATH` of every text that came from there, by its key's full name.
    origins: BTreeMap<String, String>,
}

/// `[server]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Where senders are served.
    pub listen: SocketAddr,
    /// The address under which senders reach it, without a slash at its end.
    pub public_url: Option<String>,
    /// Largest body, after decoding, in bytes; a source may have a limit of its own.
    pub max_body: usize,
    /// Threads that serve requests; `None`: as many as `app` thinks right.
    pub workers: Option<usize>,
}

/// `[[destination]]`.
#[derive(Clone, PartialEq)]
pub struct Destination {
    /// Its name.
    pub name: DestinationName,
    /// The kind of CRM, a key of the registry.
    pub kind: String,
    /// How it is delivered to.
    pub delivery: delivery::Settings,
    /// Whose rate it shares: destinations of one group name one rate. Its own name where the file is silent.
    pub rate_group: String,
    /// The kind's own keys, `env:` and `file:` resolved; may hold secrets.
    pub connector: serde_json::Map<String, serde_json::Value>,
    /// The full name of its table (`destination[0]`).
    pub path: String,
}

/// `[retention]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long after its end an operation keeps raw bodies, lead and excerpts.
    pub payload: Duration,
    /// How long after its end it is remembered at all.
    pub tombstone: Duration,
    /// How long after its first delivery an event may be delivered again.
    pub redelivery: Duration,
}

/// `[admin]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Where console and admin API listen, if not where the senders are served.
    pub listen: Option<SocketAddr>,
    /// The address under which people open the console, if another.
    pub url: Option<String>,
    /// How long a person stays signed in.
    pub session: store::SessionTerms,
}

/// `[alerts]`: both or none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Alerts {
    /// Where incidents are told; may hold a secret.
    pub webhook_url: Option<String>,
    /// With what they are signed: `whsec_` and base64.
    pub webhook_secret: Option<String>,
}

impl Config {
    /// The address under which people open the console; `None` where it is that of the senders.
    pub fn console_url(&self) -> Option<String> {
        let listens = || self.admin.listen.map(|listen| format!("http://{listen}"));
        self.admin.url.clone().or_else(listens)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Config({} destinations, {} sources)", self.destinations.len(), self.sources.len())
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Destination({} of kind {})", self.name, self.kind)
    }
}

impl fmt::Debug for Alerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alerts({})", if self.webhook_url.is_some() { "webhook" } else { "log only" })
    }
}

impl Config {
    /// The line of a key (`destination[0].webhook_url`), or of the nearest table around it that stands in the file.
    pub fn locate(&self, key: &str) -> Option<usize> {
        nearest_line(&self.lines, key)
    }

    /// The texts of a destination's own keys that came by `env:` or `file:`: whoever shows a request masks them.
    pub fn secrets_of(&self, destination: &Destination) -> Vec<String> {
        let mut secrets = Vec::new();
        for (key, value) in &destination.connector {
            self.collect_secrets(&format!("{}.{key}", destination.path), value, &mut secrets);
        }
        secrets
    }

    fn collect_secrets(&self, path: &str, value: &serde_json::Value, into: &mut Vec<String>) {
        match value {
            serde_json::Value::String(text) if self.origins.contains_key(path) => into.push(text.clone()),
            serde_json::Value::Array(items) => {
                for (place, item) in items.iter().enumerate() {
                    self.collect_secrets(&format!("{path}[{place}]"), item, into);
                }
            }
            serde_json::Value::Object(members) => {
                for (key, member) in members {
                    self.collect_secrets(&format!("{path}.{key}"), member, into);
                }
            }
            _ => {}
        }
    }

    /// A fault that only a later check can find (a CRM that does not answer), with the line it belongs to.
    pub fn fault(&self, key: &str, message: impl Into<String>) -> Fault {
        let place = self.locate(key).map_or(Place::File, Place::Line);
        Fault { place, key: key.to_owned(), message: message.into() }
    }
}

fn nearest_line(lines: &BTreeMap<String, usize>, key: &str) -> Option<usize> {
    let mut key = key;
    loop {
        if let Some(line) = lines.get(key) {
            return Some(*line);
        }
        let end = key.rfind(['.', '['])?;
        key = &key[..end];
    }
}

/// What the registries of CRMs and sources say about their kinds. The checks run for every destination and source that
/// could be read, other faults or not, so that all faults are reported at once.
#[derive(Clone, Copy)]
pub struct Kinds<'a> {
    /// Names of the kinds of CRM.
    pub crms: &'a [&'a str],
    /// What a kind of CRM advises; `None` for an unknown kind.
    pub crm_defaults: &'a dyn Fn(&str) -> Option<crm::Defaults>,
    /// What a kind of CRM says about its own keys ([`Destination::connector`]), unknown ones included.
    pub check_destination: &'a dyn Fn(&Destination) -> Complaints,
    /// Names of the kinds of source.
    pub sources: &'a [&'a str],
    /// The keys that a kind of source takes beside those of every source; `None` for an unknown kind.
    pub source_keys: &'a dyn Fn(&str) -> Option<&'static [&'static str]>,
    /// What a kind of source says about its settings.
    pub check_source: &'a dyn Fn(&intake::Settings) -> Complaints,
}

/// What a kind finds wrong: keys inside its table (`webhook_url`, `create.url`, `rules.0.class`), and what is wrong with each
/// in words without secrets.
pub type Complaints = Vec<(String, String)>;

/// The world outside the file.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// Names of the environment's variables, for `LEADONCE__TABLE__KEY`; others than these may be among them.
    pub names: &'a [String],
    /// The value of a variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The content of a file, or why there is none.
    pub file: &'a dyn Fn(&str) -> Result<String, String>,
}

/// Reads a configuration from its text. Pure.
pub fn parse(text: &str, outside: &Outside<'_>, kinds: &Kinds<'_>) -> Result<Config, Faults> {
    let mut faults = Vec::new();
    let Some(root) = tree::build(text, outside, &mut faults) else { return Err(Faults::new(faults)) };
    let (lines, origins) = (tree::lines_of(&root), tree::origins_of(&root));

    let reader = reader::Reader::new(faults);
    let file = reader.root(&root);
    let server = general::server(&file.section("server"));
    let store = general::store(&file.section("store"));
    let retention = general::retention(&file.section("retention"));
    let alerts = general::alerts(&file.section("alerts"));
    let admin = general::admin(&file.section("admin"), server.as_ref());
    let destinations = destination::read_all(&file, kinds);
    let max_body = server.as_ref().map_or(general::MAX_BODY, |server| server.max_body);
    let sources = source::read_all(&file, kinds, max_body);

    let source_keys = sources.iter().map(|source| (kinds.source_keys)(&source.kind).unwrap_or_default()).collect();

    let faults = reader.finish(&root);
    let config = || {
        Some(Config {
            server: server?,
            store: store?,
            destinations,
            sources,
            retention: retention?,
            alerts,
            admin,
            source_keys,
            lines,
            origins,
        })
    };
    match config() {
        Some(config) if faults.is_empty() => Ok(config),
        _ => Err(Faults::new(faults)),
    }
}

/// Reads a configuration file, with the process's environment and files beside it. Paths of `file:` start from the folder of
/// the configuration file.
pub fn load(path: &Path, kinds: &Kinds<'_>) -> Result<Config, Faults> {
    let faults = |message: String| Faults::new(vec![Fault { place: Place::File, key: String::new(), message }]);
    let bytes = std::fs::read(path).map_err(|error| faults(format!("{} cannot be read: {error}", path.display())))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count();
        let message = "this is not UTF-8 text".to_owned();
        Faults::new(vec![Fault { place: Place::Line(line), key: String::new(), message }])
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let names: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    let outside = Outside { names: &names, variable: &variable, file: &|file| read_secret(&folder.join(file)) };
    parse(&text, &outside, kinds)
}

/// A folder for what need not last: the demo's and the drill's files.
pub fn temporary_folder() -> std::path::PathBuf {
    std::env::temp_dir()
}

/// The program's own file, for commands that start a gateway of their own.
pub fn program() -> std::io::Result<std::path::PathBuf> {
    std::env::current_exe()
}

/// Which log lines are wanted, as `RUST_LOG` says; empty where it is silent.
pub fn log_filter() -> String {
    variable("RUST_LOG").unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
fn variable(name: &str) -> Option<String> {
    // The system panics on such names; no variable can have one.
    if name.is_empty() || name.contains(['=', '\0']) { None } else { std::env::var(name).ok() }
}

fn read_secret(path: &Path) -> Result<String, String> {
    use std::io::Read;
    const LARGEST: u64 = 64 * 1024;
    let mut content = String::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    // One byte more than allowed tells a larger file from one of just that size; a device without end ends here too.
    file.take(LARGEST + 1).read_to_string(&mut content).map_err(|error| error.to_string())?;
    if content.len() > 64 * 1024 { Err("it is larger than 64KiB".to_owned()) } else { Ok(content) }
}

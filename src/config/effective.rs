//! The effective configuration for people (`leadonce check`): every value as it holds, defaults included, secrets masked.

use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;
use url::Url;

use super::destination::show_rate;
use super::units::{show_duration, show_size};
use super::{Config, Destination};
use crate::intake::{self, MissingKey};

const MASK: &str = "***";

/// Writes the configuration as TOML. A secret is shown as `***`, and what came from `env:` or `file:` by that name alone.
pub fn effective(config: &Config) -> String {
    let mut page = Page { config, text: String::new(), path: String::new() };
    page.general();
    for destination in &config.destinations {
        page.destination(destination);
    }
    for (n, source) in config.sources.iter().enumerate() {
        page.source(n, source);
    }
    page.text
}

struct Page<'a> {
    config: &'a Config,
    text: String,
    path: String,
}

impl Page<'_> {
    fn general(&mut self) {
        let config = self.config;
        self.table("[server]", "server");
        self.text("listen", &config.server.listen.to_string());
        self.optional("public_url", config.server.public_url.as_deref());
        self.plain("max_body", &quoted(&size(config.server.max_body)));
        if let Some(workers) = config.server.workers {
            self.plain("workers", &workers.to_string());
        }
        self.table("[store]", "store");
        self.text("url", &mask_url(&config.store.url, false));
        self.plain("queue", &config.store.queue.to_string());
        self.plain("batch", &config.store.batch.to_string());
        self.plain("readers", &config.store.readers.to_string());
        self.table("[retention]", "retention");
        self.duration("payload", config.retention.payload);
        self.duration("tombstone", config.retention.tombstone);
        self.duration("redelivery", config.retention.redelivery);
        self.table("[alerts]", "alerts");
        self.optional("webhook_url", config.alerts.webhook_url.as_deref().map(|url| mask_url(url, true)).as_deref());
        self.optional("webhook_secret", config.alerts.webhook_secret.as_ref().map(|_| MASK));
        self.table("[admin]", "admin");
        self.optional("listen", config.admin.listen.map(|listen| listen.to_string()).as_deref());
        self.optional("url", config.admin.url.as_deref());
        self.duration("session_idle", config.admin.session.idle);
        self.duration("session_longest", config.admin.session.longest);
    }

    fn destination(&mut self, destination: &Destination) {
        let delivery = &destination.delivery;
        self.table("[[destination]]", &destination.path);
        self.text("name", destination.name.as_str());
        self.text("kind", &destination.kind);
        self.duration("timeout", delivery.timeout);
        self.plain("concurrency", &delivery.concurrency.to_string());
        self.plain("rate", &show_rate(delivery));
        self.text("rate_group", &destination.rate_group);
        self.duration("lease", delivery.lease);
        for (key, value) in destination.connector.iter().filter(|(key, _)| *key != "lookup") {
            let shown = self.json(&format!("{}.{key}", self.path), key, value);
            self.plain(&quoted_key(key), &shown);
        }
        self.table("[destination.retry]", &format!("{}.retry", destination.path));
        self.plain("max_attempts", &delivery.retry.max_attempts.to_string());
        self.duration("initial_interval", delivery.retry.initial_interval);
        self.plain("multiplier", &format!("{:?}", delivery.retry.multiplier));
        self.plain("jitter", &format!("{:?}", delivery.retry.jitter));
        self.duration("max_interval", delivery.retry.max_interval);
        self.duration("max_elapsed", delivery.retry.max_elapsed);
        self.table("[destination.lookup]", &format!("{}.lookup", destination.path));
        self.duration("first_after", delivery.lookup.first_after);
        self.duration("settle", delivery.lookup.settle);
        self.duration("give_up", delivery.lookup.give_up);
        self.plain("trusted", &delivery.lookup.trusted.to_string());
        for (key, value) in destination.connector.get("lookup").and_then(Value::as_object).into_iter().flatten() {
            let shown = self.json(&format!("{}.{key}", self.path), key, value);
            self.plain(&quoted_key(key), &shown);
        }
    }

    fn source(&mut self, n: usize, source: &intake::Settings) {
        self.table("[[source]]", &format!("source[{n}]"));
        self.text("name", source.name.as_str());
        self.text("kind", &source.kind);
        self.text("destination", source.destination.as_str());
        self.optional("token", source.token.as_ref().map(|_| MASK));
        if !source.secrets.is_empty() {
            self.plain("secrets", &list(&vec![MASK; source.secrets.len()]));
        }
        if !source.expired_secrets.is_empty() {
            self.plain("expired_secrets", &list(&vec![MASK; source.expired_secrets.len()]));
        }
        if !source.allow_origins.is_empty() {
            self.plain("allow_origins", &list(&source.allow_origins));
        }
        self.optional("thank_you_url", source.thank_you_url.as_deref());
        self.optional("key", source.key.as_deref());
        if !source.volatile.is_empty() {
            self.plain("volatile", &list(&source.volatile));
        }
        self.optional("default_region", source.default_region.as_deref());
        self.optional("missing_key", source.missing_key.map(missing_key));
        let taken = self.config.source_keys.get(n).copied().unwrap_or_default();
        if taken.contains(&"resubmit_window") {
            self.duration("resubmit_window", source.resubmit_window);
        }
        if taken.contains(&"likely_copy") {
            self.text("likely_copy", if source.hold_copies { "hold" } else { "create" });
        }
        if taken.contains(&"honeypot") {
            self.text("honeypot", &source.honeypot);
        }
        if taken.contains(&"signed") {
            self.text("signed", if source.signed_decoded { "decoded" } else { "received" });
        }
        if taken.contains(&"tolerance") {
            self.duration("tolerance", source.tolerance);
        }
        self.duration("max_wait", source.max_wait);
        if let Some(rate) = source.rate_per_second {
            self.plain("rate_per_second", &rate.to_string());
        }
        self.plain("max_body", &quoted(&size(source.max_body)));
    }

    fn table(&mut self, header: &str, path: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(header);
        self.text.push('\n');
        path.clone_into(&mut self.path);
    }

    /// A text, or where it came from.
    fn text(&mut self, key: &str, text: &str) {
        let shown = match self.config.origins.get(&format!("{}.{key}", self.path)) {
            Some(origin) => quoted(origin),
            None => quoted(text),
        };
        self.plain(key, &shown);
    }

    fn optional(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    fn duration(&mut self, key: &str, duration: Duration) {
        self.plain(key, &quoted(&show_duration(duration)));
    }

    fn plain(&mut self, key: &str, value: &str) {
        // Writing to memory cannot fail.
        let _ = writeln!(self.text, "{key} = {value}");
    }

    /// A kind's own value; texts under a telling key are masked.
    fn json(&self, path: &str, key: &str, value: &Value) -> String {
        match value {
            Value::String(_) if self.config.origins.contains_key(path) => {
                quoted(self.config.origins.get(path).map_or(MASK, String::as_str))
            }
            Value::String(text) if text.starts_with("http://") || text.starts_with("https://") => {
                quoted(&mask_url(text, is_telling(key)))
            }
            Value::String(_) if is_telling(key) => quoted(MASK),
            Value::String(text) => quoted(text),
            Value::Array(list) => {
                let shown = list.iter().enumerate().map(|(n, value)| self.json(&format!("{path}[{n}]"), key, value));
                format!("[{}]", shown.collect::<Vec<_>>().join(", "))
            }
            Value::Object(table) => {
                let shown = table.iter().map(|(below, value)| {
                    // What stands under `headers` or `auth` is as secret as its parent.
                    let telling = if is_telling(key) { key } else { below };
                    format!("{} = {}", quoted_key(below), self.json(&format!("{path}.{below}"), telling, value))
                });
                format!("{{ {} }}", shown.collect::<Vec<_>>().join(", "))
            }
            Value::Number(_) if is_telling(key) => quoted(MASK),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        }
    }
}

/// Whether a kind's own key may hold a secret, to judge by its name. Rather one too many.
fn is_telling(key: &str) -> bool {
    let key = key.to_lowercase();
    ["webhook", "token", "secret", "password", "api_key", "api-key", "apikey", "auth", "header", "cookie", "credential"]
        .iter()
        .any(|word| key.contains(word))
}

/// An address without user, password and query; with `whole_path` without its path too.
fn mask_url(text: &str, whole_path: bool) -> String {
    let Ok(mut url) = Url::parse(text) else { return MASK.to_owned() };
    // What an address does not have cannot be set; that leaves it as it is, which is right.
    if url.password().is_some() {
        let _ = url.set_password(Some(MASK));
    }
    if url.query().is_some() {
        url.set_query(Some(MASK));
    }
    if whole_path && url.path().len() > 1 {
        url.set_path(MASK);
    }
    if url.scheme() == "sqlite" { text.to_owned() } else { url.to_string() }
}

const fn missing_key(missing_key: MissingKey) -> &'static str {
    match missing_key {
        MissingKey::Reject => "reject",
        MissingKey::ResubmitWindow => "resubmit_window",
        MissingKey::Generate => "generate",
    }
}

fn size(bytes: usize) -> String {
    show_size(u64::try_from(bytes).unwrap_or(u64::MAX))
}

fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

fn quoted_key(key: &str) -> String {
    toml_edit::Key::new(key).to_string()
}

fn list<T: AsRef<str>>(texts: &[T]) -> String {
    format!("[{}]", texts.iter().map(|text| quoted(text.as_ref())).collect::<Vec<_>>().join(", "))
}

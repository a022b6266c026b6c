//! Log lines: text for people, JSON by flag, to standard error.

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging; `filter` as `RUST_LOG` knows it, `info` where it is empty or wrong. A second call changes nothing.
pub fn start(format: Format, filter: &str) {
    // Libraries below us log addresses at debug level, and a CRM's address may be its password: they stay at warn, whatever
    // the filter says of the rest.
    let quiet =
        "hyper=warn,hyper_util=warn,reqwest=warn,h2=warn,rustls=warn,actix_http=warn,actix_server=warn,mio=warn";
    let filter = if filter.is_empty() { "info" } else { filter };
    let filter =
        EnvFilter::try_new(format!("{filter},{quiet}")).unwrap_or_else(|_| EnvFilter::new(format!("info,{quiet}")));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        // A log that cannot be written (its disk is full) would else be told on standard error: on that very log, by a panic.
        .log_internal_errors(false);
    // tracing-subscriber escapes control characters in values (RUSTSEC-2025-0055); nothing here may switch that off.
    let _ = match format {
        Format::Text => lines.with_ansi(false).try_init(),
        Format::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    };
}

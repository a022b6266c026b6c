//! Telemetry: logs and metrics, the same names everywhere.
//!
//! Promises: one event is one line; no secret and no personal data reaches a log or a label (G8): only ids, names from the
//! configuration, states and classes. It must not know where a figure comes from.

pub mod logging;
pub mod metrics;

pub use metrics::Metrics;

//! Delivery: the one owner of retries (G6). It claims due operations, sends at most one create each, and finds out what
//! became of the uncertain ones.
//!
//! Promises: the attempt is recorded before its call leaves; a result is written under the epoch it was claimed with; an
//! uncertain outcome is looked up, never blindly repeated; a destination whose account stops is suspended once, its leads
//! wait. Decisions are pure (`retry.rs`, `operation::transition`); this room only carries them out. It must not know HTTP
//! servers, sources' formats (the lead is read through [`crate::intake::Source`]), or SQL.

mod ask;
mod attempt;
mod engine;
mod flow;
mod gap;
mod heed;
mod leases;
mod pace;
mod rate;
mod reconcile;
pub mod retry;
mod share;
mod sights;

use std::sync::Arc;
use std::time::Duration;

use crate::crm::Connector;
pub use engine::{Engine, GRACE, Pause, Ports};
pub use gap::Gap;

/// A destination as the engine knows it.
#[derive(Clone)]
pub struct Line {
    /// How it is delivered to.
    pub settings: Settings,
    /// Its kind of CRM, configured.
    pub connector: Arc<dyn Connector>,
    /// Texts of its configuration that came from the environment or a file: never shown.
    pub secrets: Vec<String>,
    /// Destinations of one account name one group: they share its rate.
    pub rate_group: String,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Line({:?})", self.connector)
    }
}

/// The retry policy of a destination (`[destination.retry]`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// Counted attempts of one series.
    pub max_attempts: u32,
    /// The first wait.
    pub initial_interval: Duration,
    /// Each next wait is so many times longer.
    pub multiplier: f64,
    /// Fraction by which a wait is spread at random, 0 to 1.
    pub jitter: f64,
    /// The longest wait of our own; a Retry-After may be longer.
    pub max_interval: Duration,
    /// Time from the first attempt of a series after which no retry starts.
    pub max_elapsed: Duration,
}

/// The look-up policy of a destination (`[destination.lookup]`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LookupPolicy {
    /// First look-up after an uncertain create.
    pub first_after: Duration,
    /// How long after the send an empty look-up is believed.
    pub settle: Duration,
    /// How long the CRM may fail to answer before a person decides.
    pub give_up: Duration,
    /// Whether an empty look-up is believed at all.
    pub trusted: bool,
}

/// A destination's delivery settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Total time of one call.
    pub timeout: Duration,
    /// Calls at once, per node.
    pub concurrency: u32,
    /// Calls per second, of all nodes together.
    pub rate_per_second: f64,
    /// Calls at once after a pause, of all nodes together.
    pub burst: u32,
    /// How long a claim lasts; longer than `timeout`.
    pub lease: Duration,
    /// When and how often it is tried again.
    pub retry: RetryPolicy,
    /// When and how an uncertain outcome is looked up.
    pub lookup: LookupPolicy,
}

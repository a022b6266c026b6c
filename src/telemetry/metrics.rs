//! Metrics for Prometheus; the names are fixed by contract 9.

use std::time::Duration;

use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

/// All metrics of a process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    deliveries: IntCounterVec,
    refused: IntCounterVec,
    key_missing: IntCounterVec,
    operations: IntGaugeVec,
    completed: IntCounterVec,
    attempts: IntCounterVec,
    attempt_duration: HistogramVec,
    oldest: GaugeVec,
    reviews_open: IntGaugeVec,
    review_duration: Histogram,
    suspended: IntGaugeVec,
    unexplained: IntGauge,
    unaccounted: IntGauge,
    clock_offset: Gauge,
}

impl Metrics {
    /// Fresh metrics, all at zero.
    pub fn new() -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels);
        let gauge = |name: &str, help: &str, labels: &[&str]| IntGaugeVec::new(Opts::new(name, help), labels);
        let seconds = vec![0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0];
        let hours = vec![60.0, 300.0, 1_800.0, 3_600.0, 14_400.0, 86_400.0, 259_200.0];
        let metrics = Self {
            registry: Registry::new(),
            deliveries: counter(
                "leadonce_deliveries_total",
                "Deliveries by what became of them",
                &["source", "verdict"],
            )?,
            refused: counter("leadonce_refused_total", "Refused deliveries by cause", &["source", "cause"])?,
            key_missing: counter(
                "leadonce_key_missing_total",
                "Events without a key, told apart by their content or not at all",
                &["source"],
            )?,
            operations: gauge("leadonce_operations", "Operations by state", &["status"])?,
            completed: counter("leadonce_operations_completed_total", "Operations completed", &["destination"])?,
            attempts: counter(
                "leadonce_attempts_total",
                "Calls to the CRM by what they came to",
                &["destination", "call", "class"],
            )?,
            attempt_duration: HistogramVec::new(
                HistogramOpts::new("leadonce_attempt_duration_seconds", "Duration of calls to the CRM")
                    .buckets(seconds),
                &["destination", "call"],
            )?,
            oldest: GaugeVec::new(
                Opts::new("leadonce_oldest_seconds", "Age of the oldest operation in a waiting state"),
                &["status"],
            )?,
            reviews_open: gauge("leadonce_reviews_open", "Operations that wait for a person, by reason", &["reason"])?,
            review_duration: Histogram::with_opts(
                HistogramOpts::new("leadonce_review_duration_seconds", "Time from review to decision").buckets(hours),
            )?,
            suspended: gauge(
                "leadonce_destination_suspended",
                "1 while the destination's leads wait for resume",
                &["destination"],
            )?,
            unexplained: IntGauge::new(
                "leadonce_unexplained_operations",
                "Operations whose outcome no log explains; must stay 0",
            )?,
            unaccounted: IntGauge::new(
                "leadonce_unaccounted",
                "Logged events whose operation does not exist; must stay 0",
            )?,
            clock_offset: Gauge::new(
                "leadonce_clock_offset_seconds",
                "How far this machine's clock is ahead of the time that leases go by",
            )?,
        };
        let registry = &metrics.registry;
        registry.register(Box::new(metrics.deliveries.clone()))?;
        registry.register(Box::new(metrics.refused.clone()))?;
        registry.register(Box::new(metrics.key_missing.clone()))?;
        registry.register(Box::new(metrics.operations.clone()))?;
        registry.register(Box::new(metrics.completed.clone()))?;
        registry.register(Box::new(metrics.attempts.clone()))?;
        registry.register(Box::new(metrics.attempt_duration.clone()))?;
        registry.register(Box::new(metrics.oldest.clone()))?;
        registry.register(Box::new(metrics.reviews_open.clone()))?;
        registry.register(Box::new(metrics.review_duration.clone()))?;
        registry.register(Box::new(metrics.suspended.clone()))?;
        registry.register(Box::new(metrics.unexplained.clone()))?;
        registry.register(Box::new(metrics.unaccounted.clone()))?;
        registry.register(Box::new(metrics.clock_offset.clone()))?;
        Ok(metrics)
    }

    /// A delivery came; `verdict` by its stored name.
    pub fn delivery(&self, source: &str, verdict: &str) {
        self.deliveries.with_label_values(&[source, verdict]).inc();
    }

    /// A delivery was refused or could not be taken; `cause` is a short stable word (`mismatch`, `too_old`, `throttled`, `busy`).
    pub fn refused(&self, source: &str, cause: &str) {
        self.refused.with_label_values(&[source, cause]).inc();
    }

    /// An event came without a key: many of them say that the source's `key` names the wrong field.
    pub fn key_missing(&self, source: &str) {
        self.key_missing.with_label_values(&[source]).inc();
    }

    /// A call to the CRM came back; `class` is `ok` or the failure class.
    pub fn attempt(&self, destination: &str, call: &str, class: &str, took: Duration) {
        self.attempts.with_label_values(&[destination, call, class]).inc();
        self.attempt_duration.with_label_values(&[destination, call]).observe(took.as_secs_f64());
    }

    /// An operation was completed.
    pub fn completed(&self, destination: &str) {
        self.completed.with_label_values(&[destination]).inc();
    }

    /// Operations in this state now.
    pub fn operations(&self, status: &str, count: i64) {
        self.operations.with_label_values(&[status]).set(count);
    }

    /// Age of the oldest operation in this state now; zero where there is none.
    pub fn oldest(&self, status: &str, age: Duration) {
        self.oldest.with_label_values(&[status]).set(age.as_secs_f64());
    }

    /// Open reviews now, all reasons at once (a reason that is not named is at zero).
    pub fn reviews_open(&self, reasons: &[(String, i64)]) {
        self.reviews_open.reset();
        for (reason, count) in reasons {
            self.reviews_open.with_label_values(&[reason.as_str()]).set(*count);
        }
    }

    /// A person decided a case that had waited so long.
    pub fn reviewed(&self, waited: Duration) {
        self.review_duration.observe(waited.as_secs_f64());
    }

    /// Whether a destination is suspended now.
    pub fn suspended(&self, destination: &str, suspended: bool) {
        self.suspended.with_label_values(&[destination]).set(i64::from(suspended));
    }

    /// Results of the two audits of the ledger.
    pub fn ledger(&self, unexplained: i64, unaccounted: i64) {
        self.unexplained.set(unexplained);
        self.unaccounted.set(unaccounted);
    }

    /// How far this machine's clock is ahead of the time that leases go by; less than zero where it is behind.
    pub fn clock_offset(&self, seconds: f64) {
        self.clock_offset.set(seconds);
    }

    /// The text that Prometheus reads.
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        // Writing to memory cannot fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

//! Keeps the common time of all nodes, and watches this machine's own clock beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, CommonClock};
use crate::store::{Store, StoreError};
use crate::telemetry::Metrics;

/// A difference beyond it is worth a line in the log.
const NOTED: Duration = Duration::from_millis(500);

/// Reads the database's clock now and then.
#[derive(Debug)]
pub(super) struct Timekeeper {
    store: Store,
    clock: Arc<CommonClock>,
    metrics: Metrics,
    /// How far this machine's clock may be off before the node says that it is not ready.
    tolerance: Duration,
    /// How far it was off when that was last told, in microseconds.
    told: AtomicI64,
}

impl Timekeeper {
    /// The first reading is part of the start: no decision is made by another time.
    pub(super) async fn start(
        store: Store,
        clock: Arc<CommonClock>,
        metrics: Metrics,
        tolerance: Duration,
    ) -> Result<Self, StoreError> {
        let keeper = Self { store, clock, metrics, tolerance, told: AtomicI64::new(0) };
        if keeper.read().await? {
            let ahead_seconds = seconds(keeper.clock.ahead());
            tracing::info!(ahead_seconds, "leases and due times go by the database's clock");
        }
        Ok(keeper)
    }

    /// Reads the clock, goes by it, and tells how far this machine's is off; whether the database has one.
    pub(super) async fn read(&self) -> Result<bool, StoreError> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let Some(reading) = self.store.read_clock(clock).await? else {
            self.lean();
            return Ok(false);
        };
        let moved = self.clock.follow(&reading);
        if beyond(moved, NOTED) {
            tracing::warn!(
                moved_seconds = seconds(moved),
                "the database's clock has moved; leases and due times go by it"
            );
        }
        let ahead = self.clock.ahead();
        self.metrics.clock_offset(seconds(ahead));
        let told = self.told.load(Ordering::Relaxed);
        let (ahead_seconds, off) = (seconds(ahead), beyond(ahead, self.tolerance));
        match (beyond(told, self.tolerance), off) {
            (false, true) => tracing::error!(
                ahead_seconds,
                "this machine's clock is off; leads go by the database's, but the node is not ready"
            ),
            (true, false) => tracing::info!(ahead_seconds, "this machine's clock is right again"),
            (false, false) | (true, true) if beyond(ahead.saturating_sub(told), NOTED) => {
                tracing::info!(ahead_seconds, "this machine's clock goes otherwise than the database's");
            }
            (false, false) | (true, true) => return Ok(true),
        }
        self.told.store(ahead, Ordering::Relaxed);
        Ok(true)
    }

    /// SQLite has no clock but this machine's.
    fn lean(&self) {
        let apart = self.clock.lean();
        self.metrics.clock_offset(seconds(apart));
        let told = beyond(self.told.swap(apart, Ordering::Relaxed), NOTED);
        let ahead_seconds = seconds(apart);
        match (told, beyond(apart, NOTED)) {
            (false, true) => {
                tracing::warn!(ahead_seconds, "this machine's clock was set; leases and due times follow slowly")
            }
            (true, false) => tracing::info!(ahead_seconds, "leases and due times go by this machine's clock again"),
            (false, false) | (true, true) => {}
        }
    }
}

fn beyond(micros: i64, limit: Duration) -> bool {
    Duration::from_micros(micros.unsigned_abs()) > limit
}

fn seconds(micros: i64) -> f64 {
    let whole = Duration::from_micros(micros.unsigned_abs()).as_secs_f64();
    if micros < 0 { -whole } else { whole }
}

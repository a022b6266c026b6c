//! The inbound limit of a source: a token bucket that is told the time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Seconds of the rate that may come at once after a pause.
const BURST_SECONDS: f64 = 10.0;

/// A token bucket over the process's monotonic clock. Each node counts for itself.
#[derive(Debug)]
pub struct Limiter {
    per_second: f64,
    burst: f64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled_at: Duration,
}

impl Limiter {
    /// A full bucket: so many deliveries a second, ten seconds' worth (at least one) at once.
    pub fn new(per_second: f64) -> Self {
        let burst = (per_second * BURST_SECONDS).max(1.0);
        Self { per_second, burst, bucket: Mutex::new(Bucket { tokens: burst, filled_at: Duration::ZERO }) }
    }

    /// Takes one delivery, or says after what time one can be taken.
    pub fn take(&self, now: Duration) -> Result<(), Duration> {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = now.saturating_sub(bucket.filled_at);
        bucket.tokens = (bucket.tokens + elapsed.as_secs_f64() * self.per_second).min(self.burst);
        bucket.filled_at = bucket.filled_at.max(now);
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        let wait = (1.0 - bucket.tokens) / self.per_second;
        // A rate of zero never fills; an hour is what a sender is told then.
        Err(Duration::try_from_secs_f64(wait).unwrap_or(Duration::from_secs(3_600)).min(Duration::from_secs(3_600)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn ten_seconds_worth_may_come_at_once_and_then_the_rate_holds() {
        let limiter = Limiter::new(2.0);
        let taken = (0..100).filter(|_| limiter.take(at(0)).is_ok()).count();
        assert_eq!(taken, 20);
        assert_eq!(limiter.take(at(0)), Err(at(500)));
        assert!(limiter.take(at(500)).is_ok());
        assert!(limiter.take(at(600)).is_err());
    }

    #[test]
    fn a_slow_rate_still_lets_one_through() {
        let limiter = Limiter::new(0.01);
        assert!(limiter.take(at(0)).is_ok());
        assert_eq!(limiter.take(at(0)), Err(Duration::from_secs(100)));
    }

    #[test]
    fn a_pause_fills_no_more_than_the_burst() {
        let limiter = Limiter::new(1.0);
        let taken = (0..100).filter(|_| limiter.take(Duration::from_secs(86_400)).is_ok()).count();
        assert_eq!(taken, 10);
    }

    #[test]
    fn time_that_seems_to_go_back_between_threads_gives_nothing_twice() {
        let limiter = Limiter::new(1.0);
        while limiter.take(at(1_000)).is_ok() {}
        assert!(limiter.take(at(0)).is_err());
        assert!(limiter.take(at(1_000)).is_err());
        assert!(limiter.take(at(2_000)).is_ok());
    }
}

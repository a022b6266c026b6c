//! A token bucket: so many calls a second, so many at once after a pause. Pure: time is an argument.

use std::time::Duration;

/// The budget of one destination on this node.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled_at: Duration,
}

impl Bucket {
    /// A full bucket. `now` is monotonic time, as in every call.
    pub(super) fn new(per_second: f64, burst: u32, now: Duration) -> Self {
        let burst = f64::from(burst.max(1));
        Self { per_second, burst, tokens: burst, filled_at: now }
    }

    /// How many calls may start now.
    pub(super) fn available(&mut self, now: Duration) -> usize {
        let passed = now.saturating_sub(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
        self.filled_at = self.filled_at.max(now);
        let mut whole = 0;
        while f64::from(whole) + 1.0 <= self.tokens {
            whole += 1;
        }
        usize::try_from(whole).unwrap_or(0)
    }

    /// Takes one token; `false` where there is none.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let any = self.available(now) > 0;
        if any {
            self.tokens -= 1.0;
        }
        any
    }

    /// Gives back a token whose call did not start.
    pub(super) fn put_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.burst);
    }

    /// How long until one call may start; zero where one may start now.
    pub(super) fn wait(&mut self, now: Duration) -> Duration {
        if self.available(now) > 0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64((1.0 - self.tokens) / self.per_second).unwrap_or(Duration::from_secs(60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_is_followed_by_the_even_rate() {
        let mut bucket = Bucket::new(2.0, 3, ms(0));
        assert_eq!(bucket.available(ms(0)), 3);
        assert!(bucket.take(ms(0)) && bucket.take(ms(0)) && bucket.take(ms(0)));
        assert!(!bucket.take(ms(0)));
        assert_eq!(bucket.wait(ms(0)), ms(500));
        assert!(!bucket.take(ms(499)));
        assert!(bucket.take(ms(501)));
    }

    #[test]
    fn a_long_pause_fills_no_more_than_the_burst() {
        let mut bucket = Bucket::new(2.0, 3, ms(0));
        assert_eq!(bucket.available(ms(3_600_000)), 3);
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_gives_nothing() {
        let mut bucket = Bucket::new(2.0, 1, ms(10_000));
        assert!(bucket.take(ms(10_000)));
        assert!(!bucket.take(ms(10_000)));
        assert!(!bucket.take(ms(0)));
        assert!(!bucket.take(ms(10_100)));
    }
}

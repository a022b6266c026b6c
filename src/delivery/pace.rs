//! Pace: so many calls a second, so many at once after a pause. Pure: time is an argument.
//!
//! It is a token bucket kept as one moment: when the bucket will be full again. Each call moves that moment on by one
//! interval; a call may leave while the moment is no further ahead than the burst allows.

use std::time::Duration;

/// A partition's spacing is wider by this factor than its rate says. A timer that fires late, or a call that takes a little
/// longer to leave than the one before it, then still keeps a sliding second within the limit.
const MARGIN: f64 = 1.04;

/// A node's calls may run after their even spacing by this much: a timer that fires late must not cost throughput.
const CATCH_UP: Duration = Duration::from_millis(50);

/// Into so many partitions a budget is cut at most.
const MOST: u32 = 16;

/// How the calls of one bucket are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    /// Between two calls of an empty bucket.
    pub(super) interval: Duration,
    /// How far the moment of being full may lie ahead of a call.
    pub(super) tolerance: Duration,
}

impl Pace {
    fn new(per_second: f64, burst: f64) -> Self {
        // (A rate close to zero: "not within this century".)
        let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(1 << 32));
        Self { interval: seconds(1.0 / per_second), tolerance: seconds((burst - 1.0).max(0.0) / per_second) }
    }

    /// The same at a part of the rate, and without a burst.
    pub(super) fn slower(&self, part: f64) -> Self {
        Self { interval: self.interval.div_f64(part), tolerance: self.tolerance.min(CATCH_UP) }
    }

    /// The earliest moment for a call.
    pub(super) fn earliest(&self, full_at: Duration) -> Duration {
        full_at.saturating_sub(self.tolerance)
    }

    /// When the bucket is full again after a call at `now`.
    pub(super) fn after_call(&self, full_at: Duration, now: Duration) -> Duration {
        full_at.max(now).saturating_add(self.interval)
    }

    /// When the bucket is full again that is empty now.
    pub(super) fn emptied(&self, now: Duration) -> Duration {
        now.saturating_add(self.tolerance).saturating_add(self.interval)
    }

    /// How many calls may leave from now until `at`.
    pub(super) fn fits(&self, full_at: Duration, now: Duration, at: Duration) -> usize {
        let Some(room) = at.saturating_add(self.tolerance).checked_sub(full_at.max(now)) else { return 0 };
        let more = room.as_nanos() / self.interval.as_nanos().max(1);
        usize::try_from(more).unwrap_or(usize::MAX).saturating_add(1)
    }
}

/// How the budget of one account is cut into partitions.
///
/// Each has a whole number of calls a second (the first has the fraction too), because then each alone keeps its part of any
/// sliding second, whoever holds it and however the nodes' calls fall together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Layout {
    per_second: f64,
    burst: f64,
    /// How many partitions there are.
    pub(super) count: u32,
}

impl Layout {
    pub(super) fn new(per_second: f64, burst: u32) -> Self {
        let count = (1..=MOST).rev().find(|count| f64::from(*count) <= per_second).unwrap_or(1);
        Self { per_second, burst: f64::from(burst), count }
    }

    /// Calls a second of one partition.
    fn rate(&self, number: u32) -> f64 {
        let count = f64::from(self.count);
        let whole = self.per_second.floor();
        let each = (whole / count).floor();
        let one_more = f64::from(number) < whole - each * count;
        let fraction = if number == 0 { self.per_second - whole } else { 0.0 };
        each + f64::from(u8::from(one_more)) + fraction
    }

    /// The spacing of one partition. Its burst is its part of the whole, but at least one call.
    pub(super) fn partition(&self, number: u32) -> Pace {
        let rate = self.rate(number);
        let burst = self.burst * rate / self.per_second;
        Pace::new(rate / MARGIN, burst.max(1.0))
    }

    /// The even spacing of all calls of a node that holds these.
    pub(super) fn together(&self, numbers: impl Iterator<Item = u32>) -> Pace {
        let rate: f64 = numbers.map(|number| self.rate(number)).sum();
        let burst = self.burst * rate / self.per_second;
        let mut pace = Pace::new(rate / MARGIN, burst.max(1.0));
        pace.tolerance = pace.tolerance.saturating_add(CATCH_UP);
        pace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Takes calls as early as they may leave, up to `until`.
    fn play(pace: Pace, until: Duration) -> Vec<Duration> {
        let (mut full_at, mut now, mut left) = (Duration::ZERO, Duration::ZERO, Vec::new());
        loop {
            now = now.max(pace.earliest(full_at));
            if now > until {
                return left;
            }
            assert!(pace.fits(full_at, now, now) >= 1);
            full_at = pace.after_call(full_at, now);
            left.push(now);
        }
    }

    #[test]
    fn a_burst_is_followed_by_the_even_rate() {
        let left = play(Pace::new(2.0, 3.0), ms(2_000));
        assert_eq!(left, [ms(0), ms(0), ms(0), ms(500), ms(1_000), ms(1_500), ms(2_000)]);
        let pace = Pace::new(2.0, 3.0);
        assert_eq!(
            pace.fits(Duration::ZERO, ms(3_600_000), ms(3_600_000)),
            3,
            "a long pause fills no more than the burst"
        );
        assert_eq!(pace.fits(pace.emptied(ms(0)), ms(0), ms(499)), 0);
        assert_eq!(pace.fits(pace.emptied(ms(0)), ms(0), ms(500)), 1);
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_gives_nothing() {
        let pace = Pace::new(2.0, 1.0);
        let full_at = pace.after_call(Duration::ZERO, ms(10_000));
        assert_eq!(pace.fits(full_at, ms(10_000), ms(10_000)), 0);
        assert_eq!(pace.fits(full_at, ms(0), ms(0)), 0);
        assert_eq!(pace.earliest(full_at), ms(10_500));
    }

    #[test]
    fn partitions_are_whole_calls_a_second_and_add_up() {
        for (per_second, count) in [(7.0, 7), (2.0, 2), (0.5, 1), (2.5, 2), (100.0, 16), (203.0, 16), (1e6, 16)] {
            let layout = Layout::new(per_second, 1);
            assert_eq!(layout.count, count, "{per_second}");
            let rates: Vec<f64> = (0..count).map(|number| layout.rate(number)).collect();
            assert!((rates.iter().sum::<f64>() - per_second).abs() < 1e-6, "{rates:?}");
            assert!(rates.iter().skip(1).all(|rate| rate.fract() == 0.0 && *rate >= 1.0), "{rates:?}");
        }
    }

    #[test]
    fn a_burst_is_shared_too() {
        let layout = Layout::new(2.0, 40);
        let at_once: usize = (0..2).map(|number| layout.partition(number).fits(Duration::ZERO, ms(0), ms(0))).sum();
        assert_eq!(at_once, 40);
    }
}

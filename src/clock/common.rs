//! One time for all nodes of a store: the database's.
//!
//! A machine's own wall clock is set by people and by NTP, and those of two machines differ. So a node reads the database's clock
//! now and then, and between two readings goes on by the clock that nobody sets: a wall clock that jumps moves no lease, no
//! due time and no window. It still serves as a witness: where it has moved since the last reading, the machine may have stood
//! still without noticing, and what must not be done too late is judged by the later of both.
//!
//! SQLite has no clock of its own. There the time leans toward this machine's wall clock instead: slowly enough that no lease
//! ends during its call, and no lead waits for the hour by which somebody set the clock back.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::{At, Clock, micros_of};

/// Another clock's time, read between two moments of our monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// What it showed.
    pub at: At,
    /// When it was asked.
    pub asked: Duration,
    /// When it had answered.
    pub answered: Duration,
}

impl Reading {
    /// By how much it may be wrong, either way: the answer was on its way for some part of the time.
    pub fn error(&self) -> Duration {
        self.answered.saturating_sub(self.asked) / 2
    }

    /// What the other clock showed when our monotonic clock began, in microseconds.
    fn zero(&self) -> i64 {
        self.at.minus(self.asked).minus(self.error()).micros()
    }
}

/// Stands for "not read yet".
const UNREAD: i64 = i64::MIN;
/// A clock that was off by more had no time at all; the right one is taken at once.
const LOST: Duration = Duration::from_secs(86_400);
/// Leaning makes the time run by no more than this part faster or slower: the part by which the shortest lease outlives its call.
const LEAN: i64 = 4;

/// The common time; this machine's own until the first reading.
#[derive(Debug)]
pub struct CommonClock {
    own: Arc<dyn Clock>,
    /// The common time at the beginning of our monotonic clock, in microseconds.
    zero: AtomicI64,
    /// How far our wall clock was ahead of the common time at the last reading, in microseconds.
    ahead: AtomicI64,
    /// When it last leaned toward our wall clock, in microseconds of the monotonic one; unread where the database has a clock.
    leaned: AtomicI64,
}

impl CommonClock {
    /// The common time as kept by this machine's clocks.
    pub fn over(own: Arc<dyn Clock>) -> Self {
        let unread = || AtomicI64::new(UNREAD);
        Self { own, zero: unread(), ahead: AtomicI64::new(0), leaned: unread() }
    }

    /// Goes by a reading of the common clock; by how many microseconds the time moved. What the reading cannot tell apart moves
    /// nothing.
    pub fn follow(&self, reading: &Reading) -> i64 {
        let (known, read) = (self.zero.load(Ordering::Relaxed), reading.zero());
        let moved = if known == UNREAD { 0 } else { read.saturating_sub(known) };
        let told_apart = moved.unsigned_abs() > u64::try_from(reading.error().as_micros()).unwrap_or(u64::MAX);
        if known == UNREAD || told_apart {
            self.zero.store(read, Ordering::Relaxed);
        }
        self.ahead.store(self.apart(), Ordering::Relaxed);
        if told_apart { moved } else { 0 }
    }

    /// Leans toward our wall clock, where the database has none; by how many microseconds that one was ahead.
    pub fn lean(&self) -> i64 {
        let elapsed = micros_of(self.own.monotonic());
        let last = self.leaned.swap(elapsed, Ordering::Relaxed);
        let apart = self.apart();
        if last == UNREAD || apart.unsigned_abs() > u64::try_from(LOST.as_micros()).unwrap_or(u64::MAX) {
            self.zero.store(self.own.now().0.saturating_sub(elapsed), Ordering::Relaxed);
        } else {
            let most = elapsed.saturating_sub(last).max(0) / LEAN;
            self.zero.fetch_add(apart.clamp(-most, most), Ordering::Relaxed);
        }
        self.ahead.store(self.apart(), Ordering::Relaxed);
        apart
    }

    fn leans(&self) -> bool {
        self.leaned.load(Ordering::Relaxed) != UNREAD
    }

    /// How far our wall clock is ahead of the common time.
    fn apart(&self) -> i64 {
        self.own.now().0.saturating_sub(self.now().0)
    }
}

impl Clock for CommonClock {
    fn now(&self) -> At {
        match self.zero.load(Ordering::Relaxed) {
            UNREAD => self.own.now(),
            zero => At(zero.saturating_add(micros_of(self.own.monotonic()))),
        }
    }

    fn monotonic(&self) -> Duration {
        self.own.monotonic()
    }

    fn latest(&self) -> At {
        let by_own = At(self.own.now().0.saturating_sub(self.ahead.load(Ordering::Relaxed)));
        by_own.max(self.now())
    }

    fn ahead(&self) -> i64 {
        if self.leans() { 0 } else { self.apart() }
    }

    fn civil(&self) -> At {
        if self.leans() { self.own.now() } else { self.now() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ManualClock;
    use super::*;

    const START: At = At::from_seconds(1_800_000_000);
    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3_600);

    fn at(at: At) -> Reading {
        Reading { at, asked: Duration::ZERO, answered: Duration::ZERO }
    }

    #[test]
    fn c85_a_wall_clock_that_is_moved_moves_no_common_time() {
        let own = Arc::new(ManualClock::at(START.plus(HOUR)));
        let common = CommonClock::over(own.clone());
        assert_eq!((common.now(), common.ahead()), (START.plus(HOUR), 0), "nothing else is known yet");
        common.follow(&at(START));
        assert_eq!((common.now(), common.ahead()), (START, micros_of(HOUR)));
        own.advance(SECOND);
        own.jump_to(START.minus(HOUR));
        assert_eq!((common.now(), common.ahead()), (START.plus(SECOND), -micros_of(HOUR + SECOND)));
        assert_eq!(common.latest(), common.now(), "a clock that was set back makes nothing earlier");
    }

    #[test]
    fn c85_a_machine_that_stood_still_unnoticed_is_told_so_by_its_wall_clock_alone() {
        let own = Arc::new(ManualClock::at(START.plus(HOUR)));
        let common = CommonClock::over(own.clone());
        common.follow(&at(START));
        assert_eq!(common.latest(), START, "known to be ahead is no sign of anything");
        own.jump_to(START.plus(HOUR * 2));
        assert_eq!((common.now(), common.latest()), (START, START.plus(HOUR)));
        // Read anew, either is known to have been right.
        common.follow(&at(START));
        assert_eq!((common.now(), common.latest()), (START, START));
        common.follow(&at(START.plus(HOUR)));
        assert_eq!((common.now(), common.latest()), (START.plus(HOUR), START.plus(HOUR)));
    }

    #[test]
    fn a_reading_moves_the_time_by_no_less_than_it_can_tell() {
        let own = Arc::new(ManualClock::at(START));
        let common = CommonClock::over(own.clone());
        common.follow(&at(START));
        own.advance(SECOND);
        // Asked and answered a second apart: half a second either way. It came back when ours showed START + 1s.
        let slow = |at| Reading { at, asked: Duration::ZERO, answered: SECOND };
        assert_eq!(common.follow(&slow(START.plus(SECOND))), 0, "within its error");
        assert_eq!(common.now(), START.plus(SECOND));
        assert_eq!(common.follow(&slow(START.plus(SECOND * 2))), 1_500_000);
        assert_eq!(common.now(), START.plus(Duration::from_millis(2_500)));
    }

    #[test]
    fn c85_without_a_clock_of_the_database_the_time_leans_toward_a_wall_clock_that_was_set() {
        let own = Arc::new(ManualClock::at(START));
        let common = CommonClock::over(own.clone());
        assert_eq!((common.lean(), common.now()), (0, START));
        own.jump_to(START.minus(HOUR));
        assert_eq!(common.now(), START, "nothing waits for an hour");
        own.advance(SECOND * 4);
        assert_eq!(common.lean(), -micros_of(HOUR));
        assert_eq!(common.now(), START.plus(SECOND * 3), "a quarter slower");
        assert_eq!(
            (common.civil(), common.ahead()),
            (own.now(), 0),
            "others' stamps are compared with the clock as it was set"
        );
        own.jump_to(common.now().plus(HOUR));
        own.advance(SECOND * 4);
        assert_eq!(common.latest(), own.now().plus(HOUR - SECOND), "but it may have stood still");
        common.lean();
        assert_eq!(common.now(), START.plus(SECOND * 8), "a quarter faster");
        own.advance(HOUR * 4);
        common.lean();
        assert_eq!((common.now(), common.latest()), (own.now(), own.now()), "until both are one");
    }

    #[test]
    fn a_machine_that_had_no_time_at_all_takes_the_right_one_at_once() {
        let own = Arc::new(ManualClock::at(At::from_seconds(0)));
        let common = CommonClock::over(own.clone());
        common.lean();
        own.jump_to(START);
        common.lean();
        assert_eq!(common.now(), START);
    }
}

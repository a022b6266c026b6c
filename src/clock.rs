//! Time and randomness: the only room that asks the system for either.
//!
//! It promises values that a test can hold still: every other room is given a [`Clock`] and an [`Entropy`] and never
//! reads the system itself (`.clippy.toml` forbids it). It must not know any other room.

mod common;

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::RngCore;
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

pub use common::{CommonClock, Reading};

/// A moment in unix microseconds, UTC. Stored as BIGINT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct At(i64);

impl At {
    /// The moment that lies so many microseconds after 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The moment that lies so many whole seconds after 1970; saturates.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since 1970.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// This moment plus a duration; saturates.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros_of(duration)))
    }

    /// This moment less a duration; saturates.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros_of(duration)))
    }

    /// The time from `earlier` to this moment; zero where `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// RFC 3339 in UTC with milliseconds, as the API shows times.
    pub fn rfc3339(self) -> String {
        jiff::Timestamp::from_microsecond(self.0).map_or_else(|_| self.0.to_string(), |t| format!("{t:.3}"))
    }

    /// Reads an RFC 3339 time.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_microsecond()))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rfc3339())
    }
}

fn micros_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Where the present moment comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time that is stored, and by which leases and due times are judged.
    fn now(&self) -> At;
    /// Time since some fixed moment of this process that no change of the wall clock moves; it goes on while the machine sleeps.
    fn monotonic(&self) -> Duration;
    /// The latest that it may be: for what must not be done too late.
    fn latest(&self) -> At {
        self.now()
    }
    /// What the time stamps of others are compared with.
    fn civil(&self) -> At {
        self.now()
    }
    /// How far this machine's own wall clock is ahead of the database's, in microseconds; less than zero where it is behind.
    fn ahead(&self) -> i64 {
        0
    }
}

/// The system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    origin: Duration,
}

/// The clock that goes on while the machine sleeps. Under the one that stands still then, settle and rates would take a node that
/// was suspended for an hour for one that blinked.
#[cfg(any(target_os = "linux", target_os = "android"))]
const ELAPSED: ClockId = ClockId::Boottime;
/// macOS's goes on as well; elsewhere there is no better one.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const ELAPSED: ClockId = ClockId::Monotonic;

fn elapsed() -> Duration {
    Duration::try_from(clock_gettime(ELAPSED)).unwrap_or_default()
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { origin: elapsed() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system's clock")]
    fn now(&self) -> At {
        At(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros_of))
    }

    fn monotonic(&self) -> Duration {
        elapsed().saturating_sub(self.origin)
    }
}

/// A clock that moves only when told to, for tests and simulation.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicI64,
    monotonic: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn at(start: At) -> Self {
        Self { now: AtomicI64::new(start.0), monotonic: AtomicU64::new(0) }
    }

    /// Moves both clocks on.
    pub fn advance(&self, by: Duration) {
        self.now.fetch_add(micros_of(by), Ordering::SeqCst);
        self.monotonic.fetch_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Sets the wall clock alone, as an administrator or NTP would.
    pub fn jump_to(&self, at: At) {
        self.now.store(at.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> At {
        At(self.now.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic.load(Ordering::SeqCst))
    }
}

/// Where random bytes come from.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);

    /// A fraction in `0.0..1.0`, for jitter.
    fn fraction(&self) -> f64 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    }
}

/// The system's random numbers.
#[derive(Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system's randomness")]
    fn fill(&self, buffer: &mut [u8]) {
        rand::rng().fill_bytes(buffer);
    }
}

/// Random numbers that follow from a seed, for tests and simulation.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<rand::rngs::StdRng>);

impl SeededEntropy {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(rand::SeedableRng::seed_from_u64(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).fill_bytes(buffer);
    }
}

/// A UUIDv7 of this moment: orders by time, so that keys arrive in order. The twelve bits after the milliseconds hold their
/// fraction (RFC 9562, 6.2 method 3), so that ids of one millisecond keep their order too.
pub fn uuid_v7(at: At, entropy: &dyn Entropy) -> Uuid {
    let mut random = [0; 10];
    entropy.fill(&mut random);
    let fraction = u16::try_from(at.micros().rem_euclid(1_000) * 4_096 / 1_000).unwrap_or(0).to_be_bytes();
    for (to, from) in random.iter_mut().zip(fraction) {
        *to = from;
    }
    let millis = u64::try_from(at.micros() / 1_000).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

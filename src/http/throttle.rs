//! Slows down failed sign-ins, per account and per address. Each node counts by itself: whoever spreads guesses over all nodes
//! gains a factor, not a way in.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// So many failures in a row cost nothing: people mistype.
const FREE: u32 = 5;
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// Failures older than this are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60 * 60);
/// Accounts and addresses kept in mind. Beyond it the oldest are forgotten: a flood of names must not fill the memory.
const MOST: usize = 10_000;

/// The failures of each key (an account, an address).
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<HashMap<String, Failures>>);

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Duration,
}

impl Failures {
    fn wait(self) -> Duration {
        match self.count.checked_sub(FREE) {
            None => Duration::ZERO,
            Some(over) => Duration::from_secs(1_u64.checked_shl(over).unwrap_or(u64::MAX)).min(LONGEST),
        }
    }
}

impl Throttle {
    /// Begins a sign-in, counted as failed until [`Throttle::passed`]: of many at once no more get through than one after the
    /// other. An error says how long to wait; such a try is not counted. `now` is monotonic.
    pub(crate) fn begin(&self, keys: &[String], now: Duration) -> Result<(), Duration> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.retain(|_, failures| now.saturating_sub(failures.last) < FORGOTTEN);
            if all.len() >= MOST {
                let oldest = all.iter().min_by_key(|(_, failures)| failures.last).map(|(key, _)| key.clone());
                oldest.map(|key| all.remove(&key));
            }
        }
        let left = |key: &String| {
            let failures = all.get(key).filter(|failures| now.saturating_sub(failures.last) < FORGOTTEN)?;
            Some((failures.last + failures.wait()).saturating_sub(now))
        };
        let wait = keys.iter().filter_map(left).max().unwrap_or_default();
        if !wait.is_zero() {
            return Err(wait);
        }
        for key in keys {
            let failures = all.entry(key.clone()).or_insert(Failures { count: 0, last: now });
            if now.saturating_sub(failures.last) >= FORGOTTEN {
                failures.count = 0;
            }
            *failures = Failures { count: failures.count.saturating_add(1), last: now };
        }
        Ok(())
    }

    /// The sign-in was good: what was counted for it is taken back, and the account starts anew.
    pub(crate) fn passed(&self, account: &str, address: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(account);
        // An address is not forgiven the failures of others by one good sign-in.
        if let Some(failures) = all.get_mut(address) {
            failures.count = failures.count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_few_failures_are_free_and_each_more_doubles_the_wait() {
        let throttle = Throttle::default();
        let keys = ["account".to_owned(), "address".to_owned()];
        for _ in 0..FREE {
            assert_eq!(throttle.begin(&keys, seconds(1)), Ok(()));
        }
        assert_eq!(throttle.begin(&keys, seconds(1)), Err(seconds(1)));
        assert_eq!(throttle.begin(&keys, seconds(2)), Ok(()));
        assert_eq!(throttle.begin(&keys, seconds(2)), Err(seconds(2)));
        assert_eq!(throttle.begin(&["address".to_owned()], seconds(2)), Err(seconds(2)), "each key by itself");
        assert_eq!(throttle.begin(&["other".to_owned()], seconds(2)), Ok(()));
        let mut now = seconds(10);
        let mut longest = Duration::ZERO;
        for _ in 0..40 {
            if let Err(wait) = throttle.begin(&keys, now) {
                longest = longest.max(wait);
                now += wait;
            }
        }
        assert_eq!(longest, LONGEST);
        assert_eq!(throttle.begin(&keys, now + FORGOTTEN), Ok(()));
        assert_eq!(throttle.begin(&keys, now + FORGOTTEN), Ok(()), "it begins anew");
    }

    #[test]
    fn a_good_sign_in_frees_the_account_but_not_the_address() {
        let throttle = Throttle::default();
        for number in 0..FREE {
            assert_eq!(throttle.begin(&[format!("account {number}"), "address".to_owned()], seconds(1)), Ok(()));
        }
        throttle.passed("account 0", "address");
        assert_eq!(throttle.begin(&["account 0".to_owned(), "address".to_owned()], seconds(1)), Ok(()));
        assert!(throttle.begin(&["account 0".to_owned(), "address".to_owned()], seconds(1)).is_err());
        assert_eq!(throttle.begin(&["account 0".to_owned()], seconds(1)), Ok(()));
    }

    #[test]
    fn a_flood_of_names_does_not_fill_the_memory() {
        let throttle = Throttle::default();
        for number in 0..MOST as u64 + 100 {
            let _ = throttle.begin(&[number.to_string()], Duration::from_millis(number));
        }
        assert!(throttle.0.lock().expect("the lock").len() <= MOST);
    }
}

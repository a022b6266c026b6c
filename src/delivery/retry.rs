//! When to try again: the one place that decides it (G6), by pure functions over values.
//!
//! The next interval is computed by the `backoff` crate, and this file is the only one that names it. The crate is
//! unmaintained (RUSTSEC-2025-0012): only its arithmetic is used, with its own randomness and its own clock switched off,
//! and no future, sleep or retry loop of it.

use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff;

use super::{LookupPolicy, RetryPolicy};
use crate::clock::At;
use crate::operation::FailureClass;
use crate::operation::transition::Decision;

/// No wait is shorter: a configuration of zeros must not turn a dead CRM into a busy loop.
pub const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// After so many steps the interval grows no further, whatever the policy says: bounds the arithmetic.
const MOST_STEPS: u32 = 1_000;

/// What is known when a create has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The present.
    pub now: At,
    /// Attempts of this series that count toward `max_attempts`, this one included where it counts.
    pub counted: u32,
    /// Failed sends of this series in a row, this one included: 1 after the first. The interval grows with it.
    pub consecutive: u32,
    /// The first attempt of this series: `max_elapsed` runs from here.
    pub series_since: At,
    /// How long the CRM asked to wait.
    pub retry_after: Option<Duration>,
}

/// What follows a failed create (contract 4, 4.1 rule 5, 5).
///
/// `jitter` is a random fraction in `0.0..1.0`. It spreads a wait of our own evenly over `interval × (1 ± policy.jitter)`; to
/// a Retry-After that is longer it only adds, at most `interval × policy.jitter`. `lookup` is `None` where this kind of CRM
/// cannot be asked.
pub fn decide(
    class: FailureClass,
    facts: &Facts,
    policy: &RetryPolicy,
    lookup: Option<&LookupPolicy>,
    jitter: f64,
) -> Decision {
    match class {
        FailureClass::NotSent | FailureClass::Throttled => again(facts, policy, jitter),
        // Of the three only this one uses up attempts: the other two never reached the CRM's own work.
        FailureClass::NotExecuted if facts.counted >= policy.max_attempts => Decision::GiveUp,
        FailureClass::NotExecuted => again(facts, policy, jitter),
        FailureClass::Uncertain | FailureClass::Duplicate => match lookup {
            Some(lookup) => Decision::ReconcileAt(facts.now.plus(lookup.first_after)),
            None => Decision::AskOperator,
        },
        FailureClass::Rejected | FailureClass::Account => Decision::Stop,
    }
}

fn again(facts: &Facts, policy: &RetryPolicy, jitter: f64) -> Decision {
    let left = policy.max_elapsed.saturating_sub(facts.now.since(facts.series_since));
    let (spread, jitter) = (fraction(policy.jitter), fraction(jitter));
    let (centre, own) = (centre(facts.consecutive, policy), own_wait(facts.consecutive, policy, jitter));
    let (least, wait) = match facts.retry_after {
        // More than the whole budget is no serious answer: it is cut to what is left of the budget, for one last try.
        Some(told) if told > policy.max_elapsed => (left.max(centre), left),
        Some(told) if told > centre => (told, told.saturating_add(times(centre, spread * jitter))),
        Some(told) => (centre, own.max(told)),
        None => (centre, own),
    };
    // Chance spreads the wait; it never decides whether there is another try.
    if least > left { Decision::GiveUp } else { Decision::RetryAt(facts.now.plus(wait.min(left))) }
}

/// A wait of our own after so many failures in a row: the interval, spread by chance (`jitter` in `0.0..1.0`).
pub(super) fn own_wait(consecutive: u32, policy: &RetryPolicy, jitter: f64) -> Duration {
    let (spread, centre) = (fraction(policy.jitter), centre(consecutive, policy));
    // Rounding may carry the widest wait over the cap by a nanosecond.
    let wait = times(centre, 1.0 - spread + 2.0 * spread * fraction(jitter));
    wait.min(policy.max_interval).max(SHORTEST_WAIT)
}

/// What waits are spread around. It leaves room for that, so that waits at the cap do not all end in the same second.
fn centre(consecutive: u32, policy: &RetryPolicy) -> Duration {
    let most = times(policy.max_interval, 1.0 / (1.0 + fraction(policy.jitter)));
    interval(consecutive, policy).min(most).max(SHORTEST_WAIT)
}

/// When a create may start after a trusted look-up found nothing, or `None` where attempts or time are used up.
pub fn after_absent(facts: &Facts, policy: &RetryPolicy, jitter: f64) -> Option<At> {
    if facts.counted >= policy.max_attempts {
        return None;
    }
    match again(facts, policy, jitter) {
        Decision::RetryAt(at) => Some(at),
        Decision::GiveUp | Decision::ReconcileAt(_) | Decision::AskOperator | Decision::Stop => None,
    }
}

/// When the next look-up may start, one having come back at `now` without a result.
///
/// The distance is `first_after` and then doubles: it equals the time that has passed since the send, at most
/// `max_interval`, so it needs no counter and is the same after a restart. One look-up falls on the end of settle, so that an
/// empty one counts as soon as it can (`settled_at`: by the store's clock and the process's own). `retry_after` is what the CRM asked for; it is never undercut, up to `max_elapsed`.
pub fn next_lookup(
    now: At,
    settled_at: At,
    send_ended_at: At,
    retry_after: Option<Duration>,
    lookup: &LookupPolicy,
    policy: &RetryPolicy,
) -> At {
    let distance = now.since(send_ended_at).max(lookup.first_after).min(policy.max_interval).max(SHORTEST_WAIT);
    let next = now.plus(distance);
    let next = if now < settled_at { next.min(settled_at) } else { next };
    let told = retry_after.unwrap_or(Duration::ZERO).min(policy.max_elapsed);
    next.max(now.plus(told)).max(now.plus(SHORTEST_WAIT))
}

/// The interval after so many failed sends in a row, at most `max_interval`, before any jitter.
fn interval(consecutive: u32, policy: &RetryPolicy) -> Duration {
    let start = policy.initial_interval.min(policy.max_interval);
    let mut backoff: ExponentialBackoff = ExponentialBackoff {
        current_interval: start,
        initial_interval: start,
        randomization_factor: 0.0,
        // A policy that shrinks (or is not a number) would end in a busy loop; the configuration refuses it, this one survives it.
        multiplier: if policy.multiplier >= 1.0 { policy.multiplier } else { 1.0 },
        max_interval: policy.max_interval,
        max_elapsed_time: None,
        ..ExponentialBackoff::default()
    };
    for _ in 1..consecutive.min(MOST_STEPS) {
        if backoff.current_interval >= policy.max_interval {
            break;
        }
        // `current_interval` is read instead of what this returns: that one passes through the crate's random numbers.
        let _ = backoff.next_backoff();
    }
    backoff.current_interval.min(policy.max_interval)
}

/// The duration times a factor that is not negative; saturates.
fn times(duration: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(duration.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// The number as a fraction of one; zero where it is none.
fn fraction(number: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: Duration = Duration::from_secs(1);
    const START: At = At::from_seconds(1_000_000);
    const POLICY: RetryPolicy = RetryPolicy {
        max_attempts: 8,
        initial_interval: S,
        multiplier: 2.0,
        jitter: 0.5,
        max_interval: Duration::from_secs(300),
        max_elapsed: Duration::from_secs(86_400),
    };
    const LOOKUP: LookupPolicy = LookupPolicy {
        first_after: Duration::from_secs(5),
        settle: Duration::from_secs(120),
        give_up: Duration::from_secs(86_400),
        trusted: true,
    };

    /// Facts of the first failure, half a second after the send.
    fn facts() -> Facts {
        Facts { now: START.plus(S / 2), counted: 1, consecutive: 1, series_since: START, retry_after: None }
    }

    fn told(seconds: u64) -> Facts {
        Facts { retry_after: Some(Duration::from_secs(seconds)), ..facts() }
    }

    fn wait(decision: Decision, facts: &Facts) -> Option<Duration> {
        match decision {
            Decision::RetryAt(at) => Some(at.since(facts.now)),
            Decision::GiveUp | Decision::ReconcileAt(_) | Decision::AskOperator | Decision::Stop => None,
        }
    }

    fn throttled(facts: &Facts, jitter: f64) -> Option<Duration> {
        wait(decide(FailureClass::Throttled, facts, &POLICY, Some(&LOOKUP), jitter), facts)
    }

    #[test]
    fn each_class_has_its_consequence() {
        let retry = Decision::RetryAt(facts().now.plus(S));
        let reconcile = Decision::ReconcileAt(facts().now.plus(LOOKUP.first_after));
        for (class, asked, unasked) in [
            (FailureClass::NotSent, retry, retry),
            (FailureClass::Throttled, retry, retry),
            (FailureClass::NotExecuted, retry, retry),
            (FailureClass::Uncertain, reconcile, Decision::AskOperator),
            (FailureClass::Duplicate, reconcile, Decision::AskOperator),
            (FailureClass::Rejected, Decision::Stop, Decision::Stop),
            (FailureClass::Account, Decision::Stop, Decision::Stop),
        ] {
            assert_eq!(decide(class, &facts(), &POLICY, Some(&LOOKUP), 0.5), asked, "{class:?}");
            assert_eq!(decide(class, &facts(), &POLICY, None, 0.5), unasked, "{class:?} without a look-up");
        }
    }

    #[test]
    fn only_what_reached_the_crm_uses_up_attempts() {
        let spent = Facts { counted: POLICY.max_attempts, ..facts() };
        for class in FailureClass::ALL {
            let gives_up = decide(class, &spent, &POLICY, Some(&LOOKUP), 0.5) == Decision::GiveUp;
            assert_eq!(gives_up, class == FailureClass::NotExecuted, "{class:?}");
        }
        assert_eq!(after_absent(&spent, &POLICY, 0.5), None);
        assert_eq!(after_absent(&facts(), &POLICY, 0.5), Some(facts().now.plus(S)));
    }

    #[test]
    fn waits_double_up_to_the_longest_interval() {
        let waits: Vec<u64> = (1..=11).map(|consecutive| interval(consecutive, &POLICY).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(interval(u32::MAX, &POLICY), POLICY.max_interval);
    }

    #[test]
    fn jitter_spreads_a_wait_of_our_own_around_the_interval() {
        assert_eq!(throttled(&facts(), 0.0), Some(S / 2));
        assert_eq!(throttled(&facts(), 0.5), Some(S));
        let late = Facts { consecutive: 40, ..facts() };
        assert_eq!(throttled(&late, 0.0), Some(Duration::from_secs(100)));
        assert!(throttled(&late, 0.999_999).is_some_and(|wait| wait <= POLICY.max_interval));
    }

    #[test]
    fn a_retry_after_is_never_undercut_and_not_cut_by_the_longest_interval() {
        for jitter in [0.0, 0.5, 0.99] {
            let waited = throttled(&told(90), jitter).expect("a retry");
            assert!(waited >= Duration::from_secs(90) && waited <= Duration::from_secs(91), "{waited:?}");
            assert!(throttled(&told(7_200), jitter) >= Some(Duration::from_secs(7_200)));
        }
        // Shorter than our own interval: ours stands, but the answer's own wish still holds.
        let third = Facts { consecutive: 3, ..told(3) };
        assert_eq!(throttled(&third, 0.0), Some(Duration::from_secs(3)));
        assert_eq!(throttled(&third, 0.5), Some(Duration::from_secs(4)));
        // "Right now" is no way around the backoff.
        assert_eq!(throttled(&told(0), 0.5), Some(S));
    }

    #[test]
    fn an_absurd_retry_after_leaves_one_last_try_instead_of_the_year_5000() {
        let left = POLICY.max_elapsed - S / 2;
        assert_eq!(throttled(&told(99_999_999_999), 0.9), Some(left));
        assert_eq!(throttled(&told(u64::MAX), 0.9), Some(left));
    }

    #[test]
    fn a_wait_that_would_end_after_the_budget_gives_up() {
        let late = |retry_after| Facts { now: START.plus(Duration::from_secs(86_400 - 60)), retry_after, ..facts() };
        assert_eq!(throttled(&late(None), 0.0), Some(S / 2));
        assert_eq!(throttled(&late(Some(Duration::from_secs(59))), 0.0), Some(Duration::from_secs(59)));
        assert_eq!(throttled(&late(Some(Duration::from_secs(61))), 0.0), None);
        let over = Facts { now: START.plus(Duration::from_secs(86_401)), ..facts() };
        for class in [FailureClass::NotSent, FailureClass::Throttled, FailureClass::NotExecuted] {
            assert_eq!(decide(class, &over, &POLICY, Some(&LOOKUP), 0.5), Decision::GiveUp);
        }
    }

    #[test]
    fn look_ups_double_their_distance_and_one_falls_on_the_end_of_settle() {
        let mut at = START.plus(LOOKUP.first_after);
        let mut seconds = vec![at.since(START).as_secs()];
        for _ in 0..8 {
            at = next_lookup(at, START.plus(LOOKUP.settle), START, None, &LOOKUP, &POLICY);
            seconds.push(at.since(START).as_secs());
        }
        assert_eq!(seconds, [5, 10, 20, 40, 80, 120, 240, 480, 780]);
    }

    #[test]
    fn a_look_up_waits_as_long_as_the_crm_asked() {
        let now = START.plus(LOOKUP.first_after);
        let asked = |seconds| {
            next_lookup(now, START.plus(LOOKUP.settle), START, Some(Duration::from_secs(seconds)), &LOOKUP, &POLICY)
                .since(now)
        };
        assert_eq!(asked(1).as_secs(), 5);
        assert_eq!(asked(600).as_secs(), 600);
        assert_eq!(asked(u64::MAX), POLICY.max_elapsed);
    }

    fn any_duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::MAX),
            (0..10_u64, 0..1_000_000_000_u32).prop_map(|(s, n)| Duration::new(s, n)),
            (0..200_000_u64).prop_map(Duration::from_secs),
            any::<u64>().prop_map(Duration::from_secs),
        ]
    }

    fn any_policy() -> impl Strategy<Value = RetryPolicy> {
        let number = prop_oneof![Just(2.0), 0.0..10.0, any::<f64>()];
        (any::<u32>(), any_duration(), number.clone(), number, any_duration(), any_duration()).prop_map(
            |(max_attempts, initial_interval, multiplier, jitter, max_interval, max_elapsed)| RetryPolicy {
                max_attempts,
                initial_interval,
                multiplier,
                jitter,
                max_interval,
                max_elapsed,
            },
        )
    }

    fn any_facts() -> impl Strategy<Value = Facts> {
        // From the year 1875 to the year 97000; far beyond, `At` itself saturates.
        let moment = prop_oneof![0..10_000_000_000_000_i64, -3_000_000_000_000_000..3_000_000_000_000_000_000_i64]
            .prop_map(At::from_micros);
        let few = prop_oneof![0..20_u32, any::<u32>()];
        (moment.clone(), few.clone(), few, moment, proptest::option::of(any_duration())).prop_map(
            |(now, counted, consecutive, series_since, retry_after)| Facts {
                now,
                counted,
                consecutive,
                series_since,
                retry_after,
            },
        )
    }

    fn any_class() -> impl Strategy<Value = FailureClass> {
        proptest::sample::select(FailureClass::ALL.to_vec())
    }

    proptest! {
        #[test]
        fn a_retry_is_never_in_the_past_too_early_or_beyond_a_cap(
            class in any_class(), facts in any_facts(), policy in any_policy(), jitter in prop_oneof![0.0..1.0, any::<f64>()],
        ) {
            let Decision::RetryAt(at) = decide(class, &facts, &policy, Some(&LOOKUP), jitter) else { return Ok(()) };
            prop_assert!(at >= facts.now);
            if facts.now >= facts.series_since {
                // (Near the end of time `At` saturates, and the order of two moments means nothing.)
                let end = facts.series_since.plus(policy.max_elapsed);
                prop_assert!(at <= end || end.micros() > i64::MAX / 2, "starts after max_elapsed");
            }
            match facts.retry_after {
                Some(told) if told <= policy.max_elapsed => prop_assert!(at >= facts.now.plus(told), "earlier than told"),
                Some(_) => {}
                None => prop_assert!(at <= facts.now.plus(policy.max_interval.max(SHORTEST_WAIT)), "longer than max_interval"),
            }
            if class == FailureClass::NotExecuted {
                prop_assert!(facts.counted < policy.max_attempts);
            }
        }

        #[test]
        fn only_a_class_that_proves_non_execution_is_retried(
            class in any_class(), facts in any_facts(), policy in any_policy(), jitter in 0.0..1.0,
        ) {
            match decide(class, &facts, &policy, Some(&LOOKUP), jitter) {
                Decision::RetryAt(_) | Decision::GiveUp => prop_assert!(class.proves_not_executed()),
                Decision::ReconcileAt(at) => prop_assert!(!class.proves_not_executed() && at >= facts.now),
                Decision::AskOperator => prop_assert!(false, "a CRM that can be asked is asked"),
                Decision::Stop => prop_assert!(matches!(class, FailureClass::Rejected | FailureClass::Account)),
            }
        }

        #[test]
        fn chance_never_decides_whether_there_is_another_try(
            class in any_class(), facts in any_facts(), policy in any_policy(), one in 0.0..1.0, other in 0.0..1.0,
        ) {
            let gives_up = |jitter| decide(class, &facts, &policy, Some(&LOOKUP), jitter) == Decision::GiveUp;
            prop_assert_eq!(gives_up(one), gives_up(other));
        }

        #[test]
        fn a_look_up_is_never_in_the_past_and_none_is_skipped_at_the_end_of_settle(
            facts in any_facts(), policy in any_policy(), settle in any_duration(), first_after in any_duration(),
        ) {
            let lookup = LookupPolicy { settle, first_after, ..LOOKUP };
            let settled_at = facts.series_since.plus(settle);
            let next = next_lookup(facts.now, settled_at, facts.series_since, facts.retry_after, &lookup, &policy);
            prop_assert!(next >= facts.now);
            if facts.now < settled_at && facts.retry_after.is_none() {
                prop_assert!(next <= settled_at.max(facts.now.plus(SHORTEST_WAIT)));
            }
        }
    }
}

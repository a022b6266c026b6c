//! Flow: how a destination that was slowed down comes back. Pure decisions over its row, which all nodes share.
//!
//! A rate limit, or an outage (several calls in a row that failed for no lead's fault), stops all calls for a while. Then one
//! probe goes first; when it is answered the rate grows from an eighth to the whole within seconds. Each setback before
//! the end of that ramp makes the next stop longer.

use std::time::Duration;

use super::{RetryPolicy, retry};
use crate::clock::At;
use crate::operation::FailureClass;
use crate::store::Flow;

/// So many calls in a row that fail for no lead's fault are an outage.
pub(super) const OUTAGE: u32 = 5;
/// The longest stop of our own: a probe costs little, and each second after the end of an outage is one that leads wait.
const LONGEST_STOP: Duration = Duration::from_secs(30);
/// The part of the rate at which a ramp begins.
const RAMP_BEGINS_AT: f64 = 0.125;
/// The rate doubles in such a time.
const RAMP_DOUBLES_IN: Duration = Duration::from_secs(2);

/// What an answer tells about the account, beside the lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// It works.
    Works,
    /// Its limit was reached; it may have said for how long.
    Limited(Option<Duration>),
    /// It could not be reached, or failed.
    Fails,
    /// It stopped, which is the suspension's matter.
    Stopped,
}

impl Sign {
    pub(super) fn of(class: FailureClass, retry_after: Option<Duration>) -> Self {
        match class {
            FailureClass::Rejected | FailureClass::Duplicate => Self::Works,
            FailureClass::Throttled => Self::Limited(retry_after),
            FailureClass::NotSent | FailureClass::NotExecuted | FailureClass::Uncertain => Self::Fails,
            FailureClass::Account => Self::Stopped,
        }
    }
}

/// The flow after a call that began at `begun_at` showed that it must stop; `None` where nothing changes.
///
/// Calls that were under way when it stopped already are no further setback; only their longer wait counts. `jitter` is a
/// random fraction in `0.0..1.0`.
pub(super) fn slowed(
    flow: &Flow,
    begun_at: At,
    now: At,
    told: Option<Duration>,
    policy: &RetryPolicy,
    jitter: f64,
) -> Option<Flow> {
    let news = is_news(flow, begun_at);
    let recovered = flow.ramp_from.is_some_and(|from| ramp(now.since(from)) >= 1.0);
    let before = if recovered { 0 } else { flow.setbacks };
    let setbacks = if news { before.saturating_add(1) } else { before };
    let own = retry::own_wait(setbacks, policy, jitter).min(LONGEST_STOP);
    let until = now.plus(told.unwrap_or_default().min(policy.max_elapsed).max(own));
    if !news && flow.throttled_until >= Some(until) {
        return None;
    }
    Some(Flow {
        throttled_until: flow.throttled_until.max(Some(until)),
        probing: true,
        slowed_at: if news { Some(now) } else { flow.slowed_at },
        setbacks,
        ramp_from: None,
    })
}

/// The flow after a call that began at `begun_at` showed that the account works; `None` where nothing changes.
pub(super) fn passed(flow: &Flow, begun_at: At, now: At) -> Option<Flow> {
    let ends = flow.probing && is_news(flow, begun_at);
    ends.then_some(Flow { throttled_until: None, probing: false, ramp_from: Some(now), ..*flow })
}

/// Whether the call began after the last stop was over: an earlier one, or one that had been taken before and left during it,
/// shows nothing about the time since.
fn is_news(flow: &Flow, begun_at: At) -> bool {
    [flow.slowed_at, flow.throttled_until].into_iter().flatten().all(|at| begun_at >= at)
}

/// The part of the rate that may be used so long after a probe passed.
pub(super) fn ramp(since: Duration) -> f64 {
    (RAMP_BEGINS_AT * 2_f64.powf(since.as_secs_f64() / RAMP_DOUBLES_IN.as_secs_f64())).min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: At = At::from_seconds(1_000_000);
    const S: Duration = Duration::from_secs(1);
    const POLICY: RetryPolicy = RetryPolicy {
        max_attempts: 8,
        initial_interval: S,
        multiplier: 2.0,
        jitter: 0.0,
        max_interval: Duration::from_secs(300),
        max_elapsed: Duration::from_secs(86_400),
    };

    fn slow(flow: &Flow, begun_at: At, now: At, told: Option<Duration>) -> Option<Flow> {
        slowed(flow, begun_at, now, told, &POLICY, 0.5)
    }

    #[test]
    fn a_limit_stops_all_calls_as_long_as_told_and_a_probe_follows() {
        let flow = slow(&Flow::default(), NOW, NOW.plus(S), Some(90 * S)).expect("a change");
        assert_eq!((flow.throttled_until, flow.probing, flow.setbacks), (Some(NOW.plus(91 * S)), true, 1));
        let begun_at = NOW.plus(92 * S);
        let flow = passed(&flow, begun_at, begun_at.plus(S)).expect("a change");
        assert_eq!((flow.throttled_until, flow.probing, flow.ramp_from), (None, false, Some(begun_at.plus(S))));
        assert_eq!(passed(&flow, begun_at, begun_at.plus(2 * S)), None, "it passes once");
    }

    #[test]
    fn calls_that_were_under_way_already_are_no_further_setback_and_end_nothing() {
        let stopped = slow(&Flow::default(), NOW, NOW.plus(S), Some(10 * S)).expect("a change");
        assert_eq!(slow(&stopped, NOW, NOW.plus(S), Some(5 * S)), None, "a wait is never shortened");
        let longer = slow(&stopped, NOW, NOW.plus(2 * S), Some(20 * S)).expect("a change");
        assert_eq!((longer.setbacks, longer.throttled_until), (1, Some(NOW.plus(22 * S))));
        for begun_at in [NOW, NOW.plus(21 * S)] {
            assert_eq!(passed(&longer, begun_at, NOW.plus(30 * S)), None, "it had been taken before the stop");
        }
    }

    #[test]
    fn setbacks_make_the_stops_longer_until_a_ramp_came_to_its_end() {
        let (mut flow, mut now, mut stops) = (Flow::default(), NOW, Vec::new());
        let mut set_back = |flow: &mut Flow, now: &mut At| {
            *flow = slow(flow, *now, *now, None).expect("a change");
            stops.push(flow.throttled_until.expect("a stop").since(*now).as_secs());
            *now = flow.throttled_until.expect("a stop");
        };
        for _ in 0..7 {
            set_back(&mut flow, &mut now);
        }
        // A probe passes, and the ramp fails at once.
        flow = passed(&flow, now, now).expect("a change");
        now = now.plus(S);
        set_back(&mut flow, &mut now);
        flow = passed(&flow, now, now).expect("a change");
        now = now.plus(60 * S);
        set_back(&mut flow, &mut now);
        assert_eq!(stops, [1, 2, 4, 8, 16, 30, 30, 30, 1]);
    }

    #[test]
    fn a_ramp_begins_low_and_reaches_the_whole_within_seconds() {
        let at = |seconds: u32| ramp(S * seconds);
        assert!((at(0) - 0.125).abs() < 1e-9 && (at(2) - 0.25).abs() < 1e-9 && (at(4) - 0.5).abs() < 1e-9);
        assert!((at(6) - 1.0).abs() < 1e-9 && (at(6_000) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn each_class_is_a_sign_of_the_account_or_of_the_lead() {
        for class in FailureClass::ALL {
            let expected = match class {
                FailureClass::Rejected | FailureClass::Duplicate => Sign::Works,
                FailureClass::Throttled => Sign::Limited(Some(S)),
                FailureClass::NotSent | FailureClass::NotExecuted | FailureClass::Uncertain => Sign::Fails,
                FailureClass::Account => Sign::Stopped,
            };
            assert_eq!(Sign::of(class, Some(S)), expected, "{class:?}");
        }
    }

    proptest! {
        /// Whatever answers come in whatever order: no wait that was told is undercut, none is longer than told or our own
        /// longest, and the first good answer to a call after the stop ends it.
        #[test]
        fn a_stop_is_as_long_as_told_and_ends_with_the_first_good_answer(
            answers in proptest::collection::vec((0..50_u64, 0..20_u64, proptest::option::of(0..100_u64), any::<bool>()), 1..60),
        ) {
            let (mut flow, mut now) = (Flow::default(), NOW);
            for (passed_seconds, took, told, good) in answers {
                now = now.plus(S * u32::try_from(passed_seconds).expect("small"));
                let begun_at = now.minus(Duration::from_secs(took));
                if good {
                    if let Some(after) = passed(&flow, begun_at, now) {
                        prop_assert!(!after.probing && after.throttled_until.is_none());
                        flow = after;
                    } else {
                        prop_assert!(!flow.probing || flow.slowed_at.max(flow.throttled_until) > Some(begun_at));
                    }
                    continue;
                }
                let told = told.map(Duration::from_secs);
                flow = slow(&flow, begun_at, now, told).unwrap_or(flow);
                let until = flow.throttled_until.expect("stopped");
                prop_assert!(flow.probing && until >= now.plus(told.unwrap_or_default()));
                prop_assert!(until <= now.plus(100 * S));
            }
        }
    }
}

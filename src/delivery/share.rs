//! Share: the partitions of a rate that this node holds, and when its next call may leave by them. Pure: time is an argument.

use std::time::Duration;

use super::flow::ramp;
use super::leases::Wish;
use super::pace::{Layout, Pace};
use crate::clock::At;
use crate::store::RatePartition;

/// Work is taken so long before its call may leave: taking it and recording its attempt need that time.
const AHEAD: Duration = Duration::from_millis(250);
/// How long a partition is leased. A node that dies has its share moved within this time.
const TERM: Duration = Duration::from_secs(15);
/// A node uses a partition only until so long before its lease ends, so small differences between clocks do not matter. What
/// lay unused for so long is given back.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// How often the leases are looked at while they are in use.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same while more would be used.
const LOOK_EVERY_HUNGRY: Duration = Duration::from_millis(500);
/// The longest wait for a call, where no better time is known.
const UNKNOWN: Duration = Duration::from_millis(50);

/// A partition that this node holds. Times are monotonic.
#[derive(Debug, Clone, Copy)]
struct Held {
    number: u32,
    pace: Pace,
    full_at: Duration,
    since: Duration,
    /// No call leaves by it from then on, unless its lease is renewed.
    until: Duration,
    /// It is being given back: no call leaves by it any more.
    leaving: bool,
}

impl Held {
    fn usable(&self, now: Duration) -> bool {
        !self.leaving && now < self.until
    }
}

/// What this node may use of one account's budget.
#[derive(Debug)]
pub(super) struct Share {
    layout: Layout,
    held: Vec<Held>,
    /// The spacing of all calls of this node together, and when it is full again.
    together: Pace,
    full_at: Duration,
    /// Calls that were granted and have not left yet.
    granted: usize,
    /// When the destination's probe passed, if it was slowed down: the spacing is wider for a while. By the store's clock,
    /// and monotonic.
    ramp_from: Option<(At, Duration)>,
    /// Whether more work waited at the last look than the share allowed.
    hungry: bool,
    look_at: Duration,
}

impl Share {
    pub(super) fn new(layout: Layout) -> Self {
        let together = layout.together(0..layout.count);
        let (full_at, look_at) = (Duration::ZERO, Duration::ZERO);
        Self { layout, held: Vec::new(), together, full_at, granted: 0, ramp_from: None, hungry: false, look_at }
    }

    /// Grants calls that may leave soon, so many at most.
    pub(super) fn grant(&mut self, most: usize, now: Duration) -> usize {
        let at = now.saturating_add(AHEAD);
        let usable = self.held.iter().filter(|held| held.usable(now));
        let fits = usable.map(|held| held.pace.fits(held.full_at, now, at)).fold(0, usize::saturating_add);
        let fits = fits.min(self.even(now).fits(self.full_at, now, at));
        let granted = fits.saturating_sub(self.granted).min(most);
        self.granted += granted;
        granted
    }

    /// Gives back grants whose calls do not leave.
    pub(super) fn ungrant(&mut self, count: usize) {
        self.granted = self.granted.saturating_sub(count);
    }

    /// Lets a granted call leave now, or says how long it must wait before it asks again.
    ///
    /// The first partition that may is used: while there is little to do, the others fall idle and are given back.
    pub(super) fn leave(&mut self, now: Duration) -> Result<(), Duration> {
        let even = self.even(now);
        let earliest = even.earliest(self.full_at);
        if earliest > now {
            return Err(earliest - now);
        }
        let usable = || self.held.iter().enumerate().filter(|(_, held)| held.usable(now));
        let Some((place, earliest)) = usable()
            .map(|(place, held)| (place, held.pace.earliest(held.full_at)))
            .min_by_key(|(_, at)| (*at).max(now))
        else {
            return Err(UNKNOWN);
        };
        if earliest > now {
            return Err(earliest - now);
        }
        if let Some(held) = self.held.get_mut(place) {
            held.full_at = held.pace.after_call(held.full_at, now);
        }
        self.full_at = even.after_call(self.full_at, now);
        self.ungrant(1);
        Ok(())
    }

    /// How long until another call may be granted; a guess where that depends on calls that were granted.
    pub(super) fn wait(&self, now: Duration) -> Duration {
        let usable = self.held.iter().filter(|held| held.usable(now));
        let Some(earliest) = usable.map(|held| held.pace.earliest(held.full_at)).min() else {
            return self.look_at.saturating_sub(now);
        };
        let earliest = earliest.max(self.even(now).earliest(self.full_at));
        let wait = earliest.saturating_sub(now.saturating_add(AHEAD));
        if self.granted > 0 { wait.max(UNKNOWN) } else { wait }
    }

    /// Notes when the destination's probe passed. Whatever this node thought was left of the budget was not: calls begin
    /// with an empty bucket, and slowly.
    pub(super) fn note_ramp(&mut self, from: At, at: At, now: Duration) {
        let since = at.since(from);
        if self.ramp_from.is_some_and(|(known, _)| known >= from) || ramp(since) >= 1.0 {
            return;
        }
        self.ramp_from = Some((from, now.saturating_sub(since)));
        for held in &mut self.held {
            held.full_at = held.full_at.max(held.pace.emptied(now));
        }
    }

    /// The spacing of all calls of this node at a moment.
    fn even(&self, now: Duration) -> Pace {
        let part = self.ramp_from.map_or(1.0, |(_, from)| ramp(now.saturating_sub(from)));
        if part < 1.0 { self.together.slower(part) } else { self.together }
    }

    /// Notes whether more work waits than was granted. Where that is new and nothing is held, leases are looked at next.
    pub(super) fn note_hunger(&mut self, hungry: bool, now: Duration) {
        if hungry && !self.hungry && !self.held.iter().any(|held| held.usable(now)) {
            self.look_at = now;
        }
        self.hungry = hungry;
    }

    /// Whether work waits and nothing is held.
    pub(super) fn is_empty_handed(&self, now: Duration) -> bool {
        self.hungry && !self.held.iter().any(|held| held.usable(now))
    }

    /// What is to be asked of the store, if it is time for that. From this call on nothing leaves by what is given back.
    pub(super) fn wish(&mut self, node: &str, now: Duration, at: At) -> Option<Wish> {
        if now < self.look_at || (self.held.is_empty() && !self.hungry) {
            return None;
        }
        self.look_at = now.saturating_add(if self.hungry { LOOK_EVERY_HUNGRY } else { LOOK_EVERY });
        if !self.hungry && self.granted == 0 {
            for held in &mut self.held {
                held.leaving |= held.full_at.max(held.since).saturating_add(GRACE) <= now;
            }
        }
        // Twice as many each time: soon enough, and nodes that begin together come out even.
        let want = if self.hungry { (self.held.len() * 2).max(1) } else { 0 };
        Some(self.wish_for(want, node, now, at))
    }

    /// Asks the store to take everything back.
    pub(super) fn farewell(&mut self, node: &str, now: Duration, at: At) -> Option<Wish> {
        self.held.iter_mut().for_each(|held| held.leaving = true);
        (!self.held.is_empty()).then(|| self.wish_for(0, node, now, at))
    }

    fn wish_for(&self, want: usize, node: &str, now: Duration, at: At) -> Wish {
        let moment = |full_at: Duration| {
            if full_at >= now { at.plus(full_at - now) } else { at.minus(now - full_at) }
        };
        let leaving = self.held.iter().filter(|held| held.leaving);
        Wish {
            node: node.to_owned(),
            layout: self.layout,
            now: at,
            until: at.plus(TERM),
            // Renewed with a third of the usable time gone.
            renew_before: at.plus(TERM - (TERM - GRACE) / 3),
            want,
            give: leaving.map(|held| (held.number, moment(held.full_at))).collect(),
        }
    }

    /// Takes over what the store decided on a wish that was made at `now`.
    pub(super) fn settle(&mut self, wish: &Wish, partitions: &[RatePartition], now: Duration) {
        let before = std::mem::take(&mut self.held);
        for partition in partitions.iter().filter(|partition| wish.holds(partition)) {
            let pace = self.layout.partition(partition.number);
            let known = before.iter().find(|held| held.number == partition.number);
            let (ahead, ago) = (partition.full_at.since(wish.now), wish.now.since(partition.full_at));
            let stored = now.saturating_add(ahead).saturating_sub(ago);
            self.held.push(Held {
                number: partition.number,
                pace,
                // The row knows nothing of what left since it was leased.
                full_at: known.map_or(stored, |held| held.full_at.max(stored)),
                since: known.map_or(now, |held| held.since),
                until: now.saturating_add(partition.leased_until.since(wish.now)).saturating_sub(GRACE),
                leaving: known.is_some_and(|held| held.leaving) || wish.is_asked(partition),
            });
        }
        // What is asked for goes at the next look, which comes soon.
        if self.held.iter().any(|held| held.leaving) {
            self.look_at = now;
        }
        if !self.held.is_empty() {
            self.together = self.layout.together(self.held.iter().map(|held| held.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: At = At::from_seconds(1_000_000);

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Nodes that share one budget, on clocks that agree.
    struct Nodes {
        rows: Vec<RatePartition>,
        shares: Vec<Share>,
        layout: Layout,
    }

    impl Nodes {
        fn new(per_second: f64, burst: u32, count: usize) -> Self {
            let layout = Layout::new(per_second, burst);
            let never = At::from_micros(0);
            let row = |number| RatePartition {
                number,
                holder: None,
                leased_until: never,
                full_at: never,
                asked_by: None,
                asked_until: never,
            };
            let shares = (0..count).map(|_| Share::new(layout)).collect();
            Self { rows: (0..layout.count).map(row).collect(), shares, layout }
        }

        /// One node's turn at a moment, with so much work waiting; whether a call left.
        fn turn(&mut self, place: usize, waiting: bool, now: Duration) -> bool {
            let share = &mut self.shares[place];
            share.note_hunger(waiting, now);
            if let Some(wish) = share.wish(&format!("node-{place}"), now, START.plus(now)) {
                wish.settle(&mut self.rows, &(0..self.layout.count).collect::<Vec<_>>());
                share.settle(&wish, &self.rows, now);
            }
            if waiting && share.granted < 2 {
                share.grant(1, now);
            }
            share.granted > 0 && share.leave(now).is_ok()
        }
    }

    #[test]
    fn one_node_paces_its_calls_evenly_and_uses_the_whole_budget() {
        let mut nodes = Nodes::new(7.0, 1, 1);
        let mut left = Vec::new();
        for step in 0..6_000 {
            let now = ms(step * 5);
            if nodes.turn(0, true, now) {
                left.push(now);
            }
        }
        let settled: Vec<_> = left.iter().filter(|at| **at >= ms(5_000)).collect();
        assert!(settled.len() >= 7 * 25 * 9 / 10, "{}", settled.len());
        assert!(settled.windows(2).all(|two| *two[1] - *two[0] >= ms(90)), "{settled:?}");
    }

    #[test]
    fn what_is_not_used_is_given_back_and_what_is_asked_for_too() {
        let mut nodes = Nodes::new(4.0, 1, 2);
        for step in 0..1_000 {
            nodes.turn(0, true, ms(step * 5));
        }
        assert_eq!(nodes.shares[0].held.len(), 4);
        for step in 1_000..2_000 {
            nodes.turn(step as usize % 2, true, ms(step * 5));
        }
        assert_eq!((nodes.shares[0].held.len(), nodes.shares[1].held.len()), (2, 2));
        let idle = |nodes: &mut Nodes, from: u64| {
            for step in from..from + 2_000 {
                nodes.shares.iter_mut().for_each(|share| share.granted = 0);
                nodes.turn(0, false, ms(step * 5));
            }
        };
        idle(&mut nodes, 2_000);
        assert_eq!(nodes.shares[0].held.len(), 0, "{:?}", nodes.shares[0]);
        assert_eq!(nodes.rows.iter().filter(|row| row.holder.is_none()).count(), 2);
    }

    #[test]
    fn a_share_whose_lease_is_not_renewed_is_not_used() {
        let mut nodes = Nodes::new(4.0, 1, 1);
        assert!(nodes.turn(0, true, ms(0)));
        let share = &mut nodes.shares[0];
        assert_eq!((share.grant(1, ms(9_999)), share.grant(1, ms(10_000))), (1, 0));
        assert!(share.leave(ms(9_999)).is_ok());
        assert_eq!(share.leave(ms(20_000)), Err(UNKNOWN));
    }

    #[test]
    fn an_unlimited_rate_holds_nothing_up() {
        let mut nodes = Nodes::new(100_000.0, 1_000, 1);
        let left = (0..100).filter(|_| nodes.turn(0, true, ms(0))).count();
        assert!(left >= 62, "{left}");
    }

    #[test]
    fn after_a_probe_passed_calls_begin_slowly_and_come_back_to_the_whole_rate() {
        let mut nodes = Nodes::new(16.0, 8, 1);
        let mut left = Vec::new();
        for step in 0..6_000 {
            let now = ms(step * 5);
            if nodes.turn(0, true, now) {
                left.push(now);
            }
            if now == ms(10_000) {
                nodes.shares[0].note_ramp(START.plus(now), START.plus(now), now);
            }
            // Each take tells it again.
            if now > ms(10_000) {
                nodes.shares[0].note_ramp(START.plus(ms(10_000)), START.plus(now), now);
            }
        }
        let within = |from: u64, to: u64| left.iter().filter(|at| **at > ms(from) && **at <= ms(to)).count();
        assert!(within(10_000, 12_000) <= 8, "{}", within(10_000, 12_000));
        assert!(within(10_000, 12_000) >= 3, "{}", within(10_000, 12_000));
        assert!(within(12_000, 14_000) < within(14_000, 16_000));
        assert!(within(18_000, 28_000) >= 144, "{}", within(18_000, 28_000));
        let mut in_ramp = left.windows(3).filter(|three| three[0] > ms(10_000) && three[2] < ms(15_000));
        assert!(in_ramp.all(|three| three[2] - three[0] >= ms(100)), "a burst: {left:?}");
    }

    proptest! {
        /// However nodes come, die and share: no sliding second holds more than the limit.
        #[test]
        fn no_second_holds_more_than_the_limit(
            rate in 1..40_u32,
            turns in proptest::collection::vec((0..3_usize, 0..60_u64, any::<bool>()), 200..2_000),
            deaths in proptest::collection::vec(0..2_000_usize, 0..3),
        ) {
            let mut nodes = Nodes::new(f64::from(rate), 1, 3);
            let (mut now, mut left) = (Duration::ZERO, Vec::new());
            for (number, (place, passed, waiting)) in turns.into_iter().enumerate() {
                now += ms(passed);
                if deaths.contains(&number) {
                    // Its memory is gone, what it held is not given back, and another name comes up.
                    nodes.shares[place] = Share::new(nodes.layout);
                    nodes.rows.iter_mut().filter(|row| row.holder == Some(format!("node-{place}"))).for_each(|row| {
                        row.holder = Some("dead".into());
                    });
                }
                if nodes.turn(place, waiting, now) {
                    left.push(now);
                }
            }
            for (place, from) in left.iter().enumerate() {
                let within = left.iter().skip(place).take_while(|at| **at < *from + ms(1_000)).count();
                prop_assert!(within <= usize::try_from(rate).expect("small"), "{within} from {from:?}");
            }
        }
    }
}

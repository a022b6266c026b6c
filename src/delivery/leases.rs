//! Leases: which node holds which partitions of a rate. Pure decisions over the rows of a group; `store/partitions.rs` applies
//! them under the rows' lock.
//!
//! A node that has more to do than it may takes free partitions; if there are none it asks the node that holds most, if that
//! one holds at least two more, for one of them. So what is used is spread over the nodes, and what is not used is free.

use std::time::Duration;

use super::pace::Layout;
use super::share::GRACE;
use crate::clock::At;
use crate::store::RatePartition;

/// How long a node's request for another's partition stands.
const ASK: Duration = Duration::from_secs(3);

/// What a node wants at a moment.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) node: String,
    pub(super) layout: Layout,
    pub(super) now: At,
    /// End of the leases that begin now.
    pub(super) until: At,
    /// A lease that ends earlier is renewed.
    pub(super) renew_before: At,
    /// So many partitions would be used.
    pub(super) want: usize,
    /// These are given back, each with the moment at which it is full again.
    pub(super) give: Vec<(u32, At)>,
}

impl Wish {
    /// Whether the node holds it.
    pub(super) fn holds(&self, partition: &RatePartition) -> bool {
        partition.leased_until > self.now && partition.holder.as_ref() == Some(&self.node)
    }

    /// Whether another node asks for it.
    pub(super) fn is_asked(&self, partition: &RatePartition) -> bool {
        partition.asked_until > self.now && partition.asked_by.as_ref().is_some_and(|node| *node != self.node)
    }

    fn is_free(&self, partition: &RatePartition) -> bool {
        partition.leased_until <= self.now
    }

    /// How full a partition is that changes hands.
    fn level(&self, partition: &RatePartition) -> At {
        let pace = self.layout.partition(partition.number);
        if partition.holder.is_some() {
            // Its node is gone, and may have used it up to the last moment at which it might.
            let emptied = partition.leased_until.minus(GRACE).plus(pace.emptied(Duration::ZERO));
            return partition.full_at.max(emptied);
        }
        // Another's call may just have left, by a clock that differs a little from this one.
        let fresh = partition.full_at.plus(GRACE) > self.now;
        if fresh { partition.full_at.max(self.now.plus(pace.interval)) } else { partition.full_at }
    }

    /// Gives back, renews, takes and asks. `order` says in which order free partitions are tried: by chance, so that nodes do
    /// not all reach for the same.
    pub(super) fn settle(&self, partitions: &mut [RatePartition], order: &[u32]) {
        for partition in partitions.iter_mut().filter(|partition| self.holds(partition)) {
            if let Some((_, full_at)) = self.give.iter().find(|(number, _)| *number == partition.number) {
                partition.holder = None;
                partition.leased_until = self.now;
                partition.full_at = *full_at;
            } else if partition.leased_until < self.renew_before {
                partition.leased_until = self.until;
            }
        }
        let mut mine = partitions.iter().filter(|partition| self.holds(partition)).count();
        for number in order {
            let free = partitions.iter_mut().find(|p| p.number == *number && self.is_free(p) && !self.is_asked(p));
            let Some(partition) = free.filter(|_| mine < self.want) else { continue };
            partition.full_at = self.level(partition);
            partition.holder = Some(self.node.clone());
            partition.leased_until = self.until;
            partition.asked_by = None;
            mine += 1;
        }
        if mine < self.want {
            self.ask(partitions, mine);
        }
    }

    fn ask(&self, partitions: &mut [RatePartition], mine: usize) {
        let stands = |p: &RatePartition| p.asked_until > self.now && p.asked_by.is_some();
        if partitions.iter().any(|p| stands(p) && p.asked_by.as_ref() == Some(&self.node)) {
            return;
        }
        let held_by = |node: &Option<String>| {
            partitions.iter().filter(|p| !self.is_free(p) && p.holder == *node && !stands(p)).count()
        };
        let richest = partitions.iter().filter(|p| !self.is_free(p) && !stands(p)).max_by_key(|p| held_by(&p.holder));
        let Some(number) = richest.filter(|p| held_by(&p.holder) >= mine + 2).map(|p| p.number) else { return };
        if let Some(partition) = partitions.iter_mut().find(|p| p.number == number) {
            partition.asked_by = Some(self.node.clone());
            partition.asked_until = self.now.plus(ASK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: At = At::from_seconds(1_000_000);
    const TERM: Duration = Duration::from_secs(15);
    const ORDER: [u32; 7] = [3, 0, 6, 1, 5, 2, 4];

    fn fresh() -> Vec<RatePartition> {
        let never = At::from_micros(0);
        let partition = |number| RatePartition {
            number,
            holder: None,
            leased_until: never,
            full_at: never,
            asked_by: None,
            asked_until: never,
        };
        (0..7).map(partition).collect()
    }

    fn wish(node: &str, now: At, want: usize) -> Wish {
        let layout = Layout::new(7.0, 1);
        Wish {
            node: node.into(),
            layout,
            now,
            until: now.plus(TERM),
            renew_before: now.plus(Duration::from_secs(12)),
            want,
            give: Vec::new(),
        }
    }

    fn held(partitions: &[RatePartition], node: &str, now: At) -> Vec<u32> {
        let wish = wish(node, now, 0);
        partitions.iter().filter(|partition| wish.holds(partition)).map(|partition| partition.number).collect()
    }

    #[test]
    fn so_many_are_taken_as_are_wanted_and_none_of_anothers() {
        let mut all = fresh();
        wish("a", NOW, 2).settle(&mut all, &ORDER);
        assert_eq!(held(&all, "a", NOW), [0, 3]);
        wish("b", NOW, 9).settle(&mut all, &ORDER);
        assert_eq!((held(&all, "a", NOW).len(), held(&all, "b", NOW).len()), (2, 5));
        wish("a", NOW, 2).settle(&mut all, &ORDER);
        assert_eq!(held(&all, "a", NOW), [0, 3], "what is held is not taken twice");
    }

    #[test]
    fn nodes_that_want_more_come_out_even_and_then_leave_each_other_alone() {
        let mut all = fresh();
        wish("a", NOW, 7).settle(&mut all, &ORDER);
        let mut now = NOW;
        for _ in 0..20 {
            now = now.plus(Duration::from_millis(500));
            for node in ["a", "b", "c"] {
                let mut wish = wish(node, now, 7);
                let asked = all.iter().filter(|p| wish.holds(p) && wish.is_asked(p));
                wish.give = asked.map(|p| (p.number, now)).collect();
                wish.settle(&mut all, &ORDER);
            }
        }
        let mut counts: Vec<usize> = ["a", "b", "c"].iter().map(|node| held(&all, node, now).len()).collect();
        counts.sort_unstable();
        assert_eq!(counts, [2, 2, 3]);
        let quiet = all.iter().all(|p| p.asked_until <= now);
        assert!(quiet, "nobody asks any more: {all:?}");
    }

    #[test]
    fn a_lease_is_renewed_in_time_and_a_dead_nodes_comes_back_empty_at_its_end() {
        let mut all = fresh();
        wish("a", NOW, 7).settle(&mut all, &ORDER);
        let later = NOW.plus(Duration::from_secs(5));
        wish("a", later, 0).settle(&mut all, &ORDER);
        assert!(all.iter().all(|p| p.leased_until == later.plus(TERM)));
        let before = later.plus(TERM).minus(Duration::from_micros(1));
        wish("b", before, 7).settle(&mut all, &ORDER);
        assert_eq!(held(&all, "b", before), [0; 0]);
        let after = later.plus(TERM);
        wish("b", after, 7).settle(&mut all, &ORDER);
        assert_eq!(held(&all, "b", after).len(), 7);
        // The dead node may have called until a grace before the end of its lease, and each spacing begins there.
        let last = after.minus(GRACE);
        assert!(all.iter().all(|p| p.full_at > last && p.full_at < after), "{all:?}");
    }

    #[test]
    fn what_another_used_just_now_is_empty_by_whichever_clock_and_what_it_left_long_ago_is_as_it_was() {
        for (unused, waits) in [(Duration::from_secs(1), true), (Duration::from_secs(6), false)] {
            let mut all = fresh();
            wish("a", NOW.minus(TERM), 7).settle(&mut all, &ORDER);
            let mut gives = wish("a", NOW.minus(Duration::from_secs(1)), 0);
            gives.give = all.iter().map(|p| (p.number, NOW.minus(unused))).collect();
            // (Its leases are over by a hair otherwise.)
            all.iter_mut().for_each(|p| p.leased_until = NOW);
            gives.settle(&mut all, &ORDER);
            assert_eq!(held(&all, "a", NOW), [0; 0]);
            wish("b", NOW, 1).settle(&mut all, &ORDER);
            let taken = all.iter().find(|p| p.holder.is_some()).expect("taken");
            assert_eq!(taken.full_at > NOW.plus(Duration::from_secs(1)), waits, "{taken:?}");
        }
    }
}

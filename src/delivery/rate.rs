//! The rate of one account as the engine uses it: the share behind its locks, and the gate that every call passes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::engine::Engine;
use super::leases::Wish;
use super::pace::Layout;
use super::share::Share;
use super::{Line, Settings};
use crate::operation::DestinationName;
use crate::store::StoreError;

/// Steps of waiting at the gate: timers know nothing shorter, and what the share holds may change meanwhile.
const SHORTEST_STEP: Duration = Duration::from_millis(1);
const LONGEST_STEP: Duration = Duration::from_millis(50);

/// One rate group on this node.
#[derive(Debug)]
pub(super) struct Rate {
    group: String,
    layout: Layout,
    share: Mutex<Share>,
    /// Calls leave in the order in which they came to the gate.
    gate: tokio::sync::Mutex<()>,
}

impl Rate {
    pub(super) fn new(group: String, settings: &Settings) -> Self {
        let layout = Layout::new(settings.rate_per_second, settings.burst);
        Self { group, layout, share: Mutex::new(Share::new(layout)), gate: tokio::sync::Mutex::default() }
    }

    pub(super) fn share<T>(&self, f: impl FnOnce(&mut Share) -> T) -> T {
        f(&mut self.share.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A call that was granted and has not left. Dropped, it gives the grant back: no way out of a call, not even a panic, may use
/// up a part of the budget for good.
#[derive(Debug)]
pub(super) struct Grant<'a> {
    rate: &'a Rate,
    left: bool,
}

impl<'a> Grant<'a> {
    /// The grant that an operation was taken with.
    pub(super) fn of_taken(rate: &'a Rate) -> Self {
        Self { rate, left: false }
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        if !self.left {
            self.rate.share(|share| share.ungrant(1));
        }
    }
}

impl Engine {
    pub(super) fn rate(&self, name: &DestinationName) -> Option<&Rate> {
        self.rates.get(&self.lines.get(name)?.rate_group)
    }

    /// A grant for another call at once, where there is one.
    pub(super) fn grant<'a>(&self, rate: &'a Rate) -> Option<Grant<'a>> {
        let now = self.ports.clock.monotonic();
        (rate.share(|share| share.grant(1, now)) == 1).then(|| Grant::of_taken(rate))
    }

    /// Waits until a granted call may leave; whether it may. `over` says that it must not any more, however long it waits.
    pub(super) async fn pass_gate(&self, mut grant: Grant<'_>, over: impl Fn() -> bool) -> bool {
        let _first = grant.rate.gate.lock().await;
        while !over() {
            match grant.rate.share(|share| share.leave(self.ports.clock.monotonic())) {
                Ok(()) => {
                    grant.left = true;
                    return true;
                }
                Err(wait) => self.ports.pause.pause(wait.clamp(SHORTEST_STEP, LONGEST_STEP)).await,
            }
        }
        false
    }

    /// Renews, takes and gives back leases on the rate's partitions, where it is time for that. Should be called every second.
    pub async fn keep_rate(&self, name: &DestinationName) {
        let Some(rate) = self.rate(name) else { return };
        let (now, at) = (self.ports.clock.monotonic(), self.now());
        if let Some(wish) = rate.share(|share| share.wish(&self.node, now, at)) {
            // Without the store nothing is sent anyway.
            if let Err(error) = self.fulfil(rate, wish, now).await {
                tracing::warn!(destination = %name, %error, "the share of the rate could not be renewed");
            }
        }
    }

    /// Gives back what this node holds of all rates, when it stops. What is not given back is free when its lease ends.
    pub async fn give_rates_back(&self) {
        for rate in self.rates.values() {
            let (now, at) = (self.ports.clock.monotonic(), self.now());
            if let Some(wish) = rate.share(|share| share.farewell(&self.node, now, at)) {
                let _ = self.fulfil(rate, wish, now).await;
            }
        }
    }

    async fn fulfil(&self, rate: &Rate, wish: Wish, now: Duration) -> Result<(), StoreError> {
        let mut order: Vec<u32> = (0..rate.layout.count).collect();
        order.sort_by_cached_key(|_| {
            let mut chance = [0; 4];
            self.ports.entropy.fill(&mut chance);
            chance
        });
        let asked = wish.clone();
        let settle = move |partitions: &mut [_]| asked.settle(partitions, &order);
        let partitions = self.ports.store.rate_partitions(rate.group.clone(), rate.layout.count, settle).await?;
        rate.share(|share| share.settle(&wish, &partitions, now));
        Ok(())
    }
}

/// The rates of these destinations: those that name one group share one.
pub(super) fn of_lines(lines: &HashMap<DestinationName, Line>) -> HashMap<String, Rate> {
    let rate = |line: &Line| (line.rate_group.clone(), Rate::new(line.rate_group.clone(), &line.settings));
    lines.values().map(rate).collect()
}

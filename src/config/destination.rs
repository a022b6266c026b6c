//! `[[destination]]`: a CRM account and how it is delivered to. Keys that are not listed here belong to the kind of CRM.

use std::time::Duration;

use super::reader::{Section, did_you_mean};
use super::units::show_duration;
use super::{Destination, Kinds, near, value};
use crate::crm;
use crate::delivery::{LookupPolicy, RetryPolicy, Settings};
use crate::operation::DestinationName;

/// The keys of every destination, for "did you mean" where the kind does not know a key.
const KEYS: [&str; 9] = ["name", "kind", "timeout", "concurrency", "rate", "rate_group", "lease", "retry", "lookup"];

const LOOKUP_KEYS: [&str; 4] = ["first_after", "settle", "give_up", "trusted"];

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Reads all destinations; those with faults are left out.
pub(super) fn read_all(file: &Section<'_>, kinds: &Kinds<'_>) -> Vec<Destination> {
    let sections = file.sections("destination");
    if !file.has("destination") {
        file.fault("destination", "at least one [[destination]] is needed: the CRM that leads go to");
    }
    let destinations: Vec<_> = sections.iter().map(|section| (section, read(section, kinds))).collect();
    super::source::refuse_repeated_names(&sections);
    let destinations = destinations.into_iter().filter_map(|(section, destination)| Some((section, destination?)));
    let destinations: Vec<_> = destinations.collect();
    refuse_different_rates(&destinations);
    destinations.into_iter().map(|(_, destination)| destination).collect()
}

/// Destinations of one group share one budget, so they have to agree how large it is.
fn refuse_different_rates(destinations: &[(&Section<'_>, Destination)]) {
    for (n, (section, destination)) in destinations.iter().enumerate() {
        let group = &destination.rate_group;
        let Some((_, first)) = destinations[..n].iter().find(|(_, earlier)| earlier.rate_group == *group) else {
            continue;
        };
        let (own, other) = (show_rate(&destination.delivery), show_rate(&first.delivery));
        if own != other {
            let message =
                format!("must be that of \"{}\" in the same rate_group \"{group}\" ({other}), is {own}", first.name);
            section.fault("rate", &message);
        }
    }
}

/// A rate as it stands in the file.
pub(super) fn show_rate(delivery: &Settings) -> String {
    format!("{{ per_second = {}, burst = {} }}", delivery.rate_per_second, delivery.burst)
}

fn read(section: &Section<'_>, kinds: &Kinds<'_>) -> Option<Destination> {
    let name = section.need("name", value::name);
    let kind = section.need("kind", value::one_of(kinds.crms));
    let advised = kind.as_deref().and_then(kinds.crm_defaults);
    let rate_group = section.take("rate_group", value::name::<DestinationName>);
    let lookup = section.section("lookup");
    let delivery = delivery(section, &lookup, advised.unwrap_or(UNKNOWN));
    let mut connector = section.rest();
    // A kind may ask its look-up by keys of its own in the same table as our policy.
    let of_kind = lookup.rest();
    if !of_kind.is_empty() {
        connector.insert("lookup".to_owned(), of_kind.clone().into());
    }
    let name = name?;
    let rate_group = rate_group.as_ref().unwrap_or(&name).as_str().to_owned();
    let path = section.path().to_owned();
    let destination = Destination { name, kind: kind?, delivery, rate_group, connector, path };
    for (key, message) in (kinds.check_destination)(&destination) {
        if key == "lookup" && message.contains("known") {
            // The kind has no such table: every key of it that is not ours is unknown by itself.
            for key in of_kind.keys() {
                let hint = near::nearest(key, LOOKUP_KEYS).map(did_you_mean).unwrap_or_default();
                section.fault_below(&format!("lookup.{key}"), &format!("{message}{hint}"));
            }
            continue;
        }
        // The kind cannot know that `timout` was meant for us; it says that such a key is not known.
        let hint = near::nearest(&key, KEYS).filter(|_| message.contains("known"));
        let hint = hint.map(did_you_mean).unwrap_or_default();
        section.fault_below(&key, &format!("{message}{hint}"));
    }
    Some(destination)
}

/// Stands in for the advice of a kind that cannot be read, so that the other keys are checked all the same.
const UNKNOWN: crm::Defaults =
    crm::Defaults { rate_per_second: 1.0, burst: 1, first_after: seconds(5), settle: seconds(120), trusted: false };

fn delivery(section: &Section<'_>, lookup_section: &Section<'_>, advised: crm::Defaults) -> Settings {
    let timeout = section.take("timeout", value::duration_within(Duration::from_millis(1)..=seconds(600)));
    let concurrency = section.take("concurrency", value::whole(1..=1_000));
    let rate = section.section("rate");
    let positive = value::number("a number greater than 0", |number| number > 0.0);
    let per_second = rate.take("per_second", positive);
    let burst = rate.take("burst", value::whole(1..=u32::MAX));
    let lease = section.take("lease", value::duration);

    let timeout = timeout.unwrap_or(seconds(15));
    let lease = lease.unwrap_or(seconds(60).max(shortest_lease(timeout)));
    if lease < shortest_lease(timeout) {
        let (least, found) = (show_duration(shortest_lease(timeout)), show_duration(lease));
        let timeout = show_duration(timeout);
        section.fault("lease", &format!("must be at least {least} for a timeout of {timeout}, found {found}"));
    }
    Settings {
        timeout,
        concurrency: concurrency.unwrap_or(4),
        rate_per_second: per_second.unwrap_or(advised.rate_per_second),
        burst: burst.unwrap_or(advised.burst),
        lease,
        retry: retry(&section.section("retry")),
        lookup: lookup(lookup_section, advised),
    }
}

/// A lease must outlive its call and leave time to write the result: else every slow answer comes back as a late one.
fn shortest_lease(timeout: Duration) -> Duration {
    timeout + (timeout / 4).max(seconds(1))
}

fn retry(section: &Section<'_>) -> RetryPolicy {
    let policy = RetryPolicy {
        max_attempts: section.take("max_attempts", value::whole(1..=u32::MAX)).unwrap_or(8),
        initial_interval: section.take("initial_interval", value::duration).unwrap_or(seconds(1)),
        multiplier: section
            .take("multiplier", value::number("a number from 1 to 100", |number| (1.0..=100.0).contains(&number)))
            .unwrap_or(2.0),
        jitter: section
            .take("jitter", value::number("a number from 0 to 1", |number| (0.0..=1.0).contains(&number)))
            .unwrap_or(0.5),
        max_interval: section.take("max_interval", value::duration).unwrap_or(seconds(300)),
        max_elapsed: section.take("max_elapsed", value::duration).unwrap_or(seconds(86_400)),
    };
    not_shorter(section, ("max_interval", policy.max_interval), ("initial_interval", policy.initial_interval));
    not_shorter(section, ("max_elapsed", policy.max_elapsed), ("initial_interval", policy.initial_interval));
    policy
}

fn lookup(section: &Section<'_>, advised: crm::Defaults) -> LookupPolicy {
    let policy = LookupPolicy {
        first_after: section.take("first_after", value::duration).unwrap_or(advised.first_after),
        settle: section.take("settle", value::duration).unwrap_or(advised.settle),
        give_up: section.take("give_up", value::duration).unwrap_or(seconds(86_400)),
        trusted: section.take("trusted", value::flag).unwrap_or(advised.trusted),
    };
    // Given up before the settle time, no empty look-up could ever be believed.
    not_shorter(section, ("give_up", policy.give_up), ("settle", policy.settle));
    not_shorter(section, ("give_up", policy.give_up), ("first_after", policy.first_after));
    policy
}

fn not_shorter(section: &Section<'_>, (key, long): (&'static str, Duration), (other, short): (&str, Duration)) {
    if long < short {
        let (long, short) = (show_duration(long), show_duration(short));
        section.fault(key, &format!("must not be shorter than {other} ({short}), found {long}"));
    }
}

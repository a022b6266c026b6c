//! Housekeeping: figures, incidents, the contact index and retention, in small steps beside the work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{At, Clock};
use crate::delivery::Engine;
use crate::operation::State;
use crate::store::{Census, Destination, Store, StoreError};
use crate::telemetry::Metrics;

/// How long an operation may wait before it becomes an incident.
const STALE: Duration = Duration::from_secs(15 * 60);
/// Operations are indexed this long after reception, when no older one can still be committed.
const INDEX_LAG: Duration = Duration::from_secs(30);
/// Rows of one small step.
const STEP: usize = 200;

/// How long payloads and tombstones are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retention {
    /// Raw bodies, leads and excerpts.
    pub(super) payload: Duration,
    /// The operation itself.
    pub(super) tombstone: Duration,
}

/// What housekeeping needs.
#[derive(Debug, Clone)]
pub(super) struct Housekeeping {
    /// The store.
    pub(super) store: Store,
    /// For reading leads.
    pub(super) engine: Arc<Engine>,
    /// Where figures go.
    pub(super) metrics: Metrics,
    /// Time.
    pub(super) clock: Arc<dyn Clock>,
    /// What to keep.
    pub(super) retention: Retention,
}

impl Housekeeping {
    /// Looks for uncertain outcomes, counts, and opens and closes the incidents that follow from the counts.
    pub(super) async fn count(&self) -> Result<(), StoreError> {
        self.engine.look_around().await?;
        // Read first: an incident that opens while the rest is read is not judged by what was read before it.
        let known = self.store.incidents().await?;
        let census = self.store.census().await?;
        let destinations = self.store.destinations().await?;
        self.show(&census, &destinations);
        let now = self.clock.now();
        let wanted = incidents(&census, &destinations, now);
        for (key, text) in &wanted {
            if self.store.open_incident(key.clone(), text.clone(), now).await? {
                tracing::error!(incident = key, "incident: {text}");
            }
        }
        for incident in known {
            let over = incident.closed_at.is_none() && !wanted.contains_key(&incident.key);
            if over && self.store.close_incident(incident.key.clone(), now).await? {
                tracing::info!(incident = incident.key, "incident over: {}", incident.text);
            }
        }
        Ok(())
    }

    fn show(&self, census: &Census, destinations: &[Destination]) {
        let now = self.clock.now();
        for state in State::ALL {
            let count = census.states.iter().find(|(s, _)| *s == state).map_or(0, |(_, count)| *count);
            self.metrics.operations(state.as_str(), count);
        }
        for state in [State::Received, State::InProgress] {
            let oldest = census.oldest.iter().find(|(s, _)| *s == state).map(|(_, at)| now.since(*at));
            self.metrics.oldest(state.as_str(), oldest.unwrap_or_default());
        }
        self.metrics.reviews_open(&census.reviews);
        for destination in destinations {
            self.metrics.suspended(destination.name.as_str(), destination.suspended);
        }
    }

    /// The two audits of the ledger.
    pub(super) async fn audit(&self) -> Result<(), StoreError> {
        let (unexplained, unaccounted) = (self.store.unexplained().await?, self.store.unaccounted().await?);
        if unexplained != 0 || unaccounted != 0 {
            tracing::error!(unexplained, unaccounted, "the ledger does not add up");
        }
        self.metrics.ledger(unexplained, unaccounted);
        Ok(())
    }

    /// Fills the index for the search by phone or e-mail; whether there is more.
    pub(super) async fn index(&self) -> Result<bool, StoreError> {
        let before = self.clock.now().minus(INDEX_LAG);
        let operations = self.store.unindexed(before, STEP).await?;
        let more = operations.len() == STEP;
        let contacts = operations.iter().map(|(operation, work)| {
            let lead =
                self.engine.lead(operation, work.delivery.as_ref(), work.edited_lead.as_ref()).unwrap_or_default();
            let normal = lead.phones.into_iter().chain(lead.emails).filter_map(|contact| contact.normal);
            (operation.id, normal.collect())
        });
        let contacts: Vec<_> = contacts.collect();
        if !contacts.is_empty() {
            self.store.index_contacts(contacts).await?;
        }
        Ok(more)
    }

    /// One small step of retention; whether there is more.
    pub(super) async fn purge(&self) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let (payload, tombstone) = (now.minus(self.retention.payload), now.minus(self.retention.tombstone));
        let purged = self.store.purge(now, payload, tombstone, STEP, false).await?;
        Ok(purged.payloads == STEP || purged.tombstones == STEP || purged.deliveries == STEP)
    }
}

/// What is wrong now, by key. One incident a kind, not one a lead.
fn incidents(census: &Census, destinations: &[Destination], now: At) -> BTreeMap<String, String> {
    let mut wanted = BTreeMap::new();
    for destination in destinations.iter().filter(|d| d.suspended) {
        let reason = destination.reason.as_deref().unwrap_or("no reason was given");
        let text = format!("{} is suspended: {reason}", destination.name);
        wanted.insert(format!("destination_suspended:{}", destination.name), text);
    }
    for (reason, count) in census.reviews.iter().filter(|(_, count)| *count > 0) {
        wanted.insert(format!("review_open:{reason}"), format!("cases wait for a person: {reason} ({count})"));
    }
    for (state, at) in census.oldest.iter().filter(|(_, at)| now.since(*at) > STALE) {
        let text = format!("the oldest operation in state {} was received at {at}", state.as_str());
        wanted.insert(format!("stale:{}", state.as_str()), text);
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Flow;

    const NOW: At = At::from_seconds(1_800_000_000);

    fn waiting(since: Duration) -> Census {
        Census {
            states: vec![(State::Received, 300)],
            oldest: vec![(State::Received, NOW.minus(since))],
            ..Census::default()
        }
    }

    #[test]
    fn c12_an_outage_is_one_incident_after_a_while_and_over_with_it() {
        let keys = |census: &Census| incidents(census, &[], NOW).into_keys().collect::<Vec<_>>();
        assert!(keys(&waiting(STALE)).is_empty(), "a short wait is no news");
        assert_eq!(keys(&waiting(STALE + Duration::from_secs(1))), ["stale:received"], "one for three hundred leads");
        assert_eq!(
            keys(&waiting(6 * 3600 * Duration::from_secs(1))),
            ["stale:received"],
            "and the same one hours later"
        );
        assert!(keys(&Census::default()).is_empty());
    }

    #[test]
    fn each_kind_of_case_and_each_suspended_destination_is_one_incident() {
        let suspended = |name: &str, suspended| Destination {
            name: name.parse().expect("a name"),
            kind: "bitrix24".into(),
            suspended,
            reason: Some("ACCESS_DENIED".into()),
            since: NOW,
            epoch: 1,
            flow: Flow::default(),
            last_success_at: None,
        };
        let reviews = vec![("likely_copy".to_owned(), 7), ("unreadable".to_owned(), 0)];
        let census = Census { reviews, ..Census::default() };
        let wanted = incidents(&census, &[suspended("a", true), suspended("b", false)], NOW);
        assert_eq!(wanted.keys().collect::<Vec<_>>(), ["destination_suspended:a", "review_open:likely_copy"]);
        assert!(wanted["destination_suspended:a"].contains("ACCESS_DENIED"));
    }
}

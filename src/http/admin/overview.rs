//! `GET /v1/admin/overview`: how the gateway is, on one page.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix_web::{HttpResponse, web};
use serde::Serialize;
use tokio::sync::Mutex;
use utoipa::ToSchema;

use super::super::problem::Problem;
use super::super::state::Shared;
use super::Refusals;
use super::destinations::DestinationView;
use crate::clock::At;
use crate::operation::State;
use crate::store::{Activity, Census, Verdict};

/// The hours shown.
const HOURS: usize = 24;
const HOUR: Duration = Duration::from_secs(3_600);
/// How long a count is shown at least.
const FRESH: Duration = Duration::from_secs(2);

/// The last counts. However many consoles are open, the store is counted once, and for no more than a twentieth of the time.
#[derive(Debug, Default)]
pub struct Counts(Mutex<Option<Counted>>);

#[derive(Debug, Clone)]
struct Counted {
    at: Duration,
    took: Duration,
    census: Arc<Census>,
    activity: Arc<Activity>,
}

impl Counts {
    async fn now(&self, shared: &Shared, since: At) -> Result<Counted, Problem> {
        let mut last = self.0.lock().await;
        let begun = shared.clock.monotonic();
        if let Some(counted) = last.as_ref().filter(|c| begun.saturating_sub(c.at) < FRESH.max(c.took * 20)) {
            return Ok(counted.clone());
        }
        let (census, activity) = (shared.store.census().await?, shared.store.activity(since).await?);
        let at = shared.clock.monotonic();
        let took = at.saturating_sub(begun);
        let counted = Counted { at, took, census: Arc::new(census), activity: Arc::new(activity) };
        *last = Some(counted.clone());
        Ok(counted)
    }
}

/// How the gateway is.
#[derive(Serialize, ToSchema)]
pub(super) struct Overview {
    /// When it was asked.
    at: String,
    /// Operations by state.
    states: BTreeMap<&'static str, i64>,
    /// Open reviews by reason.
    reviews: BTreeMap<String, i64>,
    /// When the oldest operation of a state that nobody decides was received; null where there is none.
    oldest: Oldest,
    destinations: Vec<Share>,
    /// Incidents that are not over.
    incidents: Vec<IncidentView>,
    /// The last 24 hours, oldest first.
    hours: Vec<Hour>,
    /// Deliveries of the last 24 hours by verdict.
    deliveries: BTreeMap<&'static str, i64>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Oldest {
    received: Option<String>,
    in_progress: Option<String>,
}

/// A destination, with its part of the last 24 hours.
#[derive(Serialize, ToSchema)]
#[schema(as = DestinationShare)]
pub(super) struct Share {
    #[serde(flatten)]
    destination: DestinationView,
    /// Operations of the last 24 hours.
    operations: i64,
    /// Of those, completed.
    completed: i64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Incident)]
pub(super) struct IncidentView {
    key: String,
    text: String,
    opened_at: String,
}

/// What came in one hour.
#[derive(Serialize, ToSchema)]
pub(super) struct Hour {
    /// Its beginning.
    hour: String,
    /// New operations by source.
    sources: BTreeMap<String, i64>,
    /// The same by the state in which they stand now.
    states: BTreeMap<&'static str, i64>,
    /// Repeats that made nothing.
    replays: i64,
}

/// What needs a person, what waits, what came in the last 24 hours, and how the destinations are.
#[utoipa::path(get, path = "/v1/admin/overview", operation_id = "overview", tag = "operations",
    responses((status = 200, description = "How the gateway is.", body = Overview), Refusals))]
pub(super) async fn handle(shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let now = shared.clock.now();
    let first = first_hour(now);
    let Counted { census, activity, .. } = shared.counts.now(&shared, first).await?;
    let rows = shared.store.destinations().await?;
    let incidents = shared.store.incidents().await?;
    let oldest = |state| census.oldest.iter().find(|(of, _)| *of == state).map(|(_, at)| at.rfc3339());
    let shares = rows.into_iter().map(|row| {
        let own = || activity.began.iter().filter(|began| began.destination == row.name.as_str());
        let (operations, completed) = (
            own().map(|began| began.count).sum(),
            own().filter(|began| began.state == State::Completed).map(|began| began.count).sum(),
        );
        Share { operations, completed, destination: DestinationView::of(row, &census, now) }
    });
    let mut deliveries: BTreeMap<&'static str, i64> = Verdict::ALL.map(|verdict| (verdict.as_str(), 0)).into();
    for arrived in &activity.arrived {
        *deliveries.entry(arrived.verdict.as_str()).or_default() += arrived.count;
    }
    let mut states: BTreeMap<&'static str, i64> = State::ALL.map(|state| (state.as_str(), 0)).into();
    states.extend(census.states.iter().map(|(state, count)| (state.as_str(), *count)));
    Ok(HttpResponse::Ok().json(Overview {
        at: now.rfc3339(),
        states,
        reviews: census.reviews.iter().cloned().collect(),
        oldest: Oldest { received: oldest(State::Received), in_progress: oldest(State::InProgress) },
        destinations: shares.collect(),
        incidents: incidents
            .into_iter()
            .filter(|incident| incident.closed_at.is_none())
            .map(|i| IncidentView { key: i.key, text: i.text, opened_at: i.opened_at.rfc3339() })
            .collect(),
        hours: hours(&activity, first),
        deliveries,
    }))
}

/// The beginning of the first hour that is shown.
fn first_hour(now: At) -> At {
    let hour = i64::try_from(HOUR.as_micros()).unwrap_or(i64::MAX);
    let begun = At::from_micros(now.micros().div_euclid(hour).saturating_mul(hour));
    begun.minus(HOUR * u32::try_from(HOURS - 1).unwrap_or(0))
}

/// Every hour is there, also one in which nothing came.
fn hours(activity: &Activity, first: At) -> Vec<Hour> {
    let mut at = first;
    let mut hours = Vec::new();
    for _ in 0..HOURS {
        let mut hour = Hour { hour: at.rfc3339(), sources: BTreeMap::new(), states: BTreeMap::new(), replays: 0 };
        for arrived in activity.arrived.iter().filter(|arrived| arrived.hour == at) {
            match arrived.verdict {
                Verdict::New => *hour.sources.entry(arrived.source.clone()).or_default() += arrived.count,
                Verdict::Replay | Verdict::ReplayUnverified => hour.replays += arrived.count,
                Verdict::Conflict | Verdict::Rejected | Verdict::Test | Verdict::Spam | Verdict::Ignored => {}
            }
        }
        for began in activity.began.iter().filter(|began| began.hour == at) {
            *hour.states.entry(began.state.as_str()).or_default() += began.count;
        }
        hours.push(hour);
        at = at.plus(HOUR);
    }
    hours
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Arrived, Began};

    #[test]
    fn a_day_has_its_hours_with_what_came_in_each() {
        let now = At::from_seconds(1_796_119_200 + 1_800);
        let first = first_hour(now);
        assert_eq!(first.rfc3339(), "2026-11-30T11:00:00.000Z");
        let last = first.plus(HOUR * 23);
        let arrived = |hour, verdict, count| Arrived { hour, source: "site".into(), verdict, count };
        let activity = Activity {
            arrived: vec![
                arrived(first, Verdict::New, 2),
                arrived(last, Verdict::New, 3),
                arrived(last, Verdict::Replay, 4),
                arrived(last, Verdict::Rejected, 5),
                arrived(first.minus(HOUR), Verdict::New, 9),
            ],
            began: vec![Began { hour: last, destination: "bitrix".into(), state: State::Completed, count: 3 }],
        };
        let hours = hours(&activity, first);
        assert_eq!(hours.len(), HOURS);
        assert_eq!((hours[0].sources["site"], hours[0].replays), (2, 0));
        assert_eq!((hours[23].sources["site"], hours[23].replays, hours[23].states["completed"]), (3, 4, 3));
        assert!(hours[1].sources.is_empty());
    }
}

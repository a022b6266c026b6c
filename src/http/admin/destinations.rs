//! `GET /v1/admin/destinations`: how the CRM accounts are.

use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::problem::{Kind, Problem};
use super::super::state::Shared;
use super::Refusals;
use crate::clock::At;
use crate::operation::DestinationName;
use crate::store::{Audit, Census, Destination};

/// All destinations.
#[derive(Serialize, ToSchema)]
pub(super) struct Destinations {
    items: Vec<DestinationView>,
}

/// A destination as operators see it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Destination)]
pub(super) struct DestinationView {
    #[schema(value_type = String)]
    name: DestinationName,
    kind: String,
    /// active, throttled or suspended
    state: &'static str,
    reason: Option<String>,
    since: String,
    /// Operations in `received`.
    waiting: i64,
    in_progress: i64,
    last_success_at: Option<String>,
}

impl DestinationView {
    pub(super) fn of(destination: Destination, census: &Census, now: At) -> Self {
        let counts = census.destinations.iter().find(|(name, ..)| *name == destination.name);
        let (waiting, in_progress) = counts.map_or((0, 0), |(_, waiting, in_progress)| (*waiting, *in_progress));
        let until = destination.flow.throttled_until.filter(|until| *until > now);
        let (state, reason) = match (destination.suspended, until) {
            (true, _) => ("suspended", destination.reason),
            (false, Some(until)) => {
                ("throttled", Some(format!("it reached its limit or failed; no call until {until}")))
            }
            (false, None) => ("active", destination.reason),
        };
        Self {
            name: destination.name,
            kind: destination.kind,
            state,
            reason,
            since: destination.since.rfc3339(),
            waiting,
            in_progress,
            last_success_at: destination.last_success_at.map(At::rfc3339),
        }
    }
}

/// How the CRM accounts are.
#[utoipa::path(get, path = "/v1/admin/destinations", operation_id = "list_destinations", tag = "destinations",
    responses((status = 200, description = "All destinations.", body = Destinations), Refusals))]
pub(super) async fn handle(shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let census = shared.store.census().await?;
    let now = shared.clock.now();
    let rows = shared.store.destinations().await?;
    let items = rows.into_iter().map(|row| DestinationView::of(row, &census, now)).collect();
    Ok(HttpResponse::Ok().json(Destinations { items }))
}

/// Why a destination is suspended or resumed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reason)]
pub(super) struct Why {
    /// For the audit log.
    #[schema(max_length = 2000)]
    pub(super) note: Option<String>,
}

/// Checks a note's length.
pub(super) fn note(why: Option<Why>) -> Result<Option<String>, Problem> {
    let note = why.and_then(|why| why.note).map(|note| note.trim().to_owned()).filter(|note| !note.is_empty());
    match note {
        Some(note) if note.chars().count() > 2_000 => {
            Err(Problem::new(Kind::BadRequest, "the note is longer than 2000 characters"))
        }
        note => Ok(note),
    }
}

/// The destination that the address names, as it is now.
pub(super) async fn named(name: &DestinationName, shared: &Shared) -> Result<DestinationView, Problem> {
    let census = shared.store.census().await?;
    let found = shared.store.destinations().await?.into_iter().find(|row| row.name == *name);
    found.map(|row| DestinationView::of(row, &census, shared.clock.now())).ok_or_else(unknown)
}

/// The name in the address.
pub(super) fn name_of(request: &actix_web::HttpRequest) -> Result<DestinationName, Problem> {
    request.match_info().get("name").and_then(|name| name.parse().ok()).ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::new(Kind::NotFound, "there is no destination of that name")
}

/// The entry of the audit log for an action on a destination.
pub(super) fn audit(action: &str, name: &DestinationName, actor: String, note: Option<String>, at: At) -> Audit {
    let (from, to) = if action == "suspend" { ("active", "suspended") } else { ("suspended", "active") };
    Audit {
        actor,
        at,
        action: action.to_owned(),
        operation_id: None,
        subject: Some(name.as_str().to_owned()),
        from: Some(from.to_owned()),
        to: Some(to.to_owned()),
        note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Flow;

    fn row(suspended: bool, throttled_until: Option<At>) -> Destination {
        Destination {
            name: "bitrix".parse().expect("a name"),
            kind: "bitrix24".into(),
            suspended,
            reason: suspended.then(|| "token revoked".into()),
            since: At::from_seconds(10),
            epoch: 1,
            flow: Flow { throttled_until, ..Flow::default() },
            last_success_at: None,
        }
    }

    #[test]
    fn a_destination_is_active_throttled_or_suspended() {
        let census = Census { destinations: vec![("bitrix".parse().expect("a name"), 3, 1)], ..Census::default() };
        let now = At::from_seconds(100);
        let table = [
            (row(false, None), "active"),
            (row(false, Some(At::from_seconds(99))), "active"),
            (row(false, Some(At::from_seconds(101))), "throttled"),
            (row(true, Some(At::from_seconds(101))), "suspended"),
        ];
        for (row, state) in table {
            let view = DestinationView::of(row.clone(), &census, now);
            assert_eq!((view.state, view.waiting, view.in_progress), (state, 3, 1), "{row:?}");
            assert_eq!(view.reason.is_some(), state != "active");
        }
        assert_eq!(DestinationView::of(row(false, None), &Census::default(), now).waiting, 0);
    }
}

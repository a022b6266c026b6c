//! `GET /v1/admin/events`: the feed of state changes, for BI and downstream systems. Every committed change stands in it once, and
//! none appears before a place that was read already.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::problem::Problem;
use super::super::state::Shared;
use super::Refusals;
use super::query::Query;
use crate::operation::OperationId;
use crate::store::Change;

/// How long a page waits for changes that are being committed.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(25);

/// A page of the feed, oldest first.
#[derive(Serialize, ToSchema)]
#[schema(as = EventPage)]
pub(super) struct Page<'a> {
    items: Vec<Event<'a>>,
    /// What `after` is for the next page, also where this one is empty.
    next_cursor: String,
}

/// A state change.
#[derive(Serialize, ToSchema)]
pub(super) struct Event<'a> {
    cursor: String,
    #[schema(value_type = String)]
    operation_id: OperationId,
    source: &'a str,
    crm: &'a str,
    /// The version that the change made.
    version: i64,
    /// The state before; null for the first.
    from: Option<&'a str>,
    to: &'a str,
    reason: Option<&'a str>,
    event: &'a str,
    at: String,
}

impl<'a> Event<'a> {
    fn of(change: &'a Change) -> Self {
        Self {
            cursor: change.seq.to_string(),
            operation_id: change.operation_id,
            source: &change.source,
            crm: &change.destination,
            version: change.version,
            from: change.from.as_deref(),
            to: &change.to,
            reason: change.reason.as_deref(),
            event: &change.event,
            at: change.at.rfc3339(),
        }
    }
}

/// State changes after a place in the feed. An empty page means: nothing new, ask again with the same cursor.
#[utoipa::path(get, path = "/v1/admin/events", operation_id = "read_events", tag = "logs",
    params(("after" = Option<String>, Query, description = "The next_cursor of the page before; the beginning where it is left out."),
           ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "Items of the page (50).")),
    responses((status = 200, description = "A page.", body = Page), Refusals))]
pub(super) async fn handle(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let mut query = Query::read(request.query_string(), &["after", "limit"])?;
    let limit = query.limit()?;
    let after = query.parsed("after", "the next_cursor of the page before", |text| {
        text.parse::<i64>().ok().filter(|after| *after >= 0)
    })?;
    let after = after.unwrap_or(0);
    let horizon = shared.store.horizon().await?;
    let mut changes = None;
    for _ in 0..TRIES {
        changes = shared.store.changes(after, horizon, limit).await?;
        if changes.is_some() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    let changes = changes.unwrap_or_default();
    let next_cursor = changes.last().map_or(after, |change| change.seq).to_string();
    Ok(HttpResponse::Ok().json(Page { items: changes.iter().map(Event::of).collect(), next_cursor }))
}

//! `GET /v1/admin/deliveries`: what came and made no operation, with the reason.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::super::problem::Problem;
use super::super::state::Shared;
use super::Refusals;
use super::detail::DeliveryView;
use super::query::Query;
use crate::operation::SourceName;
use crate::store::{DeliveryFilter, StoredDelivery, Verdict};

/// A page of deliveries, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = DeliveryPage)]
pub(super) struct Page<'a> {
    items: Vec<Ownerless<'a>>,
    next_cursor: Option<String>,
}

/// A delivery that made no operation.
#[derive(Serialize, ToSchema)]
pub(super) struct Ownerless<'a> {
    #[schema(value_type = String)]
    source: &'a SourceName,
    #[serde(flatten)]
    delivery: DeliveryView<'a>,
}

/// Deliveries that made no operation: refused at the door, test calls, spam, and what is no lead.
#[utoipa::path(get, path = "/v1/admin/deliveries", operation_id = "list_deliveries", tag = "logs",
    params(("verdict" = Option<Verdict>, Query, description = "One of rejected, test, spam, ignored."),
           ("source" = Option<String>, Query, description = "Only of this source."),
           ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "Items of the page (50)."),
           ("cursor" = Option<String>, Query, description = "The next_cursor of the page before.")),
    responses((status = 200, description = "A page.", body = Page), Refusals))]
pub(super) async fn handle(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let filter = filter(request.query_string())?;
    let limit = filter.limit;
    let found = shared.store.ownerless(DeliveryFilter { limit: limit.saturating_add(1), ..filter }).await?;
    Ok(HttpResponse::Ok().json(page(&found, limit)))
}

fn page(found: &[StoredDelivery], limit: usize) -> Page<'_> {
    let shown = found.get(..limit).unwrap_or(found);
    let next_cursor = shown.last().filter(|_| found.len() > shown.len()).map(|last| last.id.to_string());
    let items = shown.iter().map(|stored| Ownerless { source: &stored.source, delivery: DeliveryView::of(stored) });
    Page { items: items.collect(), next_cursor }
}

/// Reads the query string.
pub(super) fn filter(query: &str) -> Result<DeliveryFilter, Problem> {
    let mut query = Query::read(query, &["verdict", "source", "limit", "cursor"])?;
    let verdicts = [Verdict::Rejected, Verdict::Test, Verdict::Spam, Verdict::Ignored];
    Ok(DeliveryFilter {
        verdict: query.one_of("verdict", &verdicts, |verdict| verdict.as_str())?,
        source: query.text("source"),
        limit: query.limit()?,
        after: query.cursor(|text| Uuid::try_parse(text).ok())?,
    })
}

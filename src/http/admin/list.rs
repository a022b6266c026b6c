//! `GET /v1/admin/operations`: a page of operations, newest first.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::problem::Problem;
use super::super::state::Shared;
use super::super::view::OperationView;
use super::Refusals;
use super::query::Query;
use crate::operation::{FailReason, Operation, OperationId, ReviewReason, State};
use crate::store::Filter;

/// The members of a filter, in a query string and in a bulk decision.
pub(super) const FILTERS: [&str; 7] =
    ["status", "source", "destination", "reason", "q", "received_after", "received_before"];

/// A page of operations.
#[derive(Serialize, ToSchema)]
#[schema(as = OperationPage)]
pub(super) struct Page<'a> {
    items: Vec<OperationView<'a>>,
    /// Where to go on. A page may be short, or empty, and name it: the store was looked through so far.
    next_cursor: Option<String>,
}

/// So many operations are looked at for one page. A rare destination among a million leads is found in a hundred short steps
/// rather than in one that holds everybody up.
const LOOKED_AT: usize = 10_000;

impl<'a> Page<'a> {
    /// The first `limit` of the operations; where there are more, or may be more `further` on, the cursor of the next page.
    pub(super) fn of(operations: &'a [Operation], limit: usize, further: Option<OperationId>) -> Self {
        let shown = operations.get(..limit).unwrap_or(operations);
        let more = operations.len() > shown.len();
        let next = shown.last().filter(|_| more).map(|last| last.id).or(further);
        let next_cursor = next.map(|id| id.to_string());
        Self { items: shown.iter().map(OperationView::from).collect(), next_cursor }
    }
}

/// Operations, filtered, page by page.
#[utoipa::path(get, path = "/v1/admin/operations", operation_id = "list_operations", tag = "operations",
    params(("status" = Option<State>, Query, description = "Only in this state."),
           ("source" = Option<String>, Query, description = "Only of this source."),
           ("destination" = Option<String>, Query, description = "Only for this destination."),
           ("reason" = Option<String>, Query, description = "Only with this reason (of a review, or of a failure)."),
           ("q" = Option<String>, Query, description = "An operation_id, source_key or crm_id, whole."),
           ("received_after" = Option<String>, Query, description = "Received at or after that time (RFC 3339)."),
           ("received_before" = Option<String>, Query, description = "Received before that time (RFC 3339)."),
           ("order" = Option<Order>, Query, description = "Newest first, unless it says otherwise."),
           ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "Items of the page (50)."),
           ("cursor" = Option<String>, Query, description = "The next_cursor of the page before.")),
    responses((status = 200, description = "A page.", body = Page), Refusals))]
pub(super) async fn handle(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let mut filter = filter(request.query_string())?;
    let limit = filter.limit;
    // One more than shown tells whether there is another page.
    filter.limit = limit.saturating_add(1);
    let (operations, further) = shared.store.page(filter, LOOKED_AT).await?;
    Ok(HttpResponse::Ok().json(Page::of(&operations, limit, further)))
}

/// The order of a list.
#[derive(Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum Order {
    Newest,
    Oldest,
}

/// Reads the query string.
pub(super) fn filter(query: &str) -> Result<Filter, Problem> {
    let mut query = Query::read(query, &[&FILTERS[..], &["order", "limit", "cursor"]].concat())?;
    let order = |order: &Order| if *order == Order::Newest { "newest" } else { "oldest" };
    Ok(Filter {
        limit: query.limit()?,
        after: query.cursor(|text| text.parse().ok())?,
        oldest_first: query.one_of("order", &[Order::Newest, Order::Oldest], order)? == Some(Order::Oldest),
        ..narrowed(&mut query)?
    })
}

/// Reads the members of a filter.
pub(super) fn narrowed(query: &mut Query) -> Result<Filter, Problem> {
    let reasons = ReviewReason::ALL.map(ReviewReason::as_str).into_iter();
    let reasons: Vec<&'static str> = reasons.chain(FailReason::ALL.map(FailReason::as_str)).collect();
    Ok(Filter {
        state: query.one_of("status", &State::ALL, |state| state.as_str())?,
        source: query.text("source"),
        destination: query.text("destination"),
        reason: query.one_of("reason", &reasons, |reason| reason)?.map(str::to_owned),
        q: query.text("q"),
        received_after: query.time("received_after")?,
        received_before: query.time("received_before")?,
        ..Filter::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::view::samples;
    use super::*;
    use crate::clock::At;

    #[test]
    fn every_filter_of_the_contract_is_read() {
        let read = filter(
            "status=needs_review&source=site&destination=bitrix&reason=payload_conflict&q=%20a1b2&limit=7\
             &received_after=2026-12-01T10:00:00Z&received_before=2026-12-02T00:00:00%2B03:00&order=oldest\
             &cursor=0198c0de-0000-7000-8000-000000000001",
        )
        .expect("a filter");
        assert_eq!(read.state, Some(State::NeedsReview));
        assert_eq!(read.source.as_deref(), Some("site"));
        assert_eq!(read.destination.as_deref(), Some("bitrix"));
        assert_eq!(read.reason.as_deref(), Some("payload_conflict"));
        assert_eq!(read.q.as_deref(), Some("a1b2"));
        assert_eq!(read.limit, 7);
        assert_eq!(read.received_after.map(At::rfc3339).as_deref(), Some("2026-12-01T10:00:00.000Z"));
        assert_eq!(read.received_before.map(At::rfc3339).as_deref(), Some("2026-12-01T21:00:00.000Z"));
        assert!(read.after.is_some() && read.oldest_first);
    }

    #[test]
    fn a_filter_that_is_not_understood_is_refused_not_left_out() {
        for query in [
            "status=done",
            "reason=because",
            "limit=0",
            "limit=201",
            "limit=ten",
            "cursor=1",
            "order=random",
            "received_after=yesterday",
            "state=received",
            "source=a&source=b",
        ] {
            assert_eq!(filter(query).map_err(|problem| problem.status()).err(), Some(400), "{query}");
        }
        assert_eq!(filter("status=&q=").map(|filter| (filter.state, filter.q)).ok(), Some((None, None)));
    }

    #[test]
    fn a_page_names_the_next_only_where_there_is_one() {
        let operations = [samples::received(), samples::completed(), samples::received()];
        let page = serde_json::to_value(Page::of(&operations, 2, None)).expect("json");
        assert_eq!(page["items"].as_array().map(Vec::len), Some(2));
        assert_eq!(page["next_cursor"], samples::received().id.to_string());
        assert!(Page::of(&operations, 3, None).next_cursor.is_none());
        assert!(Page::of(&[], 3, None).next_cursor.is_none());
        let further = samples::completed().id;
        assert_eq!(Page::of(&[], 3, Some(further)).next_cursor, Some(further.to_string()));
    }
}

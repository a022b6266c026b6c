//! `GET /v1/admin/operations`: a page of operations, newest first.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;

use super::super::problem::{Kind, Problem};
use super::super::state::Shared;
use super::super::view::OperationView;
use crate::clock::At;
use crate::operation::{FailReason, Operation, ReviewReason, State};
use crate::store::Filter;

const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 200;

/// A page.
#[derive(Serialize)]
pub(super) struct Page<'a> {
    items: Vec<OperationView<'a>>,
    next_cursor: Option<String>,
}

impl<'a> Page<'a> {
    /// The first `limit` of the operations; where there are more, the cursor of the next page.
    pub(super) fn of(operations: &'a [Operation], limit: usize) -> Self {
        let shown = operations.get(..limit).unwrap_or(operations);
        let more = operations.len() > shown.len();
        let next_cursor = shown.last().filter(|_| more).map(|last| last.id.to_string());
        Self { items: shown.iter().map(OperationView::from).collect(), next_cursor }
    }
}

/// The handler.
pub(super) async fn handle(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let mut filter = filter(request.query_string())?;
    let limit = filter.limit;
    // One more than shown tells whether there is another page.
    filter.limit = limit.saturating_add(1);
    let operations = shared.store.list(filter).await?;
    Ok(HttpResponse::Ok().json(Page::of(&operations, limit)))
}

/// Reads the query string; what it does not know it refuses, because a filter that is silently left out shows too much.
fn filter(query: &str) -> Result<Filter, Problem> {
    let bad = |detail: String| Problem::new(Kind::BadRequest, detail);
    let time = |name: &str, value: &str| {
        let at = At::parse_rfc3339(value);
        at.ok_or_else(|| bad(format!("{name} is a time like 2026-12-01T10:00:00Z")))
    };
    let mut filter = Filter { limit: DEFAULT_LIMIT, ..Filter::default() };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        // An empty field of a search form asks for nothing.
        if value.is_empty() {
            continue;
        }
        match &*name {
            "status" => filter.state = Some(state(&value).map_err(bad)?),
            "source" => filter.source = Some(value.into_owned()),
            "destination" => filter.destination = Some(value.into_owned()),
            "reason" => filter.reason = Some(reason(&value).map_err(bad)?),
            "q" => filter.q = Some(value.trim().to_owned()),
            "received_after" => filter.received_after = Some(time("received_after", &value)?),
            "received_before" => filter.received_before = Some(time("received_before", &value)?),
            "limit" => filter.limit = limit(&value).map_err(bad)?,
            "cursor" => {
                let cursor = value.parse().map_err(|_| bad("cursor is the next_cursor of the page before".into()))?;
                filter.after = Some(cursor);
            }
            _ => {
                let known = "status, source, destination, reason, q, received_after, received_before, limit, cursor";
                return Err(bad(format!("the query knows {known}")));
            }
        }
    }
    Ok(filter)
}

fn state(value: &str) -> Result<State, String> {
    let names = State::ALL.map(State::as_str).join(", ");
    State::ALL.into_iter().find(|state| state.as_str() == value).ok_or_else(|| format!("status is one of {names}"))
}

fn reason(value: &str) -> Result<String, String> {
    let names = ReviewReason::ALL.map(ReviewReason::as_str).into_iter().chain(FailReason::ALL.map(FailReason::as_str));
    let names: Vec<&str> = names.collect();
    if names.contains(&value) { Ok(value.to_owned()) } else { Err(format!("reason is one of {}", names.join(", "))) }
}

fn limit(value: &str) -> Result<usize, String> {
    let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| format!("limit is a number from 1 to {MAX_LIMIT}"))
}

#[cfg(test)]
mod tests {
    use super::super::super::view::samples;
    use super::*;

    #[test]
    fn every_filter_of_the_contract_is_read() {
        let read = filter(
            "status=needs_review&source=site&destination=bitrix&reason=payload_conflict&q=%20a1b2&limit=7\
             &received_after=2026-12-01T10:00:00Z&received_before=2026-12-02T00:00:00%2B03:00\
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
        assert!(read.after.is_some());
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
            "received_after=yesterday",
            "state=received",
        ] {
            assert_eq!(filter(query).map_err(|problem| problem.status()).err(), Some(400), "{query}");
        }
        assert_eq!(filter("status=&q=").map(|filter| (filter.state, filter.q)).ok(), Some((None, None)));
    }

    #[test]
    fn a_page_names_the_next_only_where_there_is_one() {
        let operations = [samples::received(), samples::completed(), samples::received()];
        let page = serde_json::to_value(Page::of(&operations, 2)).expect("json");
        assert_eq!(page["items"].as_array().map(Vec::len), Some(2));
        assert_eq!(page["next_cursor"], samples::received().id.to_string());
        assert!(Page::of(&operations, 3).next_cursor.is_none());
        assert!(Page::of(&[], 3).next_cursor.is_none());
    }
}

//! `GET /v1/admin/audit`: who did what, when, from, to, and why.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::problem::Problem;
use super::super::state::Shared;
use super::Refusals;
use super::query::Query;
use crate::operation::OperationId;
use crate::store::{Audit, AuditFilter};

/// A page of the audit log, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditPage)]
pub(super) struct Page<'a> {
    items: Vec<Entry<'a>>,
    next_cursor: Option<String>,
}

/// An entry of the audit log.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(super) struct Entry<'a> {
    actor: &'a str,
    at: String,
    action: &'a str,
    #[schema(value_type = Option<String>)]
    operation_id: Option<OperationId>,
    /// On what else: a destination, a person, a token, an address.
    subject: Option<&'a str>,
    from: Option<&'a str>,
    to: Option<&'a str>,
    note: Option<&'a str>,
}

impl<'a> Entry<'a> {
    pub(super) fn of(audit: &'a Audit) -> Self {
        Self {
            actor: &audit.actor,
            at: audit.at.rfc3339(),
            action: &audit.action,
            operation_id: audit.operation_id,
            subject: audit.subject.as_deref(),
            from: audit.from.as_deref(),
            to: audit.to.as_deref(),
            note: audit.note.as_deref(),
        }
    }
}

/// Who did what.
#[utoipa::path(get, path = "/v1/admin/audit", operation_id = "list_audit", tag = "logs",
    params(("actor" = Option<String>, Query, description = "Only of this person or program."),
           ("action" = Option<String>, Query, description = "Only this action."),
           ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "Items of the page (50)."),
           ("cursor" = Option<String>, Query, description = "The next_cursor of the page before.")),
    responses((status = 200, description = "A page.", body = Page), Refusals))]
pub(super) async fn handle(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let filter = filter(request.query_string())?;
    let limit = filter.limit;
    let found = shared.store.audit_log(AuditFilter { limit: limit.saturating_add(1), ..filter }).await?;
    let shown = found.get(..limit).unwrap_or(&found);
    let next_cursor = shown.last().filter(|_| found.len() > shown.len()).map(|(place, _)| place.to_string());
    Ok(HttpResponse::Ok().json(Page { items: shown.iter().map(|(_, audit)| Entry::of(audit)).collect(), next_cursor }))
}

/// Reads the query string.
pub(super) fn filter(query: &str) -> Result<AuditFilter, Problem> {
    let mut query = Query::read(query, &["actor", "action", "limit", "cursor"])?;
    Ok(AuditFilter {
        actor: query.text("actor"),
        action: query.text("action"),
        limit: query.limit()?,
        after: query.cursor(|text| text.parse().ok())?,
    })
}

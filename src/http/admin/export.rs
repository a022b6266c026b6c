//! Lists as CSV: `GET /v1/admin/operations.csv`, `deliveries.csv`, `audit.csv`, `people.csv`, `tokens.csv`, with the filters of the lists.
//!
//! UTF-8 with a byte order mark, so that Excel shows every letter; CRLF and quotes by RFC 4180. What a spreadsheet would take for a
//! formula is written as text, with an apostrophe before it. Phones are `tel:` URIs (RFC 3966), `tel:+79161234567`: readable, no
//! formula, no number, and read by whatever imports them.

use std::collections::VecDeque;

use actix_web::http::header;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::stream;

use super::super::problem::Problem;
use super::super::state::Shared;
use super::{Refusals, audit, deliveries, list};
use crate::clock::At;
use crate::operation::{Lead, Operation};
use crate::store::{Audit, AuditFilter, DeliveryFilter, Filter, Person, Role, StoredDelivery, Token};

/// Rows that are read at once.
const PAGE: usize = 200;

const OPERATIONS: [&str; 20] = [
    "operation_id",
    "received_at",
    "source",
    "source_key",
    "status",
    "reason",
    "crm",
    "crm_id",
    "link",
    "attempts",
    "last_error",
    "name",
    "phones",
    "emails",
    "message",
    "page",
    "utm_source",
    "utm_medium",
    "utm_campaign",
    "fields",
];
const DELIVERIES: [&str; 7] = ["delivery_id", "received_at", "source", "verdict", "note", "method", "body_size"];
const AUDIT: [&str; 8] = ["at", "actor", "action", "operation_id", "subject", "from", "to", "note"];
const PEOPLE: [&str; 5] = ["name", "role", "created_at", "last_used_at", "disabled_at"];
const TOKENS: [&str; 5] = ["name", "role", "created_at", "last_used_at", "revoked_at"];

/// Operations with their leads, as CSV.
#[utoipa::path(get, path = "/v1/admin/operations.csv", operation_id = "export_operations", tag = "operations",
    params(("status" = Option<crate::operation::State>, Query), ("source" = Option<String>, Query),
           ("destination" = Option<String>, Query), ("reason" = Option<String>, Query), ("q" = Option<String>, Query),
           ("received_after" = Option<String>, Query), ("received_before" = Option<String>, Query),
           ("order" = Option<list::Order>, Query), ("limit" = Option<u16>, Query, minimum = 1, maximum = 200),
           ("cursor" = Option<String>, Query)),
    responses((status = 200, description = "The whole list; limit and cursor are not heeded.", content_type = "text/csv",
               body = String), Refusals))]
pub(super) async fn operations(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let filter = Filter { limit: PAGE, after: None, ..list::filter(request.query_string())? };
    let pages = move |shared: web::Data<Shared>, after: Option<Operation>| {
        let filter = Filter { after: after.map(|last| last.id), ..filter.clone() };
        async move {
            let page = shared.store.list(filter).await?;
            let mut rows = Vec::with_capacity(page.len());
            for operation in &page {
                rows.push(operation_row(&shared, operation).await?);
            }
            Ok(Page { rows, more: (page.len() == PAGE).then(|| page.into_iter().next_back()).flatten() })
        }
    };
    stream("operations", &OPERATIONS, shared, pages).await
}

/// Deliveries that made no operation, as CSV.
#[utoipa::path(get, path = "/v1/admin/deliveries.csv", operation_id = "export_deliveries", tag = "logs",
    params(("verdict" = Option<crate::store::Verdict>, Query), ("source" = Option<String>, Query),
           ("limit" = Option<u16>, Query, minimum = 1, maximum = 200), ("cursor" = Option<String>, Query)),
    responses((status = 200, description = "The whole list; limit and cursor are not heeded.", content_type = "text/csv",
               body = String), Refusals))]
pub(super) async fn deliveries(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let filter = DeliveryFilter { limit: PAGE, after: None, ..deliveries::filter(request.query_string())? };
    let pages = move |shared: web::Data<Shared>, after: Option<StoredDelivery>| {
        let filter = DeliveryFilter { after: after.map(|last| last.id), ..filter.clone() };
        async move {
            let page = shared.store.ownerless(filter).await?;
            let rows = page.iter().map(delivery_row).collect();
            Ok(Page { rows, more: (page.len() == PAGE).then(|| page.into_iter().next_back()).flatten() })
        }
    };
    stream("deliveries", &DELIVERIES, shared, pages).await
}

/// The audit log, as CSV.
#[utoipa::path(get, path = "/v1/admin/audit.csv", operation_id = "export_audit", tag = "logs",
    params(("actor" = Option<String>, Query), ("action" = Option<String>, Query),
           ("limit" = Option<u16>, Query, minimum = 1, maximum = 200), ("cursor" = Option<String>, Query)),
    responses((status = 200, description = "The whole log; limit and cursor are not heeded.", content_type = "text/csv",
               body = String), Refusals))]
pub(super) async fn audit_log(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let filter = AuditFilter { limit: PAGE, after: None, ..audit::filter(request.query_string())? };
    let pages = move |shared: web::Data<Shared>, after: Option<i64>| {
        let filter = AuditFilter { after, ..filter.clone() };
        async move {
            let page = shared.store.audit_log(filter).await?;
            let rows = page.iter().map(|(_, audit)| audit_row(audit)).collect();
            Ok(Page { rows, more: page.last().filter(|_| page.len() == PAGE).map(|(place, _)| *place) })
        }
    };
    stream("audit", &AUDIT, shared, pages).await
}

/// The people who may sign in, as CSV.
#[utoipa::path(get, path = "/v1/admin/people.csv", operation_id = "export_people", tag = "people",
    responses((status = 200, description = "All people.", content_type = "text/csv", body = String), Refusals))]
pub(super) async fn people(shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let pages = |shared: web::Data<Shared>, _: Option<()>| async move {
        let people = shared.store.people().await?.into_iter();
        let row = |of: Person| holder_row(of.name, of.role, of.created_at, [of.last_used_at, of.disabled_at]);
        Ok(Page { rows: people.map(row).collect(), more: None })
    };
    stream("people", &PEOPLE, shared, pages).await
}

/// All tokens, without their secrets, as CSV.
#[utoipa::path(get, path = "/v1/admin/tokens.csv", operation_id = "export_tokens", tag = "people",
    responses((status = 200, description = "All tokens.", content_type = "text/csv", body = String), Refusals))]
pub(super) async fn tokens(shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let pages = |shared: web::Data<Shared>, _: Option<()>| async move {
        let tokens = shared.store.tokens().await?.into_iter();
        let row = |of: Token| holder_row(of.name, of.role, of.created_at, [of.last_used_at, of.revoked_at]);
        Ok(Page { rows: tokens.map(row).collect(), more: None })
    };
    stream("tokens", &TOKENS, shared, pages).await
}

/// Rows, and where the next page begins if there is one.
struct Page<C> {
    rows: Vec<Vec<String>>,
    more: Option<C>,
}

/// The first page is read before the answer begins, so that what is wrong is told as a problem; where a later one cannot be read
/// the connection breaks off, and nobody takes the part for the whole.
async fn stream<C: 'static, F, P>(
    name: &str,
    columns: &[&str],
    shared: web::Data<Shared>,
    pages: P,
) -> Result<HttpResponse, Problem>
where
    F: Future<Output = Result<Page<C>, Problem>> + 'static,
    P: Fn(web::Data<Shared>, Option<C>) -> F + 'static,
{
    let first = pages(shared.clone(), None).await?;
    let mut head = "\u{feff}".as_bytes().to_vec();
    head.extend(lines(&[columns.iter().map(|column| (*column).to_owned()).collect()]));
    head.extend(lines(&first.rows));
    let at = shared.clock.now().rfc3339();
    let day = at.get(..10).unwrap_or_default();
    let ready = VecDeque::from([Bytes::from(head)]);
    let body = stream::unfold((ready, first.more, shared, pages), |(mut ready, more, shared, pages)| async move {
        if let Some(bytes) = ready.pop_front() {
            return Some((Ok::<_, Problem>(bytes), (ready, more, shared, pages)));
        }
        let after = more?;
        match pages(shared.clone(), Some(after)).await {
            Ok(page) => Some((Ok(Bytes::from(lines(&page.rows))), (ready, page.more, shared, pages))),
            Err(problem) => Some((Err(problem), (ready, None, shared, pages))),
        }
    });
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/csv; charset=utf-8"))
        .insert_header((header::CONTENT_DISPOSITION, format!("attachment; filename=\"leadonce-{name}-{day}.csv\"")))
        .streaming(body))
}

fn lines(rows: &[Vec<String>]) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    for row in rows {
        // Writing to memory does not fail.
        let _ = writer.write_record(row.iter().map(|cell| text(cell)));
    }
    writer.into_inner().unwrap_or_default()
}

/// The cell as text: what would begin a formula, in any width of its sign, gets an apostrophe.
fn text(cell: &str) -> String {
    let begins = cell.trim_start_matches([' ', '\u{a0}', '\u{3000}', '\u{feff}']).chars().next();
    let formula = matches!(begins, Some('=' | '+' | '-' | '@' | '\t' | '\r' | '\n' | '＝' | '＋' | '－' | '＠' | '−'));
    if formula { format!("'{cell}") } else { cell.to_owned() }
}

async fn operation_row(shared: &Shared, operation: &Operation) -> Result<Vec<String>, Problem> {
    let work = shared.store.work_of(operation).await?;
    let lead = shared.desk.lead_of(operation, work.delivery.as_ref(), work.edited_lead.as_ref()).unwrap_or_default();
    let link = operation.crm_id.as_ref().and_then(|id| shared.desk.link(&operation.destination, id));
    let key = operation.source_key.as_ref().map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned());
    let Lead { name, phones, emails, message, utm, page, fields, .. } = lead;
    let phones = phones.into_iter().map(|phone| match phone.normal {
        Some(normal) => format!("tel:{normal}"),
        None => phone.text,
    });
    let fields = fields.into_iter().map(|(name, value)| format!("{name}: {value}"));
    let or_empty = Option::unwrap_or_default;
    Ok(vec![
        operation.id.to_string(),
        operation.received_at.rfc3339(),
        operation.source.as_str().to_owned(),
        or_empty(key),
        operation.state().as_str().to_owned(),
        operation.status.reason().unwrap_or_default().to_owned(),
        operation.destination.as_str().to_owned(),
        operation.crm_id.as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default(),
        or_empty(link),
        operation.attempts.to_string(),
        operation.last_error.clone().unwrap_or_default(),
        or_empty(name),
        phones.collect::<Vec<_>>().join(", "),
        emails.into_iter().map(|email| email.text).collect::<Vec<_>>().join(", "),
        or_empty(message),
        or_empty(page),
        or_empty(utm.source),
        or_empty(utm.medium),
        or_empty(utm.campaign),
        fields.collect::<Vec<_>>().join("\n"),
    ])
}

fn delivery_row(delivery: &StoredDelivery) -> Vec<String> {
    vec![
        delivery.id.to_string(),
        delivery.received_at.rfc3339(),
        delivery.source.as_str().to_owned(),
        delivery.verdict.as_str().to_owned(),
        delivery.note.clone().unwrap_or_default(),
        delivery.method.clone(),
        delivery.body.as_ref().map(|body| body.len().to_string()).unwrap_or_default(),
    ]
}

fn holder_row(name: String, role: Role, created_at: At, times: [Option<At>; 2]) -> Vec<String> {
    let times = times.map(|at| at.map(At::rfc3339).unwrap_or_default());
    [name, role.as_str().to_owned(), created_at.rfc3339()].into_iter().chain(times).collect()
}

fn audit_row(audit: &Audit) -> Vec<String> {
    let or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
    vec![
        audit.at.rfc3339(),
        audit.actor.clone(),
        audit.action.clone(),
        audit.operation_id.map(|id| id.to_string()).unwrap_or_default(),
        or_empty(&audit.subject),
        or_empty(&audit.from),
        or_empty(&audit.to),
        or_empty(&audit.note),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(row: &[&str]) -> String {
        String::from_utf8(lines(&[row.iter().map(|cell| (*cell).to_owned()).collect()])).expect("UTF-8")
    }

    #[test]
    fn c68_what_a_spreadsheet_would_run_is_text_and_the_rest_is_as_it_was() {
        for formula in ["=cmd|' /C calc'!A0", "+1+1", "-2", "@SUM(1)", "\t=1", "\r=1", "＝1", " =1", "−1"] {
            let line = cells(&[formula]);
            assert!(line.trim_start_matches('"').starts_with('\''), "{line:?}");
            assert!(line.contains(&formula.replace('"', "\"\"")), "{line:?}");
        }
        assert_eq!(cells(&["Анна", "tel:+79161234567", "a=b", "1-2"]), "Анна,tel:+79161234567,a=b,1-2\r\n");
    }

    #[test]
    fn c68_quotes_and_line_breaks_stay_inside_their_cell() {
        assert_eq!(cells(&["say \"hi\"", "a,b", "one\ntwo"]), "\"say \"\"hi\"\"\",\"a,b\",\"one\ntwo\"\r\n");
    }
}

//! `POST /v1/admin/operations/resolve`: one decision for many operations. Each is decided by itself, as if it were alone, on the
//! version that was looked at; the answer says for each what became of it.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::desk::Action;
use super::super::problem::{Kind, Problem};
use super::super::state::Shared;
use super::super::{auth, json};
use super::query::Query;
use super::{Refusals, list, written};
use crate::operation::{CrmId, Operation, OperationId, State};
use crate::store::Filter;

const USAGE: &str = "{\"action\":\"retry|reject|complete\",\"note\":\"…\",\"items\":[{\"id\":\"…\",\"version\":4}]} or, in place of \
                     items, \"filter\":{\"status\":\"needs_review\",…} with the \"count\" that \"preview\":true showed";
/// Operations of one call at most; more is a filter too wide to have been looked at.
const MOST: usize = 1_000;
const LONGEST_NOTE: usize = 2_000;

/// One decision for many operations.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BulkDecision)]
pub(super) struct Bulk {
    action: Verb,
    /// Why; reject needs it.
    #[schema(max_length = 2000)]
    note: Option<String>,
    /// The operations, each at the version that was looked at.
    #[schema(max_items = 1000)]
    items: Option<Vec<Item>>,
    /// Instead of items: every operation that matches.
    filter: Option<WantedFilter>,
    /// How many matched in the preview; another number is refused.
    #[schema(minimum = 0, maximum = 1000)]
    count: Option<usize>,
    /// Only says what would happen.
    #[serde(default)]
    preview: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verb {
    Complete,
    Retry,
    Reject,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BulkItem)]
pub(super) struct Item {
    #[schema(value_type = uuid::Uuid)]
    id: OperationId,
    version: i64,
    /// For complete: the entity.
    crm_id: Option<String>,
}

/// The filters of the list.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OperationFilter)]
pub(super) struct WantedFilter {
    status: Option<String>,
    source: Option<String>,
    destination: Option<String>,
    reason: Option<String>,
    q: Option<String>,
    received_after: Option<String>,
    received_before: Option<String>,
}

/// What became of each.
#[derive(Serialize, ToSchema)]
pub(super) struct Decided {
    /// How many operations the decision was for.
    count: usize,
    /// How many it was carried out on (in a preview: would be).
    done: usize,
    items: Vec<DecidedItem>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct DecidedItem {
    #[schema(value_type = uuid::Uuid)]
    operation_id: OperationId,
    /// The version after it, or the present one.
    version: Option<i64>,
    /// 200, or the status that the same decision alone would have been answered with.
    status: u16,
    /// The state after it; in a preview the state before.
    state: Option<State>,
    /// Why it was not carried out.
    problem: Option<String>,
}

/// Decides many operations at once.
#[utoipa::path(post, path = "/v1/admin/operations/resolve", operation_id = "resolve_many", tag = "operations",
    request_body = Bulk,
    responses((status = 200, description = "What became of each.", body = Decided),
              (status = 409, description = "The filter matches another number than the preview showed.",
               body = written::ProblemDocument, content_type = "application/problem+json"), Refusals))]
pub(super) async fn handle(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Problem> {
    let actor = auth::actor(&request)?;
    let bulk: Bulk = json::read(payload, &shared, USAGE).await?;
    let (action, note) = bulk.decision()?;
    let wanted = match (bulk.items, bulk.filter) {
        (Some(items), None) if items.len() <= MOST => items,
        (None, Some(filter)) => matching(&shared, filter, bulk.count, bulk.preview).await?,
        (Some(_), None) => return Err(too_many()),
        _ => return Err(bad("name the operations by items or by filter")),
    };
    let mut decided = Decided { count: wanted.len(), done: 0, items: Vec::with_capacity(wanted.len()) };
    for item in wanted {
        let outcome = if bulk.preview {
            preview(&shared, &item, action).await?
        } else {
            carry_out(&shared, &item, action, note.clone(), &actor.name).await
        };
        decided.done += usize::from(outcome.status == 200);
        decided.items.push(outcome);
    }
    Ok(HttpResponse::Ok().json(decided))
}

impl Bulk {
    fn decision(&self) -> Result<(Verb, Option<String>), Problem> {
        let note = self.note.as_ref().map(|note| note.trim().to_owned()).filter(|note| !note.is_empty());
        if note.as_ref().is_some_and(|note| note.chars().count() > LONGEST_NOTE) {
            return Err(bad("the note is longer than 2000 characters"));
        }
        if self.action == Verb::Reject && note.is_none() {
            return Err(bad("reject needs a note that says why"));
        }
        let named = self.items.iter().flatten().filter(|item| item.crm_id.is_some()).count();
        if self.action == Verb::Complete && (self.items.is_none() || named < self.items.iter().flatten().count()) {
            return Err(bad("complete needs items, each with the crm_id of its entity"));
        }
        if self.action != Verb::Complete && named > 0 {
            return Err(bad("only complete takes a crm_id"));
        }
        Ok((self.action, note))
    }
}

/// The operations that match, where they are as many as the preview showed.
async fn matching(
    shared: &Shared,
    filter: WantedFilter,
    count: Option<usize>,
    preview: bool,
) -> Result<Vec<Item>, Problem> {
    let filter = Filter { limit: MOST + 1, ..filter.read()? };
    let found = shared.store.list(filter).await?;
    if found.len() > MOST {
        return Err(too_many());
    }
    match count {
        Some(count) if count != found.len() && !preview => {
            let detail = format!("{} operations match now, {count} did; look at them again", found.len());
            return Err(Problem::new(Kind::CountMoved, detail).with("count", found.len()));
        }
        None if !preview => return Err(bad("a filter needs the count that the preview showed")),
        Some(_) | None => {}
    }
    let item = |operation: Operation| Item { id: operation.id, version: operation.version, crm_id: None };
    Ok(found.into_iter().map(item).collect())
}

impl WantedFilter {
    fn read(self) -> Result<Filter, Problem> {
        let members = [
            self.status,
            self.source,
            self.destination,
            self.reason,
            self.q,
            self.received_after,
            self.received_before,
        ];
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in list::FILTERS.into_iter().zip(members) {
            value.map(|value| query.append_pair(name, &value));
        }
        let filter = list::narrowed(&mut Query::read(&query.finish(), &list::FILTERS)?)?;
        if filter.state.is_none() && filter.reason.is_none() {
            return Err(bad("a filter for a decision names a status or a reason"));
        }
        Ok(filter)
    }
}

async fn preview(shared: &Shared, item: &Item, verb: Verb) -> Result<DecidedItem, Problem> {
    let Some(operation) = shared.store.operation(item.id).await? else {
        return Ok(item.refused(&super::unknown_operation()));
    };
    let name = match verb {
        Verb::Complete => "complete",
        Verb::Retry => "retry",
        Verb::Reject => "reject",
    };
    let refusal = shared.desk.choices(&operation).into_iter().find(|choice| choice.action == name);
    let problem = match refusal.and_then(|choice| choice.refusal) {
        _ if operation.version != item.version => Some((412, "somebody changed it in the meantime".to_owned())),
        Some(refusal) => Some((409, refusal)),
        None => None,
    };
    let (status, problem) = problem.map_or((200, None), |(status, problem)| (status, Some(problem)));
    let (version, state) = (Some(operation.version), Some(operation.state()));
    Ok(DecidedItem { operation_id: item.id, version, status, state, problem })
}

async fn carry_out(shared: &Shared, item: &Item, verb: Verb, note: Option<String>, actor: &str) -> DecidedItem {
    let action = match verb {
        Verb::Complete => match CrmId::try_from(item.crm_id.clone().unwrap_or_default()) {
            Ok(crm_id) => Action::Complete { crm_id, note },
            Err(invalid) => return item.refused(&bad(&invalid.to_string())),
        },
        Verb::Retry => Action::Retry { lead: None, note },
        Verb::Reject => Action::Reject { note: note.unwrap_or_default() },
    };
    match shared.desk.resolve(item.id, item.version, action, actor).await {
        Ok(after) => DecidedItem {
            operation_id: item.id,
            version: Some(after.version),
            status: 200,
            state: Some(after.state()),
            problem: None,
        },
        Err(unresolved) => item.refused(&Problem::from(unresolved)),
    }
}

impl Item {
    fn refused(&self, problem: &Problem) -> DecidedItem {
        DecidedItem {
            operation_id: self.id,
            version: None,
            status: problem.status(),
            state: None,
            problem: Some(problem.to_string()),
        }
    }
}

fn too_many() -> Problem {
    bad(&format!("one decision is for {MOST} operations at most; narrow the filter, or send them in parts"))
}

fn bad(detail: &str) -> Problem {
    Problem::new(Kind::BadRequest, format!("{detail}; send {USAGE}"))
}

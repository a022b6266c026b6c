//! `GET /v1/admin/operations/{id}`: everything about one operation.

use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::desk::Choice;
use super::super::problem::Problem;
use super::super::state::Shared;
use super::super::view::OperationView;
use super::Refusals;
use super::audit::Entry;
use crate::clock::At;
use crate::operation::id::hex;
use crate::operation::{CrmId, Lead, OperationId, Status};
use crate::store::{StoredAttempt, StoredDelivery, StoredTransition, Story, Verdict};

/// Of a longer body only the beginning is shown.
const SHOWN: usize = 64 * 1024;

/// Everything about one operation.
#[utoipa::path(get, path = "/v1/admin/operations/{id}", operation_id = "show_operation", tag = "operations",
    params(("id" = uuid::Uuid, Path, description = "The operation.")),
    responses((status = 200, description = "The operation, its lead and its story.", body = Detail), Refusals))]
pub(super) async fn handle(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let id = super::id_in_path(&request)?;
    let story = shared.store.story(id).await?.ok_or_else(super::unknown_operation)?;
    let operation = &story.operation;
    let first = story.deliveries.iter().find(|delivery| delivery.id == operation.delivery_id);
    let lead = shared.desk.lead_of(operation, first, story.edited_lead.as_ref());
    let related = same_contact(&shared, &story, lead.as_ref()).await?;
    let entity = |crm_id: &CrmId| Entity {
        link: shared.desk.link(&operation.destination, crm_id),
        crm_id: crm_id.as_str().to_owned(),
    };
    let others = operation.other_crm_ids.as_deref().into_iter().flat_map(|ids| ids.split(','));
    let others = others.filter_map(|id| CrmId::try_from(id.to_owned()).ok()).map(|id| entity(&id)).collect();
    let link = operation.crm_id.as_ref().and_then(|id| entity(id).link);
    let choices = shared.desk.choices(operation).into_iter().map(ChoiceView::from).collect();
    let detail = Detail::of(&story, lead, Around { link, others, choices, related });
    Ok(HttpResponse::Ok().insert_header(("etag", format!("\"{}\"", story.operation.version))).json(detail))
}

/// Other operations of the same key, and those that bear a phone or an e-mail address of this lead: a hint for people, never a
/// reason to merge (contract 1).
async fn same_contact(shared: &Shared, story: &Story, lead: Option<&Lead>) -> Result<Vec<OperationId>, Problem> {
    const MOST: usize = 20;
    let mut related = story.conflicts.clone();
    let contacts = lead.into_iter().flat_map(|lead| lead.phones.iter().chain(&lead.emails));
    for contact in contacts.filter_map(|contact| contact.normal.clone()) {
        for operation in shared.store.find_contact(contact, MOST).await? {
            if operation.id != story.operation.id && !related.contains(&operation.id) {
                related.push(operation.id);
            }
        }
    }
    related.truncate(MOST);
    Ok(related)
}

/// An operation with its lead and its story.
#[derive(Serialize, ToSchema)]
#[schema(as = OperationDetail)]
pub(super) struct Detail<'a> {
    #[serde(flatten)]
    operation: OperationView<'a>,
    /// Where people find the entity in the CRM.
    link: Option<String>,
    /// When the next attempt or look-up may start.
    next_at: Option<String>,
    /// The worker that holds it now.
    lease: Option<LeaseView<'a>>,
    /// Where the source_key came from.
    key_origin: &'static str,
    /// SHA-256 of the canonical content, in hex, and the rule it was computed by.
    payload_hash: String,
    hash_rule: &'a str,
    /// What is known of a second entity, or of several candidates.
    other_crm_ids: Vec<Entity>,
    /// What a person may do with it as it stands.
    choices: Vec<ChoiceView>,
    lead: Option<Lead>,
    /// Whether the lead is as an operator corrected it.
    lead_edited: bool,
    payload_erased_at: Option<String>,
    /// The first hundred.
    deliveries: Vec<DeliveryView<'a>>,
    attempt_log: Vec<Attempt<'a>>,
    transitions: Vec<Transition<'a>>,
    audit: Vec<Entry<'a>>,
    /// For a conflict: the first operation of the key.
    #[schema(value_type = Option<String>)]
    conflicts_with: Option<OperationId>,
    /// Operations of the same key, and those that bear a phone or an e-mail address of this lead.
    #[schema(value_type = Vec<String>)]
    related: Vec<OperationId>,
}

/// An entity of the CRM.
#[derive(Serialize, ToSchema)]
pub(super) struct Entity {
    crm_id: String,
    link: Option<String>,
}

/// A worker's time-limited right.
#[derive(Serialize, ToSchema)]
#[schema(as = Lease)]
pub(super) struct LeaseView<'a> {
    owner: &'a str,
    until: String,
}

/// An action, and why it is not possible now where it is not.
#[derive(Serialize, ToSchema)]
#[schema(as = Choice)]
pub(super) struct ChoiceView {
    action: &'static str,
    refusal: Option<String>,
    not_before: Option<String>,
}

impl From<Choice> for ChoiceView {
    fn from(choice: Choice) -> Self {
        Self { action: choice.action, refusal: choice.refusal, not_before: choice.not_before.map(At::rfc3339) }
    }
}

/// What belongs to an operation and lies outside its story.
struct Around {
    link: Option<String>,
    others: Vec<Entity>,
    choices: Vec<ChoiceView>,
    related: Vec<OperationId>,
}

impl<'a> Detail<'a> {
    fn of(story: &'a Story, lead: Option<Lead>, around: Around) -> Self {
        let operation = &story.operation;
        let next_at = match &operation.status {
            Status::Received { next_attempt_at: at, .. } | Status::Reconciling { next_lookup_at: at, .. } => Some(*at),
            Status::Claimed { .. }
            | Status::Calling { .. }
            | Status::Completed { .. }
            | Status::FailedTerminal { .. }
            | Status::NeedsReview { .. } => None,
        };
        Self {
            operation: operation.into(),
            link: around.link,
            next_at: next_at.map(At::rfc3339),
            lease: operation
                .status
                .lease()
                .map(|lease| LeaseView { owner: &lease.owner, until: lease.until.rfc3339() }),
            key_origin: operation.key_origin.as_str(),
            payload_hash: hex(operation.payload_hash.as_bytes()),
            hash_rule: operation.hash_rule.as_str(),
            other_crm_ids: around.others,
            choices: around.choices,
            lead,
            lead_edited: story.edited_lead.is_some(),
            payload_erased_at: operation.payload_erased_at.map(At::rfc3339),
            deliveries: story.deliveries.iter().map(DeliveryView::of).collect(),
            attempt_log: story.attempts.iter().map(Attempt::of).collect(),
            transitions: story.transitions.iter().map(Transition::of).collect(),
            audit: story.audit.iter().map(Entry::of).collect(),
            conflicts_with: operation.conflicts_with,
            related: around.related,
        }
    }
}

/// A delivery as it lies in the log.
#[derive(Serialize, ToSchema)]
#[schema(as = Delivery)]
pub(super) struct DeliveryView<'a> {
    id: uuid::Uuid,
    event_index: u16,
    verdict: Verdict,
    received_at: String,
    method: &'a str,
    #[schema(value_type = Vec<(String, String)>)]
    headers: &'a [(String, String)],
    body: Option<String>,
    body_encoding: &'static str,
    body_truncated: bool,
    body_size: Option<usize>,
    body_sha256: String,
    note: Option<&'a str>,
}

impl<'a> DeliveryView<'a> {
    pub(super) fn of(stored: &'a StoredDelivery) -> Self {
        let body = stored.body.as_deref();
        let shown = body.map(|body| body.get(..SHOWN).unwrap_or(body));
        let text = shown.and_then(as_text);
        let body_encoding = if shown.is_some() && text.is_none() { "base64" } else { "utf-8" };
        Self {
            id: stored.id,
            event_index: stored.event_index,
            verdict: stored.verdict,
            received_at: stored.received_at.rfc3339(),
            method: &stored.method,
            headers: &stored.headers,
            body: text.map(str::to_owned).or_else(|| shown.map(|bytes| BASE64_STANDARD.encode(bytes))),
            body_encoding,
            body_truncated: body.is_some_and(|body| body.len() > SHOWN),
            body_size: body.map(<[u8]>::len),
            body_sha256: hex(&stored.body_sha256),
            note: stored.note.as_deref(),
        }
    }
}

/// The bytes as text; a letter that the cut of the shown part went through is left out.
fn as_text(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && bytes.len() == SHOWN => {
            bytes.get(..error.valid_up_to()).and_then(|whole| std::str::from_utf8(whole).ok())
        }
        Err(_) => None,
    }
}

/// A call to the CRM.
#[derive(Serialize, ToSchema)]
pub(super) struct Attempt<'a> {
    id: uuid::Uuid,
    call: &'a str,
    number: u32,
    step: u16,
    epoch: i64,
    licence: Option<&'a str>,
    started_at: String,
    ended_at: Option<String>,
    class: Option<&'a str>,
    status: Option<u16>,
    excerpt: Option<&'a str>,
    decision: Option<&'a str>,
    mapping_version: &'a str,
    request: Option<&'a str>,
}

impl<'a> Attempt<'a> {
    fn of(stored: &'a StoredAttempt) -> Self {
        Self {
            id: stored.id,
            call: &stored.call,
            number: stored.number,
            step: stored.step,
            epoch: stored.epoch,
            licence: stored.licence.as_deref(),
            started_at: stored.started_at.rfc3339(),
            ended_at: stored.ended_at.map(At::rfc3339),
            class: stored.class.as_deref(),
            status: stored.status,
            excerpt: stored.excerpt.as_deref(),
            decision: stored.decision.as_deref(),
            mapping_version: &stored.mapping_version,
            request: stored.request.as_deref(),
        }
    }
}

/// A state change.
#[derive(Serialize, ToSchema)]
pub(super) struct Transition<'a> {
    version: i64,
    from: Option<&'a str>,
    to: &'a str,
    reason: Option<&'a str>,
    event: &'a str,
    at: String,
}

impl<'a> Transition<'a> {
    fn of(stored: &'a StoredTransition) -> Self {
        Self {
            version: stored.version,
            from: stored.from.as_deref(),
            to: &stored.to,
            reason: stored.reason.as_deref(),
            event: &stored.event,
            at: stored.at.rfc3339(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::view::samples;
    use super::*;
    use crate::store::Audit;

    fn delivery(body: Option<Vec<u8>>) -> StoredDelivery {
        StoredDelivery {
            id: uuid::Uuid::nil(),
            event_index: 0,
            source: "site".parse().expect("a name"),
            operation_id: None,
            verdict: Verdict::New,
            received_at: At::from_seconds(1_796_119_200),
            method: "POST".into(),
            headers: vec![("content-type".into(), "application/json".into())],
            body,
            body_sha256: vec![0xab; 32],
            note: None,
        }
    }

    #[test]
    fn the_detail_has_the_status_body_and_the_members_of_the_contract() {
        let story = Story {
            operation: samples::completed(),
            deliveries: vec![delivery(Some(b"{}".to_vec()))],
            attempts: vec![],
            transitions: vec![],
            audit: vec![Audit {
                actor: "anna".into(),
                at: At::from_seconds(1_796_119_200),
                action: "complete".into(),
                operation_id: None,
                subject: None,
                from: Some("needs_review".into()),
                to: Some("completed".into()),
                note: None,
            }],
            edited_lead: None,
            conflicts: vec![],
        };
        let around = Around {
            link: Some("https://crm.example/4512".into()),
            others: Vec::new(),
            choices: Vec::new(),
            related: Vec::new(),
        };
        let detail = Detail::of(&story, Some(Lead::default()), around);
        let json = serde_json::to_value(detail).expect("json");
        for member in ["operation_id", "crm_id", "version", "lead", "deliveries", "attempt_log", "audit", "related"] {
            assert!(json.get(member).is_some_and(|value| !value.is_null()), "{member}");
        }
        assert_eq!(json.get("conflicts_with"), Some(&serde_json::Value::Null));
        assert_eq!(json["audit"][0]["at"], "2026-12-01T10:00:00.000Z");
        assert_eq!(json["deliveries"][0]["body"], "{}");
    }

    #[test]
    fn a_body_is_shown_as_text_where_it_is_text_and_else_in_base64() {
        let shown = |body: Vec<u8>| {
            let stored = delivery(Some(body));
            let view = DeliveryView::of(&stored);
            (view.body.unwrap_or_default().len(), view.body_encoding, view.body_truncated)
        };
        assert_eq!(shown("имя".into()), (6, "utf-8", false));
        assert_eq!(shown(vec![0xff, 0xfe]), (4, "base64", false));
        // The cut goes through a letter of two bytes.
        let long = format!("x{}", "я".repeat(SHOWN));
        assert_eq!(shown(long.into_bytes()), (SHOWN - 1, "utf-8", true));
    }

    #[test]
    fn an_erased_body_is_null() {
        let stored = delivery(None);
        assert!(DeliveryView::of(&stored).body.is_none());
    }
}

//! `POST /v1/admin/operations/{id}/resolve`: an operator's decision on the version that was looked at.

use actix_web::http::header::{self, HeaderMap};
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::desk::Action;
use super::super::problem::{Kind, Problem};
use super::super::state::Shared;
use super::super::view::OperationView;
use super::super::{auth, json};
use super::{Refusals, written};
use crate::operation::{CrmId, Lead};

const USAGE: &str = "{\"action\":\"complete\",\"crm_id\":\"4512\"}, {\"action\":\"retry\"} (with a corrected \"lead\" \
                     if needed) or {\"action\":\"reject\",\"note\":\"why\"}";
const LONGEST_NOTE: usize = 2_000;

/// The body. One flat shape: what belongs to which action is checked in [`Decision::action`].
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decision {
    /// complete, retry or reject
    action: String,
    /// For complete: the entity.
    crm_id: Option<String>,
    /// For retry: the lead as corrected.
    #[schema(value_type = Option<Lead>)]
    lead: Option<Box<Lead>>,
    /// Why; reject needs it.
    #[schema(max_length = 2000)]
    note: Option<String>,
}

/// Carries out a decision on the version that was looked at.
#[utoipa::path(post, path = "/v1/admin/operations/{id}/resolve", operation_id = "resolve_operation", tag = "operations",
    params(("id" = uuid::Uuid, Path, description = "The operation."),
           ("If-Match" = String, Header, description = "The version that was looked at, like \"4\".")),
    request_body = Decision,
    responses((status = 200, description = "The operation after it.", body = OperationView),
              (status = 409, description = "The state forbids it, or not yet; or the lead was erased.",
               body = written::ProblemDocument, content_type = "application/problem+json"),
              (status = 412, description = "Somebody changed it in the meantime.", body = written::ProblemDocument,
               content_type = "application/problem+json"),
              (status = 422, description = "The CRM does not have this entity.", body = written::ProblemDocument,
               content_type = "application/problem+json"),
              (status = 428, description = "If-Match is missing.", body = written::ProblemDocument,
               content_type = "application/problem+json"), Refusals))]
pub(super) async fn handle(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Problem> {
    let actor = auth::actor(&request)?;
    let id = super::id_in_path(&request)?;
    let version = version(request.headers()).map_err(|problem| problem.about(id))?;
    let decision: Decision = json::read(payload, &shared, USAGE).await?;
    let action = decision.action().map_err(|problem| problem.about(id))?;
    let resolved = shared.desk.resolve(id, version, action, &actor.name).await;
    let operation = resolved.map_err(|unresolved| Problem::from(unresolved).about(id))?;
    Ok(HttpResponse::Ok()
        .insert_header((header::ETAG, format!("\"{}\"", operation.version)))
        .json(OperationView::from(&operation)))
}

impl Decision {
    fn action(self) -> Result<Action, Problem> {
        let bad = |detail: &str| Problem::new(Kind::BadRequest, format!("{detail}; send {USAGE}"));
        let note = self.note.map(|note| note.trim().to_owned()).filter(|note| !note.is_empty());
        if note.as_ref().is_some_and(|note| note.chars().count() > LONGEST_NOTE) {
            return Err(bad("the note is longer than 2000 characters"));
        }
        match (self.action.as_str(), self.crm_id, self.lead, note) {
            ("complete", Some(crm_id), None, note) => {
                let crm_id = CrmId::try_from(crm_id).map_err(|invalid| bad(&invalid.to_string()))?;
                Ok(Action::Complete { crm_id, note })
            }
            ("complete", None, ..) => Err(bad("complete needs the crm_id of the entity")),
            ("retry", None, lead, note) => Ok(Action::Retry { lead, note }),
            ("reject", None, None, Some(note)) => Ok(Action::Reject { note }),
            ("reject", None, None, None) => Err(bad("reject needs a note that says why")),
            ("complete" | "retry" | "reject", ..) => Err(bad("this action does not take all of these members")),
            _ => Err(bad("action is complete, retry or reject")),
        }
    }
}

/// The version that `If-Match` names: exactly one, because a decision is made on what was seen.
fn version(headers: &HeaderMap) -> Result<i64, Problem> {
    let usage = "the version that you decide on, like If-Match: \"4\"";
    let mut given = headers.get_all(header::IF_MATCH);
    let Some(value) = given.next() else {
        return Err(Problem::new(Kind::VersionRequired, format!("say with If-Match {usage}")));
    };
    let text = value.to_str().unwrap_or_default().trim();
    let bare = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    match bare.parse() {
        Ok(version) if given.next().is_none() => Ok(version),
        _ => Err(Problem::new(Kind::BadRequest, format!("If-Match names {usage}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    fn read(body: &str) -> Result<Action, u16> {
        json::parse::<Decision>(body.as_bytes(), USAGE).and_then(Decision::action).map_err(|problem| problem.status())
    }

    #[test]
    fn the_three_actions_of_the_contract_are_read() {
        let crm_id = CrmId::try_from("4512".to_owned()).expect("an id");
        assert_eq!(read(r#"{"action":"complete","crm_id":"4512"}"#), Ok(Action::Complete { crm_id, note: None }));
        assert_eq!(read(r#"{"action":"retry"}"#), Ok(Action::Retry { lead: None, note: None }));
        let note = "spam".to_owned();
        assert_eq!(read(r#"{"action":"reject","note":" spam "}"#), Ok(Action::Reject { note }));
        let lead =
            r#"{"action":"retry","note":"typo","lead":{"name":"Anna","files":[{"field":"cv","name":"a","size":7}]}}"#;
        let Ok(Action::Retry { lead: Some(lead), note: Some(_) }) = read(lead) else { panic!("not read: {lead}") };
        assert_eq!((lead.name.as_deref(), lead.files[0].size), (Some("Anna"), 7));
    }

    #[test]
    fn a_decision_that_is_not_clear_is_not_carried_out() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"action":"complete"}"#,
            r#"{"action":"complete","crm_id":""}"#,
            r#"{"action":"complete","crm_id":4512}"#,
            r#"{"action":"complete","crm_id":"4512","lead":{}}"#,
            r#"{"action":"retry","crm_id":"4512"}"#,
            r#"{"action":"retry","lead":{"nmae":"Anna"}}"#,
            r#"{"action":"reject"}"#,
            r#"{"action":"reject","note":"  "}"#,
            r#"{"action":"delete"}"#,
            r#"{"action":"retry","force":true}"#,
        ] {
            assert_eq!(read(body), Err(400), "{body}");
        }
    }

    #[test]
    fn if_match_names_one_version() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_MATCH, HeaderValue::from_static(value));
            }
            version(&headers).map_err(|problem| problem.status())
        };
        assert_eq!(read(&["\"4\""]), Ok(4));
        assert_eq!(read(&["4"]), Ok(4));
        assert_eq!(read(&[]), Err(428));
        for wrong in ["*", "\"a\"", "\"4\", \"5\"", "W/\"4\"", ""] {
            assert_eq!(read(&[wrong]), Err(400), "{wrong}");
        }
        assert_eq!(read(&["\"4\"", "\"5\""]), Err(400));
    }
}

//! `POST /v1/admin/operations/{id}/lookup`: asks the CRM now which entities bear the operation's key. It decides nothing.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::auth;
use super::super::problem::Problem;
use super::super::state::Shared;
use super::{Refusals, written};

/// What the CRM said.
#[derive(Serialize, ToSchema)]
pub(super) struct Candidates {
    items: Vec<CandidateView>,
}

/// An entity that bears the operation's key.
#[derive(Serialize, ToSchema)]
#[schema(as = Candidate)]
pub(super) struct CandidateView {
    crm_id: String,
    /// Where people find it.
    link: Option<String>,
    /// What the CRM says about it: name and text.
    shown: Vec<(String, String)>,
}

/// Asks the CRM now. An empty answer proves nothing before the settle time; afterwards the gateway's own look-ups count.
#[utoipa::path(post, path = "/v1/admin/operations/{id}/lookup", operation_id = "look_up", tag = "operations",
    params(("id" = uuid::Uuid, Path, description = "The operation.")),
    responses((status = 200, description = "The entities that bear its key.", body = Candidates),
              (status = 409, description = "This CRM cannot be asked.", body = written::ProblemDocument,
               content_type = "application/problem+json"), Refusals))]
pub(super) async fn handle(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let actor = auth::actor(&request)?;
    let id = super::id_in_path(&request)?;
    let operation = shared.store.operation(id).await?.ok_or_else(super::unknown_operation)?;
    let found = shared.desk.look_up(id, &actor.name).await.map_err(|unresolved| Problem::from(unresolved).about(id))?;
    let items = found.into_iter().map(|candidate| CandidateView {
        link: shared.desk.link(&operation.destination, &candidate.crm_id),
        crm_id: candidate.crm_id.as_str().to_owned(),
        shown: candidate.shown,
    });
    Ok(HttpResponse::Ok().json(Candidates { items: items.collect() }))
}

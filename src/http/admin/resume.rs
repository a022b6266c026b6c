//! `POST /v1/admin/destinations/{name}/resume`: the destination's leads go on, one probe first.

use actix_web::{HttpRequest, HttpResponse, web};

use super::super::problem::Problem;
use super::super::state::Shared;
use super::super::{auth, json};
use super::{Refusals, destinations};

const USAGE: &str = "nothing, or {\"note\":\"why\"}";

/// Lets a destination's leads go on, one probe first. One that is not suspended stays as it is.
#[utoipa::path(post, path = "/v1/admin/destinations/{name}/resume", operation_id = "resume_destination", tag = "destinations",
    params(("name" = String, Path, description = "The destination's name.")), request_body = Option<destinations::Why>,
    responses((status = 200, description = "As it is now.", body = destinations::DestinationView), Refusals))]
pub(super) async fn handle(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Problem> {
    let actor = auth::actor(&request)?;
    let name = destinations::name_of(&request)?;
    let note = destinations::note(json::read(payload, &shared, USAGE).await?)?;
    destinations::named(&name, &shared).await?;
    let at = shared.clock.now();
    let audit = destinations::audit("resume", &name, actor.name, note, at);
    if shared.store.resume(name.clone(), Some(audit), at).await? {
        shared.metrics.suspended(name.as_str(), false);
    }
    Ok(HttpResponse::Ok().json(destinations::named(&name, &shared).await?))
}

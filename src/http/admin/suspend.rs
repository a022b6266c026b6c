//! `POST /v1/admin/destinations/{name}/suspend`: no call leaves for this destination until `resume`; its leads wait.

use actix_web::{HttpRequest, HttpResponse, web};

use super::super::problem::Problem;
use super::super::state::Shared;
use super::super::{auth, json};
use super::{Refusals, destinations};

const USAGE: &str = "nothing, or {\"note\":\"why\"}";

/// Holds a destination: no call leaves for it until it is resumed; its leads wait. One that is suspended already keeps its reason.
#[utoipa::path(post, path = "/v1/admin/destinations/{name}/suspend", operation_id = "suspend_destination", tag = "destinations",
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
    let reason = match &note {
        Some(note) => format!("suspended by {}: {note}", actor.name),
        None => format!("suspended by {}", actor.name),
    };
    let audit = destinations::audit("suspend", &name, actor.name, note, at);
    if shared.store.suspend(name.clone(), None, reason, Some(audit), at).await? {
        shared.metrics.suspended(name.as_str(), true);
    }
    Ok(HttpResponse::Ok().json(destinations::named(&name, &shared).await?))
}

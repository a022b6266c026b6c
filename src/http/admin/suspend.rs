//! `POST /v1/admin/destinations/{name}/suspend`: no call leaves for this destination until `resume`; its leads wait.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;

use super::super::auth;
use super::super::problem::Problem;
use super::super::state::Shared;
use super::destinations;

const USAGE: &str = "nothing, or {\"note\":\"why\"}";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Why {
    note: Option<String>,
}

/// The handler. A destination that is suspended already keeps its reason; the answer shows how it stands.
pub(super) async fn handle(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Problem> {
    let actor = auth::actor(&request)?;
    let name = destinations::name_of(&request)?;
    let why: Option<Why> = super::json(payload, &shared, USAGE).await?;
    destinations::named(&name, &shared).await?;
    let at = shared.clock.now();
    let note = why.and_then(|why| why.note);
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

//! `POST /v1/admin/destinations/{name}/resume`: the destination's leads go on, one probe first.

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

/// The handler. A destination that is not suspended stays as it is; the answer shows how it stands.
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
    let audit = destinations::audit("resume", &name, actor.name, why.and_then(|why| why.note), at);
    if shared.store.resume(name.clone(), Some(audit), at).await? {
        shared.metrics.suspended(name.as_str(), false);
    }
    Ok(HttpResponse::Ok().json(destinations::named(&name, &shared).await?))
}

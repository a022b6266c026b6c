//! `/console`: the operator console. Its pages are a program in the browser that uses the admin API as any other program does;
//! this room only hands the files out and signs people in.
//!
//! Promises: no outside resources; nothing inline, so that the policy forbids all that is not ours; no state change by GET.

mod files;
mod sign_in;

use actix_web::{guard, web};

use super::only;
pub(crate) use sign_in::hashing;

/// The addresses of the console. All that show or change anything of the ledger lie in the admin API, behind roles; what lies here
/// is open to everybody or asks for a session by itself.
pub(crate) fn routes(cfg: &mut web::ServiceConfig) {
    let readable = || web::route().guard(guard::Any(guard::Get()).or(guard::Head()));
    cfg.service(
        web::resource("/console/session")
            .get(sign_in::shown)
            .route(web::post().to(sign_in::begin))
            .default_service(only("GET, POST")),
    )
    .service(web::resource("/console/session/end").post(sign_in::end).default_service(only("POST")))
    .service(web::resource("/console/first").post(sign_in::first).default_service(only("POST")))
    .service(
        web::resource(["/console", "/console/", "/console/{file}"])
            .route(readable().to(files::serve))
            .default_service(only("GET, HEAD")),
    );
}

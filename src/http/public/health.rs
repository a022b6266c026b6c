//! `/healthz`, `/readyz`, `/metrics` (contract 6.3).

use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpResponse, web};

use super::super::problem::Problem;
use super::super::state::Shared;

/// The process is up.
pub(crate) async fn alive() -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "application/json")).body("{\"status\":\"ok\"}")
}

/// The store can commit now, and this machine's clock is not far off.
pub(crate) async fn ready(shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let ahead = shared.clock.ahead();
    if Duration::from_micros(ahead.unsigned_abs()) > shared.settings.clock_tolerance {
        return Err(Problem::clock_is_off(ahead));
    }
    match tokio::time::timeout(shared.settings.commit_deadline, shared.store.writable()).await {
        Ok(Ok(())) => Ok(alive().await),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Problem::not_stored()),
    }
}

/// What Prometheus reads.
pub(crate) async fn metrics(shared: web::Data<Shared>) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"))
        .body(shared.metrics.render())
}

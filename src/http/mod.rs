//! HTTP: the front door of senders and operators (contract 6).
//!
//! Promises: a handler reads the request, makes domain values of it, asks once, and answers; a 2xx of intake is given only after
//! the store's commit; every error is an RFC 9457 document made in `problem.rs`, the only place that turns errors into status codes;
//! no query string, header or body reaches a log line. It must not know CRMs, how operations are delivered (that is behind
//! [`Desk`]), how sources read their bodies, or SQL.
//!
//! Errors that the HTTP parser finds before a request exists (a broken request line, `Content-Length` and
//! `Transfer-Encoding` together) are answered by the server library with a bare 400 and a closed connection.

#![allow(single_use_lifetimes, reason = "the schema of a view that borrows is derived with its lifetime")]

mod admin;
mod auth;
mod body;
mod console;
mod desk;
mod json;
mod limiter;
mod password;
mod problem;
mod public;
mod session;
mod state;
mod throttle;
mod view;
mod wait;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::dev::{Server, ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::middleware::{Next, from_fn};
use actix_web::{App, HttpMessage, HttpRequest, HttpServer, Route, guard, web};
use uuid::Uuid;

pub use admin::Counts;
pub use auth::new_token;
pub use desk::{Action, Candidate, Choice, Desk, Unresolved};
pub use limiter::Limiter;
pub use state::{Gate, Inbound, Normalisers, Settings, Shared};

use crate::clock::uuid_v7;
use problem::{Kind, Problem};
use public::{health, intake, operations, script};

/// What an address serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doors {
    /// Senders and operators.
    All,
    /// Senders; the operators have an address of their own.
    Senders,
    /// Operators: console and admin API.
    Operators,
}

/// The route table: every address that exists. Expects `web::Data<Shared>` in the app.
///
/// A path with a slash too many is another path, and unknown: nothing here redirects, because a client that follows a redirect
/// turns its POST into a GET and reports success (facts: senders that lose leads that way).
pub fn configure(cfg: &mut web::ServiceConfig, doors: Doors) {
    let mut scope = web::scope("").wrap(from_fn(identify)).configure(for_both);
    if doors != Doors::Operators {
        scope = scope.configure(for_senders);
    }
    if doors != Doors::Senders {
        scope = scope.configure(for_operators);
    }
    let nothing = web::to(|| async { Problem::new(Kind::NotFound, "there is nothing at this address") });
    cfg.service(scope.default_service(nothing));
}

fn readable() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

fn for_senders(cfg: &mut web::ServiceConfig) {
    let script = readable().to(script::serve);
    cfg.service(web::resource("/v1/intake/{source}").route(web::route().to(intake::handle)))
        .service(web::resource("/v1/operations").get(operations::by_key).default_service(only("GET")))
        .service(web::resource("/v1/operations/{id}").get(operations::by_id).default_service(only("GET")))
        .service(web::resource("/static/leadonce.js").route(script).default_service(only("GET, HEAD")));
}

fn for_operators(cfg: &mut web::ServiceConfig) {
    let document = readable().to(admin::written::serve);
    cfg.service(admin::scope())
        .configure(console::routes)
        .service(web::resource("/openapi.json").route(document).default_service(only("GET, HEAD")));
}

fn for_both(cfg: &mut web::ServiceConfig) {
    cfg.service(web::resource("/healthz").route(readable().to(health::alive)).default_service(only("GET, HEAD")))
        .service(web::resource("/readyz").route(readable().to(health::ready)).default_service(only("GET, HEAD")))
        .service(web::resource("/metrics").route(readable().to(health::metrics)).default_service(only("GET, HEAD")));
}

/// The server on a bound socket; it runs when it is awaited, and leaves signals to the caller.
pub fn server(shared: Arc<Shared>, listener: TcpListener, workers: usize, doors: Doors) -> io::Result<Server> {
    let workers = workers.max(1);
    let connections = (shared.settings.connections / workers).max(1);
    let stop_within = shared.settings.stop_within.as_secs();
    let data = web::Data::from(shared);
    let server = HttpServer::new(move || App::new().app_data(data.clone()).configure(|cfg| configure(cfg, doors)))
        .workers(workers)
        .max_connections(connections)
        .disable_signals()
        .shutdown_timeout(stop_within)
        // Time for the head of a request; the body has a deadline of its own in `body.rs`.
        .client_request_timeout(Duration::from_secs(10))
        .keep_alive(Duration::from_secs(75))
        // After an early answer (413, 429) the rest of the body is read and thrown away for so long, so that a sender that
        // writes all before it reads finds the answer and not a broken connection.
        .client_disconnect_timeout(Duration::from_secs(5))
        .listen(listener)?;
    Ok(server.run())
}

/// The id of a request, told in `X-Request-Id`; for intake it is the id of the delivery in the log.
#[derive(Debug, Clone, Copy)]
struct RequestId(Uuid);

fn request_id(request: &HttpRequest) -> Uuid {
    request.extensions().get::<RequestId>().map_or(Uuid::nil(), |id| id.0)
}

/// Gives each request its id and each answer the headers that all answers bear.
async fn identify(request: ServiceRequest, next: Next<BoxBody>) -> Result<ServiceResponse, actix_web::Error> {
    let id = request
        .app_data::<web::Data<Shared>>()
        .map_or(Uuid::nil(), |shared| uuid_v7(shared.clock.now(), shared.entropy.as_ref()));
    request.extensions_mut().insert(RequestId(id));
    let mut response = next.call(request).await?;
    let headers = response.headers_mut();
    let mut text = Uuid::encode_buffer();
    if let Ok(value) = HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)) {
        headers.insert(HeaderName::from_static("x-request-id"), value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    Ok(response)
}

/// What a known address answers to a method it does not know.
fn only(allow: &'static str) -> Route {
    web::route().to(move || async move { Problem::method_not_allowed(allow) })
}

//! `/openapi.json`: the API in writing, made from the code that serves it.

use actix_web::HttpResponse;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{IntoResponses, Modify, OpenApi, ToSchema};

use super::{
    ROUTES, audit, bulk, deliveries, destinations, detail, events, export, list, look_up, overview, people, resolve,
    resume, search, suspend, tokens,
};

/// An error (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(in super::super) struct ProblemDocument {
    /// A stable name: `urn:leadonce:problem:` and the kind.
    #[serde(rename = "type")]
    kind: String,
    title: String,
    status: u16,
    /// What happened, and what to do.
    detail: String,
    /// The operation that it is about.
    operation_id: Option<String>,
}

/// What every address of the admin API may answer besides.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "its variants are read by the derive")]
pub(in super::super) enum Refusals {
    /// The request says something that cannot be.
    #[response(status = 400, content_type = "application/problem+json")]
    BadRequest(ProblemDocument),
    /// No token or session, or not a known one.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(ProblemDocument),
    /// Too small a role, or a write that did not come from the console.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(ProblemDocument),
    /// There is no such thing.
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(ProblemDocument),
    /// The body did not arrive in time.
    #[response(status = 408, content_type = "application/problem+json")]
    SlowBody(ProblemDocument),
    /// The body is too large.
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(ProblemDocument),
    /// The store, or the CRM, does not answer now; `Retry-After` says when to try again.
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(ProblemDocument),
}

#[derive(OpenApi)]
#[openapi(
    info(title = "leadonce", description = "Lead intake: the admin API.", license(name = "MIT OR Apache-2.0")),
    modifiers(&Security),
    components(schemas(list::Order, crate::operation::State, crate::store::Verdict)),
    paths(
        overview::handle,
        list::handle,
        export::operations,
        search::handle,
        bulk::handle,
        detail::handle,
        resolve::handle,
        look_up::handle,
        destinations::handle,
        resume::handle,
        suspend::handle,
        deliveries::handle,
        export::deliveries,
        audit::handle,
        export::audit_log,
        export::people,
        export::tokens,
        events::handle,
        people::list,
        people::create,
        people::change,
        tokens::list,
        tokens::create,
        tokens::revoke
    )
)]
struct Written;

struct Security;

impl Modify for Security {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_with(Default::default);
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A token from `leadonce token create`."));
        components.add_security_scheme("token", SecurityScheme::Http(bearer.build()));
        let cookie = ApiKeyValue::with_description(
            "leadonce_session",
            "The session of a person in the console; writes need the header X-CSRF-Token as well.",
        );
        components.add_security_scheme("session", SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
    }
}

/// The document. Each operation says which role it needs, from the table that enforces it.
pub(in super::super) fn document() -> Value {
    let mut document = serde_json::to_value(Written::openapi()).unwrap_or_default();
    for route in ROUTES {
        let path = format!("/v1/admin{}", route.path);
        let method = route.method.to_lowercase();
        let Some(operation) = document.get_mut("paths").and_then(|paths| paths.get_mut(&path)?.get_mut(&method)) else {
            continue;
        };
        if let Some(operation) = operation.as_object_mut() {
            operation.insert("security".into(), json!([{"token": []}, {"session": []}]));
            operation.insert("x-role".into(), route.role.as_str().into());
        }
    }
    document
}

/// `GET /openapi.json`.
pub(in super::super) async fn serve() -> HttpResponse {
    HttpResponse::Ok().json(document())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_written_and_nothing_is_written_that_is_no_route() {
        let document = document();
        assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")), "{document}");
        let mut written = Vec::new();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                let role = operation["x-role"].as_str().unwrap_or("none").to_owned();
                written.push((method.to_uppercase(), path.clone(), role));
            }
        }
        let mut routes: Vec<_> = ROUTES
            .iter()
            .map(|route| (route.method.to_owned(), format!("/v1/admin{}", route.path), route.role.as_str().to_owned()))
            .collect();
        written.sort();
        routes.sort();
        assert_eq!(written, routes);
    }

    /// Every `$ref` below a value.
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str));
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_shape_that_is_named_is_described() {
        let document = document();
        let mut named = Vec::new();
        references(&document, &mut named);
        assert!(named.len() > 50, "{}", named.len());
        for reference in named {
            let place = reference.strip_prefix('#').expect("a place in the document");
            assert!(document.pointer(place).is_some(), "{reference}");
        }
    }
}

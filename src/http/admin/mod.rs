//! `/v1/admin`: what operators and their programs do (contract 6.2).

mod destinations;
mod detail;
mod list;
mod resolve;
mod resume;
mod search;
mod suspend;

use actix_web::middleware::from_fn;
use actix_web::{Route, Scope, web};

use super::problem::{Kind, Problem};
use super::state::Shared;
use super::{auth, body, only};
use crate::store::Role;

/// An address of this scope. There is no other way to make one, so none is without a role.
struct AdminRoute {
    method: &'static str,
    path: &'static str,
    role: Role,
    serve: fn() -> Route,
}

/// All of them. A path that another's pattern would match stands before it.
const ROUTES: &[AdminRoute] = &[
    AdminRoute { method: "GET", path: "/operations", role: Role::Viewer, serve: || web::get().to(list::handle) },
    AdminRoute {
        method: "POST",
        path: "/operations/search",
        role: Role::Viewer,
        serve: || web::post().to(search::handle),
    },
    AdminRoute { method: "GET", path: "/operations/{id}", role: Role::Viewer, serve: || web::get().to(detail::handle) },
    AdminRoute {
        method: "POST",
        path: "/operations/{id}/resolve",
        role: Role::Operator,
        serve: || web::post().to(resolve::handle),
    },
    AdminRoute {
        method: "GET",
        path: "/destinations",
        role: Role::Viewer,
        serve: || web::get().to(destinations::handle),
    },
    AdminRoute {
        method: "POST",
        path: "/destinations/{name}/resume",
        role: Role::Operator,
        serve: || web::post().to(resume::handle),
    },
    AdminRoute {
        method: "POST",
        path: "/destinations/{name}/suspend",
        role: Role::Operator,
        serve: || web::post().to(suspend::handle),
    },
];

/// The scope with each route behind its role.
pub(crate) fn scope() -> Scope {
    let mut scope = web::scope("/v1/admin");
    for AdminRoute { method, path, role, serve } in ROUTES {
        let resource = web::resource(*path)
            .route(serve())
            .default_service(only(method))
            .wrap(from_fn(move |request, next| auth::require(*role, request, next)));
        scope = scope.service(resource);
    }
    scope.default_service(web::to(|| async { Problem::new(Kind::NotFound, "there is nothing at this address") }))
}

/// Largest body of an admin call: a lead as corrected by hand.
const MAX_BODY: usize = 256 * 1024;

/// Reads a JSON body; `usage` says what it should look like. An empty body is `null`.
async fn json<T: serde::de::DeserializeOwned>(
    mut payload: web::Payload,
    shared: &Shared,
    usage: &str,
) -> Result<T, Problem> {
    let body = match body::read(&mut payload, None, MAX_BODY, shared.settings.body_deadline).await {
        Ok(body) => body,
        Err(body::Broken::TooLarge(_)) => {
            return Err(Problem::new(Kind::BodyTooLarge, format!("the body is larger than {MAX_BODY} bytes")));
        }
        Err(body::Broken::NoRoom) => return Err(Problem::not_stored().closing()),
        Err(body::Broken::TooSlow) => {
            return Err(Problem::new(Kind::SlowBody, "the body did not arrive in time").closing());
        }
        Err(body::Broken::Incomplete) => {
            return Err(Problem::new(Kind::IncompleteBody, "the body ended early").closing());
        }
    };
    parse(&body, usage)
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8], usage: &str) -> Result<T, Problem> {
    let body: &[u8] = if body.iter().all(u8::is_ascii_whitespace) { b"null" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        // The text of serde names fields and types; of values it shows only those of the wrong type.
        let place = format!("line {} column {}", error.line(), error.column());
        let what = match error.classify() {
            serde_json::error::Category::Data => "has another shape than expected",
            _ => "is not JSON",
        };
        Problem::new(Kind::BadRequest, format!("the body {what} at {place}; send {usage}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_do_what_is_written_here_once_more_so_that_a_change_is_meant() {
        let table: Vec<_> = ROUTES.iter().map(|route| (route.method, route.path, route.role.as_str())).collect();
        assert_eq!(
            table,
            [
                ("GET", "/operations", "viewer"),
                ("POST", "/operations/search", "viewer"),
                ("GET", "/operations/{id}", "viewer"),
                ("POST", "/operations/{id}/resolve", "operator"),
                ("GET", "/destinations", "viewer"),
                ("POST", "/destinations/{name}/resume", "operator"),
                ("POST", "/destinations/{name}/suspend", "operator"),
            ]
        );
    }

    #[test]
    fn nothing_that_changes_something_is_a_get_or_open_to_viewers() {
        for route in ROUTES.iter().filter(|route| route.role == Role::Viewer) {
            assert!(route.method == "GET" || route.path.ends_with("/search"), "{}", route.path);
        }
        assert!(ROUTES.iter().all(|route| route.role == Role::Viewer || route.method == "POST"));
    }

    #[test]
    fn a_wrong_body_is_told_its_place_and_the_right_form_but_none_of_its_values() {
        let problem = parse::<u32>(b"\"+79161234567\"", "a number").expect_err("a text is no number");
        let told = problem.json().to_string();
        assert!(told.contains("line 1") && told.contains("send a number") && !told.contains("7916"), "{told}");
    }
}

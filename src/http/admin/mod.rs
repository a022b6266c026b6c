//! `/v1/admin`: what operators and their programs do (contract 6.2).

mod audit;
mod bulk;
mod deliveries;
mod destinations;
mod detail;
mod events;
mod export;
mod list;
mod look_up;
mod overview;
pub(super) mod people;
mod query;
mod resolve;
mod resume;
mod search;
mod suspend;
mod tokens;
pub(super) mod written;

use actix_web::middleware::from_fn;
use actix_web::{HttpRequest, Route, Scope, web};
use percent_encoding::percent_decode_str;

use super::problem::{Kind, Problem};
use super::{auth, only};
use crate::operation::OperationId;
use crate::store::Role;
pub use overview::Counts;
pub(super) use written::Refusals;

/// A method of an address of this scope. There is no other way to make one, so none is without a role.
struct AdminRoute {
    method: &'static str,
    path: &'static str,
    role: Role,
    serve: fn() -> Route,
}

const fn route(method: &'static str, path: &'static str, role: Role, serve: fn() -> Route) -> AdminRoute {
    AdminRoute { method, path, role, serve }
}

/// All of them. A path that another's pattern would match stands before it.
const ROUTES: &[AdminRoute] = &[
    route("GET", "/overview", Role::Viewer, || web::get().to(overview::handle)),
    route("GET", "/operations", Role::Viewer, || web::get().to(list::handle)),
    route("GET", "/operations.csv", Role::Viewer, || web::get().to(export::operations)),
    route("POST", "/operations/search", Role::Viewer, || web::post().to(search::handle)),
    route("POST", "/operations/resolve", Role::Operator, || web::post().to(bulk::handle)),
    route("GET", "/operations/{id}", Role::Viewer, || web::get().to(detail::handle)),
    route("POST", "/operations/{id}/resolve", Role::Operator, || web::post().to(resolve::handle)),
    route("POST", "/operations/{id}/lookup", Role::Operator, || web::post().to(look_up::handle)),
    route("GET", "/destinations", Role::Viewer, || web::get().to(destinations::handle)),
    route("POST", "/destinations/{name}/resume", Role::Operator, || web::post().to(resume::handle)),
    route("POST", "/destinations/{name}/suspend", Role::Operator, || web::post().to(suspend::handle)),
    route("GET", "/deliveries", Role::Viewer, || web::get().to(deliveries::handle)),
    route("GET", "/deliveries.csv", Role::Viewer, || web::get().to(export::deliveries)),
    route("GET", "/audit", Role::Viewer, || web::get().to(audit::handle)),
    route("GET", "/audit.csv", Role::Viewer, || web::get().to(export::audit_log)),
    route("GET", "/events", Role::Viewer, || web::get().to(events::handle)),
    route("GET", "/people", Role::Admin, || web::get().to(people::list)),
    route("POST", "/people", Role::Admin, || web::post().to(people::create)),
    route("GET", "/people.csv", Role::Admin, || web::get().to(export::people)),
    route("POST", "/people/{name}", Role::Admin, || web::post().to(people::change)),
    route("GET", "/tokens", Role::Admin, || web::get().to(tokens::list)),
    route("POST", "/tokens", Role::Admin, || web::post().to(tokens::create)),
    route("GET", "/tokens.csv", Role::Admin, || web::get().to(export::tokens)),
    route("POST", "/tokens/{name}/revoke", Role::Admin, || web::post().to(tokens::revoke)),
];

/// The scope with each route behind its role. The methods of one address stand together in the table.
pub(crate) fn scope() -> Scope {
    let mut scope = web::scope("/v1/admin");
    for routes in ROUTES.chunk_by(|a, b| a.path == b.path) {
        let Some(first) = routes.first() else { continue };
        let mut resource = web::resource(first.path);
        for AdminRoute { role, serve, .. } in routes {
            let role = *role;
            resource = resource.route(serve().wrap(from_fn(move |request, next| auth::require(role, request, next))));
        }
        let allow: &'static [AdminRoute] = routes;
        scope = scope.service(resource.default_service(not_allowed(allow)));
    }
    scope.default_service(web::to(|| async { Problem::new(Kind::NotFound, "there is nothing at this address") }))
}

/// A method that the address does not know is refused to those who may use one that it knows.
fn not_allowed(routes: &'static [AdminRoute]) -> Route {
    let role = routes.iter().map(|route| route.role).min().unwrap_or(Role::Admin);
    let known = match routes {
        [one] => one.method,
        _ => "GET, POST",
    };
    only(known).wrap(from_fn(move |request, next| auth::require(role, request, next)))
}

/// The operation that the address names.
fn id_in_path(request: &HttpRequest) -> Result<OperationId, Problem> {
    request.match_info().get("id").and_then(|id| id.parse().ok()).ok_or_else(unknown_operation)
}

fn unknown_operation() -> Problem {
    Problem::new(Kind::NotFound, "there is no operation of that id")
}

/// The name of a person or a token in the address.
fn name_in_path(request: &HttpRequest) -> Result<String, Problem> {
    let name = request.match_info().get("name").unwrap_or_default();
    let name = percent_decode_str(name).decode_utf8();
    name.map(|name| name.into_owned()).map_err(|_| Problem::new(Kind::NotFound, "there is nothing of that name"))
}

/// A new name of a person or a token: something that can be read in the audit log.
fn new_name(name: &str, longest: usize) -> Result<String, Problem> {
    let name = name.trim();
    let good = !name.is_empty() && name.chars().count() <= longest && !name.chars().any(char::is_control);
    if good && !name.contains('/') {
        return Ok(name.to_owned());
    }
    let detail = format!("a name has 1 to {longest} characters, without slashes and control characters");
    Err(Problem::new(Kind::BadRequest, detail))
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
                ("GET", "/overview", "viewer"),
                ("GET", "/operations", "viewer"),
                ("GET", "/operations.csv", "viewer"),
                ("POST", "/operations/search", "viewer"),
                ("POST", "/operations/resolve", "operator"),
                ("GET", "/operations/{id}", "viewer"),
                ("POST", "/operations/{id}/resolve", "operator"),
                ("POST", "/operations/{id}/lookup", "operator"),
                ("GET", "/destinations", "viewer"),
                ("POST", "/destinations/{name}/resume", "operator"),
                ("POST", "/destinations/{name}/suspend", "operator"),
                ("GET", "/deliveries", "viewer"),
                ("GET", "/deliveries.csv", "viewer"),
                ("GET", "/audit", "viewer"),
                ("GET", "/audit.csv", "viewer"),
                ("GET", "/events", "viewer"),
                ("GET", "/people", "admin"),
                ("POST", "/people", "admin"),
                ("GET", "/people.csv", "admin"),
                ("POST", "/people/{name}", "admin"),
                ("GET", "/tokens", "admin"),
                ("POST", "/tokens", "admin"),
                ("GET", "/tokens.csv", "admin"),
                ("POST", "/tokens/{name}/revoke", "admin"),
            ]
        );
    }

    #[test]
    fn nothing_that_changes_something_is_a_get_or_open_to_viewers() {
        for route in ROUTES.iter().filter(|route| route.role == Role::Viewer) {
            assert!(route.method == "GET" || route.path.ends_with("/search"), "{}", route.path);
        }
    }
}

//! What an operator's pages ask for, over a store with its past: lists, searches, one operation.

use std::time::Duration;

use crate::client::{self, Load, Plan};
use crate::process::Process;

/// What is asked, by its name: an address, or a search by a contact. `stored` operations lie there, as `fill.rs` makes them.
fn asked(stored: u64) -> Vec<(&'static str, String)> {
    let id = |number: u64| format!("01900000-0000-7000-8000-{number:012x}");
    let list = |query: &str| format!("/v1/admin/operations?{query}");
    vec![
        ("list", list("")),
        ("list, in the middle", list(&format!("cursor={}", id(stored / 2)))),
        ("list, completed", list("status=completed")),
        ("list, reviews", list("status=needs_review&order=oldest")),
        ("list, a source of half", list("source=ordered")),
        ("list, a source of nothing", list("source=nobody")),
        ("list, a destination of nothing", list("destination=nowhere")),
        ("list, before all", list("received_before=2020-01-01T00:00:00Z")),
        ("search, id", list(&format!("q={}", id(stored / 3)))),
        ("search, id in the CRM", list(&format!("q={}", stored / 3))),
        ("search, nothing", list("q=nothing-has-this-key")),
        ("search, phone", String::new()),
        ("operation", format!("/v1/admin/operations/{}", id(stored / 3))),
        ("refused deliveries", "/v1/admin/deliveries".into()),
        ("audit", "/v1/admin/audit".into()),
    ]
}

/// Each in turn, one request after the other.
pub(crate) fn run(gateway: &Process, stored: u64, time: Duration) -> Vec<(&'static str, Load)> {
    let plan = Plan { connections: 1, time, pace: None };
    let ask = |(name, path): (&'static str, String)| {
        let head = format!("Host: {}\r\nAuthorization: Bearer {}\r\n", gateway.address, gateway.token);
        let request = if path.is_empty() {
            let body = r#"{"phone":"+7 916 123-45-67"}"#;
            format!("POST /v1/admin/operations/search HTTP/1.1\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len())
        } else {
            format!("GET {path} HTTP/1.1\r\n{head}\r\n")
        };
        (name, client::run(&gateway.address, plan, move |out| out.extend_from_slice(request.as_bytes())))
    };
    asked(stored).into_iter().map(ask).collect()
}

//! JSON bodies of the admin API and the console.

use actix_web::web;

use super::body;
use super::problem::{Kind, Problem};
use super::state::Shared;

/// Largest body of an admin call: a lead as corrected by hand.
const MAX_BODY: usize = 256 * 1024;

/// Reads a JSON body; `usage` says what it should look like. An empty body is `null`.
pub(crate) async fn read<T: serde::de::DeserializeOwned>(
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

pub(crate) fn parse<T: serde::de::DeserializeOwned>(body: &[u8], usage: &str) -> Result<T, Problem> {
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
    fn a_wrong_body_is_told_its_place_and_the_right_form_but_none_of_its_values() {
        let problem = parse::<u32>(b"\"+79161234567\"", "a number").expect_err("a text is no number");
        let told = problem.json().to_string();
        assert!(told.contains("line 1") && told.contains("send a number") && !told.contains("7916"), "{told}");
    }
}

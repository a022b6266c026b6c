//! Pages of other origins: who may send by `fetch`, and read the answer.

use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::{HttpRequest, HttpResponse};

use super::super::problem::{Kind, Problem};

/// The request's origin as a header to answer with, where `allow_origins` names it.
///
/// A plain form post needs no leave and is taken from everywhere: a browser cannot be kept from sending it, and a lead that came
/// is a lead. Only the page's reading of the answer, and requests that need a preflight, hang on this list.
fn allowed(origins: &[String], request: &HttpRequest) -> Option<HeaderValue> {
    let origin = request.headers().get(header::ORIGIN)?;
    let text = origin.to_str().ok()?;
    let named = origins.iter().any(|allowed| allowed.trim_end_matches('/').eq_ignore_ascii_case(text));
    named.then(|| origin.clone())
}

/// Answers a preflight.
pub(super) fn preflight(origins: &[String], request: &HttpRequest) -> Result<HttpResponse, Problem> {
    if request.headers().contains_key(header::ORIGIN) && allowed(origins, request).is_none() {
        let detail = "a page of this origin may not send here; add the origin to allow_origins of the source";
        return Err(Problem::new(Kind::OriginNotAllowed, detail));
    }
    Ok(HttpResponse::NoContent()
        .insert_header((header::ALLOW, "POST, OPTIONS"))
        .insert_header((header::ACCESS_CONTROL_ALLOW_METHODS, "POST"))
        .insert_header((header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type, idempotency-key, prefer"))
        // Two hours, the most that browsers keep.
        .insert_header((header::ACCESS_CONTROL_MAX_AGE, "7200"))
        .finish())
}

/// Lets the page read the answer, errors included: its script decides by them whether to send again.
pub(super) fn open(headers: &mut HeaderMap, origins: &[String], request: &HttpRequest) {
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = allowed(origins, request) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let readable = HeaderValue::from_static("location, idempotent-replayed, retry-after, x-request-id");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, readable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    fn from(origin: &str) -> HttpRequest {
        TestRequest::default().insert_header((header::ORIGIN, origin)).to_http_request()
    }

    #[test]
    fn a_preflight_of_a_named_origin_is_granted_and_no_other() {
        let origins = ["https://example.com/".to_owned(), "http://localhost:3000".to_owned()];
        for (origin, granted) in [
            ("https://example.com", true),
            ("https://EXAMPLE.com", true),
            ("http://localhost:3000", true),
            ("http://example.com", false),
            ("https://example.com:444", false),
            ("https://example.com.evil.test", false),
            ("https://evil.test", false),
            ("null", false),
        ] {
            assert_eq!(preflight(&origins, &from(origin)).is_ok(), granted, "{origin}");
            let mut headers = HeaderMap::new();
            open(&mut headers, &origins, &from(origin));
            assert_eq!(headers.get(header::ACCESS_CONTROL_ALLOW_ORIGIN).is_some(), granted, "{origin}");
            assert_eq!(headers.get(header::VARY).expect("vary"), "origin");
        }
    }

    #[test]
    fn no_list_allows_no_other_origin() {
        assert!(preflight(&[], &from("https://example.com")).is_err());
    }

    #[test]
    fn options_without_an_origin_tells_the_methods() {
        let answer = preflight(&[], &TestRequest::default().to_http_request()).expect("an answer");
        assert_eq!(answer.status(), 204);
        assert_eq!(answer.headers().get(header::ALLOW).expect("allow"), "POST, OPTIONS");
    }
}

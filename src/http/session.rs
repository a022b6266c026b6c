//! Sessions of people in a browser: the cookie, and what protects a write that the browser sends along with it.
//!
//! A write is taken only with the session's own token in a header, which no foreign page can read or send, and only from our own
//! origin; the cookie itself is `SameSite=Strict` and out of reach for scripts.

use actix_web::HttpRequest;
use actix_web::cookie::time::Duration as CookieAge;
use actix_web::cookie::{Cookie, SameSite};
use actix_web::http::Method;
use actix_web::http::header;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::problem::{Kind, Problem};
use super::state::Shared;
use crate::operation::id::hex;
use crate::store::Role;

/// The cookie. Behind TLS its name begins with `__Host-`: browsers then take it only with Secure, without a domain, for all paths.
const PLAIN: &str = "leadonce_session";
const HOST: &str = "__Host-leadonce_session";
/// The header with the session's token.
pub(crate) const CSRF: &str = "x-csrf-token";
/// A page that looks again by itself says so: it does not keep the session from growing idle.
const BACKGROUND: &str = "x-leadonce-background";

/// The value of the session's cookie, if one came.
pub(crate) fn value_of(request: &HttpRequest) -> Option<String> {
    let cookie = request.cookie(HOST).or_else(|| request.cookie(PLAIN));
    cookie.map(|cookie| cookie.value().to_owned()).filter(|value| !value.is_empty())
}

/// What the store knows the session by.
pub(crate) fn sha256(value: &str) -> Vec<u8> {
    Sha256::digest(value.as_bytes()).to_vec()
}

/// The token that must come with each write of that session.
pub(crate) fn csrf(value: &str) -> String {
    hex(&Sha256::new().chain_update(b"leadonce/csrf/1\0").chain_update(value.as_bytes()).finalize())
}

/// The cookie of a session that begins; an empty value ends it.
pub(crate) fn cookie(value: String, shared: &Shared) -> Cookie<'static> {
    let secure = shared.settings.console_url.starts_with("https://");
    let age = if value.is_empty() { 0 } else { shared.settings.session.longest.as_secs() };
    Cookie::build(if secure { HOST } else { PLAIN }, value)
        .path("/")
        .http_only(true)
        .same_site(SameSite::Strict)
        .secure(secure)
        .max_age(CookieAge::seconds(i64::try_from(age).unwrap_or(i64::MAX)))
        .finish()
}

/// Who is signed in. For a write the request must bear the session's token and come from our own origin.
pub(crate) async fn holder(request: &HttpRequest, value: &str, shared: &Shared) -> Result<(String, Role), Problem> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        own_origin(request)?;
        let given = request.headers().get(CSRF).map_or(&[] as &[u8], header::HeaderValue::as_bytes);
        if !bool::from(csrf(value).as_bytes().ct_eq(given)) {
            let detail = "the header X-CSRF-Token with the session's token is missing or wrong; load the page again";
            return Err(Problem::new(Kind::ForeignRequest, detail));
        }
    }
    let used = !request.headers().contains_key(BACKGROUND);
    let found = shared.store.session(sha256(value), shared.clock.now(), shared.settings.session, used).await?;
    found.ok_or_else(|| Problem::new(Kind::Unauthorized, "the session is over; sign in again"))
}

/// A request of another origin's page is refused, whatever it bears. Browsers say where a request comes from, in `Sec-Fetch-Site`
/// or `Origin`; the host that the browser asked for is ours.
pub(crate) fn own_origin(request: &HttpRequest) -> Result<(), Problem> {
    let foreign = || Problem::new(Kind::ForeignRequest, "this request comes from a page of another origin");
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
    if header("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(foreign());
    }
    match header("origin") {
        None => Ok(()),
        Some(origin) => {
            let host = header("host").unwrap_or_default();
            let asked = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            if asked.is_some_and(|asked| asked.eq_ignore_ascii_case(host)) { Ok(()) } else { Err(foreign()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[test]
    fn a_request_of_another_origin_is_told_from_our_own() {
        let asked = |headers: &[(&'static str, &'static str)]| {
            let request = headers.iter().fold(TestRequest::post(), |request, header| request.insert_header(*header));
            own_origin(&request.to_http_request()).is_ok()
        };
        assert!(asked(&[("host", "leads.example"), ("origin", "https://leads.example")]));
        assert!(asked(&[
            ("host", "127.0.0.1:8080"),
            ("origin", "http://127.0.0.1:8080"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(asked(&[("host", "leads.example")]));
        for headers in [
            &[("host", "leads.example"), ("origin", "https://evil.example")][..],
            &[("host", "leads.example"), ("origin", "https://leads.example.evil.example")],
            &[("host", "leads.example"), ("origin", "null")],
            &[("host", "leads.example"), ("origin", "")],
            &[("host", "leads.example"), ("sec-fetch-site", "cross-site")],
            &[("host", "leads.example"), ("origin", "https://leads.example"), ("sec-fetch-site", "same-site")],
        ] {
            assert!(!asked(headers), "{headers:?}");
        }
    }

    #[test]
    fn the_token_of_a_write_tells_nothing_of_the_cookie_and_is_each_sessions_own() {
        assert_ne!(csrf("a"), csrf("b"));
        assert_ne!(csrf("a"), hex(&sha256("a")));
    }
}

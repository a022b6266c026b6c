//! Signing in and out: `/console/session`, and `/console/first` for the first administrator.

use std::net::IpAddr;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::super::problem::{Kind, Problem};
use super::super::state::Shared;
use super::super::{auth, json, password, session};
use crate::operation::id::hex;
use crate::store::{Audit, NewSession, Role};

const USAGE: &str = "{\"token\":\"…\"} or {\"name\":\"…\",\"password\":\"…\"}";
const FIRST_USAGE: &str = "{\"secret\":\"…\",\"name\":\"…\",\"password\":\"…\"}";
const END_USAGE: &str = "nothing, or {\"everywhere\":true}";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Credentials {
    token: Option<String>,
    name: Option<String>,
    password: Option<String>,
}

/// `GET`: who is signed in, and the token that writes need.
pub(super) async fn shown(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let value = session::value_of(&request).ok_or_else(|| Problem::new(Kind::Unauthorized, "nobody is signed in"))?;
    let (name, role) = session::holder(&request, &value, &shared).await?;
    Ok(HttpResponse::Ok().json(json!({"name": name, "role": role, "csrf": session::csrf(&value)})))
}

/// `POST`: begins a session.
pub(super) async fn begin(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Problem> {
    session::own_origin(&request)?;
    let credentials: Credentials = json::read(payload, &shared, USAGE).await?;
    let bad = || Problem::new(Kind::BadRequest, format!("send {USAGE}"));
    let address = address_of(&request);
    let claimed = match &credentials {
        Credentials { token: Some(_), name: None, password: None } => None,
        Credentials { token: None, name: Some(name), password: Some(_) } => Some(name.chars().take(100).collect()),
        _ => return Err(bad()),
    };
    let account: String = claimed.unwrap_or_else(|| "a token".to_owned());
    let (account_key, address_key) = (format!("account {account}"), format!("address {address}"));
    let by_password = credentials.password.is_some();
    // A token is not guessed account by account: only the address counts.
    let keys = if by_password { vec![account_key.clone(), address_key.clone()] } else { vec![address_key.clone()] };
    shared.gate.throttle.begin(&keys, shared.clock.monotonic()).map_err(|wait| {
        let detail = "too many sign-ins failed for this name or from this address; wait as Retry-After says";
        Problem::new(Kind::TooManySignIns, detail).retry_after(wait)
    })?;
    match known(credentials, &shared).await {
        Ok((holder, role, token_sha256)) => {
            shared.gate.throttle.passed(&account_key, &address_key);
            opened(&shared, holder, role, token_sha256, &address).await
        }
        Err(problem) => {
            if problem.status() == 401 {
                let audit = audit(&shared, account, "sign_in_failed", Some(address));
                shared.store.note(audit).await?;
            }
            Err(problem)
        }
    }
}

/// Checks credentials: holder, role, and the token where it was one.
async fn known(
    credentials: Credentials,
    shared: &web::Data<Shared>,
) -> Result<(String, Role, Option<Vec<u8>>), Problem> {
    if let Some(token) = credentials.token {
        let token = token.trim();
        let person = auth::person(token, shared).await?;
        return Ok((person.name, person.role, Some(Sha256::digest(token.as_bytes()).to_vec())));
    }
    let wrong = || Problem::new(Kind::Unauthorized, "name or password is wrong");
    let (name, given) = credentials.name.zip(credentials.password).ok_or_else(wrong)?;
    let stored = shared.store.password_hash(&name).await?;
    let good = if given.len() > password::LONGEST * 4 {
        false
    } else {
        hashing(shared, move || password::verify(&given, stored.as_deref())).await?
    };
    let people = if good { shared.store.people().await? } else { Vec::new() };
    let person = people.into_iter().find(|person| person.name == name && person.disabled_at.is_none());
    person.map(|person| (person.name, person.role, None)).ok_or_else(wrong)
}

/// Runs what costs a core where it may block, one at a time.
pub(crate) async fn hashing<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let internal = || Problem::new(Kind::Internal, "the password could not be checked");
    let _one = shared.gate.hashing.acquire().await.map_err(|_| internal())?;
    web::block(work).await.map_err(|_| internal())
}

async fn opened(
    shared: &Shared,
    holder: String,
    role: Role,
    token_sha256: Option<Vec<u8>>,
    address: &str,
) -> Result<HttpResponse, Problem> {
    let mut secret = [0; 32];
    shared.entropy.fill(&mut secret);
    let value = hex(&secret);
    let sha256 = session::sha256(&value);
    let session = NewSession { sha256, holder: holder.clone(), token_sha256, begun_at: shared.clock.now() };
    let audit = audit(shared, holder.clone(), "sign_in", Some(address.to_owned()));
    shared.store.begin_session(session, shared.settings.session, audit).await?;
    let body = json!({"name": holder, "role": role, "csrf": session::csrf(&value)});
    Ok(HttpResponse::Ok().cookie(session::cookie(value, shared)).json(body))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct End {
    everywhere: bool,
}

/// `POST …/end`: ends this session, or all of whoever holds it.
pub(super) async fn end(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Problem> {
    let value = session::value_of(&request).ok_or_else(|| Problem::new(Kind::Unauthorized, "nobody is signed in"))?;
    let (name, _) = session::holder(&request, &value, &shared).await?;
    let end: Option<End> = json::read(payload, &shared, END_USAGE).await?;
    let everywhere = end.unwrap_or_default().everywhere;
    let action = if everywhere { "sign_out_everywhere" } else { "sign_out" };
    let audit = audit(&shared, name, action, Some(address_of(&request)));
    shared.store.end_sessions(session::sha256(&value), everywhere, audit).await?;
    Ok(HttpResponse::NoContent().cookie(session::cookie(String::new(), &shared)).finish())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct First {
    secret: String,
    name: String,
    password: String,
}

/// `POST /console/first`: makes the first administrator, with the secret that `serve` printed because nobody could sign in. It
/// works once, and only while that is still so.
pub(super) async fn first(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Problem> {
    session::own_origin(&request)?;
    let first: First = json::read(payload, &shared, FIRST_USAGE).await?;
    let address = address_of(&request);
    let key = [format!("address {address}")];
    shared.gate.throttle.begin(&key, shared.clock.monotonic()).map_err(|wait| {
        Problem::new(Kind::TooManySignIns, "too many tries from this address; wait as Retry-After says")
            .retry_after(wait)
    })?;
    let over = || Problem::new(Kind::Unauthorized, "this link was used, or is of another start of the gateway");
    let given: [u8; 32] = Sha256::digest(first.secret.as_bytes()).into();
    let expected = *shared.gate.first.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !expected.is_some_and(|expected| bool::from(expected.ct_eq(&given))) {
        return Err(over());
    }
    let (name, hash) = super::super::admin::people::new_person(&shared, &first.name, first.password).await?;
    // Nobody else may have been quicker, on this node or another.
    if !nobody_can_sign_in(&shared).await? {
        return Err(over());
    }
    let audit = audit(&shared, name.clone(), "person_create", Some(name.clone()));
    if !shared.store.create_person(name.clone(), Role::Admin, hash, audit).await? {
        return Err(over());
    }
    *shared.gate.first.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    opened(&shared, name, Role::Admin, None, &address).await
}

async fn nobody_can_sign_in(shared: &Shared) -> Result<bool, Problem> {
    let people = shared.store.people().await?.into_iter().any(|person| person.disabled_at.is_none());
    Ok(!people && !shared.store.tokens().await?.into_iter().any(|token| token.revoked_at.is_none()))
}

/// Whence the request came. Behind a proxy on this machine: the last address that the proxy itself added; what stands before it
/// anybody can write. An IPv6 address stands for its network of 64 bits, which one household has.
fn address_of(request: &HttpRequest) -> String {
    let peer = request.peer_addr().map(|peer| peer.ip());
    let forwarded = || {
        let header = request.headers().get_all("x-forwarded-for").last()?.to_str().ok()?;
        header.rsplit(',').next()?.trim().parse::<IpAddr>().ok()
    };
    let address = if peer.is_some_and(|peer| peer.is_loopback()) { forwarded().or(peer) } else { peer };
    match address {
        Some(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_none() => {
            let [a, b, c, d, ..] = v6.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
        Some(IpAddr::V6(v6)) => v6.to_ipv4_mapped().map(|v4| v4.to_string()).unwrap_or_default(),
        Some(IpAddr::V4(v4)) => v4.to_string(),
        None => "unknown".to_owned(),
    }
}

fn audit(shared: &Shared, actor: String, action: &str, subject: Option<String>) -> Audit {
    Audit {
        actor,
        at: shared.clock.now(),
        action: action.to_owned(),
        operation_id: None,
        subject,
        from: None,
        to: None,
        note: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[test]
    fn the_address_is_the_peers_or_what_the_proxy_beside_us_saw() {
        let address = |peer: &str, forwarded: &[&'static str]| {
            let request = TestRequest::get().peer_addr(peer.parse().expect("an address"));
            let request = forwarded.iter().fold(request, |r, value| r.append_header(("x-forwarded-for", *value)));
            address_of(&request.to_http_request())
        };
        assert_eq!(address("203.0.113.9:1", &[]), "203.0.113.9");
        assert_eq!(address("203.0.113.9:1", &["198.51.100.1"]), "203.0.113.9", "anybody may write that header");
        assert_eq!(address("127.0.0.1:1", &["198.51.100.1, 203.0.113.7"]), "203.0.113.7");
        assert_eq!(address("127.0.0.1:1", &["198.51.100.1", "203.0.113.8"]), "203.0.113.8");
        assert_eq!(address("127.0.0.1:1", &["rubbish"]), "127.0.0.1");
        assert_eq!(address("[2001:db8:1:2:3:4:5:6]:1", &[]), "2001:db8:1:2::/64");
        assert_eq!(address("[::ffff:203.0.113.9]:1", &[]), "203.0.113.9");
    }
}

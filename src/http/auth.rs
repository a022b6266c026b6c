//! Who asks: bearer tokens of people and programs (by role), and of sources (for their own operations).

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap};
use actix_web::middleware::Next;
use actix_web::{HttpMessage, HttpRequest, web};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::problem::{Kind, Problem};
use super::session;
use super::state::Shared;
use crate::clock::Entropy;
use crate::operation::SourceName;
use crate::operation::id::hex;
use crate::store::Role;

/// The holder of a token from `leadonce token create`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Person {
    /// The token's name, as the audit log shows it.
    pub(crate) name: String,
    /// What it may.
    pub(crate) role: Role,
}

/// Who asks for an operation's status.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A sender, for the sources whose token it bears.
    Sources(Vec<SourceName>),
    /// A person or program with a role, for all sources.
    Person(Person),
}

impl Caller {
    /// Whether operations of this source are shown to it.
    pub(crate) fn may_see(&self, source: &SourceName) -> bool {
        match self {
            Self::Sources(own) => own.contains(source),
            Self::Person(_) => true,
        }
    }
}

/// The token of `Authorization: Bearer …`; the scheme in any case (RFC 9110).
fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let missing = || Problem::new(Kind::Unauthorized, "send the header Authorization: Bearer TOKEN");
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).ok_or_else(missing)?;
    let (scheme, token) = value.split_once(' ').ok_or_else(missing)?;
    let token = token.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() { Ok(token) } else { Err(missing()) }
}

pub(crate) async fn person(token: &str, shared: &Shared) -> Result<Person, Problem> {
    let sha256 = Sha256::digest(token.as_bytes()).to_vec();
    let found = shared.store.token(sha256, shared.clock.now()).await?;
    let wrong = || Problem::new(Kind::Unauthorized, "this token is not known, or was revoked");
    found.map(|token| Person { name: token.name, role: token.role }).ok_or_else(wrong)
}

/// Who asks for a status: a source by its token, or a person of any role.
pub(crate) async fn caller(request: &HttpRequest, shared: &Shared) -> Result<Caller, Problem> {
    let token = bearer(request.headers())?;
    let sha256 = Sha256::digest(token.as_bytes());
    // All are compared, each in constant time: how long it takes says nothing about the tokens.
    let own: Vec<SourceName> = shared
        .sources
        .values()
        .filter(|inbound| inbound.token_sha256.is_some_and(|known| bool::from(known.ct_eq(sha256.as_slice()))))
        .map(|inbound| inbound.settings.name.clone())
        .collect();
    if own.is_empty() { person(token, shared).await.map(Caller::Person) } else { Ok(Caller::Sources(own)) }
}

/// Who asks: a program or a person by a token, or a person in a browser by the session's cookie.
async fn who(request: &HttpRequest, shared: &Shared) -> Result<Person, Problem> {
    match session::value_of(request) {
        Some(value) if !request.headers().contains_key(header::AUTHORIZATION) => {
            let (name, role) = session::holder(request, &value, shared).await?;
            Ok(Person { name, role })
        }
        Some(_) | None => person(bearer(request.headers())?, shared).await,
    }
}

/// A new token; it is shown once and kept as SHA-256.
pub fn new_token(entropy: &dyn Entropy) -> String {
    let mut secret = [0; 32];
    entropy.fill(&mut secret);
    format!("lo_{}", hex(&secret))
}

/// The one place where roles are enforced: each admin route is wrapped in it with the role it needs.
pub(crate) async fn require(
    needed: Role,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, actix_web::Error> {
    let person = match request.app_data::<web::Data<Shared>>() {
        Some(shared) => who(request.request(), shared).await,
        None => Err(Problem::new(Kind::Internal, "the server is not set up")),
    };
    match person.and_then(|person| permit(needed, person)) {
        Ok(person) => {
            request.extensions_mut().insert(person);
            next.call(request).await
        }
        Err(problem) => Ok(request.into_response(problem.response())),
    }
}

fn permit(needed: Role, person: Person) -> Result<Person, Problem> {
    if person.role >= needed {
        return Ok(person);
    }
    let detail = format!("this needs the role {}, the token has {}", needed.as_str(), person.role.as_str());
    Err(Problem::new(Kind::Forbidden, detail))
}

/// The person that [`require`] let through.
pub(crate) fn actor(request: &HttpRequest) -> Result<Person, Problem> {
    let person = request.extensions().get::<Person>().cloned();
    person.ok_or_else(|| Problem::new(Kind::Internal, "this address is open to nobody"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    #[test]
    fn a_bearer_token_is_read_and_nothing_else() {
        let read = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            bearer(&headers).map(str::to_owned).ok()
        };
        assert_eq!(read("Bearer abc"), Some("abc".into()));
        assert_eq!(read("bearer  abc "), Some("abc".into()));
        for wrong in ["abc", "Basic abc", "Bearer", "Bearer ", ""] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()).map_err(|problem| problem.status()), Err(401));
    }

    #[test]
    fn a_role_holds_for_all_that_smaller_roles_may() {
        for needed in Role::ALL {
            for role in Role::ALL {
                let person = Person { name: "anna".into(), role };
                let status = permit(needed, person).map_err(|problem| problem.status()).err();
                assert_eq!(status, (role < needed).then_some(403), "{role:?} for {needed:?}");
            }
        }
    }

    #[test]
    fn a_source_sees_its_own_operations_and_a_person_all() {
        let name = |name: &str| name.parse::<SourceName>().expect("a name");
        let sender = Caller::Sources(vec![name("shop")]);
        assert!(sender.may_see(&name("shop")) && !sender.may_see(&name("site")));
        assert!(Caller::Person(Person { name: "anna".into(), role: Role::Viewer }).may_see(&name("site")));
    }
}

//! `/v1/admin/tokens`: bearer tokens of people and programs. A token is shown once, in the answer that makes it.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::super::problem::{Kind, Problem};
use super::super::state::Shared;
use super::super::{auth, json};
use super::{Refusals, people, written};
use crate::clock::At;
use crate::store::{Role, Token};

const USAGE: &str = "{\"name\":\"reports\",\"role\":\"viewer|operator|admin\"}";
const LONGEST_NAME: usize = 100;

/// All tokens.
#[derive(Serialize, ToSchema)]
pub(super) struct Tokens {
    items: Vec<TokenView>,
}

/// A token, without its secret.
#[derive(Serialize, ToSchema)]
#[schema(as = Token)]
pub(super) struct TokenView {
    name: String,
    role: Role,
    created_at: String,
    revoked_at: Option<String>,
    /// To the minute.
    last_used_at: Option<String>,
}

impl From<Token> for TokenView {
    fn from(token: Token) -> Self {
        Self {
            name: token.name,
            role: token.role,
            created_at: token.created_at.rfc3339(),
            revoked_at: token.revoked_at.map(At::rfc3339),
            last_used_at: token.last_used_at.map(At::rfc3339),
        }
    }
}

/// A new token.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    role: Role,
}

/// A token that was made; its secret is shown this once.
#[derive(Serialize, ToSchema)]
pub(super) struct MadeToken {
    token: String,
    role: Role,
    name: String,
}

/// All tokens, revoked ones included, by the time they were made.
#[utoipa::path(get, path = "/v1/admin/tokens", operation_id = "list_tokens", tag = "people",
    responses((status = 200, description = "All tokens.", body = Tokens), Refusals))]
pub(super) async fn list(shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let items = shared.store.tokens().await?.into_iter().map(TokenView::from).collect();
    Ok(HttpResponse::Ok().json(Tokens { items }))
}

/// Makes a token and shows it, once.
#[utoipa::path(post, path = "/v1/admin/tokens", operation_id = "create_token", tag = "people",
    request_body = NewToken,
    responses((status = 201, description = "Made.", body = MadeToken),
              (status = 409, description = "The name is taken.", body = written::ProblemDocument,
               content_type = "application/problem+json"), Refusals))]
pub(super) async fn create(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Problem> {
    let actor = auth::actor(&request)?;
    let wanted: NewToken = json::read(payload, &shared, USAGE).await?;
    let name = super::new_name(&wanted.name, LONGEST_NAME)?;
    let token = auth::new_token(shared.entropy.as_ref());
    let audit = people::entry(&shared, actor.name, "token_create", &name, Some(wanted.role.as_str()));
    let sha256 = Sha256::digest(token.as_bytes()).to_vec();
    if !shared.store.create_token(name.clone(), wanted.role, sha256, audit).await? {
        let detail = "an active token of this name exists; revoke it first, or choose another name";
        return Err(Problem::new(Kind::NameTaken, detail));
    }
    Ok(HttpResponse::Created().json(MadeToken { token, role: wanted.role, name }))
}

/// Revokes the active token of that name; sessions that were begun with it end.
#[utoipa::path(post, path = "/v1/admin/tokens/{name}/revoke", operation_id = "revoke_token", tag = "people",
    params(("name" = String, Path, description = "The token's name.")),
    responses((status = 204, description = "Revoked."), Refusals))]
pub(super) async fn revoke(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let actor = auth::actor(&request)?;
    let name = super::name_in_path(&request)?;
    let audit = people::entry(&shared, actor.name, "token_revoke", &name, None);
    if !shared.store.revoke_token(name, audit).await? {
        return Err(Problem::new(Kind::NotFound, "there is no active token of that name"));
    }
    Ok(HttpResponse::NoContent().finish())
}

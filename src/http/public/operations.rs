//! `GET /v1/operations/{id}` and `GET /v1/operations?source=S&key=K`: the status of an operation, for its sender or an
//! operator.

use actix_web::{HttpRequest, HttpResponse, web};
use percent_encoding::percent_decode_str;

use super::super::auth::{self, Caller};
use super::super::problem::{Kind, Problem};
use super::super::state::Shared;
use super::super::view::OperationView;
use crate::operation::{Operation, OperationId, SourceKey, SourceName};

/// By id.
pub(crate) async fn by_id(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let caller = auth::caller(&request, &shared).await?;
    let id = request.match_info().get("id").and_then(|id| id.parse::<OperationId>().ok()).ok_or_else(unknown)?;
    tell(&caller, shared.store.operation(id).await?)
}

/// By the sender's key.
pub(crate) async fn by_key(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let caller = auth::caller(&request, &shared).await?;
    let (source, key) = asked(request.query_string())?;
    // Nobody learns from the answer whether a source that is not his has a key.
    if !caller.may_see(&source) {
        return Err(unknown());
    }
    let native = SourceKey::from_native(&key).ok_or_else(|| bad("key is empty"))?;
    let mut found = shared.store.operation_of_key(source.clone(), native.clone()).await?;
    if found.is_none() && native.as_bytes() != key {
        // A long key in the form in which we show it.
        found = shared.store.operation_of_key(source, SourceKey::from_stored(key)).await?;
    }
    tell(&caller, found)
}

fn tell(caller: &Caller, operation: Option<Operation>) -> Result<HttpResponse, Problem> {
    let operation = operation.filter(|operation| caller.may_see(&operation.source)).ok_or_else(unknown)?;
    Ok(HttpResponse::Ok()
        .insert_header(("etag", format!("\"{}\"", operation.version)))
        .json(OperationView::from(&operation)))
}

fn unknown() -> Problem {
    Problem::new(Kind::NotFound, "there is no such operation, or it is not of your source")
}

fn bad(detail: &str) -> Problem {
    Problem::new(Kind::BadRequest, format!("{detail}; ask with ?source=NAME&key=KEY"))
}

/// Source and key of the query string; the key byte for byte, because keys need not be text.
fn asked(query: &str) -> Result<(SourceName, Vec<u8>), Problem> {
    let mut source = None;
    let mut key = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value: Vec<u8> = percent_decode_str(&value.replace('+', " ")).collect();
        match name {
            "source" if source.is_none() => source = Some(value),
            "key" if key.is_none() => key = Some(value),
            "source" | "key" => return Err(bad("source and key are given once")),
            _ => return Err(bad("the query knows source and key")),
        }
    }
    let source = source.ok_or_else(|| bad("source is missing"))?;
    let source = String::from_utf8(source).ok().and_then(|name| SourceName::try_from(name).ok());
    Ok((source.ok_or_else(unknown)?, key.ok_or_else(|| bad("key is missing"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_byte_for_byte() {
        let key = |query: &str| asked(query).map(|(_, key)| key).ok();
        assert_eq!(key("source=site&key=a1b2"), Some(b"a1b2".to_vec()));
        assert_eq!(key("key=1%3A77&source=site"), Some(b"1:77".to_vec()));
        assert_eq!(key("source=site&key=a+b%2Bc"), Some(b"a b+c".to_vec()));
        assert_eq!(key("source=site&key=%ff%00"), Some(vec![0xff, 0]));
        assert_eq!(key("source=site&key=a=b"), Some(b"a=b".to_vec()));
    }

    #[test]
    fn a_query_that_is_not_understood_is_told_and_not_guessed() {
        for (query, status) in [
            ("", 400),
            ("source=site", 400),
            ("key=1", 400),
            ("source=a&source=b&key=1", 400),
            ("source=site&key=1&limit=5", 400),
            ("source=no%20name&key=1", 404),
        ] {
            assert_eq!(asked(query).map_err(|problem| problem.status()).err(), Some(status), "{query}");
        }
    }
}

//! `/static/leadonce.js`: the script for pages with forms.

use std::sync::OnceLock;

use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse};
use sha2::{Digest, Sha256};

use crate::intake::SCRIPT;
use crate::operation::id::hex;

/// Serves it, with a tag by its content: pages that have it are told so (304) instead of loading it again.
pub(crate) async fn serve(request: HttpRequest) -> HttpResponse {
    static TAG: OnceLock<String> = OnceLock::new();
    let tag = TAG.get_or_init(|| format!("\"{}\"", hex(&Sha256::digest(SCRIPT))));
    let known = request.headers().get_all(header::IF_NONE_MATCH).filter_map(|value| value.to_str().ok());
    let same = known.flat_map(|value| value.split(',')).any(|one| one.trim().trim_start_matches("W/") == tag);
    let mut answer = if same { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    answer
        .insert_header((header::ETAG, tag.as_str()))
        // An hour: a corrected script reaches every page soon.
        .insert_header((header::CACHE_CONTROL, "public, max-age=3600"))
        // Pages of other origins load it, also with an integrity hash.
        .insert_header((header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"))
        .insert_header((header::CROSS_ORIGIN_RESOURCE_POLICY, "cross-origin"));
    if same {
        return answer.finish();
    }
    answer
        .insert_header((header::CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8")))
        .body(SCRIPT)
}

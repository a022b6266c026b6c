//! `/static/leadonce.js`: the script for pages with forms.

use std::io::Write;
use std::sync::OnceLock;

use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use crate::intake;
use crate::operation::id::hex;

/// The script as it goes over the wire, made once.
struct Served {
    text: String,
    /// `None` should compressing have failed.
    gzip: Option<Vec<u8>>,
    tag: String,
}

fn served() -> &'static Served {
    static SERVED: OnceLock<Served> = OnceLock::new();
    SERVED.get_or_init(|| {
        let text = intake::script();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        let gzip = gzip.write_all(text.as_bytes()).and_then(|()| gzip.finish()).ok();
        // Weak: it stands for the text, whatever its coding on the way.
        let tag = format!("W/\"{}\"", hex(&Sha256::digest(&text)));
        Served { text, gzip, tag }
    })
}

/// Serves it, with a tag by its content: pages that have it are told so (304) instead of loading it again.
pub(crate) async fn serve(request: HttpRequest) -> HttpResponse {
    let Served { text, gzip, tag } = served();
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let known = request.headers().get_all(header::IF_NONE_MATCH).filter_map(|value| value.to_str().ok());
    let same = known.flat_map(|value| value.split(',')).any(|one| opaque(one) == opaque(tag));
    let mut answer = if same { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    answer
        .insert_header((header::ETAG, tag.as_str()))
        // An hour: a corrected script reaches every page soon.
        .insert_header((header::CACHE_CONTROL, "public, max-age=3600"))
        .insert_header((header::VARY, "accept-encoding"))
        // Pages of other origins load it, also with an integrity hash.
        .insert_header((header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"))
        .insert_header((header::CROSS_ORIGIN_RESOURCE_POLICY, "cross-origin"));
    if same {
        return answer.finish();
    }
    answer.insert_header((header::CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8")));
    let accepted = request.headers().get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
    match gzip {
        Some(gzip) if takes_gzip(accepted) => {
            answer.insert_header((header::CONTENT_ENCODING, "gzip")).body(gzip.as_slice())
        }
        _ => answer.body(text.as_str()),
    }
}

/// Whether a client takes gzip; one that forbids it (`gzip;q=0`) does not.
fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case("gzip"))
            && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_loads_little() {
        let length = served().gzip.as_ref().map_or(usize::MAX, Vec::len);
        assert!(length <= 1_250, "the script has grown to {length} bytes");
    }

    #[test]
    fn gzip_is_for_those_who_take_it() {
        for yes in ["gzip", "gzip, deflate, br", "br;q=1.0, GZIP;q=0.8"] {
            assert!(takes_gzip(yes), "{yes}");
        }
        for no in ["", "br", "gzip;q=0", "identity, gzip; q=0.0", "xgzip"] {
            assert!(!takes_gzip(no), "{no}");
        }
    }
}

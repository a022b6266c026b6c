//! The files of the console, part of the program.

use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use sha2::{Digest, Sha256};

use super::super::problem::{Kind, Problem};
use super::super::state::Shared;
use crate::operation::id::hex;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Only our own files, and nothing inline; nobody may frame the page, and no form is sent anywhere (the console sends by script).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! files {
    ($($name:literal: $kind:expr),* $(,)?) => {
        &[$(($name, $kind, include_str!(concat!("assets/", $name)))),*]
    };
}

/// Name, content type, content.
const FILES: &[(&str, &str, &str)] = files! {
    "index.html": HTML,
    "console.css": CSS,
    "icon.svg": SVG,
    "console.js": SCRIPT,
    "api.js": SCRIPT,
    "dom.js": SCRIPT,
    "words.js": SCRIPT,
    "show.js": SCRIPT,
    "sign_in.js": SCRIPT,
    "overview.js": SCRIPT,
    "reviews.js": SCRIPT,
    "case.js": SCRIPT,
    "operation.js": SCRIPT,
    "operations.js": SCRIPT,
    "logs.js": SCRIPT,
    "people.js": SCRIPT,
    "document.js": SCRIPT,
};

/// The handler.
pub(super) async fn serve(request: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let name = request.match_info().get("file").filter(|name| !name.is_empty()).unwrap_or("index.html");
    let found = FILES.iter().find(|(file, ..)| *file == name);
    let Some((_, kind, content)) = found else {
        return Err(Problem::new(Kind::NotFound, "the console has no such file"));
    };
    let tag = format!("\"{}\"", hex(Sha256::digest(content.as_bytes()).get(..8).unwrap_or_default()));
    let known = request.headers().get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == tag.as_bytes());
    let mut answer = if known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    answer
        .insert_header((header::CONTENT_TYPE, *kind))
        .insert_header((header::ETAG, tag))
        // Asked for each time, so that a new version of the gateway never runs with pages of the old.
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_FRAME_OPTIONS, "DENY"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header((HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")))
        .insert_header((
            HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("same-origin"),
        ));
    if shared.settings.console_url.starts_with("https://") {
        answer.insert_header((header::STRICT_TRANSPORT_SECURITY, "max-age=31536000"));
    }
    Ok(if known { answer.finish() } else { answer.body(*content) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_console_is_handed_out_and_none_is_missing() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/console/assets");
        let mut present: Vec<String> = std::fs::read_dir(folder)
            .expect("the folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        let mut served: Vec<String> = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        present.sort_unstable();
        served.sort_unstable();
        assert_eq!(present, served);
    }

    #[test]
    fn nothing_is_inline_and_nothing_comes_from_outside() {
        for (name, kind, content) in FILES {
            let lower = content.to_lowercase();
            for inline in [
                "style=\"",
                "<style",
                " onclick",
                " onerror",
                " onload",
                "javascript:",
                "innerhtml",
                "eval(",
                "document.write",
                "insertadjacenthtml",
                "outerhtml",
            ] {
                assert!(!lower.contains(inline), "{name}: {inline}");
            }
            let outside: Vec<&str> = lower
                .match_indices("//")
                .map(|(at, _)| lower.get(at.saturating_sub(6)..at + 24).unwrap_or_default())
                .filter(|near| near.contains("http://") || near.contains("https://"))
                .collect();
            let allowed = |near: &&str| !near.contains("www.w3.org");
            assert!(*kind == SVG || !outside.iter().any(allowed), "{name}: {outside:?}");
            if *kind == HTML {
                assert!(
                    !lower.replace("<script type=\"module\" src=", "").contains("<script"),
                    "{name}: a script without a file"
                );
            }
        }
    }
}

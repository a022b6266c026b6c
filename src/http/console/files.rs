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
            let markup = ["style=\"", "<style", " onclick", " onerror", " onload", "javascript:"];
            let sinks = ["innerhtml", "outerhtml", "insertadjacenthtml", "document.write", "eval(", "new function"];
            let inline = if *kind == SCRIPT { &sinks[..] } else { &markup };
            for inline in inline {
                assert!(!lower.contains(inline), "{name}: {inline}");
            }
            // The name of SVG's elements is no address that anything is fetched from.
            let lower = lower.replace("http://www.w3.org/2000/svg", "");
            let outside = lower.contains("http://") || lower.contains("https://");
            assert!(*kind == SVG || !outside, "{name} names an address outside");
            if *kind == HTML {
                assert!(
                    !lower.replace("<script type=\"module\" src=", "").contains("<script"),
                    "{name}: a script without a file"
                );
            }
        }
    }

    /// The keys of a language's words.
    fn keys<'a>(words: &'a str, language: &str) -> Vec<&'a str> {
        let (_, from) = words.split_once(&format!("const {language} = {{")).expect("the language");
        let (table, _) = from.split_once("\n};").expect("its end");
        let mut keys: Vec<&str> = table
            .split('"')
            .collect::<Vec<_>>()
            .windows(2)
            .filter(|pair| pair[1].starts_with(": "))
            .map(|pair| pair[0])
            .collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn every_word_is_there_in_both_languages_and_once() {
        let words = FILES.iter().find(|(name, ..)| *name == "words.js").expect("the words").2;
        let (english, russian) = (keys(words, "EN"), keys(words, "RU"));
        assert!(english.len() > 200, "{}", english.len());
        assert_eq!(english, russian);
        assert!(english.windows(2).all(|pair| pair[0] != pair[1]), "a key stands twice");
        for (name, _, content) in FILES.iter().filter(|(name, ..)| *name != "words.js") {
            for used in content.split("t(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let word = used.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c));
                assert!(!word || used.len() < 2 || english.binary_search(&used).is_ok(), "{name}: {used}");
            }
        }
    }

    #[test]
    fn every_state_and_reason_has_its_words() {
        use crate::operation::{FailReason, KeyOrigin, ReviewReason, State};
        let words = FILES.iter().find(|(name, ..)| *name == "words.js").expect("the words").2;
        let english = keys(words, "EN");
        let mut wanted: Vec<String> = State::ALL.iter().map(|state| format!("state.{}", state.as_str())).collect();
        wanted.extend(KeyOrigin::ALL.iter().map(|origin| format!("key.{}", origin.as_str())));
        wanted.extend(
            FailReason::ALL.iter().flat_map(|r| ["reason", "happened"].map(|kind| format!("{kind}.{}", r.as_str()))),
        );
        let told = ["reason", "happened", "known", "unknown"];
        wanted.extend(ReviewReason::ALL.iter().flat_map(|r| told.map(|kind| format!("{kind}.{}", r.as_str()))));
        for key in wanted {
            assert!(english.binary_search(&key.as_str()).is_ok(), "{key}");
        }
    }
}

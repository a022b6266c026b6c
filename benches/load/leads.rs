//! The leads of a load.

#![allow(dead_code, reason = "tests take what they need")]

use leadonce::clock::{Clock, Entropy, SystemClock, SystemEntropy, uuid_v7};

/// What a lead writes.
pub(crate) const MESSAGE: &str = "I would like to know what a new roof of about one hundred and twenty square metres costs, with the old one taken \
    away, and when you could begin. Please call after six, or write. Thank you in advance, and have a nice day.";

/// The requests of a run: leads under new keys, the same ten thousand again and again, or nine new and one known.
pub(crate) fn requests(kind: &str) -> impl FnMut(&mut Vec<u8>) + 'static {
    let kind = kind.to_owned();
    let (clock, entropy) = (SystemClock::default(), SystemEntropy);
    let mut number = 0_u64;
    move |out| {
        number += 1;
        let source = if kind == "random" { "random" } else { "ordered" };
        let known = kind == "replay" || (kind == "mix" && number.is_multiple_of(10));
        let key = match (known, source) {
            (true, _) => format!("018f0000-0000-7000-8000-{:012x}", number % 10_000),
            (false, "random") => random(&entropy),
            (false, _) => uuid_v7(clock.now(), &entropy).to_string(),
        };
        lead(out, source, &key);
    }
}

/// A lead under that key.
pub(crate) fn lead(out: &mut Vec<u8>, source: &str, key: &str) {
    let message = MESSAGE.replace(' ', "+");
    let body = format!(
        "name=Anna+Petrova&phone=%2B7+916+123-45-67&email=anna%40example.com&message={message}&utm_source=ads&_submission_id={key}"
    );
    post(out, &format!("/v1/intake/{source}"), "application/x-www-form-urlencoded", &body);
}

fn random(entropy: &SystemEntropy) -> String {
    let mut bytes = [0; 16];
    entropy.fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

/// One POST, head and body.
pub(crate) fn post(out: &mut Vec<u8>, path: &str, kind: &str, body: &str) {
    use std::io::Write;
    write!(
        out,
        "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {kind}\r\nAccept: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("written to memory");
}

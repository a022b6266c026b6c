//! What all connectors share when they read an answer: ids, waits, excerpts, and the status table of last resort.
//!
//! Everything here is pure. A connector reads the vendor's own code first and comes here only for what it does not name
//! (contract 5).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::{Answer, Exchange, TransportError};
use crate::clock::At;
use crate::operation::{CrmId, Failure, FailureClass, Lead};

/// The longest excerpt of a body that is kept, in bytes of the body.
pub const EXCERPT: usize = 2048;
/// The longest message of a failure, in characters.
pub const LONGEST_MESSAGE: usize = 500;

/// How long the CRM asks to wait, from `Retry-After`: seconds, or a date in any of the three forms of RFC 9110.
///
/// A date is compared with the answer's own `Date`, so that a wrong clock of the CRM moves nothing; without one, with `now`.
/// Rubbish, negative numbers, zero and dates that have passed are `None`: our own wait applies. Nothing is capped here
/// (contract 4.1 rule 5: the delivery engine caps), but nothing overflows either.
pub fn retry_after(answer: &Answer, now: At) -> Option<Duration> {
    let text = answer.header("retry-after")?.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than fit are still a wait, the longest there is.
        let seconds = text.parse().unwrap_or(u64::MAX);
        return (seconds > 0).then(|| Duration::from_secs(seconds));
    }
    let until = http_date(text)?;
    let from = answer.header("date").and_then(http_date).unwrap_or(now);
    let wait = until.since(from);
    (!wait.is_zero()).then_some(wait)
}

fn http_date(text: &str) -> Option<At> {
    let time: SystemTime = httpdate::parse_http_date(text.trim()).ok()?;
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some(At::from_seconds(i64::try_from(seconds).ok()?))
}

/// The class of a complete answer that the vendor's rules do not name, by its status alone (contract 5).
///
/// No 5xx proves anything here: a proxy in front of the CRM may speak. Neither does a 2xx, which says that something
/// happened but not what.
pub const fn class_of_status(status: u16) -> FailureClass {
    match status {
        400 | 422 => FailureClass::Rejected,
        429 => FailureClass::Throttled,
        // Credentials, billing, rights, a moved address, a wrong address: the same for every lead.
        301 | 302 | 307 | 308 | 401 | 402 | 403 | 404 | 405 | 407 | 410 => FailureClass::Account,
        _ => FailureClass::Uncertain,
    }
}

/// A failure by the status alone, with the wait that the answer asks for and the CRM's own words where it has some.
pub fn by_status(answer: &Answer, now: At) -> Failure {
    let class = class_of_status(answer.status);
    let words = match answer.status {
        200..=299 => "the answer names no entity".to_owned(),
        301 | 302 | 303 | 307 | 308 => "the CRM's address has moved; it was not followed".to_owned(),
        _ => String::new(),
    };
    let text = plain_text(&answer.body).unwrap_or_default();
    let parts: Vec<&str> = [words.as_str(), text.as_str()].into_iter().filter(|part| !part.is_empty()).collect();
    let message = match parts.is_empty() {
        true => format!("HTTP {}", answer.status),
        false => format!("HTTP {}: {}", answer.status, parts.join(": ")),
    };
    Failure { retry_after: retry_after(answer, now), ..Failure::new(class, message_of(&message)) }
}

/// The failure of a call without a complete answer.
pub fn by_transport(error: &TransportError) -> Failure {
    let class = match error.class {
        FailureClass::NotSent => FailureClass::NotSent,
        // The transport proves nothing else, whatever it says.
        _ => FailureClass::Uncertain,
    };
    let message = match error.status {
        Some(status) => format!("HTTP {status}, then: {}", error.message),
        None => error.message.clone(),
    };
    Failure::new(class, message_of(&message))
}

/// The complete answer, or the failure of a call that has none.
pub fn complete(exchange: &Exchange) -> Result<&Answer, Failure> {
    exchange.as_ref().map_err(by_transport)
}

/// The first bytes of a body for people: valid text, control characters escaped, cut with a note.
pub fn excerpt(body: &[u8]) -> String {
    let head = body.get(..EXCERPT).unwrap_or(body);
    let mut text = String::with_capacity(head.len());
    // A character that the cut went through is dropped, not shown as broken.
    let whole = match std::str::from_utf8(head) {
        Err(error) if error.error_len().is_none() && head.len() < body.len() => {
            head.get(..error.valid_up_to()).unwrap_or(head)
        }
        _ => head,
    };
    for c in String::from_utf8_lossy(whole).chars() {
        match c {
            '\n' | '\t' => text.push(c),
            c if c.is_control() || is_bidi_control(c) => text.extend(c.escape_unicode()),
            c => text.push(c),
        }
    }
    if head.len() < body.len() {
        text.push_str(&format!(" … ({} bytes in all)", body.len()));
    }
    text
}

/// One line of at most [`LONGEST_MESSAGE`] characters: white space folded, control characters escaped.
pub fn message_of(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(4 * LONGEST_MESSAGE));
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        for c in word.chars() {
            if c.is_control() || is_bidi_control(c) { line.extend(c.escape_unicode()) } else { line.push(c) }
        }
        if line.len() > 4 * LONGEST_MESSAGE {
            break;
        }
    }
    match line.char_indices().nth(LONGEST_MESSAGE - 1) {
        Some((at, _)) if line.chars().nth(LONGEST_MESSAGE).is_some() => {
            line.truncate(at);
            line.push('…');
            line
        }
        _ => line,
    }
}

/// Characters that turn the direction of text and so can forge what a reader sees.
const fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A CRM's own words without the lead's contacts: validation errors like to repeat the value they refuse, and messages are
/// stored and shown where personal data is not needed (G8).
pub fn impersonal(text: &str, lead: &Lead) -> String {
    let contacts = lead.phones.iter().chain(&lead.emails);
    let values = contacts.flat_map(|contact| [Some(&contact.text), contact.normal.as_ref()]);
    let values = values.chain([lead.name.as_ref(), lead.last_name.as_ref()]).flatten();
    values.filter(|value| value.chars().count() > 3).fold(text.to_owned(), |text, value| text.replace(value, "***"))
}

/// The body as JSON, a byte-order mark skipped (RFC 8259 section 8.1 lets a reader do so). Numbers keep their text.
pub fn json(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(without_bom(body)).ok()
}

/// The body less a UTF-8 byte-order mark.
pub fn without_bom(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

/// An id as the CRM gave it: an integer or a text, byte for byte. A fraction, 0, null and an empty text are no ids:
/// `12345.0` may be a rounded number, and a nonsense id is worse than none.
pub fn id_text(value: &Value) -> Option<CrmId> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => {
            let text = number.to_string();
            text.bytes().all(|b| b.is_ascii_digit()).then_some(text)?
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    if text.bytes().all(|b| b == b'0') {
        return None;
    }
    CrmId::try_from(text).ok()
}

/// A value as text for a comparison: texts as they are, numbers by their literal.
pub fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// What the CRM said, where its answer is short plain text or JSON with one of the usual message fields; a page of HTML is
/// not repeated.
pub fn plain_text(body: &[u8]) -> Option<String> {
    if let Some(value) = json(body) {
        let fields = ["error_description", "message", "detail", "title", "error"];
        return fields.iter().find_map(|name| match value.get(name) {
            Some(Value::String(text)) if !text.trim().is_empty() => Some(text.clone()),
            _ => None,
        });
    }
    let text = std::str::from_utf8(without_bom(body)).ok()?.trim();
    if text.is_empty() {
        return None;
    }
    match text.starts_with('<') {
        true => Some("a page of HTML".to_owned()),
        false => Some(text.chars().take(LONGEST_MESSAGE).collect()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Answer { status, headers, body: body.to_vec() }
    }

    fn wait(headers: &[(&str, &str)], now: &str) -> Option<u64> {
        let now = At::parse_rfc3339(now).expect("a time");
        retry_after(&answer(429, headers, b""), now).map(|wait| wait.as_secs())
    }

    const NOW: &str = "2026-10-21T07:26:30Z";

    #[test]
    fn seconds_are_read_and_rubbish_is_ignored() {
        assert_eq!(wait(&[("retry-after", "120")], NOW), Some(120));
        assert_eq!(wait(&[("retry-after", " 7 ")], NOW), Some(7));
        for rubbish in ["", " ", "-1", "NaN", "120junk", "1.5", "0x10", "0", "+5", "inf", "１２"] {
            assert_eq!(wait(&[("retry-after", rubbish)], NOW), None, "{rubbish:?}");
        }
        assert_eq!(wait(&[], NOW), None);
    }

    #[test]
    fn a_huge_wait_is_kept_and_does_not_overflow() {
        assert_eq!(wait(&[("retry-after", "99999999999")], NOW), Some(99_999_999_999));
        assert_eq!(wait(&[("retry-after", "99999999999999999999999")], NOW), Some(u64::MAX));
        let far = At::parse_rfc3339(NOW).expect("a time").plus(Duration::from_secs(u64::MAX));
        assert_eq!(far.micros(), i64::MAX);
    }

    #[test]
    fn all_three_forms_of_a_date_are_read() {
        for date in ["Wed, 21 Oct 2026 07:28:00 GMT", "Wednesday, 21-Oct-26 07:28:00 GMT", "Wed Oct 21 07:28:00 2026"] {
            assert_eq!(wait(&[("retry-after", date)], NOW), Some(90), "{date}");
        }
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2026 07:26:00 GMT")], NOW), None);
        assert!(wait(&[("retry-after", "Tue, 21 Oct 2036 07:28:00 GMT")], NOW).is_some_and(|s| s > 300_000_000));
    }

    #[test]
    fn a_wrong_clock_of_the_crm_is_corrected_by_its_date() {
        let headers = [("date", "Wed, 21 Oct 2026 07:31:30 GMT"), ("retry-after", "Wed, 21 Oct 2026 07:33:00 GMT")];
        assert_eq!(wait(&headers, NOW), Some(90));
    }

    #[test]
    fn ids_are_integers_or_texts_byte_for_byte() {
        let id = |json: &str| id_text(&serde_json::from_str(json).expect("json")).map(|id| id.to_string());
        for (json, expected) in [
            ("12345", Some("12345")),
            ("\"12345\"", Some("12345")),
            ("37765128953", Some("37765128953")),
            ("9007199254740993", Some("9007199254740993")),
            ("18446744073709551617", Some("18446744073709551617")),
            ("\"a0B5g00000XyZ\"", Some("a0B5g00000XyZ")),
            ("\"007\"", Some("007")),
            ("12345.0", None),
            ("1e3", None),
            ("-5", None),
            ("0", None),
            ("\"0\"", None),
            ("\"\"", None),
            ("\" \"", None),
            ("\"a\\u0000b\"", None),
            ("null", None),
            ("true", None),
            ("[1]", None),
            ("{\"id\":1}", None),
        ] {
            assert_eq!(id(json).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn a_byte_order_mark_before_json_is_skipped() {
        assert_eq!(json(b"\xef\xbb\xbf{\"result\":42}"), json(b"{\"result\":42}"));
        assert!(json(b"\xef\xbb\xbf{\"result\":42}").is_some());
    }

    #[test]
    fn an_excerpt_is_valid_text_without_control_characters() {
        let page = format!("<html>\u{1b}[2J\u{202e}{}</html>", "й".repeat(5000));
        let text = excerpt(page.as_bytes());
        assert!(text.starts_with("<html>\\u{1b}[2J\\u{202e}"), "{text}");
        assert!(text.len() < 2200 && text.ends_with(" bytes in all)") && !text.contains('\u{fffd}'), "{text}");
        assert_eq!(excerpt(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(excerpt(b""), "");
    }

    #[test]
    fn a_message_is_one_short_line() {
        assert_eq!(message_of("a\r\n2026 INFO faked\u{7}"), "a 2026 INFO faked\\u{7}");
        assert_eq!(message_of(&"й".repeat(900)).chars().count(), LONGEST_MESSAGE);
        assert_eq!(message_of(&"й".repeat(500)), "й".repeat(500));
    }

    #[test]
    fn a_message_does_not_repeat_the_leads_contacts() {
        let contact = |text: &str, normal: &str| crate::operation::lead::Contact {
            text: text.into(),
            normal: Some(normal.into()),
        };
        let lead = Lead {
            name: Some("Anna Ivanova".into()),
            phones: vec![contact("8 916 123 45 67", "+79161234567")],
            emails: vec![contact("Anna@Example.com", "anna@example.com")],
            last_name: Some("Li".into()),
            ..Lead::default()
        };
        let said = "bad e-mail anna@example.com (Anna@Example.com), phone +79161234567 of Anna Ivanova: unLikely";
        assert_eq!(impersonal(said, &lead), "bad e-mail *** (***), phone *** of ***: unLikely");
    }

    #[test]
    fn the_status_table_is_that_of_the_contract() {
        use FailureClass::{Account, Rejected, Throttled, Uncertain};
        for (status, class) in [
            (200, Uncertain),
            (201, Uncertain),
            (204, Uncertain),
            (301, Account),
            (302, Account),
            (303, Uncertain),
            (304, Uncertain),
            (307, Account),
            (308, Account),
            (400, Rejected),
            (401, Account),
            (402, Account),
            (403, Account),
            (404, Account),
            (405, Account),
            (408, Uncertain),
            (409, Uncertain),
            (410, Account),
            (418, Uncertain),
            (422, Rejected),
            (429, Throttled),
            (500, Uncertain),
            (502, Uncertain),
            (503, Uncertain),
            (504, Uncertain),
            (520, Uncertain),
            (524, Uncertain),
        ] {
            assert_eq!(class_of_status(status), class, "{status}");
        }
    }

    proptest! {
        #[test]
        fn no_5xx_and_no_2xx_proves_by_its_status_that_nothing_ran(status in 0u16..1000) {
            if (200..300).contains(&status) || status >= 500 {
                prop_assert!(!class_of_status(status).proves_not_executed());
            }
        }

        #[test]
        fn no_answer_breaks_the_helpers(
            status: u16,
            body in prop::collection::vec(any::<u8>(), 0..3000),
            wait in ".{0,40}",
            date in ".{0,40}",
        ) {
            let answer = answer(status, &[("retry-after", &wait), ("date", &date)], &body);
            let failure = by_status(&answer, At::from_seconds(0));
            prop_assert!(failure.message.chars().count() <= LONGEST_MESSAGE);
            prop_assert!(!excerpt(&body).chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        }
    }
}

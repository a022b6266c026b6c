//! The key of an event, in the order of contract 3: native id, `Idempotency-Key`, configured field, missing_key policy.

use std::time::Duration;

use super::{Key, MissingKey, Refused, Request, Settings};
use crate::operation::field::FieldPath;
use crate::operation::id::LONGEST_KEY;
use crate::operation::{KeyOrigin, SourceKey};

/// What a source does for a key, and what it does without one.
#[derive(Debug, Clone)]
pub(super) struct KeyRule {
    field: Option<FieldPath>,
    missing: MissingKey,
    window: Duration,
    header: BadHeader,
}

/// What becomes of an `Idempotency-Key` that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// 400 (kind `api`).
    Refuse,
    /// Treated as missing, and noted (forms and webhooks are not refused for it).
    Note,
}

impl KeyRule {
    /// The rule of a source whose kind has these defaults. An unusable `key` is told by `registry`.
    pub(super) fn of(settings: &Settings, missing: MissingKey, header: BadHeader) -> Self {
        Self {
            field: settings.key.as_deref().and_then(FieldPath::parse),
            missing: settings.missing_key.unwrap_or(missing),
            window: settings.resubmit_window,
            header,
        }
    }

    /// The key of an event, and what to note about it. `field` reads the text of a field, or the literal text of a number.
    pub(super) fn key_of<'p>(
        &self,
        request: &Request,
        native: Option<&str>,
        field: impl FnOnce(&FieldPath) -> Option<&'p str>,
    ) -> Result<(Key, Option<String>), Refused> {
        if let Some(key) = native.and_then(|native| SourceKey::from_native(native.as_bytes())) {
            return Ok((Key::Given(key, KeyOrigin::Native), None));
        }
        let mut note = None;
        match header_key(request) {
            HeaderKey::Key(key) => return Ok((Key::Given(key, KeyOrigin::Header), None)),
            HeaderKey::Bad(why) if self.header == BadHeader::Refuse => return Err(Refused::BadRequest(why.into())),
            HeaderKey::Bad(why) => note = Some(why.to_owned()),
            HeaderKey::Missing => {}
        }
        if let Some(path) = &self.field {
            if let Some(key) = field(path).and_then(|text| SourceKey::from_native(text.as_bytes())) {
                return Ok((Key::Given(key, KeyOrigin::Field), note));
            }
            note = note.or_else(|| Some(format!("the key field {} is missing", path.form_name())));
        }
        match self.missing {
            MissingKey::Reject => Err(Refused::BadRequest(self.how_to_send_a_key())),
            MissingKey::ResubmitWindow => Ok((Key::Window(self.window), note)),
            MissingKey::Generate => Ok((Key::Generate, note)),
        }
    }

    fn how_to_send_a_key(&self) -> String {
        let field = self.field.as_ref().map(|path| format!(" or the field {}", path.form_name())).unwrap_or_default();
        format!("a key is missing: send the header Idempotency-Key{field}, the same at every retry")
    }
}

#[derive(Debug, PartialEq, Eq)]
enum HeaderKey {
    Missing,
    Key(SourceKey),
    Bad(&'static str),
}

/// `Idempotency-Key`: bare, or a quoted string of RFC 9651; 1 to 255 visible ASCII characters after unquoting.
fn header_key(request: &Request) -> HeaderKey {
    let mut found: Option<Vec<u8>> = None;
    for value in request.headers_of("idempotency-key") {
        let Some(key) = unquoted(value.trim_ascii()) else {
            return HeaderKey::Bad("Idempotency-Key must have 1 to 255 visible ASCII characters, bare or in quotes");
        };
        if found.as_ref().is_some_and(|first| *first != key) {
            return HeaderKey::Bad("two Idempotency-Key headers with different values");
        }
        found = Some(key);
    }
    found.and_then(|key| SourceKey::from_native(&key)).map_or(HeaderKey::Missing, HeaderKey::Key)
}

fn unquoted(value: &[u8]) -> Option<Vec<u8>> {
    let key = match value.strip_prefix(b"\"") {
        None if value.contains(&b'"') => return None,
        None => value.to_vec(),
        Some(rest) => {
            let (mut key, mut bytes) = (Vec::with_capacity(rest.len()), rest.iter());
            loop {
                match bytes.next()? {
                    b'"' if bytes.as_slice().is_empty() => break,
                    b'"' => return None,
                    b'\\' => key.push(*bytes.next().filter(|byte| matches!(byte, b'"' | b'\\'))?),
                    byte => key.push(*byte),
                }
            }
            key
        }
    };
    let fits = (1..=LONGEST_KEY).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    fits.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(values: &[&[u8]]) -> HeaderKey {
        let headers = values.iter().map(|value| ("idempotency-key".to_owned(), value.to_vec())).collect();
        header_key(&Request { headers, ..Request::default() })
    }

    fn key(text: &str) -> HeaderKey {
        HeaderKey::Key(SourceKey::from_stored(text.as_bytes().to_vec()))
    }

    #[test]
    fn bare_and_quoted_forms_are_one_key() {
        assert_eq!(header(&[b"8e03978e"]), key("8e03978e"));
        assert_eq!(header(&[b"\"8e03978e\""]), key("8e03978e"));
        assert_eq!(header(&[b"  \"a\\\"b\\\\c\" "]), key("a\"b\\c"));
        assert_eq!(header(&[b"\"a\"", b"a"]), key("a"));
        assert_eq!(header(&[]), HeaderKey::Missing);
    }

    #[test]
    fn odd_but_visible_keys_are_keys_byte_for_byte() {
        for odd in ["a'b;--", "../../x", "a%0d%0ab", "AB", "ab", "0", "null", &"k".repeat(255)] {
            assert_eq!(header(&[odd.as_bytes()]), key(odd));
        }
    }

    #[test]
    fn what_is_no_key_is_told() {
        let (long, very_long) = ("k".repeat(256), "k".repeat(8_000));
        let bad: [&[u8]; 12] = [
            b"",
            b"   ",
            b"\t",
            b"\"\"",
            b"\"a",
            b"a\"",
            b"\"a\"b",
            b"a b",
            "ключ-1".as_bytes(),
            long.as_bytes(),
            very_long.as_bytes(),
            b"\"a\\n\"",
        ];
        for value in bad {
            assert!(matches!(header(&[value]), HeaderKey::Bad(_)), "{value:?}");
        }
        assert!(matches!(header(&[b"a", b"b"]), HeaderKey::Bad(_)));
    }
}

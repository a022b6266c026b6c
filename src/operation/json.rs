//! JSON as it was written: members in their order, equal names kept, numbers by their literal text.
//!
//! The usual tree of `serde_json` is not used for content that is hashed: it drops all but the last of equal names and
//! sorts the rest, and its arbitrary-precision numbers travel as an object under a reserved name that a sender can write
//! himself. Here a text that differs in meaning is a different value. Strings without escapes are borrowed, not copied.

use std::borrow::Cow;

/// How deep arrays and objects may nest, as in `serde_json`. All code that walks a [`Json`] recurses at most so deep.
pub const DEEPEST: usize = 127;

/// A JSON value, borrowed from its text where it can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number by its literal text: it never passes through a float.
    Number(&'a str),
    /// A string, escapes resolved.
    Text(Cow<'a, str>),
    /// An array.
    Array(Vec<Self>),
    /// An object: members in the order of the text, equal names kept.
    Object(Vec<(Cow<'a, str>, Self)>),
}

/// Why a text is not JSON. It names a place, never the content there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct JsonError {
    at: usize,
    what: &'static str,
}

impl<'a> Json<'a> {
    /// Reads a text of RFC 8259, strictly.
    pub fn parse(text: &'a str) -> Result<Self, JsonError> {
        let mut parser = Parser { text, at: 0 };
        parser.skip_space();
        let value = parser.value(0)?;
        parser.skip_space();
        match parser.peek() {
            None => Ok(value),
            Some(_) => Err(parser.fault("something after the end of the JSON value")),
        }
    }

    /// The first member of that name, if this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.iter().find(|(n, _)| n == name).map(|(_, value)| value),
            Self::Array(items) => name.parse::<usize>().ok().and_then(|index| items.get(index)),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => None,
        }
    }

    /// The text of a string or the literal text of a number.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(literal) => Some(literal),
            Self::Null | Self::Bool(_) | Self::Array(_) | Self::Object(_) => None,
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn fault(&self, what: &'static str) -> JsonError {
        JsonError { at: self.at, what }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Takes that byte, if it is next.
    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// The text from `start` to here; both lie beside ASCII bytes, so it is always whole characters.
    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn value(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        match self.peek() {
            Some(b'{' | b'[') if depth == DEEPEST => Err(self.fault("nested too deep")),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number().map(Json::Number),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(_) => Err(self.fault("no JSON value")),
            None => Err(self.fault("the JSON text ends early")),
        }
    }

    fn word(&mut self, word: &'static str, value: Json<'a>) -> Result<Json<'a>, JsonError> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.fault("no JSON value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn array(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.takes(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            self.skip_space();
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.takes(b']') {
                return Ok(Json::Array(items));
            }
            if !self.takes(b',') {
                return Err(self.fault("an array needs a comma or its end"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        self.at += 1;
        let mut members = Vec::new();
        self.skip_space();
        if self.takes(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.fault("an object needs a name in quotes"));
            }
            let name = self.string()?;
            self.skip_space();
            if !self.takes(b':') {
                return Err(self.fault("a name needs a colon"));
            }
            self.skip_space();
            members.push((name, self.value(depth + 1)?));
            self.skip_space();
            if self.takes(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.takes(b',') {
                return Err(self.fault("an object needs a comma or its end"));
            }
        }
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.fault("a number needs a digit")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<&'a str, JsonError> {
        let start = self.at;
        self.takes(b'-');
        if !self.takes(b'0') {
            self.digits()?;
        } else if let Some(b'0'..=b'9') = self.peek() {
            return Err(self.fault("a number must not begin with 0"));
        }
        if self.takes(b'.') {
            self.digits()?;
        }
        if self.takes(b'e') || self.takes(b'E') {
            let _sign = self.takes(b'+') || self.takes(b'-');
            self.digits()?;
        }
        Ok(self.since(start))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.at += 1;
        let mut start = self.at;
        let mut built = String::new();
        loop {
            match self.peek() {
                Some(b'"') => {
                    let rest = self.since(start);
                    self.at += 1;
                    if built.is_empty() {
                        return Ok(Cow::Borrowed(rest));
                    }
                    built.push_str(rest);
                    return Ok(Cow::Owned(built));
                }
                Some(b'\\') => {
                    built.push_str(self.since(start));
                    self.at += 1;
                    built.push(self.escape()?);
                    start = self.at;
                }
                Some(0..=0x1f) => return Err(self.fault("a bare control character in a string")),
                Some(_) => self.at += 1,
                None => return Err(self.fault("the JSON text ends early")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let byte = self.peek().ok_or_else(|| self.fault("the JSON text ends early"))?;
        self.at += 1;
        Ok(match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex4()?;
                let code = if (0xd800..0xdc00).contains(&first) {
                    if !(self.takes(b'\\') && self.takes(b'u')) {
                        return Err(self.fault("half a surrogate pair"));
                    }
                    let second = self.hex4()?;
                    if !(0xdc00..0xe000).contains(&second) {
                        return Err(self.fault("half a surrogate pair"));
                    }
                    0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                } else {
                    first
                };
                char::from_u32(code).ok_or_else(|| self.fault("half a surrogate pair"))?
            }
            _ => return Err(self.fault("an unknown escape")),
        })
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let digits = digits.filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let code = digits.and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u32::from_str_radix(d, 16).ok());
        let code = code.ok_or_else(|| self.fault("\\u needs four hex digits"))?;
        self.at += 4;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn order_equal_names_and_literal_numbers_are_kept() {
        let json = Json::parse(r#" {"b":1.0, "a":18446744073709551617 ,"b":1e400} "#).expect("JSON");
        let members = vec![
            ("b".into(), Json::Number("1.0")),
            ("a".into(), Json::Number("18446744073709551617")),
            ("b".into(), Json::Number("1e400")),
        ];
        assert_eq!(json, Json::Object(members));
    }

    #[test]
    fn escapes_are_resolved() {
        let json = Json::parse(r#""\u0041\/\ud83d\ude00\n\\ \u0000""#).expect("JSON");
        assert_eq!(json.text(), Some("A/😀\n\\ \0"));
    }

    #[test]
    fn an_empty_string_after_an_escape_is_not_lost() {
        assert_eq!(
            Json::parse(r#"["","\n","a\tb"]"#).map(|j| j.get("2").and_then(Json::text) == Some("a\tb")),
            Ok(true)
        );
    }

    #[test]
    fn depth_is_bounded_where_serde_json_bounds_it() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Json::parse(&nested(127)).is_ok());
        assert!(Json::parse(&nested(128)).is_err());
        assert!(Json::parse(&"[".repeat(100_000)).is_err());
        assert!(Json::parse(&r#"{"a":"#.repeat(100_000)).is_err());
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "-",
            "tru",
            "nul",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\u0041\"",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\u+123\"",
            "1 2",
            "{} {}",
            "\"a",
            "\u{feff}{}",
            "NaN",
            "'a'",
            "[1 2]",
            "{\"a\" 1}",
            "\"\\u00",
        ] {
            assert!(Json::parse(text).is_err(), "{text:?}");
            assert!(serde_json::from_str::<serde_json::Value>(text).is_err(), "{text:?}");
        }
    }

    fn matches(ours: &Json<'_>, theirs: &serde_json::Value) -> bool {
        match (ours, theirs) {
            (Json::Null, serde_json::Value::Null) => true,
            (Json::Bool(a), serde_json::Value::Bool(b)) => a == b,
            (Json::Number(a), serde_json::Value::Number(b)) => *a == b.to_string(),
            (Json::Text(a), serde_json::Value::String(b)) => a == b,
            (Json::Array(a), serde_json::Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| matches(a, b))
            }
            (Json::Object(a), serde_json::Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(name, a)| b.get(name.as_ref()).is_some_and(|b| matches(a, b)))
            }
            _ => false,
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            any::<String>().prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_serde_json_writes_is_read_as_it_was(value in any_json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.expect("text");
            let ours = Json::parse(&text).expect("JSON");
            prop_assert!(matches(&ours, &value));
        }

        #[test]
        fn the_same_texts_are_json_as_for_serde_json(text in r#"[\[\]{}":,a0-9.eE+\\u\- tn]{0,12}"#) {
            // A RawValue checks the grammar only, as we do; a Value would also refuse numbers beyond its range.
            let theirs = serde_json::from_str::<Box<serde_json::value::RawValue>>(&text).is_ok();
            let lone = text.contains("\\ud") || text.contains("\\u"); // RawValue does not resolve escapes
            prop_assert!(lone || Json::parse(&text).is_ok() == theirs, "{text:?}");
        }
    }
}

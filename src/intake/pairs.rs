//! Name/value pairs: the one shape that every encoding of a form is brought to, and that a lead is read from.

use std::borrow::Cow;

use encoding_rs::Encoding;
use multer::bytes::Bytes;

use super::body;
use super::fault::{Fault, unreadable};
use crate::operation::PayloadHash;
use crate::operation::canonical::{FormValue, hash_form};
use crate::operation::field::FieldPath;
use crate::operation::json::Json;

/// A form field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) value: Value<'a>,
}

/// What a form field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Text(Cow<'a, str>),
    File { name: String, content: Bytes },
}

impl<'a> Pair<'a> {
    /// A field with a text.
    pub(super) fn text(name: impl Into<Cow<'a, str>>, text: impl Into<Cow<'a, str>>) -> Self {
        Self { name: name.into(), value: Value::Text(text.into()) }
    }

    /// The field's text, if it is not a file.
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::File { .. } => None,
        }
    }
}

/// The first text of that name that is not blank.
pub(super) fn first_text<'p>(pairs: &'p [Pair<'_>], name: &str) -> Option<&'p str> {
    let texts = pairs.iter().filter(|pair| pair.name == name).filter_map(Pair::as_text);
    texts.into_iter().find(|text| !text.trim().is_empty())
}

/// The payload_hash of the pairs.
pub(super) fn hash(pairs: &[Pair<'_>], volatile: &[FieldPath]) -> PayloadHash {
    let values = pairs.iter().map(|pair| {
        let value = match &pair.value {
            Value::Text(text) => FormValue::Text(text),
            Value::File { name, content } => FormValue::File { name, content },
        };
        (pair.name.as_ref(), value)
    });
    hash_form(values, volatile)
}

/// Whether any text holds a NUL character.
pub(super) fn have_nul(pairs: &[Pair<'_>]) -> bool {
    pairs.iter().any(|pair| pair.name.contains('\0') || pair.as_text().is_some_and(|text| text.contains('\0')))
}

/// The pairs of an urlencoded body. Equal names, `a[]` and `a[b]` stay as they are written, in their order.
///
/// The charset is that of the header, else that of the field `_charset_` (which browsers fill in), else UTF-8.
pub(super) fn urlencoded<'a>(body: &'a [u8], charset: Option<&'static Encoding>) -> Result<Vec<Pair<'a>>, Fault> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii();
    let parts = || body.split(|byte| *byte == b'&').filter(|part| !part.is_empty());
    let charset =
        charset.or_else(|| parts().find_map(|part| part.strip_prefix(b"_charset_=")).and_then(Encoding::for_label));
    // The bytes of an urlencoded text are never UTF-16 (WHATWG URL, "get an output encoding").
    let charset = charset.map(Encoding::output_encoding);
    let mut pairs = Vec::with_capacity(parts().count());
    for part in parts() {
        let equals = part.iter().position(|byte| *byte == b'=');
        let (name, value) = match equals {
            Some(index) => (part.get(..index), part.get(index + 1..)),
            None => (Some(part), None),
        };
        let text = |raw: Option<&'a [u8]>| body::text(percent_decoded(raw.unwrap_or_default()), charset);
        pairs.push(Pair { name: text(name)?, value: Value::Text(text(value)?) });
    }
    Ok(pairs)
}

fn percent_decoded(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'+') {
        return percent_encoding::percent_decode(raw).into();
    }
    let spaced: Vec<u8> = raw.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    match Cow::from(percent_encoding::percent_decode(&spaced)) {
        Cow::Owned(decoded) => Cow::Owned(decoded),
        Cow::Borrowed(_) => Cow::Owned(spaced),
    }
}

/// Whether bytes of no declared type can be an urlencoded text: such a text holds no white space and none of these signs.
pub(super) fn looks_urlencoded(body: &[u8]) -> bool {
    let body = body.trim_ascii();
    let alien = |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_control() || matches!(byte, b'<' | b'>' | b'"');
    body.contains(&b'=') && !matches!(body.first(), Some(b'{' | b'[')) && !body.iter().any(alien)
}

/// The pairs of a JSON object: scalars by their text, `a[b]` for what is inside, arrays of scalars repeat the name.
///
/// `limit` bounds the text produced: a name of megabytes over thousands of members would multiply.
pub(super) fn flattened(json: Json<'_>, limit: usize) -> Result<Vec<Pair<'_>>, Fault> {
    let Json::Object(members) = json else { return Err(unreadable("a JSON object is expected")) };
    let mut flat = Flat { pairs: Vec::with_capacity(members.len()), left: limit.saturating_mul(4).max(1 << 16) };
    for (name, value) in members {
        flat.add(name, value)?;
    }
    Ok(flat.pairs)
}

struct Flat<'a> {
    pairs: Vec<Pair<'a>>,
    left: usize,
}

impl<'a> Flat<'a> {
    // Recursion is bounded by the depth of the JSON text.
    fn add(&mut self, name: Cow<'a, str>, value: Json<'a>) -> Result<(), Fault> {
        let spent = self.left.checked_sub(name.len());
        self.left = spent.ok_or_else(|| unreadable("the names in the JSON object are too long"))?;
        match value {
            Json::Null => self.pairs.push(Pair::text(name, "")),
            Json::Bool(true) => self.pairs.push(Pair::text(name, "true")),
            Json::Bool(false) => self.pairs.push(Pair::text(name, "false")),
            Json::Number(literal) => self.pairs.push(Pair::text(name, literal)),
            Json::Text(text) => self.pairs.push(Pair::text(name, text)),
            Json::Array(items) => {
                for (index, item) in items.into_iter().enumerate() {
                    let inside = matches!(item, Json::Array(_) | Json::Object(_));
                    let name = if inside { format!("{name}[{index}]").into() } else { name.clone() };
                    self.add(name, item)?;
                }
            }
            Json::Object(members) => {
                for (member, value) in members {
                    self.add(format!("{name}[{member}]").into(), value)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[Pair<'_>]) -> Vec<(String, String)> {
        pairs.iter().map(|p| (p.name.to_string(), p.as_text().unwrap_or("FILE").to_owned())).collect()
    }

    fn strings(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn repeated_names_and_brackets_are_kept_in_order() {
        let pairs = urlencoded(b"Name=A&Service=x&Service=y&opt[]=1&opt%5B%5D=2&leads[add][0][id]=5&flag&=z&&", None);
        let expected = [
            ("Name", "A"),
            ("Service", "x"),
            ("Service", "y"),
            ("opt[]", "1"),
            ("opt[]", "2"),
            ("leads[add][0][id]", "5"),
            ("flag", ""),
            ("", "z"),
        ];
        assert_eq!(list(&pairs.expect("a form")), strings(&expected));
    }

    #[test]
    fn plus_is_a_space_and_percent_2b_is_a_plus() {
        let pairs = urlencoded(b"p=%2B7+900&q=a+b&r=100%&s=%zz", None).expect("a form");
        assert_eq!(list(&pairs), strings(&[("p", "+7 900"), ("q", "a b"), ("r", "100%"), ("s", "%zz")]));
    }

    #[test]
    fn a_charset_is_taken_from_the_field_that_browsers_fill_in() {
        let pairs = urlencoded(b"n=%C0%ED%ED%E0&_charset_=windows-1251", None).expect("a form");
        assert_eq!(first_text(&pairs, "n"), Some("Анна"));
        assert!(urlencoded(b"n=%C0%ED%ED%E0", None).is_err());
    }

    #[test]
    fn json_becomes_the_same_pairs() {
        let json =
            Json::parse(r#"{"a":1.50,"b":true,"n":null,"s":["x","y"],"utm":{"source":"vk"},"l":[{"q":2}],"e":[]}"#);
        let pairs = flattened(json.expect("JSON"), 1000).expect("an object");
        let expected =
            [("a", "1.50"), ("b", "true"), ("n", ""), ("s", "x"), ("s", "y"), ("utm[source]", "vk"), ("l[0][q]", "2")];
        assert_eq!(list(&pairs), strings(&expected));
    }

    #[test]
    fn a_long_name_over_many_members_is_refused_before_it_multiplies() {
        let text = format!("{{\"{}\":{{{}\"z\":1}}}}", "n".repeat(50_000), "\"a\":1,".repeat(20_000));
        assert!(flattened(Json::parse(&text).expect("JSON"), 1 << 20).is_err());
    }

    #[test]
    fn fifty_thousand_fields_and_a_deep_name_are_read() {
        let many = "a=1&".repeat(50_000);
        assert_eq!(urlencoded(many.as_bytes(), None).map(|p| p.len()), Ok(50_000));
        let deep = format!("a{}=1", "[b]".repeat(5_000));
        assert_eq!(urlencoded(deep.as_bytes(), None).map(|p| p.len()), Ok(1));
    }
}

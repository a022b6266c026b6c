//! The content of a body: JSON or the pairs of a form, whatever its Content-Type says.

use std::borrow::Cow;

use encoding_rs::Encoding;

use super::body::{Format, content_type, decoded, is_utf16, text};
use super::fault::{Fault, unreadable};
use super::pairs::{Pair, flattened, have_nul, looks_urlencoded, urlencoded};
use super::{Request, multipart};
use crate::operation::json::Json;

/// A body whose content coding is undone and whose format is known from its header.
pub(super) struct Opened<'r> {
    format: Format,
    charset: Option<&'static Encoding>,
    body: Cow<'r, [u8]>,
    limit: usize,
}

/// What a body holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    Json(Json<'a>),
    Form(Vec<Pair<'a>>),
}

impl<'r> Opened<'r> {
    /// Undoes the content coding, within the limit, and brings a text in another charset to UTF-8.
    pub(super) fn open(request: &'r Request, limit: usize) -> Result<Self, Fault> {
        let body = decoded(request, limit)?;
        let (format, charset) = content_type(request);
        let mut opened = Self { format, charset, body, limit };
        // In an urlencoded form the charset is that of the bytes behind the percent signs; anything else is one text.
        if let Some(charset) = charset.filter(|charset| *charset != encoding_rs::UTF_8)
            && !matches!(opened.format, Format::Multipart(_))
            && (opened.begins_json() || is_utf16(charset))
        {
            opened.body = match text(opened.body, Some(charset))? {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            };
            opened.charset = None;
        }
        Ok(opened)
    }

    /// Reads the body by its header, and where that lies or says nothing, by a careful look at how the body begins. What is
    /// read as JSON must be JSON from end to end; what is read as a form must hold nothing that a form cannot.
    pub(super) fn read(&self) -> Result<Content<'_>, Fault> {
        match &self.format {
            Format::Multipart(boundary) => multipart::read(&self.body, boundary, self.charset).map(Content::Form),
            Format::Json => match self.json() {
                Err(_) if looks_urlencoded(&self.body) => self.form(),
                read => read.map(Content::Json),
            },
            // A browser never writes a bare brace at the start of a form.
            Format::Urlencoded if self.begins_json() => self.json().map(Content::Json),
            Format::Urlencoded => self.form(),
            Format::Open if self.begins_json() => self.json().map(Content::Json),
            Format::Open if looks_urlencoded(&self.body) => self.form(),
            Format::Open => Err(unreadable("the body is neither JSON nor a form")),
            Format::Other => match self.begins_json().then(|| self.json()) {
                Some(Ok(json)) => Ok(Content::Json(json)),
                _ => Err(Fault::Media("content types read here: JSON, urlencoded and multipart forms".into())),
            },
        }
    }

    /// Reads the body as JSON, whatever the header says.
    pub(super) fn json(&self) -> Result<Json<'_>, Fault> {
        let text = self.text()?;
        Json::parse(text).map_err(|fault| unreadable(format!("the body is not JSON: {fault}")))
    }

    /// Reads the body as the pairs of a form; JSON is flattened.
    pub(super) fn pairs(&self) -> Result<Vec<Pair<'_>>, Fault> {
        let pairs = match self.read()? {
            Content::Form(pairs) => pairs,
            Content::Json(json) => flattened(json, self.limit)?,
        };
        if pairs.is_empty() { Err(unreadable("the body holds no fields")) } else { Ok(pairs) }
    }

    fn form(&self) -> Result<Content<'_>, Fault> {
        if !self.body.contains(&b'=') {
            return Err(unreadable("the body is not a form"));
        }
        urlencoded(&self.body, self.charset).map(Content::Form)
    }

    fn text(&self) -> Result<&str, Fault> {
        // Another charset was undone by `open`, so this borrows.
        let body = self.body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.body);
        std::str::from_utf8(body).map_err(|_| unreadable("the text is not UTF-8 and its charset is not declared"))
    }

    fn begins_json(&self) -> bool {
        let body = self.body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.body);
        matches!(body.trim_ascii_start().first(), Some(b'{' | b'['))
    }
}

impl Content<'_> {
    /// Whether any text in it holds a NUL character.
    pub(super) fn has_nul(&self) -> bool {
        match self {
            Self::Json(json) => json_has_nul(json),
            Self::Form(pairs) => have_nul(pairs),
        }
    }
}

/// Whether any text of the JSON holds a NUL character.
pub(super) fn json_has_nul(json: &Json<'_>) -> bool {
    match json {
        Json::Text(text) => text.contains('\0'),
        Json::Array(items) => items.iter().any(json_has_nul),
        Json::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || json_has_nul(value)),
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::pairs::first_text;

    fn name_of(content_type: Option<&str>, body: &[u8]) -> Result<String, Fault> {
        let headers = content_type.map(|t| ("content-type".to_owned(), t.as_bytes().to_vec())).into_iter().collect();
        let request = Request { method: "POST".into(), query: String::new(), headers, body: body.to_vec() };
        let opened = Opened::open(&request, 1 << 20)?;
        let pairs = opened.pairs()?;
        Ok(first_text(&pairs, "name").unwrap_or_default().to_owned())
    }

    #[test]
    fn a_missing_odd_or_lying_content_type_changes_nothing() {
        let body = r#"{"name":"Анна"}"#.as_bytes();
        for header in [
            None,
            Some("text/plain;charset=UTF-8"),
            Some("application/json; charset=utf-8"),
            Some("application/vnd.x+json"),
            Some("*/*"),
            Some("application/x-www-form-urlencoded"),
            Some("application/xml"),
            Some(""),
        ] {
            assert_eq!(name_of(header, body), Ok("Анна".into()), "{header:?}");
        }
        for header in [None, Some("application/json"), Some("text/plain")] {
            assert_eq!(name_of(header, "name=Анна&b=1".as_bytes()), Ok("Анна".into()), "{header:?}");
        }
    }

    #[test]
    fn what_is_neither_json_nor_a_form_is_never_an_empty_lead() {
        for (header, body) in [
            (None, "hello"),
            (None, ""),
            (Some("application/x-www-form-urlencoded"), ""),
            (Some("application/x-www-form-urlencoded"), "hello"),
            (Some("application/x-www-form-urlencoded"), "{\"name\":\"a=b"),
            (Some("application/json"), "{}"),
            (Some("application/json"), "[1]"),
            (Some("application/json"), "{\"name\":"),
            (Some("text/plain"), "name=Anna Smith\r\n"),
            (Some("text/html"), "<p name=\"a\">"),
            (Some("multipart/form-data"), "name=A"),
        ] {
            assert!(name_of(header, body.as_bytes()).is_err(), "{header:?} {body:?}");
        }
    }

    #[test]
    fn byte_order_marks_and_declared_charsets_are_undone() {
        assert_eq!(name_of(None, b"\xef\xbb\xbf{\"name\":\"A\"}"), Ok("A".into()));
        let utf16: Vec<u8> = "\u{feff}{\"name\":\"й\"}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(name_of(Some("application/json; charset=utf-16"), &utf16), Ok("й".into()));
        assert!(name_of(Some("application/json"), &utf16).is_err());
        assert_eq!(name_of(Some("application/json; charset=windows-1251"), b"{\"name\":\"\xe9\"}"), Ok("й".into()));
        assert!(name_of(Some("application/json"), b"{\"name\":\"\xe9\"}").is_err());
        let cp1251 = "application/x-www-form-urlencoded; charset=windows-1251";
        assert_eq!(name_of(Some(cp1251), b"name=%C0%ED%ED%E0"), Ok("Анна".into()));
    }
}

//! `multipart/form-data` (RFC 7578): texts as other encodings have them, files by name and content.

use std::borrow::Cow;
use std::convert::Infallible;

use encoding_rs::Encoding;
use futures_util::{FutureExt, stream};
use multer::Multipart;
use multer::bytes::Bytes;

use super::body::{parameters, text};
use super::fault::{Fault, unreadable};
use super::pairs::{Pair, Value};

/// Parts beyond this number are no form.
const MOST_PARTS: usize = 10_000;

/// The fields of a multipart body. A part without content and without a file name, as an empty file input sends it, is no field.
pub(super) fn read(
    body: &[u8],
    boundary: &str,
    charset: Option<&'static Encoding>,
) -> Result<Vec<Pair<'static>>, Fault> {
    let whole = stream::once(std::future::ready(Ok::<_, Infallible>(Bytes::copy_from_slice(body))));
    let multipart = Multipart::new(whole, boundary);
    // The whole body is there, so nothing in it ever waits.
    let parts = parts(multipart).now_or_never().unwrap_or_else(|| Err(unreadable("the multipart body ends early")))?;
    let declared =
        parts.iter().find(|part| part.name == b"_charset_").and_then(|part| Encoding::for_label(&part.content));
    let charset = charset.or(declared).map(Encoding::output_encoding);
    parts.into_iter().filter_map(|part| part.pair(charset).transpose()).collect()
}

struct Part {
    name: Vec<u8>,
    file_name: Option<Vec<u8>>,
    /// `filename*` of RFC 5987, already decoded.
    file_name_extended: Option<String>,
    charset: Option<&'static Encoding>,
    content: Bytes,
}

async fn parts(mut multipart: Multipart<'static>) -> Result<Vec<Part>, Fault> {
    let mut parts = Vec::new();
    loop {
        let field = multipart.next_field().await.map_err(|_| unreadable("the multipart body is broken"))?;
        let Some(field) = field else { return Ok(parts) };
        if parts.len() == MOST_PARTS {
            return Err(unreadable(format!("more than {MOST_PARTS} parts")));
        }
        let header = |name: &str| field.headers().get(name).map(multer_bytes);
        let (_, named) = parameters(header("content-disposition").unwrap_or_default());
        let get = |name: &str| named.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
        let charset = header("content-type").and_then(|value| {
            parameters(value).1.iter().find(|(n, _)| n == "charset").and_then(|(_, label)| Encoding::for_label(label))
        });
        let (name, file_name) = (get("name").map(unescaped), get("filename").map(unescaped));
        let file_name_extended = get("filename*").and_then(|value| extended(&value));
        let content = field.bytes().await.map_err(|_| unreadable("the multipart body is broken"))?;
        let name = name.ok_or_else(|| unreadable("a part of the multipart body has no name"))?;
        parts.push(Part { name, file_name, file_name_extended, charset, content });
    }
}

fn multer_bytes<V: AsRef<[u8]>>(value: &V) -> &[u8] {
    value.as_ref()
}

impl Part {
    /// The field of this part; `None` for an empty file input.
    fn pair(self, charset: Option<&'static Encoding>) -> Result<Option<Pair<'static>>, Fault> {
        let owned = |bytes: Vec<u8>| text(Cow::<'static, [u8]>::Owned(bytes), charset);
        let name = owned(self.name)?;
        let file_name = match (self.file_name_extended, self.file_name) {
            (Some(name), _) => Some(name),
            (None, Some(bytes)) => Some(owned(bytes)?.into_owned()),
            (None, None) => None,
        };
        Ok(match file_name {
            Some(file) if file.is_empty() && self.content.is_empty() => None,
            Some(file) => Some(Pair { name, value: Value::File { name: file, content: self.content } }),
            None => {
                let content = text(Cow::Owned(self.content.to_vec()), self.charset.or(charset))?;
                Some(Pair { name, value: Value::Text(content) })
            }
        })
    }
}

/// Browsers write a quotation mark or a line end in a name as `%22`, `%0D`, `%0A` (WHATWG HTML, multipart/form-data).
fn unescaped(name: Vec<u8>) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name.as_slice();
    while let Some((first, after)) = rest.split_first() {
        let (byte, next) = match rest.get(..3) {
            Some(b"%22") => (b'"', rest.get(3..)),
            Some(b"%0D") => (b'\r', rest.get(3..)),
            Some(b"%0A") => (b'\n', rest.get(3..)),
            _ => (*first, Some(after)),
        };
        plain.push(byte);
        rest = next.unwrap_or_default();
    }
    plain
}

/// `charset'language'percent-encoded` of RFC 5987.
fn extended(value: &[u8]) -> Option<String> {
    let mut parts = value.splitn(3, |byte| *byte == b'\'');
    let charset = Encoding::for_label(parts.next()?)?;
    let bytes: Vec<u8> = percent_encoding::percent_decode(parts.nth(1)?).collect();
    text(Cow::Owned(bytes), Some(charset)).ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::pairs::hash;

    fn body(boundary: &str, parts: &[(&str, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (headers, content) in parts {
            body.extend(format!("--{boundary}\r\n{headers}\r\n\r\n").as_bytes());
            body.extend(*content);
            body.extend(b"\r\n");
        }
        body.extend(format!("--{boundary}--\r\n").as_bytes());
        body
    }

    fn cv(boundary: &str, file: &[u8]) -> Vec<Pair<'static>> {
        let parts: [(&str, &[u8]); 4] = [
            ("Content-Disposition: form-data; name=\"name\"", "Анна".as_bytes()),
            ("content-disposition: form-data; name=tags", b"a"),
            (
                "Content-Disposition: form-data; name=\"cv\"; filename=\"Резюме %221%22.pdf\"\r\nContent-Type: application/pdf",
                file,
            ),
            (
                "Content-Disposition: form-data; name=\"photo\"; filename=\"\"\r\nContent-Type: application/octet-stream",
                b"",
            ),
        ];
        read(&body(boundary, &parts), boundary, None).expect("a form")
    }

    #[test]
    fn texts_and_files_are_read_and_an_empty_file_input_is_none() {
        let pairs = cv("b1", b"%PDF\r\n--b2\r\n\0\xff");
        let content = Bytes::from_static(b"%PDF\r\n--b2\r\n\0\xff");
        let file = Value::File { name: "Резюме \"1\".pdf".into(), content };
        assert_eq!(
            pairs,
            [Pair::text("name", "Анна"), Pair::text("tags", "a"), Pair { name: "cv".into(), value: file }]
        );
    }

    #[test]
    fn a_new_boundary_is_the_same_content_and_a_changed_byte_in_a_file_is_not() {
        assert_eq!(hash(&cv("b1", b"1234"), &[]), hash(&cv("another", b"1234"), &[]));
        assert_ne!(hash(&cv("b1", b"1234"), &[]), hash(&cv("b1", b"1235"), &[]));
    }

    #[test]
    fn file_names_are_read_in_their_three_spellings() {
        let name = |parameters: &str| {
            let header = format!("Content-Disposition: form-data; name=\"f\"; {parameters}");
            let pairs = read(&body("b", &[(&header, b"x")]), "b", None).expect("a form");
            match pairs.into_iter().next().map(|p| p.value) {
                Some(Value::File { name, .. }) => name,
                other => panic!("no file: {other:?}"),
            }
        };
        assert_eq!(name("filename=\"a \\\"b\\\".txt\""), "a \"b\".txt");
        assert_eq!(name("filename*=UTF-8''%D0%B9.txt; filename=\"x.txt\""), "й.txt");
        assert_eq!(name("filename=\"C:\\docs\\a.txt\""), "C:\\docs\\a.txt");
    }

    #[test]
    fn parts_in_other_charsets_are_read() {
        let parts: [(&str, &[u8]); 2] = [
            ("Content-Disposition: form-data; name=\"a\"\r\nContent-Type: text/plain; charset=windows-1251", b"\xc0"),
            ("Content-Disposition: form-data; name=\"b\"", "й".as_bytes()),
        ];
        assert_eq!(read(&body("b", &parts), "b", None), Ok(vec![Pair::text("a", "А"), Pair::text("b", "й")]));
    }

    #[test]
    fn a_cut_or_nameless_body_is_refused() {
        let whole = body("b", &[("Content-Disposition: form-data; name=\"a\"", b"1234567890")]);
        for length in [0, 5, whole.len() / 2, whole.len() - 12] {
            assert!(read(whole.get(..length).expect("inside"), "b", None).is_err(), "{length}");
        }
        assert!(read(&whole, "other", None).is_err());
        assert!(read(&body("b", &[("Content-Type: text/plain", b"x")]), "b", None).is_err());
    }
}

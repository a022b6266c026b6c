//! The body's outer layers: content coding, charset, content type.

use std::borrow::Cow;
use std::io::Read;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use super::Request;
use super::fault::{Fault, unreadable};

/// More codings than this on one body are no honest sender's.
const MOST_CODINGS: usize = 3;

/// The body without its content coding; the bound holds while decoding, so that a bomb is never unpacked.
pub(super) fn decoded(request: &Request, limit: usize) -> Result<Cow<'_, [u8]>, Fault> {
    let mut body = Cow::Borrowed(request.body.as_slice());
    let mut codings = Vec::new();
    for header in request.headers_of("content-encoding") {
        let list = std::str::from_utf8(header).map_err(|_| Fault::Coding("unknown content coding".into()))?;
        codings.extend(
            list.split(',').map(|c| c.trim().to_ascii_lowercase()).filter(|c| !c.is_empty() && c != "identity"),
        );
    }
    if codings.len() > MOST_CODINGS {
        return Err(Fault::Coding(format!("more than {MOST_CODINGS} content codings")));
    }
    // The codings are listed in the order in which they were applied (RFC 9110 8.4).
    for coding in codings.iter().rev() {
        body = Cow::Owned(match coding.as_str() {
            "gzip" | "x-gzip" => unpack(MultiGzDecoder::new(body.as_ref()), limit, "gzip")?,
            "deflate" => inflate(&body, limit)?,
            _ => return Err(Fault::Coding("content codings known here: gzip, deflate, identity".into())),
        });
    }
    if body.len() > limit { Err(too_large(limit)) } else { Ok(body) }
}

/// `deflate` is a zlib stream (RFC 9110 8.4.1.2), but many senders leave its two-byte frame out.
fn inflate(body: &[u8], limit: usize) -> Result<Vec<u8>, Fault> {
    match unpack(ZlibDecoder::new(body), limit, "deflate") {
        Err(Fault::Unreadable(_)) => unpack(DeflateDecoder::new(body), limit, "deflate"),
        done => done,
    }
}

fn unpack(decoder: impl Read, limit: usize, coding: &str) -> Result<Vec<u8>, Fault> {
    let mut body = Vec::new();
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(bound).read_to_end(&mut body).map_err(|_| unreadable(format!("the {coding} body is broken")))?;
    if body.len() > limit { Err(too_large(limit)) } else { Ok(body) }
}

fn too_large(limit: usize) -> Fault {
    Fault::TooLarge(format!("the body is larger than {limit} bytes once decoded"))
}

/// What the Content-Type header says, as far as this program tells types apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Format {
    /// `application/json`, `…/…+json`
    Json,
    /// `application/x-www-form-urlencoded`
    Urlencoded,
    /// `multipart/form-data` with its boundary
    Multipart(String),
    /// No type, or one that says nothing: `text/plain`, `application/octet-stream`, `*/*`
    Open,
    /// Another type.
    Other,
}

/// The format and the charset of the Content-Type header.
pub(super) fn content_type(request: &Request) -> (Format, Option<&'static Encoding>) {
    let Some(header) = request.headers_of("content-type").next() else { return (Format::Open, None) };
    let (essence, parameters) = parameters(header);
    let get = |name: &str| parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_slice());
    let format = match essence.as_str() {
        "application/x-www-form-urlencoded" => Format::Urlencoded,
        "multipart/form-data" => match get("boundary").and_then(|b| std::str::from_utf8(b).ok()) {
            Some(boundary) if !boundary.is_empty() => Format::Multipart(boundary.to_owned()),
            _ => Format::Other,
        },
        "" | "text/plain" | "application/octet-stream" | "*/*" | "binary/octet-stream" => Format::Open,
        json if json == "application/json" || json == "text/json" || json.ends_with("+json") => Format::Json,
        _ => Format::Other,
    };
    (format, get("charset").and_then(Encoding::for_label))
}

/// A header of the form `value; name=token; name="quoted"`: the value and the names in lower case.
///
/// A backslash escapes only a quotation mark: browsers of old wrote whole Windows paths into file names.
pub(super) fn parameters(header: &[u8]) -> (String, Vec<(String, Vec<u8>)>) {
    let mut parts = Vec::new();
    let (mut part, mut quoted, mut bytes) = (Vec::new(), false, header.iter().peekable());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if quoted && bytes.peek() == Some(&&b'"') => part.extend(bytes.next()),
            b'"' => quoted = !quoted,
            b';' if !quoted => parts.push(std::mem::take(&mut part)),
            _ => part.push(*byte),
        }
    }
    parts.push(part);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.trim_ascii()).to_lowercase();
    let mut parts = parts.iter();
    let value = parts.next().map(|part| text(part)).unwrap_or_default();
    let named = parts.filter_map(|part| {
        let equals = part.iter().position(|byte| *byte == b'=')?;
        let (name, value) = part.split_at(equals);
        Some((text(name), value.get(1..)?.trim_ascii().to_vec()))
    });
    (value, named.collect())
}

/// The text of bytes in their declared charset, else in UTF-8, without a byte order mark. Never replaces what it cannot
/// read: two names that both turn into U+FFFD would be one content.
pub(super) fn text<'a>(bytes: Cow<'a, [u8]>, charset: Option<&'static Encoding>) -> Result<Cow<'a, str>, Fault> {
    let charset = charset.unwrap_or(UTF_8);
    if charset == UTF_8 {
        let why = || unreadable("the text is not UTF-8 and its charset is not declared");
        return match bytes {
            Cow::Borrowed(bytes) => std::str::from_utf8(without_bom(bytes)).map(Cow::Borrowed).map_err(|_| why()),
            Cow::Owned(mut bytes) => {
                let mark = bytes.len() - without_bom(&bytes).len();
                bytes.drain(..mark);
                String::from_utf8(bytes).map(Cow::Owned).map_err(|_| why())
            }
        };
    }
    // Where UTF-16 is declared, the byte order mark says in which order.
    let charset = match bytes.get(..2) {
        Some([0xff, 0xfe]) if is_utf16(charset) => UTF_16LE,
        Some([0xfe, 0xff]) if is_utf16(charset) => UTF_16BE,
        _ => charset,
    };
    let (text, malformed) = charset.decode_with_bom_removal(&bytes);
    if malformed {
        return Err(unreadable(format!("the text is not in the declared charset {}", charset.name())));
    }
    Ok(Cow::Owned(text.into_owned()))
}

/// Whether the charset is one of the two UTF-16.
pub(super) fn is_utf16(charset: &'static Encoding) -> bool {
    charset == UTF_16LE || charset == UTF_16BE
}

fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(body).expect("memory");
        encoder.finish().expect("memory")
    }

    fn coded(coding: &str, body: Vec<u8>) -> Request {
        let headers = vec![("content-encoding".into(), coding.as_bytes().to_vec())];
        Request { method: "POST".into(), query: String::new(), headers, body }
    }

    fn read(coding: &str, body: Vec<u8>) -> Result<Vec<u8>, Fault> {
        decoded(&coded(coding, body), 1000).map(Cow::into_owned)
    }

    #[test]
    fn known_codings_are_undone() {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(b"a=1").expect("memory");
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
        raw.write_all(b"a=1").expect("memory");
        assert_eq!(read("identity", b"a=1".to_vec()), Ok(b"a=1".to_vec()));
        assert_eq!(read("GZIP", gzip(b"a=1")), Ok(b"a=1".to_vec()));
        assert_eq!(read("gzip", [gzip(b"a="), gzip(b"1")].concat()), Ok(b"a=1".to_vec()));
        assert_eq!(read("gzip, x-gzip", gzip(&gzip(b"a=1"))), Ok(b"a=1".to_vec()));
        assert_eq!(read("deflate", zlib.finish().expect("memory")), Ok(b"a=1".to_vec()));
        assert_eq!(read("deflate", raw.finish().expect("memory")), Ok(b"a=1".to_vec()));
    }

    #[test]
    fn a_bomb_is_too_large_a_cut_body_is_broken_an_unknown_coding_is_named_so() {
        let bomb = gzip(&vec![b'a'; 5_000_000]);
        assert!(matches!(read("gzip", bomb), Err(Fault::TooLarge(_))));
        assert!(matches!(read("identity", vec![b'a'; 1001]), Err(Fault::TooLarge(_))));
        let mut cut = gzip(b"name=Anna&phone=1");
        cut.truncate(cut.len() - 5);
        assert!(matches!(read("gzip", cut), Err(Fault::Unreadable(_))));
        assert!(matches!(read("gzip", b"name=Anna".to_vec()), Err(Fault::Unreadable(_))));
        assert!(matches!(read("deflate", b"name=Anna".to_vec()), Err(Fault::Unreadable(_))));
        for unknown in ["br", "zstd", "gzip;q=1", "gzip,gzip,gzip,gzip"] {
            assert!(matches!(read(unknown, gzip(b"a")), Err(Fault::Coding(_))), "{unknown}");
        }
    }

    fn typed(header: &str) -> (Format, Option<&'static str>) {
        let headers = vec![("content-type".into(), header.as_bytes().to_vec())];
        let (format, charset) = content_type(&Request { headers, ..Request::default() });
        (format, charset.map(Encoding::name))
    }

    #[test]
    fn content_types_are_read_with_their_parameters() {
        assert_eq!(typed("Application/JSON; Charset=\"UTF-8\""), (Format::Json, Some("UTF-8")));
        assert_eq!(typed("application/vnd.x+json"), (Format::Json, None));
        assert_eq!(
            typed("application/x-www-form-urlencoded;charset=cp1251"),
            (Format::Urlencoded, Some("windows-1251"))
        );
        assert_eq!(typed("multipart/form-data; boundary=\"a;b\""), (Format::Multipart("a;b".into()), None));
        assert_eq!(typed("multipart/form-data"), (Format::Other, None));
        assert_eq!(typed("*/*"), (Format::Open, None));
        assert_eq!(typed("text/plain;charset=nonsense"), (Format::Open, None));
        assert_eq!(typed("image/png"), (Format::Other, None));
    }

    #[test]
    fn texts_are_read_in_the_declared_charset() {
        let read = |bytes: &'static [u8], charset: &str| {
            text(Cow::Borrowed(bytes), Encoding::for_label(charset.as_bytes())).map(Cow::into_owned)
        };
        assert_eq!(read(b"\xef\xbb\xbfA", "utf-8"), Ok("A".into()));
        assert_eq!(read(b"\xc0\xed\xed\xe0", "windows-1251"), Ok("Анна".into()));
        assert_eq!(read(b"\xff\xfeA\0", "utf-16"), Ok("A".into()));
        assert_eq!(read(b"\xfe\xff\0A", "utf-16"), Ok("A".into()));
        assert_eq!(read(b"A\0", "utf-16le"), Ok("A".into()));
        assert!(read(b"\xc0\xed", "utf-8").is_err());
        assert!(read(b"\xff\xfeA\0", "").is_err());
        assert!(read(b"A\0B", "utf-16le").is_err());
    }
}

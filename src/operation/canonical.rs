//! The canonical form of parsed content, which payload_hash is taken over (contract 3).
//!
//! Two deliveries of one content have one hash: member order, white space, escapes, multipart boundaries and the way
//! letters are composed do not alter it. Everything that carries meaning does: array order, types, every digit of a number,
//! equal names and their order, each byte of a file. The form is written straight into SHA-256; it never exists as a text.
//!
//! This is version `c1` ([`super::HashRule::CANONICAL_VERSION`]): a change here makes another version, since stored hashes
//! are compared with new ones.

use std::borrow::Cow;

use sha2::{Digest, Sha256};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::field::FieldPath;
use super::hash::PayloadHash;
use super::json::Json;

// What is hashed first, so that a form never has the hash of a JSON text or of raw bytes.
const JSON: &[u8] = b"leadonce/content/c1/json\0";
const FORM: &[u8] = b"leadonce/content/c1/form\0";
const RAW: &[u8] = b"leadonce/content/c1/raw\0";

/// The value of a form field.
#[derive(Debug, Clone, Copy)]
pub enum FormValue<'a> {
    /// A text.
    Text(&'a str),
    /// A file: its name and every byte count.
    File {
        /// File name as sent.
        name: &'a str,
        /// Its content.
        content: &'a [u8],
    },
}

/// Hashes a JSON value, less the volatile fields with all that is in them.
///
/// RFC 8785 but for three things: numbers stand by their literal text (`1.0` is not `1`), equal names are all kept, in their
/// order, and texts and names are brought to NFC first. Recursion is bounded by [`super::json::DEEPEST`].
pub fn hash_json(json: &Json<'_>, volatile: &[FieldPath]) -> PayloadHash {
    let mut hash = Sha256::new_with_prefix(JSON);
    let left_out: Vec<&[String]> = volatile.iter().map(FieldPath::segments).collect();
    write_json(&mut hash, json, &left_out);
    PayloadHash::from(<[u8; 32]>::from(hash.finalize()))
}

/// Hashes the name/value pairs of a form, less the volatile fields: sorted by name, equal names in their order, each part
/// length-prefixed so that no two lists are written alike. Line ends count as LF, as browsers differ in them by encoding.
pub fn hash_form<'a>(pairs: impl Iterator<Item = (&'a str, FormValue<'a>)>, volatile: &[FieldPath]) -> PayloadHash {
    let counted = |name: &str| !volatile.iter().any(|path| path.covers(name));
    let mut pairs: Vec<_> = pairs.filter(|(name, _)| counted(name)).map(|(name, v)| (composed(name), v)).collect();
    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut hash = Sha256::new_with_prefix(FORM);
    for (name, value) in &pairs {
        part(&mut hash, name.as_bytes());
        match value {
            FormValue::Text(text) => {
                hash.update(b"t");
                part(&mut hash, unix_lines(composed(text)).as_bytes());
            }
            FormValue::File { name, content } => {
                hash.update(b"f");
                part(&mut hash, composed(name).as_bytes());
                part(&mut hash, content);
            }
        }
    }
    PayloadHash::from(<[u8; 32]>::from(hash.finalize()))
}

/// Hashes a body that could not be parsed, byte for byte: a redelivery of it is the same content.
pub fn hash_raw(body: &[u8]) -> PayloadHash {
    PayloadHash::from(<[u8; 32]>::from(Sha256::new_with_prefix(RAW).chain_update(body).finalize()))
}

fn part(hash: &mut Sha256, bytes: &[u8]) {
    hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
    hash.update(bytes);
}

/// The text in NFC: macOS sends decomposed letters, and the same name typed elsewhere is the same content.
fn composed(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.nfc().collect())
}

fn unix_lines(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.contains('\r') { Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n")) } else { text }
}

fn write_json(hash: &mut Sha256, json: &Json<'_>, left_out: &[&[String]]) {
    match json {
        Json::Null => hash.update(b"null"),
        Json::Bool(true) => hash.update(b"true"),
        Json::Bool(false) => hash.update(b"false"),
        Json::Number(literal) => hash.update(literal.as_bytes()),
        Json::Text(text) => write_text(hash, text),
        Json::Array(items) => write_array(hash, items, left_out),
        Json::Object(members) => write_object(hash, members, left_out),
    }
}

fn write_array(hash: &mut Sha256, items: &[Json<'_>], left_out: &[&[String]]) {
    let mut open: &[u8] = b"[";
    for (index, item) in items.iter().enumerate() {
        let name = if left_out.is_empty() { String::new() } else { index.to_string() };
        let Some(inside) = inside(&name, left_out) else { continue };
        hash.update(open);
        open = b",";
        write_json(hash, item, &inside);
    }
    if open == b"[" {
        hash.update(open);
    }
    hash.update(b"]");
}

fn write_object(hash: &mut Sha256, members: &[(Cow<'_, str>, Json<'_>)], left_out: &[&[String]]) {
    let mut members: Vec<_> = members.iter().map(|(name, value)| (composed(name), name, value)).collect();
    // RFC 8785 3.2.3: by UTF-16 code units. The sort is stable: equal names stay in their order.
    members.sort_by(|(a, ..), (b, ..)| a.encode_utf16().cmp(b.encode_utf16()));
    let mut open: &[u8] = b"{";
    for (name, as_written, value) in &members {
        let Some(inside) = inside(as_written, left_out) else { continue };
        hash.update(open);
        open = b",";
        write_text(hash, name);
        hash.update(b":");
        write_json(hash, value, &inside);
    }
    if open == b"{" {
        hash.update(open);
    }
    hash.update(b"}");
}

/// What is left out inside the member of that name; `None` where the member itself is left out.
fn inside<'p>(name: &str, left_out: &[&'p [String]]) -> Option<Vec<&'p [String]>> {
    let mut inside = Vec::new();
    for path in left_out {
        match path.split_first() {
            Some((first, [])) if first == name => return None,
            Some((first, rest)) if first == name => inside.push(rest),
            _ => {}
        }
    }
    Some(inside)
}

/// A string with the escapes of RFC 8785 3.2.2.2.
fn write_text(hash: &mut Sha256, text: &str) {
    let text = composed(text);
    hash.update(b"\"");
    let mut rest = text.as_bytes();
    while let Some(index) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)) {
        let (plain, from) = rest.split_at(index);
        hash.update(plain);
        let Some((byte, after)) = from.split_first() else { break };
        match byte {
            b'"' => hash.update(b"\\\""),
            b'\\' => hash.update(b"\\\\"),
            0x08 => hash.update(b"\\b"),
            b'\t' => hash.update(b"\\t"),
            b'\n' => hash.update(b"\\n"),
            0x0c => hash.update(b"\\f"),
            b'\r' => hash.update(b"\\r"),
            control => hash.update(format!("\\u{control:04x}").as_bytes()),
        }
        rest = after;
    }
    hash.update(rest);
    hash.update(b"\"");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(text: &str) -> PayloadHash {
        hash_json(&Json::parse(text).expect("JSON"), &[])
    }

    fn json_less(text: &str, volatile: &[&str]) -> PayloadHash {
        hash_json(&Json::parse(text).expect("JSON"), &paths(volatile))
    }

    fn paths(names: &[&str]) -> Vec<FieldPath> {
        names.iter().map(|name| FieldPath::parse(name).expect("a path")).collect()
    }

    fn form(pairs: &[(&str, &str)], volatile: &[&str]) -> PayloadHash {
        hash_form(pairs.iter().map(|(n, v)| (*n, FormValue::Text(v))), &paths(volatile))
    }

    #[test]
    fn key_order_white_space_and_escapes_do_not_alter_the_hash() {
        let first = json(r#"{"name":"A","phone":"1","path":"a/b","utm":{"s":"x","m":"y"}}"#);
        let again =
            json("{ \"utm\" : {\"m\":\"y\",\n\"s\":\"x\"},\t\"path\":\"a\\/b\",\"phone\":\"1\",\"name\":\"\\u0041\" }");
        assert_eq!(first, again);
    }

    #[test]
    fn array_order_types_and_every_digit_do() {
        for (a, b) in [
            (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"a":null}"#, "{}"),
            (r#"{"a":[]}"#, r#"{"a":{}}"#),
            (r#"{"a":[[]]}"#, r#"{"a":[[],[]]}"#),
            (r#"{"id":9007199254740993}"#, r#"{"id":9007199254740992}"#),
            (r#"{"id":18446744073709551616}"#, r#"{"id":18446744073709551617}"#),
            (r#"{"sum":0.1}"#, r#"{"sum":0.10}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#),
            (r#"{"$serde_json::private::Number":"1"}"#, "1"),
            (r#"{"a":"x\",\"b\":\"y"}"#, r#"{"a":"x","b":"y"}"#),
        ] {
            assert_ne!(json(a), json(b), "{a} {b}");
        }
    }

    #[test]
    fn composed_and_decomposed_letters_are_one_text_but_ligatures_are_not_opened() {
        assert_eq!(json(r#"{"й":"Йёй"}"#), json("{\"\u{438}\u{306}\":\"\u{418}\u{306}\u{435}\u{308}\u{438}\u{306}\"}"));
        assert_eq!(form(&[("й", "ё")], &[]), form(&[("\u{438}\u{306}", "\u{435}\u{308}")], &[]));
        assert_ne!(json("\"ﬁ\""), json("\"fi\""));
    }

    #[test]
    fn the_hash_is_over_the_text_of_rfc_8785() {
        let written = r#" { "b" : "\u0001\u000b\"\\\n\/\u20ac\u007f" , "a" : [ true , null , -0.50e+3 ] } "#;
        let canonical = "{\"a\":[true,null,-0.50e+3],\"b\":\"\\u0001\\u000b\\\"\\\\\\n/\u{20ac}\u{7f}\"}";
        let expected = Sha256::new_with_prefix(JSON).chain_update(canonical.as_bytes()).finalize();
        assert_eq!(json(written).as_bytes(), expected.as_slice());
    }

    #[test]
    fn names_are_ordered_by_utf_16_code_units() {
        let expected =
            Sha256::new_with_prefix(JSON).chain_update("{\"\u{1f600}\":1,\"\u{ff21}\":2}".as_bytes()).finalize();
        assert_eq!(json("{\"\u{ff21}\":2,\"\u{1f600}\":1}").as_bytes(), expected.as_slice());
    }

    #[test]
    fn hashes_of_version_c1_never_change() {
        // Computed apart from this code, with Python's hashlib over the bytes that the comments above describe.
        assert_eq!(json(r#"{"b":[1,"x"],"a":null}"#).to_string(), GOLDEN_JSON);
        assert_eq!(form(&[("b", "2"), ("a", "1\r\n"), ("b", "1")], &[]).to_string(), GOLDEN_FORM);
    }

    const GOLDEN_JSON: &str = "2030a0eda240a809d50000ea2d46163d322a2a670451a9f2673eeccce8321250";
    const GOLDEN_FORM: &str = "ddc67ad2ea3e570d67361eec9ea3e10ee911682f675c0ac3fb35f1e70dc0c0a0";

    #[test]
    fn volatile_fields_are_left_out_wherever_they_are_named() {
        let whole = r#"{"a":1,"sent_at":5,"meta":{"try":1,"id":2},"list":[{"t":1,"v":2},3]}"#;
        let moved = r#"{"a":1,"sent_at":6,"meta":{"try":9,"id":2},"list":[{"t":8,"v":2},3]}"#;
        assert_ne!(json(whole), json(moved));
        let volatile = ["/sent_at", "/meta/try", "/list/0/t"];
        assert_eq!(json_less(whole, &volatile), json_less(moved, &volatile));
        assert_eq!(json_less(whole, &["sent_at", "meta[try]", "list[0][t]"]), json_less(moved, &volatile));
        assert_ne!(json_less(whole, &["/meta"]), json_less(whole, &["/meta/id"]));
        assert_eq!(json_less(r#"{"only":1}"#, &["only"]), json("{}"));
        assert_eq!(
            form(&[("a", "1"), ("t", "5"), ("m[t]", "1"), ("c[]", "x")], &["t", "/m/t", "c"]),
            form(&[("a", "1"), ("t", "6")], &["t", "/m/t", "c"]),
        );
        assert_ne!(form(&[("tea", "5")], &["t"]), form(&[], &["t"]));
    }

    #[test]
    fn equal_names_keep_their_order_and_other_names_need_none() {
        assert_eq!(form(&[("a", "1"), ("b", "2"), ("a", "3")], &[]), form(&[("b", "2"), ("a", "1"), ("a", "3")], &[]));
        assert_ne!(form(&[("a", "1"), ("a", "3")], &[]), form(&[("a", "3"), ("a", "1")], &[]));
        assert_ne!(form(&[("a", "1"), ("a", "3")], &[]), form(&[("a", "3")], &[]));
    }

    #[test]
    fn a_changed_byte_of_a_file_alters_the_hash() {
        let file =
            |name, content: &'static [u8]| hash_form([("cv", FormValue::File { name, content })].into_iter(), &[]);
        assert_eq!(file("a.pdf", b"1234"), file("a.pdf", b"1234"));
        assert_ne!(file("a.pdf", b"1234"), file("a.pdf", b"1235"));
        assert_ne!(file("a.pdf", b"1234"), file("b.pdf", b"1234"));
        assert_ne!(file("", b"1234"), form(&[("cv", "1234")], &[]));
    }

    #[test]
    fn a_form_a_json_text_and_raw_bytes_never_share_a_hash() {
        assert_ne!(form(&[], &[]), json("{}"));
        assert_ne!(hash_raw(b"{}"), json("{}"));
        assert_eq!(hash_raw(b"{"), hash_raw(b"{"));
    }

    fn shuffled(value: &serde_json::Value, flip: bool) -> String {
        match value {
            serde_json::Value::Array(items) => {
                format!("[ {}]", items.iter().map(|v| shuffled(v, flip)).collect::<Vec<_>>().join(" ,\n"))
            }
            serde_json::Value::Object(map) => {
                let mut members: Vec<String> = map
                    .iter()
                    .map(|(k, v)| format!("{}\t:{}", shuffled(&k.clone().into(), flip), shuffled(v, flip)))
                    .collect();
                if flip {
                    members.reverse();
                }
                format!("{{{}}}", members.join(" , "))
            }
            serde_json::Value::String(text) if flip => {
                let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
                format!("\"{escaped}\"")
            }
            scalar => scalar.to_string(),
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            any::<String>().prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_way_a_value_is_written_does_not_alter_its_hash(value in any_json()) {
            prop_assert_eq!(json(&value.to_string()), json(&shuffled(&value, true)));
        }

        #[test]
        fn another_value_has_another_hash(a in any_json(), b in any_json()) {
            // Values that differ only in the composition of letters are one; the generator makes such pairs next to never.
            prop_assert_eq!(a == b, json(&a.to_string()) == json(&b.to_string()));
        }

        #[test]
        fn pairs_cannot_be_written_so_that_two_lists_meet(
            a in prop::collection::vec(("[ab=&\0]{0,3}", "[ab=&\0]{0,3}"), 0..4),
            b in prop::collection::vec(("[ab=&\0]{0,3}", "[ab=&\0]{0,3}"), 0..4),
        ) {
            let sorted = |list: &[(String, String)]| { let mut list = list.to_vec(); list.sort_by(|x, y| x.0.cmp(&y.0)); list };
            let hash = |list: &[(String, String)]| hash_form(list.iter().map(|(n, v)| (n.as_str(), FormValue::Text(v))), &[]);
            prop_assert_eq!(sorted(&a) == sorted(&b), hash(&a) == hash(&b));
        }
    }
}

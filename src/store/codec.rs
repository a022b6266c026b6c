//! How single values are written into columns and read back.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::types::NewDelivery;
use crate::operation::CrmId;

/// A text without the NUL character, which PostgreSQL's TEXT refuses and which has no place in a note or an error.
pub(super) fn clean(text: &str) -> String {
    if text.contains('\0') { text.replace('\0', "") } else { text.to_owned() }
}

/// Reads one of a fixed set of names.
pub(super) fn named<T: Copy>(
    all: &[T],
    name: impl Fn(&T) -> &'static str,
    stored: Option<&str>,
    what: &str,
) -> Result<T, String> {
    let stored = stored.ok_or_else(|| format!("no {what}"))?;
    all.iter().copied().find(|value| name(value) == stored).ok_or_else(|| format!("unknown {what} {stored:?}"))
}

/// Reads a UUID in its hyphenated form.
pub(super) fn uuid(stored: &str) -> Result<Uuid, String> {
    Uuid::try_parse(stored).map_err(|_| format!("{stored:?} is not a UUID"))
}

/// Reads an entity's id.
pub(super) fn crm_id(stored: Option<String>) -> Result<Option<CrmId>, String> {
    stored.map(CrmId::try_from).transpose().map_err(|e| e.to_string())
}

/// Reads the headers of a delivery.
pub(super) fn headers(stored: &str) -> Result<Vec<(String, String)>, String> {
    serde_json::from_str(stored).map_err(|e| format!("headers: {e}"))
}

/// What is computed from a delivery before it goes into the writer's queue, on the caller's thread.
#[derive(Debug)]
pub(super) struct Sealed {
    /// The headers as JSON: an array of pairs. JSON writes a NUL as an escape, so the column never holds one.
    pub(super) headers: String,
    /// SHA-256 of the raw body.
    pub(super) body_sha256: [u8; 32],
}

impl Sealed {
    /// Computes it.
    pub(super) fn new(delivery: &NewDelivery) -> Self {
        let pairs = serde_json::to_string(&delivery.headers);
        Self { headers: pairs.unwrap_or_else(|_| "[]".to_owned()), body_sha256: Sha256::digest(&delivery.body).into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_never_reaches_a_text_column() {
        assert_eq!(clean("An\0na"), "Anna");
        assert_eq!(clean("Anna"), "Anna");
        let pairs = vec![("x-name".to_owned(), "a\0b".to_owned())];
        let json = serde_json::to_string(&pairs).expect("strings");
        assert!(!json.contains('\0'));
        assert_eq!(headers(&json), Ok(pairs));
    }

    #[test]
    fn an_unknown_name_is_an_error() {
        let all = [true, false];
        let name = |b: &bool| if *b { "yes" } else { "no" };
        assert_eq!(named(&all, name, Some("no"), "answer"), Ok(false));
        assert_eq!(named(&all, name, Some("maybe"), "answer"), Err("unknown answer \"maybe\"".into()));
        assert_eq!(named(&all, name, None, "answer"), Err("no answer".into()));
    }
}

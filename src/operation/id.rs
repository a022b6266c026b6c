//! Names and keys: who an operation is, here and in the CRM (contract 3).

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::hash::PayloadHash;

/// The longest key that is kept as given, in bytes (contract 3).
pub const LONGEST_KEY: usize = 255;
const HASHED_PREFIX: &str = "sha256:";

/// A text that cannot be the value it should be; says what it should look like.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub &'static str);

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;

            fn try_from(text: String) -> Result<Self, Invalid> {
                let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
                if text.is_empty() || text.len() > 64 || !text.chars().all(allowed) {
                    return Err(Invalid("a name has 1 to 64 letters, digits, dashes, underscores or dots"));
                }
                Ok(Self(text))
            }
        }

        impl std::str::FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::try_from(text.to_owned())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The configured name of a source: the scope of its keys.
    SourceName
);
name!(
    /// The configured name of a destination (one CRM account).
    DestinationName
);

/// The operation's own id: a UUIDv7, made once at first reception.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub Uuid);

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl std::str::FromStr for OperationId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Uuid::try_parse(text).map(Self).map_err(|_| Invalid("an operation_id is a UUID"))
    }
}

/// The id of an entity in the CRM: text, byte for byte as the CRM gave it, never empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct CrmId(String);

impl CrmId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CrmId {
    type Error = Invalid;

    /// Accepts 1 to 255 characters without blanks at the ends or control characters.
    fn try_from(text: String) -> Result<Self, Invalid> {
        if text.is_empty() || text.len() > 255 || text.trim() != text || text.chars().any(char::is_control) {
            return Err(Invalid("a crm_id has 1 to 255 characters, none of them a control character"));
        }
        Ok(Self(text))
    }
}

impl fmt::Display for CrmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The sender's own stable id of an event. Opaque: compared byte for byte, never cut, never blank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey(Vec<u8>);

impl SourceKey {
    /// The key in the form that is stored, or `None` where it is missing (empty or only white space).
    ///
    /// A key of more than 255 bytes is kept as `sha256:` and hex, never cut: cutting makes two keys one. A literal key with
    /// that prefix is hashed too, so that nobody can name another's long key.
    pub fn from_native(key: &[u8]) -> Option<Self> {
        let blank = match std::str::from_utf8(key) {
            Ok(text) => text.trim().is_empty(),
            Err(_) => key.iter().all(u8::is_ascii_whitespace),
        };
        if blank {
            return None;
        }
        if key.len() > LONGEST_KEY || key.starts_with(HASHED_PREFIX.as_bytes()) {
            let hashed = format!("{HASHED_PREFIX}{}", hex(&Sha256::digest(key)));
            return Some(Self(hashed.into_bytes()));
        }
        Some(Self(key.to_vec()))
    }

    /// The key as it lies in the store; nothing is checked or changed.
    pub fn from_stored(key: Vec<u8>) -> Self {
        Self(key)
    }

    /// The bytes of the stored form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key for people and JSON: bytes that are not UTF-8 are shown as U+FFFD.
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

/// Empty for the first content of a key, the payload_hash for a conflicting one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// The first content that came under the key.
    First,
    /// Another content under the same key: a conflict of its own.
    Changed(PayloadHash),
}

impl Variant {
    /// The bytes of the unique constraint: empty, or the 32 bytes of the hash.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::First => &[],
            Self::Changed(hash) => hash.as_bytes(),
        }
    }

    /// Reads the stored form.
    pub fn from_stored(bytes: &[u8]) -> Result<Self, Invalid> {
        if bytes.is_empty() { Ok(Self::First) } else { PayloadHash::from_stored(bytes).map(Self::Changed) }
    }
}

/// Where the source_key came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOrigin {
    /// The source kind's native id.
    Native,
    /// The `Idempotency-Key` header.
    Header,
    /// The field named by `key` in the source's configuration.
    Field,
    /// No key: the same content within the window is the same submission.
    ResubmitWindow,
    /// No key: every delivery is an operation of its own.
    Generated,
}

impl KeyOrigin {
    /// All values, for reading the stored form.
    pub const ALL: [Self; 5] = [Self::Native, Self::Header, Self::Field, Self::ResubmitWindow, Self::Generated];

    /// The stored form.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Header => "header",
            Self::Field => "field",
            Self::ResubmitWindow => "resubmit_window",
            Self::Generated => "generated",
        }
    }
}

/// The key under which the CRM knows the operation: a UUIDv8 that a redelivered event leads to again, even if our database
/// were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct CrmKey(pub Uuid);

impl CrmKey {
    /// Derives the key by SHA-256, domain-separated and length-prefixed; from the operation_id where no source_key exists.
    ///
    /// The derivation is part of the stored data of every CRM: it never changes (golden vectors below).
    pub fn derive(source: &SourceName, key: Option<&SourceKey>, variant: &Variant, id: OperationId) -> Self {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(bytes);
        };
        match key {
            Some(key) => {
                part(b"leadonce/crm_key/1/source_key");
                part(source.as_str().as_bytes());
                part(key.as_bytes());
                part(variant.as_bytes());
            }
            None => {
                part(b"leadonce/crm_key/1/operation_id");
                part(id.0.as_bytes());
            }
        }
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(hash.finalize()) {
            *to = from;
        }
        Self(Uuid::new_v8(bytes))
    }
}

impl fmt::Display for CrmKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<SourceKey> {
        SourceKey::from_native(text.as_bytes())
    }

    #[test]
    fn a_blank_key_is_a_missing_key() {
        for blank in ["", " ", "   ", "\t", "\u{a0}", "\r\n"] {
            assert_eq!(key(blank), None, "{blank:?}");
        }
        assert_eq!(key("0").map(|k| k.to_text()), Some("0".into()));
    }

    #[test]
    fn long_keys_are_hashed_not_cut() {
        let (a, b) = ("k".repeat(256), "k".repeat(257));
        let (a, b) = (key(&a), key(&b));
        assert_ne!(a, b);
        assert!(a.is_some_and(|k| k.as_bytes().len() == 71 && k.as_bytes().starts_with(b"sha256:")));
        assert_eq!(key(&"k".repeat(255)).map(|k| k.as_bytes().len()), Some(255));
    }

    #[test]
    fn a_literal_hash_cannot_name_a_long_keys_operation() {
        let long = key(&"k".repeat(300)).expect("a key");
        assert_ne!(SourceKey::from_native(long.as_bytes()), Some(long));
    }

    #[test]
    fn crm_keys_follow_the_golden_vectors() {
        let id: OperationId = "0198c0de-0000-7000-8000-000000000001".parse().expect("a uuid");
        let source: SourceName = "site".parse().expect("a name");
        let derive = |key: Option<&str>, variant| {
            let key = key.and_then(|k| SourceKey::from_native(k.as_bytes()));
            CrmKey::derive(&source, key.as_ref(), &variant, id).to_string()
        };
        let changed = Variant::Changed(PayloadHash::from([7; 32]));
        assert_eq!(derive(Some("a1b2"), Variant::First), GOLDEN[0]);
        assert_eq!(derive(Some("a1b2"), changed), GOLDEN[1]);
        assert_eq!(derive(None, Variant::First), GOLDEN[2]);
    }

    // Computed once, apart from this code (Python hashlib); a change here orphans every record already in a CRM.
    const GOLDEN: [&str; 3] = [
        "1ab24bf7-77c2-8b44-a210-e90fb00d1395",
        "f3e0f45d-bd8b-81d9-b166-67fc3ed8e549",
        "89023f4b-9714-8a79-bdd4-201e0bc2e23c",
    ];
}

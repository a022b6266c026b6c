//! payload_hash: what tells a redelivery from changed content (contract 3).

use std::fmt;

use super::id::{Invalid, hex};

/// SHA-256 over the canonical form of the parsed content, less the volatile fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayloadHash([u8; 32]);

impl PayloadHash {
    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads the stored form.
    pub fn from_stored(bytes: &[u8]) -> Result<Self, Invalid> {
        bytes.try_into().map(Self).map_err(|_| Invalid("a payload_hash has 32 bytes"))
    }
}

impl From<[u8; 32]> for PayloadHash {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for PayloadHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for PayloadHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PayloadHash({self})")
    }
}

/// By which rule a hash was made: version of the canonical form and the volatile fields left out.
///
/// Two hashes can be compared only under one rule; where the rules differ, the older is recomputed from the raw bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HashRule(String);

impl HashRule {
    /// Version of the canonical form in `canonical.rs`; raised when it changes.
    pub const CANONICAL_VERSION: &'static str = "c1";

    /// The rule of this program version with these volatile fields.
    pub fn current(volatile: &[String]) -> Self {
        let mut volatile: Vec<&str> = volatile.iter().map(String::as_str).collect();
        volatile.sort_unstable();
        volatile.dedup();
        Self(format!("{}:{}", Self::CANONICAL_VERSION, volatile.join(",")))
    }

    /// The rule as it lies in the store.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The stored form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

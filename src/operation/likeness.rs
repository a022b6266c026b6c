//! Likeness: what an event has in common with a copy of it that came under another id.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::hash::PayloadHash;

/// What is hashed first: a likeness never meets the content of an event without a key, which claims windows too.
const DOMAIN: &[u8] = b"leadonce/likeness/1\0";

/// The content of an event less its id, and for how long another event with that content is taken for a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Likeness {
    hash: PayloadHash,
    window: Duration,
}

impl Likeness {
    /// `content`: the hash of the canonical content, less the fields that hold the event's id.
    pub fn of(content: PayloadHash, window: Duration) -> Self {
        let hash = Sha256::new_with_prefix(DOMAIN).chain_update(content.as_bytes()).finalize();
        Self { hash: PayloadHash::from(<[u8; 32]>::from(hash)), window }
    }

    /// What likely copies have in common.
    pub const fn hash(&self) -> &PayloadHash {
        &self.hash
    }

    /// How long after the first of them.
    pub const fn window(&self) -> Duration {
        self.window
    }
}

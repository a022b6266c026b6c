//! Secrets of a source: compared in constant time, never printed.

use subtle::{Choice, ConstantTimeEq};

/// How a refusal is counted whose sender knows a secret of the past: it must be told the new one (case C70).
pub(super) const EXPIRED: &str = "expired_secret";

/// A secret; `Debug` prints a mask.
#[derive(Clone)]
pub(super) struct Secret(Vec<u8>);

impl Secret {
    /// Wraps the bytes of a secret; `None` where there are none, as an empty secret would open the door to everyone.
    pub(super) fn new(bytes: Vec<u8>) -> Option<Self> {
        if bytes.trim_ascii().is_empty() { None } else { Some(Self(bytes)) }
    }

    /// The bytes, for a signature.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Whether the presented bytes are one of the secrets. The time taken tells at most their lengths.
pub(super) fn any_equals(secrets: &[Secret], presented: &[u8]) -> bool {
    let none = Choice::from(0);
    secrets.iter().fold(none, |found, secret| found | secret.0.as_slice().ct_eq(presented)).into()
}

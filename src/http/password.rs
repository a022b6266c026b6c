//! Passwords of people: Argon2id with the parameters that OWASP's Password Storage Cheat Sheet names first (19 MiB, 2 passes,
//! 1 lane), which are the library's defaults.

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};

/// Shorter ones are guessed too easily (NIST SP 800-63B asks for 15 where nothing else protects an account, and for 8 at least).
pub(crate) const SHORTEST: usize = 12;
/// Longer ones only cost time.
pub(crate) const LONGEST: usize = 200;

fn argon2() -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT)
}

/// The hash, in the PHC string format. Takes some 30 ms of a core: for a thread that may block.
pub(crate) fn hash(password: &str, salt: [u8; 16]) -> Result<String, String> {
    let salt = SaltString::encode_b64(&salt).map_err(|error| error.to_string())?;
    argon2().hash_password(password.as_bytes(), &salt).map(|hash| hash.to_string()).map_err(|error| error.to_string())
}

/// Whether it is the password. Where there is no such person (`None`) it takes as long and is false: how long an answer takes
/// does not tell who exists.
pub(crate) fn verify(password: &str, stored: Option<&str>) -> bool {
    const NOBODY: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let Ok(hash) = PasswordHash::new(stored.unwrap_or(NOBODY)) else { return false };
    argon2().verify_password(password.as_bytes(), &hash).is_ok() && stored.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_known_by_its_hash_and_no_other_is() {
        let stored = hash("correct horse battery", [7; 16]).expect("a hash");
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(verify("correct horse battery", Some(&stored)));
        assert!(!verify("correct horse batterz", Some(&stored)));
        assert!(!verify("correct horse battery", Some("nonsense")));
        assert!(!verify("", None));
        assert_ne!(stored, hash("correct horse battery", [8; 16]).expect("a hash"), "salted");
    }

    #[test]
    fn the_hash_of_nobody_is_a_real_one_so_that_it_costs_as_much() {
        assert!(
            PasswordHash::new(
                "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
            )
            .is_ok()
        );
    }
}

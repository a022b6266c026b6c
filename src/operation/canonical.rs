//! The canonical form of parsed content, which payload_hash is taken over (contract 3).

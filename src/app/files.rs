//! Open files: every visitor's connection is one. Beyond the limit not only visitors would be turned away, but SQLite, the
//! database and the CRM would get no file either; so visitors get what is left when the program has its own.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than anybody needs: a server that may open a million files should not offer a million connections.
const ENOUGH: u64 = 65_536;
/// What the program keeps for itself.
const OWN: u64 = 256;

/// Raises the limit of open files as far as the system allows it without asking; how many connections visitors may hold.
pub(super) fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    let mut current = limit.current.unwrap_or(u64::MAX);
    if current < wanted {
        match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }) {
            Ok(()) => current = wanted,
            Err(error) => tracing::warn!(%error, "the limit of open files could not be raised"),
        }
    }
    usize::try_from(connections(current)).unwrap_or(usize::MAX)
}

/// Of so many files.
fn connections(files: u64) -> u64 {
    let files = files.min(ENOUGH);
    // Where there are very few, half of them.
    files.saturating_sub(OWN).max(files / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_keeps_files_for_itself() {
        assert_eq!(connections(100), 50);
        assert_eq!(connections(1_024), 1_024 - OWN);
        assert_eq!(connections(u64::MAX), ENOUGH - OWN);
    }
}

//! A wall clock of a process that a test moves, as people, NTP and virtual machines do; its other clocks go on as ever.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The wall clock of a process that is started in its [environment](Self::environment).
#[derive(Debug)]
pub(crate) struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

impl WallClock {
    /// A clock with files of its own in a folder; it shows the machine's time.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let clock = Self { library: folder.join("wall_clock.so"), file: folder.join(name) };
        if !clock.library.exists() {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/wall_clock.c");
            // Where Rust links there is a C compiler.
            let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&clock.library).arg(source).status();
            assert!(built.expect("cc runs").success(), "the library was not built");
        }
        clock.set(0);
        clock
    }

    /// From now on it is so many seconds ahead of the machine's time.
    pub(crate) fn set(&self, ahead: i64) {
        let file = std::fs::File::options().create(true).truncate(false).write(true).open(&self.file).expect("a file");
        // In one write: nobody reads half a number.
        file.write_all_at(&ahead.to_ne_bytes(), 0).expect("written");
    }

    /// What the process must be started with.
    pub(crate) fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("LD_PRELOAD", self.library.clone()), ("LEADONCE_TEST_CLOCK", self.file.clone())]
    }
}

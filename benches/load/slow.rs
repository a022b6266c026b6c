//! A disk whose flushes last longer: what a disk without a protected write cache costs. Machines differ in nothing so much as in
//! this, so that what group commit is worth shows here alone.

#![allow(dead_code, reason = "tests take what they need")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A library that, preloaded into a process, slows its flushes down and counts them.
#[derive(Debug)]
pub(crate) struct SlowDisk {
    folder: tempfile::TempDir,
    delay: Duration,
}

impl SlowDisk {
    /// Builds it; `None` where there is no C compiler.
    pub(crate) fn build(delay: Duration) -> Option<Self> {
        let disk = Self { folder: tempfile::tempdir().expect("a folder"), delay };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/load/slow_fsync.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(disk.library())
            .arg(source)
            .arg("-ldl")
            .status();
        // A PostgreSQL that it is preloaded into runs as another user.
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("opened");
        open(disk.folder.path(), 0o755);
        fs::write(disk.counter(), "").expect("a file");
        open(&disk.counter(), 0o666);
        built.is_ok_and(|status| status.success()).then_some(disk)
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("slow_fsync.so")
    }

    fn counter(&self) -> PathBuf {
        self.folder.path().join("flushes")
    }

    /// Flushes so far, of all processes.
    pub(crate) fn flushes(&self) -> u64 {
        fs::metadata(self.counter()).expect("the file").len()
    }

    /// What a process must be started with.
    pub(crate) fn environment(&self) -> [(&'static str, String); 3] {
        let text = |path: PathBuf| path.to_str().expect("a path in UTF-8").to_owned();
        [
            ("LD_PRELOAD", text(self.library())),
            ("SLOW_FSYNC_US", self.delay.as_micros().to_string()),
            ("SLOW_FSYNC_COUNT", text(self.counter())),
        ]
    }

    /// The same as lines of a shell.
    pub(crate) fn exports(&self) -> String {
        self.environment().map(|(name, value)| format!("export {name}='{value}'\n")).concat()
    }
}

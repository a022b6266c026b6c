//! A gateway of its own in a process of its own, as demo and drill need it: real files, real sockets, real kills.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// The line with which `serve` tells its address, on standard output.
pub(super) const LISTENING: &str = "listening on ";

/// A running `leadonce serve`. Killed when dropped.
#[derive(Debug)]
pub(super) struct Gateway {
    child: Child,
    /// Its address, `http://127.0.0.1:PORT`.
    pub(super) url: String,
}

impl Gateway {
    /// Starts it and waits until it listens.
    pub(super) async fn start(program: &Path, config: &Path) -> std::io::Result<Self> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(config.with_extension("log"))?;
        let mut child = Command::new(program)
            .arg("serve")
            .arg("--config")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let Some(stdout) = child.stdout.take() else { return Err(std::io::Error::other("the gateway has no output")) };
        let mut lines = BufReader::new(stdout).lines();
        let listening = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(url) = line.strip_prefix(LISTENING) {
                    return Ok(url.trim().to_owned());
                }
            }
            Err(std::io::Error::other(format!("the gateway did not start; see {}", config.with_extension("log").display())))
        };
        let url = tokio::time::timeout(Duration::from_secs(30), listening)
            .await
            .map_err(|_| std::io::Error::other("the gateway did not listen within 30 s"))??;
        Ok(Self { child, url })
    }

    /// kill -9.
    pub(super) async fn kill(mut self) -> std::io::Result<()> {
        self.child.kill().await
    }
}

/// A folder that is removed when dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// A new folder below the system's temporary one.
    pub(super) fn new(id: uuid::Uuid) -> std::io::Result<Self> {
        let path = crate::config::temporary_folder().join(format!("leadonce-{id}"));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// A file in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

//! A PostgreSQL server in a temporary directory, for tests and benches.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server of our own; it stops with this process, however that ends.
pub(crate) struct Running {
    /// URL of its superuser.
    pub(crate) url: String,
    /// The watchdog stops the server when our end of its input is closed: by the system, when we are gone.
    _watchdog: Child,
}

/// Starts a server of our own with these options: initdb, then postgres under a shell that watches over it.
pub(crate) fn start(options: &str) -> Option<Running> {
    let bin = binaries()?;
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let mut shell = as_ordinary_user()?;
    shell.arg("sh").arg("-c").arg(WATCHDOG).arg("watchdog").arg(&bin).arg(port.to_string()).arg(options);
    // Its own process group: an interrupt meant for the tests must not reach it before it has cleaned up.
    let mut child = shell
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a shell");
    let mut said = String::new();
    let stdout = child.stdout.take().expect("its output");
    BufReader::new(stdout).read_line(&mut said).expect("the watchdog speaks");
    assert_eq!(said.trim(), "ready", "PostgreSQL did not start");
    Some(Running { url: format!("postgres://postgres@127.0.0.1:{port}/postgres"), _watchdog: child })
}

/// `$1` is the folder of the binaries, `$2` the port, `$3` the server's options.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP
dir=$(mktemp -d /tmp/leadonce-pg.XXXXXX) || exit 1
if "$1/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$dir/log" 2>&1; then
    "$1/postgres" -D "$dir/data" -k "$dir" -p "$2" -c listen_addresses=127.0.0.1 $3 >>"$dir/log" 2>&1 </dev/null &
    pid=$!
    tries=0
    until "$1/pg_isready" -q -h 127.0.0.1 -p "$2" || [ $tries -ge 300 ]; do sleep 0.1; tries=$((tries + 1)); done
    "$1/pg_isready" -q -h 127.0.0.1 -p "$2" && echo ready || { cat "$dir/log" >&2; echo failed; }
    cat >/dev/null
    kill -INT $pid
    wait $pid
else
    cat "$dir/log" >&2
    echo failed
fi
rm -rf "$dir"
"#;

/// The folder with `initdb` and `postgres`: the newest that is installed, or one on the path.
fn binaries() -> Option<PathBuf> {
    let has_both = |folder: &Path| ["initdb", "postgres", "pg_isready"].iter().all(|name| folder.join(name).is_file());
    let mut installed: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).filter(|bin| has_both(bin)).collect())
        .unwrap_or_default();
    installed.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    installed.pop().or_else(|| std::env::split_paths(&path).find(|folder| has_both(folder)))
}

/// PostgreSQL refuses to run as root: then it runs as `postgres`, or as `nobody`.
fn as_ordinary_user() -> Option<Command> {
    let id = |arguments: &[&str]| {
        let output = Command::new("id").args(arguments).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    if id(&["-u"])? != "0" {
        return Some(Command::new("env"));
    }
    let user = ["postgres", "nobody"].into_iter().find(|user| id(&["-u", user]).is_some())?;
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={}", id(&["-u", user])?));
    command.arg(format!("--regid={}", id(&["-g", user])?)).arg("--clear-groups").arg("--");
    Some(command)
}

//! A PostgreSQL for tests: the server that `LEADONCE_TEST_PG` names (a superuser's URL), or one of our own, started once per
//! test process in a temporary directory and stopped with it, however the process ends.
//!
//! A test that stops its server, or sets it up in its own way, starts one for itself: [`Own`].
//!
//! Included by path (`#[path = "../support/postgres.rs"] mod postgres;`).

#![allow(dead_code, reason = "each test takes what it needs")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use diesel::connection::SimpleConnection;
use diesel::{Connection, PgConnection};

/// A fresh, empty database; dropped with this value where the server is not our own.
pub(crate) struct Database {
    url: String,
    name: String,
}

impl Database {
    /// Its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some(Server { base, own: false, .. }) = server() else { return };
        if let Ok(mut conn) = PgConnection::establish(base) {
            let _ = conn.batch_execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        }
    }
}

/// A fresh database, or `None` where there is no PostgreSQL (an error where `LEADONCE_TEST_STRICT` is 1).
pub(crate) fn database() -> Option<Database> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let server = server()?;
    let name = format!("leadonce_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut conn = PgConnection::establish(&server.base).expect("the test server answers");
    conn.batch_execute(&format!("CREATE DATABASE {name}")).expect("a database can be made");
    let mut url = url::Url::parse(&server.base).expect("the test server's url");
    url.set_path(&name);
    Some(Database { url: url.into(), name })
}

struct Server {
    base: String,
    own: bool,
    /// The watchdog stops the server when our end of its input is closed: by the system, when we are gone.
    _watchdog: Option<Child>,
}

fn server() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        if let Some(url) = std::env::var_os("LEADONCE_TEST_PG") {
            let base = url.into_string().expect("LEADONCE_TEST_PG is text");
            return Some(Server { base, own: false, _watchdog: None });
        }
        start()
    });
    if server.is_none() {
        let strict = std::env::var_os("LEADONCE_TEST_STRICT").is_some_and(|value| value == "1");
        assert!(!strict, "PostgreSQL not found, and LEADONCE_TEST_STRICT=1");
        // Straight to the stream: the test harness would swallow what is printed.
        let told = b"SKIPPED: PostgreSQL not found, store tests ran on SQLite only\n";
        let _ = std::io::stderr().write_all(told);
    }
    server.as_ref()
}

/// Starts the server that the tests of this process share.
fn start() -> Option<Server> {
    let (port, child) = launch("", &["max_connections=200"])?;
    Some(Server { base: address(port), own: true, _watchdog: Some(child) })
}

fn address(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

/// A server of one test's own. It stops with this value.
pub(crate) struct Own {
    watchdog: Child,
    port: u16,
    said: BufReader<std::process::ChildStdout>,
}

impl Own {
    /// Starts it. `prepare`: shell lines that run in the server's folder before its first start. `options`: settings of the
    /// server. `None` where there is no PostgreSQL.
    pub(crate) fn start(prepare: &str, options: &[&str]) -> Option<Self> {
        // Asked first for what it tells: that there is none.
        server()?;
        let (port, mut watchdog) = launch(prepare, options)?;
        let said = BufReader::new(watchdog.stdout.take().expect("its output"));
        Some(Self { watchdog, port, said })
    }

    /// The address of its only database.
    pub(crate) fn url(&self) -> String {
        address(self.port)
    }

    /// Runs statements as the superuser.
    pub(crate) fn execute(&self, sql: &str) {
        let mut conn = PgConnection::establish(&self.url()).expect("the server answers");
        conn.batch_execute(sql).expect("the statements run");
    }

    /// Stops it at once, as a crash would: every connection is cut.
    pub(crate) fn crash(&mut self) {
        self.tell("stop");
    }

    /// Starts it again on the same data; returns when it answers.
    pub(crate) fn start_again(&mut self) {
        self.tell("start");
    }

    /// A file in the server's folder.
    pub(crate) fn file(&mut self, name: &str) -> PathBuf {
        Path::new(&self.tell("where")).join(name)
    }

    fn tell(&mut self, word: &str) -> String {
        writeln!(self.watchdog.stdin.as_mut().expect("its input"), "{word}").expect("the watchdog listens");
        let mut said = String::new();
        self.said.read_line(&mut said).expect("the watchdog speaks");
        let said = said.trim();
        assert!(!said.is_empty() && said != "failed", "PostgreSQL did not {word}");
        said.to_owned()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// initdb, then postgres under a shell that watches over it; the port and the shell.
fn launch(prepare: &str, options: &[&str]) -> Option<(u16, Child)> {
    let bin = binaries()?;
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let mut shell = as_ordinary_user()?;
    shell.arg("sh").arg("-c").arg(WATCHDOG).arg("watchdog").arg(&bin).arg(port.to_string()).arg(prepare);
    shell.args(options.iter().flat_map(|option| ["-c", option]));
    // Its own process group: an interrupt meant for the tests must not reach it before it has cleaned up.
    let mut child = shell
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a shell");
    // It says one line, and nothing more before it is told something.
    let mut said = String::new();
    BufReader::new(child.stdout.as_mut().expect("its output")).read_line(&mut said).expect("the watchdog speaks");
    assert_eq!(said.trim(), "ready", "PostgreSQL did not start");
    Some((port, child))
}

/// `$1` is the folder of the binaries, `$2` the port, `$3` what comes before the first start, the rest goes to the server. It
/// obeys the words that it reads, and ends with its input. Nothing here has to survive a power cut.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP
dir=$(mktemp -d /tmp/leadonce-pg.XXXXXX) && cd "$dir" || exit 1
bin=$1 port=$2 prepare=$3
shift 3
start() {
    "$bin/postgres" -D "$dir/data" -k "$dir" -p "$port" -c listen_addresses=127.0.0.1 -c fsync=off \
        -c full_page_writes=off -c shared_buffers=64MB "$@" >>"$dir/log" 2>&1 </dev/null &
    pid=$!
    tries=0
    until "$bin/pg_isready" -q -h 127.0.0.1 -p "$port" || [ $tries -ge 300 ]; do sleep 0.1; tries=$((tries + 1)); done
    "$bin/pg_isready" -q -h 127.0.0.1 -p "$port" && echo ready || { cat "$dir/log" >&2; echo failed; }
}
pid=
if "$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$dir/log" 2>&1 \
    && { eval "$prepare"; } >>"$dir/log" 2>&1
then
    start "$@"
    while read -r word; do
        case $word in
        stop) kill -QUIT $pid; wait $pid; echo stopped ;;
        start) start "$@" ;;
        where) echo "$dir" ;;
        esac
    done
    kill -INT $pid 2>/dev/null
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

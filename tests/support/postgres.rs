//! A PostgreSQL for tests: the server that `LEADONCE_TEST_PG` names (a superuser's URL), or one of our own, started once per
//! test process in a temporary directory and stopped with it, however the process ends.
//!
//! Included by path (`#[path = "../support/postgres.rs"] mod postgres;`).

#[path = "postgres_server.rs"]
mod running;

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use diesel::connection::SimpleConnection;
use diesel::{Connection, PgConnection};

use running::Running;

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
        let Some(Server { base, own: None }) = server() else { return };
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
    /// A superuser's URL.
    base: String,
    /// Ours; it ends with this process.
    own: Option<Running>,
}

fn server() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        if let Some(url) = std::env::var_os("LEADONCE_TEST_PG") {
            let base = url.into_string().expect("LEADONCE_TEST_PG is text");
            return Some(Server { base, own: None });
        }
        let running =
            running::start("-c fsync=off -c full_page_writes=off -c max_connections=200 -c shared_buffers=64MB")?;
        Some(Server { base: running.url.clone(), own: Some(running) })
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

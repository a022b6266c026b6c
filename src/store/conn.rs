//! Connections: which database a URL means, and how each connection is set up.

use std::path::{Path, PathBuf};
use std::time::Duration;

use diesel::connection::{AnsiTransactionManager, SimpleConnection, TransactionManager};
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel::result::Error as DbError;

use super::failure::Failure;
use super::types::StoreError;

/// Oldest SQLite that is safe here: before it a checkpoint beside a write could corrupt the log (sqlite.org/wal.html,
/// "WAL-reset bug"), and the checkpointer runs beside the writer.
const OLDEST_SQLITE: (u32, u32) = (3, 52);

/// A connection to either backend. Made by [`Address::connect`] only: the derived `establish` tries one backend after the
/// other, hides their errors, and would make a new SQLite file out of a mistyped PostgreSQL address.
#[derive(diesel::MultiConnection)]
pub(crate) enum AnyConn {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

/// One body, compiled once per backend against the concrete connection: for what the derived enum cannot express
/// (ON CONFLICT, batches).
macro_rules! on_each {
    ($conn:expr, |$c:ident| $body:expr) => {
        match $conn {
            $crate::store::conn::AnyConn::Postgres($c) => $body,
            $crate::store::conn::AnyConn::Sqlite($c) => $body,
        }
    };
}
pub(super) use on_each;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The one connection that writes.
    Writer,
    /// A pooled connection that only reads, and answers within that time.
    Reader(Duration),
    /// A reader on the caller's own thread: never waits for a lock.
    Inline,
    /// Copies the write-ahead log back into the SQLite file.
    Checkpointer,
}

/// Where the database is.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// A file.
    Sqlite(PathBuf),
    /// A libpq URL; it may hold a password.
    Postgres(String),
}

impl Address {
    /// Reads the configured URL. An unknown scheme is an error, never a new file.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let setup = |text: String| Err(StoreError::Setup(text));
        let Some((scheme, rest)) = url.split_once("://") else {
            return setup("the store's url has no scheme; it begins with sqlite:// or postgres://".into());
        };
        match scheme {
            "sqlite" if rest.is_empty() || rest.starts_with(":memory:") || rest.starts_with("file:") => {
                setup("the store's url names no file; write sqlite:// and a path, such as sqlite://leadonce.db".into())
            }
            "sqlite" => Ok(Self::Sqlite(PathBuf::from(rest))),
            "postgres" | "postgresql" => postgres_url(url, cfg!(feature = "postgres-tls")).map(Self::Postgres),
            other => setup(format!("the store's url has the unknown scheme {other}; known are sqlite and postgres")),
        }
    }

    /// The SQLite file, if it is one.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) => Some(path),
            Self::Postgres(_) => None,
        }
    }

    /// Opens a connection and sets it up for its purpose.
    pub(super) fn connect(&self, purpose: Purpose) -> Result<AnyConn, StoreError> {
        match self {
            Self::Postgres(url) => {
                let mut conn = PgConnection::establish(url).map_err(|e| StoreError::Unavailable(e.to_string()))?;
                let mut setup = POSTGRES_SETUP.to_owned();
                if let Purpose::Reader(limit) = purpose {
                    setup.push_str(&format!("SET statement_timeout = {};", limit.as_millis()));
                }
                conn.batch_execute(&setup).map_err(|e| StoreError::Unavailable(e.to_string()))?;
                Ok(AnyConn::Postgres(conn))
            }
            Self::Sqlite(path) => connect_sqlite(path, purpose).map(AnyConn::Sqlite),
        }
    }
}

/// No answer may hang on a database that is away: two seconds is the least that libpq knows for connecting, and a connection
/// whose other end does not even acknowledge is given up within a few. What the URL says itself stands.
const PATIENCE: [(&str, &str); 5] = [
    ("connect_timeout", "2"),
    ("tcp_user_timeout", "4000"),
    ("keepalives_idle", "2"),
    ("keepalives_interval", "1"),
    ("keepalives_count", "3"),
];

/// The URL as libpq gets it. `tls`: whether this program was built with TLS to PostgreSQL.
fn postgres_url(url: &str, tls: bool) -> Result<String, StoreError> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let value_of = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    match value_of("sslmode").as_deref() {
        Some(mode @ ("require" | "verify-ca" | "verify-full")) if !tls => {
            return Err(StoreError::Setup(format!(
                "the store's url asks for sslmode={mode}, but this program was built without TLS to PostgreSQL; \
                 take a released binary, or build it with --features postgres-tls"
            )));
        }
        Some(_) | None => {}
    }
    let mut url = url.to_owned();
    for (name, value) in PATIENCE {
        if value_of(name).is_none() {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&format!("{name}={value}"));
        }
    }
    Ok(url)
}

/// A commit is durable even where the server's default is not (G1); no statement waits for a lock longer than a sender waits. A
/// node whose machine is gone in the middle of a transaction says no goodbye: its locks must not stand in the way of the others
/// until the server's keepalive finds out, which is two hours by default.
const POSTGRES_SETUP: &str = "SET lock_timeout = '2s'; SET idle_in_transaction_session_timeout = '5s';
    SET default_transaction_isolation = 'read committed';
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local');";

/// Opens the SQLite file.
pub(super) fn connect_sqlite(path: &Path, purpose: Purpose) -> Result<SqliteConnection, StoreError> {
    let unavailable = |e: &dyn std::fmt::Display| StoreError::Unavailable(format!("{}: {e}", path.display()));
    let Some(name) = path.to_str() else {
        return Err(StoreError::Setup(format!("the path {} is not UTF-8", path.display())));
    };
    let mut conn = SqliteConnection::establish(name).map_err(|e| unavailable(&e))?;
    // busy_timeout comes first: with several processes starting at once, everything after it would fail by "locked".
    let pragmas = match purpose {
        Purpose::Writer => {
            "PRAGMA busy_timeout=2000; PRAGMA synchronous=FULL; PRAGMA foreign_keys=OFF;
             PRAGMA cache_size=-40960; PRAGMA temp_store=MEMORY; PRAGMA wal_autocheckpoint=0;
             PRAGMA journal_size_limit=268435456;"
        }
        Purpose::Reader(_) => {
            "PRAGMA busy_timeout=2000; PRAGMA query_only=ON; PRAGMA cache_size=-8192; PRAGMA mmap_size=268435456;"
        }
        Purpose::Inline => {
            "PRAGMA busy_timeout=0; PRAGMA query_only=ON; PRAGMA cache_size=-4096; PRAGMA mmap_size=268435456;"
        }
        Purpose::Checkpointer => "PRAGMA busy_timeout=2000; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0;",
    };
    conn.batch_execute(pragmas).map_err(|e| unavailable(&e))?;
    if purpose == Purpose::Writer {
        switch_to_wal(&mut conn).map_err(|e| unavailable(&e))?;
    }
    Ok(conn)
}

/// Switches a new file to the write-ahead log. Of several processes that make the switch at once SQLite turns some away without
/// waiting, whatever the busy time-out; an immediate transaction does wait, until the others are done.
fn switch_to_wal(conn: &mut SqliteConnection) -> QueryResult<()> {
    const TRIES: usize = 50;
    let mut outcome = Ok(());
    for _ in 0..TRIES {
        outcome = conn.batch_execute("PRAGMA journal_mode=WAL");
        if outcome.is_ok() {
            break;
        }
        // Its own failure says nothing new: the next switch does.
        let _ = conn.batch_execute("BEGIN IMMEDIATE; ROLLBACK");
    }
    outcome
}

/// Refuses a SQLite library that is too old.
pub(super) fn check_sqlite_version(conn: &mut SqliteConnection) -> Result<(), StoreError> {
    let version: String = diesel::select(diesel::dsl::sql::<diesel::sql_types::Text>("sqlite_version()"))
        .get_result(conn)
        .map_err(|e| StoreError::Unavailable(e.to_string()))?;
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let found: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found < OLDEST_SQLITE {
        let (major, minor) = OLDEST_SQLITE;
        return Err(StoreError::Setup(format!(
            "SQLite {version} can corrupt its write-ahead log; {major}.{minor} or later is needed"
        )));
    }
    Ok(())
}

impl AnyConn {
    /// A write transaction: BEGIN IMMEDIATE on SQLite (a deferred one that turns to writing fails at once by "locked"),
    /// BEGIN on PostgreSQL, where READ COMMITTED lets the losers of a claim read the winner in a statement of their own.
    pub(super) fn write<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        type Manager = <AnyConn as Connection>::TransactionManager;
        match self {
            Self::Postgres(conn) => AnsiTransactionManager::begin_transaction_sql(conn, "BEGIN")?,
            Self::Sqlite(conn) => AnsiTransactionManager::begin_transaction_sql(conn, "BEGIN IMMEDIATE")?,
        }
        match work(self) {
            Ok(value) => {
                Manager::commit_transaction(self)?;
                Ok(value)
            }
            Err(failure) => {
                // A rollback that fails means a broken connection; the first error says more.
                let _: Result<(), DbError> = Manager::rollback_transaction(self);
                Err(failure)
            }
        }
    }

    /// Whether the connection still serves.
    pub(super) fn is_alive(&mut self) -> bool {
        !self.is_broken() && self.ping().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_is_refused_by_name() {
        for url in ["mysql://host/db", "host=127.0.0.1 dbname=x", "leadonce.db", "sqlite://", "sqlite://:memory:", ""] {
            let Err(StoreError::Setup(text)) = Address::parse(url) else { panic!("{url} was accepted") };
            assert!(text.contains("sqlite"), "{text}");
        }
        assert!(Address::parse("mysql://u:secret@host/db").is_err_and(|e| !e.to_string().contains("secret")));
    }

    #[test]
    fn a_database_that_is_away_is_noticed_in_time() {
        let url = postgres_url("postgres://h/db?sslmode=disable", false).expect("accepted");
        assert!(url.starts_with("postgres://h/db?sslmode=disable&connect_timeout=2&tcp_user_timeout="), "{url}");
        let url = postgres_url("postgresql://h/db", false).expect("accepted");
        assert!(url.starts_with("postgresql://h/db?connect_timeout=2&"), "{url}");
        let own = postgres_url("postgresql://h/db?connect_timeout=7", false).expect("accepted");
        assert!(own.contains("connect_timeout=7") && !own.contains("connect_timeout=2"), "{own}");
    }

    #[test]
    fn without_tls_in_the_program_a_url_that_demands_it_is_refused() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let url = format!("postgres://u:secret@h/db?application_name=x&sslmode={mode}");
            let Err(StoreError::Setup(text)) = postgres_url(&url, false) else { panic!("{mode} was accepted") };
            assert!(text.contains(mode) && text.contains("postgres-tls") && !text.contains("secret"), "{text}");
            postgres_url(&url, true).expect("the program speaks TLS");
        }
        postgres_url("postgres://h/db?sslmode=prefer", false).expect("works without TLS too");
    }

    #[test]
    fn the_bundled_sqlite_is_new_enough() {
        let mut conn = SqliteConnection::establish(":memory:").expect("in memory");
        check_sqlite_version(&mut conn).expect("new enough");
    }
}

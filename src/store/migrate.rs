//! Migrations: two embedded sets with equal names, run at start; safe when several processes start at once.

use diesel::connection::SimpleConnection;
use diesel::migration::{Migration, MigrationSource};
use diesel::prelude::*;
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use super::conn::AnyConn;
use super::types::StoreError;

const SQLITE: EmbeddedMigrations = embed_migrations!("migrations/sqlite");
const POSTGRES: EmbeddedMigrations = embed_migrations!("migrations/postgres");

/// The advisory lock that stands for "migrating leadonce" (its bytes spell `leadonce`).
const LOCK: i64 = 0x6c65_6164_6f6e_6365;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Brings the schema to this version of the program.
pub(super) fn run(conn: &mut AnyConn) -> Result<(), StoreError> {
    let done = match conn {
        AnyConn::Postgres(conn) => postgres(conn),
        AnyConn::Sqlite(conn) => sqlite(conn),
    };
    done.map_err(|e| StoreError::Setup(format!("the store's schema cannot be brought up to date: {e}")))
}

/// The session's advisory lock makes a second starter wait; it ends with the session, should this process die.
fn postgres(conn: &mut PgConnection) -> Result<(), AnyError> {
    conn.batch_execute(&format!("SET lock_timeout = 0; SELECT pg_advisory_lock({LOCK})"))?;
    let done = pending(conn, POSTGRES);
    conn.batch_execute(&format!("SELECT pg_advisory_unlock({LOCK}); SET lock_timeout = '2s'"))?;
    done
}

/// One immediate transaction around all of it: a second starter waits for the write lock, then finds nothing to do.
fn sqlite(conn: &mut SqliteConnection) -> Result<(), AnyError> {
    conn.batch_execute("PRAGMA busy_timeout=30000")?;
    let done = conn.immediate_transaction(|conn| pending(conn, SQLITE));
    conn.batch_execute("PRAGMA busy_timeout=2000")?;
    done
}

fn pending<C, DB>(conn: &mut C, migrations: EmbeddedMigrations) -> Result<(), AnyError>
where
    C: MigrationHarness<DB>,
    DB: diesel::backend::Backend,
    EmbeddedMigrations: MigrationSource<DB>,
{
    let known: Vec<Box<dyn Migration<DB>>> = migrations.migrations()?;
    for version in conn.applied_migrations()? {
        if !known.iter().any(|migration| migration.name().version() == version) {
            return Err(
                format!("it was made by a newer version of leadonce (migration {version} is unknown here)").into()
            );
        }
    }
    conn.run_pending_migrations(migrations)?;
    Ok(())
}

//! Backup and restore of a SQLite store, and the gap in the record that a restore leaves (contract 4.1 rule 9).

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;

use super::conn::{Address, AnyConn, Purpose, connect_sqlite, on_each};
use super::failure::Failure;
use super::schema::{operations, sessions, settings};
use super::types::{Audit, Settings, StoreError};
use super::{Store, changes, migrate, shared};
use crate::clock::At;
use crate::operation::{Licence, State};

/// The row of `settings` that says when the store was restored: unix microseconds, big-endian.
const RESTORED_AT: &str = "restored_at";

const NOT_SQLITE: &str = "this is for SQLite stores; a PostgreSQL store is copied and restored by its own tools (pg_dump, pg_restore), \
                          and the first start afterwards is `leadonce serve --restored`";

impl Store {
    /// When the store was restored or begun anew after a loss: sends from before that moment may be missing in it.
    pub const fn restored_at(&self) -> Option<At> {
        self.restored_at
    }
}

/// Writes a consistent copy of the store to a new file, also while a gateway works on it.
///
/// Errors: `Setup` where the store is no SQLite file, the copy's name is taken, or it cannot be written.
pub fn backup(settings: &Settings, copy: &Path) -> Result<(), StoreError> {
    let address = Address::parse(&settings.url)?;
    let file = address.file().ok_or_else(|| StoreError::Setup(NOT_SQLITE.into()))?;
    existing(file)?;
    if copy.exists() {
        return Err(StoreError::Setup(format!("{} exists already; give the backup another name", copy.display())));
    }
    // Under a name of its own until it is whole and on the disk.
    let partial = beside(copy, ".partial");
    let _ = std::fs::remove_file(&partial);
    let made = copy_into(file, &partial).and_then(|()| std::fs::rename(&partial, copy).map_err(|e| failed(copy, &e)));
    if made.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    made?;
    sync_folder(copy)
}

/// Puts a backup in the store's place; what stood there is kept beside it, and its name told. From `at` on the record counts
/// as having a gap. No gateway may run on the store.
///
/// Errors: `Setup` where the store is no SQLite file, a gateway works on it, or the backup is none; then nothing was changed.
pub fn restore(settings: &Settings, backup: &Path, at: At) -> Result<Option<PathBuf>, StoreError> {
    let address = Address::parse(&settings.url)?;
    let file = address.file().ok_or_else(|| StoreError::Setup(NOT_SQLITE.into()))?;
    existing(backup)?;
    let _lock = shared::lock(file)?;
    let ready = beside(file, ".restoring");
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(beside(&ready, end));
    }
    // SQLite's own copy takes along what is still in the backup's write-ahead log, should it have one.
    let prepared = copy_into(backup, &ready).and_then(|()| prepare(&ready, at));
    if prepared.is_err() {
        let _ = std::fs::remove_file(&ready);
    }
    prepared?;
    let kept = set_aside(file, at)?;
    std::fs::rename(&ready, file).map_err(|e| failed(file, &e))?;
    sync_folder(file)?;
    Ok(kept)
}

/// Copies a store, checks the copy, and brings it to the disk.
fn copy_into(from: &Path, to: &Path) -> Result<(), StoreError> {
    // Leads are nobody else's business; SQLite takes an empty file as it is.
    let made = private().write(true).create_new(true).open(to).map_err(|e| failed(to, &e))?;
    let mut conn = SqliteConnection::establish(text_of(from)?).map_err(|e| failed(from, &e))?;
    conn.batch_execute("PRAGMA busy_timeout=30000").map_err(|e| failed(from, &e))?;
    if !is_store(&mut conn) {
        return Err(StoreError::Setup(format!("{} is not a leadonce store", from.display())));
    }
    diesel::sql_query("VACUUM INTO ?").bind::<Text, _>(text_of(to)?).execute(&mut conn).map_err(|e| failed(to, &e))?;
    let mut copied = SqliteConnection::establish(text_of(to)?).map_err(|e| failed(to, &e))?;
    let fault = check(&mut copied).map_err(|e| failed(to, &e))?;
    if let Some(fault) = fault {
        return Err(StoreError::Setup(format!("{} is damaged: {fault}", from.display())));
    }
    made.sync_all().map_err(|e| failed(to, &e))
}

/// How a file is made that only its owner may read.
fn private() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn is_store(conn: &mut SqliteConnection) -> bool {
    let tables = diesel::dsl::sql::<diesel::sql_types::BigInt>(
        "(SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('__diesel_schema_migrations', 'operations', 'deliveries'))",
    );
    diesel::select(tables).get_result(conn) == Ok(3_i64)
}

/// What SQLite finds wrong with a file.
fn check(conn: &mut SqliteConnection) -> QueryResult<Option<String>> {
    let found: String =
        diesel::select(diesel::dsl::sql::<Text>("(SELECT quick_check FROM pragma_quick_check LIMIT 1)"))
            .get_result(conn)?;
    Ok((found != "ok").then_some(found))
}

/// Brings a copy to this version and marks its gap; whole in its file afterwards.
fn prepare(file: &Path, at: At) -> Result<(), StoreError> {
    let mut conn = AnyConn::Sqlite(connect_sqlite(file, Purpose::Writer)?);
    migrate::run(&mut conn)?;
    mark(&mut conn, at)?;
    if let AnyConn::Sqlite(conn) = &mut conn {
        conn.batch_execute("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode=DELETE")
            .map_err(|e| failed(file, &e))?;
    }
    drop(conn);
    File::open(file).and_then(|file| file.sync_all()).map_err(|e| failed(file, &e))
}

/// Moves the store's files out of the way; the log first, so that it can never stand beside a database that is not its own.
fn set_aside(file: &Path, at: At) -> Result<Option<PathBuf>, StoreError> {
    if !file.exists() {
        return Ok(None);
    }
    if let Ok(mut conn) = connect_sqlite(file, Purpose::Writer) {
        // Where it works the file alone is whole; a damaged one is kept as it is.
        let _ = conn.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    let kept = beside(file, &format!(".before-{}", at.rfc3339().replace(':', "")));
    for end in ["-wal", "-shm", ""] {
        let (from, to) = (beside(file, end), beside(&kept, end));
        if from.exists() {
            std::fs::rename(&from, &to).map_err(|e| failed(&from, &e))?;
        }
    }
    Ok(Some(kept))
}

/// Marks the end of the gap. What is open may have been sent in it: licences are taken back, settle runs from its end.
/// Sessions end; nobody knows who was signed out in the gap.
pub(super) fn mark(conn: &mut AnyConn, at: At) -> Result<(), StoreError> {
    conn.write(|conn| {
        let row = (settings::name.eq(RESTORED_AT), settings::value.eq(at.micros().to_be_bytes().to_vec()));
        on_each!(conn, |c| diesel::insert_into(settings::table)
            .values(&row)
            .on_conflict(settings::name)
            .do_update()
            .set(settings::value.eq(diesel::upsert::excluded(settings::value)))
            .execute(c))?;
        let at_micros = at.micros();
        diesel::update(operations::table.filter(operations::licence.is_not_null()))
            .set(operations::licence.eq(Licence::FirstSend.as_str()))
            .execute(conn)?;
        diesel::update(operations::table.filter(operations::lease_until.is_not_null()))
            .set(operations::lease_until.eq(at_micros))
            .execute(conn)?;
        diesel::update(operations::table.filter(operations::next_lookup_at.is_not_null()))
            .set((
                operations::next_lookup_at.eq(at_micros),
                operations::lookups_since.eq(at_micros),
                operations::send_ended_at.eq(at_micros),
            ))
            .execute(conn)?;
        let reviews = operations::table.filter(operations::state.eq(State::NeedsReview.as_str()));
        diesel::update(reviews.filter(operations::send_ended_at.lt(at_micros)))
            .set(operations::send_ended_at.eq(at_micros))
            .execute(conn)?;
        diesel::delete(sessions::table).execute(conn)?;
        let entry = Audit {
            actor: "command line".into(),
            at,
            action: "restore".into(),
            operation_id: None,
            subject: None,
            from: None,
            to: None,
            note: None,
        };
        changes::insert_audit(conn, &entry)?;
        Ok(())
    })
    .map_err(StoreError::from)
}

/// The end of the gap, where the store has one.
pub(super) fn restored_at(conn: &mut AnyConn) -> Result<Option<At>, StoreError> {
    let stored: Option<Vec<u8>> = settings::table
        .find(RESTORED_AT)
        .select(settings::value)
        .get_result(conn)
        .optional()
        .map_err(|e| StoreError::from(Failure::from(e)))?;
    let micros = stored.map(|bytes| bytes.try_into().map(i64::from_be_bytes));
    micros.transpose().map(|micros| micros.map(At::from_micros)).map_err(|bytes: Vec<u8>| {
        StoreError::Inconsistent(format!("the setting {RESTORED_AT} has {} bytes", bytes.len()))
    })
}

fn existing(file: &Path) -> Result<(), StoreError> {
    if file.is_file() {
        return Ok(());
    }
    Err(StoreError::Setup(format!("there is no file {}", file.display())))
}

fn beside(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

fn text_of(path: &Path) -> Result<&str, StoreError> {
    path.to_str().ok_or_else(|| StoreError::Setup(format!("the path {} is not UTF-8", path.display())))
}

/// A new name stands only when its folder is on the disk too.
fn sync_folder(file: &Path) -> Result<(), StoreError> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| failed(folder, &e))
}

/// The file is at fault, whichever it is, and not the store's service: it is named as it is.
fn failed(path: &Path, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Setup(format!("{}: {error}", path.display()))
}

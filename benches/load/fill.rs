//! Stores with a past: so many completed operations, or so many that wait, written by SQL, since a gateway would take hours.

#![allow(dead_code, reason = "tests take what they need")]

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::{Connection, PgConnection, SqliteConnection};
use leadonce::clock::{Clock, SystemClock};

/// What the operations are that stand in the store before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// Finished, with a result.
    Completed,
    /// Due since their reception.
    Waiting,
}

/// Half of the rows under ordered keys of source `ordered`, half under random keys of source `random`. The schema must exist.
pub(crate) fn fill(store: &str, rows: u64, past: Past) {
    if rows == 0 {
        return;
    }
    match store.strip_prefix("sqlite://") {
        Some(path) => {
            let mut conn = SqliteConnection::establish(path).expect("the store");
            conn.batch_execute("PRAGMA synchronous=OFF; PRAGMA cache_size=-1000000; PRAGMA foreign_keys=OFF")
                .expect("set up");
            conn.batch_execute(&statements(rows, past, &SQLITE)).expect("filled");
            conn.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)").expect("copied back");
        }
        None => {
            let mut conn = PgConnection::establish(store).expect("the store");
            conn.batch_execute("SET synchronous_commit = off").expect("set up");
            conn.batch_execute(&statements(rows, past, &POSTGRES)).expect("filled");
            conn.batch_execute("VACUUM ANALYZE operations, deliveries, transitions").expect("vacuumed");
            conn.batch_execute("CHECKPOINT").expect("written back");
        }
    }
}

/// What the two write differently.
struct Dialect {
    /// Numbers `i` from 1 to ROWS.
    numbers: &'static str,
    /// A UUID as text that grows with `i`.
    ordered: &'static str,
    /// One that does not.
    random: &'static str,
    /// `KEY` as bytes.
    bytes: &'static str,
    /// 32 bytes.
    hash: &'static str,
    /// A body of 400 bytes.
    body: &'static str,
    empty: &'static str,
}

const SQLITE: Dialect = Dialect {
    numbers: "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ROWS) SELECT i FROM n) AS n",
    ordered: "printf('01900000-0000-7000-8000-%012x', i)",
    random: "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4000-8000-' || hex(randomblob(6)))",
    bytes: "CAST(KEY AS BLOB)",
    hash: "randomblob(32)",
    body: "zeroblob(400)",
    empty: "x''",
};

const POSTGRES: Dialect = Dialect {
    numbers: "generate_series(1, ROWS) AS n(i)",
    ordered: "'01900000-0000-7000-8000-' || lpad(to_hex(i), 12, '0')",
    random: "gen_random_uuid()::text",
    bytes: "convert_to(KEY, 'UTF8')",
    hash: "sha256(i::text::bytea)",
    body: "decode(repeat('00', 400), 'hex')",
    empty: "''::bytea",
};

fn statements(rows: u64, past: Past, dialect: &Dialect) -> String {
    // Yesterday: what is older than retention allows would be erased while a load runs.
    let begin = SystemClock::default().now().minus(Duration::from_secs(86_400)).micros();
    let Dialect { numbers, ordered, random, bytes, hash, body, empty } = dialect;
    let numbers = numbers.replace("ROWS", &rows.to_string());
    let key = bytes.replace("KEY", &format!("CASE WHEN i % 2 = 0 THEN {ordered} ELSE {random} END"));
    let at = format!("{begin} + i");
    let (state, licence, next, crm_id, finished) = match past {
        Past::Completed => ("completed", "NULL", "NULL", "CAST(i AS TEXT)", at.as_str()),
        Past::Waiting => ("received", "'first_send'", at.as_str(), "NULL", "NULL"),
    };
    let source = "CASE WHEN i % 2 = 0 THEN 'ordered' ELSE 'random' END";
    format!(
        "BEGIN;
         INSERT INTO operations (operation_id, source, source_key, variant, key_origin, payload_hash, hash_rule, destination, state,
             licence, next_attempt_at, attempts, counted, series_attempts, series_epoch, lookups, step, epoch, version, crm_id,
             delivery_id, event_index, received_at, updated_at, finished_at)
         SELECT {ordered}, {source}, {key}, {empty}, 'native', {hash}, 'c1:', 'crm', '{state}',
             {licence}, {next}, 0, 0, 0, 1, 0, 0, 0, 1, {crm_id}, {ordered}, 0, {at}, {at}, {finished}
         FROM {numbers};
         INSERT INTO deliveries (delivery_id, event_index, source, operation_id, verdict, received_at, method, headers, body, body_sha256)
         SELECT {ordered}, 0, {source}, {ordered}, 'new', {at}, 'POST', '[]', {body}, {hash} FROM {numbers};
         INSERT INTO transitions (operation_id, version, to_state, event, at)
         SELECT {ordered}, 1, 'received', 'received', {at} FROM {numbers};
         -- The past is indexed and audited already.
         INSERT INTO cursors (name, position, found)
         SELECT name, max(operation_id), 0 FROM operations, (SELECT 'contacts' AS name UNION ALL SELECT 'unaccounted') AS names
         GROUP BY name;
         COMMIT;"
    )
}

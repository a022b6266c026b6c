//! Tests of query plans: what runs for every delivery, every poll or every retention step must not walk over the tombstones.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::connection::{InstrumentationEvent, SimpleConnection};
use diesel::prelude::*;
use diesel::sql_types::Text;

use super::conn::{AnyConn, Purpose, connect_sqlite};
use super::types::Take;
use super::{destinations, migrate, reading, retention, take};
use crate::clock::At;
use crate::operation::{OperationId, SourceKey, Variant};

#[derive(QueryableByName)]
struct Step {
    #[diesel(sql_type = Text)]
    detail: String,
}

/// Runs the work on an empty SQLite store; the plans of all its statements.
fn plans(work: impl FnOnce(&mut AnyConn)) -> Vec<(String, Vec<String>)> {
    let directory = tempfile::tempdir().expect("a directory");
    let mut conn =
        AnyConn::Sqlite(connect_sqlite(&directory.path().join("plans.db"), Purpose::Writer).expect("a file"));
    migrate::run(&mut conn).expect("migrated");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recorder = seen.clone();
    let AnyConn::Sqlite(sqlite) = &mut conn else { panic!("a SQLite connection") };
    sqlite.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            recorder.lock().expect("not poisoned").push(query.to_string());
        }
    });
    work(&mut conn);
    let AnyConn::Sqlite(sqlite) = &mut conn else { panic!("a SQLite connection") };
    sqlite.set_instrumentation(|_: InstrumentationEvent<'_>| {});
    let statements = std::mem::take(&mut *seen.lock().expect("not poisoned"));
    let explain = |statement: String| {
        let text = statement.split(" -- binds").next().unwrap_or_default().to_owned();
        let steps: Vec<Step> =
            diesel::sql_query(format!("EXPLAIN QUERY PLAN {text}")).load(sqlite).expect("it can be explained");
        (text, steps.into_iter().map(|step| step.detail).collect())
    };
    statements
        .into_iter()
        .filter(|s| ["SELECT", "UPDATE", "DELETE"].iter().any(|verb| s.starts_with(verb)))
        .map(explain)
        .collect()
}

fn assert_indexed(plans: &[(String, Vec<String>)]) {
    assert!(!plans.is_empty());
    for (statement, steps) in plans {
        for step in steps {
            let by_index = !(step.starts_with("SCAN") || step.starts_with("SEARCH")) || step.contains("USING");
            assert!(by_index && !step.contains("TEMP B-TREE FOR ORDER"), "{step}\n{statement}");
        }
    }
}

/// One operation that is due.
const WAITING: &str = "INSERT INTO operations (operation_id, source, variant, key_origin, payload_hash, hash_rule, destination, state,
    licence, next_attempt_at, attempts, counted, series_attempts, series_epoch, lookups, step, epoch, version, delivery_id, event_index,
    received_at, updated_at) VALUES ('01970000-0000-7000-8000-000000000001', 'site', x'', 'generated', zeroblob(32), '1', 'crm', 'received',
    'first_send', 0, 0, 0, 0, 0, 0, 0, 0, 1, '01970000-0000-7000-8000-000000000001', 0, 0, 0)";

#[test]
fn a_poll_for_work_reads_only_what_is_open() {
    let now = At::from_seconds(1_800_000_000);
    let request = Take {
        destination: "crm".parse().expect("a name"),
        owner: "node".into(),
        now,
        creates: 5,
        lookups: 5,
        fresh: 1,
        lease_until: now,
        lookup_again_at: now,
        grace: Duration::ZERO,
        timeout: Duration::ZERO,
        first_lookup_at: None,
    };
    assert_indexed(&plans(|conn| drop(take::uncertain(conn, 5).expect("read"))));
    for probing in [false, true] {
        let plans = plans(|conn| {
            destinations::make_for_tests(conn, &request.destination, probing, now);
            conn.batch_execute(WAITING).expect("inserted");
            assert_eq!(take::take(conn, &request).expect("taken").creates.len(), 1);
        });
        assert_indexed(&plans);
        // A million may be due: they are walked over once, and no further than is wanted.
        for (statement, steps) in &plans {
            let walks = steps.iter().any(|step| step.contains("operations_received"));
            let bounded = statement.contains("LIMIT") || statement.contains("min(");
            assert!(!walks || bounded, "{statement}\n{steps:?}");
        }
    }
}

#[test]
fn keys_and_ids_are_found_by_index() {
    let id = OperationId(uuid::Uuid::nil());
    let source = "site".parse().expect("a name");
    let key = SourceKey::from_native(b"a").expect("a key");
    assert_indexed(&plans(|conn| {
        reading::operation(conn, id).expect("read");
        reading::of_key(conn, &source, &key, &Variant::First).expect("read");
        reading::edited_lead(conn, id).expect("read");
    }));
}

#[test]
fn a_retention_step_reads_only_what_is_due() {
    let before = At::from_seconds(1_800_000_000);
    assert_indexed(&plans(|conn| {
        retention::step(conn, before, before, before, 10).expect("purged");
    }));
}

//! Filling the tables of intake. A row that is there already stays as it is: the claim of a key, and the repetition of a batch
//! whose commit was lost, both rest on that. Nothing is ever claimed by catching a unique violation: on PostgreSQL that would
//! poison the transaction.

use std::collections::HashSet;

use diesel::prelude::*;

use super::conn::AnyConn;
use super::rows::{DeliveryColumns, DeliveryRow, OperationColumns, OperationRow, TransitionColumns, TransitionRow};
use super::schema::{deliveries, operations, transitions};

/// Inserts operations whose id and key are free; the ids of those that were inserted.
pub(super) fn operations(conn: &mut AnyConn, rows: Vec<OperationRow>) -> QueryResult<HashSet<String>> {
    if rows.is_empty() {
        return Ok(HashSet::new());
    }
    match conn {
        AnyConn::Postgres(conn) => OperationColumns::from(rows).get_results::<String>(conn).map(HashSet::from_iter),
        // A cached single-row insert is as fast as a batch there, and its row count says who won.
        AnyConn::Sqlite(conn) => {
            let mut inserted = HashSet::with_capacity(rows.len());
            for row in rows {
                let insert = diesel::insert_into(operations::table).values(&row).on_conflict_do_nothing();
                if insert.execute(conn)? == 1 {
                    inserted.insert(row.operation_id);
                }
            }
            Ok(inserted)
        }
    }
}

/// Inserts log rows of deliveries.
pub(super) fn deliveries(conn: &mut AnyConn, rows: Vec<DeliveryRow>) -> QueryResult<()> {
    if rows.is_empty() {
        return Ok(());
    }
    match conn {
        AnyConn::Postgres(conn) => DeliveryColumns::from(rows).execute(conn).map(drop),
        AnyConn::Sqlite(conn) => rows.iter().try_for_each(|row| {
            diesel::insert_into(deliveries::table).values(row).on_conflict_do_nothing().execute(conn).map(drop)
        }),
    }
}

/// Inserts state changes.
pub(super) fn transitions(conn: &mut AnyConn, rows: Vec<TransitionRow>) -> QueryResult<()> {
    if rows.is_empty() {
        return Ok(());
    }
    match conn {
        AnyConn::Postgres(conn) => TransitionColumns::from(rows).execute(conn).map(drop),
        AnyConn::Sqlite(conn) => rows.iter().try_for_each(|row| {
            diesel::insert_into(transitions::table).values(row).on_conflict_do_nothing().execute(conn).map(drop)
        }),
    }
}

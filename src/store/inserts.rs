//! Filling the tables that grow with each lead. A row that is there already stays as it is: the claim of a key, and the repetition of a batch
//! whose commit was lost, both rest on that. Nothing is ever claimed by catching a unique violation: on PostgreSQL that would
//! poison the transaction.

use std::collections::HashSet;

use diesel::prelude::*;

use super::conn::AnyConn;
use super::failure::Failure;
use super::rows::{
    AttemptColumns, AttemptRow, DeliveryColumns, DeliveryRow, OperationColumns, OperationRow, TransitionColumns,
    TransitionRow, operation_id,
};
use crate::operation::{Operation, OperationId};

/// Inserts operations whose id and key are free; the ids of those that were inserted.
pub(super) fn operations(conn: &mut AnyConn, operations: &[&Operation]) -> Result<HashSet<OperationId>, Failure> {
    if operations.is_empty() {
        return Ok(HashSet::new());
    }
    let rows = operations.iter().map(|operation| OperationRow::from(*operation));
    match conn {
        AnyConn::Postgres(conn) => {
            let ids: Vec<String> = OperationColumns::from(rows.collect::<Vec<_>>()).get_results(conn)?;
            Ok(ids.iter().map(|id| operation_id(id)).collect::<Result<_, _>>()?)
        }
        // A single-row insert is as fast as a batch there, and its row count says who won.
        AnyConn::Sqlite(conn) => {
            let mut inserted = HashSet::with_capacity(operations.len());
            for (operation, row) in operations.iter().zip(rows) {
                if (&row).execute(conn)? == 1 {
                    inserted.insert(operation.id);
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
        AnyConn::Sqlite(conn) => rows.iter().try_for_each(|row| row.execute(conn).map(drop)),
    }
}

/// Inserts state changes.
pub(super) fn transitions(conn: &mut AnyConn, rows: Vec<TransitionRow>) -> QueryResult<()> {
    if rows.is_empty() {
        return Ok(());
    }
    match conn {
        AnyConn::Postgres(conn) => TransitionColumns::from(rows).execute(conn).map(drop),
        AnyConn::Sqlite(conn) => rows.iter().try_for_each(|row| row.execute(conn).map(drop)),
    }
}

/// Inserts attempts.
pub(super) fn attempts(conn: &mut AnyConn, rows: Vec<AttemptRow>) -> QueryResult<()> {
    if rows.is_empty() {
        return Ok(());
    }
    match conn {
        AnyConn::Postgres(conn) => AttemptColumns::from(rows).execute(conn).map(drop),
        AnyConn::Sqlite(conn) => rows.iter().try_for_each(|row| row.execute(conn).map(drop)),
    }
}

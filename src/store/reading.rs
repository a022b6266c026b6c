//! Reading operations and what belongs to one of them.

use std::collections::HashMap;

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, Binary, Text};
use diesel::sqlite::Sqlite;

use super::conn::{AnyConn, on_each};
use super::failure::Failure;
use super::rows::{DeliveryRow, OperationRow, stored_crm_id};
use super::schema::{attempts, deliveries, lead_edits, operations, steps};
use super::types::{StoreError, StoredDelivery, Work};
use crate::clock::At;
use crate::operation::{CrmId, Lead, Operation, OperationId, SourceKey, SourceName, Variant};

/// One operation. The statement is one that diesel keeps prepared (`get_result`; `first` would be prepared anew each time).
pub(super) fn operation(conn: &mut AnyConn, id: OperationId) -> Result<Option<Operation>, Failure> {
    let id = id.to_string();
    let row: Option<OperationRow> =
        on_each!(conn, |c| operations::table.find(&id).select(OperationRow::as_select()).get_result(c)).optional()?;
    Ok(row.map(Operation::try_from).transpose()?)
}

/// The operation of a key and variant, on SQLite.
pub(super) fn of_key_sqlite(
    conn: &mut SqliteConnection,
    source: &SourceName,
    key: &SourceKey,
    variant: &Variant,
) -> QueryResult<Option<OperationRow>> {
    let key = Key { source: source.as_str(), key: key.as_bytes(), variant: variant.as_bytes() };
    key.get_result(conn).optional()
}

/// The operation of a key and variant.
pub(super) fn of_key(
    conn: &mut AnyConn,
    source: &SourceName,
    key: &SourceKey,
    variant: &Variant,
) -> Result<Option<Operation>, Failure> {
    let row = match conn {
        AnyConn::Sqlite(conn) => of_key_sqlite(conn, source, key, variant)?,
        AnyConn::Postgres(conn) => {
            let keys =
                Keys { sources: vec![source.as_str()], keys: vec![key.as_bytes()], variants: vec![variant.as_bytes()] };
            keys.get_results::<OperationRow>(conn)?.pop()
        }
    };
    Ok(row.map(Operation::try_from).transpose()?)
}

/// For each operation the one that owns its key and variant now (where it has no key: the one with its id).
pub(super) fn owners(conn: &mut AnyConn, of: &[&Operation]) -> Result<Vec<Option<Operation>>, Failure> {
    if let AnyConn::Postgres(conn) = conn {
        let keyed = of.iter().filter_map(|o| o.source_key.as_ref().map(|key| (o, key)));
        let mut keys = Keys { sources: Vec::new(), keys: Vec::new(), variants: Vec::new() };
        for (operation, key) in keyed {
            keys.sources.push(operation.source.as_str());
            keys.keys.push(key.as_bytes());
            keys.variants.push(operation.variant.as_bytes());
        }
        if keys.keys.len() == of.len() && !of.is_empty() {
            let mut found = HashMap::new();
            for row in keys.get_results::<OperationRow>(conn)? {
                let operation = Operation::try_from(row)?;
                found.insert((operation.source.clone(), operation.source_key.clone(), operation.variant), operation);
            }
            let place = |o: &&Operation| found.get(&(o.source.clone(), o.source_key.clone(), o.variant)).cloned();
            return Ok(of.iter().map(place).collect());
        }
    }
    of.iter()
        .map(|o| match &o.source_key {
            Some(key) => of_key(conn, &o.source, key, &o.variant),
            None => operation(conn, o.id),
        })
        .collect()
}

/// The conflicting operations of the same key that may bear the same content: the one of this hash, and those whose hash was
/// made by another rule.
pub(super) fn variants(conn: &mut AnyConn, of: &Operation) -> Result<Vec<Operation>, Failure> {
    let Some(key) = &of.source_key else { return Ok(Vec::new()) };
    let rows: Vec<OperationRow> = operations::table
        .filter(operations::source.eq(of.source.as_str()))
        .filter(operations::source_key.eq(key.as_bytes()))
        .filter(operations::variant.ne(Variant::First.as_bytes()))
        .filter(operations::variant.eq(of.variant.as_bytes()).or(operations::hash_rule.ne(of.hash_rule.as_str())))
        .order(operations::operation_id)
        .select(OperationRow::as_select())
        .load(conn)?;
    Ok(rows.into_iter().map(Operation::try_from).collect::<Result<_, _>>()?)
}

/// The delivery that made an operation.
pub(super) fn delivery_of(conn: &mut AnyConn, operation: &Operation) -> Result<Option<StoredDelivery>, Failure> {
    let id = operation.delivery_id.to_string();
    let row = delivery_row(conn, &id, i32::from(operation.event_index))?;
    row.map(|row| with_body(conn, row)).transpose()
}

/// A row of the delivery log with the body and headers that stand in the request's first row.
pub(super) fn with_body(conn: &mut AnyConn, row: DeliveryRow) -> Result<StoredDelivery, Failure> {
    let first = if row.event_index == 0 { None } else { delivery_row(conn, &row.delivery_id, 0)? };
    Ok(row.delivery(first)?)
}

fn delivery_row(conn: &mut AnyConn, id: &str, event_index: i32) -> QueryResult<Option<DeliveryRow>> {
    on_each!(conn, |c| deliveries::table.find((id, event_index)).select(DeliveryRow::as_select()).get_result(c))
        .optional()
}

/// The lead as an operator corrected it.
pub(super) fn edited_lead(conn: &mut AnyConn, id: OperationId) -> Result<Option<Lead>, Failure> {
    let key = id.to_string();
    let json: Option<String> =
        on_each!(conn, |c| lead_edits::table.find(&key).select(lead_edits::lead).get_result(c)).optional()?;
    let read = |json: String| {
        serde_json::from_str(&json).map_err(|e| StoreError::Inconsistent(format!("operation {id}: edited lead: {e}")))
    };
    Ok(json.map(read).transpose()?)
}

/// What the engine needs to build a call.
pub(super) fn work(conn: &mut AnyConn, operation: &Operation) -> Result<Work, Failure> {
    let id = operation.id.to_string();
    let done: Vec<(i32, String)> = steps::table
        .filter(steps::operation_id.eq(&id))
        .order(steps::step)
        .select((steps::step, steps::crm_id))
        .load(conn)?;
    let step = |(step, crm_id): (i32, String)| -> Result<(u16, CrmId), StoreError> {
        let number = u16::try_from(step).map_err(|e| StoreError::Inconsistent(format!("step {step} of {id}: {e}")))?;
        Ok((number, stored_crm_id(&format!("step {step} of {id}"), crm_id)?))
    };
    // All of them: there are few, and a LIMIT would have the statement prepared anew each time.
    let creates: Vec<(i64, String, i64, Option<i64>)> = attempts::table
        .filter(attempts::operation_id.eq(&id))
        .filter(attempts::call.eq("create"))
        .select((attempts::number, attempts::attempt_id, attempts::started_at, attempts::ended_at))
        .load(conn)?;
    let first_sent_at = creates.iter().map(|(_, _, started_at, _)| *started_at).min();
    let last_create = creates.into_iter().max().map(|(_, attempt, _, ended)| {
        let attempt = super::codec::uuid(&attempt).map_err(|e| StoreError::Inconsistent(format!("attempt: {e}")))?;
        Ok::<_, StoreError>((attempt, ended.is_some()))
    });
    Ok(Work {
        delivery: delivery_of(conn, operation)?,
        edited_lead: edited_lead(conn, operation.id)?,
        steps: done.into_iter().map(step).collect::<Result<_, _>>()?,
        first_sent_at: first_sent_at.map(At::from_micros),
        last_create: last_create.transpose()?,
    })
}

/// One key, in a statement whose text never changes and is made once (SQLite).
struct Key<'a> {
    source: &'a str,
    key: &'a [u8],
    variant: &'a [u8],
}

impl QueryFragment<Sqlite> for Key<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        operations::all_columns.walk_ast(out.reborrow())?;
        out.push_sql(" FROM operations WHERE source = ");
        out.push_bind_param::<Text, _>(self.source)?;
        out.push_sql(" AND source_key = ");
        out.push_bind_param::<Binary, _>(self.key)?;
        out.push_sql(" AND variant = ");
        out.push_bind_param::<Binary, _>(self.variant)
    }
}

impl QueryId for Key<'_> {
    type QueryId = Key<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Key<'_> {
    type SqlType = operations::SqlType;
}

impl RunQueryDsl<SqliteConnection> for Key<'_> {}

/// Many keys in one statement, whose text never changes (PostgreSQL).
struct Keys<'a> {
    sources: Vec<&'a str>,
    keys: Vec<&'a [u8]>,
    variants: Vec<&'a [u8]>,
}

impl QueryFragment<Pg> for Keys<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        operations::all_columns.walk_ast(out.reborrow())?;
        out.push_sql(" FROM operations JOIN unnest(");
        out.push_bind_param::<Array<Text>, _>(&self.sources)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Binary>, _>(&self.keys)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Binary>, _>(&self.variants)?;
        out.push_sql(
            ") AS wanted (source, source_key, variant) ON operations.source = wanted.source \
             AND operations.source_key = wanted.source_key AND operations.variant = wanted.variant",
        );
        Ok(())
    }
}

impl QueryId for Keys<'_> {
    type QueryId = Keys<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Keys<'_> {
    type SqlType = operations::SqlType;
}

impl RunQueryDsl<PgConnection> for Keys<'_> {}

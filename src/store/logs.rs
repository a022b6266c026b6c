//! The logs as lists: deliveries that made no operation, what people did, and the feed of state changes.

use std::collections::HashMap;

use diesel::dsl::max;
use diesel::prelude::*;
use diesel::sql_types::BigInt;

use super::codec::clean;
use super::conn::AnyConn;
use super::failure::Failure;
use super::readers::Reader;
use super::rows::DeliveryRow;
use super::schema::{audit, deliveries, operations, transitions};
use super::types::{Audit, AuditFilter, Change, DeliveryFilter, Horizon, StoreError, StoredDelivery, Verdict};
use super::{Store, reading, rows};
use crate::clock::At;

/// Verdicts of deliveries that belong to no operation.
const OWNERLESS: [Verdict; 4] = [Verdict::Rejected, Verdict::Test, Verdict::Spam, Verdict::Ignored];

impl Store {
    /// Deliveries that made no operation (refused, test, spam, ignored), newest first.
    pub async fn ownerless(&self, filter: DeliveryFilter) -> Result<Vec<StoredDelivery>, StoreError> {
        self.read_for(Reader::Admin, move |conn| ownerless(conn, &filter)).await
    }

    /// What people did, newest first, each with its place in the log.
    pub async fn audit_log(&self, filter: AuditFilter) -> Result<Vec<(i64, Audit)>, StoreError> {
        self.read_for(Reader::Admin, move |conn| audit_log(conn, &filter)).await
    }

    /// How far the feed of state changes may be read now.
    pub async fn horizon(&self) -> Result<Horizon, StoreError> {
        self.read_for(Reader::Admin, horizon).await
    }

    /// State changes after that place, up to the horizon, in the order of the feed; `None` while something before the horizon
    /// may still be committed.
    pub async fn changes(&self, after: i64, horizon: Horizon, limit: usize) -> Result<Option<Vec<Change>>, StoreError> {
        self.read_for(Reader::Admin, move |conn| changes(conn, after, horizon, limit)).await
    }
}

/// Each verdict is read along its own index, so that a few refusals are found at once among millions of leads.
fn ownerless(conn: &mut AnyConn, filter: &DeliveryFilter) -> Result<Vec<StoredDelivery>, Failure> {
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    let mut found: Vec<DeliveryRow> = Vec::new();
    for verdict in OWNERLESS.into_iter().filter(|verdict| filter.verdict.is_none_or(|wanted| wanted == *verdict)) {
        let mut query = deliveries::table
            .filter(deliveries::operation_id.is_null())
            .filter(deliveries::verdict.eq(verdict.as_str()))
            .select(DeliveryRow::as_select())
            .into_boxed();
        if let Some(source) = &filter.source {
            query = query.filter(deliveries::source.eq(clean(source)));
        }
        if let Some(after) = filter.after {
            query = query.filter(deliveries::delivery_id.lt(after.to_string()));
        }
        found.extend(query.order(deliveries::delivery_id.desc()).limit(limit).load::<DeliveryRow>(conn)?);
    }
    found.sort_by(|a, b| b.delivery_id.cmp(&a.delivery_id));
    found.truncate(filter.limit);
    found.into_iter().map(|row| reading::with_body(conn, row)).collect()
}

fn audit_log(conn: &mut AnyConn, filter: &AuditFilter) -> Result<Vec<(i64, Audit)>, Failure> {
    type Found =
        (i64, String, i64, String, Option<String>, Option<String>, Option<String>, Option<String>, Option<String>);
    let mut query = audit::table.into_boxed();
    if let Some(actor) = &filter.actor {
        query = query.filter(audit::actor.eq(clean(actor)));
    }
    if let Some(action) = &filter.action {
        query = query.filter(audit::action.eq(clean(action)));
    }
    if let Some(after) = filter.after {
        query = query.filter(audit::seq.lt(after));
    }
    let found: Vec<Found> = query
        .order(audit::seq.desc())
        .limit(i64::try_from(filter.limit).unwrap_or(i64::MAX))
        .select((
            audit::seq,
            audit::actor,
            audit::at,
            audit::action,
            audit::operation_id,
            audit::subject,
            audit::from_state,
            audit::to_state,
            audit::note,
        ))
        .load(conn)?;
    let read = |(seq, actor, at, action, operation, subject, from, to, note): Found| {
        let operation_id = operation.as_deref().map(rows::operation_id).transpose()?;
        Ok((seq, Audit { actor, at: At::from_micros(at), action, operation_id, subject, from, to, note }))
    };
    Ok(found.into_iter().map(read).collect::<Result<_, StoreError>>()?)
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

/// On SQLite one writer numbers the changes in the order of their commits. On PostgreSQL a change can be committed after one that
/// was numbered later: its transaction had its id before it took the number (it changes the operation first), so it is among
/// those that run when the later number is seen. When all of those have ended, everything up to that number is there.
fn horizon(conn: &mut AnyConn) -> Result<Horizon, Failure> {
    let last = transitions::table.select(max(transitions::seq)).get_result::<Option<i64>>(conn)?.unwrap_or(0);
    let running = match conn {
        AnyConn::Sqlite(_) => None,
        AnyConn::Postgres(conn) => {
            let next = "SELECT txid_snapshot_xmax(txid_current_snapshot()) AS number";
            Some(diesel::sql_query(next).get_result::<Number>(conn)?.number)
        }
    };
    Ok(Horizon { last, running })
}

fn changes(conn: &mut AnyConn, after: i64, horizon: Horizon, limit: usize) -> Result<Option<Vec<Change>>, Failure> {
    if let (AnyConn::Postgres(conn), Some(running)) = (&mut *conn, horizon.running) {
        let oldest = "SELECT txid_snapshot_xmin(txid_current_snapshot()) AS number";
        if diesel::sql_query(oldest).get_result::<Number>(conn)?.number < running {
            return Ok(None);
        }
    }
    type Found = (i64, String, i64, Option<String>, String, Option<String>, String, i64);
    let found: Vec<Found> = transitions::table
        .filter(transitions::seq.gt(after))
        .filter(transitions::seq.le(horizon.last))
        .order(transitions::seq)
        .limit(i64::try_from(limit).unwrap_or(i64::MAX))
        .select((
            transitions::seq,
            transitions::operation_id,
            transitions::version,
            transitions::from_state,
            transitions::to_state,
            transitions::reason,
            transitions::event,
            transitions::at,
        ))
        .load(conn)?;
    let ids: Vec<&str> = found.iter().map(|row| row.1.as_str()).collect();
    let named: Vec<(String, String, String)> = operations::table
        .filter(operations::operation_id.eq_any(&ids))
        .select((operations::operation_id, operations::source, operations::destination))
        .load(conn)?;
    let named: HashMap<&str, (&str, &str)> =
        named.iter().map(|(id, source, destination)| (id.as_str(), (source.as_str(), destination.as_str()))).collect();
    let read = |(seq, operation, version, from, to, reason, event, at): Found| {
        let (source, destination) = named.get(operation.as_str()).copied().unwrap_or_default();
        Ok(Change {
            seq,
            operation_id: rows::operation_id(&operation)?,
            source: source.to_owned(),
            destination: destination.to_owned(),
            version,
            from,
            to,
            reason,
            event,
            at: At::from_micros(at),
        })
    };
    Ok(Some(found.into_iter().map(read).collect::<Result<_, StoreError>>()?))
}

//! Retention (contract 4.1 rule 8, contract 8): payloads are erased when due, the operation stays as a tombstone that still
//! answers replays and still tells changed content by its hash; much later the tombstone goes too.
//!
//! What is not finished is never erased, whatever its age: received, in progress, in review. A body that came with several
//! events stays until the last of them may lose it.

use diesel::dsl::{exists, not, sql};
use diesel::prelude::*;
use diesel::sql_types::Bool;

use super::Store;
use super::conn::AnyConn;
use super::failure::Failure;
use super::schema::{attempts, audit, contact_hashes, deliveries, lead_edits, operations, steps, transitions, windows};
use super::types::{Purged, StoreError};
use crate::clock::At;

diesel::alias!(deliveries as others: Others);
diesel::alias!(operations as neighbours: Neighbours);

impl Store {
    /// One small step: payloads finished before `payload_before`, tombstones finished before `tombstone_before`, log rows
    /// without an operation received before `payload_before`; at most `limit` of each. With `dry_run` only counts, all that is
    /// due. `at` is the present: what is written down as the time of the erasure.
    pub async fn purge(
        &self,
        at: At,
        payload_before: At,
        tombstone_before: At,
        limit: usize,
        dry_run: bool,
    ) -> Result<Purged, StoreError> {
        if dry_run {
            return self.read(move |conn| Ok(due(conn, payload_before, tombstone_before)?)).await;
        }
        self.write(move |conn, _| step(conn, at, payload_before, tombstone_before, limit)).await
    }
}

/// Operations whose payload is due. The condition is written as the index `operations_erasable` has it.
macro_rules! erasable {
    ($before:expr) => {
        operations::table
            .filter(operations::finished_at.is_not_null())
            .filter(
                operations::payload_erased_at.is_null().or(operations::payload_erased_at.lt(operations::finished_at)),
            )
            .filter(operations::finished_at.lt($before.micros()))
    };
}

/// Tombstones that are due: erased, and nothing else leans on them. A conflict in review points at its first operation, and
/// the other events of a request share the row that holds its body.
macro_rules! removable {
    ($before:expr) => {
        operations::table
            .filter(operations::finished_at.lt($before.micros()))
            .filter(operations::payload_erased_at.is_not_null())
            .filter(operations::payload_erased_at.ge(operations::finished_at))
            .filter(not(exists(
                neighbours.filter(neighbours.field(operations::conflicts_with).eq(operations::operation_id.nullable())),
            )))
            .filter(not(exists(
                deliveries::table
                    .inner_join(others.on(others.field(deliveries::delivery_id).eq(deliveries::delivery_id)))
                    .inner_join(
                        neighbours.on(neighbours
                            .field(operations::operation_id)
                            .nullable()
                            .eq(others.field(deliveries::operation_id))),
                    )
                    .filter(deliveries::operation_id.eq(operations::operation_id.nullable()))
                    .filter(neighbours.field(operations::payload_erased_at).is_null()),
            )))
    };
}

/// Log rows that belong to no operation.
macro_rules! ownerless {
    ($before:expr) => {
        deliveries::table
            .filter(deliveries::operation_id.is_null())
            .filter(deliveries::received_at.lt($before.micros()))
    };
}

/// Bodies of replays that came after the erasure: nobody will look at their operation again. The condition is written as the
/// index `deliveries_replayed` has it.
macro_rules! late_replays {
    ($before:expr) => {
        deliveries::table
            .inner_join(operations::table.on(operations::operation_id.nullable().eq(deliveries::operation_id)))
            .filter(deliveries::body.is_not_null())
            .filter(sql::<Bool>("deliveries.verdict IN ('replay', 'replay_unverified')"))
            .filter(deliveries::received_at.lt($before.micros()))
            .filter(operations::payload_erased_at.ge(operations::finished_at))
    };
}

fn due(conn: &mut AnyConn, payload_before: At, tombstone_before: At) -> QueryResult<Purged> {
    let payloads: i64 = erasable!(payload_before).count().get_result(conn)?;
    let tombstones: i64 = removable!(tombstone_before).count().get_result(conn)?;
    let late: i64 = late_replays!(payload_before).count().get_result(conn)?;
    let refused: i64 = ownerless!(payload_before).count().get_result(conn)?;
    let count = |rows: i64| usize::try_from(rows).unwrap_or(0);
    Ok(Purged {
        payloads: count(payloads.saturating_add(late)),
        tombstones: count(tombstones),
        deliveries: count(refused),
    })
}

pub(super) fn step(
    conn: &mut AnyConn,
    at: At,
    payload_before: At,
    tombstone_before: At,
    limit: usize,
) -> Result<Purged, Failure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let payloads = erase_payloads(conn, at, payload_before, limit)? + erase_late_replays(conn, payload_before, limit)?;
    let tombstones = remove_tombstones(conn, tombstone_before, limit)?;
    let refused = remove_ownerless(conn, payload_before, limit)?;
    let ended: Vec<(String, Vec<u8>)> = windows::table
        .filter(windows::ends_at.lt(payload_before.micros()))
        .limit(limit)
        .select((windows::source, windows::payload_hash))
        .load(conn)?;
    for (source, hash) in &ended {
        diesel::delete(windows::table.find((source, hash)).filter(windows::ends_at.lt(payload_before.micros())))
            .execute(conn)?;
    }
    Ok(Purged { payloads, tombstones, deliveries: refused })
}

fn remove_ownerless(conn: &mut AnyConn, before: At, limit: i64) -> QueryResult<usize> {
    let due = ownerless!(before).order(deliveries::received_at).limit(limit).select(deliveries::delivery_id);
    let requests: Vec<String> = due.load(conn)?;
    if requests.is_empty() {
        return Ok(0);
    }
    let of_requests = deliveries::table.filter(deliveries::delivery_id.eq_any(&requests));
    diesel::delete(of_requests.filter(deliveries::operation_id.is_null())).execute(conn)
}

fn erase_payloads(conn: &mut AnyConn, at: At, before: At, limit: i64) -> Result<usize, Failure> {
    let due = erasable!(before).order(operations::finished_at).limit(limit).select(operations::operation_id);
    // The rows stay locked until the commit: a retry that comes in between waits, and finds the payload erased.
    let ids: Vec<String> = match conn {
        AnyConn::Postgres(conn) => due.for_no_key_update().skip_locked().load(conn)?,
        AnyConn::Sqlite(conn) => due.load(conn)?,
    };
    if ids.is_empty() {
        return Ok(0);
    }
    diesel::update(operations::table.filter(operations::operation_id.eq_any(&ids)))
        .set((operations::payload_erased_at.eq(at.micros()), operations::last_error.eq(None::<String>)))
        .execute(conn)?;
    diesel::update(attempts::table.filter(attempts::operation_id.eq_any(&ids)))
        .set((attempts::request.eq(None::<String>), attempts::excerpt.eq(None::<String>)))
        .execute(conn)?;
    diesel::delete(lead_edits::table.filter(lead_edits::operation_id.eq_any(&ids))).execute(conn)?;
    diesel::delete(contact_hashes::table.filter(contact_hashes::operation_id.eq_any(&ids))).execute(conn)?;
    let requests: Vec<String> = deliveries::table
        .filter(deliveries::operation_id.eq_any(&ids))
        .select(deliveries::delivery_id)
        .distinct()
        .load(conn)?;
    erase_bodies(conn, &requests)?;
    Ok(ids.len())
}

fn erase_late_replays(conn: &mut AnyConn, before: At, limit: i64) -> QueryResult<usize> {
    let due = late_replays!(before).order(deliveries::received_at).limit(limit).select(deliveries::delivery_id);
    let requests: Vec<String> = due.load(conn)?;
    erase_bodies(conn, &requests)
}

/// Erases the bodies of these requests, except where another event of a request still needs it; how many.
fn erase_bodies(conn: &mut AnyConn, requests: &[String]) -> QueryResult<usize> {
    if requests.is_empty() {
        return Ok(0);
    }
    let needed: Vec<String> = deliveries::table
        .inner_join(operations::table.on(operations::operation_id.nullable().eq(deliveries::operation_id)))
        .filter(deliveries::delivery_id.eq_any(requests))
        .filter(operations::payload_erased_at.is_null())
        .select(deliveries::delivery_id)
        .load(conn)?;
    let free: Vec<&String> = requests.iter().filter(|request| !needed.contains(request)).collect();
    diesel::update(deliveries::table.filter(deliveries::delivery_id.eq_any(free)).filter(deliveries::event_index.eq(0)))
        .set((deliveries::body.eq(None::<Vec<u8>>), deliveries::headers.eq(None::<String>)))
        .execute(conn)
}

fn remove_tombstones(conn: &mut AnyConn, before: At, limit: i64) -> Result<usize, Failure> {
    let due = removable!(before).order(operations::finished_at).limit(limit).select(operations::operation_id);
    let ids: Vec<String> = match conn {
        AnyConn::Postgres(conn) => due.for_update().skip_locked().load(conn)?,
        AnyConn::Sqlite(conn) => due.load(conn)?,
    };
    if ids.is_empty() {
        return Ok(0);
    }
    diesel::delete(audit::table.filter(audit::operation_id.eq_any(&ids))).execute(conn)?;
    diesel::delete(contact_hashes::table.filter(contact_hashes::operation_id.eq_any(&ids))).execute(conn)?;
    diesel::delete(lead_edits::table.filter(lead_edits::operation_id.eq_any(&ids))).execute(conn)?;
    diesel::delete(steps::table.filter(steps::operation_id.eq_any(&ids))).execute(conn)?;
    diesel::delete(attempts::table.filter(attempts::operation_id.eq_any(&ids))).execute(conn)?;
    diesel::delete(transitions::table.filter(transitions::operation_id.eq_any(&ids))).execute(conn)?;
    diesel::delete(deliveries::table.filter(deliveries::operation_id.eq_any(&ids))).execute(conn)?;
    Ok(diesel::delete(operations::table.filter(operations::operation_id.eq_any(&ids))).execute(conn)?)
}

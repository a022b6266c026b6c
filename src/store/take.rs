//! Take: due work of one destination goes to one worker, in the writer's transaction. Each row is moved by the operation's own
//! transition and a conditional UPDATE; on PostgreSQL other nodes skip the rows that are being taken.

use std::time::Duration;

use diesel::dsl::min;
use diesel::prelude::*;

use super::codec;
use super::conn::{AnyConn, on_each};
use super::failure::Failure;
use super::rows::OperationRow;
use super::schema::operations;
use super::types::{Destination, Take, Taken};
use super::{changes, destinations};
use crate::clock::At;
use crate::operation::transition::{Change, Event, apply};
use crate::operation::{Lease, Operation, OperationId};

/// Expired leases that are moved in one take at most; the rest follows in the next.
const EXPIRED_AT_ONCE: usize = 100;

/// Rows read beyond those wanted, so that an impossible row at the head of the queue cannot stop the rows behind it.
const SPARE: usize = 4;

/// So many of the due are looked at for the oldest.
const BACKLOG: usize = 500;

/// How long a lead counts as new.
const FRESH: Duration = Duration::from_secs(60);

/// Gives the worker what is due.
pub(super) fn take(conn: &mut AnyConn, take: &Take) -> Result<Taken, Failure> {
    let mut taken = Taken::default();
    let Some(destination) = destinations::for_take(conn, &take.destination)? else { return Ok(taken) };
    expire(conn, take, &mut taken)?;
    let throttled = destination.flow.throttled_until.is_some_and(|until| until > take.now);
    taken.flow = destination.flow;
    if !destination.suspended && !throttled {
        let room = if destination.flow.probing { probe_room(conn, take)? } else { usize::MAX };
        take_lookups(conn, take, room, &destination, &mut taken)?;
        claim_creates(conn, take, room, &destination, &mut taken)?;
        let probe = taken.creates.first().or(taken.lookups.first()).filter(|_| destination.flow.probing);
        if let Some(probe) = probe {
            destinations::note_probe(conn, &take.destination, probe)?;
        }
    }
    taken.next_due = next_due(conn, take, &destination)?;
    Ok(taken)
}

/// Leases that are over by more than the grace: their worker is lost.
fn expire(conn: &mut AnyConn, take: &Take, taken: &mut Taken) -> Result<(), Failure> {
    let due = operations::table
        .filter(operations::destination.eq(take.destination.as_str()))
        .filter(operations::lease_until.le(take.now.minus(take.grace).micros()))
        .order(operations::lease_until)
        .limit(limit(EXPIRED_AT_ONCE))
        .select(operations::all_columns);
    let rows: Vec<OperationRow> = match conn {
        AnyConn::Postgres(conn) => due.for_no_key_update().skip_locked().load(conn)?,
        AnyConn::Sqlite(conn) => due.load(conn)?,
    };
    let event = Event::LeaseExpired { grace: take.grace, timeout: take.timeout, first_lookup_at: take.first_lookup_at };
    move_each(conn, rows, EXPIRED_AT_ONCE, &event, "lease_expired", take.now, &mut taken.expired)
}

/// While a destination is probing, one call at a time shows whether it works again (contract 4.1 rule 6): a create, or the
/// look-up of one.
fn probe_room(conn: &mut AnyConn, take: &Take) -> Result<usize, Failure> {
    Ok(usize::from(!destinations::probe_is_out(conn, &take.destination, take.now)?))
}

/// Due creates.
fn claim_creates(
    conn: &mut AnyConn,
    take: &Take,
    room: usize,
    destination: &Destination,
    taken: &mut Taken,
) -> Result<(), Failure> {
    // Look-ups and creates share the worker's slots.
    let wanted = take.creates.min(room).saturating_sub(taken.lookups.len());
    if wanted == 0 {
        return Ok(());
    }
    let due = || {
        operations::table
            .filter(operations::destination.eq(take.destination.as_str()))
            .filter(operations::next_attempt_at.le(take.now.micros()))
    };
    // After an outage much is due at once, its times spread by jitter: of what has waited longest the oldest goes first.
    let mut oldest: Vec<(String, i64)> = due()
        .order(operations::next_attempt_at)
        .limit(limit(wanted.saturating_add(SPARE).max(BACKLOG)))
        .select((operations::operation_id, operations::next_attempt_at.assume_not_null()))
        .load(conn)?;
    let Some(longest) = oldest.first().map(|(_, due_at)| At::from_micros(*due_at)) else { return Ok(()) };
    // A lead of this minute has somebody who waits for the call; it must not stand behind hours of others.
    let mut fresh: Vec<String> = Vec::new();
    let new_from = take.now.minus(FRESH);
    if longest < new_from && take.fresh > 0 {
        fresh = due()
            .filter(operations::next_attempt_at.gt(new_from.micros()))
            .filter(operations::attempts.eq(0))
            .order(operations::next_attempt_at)
            .limit(limit(take.fresh.min(wanted)))
            .select(operations::operation_id)
            .load(conn)?;
    }
    oldest.sort_unstable();
    let oldest = oldest.into_iter().map(|(id, _)| id).take(wanted.saturating_add(SPARE));
    let chosen = fresh.iter().cloned().chain(oldest);
    // By their ids alone: with the other conditions beside them SQLite would walk over all that is due.
    let chosen = operations::table.filter(operations::operation_id.eq_any(chosen)).select(operations::all_columns);
    let mut rows: Vec<OperationRow> = match conn {
        AnyConn::Postgres(conn) => chosen.for_no_key_update().skip_locked().load(conn)?,
        AnyConn::Sqlite(conn) => chosen.load(conn)?,
    };
    // (Another node may have had one of them in between.)
    rows.retain(|row| row.next_attempt_at.is_some_and(|at| at <= take.now.micros()));
    rows.sort_unstable_by(|a, b| {
        let place = |row: &OperationRow| !fresh.contains(&row.operation_id);
        place(a).cmp(&place(b)).then_with(|| a.operation_id.cmp(&b.operation_id))
    });
    let lease = Lease { owner: take.owner.clone(), until: take.lease_until };
    let event = Event::Claimed { lease, destination_epoch: destination.epoch };
    move_each(conn, rows, wanted, &event, "claimed", take.now, &mut taken.creates)
}

/// Due look-ups.
fn take_lookups(
    conn: &mut AnyConn,
    take: &Take,
    room: usize,
    destination: &Destination,
    taken: &mut Taken,
) -> Result<(), Failure> {
    let wanted = take.lookups.min(room);
    if wanted == 0 {
        return Ok(());
    }
    let due = operations::table
        .filter(operations::destination.eq(take.destination.as_str()))
        .filter(operations::next_lookup_at.le(take.now.micros()))
        .order(operations::next_lookup_at)
        .limit(limit(wanted.saturating_add(SPARE)))
        .select(operations::all_columns);
    let rows: Vec<OperationRow> = match conn {
        AnyConn::Postgres(conn) => due.for_no_key_update().skip_locked().load(conn)?,
        AnyConn::Sqlite(conn) => due.load(conn)?,
    };
    let event = Event::LookupTaken { next_lookup_at: take.lookup_again_at, destination_epoch: destination.epoch };
    move_each(conn, rows, wanted, &event, "lookup_taken", take.now, &mut taken.lookups)
}

/// Operations whose outcome is uncertain, each with the number of its last create; so many at most.
pub(super) fn uncertain(conn: &mut AnyConn, most: usize) -> Result<Vec<(OperationId, u32)>, Failure> {
    let rows: Vec<(String, i64)> = on_each!(conn, |c| operations::table
        .filter(operations::next_lookup_at.is_not_null())
        .limit(limit(most))
        .select((operations::operation_id, operations::attempts))
        .load(c))?;
    // An impossible row is left to whoever takes it.
    let known =
        |(id, attempts): (String, i64)| Some((OperationId(codec::uuid(&id).ok()?), u32::try_from(attempts).ok()?));
    Ok(rows.into_iter().filter_map(known).collect())
}

/// Moves up to `wanted` of the rows by one event.
fn move_each(
    conn: &mut AnyConn,
    rows: Vec<OperationRow>,
    wanted: usize,
    event: &Event,
    name: &str,
    now: At,
    into: &mut Vec<Operation>,
) -> Result<(), Failure> {
    let mut moves = Vec::new();
    for row in rows {
        if into.len() + moves.len() >= wanted {
            break;
        }
        let before = match Operation::try_from(row) {
            Ok(operation) => operation,
            Err(error) => {
                // It stays where it is for a person to look at; the others must not wait for that.
                tracing::error!(%error, "left untouched");
                continue;
            }
        };
        let Ok(Change::To(after)) = apply(&before, event, now) else { continue };
        moves.push((before, *after));
    }
    let mut batch = changes::Batch::default();
    let asked: Vec<_> = moves.iter().map(|(before, after)| changes::Move { before, after, event: name }).collect();
    let hits = batch.moved(conn, &asked)?;
    into.extend(moves.into_iter().zip(hits).filter(|(_, hit)| *hit).map(|((_, after), _)| after));
    batch.finish(conn)
}

/// The earliest time at which a further take may find something. Each column is asked for where it is filled: that is what its
/// partial index holds.
fn next_due(conn: &mut AnyConn, take: &Take, destination: &Destination) -> Result<Option<At>, Failure> {
    let of_destination = || operations::table.filter(operations::destination.eq(take.destination.as_str()));
    let lease: Option<i64> = of_destination()
        .filter(operations::lease_until.is_not_null())
        .select(min(operations::lease_until))
        .get_result(conn)?;
    let expiry = lease.map(|until| At::from_micros(until).plus(take.grace));
    if destination.suspended {
        return Ok(expiry);
    }
    let create: Option<i64> = of_destination()
        .filter(operations::next_attempt_at.is_not_null())
        .select(min(operations::next_attempt_at))
        .get_result(conn)?;
    let lookup: Option<i64> = of_destination()
        .filter(operations::next_lookup_at.is_not_null())
        .select(min(operations::next_lookup_at))
        .get_result(conn)?;
    let call = [create, lookup].into_iter().flatten().min().map(At::from_micros);
    let call = call.map(|due| destination.flow.throttled_until.map_or(due, |until| due.max(until)));
    Ok([expiry, call].into_iter().flatten().min())
}

fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

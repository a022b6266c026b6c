//! Likely copies: a new operation whose content, less its id, another of its source bore shortly before waits for a person.
//!
//! The first of them claims a window, as events without a key do (`windows.rs`). It is claimed after the key, and only by
//! operations that were just inserted: redeliveries are replays of their own operation, and claim nothing.

use std::collections::{HashMap, HashSet};

use diesel::prelude::*;

use super::conn::AnyConn;
use super::failure::Failure;
use super::rows::OperationRow;
use super::schema::operations;
use super::types::NewEvent;
use super::windows;
use crate::operation::{Operation, OperationId, ReviewReason, Status};

/// Holds the likely copies among the events whose operations this transaction inserted; how those stand then.
pub(super) fn hold(
    conn: &mut AnyConn,
    events: &[&NewEvent],
    inserted: &HashSet<OperationId>,
) -> Result<HashMap<OperationId, Operation>, Failure> {
    let mut watched: Vec<&NewEvent> = events
        .iter()
        .copied()
        .filter(|event| event.likeness.is_some() && inserted.contains(&event.operation.id))
        .collect();
    // Of a batch, whoever came first is the first.
    watched.sort_by_key(|event| (event.operation.received_at, event.operation.id));
    let claims: Vec<windows::Claim<'_>> = watched.iter().filter_map(|event| claim(event)).collect();
    let mut held = HashMap::new();
    for (event, owner) in watched.into_iter().zip(windows::owners(conn, &claims)?) {
        if owner != event.operation.id {
            let copy = copy_of(owner, &event.operation);
            write(conn, &copy)?;
            held.insert(copy.id, copy);
        }
    }
    Ok(held)
}

/// The window of an event that its source watches for copies.
fn claim(event: &NewEvent) -> Option<windows::Claim<'_>> {
    let (operation, likeness) = (&event.operation, event.likeness.as_ref()?);
    Some(windows::Claim {
        source: operation.source.as_str(),
        payload_hash: likeness.hash().as_bytes(),
        operation: operation.id,
        starts_at: operation.received_at,
        ends_at: operation.received_at.plus(likeness.window()),
    })
}

/// The operation as it waits for a person.
fn copy_of(first: OperationId, operation: &Operation) -> Operation {
    Operation {
        status: Status::NeedsReview { reason: ReviewReason::LikelyCopy, send_ended_at: None },
        last_error: Some(format!("operation {first} has the same content, less its id, and came shortly before")),
        ..operation.clone()
    }
}

/// Nobody has seen the row yet, so its version stays the first.
fn write(conn: &mut AnyConn, copy: &Operation) -> QueryResult<()> {
    let row = OperationRow::from(copy);
    diesel::update(operations::table.find(row.operation_id))
        .set((
            operations::state.eq(row.state),
            operations::reason.eq(row.reason),
            operations::licence.eq(row.licence),
            operations::next_attempt_at.eq(row.next_attempt_at),
            operations::last_error.eq(row.last_error),
        ))
        .execute(conn)
        .map(drop)
}

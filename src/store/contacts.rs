//! Search by phone or e-mail: keyed hashes of the normal forms, filled off the intake path, erased with the payload.
//!
//! The key is made once per database, so that a hash says nothing to someone who holds only a copy of the table and a list of
//! phone numbers without it.

use std::collections::BTreeSet;

use diesel::prelude::*;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::conn::{AnyConn, on_each};
use super::failure::Failure;
use super::readers::Reader;
use super::rows::OperationRow;
use super::schema::{contact_hashes, lead_edits, operations, settings};
use super::types::{StoreError, Work};
use super::{Store, census, reading};
use crate::clock::{At, Entropy, SystemEntropy};
use crate::operation::{Operation, OperationId};

const SECRET: &str = "contact_secret";
const CURSOR: &str = "contacts";

/// The database's key for contact hashes; made by whoever asks first.
pub(super) fn secret(conn: &mut AnyConn) -> Result<Vec<u8>, StoreError> {
    let mut fresh = vec![0; 32];
    SystemEntropy.fill(&mut fresh);
    let row = (settings::name.eq(SECRET), settings::value.eq(fresh));
    let stored =
        on_each!(conn, |c| diesel::insert_into(settings::table).values(row).on_conflict_do_nothing().execute(c))
            .and_then(|_| settings::table.find(SECRET).select(settings::value).get_result(conn));
    stored.map_err(|e| Failure::from(e).into())
}

impl Store {
    /// Operations not yet indexed, oldest first, received before `before`, with their delivery and corrected lead. Leads that
    /// were corrected since they were indexed come first.
    pub async fn unindexed(&self, before: At, limit: usize) -> Result<Vec<(Operation, Work)>, StoreError> {
        self.read(move |conn| unindexed(conn, before, limit)).await
    }

    /// Stores keyed hashes of contacts (normal forms) and moves the index on, as far as nothing before is left out.
    pub async fn index_contacts(&self, contacts: Vec<(OperationId, Vec<String>)>) -> Result<(), StoreError> {
        let mut rows = Vec::new();
        for (id, of_operation) in &contacts {
            let hashes: BTreeSet<Vec<u8>> =
                of_operation.iter().filter_map(|contact| self.contact_hash(contact)).collect();
            rows.extend(hashes.into_iter().map(|hash| (hash, id.to_string())));
        }
        let ids: BTreeSet<String> = contacts.iter().map(|(id, _)| id.to_string()).collect();
        self.write(move |conn, _| index(conn, &ids, &rows)).await
    }

    /// Operations that bear this contact (normal form), newest first.
    pub async fn find_contact(&self, contact: String, limit: usize) -> Result<Vec<Operation>, StoreError> {
        let hash = self.contact_hash(&contact);
        self.read_for(Reader::Admin, move |conn| {
            let bearers = contact_hashes::table.filter(contact_hashes::hash.eq(hash.unwrap_or_default()));
            let rows: Vec<OperationRow> = operations::table
                .filter(operations::operation_id.eq_any(bearers.select(contact_hashes::operation_id)))
                .order(operations::operation_id.desc())
                .limit(i64::try_from(limit).unwrap_or(i64::MAX))
                .select(OperationRow::as_select())
                .load(conn)?;
            Ok(rows.into_iter().map(Operation::try_from).collect::<Result<_, _>>()?)
        })
        .await
    }

    fn contact_hash(&self, contact: &str) -> Option<Vec<u8>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.contact_secret).ok()?;
        mac.update(contact.as_bytes());
        Some(mac.finalize().into_bytes().to_vec())
    }
}

fn unindexed(conn: &mut AnyConn, before: At, limit: usize) -> Result<Vec<(Operation, Work)>, Failure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (position, _) = census::cursor(conn, CURSOR)?;
    let edited = lead_edits::table.filter(lead_edits::indexed.eq(false)).select(lead_edits::operation_id);
    let again: Vec<OperationRow> = operations::table
        .filter(operations::operation_id.eq_any(edited))
        .order(operations::operation_id)
        .limit(limit)
        .select(OperationRow::as_select())
        .load(conn)?;
    let known: BTreeSet<String> = again.iter().map(|row| row.operation_id.clone()).collect();
    let fresh: Vec<OperationRow> = operations::table
        .filter(operations::operation_id.gt(position))
        .filter(operations::received_at.lt(before.micros()))
        .order(operations::operation_id)
        .limit(limit)
        .select(OperationRow::as_select())
        .load(conn)?;
    let fresh = fresh.into_iter().filter(|row| !known.contains(&row.operation_id));
    let mut found = Vec::new();
    for row in again.into_iter().chain(fresh).take(usize::try_from(limit).unwrap_or(usize::MAX)) {
        let operation = Operation::try_from(row)?;
        let work = reading::work(conn, &operation)?;
        found.push((operation, work));
    }
    Ok(found)
}

fn index(conn: &mut AnyConn, ids: &BTreeSet<String>, rows: &[(Vec<u8>, String)]) -> Result<(), Failure> {
    // What was erased meanwhile stays erased.
    let kept: Vec<String> = operations::table
        .filter(operations::operation_id.eq_any(ids))
        .filter(operations::payload_erased_at.is_null().or(operations::finished_at.is_null()))
        .select(operations::operation_id)
        .load(conn)?;
    diesel::delete(contact_hashes::table.filter(contact_hashes::operation_id.eq_any(ids))).execute(conn)?;
    for (hash, id) in rows.iter().filter(|(_, id)| kept.contains(id)) {
        let row = (contact_hashes::hash.eq(hash), contact_hashes::operation_id.eq(id));
        on_each!(conn, |c| diesel::insert_into(contact_hashes::table).values(row).on_conflict_do_nothing().execute(c))?;
    }
    diesel::update(lead_edits::table.filter(lead_edits::operation_id.eq_any(ids)))
        .set(lead_edits::indexed.eq(true))
        .execute(conn)?;
    // Past an operation that is not in this batch the index must not move: it would never be indexed.
    let (position, _) = census::cursor(conn, CURSOR)?;
    let Some(last) = ids.last() else { return Ok(()) };
    let passed: i64 = operations::table
        .filter(operations::operation_id.gt(&position))
        .filter(operations::operation_id.le(last))
        .count()
        .get_result(conn)?;
    let covered = ids.iter().filter(|id| **id > position).count();
    if usize::try_from(passed).is_ok_and(|passed| passed <= covered) {
        census::advance(conn, CURSOR, last, 0)?;
    }
    Ok(())
}

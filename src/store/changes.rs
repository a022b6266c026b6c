//! Changes: one conditional UPDATE per change of an operation, with all that belongs to it in the same commit.

use std::collections::HashMap;

use diesel::dsl::exists;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use diesel::sqlite::Sqlite;

use super::codec::clean;
use super::conn::{AnyConn, on_each};
use super::failure::Failure;
use super::rows::{AttemptRow, OperationRow, TransitionRow};
use super::schema::{attempts, audit, lead_edits, steps};
use super::types::{AttemptEnd, AttemptWrite, Audit, StoreError, Update, Updated};
use super::{destinations, inserts, reading};
use crate::operation::{CrmId, DestinationName, Lead, Operation, OperationId};

/// The changes of one transaction. What several of them ask is asked once, and their rows for the logs are written together.
#[derive(Default)]
pub(super) struct Batch {
    /// Whether a destination takes calls in an epoch: it stays so until the transaction ends.
    active: HashMap<(DestinationName, i64), bool>,
    transitions: Vec<TransitionRow>,
    attempts: Vec<AttemptRow>,
}

impl Batch {
    /// Carries out a change; nothing of it where the operation moved on.
    pub(super) fn update(&mut self, conn: &mut AnyConn, update: &Update) -> Result<Updated, Failure> {
        let Update { before, after, .. } = update;
        if before.id != after.id {
            return Err(StoreError::Inconsistent(format!("operation {}: changed into {}", before.id, after.id)).into());
        }
        if let Some(epoch) = update.while_active
            && !self.is_active(conn, &before.destination, epoch)?
        {
            return Ok(Updated::Moved(Box::new(present(conn, before.id)?)));
        }
        if after.version == before.version {
            // Only evidence: the condition is read, not written.
            let found = present(conn, before.id)?;
            if found.version != before.version {
                return Ok(Updated::Moved(Box::new(found)));
            }
        } else if !self.moved(conn, before, after, update.event)? {
            let found = present(conn, before.id)?;
            let stands = is_own(conn, update, &found)?;
            return Ok(if stands { Updated::Done } else { Updated::Moved(Box::new(found)) });
        }
        match &update.attempt {
            Some(AttemptWrite::Begin(begin)) => self.attempts.push(AttemptRow::new(after.id, begin, None)),
            Some(AttemptWrite::Whole(begin, end)) => self.attempts.push(AttemptRow::new(after.id, begin, Some(end))),
            Some(AttemptWrite::End(end)) => self.end_attempt(conn, end)?,
            None => {}
        }
        if let Some((step, crm_id)) = &update.step_done {
            insert_step(conn, after.id, *step, crm_id)?;
        }
        if let Some(entry) = &update.audit {
            insert_audit(conn, entry)?;
        }
        if let Some(lead) = &update.lead {
            write_lead(conn, after, lead)?;
        }
        Ok(Updated::Done)
    }

    /// The conditional UPDATE and its row in the log of transitions; whether it hit.
    pub(super) fn moved(
        &mut self,
        conn: &mut AnyConn,
        before: &Operation,
        after: &Operation,
        event: &str,
    ) -> Result<bool, Failure> {
        let change = Change { row: OperationRow::from(after), version: before.version };
        let hit = on_each!(conn, |c| change.execute(c))?;
        if hit == 1 {
            self.transitions.push(TransitionRow::new(Some(before.state()), after, event));
        }
        Ok(hit == 1)
    }

    /// Writes what is left to write.
    pub(super) fn finish(self, conn: &mut AnyConn) -> Result<(), Failure> {
        inserts::transitions(conn, self.transitions)?;
        Ok(inserts::attempts(conn, self.attempts)?)
    }

    fn is_active(&mut self, conn: &mut AnyConn, name: &DestinationName, epoch: i64) -> Result<bool, Failure> {
        let asked = (name.clone(), epoch);
        if let Some(active) = self.active.get(&asked) {
            return Ok(*active);
        }
        let active = destinations::is_active(conn, name, epoch)?;
        self.active.insert(asked, active);
        Ok(active)
    }

    /// Fills in the result, once: what is written first stays.
    fn end_attempt(&mut self, conn: &mut AnyConn, end: &AttemptEnd) -> Result<(), Failure> {
        let end = End {
            attempt_id: end.id.to_string(),
            ended_at: end.ended_at.micros(),
            class: end.class,
            status: end.status.map(i32::from),
            excerpt: clean(&end.excerpt),
            decision: clean(&end.decision),
        };
        if self.attempts.iter().any(|row| row.attempt_id == end.attempt_id) {
            inserts::attempts(conn, std::mem::take(&mut self.attempts))?;
        }
        on_each!(conn, |c| (&end).execute(c))?;
        Ok(())
    }
}

fn present(conn: &mut AnyConn, id: OperationId) -> Result<Operation, Failure> {
    reading::operation(conn, id)?.ok_or_else(|| StoreError::Inconsistent(format!("operation {id}: it is gone")).into())
}

/// Whether what stands is this very change, committed before its answer was lost (contract 4.1 rule 7): its own epoch, attempt
/// and target state, and the evidence that no other writer can have left.
fn is_own(conn: &mut AnyConn, update: &Update, found: &Operation) -> Result<bool, Failure> {
    let after = &update.after;
    let same = found.version == after.version
        && found.status == after.status
        && found.epoch == after.epoch
        && found.attempts == after.attempts
        && found.updated_at == after.updated_at;
    if !same {
        return Ok(false);
    }
    if let Some(AttemptWrite::Begin(begin) | AttemptWrite::Whole(begin, _)) = &update.attempt {
        let id = begin.id.to_string();
        let known = attempts::table.filter(attempts::attempt_id.eq(id));
        if !diesel::select(exists(known)).get_result::<bool>(conn)? {
            return Ok(false);
        }
    }
    if let Some(entry) = &update.audit {
        let id = entry.operation_id.map(|id| id.to_string());
        let known = audit::table
            .filter(audit::operation_id.eq(id))
            .filter(audit::actor.eq(clean(&entry.actor)))
            .filter(audit::action.eq(clean(&entry.action)))
            .filter(audit::at.eq(entry.at.micros()));
        return Ok(diesel::select(exists(known)).get_result(conn)?);
    }
    Ok(true)
}

fn insert_step(conn: &mut AnyConn, of: OperationId, step: u16, crm_id: &CrmId) -> QueryResult<()> {
    let id = of.to_string();
    let row = (steps::operation_id.eq(id), steps::step.eq(i32::from(step)), steps::crm_id.eq(crm_id.as_str()));
    on_each!(conn, |c| diesel::insert_into(steps::table).values(row).on_conflict_do_nothing().execute(c)).map(drop)
}

/// Writes an entry of the audit log.
pub(super) fn insert_audit(conn: &mut AnyConn, entry: &Audit) -> QueryResult<()> {
    let text = |text: &Option<String>| text.as_deref().map(clean);
    diesel::insert_into(audit::table)
        .values((
            audit::actor.eq(clean(&entry.actor)),
            audit::at.eq(entry.at.micros()),
            audit::action.eq(clean(&entry.action)),
            audit::operation_id.eq(entry.operation_id.map(|id| id.to_string())),
            audit::subject.eq(text(&entry.subject)),
            audit::from_state.eq(text(&entry.from)),
            audit::to_state.eq(text(&entry.to)),
            audit::note.eq(text(&entry.note)),
        ))
        .execute(conn)
        .map(drop)
}

/// A corrected lead replaces an earlier one and is indexed for search again.
fn write_lead(conn: &mut AnyConn, after: &Operation, lead: &Lead) -> Result<(), Failure> {
    let json = serde_json::to_string(lead)
        .map_err(|e| StoreError::Inconsistent(format!("operation {}: edited lead: {e}", after.id)))?;
    let row = (
        lead_edits::operation_id.eq(after.id.to_string()),
        lead_edits::lead.eq(&json),
        lead_edits::edited_at.eq(after.updated_at.micros()),
        lead_edits::indexed.eq(false),
    );
    let again = (
        lead_edits::lead.eq(&json),
        lead_edits::edited_at.eq(after.updated_at.micros()),
        lead_edits::indexed.eq(false),
    );
    on_each!(conn, |c| diesel::insert_into(lead_edits::table)
        .values(row)
        .on_conflict(lead_edits::operation_id)
        .do_update()
        .set(again)
        .execute(c))?;
    Ok(())
}

/// The result of an attempt, filled in where there is none yet; a statement that stays prepared.
struct End {
    attempt_id: String,
    ended_at: i64,
    class: &'static str,
    status: Option<i32>,
    excerpt: String,
    decision: String,
}

/// The UPDATE of a change, as a statement that stays prepared (diesel's own updates never do). Identity, reception and
/// `payload_erased_at` (which only retention writes) are not in it.
struct Change {
    row: OperationRow,
    version: i64,
}

/// Writes the same statements for each backend: their columns bind the same values under the same types.
macro_rules! change_statement {
    ($backend:ty) => {
        impl QueryFragment<$backend> for End {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, $backend>) -> QueryResult<()> {
                out.push_sql("UPDATE attempts SET ended_at = ");
                out.push_bind_param::<BigInt, _>(&self.ended_at)?;
                change_statement!(self, out; class: Text, status: Nullable<Integer>, excerpt: Text, decision: Text);
                out.push_sql(" WHERE attempt_id = ");
                out.push_bind_param::<Text, _>(&self.attempt_id)?;
                out.push_sql(" AND ended_at IS NULL");
                Ok(())
            }
        }

        impl QueryFragment<$backend> for Change {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, $backend>) -> QueryResult<()> {
                out.push_sql("UPDATE operations SET state = ");
                out.push_bind_param::<Text, _>(&self.row.state)?;
                change_statement!(self.row, out;
                    phase: Nullable<Text>, reason: Nullable<Text>, licence: Nullable<Text>,
                    next_attempt_at: Nullable<BigInt>, next_lookup_at: Nullable<BigInt>,
                    lease_owner: Nullable<Text>, lease_until: Nullable<BigInt>,
                    send_ended_at: Nullable<BigInt>, lookups_since: Nullable<BigInt>,
                    attempts: BigInt, counted: BigInt, series_attempts: BigInt, series_since: Nullable<BigInt>, series_epoch: BigInt,
                    lookups: BigInt, step: Integer, epoch: BigInt, version: BigInt,
                    crm_id: Nullable<Text>, other_crm_ids: Nullable<Text>, last_error: Nullable<Text>,
                    updated_at: BigInt, finished_at: Nullable<BigInt>
                );
                out.push_sql(" WHERE operation_id = ");
                out.push_bind_param::<Text, _>(&self.row.operation_id)?;
                out.push_sql(" AND version = ");
                out.push_bind_param::<BigInt, _>(&self.version)?;
                Ok(())
            }
        }
    };
    ($of:expr, $out:ident; $($column:ident: $sql:ty),+) => {
        $(
            $out.push_sql(concat!(", ", stringify!($column), " = "));
            $out.push_bind_param::<$sql, _>(&$of.$column)?;
        )+
    };
}

change_statement!(Pg);
change_statement!(Sqlite);

impl QueryId for End {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<C> RunQueryDsl<C> for &End {}

impl QueryId for Change {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<C> RunQueryDsl<C> for Change {}

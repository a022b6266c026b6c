//! Changes: one conditional UPDATE per change of an operation, with all that belongs to it in the same commit.

use std::collections::{HashMap, HashSet};

use diesel::dsl::exists;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text};
use diesel::sqlite::Sqlite;

use super::codec::clean;
use super::conn::{AnyConn, on_each};
use super::failure::Failure;
use super::rows::{AttemptRow, OperationColumns, OperationRow, TransitionRow, column_list};
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
    ends: Vec<End>,
}

/// A change that is one UPDATE, conditional on the version before.
pub(super) struct Move<'a> {
    pub(super) before: &'a Operation,
    pub(super) after: &'a Operation,
    pub(super) event: &'a str,
}

impl Batch {
    /// Carries out changes, in their order; of each nothing where its operation moved on.
    pub(super) fn update(&mut self, conn: &mut AnyConn, updates: &[&Update]) -> Result<Vec<Updated>, Failure> {
        let mut moves = Vec::new();
        let mut places = HashMap::new();
        for (place, Update { before, after, event, while_active, .. }) in updates.iter().copied().enumerate() {
            if before.id != after.id {
                let what = format!("operation {}: changed into {}", before.id, after.id);
                return Err(StoreError::Inconsistent(what).into());
            }
            let active = match while_active {
                Some(epoch) => self.is_active(conn, &before.destination, *epoch)?,
                None => true,
            };
            // Of several changes of one operation only the first is known to have its turn now.
            let first = moves.last().is_none_or(|earlier: &Move<'_>| earlier.before.id != before.id);
            if active && after.version != before.version && first {
                places.insert(place, moves.len());
                moves.push(Move { before, after, event });
            }
        }
        let hits = self.moved(conn, &moves)?;
        let hit = |place| places.get(&place).and_then(|at: &usize| hits.get(*at)).copied();
        updates.iter().enumerate().map(|(place, update)| self.carry_out(conn, update, hit(place))).collect()
    }

    /// One change, of which the UPDATE may have been made already.
    fn carry_out(&mut self, conn: &mut AnyConn, update: &Update, hit: Option<bool>) -> Result<Updated, Failure> {
        let Update { before, after, event, .. } = update;
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
        } else {
            let hit = match hit {
                Some(hit) => hit,
                None => self.moved(conn, &[Move { before, after, event }])? == [true],
            };
            if !hit {
                let found = present(conn, before.id)?;
                let stands = is_own(conn, update, &found)?;
                return Ok(if stands { Updated::Done } else { Updated::Moved(Box::new(found)) });
            }
        }
        match &update.attempt {
            Some(AttemptWrite::Begin(begin)) => self.attempts.push(AttemptRow::new(after.id, begin, None)),
            Some(AttemptWrite::Whole(begin, end)) => self.attempts.push(AttemptRow::new(after.id, begin, Some(end))),
            Some(AttemptWrite::End(end)) => self.end_attempt(end),
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

    /// The conditional UPDATEs of different operations, and their rows in the log of transitions; which of them hit.
    pub(super) fn moved(&mut self, conn: &mut AnyConn, moves: &[Move<'_>]) -> Result<Vec<bool>, Failure> {
        let change = |of: &Move<'_>| Change { row: OperationRow::from(of.after), version: of.before.version };
        let hits: Vec<bool> = match conn {
            AnyConn::Sqlite(conn) => {
                moves.iter().map(|of| Ok(change(of).execute(conn)? == 1)).collect::<QueryResult<_>>()?
            }
            AnyConn::Postgres(conn) if moves.len() > 1 => {
                let hit: Vec<String> = Changes::of(moves).get_results(conn)?;
                let hit: HashSet<String> = hit.into_iter().collect();
                moves.iter().map(|of| hit.contains(&of.after.id.to_string())).collect()
            }
            AnyConn::Postgres(conn) => {
                moves.iter().map(|of| Ok(change(of).execute(conn)? == 1)).collect::<QueryResult<_>>()?
            }
        };
        let moved = moves.iter().zip(&hits).filter(|(_, hit)| **hit);
        self.transitions.extend(moved.map(|(of, _)| TransitionRow::new(Some(of.before.state()), of.after, of.event)));
        Ok(hits)
    }

    /// Writes what is left to write.
    pub(super) fn finish(self, conn: &mut AnyConn) -> Result<(), Failure> {
        inserts::transitions(conn, self.transitions)?;
        inserts::attempts(conn, self.attempts)?;
        match conn {
            AnyConn::Postgres(conn) if self.ends.len() > 1 => drop(Ends::of(self.ends).execute(conn)?),
            AnyConn::Postgres(conn) => self.ends.iter().try_for_each(|end| end.execute(conn).map(drop))?,
            AnyConn::Sqlite(conn) => self.ends.iter().try_for_each(|end| end.execute(conn).map(drop))?,
        }
        Ok(())
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
    fn end_attempt(&mut self, end: &AttemptEnd) {
        let attempt_id = end.id.to_string();
        if self.ends.iter().any(|earlier| earlier.attempt_id == attempt_id) {
            return;
        }
        self.ends.push(End {
            attempt_id,
            ended_at: end.ended_at.micros(),
            class: end.class,
            status: end.status.map(i32::from),
            excerpt: clean(&end.excerpt),
            decision: clean(&end.decision),
        });
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

/// The columns that a change may write, for whichever statement writes them.
macro_rules! changing {
    ($with:ident!($($before:tt)*)) => {
        $with!($($before)*
            state: Text, phase: Nullable<Text>, reason: Nullable<Text>, licence: Nullable<Text>,
            next_attempt_at: Nullable<BigInt>, next_lookup_at: Nullable<BigInt>,
            lease_owner: Nullable<Text>, lease_until: Nullable<BigInt>,
            send_ended_at: Nullable<BigInt>, lookups_since: Nullable<BigInt>,
            attempts: BigInt, counted: BigInt, series_attempts: BigInt, series_since: Nullable<BigInt>, series_epoch: BigInt,
            lookups: BigInt, step: Integer, epoch: BigInt, version: BigInt,
            crm_id: Nullable<Text>, other_crm_ids: Nullable<Text>, last_error: Nullable<Text>,
            updated_at: BigInt, finished_at: Nullable<BigInt>)
    };
}

/// The columns of a result.
macro_rules! ending {
    ($with:ident!($($before:tt)*)) => {
        $with!($($before)*
            ended_at: BigInt, class: Text, status: Nullable<Integer>, excerpt: Text, decision: Text)
    };
}

/// `UPDATE table SET column = value, …`
macro_rules! update_one {
    ($of:expr, $out:ident, $table:literal; $($column:ident: $sql:ty),+) => {
        $out.push_sql(concat!("UPDATE ", $table, " SET "));
        let mut separator = "";
        $(
            $out.push_sql(separator);
            $out.push_sql(concat!(stringify!($column), " = "));
            $out.push_bind_param::<$sql, _>(&$of.$column)?;
            separator = ", ";
        )+
        let _ = separator;
    };
}

/// `UPDATE table SET column = new.column, …` from arrays; the keys are columns of `new` too.
macro_rules! update_many {
    ($of:expr, $out:ident, $table:literal, [$($key:ident: $key_sql:ty = $keys:expr),+]; $($column:ident: $sql:ty),+) => {
        $out.push_sql(concat!("UPDATE ", $table, " SET "));
        let mut separator = "";
        $(
            $out.push_sql(separator);
            $out.push_sql(concat!(stringify!($column), " = new.", stringify!($column)));
            separator = ", ";
        )+
        let _ = separator;
        $out.push_sql(" FROM unnest(");
        $(
            $out.push_bind_param::<Array<$sql>, _>(&$of.$column)?;
            $out.push_sql(", ");
        )+
        let mut separator = "";
        $(
            $out.push_sql(separator);
            $out.push_bind_param::<Array<$key_sql>, _>($keys)?;
            separator = ", ";
        )+
        let _ = separator;
        $out.push_sql(concat!(") AS new (", $(stringify!($column), ", ",)+ column_list!($($key),+), ") WHERE "));
    };
}

/// Writes the same statements for each backend: their columns bind the same values under the same types.
macro_rules! change_statement {
    ($backend:ty) => {
        impl QueryFragment<$backend> for End {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, $backend>) -> QueryResult<()> {
                ending!(update_one!(self, out, "attempts";));
                out.push_sql(" WHERE attempt_id = ");
                out.push_bind_param::<Text, _>(&self.attempt_id)?;
                out.push_sql(" AND ended_at IS NULL");
                Ok(())
            }
        }

        impl QueryFragment<$backend> for Change {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, $backend>) -> QueryResult<()> {
                changing!(update_one!(self.row, out, "operations";));
                out.push_sql(" WHERE operation_id = ");
                out.push_bind_param::<Text, _>(&self.row.operation_id)?;
                out.push_sql(" AND version = ");
                out.push_bind_param::<BigInt, _>(&self.version)?;
                Ok(())
            }
        }
    };
}

change_statement!(Pg);
change_statement!(Sqlite);

/// The same for many operations at once, column by column: PostgreSQL takes as long for the way of a statement to it as for several rows.
struct Changes {
    rows: OperationColumns,
    versions: Vec<i64>,
}

impl Changes {
    fn of(moves: &[Move<'_>]) -> Self {
        let rows: Vec<_> = moves.iter().map(|of| OperationRow::from(of.after)).collect();
        Self { rows: rows.into(), versions: moves.iter().map(|of| of.before.version).collect() }
    }
}

/// Results of many attempts at once.
struct Ends {
    attempt_id: Vec<String>,
    ended_at: Vec<i64>,
    class: Vec<&'static str>,
    status: Vec<Option<i32>>,
    excerpt: Vec<String>,
    decision: Vec<String>,
}

impl Ends {
    fn of(ends: Vec<End>) -> Self {
        let mut all = Self {
            attempt_id: Vec::new(),
            ended_at: Vec::new(),
            class: Vec::new(),
            status: Vec::new(),
            excerpt: Vec::new(),
            decision: Vec::new(),
        };
        for end in ends {
            all.attempt_id.push(end.attempt_id);
            all.ended_at.push(end.ended_at);
            all.class.push(end.class);
            all.status.push(end.status);
            all.excerpt.push(end.excerpt);
            all.decision.push(end.decision);
        }
        all
    }
}

impl QueryFragment<Pg> for Changes {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let (ids, versions) = (&self.rows.operation_id, &self.versions);
        changing!(update_many!(self.rows, out, "operations", [id: Text = ids, version_before: BigInt = versions];));
        // (Two collations would leave open how to compare.)
        out.push_sql(
            r#"operations.operation_id = new.id COLLATE "C" AND operations.version = new.version_before
            RETURNING operations.operation_id"#,
        );
        Ok(())
    }
}

impl QueryFragment<Pg> for Ends {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        ending!(update_many!(self, out, "attempts", [id: Text = &self.attempt_id];));
        out.push_sql(r#"attempts.attempt_id = new.id COLLATE "C" AND attempts.ended_at IS NULL"#);
        Ok(())
    }
}

impl Query for Changes {
    type SqlType = Text;
}

/// All of them stay prepared.
macro_rules! stay_prepared {
    ($($statement:ty => $run:ty),+) => {
        $(
            impl QueryId for $statement {
                type QueryId = Self;
                const HAS_STATIC_QUERY_ID: bool = true;
            }

            impl<C> RunQueryDsl<C> for $run {}
        )+
    };
}

stay_prepared!(End => &End, Change => Change, Changes => Changes, Ends => Ends);

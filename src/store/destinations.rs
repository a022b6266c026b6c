//! Destinations: whether a CRM account takes calls now (contract 4.1 rules 5 and 6).

use diesel::dsl::exists;
use diesel::prelude::*;

use super::codec::clean;
use super::conn::{AnyConn, on_each};
use super::failure::Failure;
use super::schema::{destinations, operations};
use super::types::{Audit, Destination, Flow, StoreError};
use super::{Store, changes};
use crate::clock::At;
use crate::operation::{DestinationName, Operation};

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = destinations)]
struct DestinationRow {
    name: String,
    kind: String,
    suspended: bool,
    reason: Option<String>,
    since: i64,
    epoch: i64,
    probing: bool,
    throttled_until: Option<i64>,
    last_success_at: Option<i64>,
    slowed_at: Option<i64>,
    setbacks: i64,
    ramp_from: Option<i64>,
}

impl TryFrom<DestinationRow> for Destination {
    type Error = StoreError;

    fn try_from(row: DestinationRow) -> Result<Self, StoreError> {
        let impossible = |e| StoreError::Inconsistent(format!("destination {:?}: {e}", row.name));
        Ok(Self {
            name: DestinationName::try_from(row.name.clone()).map_err(impossible)?,
            kind: row.kind,
            suspended: row.suspended,
            reason: row.reason,
            since: At::from_micros(row.since),
            epoch: row.epoch,
            flow: Flow {
                throttled_until: row.throttled_until.map(At::from_micros),
                probing: row.probing,
                slowed_at: row.slowed_at.map(At::from_micros),
                setbacks: u32::try_from(row.setbacks).unwrap_or(u32::MAX),
                ramp_from: row.ramp_from.map(At::from_micros),
            },
            last_success_at: row.last_success_at.map(At::from_micros),
        })
    }
}

/// Whether a switch was thrown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    /// By this statement.
    Now,
    /// By an earlier try of this very write, whose commit was lost.
    Before,
    /// By somebody else, or not at all.
    No,
}

impl Done {
    fn of(hit: usize, before: bool) -> Self {
        match (hit, before) {
            (0, false) => Self::No,
            (0, true) => Self::Before,
            _ => Self::Now,
        }
    }
}

/// Makes rows for configured destinations; a kind that the configuration changed is noted.
fn ensure(conn: &mut AnyConn, wanted: &[(DestinationName, String)], at: At) -> Result<(), Failure> {
    for (name, kind) in wanted {
        let row = (
            destinations::name.eq(name.as_str()),
            destinations::kind.eq(clean(kind)),
            destinations::suspended.eq(false),
            destinations::since.eq(at.micros()),
            destinations::epoch.eq(1),
            destinations::probing.eq(false),
        );
        on_each!(conn, |c| diesel::insert_into(destinations::table)
            .values(row)
            .on_conflict(destinations::name)
            .do_update()
            .set(destinations::kind.eq(clean(kind)))
            .execute(c))?;
    }
    Ok(())
}

/// A destination in that state.
#[cfg(test)]
pub(super) fn make_for_tests(conn: &mut AnyConn, name: &DestinationName, probing: bool, at: At) {
    ensure(conn, &[(name.clone(), "http".into())], at).expect("made");
    let row = destinations::table.find(name.as_str());
    diesel::update(row).set(destinations::probing.eq(probing)).execute(conn).expect("set");
}

/// All destinations, by name.
fn all(conn: &mut AnyConn) -> Result<Vec<Destination>, Failure> {
    let rows: Vec<DestinationRow> =
        destinations::table.order(destinations::name).select(DestinationRow::as_select()).load(conn)?;
    Ok(rows.into_iter().map(Destination::try_from).collect::<Result<_, _>>()?)
}

/// The destination as a take must see it. While it is probing its row is locked, so that two nodes cannot both send the probe
/// (on SQLite the transaction holds the only write lock anyway).
pub(super) fn for_take(conn: &mut AnyConn, name: &DestinationName) -> Result<Option<Destination>, Failure> {
    let Some(seen) = one(conn, name)? else { return Ok(None) };
    match conn {
        AnyConn::Postgres(_) if seen.flow.probing => locked(conn, name),
        AnyConn::Postgres(_) | AnyConn::Sqlite(_) => Ok(Some(seen)),
    }
}

/// The destination; on PostgreSQL nobody else changes it until this transaction ends.
fn locked(conn: &mut AnyConn, name: &DestinationName) -> Result<Option<Destination>, Failure> {
    if let AnyConn::Postgres(conn) = conn {
        let row = destinations::table.find(name.as_str()).select(destinations::epoch);
        row.for_no_key_update().get_result::<i64>(conn).optional()?;
    }
    one(conn, name)
}

/// Whether the destination's probe is under way: a claimed create, or a look-up of which nothing was written yet.
pub(super) fn probe_is_out(conn: &mut AnyConn, name: &DestinationName, now: At) -> Result<bool, Failure> {
    let probe = destinations::table
        .find(name.as_str())
        .select((destinations::probe_operation.assume_not_null(), destinations::probe_version.assume_not_null()))
        .filter(destinations::probe_operation.is_not_null().and(destinations::probe_version.is_not_null()));
    let probe: Option<(String, i64)> = on_each!(conn, |c| probe.get_result(c)).optional()?;
    let Some((operation, version)) = probe else { return Ok(false) };
    let looked_up = operations::version.eq(version).and(operations::next_lookup_at.gt(now.micros()));
    let out =
        operations::table.find(operation).filter(operations::lease_until.is_not_null().or(looked_up.assume_not_null()));
    Ok(on_each!(conn, |c| diesel::select(exists(out)).get_result(c))?)
}

/// Notes which operation is the probe.
pub(super) fn note_probe(conn: &mut AnyConn, name: &DestinationName, probe: &Operation) -> Result<(), Failure> {
    diesel::update(destinations::table.find(name.as_str()))
        .set((destinations::probe_operation.eq(probe.id.to_string()), destinations::probe_version.eq(probe.version)))
        .execute(conn)?;
    Ok(())
}

/// Whether the destination takes calls and is still in that epoch; on PostgreSQL it stays so until this transaction ends.
pub(super) fn is_active(conn: &mut AnyConn, name: &DestinationName, epoch: i64) -> Result<bool, Failure> {
    let found = destinations::table.find(name.as_str()).select((destinations::suspended, destinations::epoch));
    let found: Option<(bool, i64)> = match conn {
        AnyConn::Postgres(conn) => found.for_share().get_result(conn).optional()?,
        AnyConn::Sqlite(conn) => found.get_result(conn).optional()?,
    };
    Ok(found == Some((false, epoch)))
}

fn one(conn: &mut AnyConn, name: &DestinationName) -> Result<Option<Destination>, Failure> {
    let row: Option<DestinationRow> =
        on_each!(conn, |c| destinations::table.find(name.as_str()).select(DestinationRow::as_select()).get_result(c))
            .optional()?;
    Ok(row.map(Destination::try_from).transpose()?)
}

/// Suspends an active destination; for an answer of the CRM only in the epoch of its call. Whether this call did it: of
/// several answers one wins, and its caller alerts. `again` says that the same write was sent before and its commit was lost.
fn suspend(
    conn: &mut AnyConn,
    name: &DestinationName,
    epoch: Option<i64>,
    reason: &str,
    at: At,
    again: bool,
) -> Result<Done, Failure> {
    let reason = clean(reason);
    let active = destinations::table.find(name.as_str()).filter(destinations::suspended.eq(false));
    let set = (
        destinations::suspended.eq(true),
        destinations::reason.eq(&reason),
        destinations::since.eq(at.micros()),
        destinations::epoch.eq(destinations::epoch + 1),
        destinations::probing.eq(false),
    );
    let hit = match epoch {
        Some(epoch) => diesel::update(active.filter(destinations::epoch.eq(epoch))).set(set).execute(conn)?,
        None => diesel::update(active).set(set).execute(conn)?,
    };
    let own = |d: Destination| d.suspended && d.since == at && d.reason.as_ref() == Some(&reason);
    let before = hit == 0 && again && one(conn, name)?.is_some_and(own);
    Ok(Done::of(hit, before))
}

/// Ends a suspension; a probe goes first. Whether it was suspended.
fn resume(conn: &mut AnyConn, name: &DestinationName, at: At, again: bool) -> Result<Done, Failure> {
    let suspended = destinations::table.find(name.as_str()).filter(destinations::suspended.eq(true));
    let hit = diesel::update(suspended)
        .set((
            destinations::suspended.eq(false),
            destinations::reason.eq(None::<String>),
            destinations::since.eq(at.micros()),
            destinations::epoch.eq(destinations::epoch + 1),
            destinations::probing.eq(true),
            destinations::throttled_until.eq(None::<i64>),
            // What was called before shows nothing about the account as it is now.
            destinations::slowed_at.eq(at.micros()),
            destinations::setbacks.eq(0),
        ))
        .execute(conn)?;
    let before = hit == 0 && again && one(conn, name)?.is_some_and(|d| d.flow.probing && d.since == at);
    Ok(Done::of(hit, before))
}

/// Changes how calls may leave for an active destination; whether its probe is over by that.
fn change_flow(
    conn: &mut AnyConn,
    name: &DestinationName,
    change: impl Fn(&Flow) -> Option<Flow>,
) -> Result<bool, Failure> {
    let Some(found) = locked(conn, name)?.filter(|found| !found.suspended) else { return Ok(false) };
    let Some(flow) = change(&found.flow) else { return Ok(false) };
    diesel::update(destinations::table.find(name.as_str()))
        .set((
            destinations::throttled_until.eq(flow.throttled_until.map(At::micros)),
            destinations::probing.eq(flow.probing),
            destinations::slowed_at.eq(flow.slowed_at.map(At::micros)),
            destinations::setbacks.eq(i64::from(flow.setbacks)),
            destinations::ramp_from.eq(flow.ramp_from.map(At::micros)),
        ))
        .execute(conn)?;
    Ok(found.flow.probing && !flow.probing)
}

/// A create was confirmed.
fn succeeded(conn: &mut AnyConn, name: &DestinationName, at: At) -> Result<(), Failure> {
    let older = destinations::last_success_at.is_null().or(destinations::last_success_at.lt(at.micros()));
    diesel::update(destinations::table.find(name.as_str()).filter(older))
        .set(destinations::last_success_at.eq(at.micros()))
        .execute(conn)?;
    Ok(())
}

impl Store {
    /// Makes rows for configured destinations.
    pub async fn ensure_destinations(
        &self,
        destinations: Vec<(DestinationName, String)>,
        at: At,
    ) -> Result<(), StoreError> {
        self.write(move |conn, _| ensure(conn, &destinations, at)).await
    }

    /// All destinations.
    pub async fn destinations(&self) -> Result<Vec<Destination>, StoreError> {
        self.read(all).await
    }

    /// Suspends, if the destination is active and (for an answer of the CRM) still in the epoch of the call; whether it did.
    pub async fn suspend(
        &self,
        name: DestinationName,
        epoch: Option<i64>,
        reason: String,
        audit: Option<Audit>,
        at: At,
    ) -> Result<bool, StoreError> {
        self.write(move |conn, again| {
            let did = suspend(conn, &name, epoch, &reason, at, again)?;
            if let (Done::Now, Some(entry)) = (did, &audit) {
                changes::insert_audit(conn, entry)?;
            }
            Ok(did != Done::No)
        })
        .await
    }

    /// Resumes; whether it was suspended.
    pub async fn resume(&self, name: DestinationName, audit: Option<Audit>, at: At) -> Result<bool, StoreError> {
        let work = move |conn: &mut AnyConn, again: bool| {
            let did = resume(conn, &name, at, again)?;
            if let (Done::Now, Some(entry)) = (did, &audit) {
                changes::insert_audit(conn, entry)?;
            }
            Ok(did != Done::No)
        };
        self.write_and_wake(work, |resumed| *resumed).await
    }

    /// Changes how calls may leave for these destinations, where they are active.
    pub async fn change_flow(
        &self,
        mut names: Vec<DestinationName>,
        change: impl Fn(&Flow) -> Option<Flow> + Send + 'static,
    ) -> Result<(), StoreError> {
        // In one order, so that two nodes do not wait for each other.
        names.sort_unstable();
        let work = move |conn: &mut AnyConn, _| {
            let mut over = false;
            for name in &names {
                over |= change_flow(conn, name, &change)?;
            }
            Ok(over)
        };
        // The end of a probe lets the others go.
        self.write_and_wake(work, |over| *over).await.map(drop)
    }

    /// A create was confirmed: notes the time.
    pub async fn succeeded(&self, name: DestinationName, at: At) -> Result<(), StoreError> {
        self.write(move |conn, _| succeeded(conn, &name, at)).await
    }
}

//! Counts and checks over the whole store: for metrics, alerts and readiness.

use std::time::Duration;

use diesel::dsl::{count_star, exists, max, not};
use diesel::prelude::*;
use uuid::Uuid;

use super::Store;
use super::codec;
use super::conn::{AnyConn, on_each};
use super::failure::Failure;
use super::schema::{attempts, audit, cursors, deliveries, operations};
use super::types::{Census, StoreError};
use crate::clock::At;
use crate::operation::{DestinationName, State};

/// States in which somebody still has to do something.
const OPEN: [&str; 3] = [State::Received.as_str(), State::InProgress.as_str(), State::NeedsReview.as_str()];

/// Rows that one statement of a check walks over: none keeps the log of SQLite from starting anew for long.
const AT_ONCE: i64 = 20_000;

/// A delivery id is made at reception, its row is committed a little later: the check looks again at those this young.
const STILL_COMING: u64 = 60_000;

const UNACCOUNTED: &str = "unaccounted";
const PROBE: &str = "probe";
/// Longer than the writer needs to give up a lost connection and open another.
const PROBE_WITHIN: Duration = Duration::from_secs(10);

impl Store {
    /// Counts.
    pub async fn census(&self) -> Result<Census, StoreError> {
        self.read(census).await
    }

    /// Names of sources and of destinations that have open operations (received, in progress or in review).
    pub async fn open_names(&self) -> Result<(Vec<String>, Vec<String>), StoreError> {
        self.read(|conn| {
            let open = || operations::table.filter(operations::state.eq_any(OPEN));
            let sources = open().select(operations::source).distinct().order(operations::source);
            let destinations = open().select(operations::destination).distinct().order(operations::destination);
            Ok((sources.load(conn)?, destinations.load(conn)?))
        })
        .await
    }

    /// Writes something and takes it back, through the writer: whether the store can commit now. A store that does not say so in
    /// time cannot.
    pub async fn writable(&self) -> Result<(), StoreError> {
        let probe = self.write(|conn, _| {
            let row = (cursors::name.eq(PROBE), cursors::position.eq(""), cursors::found.eq(0));
            on_each!(conn, |c| diesel::insert_into(cursors::table).values(row).on_conflict_do_nothing().execute(c))?;
            diesel::delete(cursors::table.find(PROBE)).execute(conn)?;
            Ok(())
        });
        let late = |_| StoreError::Unavailable("no commit in time".into());
        tokio::time::timeout(PROBE_WITHIN, probe).await.map_err(late)?
    }

    /// Log rows with verdict new or conflict whose operation does not exist: all that were ever found. Each call looks at what
    /// was logged since the last one.
    pub async fn unaccounted(&self) -> Result<i64, StoreError> {
        let (position, found) = self.read(|conn| Ok(cursor(conn, UNACCOUNTED)?)).await?;
        let Some(step) = self.read(move |conn| look_for_unaccounted(conn, &position)).await? else { return Ok(found) };
        let total = found.saturating_add(step.settled);
        if step.settled_to.is_some() {
            self.write(move |conn, _| {
                if let Some(position) = &step.settled_to {
                    advance(conn, UNACCOUNTED, position, total)?;
                }
                Ok(())
            })
            .await?;
        }
        Ok(total.saturating_add(step.young))
    }

    /// Operations that no log explains: without a delivery, or completed or in review after a create without an attempt.
    pub async fn unexplained(&self) -> Result<i64, StoreError> {
        let mut total = 0_i64;
        let mut from = String::new();
        loop {
            let (found, next) = self.read(move |conn| Ok(unexplained(conn, &from)?)).await?;
            total = total.saturating_add(found);
            match next {
                Some(next) => from = next,
                None => return Ok(total),
            }
        }
    }
}

fn census(conn: &mut AnyConn) -> Result<Census, Failure> {
    let by_state: Vec<(String, i64)> =
        operations::table.group_by(operations::state).select((operations::state, count_star())).load(conn)?;
    let mut census = Census::default();
    for (name, count) in by_state {
        let state =
            codec::named(&State::ALL, |s| s.as_str(), Some(&name), "state").map_err(StoreError::Inconsistent)?;
        census.states.push((state, count));
    }
    let in_review = operations::table.filter(operations::state.eq(State::NeedsReview.as_str()));
    let reviews: Vec<(Option<String>, i64)> = in_review
        .group_by(operations::reason)
        .order(operations::reason)
        .select((operations::reason, count_star()))
        .load(conn)?;
    census.reviews = reviews.into_iter().filter_map(|(reason, count)| Some((reason?, count))).collect();
    for state in [State::Received, State::InProgress] {
        // Ids order by the time of reception.
        let oldest: Option<i64> = operations::table
            .filter(operations::state.eq(state.as_str()))
            .order(operations::operation_id)
            .select(operations::received_at)
            .first(conn)
            .optional()?;
        census.oldest.extend(oldest.map(|at| (state, At::from_micros(at))));
    }
    let open: Vec<(String, String, i64)> = operations::table
        .filter(operations::state.eq_any([State::Received.as_str(), State::InProgress.as_str()]))
        .group_by((operations::destination, operations::state))
        .order(operations::destination)
        .select((operations::destination, operations::state, count_star()))
        .load(conn)?;
    for (name, state, count) in open {
        let name =
            DestinationName::try_from(name).map_err(|e| StoreError::Inconsistent(format!("destination: {e}")))?;
        if census.destinations.last().is_none_or(|(last, _, _)| *last != name) {
            census.destinations.push((name, 0, 0));
        }
        if let Some((_, waiting, in_progress)) = census.destinations.last_mut() {
            if state == State::Received.as_str() { *waiting = count } else { *in_progress = count }
        }
    }
    Ok(census)
}

/// How far a reader has come, and what it found so far.
pub(super) fn cursor(conn: &mut AnyConn, name: &str) -> QueryResult<(String, i64)> {
    let found = cursors::table.find(name).select((cursors::position, cursors::found)).get_result(conn).optional()?;
    Ok(found.unwrap_or_default())
}

/// Moves a reader on, never back.
pub(super) fn advance(conn: &mut AnyConn, name: &str, position: &str, found: i64) -> QueryResult<()> {
    let row = (cursors::name.eq(name), cursors::position.eq(position), cursors::found.eq(found));
    on_each!(conn, |c| diesel::insert_into(cursors::table).values(row).on_conflict_do_nothing().execute(c))?;
    diesel::update(cursors::table.find(name).filter(cursors::position.lt(position)))
        .set((cursors::position.eq(position), cursors::found.eq(found)))
        .execute(conn)
        .map(drop)
}

struct Look {
    /// Found in rows that no late commit can join any more.
    settled: i64,
    /// Up to here.
    settled_to: Option<String>,
    /// Found behind that.
    young: i64,
}

fn look_for_unaccounted(conn: &mut AnyConn, position: &str) -> Result<Option<Look>, Failure> {
    let newer = deliveries::table.filter(deliveries::delivery_id.gt(position));
    let newest: Option<String> = newer.select(max(deliveries::delivery_id)).get_result(conn)?;
    let Some(newest) = newest else { return Ok(None) };
    let chunk: Option<String> = newer
        .order(deliveries::delivery_id)
        .select(deliveries::delivery_id)
        .offset(AT_ONCE)
        .limit(1)
        .first(conn)
        .optional()?;
    let settled = before(&newest, STILL_COMING)?;
    let settled = chunk.as_ref().map_or(settled.clone(), |chunk| chunk.min(&settled).clone());
    let lost = |from: &str, to: &str| {
        deliveries::table
            .filter(deliveries::delivery_id.gt(from.to_owned()))
            .filter(deliveries::delivery_id.le(to.to_owned()))
            .filter(deliveries::verdict.eq_any(["new", "conflict"]))
            .filter(not(exists(
                operations::table.filter(operations::operation_id.nullable().eq(deliveries::operation_id)),
            )))
            .count()
    };
    if settled.as_str() <= position {
        let young = lost(position, &newest).get_result(conn)?;
        return Ok(Some(Look { settled: 0, settled_to: None, young }));
    }
    let old = lost(position, &settled).get_result(conn)?;
    let young = if chunk.is_some() { 0 } else { lost(&settled, &newest).get_result(conn)? };
    Ok(Some(Look { settled: old, settled_to: Some(settled), young }))
}

/// The least UUIDv7 made so many milliseconds before the given one.
fn before(id: &str, millis: u64) -> Result<String, StoreError> {
    let id = codec::uuid(id).map_err(|e| StoreError::Inconsistent(format!("delivery: {e}")))?;
    let (seconds, nanos) = id.get_timestamp().map_or((0, 0), |t| t.to_unix());
    let at = seconds.saturating_mul(1_000).saturating_add(u64::from(nanos) / 1_000_000).saturating_sub(millis);
    let least: Uuid = uuid::Builder::from_unix_timestamp_millis(at, &[0; 10]).into_uuid();
    Ok(least.hyphenated().to_string())
}

/// Counts among the operations after `from`; and where to go on.
fn unexplained(conn: &mut AnyConn, from: &str) -> QueryResult<(i64, Option<String>)> {
    let rest = operations::table.filter(operations::operation_id.gt(from));
    let next: Option<String> = rest
        .order(operations::operation_id)
        .select(operations::operation_id)
        .offset(AT_ONCE)
        .limit(1)
        .first(conn)
        .optional()?;
    let mut chunk = rest.into_boxed();
    if let Some(next) = &next {
        chunk = chunk.filter(operations::operation_id.le(next.clone()));
    }
    let logged = exists(deliveries::table.filter(deliveries::operation_id.eq(operations::operation_id.nullable())));
    let sent = exists(attempts::table.filter(attempts::operation_id.eq(operations::operation_id)));
    let decided = exists(
        audit::table
            .filter(audit::operation_id.eq(operations::operation_id.nullable()))
            .filter(audit::action.eq("complete")),
    );
    let completed = operations::state.eq(State::Completed.as_str());
    let reviewed = operations::state.eq(State::NeedsReview.as_str()).and(operations::attempts.gt(0));
    let found = chunk
        .filter(not(logged).or(completed.and(not(sent)).and(not(decided))).or(reviewed.and(not(sent))))
        .count()
        .get_result(conn)?;
    Ok((found, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_for_late_commits_is_measured_in_the_ids_own_time() {
        let id = uuid::Builder::from_unix_timestamp_millis(1_800_000_060_000, &[0xff; 10]).into_uuid().to_string();
        let earlier = before(&id, STILL_COMING).expect("a version 7");
        assert!(earlier < id);
        let parsed = codec::uuid(&earlier).expect("a uuid").get_timestamp().expect("a time").to_unix();
        assert_eq!(parsed, (1_800_000_000, 0));
    }
}

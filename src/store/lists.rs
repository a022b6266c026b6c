//! Lists and stories: what the admin API and the console show.

use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::Text;

use super::codec::{self, clean};
use super::conn::AnyConn;
use super::failure::Failure;
use super::readers::Reader;
use super::reading;
use super::rows::{DeliveryRow, OperationRow};
use super::schema::{attempts, audit, deliveries, operations, transitions};
use super::types::{Audit, Filter, StoreError, StoredAttempt, StoredTransition, Story};
use super::{Store, activity, rows};
use crate::clock::At;
use crate::operation::{Operation, OperationId};

impl Store {
    /// Operations of a filter, newest first unless it says otherwise.
    pub async fn list(&self, filter: Filter) -> Result<Vec<Operation>, StoreError> {
        self.read_for(Reader::Admin, move |conn| list(conn, &filter, None)).await
    }

    /// The same, looking at no more than about `most` operations: with what it found, the place from which to look further where
    /// the page did not get full by then. However rare the wanted ones are, a page costs the same.
    pub async fn page(&self, filter: Filter, most: usize) -> Result<(Vec<Operation>, Option<OperationId>), StoreError> {
        self.read_for(Reader::Admin, move |conn| {
            let end = walks(conn, &filter)?.then(|| last_of(conn, &filter, most)).transpose()?.flatten();
            let found = list(conn, &filter, end.as_ref())?;
            let further = end.filter(|_| found.len() < filter.limit);
            Ok((found, further.map(|end| rows::operation_id(&end)).transpose()?))
        })
        .await
    }

    /// Everything about one operation.
    pub async fn story(&self, id: OperationId) -> Result<Option<Story>, StoreError> {
        self.read_for(Reader::Admin, move |conn| story(conn, id)).await
    }
}

type Query<'a> = operations::BoxedQuery<'a, <AnyConn as Connection>::Backend>;

fn list(conn: &mut AnyConn, filter: &Filter, end: Option<&String>) -> Result<Vec<Operation>, Failure> {
    let mut query = indexed(filter);
    if let Some(source) = &filter.source {
        // Those of a rare source lie far apart: they are picked out by the index of keys, not looked for among all. Those of
        // another are met on a walk along the ids, which no index of sources must replace: it would have them all sorted.
        query = match few_of(conn, &clean(source))? {
            Some(few) => query.filter(operations::operation_id.eq_any(few)),
            None => query.filter(operations::source.concat("").eq(clean(source))),
        };
    }
    if let Some(destination) = &filter.destination {
        query = query.filter(operations::destination.eq(clean(destination)));
    }
    if let Some(q) = &filter.q {
        query = query.filter(operations::operation_id.eq_any(ids_of(conn, q)?));
    }
    if let Some(end) = end.cloned() {
        query = if filter.oldest_first {
            query.filter(operations::operation_id.le(end))
        } else {
            query.filter(operations::operation_id.ge(end))
        };
    }
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    let rows: Vec<OperationRow> = query.limit(limit).select(OperationRow::as_select()).load(conn)?;
    Ok(rows.into_iter().map(Operation::try_from).collect::<Result<_, _>>()?)
}

/// What an index finds in the order of the list.
fn indexed(filter: &Filter) -> Query<'static> {
    let mut query = operations::table.into_boxed();
    if let Some(state) = filter.state {
        query = query.filter(operations::state.eq(state.as_str()));
    }
    if let Some(reason) = &filter.reason {
        query = query.filter(operations::reason.eq(clean(reason)));
    }
    // An id is made at reception and begins with its time: with some room, it bounds the walk along the ids.
    if let Some(after) = filter.received_after {
        query = query.filter(operations::received_at.ge(after.micros()));
        query = query.filter(operations::operation_id.ge(activity::first_id(after.minus(SLACK))));
    }
    if let Some(before) = filter.received_before {
        query = query.filter(operations::received_at.lt(before.micros()));
        query = query.filter(operations::operation_id.lt(activity::first_id(before.plus(SLACK))));
    }
    if let Some(after) = filter.after {
        query = if filter.oldest_first {
            query.filter(operations::operation_id.gt(after.to_string()))
        } else {
            query.filter(operations::operation_id.lt(after.to_string()))
        };
    }
    if filter.oldest_first {
        query.order(operations::operation_id.asc())
    } else {
        query.order(operations::operation_id.desc())
    }
}

/// Whether the list looks at operations that it does not show, as long as it is not full.
fn walks(conn: &mut AnyConn, filter: &Filter) -> QueryResult<bool> {
    if filter.q.is_some() {
        return Ok(false);
    }
    match &filter.source {
        Some(source) => Ok(few_of(conn, &clean(source))?.is_none()),
        None => Ok(filter.destination.is_some()),
    }
}

/// The last of the first so many that an index finds; `None` where there are no more.
fn last_of(conn: &mut AnyConn, filter: &Filter, most: usize) -> QueryResult<Option<String>> {
    let before = i64::try_from(most.max(1) - 1).unwrap_or(i64::MAX);
    indexed(filter).select(operations::operation_id).offset(before).limit(1).first(conn).optional()
}

/// A source with no more operations than this is rare.
const FEW: i64 = 2_000;
/// How far the clocks that made an id and noted a reception may be apart.
const SLACK: Duration = Duration::from_secs(3_600);

/// The operations of a source that has few; `None` where it has many.
fn few_of(conn: &mut AnyConn, source: &str) -> QueryResult<Option<Vec<String>>> {
    let own = operations::table.filter(operations::source.eq(source)).select(operations::operation_id);
    let ids: Vec<String> = own.limit(FEW + 1).load(conn)?;
    Ok((i64::try_from(ids.len()).unwrap_or(i64::MAX) <= FEW).then_some(ids))
}

/// Operations whose id, key or entity is exactly that text. A key is indexed below its source, so it is looked for under each.
fn ids_of(conn: &mut AnyConn, q: &str) -> QueryResult<Vec<String>> {
    let text = clean(q);
    let sources = sources(conn)?;
    operations::table
        .filter(
            operations::operation_id
                .eq(text.to_lowercase())
                .or(operations::crm_id.eq(&text))
                .or(operations::source.eq_any(sources).and(operations::source_key.eq(q.as_bytes()))),
        )
        .select(operations::operation_id)
        .load(conn)
}

#[derive(QueryableByName)]
struct Source {
    #[diesel(sql_type = Text)]
    source: String,
}

/// The names of all sources, by one step through the index per name instead of a walk over all rows.
fn sources(conn: &mut AnyConn) -> QueryResult<Vec<String>> {
    let steps = "WITH RECURSIVE step (source) AS (SELECT min(source) FROM operations UNION ALL \
         SELECT (SELECT min(operations.source) FROM operations WHERE operations.source > step.source) \
         FROM step WHERE step.source IS NOT NULL) SELECT source FROM step WHERE source IS NOT NULL";
    let found: Vec<Source> = diesel::sql_query(steps).load(conn)?;
    Ok(found.into_iter().map(|row| row.source).collect())
}

/// So many deliveries of one operation are shown, the first ones: a sender that repeats for ever must not fill the memory.
const MOST_DELIVERIES: i64 = 100;

fn story(conn: &mut AnyConn, id: OperationId) -> Result<Option<Story>, Failure> {
    let Some(operation) = reading::operation(conn, id)? else { return Ok(None) };
    let key = id.to_string();
    let logged: Vec<DeliveryRow> = deliveries::table
        .filter(deliveries::operation_id.eq(&key))
        .order((deliveries::received_at, deliveries::delivery_id, deliveries::event_index))
        .limit(MOST_DELIVERIES)
        .select(DeliveryRow::as_select())
        .load(conn)?;
    let deliveries = logged.into_iter().map(|row| reading::with_body(conn, row)).collect::<Result<_, _>>()?;
    let conflicts: Vec<String> = operations::table
        .filter(operations::conflicts_with.eq(&key))
        .order(operations::operation_id)
        .select(operations::operation_id)
        .load(conn)?;
    Ok(Some(Story {
        deliveries,
        attempts: attempts_of(conn, &key)?,
        transitions: transitions_of(conn, &key)?,
        audit: audit_of(conn, id)?,
        edited_lead: reading::edited_lead(conn, id)?,
        conflicts: conflicts.iter().map(|id| rows::operation_id(id)).collect::<Result<_, _>>()?,
        operation,
    }))
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = attempts)]
struct AttemptRow {
    attempt_id: String,
    call: String,
    number: i64,
    step: i32,
    epoch: i64,
    licence: Option<String>,
    started_at: i64,
    ended_at: Option<i64>,
    class: Option<String>,
    status: Option<i32>,
    excerpt: Option<String>,
    decision: Option<String>,
    mapping_version: String,
    request: Option<String>,
}

impl TryFrom<AttemptRow> for StoredAttempt {
    type Error = StoreError;

    fn try_from(row: AttemptRow) -> Result<Self, StoreError> {
        let impossible = |what: String| StoreError::Inconsistent(format!("attempt {}: {what}", row.attempt_id));
        let small = |value: i32| u16::try_from(value).map_err(|_| impossible(format!("{value} is out of range")));
        Ok(Self {
            id: codec::uuid(&row.attempt_id).map_err(impossible)?,
            number: u32::try_from(row.number).map_err(|_| impossible(format!("number {}", row.number)))?,
            step: small(row.step)?,
            status: row.status.map(small).transpose()?,
            call: row.call,
            epoch: row.epoch,
            licence: row.licence,
            started_at: At::from_micros(row.started_at),
            ended_at: row.ended_at.map(At::from_micros),
            class: row.class,
            excerpt: row.excerpt,
            decision: row.decision,
            mapping_version: row.mapping_version,
            request: row.request,
        })
    }
}

fn attempts_of(conn: &mut AnyConn, operation: &str) -> Result<Vec<StoredAttempt>, Failure> {
    let found: Vec<AttemptRow> = attempts::table
        .filter(attempts::operation_id.eq(operation))
        .order((attempts::started_at, attempts::attempt_id))
        .select(AttemptRow::as_select())
        .load(conn)?;
    Ok(found.into_iter().map(StoredAttempt::try_from).collect::<Result<_, _>>()?)
}

fn transitions_of(conn: &mut AnyConn, operation: &str) -> Result<Vec<StoredTransition>, Failure> {
    type Found = (i64, Option<String>, String, Option<String>, String, i64);
    let found: Vec<Found> = transitions::table
        .filter(transitions::operation_id.eq(operation))
        .order(transitions::version)
        .select((
            transitions::version,
            transitions::from_state,
            transitions::to_state,
            transitions::reason,
            transitions::event,
            transitions::at,
        ))
        .load(conn)?;
    let read = |(version, from, to, reason, event, at): Found| StoredTransition {
        version,
        from,
        to,
        reason,
        event,
        at: At::from_micros(at),
    };
    Ok(found.into_iter().map(read).collect())
}

fn audit_of(conn: &mut AnyConn, id: OperationId) -> Result<Vec<Audit>, Failure> {
    type Found = (String, i64, String, Option<String>, Option<String>, Option<String>, Option<String>);
    let found: Vec<Found> = audit::table
        .filter(audit::operation_id.eq(id.to_string()))
        .order(audit::seq)
        .select((
            audit::actor,
            audit::at,
            audit::action,
            audit::subject,
            audit::from_state,
            audit::to_state,
            audit::note,
        ))
        .load(conn)?;
    let read = |(actor, at, action, subject, from, to, note): Found| Audit {
        actor,
        at: At::from_micros(at),
        action,
        operation_id: Some(id),
        subject,
        from,
        to,
        note,
    };
    Ok(found.into_iter().map(read).collect())
}

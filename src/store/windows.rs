//! Windows: events without a key are the same submission while equal content of the same source is young (contract 3).
//!
//! A window runs from its first delivery, is never extended, and is claimed by one upsert that writes only where the stored
//! window has ended. At its very end it has ended.

use std::collections::{BTreeMap, HashSet, VecDeque};

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Binary, Text};
use diesel::sqlite::Sqlite;

use super::conn::{AnyConn, on_each};
use super::failure::Failure;
use super::rows;
use super::schema::windows;
use crate::clock::At;
use crate::operation::OperationId;

/// An event that claims a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim<'a> {
    /// Scope.
    pub(super) source: &'a str,
    /// The content.
    pub(super) payload_hash: &'a [u8],
    /// The operation it would make.
    pub(super) operation: OperationId,
    /// When it came.
    pub(super) starts_at: At,
    /// When its window would end.
    pub(super) ends_at: At,
}

/// Claims the windows; for each event, in the given order, the operation that owns its window: its own, or another's.
///
/// Equal content within one batch is folded: one upsert per content and round, and what falls into the window that stands
/// after it belongs to its owner.
pub(super) fn owners(conn: &mut AnyConn, claims: &[Claim<'_>]) -> Result<Vec<OperationId>, Failure> {
    let mut owners: Vec<OperationId> = claims.iter().map(|claim| claim.operation).collect();
    let mut waiting: BTreeMap<(&str, &[u8]), VecDeque<usize>> = BTreeMap::new();
    for (place, claim) in claims.iter().enumerate() {
        waiting.entry((claim.source, claim.payload_hash)).or_default().push_back(place);
    }
    while !waiting.is_empty() {
        // In the order of the map, so that two nodes lock their rows in one order.
        let first: Vec<usize> = waiting.values().filter_map(|places| places.front().copied()).collect();
        let candidates: Vec<Claim<'_>> = first.iter().filter_map(|place| claims.get(*place).copied()).collect();
        let written = upsert(conn, &candidates)?;
        for claim in candidates {
            let (owner, ends_at) = if written.contains(&claim.operation.to_string()) {
                (claim.operation, claim.ends_at)
            } else {
                stored(conn, &claim)?
            };
            let Some(places) = waiting.get_mut(&(claim.source, claim.payload_hash)) else { continue };
            let mut of_this_window = true;
            while let Some(place) = places.front().copied() {
                // The claim that was just made belongs to the outcome whatever its time says.
                let is_candidate = claims.get(place).is_some_and(|c| c.operation == claim.operation);
                of_this_window &= is_candidate || claims.get(place).is_some_and(|c| c.starts_at < ends_at);
                if !of_this_window {
                    break;
                }
                if let Some(slot) = owners.get_mut(place) {
                    *slot = owner;
                }
                places.pop_front();
            }
        }
        waiting.retain(|_, places| !places.is_empty());
    }
    Ok(owners)
}

/// The window that stands in the way of a claim.
fn stored(conn: &mut AnyConn, claim: &Claim<'_>) -> Result<(OperationId, At), Failure> {
    let (operation, ends_at): (String, i64) = on_each!(conn, |c| windows::table
        .filter(windows::source.eq(claim.source))
        .filter(windows::payload_hash.eq(claim.payload_hash))
        .select((windows::operation_id, windows::ends_at))
        .get_result(c))?;
    Ok((rows::operation_id(&operation)?, At::from_micros(ends_at)))
}

/// Writes the windows whose predecessor has ended; the operations of those that were written.
fn upsert(conn: &mut AnyConn, claims: &[Claim<'_>]) -> QueryResult<HashSet<String>> {
    match conn {
        AnyConn::Postgres(conn) => Upsert::new(claims).get_results::<String>(conn).map(HashSet::from_iter),
        AnyConn::Sqlite(conn) => {
            let mut written = HashSet::new();
            for claim in claims {
                if Upsert::new(std::slice::from_ref(claim)).execute(conn)? == 1 {
                    written.insert(claim.operation.to_string());
                }
            }
            Ok(written)
        }
    }
}

/// The upsert, with a text that never changes, so that it is parsed once per connection.
struct Upsert<'a> {
    sources: Vec<&'a str>,
    hashes: Vec<&'a [u8]>,
    operations: Vec<String>,
    starts: Vec<i64>,
    ends: Vec<i64>,
}

const INSERT: &str = "INSERT INTO windows (source, payload_hash, operation_id, starts_at, ends_at) ";
const OR_REPLACE: &str = " ON CONFLICT (source, payload_hash) DO UPDATE SET operation_id = excluded.operation_id, \
     starts_at = excluded.starts_at, ends_at = excluded.ends_at WHERE windows.ends_at <= excluded.starts_at";

impl<'a> Upsert<'a> {
    fn new(claims: &[Claim<'a>]) -> Self {
        Self {
            sources: claims.iter().map(|claim| claim.source).collect(),
            hashes: claims.iter().map(|claim| claim.payload_hash).collect(),
            operations: claims.iter().map(|claim| claim.operation.to_string()).collect(),
            starts: claims.iter().map(|claim| claim.starts_at.micros()).collect(),
            ends: claims.iter().map(|claim| claim.ends_at.micros()).collect(),
        }
    }
}

impl QueryFragment<Pg> for Upsert<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(INSERT);
        out.push_sql("SELECT * FROM unnest(");
        out.push_bind_param::<Array<Text>, _>(&self.sources)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Binary>, _>(&self.hashes)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Text>, _>(&self.operations)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<BigInt>, _>(&self.starts)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<BigInt>, _>(&self.ends)?;
        out.push_sql(")");
        out.push_sql(OR_REPLACE);
        out.push_sql(" RETURNING operation_id");
        Ok(())
    }
}

/// One row at a time.
impl QueryFragment<Sqlite> for Upsert<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        let row = (
            self.sources.first(),
            self.hashes.first(),
            self.operations.first(),
            self.starts.first(),
            self.ends.first(),
        );
        let (Some(source), Some(hash), Some(operation), Some(starts), Some(ends)) = row else {
            return Err(diesel::result::Error::QueryBuilderError("a window without a row".into()));
        };
        out.push_sql(INSERT);
        out.push_sql("VALUES (");
        out.push_bind_param::<Text, _>(source)?;
        out.push_sql(", ");
        out.push_bind_param::<Binary, _>(hash)?;
        out.push_sql(", ");
        out.push_bind_param::<Text, _>(operation)?;
        out.push_sql(", ");
        out.push_bind_param::<BigInt, _>(starts)?;
        out.push_sql(", ");
        out.push_bind_param::<BigInt, _>(ends)?;
        out.push_sql(")");
        out.push_sql(OR_REPLACE);
        Ok(())
    }
}

impl QueryId for Upsert<'_> {
    type QueryId = Upsert<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Upsert<'_> {
    type SqlType = Text;
}

impl<C> RunQueryDsl<C> for Upsert<'_> {}

//! Partitions of a rate: the call budget of a CRM account lies in the store, and nodes lease parts of it.
//!
//! Here they are only kept. Who gets what is decided by a pure function that is handed in (`delivery/leases.rs`), under the
//! lock of all rows of the group, so that two nodes cannot decide on the same state.

use diesel::prelude::*;

use super::Store;
use super::conn::{AnyConn, on_each};
use super::failure::Failure;
use super::schema::rate_partitions as table;
use super::types::{RatePartition, StoreError};
use crate::clock::At;

#[derive(Queryable)]
struct Row {
    number: i32,
    holder: Option<String>,
    leased_until: i64,
    full_at: i64,
    asked_by: Option<String>,
    asked_until: i64,
}

impl From<Row> for RatePartition {
    fn from(row: Row) -> Self {
        Self {
            number: row.number.unsigned_abs(),
            holder: row.holder,
            leased_until: At::from_micros(row.leased_until),
            full_at: At::from_micros(row.full_at),
            asked_by: row.asked_by,
            asked_until: At::from_micros(row.asked_until),
        }
    }
}

fn stored(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The partitions below `count`, locked in their order until the transaction ends.
fn locked(conn: &mut AnyConn, group: &str, count: u32) -> Result<Vec<RatePartition>, Failure> {
    let of_group = table::table
        .filter(table::rate_group.eq(group))
        .filter(table::number.lt(stored(count)))
        .order(table::number)
        .select((
            table::number,
            table::holder,
            table::leased_until,
            table::full_at,
            table::asked_by,
            table::asked_until,
        ));
    let rows: Vec<Row> = match conn {
        AnyConn::Postgres(conn) => of_group.for_no_key_update().load(conn)?,
        // The transaction holds the only write lock.
        AnyConn::Sqlite(conn) => of_group.load(conn)?,
    };
    Ok(rows.into_iter().map(RatePartition::from).collect())
}

fn make_missing(conn: &mut AnyConn, group: &str, count: u32) -> Result<(), Failure> {
    for number in 0..count {
        let row = (
            table::rate_group.eq(group),
            table::number.eq(stored(number)),
            table::leased_until.eq(0),
            table::full_at.eq(0),
            table::asked_until.eq(0),
        );
        on_each!(conn, |c| diesel::insert_into(table::table).values(row).on_conflict_do_nothing().execute(c))?;
    }
    Ok(())
}

fn write(conn: &mut AnyConn, group: &str, partition: &RatePartition) -> Result<(), Failure> {
    diesel::update(table::table.find((group, stored(partition.number))))
        .set((
            table::holder.eq(&partition.holder),
            table::leased_until.eq(partition.leased_until.micros()),
            table::full_at.eq(partition.full_at.micros()),
            table::asked_by.eq(&partition.asked_by),
            table::asked_until.eq(partition.asked_until.micros()),
        ))
        .execute(conn)?;
    Ok(())
}

impl Store {
    /// Changes the first `count` partitions of a group, all at once, and gives them back as they then are. What the function
    /// leaves as it was is not written.
    pub async fn rate_partitions(
        &self,
        group: String,
        count: u32,
        change: impl Fn(&mut [RatePartition]) + Send + 'static,
    ) -> Result<Vec<RatePartition>, StoreError> {
        self.write(move |conn, _| {
            let mut before = locked(conn, &group, count)?;
            if before.len() < usize::try_from(count).unwrap_or(usize::MAX) {
                make_missing(conn, &group, count)?;
                before = locked(conn, &group, count)?;
            }
            let mut after = before.clone();
            change(&mut after);
            for (_, new) in before.iter().zip(&after).filter(|(old, new)| old != new) {
                write(conn, &group, new)?;
            }
            Ok(after)
        })
        .await
    }
}

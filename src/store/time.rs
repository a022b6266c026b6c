//! The database's clock: the one time by which all nodes of a store judge leases, due times and windows.

use std::sync::Arc;

use diesel::prelude::*;

use super::Store;
use super::conn::AnyConn;
use super::types::StoreError;
use crate::clock::{At, Clock, Reading};

/// How often it is asked in a row: of several answers the quickest says most.
const ASKED: usize = 4;

impl Store {
    /// Reads the database's clock; `None` on SQLite, where it is this machine's. `clock`: measures how long the answer takes.
    pub async fn read_clock(&self, clock: Arc<dyn Clock>) -> Result<Option<Reading>, StoreError> {
        if self.address.file().is_some() {
            return Ok(None);
        }
        self.read(move |conn| {
            let mut quickest: Option<Reading> = None;
            for _ in 0..ASKED {
                let asked = clock.monotonic();
                let at = read(conn)?;
                let reading = Reading { at, asked, answered: clock.monotonic() };
                quickest = quickest.into_iter().chain([reading]).min_by_key(|reading| reading.error());
            }
            Ok(quickest)
        })
        .await
    }
}

fn read(conn: &mut AnyConn) -> QueryResult<At> {
    // The time of the statement, not of a transaction.
    let micros = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";
    diesel::select(diesel::dsl::sql::<diesel::sql_types::BigInt>(micros)).get_result(conn).map(At::from_micros)
}

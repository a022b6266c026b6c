//! What happened in the last hours, counted: for the overview.
//!
//! Both counts walk over the ids of that time, which begin with it (UUIDv7), and over nothing older.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

use super::Store;
use super::codec;
use super::conn::AnyConn;
use super::failure::Failure;
use super::readers::Reader;
use super::types::{Activity, Arrived, Began, StoreError, Verdict};
use crate::clock::At;
use crate::operation::State;

const HOUR: i64 = 3_600_000_000;

#[derive(QueryableByName)]
struct ArrivedRow {
    #[diesel(sql_type = BigInt)]
    hour: i64,
    #[diesel(sql_type = Text)]
    source: String,
    #[diesel(sql_type = Text)]
    verdict: String,
    #[diesel(sql_type = BigInt)]
    count: i64,
}

#[derive(QueryableByName)]
struct BeganRow {
    #[diesel(sql_type = BigInt)]
    hour: i64,
    #[diesel(sql_type = Text)]
    destination: String,
    #[diesel(sql_type = Text)]
    state: String,
    #[diesel(sql_type = BigInt)]
    count: i64,
}

impl Store {
    /// Deliveries and operations since then, by the hour.
    pub async fn activity(&self, since: At) -> Result<Activity, StoreError> {
        self.read_for(Reader::Admin, move |conn| activity(conn, since)).await
    }
}

fn activity(conn: &mut AnyConn, since: At) -> Result<Activity, Failure> {
    let first = first_id(since);
    let arrived: Vec<ArrivedRow> = diesel::sql_query(format!(
        "SELECT received_at / {HOUR} AS hour, source, verdict, count(*) AS count FROM deliveries \
         WHERE delivery_id >= '{first}' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    ))
    .load(conn)?;
    let began: Vec<BeganRow> = diesel::sql_query(format!(
        "SELECT received_at / {HOUR} AS hour, destination, state, count(*) AS count FROM operations \
         WHERE operation_id >= '{first}' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    ))
    .load(conn)?;
    let hour = |hour: i64| At::from_micros(hour.saturating_mul(HOUR));
    let arrived = arrived.into_iter().map(|row| {
        let verdict = codec::named(&Verdict::ALL, |v| v.as_str(), Some(&row.verdict), "verdict")?;
        Ok(Arrived { hour: hour(row.hour), source: row.source, verdict, count: row.count })
    });
    let began = began.into_iter().map(|row| {
        let state = codec::named(&State::ALL, |s| s.as_str(), Some(&row.state), "state")?;
        Ok(Began { hour: hour(row.hour), destination: row.destination, state, count: row.count })
    });
    let read = || -> Result<Activity, String> {
        Ok(Activity { arrived: arrived.collect::<Result<_, String>>()?, began: began.collect::<Result<_, String>>()? })
    };
    Ok(read().map_err(StoreError::Inconsistent)?)
}

/// The least UUIDv7 of that millisecond.
pub(super) fn first_id(at: At) -> String {
    let millis = u64::try_from(at.micros() / 1_000).unwrap_or(0);
    format!("{:08x}-{:04x}-7000-8000-000000000000", (millis >> 16) & 0xffff_ffff, millis & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Entropy, uuid_v7};

    #[derive(Debug)]
    struct Zeros;

    impl Entropy for Zeros {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }

    #[test]
    fn the_first_id_of_a_moment_is_not_above_any_id_made_then() {
        let at = At::from_micros(1_796_119_200_123_000);
        assert!(first_id(at) <= uuid_v7(at, &Zeros).to_string());
        assert!(
            first_id(at) > uuid_v7(At::from_micros(1_796_119_200_122_999), &crate::clock::SystemEntropy).to_string()
        );
    }
}

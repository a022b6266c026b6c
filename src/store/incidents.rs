//! Incidents: what a person is told once at its start and once at its end.

use diesel::prelude::*;
use uuid::Uuid;

use super::Store;
use super::codec::{self, clean};
use super::conn::on_each;
use super::schema::incidents;
use super::types::{Incident, StoreError};
use sha2::{Digest, Sha256};

use crate::clock::At;

#[derive(Queryable, Selectable)]
#[diesel(table_name = incidents)]
struct IncidentRow {
    incident_id: String,
    key: String,
    text: String,
    opened_at: i64,
    closed_at: Option<i64>,
    told_start: bool,
    told_end: bool,
}

impl TryFrom<IncidentRow> for Incident {
    type Error = StoreError;

    fn try_from(row: IncidentRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: codec::uuid(&row.incident_id).map_err(|e| StoreError::Inconsistent(format!("incident: {e}")))?,
            key: row.key,
            text: row.text,
            opened_at: At::from_micros(row.opened_at),
            closed_at: row.closed_at.map(At::from_micros),
            told_start: row.told_start,
            told_end: row.told_end,
        })
    }
}

/// The id of the incident of a key that opens then, so many having been closed before. The same write, done again after a lost
/// commit, has the same id.
fn incident_id(key: &str, at: At, closed: i64) -> Uuid {
    let digest = Sha256::digest(format!("leadonce/incident/1/{}/{closed}/{key}", at.micros()));
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(digest) {
        *to = from;
    }
    Uuid::new_v8(bytes)
}

impl Store {
    /// Opens an incident; whether it is new (at most one is open per key).
    pub async fn open_incident(&self, key: String, text: String, at: At) -> Result<bool, StoreError> {
        let (key, text) = (clean(&key), clean(&text));
        self.write(move |conn, again| {
            let of_key = incidents::table.filter(incidents::key.eq(&key));
            let closed = of_key.filter(incidents::closed_at.is_not_null()).count().get_result(conn)?;
            let id = incident_id(&key, at, closed).to_string();
            let row = (
                incidents::incident_id.eq(&id),
                incidents::key.eq(&key),
                incidents::text.eq(&text),
                incidents::opened_at.eq(at.micros()),
                incidents::told_start.eq(false),
                incidents::told_end.eq(false),
            );
            let opened = on_each!(conn, |c| diesel::insert_into(incidents::table)
                .values(row)
                .on_conflict_do_nothing()
                .execute(c))?;
            if opened == 0 && again {
                return Ok(diesel::select(diesel::dsl::exists(incidents::table.find(&id))).get_result(conn)?);
            }
            Ok(opened == 1)
        })
        .await
    }

    /// Closes it; whether it was open.
    pub async fn close_incident(&self, key: String, at: At) -> Result<bool, StoreError> {
        let key = clean(&key);
        self.write(move |conn, again| {
            let of_key = incidents::table.filter(incidents::key.eq(&key));
            let closed = diesel::update(of_key.filter(incidents::closed_at.is_null()))
                .set(incidents::closed_at.eq(at.micros()))
                .execute(conn)?;
            if closed == 0 && again {
                let own = of_key.filter(incidents::closed_at.eq(at.micros()));
                return Ok(diesel::select(diesel::dsl::exists(own)).get_result(conn)?);
            }
            Ok(closed > 0)
        })
        .await
    }

    /// Incidents whose start or end is not told yet, oldest first; and those that are open.
    pub async fn incidents(&self) -> Result<Vec<Incident>, StoreError> {
        self.read(|conn| {
            let rows: Vec<IncidentRow> = incidents::table
                .filter(
                    incidents::told_start
                        .eq(false)
                        .or(incidents::told_end.eq(false)) // also every open one: its end cannot be told yet
                        .or(incidents::closed_at.is_null()),
                )
                .order((incidents::opened_at, incidents::incident_id))
                .select(IncidentRow::as_select())
                .load(conn)?;
            Ok(rows.into_iter().map(Incident::try_from).collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Marks the start (or the end) as told.
    pub async fn told(&self, id: Uuid, end: bool) -> Result<(), StoreError> {
        let id = id.to_string();
        self.write(move |conn, _| {
            let incident = incidents::table.find(&id);
            let update = if end {
                diesel::update(incident).set(incidents::told_end.eq(true)).execute(conn)
            } else {
                diesel::update(incident).set(incidents::told_start.eq(true)).execute(conn)
            };
            update.map(drop).map_err(Into::into)
        })
        .await
    }
}

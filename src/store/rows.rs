//! Rows: how operations, deliveries and state changes lie in their tables, and the one place that turns a row into a domain
//! value. A row that cannot be a valid value is an error with its id, never a default.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Binary, Integer, Nullable, Text};
use diesel::sqlite::Sqlite;
use uuid::Uuid;

use super::codec::{self, clean};
use super::schema::{attempts, deliveries, operations, transitions};
use super::types::{AttemptEnd, NewAttempt, NewDelivery, StoreError, StoredDelivery, Verdict};
use crate::clock::At;
use crate::operation::{
    CrmId, FailReason, HashRule, KeyOrigin, Lease, Licence, Operation, OperationId, PayloadHash, ReviewReason,
    SourceKey, State, Status, Variant,
};

/// `a, b, c`.
macro_rules! column_list {
    ($first:ident $(, $more:ident)*) => { concat!(stringify!($first) $(, ", ", stringify!($more))*) };
}
pub(super) use column_list;

/// A table that grows with each lead: the row, which SQLite inserts by itself, and the same rows column by column, which PostgreSQL
/// inserts as one statement of arrays (1.4 times as fast as multi-row VALUES there, 7 times as fast as single rows). The text of
/// either statement never changes and is made once: diesel's own insert makes it anew for each row, to look it up in its cache.
macro_rules! growing {
    (
        $(#[$doc:meta])*
        $row:ident, $(#[$columns_doc:meta])* $columns:ident => $table:ident, $after:literal {
            $($column:ident: $rust:ty => $sql:ty,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
        #[diesel(table_name = $table)]
        pub(super) struct $row {
            $(pub(super) $column: $rust,)+
        }

        impl QueryFragment<Sqlite> for $row {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
                out.push_sql(concat!("INSERT INTO ", stringify!($table), " ("));
                out.push_sql(column_list!($($column),+));
                out.push_sql(") VALUES (");
                let mut separator = "";
                $(
                    out.push_sql(separator);
                    out.push_bind_param::<$sql, _>(&self.$column)?;
                    separator = ", ";
                )+
                let _ = separator;
                out.push_sql(") ON CONFLICT DO NOTHING");
                Ok(())
            }
        }

        impl QueryId for $row {
            type QueryId = Self;
            const HAS_STATIC_QUERY_ID: bool = true;
        }

        impl RunQueryDsl<SqliteConnection> for &$row {}

        $(#[$columns_doc])*
        pub(super) struct $columns {
            $(pub(super) $column: Vec<$rust>,)+
        }

        impl From<Vec<$row>> for $columns {
            fn from(rows: Vec<$row>) -> Self {
                let mut columns = Self { $($column: Vec::with_capacity(rows.len()),)+ };
                for row in rows {
                    $(columns.$column.push(row.$column);)+
                }
                columns
            }
        }

        impl QueryFragment<Pg> for $columns {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
                out.push_sql(concat!("INSERT INTO ", stringify!($table), " ("));
                out.push_sql(column_list!($($column),+));
                out.push_sql(") SELECT * FROM unnest(");
                let mut separator = "";
                $(
                    out.push_sql(separator);
                    out.push_bind_param::<Array<$sql>, _>(&self.$column)?;
                    separator = ", ";
                )+
                let _ = separator;
                out.push_sql(concat!(") ON CONFLICT DO NOTHING ", $after));
                Ok(())
            }
        }

        impl QueryId for $columns {
            type QueryId = Self;
            const HAS_STATIC_QUERY_ID: bool = true;
        }

        impl Query for $columns {
            type SqlType = Text;
        }

        impl RunQueryDsl<PgConnection> for $columns {}
    };
}

growing! {
    /// A row of `operations`.
    OperationRow,
    /// Operations to insert; returns the ids of those that were.
    OperationColumns => operations, "RETURNING operation_id" {
        operation_id: String => Text,
        source: String => Text,
        source_key: Option<Vec<u8>> => Nullable<Binary>,
        variant: Vec<u8> => Binary,
        key_origin: String => Text,
        payload_hash: Vec<u8> => Binary,
        hash_rule: String => Text,
        destination: String => Text,
        state: String => Text,
        phase: Option<String> => Nullable<Text>,
        reason: Option<String> => Nullable<Text>,
        licence: Option<String> => Nullable<Text>,
        next_attempt_at: Option<i64> => Nullable<BigInt>,
        next_lookup_at: Option<i64> => Nullable<BigInt>,
        lease_owner: Option<String> => Nullable<Text>,
        lease_until: Option<i64> => Nullable<BigInt>,
        send_ended_at: Option<i64> => Nullable<BigInt>,
        lookups_since: Option<i64> => Nullable<BigInt>,
        attempts: i64 => BigInt,
        counted: i64 => BigInt,
        series_attempts: i64 => BigInt,
        series_since: Option<i64> => Nullable<BigInt>,
        series_epoch: i64 => BigInt,
        lookups: i64 => BigInt,
        step: i32 => Integer,
        epoch: i64 => BigInt,
        version: i64 => BigInt,
        crm_id: Option<String> => Nullable<Text>,
        other_crm_ids: Option<String> => Nullable<Text>,
        conflicts_with: Option<String> => Nullable<Text>,
        last_error: Option<String> => Nullable<Text>,
        delivery_id: String => Text,
        event_index: i32 => Integer,
        received_at: i64 => BigInt,
        updated_at: i64 => BigInt,
        finished_at: Option<i64> => Nullable<BigInt>,
        payload_erased_at: Option<i64> => Nullable<BigInt>,
    }
}

growing! {
    /// A row of `deliveries`.
    DeliveryRow,
    /// Deliveries to insert; a row that is there already stays.
    DeliveryColumns => deliveries, "" {
        delivery_id: String => Text,
        event_index: i32 => Integer,
        source: String => Text,
        operation_id: Option<String> => Nullable<Text>,
        verdict: String => Text,
        received_at: i64 => BigInt,
        method: String => Text,
        headers: Option<String> => Nullable<Text>,
        body: Option<Vec<u8>> => Nullable<Binary>,
        body_sha256: Vec<u8> => Binary,
        note: Option<String> => Nullable<Text>,
    }
}

growing! {
    /// A row of `transitions`, less the number that the database gives it.
    TransitionRow,
    /// State changes to insert; a row that is there already stays.
    TransitionColumns => transitions, "" {
        operation_id: String => Text,
        version: i64 => BigInt,
        from_state: Option<String> => Nullable<Text>,
        to_state: String => Text,
        reason: Option<String> => Nullable<Text>,
        event: String => Text,
        at: i64 => BigInt,
    }
}

growing! {
    /// A row of `attempts`.
    AttemptRow,
    /// Attempts to insert; a row that is there already stays.
    AttemptColumns => attempts, "" {
        attempt_id: String => Text,
        operation_id: String => Text,
        call: String => Text,
        number: i64 => BigInt,
        step: i32 => Integer,
        epoch: i64 => BigInt,
        licence: Option<String> => Nullable<Text>,
        started_at: i64 => BigInt,
        ended_at: Option<i64> => Nullable<BigInt>,
        class: Option<String> => Nullable<Text>,
        status: Option<i32> => Nullable<Integer>,
        excerpt: Option<String> => Nullable<Text>,
        decision: Option<String> => Nullable<Text>,
        mapping_version: String => Text,
        request: Option<String> => Nullable<Text>,
    }
}

fn micros(at: Option<At>) -> Option<i64> {
    at.map(At::micros)
}

/// The columns that only some states fill.
#[derive(Default)]
struct StatusColumns {
    phase: Option<&'static str>,
    licence: Option<Licence>,
    next_attempt_at: Option<At>,
    next_lookup_at: Option<At>,
    lease: Option<Lease>,
    send_ended_at: Option<At>,
    lookups_since: Option<At>,
}

impl From<&Status> for StatusColumns {
    fn from(status: &Status) -> Self {
        match status {
            Status::Received { next_attempt_at, licence } => {
                Self { next_attempt_at: Some(*next_attempt_at), licence: Some(*licence), ..Self::default() }
            }
            Status::Claimed { lease, licence } => {
                Self { phase: Some("claimed"), lease: Some(lease.clone()), licence: Some(*licence), ..Self::default() }
            }
            Status::Calling { lease } => Self { phase: Some("calling"), lease: Some(lease.clone()), ..Self::default() },
            Status::Reconciling { next_lookup_at, send_ended_at, since } => Self {
                phase: Some("reconciling"),
                next_lookup_at: Some(*next_lookup_at),
                send_ended_at: Some(*send_ended_at),
                lookups_since: Some(*since),
                ..Self::default()
            },
            Status::NeedsReview { send_ended_at, .. } => Self { send_ended_at: *send_ended_at, ..Self::default() },
            Status::Completed { .. } | Status::FailedTerminal { .. } => Self::default(),
        }
    }
}

impl From<&Operation> for OperationRow {
    fn from(operation: &Operation) -> Self {
        let status = StatusColumns::from(&operation.status);
        let (lease_owner, lease_until) =
            status.lease.map_or((None, None), |lease| (Some(clean(&lease.owner)), Some(lease.until.micros())));
        Self {
            operation_id: operation.id.to_string(),
            source: operation.source.as_str().to_owned(),
            source_key: operation.source_key.as_ref().map(|key| key.as_bytes().to_vec()),
            variant: operation.variant.as_bytes().to_vec(),
            key_origin: operation.key_origin.as_str().to_owned(),
            payload_hash: operation.payload_hash.as_bytes().to_vec(),
            hash_rule: clean(operation.hash_rule.as_str()),
            destination: operation.destination.as_str().to_owned(),
            state: operation.state().as_str().to_owned(),
            phase: status.phase.map(str::to_owned),
            reason: operation.status.reason().map(str::to_owned),
            licence: status.licence.map(|licence| licence.as_str().to_owned()),
            next_attempt_at: micros(status.next_attempt_at),
            next_lookup_at: micros(status.next_lookup_at),
            lease_owner,
            lease_until,
            send_ended_at: micros(status.send_ended_at),
            lookups_since: micros(status.lookups_since),
            attempts: i64::from(operation.attempts),
            counted: i64::from(operation.counted),
            series_attempts: i64::from(operation.series_attempts),
            series_since: micros(operation.series_since),
            series_epoch: operation.series_epoch,
            lookups: i64::from(operation.lookups),
            step: i32::from(operation.step),
            epoch: operation.epoch,
            version: operation.version,
            crm_id: operation.crm_id.as_ref().map(|id| id.as_str().to_owned()),
            other_crm_ids: operation.other_crm_ids.as_deref().map(clean),
            conflicts_with: operation.conflicts_with.map(|id| id.to_string()),
            last_error: operation.last_error.as_deref().map(clean),
            delivery_id: operation.delivery_id.to_string(),
            event_index: i32::from(operation.event_index),
            received_at: operation.received_at.micros(),
            updated_at: operation.updated_at.micros(),
            finished_at: micros(operation.finished_at),
            payload_erased_at: micros(operation.payload_erased_at),
        }
    }
}

impl OperationRow {
    fn status(&self) -> Result<Status, String> {
        let at = |what: &str, value: Option<i64>| value.map(At::from_micros).ok_or_else(|| format!("no {what}"));
        let licence = || codec::named(&Licence::ALL, |l| l.as_str(), self.licence.as_deref(), "licence");
        let lease = || -> Result<Lease, String> {
            let owner = self.lease_owner.clone().ok_or("no lease_owner")?;
            Ok(Lease { owner, until: at("lease_until", self.lease_until)? })
        };
        let state = codec::named(&State::ALL, |s| s.as_str(), Some(&self.state), "state")?;
        match (state, self.phase.as_deref()) {
            (State::Received, None) => Ok(Status::Received {
                next_attempt_at: at("next_attempt_at", self.next_attempt_at)?,
                licence: licence()?,
            }),
            (State::InProgress, Some("claimed")) => Ok(Status::Claimed { lease: lease()?, licence: licence()? }),
            (State::InProgress, Some("calling")) => Ok(Status::Calling { lease: lease()? }),
            (State::InProgress, Some("reconciling")) => Ok(Status::Reconciling {
                next_lookup_at: at("next_lookup_at", self.next_lookup_at)?,
                send_ended_at: at("send_ended_at", self.send_ended_at)?,
                since: at("lookups_since", self.lookups_since)?,
            }),
            (State::Completed, None) => {
                Ok(Status::Completed { crm_id: codec::crm_id(self.crm_id.clone())?.ok_or("completed without crm_id")? })
            }
            (State::FailedTerminal, None) => Ok(Status::FailedTerminal {
                reason: codec::named(&FailReason::ALL, |r| r.as_str(), self.reason.as_deref(), "reason")?,
            }),
            (State::NeedsReview, None) => Ok(Status::NeedsReview {
                reason: codec::named(&ReviewReason::ALL, |r| r.as_str(), self.reason.as_deref(), "reason")?,
                send_ended_at: self.send_ended_at.map(At::from_micros),
            }),
            (
                State::Received | State::InProgress | State::Completed | State::FailedTerminal | State::NeedsReview,
                phase,
            ) => Err(format!("state {} with phase {phase:?}", self.state)),
        }
    }

    fn operation(self) -> Result<Operation, String> {
        let status = self.status()?;
        let count = |what: &str, value: i64| u32::try_from(value).map_err(|_| format!("{what} is {value}"));
        let small = |what: &str, value: i32| u16::try_from(value).map_err(|_| format!("{what} is {value}"));
        Ok(Operation {
            id: OperationId(codec::uuid(&self.operation_id)?),
            source: self.source.try_into().map_err(|e| format!("source: {e}"))?,
            source_key: self.source_key.map(SourceKey::from_stored),
            variant: Variant::from_stored(&self.variant).map_err(|e| format!("variant: {e}"))?,
            key_origin: codec::named(&KeyOrigin::ALL, |k| k.as_str(), Some(&self.key_origin), "key_origin")?,
            payload_hash: PayloadHash::from_stored(&self.payload_hash).map_err(|e| e.to_string())?,
            hash_rule: HashRule::from_stored(self.hash_rule),
            destination: self.destination.try_into().map_err(|e| format!("destination: {e}"))?,
            status,
            attempts: count("attempts", self.attempts)?,
            counted: count("counted", self.counted)?,
            series_attempts: count("series_attempts", self.series_attempts)?,
            series_since: self.series_since.map(At::from_micros),
            series_epoch: self.series_epoch,
            lookups: count("lookups", self.lookups)?,
            step: small("step", self.step)?,
            epoch: self.epoch,
            version: self.version,
            crm_id: codec::crm_id(self.crm_id)?,
            other_crm_ids: self.other_crm_ids,
            conflicts_with: self.conflicts_with.as_deref().map(codec::uuid).transpose()?.map(OperationId),
            last_error: self.last_error,
            delivery_id: codec::uuid(&self.delivery_id)?,
            event_index: small("event_index", self.event_index)?,
            received_at: At::from_micros(self.received_at),
            updated_at: At::from_micros(self.updated_at),
            finished_at: self.finished_at.map(At::from_micros),
            payload_erased_at: self.payload_erased_at.map(At::from_micros),
        })
    }
}

impl TryFrom<OperationRow> for Operation {
    type Error = StoreError;

    fn try_from(row: OperationRow) -> Result<Self, StoreError> {
        let id = row.operation_id.clone();
        row.operation().map_err(|what| StoreError::Inconsistent(format!("operation {id}: {what}")))
    }
}

impl TransitionRow {
    /// The state change that made `after`; `before` is `None` for the first.
    pub(super) fn new(before: Option<State>, after: &Operation, event: &str) -> Self {
        Self {
            operation_id: after.id.to_string(),
            version: after.version,
            from_state: before.map(|state| state.as_str().to_owned()),
            to_state: after.state().as_str().to_owned(),
            reason: after.status.reason().map(str::to_owned),
            event: clean(event),
            at: after.updated_at.micros(),
        }
    }
}

impl AttemptRow {
    /// An attempt that begins, or one that is over with its beginning.
    pub(super) fn new(operation_id: OperationId, begin: &NewAttempt, end: Option<&AttemptEnd>) -> Self {
        Self {
            attempt_id: begin.id.to_string(),
            operation_id: operation_id.to_string(),
            call: begin.call.as_str().to_owned(),
            number: i64::from(begin.number),
            step: i32::from(begin.step),
            epoch: begin.epoch,
            licence: begin.licence.map(str::to_owned),
            started_at: begin.started_at.micros(),
            ended_at: end.map(|end| end.ended_at.micros()),
            class: end.map(|end| end.class.to_owned()),
            status: end.and_then(|end| end.status).map(i32::from),
            excerpt: end.map(|end| clean(&end.excerpt)),
            decision: end.map(|end| clean(&end.decision)),
            mapping_version: clean(&begin.mapping_version),
            request: Some(clean(&begin.request)),
        }
    }
}

impl DeliveryRow {
    /// One event's row; the headers and the body stand in the first row of the request.
    pub(super) fn new(
        delivery: &NewDelivery,
        sealed: &codec::Sealed,
        event_index: u16,
        operation_id: Option<OperationId>,
        verdict: Verdict,
    ) -> Self {
        let first = event_index == 0;
        Self {
            delivery_id: delivery.id.to_string(),
            event_index: i32::from(event_index),
            source: delivery.source.as_str().to_owned(),
            operation_id: operation_id.map(|id| id.to_string()),
            verdict: verdict.as_str().to_owned(),
            received_at: delivery.received_at.micros(),
            method: clean(&delivery.method),
            headers: first.then(|| sealed.headers.clone()),
            body: first.then(|| delivery.body.clone()),
            body_sha256: sealed.body_sha256.to_vec(),
            note: delivery.note.as_deref().map(clean),
        }
    }

    /// The delivery; `first` is the request's first row where this is not it.
    pub(super) fn delivery(self, first: Option<Self>) -> Result<StoredDelivery, StoreError> {
        let id = self.delivery_id.clone();
        let (headers, body) = match first {
            Some(first) => (first.headers, first.body),
            None => (self.headers, self.body),
        };
        let read = || -> Result<StoredDelivery, String> {
            Ok(StoredDelivery {
                id: codec::uuid(&self.delivery_id)?,
                event_index: u16::try_from(self.event_index).map_err(|e| e.to_string())?,
                source: self.source.try_into().map_err(|e| format!("source: {e}"))?,
                operation_id: self.operation_id.as_deref().map(codec::uuid).transpose()?.map(OperationId),
                verdict: codec::named(&Verdict::ALL, |v| v.as_str(), Some(&self.verdict), "verdict")?,
                received_at: At::from_micros(self.received_at),
                method: self.method,
                headers: headers.as_deref().map(codec::headers).transpose()?.unwrap_or_default(),
                body,
                body_sha256: self.body_sha256,
                note: self.note,
            })
        };
        read().map_err(|what| StoreError::Inconsistent(format!("delivery {id}: {what}")))
    }
}

/// The id of a row that holds one, for reading.
pub(super) fn operation_id(text: &str) -> Result<OperationId, StoreError> {
    let id: Result<Uuid, String> = codec::uuid(text);
    id.map(OperationId).map_err(|what| StoreError::Inconsistent(format!("operation {text}: {what}")))
}

/// A crm_id column.
pub(super) fn stored_crm_id(of: &str, text: String) -> Result<CrmId, StoreError> {
    CrmId::try_from(text).map_err(|what| StoreError::Inconsistent(format!("{of}: {what}")))
}

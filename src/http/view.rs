//! An operation as JSON (contract 6.1), the same for senders and operators.

use std::borrow::Cow;

use serde::Serialize;
use utoipa::ToSchema;

use crate::operation::{CrmId, CrmKey, DestinationName, Operation, OperationId, SourceName, State};

/// An operation as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Operation)]
pub(crate) struct OperationView<'a> {
    #[schema(value_type = uuid::Uuid)]
    operation_id: OperationId,
    #[schema(value_type = String)]
    source: &'a SourceName,
    #[schema(value_type = Option<String>)]
    source_key: Option<Cow<'a, str>>,
    status: State,
    /// Why it is in review, or why it failed.
    reason: Option<&'static str>,
    /// The destination.
    #[schema(value_type = String)]
    crm: &'a DestinationName,
    /// The key under which the CRM knows it.
    #[schema(value_type = uuid::Uuid)]
    crm_key: CrmKey,
    #[schema(value_type = Option<String>)]
    crm_id: Option<&'a CrmId>,
    /// Create calls so far.
    attempts: u32,
    last_error: Option<&'a str>,
    version: i64,
    received_at: String,
    updated_at: String,
}

impl<'a> From<&'a Operation> for OperationView<'a> {
    fn from(operation: &'a Operation) -> Self {
        Self {
            operation_id: operation.id,
            source: &operation.source,
            source_key: operation.source_key.as_ref().map(|key| String::from_utf8_lossy(key.as_bytes())),
            status: operation.state(),
            reason: operation.status.reason(),
            crm: &operation.destination,
            crm_key: operation.crm_key(),
            crm_id: operation.crm_id.as_ref(),
            attempts: operation.attempts,
            last_error: operation.last_error.as_deref(),
            version: operation.version,
            received_at: operation.received_at.rfc3339(),
            updated_at: operation.updated_at.rfc3339(),
        }
    }
}

/// Values for tests of this room.
#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::clock::At;
    use crate::operation::{Arrival, HashRule, KeyOrigin, Licence, PayloadHash, SourceKey, Status};

    /// An operation under the key `a1b2` of source `site`, in that status.
    pub(crate) fn operation(status: Status) -> Operation {
        let crm_id = match &status {
            Status::Completed { crm_id } => Some(crm_id.clone()),
            _ => None,
        };
        let at = At::from_micros(1_796_119_200_123_000);
        Operation {
            status,
            attempts: 1,
            epoch: 1,
            version: 4,
            crm_id,
            ..Arrival {
                id: "0198c0de-0000-7000-8000-000000000001".parse().expect("a uuid"),
                source: "site".parse().expect("a name"),
                source_key: SourceKey::from_native(b"a1b2"),
                key_origin: KeyOrigin::Native,
                payload_hash: PayloadHash::from([7; 32]),
                hash_rule: HashRule::current(&[]),
                destination: "bitrix".parse().expect("a name"),
                delivery_id: uuid::Uuid::nil(),
                event_index: 0,
                at,
            }
            .operation()
        }
    }

    pub(crate) fn received() -> Operation {
        operation(Status::Received { next_attempt_at: At::from_seconds(0), licence: Licence::FirstSend })
    }

    pub(crate) fn completed() -> Operation {
        operation(Status::Completed { crm_id: "4512".to_owned().try_into().expect("an id") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_that_of_the_contract() {
        let text = serde_json::to_string(&OperationView::from(&samples::completed())).expect("json");
        assert_eq!(
            text,
            "{\"operation_id\":\"0198c0de-0000-7000-8000-000000000001\",\"source\":\"site\",\"source_key\":\"a1b2\",\
             \"status\":\"completed\",\"reason\":null,\"crm\":\"bitrix\",\
             \"crm_key\":\"1ab24bf7-77c2-8b44-a210-e90fb00d1395\",\"crm_id\":\"4512\",\"attempts\":1,\
             \"last_error\":null,\"version\":4,\"received_at\":\"2026-12-01T10:00:00.123Z\",\
             \"updated_at\":\"2026-12-01T10:00:00.123Z\"}"
        );
    }

    #[test]
    fn what_is_not_known_is_null_and_not_left_out() {
        let mut operation = samples::received();
        operation.source_key = None;
        let json = serde_json::to_value(OperationView::from(&operation)).expect("json");
        for member in ["source_key", "reason", "crm_id", "last_error"] {
            assert_eq!(json.get(member), Some(&serde_json::Value::Null), "{member}");
        }
    }
}

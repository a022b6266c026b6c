//! Arrival: what is known of an operation when its event comes in. Everything else begins at nothing.

use uuid::Uuid;

use super::hash::{HashRule, PayloadHash};
use super::id::{DestinationName, KeyOrigin, OperationId, SourceKey, SourceName, Variant};
use super::state::{Licence, Operation, Status};
use crate::clock::At;

/// An event that came in under a key, or without one.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The operation's own id.
    pub id: OperationId,
    /// The source: scope of the key.
    pub source: SourceName,
    /// The sender's key; none where the sender has none.
    pub source_key: Option<SourceKey>,
    /// Where the key came from.
    pub key_origin: KeyOrigin,
    /// Hash of the content.
    pub payload_hash: PayloadHash,
    /// By which rule.
    pub hash_rule: HashRule,
    /// The CRM account it goes to.
    pub destination: DestinationName,
    /// The delivery that brought it, and the event's place in it.
    pub delivery_id: Uuid,
    /// The event's place in the delivery, from 0.
    pub event_index: u16,
    /// The moment.
    pub at: At,
}

impl Arrival {
    /// The operation as it begins: the first of its key, due now, never sent.
    pub fn operation(self) -> Operation {
        Operation {
            id: self.id,
            source: self.source,
            source_key: self.source_key,
            variant: Variant::First,
            key_origin: self.key_origin,
            payload_hash: self.payload_hash,
            hash_rule: self.hash_rule,
            destination: self.destination,
            status: Status::Received { next_attempt_at: self.at, licence: Licence::FirstSend },
            attempts: 0,
            counted: 0,
            series_attempts: 0,
            series_since: None,
            series_epoch: 0,
            lookups: 0,
            step: 0,
            epoch: 0,
            version: 1,
            crm_id: None,
            other_crm_ids: None,
            conflicts_with: None,
            last_error: None,
            delivery_id: self.delivery_id,
            event_index: self.event_index,
            received_at: self.at,
            updated_at: self.at,
            finished_at: None,
            payload_erased_at: None,
        }
    }
}

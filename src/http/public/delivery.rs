//! From a request to what the store takes: the logged delivery and the operations that its events make.

use actix_web::HttpRequest;
use actix_web::http::header::HeaderMap;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::super::state::{Inbound, Settings};
use crate::clock::{At, Entropy, uuid_v7};
use crate::intake::{self, Event, Key};
use crate::operation::{
    Arrival, KeyOrigin, Licence, Operation, OperationId, PayloadHash, ReviewReason, SourceKey, Status,
};
use crate::store::{NewDelivery, NewEvent, StoredDelivery};

/// How long senders repeat, at the most (contract 4.1 rule 9).
const SENDERS_HORIZON: std::time::Duration = std::time::Duration::from_secs(30 * 86_400);

/// The request as sources read it.
pub(super) fn request_of(request: &HttpRequest, body: Vec<u8>) -> intake::Request {
    intake::Request {
        method: request.method().as_str().to_owned(),
        query: request.query_string().to_owned(),
        headers: headers_of(request.headers()),
        body,
    }
}

fn headers_of(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    // Header names are in lower case by the server library's type.
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect()
}

/// The request of a delivery in the log, as far as it was kept; `None` once its body is erased.
pub(crate) fn stored_request(stored: &StoredDelivery) -> Option<intake::Request> {
    let headers = stored.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes()));
    Some(intake::Request {
        method: stored.method.clone(),
        query: String::new(),
        headers: headers.collect(),
        body: stored.body.clone()?,
    })
}

/// What of every event of one request is the same.
pub(super) struct Reception<'a> {
    pub(super) inbound: &'a Inbound,
    pub(super) settings: &'a Settings,
    pub(super) entropy: &'a dyn Entropy,
    pub(super) delivery_id: Uuid,
    pub(super) now: At,
}

impl Reception<'_> {
    /// The delivery as it is logged; headers are kept by an allow-list, so that no secret gets in.
    pub(super) fn delivery(&self, request: intake::Request, note: Option<String>) -> NewDelivery {
        let kept = request.headers.into_iter().filter(|(name, _)| intake::KEPT_HEADERS.contains(&name.as_str()));
        NewDelivery {
            id: self.delivery_id,
            source: self.inbound.settings.name.clone(),
            received_at: self.now,
            method: request.method,
            headers: kept.map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned())).collect(),
            body: request.body,
            note,
        }
    }

    /// The operation that an event makes if its key is new.
    pub(super) fn event(&self, index: usize, event: &Event) -> NewEvent {
        let (source_key, key_origin, window) = match &event.key {
            Key::Given(key, origin) => (Some(key.clone()), *origin, None),
            Key::Window(window) => (None, KeyOrigin::ResubmitWindow, Some(*window)),
            Key::Generate => (None, KeyOrigin::Generated, None),
        };
        // Its key may have been here and be forgotten: nobody but a person can say. Where the key is known, the store
        // compares as ever and this status is not used.
        let late = event.event_at.is_some_and(|at| at < self.now.minus(self.settings.tombstone));
        let status = if late { review(ReviewReason::LateAfterRetention) } else { self.due() };
        // What has no key meets its like in the resubmit window; what waits for a person already is not held once more.
        let likeness = event.likeness.clone().filter(|_| source_key.is_some() && !late);
        let operation = self.operation(index, source_key, key_origin, event.payload_hash, status);
        NewEvent { operation, window, likeness }
    }

    /// The operation of an authenticated body that cannot be read. Its sender can only send the same bytes again: they meet the
    /// same case for as long as senders repeat.
    pub(super) fn unreadable(&self, body: &[u8]) -> NewEvent {
        let status = review(ReviewReason::Unreadable);
        NewEvent {
            operation: self.operation(0, None, KeyOrigin::ResubmitWindow, hash_of_unreadable(body), status),
            window: Some(SENDERS_HORIZON),
            likeness: None,
        }
    }

    /// An operation that will never exist, to answer a robot as if it did.
    pub(super) fn decoy(&self, request: &intake::Request) -> Operation {
        let read = self.inbound.source.events(request).ok().and_then(|events| events.into_iter().next());
        match read {
            Some(event) => self.event(0, &event).operation,
            None => self.operation(0, None, KeyOrigin::Generated, PayloadHash::from([0; 32]), self.due()),
        }
    }

    fn due(&self) -> Status {
        Status::Received { next_attempt_at: self.now, licence: Licence::FirstSend }
    }

    fn operation(
        &self,
        index: usize,
        source_key: Option<SourceKey>,
        key_origin: KeyOrigin,
        payload_hash: PayloadHash,
        status: Status,
    ) -> Operation {
        Operation {
            status,
            ..Arrival {
                id: OperationId(uuid_v7(self.now, self.entropy)),
                source: self.inbound.settings.name.clone(),
                source_key,
                key_origin,
                payload_hash,
                hash_rule: self.inbound.source.hash_rule(),
                destination: self.inbound.settings.destination.clone(),
                delivery_id: self.delivery_id,
                event_index: u16::try_from(index).unwrap_or(u16::MAX),
                at: self.now,
            }
            .operation()
        }
    }
}

fn review(reason: ReviewReason) -> Status {
    Status::NeedsReview { reason, send_ended_at: None }
}

/// The raw bytes hashed under a name of their own, so that no readable content has the same hash.
fn hash_of_unreadable(body: &[u8]) -> PayloadHash {
    let mut hash = Sha256::new();
    hash.update(b"leadonce/unreadable/1\0");
    hash.update(body);
    PayloadHash::from(<[u8; 32]>::from(hash.finalize()))
}

/// The notes of all events in one line.
pub(super) fn notes(events: &[Event]) -> Option<String> {
    let notes: Vec<&str> = events.iter().filter_map(|event| event.note.as_deref()).take(10).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

//! Claims: a batch of deliveries becomes operations, replays and conflicts (contract 3), in the writer's transaction.
//!
//! The insert that wins the unique constraint owns the event. Whoever loses reads the winner in a statement of its own (under
//! READ COMMITTED that sees what was committed meanwhile). Equal keys of one batch are folded first: only one of them inserts,
//! the others are judged against it like any later delivery. Done again with the same ids after a lost commit, it finds its own
//! rows and gives the same answers (contract 4.1 rule 7).

use std::collections::{BTreeMap, HashMap};

use super::codec::Sealed;
use super::conn::AnyConn;
use super::failure::Failure;
use super::rows::{DeliveryRow, TransitionRow};
use super::types::{Admission, Admit, NewEvent, StoreError, Verdict};
use super::{copies, inserts, reading, windows};
use crate::operation::{Operation, OperationId, ReviewReason, State, Status, Variant};

/// How often a claim is tried again when the row that beat it is gone at the next look (a tombstone removed in between).
const TRIES: usize = 3;

/// A delivery on its way through the writer.
pub(super) struct Intake {
    pub(super) admit: Admit,
    pub(super) sealed: Sealed,
}

/// What a batch came to.
pub(super) struct Admitted {
    /// Per delivery, per event.
    pub(super) admissions: Vec<Vec<Admission>>,
    /// Whether something became due.
    pub(super) work: bool,
}

/// One event of the batch.
#[derive(Clone, Copy)]
struct Item<'a> {
    intake: &'a Intake,
    event: &'a NewEvent,
}

impl Item<'_> {
    fn id(&self) -> OperationId {
        self.event.operation.id
    }
}

/// Whether an event bears the content of a stored operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Same,
    Changed,
    /// It was hashed by another rule, and what it was hashed from is erased or cannot be read any more.
    Incomparable,
}

/// Logs the deliveries and claims their events.
pub(super) fn admit(conn: &mut AnyConn, intakes: &[&Intake]) -> Result<Admitted, Failure> {
    let items = items(intakes)?;
    let mut batch = Batch { items: &items, settled: vec![None; items.len()], created: Vec::new() };
    batch.keyed(conn)?;
    batch.keyless(conn)?;
    batch.log(conn)
}

fn items<'a>(intakes: &[&'a Intake]) -> Result<Vec<Item<'a>>, StoreError> {
    let mut items = Vec::with_capacity(intakes.len());
    for intake in intakes {
        for (place, event) in intake.admit.events.iter().enumerate() {
            let operation = &event.operation;
            if usize::from(operation.event_index) != place || operation.delivery_id != intake.admit.delivery.id {
                let what = format!("operation {} does not name its delivery and its place in it", operation.id);
                return Err(StoreError::Inconsistent(what));
            }
            items.push(Item { intake, event });
        }
    }
    Ok(items)
}

struct Batch<'a> {
    items: &'a [Item<'a>],
    settled: Vec<Option<Admission>>,
    created: Vec<TransitionRow>,
}

impl<'a> Batch<'a> {
    fn settle(&mut self, place: usize, verdict: Verdict, operation: Operation) {
        if let Some(slot) = self.settled.get_mut(place) {
            *slot = Some(Admission { verdict, operation });
        }
    }

    /// Events under a key: the first of each key inserts, every other one is judged against the owner.
    fn keyed(&mut self, conn: &mut AnyConn) -> Result<(), Failure> {
        // The map's order is the order of the inserts: two nodes that insert the same keys never wait for each other in a ring.
        let mut keys: BTreeMap<(&'a str, &'a [u8]), Vec<usize>> = BTreeMap::new();
        for (place, item) in self.items.iter().enumerate() {
            if let Some(key) = &item.event.operation.source_key {
                keys.entry((item.event.operation.source.as_str(), key.as_bytes())).or_default().push(place);
            }
        }
        let contenders = keys.values().filter_map(|places| places.first().copied()).collect();
        let owners = self.claim(conn, contenders)?;
        for places in keys.into_values() {
            let Some(owner) = places.first().and_then(|place| owners.get(place)) else { continue };
            for place in places {
                let Some(item) = self.items.get(place).copied() else { continue };
                let (verdict, operation) =
                    if owner.id == item.id() { (Verdict::New, owner.clone()) } else { self.judge(conn, item, owner)? };
                self.settle(place, verdict, operation);
            }
        }
        Ok(())
    }

    /// Events without a key: within a window the first owns the content; without one each is an operation of its own.
    fn keyless(&mut self, conn: &mut AnyConn) -> Result<(), Failure> {
        let keyless = self.items.iter().enumerate().filter(|(_, item)| item.event.operation.source_key.is_none());
        let (windowed, mut contenders): (Vec<usize>, Vec<usize>) =
            keyless.map(|(place, _)| place).partition(|place| self.window(*place).is_some());
        let claims: Vec<windows::Claim<'_>> = windowed.iter().filter_map(|place| self.window(*place)).collect();
        let owners = windows::owners(conn, &claims)?;
        let of_others: Vec<(usize, OperationId)> = windowed
            .into_iter()
            .zip(owners)
            .filter(|(place, owner)| {
                let own = self.items.get(*place).is_some_and(|item| item.id() == *owner);
                if own {
                    contenders.push(*place);
                }
                !own
            })
            .collect();
        let mut known = HashMap::new();
        for (place, operation) in self.claim(conn, contenders)? {
            known.insert(operation.id, operation.clone());
            self.settle(place, Verdict::New, operation);
        }
        for (place, owner) in of_others {
            let operation = match known.get(&owner) {
                Some(operation) => operation.clone(),
                None => reading::operation(conn, owner)?.ok_or_else(|| {
                    StoreError::Inconsistent(format!("operation {owner}: its window stands without it"))
                })?,
            };
            known.insert(owner, operation.clone());
            self.settle(place, Verdict::Replay, operation);
        }
        Ok(())
    }

    fn window(&self, place: usize) -> Option<windows::Claim<'a>> {
        let event = self.items.get(place)?.event;
        let operation = &event.operation;
        Some(windows::Claim {
            source: operation.source.as_str(),
            payload_hash: operation.payload_hash.as_bytes(),
            operation: operation.id,
            starts_at: operation.received_at,
            ends_at: operation.received_at.plus(event.window?),
        })
    }

    /// Inserts the contenders' operations; for each the operation that owns its key now: its own, or the one that was there.
    fn claim(&mut self, conn: &mut AnyConn, mut contenders: Vec<usize>) -> Result<HashMap<usize, Operation>, Failure> {
        let mut owners = HashMap::new();
        for _ in 0..TRIES {
            let of = |place: &usize| self.items.get(*place).map(|item| &item.event.operation);
            let operations: Vec<&Operation> = contenders.iter().filter_map(of).collect();
            let inserted = inserts::operations(conn, &operations)?;
            let events: Vec<&NewEvent> = contenders.iter().filter_map(|p| Some(self.items.get(*p)?.event)).collect();
            let held = copies::hold(conn, &events, &inserted)?;
            let mut losers = Vec::new();
            for place in contenders {
                let Some(operation) = of(&place) else { continue };
                if let Some(copy) = held.get(&operation.id) {
                    self.created.push(TransitionRow::new(None, copy, "likely_copy"));
                    owners.insert(place, copy.clone());
                } else if inserted.contains(&operation.id) {
                    self.created.push(TransitionRow::new(None, operation, "received"));
                    owners.insert(place, operation.clone());
                } else {
                    losers.push((place, operation));
                }
            }
            let beaten: Vec<&Operation> = losers.iter().map(|(_, operation)| *operation).collect();
            let found = reading::owners(conn, &beaten)?;
            contenders = Vec::new();
            for ((place, _), owner) in losers.into_iter().zip(found) {
                match owner {
                    Some(owner) => drop(owners.insert(place, owner)),
                    None => contenders.push(place),
                }
            }
            if contenders.is_empty() {
                return Ok(owners);
            }
        }
        Err(StoreError::Unavailable("a key could not be claimed: its owner comes and goes".into()).into())
    }

    /// A later delivery of a known key.
    fn judge(
        &mut self,
        conn: &mut AnyConn,
        item: Item<'_>,
        first: &Operation,
    ) -> Result<(Verdict, Operation), Failure> {
        match compare(conn, item, first)? {
            Content::Same => Ok((Verdict::Replay, first.clone())),
            Content::Incomparable => Ok((Verdict::ReplayUnverified, first.clone())),
            Content::Changed => self.conflict(conn, item, first).map(|operation| (Verdict::Conflict, operation)),
        }
    }

    /// Changed content under a known key: an operation of its own that waits for a person (G5), once per content.
    fn conflict(&mut self, conn: &mut AnyConn, item: Item<'_>, first: &Operation) -> Result<Operation, Failure> {
        let mut changed = item.event.operation.clone();
        changed.variant = Variant::Changed(changed.payload_hash);
        for known in reading::variants(conn, &changed)? {
            if compare(conn, item, &known)? == Content::Same {
                return Ok(known);
            }
        }
        changed.status = Status::NeedsReview { reason: ReviewReason::PayloadConflict, send_ended_at: None };
        changed.conflicts_with = Some(first.id);
        if inserts::operations(conn, &[&changed])?.is_empty() {
            // Another node was faster.
            let found = reading::owners(conn, &[&changed])?.pop().flatten();
            return found.ok_or_else(|| StoreError::Unavailable("a conflict could not be claimed".into()).into());
        }
        self.created.push(TransitionRow::new(None, &changed, "conflict"));
        Ok(changed)
    }

    /// Writes the state changes and the log rows.
    fn log(self, conn: &mut AnyConn) -> Result<Admitted, Failure> {
        let work = self.created.iter().any(|row| row.to_state == State::Received.as_str());
        inserts::transitions(conn, self.created)?;
        let mut rows = Vec::with_capacity(self.items.len());
        let mut admissions: Vec<Vec<Admission>> = Vec::new();
        for (item, admission) in self.items.iter().zip(self.settled) {
            let admission =
                admission.ok_or_else(|| StoreError::Inconsistent(format!("operation {}: not judged", item.id())))?;
            let Intake { admit, sealed } = item.intake;
            let index = item.event.operation.event_index;
            rows.push(DeliveryRow::new(
                &admit.delivery,
                sealed,
                index,
                Some(admission.operation.id),
                admission.verdict,
            ));
            if index == 0 {
                admissions.push(Vec::with_capacity(admit.events.len()));
            }
            if let Some(of_delivery) = admissions.last_mut() {
                of_delivery.push(admission);
            }
        }
        inserts::deliveries(conn, rows)?;
        Ok(Admitted { admissions, work })
    }
}

/// Compares an event's content with a stored operation's. Two hashes can be compared only under one rule: where the rules
/// differ, the stored content is hashed again by the present one.
fn compare(conn: &mut AnyConn, item: Item<'_>, stored: &Operation) -> Result<Content, Failure> {
    let event = &item.event.operation;
    let stored_hash = if stored.hash_rule == event.hash_rule {
        Some(stored.payload_hash)
    } else {
        let delivery = reading::delivery_of(conn, stored)?.filter(|delivery| delivery.body.is_some());
        delivery.and_then(|delivery| (item.intake.admit.rehash)(&delivery, usize::from(stored.event_index)))
    };
    Ok(match stored_hash {
        Some(hash) if hash == event.payload_hash => Content::Same,
        Some(_) => Content::Changed,
        None => Content::Incomparable,
    })
}

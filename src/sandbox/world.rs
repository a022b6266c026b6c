//! What the sandbox holds: entities, calls and the faults to come. Shared by the connections and the tests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::fault::{Fault, Kind};
use super::limit::Limit;
use crate::clock::At;

/// So many calls are listed; older ones are only counted.
const MOST_CALLS: usize = 1_000;
/// The id of the first entity, so that an id is not taken for a place in a list.
const FIRST_ID: u64 = 101;

/// A record of the CRM.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entity {
    /// Its id; one sequence for all types.
    pub id: u64,
    /// `lead`, `deal`, `contact`, `company` (Bitrix24) or `plain` (the plain API).
    #[serde(rename = "type")]
    pub entity_type: &'static str,
    /// The sender's key: originId or external_key. Nothing makes it unique.
    pub key: Option<String>,
    /// When it was stored.
    pub created_at: At,
    /// The fields the CRM knows, as it would return them.
    pub fields: Map<String, Value>,
}

/// What a call is, as faults tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// Makes an entity.
    Create,
    /// Asks which entities bear a key.
    Lookup,
    /// Any other.
    Other,
}

/// A call that came in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Call {
    /// Counts from 1.
    pub number: u64,
    /// When it had been read.
    pub at: At,
    /// `crm.item.add`, `POST /api/leads` …; never an address with a secret.
    pub method: String,
    /// What it is.
    pub call: CallKind,
    /// The key it names.
    pub key: Option<String>,
    /// The entity it made.
    pub created: Option<u64>,
    /// The status it was answered with; `None` while it waits, or where no status line left.
    pub status: Option<u16>,
    /// The fault it met.
    pub fault: Option<&'static str>,
}

/// All that the sandbox holds; a handle that is cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct World(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    entities: Vec<Entity>,
    /// Places in `entities` by key, so that thousands of entities do not slow a look-up or the next create.
    places: HashMap<String, Vec<usize>>,
    made: u64,
    calls: VecDeque<Call>,
    called: u64,
    counts: BTreeMap<String, u64>,
    faults: VecDeque<Fault>,
    unique_keys: bool,
    limit: Option<Limit>,
}

impl Inner {
    fn of_key(&self, key: &str) -> impl Iterator<Item = &Entity> {
        self.places.get(key).into_iter().flatten().filter_map(|place| self.entities.get(*place))
    }

    fn push(&mut self, entity: Entity) {
        if let Some(key) = &entity.key {
            self.places.entry(key.clone()).or_default().push(self.entities.len());
        }
        self.entities.push(entity);
    }
}

impl World {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing here panics half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every entity, in the order of its creation.
    pub fn entities(&self) -> Vec<Entity> {
        self.inner().entities.clone()
    }

    /// The entities that bear this key.
    pub fn entities_of(&self, key: &str) -> Vec<Entity> {
        self.inner().of_key(key).cloned().collect()
    }

    /// Forgets every entity; ids go on.
    pub fn clear_entities(&self) {
        let mut inner = self.inner();
        inner.entities.clear();
        inner.places.clear();
    }

    /// Removes one entity, as a person in the CRM would; whether it was there.
    pub fn remove_entity(&self, id: u64) -> bool {
        let mut inner = self.inner();
        let (gone, kept): (Vec<Entity>, Vec<Entity>) =
            std::mem::take(&mut inner.entities).into_iter().partition(|entity| entity.id == id);
        inner.places.clear();
        kept.into_iter().for_each(|entity| inner.push(entity));
        !gone.is_empty()
    }

    /// The latest calls, oldest first.
    pub fn calls(&self) -> Vec<Call> {
        self.inner().calls.iter().cloned().collect()
    }

    /// How often each method was called since the start.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.inner().counts.clone()
    }

    /// How often this method was called (`crm.item.add`, `POST /api/leads`), answered or not.
    pub fn count(&self, method: &str) -> u64 {
        self.inner().counts.get(method).copied().unwrap_or(0)
    }

    /// How many creates came in, by either API, answered or not.
    pub fn creates(&self) -> u64 {
        self.count("crm.item.add") + self.count("POST /api/leads")
    }

    /// Adds a fault behind those that wait.
    pub fn add_fault(&self, fault: Fault) {
        self.inner().faults.push_back(fault);
    }

    /// The faults that wait, in the order they are played.
    pub fn faults(&self) -> Vec<Fault> {
        self.inner().faults.iter().cloned().collect()
    }

    /// Forgets every fault that waits; those being played go on.
    pub fn clear_faults(&self) {
        self.inner().faults.clear();
    }

    /// Whether the plain API refuses a key it knows. Off at the start; Bitrix24 never does.
    pub fn unique_keys(&self) -> bool {
        self.inner().unique_keys
    }

    /// Switches that.
    pub fn set_unique_keys(&self, unique: bool) {
        self.inner().unique_keys = unique;
    }

    /// Sets a limit on calls, of all kinds together; none at the start. What it refuses meets no other fault.
    pub fn set_limit(&self, limit: Option<Limit>) {
        self.inner().limit = limit;
    }

    /// Stores an entity; with `unique`, gives the one that bears the key already instead (`Err`).
    pub(super) fn create(
        &self,
        entity_type: &'static str,
        key: Option<String>,
        fields: Map<String, Value>,
        unique: bool,
        at: At,
    ) -> Result<Entity, Entity> {
        let mut inner = self.inner();
        if let (true, Some(key)) = (unique, &key)
            && let Some(known) = inner.of_key(key).find(|entity| entity.entity_type == entity_type)
        {
            return Err(known.clone());
        }
        let entity = Entity { id: FIRST_ID + inner.made, entity_type, key, created_at: at, fields };
        inner.made += 1;
        inner.push(entity.clone());
        Ok(entity)
    }

    /// The entities of a type, and of a key where one is given, that a look-up sees now: those that `lookup_blind` still
    /// hides are left out.
    pub(super) fn look_up(&self, entity_type: &str, key: Option<&str>, at: At) -> Vec<Entity> {
        let mut inner = self.inner();
        let blind = inner.faults.iter_mut().find_map(|fault| match fault.kind {
            Kind::LookupBlind { seconds } if fault.times > 0 => Some((seconds, fault)),
            _ => None,
        });
        let hidden = blind.map_or(Duration::ZERO, |(seconds, fault)| {
            fault.times = fault.times.saturating_sub(1);
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        });
        inner.faults.retain(|fault| fault.times > 0);
        let seen = |entity: &&Entity| {
            entity.entity_type == entity_type && (hidden.is_zero() || entity.created_at.plus(hidden) <= at)
        };
        match key {
            Some(key) => inner.of_key(key).filter(seen).cloned().collect(),
            None => inner.entities.iter().filter(seen).cloned().collect(),
        }
    }

    pub(super) fn entity(&self, entity_type: &str, id: u64) -> Option<Entity> {
        self.inner().entities.iter().find(|entity| entity.id == id && entity.entity_type == entity_type).cloned()
    }

    /// Writes a call down and takes the fault it meets.
    pub(super) fn begin(&self, method: &str, call: CallKind, key: Option<String>, at: At) -> (u64, Option<Fault>) {
        let mut inner = self.inner();
        let refused = inner.limit.as_mut().and_then(|limit| limit.refuses(at)).map(Fault::on_any);
        let fault = refused.or_else(|| {
            let met = inner.faults.iter_mut().find(|fault| fault.meets(call))?;
            met.times = met.times.saturating_sub(1);
            Some(met.clone())
        });
        inner.faults.retain(|fault| fault.times > 0);
        inner.called += 1;
        *inner.counts.entry(method.to_owned()).or_default() += 1;
        let number = inner.called;
        let name = fault.as_ref().map(|fault| fault.kind.name());
        let method = method.to_owned();
        inner.calls.push_back(Call { number, at, method, call, key, created: None, status: None, fault: name });
        if inner.calls.len() > MOST_CALLS {
            inner.calls.pop_front();
        }
        (number, fault)
    }

    /// Notes what became of a call.
    pub(super) fn note(&self, number: u64, change: impl FnOnce(&mut Call)) {
        if let Some(call) = self.inner().calls.iter_mut().rev().find(|call| call.number == number) {
            change(call);
        }
    }
}

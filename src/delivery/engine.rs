//! The engine: takes due operations of a destination and carries each one step on.
//!
//! One thread can step it: time comes from the clock it was given, waiting only through [`Pause`], and nothing is spawned here.

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Line;
use super::gap::Gap;
use super::heed::Seen;
use super::rate::{self, Rate};
use super::sights::{Sights, send_of};
use crate::clock::{At, Clock, Entropy, uuid_v7};
use crate::crm::{Order, Transport};
use crate::intake::{Request, Source};
use crate::operation::{DestinationName, Lead, Operation, SourceName, Status};
use crate::store::{Store, StoreError, StoredDelivery, Take, Taken, Update, Updated, Work};
use crate::telemetry::Metrics;

/// A lease counts as expired only this long after its end, so that small differences between clocks do not matter.
pub const GRACE: Duration = Duration::from_secs(5);

/// So many uncertain operations are known beforehand; others are when they are looked up.
const MOST_UNCERTAIN: usize = 10_000;

/// Waiting, as the shell lets it be done.
pub trait Pause: Send + Sync + std::fmt::Debug {
    /// Comes back after that time.
    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Everything that comes to the engine from outside.
#[derive(Clone, Debug)]
pub struct Ports {
    /// The store.
    pub store: Store,
    /// The way to the CRMs.
    pub transport: Arc<dyn Transport>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Waiting.
    pub pause: Arc<dyn Pause>,
    /// Metrics.
    pub metrics: Metrics,
}

/// The delivery engine of one node.
#[derive(Debug)]
pub struct Engine {
    pub(super) ports: Ports,
    /// This node's name in leases.
    pub(super) node: String,
    pub(super) lines: HashMap<DestinationName, Line>,
    sources: HashMap<SourceName, Arc<dyn Source>>,
    /// By rate group.
    pub(super) rates: HashMap<String, Rate>,
    sights: Mutex<Sights>,
    pub(super) gap: Option<Gap>,
    /// When it began, by the monotonic clock.
    pub(super) begun: Duration,
    /// What this node knows of each destination beside its row.
    pub(super) seen: Mutex<HashMap<DestinationName, Seen>>,
    /// The destination's epoch and the monotonic time of the last success that was noted with it.
    successes: Mutex<HashMap<DestinationName, (i64, Duration)>>,
}

impl Engine {
    /// An engine for these destinations and sources.
    pub fn new(
        ports: Ports,
        node: String,
        lines: HashMap<DestinationName, Line>,
        sources: HashMap<SourceName, Arc<dyn Source>>,
    ) -> Self {
        let rates = rate::of_lines(&lines);
        Self {
            gap: None,
            begun: ports.clock.monotonic(),
            ports,
            node,
            lines,
            sources,
            rates,
            sights: Mutex::default(),
            seen: Mutex::default(),
            successes: Mutex::default(),
        }
    }

    /// The same, over a store whose record has a gap.
    pub fn with_gap(self, gap: Option<Gap>) -> Self {
        Self { gap, ..self }
    }

    /// What comes from outside.
    pub const fn ports(&self) -> &Ports {
        &self.ports
    }

    /// The destinations.
    pub fn destinations(&self) -> impl Iterator<Item = &DestinationName> {
        self.lines.keys()
    }

    /// A destination's settings and connector.
    pub fn line(&self, name: &DestinationName) -> Option<&Line> {
        self.lines.get(name)
    }

    /// Takes due work, at most `slots` operations and no more than the rate grants (contract 4.1 rule 4). Each operation taken
    /// has a grant of the rate, which ends with [`Engine::create`] or [`Engine::look_up`].
    pub async fn take(&self, name: &DestinationName, slots: usize) -> Result<Taken, StoreError> {
        let (Some(line), Some(rate)) = (self.lines.get(name), self.rate(name)) else { return Ok(Taken::default()) };
        self.keep_rate(name).await;
        let taken = self.take_granted(line, rate, name, slots).await?;
        // After a pause nothing of the rate is held: then it is asked for now rather than at the next look.
        if !rate.share(|share| share.is_empty_handed(self.ports.clock.monotonic())) {
            return Ok(taken);
        }
        self.keep_rate(name).await;
        let more = self.take_granted(line, rate, name, slots).await?;
        Ok(Taken { expired: [taken.expired, more.expired].concat(), ..more })
    }

    async fn take_granted(
        &self,
        line: &Line,
        rate: &Rate,
        name: &DestinationName,
        slots: usize,
    ) -> Result<Taken, StoreError> {
        let now = self.now();
        let granted = rate.share(|share| share.grant(slots, self.ports.clock.monotonic()));
        let settings = &line.settings;
        let taken = self
            .ports
            .store
            .take(Take {
                destination: name.clone(),
                owner: self.node.clone(),
                now,
                creates: granted,
                lookups: granted,
                fresh: self.fresh(granted),
                lease_until: now.plus(settings.lease),
                lookup_again_at: now.plus(settings.lease),
                grace: GRACE,
                timeout: settings.timeout,
                first_lookup_at: line.connector.can_look_up().then(|| now.plus(settings.lookup.first_after)),
            })
            .await;
        let used = taken.as_ref().map_or(0, |taken| taken.creates.len() + taken.lookups.len());
        let waits = taken.as_ref().is_ok_and(|taken| taken.next_due.is_some_and(|due| due <= now));
        rate.share(|share| {
            share.ungrant(granted.saturating_sub(used));
            share.note_hunger(waits && used == granted && used < slots, self.ports.clock.monotonic());
        });
        if let Ok(taken) = &taken {
            self.note_flow(name, &taken.flow, now);
        }
        taken
    }

    /// The new leads' share of so many calls: a quarter, in the long run.
    fn fresh(&self, calls: usize) -> usize {
        let by_chance = self.ports.entropy.fraction() * 4.0 < f64::from(u8::try_from(calls % 4).unwrap_or(0));
        calls / 4 + usize::from(by_chance)
    }

    /// How long until the rate allows a call.
    pub fn rate_wait(&self, name: &DestinationName) -> Duration {
        let now = self.ports.clock.monotonic();
        self.rate(name).map(|rate| rate.share(|share| share.wait(now))).unwrap_or_default()
    }

    pub(super) fn now(&self) -> At {
        self.ports.clock.now()
    }

    pub(super) fn new_id(&self) -> uuid::Uuid {
        uuid_v7(self.now(), self.ports.entropy.as_ref())
    }

    /// What this process has seen of sends, at this moment of the monotonic clock.
    pub(super) fn sights<T>(&self, f: impl FnOnce(&mut Sights, Duration) -> T) -> T {
        let now = self.ports.clock.monotonic();
        f(&mut self.sights.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// Looks for operations whose outcome is uncertain, whoever sent them. Should be called every few seconds.
    pub async fn look_around(&self) -> Result<(), StoreError> {
        let uncertain = self.ports.store.uncertain(MOST_UNCERTAIN).await?;
        self.sights(|sights, now| sights.look_around(&uncertain, now));
        Ok(())
    }

    /// Notes a confirmed create with its destination: in each epoch of the destination at once, then once a second. A write for each would cost as much as the result itself.
    pub(super) async fn note_success(&self, operation: &Operation) -> Result<(), StoreError> {
        let (name, epoch) = (&operation.destination, operation.series_epoch);
        let now = self.ports.clock.monotonic();
        let noted = self.successes.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        if noted.is_some_and(|(of, at)| of == epoch && now < at.saturating_add(Duration::from_secs(1))) {
            return Ok(());
        }
        self.ports.store.succeeded(name.clone(), self.now()).await?;
        self.successes.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), (epoch, now));
        Ok(())
    }

    /// What a new state means beside the store.
    pub(super) fn note_state(&self, operation: &Operation) {
        if let Status::Completed { .. } = operation.status {
            self.ports.metrics.completed(operation.destination.as_str());
        }
        // The end of a send matters only while its outcome is open.
        if !matches!(operation.status, Status::Calling { .. } | Status::Reconciling { .. }) {
            self.sights(|sights, _| sights.forget(send_of(operation)));
        }
    }

    /// The lead of an operation: as an operator corrected it, else read from the logged bytes. Bears every lead.
    pub fn lead(
        &self,
        operation: &Operation,
        delivery: Option<&StoredDelivery>,
        edited: Option<&Lead>,
    ) -> Result<Lead, String> {
        guarded(|| self.read_lead(operation, delivery, edited))?
    }

    /// The same; it may panic on a lead that a source cannot bear.
    pub(super) fn read_lead(
        &self,
        operation: &Operation,
        delivery: Option<&StoredDelivery>,
        edited: Option<&Lead>,
    ) -> Result<Lead, String> {
        if let Some(lead) = edited {
            return Ok(lead.clone());
        }
        let source = self.sources.get(&operation.source).ok_or("the source is not configured any more")?;
        let delivery = delivery.ok_or("the delivery is not in the log")?;
        let body = delivery.body.clone().ok_or("the payload was erased")?;
        let headers = delivery.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
        let request = Request { method: delivery.method.clone(), query: String::new(), headers, body };
        source.lead(&request, usize::from(operation.event_index))
    }

    /// What the connector is told about an operation.
    pub(super) fn order(&self, operation: &Operation, work: &Work, lead: Lead) -> Order {
        Order {
            operation_id: operation.id,
            crm_key: operation.crm_key(),
            source: operation.source.clone(),
            lead,
            received_at: operation.received_at,
            step: usize::from(operation.step),
            earlier: work.steps.iter().map(|(_, id)| id.clone()).collect(),
            first_sent_at: work.first_sent_at,
        }
    }

    /// Writes a result, again and again while the store is away: an answer of the CRM is never dropped for that. After five
    /// minutes the lease expires and a look-up finds it.
    pub(super) async fn store_result(&self, update: Update) -> Result<Updated, StoreError> {
        let mut wait = Duration::from_millis(100);
        let mut waited = Duration::ZERO;
        loop {
            match self.ports.store.update(update.clone()).await {
                Err(error @ (StoreError::Busy | StoreError::Unavailable(_))) if waited < Duration::from_secs(300) => {
                    tracing::warn!(
                        operation_id = %update.before.id,
                        crm_id = update.after.crm_id.as_ref().map(crate::operation::CrmId::as_str),
                        state = update.after.state().as_str(),
                        %error,
                        "a result waits for the store"
                    );
                    self.ports.pause.pause(wait).await;
                    waited += wait;
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
                other => return other,
            }
        }
    }
}

/// Runs foreign or lead-driven code; a panic becomes a message (case C40: one bad lead must not kill the worker).
pub(super) fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f))
        .map_err(|_| "the program failed on this lead (a panic); please report it".to_owned())
}

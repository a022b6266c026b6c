//! What goes into the store and what comes out: plain values, free of SQL.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;

use crate::clock::At;
use crate::operation::{CrmId, DestinationName, Lead, Likeness, Operation, OperationId, PayloadHash, SourceName};

/// Where the store is and how much its writer takes at once.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// `sqlite://PATH` or `postgres://…`; it may hold a password.
    pub url: String,
    /// Writes that may wait; above that intake answers 503.
    pub queue: usize,
    /// Writes of one commit at most.
    pub batch: usize,
    /// Connections for reads, which run on blocking threads; 0: reads run on the caller's own thread, over one connection.
    pub readers: u32,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Settings(store, queue {})", self.queue)
    }
}

/// Why the store did not do it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Too much is waiting; nothing was stored.
    #[error("the intake queue is full")]
    Busy,
    /// The database cannot be reached or cannot commit; nothing was confirmed.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// A row that cannot be a valid value, with its id.
    #[error("the store holds an impossible row: {0}")]
    Inconsistent(String),
    /// The store cannot be opened; says what to do.
    #[error("{0}")]
    Setup(String),
}

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A new operation.
    New,
    /// A known key with the same content.
    Replay,
    /// A known key whose content cannot be compared any more.
    ReplayUnverified,
    /// A known key with changed content.
    Conflict,
    /// Refused at the door.
    Rejected,
    /// A test call.
    Test,
    /// Caught by the honeypot.
    Spam,
    /// Understood, but not an event that makes a lead.
    Ignored,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 8] = [
        Self::New,
        Self::Replay,
        Self::ReplayUnverified,
        Self::Conflict,
        Self::Rejected,
        Self::Test,
        Self::Spam,
        Self::Ignored,
    ];

    /// The name in the store, the API and the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Replay => "replay",
            Self::ReplayUnverified => "replay_unverified",
            Self::Conflict => "conflict",
            Self::Rejected => "rejected",
            Self::Test => "test",
            Self::Spam => "spam",
            Self::Ignored => "ignored",
        }
    }
}

/// A delivery as it is logged: one per request, its raw bytes kept once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDelivery {
    /// A UUIDv7 made at reception; also the request id of the answer.
    pub id: Uuid,
    /// To which source it came.
    pub source: SourceName,
    /// When.
    pub received_at: At,
    /// Request method.
    pub method: String,
    /// The headers that matter, without any secret.
    pub headers: Vec<(String, String)>,
    /// The body as received (a prefix for 413).
    pub body: Vec<u8>,
    /// Something worth noting: why it was refused, a bad key header.
    pub note: Option<String>,
}

/// A delivery as it lies in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDelivery {
    /// The delivery.
    pub id: Uuid,
    /// Which event of it.
    pub event_index: u16,
    /// To which source it came.
    pub source: SourceName,
    /// Whose it is.
    pub operation_id: Option<OperationId>,
    /// What became of it.
    pub verdict: Verdict,
    /// When it came.
    pub received_at: At,
    /// Request method.
    pub method: String,
    /// The headers that matter.
    pub headers: Vec<(String, String)>,
    /// The raw bytes; `None` once erased.
    pub body: Option<Vec<u8>>,
    /// SHA-256 of the raw bytes, 32 bytes.
    pub body_sha256: Vec<u8>,
    /// Why it was refused, or what was odd about it.
    pub note: Option<String>,
}

/// Hashes a stored event again under the present rule; `None` where it cannot be read.
pub type Rehash = Arc<dyn Fn(&StoredDelivery, usize) -> Option<PayloadHash> + Send + Sync>;

/// A delivery that holds events.
#[derive(Clone)]
pub struct Admit {
    /// The delivery.
    pub delivery: NewDelivery,
    /// Its events; each gets its row in the log, the raw bytes stand in the first.
    pub events: Vec<NewEvent>,
    /// For content that was stored under another hash rule.
    pub rehash: Rehash,
}

/// One event, with the operation it makes if its key is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The operation as it is to be inserted: variant `First`, version 1.
    pub operation: Operation,
    /// Without a key: the same (source, payload_hash) within this time is the same submission.
    pub window: Option<Duration>,
    /// Under a key: what it has in common with a copy under another one. A likely copy of an earlier operation waits for a
    /// person.
    pub likeness: Option<Likeness>,
}

/// What became of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// New, replay, replay_unverified or conflict.
    pub verdict: Verdict,
    /// The operation that owns the event. For a conflict the operation in review; `conflicts_with` names the first.
    pub operation: Operation,
}

/// One change of one operation: a conditional UPDATE with all that belongs to it, in one commit.
#[derive(Debug, Clone)]
pub struct Update {
    /// The operation as it was read: its version (and with it state and epoch) is the condition.
    pub before: Operation,
    /// The operation as it shall be. Equal to `before` for writes that are only evidence.
    pub after: Operation,
    /// The event's name, for the transitions log (`claimed`, `answered`, `lease_expired` …).
    pub event: &'static str,
    /// What belongs in the attempts log.
    pub attempt: Option<AttemptWrite>,
    /// A step of the create that is done.
    pub step_done: Option<(u16, CrmId)>,
    /// Who did it, for an operator's action.
    pub audit: Option<Audit>,
    /// The lead as an operator corrected it.
    pub lead: Option<Lead>,
    /// Only while the destination is active, and still in this epoch of its own (contract 4: the attempt is recorded while the
    /// destination allows it); else nothing is written.
    pub while_active: Option<i64>,
}

/// What came of an [`Update`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Updated {
    /// It stands (also where a lost commit turned out to have stood: contract 4.1 rule 7).
    Done,
    /// The operation moved on; nothing was written. This is how it stands now.
    Moved(Box<Operation>),
}

/// Which call an attempt was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// A create.
    Create,
    /// A look-up.
    Lookup,
}

impl CallKind {
    /// The name in the store, the API and the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Lookup => "lookup",
        }
    }
}

/// A call that is about to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAttempt {
    /// A UUIDv7.
    pub id: Uuid,
    /// Create or look-up.
    pub call: CallKind,
    /// For a create its number (`Operation::attempts` after it was begun); for a look-up the attempt it asks about.
    pub number: u32,
    /// The step.
    pub step: u16,
    /// The epoch it was claimed with.
    pub epoch: i64,
    /// The licence of a create, by its stored name.
    pub licence: Option<&'static str>,
    /// When.
    pub started_at: At,
    /// Version of the mapping.
    pub mapping_version: String,
    /// The request's address without secrets and its body.
    pub request: String,
}

/// What a call came back with. Written once; a second write is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptEnd {
    /// Which attempt.
    pub id: Uuid,
    /// When.
    pub ended_at: At,
    /// `ok`, or the failure class.
    pub class: &'static str,
    /// HTTP status, where there was one.
    pub status: Option<u16>,
    /// The beginning of the answer, without secrets.
    pub excerpt: String,
    /// What follows (`completed`, `retry at …`, `look-up at …`, `evidence` …).
    pub decision: String,
}

/// A write to the attempts log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptWrite {
    /// Just before the call.
    Begin(NewAttempt),
    /// After it.
    End(AttemptEnd),
    /// A look-up, begun and ended.
    Whole(NewAttempt, AttemptEnd),
}

/// An attempt as it lies in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAttempt {
    /// The attempt.
    pub id: Uuid,
    /// `create` or `lookup`.
    pub call: String,
    /// Its number.
    pub number: u32,
    /// The step.
    pub step: u16,
    /// The epoch.
    pub epoch: i64,
    /// The licence of a create.
    pub licence: Option<String>,
    /// When it began.
    pub started_at: At,
    /// When it ended; `None` while open or lost.
    pub ended_at: Option<At>,
    /// `ok` or the failure class.
    pub class: Option<String>,
    /// HTTP status.
    pub status: Option<u16>,
    /// The beginning of the answer; erased with the payload.
    pub excerpt: Option<String>,
    /// What followed.
    pub decision: Option<String>,
    /// Version of the mapping.
    pub mapping_version: String,
    /// The request sent; erased with the payload.
    pub request: Option<String>,
}

/// A state change as it lies in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTransition {
    /// The version it made.
    pub version: i64,
    /// The state before; `None` for the first.
    pub from: Option<String>,
    /// The state after.
    pub to: String,
    /// The reason after.
    pub reason: Option<String>,
    /// The event's name.
    pub event: String,
    /// When.
    pub at: At,
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// Who (name of the token).
    pub actor: String,
    /// When.
    pub at: At,
    /// What (`complete`, `retry`, `reject`, `suspend`, `resume`, `token_create`, `token_revoke`).
    pub action: String,
    /// On which operation.
    pub operation_id: Option<OperationId>,
    /// On what else (destination, token).
    pub subject: Option<String>,
    /// From which state.
    pub from: Option<String>,
    /// To which state.
    pub to: Option<String>,
    /// Why.
    pub note: Option<String>,
}

/// A worker's request for due work of one destination.
#[derive(Debug, Clone)]
pub struct Take {
    /// Whose work.
    pub destination: DestinationName,
    /// The node that takes it.
    pub owner: String,
    /// The present.
    pub now: At,
    /// Free slots, or the granted rate if that is less (contract 4.1 rule 4): creates and look-ups together are no more.
    pub creates: usize,
    /// Look-ups wanted at most.
    pub lookups: usize,
    /// So many of the creates go to the leads of the last minute first, where much has waited longer.
    pub fresh: usize,
    /// End of the lease.
    pub lease_until: At,
    /// When a look-up that this worker does not finish may be taken again.
    pub lookup_again_at: At,
    /// How long after its end a lease counts as expired.
    pub grace: Duration,
    /// The longest time a call can take.
    pub timeout: Duration,
    /// First look-up of an operation whose worker was lost; `None` where the CRM has no look-up.
    pub first_lookup_at: Option<At>,
}

/// What a worker got.
#[derive(Debug, Clone, Default)]
pub struct Taken {
    /// Claimed for a create, status `Claimed`.
    pub creates: Vec<Operation>,
    /// Taken for a look-up, status `Reconciling`.
    pub lookups: Vec<Operation>,
    /// Leases that were found expired and moved.
    pub expired: Vec<Operation>,
    /// The earliest time at which more may be due, if known.
    pub next_due: Option<At>,
    /// How the destination's calls may leave, as this take found it.
    pub flow: Flow,
}

/// A partition of a rate: a fixed part of an account's call budget, held by one node at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RatePartition {
    /// Its number in the group, from 0.
    pub number: u32,
    /// Who holds it, or held it until its lease was over; `None` where it was given back, or never held.
    pub holder: Option<String>,
    /// End of the lease, or when it was given back.
    pub leased_until: At,
    /// When it may be full again: the later, the emptier.
    pub full_at: At,
    /// Who asks for it.
    pub asked_by: Option<String>,
    /// Until when the request stands.
    pub asked_until: At,
}

/// A destination's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Its name.
    pub name: DestinationName,
    /// Its kind.
    pub kind: String,
    /// Whether its leads wait for `resume`.
    pub suspended: bool,
    /// Why.
    pub reason: Option<String>,
    /// Since when it is in this state.
    pub since: At,
    /// Raised by suspend and resume.
    pub epoch: i64,
    /// Whether and how its calls may leave.
    pub flow: Flow,
    /// Last confirmed create.
    pub last_success_at: Option<At>,
}

/// How a destination's calls may leave; decided in `delivery/flow.rs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flow {
    /// No call before that time.
    pub throttled_until: Option<At>,
    /// One call at a time, until one is answered.
    pub probing: bool,
    /// When it was slowed down last, or resumed.
    pub slowed_at: Option<At>,
    /// How often in a row it was slowed down.
    pub setbacks: u32,
    /// When a probe passed: from then on the rate grows.
    pub ramp_from: Option<At>,
}

/// Which operations a list shows; newest first, unless it says otherwise.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// State, by its name.
    pub state: Option<crate::operation::State>,
    /// Source.
    pub source: Option<String>,
    /// Destination.
    pub destination: Option<String>,
    /// Reason.
    pub reason: Option<String>,
    /// operation_id, source_key or crm_id, exact.
    pub q: Option<String>,
    /// Received at or after.
    pub received_after: Option<At>,
    /// Received before.
    pub received_before: Option<At>,
    /// Page size.
    pub limit: usize,
    /// Only operations beyond this one (the last of the page before).
    pub after: Option<OperationId>,
    /// Oldest first.
    pub oldest_first: bool,
}

/// Which deliveries without an operation a list shows; newest first.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    /// Rejected, test, spam or ignored; all of them where it is not given.
    pub verdict: Option<Verdict>,
    /// Source.
    pub source: Option<String>,
    /// Page size.
    pub limit: usize,
    /// Only those older than this one (the last of the page before).
    pub after: Option<Uuid>,
}

/// Which entries of the audit log a list shows; newest first.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Who.
    pub actor: Option<String>,
    /// What.
    pub action: Option<String>,
    /// Page size.
    pub limit: usize,
    /// Only those before that place in the log (the last of the page before).
    pub after: Option<i64>,
}

/// How far the feed of state changes may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// The last number that was seen.
    pub(super) last: i64,
    /// Transactions below this one may still commit smaller numbers (PostgreSQL).
    pub(super) running: Option<i64>,
}

/// A state change of the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its place in the feed.
    pub seq: i64,
    /// The operation.
    pub operation_id: OperationId,
    /// Its source.
    pub source: String,
    /// Its destination.
    pub destination: String,
    /// The version that the change made.
    pub version: i64,
    /// The state before; `None` for the first.
    pub from: Option<String>,
    /// The state after.
    pub to: String,
    /// The reason after.
    pub reason: Option<String>,
    /// The event's name.
    pub event: String,
    /// When.
    pub at: At,
}

/// What happened in some hours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity {
    /// Deliveries.
    pub arrived: Vec<Arrived>,
    /// Operations, as they stand now.
    pub began: Vec<Began>,
}

/// Deliveries of one hour, source and verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// Its beginning.
    pub hour: At,
    /// The source.
    pub source: String,
    /// The verdict.
    pub verdict: Verdict,
    /// How many.
    pub count: i64,
}

/// Operations of one hour and destination that stand in one state now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Began {
    /// Its beginning.
    pub hour: At,
    /// The destination.
    pub destination: String,
    /// The present state.
    pub state: crate::operation::State,
    /// How many.
    pub count: i64,
}

/// Everything about one operation.
#[derive(Debug, Clone)]
pub struct Story {
    /// The operation.
    pub operation: Operation,
    /// The deliveries, in order.
    pub deliveries: Vec<StoredDelivery>,
    /// The calls, in order.
    pub attempts: Vec<StoredAttempt>,
    /// The state changes, in order.
    pub transitions: Vec<StoredTransition>,
    /// The operators' actions, in order.
    pub audit: Vec<Audit>,
    /// The lead as an operator corrected it.
    pub edited_lead: Option<Lead>,
    /// Conflicting operations of the same key.
    pub conflicts: Vec<OperationId>,
}

/// What the engine needs besides the operation.
#[derive(Debug, Clone)]
pub struct Work {
    /// The delivery that made it, with its raw bytes unless erased.
    pub delivery: Option<StoredDelivery>,
    /// The lead as an operator corrected it.
    pub edited_lead: Option<Lead>,
    /// Entities of the steps done so far.
    pub steps: Vec<(u16, CrmId)>,
    /// Start of the earliest create.
    pub first_sent_at: Option<At>,
    /// Id of the last create attempt, and whether it has an end.
    pub last_create: Option<(Uuid, bool)>,
}

/// Who may do what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sees everything.
    Viewer,
    /// Decides cases.
    Operator,
    /// Makes and shuts out people and tokens.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// A bearer token's row; the token itself is stored only as SHA-256.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Unique name of the person or program.
    pub name: String,
    /// What it may.
    pub role: Role,
    /// When it was made.
    pub created_at: At,
    /// When it was revoked.
    pub revoked_at: Option<At>,
    /// Last use, to the minute.
    pub last_used_at: Option<At>,
}

/// Who signs in with a name and a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Unique.
    pub name: String,
    /// What the person may.
    pub role: Role,
    /// When the row was made.
    pub created_at: At,
    /// When the person was shut out.
    pub disabled_at: Option<At>,
    /// Last use, to the minute.
    pub last_used_at: Option<At>,
}

/// A change of a person's row; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersonChange {
    /// Another role.
    pub role: Option<Role>,
    /// Another password (Argon2id, PHC string).
    pub password_hash: Option<String>,
    /// Shut out, or let in again.
    pub disabled: Option<bool>,
}

/// A sign-in that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// SHA-256 of the cookie's value, 32 bytes.
    pub sha256: Vec<u8>,
    /// Name of the person or of the token.
    pub holder: String,
    /// The token, where it was one; the session ends with it.
    pub token_sha256: Option<Vec<u8>>,
    /// When.
    pub begun_at: At,
}

/// How long a session lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTerms {
    /// Without use by a person.
    pub idle: Duration,
    /// In all.
    pub longest: Duration,
}

/// An incident: told once at its start and once at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// Its row.
    pub id: Uuid,
    /// What it is about (`destination_suspended:bitrix`); at most one is open per key.
    pub key: String,
    /// For people; no personal data.
    pub text: String,
    /// Start.
    pub opened_at: At,
    /// End.
    pub closed_at: Option<At>,
    /// Whether the start was told.
    pub told_start: bool,
    /// Whether the end was told.
    pub told_end: bool,
}

/// Counts for metrics and alerts.
#[derive(Debug, Clone, Default)]
pub struct Census {
    /// Operations by state.
    pub states: Vec<(crate::operation::State, i64)>,
    /// Open reviews by reason.
    pub reviews: Vec<(String, i64)>,
    /// Earliest `received_at` of operations that wait, by state `received` and `in_progress`.
    pub oldest: Vec<(crate::operation::State, At)>,
    /// Per destination: waiting (received) and in progress.
    pub destinations: Vec<(DestinationName, i64, i64)>,
}

/// What a retention step did, or would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Purged {
    /// Operations whose payload was erased, and bodies of replays that came after such an erasure.
    pub payloads: usize,
    /// Tombstones removed.
    pub tombstones: usize,
    /// Refused, test and spam deliveries removed.
    pub deliveries: usize,
}

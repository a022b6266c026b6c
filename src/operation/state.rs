//! The states of an operation (contract 4) and the operation itself.

use serde::Serialize;

use super::hash::{HashRule, PayloadHash};
use super::id::{CrmId, CrmKey, DestinationName, KeyOrigin, OperationId, SourceKey, SourceName, Variant};
use crate::clock::At;

/// The five visible states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Logged; no attempt is under way.
    Received,
    /// A create is under way, or its outcome is being looked up.
    InProgress,
    /// The CRM entity exists.
    Completed,
    /// It will not be created.
    FailedTerminal,
    /// Only a person can decide.
    NeedsReview,
}

impl State {
    /// All states.
    pub const ALL: [Self; 5] =
        [Self::Received, Self::InProgress, Self::Completed, Self::FailedTerminal, Self::NeedsReview];

    /// The name in the store, the API and the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::FailedTerminal => "failed_terminal",
            Self::NeedsReview => "needs_review",
        }
    }

    /// Whether a replay is told the result (200) rather than "accepted" (202).
    pub const fn is_finished(self) -> bool {
        match self {
            Self::Completed | Self::FailedTerminal | Self::NeedsReview => true,
            Self::Received | Self::InProgress => false,
        }
    }
}

/// Why an operation will not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    /// The CRM refused the lead.
    Rejected,
    /// A person refused it.
    RejectedByOperator,
}

impl FailReason {
    /// All reasons.
    pub const ALL: [Self; 2] = [Self::Rejected, Self::RejectedByOperator];

    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::RejectedByOperator => "rejected_by_operator",
        }
    }
}

/// Why only a person can decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewReason {
    /// Retries are used up; nothing was created.
    AttemptsExhausted,
    /// It may have been created, and the CRM cannot say.
    UncertainOutcome,
    /// Several entities bear the operation's crm_key.
    AmbiguousMatch,
    /// Two entities were made for one operation.
    DuplicateEntity,
    /// Changed content under a known key.
    PayloadConflict,
    /// An authenticated body that cannot be read.
    Unreadable,
    /// Older than the retention horizon, under an unknown key.
    LateAfterRetention,
    /// The content of another event that came shortly before, under another id.
    LikelyCopy,
}

impl ReviewReason {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::AttemptsExhausted,
        Self::UncertainOutcome,
        Self::AmbiguousMatch,
        Self::DuplicateEntity,
        Self::PayloadConflict,
        Self::Unreadable,
        Self::LateAfterRetention,
        Self::LikelyCopy,
    ];

    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::UncertainOutcome => "uncertain_outcome",
            Self::AmbiguousMatch => "ambiguous_match",
            Self::DuplicateEntity => "duplicate_entity",
            Self::PayloadConflict => "payload_conflict",
            Self::Unreadable => "unreadable",
            Self::LateAfterRetention => "late_after_retention",
            Self::LikelyCopy => "likely_copy",
        }
    }
}

/// What makes the next create lawful (G2). Spent by the create it allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Licence {
    /// No send of this step is on record.
    FirstSend,
    /// The earlier attempt is known as not executed: its failure class says so.
    NotExecuted,
    /// A trusted look-up begun after the settle time found nothing.
    LookupAbsent,
    /// A person says that nothing was created.
    Operator,
}

impl Licence {
    /// All licences.
    pub const ALL: [Self; 4] = [Self::FirstSend, Self::NotExecuted, Self::LookupAbsent, Self::Operator];

    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FirstSend => "first_send",
            Self::NotExecuted => "not_executed",
            Self::LookupAbsent => "lookup_absent",
            Self::Operator => "operator",
        }
    }
}

/// A worker's time-limited right to an operation. The epoch fences: a result of another epoch is a late answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The node that holds it.
    pub owner: String,
    /// The end; judged by the store's clock.
    pub until: At,
}

/// Where an operation stands, with what belongs to that state and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// `received`: the next attempt may start at that time, under that licence.
    Received {
        /// When the next attempt may start.
        next_attempt_at: At,
        /// What allows it.
        licence: Licence,
    },
    /// `in_progress`, phase `calling`, before the attempt is recorded: no create of this epoch can have left.
    Claimed {
        /// The worker's right.
        lease: Lease,
        /// What allows the coming create.
        licence: Licence,
    },
    /// `in_progress`, phase `calling`: attempt number `Operation::attempts` is recorded and its call may have left.
    Calling {
        /// The worker's right.
        lease: Lease,
    },
    /// `in_progress`, phase `reconciling`: the outcome of attempt number `Operation::attempts` is uncertain.
    Reconciling {
        /// When the next look-up may start.
        next_lookup_at: At,
        /// The latest moment at which the send can have ended: settle runs from here (contract 4.1 rule 3).
        send_ended_at: At,
        /// The first attempt of this series, or its renewal by a resume: give_up runs from here.
        since: At,
    },
    /// `completed`.
    Completed {
        /// The entity.
        crm_id: CrmId,
    },
    /// `failed_terminal`.
    FailedTerminal {
        /// Why.
        reason: FailReason,
    },
    /// `needs_review`.
    NeedsReview {
        /// Why.
        reason: ReviewReason,
        /// The latest moment at which a send of unknown outcome can have ended; `retry` is refused until settle has passed.
        send_ended_at: Option<At>,
    },
}

impl Status {
    /// The visible state.
    pub const fn state(&self) -> State {
        match self {
            Self::Received { .. } => State::Received,
            Self::Claimed { .. } | Self::Calling { .. } | Self::Reconciling { .. } => State::InProgress,
            Self::Completed { .. } => State::Completed,
            Self::FailedTerminal { .. } => State::FailedTerminal,
            Self::NeedsReview { .. } => State::NeedsReview,
        }
    }

    /// The worker's right, where one holds it.
    pub const fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Claimed { lease, .. } | Self::Calling { lease } => Some(lease),
            Self::Received { .. }
            | Self::Reconciling { .. }
            | Self::Completed { .. }
            | Self::FailedTerminal { .. }
            | Self::NeedsReview { .. } => None,
        }
    }

    /// The visible reason.
    pub const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::FailedTerminal { reason } => Some(reason.as_str()),
            Self::NeedsReview { reason, .. } => Some(reason.as_str()),
            Self::Received { .. }
            | Self::Claimed { .. }
            | Self::Calling { .. }
            | Self::Reconciling { .. }
            | Self::Completed { .. } => None,
        }
    }
}

/// One operation: a row of `operations`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its own id.
    pub id: OperationId,
    /// The source: scope of the key.
    pub source: SourceName,
    /// The sender's key; none where the sender has none.
    pub source_key: Option<SourceKey>,
    /// First content, or a conflicting one.
    pub variant: Variant,
    /// Where the key came from.
    pub key_origin: KeyOrigin,
    /// Hash of the content.
    pub payload_hash: PayloadHash,
    /// By which rule.
    pub hash_rule: HashRule,
    /// The CRM account it goes to.
    pub destination: DestinationName,
    /// Where it stands.
    pub status: Status,
    /// Create calls so far, over all series and steps.
    pub attempts: u32,
    /// Attempts of this series that count toward max_attempts (contract 4.1 rule 5).
    pub counted: u32,
    /// Create calls of this series: the wait before the next grows with them.
    pub series_attempts: u32,
    /// First attempt of this series: max_elapsed runs from here.
    pub series_since: Option<At>,
    /// The destination's epoch of this series; another epoch (suspend, resume) begins a new series.
    pub series_epoch: i64,
    /// Look-ups that were answered.
    pub lookups: u32,
    /// The step of the create that is due (contract 4.1 rule 12), from 0.
    pub step: u16,
    /// Raised by each claim; fences late answers.
    pub epoch: i64,
    /// Raised by each change; what `If-Match` names.
    pub version: i64,
    /// The entity, where one is known (also in needs_review `duplicate_entity`).
    pub crm_id: Option<CrmId>,
    /// The second entity of `duplicate_entity`, or the candidates of `ambiguous_match`, comma-separated.
    pub other_crm_ids: Option<String>,
    /// The first operation of the key, for a conflict.
    pub conflicts_with: Option<OperationId>,
    /// What went wrong last, for people; free of secrets.
    pub last_error: Option<String>,
    /// The delivery that made it, and the event's place in it.
    pub delivery_id: uuid::Uuid,
    /// The event's place in the delivery, from 0.
    pub event_index: u16,
    /// First reception.
    pub received_at: At,
    /// Last change.
    pub updated_at: At,
    /// When it became completed or failed_terminal: retention runs from here.
    pub finished_at: Option<At>,
    /// When its payload was erased.
    pub payload_erased_at: Option<At>,
}

impl Operation {
    /// The visible state.
    pub const fn state(&self) -> State {
        self.status.state()
    }

    /// The key under which the CRM knows it.
    pub fn crm_key(&self) -> CrmKey {
        CrmKey::derive(&self.source, self.source_key.as_ref(), &self.variant, self.id)
    }
}

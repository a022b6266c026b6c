//! What a call to the CRM came to: one vocabulary for all connectors (contract 5).

use std::time::Duration;

use serde::Serialize;

use super::id::CrmId;

/// Why a call failed. A failure that no rule names is `Uncertain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// No byte of the request can have reached the CRM.
    NotSent,
    /// The CRM's rate limit refused the call before it ran.
    Throttled,
    /// The vendor documents that the call was not carried out.
    NotExecuted,
    /// The call may have been carried out; nothing proves that it was not.
    Uncertain,
    /// The lead itself is refused: validation, missing field, business rule.
    Rejected,
    /// The account stops every call: credentials, rights, billing, block, moved address.
    Account,
    /// The CRM says that this external key exists already.
    Duplicate,
}

impl FailureClass {
    /// All classes.
    pub const ALL: [Self; 7] = [
        Self::NotSent,
        Self::Throttled,
        Self::NotExecuted,
        Self::Uncertain,
        Self::Rejected,
        Self::Account,
        Self::Duplicate,
    ];

    /// The name in the store, the API and the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Throttled => "throttled",
            Self::NotExecuted => "not_executed",
            Self::Uncertain => "uncertain",
            Self::Rejected => "rejected",
            Self::Account => "account",
            Self::Duplicate => "duplicate",
        }
    }

    /// Whether the class itself proves that no entity was made by the call.
    pub const fn proves_not_executed(self) -> bool {
        match self {
            Self::NotSent | Self::Throttled | Self::NotExecuted | Self::Account | Self::Rejected => true,
            Self::Uncertain | Self::Duplicate => false,
        }
    }
}

/// A failed call, classified. The message is for people and free of secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The class, which alone decides what follows.
    pub class: FailureClass,
    /// What happened, for people: the CRM's own message where it has one; never a secret, at most 500 characters.
    pub message: String,
    /// How long the CRM asked to wait, skew of its clock corrected.
    pub retry_after: Option<Duration>,
    /// The id that a `Duplicate` answer named; with `Uncertain` the id of an entity that may be ours and does not bear our key.
    pub crm_id: Option<CrmId>,
}

impl Failure {
    /// A failure without a wait and without an id.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_after: None, crm_id: None }
    }
}

/// What a create call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateOutcome {
    /// The CRM confirmed the entity with its id.
    Created(CrmId),
    /// It did not confirm.
    Failed(Failure),
}

/// What a look-up by crm_key came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupOutcome {
    /// The CRM answered: these entities bear the key (none, one or several).
    Found(Vec<CrmId>),
    /// The CRM could not be asked; it proves nothing.
    Failed(Failure),
}

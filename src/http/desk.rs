//! The operator's desk: what this room asks of delivery, as a port that the application fills.

use std::future::Future;
use std::pin::Pin;

use crate::clock::At;
use crate::operation::{CrmId, DestinationName, Lead, Operation, OperationId};
use crate::store::{StoreError, StoredDelivery};

/// Carries out operators' decisions and knows what needs sources and CRMs to be known.
pub trait Desk: Send + Sync {
    /// Carries out a decision on the operation as it stood at `version`, audited under the name `actor`. `Complete` asks the CRM
    /// whether the entity exists, where the CRM can be asked.
    fn resolve<'a>(
        &'a self,
        id: OperationId,
        version: i64,
        action: Action,
        actor: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Operation, Unresolved>> + Send + 'a>>;

    /// Asks the CRM now which entities bear the operation's key; logged, and audited under the name `actor`. It decides nothing.
    fn look_up<'a>(
        &'a self,
        id: OperationId,
        actor: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Candidate>, Unresolved>> + Send + 'a>>;

    /// What a person may do with an operation as it stands.
    fn choices(&self, operation: &Operation) -> Vec<Choice>;

    /// The lead of an operation: as corrected, else read from the delivery that made it; `None` where it was erased or cannot be
    /// read.
    fn lead_of(&self, operation: &Operation, delivery: Option<&StoredDelivery>, edited: Option<&Lead>) -> Option<Lead>;

    /// Where people find an entity in the CRM.
    fn link(&self, destination: &DestinationName, crm_id: &CrmId) -> Option<String>;
}

/// An entity of the CRM that may be the operation's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub crm_id: CrmId,
    /// What the CRM says about it: name and text.
    pub shown: Vec<(String, String)>,
}

/// An action, and whether the state allows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// `complete`, `retry`, `reject` or `look_up`.
    pub action: &'static str,
    /// Why not, where the state forbids it.
    pub refusal: Option<String>,
    /// When it becomes possible.
    pub not_before: Option<At>,
}

/// What an operator decided (contract 6.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The entity exists: this one.
    Complete {
        /// Its id.
        crm_id: CrmId,
        /// Why.
        note: Option<String>,
    },
    /// Nothing was created; send it.
    Retry {
        /// The lead as corrected; needed where the payload was erased.
        lead: Option<Box<Lead>>,
        /// Why.
        note: Option<String>,
    },
    /// It shall not be created.
    Reject {
        /// Why.
        note: String,
    },
}

/// Why a decision was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unresolved {
    /// 404.
    #[error("no operation of that id")]
    NotFound,
    /// 412: somebody was faster.
    #[error("the operation is at version {current}")]
    VersionMoved {
        /// The present version.
        current: i64,
        /// Who changed it last and when, where a person did.
        by: Option<(String, At)>,
    },
    /// 409: the state does not know this action, or not yet.
    #[error("{detail}")]
    Forbidden {
        /// For the operator; says what to do.
        detail: String,
        /// When it becomes possible (contract 4.1 rule 10).
        not_before: Option<At>,
    },
    /// 422: the CRM says that this entity does not exist.
    #[error("{detail}")]
    NotInCrm {
        /// For the operator.
        detail: String,
    },
    /// 409: the payload was erased; `retry` needs the lead in its body (contract 4.1 rule 8).
    #[error("the lead was erased")]
    NeedsLead,
    /// 409: this kind of CRM has no look-up.
    #[error("this CRM cannot be asked")]
    NoLookup,
    /// 503: the CRM did not answer a look-up.
    #[error("{detail}")]
    CrmAway {
        /// For the operator.
        detail: String,
        /// The wait it asked for.
        retry_after: Option<std::time::Duration>,
    },
    /// 503.
    #[error(transparent)]
    Store(#[from] StoreError),
}

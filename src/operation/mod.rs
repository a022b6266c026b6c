//! The operation: what one business event is, how its life goes, and what may happen to it next.
//!
//! Promises: every decision about identity, state and licence to create is made here, by pure functions over values, so
//! that it can be read and tested without a database or a network. It must not know where an event comes from, which CRM it
//! goes to, how it is stored, or what time it is: moments and random numbers are arguments.

pub mod arrival;
pub mod canonical;
pub mod field;
pub mod hash;
pub mod id;
pub mod json;
pub mod lead;
pub mod likeness;
pub mod outcome;
pub mod state;
pub mod transition;

pub use arrival::Arrival;
pub use hash::{HashRule, PayloadHash};
pub use id::{CrmId, CrmKey, DestinationName, KeyOrigin, OperationId, SourceKey, SourceName, Variant};
pub use lead::Lead;
pub use likeness::Likeness;
pub use outcome::{CreateOutcome, Failure, FailureClass, LookupOutcome};
pub use state::{FailReason, Lease, Licence, Operation, ReviewReason, State, Status};

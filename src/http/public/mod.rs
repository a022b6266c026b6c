//! The addresses that senders and monitoring use.

mod cors;
pub(crate) mod delivery;
pub(crate) mod health;
pub(crate) mod intake;
pub(crate) mod operations;
mod reply;
pub(crate) mod script;

//! leadonce: an idempotent CRM lead-intake gateway.
//!
//! The rooms, from the pure core outward. Each room's first comment says what it promises and what it must not know;
//! `tests/architecture.rs` holds the rule of who may import whom, `docs/ARCHITECTURE.md` walks one lead through them.

pub mod clock;
pub mod operation;

pub mod crm;
pub mod intake;
pub mod store;
pub mod telemetry;

pub mod delivery;
pub mod http;
pub mod sandbox;

pub mod app;
pub mod config;

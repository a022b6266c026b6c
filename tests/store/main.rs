//! The store's contract, run against SQLite and PostgreSQL.

#[path = "../support/postgres.rs"]
mod postgres;
#[path = "../support/proxy.rs"]
mod proxy;
mod stage;

mod admin;
mod bell;
mod claims;
mod copies;
mod failures;
mod life;
mod locks;
mod opening;
mod retention;
mod taking;

//! The application: the one place where the rooms are put together, and where threads, timers and signals live.
//!
//! Promises: what the command line asks for is done, with results on standard output, progress on standard error and an exit
//! code that scripts can trust. It decides nothing about operations: that is the core's.

mod alerts;
mod child;
pub mod cli;
mod commands;
mod demo;
mod desk;
mod drill;
mod files;
mod housekeeping;
mod parts;
mod remote;
mod runner;
mod serve;
mod timekeeper;

pub use commands::run;

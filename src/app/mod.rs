//! app

pub mod cli;

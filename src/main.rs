//! The command `leadonce`: parses the command line, then hands over to `app`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = leadonce::app::cli::Cli::parse();
    let filter = leadonce::config::log_filter();
    leadonce::app::run(cli, &filter).into()
}

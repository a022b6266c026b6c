//! The command line (contract 7): what may be asked of the program, parsed into values that need no further check.
//!
//! Only the definition. Results go to standard output and progress to standard error; [`Exit`] says how it ended.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::clock::At;
use crate::operation::{CrmId, OperationId, State};
use crate::store::Role;
use crate::telemetry::logging::Format;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: it failed, or a row of the drill did.
    Failed,
    /// 2: the command line or the configuration is wrong. The parser of the command line ends with it too.
    Usage,
}

impl Exit {
    /// The number that the shell sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An idempotent gateway between the places leads come from and a CRM: repeat the request as often as you like, the business
/// result happens once.
#[derive(Debug, Clone, Parser)]
#[command(name = "leadonce", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed; 2 wrong command line or configuration.";

/// What to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Show the whole promise on this machine: a sample form, a sandbox CRM and a temporary store
    Demo(Demo),
    /// Run the gateway
    Serve(Serve),
    /// Check the configuration and tell the line and key of each fault
    Check(Check),
    /// Bring the store to this version (serve does it too)
    Migrate(Configured),
    /// Make, list or revoke the tokens of operators
    Token {
        /// What to do with tokens.
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Look at operations and decide the cases that wait for a person
    Operations {
        /// What to do with operations.
        #[command(subcommand)]
        command: OperationsCommand,
    },
    /// Apply retention now (serve does it by itself, in small steps)
    Purge(Purge),
    /// Write a consistent copy of a SQLite store, also while serve runs
    Backup(Copy),
    /// Put a backup in the store's place; what stood there is kept beside it. serve must not run
    Restore(Copy),
    /// Run the sandbox CRM alone, with faults on demand
    Sandbox(Sandbox),
    /// Play the pilot table against a gateway and a sandbox CRM of its own, and tell which rows passed
    Drill(Drill),
}

/// `leadonce demo`.
#[derive(Debug, Clone, Args)]
pub struct Demo {
    /// Where the gateway and its sample form listen; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
}

/// `leadonce serve`.
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// The configuration.
    #[command(flatten)]
    pub configured: Configured,
    /// How log lines look
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// The store was lost, or restored by the database's own tools: look each lead up before it is created, for as long as
    /// senders may repeat it. Once, at the first start; no other node may run
    #[arg(long)]
    pub restored: bool,
}

/// `leadonce check`.
#[derive(Debug, Clone, Args)]
pub struct Check {
    /// The configuration.
    #[command(flatten)]
    pub configured: Configured,
    /// Ask each CRM too whether address and credentials are good; creates nothing
    #[arg(long)]
    pub connect: bool,
}

/// `leadonce purge`.
#[derive(Debug, Clone, Args)]
pub struct Purge {
    /// The configuration.
    #[command(flatten)]
    pub configured: Configured,
    /// Only count what is due
    #[arg(long)]
    pub dry_run: bool,
    /// Print the counts as JSON
    #[arg(long)]
    pub json: bool,
}

/// `leadonce backup` and `leadonce restore`.
#[derive(Debug, Clone, Args)]
pub struct Copy {
    /// The backup's file
    pub file: PathBuf,
    /// The configuration.
    #[command(flatten)]
    pub configured: Configured,
}

/// `leadonce sandbox`.
#[derive(Debug, Clone, Args)]
pub struct Sandbox {
    /// Where it listens; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    pub listen: SocketAddr,
}

/// `leadonce drill`.
#[derive(Debug, Clone, Args)]
pub struct Drill {
    /// Print the rows as JSON
    #[arg(long)]
    pub json: bool,
}

/// For commands that work with a configuration.
#[derive(Debug, Clone, Args)]
pub struct Configured {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "leadonce.toml", env = "LEADONCE_CONFIG")]
    pub config: PathBuf,
}

/// `leadonce token`.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenCommand {
    /// Make a token; it is shown once and stored hashed
    Create {
        /// The configuration.
        #[command(flatten)]
        configured: Configured,
        /// What it may: viewer sees, operator decides cases, admin may do what is to come (people and tokens)
        #[arg(long, value_parser = role())]
        role: Role,
        /// Whose it is; unique among active tokens
        #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
        name: String,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// List all tokens, without their secrets
    List {
        /// The configuration.
        #[command(flatten)]
        configured: Configured,
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token
    Revoke {
        /// The configuration.
        #[command(flatten)]
        configured: Configured,
        /// Whose token
        #[arg(long)]
        name: String,
    },
}

/// `leadonce operations`: the admin API from the shell.
#[derive(Debug, Clone, Subcommand)]
pub enum OperationsCommand {
    /// List operations, newest first
    List(ListOperations),
    /// Show everything about one operation
    Show {
        /// The gateway.
        #[command(flatten)]
        gateway: Gateway,
        /// Its operation_id
        id: OperationId,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Decide a case
    Resolve(Resolve),
}

/// Which gateway is asked.
#[derive(Clone, Args)]
pub struct Gateway {
    /// Its address; without it the one that the configuration names
    #[arg(long, env = "LEADONCE_URL")]
    pub url: Option<String>,
    /// An operator's token; better in the environment than on a command line that others can see
    #[arg(long, env = "LEADONCE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// The configuration, for the address.
    #[command(flatten)]
    pub configured: Configured,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is a secret, and an address may hold one.
        write!(f, "Gateway({})", self.configured.config.display())
    }
}

/// `leadonce operations list`.
#[derive(Debug, Clone, Args)]
pub struct ListOperations {
    /// The gateway.
    #[command(flatten)]
    pub gateway: Gateway,
    /// Only those in this state
    #[arg(long, value_parser = state())]
    pub status: Option<State>,
    /// Only those of this source
    #[arg(long)]
    pub source: Option<String>,
    /// Only those for this destination
    #[arg(long)]
    pub destination: Option<String>,
    /// Only those with this reason (uncertain_outcome, payload_conflict …)
    #[arg(long)]
    pub reason: Option<String>,
    /// Only the one with this operation_id, source_key or crm_id
    #[arg(long, value_name = "ID")]
    pub q: Option<String>,
    /// Only those received at this time or later (RFC 3339: 2026-12-01T10:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub received_after: Option<At>,
    /// Only those received before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub received_before: Option<At>,
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub limit: u16,
    /// Go on from the next_cursor of the page before
    #[arg(long)]
    pub cursor: Option<String>,
    /// Print them as JSON
    #[arg(long)]
    pub json: bool,
}

/// `leadonce operations resolve`.
#[derive(Debug, Clone, Args)]
pub struct Resolve {
    /// The gateway.
    #[command(flatten)]
    pub gateway: Gateway,
    /// Its operation_id
    pub id: OperationId,
    /// Only if the operation is still at this version; without it the version is read first
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<i64>,
    /// Print the operation as JSON afterwards
    #[arg(long)]
    pub json: bool,
    /// The decision.
    #[command(subcommand)]
    pub action: Action,
}

/// What a person decides.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub enum Action {
    /// The entity exists in the CRM, under this id
    Complete {
        /// Its id in the CRM
        #[arg(value_parser = crm_id)]
        crm_id: CrmId,
        /// Why, for the audit log
        #[arg(long)]
        note: Option<String>,
    },
    /// Nothing was created: send it again
    Retry {
        /// A file with the corrected lead, as JSON
        #[arg(long, value_name = "FILE")]
        lead: Option<PathBuf>,
        /// Why, for the audit log
        #[arg(long)]
        note: Option<String>,
    },
    /// It shall not be created
    Reject {
        /// Why, for the audit log
        #[arg(long)]
        note: String,
    },
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

impl From<LogFormat> for Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

fn role() -> impl TypedValueParser<Value = Role> {
    let known = |text: String| Role::ALL.into_iter().find(|role| role.as_str() == text).ok_or("not a role");
    PossibleValuesParser::new(Role::ALL.map(Role::as_str)).try_map(known)
}

fn state() -> impl TypedValueParser<Value = State> {
    let known = |text: String| State::ALL.into_iter().find(|state| state.as_str() == text).ok_or("not a state");
    PossibleValuesParser::new(State::ALL.map(State::as_str)).try_map(known)
}

fn time(text: &str) -> Result<At, String> {
    At::parse_rfc3339(text).ok_or_else(|| "a time looks like 2026-12-01T10:00:00Z".to_owned())
}

fn crm_id(text: &str) -> Result<CrmId, String> {
    CrmId::try_from(text.to_owned()).map_err(|invalid| invalid.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    const ID: &str = "0198c0de-0000-7000-8000-000000000001";

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command)
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_of_the_contract_is_understood() {
        for line in [
            "leadonce demo",
            "leadonce demo --listen 127.0.0.1:0",
            "leadonce serve",
            "leadonce serve --config other.toml --log-format json",
            "leadonce check --config leadonce.toml --connect",
            "leadonce migrate --config leadonce.toml",
            "leadonce token create --config leadonce.toml --role operator --name anna --json",
            "leadonce token list --json",
            "leadonce token revoke --name anna",
            "leadonce operations list --status needs_review --reason uncertain_outcome --limit 20 --json",
            "leadonce operations list --url https://leads.example.com --received-after 2026-12-01T10:00:00Z",
            &format!("leadonce operations show {ID} --json"),
            &format!("leadonce operations resolve {ID} --if-version 4 complete 4512"),
            &format!("leadonce operations resolve {ID} retry --lead lead.json"),
            &format!("leadonce operations resolve {ID} reject --note spam"),
            "leadonce purge --config leadonce.toml --dry-run",
            "leadonce serve --restored",
            "leadonce backup monday.db",
            "leadonce restore monday.db --config leadonce.toml",
            "leadonce sandbox --listen 127.0.0.1:9090",
            "leadonce drill",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
    }

    #[test]
    fn what_is_not_understood_ends_with_2_and_help_with_0() {
        for line in [
            "leadonce",
            "leadonce sreve",
            "leadonce serve --log-format xml",
            "leadonce sandbox --listen localhost",
            "leadonce token create --role root --name anna",
            "leadonce token create --role admin --name",
            "leadonce operations list --status done",
            "leadonce operations list --limit 0",
            "leadonce backup",
            "leadonce restore",
            "leadonce operations list --received-before yesterday",
            "leadonce operations show 12",
            &format!("leadonce operations resolve {ID}"),
            &format!("leadonce operations resolve {ID} reject"),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), i32::from(Exit::Usage.code()), "{line}");
        }
        assert_eq!(parse("leadonce --help").expect_err("help").exit_code(), i32::from(Exit::Done.code()));
    }

    #[test]
    fn values_arrive_in_their_types() {
        match parse("leadonce operations list --status needs_review") {
            Ok(Command::Operations { command: OperationsCommand::List(list) }) => {
                assert_eq!((list.status, list.limit), (Some(State::NeedsReview), 50));
            }
            other => panic!("{other:?}"),
        }
        match parse(&format!("leadonce operations resolve {ID} complete 4512")) {
            Ok(Command::Operations { command: OperationsCommand::Resolve(resolve) }) => {
                let crm_id = CrmId::try_from("4512".to_owned()).expect("an id");
                assert_eq!(resolve.action, Action::Complete { crm_id, note: None });
            }
            other => panic!("{other:?}"),
        }
    }
}

//! The commands of the command line, each a few lines over the parts that do it.

use std::io::{Write, stdout};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::cli::{Cli, Command, Configured, Exit, TokenCommand};
use super::demo::Demo;
use super::serve::{Application, signalled};
use super::{drill, parts, remote};
use crate::clock::{At, Clock, SystemClock, SystemEntropy};
use crate::config::{self, Config};
use crate::crm::Transport;
use crate::crm::transport::HttpTransport;
use crate::store::{self, Audit, Role, Store, Use};
use crate::telemetry::logging::{self, Format};
use crate::{http, sandbox};

/// Carries out what the command line asks for, on a runtime of its own.
pub fn run(cli: Cli, filter: &str) -> Exit {
    // The runtime is left to the end of the process: when it is dropped it waits for every thread that is still with the
    // database, and one that hangs would keep the process from ending. What had to be written is written by then.
    let runtime = std::mem::ManuallyDrop::new(actix_web::rt::System::new());
    runtime.block_on(carry_out_and_tell(cli, filter))
}

async fn carry_out_and_tell(cli: Cli, filter: &str) -> Exit {
    let format = match &cli.command {
        Command::Serve(serve) => serve.log_format.into(),
        _ => Format::Text,
    };
    logging::start(format, filter);
    match carry_out(cli.command).await {
        Ok(exit) => exit,
        Err(error) => {
            complain(&format!("{error:#}"));
            if error.is::<remote::Misconfigured>() { Exit::Usage } else { Exit::Failed }
        }
    }
}

async fn carry_out(command: Command) -> Result<Exit> {
    match command {
        Command::Demo(demo) => show(&demo.listen.to_string()).await,
        Command::Serve(serve) => {
            let how = if serve.restored { Use::ServeRestored(SystemClock::default().now()) } else { Use::Serve };
            with_config(&serve.configured, async move |config| serve_until_stopped(config, how).await).await
        }
        Command::Check(check) => check_file(&check.configured, check.connect).await,
        Command::Migrate(configured) => {
            with_config(&configured, async |config| {
                let _ = Store::open(&config.store, Use::Tool)?;
                say("the store is at this version")
            })
            .await
        }
        Command::Token { command } => tokens(command).await,
        Command::Operations { command } => remote::run(command).await,
        Command::Purge(purge) => {
            let (dry_run, json) = (purge.dry_run, purge.json);
            with_config(&purge.configured, async move |config| purge_now(config, dry_run, json).await).await
        }
        Command::Backup(copy) => {
            with_config(&copy.configured, async |config| {
                store::backup(&config.store, &copy.file)?;
                say(&format!("the store is copied to {}", copy.file.display()))
            })
            .await
        }
        Command::Restore(copy) => with_config(&copy.configured, async |config| restore(&config, &copy.file)).await,
        Command::Sandbox(sandbox) => {
            let mut running = sandbox::Sandbox::start(&sandbox.listen.to_string()).await?;
            say(&format!(
                "the sandbox CRM listens on {}\nBitrix24 webhook_url: {}",
                running.url(),
                running.bitrix_url()
            ))?;
            tokio::select! {
                () = running.ended() => Ok(Exit::Failed),
                () = signalled()? => Ok(Exit::Done),
            }
        }
        Command::Drill(drill) => play(drill.json).await,
    }
}

/// Reads the configuration, or tells every fault of it.
fn configured(configured: &Configured) -> Result<Config, Exit> {
    parts::load(&configured.config).map_err(|faults| {
        complain(&format!("{}:\n{faults}", configured.config.display()));
        Exit::Usage
    })
}

async fn with_config(file: &Configured, work: impl AsyncFnOnce(Config) -> Result<()>) -> Result<Exit> {
    match configured(file) {
        Ok(config) => work(config).await.map(|()| Exit::Done),
        Err(exit) => Ok(exit),
    }
}

async fn serve_until_stopped(config: Config, how: Use) -> Result<()> {
    let host = config.server.listen.ip();
    // The handlers stand before the address is told: from then on a signal is a good stop.
    let stop = signalled()?;
    let application = Application::build(config, how).await?;
    let address = std::net::SocketAddr::new(host, application.port());
    say(&format!("{}http://{address}", super::child::LISTENING))?;
    complain(application.console());
    application.run_until(stop).await
}

async fn check_file(file: &Configured, connect: bool) -> Result<Exit> {
    let config = match configured(file) {
        Ok(config) => config,
        Err(exit) => return Ok(exit),
    };
    say(&config::effective(&config))?;
    if !connect {
        return Ok(Exit::Done);
    }
    let transport = HttpTransport::new().map_err(anyhow::Error::msg)?;
    let clock = SystemClock::default();
    let mut exit = Exit::Done;
    for (name, line) in &parts::Parts::from(&config)?.lines {
        let exchange = transport.send(&line.connector.check(), line.settings.timeout).await;
        match line.connector.read_check(&exchange, clock.now()) {
            Ok(()) => say(&format!("destination {name}: it answers, and its entities can be read"))?,
            Err(fault) => {
                complain(&format!("destination {name}: {fault}"));
                exit = Exit::Failed;
            }
        }
    }
    Ok(exit)
}

/// A store for a command beside a running gateway; its writer on a thread of its own.
fn open(config: &Config) -> Result<Store> {
    let (store, mut writer) = Store::open(&config.store, Use::Tool)?;
    std::thread::Builder::new().name("store-writer".into()).spawn(move || while writer.run_one() {})?;
    Ok(store)
}

async fn tokens(command: TokenCommand) -> Result<Exit> {
    match command {
        TokenCommand::Create { configured, role, name, json } => {
            with_config(&configured, async move |config| create_token(&config, role, name, json).await).await
        }
        TokenCommand::List { configured, json } => {
            with_config(&configured, async move |config| list_tokens(&config, json).await).await
        }
        TokenCommand::Revoke { configured, name } => {
            with_config(&configured, async move |config| {
                let audit = audit("token_revoke", &name);
                anyhow::ensure!(
                    open(&config)?.revoke_token(name.clone(), audit).await?,
                    "no active token is named {name}"
                );
                say(&format!("the token of {name} is revoked"))
            })
            .await
        }
    }
}

async fn create_token(config: &Config, role: Role, name: String, json: bool) -> Result<()> {
    let token = http::new_token(&SystemEntropy);
    let made = open(config)?
        .create_token(name.clone(), role, Sha256::digest(token.as_bytes()).to_vec(), audit("token_create", &name))
        .await?;
    anyhow::ensure!(made, "an active token is named {name} already; revoke it first, or choose another name");
    if json {
        return say(&serde_json::json!({"token": token, "role": role, "name": name}).to_string());
    }
    complain("keep it safe: it is shown this once");
    say(&token)
}

async fn list_tokens(config: &Config, json: bool) -> Result<()> {
    for token in open(config)?.tokens().await? {
        let time = |at: Option<At>| at.map(At::rfc3339);
        let (revoked, used) = (time(token.revoked_at), time(token.last_used_at));
        if json {
            let line = serde_json::json!({
                "name": token.name, "role": token.role, "created_at": token.created_at.rfc3339(),
                "revoked_at": revoked, "last_used_at": used,
            });
            say(&line.to_string())?;
        } else {
            let state = revoked.map_or_else(|| "active".to_owned(), |at| format!("revoked {at}"));
            let used = used.unwrap_or_else(|| "never used".into());
            say(&format!("{}\t{}\t{state}\t{used}", token.name, token.role.as_str()))?;
        }
    }
    Ok(())
}

fn audit(action: &str, subject: &str) -> Audit {
    Audit {
        actor: "command line".into(),
        at: SystemClock::default().now(),
        action: action.into(),
        operation_id: None,
        subject: Some(subject.into()),
        from: None,
        to: None,
        note: None,
    }
}

async fn purge_now(config: Config, dry_run: bool, json: bool) -> Result<()> {
    const STEP: usize = 500;
    let store = open(&config)?;
    let now = SystemClock::default().now();
    let (payload, tombstone) = (now.minus(config.retention.payload), now.minus(config.retention.tombstone));
    let mut total = store::Purged::default();
    loop {
        let step = store.purge(now, payload, tombstone, if dry_run { usize::MAX } else { STEP }, dry_run).await?;
        total.payloads += step.payloads;
        total.tombstones += step.tombstones;
        total.deliveries += step.deliveries;
        if dry_run || step.payloads < STEP && step.tombstones < STEP && step.deliveries < STEP {
            break;
        }
    }
    if json {
        return say(&serde_json::to_string(&total)?);
    }
    let verb = if dry_run { "due" } else { "done" };
    say(&format!(
        "{verb}: {} payloads erased, {} tombstones removed, {} log rows without an operation removed",
        total.payloads, total.tombstones, total.deliveries
    ))
}

fn restore(config: &Config, backup: &std::path::Path) -> Result<()> {
    let kept = store::restore(&config.store, backup, SystemClock::default().now())?;
    if let Some(kept) = kept {
        complain(&format!("what stood there is kept as {}", kept.display()));
    }
    let redelivery = config::show_duration(config.retention.redelivery);
    say(&format!(
        "the store is restored from {}; for {redelivery} each lead is looked up in the CRM before it is created",
        backup.display()
    ))?;
    let unasked = parts::Parts::from(config)?.lines.into_iter().filter(|(_, line)| !line.connector.can_look_up());
    for (name, _) in unasked {
        complain(&format!(
            "destination {name} cannot be asked: its open leads go to review, and an event that is delivered again though the \
             backup does not know it is created again"
        ));
    }
    Ok(())
}

async fn show(listen: &str) -> Result<Exit> {
    let demo = Demo::start(&program()?, listen).await?;
    say(&format!(
        "leadonce demo\n\n  form page     {}\n  gateway       {}\n  sandbox CRM   {}\n  operator token {}\n  console       {}/console (sign in with the token)\n\n\
         Open the form page, send the form, send it again: one deal stands in the CRM. Lose the CRM's answer with the\n\
         button, send, and see it found again. The gateway's log: {}\nStop with Ctrl-C; nothing is kept.",
        demo.page,
        demo.gateway,
        demo.sandbox,
        demo.token,
        demo.gateway,
        demo.log().display()
    ))?;
    signalled()?.await;
    Ok(Exit::Done)
}

async fn play(json: bool) -> Result<Exit> {
    let rows = drill::run(&program()?).await?;
    if json {
        say(&serde_json::to_string_pretty(&rows)?)?;
    } else {
        for row in &rows {
            let verdict = if row.fault.is_none() { "passed" } else { "FAILED" };
            say(&format!("{verdict}  {:<52}  {}", row.scenario, row.expected))?;
            if let Some(fault) = &row.fault {
                say(&format!("        {fault}"))?;
            }
        }
        let failed = rows.iter().filter(|row| row.fault.is_some()).count();
        say(&format!("{} passed, {failed} failed", rows.len() - failed))?;
    }
    Ok(if rows.iter().all(|row| row.fault.is_none()) { Exit::Done } else { Exit::Failed })
}

fn program() -> Result<std::path::PathBuf> {
    config::program().context("the program's own path")
}

/// A result, on standard output; flushed, since others wait for it.
pub(super) fn say(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    out.flush()?;
    Ok(())
}

/// Something for the person at the terminal, on standard error.
pub(super) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", text.trim_end());
}

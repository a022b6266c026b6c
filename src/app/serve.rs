//! The gateway put together: store, sources, connectors, engine, server and the loops that drive them.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::sync::watch;

use super::alerts::{Alerts, Channel, Outage};
use super::desk::OperatorDesk;
use super::files;
use super::housekeeping::{Housekeeping, Retention};
use super::parts::Parts;
use super::runner;
use super::timekeeper::Timekeeper;
use crate::clock::{Clock, CommonClock, Entropy, SystemClock, SystemEntropy, uuid_v7};
use crate::config::Config;
use crate::crm::Transport;
use crate::crm::transport::HttpTransport;
use crate::delivery::{Engine, Gap, Pause, Ports};
use crate::http;
use crate::store::{Store, Use};
use crate::telemetry::Metrics;

/// The longest wait before a step of the database is done again, the first time.
const STEP_AGAIN: Duration = Duration::from_millis(5);
/// How often housekeeping counts and tells incidents.
const COUNT_EVERY: Duration = Duration::from_secs(2);
/// How long a channel that did not take an alert is left alone.
const TELL_AGAIN: Duration = Duration::from_secs(30);
/// How often the ledger is audited and retention looks for work.
const AUDIT_EVERY: Duration = Duration::from_secs(60);
/// How often the length of SQLite's write-ahead log is looked at.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(200);
/// How often the database's clock is read.
const CLOCK_EVERY: Duration = Duration::from_secs(5);
/// Time beyond the longest call in which open calls may be answered and written down when stopping.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// Waiting by the system's timer.
#[derive(Debug)]
pub(super) struct SystemPause;

impl Pause for SystemPause {
    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// A gateway that is bound and ready to run.
pub(super) struct Application {
    port: u16,
    server: actix_web::dev::Server,
    /// Console and admin API, where they listen on an address of their own.
    admin: Option<actix_web::dev::Server>,
    /// What people are told at the start.
    console: String,
    engine: Arc<Engine>,
    housekeeping: Housekeeping,
    alerts: Alerts,
    timekeeper: Timekeeper,
    writer: std::thread::JoinHandle<()>,
    stop_bound: Duration,
}

impl Application {
    /// Opens the store, checks that nothing open is missing from the configuration, and binds the address.
    pub(super) async fn build(config: Config, how: Use) -> Result<Self> {
        let parts = Parts::from(&config)?;
        // The number plans are read at the first phone: here, so that no lead waits for it.
        let _ = crate::intake::normal_phone("+12025550100", None);
        let common = Arc::new(CommonClock::over(Arc::new(SystemClock::default())));
        let clock = Arc::clone(&common) as Arc<dyn Clock>;
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new().map_err(anyhow::Error::msg)?);
        let metrics = Metrics::new()?;
        let (store, writer) = open(&config, how)?;
        // Half of what a lease leaves beyond its call, of the least destination.
        let margins = parts.lines.values().map(|line| line.settings.lease.saturating_sub(line.settings.timeout) / 2);
        let clock_tolerance = margins.min().unwrap_or_default();
        let timekeeper = Timekeeper::start(store.clone(), common, metrics.clone(), clock_tolerance).await?;

        let destinations = config.destinations.iter().map(|d| (d.name.clone(), d.kind.clone())).collect();
        store.ensure_destinations(destinations, clock.now()).await?;
        nothing_is_missing(&store, &config).await?;

        let ports = Ports {
            store: store.clone(),
            transport: Arc::clone(&transport),
            clock: Arc::clone(&clock),
            entropy: Arc::clone(&entropy),
            pause: Arc::new(SystemPause),
            metrics: metrics.clone(),
        };
        let node = format!("node-{}", uuid_v7(clock.now(), entropy.as_ref()));
        let longest = parts.lines.values().map(|line| line.settings.timeout).max().unwrap_or_default();
        let sources =
            parts.sources.iter().map(|(settings, source)| (settings.name.clone(), Arc::clone(source))).collect();
        let redelivery = config.retention.redelivery;
        let gap = store.restored_at().map(|ended_at| Gap { ended_at, redelivery });
        let engine = Arc::new(Engine::new(ports, node.clone(), parts.lines, sources).with_gap(gap));

        let listener = TcpListener::bind(config.server.listen)
            .with_context(|| format!("cannot listen on {} ([server] listen)", config.server.listen))?;
        let port = listener.local_addr()?.port();
        let public_url = config.server.public_url.clone().unwrap_or_else(|| format!("http://{}", address(&listener)));
        let inbound: HashMap<_, _> = parts
            .sources
            .into_iter()
            .map(|(settings, source)| (settings.name.clone(), Arc::new(http::Inbound::new(settings, source))))
            .collect();
        let admin = config.admin.listen.map(|listen| {
            TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen} ([admin] listen)"))
        });
        let admin = admin.transpose()?;
        let own_url = || admin.as_ref().map(|listener| format!("http://{}", address(listener)));
        let console_url = config.admin.url.clone().or_else(own_url).unwrap_or_else(|| public_url.clone());
        let console_url = console_url.trim_end_matches('/').to_owned();
        let first = first_secret(&store, entropy.as_ref()).await?;
        let console = match &first {
            Some(secret) => format!(
                "nobody can sign in to the console yet; make the first administrator, once: {console_url}/console#/first/{secret}"
            ),
            None => format!("the console is at {console_url}/console"),
        };
        let shared = http::Shared {
            store: store.clone(),
            sources: inbound,
            clock: Arc::clone(&clock),
            entropy,
            metrics: metrics.clone(),
            desk: Arc::new(OperatorDesk { engine: Arc::clone(&engine) }),
            normalisers: http::Normalisers { phone: crate::intake::normal_phone, email: crate::intake::normal_email },
            counts: http::Counts::default(),
            gate: http::Gate::new(first.as_deref()),
            settings: http::Settings {
                console_url,
                session: config.admin.session,
                public_url,
                tombstone: config.retention.tombstone,
                clock_tolerance,
                connections: files::raise_limit(),
                ..http::Settings::default()
            },
        };
        let workers = config.server.workers.unwrap_or(2);
        let shared = Arc::new(shared);
        let doors = if admin.is_some() { http::Doors::Senders } else { http::Doors::All };
        let server = http::server(Arc::clone(&shared), listener, workers, doors)?;
        let admin = admin.map(|listener| http::server(shared, listener, 1, http::Doors::Operators)).transpose()?;
        let retention = Retention { payload: config.retention.payload, tombstone: config.retention.tombstone };
        let channel =
            config.alerts.webhook_url.clone().map(|url| Channel { url, secret: config.alerts.webhook_secret.clone() });
        Ok(Self {
            port,
            server,
            admin,
            console,
            housekeeping: Housekeeping {
                store: store.clone(),
                engine: Arc::clone(&engine),
                metrics,
                clock: Arc::clone(&clock),
                retention,
            },
            alerts: Alerts { store, transport, clock, channel, node },
            engine,
            timekeeper,
            writer,
            stop_bound: longest + STOP_MARGIN,
        })
    }

    /// The bound port.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Where the console is, and how the first administrator is made where there is none.
    pub(super) fn console(&self) -> &str {
        &self.console
    }

    /// Runs until `stop` comes, then stops intake, finishes or hands over what is open, within a bound.
    pub(super) async fn run_until(self, stop: impl Future<Output = ()>) -> Result<()> {
        let Self { server, admin, engine, housekeeping, alerts, timekeeper, writer, stop_bound, .. } = self;
        let store = housekeeping.store.clone();
        let clock = Arc::clone(&housekeeping.clock);
        let (stopping, stopped) = watch::channel(false);
        let runners: Vec<_> = engine
            .destinations()
            .map(|name| {
                let (engine, clock) = (Arc::clone(&engine), Arc::clone(&clock));
                tokio::spawn(runner::run(engine, store.clone(), clock, name.clone(), stopped.clone()))
            })
            .collect();
        let outage = Arc::new(Outage::default());
        let chores = [
            tokio::spawn(count_loop(housekeeping.clone(), Arc::clone(&outage))),
            tokio::spawn(tell_loop(alerts, outage)),
            tokio::spawn(audit_loop(housekeeping.clone())),
            tokio::spawn(clock_loop(timekeeper)),
            tokio::spawn(checkpoint_loop(store.clone())),
            tokio::spawn(index_loop(housekeeping)),
        ];
        let handle = server.handle();
        let admin_handle = admin.as_ref().map(actix_web::dev::Server::handle);
        if let Some(admin) = admin {
            actix_web::rt::spawn(admin);
        }
        let mut serving = actix_web::rt::spawn(server);
        tokio::select! {
            () = stop => {}
            ended = &mut serving => ended?.context("the server stopped by itself")?,
        }
        tracing::info!("stopping: no new work is taken; open calls may end");
        let _ = stopping.send(true);
        let finished = async {
            if let Some(admin) = &admin_handle {
                admin.stop(true).await;
            }
            handle.stop(true).await;
            for runner in runners {
                let _ = runner.await;
            }
            // The other nodes need not wait for the leases to end.
            engine.give_rates_back().await;
        };
        if tokio::time::timeout(stop_bound, finished).await.is_err() {
            tracing::warn!(
                "calls were still open at the end of the time to stop; their leases expire and they are looked up"
            );
            handle.stop(false).await;
        }
        for chore in chores {
            chore.abort();
            let _ = chore.await;
        }
        drop((engine, store, clock));
        // With the last handle gone the writer ends by itself, its last batch committed.
        let _ = tokio::time::timeout(Duration::from_secs(5), tokio::task::spawn_blocking(move || writer.join())).await;
        Ok(())
    }
}

/// Opens the configured store for serving, its writer on a thread of its own.
fn open(config: &Config, how: Use) -> Result<(Store, std::thread::JoinHandle<()>)> {
    let (store, writer) = Store::open(&config.store, how)?;
    // Two nodes that stood in each other's way do not come back at the same moment.
    let spread = |tries: usize| {
        let longest = STEP_AGAIN * u32::try_from(tries).unwrap_or(1);
        std::thread::sleep(longest.mul_f64(SystemEntropy.fraction()));
    };
    let mut writer = writer.pausing(spread);
    let thread = std::thread::Builder::new().name("store-writer".into()).spawn(move || {
        let work = std::panic::AssertUnwindSafe(|| while writer.run_one() {});
        if std::panic::catch_unwind(work).is_err() {
            // Without its writer a gateway can only refuse; whoever supervises it starts a new one.
            tracing::error!("the store's writer has failed; the process ends");
            std::process::abort();
        }
    })?;
    if let Some(mut bell) = store.bell() {
        // It ends with the store.
        std::thread::Builder::new().name("store-bell".into()).spawn(move || while bell.step() {})?;
    }
    Ok((store, thread))
}

/// Contract 4.1 rule 11: open operations of a source or destination that is not configured would be stuck in silence.
async fn nothing_is_missing(store: &Store, config: &Config) -> Result<()> {
    let (sources, destinations) = store.open_names().await?;
    let known: BTreeSet<&str> = config.sources.iter().map(|source| source.name.as_str()).collect();
    if let Some(name) = sources.iter().find(|name| !known.contains(name.as_str())) {
        bail!(
            "source {name} has open operations but is not configured; put its [[source]] back until they are finished"
        );
    }
    let known: BTreeSet<&str> = config.destinations.iter().map(|destination| destination.name.as_str()).collect();
    if let Some(name) = destinations.iter().find(|name| !known.contains(name.as_str())) {
        bail!(
            "destination {name} has open operations but is not configured; put its [[destination]] back until they are finished"
        );
    }
    Ok(())
}

/// Where nobody can sign in yet: the secret with which the first administrator is made.
async fn first_secret(store: &Store, entropy: &dyn Entropy) -> Result<Option<String>> {
    Ok((!store.has_operators().await?).then(|| http::new_token(entropy)))
}

fn address(listener: &TcpListener) -> String {
    listener.local_addr().map_or_else(|_| String::new(), |address| address.to_string())
}

/// Counts, and watches whether the store can be written.
async fn count_loop(housekeeping: Housekeeping, outage: Arc<Outage>) {
    loop {
        let begun = housekeeping.clock.monotonic();
        let counted = housekeeping.count().await;
        let took = housekeeping.clock.monotonic().saturating_sub(begun);
        let written = match counted {
            Ok(()) => housekeeping.store.writable().await,
            Err(error) => Err(error),
        };
        outage.see(written.err().map(|error| error.to_string()), housekeeping.clock.now());
        // Counting takes no more than a twentieth of the time, however large the store.
        tokio::time::sleep(COUNT_EVERY.max(took * 20)).await;
    }
}

/// Tells incidents, beside the counting: a receiver that hangs must hold up nothing.
async fn tell_loop(alerts: Alerts, outage: Arc<Outage>) {
    loop {
        let wait = if alerts.tell(&outage).await { COUNT_EVERY } else { TELL_AGAIN };
        tokio::time::sleep(wait).await;
    }
}

async fn audit_loop(housekeeping: Housekeeping) {
    loop {
        let begun = housekeeping.clock.monotonic();
        if let Err(error) = housekeeping.audit().await {
            tracing::warn!(%error, "the ledger could not be audited");
        }
        let took = housekeeping.clock.monotonic().saturating_sub(begun);
        while matches!(housekeeping.purge().await, Ok(true)) {
            // Small steps with room between them, so that intake never waits behind retention.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(AUDIT_EVERY.max(took * 20)).await;
    }
}

/// Keeps the time. While the database does not answer, it goes on by the clock that nobody sets.
async fn clock_loop(timekeeper: Timekeeper) {
    loop {
        tokio::time::sleep(CLOCK_EVERY).await;
        if let Err(error) = timekeeper.read().await {
            tracing::debug!(%error, "the database's clock could not be read");
        }
    }
}

/// Copies SQLite's write-ahead log back off the writer, so that no commit waits for it; nothing to do on PostgreSQL.
async fn checkpoint_loop(store: Store) {
    loop {
        tokio::time::sleep(CHECKPOINT_EVERY).await;
        let store = store.clone();
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || store.checkpoint()).await {
            tracing::warn!(%error, "no checkpoint could be made");
        }
    }
}

/// Fills the search index. It takes no more than a tenth of the time while there is much to fill: under load the cores belong to
/// intake and delivery, and the index follows later.
async fn index_loop(housekeeping: Housekeeping) {
    loop {
        let begun = housekeeping.clock.monotonic();
        let more = housekeeping.index().await.unwrap_or(false);
        let took = housekeeping.clock.monotonic().saturating_sub(begun);
        let wait = if more { Duration::from_millis(50).max(took * 9) } else { Duration::from_secs(5) };
        tokio::time::sleep(wait).await;
    }
}

/// Comes when the process is told to stop: SIGTERM or SIGINT. From this call on, not from the first poll.
pub(super) fn signalled() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}

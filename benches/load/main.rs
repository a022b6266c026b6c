//! The load harness: `cargo bench --bench load` measures durable intake, replays and delivery from end to end on both stores, beside a
//! trivial handler of the same server library, and prints one table.
//!
//! Read the ratios, not the rates: the load runs on the same cores as what it measures, and machines differ. `of T` is the rate
//! divided by the trivial handler's, measured just before and just after, with as many connections.
//! `-- --help` shows what can be chosen; `-- --stored 5000000` shows how the cost grows.

#![expect(clippy::print_stdout, reason = "the table is what is asked for")]

mod client;
mod fill;
mod leads;
mod pages;
#[path = "../../tests/support/postgres.rs"]
mod postgres;
mod process;
mod slow;
mod trivial;

use std::path::Path;
use std::time::Duration;

use clap::Parser;
use diesel::connection::SimpleConnection;
use diesel::{Connection, PgConnection};
use leadonce::clock::{Clock, SystemClock};
use leadonce::operation::DestinationName;
use leadonce::store::{self, Store};

use client::{Load, Plan};
use fill::Past;
use leads::{MESSAGE, post, requests};
use process::{How, Process};
use slow::SlowDisk;

/// Measures leadonce under load.
#[derive(Parser, Debug, Clone)]
struct Choice {
    /// Stores, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "sqlite,postgres")]
    stores: Vec<String>,
    /// Connections, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "1,64,256")]
    connections: Vec<usize>,
    /// What is measured: ordered, random, replay, mix, half, single, slow, end_to_end, claim, pages.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ordered,random,replay,mix,half,single,slow,end_to_end,claim,pages"
    )]
    only: Vec<String>,
    /// Operations that stand in the store before.
    #[arg(long, default_value_t = 1_000_000)]
    stored: u64,
    /// Seconds of each run.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Be the trivial handler.
    #[arg(long, hide = true)]
    trivial: bool,
    /// What `cargo bench` passes.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Choice {
    fn wants(&self, what: &str) -> bool {
        self.only.iter().any(|wanted| wanted == what)
    }

    fn plan(&self, connections: usize) -> Plan {
        Plan { connections, time: Duration::from_secs_f64(self.seconds), pace: None }
    }
}

/// A line of the table.
fn show(store: &str, what: &str, connections: usize, load: &Load, of: f64, more: &str) {
    println!(
        "| {store} | {what} | {connections} | {:.0} | {:.2} | {:.2} | {:.1} | {} | {more} |",
        load.rate,
        load.rate / of,
        load.p50,
        load.p99,
        load.bad
    );
}

fn main() {
    let choice = Choice::parse();
    if choice.trivial {
        trivial::serve().expect("the trivial handler serves");
        return;
    }
    println!("| store | what | connections | rate/s | of T | p50 ms | p99 ms | not 2xx | more |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for store in &choice.stores {
        let Some(bed) = Bed::new(store, choice.stored) else { continue };
        // First: what the past holds is as `fill.rs` made it.
        if choice.wants("pages") {
            let gateway = Process::gateway(bed.folder.path(), &bed.url, &How::default());
            for (name, load) in pages::run(&gateway, choice.stored, Duration::from_secs_f64(choice.seconds / 2.0)) {
                show(&bed.name, &format!("page: {name}"), 1, &load, load.rate, "");
            }
        }
        intake(&choice, &bed);
        group_commit(&choice, &bed);
        if choice.wants("end_to_end") {
            end_to_end(&bed);
        }
        if choice.wants("claim") {
            claim(&bed, choice.stored);
        }
    }
}

/// A PostgreSQL that keeps what it confirms, and has room to work.
const DURABLE: [&str; 5] =
    ["fsync=on", "full_page_writes=on", "max_connections=100", "shared_buffers=1GB", "max_wal_size=4GB"];

/// A store with its past.
struct Bed {
    name: String,
    url: String,
    folder: tempfile::TempDir,
    _server: Option<postgres::Own>,
    postgres: Option<String>,
}

impl Bed {
    fn new(name: &str, stored: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let server = match name {
            "sqlite" => None,
            "postgres" => {
                let server = postgres::Own::start("", &DURABLE);
                if server.is_none() {
                    println!("| {name} | SKIPPED: PostgreSQL not found | | | | | | | |");
                    return None;
                }
                server
            }
            other => panic!("there is no store {other}"),
        };
        let postgres = server.as_ref().map(postgres::Own::url);
        let url = fresh(postgres.as_deref(), folder.path(), "bench");
        process::migrate(folder.path(), &url);
        fill::fill(&url, stored, Past::Completed);
        Some(Self { name: name.to_owned(), url, folder, _server: server, postgres })
    }

    /// An empty store beside the filled one.
    fn empty(&self, name: &str) -> String {
        let url = fresh(self.postgres.as_deref(), self.folder.path(), name);
        process::migrate(self.folder.path(), &url);
        url
    }
}

/// The URL of a new database.
fn fresh(postgres: Option<&str>, folder: &Path, name: &str) -> String {
    let Some(base) = postgres else { return format!("sqlite://{}", folder.join(format!("{name}.db")).display()) };
    let mut conn = PgConnection::establish(base).expect("the server");
    conn.batch_execute(&format!("CREATE DATABASE {name}")).expect("a database");
    let mut url = url::Url::parse(base).expect("the server's url");
    url.set_path(name);
    url.into()
}

/// Rate and server's work of one run.
fn measured(
    server: &Process,
    address: &str,
    plan: Plan,
    request: impl FnMut(&mut Vec<u8>) + 'static,
) -> (Load, String) {
    let (cpu, written) = (server.cpu(), server.written());
    let load = client::run(address, plan, request);
    let each = |total: f64| total / (load.good.max(1) as f64);
    let more = format!(
        "{:.0} us CPU, {:.1} KB written each, {:.0} MiB",
        each(server.cpu() - cpu) * 1e6,
        each(server.written() - written) / 1e3,
        server.memory()
    );
    (load, more)
}

fn trivial_rate(trivial: &Process, connections: usize) -> f64 {
    let plan = Plan { connections, time: Duration::from_secs(3), pace: None };
    let body = r#"{"name":"Anna Petrova","phone":"+7 916 123-45-67","message":"MESSAGE"}"#.replace("MESSAGE", MESSAGE);
    client::run(&trivial.address, plan, move |out| post(out, "/", "application/json", &body)).rate
}

/// Intake, replays and mixtures at each number of connections.
fn intake(choice: &Choice, bed: &Bed) {
    let kinds: Vec<&str> =
        ["ordered", "random", "replay", "mix"].into_iter().filter(|kind| choice.wants(kind)).collect();
    if kinds.is_empty() {
        return;
    }
    let trivial = Process::trivial();
    let gateway = Process::gateway(bed.folder.path(), &bed.url, &How::default());
    for connections in choice.connections.iter().copied() {
        for kind in &kinds {
            let before = trivial_rate(&trivial, connections);
            let (load, more) = measured(&gateway, &gateway.address, choice.plan(connections), requests(kind));
            let of = f64::midpoint(before, trivial_rate(&trivial, connections));
            show(&bed.name, kind, connections, &load, of, &more);
            if choice.wants("half") && *kind == "ordered" && connections == 256 {
                let plan = Plan { pace: Some(load.rate / 2.0), ..choice.plan(connections) };
                let (load, more) = measured(&gateway, &gateway.address, plan, requests(kind));
                show(&bed.name, "ordered, half load", connections, &load, of, &more);
            }
        }
    }
}

/// Group commit against a commit per request, on this disk and on one whose flushes last 2 ms longer.
fn group_commit(choice: &Choice, bed: &Bed) {
    if choice.wants("single") {
        per_request(choice, bed, &bed.url, "this disk", None);
    }
    if choice.wants("slow")
        && let Some(slow) = SlowDisk::build(Duration::from_millis(2))
    {
        // PostgreSQL's flushes are its own: a second server, with nothing in it.
        let server = bed.postgres.as_ref().and_then(|_| postgres::Own::start(&slow.exports(), &DURABLE));
        match &server {
            Some(server) => {
                process::migrate(bed.folder.path(), &server.url());
                per_request(choice, bed, &server.url(), "fsync + 2 ms", None);
            }
            None => per_request(choice, bed, &bed.url, "fsync + 2 ms", Some(&slow)),
        }
    }
}

fn per_request(choice: &Choice, bed: &Bed, url: &str, disk: &str, slow: Option<&SlowDisk>) {
    let run = |batch| {
        let gateway = Process::gateway(bed.folder.path(), url, &How { batch, slow, crm: None });
        measured(&gateway, &gateway.address, choice.plan(64), requests("ordered"))
    };
    let (single, more) = run(Some(1));
    show(&bed.name, &format!("commit per request, {disk}"), 64, &single, single.rate, &more);
    let (group, more) = run(None);
    show(&bed.name, &format!("group commit, {disk} (of the line above)"), 64, &group, single.rate, &more);
}

/// Deliveries until the sandbox has all of them.
fn end_to_end(bed: &Bed) {
    const LEADS: f64 = 30_000.0;
    let sandbox = Process::sandbox();
    let url = bed.empty("deliver");
    let gateway = Process::gateway(bed.folder.path(), &url, &How { crm: Some(&sandbox.address), ..How::default() });
    let begun = client::now();
    // More than can be delivered at once: what is measured is delivery, with intake beside it at first.
    let plan = Plan { connections: 16, time: Duration::from_secs(6), pace: Some(LEADS / 6.0) };
    let intake = client::run(&gateway.address, plan, requests("ordered"));
    let done = || gateway.metric("leadonce_operations_completed_total");
    let mut completed = done();
    while completed < intake.good as f64 && begun.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(100));
        completed = done();
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "| {} | end to end, {} leads | 16 | {:.0} | | | | {} | {:.0} us CPU each, {:.0} MiB |",
        bed.name,
        intake.good,
        completed / took,
        intake.bad,
        gateway.cpu() / completed.max(1.0) * 1e6,
        gateway.memory()
    );
}

/// A worker takes a hundred of many that are due.
fn claim(bed: &Bed, waiting: u64) {
    const ROUNDS: u32 = 50;
    let url = bed.empty("claim");
    fill::fill(&url, waiting, Past::Waiting);
    let clock = SystemClock::default();
    let settings = store::Settings { url, queue: 16, batch: 16, readers: 1 };
    let (store, mut writer) = Store::open(&settings, store::Use::Tool).expect("the store");
    std::thread::spawn(move || while writer.run_one() {});
    let destination: DestinationName = "crm".parse().expect("a name");
    let take = || store::Take {
        destination: destination.clone(),
        owner: "bench".into(),
        now: clock.now(),
        creates: 100,
        lookups: 100,
        fresh: 0,
        lease_until: clock.now().plus(Duration::from_secs(60)),
        lookup_again_at: clock.now().plus(Duration::from_secs(60)),
        grace: Duration::from_secs(5),
        timeout: Duration::from_secs(15),
        first_lookup_at: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut took: Vec<Duration> = runtime.block_on(async {
        store.ensure_destinations(vec![(destination.clone(), "bitrix24".into())], clock.now()).await.expect("a row");
        let mut took = Vec::new();
        for _ in 0..ROUNDS {
            let begun = client::now();
            let taken = store.take(take()).await.expect("taken");
            took.push(begun.elapsed());
            assert_eq!(taken.creates.len(), 100);
        }
        took
    });
    took.sort_unstable();
    let at = |place: usize| took.get(place).map_or(0.0, Duration::as_secs_f64) * 1_000.0;
    println!(
        "| {} | claim 100 of {waiting} due | 1 | | | {:.2} | {:.1} | | |",
        bed.name,
        at(took.len() / 2),
        at(took.len() - 1)
    );
}

//! What of speed no noise can touch: flushes shared, bytes written, tables left alone. Counts and ratios only, of a real gateway
//! under the load of the harness; rates are measured by `cargo bench --bench load`.
//!
//! Every flush of the disk is made to last [`FLUSH`], far longer than all else that a lead costs even in a debug build on a busy
//! machine: so the flushes decide, and the batches are as large as the connections allow.

#[path = "../benches/load/client.rs"]
mod client;
#[path = "../benches/load/fill.rs"]
mod fill;
#[path = "../benches/load/leads.rs"]
mod leads;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "../benches/load/process.rs"]
mod process;
#[path = "../benches/load/slow.rs"]
mod slow;

use std::time::Duration;

use client::{Load, Plan};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use fill::Past;
use leads::requests;
use process::{How, Process};
use slow::SlowDisk;

/// What is added to each flush.
const FLUSH: Duration = Duration::from_millis(50);
/// Senders at once, each with one lead on the way.
const SENDERS: usize = 64;

/// A store on a slow disk.
struct Stage {
    folder: tempfile::TempDir,
    // Before the library that it was started with.
    server: Option<postgres::Own>,
    slow: SlowDisk,
}

impl Stage {
    /// A SQLite file.
    fn sqlite() -> Option<Self> {
        let slow = SlowDisk::build(FLUSH);
        let strict = std::env::var_os("LEADONCE_TEST_STRICT").is_some_and(|value| value == "1");
        assert!(slow.is_some() || !strict, "no C compiler (cc), and LEADONCE_TEST_STRICT=1");
        let stage = Self { folder: tempfile::tempdir().expect("a folder"), slow: slow?, server: None };
        process::migrate(stage.folder.path(), &stage.url());
        Some(stage)
    }

    /// A PostgreSQL of its own.
    fn postgres() -> Option<Self> {
        let mut stage = Self::sqlite()?;
        stage.server = Some(postgres::Own::start(&stage.slow.exports(), &["fsync=on"])?);
        process::migrate(stage.folder.path(), &stage.url());
        Some(stage)
    }

    fn url(&self) -> String {
        match &self.server {
            Some(server) => server.url(),
            None => format!("sqlite://{}", self.folder.path().join("store.db").display()),
        }
    }

    fn gateway(&self, batch: Option<usize>) -> Process {
        // PostgreSQL's flushes are its own.
        let slow = self.server.is_none().then_some(&self.slow);
        Process::gateway(self.folder.path(), &self.url(), &How { batch, slow, crm: None })
    }

    /// Requests for a while; all of them are taken.
    fn load(&self, gateway: &Process, senders: usize, request: impl FnMut(&mut Vec<u8>) + 'static) -> Load {
        let plan = Plan { connections: senders, time: Duration::from_secs(2), pace: None };
        let load = client::run(&gateway.address, plan, request);
        assert!(load.good > 0 && load.bad == 0, "every request is taken: {load:?}");
        load
    }

    /// New leads for a while.
    fn intake(&self, batch: Option<usize>, senders: usize) -> Taken {
        let gateway = self.gateway(batch);
        let before = self.slow.flushes();
        let load = self.load(&gateway, senders, requests("ordered"));
        let flushes = self.slow.flushes() - before;
        Taken { per_second: load.rate, per_flush: load.good as f64 / flushes as f64 }
    }
}

impl Stage {
    /// Bytes that went to the database's files so far; where it is a server, to its log.
    fn written(&self, gateway: &Process) -> f64 {
        if self.server.is_some() {
            return self.number("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint AS number");
        }
        let told = std::fs::metadata(self.folder.path().join("log")).expect("the gateway's own log").len();
        gateway.written() - told as f64
    }

    /// Bytes of the pages in use.
    fn kept(&self) -> f64 {
        self.number("SELECT page_count * page_size AS number FROM pragma_page_count, pragma_page_size")
    }

    fn number(&self, query: &str) -> f64 {
        let number = match &self.server {
            Some(_) => diesel::sql_query(query).get_result::<Number>(&mut self.postgres_conn()),
            None => diesel::sql_query(query).get_result::<Number>(&mut self.sqlite_conn()),
        };
        number.expect("a number").number as f64
    }

    fn execute(&self, statements: &str) {
        let done = match &self.server {
            Some(_) => self.postgres_conn().batch_execute(statements),
            None => self.sqlite_conn().batch_execute(statements),
        };
        done.expect("the statements run");
    }

    /// From now on every write to the operations and their log fails.
    fn forbid_hot_writes(&self) {
        let of = |table: &str, event: &str| match &self.server {
            Some(_) => {
                format!("CREATE TRIGGER hot_{event} AFTER {event} ON {table} FOR EACH ROW EXECUTE FUNCTION refuse();")
            }
            None => format!(
                "CREATE TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN SELECT RAISE(ABORT, 'refused'); END;"
            ),
        };
        if self.server.is_some() {
            self.execute(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$",
            );
        }
        for table in ["operations", "transitions"] {
            self.execute(&["INSERT", "UPDATE", "DELETE"].map(|event| of(table, event)).concat());
        }
    }

    fn postgres_conn(&self) -> PgConnection {
        PgConnection::establish(&self.url()).expect("the server")
    }

    fn sqlite_conn(&self) -> SqliteConnection {
        let url = self.url();
        let mut conn = SqliteConnection::establish(url.trim_start_matches("sqlite://")).expect("the file");
        conn.batch_execute("PRAGMA busy_timeout = 10000").expect("patience");
        conn
    }
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    number: i64,
}

impl Drop for Stage {
    fn drop(&mut self) {
        // An orderly end would flush every file of the server, slowly.
        if let Some(server) = &mut self.server {
            server.crash();
        }
    }
}

/// Leads that were taken.
#[derive(Debug, Clone, Copy)]
struct Taken {
    per_second: f64,
    per_flush: f64,
}

/// Plays a story on both stores.
macro_rules! on_both {
    ($name:ident, $story:path) => {
        mod $name {
            #[test]
            fn sqlite() {
                super::Stage::sqlite().iter().for_each($story);
            }

            #[test]
            fn postgres() {
                super::Stage::postgres().iter().for_each($story);
            }
        }
    };
}

fn group_commit(stage: &Stage) {
    /// A disturbed machine gets another chance: what group commit does not share, it shares in no round.
    const ROUNDS: usize = 3;
    let rounds = (0..ROUNDS).map(|_| {
        // Each waits for all before it: 64 would wait for longer than the gateway lets them.
        let single = stage.intake(Some(1), SENDERS / 4);
        assert!(single.per_flush < 1.2, "without group commit each lead has a flush of its own: {single:?}");
        (stage.intake(None, SENDERS), single)
    });
    // While half of the senders wait for a flush the others' leads collect: 32 times is what 64 senders can have.
    let shared = |(group, single): &(Taken, Taken)| {
        group.per_flush > 20.0 * single.per_flush && group.per_second > 20.0 * single.per_second
    };
    assert!(rounds.into_iter().any(|round| shared(&round)), "the leads share too few flushes");
}
on_both!(leads_share_the_flush_of_their_commit, super::group_commit);

/// Each page that is written holds many new rows, since all tables and indexes grow at their ends. One random key or id, and each
/// lead writes a page of its own: seven times what is kept of it.
#[test]
fn a_lead_under_an_ordered_key_writes_at_most_five_times_what_is_kept_of_it() {
    let Some(stage) = Stage::sqlite() else { return };
    // So many pages in each index that random places seldom meet.
    fill::fill(&stage.url(), 30_000, Past::Completed);
    let gateway = stage.gateway(None);
    let (written, kept) = (stage.written(&gateway), stage.kept());
    stage.load(&gateway, SENDERS, requests("ordered"));
    let (written, kept) = (stage.written(&gateway) - written, stage.kept() - kept);
    assert!(written < 5.0 * kept, "{written:.0} bytes were written to keep {kept:.0}");
}

fn replays(stage: &Stage) {
    let gateway = stage.gateway(None);
    let before = stage.written(&gateway);
    let leads = stage.load(&gateway, SENDERS, numbered(u64::MAX)).good;
    let lead_writes = (stage.written(&gateway) - before) / leads as f64;

    stage.forbid_hot_writes();
    let plan = Plan { connections: 1, time: Duration::from_millis(1), pace: None };
    let refused = client::run(&gateway.address, plan, |out| leads::lead(out, "ordered", "new"));
    assert_eq!(refused.good, 0, "a new lead cannot do without them");

    let before = stage.written(&gateway);
    let replays = stage.load(&gateway, SENDERS, numbered(leads)).good;
    // A replay's row may follow its answer.
    let begun = client::now();
    while stage.number("SELECT count(*) AS number FROM deliveries WHERE verdict = 'replay'") < replays as f64 {
        assert!(begun.elapsed() < Duration::from_secs(40), "not every replay is in the log");
        std::thread::sleep(Duration::from_millis(20));
    }
    let replay_writes = (stage.written(&gateway) - before) / replays as f64;
    assert!(replay_writes < 0.75 * lead_writes, "a replay writes {replay_writes:.0} bytes, a lead {lead_writes:.0}");
}

/// Leads under the keys 0, 1, 2 …, and from that number on the same again.
fn numbered(until: u64) -> impl FnMut(&mut Vec<u8>) + 'static {
    let mut numbers = (0..until).cycle();
    move |out| {
        let number = numbers.next().unwrap_or_default();
        leads::lead(out, "ordered", &format!("018f0000-0000-7000-8000-{number:012x}"));
    }
}

on_both!(a_replay_leaves_the_operations_alone, super::replays);

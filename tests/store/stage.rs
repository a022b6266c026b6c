//! What every store test needs: a store of its own on either backend, and deliveries to put into it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use leadonce::clock::{At, SeededEntropy, uuid_v7};
use leadonce::operation::{
    Arrival, DestinationName, HashRule, KeyOrigin, Operation, OperationId, PayloadHash, SourceKey, SourceName,
};
use leadonce::store::{
    Admission, Admit, NewDelivery, NewEvent, Settings, Store, StoreError, Take, Update, Updated, Use, Writer,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::postgres;

/// The moment at which most tests play.
pub(crate) const NOW: At = At::from_seconds(1_800_000_000);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Runs one test on both backends.
macro_rules! both {
    ($(#[doc = $doc:literal])* fn $name:ident($stage:ident) $body:block) => {
        mod $name {
            #[allow(unused_imports, reason = "each test takes what it needs")]
            use super::*;

            fn story($stage: $crate::stage::Stage) $body

            #[test]
            fn sqlite() {
                story($crate::stage::Stage::sqlite());
            }

            #[test]
            fn postgres() {
                if let Some(stage) = $crate::stage::Stage::postgres() {
                    story(stage);
                }
            }
        }
    };
}
pub(crate) use both;

/// Where a test's database is; goes with the test.
pub(crate) struct Place {
    pub(crate) url: String,
    _directory: Option<tempfile::TempDir>,
    _database: Option<postgres::Database>,
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("sqlite://{}", directory.path().join("leads.db").display());
        Self { url, _directory: Some(directory), _database: None }
    }

    pub(crate) fn postgres() -> Option<Self> {
        let database = postgres::database()?;
        Some(Self { url: database.url().to_owned(), _directory: None, _database: Some(database) })
    }

    /// A database that somebody else made.
    pub(crate) fn of(url: &str) -> Self {
        Self { url: url.to_owned(), _directory: None, _database: None }
    }

    /// A fresh one on the same backend.
    pub(crate) fn another(&self) -> Self {
        if self.is_sqlite() { Self::sqlite() } else { Self::postgres().expect("a server") }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.url.starts_with("sqlite")
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings { url: self.url.clone(), queue: 1024, batch: 64, readers: 4 }
    }

    /// Runs statements beside the store, as an administrator (or a fault) would.
    pub(crate) fn execute(&self, sql: &str) {
        self.try_execute(sql).expect("the statements run");
    }

    pub(crate) fn try_execute(&self, sql: &str) -> diesel::QueryResult<()> {
        use diesel::connection::SimpleConnection;
        use diesel::{Connection, PgConnection, SqliteConnection};
        match self.url.strip_prefix("sqlite://") {
            Some(path) => {
                let mut conn = SqliteConnection::establish(path).expect("the file");
                conn.batch_execute("PRAGMA busy_timeout=5000").expect("a setting");
                conn.batch_execute(sql)
            }
            None => PgConnection::establish(&self.url).expect("the server").batch_execute(sql),
        }
    }

    /// One number from the database.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        use diesel::prelude::*;
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = diesel::sql_types::BigInt)]
            n: i64,
        }
        let query = diesel::sql_query(format!("SELECT CAST(({sql}) AS BIGINT) AS n"));
        let row: Row = match self.url.strip_prefix("sqlite://") {
            Some(path) => query.get_result(&mut SqliteConnection::establish(path).expect("the file")),
            None => query.get_result(&mut PgConnection::establish(&self.url).expect("the server")),
        }
        .expect("a number");
        row.n
    }
}

/// A store with its writer on a thread, as in the program.
pub(crate) struct Stage {
    pub(crate) store: Store,
    pub(crate) place: Place,
    runtime: tokio::runtime::Runtime,
    writer: Option<JoinHandle<()>>,
}

impl Stage {
    pub(crate) fn sqlite() -> Self {
        Self::on(Place::sqlite())
    }

    pub(crate) fn postgres() -> Option<Self> {
        Place::postgres().map(Self::on)
    }

    pub(crate) fn on(place: Place) -> Self {
        let (store, writer) = Store::open(&place.settings(), Use::Serve).expect("the store opens");
        let stage = Self { store, place, runtime: runtime(), writer: Some(start(writer)) };
        let destinations = vec![(crm(), "http".to_owned())];
        stage.wait(stage.store.ensure_destinations(destinations, NOW)).expect("a destination");
        stage
    }

    pub(crate) fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Ends the process that held the store, and starts another on the same database.
    pub(crate) fn restart(self) -> Self {
        let Self { store, place, runtime, writer } = self;
        drop((store, runtime));
        if let Some(thread) = writer {
            thread.join().expect("the writer ends in order");
        }
        Self::on(place)
    }

    pub(crate) fn admit(&self, admit: Admit) -> Vec<Admission> {
        self.wait(self.store.admit(admit)).expect("admitted")
    }

    /// Admits one event and gives its admission.
    pub(crate) fn admit_one(&self, admit: Admit) -> Admission {
        self.admit(admit).pop().expect("one admission")
    }

    pub(crate) fn operation(&self, id: OperationId) -> Operation {
        self.wait(self.store.operation(id)).expect("read").expect("it is there")
    }

    pub(crate) fn update(&self, update: Update) -> Updated {
        self.wait(self.store.update(update)).expect("written")
    }

    /// Applies an event and stores the change; the operation as it is then.
    pub(crate) fn apply(
        &self,
        before: &Operation,
        event: &leadonce::operation::transition::Event,
        at: At,
    ) -> Operation {
        let update = change(before, event, at);
        let after = update.after.clone();
        assert_eq!(self.update(update), Updated::Done);
        after
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub(crate) fn start(mut writer: Writer) -> JoinHandle<()> {
    std::thread::spawn(move || while writer.run_one() {})
}

/// The update that an event makes.
pub(crate) fn change(before: &Operation, event: &leadonce::operation::transition::Event, at: At) -> Update {
    use leadonce::operation::transition::{Change, apply};
    let Ok(Change::To(after)) = apply(before, event, at) else { panic!("{event:?} changes nothing") };
    plain(before, *after)
}

pub(crate) fn plain(before: &Operation, after: Operation) -> Update {
    Update {
        before: before.clone(),
        after,
        event: "test",
        attempt: None,
        step_done: None,
        audit: None,
        lead: None,
        while_active: None,
    }
}

pub(crate) fn crm() -> DestinationName {
    "crm".parse().expect("a name")
}

pub(crate) fn source() -> SourceName {
    "site".parse().expect("a name")
}

pub(crate) fn key(text: &str) -> SourceKey {
    SourceKey::from_native(text.as_bytes()).expect("a key")
}

/// A UUIDv7 of that moment, different each time.
pub(crate) fn id_at(at: At) -> Uuid {
    static SEED: AtomicU64 = AtomicU64::new(1);
    uuid_v7(at, &SeededEntropy::new(SEED.fetch_add(1, Ordering::Relaxed)))
}

pub(crate) fn hash(content: &str) -> PayloadHash {
    PayloadHash::from(<[u8; 32]>::from(Sha256::digest(content.as_bytes())))
}

/// A delivery of events under keys: (key, content) each.
pub(crate) fn delivery_at(at: At, events: &[(Option<&str>, &str)]) -> Admit {
    let id = id_at(at);
    let operation = |place: usize, key_text: Option<&str>, content: &str| {
        Arrival {
            id: OperationId(id_at(at)),
            source: source(),
            source_key: key_text.map(key),
            key_origin: if key_text.is_some() { KeyOrigin::Native } else { KeyOrigin::Generated },
            payload_hash: hash(content),
            hash_rule: HashRule::current(&[]),
            destination: crm(),
            delivery_id: id,
            event_index: u16::try_from(place).expect("few events"),
            at,
        }
        .operation()
    };
    let bodies: Vec<&str> = events.iter().map(|(_, content)| *content).collect();
    Admit {
        delivery: NewDelivery {
            id,
            source: source(),
            received_at: at,
            method: "POST".into(),
            headers: vec![("content-type".into(), "text/plain".into())],
            body: bodies.join("\n").into_bytes(),
            note: None,
        },
        events: events
            .iter()
            .enumerate()
            .map(|(place, (key, content))| NewEvent {
                operation: operation(place, *key, content),
                window: None,
                likeness: None,
            })
            .collect(),
        // The body holds one event per line.
        rehash: Arc::new(|delivery, place| {
            let body = String::from_utf8(delivery.body.clone()?).ok()?;
            body.lines().nth(place).map(hash)
        }),
    }
}

/// One event under a key, now.
pub(crate) fn keyed(key: &str, content: &str) -> Admit {
    delivery_at(NOW, &[(Some(key), content)])
}

/// One event without a key, under the window of two minutes.
pub(crate) fn windowed(at: At, content: &str) -> Admit {
    let mut admit = delivery_at(at, &[(None, content)]);
    for event in &mut admit.events {
        event.window = Some(2 * MINUTE);
        event.operation.key_origin = KeyOrigin::ResubmitWindow;
    }
    admit
}

/// A worker's request for all that is due.
pub(crate) fn take_at(now: At, owner: &str, creates: usize) -> Take {
    Take {
        destination: crm(),
        owner: owner.into(),
        now,
        creates,
        lookups: 10,
        fresh: 0,
        lease_until: now.plus(MINUTE),
        lookup_again_at: now.plus(MINUTE),
        grace: Duration::from_secs(5),
        timeout: Duration::from_secs(15),
        first_lookup_at: Some(now.plus(Duration::from_secs(5))),
    }
}

pub(crate) fn is_unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}

//! Upgrade: the dump of every released version opens under this one, and its operations still answer (fixtures/store).

#[path = "support/postgres.rs"]
mod postgres;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use diesel::connection::SimpleConnection;
use diesel::{Connection, PgConnection, SqliteConnection};
use leadonce::clock::{At, SeededEntropy, uuid_v7};
use leadonce::operation::{HashRule, OperationId, SourceKey, State, Status};
use leadonce::store::{Admit, Filter, NewDelivery, NewEvent, Settings, Store, Use, Verdict};

fn dump(version: &str, backend: &str) -> String {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/store").join(version).join(format!("{backend}.sql"));
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn versions() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/store");
    let entries = std::fs::read_dir(folder).expect("the dumps").filter_map(Result::ok);
    let mut versions: Vec<String> =
        entries.filter(|e| e.path().is_dir()).filter_map(|e| e.file_name().into_string().ok()).collect();
    versions.sort();
    assert!(versions.contains(&"v0.1.0".to_owned()), "{versions:?}");
    versions
}

async fn still_answers(url: String) {
    let settings = Settings { url, queue: 64, batch: 16, readers: 2 };
    let (store, mut writer) =
        tokio::task::spawn_blocking(move || Store::open(&settings, Use::Serve).expect("it opens"))
            .await
            .expect("opened");
    std::thread::spawn(move || while writer.run_one() {});

    let all = store.list(Filter { limit: 100, ..Filter::default() }).await.expect("every row is readable");
    let mut states: BTreeMap<State, usize> = BTreeMap::new();
    for operation in &all {
        *states.entry(operation.state()).or_default() += 1;
        let story = store.story(operation.id).await.expect("its story").expect("is there");
        assert!(!story.deliveries.is_empty() && !story.transitions.is_empty(), "{}", operation.id);
    }
    assert_eq!(states.keys().copied().collect::<Vec<_>>(), State::ALL, "a dump has operations in every state");
    assert_eq!((store.unexplained().await.expect("audited"), store.unaccounted().await.expect("audited")), (0, 0));

    // A redelivery of what was completed gets the stored result; nothing is made anew.
    let key = SourceKey::from_native(b"done").expect("a key");
    let stored = store.operation_of_key("shop".parse().expect("a name"), key).await.expect("read").expect("known");
    let Status::Completed { crm_id } = &stored.status else { panic!("{:?}", stored.status) };
    let now = At::from_seconds(1_900_000_000);
    let id = uuid_v7(now, &SeededEntropy::new(1));
    let mut again = stored.clone();
    (again.id, again.delivery_id, again.received_at, again.crm_id) = (OperationId(id), id, now, None);
    again.status = Status::Received { next_attempt_at: now, licence: leadonce::operation::Licence::FirstSend };
    again.hash_rule = HashRule::from_stored(stored.hash_rule.as_str().to_owned());
    (again.version, again.finished_at, again.attempts, again.epoch) = (1, None, 0, 0);
    let delivery = NewDelivery {
        id,
        source: stored.source.clone(),
        received_at: now,
        method: "POST".into(),
        headers: Vec::new(),
        body: b"{}".to_vec(),
        note: None,
    };
    let events = vec![NewEvent { operation: again, window: None, likeness: None }];
    let admitted = store.admit(Admit { delivery, events, rehash: Arc::new(|_, _| None) }).await.expect("admitted");
    assert_eq!(admitted[0].verdict, Verdict::Replay);
    assert_eq!(admitted[0].operation.crm_id.as_ref(), Some(crm_id));
}

#[tokio::test]
async fn every_released_sqlite_store_opens_and_still_answers() {
    for version in versions() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("store.db");
        let mut conn = SqliteConnection::establish(&file.display().to_string()).expect("a new file");
        conn.batch_execute(&dump(&version, "sqlite")).expect("the dump loads");
        drop(conn);
        still_answers(format!("sqlite://{}", file.display())).await;
    }
}

#[tokio::test]
async fn every_released_postgres_store_opens_and_still_answers() {
    for version in versions() {
        let Some(database) = postgres::database() else { return };
        let mut conn = PgConnection::establish(database.url()).expect("a new database");
        conn.batch_execute(&dump(&version, "postgres")).expect("the dump loads");
        drop(conn);
        still_answers(database.url().to_owned()).await;
    }
}

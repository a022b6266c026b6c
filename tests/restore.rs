//! Backup and restore (G7, contract 4.1 rule 9): whatever the record has lost, no redelivered event makes a second entity.

#[path = "support/gateway.rs"]
mod gateway;
#[path = "support/postgres.rs"]
mod postgres;

use gateway::{Gateway, Setup, lead};
use serde_json::json;

async fn completed(gateway: &Gateway, key: &str) -> String {
    gateway.deliver(key, &lead(key), 0).await;
    gateway.in_state(key, "completed").await["crm_id"].as_str().expect("an id").to_owned()
}

/// Runs `backup` or `restore` with a file; what it said.
fn run(gateway: &Gateway, command: &str, file: &std::path::Path) -> (bool, String) {
    let done = gateway.command(&[command, file.to_str().expect("a path")]);
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_older_backup_is_restored_nothing_is_made_twice() {
    let mut gateway = Gateway::start(Setup::default()).await;
    let before = completed(&gateway, "before").await;
    // Open in the backup, created afterwards.
    gateway.faults(json!([{"call": "create", "kind": "status_without_commit", "status": 429}]));
    gateway.deliver("open", &lead("open"), 0).await;
    let copy = gateway.file("monday.db");
    let (done, said) = run(&gateway, "backup", &copy);
    assert!(done, "{said}");
    let open = gateway.in_state("open", "completed").await["crm_id"].clone();
    let after = completed(&gateway, "after").await;

    let (done, said) = run(&gateway, "restore", &copy);
    assert!(!done && said.contains("another leadonce process"), "{said}");
    assert!(gateway.terminate());
    let (done, said) = run(&gateway, "restore", &copy);
    assert!(done && said.contains(".before-") && said.contains("for 30d each lead"), "{said}");
    gateway.run();

    let known = gateway.deliver("before", &lead("before"), 0).await;
    assert_eq!((known.status, &known.body["crm_id"]), (200, &json!(before)), "the backup knows it");
    assert_eq!(gateway.in_state("open", "completed").await["crm_id"], open, "it is looked up, not sent again");
    let lookups = gateway.lookups();
    gateway.deliver("after", &lead("after"), 0).await;
    assert_eq!(gateway.in_state("after", "completed").await["crm_id"], json!(after));
    assert!(gateway.lookups() > lookups);
    assert_eq!(gateway.entities(), 3);
    completed(&gateway, "new").await;
    assert_eq!(gateway.entities(), 4, "what is new is still created");
    gateway.end().await;
}

/// The store is gone: `serve --restored` begins a new one.
async fn store_lost(gateway: &mut Gateway, lose: impl AsyncFnOnce(&Gateway)) {
    let first = completed(gateway, "first").await;
    assert!(gateway.terminate());
    lose(gateway).await;
    gateway.run_with(&["--restored"]);
    gateway.new_token();
    gateway.deliver("first", &lead("first"), 0).await;
    gateway.deliver("second", &lead("second"), 0).await;
    assert_eq!(gateway.in_state("first", "completed").await["crm_id"], json!(first));
    assert_eq!(gateway.in_state("second", "completed").await["status"], "completed");
    assert_eq!((gateway.entities(), gateway.creates()), (2, 2));
    // It is remembered: the next start needs no word of it.
    assert!(gateway.terminate());
    gateway.run();
    let lookups = gateway.lookups();
    completed(gateway, "third").await;
    assert!(gateway.lookups() > lookups, "the events of before may still come again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_loss_of_the_store_nothing_is_made_twice_on_sqlite() {
    let mut gateway = Gateway::start(Setup::default()).await;
    store_lost(&mut gateway, async |gateway| {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(gateway.file(&format!("store.db{end}")));
        }
    })
    .await;
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_loss_of_the_store_nothing_is_made_twice_on_postgres() {
    let Some(server) = postgres::Own::start("", &[]) else { return };
    let mut gateway = Gateway::start(Setup { store: Some(server.url()), ..Setup::default() }).await;
    let copy = gateway.file("copy.db");
    for command in ["backup", "restore"] {
        let (done, said) = run(&gateway, command, &copy);
        assert!(!done && said.contains("pg_dump") && said.contains("--restored"), "{said}");
    }
    store_lost(&mut gateway, async |_| server.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")).await;
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_backup_is_refused_and_nothing_is_lost() {
    let mut gateway = Gateway::start(Setup::default()).await;
    let id = completed(&gateway, "kept").await;
    let (copy, none) = (gateway.file("copy.db"), gateway.file("none.db"));
    assert!(run(&gateway, "backup", &copy).0);
    let (done, said) = run(&gateway, "backup", &copy);
    assert!(!done && said.contains("exists already"), "{said}");
    let (done, said) = run(&gateway, "backup", &gateway.file("no-folder/copy.db"));
    assert!(!done && said.contains("no-folder/copy.db") && !said.contains("store is not available"), "{said}");
    assert!(gateway.terminate());

    let damaged = gateway.file("damaged.db");
    let mut bytes = std::fs::read(&copy).expect("the backup");
    let (third, half) = (bytes.len() / 3, bytes.len() / 2);
    bytes[third..half].fill(0x5a);
    std::fs::write(&damaged, bytes).expect("written");
    let words = gateway.file("words.db");
    std::fs::write(&words, "not a database").expect("written");
    for (file, expected) in [(&none, "there is no file"), (&words, "words.db"), (&damaged, "damaged")] {
        let (done, said) = run(&gateway, "restore", file);
        assert!(!done && said.contains(expected), "{said}");
    }
    let left: Vec<String> = std::fs::read_dir(copy.parent().expect("a folder"))
        .expect("readable")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("restoring") || name.contains("before-") || name.contains("partial"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
    gateway.run();
    assert_eq!(gateway.in_state("kept", "completed").await["crm_id"], json!(id));
    gateway.end().await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let gateway = Gateway::start(Setup::default()).await;
    let copy = gateway.file("copy.db");
    assert!(run(&gateway, "backup", &copy).0);
    assert_eq!(std::fs::metadata(&copy).expect("the backup").permissions().mode() & 0o777, 0o600);
    gateway.end().await;
}

//! Opening a store: addresses, locks, migrations.

use std::collections::BTreeSet;

use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use leadonce::store::{Settings, Store, StoreError, Use};

use crate::stage::*;

fn settings(url: &str) -> Settings {
    Settings { url: url.into(), queue: 16, batch: 16, readers: 2 }
}

#[test]
fn an_unknown_scheme_is_an_error_and_never_a_new_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let inside = directory.path().join("leads.db").display().to_string();
    for url in [format!("mysql://{inside}"), inside.clone(), "host=127.0.0.1 port=1 dbname=none".to_owned()] {
        let Err(StoreError::Setup(text)) = Store::open(&settings(&url), Use::Serve) else { panic!("{url} opened") };
        assert!(text.contains("sqlite") && text.contains("postgres"), "{text}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).expect("readable").count(), 0);
}

#[test]
fn a_dead_postgres_says_so() {
    let opened = Store::open(&settings("postgres://nobody:hunter2@127.0.0.1:1/none"), Use::Serve);
    let Err(StoreError::Unavailable(text)) = opened else { panic!("it opened") };
    assert!(text.contains("127.0.0.1") && !text.contains("hunter2"), "{text}");
}

#[test]
fn one_gateway_per_sqlite_file() {
    let place = Place::sqlite();
    let first = Store::open(&place.settings(), Use::Serve).expect("the first opens");
    let Err(StoreError::Setup(text)) = Store::open(&place.settings(), Use::Serve) else { panic!("a second opened") };
    assert!(text.contains("another leadonce process serves"), "{text}");
    let tool = Store::open(&place.settings(), Use::Tool).expect("a tool may run beside it");
    drop(tool);
    drop(first);
    Store::open(&place.settings(), Use::Serve).expect("free again");
}

both! {
    /// Contract 7: `serve` migrates, also when several nodes start at once.
    fn many_may_start_at_once(stage) {
        for _ in 0..3 {
            let place = stage.place.another();
            let barrier = std::sync::Barrier::new(6);
            std::thread::scope(|scope| {
                for _ in 0..6 {
                    scope.spawn(|| {
                        barrier.wait();
                        Store::open(&place.settings(), Use::Tool).expect("each opens");
                    });
                }
            });
            assert_eq!(place.number("SELECT count(*) FROM __diesel_schema_migrations"), migrations("sqlite").len() as i64);
            assert_eq!(place.number("SELECT count(*) FROM settings"), 1, "one secret for all");
        }
    }
}

both! {
    fn a_schema_of_a_newer_version_is_refused(stage) {
        stage.place.execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('99999999999999')");
        let opened = Store::open(&stage.place.settings(), Use::Tool);
        let Err(StoreError::Setup(text)) = opened else { panic!("it opened") };
        assert!(text.contains("newer version"), "{text}");
    }
}

fn migrations(backend: &str) -> BTreeSet<String> {
    let folder = format!("{}/migrations/{backend}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(folder).expect("the folder").flatten();
    entries.map(|entry| entry.file_name().into_string().expect("a name")).collect()
}

#[test]
fn both_folders_hold_the_same_migrations() {
    assert_eq!(migrations("sqlite"), migrations("postgres"));
    for backend in ["sqlite", "postgres"] {
        for name in migrations(backend) {
            for direction in ["up.sql", "down.sql"] {
                let file = format!("{}/migrations/{backend}/{name}/{direction}", env!("CARGO_MANIFEST_DIR"));
                assert!(std::path::Path::new(&file).is_file(), "{file} is missing");
            }
        }
    }
}

#[derive(QueryableByName, PartialEq, Debug)]
struct Described {
    #[diesel(sql_type = Text)]
    text: String,
}

const SQLITE_SCHEMA: &str = "SELECT coalesce(sql, '') AS text FROM sqlite_schema \
     WHERE name NOT LIKE '\\_\\_diesel%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name";
const POSTGRES_SCHEMA: &str = "SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable AS text \
     FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE '\\_\\_diesel%' \
     UNION ALL SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint \
     WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text NOT LIKE '\\_\\_diesel%' \
     UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename NOT LIKE '\\_\\_diesel%' \
     ORDER BY 1";

fn up_down_up<C, DB>(conn: &mut C, backend: &str, describe: fn(&mut C) -> Vec<Described>)
where
    C: MigrationHarness<DB>,
    DB: diesel::backend::Backend,
    FileBasedMigrations: diesel::migration::MigrationSource<DB>,
{
    let folder = format!("{}/migrations/{backend}", env!("CARGO_MANIFEST_DIR"));
    let source = || FileBasedMigrations::from_path(&folder).expect("the folder");
    conn.run_pending_migrations(source()).expect("up");
    let first = describe(conn);
    assert!(first.len() > 20);
    conn.revert_all_migrations(source()).expect("down");
    assert_eq!(describe(conn), []);
    conn.run_pending_migrations(source()).expect("up again");
    assert_eq!(describe(conn), first);
}

#[test]
fn migrations_go_up_down_and_up_again_on_sqlite() {
    let mut conn = SqliteConnection::establish(":memory:").expect("in memory");
    up_down_up(&mut conn, "sqlite", |conn| diesel::sql_query(SQLITE_SCHEMA).load(conn).expect("described"));
}

#[test]
fn migrations_go_up_down_and_up_again_on_postgres() {
    let Some(database) = crate::postgres::database() else { return };
    let mut conn = PgConnection::establish(database.url()).expect("the server");
    up_down_up(&mut conn, "postgres", |conn| diesel::sql_query(POSTGRES_SCHEMA).load(conn).expect("described"));
}

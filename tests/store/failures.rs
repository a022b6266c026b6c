//! What goes wrong below the store, and whom it may concern.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use leadonce::clock::{Clock, SystemClock};
use leadonce::operation::CrmId;
use leadonce::operation::transition::Event;
use leadonce::store::{Admit, Settings, Store, StoreError, Updated, Use, Verdict};

use crate::stage::*;

/// A delivery that the database refuses: what has an entity cannot wait to be sent.
fn poisoned(key: &str) -> Admit {
    let mut admit = keyed(key, "lead");
    admit.events[0].operation.crm_id = Some(CrmId::try_from("1".to_owned()).expect("an id"));
    admit
}

both! {
    fn a_poisoned_write_does_not_fail_its_neighbours(stage) {
        let place = stage.place.another();
        let (store, mut writer) = Store::open(&place.settings(), Use::Serve).expect("opens");
        let admits = [keyed("a", "lead"), poisoned("b"), keyed("c", "lead"), keyed("b", "lead")];
        let all = join_all(admits.into_iter().map(|admit| store.admit(admit)));
        let (answers, _) = runtime().block_on(join(all, async { writer.step() }));
        assert!(matches!(answers[1], Err(StoreError::Inconsistent(_))), "{:?}", answers[1]);
        for place in [0, 2, 3] {
            let admission = answers[place].as_ref().expect("admitted");
            assert_eq!(admission[0].verdict, Verdict::New);
        }
        assert_eq!(place.number("SELECT count(*) FROM operations"), 3);
        assert_eq!(place.number("SELECT count(*) FROM deliveries"), 3);
    }
}

both! {
    fn a_full_queue_says_busy_at_once(stage) {
        let place = stage.place.another();
        let small = Settings { queue: 2, ..place.settings() };
        let (store, mut writer) = Store::open(&small, Use::Serve).expect("opens");
        let all = join_all(["a", "b", "c"].map(|key| store.admit(keyed(key, "lead"))));
        let (answers, replay_taken) = runtime().block_on(join(all, async {
            let taken = store.log_replay(keyed("a", "lead").delivery, 0, keyed("a", "lead").events[0].operation.id);
            writer.step();
            taken
        }));
        assert!(answers[0].is_ok() && answers[1].is_ok());
        assert!(matches!(answers[2], Err(StoreError::Busy)));
        assert!(!replay_taken);
        // There is room again.
        let (answer, _) = runtime().block_on(join(store.admit(keyed("c", "lead")), async { writer.step() }));
        assert!(answer.is_ok());
    }
}

both! {
    fn without_its_writer_the_store_says_so(stage) {
        let place = stage.place.another();
        let (store, writer) = Store::open(&place.settings(), Use::Serve).expect("opens");
        let waiting = store.admit(keyed("a", "lead"));
        let (answer, ()) = runtime().block_on(join(waiting, async { drop(writer) }));
        assert!(is_unavailable(answer));
        assert!(is_unavailable(runtime().block_on(store.admit(keyed("b", "lead")))));
    }
}

#[test]
fn a_locked_sqlite_file_is_unavailable_in_time_and_recovers() {
    use diesel::Connection;
    use diesel::connection::SimpleConnection;
    let stage = Stage::sqlite();
    let path = stage.place.url.strip_prefix("sqlite://").expect("a path").to_owned();
    let mut other = diesel::SqliteConnection::establish(&path).expect("the file");
    other.batch_execute("BEGIN IMMEDIATE").expect("the lock");
    let clock = SystemClock::default();
    let all = join_all((0..200).map(|n| stage.store.admit(keyed(&format!("key-{n}"), "lead"))));
    let answers = stage.wait(all);
    assert!(answers.into_iter().all(is_unavailable));
    // Two seconds of waiting for the lock, for at most two batches; never for each write.
    assert!(clock.monotonic() < Duration::from_secs(8), "{:?}", clock.monotonic());
    other.batch_execute("ROLLBACK").expect("released");
    assert_eq!(stage.admit_one(keyed("key-0", "lead")).verdict, Verdict::New);
}

/// A proxy before PostgreSQL that can cut connections.
struct Proxy {
    port: u16,
    /// The next COMMIT reaches the server, its answer does not come back.
    swallow_commit: Arc<AtomicBool>,
    /// Refuse connections.
    down: Arc<AtomicBool>,
}

impl Proxy {
    fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let (swallow_commit, down) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (swallow, refused) = (swallow_commit.clone(), down.clone());
        let target = Arc::new(AtomicU16::new(port));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if refused.load(Ordering::SeqCst) {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", target.load(Ordering::SeqCst))).expect("the server");
                let (client_2, server_2) = (client.try_clone().expect("a clone"), server.try_clone().expect("a clone"));
                let (swallow, refused) = (swallow.clone(), refused.clone());
                let cut = Arc::new(AtomicBool::new(false));
                let cut_2 = cut.clone();
                std::thread::spawn(move || {
                    pipe(client, server, |bytes| {
                        let commits = bytes.windows(7).any(|window| window == b"COMMIT\0");
                        if refused.load(Ordering::SeqCst) {
                            return false;
                        }
                        if commits && swallow.swap(false, Ordering::SeqCst) {
                            cut.store(true, Ordering::SeqCst);
                        }
                        true
                    })
                });
                std::thread::spawn(move || pipe(server_2, client_2, |_| !cut_2.load(Ordering::SeqCst)));
            }
        });
        Self { port: own, swallow_commit, down }
    }
}

/// Copies bytes while `pass` agrees; then cuts both sides.
fn pipe(mut from: TcpStream, mut to: TcpStream, mut pass: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 || !pass(&buffer[..read]) || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// A store whose every connection goes through the proxy.
fn proxied() -> Option<(Stage, Proxy)> {
    let mut place = Place::postgres()?;
    let mut url = url::Url::parse(&place.url).expect("a url");
    let proxy = Proxy::before(url.port().unwrap_or(5432));
    url.set_host(Some("127.0.0.1")).expect("a host");
    url.set_port(Some(proxy.port)).expect("a port");
    place.url = url.into();
    Some((Stage::on(place), proxy))
}

#[test]
fn a_lost_commit_is_answered_by_what_is_found() {
    let Some((stage, proxy)) = proxied() else { return };
    proxy.swallow_commit.store(true, Ordering::SeqCst);
    let admission = stage.admit_one(keyed("a", "lead"));
    assert!(!proxy.swallow_commit.load(Ordering::SeqCst), "the commit was cut");
    assert_eq!(admission.verdict, Verdict::New);
    assert_eq!(stage.place.number("SELECT count(*) FROM operations"), 1);
    assert_eq!(stage.place.number("SELECT count(*) FROM deliveries"), 1);

    proxy.swallow_commit.store(true, Ordering::SeqCst);
    let rejected = change(&admission.operation, &Event::Reject, NOW);
    assert_eq!(stage.update(rejected.clone()), Updated::Done);
    assert_eq!(stage.operation(admission.operation.id), rejected.after);
    assert_eq!(stage.place.number("SELECT count(*) FROM transitions"), 2);

    // Of a suspension too it is known that it was this one: its caller alerts.
    proxy.swallow_commit.store(true, Ordering::SeqCst);
    assert!(stage.wait(stage.store.suspend(crm(), Some(1), "401".into(), None, NOW)).expect("written"));
    assert!(!proxy.swallow_commit.load(Ordering::SeqCst));
}

#[test]
fn a_postgres_that_is_away_is_unavailable_in_time_and_recovers() {
    let Some((stage, proxy)) = proxied() else { return };
    proxy.down.store(true, Ordering::SeqCst);
    let clock = SystemClock::default();
    let all = join_all((0..200).map(|n| stage.store.admit(keyed(&format!("key-{n}"), "lead"))));
    assert!(stage.wait(all).into_iter().all(is_unavailable));
    assert!(clock.monotonic() < Duration::from_secs(6), "{:?}", clock.monotonic());
    proxy.down.store(false, Ordering::SeqCst);
    assert_eq!(stage.admit_one(keyed("key-0", "lead")).verdict, Verdict::New);
}

both! {
    fn a_checkpoint_beside_the_writer_loses_nothing(stage) {
        for n in 0..50 {
            stage.admit_one(keyed(&format!("key-{n}"), "lead"));
            stage.store.checkpoint().expect("looked");
        }
        assert_eq!(stage.place.number("SELECT count(*) FROM operations"), 50);
    }
}

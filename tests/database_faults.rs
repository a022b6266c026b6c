//! Failures of the database under a real gateway: senders are told in time and never wrongly, and service comes back by itself.
//!
//! Field cases bear their number in the name.

#[path = "support/gateway.rs"]
mod gateway;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/proxy.rs"]
mod proxy;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use gateway::{API, Answer, Gateway, PATIENCE, Setup, lead};
use leadonce::clock::{Clock, SystemClock};
use proxy::{Proxy, Way};
use serde_json::{Value, json};

/// The longest that a sender may wait for its answer, with room for a machine that is busy: far from the half minute after
/// which senders are gone.
const PROMPT: Duration = Duration::from_secs(4);

fn on(store: &str) -> Setup {
    Setup { store: Some(store.to_owned()), ..Setup::default() }
}

/// Delivers, and sees to it that the answer came in time: a promise or a 503 that says when to come again.
async fn delivered(gateway: &Gateway, key: &str) -> bool {
    let clock = SystemClock::default();
    let answer = gateway.deliver(key, &lead("Anna"), 0).await;
    assert!(clock.monotonic() < PROMPT, "{key}: {:?}", clock.monotonic());
    match answer.status {
        200..=202 => true,
        503 => {
            assert!(!answer.header("retry-after").is_empty());
            assert_eq!(answer.header("content-type"), "application/problem+json");
            false
        }
        other => panic!("{key}: {other} {}\n{}", answer.text, gateway.log()),
    }
}

/// Delivers until it is taken, as senders do.
async fn until_delivered(gateway: &Gateway, key: &str) {
    let clock = SystemClock::default();
    while !delivered(gateway, key).await {
        assert!(clock.monotonic() < PATIENCE, "{key} was never taken\n{}", gateway.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn until_ready(gateway: &Gateway, status: u16) {
    let clock = SystemClock::default();
    while gateway.get("/readyz").await.status != status {
        assert!(clock.monotonic() < PATIENCE, "/readyz never said {status}\n{}", gateway.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_is_waited_for() {
    let Some(mut server) = postgres::Own::start("", &[]) else { return };
    let gateway = Gateway::start(on(&server.url())).await;
    until_delivered(&gateway, "before").await;
    gateway.in_state("before", "completed").await;
    server.crash();
    for number in 0..5 {
        assert!(!delivered(&gateway, &format!("during-{number}")).await, "a false promise");
    }
    assert_eq!(gateway.get("/readyz").await.status, 503);
    assert_eq!(gateway.get("/healthz").await.status, 200);
    server.start_again();
    until_ready(&gateway, 200).await;
    assert_eq!(gateway.in_state("before", "completed").await["attempts"], 1);
    for number in 0..5 {
        until_delivered(&gateway, &format!("during-{number}")).await;
        gateway.in_state(&format!("during-{number}"), "completed").await;
    }
    assert_eq!(gateway.creates(), 6);
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_anywhere_make_no_false_promise_and_no_second_entity() {
    let Some(database) = postgres::database() else { return };
    let (proxy, url) = Proxy::before_url(database.url());
    let gateway = Gateway::start(on(&url)).await;
    for round in 0..12 {
        let key = format!("cut-{round}");
        // In the answer to a commit at another place each time, or wherever the cut falls.
        match round % 3 {
            0 => proxy.cut_next_commit_after(round),
            1 => proxy.cut(),
            _ => {}
        }
        until_delivered(&gateway, &key).await;
    }
    for round in 0..12 {
        gateway.in_state(&format!("cut-{round}"), "completed").await;
    }
    assert_eq!(gateway.entities(), 12);
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_hangs_is_answered_for_in_time() {
    let Some(database) = postgres::database() else { return };
    let (proxy, url) = Proxy::before_url(database.url());
    let gateway = Gateway::start(on(&url)).await;
    until_delivered(&gateway, "before").await;
    proxy.set(Way::Held);
    let during = join_all((0..20).map(|number| {
        let gateway = &gateway;
        async move { delivered(gateway, &format!("during-{number}")).await }
    }));
    assert!(during.await.into_iter().all(|taken| !taken), "a false promise");
    assert_eq!(gateway.get("/readyz").await.status, 503);
    proxy.set(Way::Open);
    until_ready(&gateway, 200).await;
    for number in 0..20 {
        until_delivered(&gateway, &format!("during-{number}")).await;
        gateway.in_state(&format!("during-{number}"), "completed").await;
    }
    assert_eq!(gateway.entities(), 21);
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_hangs_does_not_keep_the_process_from_ending() {
    let Some(database) = postgres::database() else { return };
    let (proxy, url) = Proxy::before_url(database.url());
    let mut gateway = Gateway::start(on(&url)).await;
    until_delivered(&gateway, "before").await;
    gateway.in_state("before", "completed").await;
    proxy.set(Way::Held);
    assert!(!delivered(&gateway, "during").await, "a false promise");
    let ended = tokio::task::spawn_blocking(move || gateway.terminate());
    let ended = tokio::time::timeout(PATIENCE, ended).await;
    proxy.set(Way::Open);
    assert!(ended.expect("it ends while the database hangs").expect("asked"), "it did not end well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_turned_read_only_is_not_ready_and_recovers_with_it() {
    let Some(server) = postgres::Own::start("", &[]) else { return };
    let gateway = Gateway::start(on(&server.url())).await;
    until_delivered(&gateway, "before").await;
    gateway.in_state("before", "completed").await;
    server.execute("ALTER SYSTEM SET default_transaction_read_only = on");
    server.execute("SELECT pg_reload_conf()");
    until_ready(&gateway, 503).await;
    assert!(!delivered(&gateway, "during").await, "a false promise");
    assert_eq!(gateway.in_state("before", "completed").await["attempts"], 1, "what is there can be read");
    server.execute("ALTER SYSTEM RESET default_transaction_read_only");
    server.execute("SELECT pg_reload_conf()");
    until_ready(&gateway, 200).await;
    until_delivered(&gateway, "during").await;
    gateway.in_state("during", "completed").await;
    gateway.end().await;
}

/// Until the CRM has the entity of a call that is under way, and its answer is held back.
async fn until_created(gateway: &Gateway) {
    while gateway.entities() == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c30_an_answer_that_cannot_be_written_is_kept_and_written_later() {
    let Some(database) = postgres::database() else { return };
    let (proxy, url) = Proxy::before_url(database.url());
    let gateway = Gateway::start(on(&url)).await;
    gateway.faults(json!([{"call": "create", "kind": "delay", "ms": 1000}]));
    until_delivered(&gateway, "kept").await;
    gateway.until("kept", |operation| operation["attempts"] == 1).await;
    proxy.set(Way::Refused);
    proxy.cut();
    until_created(&gateway).await;
    // The answer is in, and its write is tried meanwhile.
    until_ready(&gateway, 503).await;
    let id = gateway.sandbox.world().entities()[0].id.to_string();
    let clock = SystemClock::default();
    // Should the process die now, whoever reads the log knows the entity.
    let told = |log: String| log.lines().any(|line| line.contains("waits for the store") && line.contains(&id));
    while !told(gateway.log()) {
        assert!(clock.monotonic() < PATIENCE, "{}", gateway.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    proxy.set(Way::Open);
    let done = gateway.in_state("kept", "completed").await;
    assert_eq!(done["crm_id"], id);
    assert_eq!((done["attempts"].as_u64(), gateway.creates(), gateway.lookups()), (Some(1), 1, 0), "{}", gateway.log());
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c30_an_answer_that_died_with_its_process_is_found_in_the_crm() {
    let Some(database) = postgres::database() else { return };
    let (proxy, url) = Proxy::before_url(database.url());
    let mut gateway = Gateway::start(on(&url)).await;
    gateway.faults(json!([{"call": "create", "kind": "delay", "ms": 500}]));
    until_delivered(&gateway, "died").await;
    gateway.until("died", |operation| operation["attempts"] == 1).await;
    proxy.set(Way::Refused);
    proxy.cut();
    until_created(&gateway).await;
    gateway.kill();
    proxy.set(Way::Open);
    gateway.run();
    let done = gateway.in_state("died", "completed").await;
    assert_eq!(done["crm_id"], gateway.sandbox.world().entities()[0].id.to_string());
    assert_eq!(gateway.creates(), 1);
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c31_parallel_writes_and_reads_never_find_sqlite_locked() {
    let gateway = Gateway::start(Setup::default()).await;
    let clock = SystemClock::default();
    let (senders, operators) = tokio::join!(
        join_all((0..64).map(|sender| {
            let (gateway, clock) = (&gateway, &clock);
            async move {
                let mut number = 0;
                while clock.monotonic() < Duration::from_secs(5) {
                    let key = format!("c31-{sender}-{number}");
                    assert!(delivered(gateway, &key).await, "{key} was refused\n{}", gateway.log());
                    number += 1;
                }
                number
            }
        })),
        join_all((0..4).map(|_| async {
            while clock.monotonic() < Duration::from_secs(5) {
                let answer = gateway.get("/v1/admin/operations?limit=100").await;
                assert_eq!(answer.status, 200, "{}", answer.text);
            }
        })),
    );
    assert!(senders.into_iter().sum::<u32>() > 64 && operators.len() == 4);
    assert!(!gateway.log().contains("locked"), "{}", gateway.log());
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c61_three_nodes_share_ten_connections_and_come_back_after_a_restart() {
    let Some(mut server) = postgres::Own::start("", &["max_connections=10", "superuser_reserved_connections=0"]) else {
        return;
    };
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Gateway::start(on(&server.url())).await);
    }
    let all = |round: &'static str| {
        let nodes = &nodes;
        join_all((0..200).map(move |number| async move {
            let node = &nodes[number % nodes.len()];
            let key = format!("{round}-{number}");
            until_delivered(node, &key).await;
            // Operators and senders who ask get an answer, or are told to come again; in time.
            let clock = SystemClock::default();
            let asked = node.get(&format!("/v1/operations?source=shop&key={key}")).await.status;
            assert!(matches!(asked, 200 | 503), "{asked}");
            // Two looks: who asks, and what for.
            assert!(clock.monotonic() < 2 * PROMPT, "{:?}", clock.monotonic());
        }))
    };
    all("first").await;
    server.crash();
    for node in &nodes {
        assert!(!delivered(node, "during").await, "a false promise");
    }
    server.start_again();
    all("second").await;
    for node in nodes {
        node.end().await;
    }
}

/// A receiver of alerts; what it was told.
async fn receiver() -> (String, Arc<Mutex<String>>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let told = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&told);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
            let whole = |request: &[u8]| {
                let text = String::from_utf8_lossy(request);
                text.split_once("\r\n\r\n").is_some_and(|(_, body)| serde_json::from_str::<Value>(body).is_ok())
            };
            while !whole(&request) {
                match stream.read(&mut chunk).await {
                    Ok(read) if read > 0 => request.extend_from_slice(&chunk[..read]),
                    _ => break,
                }
            }
            kept.lock().expect("alerts").push_str(&String::from_utf8_lossy(&request));
            let _ = stream.write_all(b"HTTP/1.1 204 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        }
    });
    (url, told)
}

/// A small disk of its own; `None` (said aloud) where this process may not mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=20m", "tmpfs"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if mounted {
            return Some(Self(folder));
        }
        // What cannot be installed is no fault of the machine: `.ci/run` says where a tmpfs can be mounted.
        let required = std::env::var_os("LEADONCE_TEST_MOUNT").is_some_and(|value| value == "1");
        assert!(!required, "a tmpfs cannot be mounted, and LEADONCE_TEST_MOUNT=1");
        use std::io::Write;
        let _ = std::io::stderr().write_all(b"SKIPPED: a tmpfs cannot be mounted (root?), the disk was not filled\n");
        None
    }

    /// Takes all that is left.
    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.0.path().join("ballast")).expect("a file");
        let mut size = 1024 * 1024;
        while size > 0 {
            while file.write_all(&vec![0; size]).is_ok() {}
            size /= 2;
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.0.path().join("ballast")).expect("there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c84_a_full_disk_is_told_and_recovered_from_without_a_restart() {
    let Some(disk) = SmallDisk::mount() else { return };
    let (url, told) = receiver().await;
    let gateway = Gateway::start(Setup {
        store: Some(format!("sqlite://{}", disk.0.path().join("store.db").display())),
        more: format!(
            "[alerts]\nwebhook_url = \"{url}\"\nwebhook_secret = \"whsec_bGVhZG9uY2UtYWxlcnQtc2lnbmluZy1zZWNyZXQtMDE=\"\n"
        ),
        // Nor can the log be written.
        log: Some("/dev/full".into()),
        ..Setup::default()
    })
    .await;
    let mut taken = Vec::new();
    for number in 0..50 {
        let key = format!("c84-{number}");
        if number == 10 {
            disk.fill();
        }
        if delivered(&gateway, &key).await {
            taken.push(key);
        }
    }
    assert!(taken.len() >= 10, "{taken:?}");
    // What is left in the files that exist may still take a few; then nothing.
    let big = json!({"name": "Anna", "message": "x".repeat(100_000)});
    let clock = SystemClock::default();
    while gateway.deliver("big", &big, 0).await.status != 503 {
        assert!(clock.monotonic() < PATIENCE);
    }
    until_ready(&gateway, 503).await;
    // Reads work, and so does the alert.
    for key in &taken {
        let answer = gateway.get(&format!("/v1/operations?source=shop&key={key}")).await;
        assert_eq!((answer.status, &answer.body["source_key"]), (200, &json!(key)), "a false promise");
    }
    assert_eq!(gateway.get("/v1/admin/operations").await.status, 200);
    let says = |text: &str| told.lock().expect("alerts").contains(text);
    gateway.until_path("/healthz", |_| says("store_not_writable") && says("incident.start")).await;

    disk.free();
    until_ready(&gateway, 200).await;
    gateway.until_path("/healthz", |_| says("incident.end")).await;
    for number in 0..50 {
        let key = format!("c84-{number}");
        until_delivered(&gateway, &key).await;
        gateway.in_state(&key, "completed").await;
    }
    gateway.end().await;
}

/// Lets this process, and what it starts from now on, open so many files; whether the system allows it.
fn may_open(files: u64) -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.is_none_or(|maximum| maximum >= files)
        && setrlimit(Resource::Nofile, Rlimit { current: Some(files), ..limit }).is_ok();
    if !allowed {
        let strict = std::env::var_os("LEADONCE_TEST_STRICT").is_some_and(|value| value == "1");
        assert!(!strict, "{files} files cannot be opened, and LEADONCE_TEST_STRICT=1");
        use std::io::Write;
        let _ = std::io::stderr().write_all(b"SKIPPED: too few files may be opened for 10,000 connections\n");
    }
    allowed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_slow_visitors_and_a_full_queue_leave_memory_flat_and_answers_prompt() {
    use tokio::io::AsyncWriteExt;
    let store = postgres::database();
    let Some(database) = &store else { return };
    let (proxy, url) = Proxy::before_url(database.url());
    // As systems start a program; what it needs it has to take itself.
    assert!(may_open(1_024));
    let gateway = Gateway::start(Setup {
        store: Some(url),
        more: "queue = 100\nbatch = 50\n".into(),
        sources: API.into(),
        ..Setup::default()
    })
    .await;
    if !may_open(12_000) {
        return;
    }
    until_delivered(&gateway, "first").await;
    let address = gateway.url.trim_start_matches("http://").to_owned();
    let before = gateway.memory();

    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.process())).expect("its limits");
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("of files");
    let files: Vec<u64> = files.split_whitespace().map_while(|word| word.parse().ok()).collect();
    assert_eq!(files[0], files[1].min(65_536), "it did not take what it may");

    // Each says just enough not to be sent away at once; every other one stops in the middle of a large body.
    let mut slow = Vec::new();
    for number in 0..10_000 {
        let mut stream = tokio::net::TcpStream::connect(&address).await.expect("a connection");
        let head = "POST /v1/intake/shop HTTP/1.1\r\nhost: x\r\nauthorization: Bearer shop-token\r\ncontent-length: 1000000\r\n\r\n";
        let head = format!("{head}{}", "x".repeat(15_000));
        let said = if number % 2 == 0 { head.as_str() } else { "POST /v1/intake/shop HTTP/1.1\r\nhost: x\r\n" };
        // Who is refused for want of room may be cut off.
        let _ = stream.write_all(said.as_bytes()).await;
        slow.push(stream);
    }
    assert!(delivered(&gateway, "among-them").await, "{}", gateway.log());

    // With the database away the queue fills; whoever comes then is told at once.
    proxy.set(Way::Held);
    let busy = Mutex::new(0);
    let (gateway_of, busy_of) = (&gateway, &busy);
    let mut flooded = 0;
    for round in 0..6 {
        join_all((0..400).map(|number| async move {
            let answer = gateway_of.deliver(&format!("flood-{round}-{number}"), &lead("Anna"), 0).await;
            assert_eq!(answer.status, 503, "a false promise");
            assert!(!answer.header("retry-after").is_empty());
            *busy_of.lock().expect("a count") += 1;
        }))
        .await;
        if round == 0 {
            flooded = gateway.memory();
        }
    }
    assert_eq!(*busy.lock().expect("a count"), 2_400);
    assert!(gateway.memory() < flooded + 32, "{flooded} MiB grew to {}", gateway.memory());
    let refused = Answer::of(gateway.client.get(format!("{}/metrics", gateway.url))).await.text;
    assert!(
        refused.contains("leadonce_refused_total{cause=\"busy\",source=\"shop\"}"),
        "the queue was never full: {refused}"
    );
    let grown = gateway.memory().saturating_sub(before);
    assert!(grown < 500, "{grown} MiB for 10,000 visitors");
    proxy.set(Way::Open);
    until_ready(&gateway, 200).await;
    until_delivered(&gateway, "afterwards").await;
    drop(slow);
    gateway.in_state("among-them", "completed").await;
    let _: Value = gateway.in_state("afterwards", "completed").await;
    gateway.end().await;
}

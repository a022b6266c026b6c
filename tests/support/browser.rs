//! A real headless Chromium, driven through ChromeDriver. Both are Debian packages (`chromium`, `chromium-driver`).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::json;

/// A browser; it and its driver end when dropped.
pub(crate) struct Browser {
    pub(crate) client: Client,
    // In this order: the browser must have ended before its folder goes.
    _driver: Driver,
    _profile: tempfile::TempDir,
}

/// A ChromeDriver that takes its browser with it when it ends, also where a test fails before it has one.
struct Driver {
    child: Child,
    port: u16,
}

/// Starts one, or says loudly that it is missing; fails instead where `LEADONCE_TEST_STRICT` is set.
pub(crate) async fn start(javascript: bool) -> Option<Browser> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let driver = Command::new("chromedriver")
        .arg(format!("--port={port}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = driver else {
        assert!(!strict(), "chromedriver is missing (Debian: chromium chromium-driver)");
        eprintln!(
            "SKIPPED: chromedriver was not found, so no test ran in a browser (Debian: chromium chromium-driver)"
        );
        return None;
    };
    let driver = Driver { child, port };
    let profile = tempfile::tempdir().expect("a folder");
    let capabilities = json!({
        "goog:chromeOptions": {
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", format!("--user-data-dir={}", profile.path().display()),
            ],
            "prefs": {"profile.managed_default_content_settings.javascript": if javascript { 1 } else { 2 }},
        },
    });
    let capabilities = capabilities.as_object().cloned().expect("an object");
    let address = format!("http://127.0.0.1:{port}");
    for _ in 0..300 {
        let connected =
            ClientBuilder::new(HttpConnector::new()).capabilities(capabilities.clone()).connect(&address).await;
        match connected {
            Ok(client) => return Some(Browser { client, _driver: driver, _profile: profile }),
            Err(fantoccini::error::NewSessionError::Lost(_) | fantoccini::error::NewSessionError::FailedC(_)) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => panic!("no browser session: {error}"),
        }
    }
    panic!("chromedriver did not come up");
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Killed outright, the driver would leave its browser running.
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let _ = stream.write_all(b"GET /shutdown HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
            let _ = stream.read_to_end(&mut Vec::new());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a skip is a failure.
#[expect(clippy::disallowed_methods, reason = "how the tests are run")]
fn strict() -> bool {
    std::env::var("LEADONCE_TEST_STRICT").is_ok_and(|value| value == "1")
}

/// Looks again and again until it sees what it waits for.
#[expect(clippy::disallowed_methods, reason = "a deadline of a test")]
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = std::time::Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(40), "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

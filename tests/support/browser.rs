//! A real headless Chromium, driven through ChromeDriver. Both are Debian packages (`chromium`, `chromium-driver`).

use std::process::{Child, Command, Stdio};

use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::json;

/// A browser; it and its driver end when dropped.
pub struct Browser {
    pub client: Client,
    driver: Child,
    _profile: tempfile::TempDir,
}

/// Starts one, or says loudly that it is missing; fails instead where `LEADONCE_TEST_STRICT` is set.
pub async fn start(javascript: bool) -> Option<Browser> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let driver = Command::new("chromedriver")
        .arg(format!("--port={port}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(driver) = driver else {
        assert!(!super::strict(), "chromedriver is missing (Debian: chromium chromium-driver)");
        eprintln!(
            "SKIPPED: chromedriver was not found, so no test ran in a browser (Debian: chromium chromium-driver)"
        );
        return None;
    };
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
            Ok(client) => return Some(Browser { client, driver, _profile: profile }),
            Err(fantoccini::error::NewSessionError::Lost(_) | fantoccini::error::NewSessionError::FailedC(_)) => {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            Err(error) => panic!("no browser session: {error}"),
        }
    }
    panic!("chromedriver did not come up");
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

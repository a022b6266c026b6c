//! The drill: plays the pilot table of contract 10 over real HTTP, against a gateway of its own and the sandbox CRM.
//!
//! The gateway is a process of its own, so that it can be killed; it is driven and judged only from outside.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::child::{Folder, Gateway};
use crate::clock::{Clock, SystemClock, SystemEntropy, uuid_v7};
use crate::sandbox::{Fault, Running, Sandbox};

/// The longest a row may take to come to its state.
const PATIENCE: Duration = Duration::from_secs(30);

/// One row of the pilot table and how it went.
#[derive(Debug, serde::Serialize)]
pub(super) struct Row {
    /// What is played.
    pub(super) scenario: &'static str,
    /// What must come of it.
    pub(super) expected: &'static str,
    /// What was seen instead, where it failed.
    pub(super) fault: Option<String>,
}

/// Plays all rows. An error means that the drill itself could not be set up.
pub(super) async fn run(program: &Path) -> Result<Vec<Row>> {
    let mut bench = Bench::set_up(program).await?;
    let mut rows = Vec::new();
    macro_rules! play {
        ($scenario:literal, $expected:literal, $row:ident) => {
            tracing::info!(scenario = $scenario, "playing");
            bench.clear();
            let fault = bench.$row().await.err().map(|error| format!("{error:#}"));
            rows.push(Row { scenario: $scenario, expected: $expected, fault });
        };
    }
    play!("one webhook delivered twice", "one CRM entity; the second gets the first result", delivered_twice);
    play!(
        "the CRM created the deal, the answer timed out",
        "no second deal; the result is found and stored",
        answer_lost
    );
    play!("two workers get one lead at the same moment", "one claims the operation", same_moment);
    play!(
        "the process restarts after the create step",
        "the stored or found crm_id is used; create is not repeated",
        killed_after_create
    );
    play!("the CRM answers with a validation error", "no automatic retry; the cause is visible", validation_error);
    play!(
        "the token lost its rights",
        "the operation waits, the destination is suspended, one alert, no loop; after resume it completes",
        rights_lost
    );
    play!("changed data under the same key", "blocked, and in review", changed_data);
    play!(
        "a duplicate arrives after old keys were purged",
        "the tombstone answers, or it goes to review",
        duplicate_after_purge
    );
    Ok(rows)
}

struct Bench {
    program: PathBuf,
    folder: Folder,
    sandbox: Running,
    gateway: Option<Gateway>,
    url: String,
    token: String,
    client: reqwest::Client,
    alerts: Arc<AtomicUsize>,
    calls_before: u64,
}

impl Bench {
    async fn set_up(program: &Path) -> Result<Self> {
        let folder = Folder::new(uuid_v7(SystemClock::default().now(), &SystemEntropy))?;
        let sandbox = Sandbox::start("127.0.0.1:0").await?;
        let alerts = Arc::new(AtomicUsize::new(0));
        let alert_url = receiver(Arc::clone(&alerts))?;
        std::fs::write(folder.file("drill.toml"), configuration(&folder, &sandbox.bitrix_url(), &alert_url))?;
        let mut bench = Self {
            program: program.to_owned(),
            folder,
            sandbox,
            gateway: None,
            url: String::new(),
            token: String::new(),
            client: reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build()?,
            alerts,
            calls_before: 0,
        };
        bench.start().await?;
        let made = bench.command(&["token", "create", "--role", "admin", "--name", "drill", "--json"]).await?;
        let made: Value = serde_json::from_str(&made).context("token create --json")?;
        bench.token = made.get("token").and_then(Value::as_str).context("a token")?.to_owned();
        Ok(bench)
    }

    async fn start(&mut self) -> Result<()> {
        let gateway = Gateway::start(&self.program, &self.folder.file("drill.toml")).await?;
        self.url.clone_from(&gateway.url);
        self.gateway = Some(gateway);
        Ok(())
    }

    /// Runs a command of the program beside the gateway; its standard output.
    async fn command(&self, words: &[&str]) -> Result<String> {
        let config = self.folder.file("drill.toml");
        let output = tokio::process::Command::new(&self.program)
            .args(words)
            .arg("--config")
            .arg(&config)
            .stdin(std::process::Stdio::null())
            .output()
            .await?;
        ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// A sandbox without faults and entities for the next row; its calls are counted from here.
    fn clear(&mut self) {
        let world = self.sandbox.world();
        world.clear_faults();
        world.clear_entities();
        self.calls_before = world.creates();
    }

    fn faults(&self, faults: Value) -> Result<()> {
        for fault in Fault::list_from_json(faults).map_err(anyhow::Error::msg)? {
            self.sandbox.world().add_fault(fault);
        }
        Ok(())
    }

    /// Delivers a lead to the source of kind `api`; the status and the body of the answer.
    async fn deliver(&self, key: &str, name: &str, wait: u32) -> Result<(u16, bool, Value)> {
        let answer = self
            .client
            .post(format!("{}/v1/intake/shop", self.url))
            .bearer_auth("drill-source-token")
            .header("idempotency-key", key)
            .header("prefer", format!("wait={wait}"))
            .json(&json!({"name": name, "phone": "+79160000001", "message": "drill"}))
            .send()
            .await?;
        let replayed = answer.headers().contains_key("idempotent-replayed");
        Ok((answer.status().as_u16(), replayed, answer.json().await?))
    }

    /// The operation of a key, as soon as it is as wanted.
    async fn until(&self, key: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let clock = SystemClock::default();
        loop {
            let url = format!("{}/v1/operations?source=shop&key={key}", self.url);
            let answer = self.client.get(url).bearer_auth(&self.token).send().await?;
            let operation: Value = answer.json().await?;
            if wanted(&operation) {
                return Ok(operation);
            }
            ensure!(clock.monotonic() < PATIENCE, "{what} did not come about: {operation}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn completed(&self, key: &str) -> Result<Value> {
        self.until(key, "completed", |operation| text(operation, "status") == "completed").await
    }

    async fn delivered_twice(&mut self) -> Result<()> {
        let (status, _, first) = self.deliver("twice", "Anna", 10).await?;
        ensure!(status == 201 && text(&first, "status") == "completed", "first delivery: {status} {first}");
        let (status, replayed, second) = self.deliver("twice", "Anna", 10).await?;
        ensure!(status == 200 && replayed, "second delivery: {status} {second}");
        ensure!(text(&first, "crm_id") == text(&second, "crm_id"), "another crm_id: {second}");
        self.exactly(1, 1)
    }

    async fn answer_lost(&mut self) -> Result<()> {
        self.faults(json!([{"call": "create", "kind": "commit_then_hang"}]))?;
        self.deliver("lost", "Boris", 0).await?;
        let found = self.completed("lost").await?;
        let ids: Vec<String> = self.sandbox.world().entities().iter().map(|entity| entity.id.to_string()).collect();
        ensure!(ids == [text(&found, "crm_id")], "stored {found}, in the CRM {ids:?}");
        self.exactly(1, 1)
    }

    async fn same_moment(&mut self) -> Result<()> {
        self.faults(json!([{"call": "create", "kind": "delay", "ms": 300}]))?;
        let answers = join_all((0..30).map(|_| self.deliver("moment", "Vera", 5))).await;
        let mut ids = std::collections::BTreeSet::new();
        for answer in answers {
            let (status, _, body) = answer?;
            ensure!((200..300).contains(&status), "a delivery was answered {status}: {body}");
            ids.insert(text(&body, "operation_id").into_owned());
        }
        ensure!(ids.len() == 1, "{} operations", ids.len());
        self.completed("moment").await?;
        self.exactly(1, 1)?;
        // And more leads than the gateway has workers, all due at once: each is claimed by one of them.
        let keys: Vec<String> = (0..20).map(|number| format!("moment-{number}")).collect();
        for answer in join_all(keys.iter().map(|key| self.deliver(key, "Vera", 0))).await {
            answer?;
        }
        for key in &keys {
            self.completed(key).await?;
        }
        self.exactly(21, 21)
    }

    async fn killed_after_create(&mut self) -> Result<()> {
        self.faults(json!([{"call": "create", "kind": "commit_then_hang"}]))?;
        self.deliver("killed", "Gleb", 0).await?;
        let clock = SystemClock::default();
        while self.sandbox.world().entities().is_empty() {
            ensure!(clock.monotonic() < PATIENCE, "the CRM was not called");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The entity stands, its answer has not come: now the process dies.
        let Some(gateway) = self.gateway.take() else { bail!("no gateway") };
        gateway.kill().await?;
        self.start().await?;
        self.completed("killed").await?;
        self.exactly(1, 1)
    }

    async fn validation_error(&mut self) -> Result<()> {
        self.faults(json!([{"call": "create", "kind": "validation_error"}]))?;
        let (_, _, body) = self.deliver("invalid", "Dina", 10).await?;
        ensure!(text(&body, "status") == "failed_terminal" && text(&body, "reason") == "rejected", "{body}");
        ensure!(!text(&body, "last_error").is_empty(), "the cause is not visible: {body}");
        self.exactly(0, 1)
    }

    async fn rights_lost(&mut self) -> Result<()> {
        self.faults(json!([{"call": "create", "kind": "access_denied"}]))?;
        let before = self.alerts.load(Ordering::SeqCst);
        self.deliver("rights", "Egor", 0).await?;
        let clock = SystemClock::default();
        while self.alerts.load(Ordering::SeqCst) == before {
            ensure!(clock.monotonic() < PATIENCE, "no alert came");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let waiting = self.until("rights", "waiting", |operation| text(operation, "status") == "received").await?;
        ensure!(text(&waiting, "attempts") == "1", "more than one call: {waiting}");
        self.exactly(0, 1)?;
        ensure!(self.alerts.load(Ordering::SeqCst) == before + 1, "more than one alert");
        let url = format!("{}/v1/admin/destinations/crm/resume", self.url);
        self.client.post(url).bearer_auth(&self.token).send().await?.error_for_status()?;
        self.completed("rights").await?;
        self.exactly(1, 2)
    }

    async fn changed_data(&mut self) -> Result<()> {
        self.deliver("changed", "Zoya", 10).await?;
        let (status, _, problem) = self.deliver("changed", "Zoya Changed", 0).await?;
        ensure!(status == 422, "changed data was answered {status}: {problem}");
        let url = format!("{}/v1/admin/operations?status=needs_review&reason=payload_conflict", self.url);
        let page: Value = self.client.get(url).bearer_auth(&self.token).send().await?.json().await?;
        let items = page.get("items").and_then(Value::as_array).map_or(0, Vec::len);
        ensure!(items == 1, "{items} cases in review");
        self.exactly(1, 1)
    }

    async fn duplicate_after_purge(&mut self) -> Result<()> {
        let (_, _, first) = self.deliver("purged", "Ivan", 10).await?;
        // The drill's configuration keeps payloads for one second.
        let clock = SystemClock::default();
        loop {
            self.command(&["purge"]).await?;
            let url = format!("{}/v1/admin/operations/{}", self.url, text(&first, "operation_id"));
            let story: Value = self.client.get(url).bearer_auth(&self.token).send().await?.json().await?;
            if story.get("lead").is_none_or(Value::is_null) {
                break;
            }
            ensure!(clock.monotonic() < PATIENCE, "the payload was not erased");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let (status, replayed, again) = self.deliver("purged", "Ivan", 10).await?;
        ensure!(status == 200 && replayed, "the redelivery was answered {status}: {again}");
        ensure!(text(&again, "crm_id") == text(&first, "crm_id"), "another crm_id: {again}");
        let (status, _, problem) = self.deliver("purged", "Ivan Changed", 0).await?;
        ensure!(status == 422, "changed data after the purge was answered {status}: {problem}");
        self.exactly(1, 1)
    }

    /// So many entities and create calls stand in the CRM, and no call is still to come.
    fn exactly(&self, entities: usize, creates: u64) -> Result<()> {
        let world = self.sandbox.world();
        let seen = (world.entities().len(), world.creates() - self.calls_before);
        ensure!(seen == (entities, creates), "{} entities after {} create calls", seen.0, seen.1);
        Ok(())
    }
}

/// Receives alerts and counts the starts of incidents of suspended destinations.
fn receiver(count: Arc<AtomicUsize>) -> Result<String> {
    use actix_web::{App, HttpResponse, HttpServer, web};
    let server = HttpServer::new(move || {
        let count = Arc::clone(&count);
        App::new().route(
            "/alert",
            web::post().to(move |body: web::Json<Value>| {
                let start = body.get("type").and_then(Value::as_str) == Some("incident.start");
                let incident = body.pointer("/data/incident").and_then(Value::as_str).unwrap_or_default();
                if start && incident.starts_with("destination_suspended:") {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                async { HttpResponse::NoContent().finish() }
            }),
        )
    })
    .workers(1)
    .disable_signals()
    .bind("127.0.0.1:0")?;
    let port = server.addrs().first().map(std::net::SocketAddr::port).context("an address")?;
    actix_web::rt::spawn(server.run());
    Ok(format!("http://127.0.0.1:{port}/alert"))
}

fn configuration(folder: &Folder, sandbox: &str, alert_url: &str) -> String {
    format!(
        r#"[server]
listen = "127.0.0.1:0"

[store]
url = "sqlite://{store}"

[[destination]]
name = "crm"
kind = "bitrix24"
webhook_url = "{sandbox}"
timeout = "2s"
lease = "4s"
rate = {{ per_second = 100, burst = 100 }}
[destination.retry]
initial_interval = "100ms"
[destination.lookup]
first_after = "100ms"
settle = "3s"

[[source]]
name = "shop"
kind = "api"
destination = "crm"
token = "drill-source-token"

[retention]
payload = "1s"

[alerts]
webhook_url = "{alert_url}"
webhook_secret = "whsec_bGVhZG9uY2UtZHJpbGwtc2lnbmluZy1zZWNyZXQtMDA="
"#,
        store = folder.file("drill.db").display()
    )
}

fn text<'a>(value: &'a Value, name: &str) -> std::borrow::Cow<'a, str> {
    match value.get(name) {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Null) | None => "".into(),
        Some(other) => other.to_string().into(),
    }
}

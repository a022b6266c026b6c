//! A real gateway for stories: the built binary in a process of its own, the sandbox CRM beside it, driven from outside.
//!
//! When it is dropped the invariants of every story are checked: no operation has two entities, and nothing is in progress
//! without a lease or a time for its next look-up.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leadonce::sandbox::{CallKind, Fault, Running, Sandbox};
use serde_json::{Value, json};

/// The longest a condition may take to come about. Generous: the machines are slow and shared.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// How a story's gateway is set up.
pub(crate) struct Setup {
    /// Store URL; `None`: a SQLite file in the story's folder.
    pub(crate) store: Option<String>,
    /// Lines of `[[destination]]` beside name, kind and address.
    pub(crate) destination: String,
    /// `[destination.*]` tables.
    pub(crate) destination_tables: String,
    /// `[[source]]` tables.
    pub(crate) sources: String,
    /// Other tables; at its beginning, other keys of `[store]`.
    pub(crate) more: String,
    /// Where its log goes instead of a file beside the configuration.
    pub(crate) log: Option<PathBuf>,
    /// What stands in its environment beside the test's own.
    pub(crate) environment: Vec<(&'static str, PathBuf)>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            store: None,
            destination: "timeout = \"2s\"\nlease = \"4s\"\nrate = { per_second = 200, burst = 200 }\n".into(),
            destination_tables: "[destination.retry]\ninitial_interval = \"100ms\"\n[destination.lookup]\nfirst_after = \"100ms\"\nsettle = \"3s\"\n"
                .into(),
            sources: API.to_owned() + FORM,
            more: String::new(),
            log: None,
            environment: Vec::new(),
        }
    }
}

/// A source of kind `api` named `shop`.
pub(crate) const API: &str =
    "[[source]]\nname = \"shop\"\nkind = \"api\"\ndestination = \"crm\"\ntoken = \"shop-token\"\n";
/// A source of kind `form` named `site`.
pub(crate) const FORM: &str = "[[source]]\nname = \"site\"\nkind = \"form\"\ndestination = \"crm\"\nallow_origins = [\"https://example.com\"]\ndefault_region = \"RU\"\n";

/// A running gateway and its CRM.
pub(crate) struct Gateway {
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) client: reqwest::Client,
    pub(crate) sandbox: Running,
    folder: tempfile::TempDir,
    log: PathBuf,
    environment: Vec<(&'static str, PathBuf)>,
    child: Option<Child>,
}

impl Gateway {
    /// Starts sandbox and gateway.
    pub(crate) async fn start(setup: Setup) -> Self {
        let sandbox = Sandbox::start("127.0.0.1:0").await.expect("the sandbox starts");
        let folder = tempfile::tempdir().expect("a folder");
        let store = setup.store.unwrap_or_else(|| format!("sqlite://{}", folder.path().join("store.db").display()));
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{store}\"\n{}\n[[destination]]\nname = \"crm\"\nkind = \"bitrix24\"\nwebhook_url = \"{}\"\n{}{}\n{}",
            setup.more,
            sandbox.bitrix_url(),
            setup.destination,
            setup.destination_tables,
            setup.sources
        );
        std::fs::write(folder.path().join("leadonce.toml"), text).expect("the configuration is written");
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("a client");
        let log = setup.log.unwrap_or_else(|| folder.path().join("log"));
        let environment = setup.environment;
        let mut gateway =
            Self { url: String::new(), token: String::new(), client, sandbox, folder, log, environment, child: None };
        gateway.run();
        gateway.new_token();
        gateway
    }

    /// Makes the token by which it is asked from now on.
    pub(crate) fn new_token(&mut self) {
        // Several gateways may share a store.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("story-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let made = self.command(&["token", "create", "--role", "admin", "--name", &name, "--json"]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let made: Value = serde_json::from_slice(&made.stdout).expect("JSON of token create");
        self.token = made["token"].as_str().expect("a token").to_owned();
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("leadonce.toml")
    }

    /// Starts the process (again).
    pub(crate) fn run(&mut self) {
        self.run_with(&[]);
    }

    /// The same, with further words on its command line.
    pub(crate) fn run_with(&mut self, words: &[&str]) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log).expect("a log");
        let mut child = Command::new(env!("CARGO_BIN_EXE_leadonce"))
            .arg("serve")
            .arg("--config")
            .arg(self.config())
            .args(words)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the gateway starts");
        let stdout = child.stdout.take().expect("its output");
        let line = BufReader::new(stdout).lines().next().and_then(Result::ok);
        let url = line.as_deref().and_then(|line| line.strip_prefix("listening on ")).map(str::to_owned);
        self.url = url.unwrap_or_else(|| panic!("the gateway did not start:\n{}", self.log()));
        self.child = Some(child);
    }

    /// A command of the program beside the gateway.
    pub(crate) fn command(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_leadonce"))
            .args(words)
            .arg("--config")
            .arg(self.config())
            .stdin(Stdio::null())
            .output()
            .expect("the program runs")
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("a running gateway");
        child.kill().expect("killed");
        child.wait().expect("gone");
    }

    /// SIGTERM; waits for the end and says whether it was a good one.
    pub(crate) fn terminate(&mut self) -> bool {
        let mut child = self.child.take().expect("a running gateway");
        let sent = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().expect("kill runs");
        assert!(sent.success());
        child.wait().expect("gone").success()
    }

    /// The id of the process.
    pub(crate) fn process(&self) -> u32 {
        self.child.as_ref().expect("a running gateway").id()
    }

    /// Memory of the process that is in use now, in MiB.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
    }

    /// Everything it logged.
    pub(crate) fn log(&self) -> String {
        if self.log.is_file() { std::fs::read_to_string(&self.log).unwrap_or_default() } else { String::new() }
    }

    /// The configured store, as a file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The next faults of the CRM.
    pub(crate) fn faults(&self, faults: Value) {
        for fault in Fault::list_from_json(faults).expect("faults") {
            self.sandbox.world().add_fault(fault);
        }
    }

    /// How many entities stand in the CRM.
    pub(crate) fn entities(&self) -> usize {
        self.sandbox.world().entities().len()
    }

    /// How many creates the CRM saw.
    pub(crate) fn creates(&self) -> u64 {
        self.sandbox.world().creates()
    }

    /// How many look-ups the CRM saw.
    pub(crate) fn lookups(&self) -> usize {
        self.sandbox.world().calls().iter().filter(|call| call.call == CallKind::Lookup).count()
    }

    /// A lead to the source of kind `api`.
    pub(crate) async fn deliver(&self, key: &str, lead: &Value, wait: u32) -> Answer {
        let request = self
            .client
            .post(format!("{}/v1/intake/shop", self.url))
            .bearer_auth("shop-token")
            .header("idempotency-key", key)
            .header("prefer", format!("wait={wait}"))
            .json(lead);
        Answer::of(request).await
    }

    /// A GET with the admin token.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.client.get(format!("{}{path}", self.url)).bearer_auth(&self.token)).await
    }

    /// A POST with the admin token.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        Answer::of(self.client.post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(body)).await
    }

    /// An operator's decision on the operation as it stands.
    pub(crate) async fn resolve(&self, id: &str, body: &Value) -> Answer {
        let version = self.get(&format!("/v1/admin/operations/{id}")).await.body["version"].clone();
        let request = self
            .client
            .post(format!("{}/v1/admin/operations/{id}/resolve", self.url))
            .bearer_auth(&self.token)
            .header("if-match", format!("\"{version}\""))
            .json(body);
        Answer::of(request).await
    }

    /// The operation of a key of `shop`, as soon as it is as wanted.
    pub(crate) async fn until(&self, key: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until_path(&format!("/v1/operations?source=shop&key={key}"), wanted).await
    }

    /// Whatever that address shows, as soon as it is as wanted.
    pub(crate) async fn until_path(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let start = now();
        loop {
            let body = self.get(path).await.body;
            if wanted(&body) {
                return body;
            }
            assert!(start.elapsed() < PATIENCE, "it did not come about: {body}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// The operation of a key of `shop`, once it is in that state.
    pub(crate) async fn in_state(&self, key: &str, state: &str) -> Value {
        self.until(key, |operation| operation["status"] == state).await
    }

    fn check_invariants(&self) {
        let mut keys = std::collections::BTreeMap::new();
        for entity in self.sandbox.world().entities() {
            *keys.entry(entity.key).or_insert(0) += 1;
        }
        let twice: Vec<_> = keys.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "two entities of one operation: {twice:?}");
    }

    /// Ends the story: checks the invariants, then stops everything.
    pub(crate) async fn end(mut self) {
        self.check_invariants();
        let log = self.log();
        assert!(!log.contains("panicked at"), "something panicked:\n{log}");
        assert!(!log.contains("shop-token") && !log.contains("rest/1/sandbox"), "a secret was logged:\n{log}");
        if self.child.is_some() {
            assert!(self.terminate(), "it did not end well:\n{}", self.log());
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An answer of the gateway.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Answer {
    /// Sends a request.
    pub(crate) async fn of(request: reqwest::RequestBuilder) -> Self {
        let answer = request.send().await.expect("the gateway answers");
        Self::read(answer).await.expect("a whole answer")
    }

    /// Reads what came.
    pub(crate) async fn read(answer: reqwest::Response) -> reqwest::Result<Self> {
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let text = answer.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Self { status, headers, text, body })
    }

    /// A header's text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

/// A lead.
pub(crate) fn lead(name: &str) -> Value {
    json!({"name": name, "phone": "+79160000001", "message": "a story"})
}

#[expect(clippy::disallowed_methods, reason = "a deadline of a test")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

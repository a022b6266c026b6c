//! Several gateways on one PostgreSQL: processes of the built binary under one configuration, and one sandbox CRM for all.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use diesel::{Connection, PgConnection};
use leadonce::sandbox::{Fault, Running, Sandbox};
use serde_json::Value;

use crate::gateway::{API, Answer, PATIENCE, Setup, now};
use crate::postgres;
use crate::proxy::Proxy;
use crate::wall_clock::WallClock;

/// Nodes, their store and their CRM.
pub(crate) struct Nodes {
    pub(crate) sandbox: Running,
    client: reqwest::Client,
    nodes: Vec<Node>,
    clocks: Vec<WallClock>,
    folder: tempfile::TempDir,
    /// Where a node has its store, if not in the configuration.
    stores: BTreeMap<usize, String>,
    database: postgres::Database,
}

struct Node {
    url: String,
    child: Option<Child>,
}

impl Nodes {
    /// Starts so many; `None` where there is no PostgreSQL.
    pub(crate) async fn start(count: usize) -> Option<Self> {
        Self::start_with(count, "").await
    }

    /// The same with other tables in the configuration.
    pub(crate) async fn start_with(count: usize, more: &str) -> Option<Self> {
        Self::start_for(&vec![0; count], Setup::default(), more).await
    }

    /// The same, the wall clock of each node ahead by so many seconds.
    pub(crate) async fn start_ahead(ahead: &[i64], more: &str) -> Option<Self> {
        Self::start_for(ahead, Setup::default(), more).await
    }

    /// The same with other lines of the destination too.
    pub(crate) async fn start_for(ahead: &[i64], setup: Setup, more: &str) -> Option<Self> {
        let database = postgres::database()?;
        let sandbox = Sandbox::start("127.0.0.1:0").await.expect("the sandbox starts");
        let folder = tempfile::tempdir().expect("a folder");
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\n[[destination]]\nname = \"crm\"\nkind = \"bitrix24\"\nwebhook_url = \"{}\"\n{}{}\n{API}{more}",
            database.url(),
            sandbox.bitrix_url(),
            setup.destination,
            setup.destination_tables,
        );
        std::fs::write(folder.path().join("leadonce.toml"), text).expect("the configuration is written");
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let clocks = (0..ahead.len()).map(|place| WallClock::new(folder.path(), &format!("clock-{place}"))).collect();
        let mut nodes = Self { sandbox, client, nodes: Vec::new(), clocks, folder, stores: BTreeMap::new(), database };
        for (place, ahead) in ahead.iter().enumerate() {
            nodes.clocks[place].set(*ahead);
            nodes.nodes.push(Node { url: String::new(), child: None });
            nodes.run(place);
        }
        Some(nodes)
    }

    /// Starts a node (again), at a new address.
    pub(crate) fn run(&mut self, place: usize) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join("log"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_leadonce"))
            .arg("serve")
            .arg("--config")
            .arg(self.folder.path().join("leadonce.toml"))
            .envs(self.clocks[place].environment())
            .envs(self.stores.get(&place).map(|url| ("LEADONCE__STORE__URL", url)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.expect("a log"))
            .spawn()
            .expect("a node starts");
        let stdout = child.stdout.take().expect("its output");
        let line = BufReader::new(stdout).lines().next().and_then(Result::ok);
        let url = line.as_deref().and_then(|line| line.strip_prefix("listening on ")).map(str::to_owned);
        let url = url.unwrap_or_else(|| panic!("a node did not start:\n{}", self.log()));
        self.nodes[place] = Node { url, child: Some(child) };
    }

    /// Starts a node again with a proxy before its store.
    pub(crate) fn behind_proxy(&mut self, place: usize) -> Proxy {
        let (proxy, url) = Proxy::before_url(self.database.url());
        self.stores.insert(place, url);
        self.kill(place);
        self.run(place);
        proxy
    }

    /// The name of the store's database.
    pub(crate) fn database(&self) -> String {
        let url = url::Url::parse(self.database.url()).expect("a url");
        url.path().trim_start_matches('/').to_owned()
    }

    /// A connection of the test's own to the store.
    pub(crate) fn store(&self) -> PgConnection {
        PgConnection::establish(self.database.url()).expect("a connection")
    }

    /// Sets the wall clock of a node so many seconds ahead.
    pub(crate) fn set_ahead(&self, place: usize, seconds: i64) {
        self.clocks[place].set(seconds);
    }

    /// What a node shows at an address, once it is as wanted.
    pub(crate) async fn until(&self, place: usize, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let address = format!("{}{path}", self.nodes[place].url);
        let start = now();
        loop {
            let answer = Answer::of(self.client.get(&address).bearer_auth("shop-token")).await;
            if wanted(&answer) {
                return answer;
            }
            assert!(start.elapsed() < PATIENCE, "it did not come about: {answer:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A signal by its name: `STOP`, `CONT`, `TERM`.
    pub(crate) fn signal(&self, place: usize, name: &str) {
        let process = self.nodes[place].child.as_ref().expect("a running node").id();
        let sent = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status().expect("kill runs");
        assert!(sent.success());
    }

    /// kill -9.
    pub(crate) fn kill(&mut self, place: usize) {
        let mut child = self.nodes[place].child.take().expect("a running node");
        child.kill().expect("killed");
        child.wait().expect("gone");
    }

    /// Waits for the end of a node that was told to stop; whether it was a good one.
    pub(crate) async fn ended(&mut self, place: usize) -> bool {
        let mut child = self.nodes[place].child.take().expect("a running node");
        tokio::task::spawn_blocking(move || child.wait().expect("gone").success()).await.expect("waited")
    }

    /// The address of a node.
    pub(crate) fn url(&self, place: usize) -> String {
        self.nodes[place].url.clone()
    }

    /// A lead to the source `shop` of one node; an error where that node is not there.
    pub(crate) fn deliver(
        &self,
        url: &str,
        key: &str,
        lead: &Value,
        wait: u32,
    ) -> impl Future<Output = reqwest::Result<Answer>> + use<> {
        let request = self
            .client
            .post(format!("{url}/v1/intake/shop"))
            .bearer_auth("shop-token")
            .header("idempotency-key", key)
            .header("prefer", format!("wait={wait}"))
            .json(lead);
        async { Answer::read(request.send().await?).await }
    }

    /// The next faults of the CRM.
    pub(crate) fn faults(&self, faults: Value) {
        for fault in Fault::list_from_json(faults).expect("faults") {
            self.sandbox.world().add_fault(fault);
        }
    }

    /// The operation of a key, as a node shows it once it is in that state.
    pub(crate) async fn in_state(&self, place: usize, key: &str, state: &str) -> Value {
        let path = format!("/v1/operations?source=shop&key={key}");
        self.until(place, &path, |answer| answer.body["status"] == state).await.body
    }

    /// Comes back once the CRM is as wanted.
    pub(crate) async fn crm(&self, wanted: impl Fn(&leadonce::sandbox::World) -> bool) {
        let start = now();
        while !wanted(self.sandbox.world()) {
            assert!(start.elapsed() < PATIENCE, "the CRM was never called so:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// How many entities stand in the CRM; none may share its operation with another.
    pub(crate) fn entities(&self) -> usize {
        let entities = self.sandbox.world().entities();
        let mut keys = BTreeMap::new();
        for entity in &entities {
            *keys.entry(entity.key.clone()).or_insert(0) += 1;
        }
        let twice: Vec<_> = keys.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "two entities of one operation: {twice:?}\n{}", self.log());
        entities.len()
    }

    /// What all nodes logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().filter_map(|node| node.child.as_mut()) {
            // Also ends one that is stopped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

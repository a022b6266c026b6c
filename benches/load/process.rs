//! The processes under load: started, measured by what the system says of them, and killed.

#![allow(dead_code, reason = "tests take what they need")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::slow::SlowDisk;

/// Store, source and destination of every run. Nothing is delivered unless the run wants it: the CRM is nowhere.
const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
[store]
url = "STORE"
BATCH
[[destination]]
name = "crm"
kind = "bitrix24"
webhook_url = "CRM"
concurrency = 64
rate = { per_second = 100000, burst = 1000 }
[[source]]
name = "ordered"
kind = "form"
destination = "crm"
[[source]]
name = "random"
kind = "form"
destination = "crm"
"#;

/// A running server.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// What else it says goes here; without it the process would fail.
    _output: BufReader<ChildStdout>,
    /// HOST:PORT.
    pub(crate) address: String,
    /// An operator's token, of a gateway that delivers nothing.
    pub(crate) token: String,
}

impl Process {
    /// Starts it and waits until it says where it listens.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the process starts");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut address = output.by_ref().lines().map_while(Result::ok).find_map(|line| {
            let at = line.find("http://")?;
            Some(line[at + 7..].split(['/', ' ']).next().unwrap_or_default().to_owned())
        });
        let address = address.take().expect("the process says where it listens");
        Self { child, _output: output, address, token: String::new() }
    }

    /// The trivial handler, in a process of this very program.
    pub(crate) fn trivial() -> Self {
        let program = std::env::current_exe().expect("this program");
        Self::start(Command::new(program).arg("--trivial"))
    }

    /// The sandbox CRM.
    pub(crate) fn sandbox() -> Self {
        Self::start(Command::new(env!("CARGO_BIN_EXE_leadonce")).args(["sandbox", "--listen", "127.0.0.1:0"]))
    }

    /// A gateway. Its log goes into a file beside its configuration.
    pub(crate) fn gateway(folder: &Path, store: &str, how: &How<'_>) -> Self {
        let path = configure(folder, store, how);
        let log = std::fs::File::create(folder.join("log")).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_leadonce"));
        command.args(["serve", "--config"]).arg(&path).stderr(log);
        if let Some(slow) = how.slow {
            command.envs(slow.environment());
        }
        let mut process = Self::start(&mut command);
        if how.crm.is_none() {
            process.token = suspend(&path, &process.address);
        }
        process
    }

    /// Seconds of processor time so far.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let ticks = |place| after_name.split_whitespace().nth(place).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
        (ticks(11) + ticks(12)) / 100.0
    }

    /// Bytes written so far, to files and sockets.
    pub(crate) fn written(&self) -> f64 {
        self.line("io", "wchar:")
    }

    /// Memory of its own, MiB: without the pages of files that it looks at, which the system takes back when it needs them.
    pub(crate) fn memory(&self) -> f64 {
        self.line("status", "RssAnon:") / 1_024.0
    }

    fn line(&self, file: &str, name: &str) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
    }

    /// One of its own metrics, all labels together.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = get(&format!("http://{}/metrics", self.address));
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a gateway is started.
#[derive(Debug, Default)]
pub(crate) struct How<'a> {
    /// Writes of one commit at most; 1: no group commit.
    pub(crate) batch: Option<usize>,
    /// HOST:PORT of the sandbox; `None`: the destination is suspended.
    pub(crate) crm: Option<&'a str>,
    /// Flushes of this process last longer, and are counted.
    pub(crate) slow: Option<&'a SlowDisk>,
}

fn configure(folder: &Path, store: &str, how: &How<'_>) -> PathBuf {
    let batch = how.batch.map(|batch| format!("batch = {batch}")).unwrap_or_default();
    let crm =
        how.crm.map_or("http://127.0.0.1:9/rest/1/none/".to_owned(), |crm| format!("http://{crm}/rest/1/sandbox/"));
    let config = CONFIG.replace("STORE", store).replace("BATCH", &batch).replace("CRM", &crm);
    let path = folder.join("leadonce.toml");
    std::fs::write(&path, config).expect("the configuration is written");
    path
}

/// Makes the schema.
pub(crate) fn migrate(folder: &Path, store: &str) {
    let config = configure(folder, store, &How::default());
    let done = Command::new(env!("CARGO_BIN_EXE_leadonce")).args(["migrate", "--config"]).arg(config).output();
    assert!(done.expect("the program runs").status.success(), "no schema could be made");
}

/// Stops delivery, so that a run measures intake alone; the operator's token that did it.
fn suspend(config: &Path, address: &str) -> String {
    let made = Command::new(env!("CARGO_BIN_EXE_leadonce"))
        .args(["token", "create", "--role", "operator", "--name"])
        .arg(format!("bench-{}", std::process::id()) + address)
        .args(["--json", "--config"])
        .arg(config)
        .output()
        .expect("the program runs");
    let made: Value = serde_json::from_slice(&made.stdout).expect("a token");
    let token = made["token"].as_str().expect("a token").to_owned();
    let url = format!("http://{address}/v1/admin/destinations/crm/suspend");
    let bearer = token.clone();
    let status = waited(async move {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        client.post(url).bearer_auth(bearer).json(&serde_json::json!({})).send().await.expect("an answer").status()
    });
    assert!(status.is_success(), "the destination was not suspended: {status}");
    token
}

/// The text at an address.
pub(crate) fn get(url: &str) -> String {
    let url = url.to_owned();
    waited(async move {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        client.get(url).send().await.expect("an answer").text().await.expect("a text")
    })
}

fn waited<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

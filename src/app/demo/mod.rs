//! The demo: a website's form, a gateway and the sandbox CRM on loopback, in a temporary folder.

use std::path::Path;

use actix_web::{App, HttpResponse, HttpServer, web};
use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::child::{Folder, Gateway};
use crate::clock::{Clock, SystemClock, SystemEntropy, uuid_v7};
use crate::sandbox::{Running, Sandbox};

/// A running demo: everything stops and vanishes when it is dropped.
#[derive(Debug)]
pub(super) struct Demo {
    /// The page with the form.
    pub(super) page: String,
    /// The gateway.
    pub(super) gateway: String,
    /// The sandbox CRM.
    pub(super) sandbox: String,
    /// An operator's token.
    pub(super) token: String,
    parts: (Gateway, Running, Folder),
}

#[derive(Debug, Clone)]
struct Shared {
    client: reqwest::Client,
    page: String,
    gateway: String,
    sandbox: String,
    token: String,
}

impl Demo {
    /// Starts sandbox, gateway and page on loopback; `listen` is the page's address.
    pub(super) async fn start(program: &Path, listen: &str) -> Result<Self> {
        let folder = Folder::new(uuid_v7(SystemClock::default().now(), &SystemEntropy))?;
        let sandbox = Sandbox::start("127.0.0.1:0").await.context("the sandbox CRM")?;
        let file = folder.file("demo.toml");
        // The page's own origin is not known before it is bound; bind it first.
        let listener = std::net::TcpListener::bind(listen).with_context(|| format!("the page at {listen}"))?;
        let page = format!("http://{}", listener.local_addr()?);
        std::fs::write(&file, configuration(&folder, &sandbox.bitrix_url(), &page))?;
        let gateway = Gateway::start(program, &file).await.context("the gateway")?;
        let token = token(program, &file).await?;
        let shared = Shared {
            client: reqwest::Client::builder().no_proxy().build()?,
            page: page.clone(),
            gateway: gateway.url.clone(),
            sandbox: sandbox.url(),
            token: token.clone(),
        };
        serve(listener, shared)?;
        Ok(Self {
            page,
            gateway: gateway.url.clone(),
            sandbox: sandbox.url(),
            token,
            parts: (gateway, sandbox, folder),
        })
    }

    /// Where the gateway's log lies.
    pub(super) fn log(&self) -> std::path::PathBuf {
        self.parts.2.file("demo.log")
    }
}

async fn token(program: &Path, file: &Path) -> Result<String> {
    let words = ["token", "create", "--role", "operator", "--name", "demo", "--json", "--config"];
    let output = tokio::process::Command::new(program).args(words).arg(file).output().await?;
    let made: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("token create: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(made.get("token").and_then(Value::as_str).context("a token")?.to_owned())
}

fn serve(listener: std::net::TcpListener, shared: Shared) -> Result<()> {
    let shared = web::Data::new(shared);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(shared.clone())
            .route("/", web::get().to(page))
            .route("/state", web::get().to(state))
            .route("/fault/{kind}", web::post().to(fault))
            .route("/again", web::post().to(again))
            .route("/resume", web::post().to(resume))
    })
    .workers(1)
    .disable_signals()
    .listen(listener)?;
    actix_web::rt::spawn(server.run());
    Ok(())
}

async fn page(shared: web::Data<Shared>) -> HttpResponse {
    let html = include_str!("page.html").replace("{gateway}", &shared.gateway).replace("{sandbox}", &shared.sandbox);
    HttpResponse::Ok().content_type("text/html; charset=utf-8").body(html)
}

async fn state(shared: web::Data<Shared>) -> HttpResponse {
    match shared.state().await {
        Ok(state) => HttpResponse::Ok().json(state),
        Err(error) => HttpResponse::BadGateway().body(error.to_string()),
    }
}

async fn fault(shared: web::Data<Shared>, kind: web::Path<String>) -> HttpResponse {
    let url = format!("{}/_sandbox/faults", shared.sandbox);
    let fault = json!([{"call": "create", "kind": kind.into_inner()}]);
    shared.back(shared.client.post(url).json(&fault).send().await)
}

/// Delivers the newest submission once more, as a sender does that did not hear the answer.
async fn again(shared: web::Data<Shared>) -> HttpResponse {
    match shared.redeliver().await {
        Ok(answer) => shared.back(Ok(answer)),
        Err(error) => HttpResponse::BadGateway().body(error.to_string()),
    }
}

async fn resume(shared: web::Data<Shared>) -> HttpResponse {
    let url = format!("{}/v1/admin/destinations/crm/resume", shared.gateway);
    shared.back(shared.client.post(url).bearer_auth(&shared.token).send().await)
}

impl Shared {
    async fn operations(&self) -> Result<Vec<Value>> {
        let url = format!("{}/v1/admin/operations?limit=20", self.gateway);
        let page: Value =
            self.client.get(url).bearer_auth(&self.token).send().await?.error_for_status()?.json().await?;
        Ok(page.get("items").and_then(Value::as_array).cloned().unwrap_or_default())
    }

    async fn state(&self) -> Result<Value> {
        let url = format!("{}/_sandbox/entities", self.sandbox);
        let listed: Value = self.client.get(url).send().await?.error_for_status()?.json().await?;
        let is_deal = |entity: &&Value| entity.get("type").and_then(Value::as_str) == Some("deal");
        let deals =
            listed.get("entities").and_then(Value::as_array).map_or(0, |all| all.iter().filter(is_deal).count());
        Ok(json!({"deals": deals, "operations": self.operations().await?}))
    }

    async fn redeliver(&self) -> Result<reqwest::Response> {
        let operations = self.operations().await?;
        let newest = operations.first().context("nothing was submitted yet")?;
        let id = newest.get("operation_id").and_then(Value::as_str).context("an operation_id")?;
        let url = format!("{}/v1/admin/operations/{id}", self.gateway);
        let story: Value =
            self.client.get(url).bearer_auth(&self.token).send().await?.error_for_status()?.json().await?;
        let delivery = story.pointer("/deliveries/0").context("a delivery")?;
        let body = delivery.get("body").and_then(Value::as_str).context("the raw body")?.to_owned();
        let is_type = |pair: &&Value| pair.get(0).and_then(Value::as_str) == Some("content-type");
        let headers = delivery.get("headers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let content_type = headers.iter().find(is_type).and_then(|pair| pair.get(1)).and_then(Value::as_str);
        let content_type = content_type.unwrap_or("application/x-www-form-urlencoded");
        let url = format!("{}/v1/intake/site", self.gateway);
        Ok(self.client.post(url).header("content-type", content_type).body(body).send().await?)
    }

    fn back(&self, sent: reqwest::Result<reqwest::Response>) -> HttpResponse {
        match sent.and_then(reqwest::Response::error_for_status) {
            Ok(_) => HttpResponse::SeeOther().insert_header(("location", self.page.as_str())).finish(),
            Err(error) => HttpResponse::BadGateway().body(error.without_url().to_string()),
        }
    }
}

fn configuration(folder: &Folder, sandbox: &str, page: &str) -> String {
    format!(
        r#"[server]
listen = "127.0.0.1:0"

[store]
url = "sqlite://{store}"

[[destination]]
name = "crm"
kind = "bitrix24"
webhook_url = "{sandbox}"
entity = "deal"
timeout = "2s"
lease = "10s"
rate = {{ per_second = 20, burst = 50 }}
[destination.lookup]
first_after = "1s"

[[source]]
name = "site"
kind = "form"
destination = "crm"
allow_origins = ["{page}"]
default_region = "RU"
honeypot = "website"
"#,
        store = folder.file("demo.db").display()
    )
}

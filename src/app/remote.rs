//! `leadonce operations …`: the admin API from the shell.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::cli::{Action, Exit, Gateway, ListOperations, OperationsCommand, Resolve};
use super::commands::{complain, say};
use super::parts;

/// Carries out a command; an answer of the gateway that is a problem is told and ends with 1.
pub(super) async fn run(command: OperationsCommand) -> Result<Exit> {
    match command {
        OperationsCommand::List(list) => listed(list).await,
        OperationsCommand::Show { gateway, id, json } => {
            let story = Api::of(&gateway)?.get(&format!("/v1/admin/operations/{id}"), &[]).await?;
            if json {
                say(&serde_json::to_string_pretty(&story)?)?
            } else {
                show(&story)?
            }
            Ok(Exit::Done)
        }
        OperationsCommand::Resolve(resolve) => resolved(resolve).await,
    }
}

async fn listed(list: ListOperations) -> Result<Exit> {
    let mut query = vec![("limit", list.limit.to_string())];
    let mut add = |name, value: Option<String>| query.extend(value.map(|value| (name, value)));
    add("status", list.status.map(|state| state.as_str().to_owned()));
    add("source", list.source);
    add("destination", list.destination);
    add("reason", list.reason);
    add("q", list.q);
    add("received_after", list.received_after.map(crate::clock::At::rfc3339));
    add("received_before", list.received_before.map(crate::clock::At::rfc3339));
    add("cursor", list.cursor);
    let page = Api::of(&list.gateway)?.get("/v1/admin/operations", &query).await?;
    if list.json {
        say(&serde_json::to_string_pretty(&page)?)?;
        return Ok(Exit::Done);
    }
    for item in page.get("items").and_then(Value::as_array).into_iter().flatten() {
        let field = |name: &str| item.get(name).map(plain).unwrap_or_default();
        say(&format!(
            "{}  {:<15} {:<20} {:<12} {}",
            field("operation_id"),
            field("status"),
            field("reason"),
            field("source"),
            field("crm_id")
        ))?;
    }
    if let Some(cursor) = page.get("next_cursor").and_then(Value::as_str) {
        complain(&format!("there is more: --cursor {cursor}"));
    }
    Ok(Exit::Done)
}

fn show(story: &Value) -> Result<()> {
    for name in [
        "operation_id",
        "status",
        "reason",
        "source",
        "source_key",
        "crm",
        "crm_key",
        "crm_id",
        "last_error",
        "version",
    ] {
        say(&format!("{name:<13} {}", story.get(name).map(plain).unwrap_or_default()))?;
    }
    for (list, columns) in [
        ("deliveries", ["received_at", "verdict", "note"]),
        ("attempt_log", ["started_at", "class", "decision"]),
        ("audit", ["at", "action", "note"]),
    ] {
        for item in story.get(list).and_then(Value::as_array).into_iter().flatten() {
            let cells = columns.map(|column| item.get(column).map(plain).unwrap_or_default());
            say(&format!("{list:<13} {}", cells.join("  ")))?;
        }
    }
    Ok(())
}

async fn resolved(resolve: Resolve) -> Result<Exit> {
    let api = Api::of(&resolve.gateway)?;
    let path = format!("/v1/admin/operations/{}", resolve.id);
    let version = match resolve.if_version {
        Some(version) => version,
        None => {
            api.get(&path, &[]).await?.get("version").and_then(Value::as_i64).context("the answer has no version")?
        }
    };
    let body = match resolve.action {
        Action::Complete { crm_id, note } => json!({"action": "complete", "crm_id": crm_id, "note": note}),
        Action::Retry { lead: None, note } => json!({"action": "retry", "note": note}),
        Action::Retry { lead: Some(file), note } => {
            let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
            let lead: Value = serde_json::from_str(&text).with_context(|| format!("{}: not JSON", file.display()))?;
            json!({"action": "retry", "lead": lead, "note": note})
        }
        Action::Reject { note } => json!({"action": "reject", "note": note}),
    };
    let request = api.client.post(format!("{}{path}/resolve", api.url)).header("if-match", format!("\"{version}\""));
    let operation = api.send(request.json(&body)).await?;
    if resolve.json {
        say(&serde_json::to_string_pretty(&operation)?)?;
    } else {
        say(&format!("{} is {}", resolve.id, operation.get("status").map(plain).unwrap_or_default()))?;
    }
    Ok(Exit::Done)
}

/// A wrong configuration or command line, which ends with 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Misconfigured(String);

struct Api {
    url: String,
    token: String,
    client: reqwest::Client,
}

impl Api {
    fn of(gateway: &Gateway) -> Result<Self> {
        let url = match &gateway.url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => {
                let file = &gateway.configured.config;
                let config =
                    parts::load(file).map_err(|faults| Misconfigured(format!("{}:\n{faults}", file.display())))?;
                let senders =
                    || config.server.public_url.clone().unwrap_or_else(|| format!("http://{}", config.server.listen));
                config.console_url().unwrap_or_else(senders).trim_end_matches('/').to_owned()
            }
        };
        let Some(token) = gateway.token.clone() else {
            bail!(Misconfigured(
                "an operator's token is needed: set LEADONCE_TOKEN (make one with `leadonce token create`)".into()
            ));
        };
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Self { url, token, client })
    }

    async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value> {
        let mut url = url::Url::parse(&format!("{}{path}", self.url)).context("the gateway's address")?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.send(self.client.get(url)).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Value> {
        let answer = request.bearer_auth(&self.token).send().await.map_err(reqwest::Error::without_url)?;
        let status = answer.status();
        let body: Value = answer.json().await.unwrap_or_default();
        if !status.is_success() {
            let title = body.get("title").map(plain).unwrap_or_default();
            bail!("{status}: {title}: {}", body.get("detail").map(plain).unwrap_or_default());
        }
        Ok(body)
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

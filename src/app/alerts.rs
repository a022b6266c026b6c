//! Alerts: every incident is told once at its start and once at its end, to the log and to `[alerts] webhook_url`.
//!
//! A dead alert channel blocks nothing: what could not be told stays marked in the store and is tried again later.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::crm::{Call, Transport};
use crate::intake::sign_webhook;
use crate::store::{Incident, Store, StoreError};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Where alerts go besides the log.
#[derive(Clone)]
pub(super) struct Channel {
    /// Address of the receiver.
    pub(super) url: String,
    /// Secret of the signature (Standard Webhooks), if one is set.
    pub(super) secret: Option<String>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Channel(***)")
    }
}

/// Tells incidents.
#[derive(Debug, Clone)]
pub(super) struct Alerts {
    /// Where incidents lie.
    pub(super) store: Store,
    /// The way out.
    pub(super) transport: Arc<dyn Transport>,
    /// Time.
    pub(super) clock: Arc<dyn Clock>,
    /// Where to, besides the log.
    pub(super) channel: Option<Channel>,
}

impl Alerts {
    /// Tells what is not told yet. An error of the channel is logged and tried again at the next call.
    pub(super) async fn tell(&self) -> Result<(), StoreError> {
        for incident in self.store.incidents().await? {
            if !incident.told_start {
                tracing::error!(incident = incident.key, "incident: {}", incident.text);
                if !self.send(&incident, "start").await {
                    return Ok(());
                }
                self.store.told(incident.id, false).await?;
            }
            if incident.closed_at.is_some() && !incident.told_end {
                tracing::info!(incident = incident.key, "incident over: {}", incident.text);
                if !self.send(&incident, "end").await {
                    return Ok(());
                }
                self.store.told(incident.id, true).await?;
            }
        }
        Ok(())
    }

    /// Tells an incident that no store can keep: the store itself cannot be written.
    pub(super) async fn tell_unstored(&self, key: &str, text: &str, phase: &str) {
        tracing::error!(incident = key, phase, "incident: {text}");
        let now = self.clock.now();
        let incident = Incident {
            id: uuid::Uuid::new_v8(*b"store-unwritable"),
            key: key.to_owned(),
            text: text.to_owned(),
            opened_at: now,
            closed_at: None,
            told_start: false,
            told_end: false,
        };
        self.send(&incident, phase).await;
    }

    async fn send(&self, incident: &Incident, phase: &str) -> bool {
        let Some(channel) = &self.channel else { return true };
        let now = self.clock.now();
        let body = serde_json::json!({
            "type": format!("incident.{phase}"),
            "timestamp": now.rfc3339(),
            "data": {
                "incident": incident.key,
                "text": incident.text,
                "opened_at": incident.opened_at.rfc3339(),
                "closed_at": incident.closed_at.map(crate::clock::At::rfc3339),
            },
        });
        let body = body.to_string().into_bytes();
        let id = format!("{}-{phase}", incident.id);
        let seconds = now.micros() / 1_000_000;
        let mut headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("webhook-id".to_owned(), id.clone()),
            ("webhook-timestamp".to_owned(), seconds.to_string()),
        ];
        if let Some(signature) = channel.secret.as_deref().and_then(|secret| sign_webhook(secret, &id, seconds, &body))
        {
            headers.push(("webhook-signature".to_owned(), signature));
        }
        let call =
            Call { method: "POST", url: channel.url.clone(), masked_url: "the alert webhook".into(), headers, body };
        match self.transport.send(&call, TIMEOUT).await {
            Ok(answer) if (200..300).contains(&answer.status) => true,
            Ok(answer) => {
                tracing::warn!(status = answer.status, "the alert webhook did not take an alert; it is tried again");
                false
            }
            Err(error) => {
                tracing::warn!(%error, "the alert webhook cannot be reached; it is tried again");
                false
            }
        }
    }
}

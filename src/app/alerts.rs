//! Alerts: every incident is told once at its start and once at its end to `[alerts] webhook_url` (whoever opens or closes it
//! logs it).
//!
//! A dead alert channel blocks nothing: what could not be told stays marked in the store and is tried again later.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{At, Clock};
use crate::crm::{Call, Transport};
use crate::intake::sign_webhook;
use crate::store::{Incident, Store, StoreError};

const TIMEOUT: Duration = Duration::from_secs(10);

/// The lock of the one node that tells: each alert is sent once, however many nodes see its incident.
const LOCK: &str = "alerts";
/// A node that dies while it tells holds the others up for so long. It is taken anew for each alert.
const HELD: Duration = Duration::from_secs(30);

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
    /// Who holds the lock while it tells.
    pub(super) node: String,
}

/// Whether the store can be written: the one incident that the store itself cannot keep.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Option<Incident>>);

impl Outage {
    /// What the last try to write came to. A start and an end are logged once each.
    pub(super) fn see(&self, fault: Option<String>, now: At) {
        let mut incident = self.lock();
        match (incident.as_mut(), fault) {
            (None, Some(fault)) => {
                tracing::error!(incident = KEY, "incident: the store cannot be written: {fault}");
                let mut id = [0; 16];
                for (to, from) in id.iter_mut().zip(now.micros().to_be_bytes()) {
                    *to = from;
                }
                *incident = Some(Incident {
                    id: uuid::Uuid::new_v8(id),
                    key: KEY.into(),
                    text: format!("the store cannot be written: {fault}"),
                    opened_at: now,
                    closed_at: None,
                    told_start: false,
                    told_end: false,
                });
            }
            (Some(open), None) if open.closed_at.is_none() => {
                tracing::info!(incident = KEY, "incident over: the store can be written again");
                open.closed_at = Some(now);
            }
            // Away again before the end was told: one incident, not two.
            (Some(open), Some(_)) => open.closed_at = None,
            (Some(_) | None, None) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Incident>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self, end: bool) {
        let mut incident = self.lock();
        if end {
            *incident = None;
        } else if let Some(open) = incident.as_mut() {
            open.told_start = true;
        }
    }
}

const KEY: &str = "store_not_writable";

impl Alerts {
    /// Tells what is not told yet, oldest first. `false` where the channel or the store did not take it; what is left is told
    /// at a later call.
    pub(super) async fn tell(&self, outage: &Outage) -> bool {
        let unstored = outage.lock().clone();
        if let Some(incident) = unstored {
            for end in self.untold(&incident) {
                if !self.send(&incident, end).await {
                    return false;
                }
                outage.told(end);
            }
        }
        let Ok(incidents) = self.store.incidents().await else { return false };
        if incidents.iter().all(|incident| self.untold(incident).next().is_none()) {
            return true;
        }
        match self.hold().await {
            Ok(true) => {}
            // Another node tells them.
            Ok(false) => return true,
            Err(_) => return false,
        }
        let told = self.tell_stored().await;
        // Where this fails the lock ends by itself.
        let _ = self.store.release_lock(LOCK.into(), self.node.clone()).await;
        told
    }

    /// Takes the lock, or keeps it; whether this node may tell.
    async fn hold(&self) -> Result<bool, StoreError> {
        let now = self.clock.now();
        self.store.take_lock(LOCK.into(), self.node.clone(), now, now.plus(HELD)).await
    }

    /// Tells the incidents of the store, under the lock: they are read anew, for the holder before may have told them.
    async fn tell_stored(&self) -> bool {
        let Ok(incidents) = self.store.incidents().await else { return false };
        let mut all = true;
        for incident in incidents {
            for end in self.untold(&incident) {
                if !self.hold().await.unwrap_or(false) {
                    return false;
                }
                // An alert that the receiver refuses holds up none behind it; a start always goes before its end.
                if !self.send(&incident, end).await || self.store.told(incident.id, end).await.is_err() {
                    all = false;
                    break;
                }
            }
        }
        all
    }

    /// Which ends of an incident are still to be told: the start (`false`), the end (`true`).
    fn untold(&self, incident: &Incident) -> impl Iterator<Item = bool> + use<> {
        let start = (!incident.told_start).then_some(false);
        let end = (incident.closed_at.is_some() && !incident.told_end).then_some(true);
        start.into_iter().chain(end)
    }

    async fn send(&self, incident: &Incident, end: bool) -> bool {
        let phase = if end { "end" } else { "start" };
        let Some(channel) = &self.channel else { return true };
        let now = self.clock.now();
        let body = serde_json::json!({
            "type": format!("incident.{phase}"),
            "timestamp": now.rfc3339(),
            "data": {
                "incident": incident.key,
                "text": incident.text,
                "opened_at": incident.opened_at.rfc3339(),
                "closed_at": incident.closed_at.map(At::rfc3339),
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

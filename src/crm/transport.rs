//! The one place that touches the network: one HTTP request per call, once (G6).
//!
//! HTTP/1.1 only: over HTTP/2 the client library may send a request again by itself when a stream is refused. Redirects,
//! retries, proxies from the environment, cookies and decompression are off. What a broken call proves is decided here and
//! nowhere else: only a failure before the connection stood is `NotSent`, all else is `Uncertain`.

use std::error::Error as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::failure::message_of;
use super::{Answer, Call, Exchange, Transport, TransportError};
use crate::operation::FailureClass;

/// The largest body that is read, in bytes. Nothing that a create or a look-up answers comes near it.
pub const MAX_ANSWER: usize = 1024 * 1024;
/// The longest time for name resolution, connection and TLS handshake together.
const CONNECT: Duration = Duration::from_secs(5);
/// Connect time-outs differ by at least so much.
const STEP: Duration = Duration::from_millis(100);
/// How long an unused connection is kept: shorter than web servers keep theirs, so that we rarely meet one that they are
/// closing.
const IDLE: Duration = Duration::from_secs(15);
/// The shortest text that is searched for in messages as a possible secret; shorter ones are part of ordinary words.
const SHORTEST_SECRET: usize = 4;

/// Real HTTP. All calls must come from one tokio runtime: kept connections live on the runtime that opened them.
#[derive(Debug)]
pub struct HttpTransport {
    // One client per connect time-out; there are as many as there are different time-outs in the configuration.
    clients: Mutex<Vec<(Duration, reqwest::Client)>>,
}

impl HttpTransport {
    /// A transport; fails where TLS cannot be set up (no root certificates).
    pub fn new() -> Result<Self, String> {
        let client = client(CONNECT).map_err(|error| format!("HTTPS cannot be set up: {}", chain(error)))?;
        Ok(Self { clients: Mutex::new(vec![(CONNECT, client)]) })
    }

    /// The client whose connect time-out ends well before the call's own: so that a CRM that does not take the connection
    /// is known to have seen nothing, and not just "timed out".
    fn client_for(&self, timeout: Duration) -> reqwest::Result<reqwest::Client> {
        let connect = CONNECT.min(timeout / 2);
        // In steps, so that a caller with many different time-outs does not make as many clients.
        let steps = connect.as_millis() / STEP.as_millis();
        let connect = STEP.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX)).max(STEP.min(connect));
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = clients.iter().find(|(known, _)| *known == connect) {
            return Ok(client.clone());
        }
        let client = client(connect)?;
        clients.push((connect, client.clone()));
        Ok(client)
    }

    async fn exchange(&self, call: &Call, timeout: Duration) -> Exchange {
        let not_sent = |error: reqwest::Error| broken(call, FailureClass::NotSent, &chain(error), None);
        let method = reqwest::Method::from_bytes(call.method.as_bytes())
            .map_err(|_| broken(call, FailureClass::NotSent, "no such HTTP method", None))?;
        let headers = headers(call)?;
        let request = self
            .client_for(timeout)
            .map_err(not_sent)?
            .request(method, call.url.as_str())
            .headers(headers)
            .timeout(timeout)
            .body(call.body.clone())
            .build_split();
        let (client, request) = request;
        let request = request.map_err(not_sent)?;
        let mut response = client.execute(request).await.map_err(|error| {
            let class =
                if error.is_connect() || error.is_builder() { FailureClass::NotSent } else { FailureClass::Uncertain };
            broken(call, class, &chain(error), None)
        })?;
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(None) => return Ok(Answer { status, headers, body }),
                Ok(Some(chunk)) if body.len() + chunk.len() > MAX_ANSWER => {
                    let message = format!("the answer is larger than {MAX_ANSWER} bytes");
                    return Err(broken(call, FailureClass::Uncertain, &message, Some(status)));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                // A cut or late body: nothing in the part that came is believed, least of all an id.
                Err(error) => return Err(broken(call, FailureClass::Uncertain, &chain(error), Some(status))),
            }
        }
    }
}

impl Transport for HttpTransport {
    fn send<'a>(&'a self, call: &'a Call, timeout: Duration) -> Pin<Box<dyn Future<Output = Exchange> + Send + 'a>> {
        Box::pin(self.exchange(call, timeout))
    }
}

fn client(connect: Duration) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .user_agent(concat!("leadonce/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .http1_only()
        .no_proxy()
        .connect_timeout(connect)
        .pool_idle_timeout(IDLE)
        .tcp_nodelay(true)
        .build()
}

fn headers(call: &Call) -> Result<HeaderMap, TransportError> {
    let unfit = |name: &str| {
        broken(call, FailureClass::NotSent, &format!("the header {name} cannot be sent as configured"), None)
    };
    let mut headers = HeaderMap::with_capacity(call.headers.len());
    for (name, value) in &call.headers {
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unfit(name))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| unfit(name))?;
        value.set_sensitive(true);
        headers.append(header, value);
    }
    Ok(headers)
}

/// The messages of an error and its causes, without the address.
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let timed_out = error.is_timeout();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    if timed_out { format!("timed out: {text}") } else { text }
}

fn broken(call: &Call, class: FailureClass, message: &str, status: Option<u16>) -> TransportError {
    TransportError { class, message: message_of(&scrubbed(call, message)), status }
}

/// Takes out what could be a secret of this call, should a library have put it into its message: parts of the address
/// other than the host, and header values.
fn scrubbed(call: &Call, message: &str) -> String {
    let mut text = message.replace(&call.url, &call.masked_url);
    let address = call.url.split_once("://").map_or(call.url.as_str(), |(_, rest)| rest);
    let (authority, path) = address.split_once('/').unwrap_or((address, ""));
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let in_address = path.split(['/', '?', '&', '=', '#']).chain(user.split(':'));
    let in_headers = call.headers.iter().flat_map(|(_, value)| value.split_whitespace());
    for secret in in_address.chain(in_headers) {
        if secret.len() >= SHORTEST_SECRET && !call.masked_url.contains(secret) && text.contains(secret) {
            text = text.replace(secret, "***");
        }
    }
    text
}

#[cfg(test)]
mod tests;

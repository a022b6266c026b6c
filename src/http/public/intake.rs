//! `POST /v1/intake/{source}`: a delivery is read, logged with its events in one commit, and only then answered (G1).

use std::future::Future;
use std::sync::Arc;

use actix_web::http::{Method, header};
use actix_web::{HttpRequest, HttpResponse, web};

use super::super::body::{self, Broken};
use super::super::problem::{Kind, Problem};
use super::super::state::{Inbound, Shared};
use super::super::{request_id, wait};
use super::cors;
use super::delivery::{self, Reception};
use super::reply::{self, Outcome, Reply};
use crate::intake::{self, Answer, Event, Key, Received, Refused};
use crate::operation::{Operation, OperationId, SourceName};
use crate::store::{Admission, Admit, NewEvent, StoreError, Verdict};

/// What a delivery came to, for the answer and the log line.
struct Told {
    response: HttpResponse,
    verdict: &'static str,
    operation: Option<OperationId>,
}

/// A delivery that was not taken.
struct Turned {
    problem: Problem,
    /// A short stable word for metrics and the log line.
    cause: &'static str,
}

fn turned(cause: &'static str, problem: Problem) -> Turned {
    Turned { problem, cause }
}

/// The handler.
pub(crate) async fn handle(request: HttpRequest, mut payload: web::Payload, shared: web::Data<Shared>) -> HttpResponse {
    let begun = shared.clock.monotonic();
    let name = request.match_info().get("source").and_then(|name| name.parse::<SourceName>().ok());
    let Some(inbound) = name.and_then(|name| shared.sources.get(&name)).map(Arc::clone) else {
        // The name is not a label: whoever scans for addresses would fill the metrics.
        shared.metrics.refused("unknown", "unknown_source");
        return Problem::new(Kind::UnknownSource, "no source of this name is configured here").response();
    };
    let source = inbound.settings.name.as_str();
    let told = match take(&request, &mut payload, &shared, &inbound).await {
        Ok(told) => told,
        Err(Turned { problem, cause }) => {
            shared.metrics.refused(source, cause);
            Told { response: problem.response(), verdict: cause, operation: None }
        }
    };
    let Told { mut response, verdict, operation } = told;
    if is_page(&inbound) {
        cors::open(response.headers_mut(), &inbound.settings.allow_origins, &request);
    }
    tracing::info!(
        operation_id = operation.map(tracing::field::display),
        source,
        verdict,
        status = response.status().as_u16(),
        duration_ms = shared.clock.monotonic().saturating_sub(begun).as_secs_f64() * 1_000.0,
        "delivery"
    );
    response
}

/// Whether the sender is a page in a browser.
fn is_page(inbound: &Inbound) -> bool {
    matches!(inbound.source.answer(), Answer::Form { .. })
}

async fn take(
    http: &HttpRequest,
    payload: &mut web::Payload,
    shared: &Shared,
    inbound: &Inbound,
) -> Result<Told, Turned> {
    match *http.method() {
        Method::POST => {}
        Method::OPTIONS if is_page(inbound) => {
            let response = cors::preflight(&inbound.settings.allow_origins, http);
            let response = response.map_err(|problem| turned("origin", problem))?;
            return Ok(Told { response, verdict: "preflight", operation: None });
        }
        // A GET here is mostly a POST that some redirect on the way has turned: worth a counter of its own.
        Method::GET | Method::HEAD => return Err(turned("method_get", Problem::method_not_allowed("POST"))),
        _ => return Err(turned("method", Problem::method_not_allowed("POST"))),
    }
    // A page holds no secret: its limit stands before any work. Whoever proves who he is has a budget that strangers cannot use up.
    if is_page(inbound) {
        within_limit(inbound, shared)?;
    }
    let reception = Reception {
        inbound,
        settings: &shared.settings,
        entropy: shared.entropy.as_ref(),
        delivery_id: request_id(http),
        now: shared.clock.now(),
    };
    let request = read(http, payload, shared, &reception).await?;
    match inbound.source.receive(&request, shared.clock.civil()) {
        Ok(received) => {
            if !is_page(inbound) {
                within_limit(inbound, shared)?;
            }
            accept(http, request, received, shared, &reception).await
        }
        Err(refused) => {
            let stranger = matches!(refused, Refused::Unauthorized { .. });
            if !is_page(inbound) && !stranger {
                within_limit(inbound, shared)?;
            }
            Err(refuse(request, refused, shared, &reception).await)
        }
    }
}

/// The source's own limit (429).
fn within_limit(inbound: &Inbound, shared: &Shared) -> Result<(), Turned> {
    match inbound.limiter.as_ref().and_then(|limiter| limiter.take(shared.clock.monotonic()).err()) {
        Some(wait) => {
            let detail = "this source sends more than its limit allows; send the same again later";
            Err(turned("throttled", Problem::new(Kind::TooManyDeliveries, detail).retry_after(wait)))
        }
        None => Ok(()),
    }
}

/// The request with its whole body.
async fn read(
    http: &HttpRequest,
    payload: &mut web::Payload,
    shared: &Shared,
    reception: &Reception<'_>,
) -> Result<intake::Request, Turned> {
    let limit = reception.inbound.settings.max_body;
    let declared = http.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    match body::read(payload, declared, limit, shared.settings.body_deadline).await {
        Ok(body) => Ok(delivery::request_of(http, body)),
        Err(Broken::TooLarge(prefix)) => {
            let request = delivery::request_of(http, prefix);
            let refused =
                Refused::TooLarge(format!("the body is larger than the {limit} bytes that this source takes"));
            // Whose it is can be told only where the credentials are not in the body: a signature over a body that nobody read
            // whole proves nothing, and strangers shall not fill the log.
            let stranger =
                matches!(reception.inbound.source.receive(&request, reception.now), Err(Refused::Unauthorized { .. }));
            if stranger {
                return Err(turned("too_large", refused.into()));
            }
            Err(refuse(request, refused, shared, reception).await)
        }
        Err(Broken::NoRoom) => Err(turned("busy", Problem::not_stored().closing())),
        Err(Broken::TooSlow) => {
            let detail = "the body did not arrive in time; nothing was stored, send the same again";
            Err(turned("slow_body", Problem::new(Kind::SlowBody, detail).closing()))
        }
        Err(Broken::Incomplete) => {
            let detail = "the body ended early; nothing was stored, send the same again";
            Err(turned("incomplete", Problem::new(Kind::IncompleteBody, detail).closing()))
        }
    }
}

/// Refuses at the door. What an authenticated sender sent is kept in the log (G3); a stranger is only counted.
async fn refuse(request: intake::Request, refused: Refused, shared: &Shared, reception: &Reception<'_>) -> Turned {
    let cause = match &refused {
        Refused::Unauthorized { kind, .. } => return turned(kind, refused.into()),
        Refused::BadRequest(_) => "bad_request",
        Refused::TooLarge(_) => "too_large",
        Refused::UnsupportedMedia(_) => "unsupported_media",
    };
    // Sources check the sender before they read: whoever is refused for the content is authenticated (or a form).
    let mut logged = reception.delivery(request, Some(refused.to_string()));
    if cause == "too_large" {
        logged.body.truncate(body::PREFIX);
    }
    if let Err(turned) = commit(shared, shared.store.log(logged, Verdict::Rejected)).await {
        return turned;
    }
    shared.metrics.delivery(reception.inbound.settings.name.as_str(), Verdict::Rejected.as_str());
    turned(cause, refused.into())
}

async fn accept(
    http: &HttpRequest,
    request: intake::Request,
    received: Received,
    shared: &Shared,
    reception: &Reception<'_>,
) -> Result<Told, Turned> {
    match received {
        Received::Events(events) => admit_events(http, request, &events, shared, reception).await,
        Received::Unreadable(why) => {
            let events = vec![reception.unreadable(&request.body)];
            let admissions = admit(request, Some(why), events, shared, reception).await?;
            Ok(admitted(http, &admissions, shared, reception))
        }
        Received::Test => note(http, request, None, Verdict::Test, shared, reception).await,
        Received::Ignored(why) => note(http, request, Some(why), Verdict::Ignored, shared, reception).await,
        Received::Spam => note(http, request, None, Verdict::Spam, shared, reception).await,
    }
}

/// Logs what makes no lead, and answers as usual.
async fn note(
    http: &HttpRequest,
    request: intake::Request,
    why: Option<String>,
    verdict: Verdict,
    shared: &Shared,
    reception: &Reception<'_>,
) -> Result<Told, Turned> {
    // A robot must not see that it was caught.
    let decoy =
        (verdict == Verdict::Spam).then(|| [Admission { verdict: Verdict::New, operation: reception.decoy(&request) }]);
    commit(shared, shared.store.log(reception.delivery(request, why), verdict)).await?;
    shared.metrics.delivery(reception.inbound.settings.name.as_str(), verdict.as_str());
    let outcome = decoy.as_ref().map_or(Outcome::Noted(verdict.as_str()), |decoy| Outcome::Admitted(decoy));
    let response = answer(http, &outcome, shared, reception).response();
    Ok(Told { response, verdict: verdict.as_str(), operation: None })
}

async fn admit_events(
    http: &HttpRequest,
    request: intake::Request,
    events: &[Event],
    shared: &Shared,
    reception: &Reception<'_>,
) -> Result<Told, Turned> {
    let patience = wait::preferred(http.headers()).map(|wanted| wanted.min(reception.inbound.settings.max_wait));
    // Before the events are admitted, so that none can be finished unheard.
    let finished = patience.filter(|patience| !patience.is_zero()).map(|patience| (patience, shared.store.finished()));
    let mut admissions = match known(events, shared, reception) {
        Some(operation) => {
            let logged = reception.delivery(request, delivery::notes(events));
            commit(shared, shared.store.log_replay(logged, 0, operation.id)).await?;
            vec![Admission { verdict: Verdict::Replay, operation }]
        }
        None => {
            let new = events.iter().enumerate().map(|(index, event)| reception.event(index, event)).collect();
            admit(request, delivery::notes(events), new, shared, reception).await?
        }
    };
    let source = reception.inbound.settings.name.as_str();
    for (event, admission) in events.iter().zip(&admissions) {
        shared.metrics.delivery(source, admission.verdict.as_str());
        if !matches!(event.key, Key::Given(..)) {
            shared.metrics.key_missing(source);
        }
    }
    if let Some((patience, finished)) = finished {
        let read = async |id| shared.store.operation(id).await.ok().flatten();
        wait::until_finished(&mut admissions, finished, patience, read).await;
    }
    Ok(admitted(http, &admissions, shared, reception))
}

/// The operation that owns the one event's key, where its content is the same for certain: the answer is ready. Everything
/// else is the store's to decide, in its transaction.
fn known(events: &[Event], shared: &Shared, reception: &Reception<'_>) -> Option<Operation> {
    let [Event { key: Key::Given(key, _), payload_hash, .. }] = events else { return None };
    let inbound = reception.inbound;
    // Where the look fails, the transaction says so, or finds it.
    let operation = shared.store.glance(&inbound.settings.name, key).ok()??;
    let same = operation.payload_hash == *payload_hash && operation.hash_rule == inbound.source.hash_rule();
    same.then_some(operation)
}

async fn admit(
    request: intake::Request,
    note: Option<String>,
    events: Vec<NewEvent>,
    shared: &Shared,
    reception: &Reception<'_>,
) -> Result<Vec<Admission>, Turned> {
    let delivery = reception.delivery(request, note);
    let admit = Admit { delivery, events, rehash: Arc::clone(&reception.inbound.rehash) };
    let admissions = commit(shared, shared.store.admit(admit)).await?;
    if admissions.is_empty() {
        return Err(turned("busy", Problem::not_stored()));
    }
    Ok(admissions)
}

/// Waits for a commit, but not for longer than a sender waits for us. A commit that comes after all is met as a replay.
async fn commit<T>(shared: &Shared, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, Turned> {
    match tokio::time::timeout(shared.settings.commit_deadline, work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(StoreError::Busy)) => Err(turned("busy", StoreError::Busy.into())),
        Ok(Err(error)) => Err(turned("store", error.into())),
        Err(_) => Err(turned("slow_commit", Problem::not_stored())),
    }
}

fn admitted(http: &HttpRequest, admissions: &[Admission], shared: &Shared, reception: &Reception<'_>) -> Told {
    let response = answer(http, &Outcome::Admitted(admissions), shared, reception).response();
    let first = admissions.first();
    Told {
        response,
        verdict: first.map_or("new", |admission| admission.verdict.as_str()),
        operation: first.map(|admission| admission.operation.id),
    }
}

fn answer(http: &HttpRequest, outcome: &Outcome<'_>, shared: &Shared, reception: &Reception<'_>) -> Reply {
    let accept = http.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let html = reply::wants_html(accept);
    reply::reply(&reception.inbound.source.answer(), outcome, html, &shared.settings)
}

//! Takes connections, finds out what a call is, lets it happen or go wrong, and answers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::fault::{Cut, Fault, Kind, Part};
use super::wire::{Connection, Manner, Reply, Request};
use super::world::{CallKind, World};
use super::{bitrix, control, plain};
use crate::clock::{At, Clock};

/// What every connection needs.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) world: World,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) secret: String,
}

/// Serves until told to stop; every connection ends with it.
pub(super) async fn accept(listener: TcpListener, site: Arc<Site>, mut stopped: watch::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&site)));
                }
                // Out of file descriptors, or a client that was gone at once: the next one may succeed.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
            _ = stopped.changed() => break,
        }
    }
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, site: Arc<Site>) {
    let mut connection = Connection::new(stream);
    loop {
        let served = match connection.request().await {
            Ok(Some(request)) => serve(&mut connection, &request, &site).await,
            Ok(None) => break,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let reply = Reply::new(400, "text/plain; charset=utf-8", error.to_string());
                connection.answer(&reply, Manner::WholeThenClose).await.map(|_| After::Close { reset: false })
            }
            Err(error) => Err(error),
        };
        match served {
            Ok(After::GoOn) => {}
            Ok(After::Close { reset }) => return connection.close(reset).await,
            // The client is gone; what was carried out stays so.
            Err(_) => return,
        }
    }
    connection.close(false).await;
}

enum After {
    GoOn,
    Close { reset: bool },
}

/// A call to one of the two APIs.
enum Errand {
    Bitrix(bitrix::Errand),
    Plain(plain::Errand),
}

impl Errand {
    fn read(request: &Request, secret: &str) -> Option<Self> {
        bitrix::Errand::read(request, secret)
            .map(Self::Bitrix)
            .or_else(|| plain::Errand::read(request, secret).map(Self::Plain))
    }

    fn method(&self) -> &str {
        match self {
            Self::Bitrix(errand) => &errand.method,
            Self::Plain(errand) => errand.method(),
        }
    }

    fn call(&self) -> CallKind {
        match self {
            Self::Bitrix(errand) => errand.call(),
            Self::Plain(errand) => errand.call(),
        }
    }

    fn key(&self) -> Option<String> {
        match self {
            Self::Bitrix(errand) => errand.key(),
            Self::Plain(errand) => errand.key(),
        }
    }

    fn carry_out(&self, world: &World, now: At) -> (Reply, Option<u64>) {
        match self {
            Self::Bitrix(errand) => errand.carry_out(world, now),
            Self::Plain(errand) => errand.carry_out(world, now),
        }
    }

    /// An error in the words of this API: `bitrix` is the vendor's code.
    fn refusal(&self, status: u16, bitrix: &str, text: &str) -> Reply {
        match self {
            Self::Bitrix(_) => bitrix::error(status, bitrix, text),
            Self::Plain(_) => plain::error(status, &bitrix.to_ascii_lowercase(), text),
        }
    }
}

async fn serve(connection: &mut Connection, request: &Request, site: &Site) -> io::Result<After> {
    let date = http_date(site.clock.now());
    let Some(errand) = Errand::read(request, &site.secret) else {
        let reply = control::answer(request, &site.world).with("Date", date);
        let closes = request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        connection.answer(&reply, Manner::Whole).await?;
        return Ok(if closes { After::Close { reset: false } } else { After::GoOn });
    };
    let (number, fault) = site.world.begin(errand.method(), errand.call(), errand.key(), site.clock.now());
    if let Some(Fault { kind: Kind::Delay { ms }, .. }) = &fault {
        tokio::time::sleep(Duration::from_millis(*ms)).await;
    }
    let carried_out = fault.as_ref().is_none_or(|fault| fault.commit).then(|| {
        let (reply, created) = errand.carry_out(&site.world, site.clock.now());
        site.world.note(number, |call| call.created = created);
        reply
    });
    let (reply, manner, reset) = match &fault {
        Some(fault) => spoilt(&errand, &fault.kind, carried_out),
        None => (carried_out.unwrap_or_else(|| nothing_done(&errand)), Manner::Whole, false),
    };
    let reply = if reply.headers.iter().any(|(name, _)| *name == "Date") { reply } else { reply.with("Date", date) };
    // Written down before it leaves: whoever has the answer finds the call complete.
    let status = match manner {
        Manner::Nothing | Manner::PartOfStatus | Manner::Silence => None,
        Manner::Whole
        | Manner::WholeThenClose
        | Manner::HeadersOnly
        | Manner::HalfBody
        | Manner::DripBody(_)
        | Manner::DripAll(_)
        | Manner::Huge(_) => Some(reply.status),
    };
    site.world.note(number, |call| call.status = status);
    let closes = request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok(if connection.answer(&reply, manner).await? && !closes { After::GoOn } else { After::Close { reset } })
}

/// The answer of a fault, how it leaves, and whether the connection is reset.
fn spoilt(errand: &Errand, kind: &Kind, carried_out: Option<Reply>) -> (Reply, Manner, bool) {
    let good = || carried_out.clone().unwrap_or_else(|| nothing_done(errand));
    let whole = |reply| (reply, Manner::Whole, false);
    match kind {
        Kind::CommitThenHang {} => (good(), Manner::Silence, false),
        Kind::CommitThenStatus { status } | Kind::StatusWithoutCommit { status } => {
            whole(Reply::html(*status, format!("<html><head><title>{status}</title></head><body>proxy</body></html>")))
        }
        Kind::CommitThenCut { at, reset } => {
            let manner = match at {
                Cut::BeforeStatus => Manner::Nothing,
                Cut::MidStatus => Manner::PartOfStatus,
                Cut::AfterHeaders => Manner::HeadersOnly,
                Cut::MidBody => Manner::HalfBody,
            };
            (good(), manner, *reset)
        }
        Kind::CommitThenClose {} => (good(), Manner::WholeThenClose, false),
        Kind::Drip { every_ms, part } => {
            let every = Duration::from_millis(*every_ms);
            let mut reply = good();
            // Blanks after the JSON keep it dripping for longer than any time-out, without changing what it says.
            reply.body.resize(reply.body.len().max(4_096), b' ');
            (reply, if *part == Part::Body { Manner::DripBody(every) } else { Manner::DripAll(every) }, false)
        }
        Kind::Throttled { retry_after, date } => {
            let mut reply =
                errand.refusal(429, "OPERATION_TIME_LIMIT", "Method is blocked due to operation time limit.");
            for (name, value) in [("Retry-After", retry_after), ("Date", date)] {
                if let Some(value) = value {
                    reply = reply.with(name, value.clone());
                }
            }
            whole(reply)
        }
        Kind::Limit503 {} => whole(errand.refusal(503, "QUERY_LIMIT_EXCEEDED", "Too many requests")),
        Kind::ValidationError {} => whole(match errand {
            Errand::Bitrix(_) => bitrix::error(400, "CRM_FIELD_ERROR_REQUIRED", "Field \"Name\" is required"),
            Errand::Plain(_) => plain::error(422, "validation", "name: is required"),
        }),
        Kind::Unauthorized {} => whole(match errand {
            Errand::Bitrix(_) => bitrix::unauthorized(),
            Errand::Plain(_) => plain::error(401, "unauthorized", "the token is not valid"),
        }),
        Kind::AccessDenied {} => whole(errand.refusal(403, "ACCESS_DENIED", "Access denied.")),
        Kind::Redirect { to, code } => {
            whole(Reply::html(*code, "<html><body>moved</body></html>").with("Location", to))
        }
        Kind::LookupBlind { .. } => whole(good()),
        Kind::Html200 {} => whole(page_of_200_kb(200, "Please log in")),
        Kind::Html403 {} => whole(page_of_200_kb(403, "403 Forbidden")),
        Kind::Empty2xx { status } => whole(Reply { status: *status, headers: Vec::new(), body: Vec::new() }),
        Kind::HugeBody { bytes } => (Reply::json(200, &Value::Null), Manner::Huge(*bytes), false),
        Kind::Bom {} => {
            let mut reply = good();
            reply.body.splice(..0, "\u{feff}".bytes());
            whole(reply)
        }
        Kind::Delay { .. } => whole(good()),
        Kind::Body { status, body } => whole(Reply::new(*status, "application/json; charset=utf-8", body.clone())),
    }
}

/// What a fault without commit shows where it needs a good answer: one that names nothing.
fn nothing_done(errand: &Errand) -> Reply {
    match errand {
        Errand::Bitrix(_) => Reply::json(200, &json!({ "result": null })),
        Errand::Plain(_) => Reply::json(200, &json!({})),
    }
}

fn page_of_200_kb(status: u16, title: &str) -> Reply {
    let filling = "<p>.</p>".repeat(200 * 1024 / 8);
    Reply::html(
        status,
        format!("<!doctype html><html><head><title>{title}</title></head><body>{filling}</body></html>"),
    )
}

fn http_date(now: At) -> String {
    let seconds = u64::try_from(now.micros().div_euclid(1_000_000)).unwrap_or(0);
    // The crate's dates end with the year 9999 and it panics beyond.
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + Duration::from_secs(seconds.min(253_402_300_799)))
}

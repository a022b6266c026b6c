//! The HTTP room on a real port, over a real store on SQLite: only sources and the desk are plain stand-ins.

#![allow(dead_code, reason = "two test targets use different halves of it")]

mod client;
mod source;

use std::collections::HashMap;
use std::future::Future;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use leadonce::clock::{At, Clock, ManualClock, SystemEntropy, uuid_v7};
use leadonce::http::{
    Action, Candidate, Choice, Counts, Desk, Doors, Gate, Normalisers, Settings, Shared, Unresolved, server,
};
use leadonce::intake::Answer;
use leadonce::operation::transition::{Change, Decision, Event as Step, apply};
use leadonce::operation::{CreateOutcome, CrmId, DestinationName, Lead, Lease, Operation, OperationId, Status};
use leadonce::store::{
    self, AttemptEnd, AttemptWrite, Audit, CallKind, NewAttempt, Role, Store, StoredDelivery, Update, Updated, Use,
    Writer,
};
use leadonce::telemetry::Metrics;
use sha2::{Digest, Sha256};

pub(crate) use client::Got;
use source::inbound;

/// Where the manual clock starts: 2026-12-01T10:00:00Z.
pub(crate) const START: At = At::from_seconds(1_796_119_200);
pub(crate) const SHOP_TOKEN: &str = "shop-token";

/// Carries out decisions as the engine does, without asking any CRM.
struct PlainDesk {
    store: Store,
    clock: Arc<ManualClock>,
}

impl Desk for PlainDesk {
    fn resolve<'a>(
        &'a self,
        id: OperationId,
        version: i64,
        action: Action,
        actor: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Operation, Unresolved>> + Send + 'a>> {
        Box::pin(async move {
            let before = self.store.operation(id).await?.ok_or(Unresolved::NotFound)?;
            if before.version != version {
                return Err(Unresolved::VersionMoved { current: before.version, by: None });
            }
            let (event, name, note) = match action {
                Action::Complete { crm_id, note } => (Step::Complete { crm_id }, "complete", note),
                Action::Retry { lead: _, note } => (Step::Retry { settle: Duration::ZERO }, "retry", note),
                Action::Reject { note } => (Step::Reject, "reject", Some(note)),
            };
            let at = self.clock.now();
            let after = match apply(&before, &event, at) {
                Ok(Change::To(after)) => *after,
                Ok(Change::Evidence) => before.clone(),
                Err(refused) => return Err(Unresolved::Forbidden { detail: refused.to_string(), not_before: None }),
            };
            let audit = Audit {
                actor: actor.to_owned(),
                at,
                action: name.into(),
                operation_id: Some(id),
                subject: None,
                from: Some(before.state().as_str().into()),
                to: Some(after.state().as_str().into()),
                note,
            };
            let mut update = change(before, after.clone(), name);
            update.audit = Some(audit);
            match self.store.update(update).await? {
                Updated::Done => Ok(after),
                Updated::Moved(now) => Err(Unresolved::VersionMoved { current: now.version, by: None }),
            }
        })
    }

    fn look_up<'a>(
        &'a self,
        _: OperationId,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Candidate>, Unresolved>> + Send + 'a>> {
        Box::pin(async { Err(Unresolved::NoLookup) })
    }

    fn choices(&self, operation: &Operation) -> Vec<Choice> {
        let events = [(Step::Retry { settle: Duration::ZERO }, "retry"), (Step::Reject, "reject")];
        let choice = |(event, action)| {
            let refusal = apply(operation, &event, self.clock.now()).err().map(|refused| refused.to_string());
            Choice { action, refusal, not_before: None }
        };
        events.into_iter().map(choice).collect()
    }

    fn lead_of(&self, _: &Operation, delivery: Option<&StoredDelivery>, _: Option<&Lead>) -> Option<Lead> {
        let body = delivery?.body.clone()?;
        Some(source::lead(&String::from_utf8(body).ok()?))
    }

    fn link(&self, _: &DestinationName, crm_id: &CrmId) -> Option<String> {
        Some(format!("https://crm.example/{crm_id}"))
    }
}

fn change(before: Operation, after: Operation, event: &'static str) -> Update {
    Update { before, after, event, attempt: None, step_done: None, audit: None, lead: None, while_active: None }
}

/// Runs a future of the store to its end.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

/// Waits until the condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// The room, served.
pub(crate) struct Room {
    pub(crate) addr: SocketAddr,
    pub(crate) store: Store,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) metrics: Metrics,
    writer: std::sync::Mutex<Option<Writer>>,
    stop: Option<actix_web::dev::ServerHandle>,
    threads: Vec<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Room {
    /// With its writer at work.
    pub(crate) fn open() -> Self {
        let mut room = Self::with_writer_paused(Settings::default());
        room.write();
        room
    }

    /// Nobody can sign in yet; the first administrator is made with this secret.
    pub(crate) fn open_for_the_first(secret: &str) -> Self {
        let mut room = Self::made(Settings::default(), Gate::new(Some(secret)));
        room.write();
        room
    }

    /// Whether the writer has done all that was asked of it so far.
    pub(crate) fn store_is_idle(&self) -> bool {
        now(self.store.writable()).is_ok()
    }

    /// As a store that cannot commit looks from outside: nothing is written until [`Room::write`].
    pub(crate) fn with_writer_paused(settings: Settings) -> Self {
        Self::made(settings, Gate::new(None))
    }

    fn made(mut settings: Settings, gate: Gate) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("sqlite://{}", directory.path().join("leadonce.db").display());
        let settings_of_store = store::Settings { url, queue: 1_000, batch: 100, readers: 2 };
        let (store, writer) = Store::open(&settings_of_store, Use::Serve).expect("a store");
        let clock = Arc::new(ManualClock::at(START));
        let metrics = Metrics::new().expect("metrics");
        settings.public_url = "https://leads.example".into();
        let thanks = Answer::Form { thank_you_url: Some("https://example.com/thanks".into()) };
        let sources = [
            inbound("shop", Answer::Strict, Some(SHOP_TOKEN), None),
            inbound("hook", Answer::Json, None, None),
            inbound("site", thanks, None, None),
            inbound("plain-form", Answer::Form { thank_you_url: None }, None, None),
            inbound("tilda", Answer::Text("ok"), None, None),
            inbound("twins", Answer::Json, None, None),
            inbound("bot", Answer::Empty, None, None),
            inbound("slow", Answer::Json, None, Some(0.1)),
        ];
        let shared = Arc::new(Shared {
            store: store.clone(),
            sources: sources
                .into_iter()
                .map(|one| (one.settings.name.clone(), Arc::new(one)))
                .collect::<HashMap<_, _>>(),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            entropy: Arc::new(SystemEntropy),
            metrics: metrics.clone(),
            desk: Arc::new(PlainDesk { store: store.clone(), clock: Arc::clone(&clock) }),
            normalisers: Normalisers {
                phone: |phone, _| phone.starts_with('+').then(|| phone.replace([' ', '-'], "")),
                email: |email| email.contains('@').then(|| email.to_lowercase()),
            },
            counts: Counts::default(),
            gate,
            settings,
        });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let (tell, told) = mpsc::channel();
        let serve = move || {
            actix_web::rt::System::new().block_on(async move {
                let server = server(shared, listener, 2, Doors::All).expect("a server");
                tell.send(server.handle()).expect("the test waits");
                server.await.expect("it ran");
            });
        };
        let threads = vec![std::thread::spawn(serve)];
        let stop = Some(told.recv().expect("a handle"));
        Self {
            addr,
            store,
            clock,
            metrics,
            writer: std::sync::Mutex::new(Some(writer)),
            stop,
            threads,
            _directory: directory,
        }
    }

    /// Starts the writer.
    pub(crate) fn write(&mut self) {
        let mut writer = self.writer.lock().expect("the lock").take().expect("the writer was paused");
        self.threads.push(std::thread::spawn(move || while writer.run_one() {}));
        let destinations = vec![("bitrix".parse().expect("a name"), "bitrix24".to_owned())];
        now(self.store.ensure_destinations(destinations, self.clock.now())).expect("a destination");
    }

    /// Sends a delivery.
    pub(crate) fn post(&self, source: &str, body: &str) -> Got {
        self.post_with(source, body, &[])
    }

    /// Sends a delivery with headers.
    pub(crate) fn post_with(&self, source: &str, body: &str, headers: &[(&str, &str)]) -> Got {
        let bearer = format!("Bearer {SHOP_TOKEN}");
        let mut all = headers.to_vec();
        if source == "shop" && !headers.iter().any(|(name, _)| *name == "authorization") {
            all.push(("authorization", &bearer));
        }
        self.call("POST", &format!("/v1/intake/{source}"), &all, body)
    }

    /// Sends any request.
    pub(crate) fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Got {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() || method == "POST" {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        self.raw(format!("{head}\r\n{body}").as_bytes())
    }

    /// Sends bytes and reads until the server closes.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Got {
        let mut stream = self.connect();
        // The server may answer and close before it has read all.
        let _ = stream.write_all(bytes);
        Got::read(&mut stream)
    }

    /// A connection.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
        stream
    }

    /// Makes a token.
    pub(crate) fn token(&self, role: Role) -> String {
        let token = format!("token-of-{}", role.as_str());
        let audit = Audit {
            actor: "test".into(),
            at: self.clock.now(),
            action: "token_create".into(),
            operation_id: None,
            subject: None,
            from: None,
            to: None,
            note: None,
        };
        let sha256 = Sha256::digest(token.as_bytes()).to_vec();
        let made = now(self.store.create_token(role.as_str().to_owned(), role, sha256, audit));
        made.expect("the store answers");
        token
    }

    /// The operation, from the store.
    pub(crate) fn operation(&self, id: &str) -> Option<Operation> {
        now(self.store.operation(id.parse().expect("an id"))).expect("the store answers")
    }

    /// How many operations there are (up to a hundred).
    pub(crate) fn operations(&self) -> usize {
        now(self.store.list(store::Filter { limit: 100, ..store::Filter::default() })).expect("a list").len()
    }

    /// How many deliveries without an operation are in the log.
    pub(crate) fn logged_alone(&self) -> usize {
        let later = self.clock.now().plus(Duration::from_secs(86_400));
        now(self.store.purge(later, later, later, 1_000, true)).expect("a count").deliveries
    }

    /// The value of a metric, by its whole name with labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.metrics.render();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().expect("a figure"))
    }

    /// Carries an operation through a create to `completed`, as a worker does.
    pub(crate) fn complete(&self, id: &str, crm_id: &str) {
        let at = self.clock.now();
        let attempt = uuid_v7(at, &SystemEntropy);
        let lease = Lease { owner: "test".into(), until: at.plus(Duration::from_secs(60)) };
        let id_in_crm = CrmId::try_from(crm_id.to_owned()).expect("an id");
        let begun = |operation: &Operation| {
            AttemptWrite::Begin(NewAttempt {
                id: attempt,
                call: CallKind::Create,
                number: operation.attempts,
                step: 0,
                epoch: operation.epoch,
                licence: Some("first_send"),
                started_at: at,
                mapping_version: "1".into(),
                request: "POST /".into(),
            })
        };
        let ended = AttemptWrite::End(AttemptEnd {
            id: attempt,
            ended_at: at,
            class: "ok",
            status: Some(200),
            excerpt: String::new(),
            decision: "completed".into(),
        });
        self.step(id, "claimed", &Step::Claimed { lease, destination_epoch: 0 }, |_| None);
        self.step(id, "attempt_begun", &Step::AttemptBegun, |operation| Some(begun(operation)));
        let answered = Step::Answered {
            attempt: 1,
            step: 0,
            last_step: true,
            outcome: CreateOutcome::Created(id_in_crm),
            decision: Decision::Stop,
            ended_at: at,
        };
        self.step(id, "answered", &answered, |_| Some(ended.clone()));
        let operation = self.operation(id).expect("the operation");
        assert!(matches!(operation.status, Status::Completed { .. }), "{operation:?}");
    }

    fn step(&self, id: &str, name: &'static str, step: &Step, write: impl Fn(&Operation) -> Option<AttemptWrite>) {
        let before = self.operation(id).expect("the operation");
        let Change::To(after) = apply(&before, step, self.clock.now()).expect("a lawful step") else {
            panic!("{name} changed nothing");
        };
        let mut update = change(before, *after, name);
        update.attempt = write(&update.after);
        assert_eq!(now(self.store.update(update)).expect("the store answers"), Updated::Done);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(handle) = self.stop.take() {
            now(handle.stop(false));
        }
        // The writer's thread ends when the last handle of the store is gone; nobody waits for it.
        if let Some(server) = self.threads.drain(..).next() {
            let _ = server.join();
        }
    }
}

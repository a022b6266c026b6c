//! The sandbox CRM: a CRM to rehearse with, in a test, in `leadonce demo`, `leadonce drill` and by `leadonce sandbox`.
//!
//! Promises: it answers the Bitrix24 methods used here as the vendor documents them (`bitrix.rs`) and a plain JSON API
//! (`plain.rs`), keeps what was created, counts every call, and misbehaves on demand exactly as told (`fault.rs`): it speaks
//! HTTP/1.1 over its own sockets (`wire.rs`), because a server library would not cut, drip or hang. Like the real ones it
//! takes the same key twice without a word, unless told otherwise. It listens on loopback only, unless asked explicitly: it
//! has no accounts and shows what it holds to anyone. It must not know any other room but the clock.

mod bitrix;
mod control;
mod fault;
mod limit;
mod page;
mod plain;
mod serve;
mod wire;
mod world;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::{Clock, SystemClock};

pub use fault::{Calls, Cut, Fault, Kind, Part};
pub use limit::Limit;
pub use world::{Call, CallKind, Entity, World};

/// The user number that the Bitrix24 address of the sandbox shows.
pub const USER: &str = "1";
/// The secret of the Bitrix24 address, and the bearer token of the plain API, unless set otherwise.
pub const SECRET: &str = "sandbox";

/// How a sandbox is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its time comes from: creation times, blind look-ups.
    pub clock: Arc<dyn Clock>,
    /// The secret of the Bitrix24 address and the bearer token of the plain API.
    pub secret: String,
    /// Whether it may listen where other machines can reach it.
    pub allow_remote: bool,
    /// What it holds; `None` starts empty. A sandbox that was stopped goes on with its [`Running::world`].
    pub world: Option<World>,
}

impl Default for Options {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock::default()), secret: SECRET.into(), allow_remote: false, world: None }
    }
}

/// The sandbox CRM, not yet running.
#[derive(Debug, Clone, Copy)]
pub struct Sandbox;

impl Sandbox {
    /// Starts it on a loopback address (`127.0.0.1:9090`; port 0 takes a free one). Needs a running tokio runtime.
    pub async fn start(listen: &str) -> io::Result<Running> {
        Self::start_with(listen, Options::default()).await
    }

    /// Starts it with options.
    pub async fn start_with(listen: &str, options: Options) -> io::Result<Running> {
        let addresses: Vec<SocketAddr> = tokio::net::lookup_host(listen).await?.collect();
        if let Some(open) = addresses.iter().find(|address| !address.ip().is_loopback())
            && !options.allow_remote
        {
            let why = format!(
                "{open} can be reached from other machines, and the sandbox shows all it holds to anyone; \
                 listen on 127.0.0.1"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let listener = TcpListener::bind(addresses.as_slice()).await?;
        let address = listener.local_addr()?;
        let world = options.world.unwrap_or_default();
        let (stop, stopped) = watch::channel(());
        let site = serve::Site { world: world.clone(), clock: options.clock, secret: options.secret.clone() };
        let task = tokio::spawn(serve::accept(listener, Arc::new(site), stopped));
        Ok(Running { address, world, secret: options.secret, stop, task: Some(task) })
    }
}

/// A running sandbox. Dropping it ends it, in the middle of an answer if need be.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    world: World,
    secret: String,
    stop: watch::Sender<()>,
    task: Option<JoinHandle<()>>,
}

impl Running {
    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Its address, without a slash at the end: the page for people.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The webhook address as a Bitrix24 portal would show it, with a slash at the end.
    pub fn bitrix_url(&self) -> String {
        format!("{}/rest/{USER}/{}/", self.url(), self.secret)
    }

    /// What it holds and does: entities, calls, faults.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Stops listening and breaks every open connection; returns when the port is free.
    pub async fn stop(mut self) {
        let _ = self.stop.send(());
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }

    /// Waits until it ends, which it does only by an error of its listener: for `leadonce sandbox`.
    pub async fn ended(&mut self) {
        if let Some(task) = &mut self.task {
            let _ = task.await;
            self.task = None;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

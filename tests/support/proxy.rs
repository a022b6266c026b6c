//! A TCP proxy that a test controls: it passes bytes on, and fails the way networks do.
//!
//! Included by path (`#[path = "support/proxy.rs"] mod proxy;`). It knows one word of PostgreSQL's protocol: `COMMIT`.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// What happens to bytes and to new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// They pass.
    Open,
    /// They are swallowed for now: nobody is told anything, and nothing gets lost.
    Held,
    /// New connections end at once; the old ones live.
    Refused,
}

struct State {
    way: Way,
    /// How long a COMMIT is on its way to the server.
    commit_takes: Duration,
    /// After so many bytes of the answer to the next COMMIT its connection is cut.
    cut_commit: Option<usize>,
    open: Vec<TcpStream>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    accepted: AtomicUsize,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns when bytes may pass.
    fn pass(&self) {
        let held = self.changed.wait_while(self.state(), |state| state.way == Way::Held);
        drop(held.unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

/// The proxy; its threads end with the process.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Listens on a port of its own, before that address.
    pub(crate) fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = State { way: Way::Open, commit_takes: Duration::ZERO, cut_commit: None, open: Vec::new() };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), accepted: AtomicUsize::new(0) });
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                own.accepted.fetch_add(1, Ordering::SeqCst);
                if own.state().way != Way::Refused
                    && let Ok(server) = TcpStream::connect(target)
                {
                    join(&own, client, server);
                }
            }
        });
        Self { port, shared }
    }

    /// A proxy before the server of a URL, and the URL that leads through it.
    pub(crate) fn before_url(url: &str) -> (Self, String) {
        let mut url = url::Url::parse(url).expect("a url");
        let host = url.host_str().expect("a host").parse().expect("an address");
        let proxy = Self::before(SocketAddr::new(host, url.port().unwrap_or(5432)));
        url.set_host(Some("127.0.0.1")).expect("a host");
        url.set_port(Some(proxy.port)).expect("a port");
        (proxy, url.into())
    }

    /// Changes what happens from now on.
    pub(crate) fn set(&self, way: Way) {
        self.shared.state().way = way;
        self.shared.changed.notify_all();
    }

    /// Cuts every connection that is open.
    pub(crate) fn cut(&self) {
        for stream in self.shared.state().open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The next COMMIT reaches the server; of its answer so many bytes come back, then the connection is cut.
    pub(crate) fn cut_next_commit_after(&self, bytes: usize) {
        self.shared.state().cut_commit = Some(bytes);
    }

    /// From now on a COMMIT comes to the server only so long after what it commits.
    pub(crate) fn slow_commits(&self, takes: Duration) {
        self.shared.state().commit_takes = takes;
    }

    /// Whether that COMMIT is still to come.
    pub(crate) fn waits_for_commit(&self) -> bool {
        self.shared.state().cut_commit.is_some()
    }

    /// How many connections were made so far.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

/// Two threads for a connection, one each way.
fn join(shared: &Arc<Shared>, client: TcpStream, server: TcpStream) {
    let copy = |stream: &TcpStream| stream.try_clone().expect("a clone");
    shared.state().open.extend([copy(&client), copy(&server)]);
    // What the client may still be sent.
    let allowed = Arc::new(AtomicUsize::new(usize::MAX));
    let (up, down) = ((copy(&client), copy(&server)), (server, client));
    let (shared_up, allowed_up) = (Arc::clone(shared), Arc::clone(&allowed));
    std::thread::spawn(move || {
        pipe(up.0, up.1, |bytes| {
            if bytes.windows(7).any(|window| window == b"COMMIT\0") {
                let takes = shared_up.state().commit_takes;
                std::thread::sleep(takes);
                if let Some(cut) = shared_up.state().cut_commit.take() {
                    allowed_up.store(cut, Ordering::SeqCst);
                }
            }
            shared_up.pass();
            bytes.len()
        });
    });
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        pipe(down.0, down.1, |bytes| {
            shared.pass();
            let left = allowed.load(Ordering::SeqCst);
            if left != usize::MAX {
                allowed.store(left.saturating_sub(bytes.len()), Ordering::SeqCst);
            }
            bytes.len().min(left)
        });
    });
}

/// Copies as many bytes as it is told to; at the first that must not pass it cuts both sides.
fn pipe(mut from: TcpStream, mut to: TcpStream, mut passes: impl FnMut(&[u8]) -> usize) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer) {
        let bytes = &buffer[..read];
        let pass = passes(bytes);
        if read == 0 || to.write_all(&bytes[..pass]).is_err() || pass < read {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

//! The load: so many connections, each sending its next request when the last one is answered. One thread, HTTP/1.1, as little
//! work of its own as possible, since it runs on the cores of what it measures.

#![allow(dead_code, reason = "tests take what they need")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// What came of a load.
#[derive(Debug, Clone, Default)]
pub(crate) struct Load {
    /// Answers 2xx per second.
    pub(crate) rate: f64,
    /// Answers 2xx.
    pub(crate) good: u64,
    /// All others: 503 mostly.
    pub(crate) bad: u64,
    /// Half of the answers came within that time, in milliseconds.
    pub(crate) p50: f64,
    /// All but one in a hundred.
    pub(crate) p99: f64,
}

/// How long and how hard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) connections: usize,
    pub(crate) time: Duration,
    /// Requests per second in all; `None`: as fast as they are answered.
    pub(crate) pace: Option<f64>,
}

/// Sends until the time is over. `request` writes the next request, head and body, into the buffer.
pub(crate) fn run(address: &str, plan: Plan, request: impl FnMut(&mut Vec<u8>) + 'static) -> Load {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let request = Rc::new(RefCell::new(request));
    let latencies = Rc::new(RefCell::new(Vec::with_capacity(1 << 20)));
    let (good, bad) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let begun = now();
    LocalSet::new().block_on(&runtime, async {
        let mut running = Vec::new();
        for number in 0..plan.connections {
            let (request, latencies) = (Rc::clone(&request), Rc::clone(&latencies));
            let (good, bad) = (Rc::clone(&good), Rc::clone(&bad));
            let mut stream = TcpStream::connect(address).await.expect("the server takes connections");
            stream.set_nodelay(true).expect("an option");
            running.push(tokio::task::spawn_local(async move {
                let mut sent = Vec::with_capacity(2_048);
                let mut read = Vec::with_capacity(4_096);
                let own = plan.pace.map(|pace| Duration::from_secs_f64(plan.connections as f64 / pace));
                let mut next = begun + own.unwrap_or_default().mul_f64(number as f64 / plan.connections as f64);
                while begun.elapsed() < plan.time {
                    if let Some(own) = own {
                        tokio::time::sleep_until(next.into()).await;
                        next += own;
                    }
                    sent.clear();
                    request.borrow_mut()(&mut sent);
                    let start = now();
                    stream.write_all(&sent).await.expect("sent");
                    let status = answer(&mut stream, &mut read).await;
                    latencies.borrow_mut().push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
                    let count = if (200..300).contains(&status) { &good } else { &bad };
                    count.set(count.get() + 1);
                }
            }));
        }
        for task in running {
            task.await.expect("a connection");
        }
    });
    let took = begun.elapsed().as_secs_f64();
    let mut latencies = latencies.take();
    latencies.sort_unstable();
    let at = |share: f64| {
        let place = (latencies.len() as f64 * share) as usize;
        f64::from(latencies.get(place).copied().unwrap_or(0)) / 1_000.0
    };
    Load { rate: good.get() as f64 / took, good: good.get(), bad: bad.get(), p50: at(0.5), p99: at(0.99) }
}

/// Reads one answer; its status.
async fn answer(stream: &mut TcpStream, read: &mut Vec<u8>) -> u16 {
    read.clear();
    loop {
        let count = stream.read_buf(read).await.expect("an answer");
        assert!(count > 0, "the server closed: {}", String::from_utf8_lossy(read));
        let Some(head) = read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let (head, body) = (&read[..head], read.len() - head - 4);
        if body >= content_length(head) {
            return std::str::from_utf8(&head[9..12]).ok().and_then(|status| status.parse().ok()).unwrap_or(0);
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length: ";
    let Some(at) = head.windows(NAME.len()).position(|part| part.eq_ignore_ascii_case(NAME)) else { return 0 };
    head[at + NAME.len()..].iter().take_while(|b| b.is_ascii_digit()).fold(0, |n, b| n * 10 + usize::from(b - b'0'))
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

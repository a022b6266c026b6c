//! The transport against real sockets: servers that break off at every place where a server can.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::clock::{Clock, SystemClock};

const SECRET: &str = "SECRET123";
const TOKEN: &str = "Bearer TOPSECRETTOKEN";

/// Reads one request, head and body; `None` where the peer sent none.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length:").map(|v| v.trim().to_owned()))
                .map_or(0, |length| length.parse().expect("a length"));
            if body.len() >= length {
                return Some(text);
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
    }
}

struct Server {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// Serves each connection on a thread of its own with the script, which gets each request in turn and says whether to
    /// read another one from this connection.
    fn start(script: impl Fn(usize, &str, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(AtomicUsize::new(0));
        let (script, count) = (Arc::new(script), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, count) = (Arc::clone(&script), Arc::clone(&count));
                thread::spawn(move || {
                    let Ok(mut stream) = stream else { return };
                    while let Some(request) = read_request(&mut stream) {
                        let number = count.fetch_add(1, Ordering::SeqCst);
                        if !script(number, &request, &mut stream) {
                            break;
                        }
                    }
                });
            }
        });
        Self { address, requests }
    }

    fn answering(bytes: &'static [u8]) -> Self {
        Self::start(move |_, _, stream| {
            let _ = stream.write_all(bytes);
            false
        })
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn call_to(address: SocketAddr) -> Call {
    Call {
        method: "POST",
        url: format!("http://{address}/rest/1/{SECRET}/crm.item.add?key={SECRET}"),
        masked_url: format!("http://{address}/rest/***/crm.item.add"),
        headers: vec![("authorization".into(), TOKEN.into()), ("content-type".into(), "application/json".into())],
        body: b"{\"a\":1}".to_vec(),
    }
}

async fn send_within(address: SocketAddr, timeout: Duration) -> Exchange {
    HttpTransport::new().expect("a transport").send(&call_to(address), timeout).await
}

async fn send(address: SocketAddr) -> Exchange {
    send_within(address, Duration::from_secs(10)).await
}

fn error(exchange: Exchange) -> TransportError {
    let error = exchange.expect_err("no complete answer");
    for secret in [SECRET, "TOPSECRETTOKEN"] {
        assert!(!error.message.contains(secret) && !format!("{error:?}").contains(secret), "{error:?}");
    }
    assert!(!error.message.is_empty() && error.message.chars().count() <= 500, "{error:?}");
    error
}

#[tokio::test]
async fn a_complete_answer_comes_with_status_headers_and_body() {
    let server = Server::start(|_, request, stream| {
        assert!(request.starts_with("POST /rest/1/SECRET123/crm.item.add?key=SECRET123 HTTP/1.1\r\n"), "{request}");
        let head = request.to_lowercase();
        assert!(head.contains("user-agent: leadonce/") && head.contains("authorization: bearer"), "{request}");
        assert!(!head.contains("accept-encoding") && head.ends_with("{\"a\":1}"), "{request}");
        let _ = stream.write_all(b"HTTP/1.1 201 Created\r\nLocation: /leads/77\r\nContent-Length: 8\r\n\r\n{\"id\":7}");
        false
    });
    let answer = send(server.address).await.expect("an answer");
    assert_eq!((answer.status, answer.header("location")), (201, Some("/leads/77")));
    assert_eq!(answer.body, b"{\"id\":7}");
}

#[tokio::test]
async fn a_refused_connection_proves_that_nothing_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let error = error(send(address).await);
    assert_eq!((error.class, error.status), (FailureClass::NotSent, None));
    assert!(error.message.contains("refused"), "{error}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_and_a_bad_address_prove_that_nothing_was_sent() {
    let mut call = call_to("127.0.0.1:1".parse().expect("an address"));
    for url in ["http://no-such-host.invalid/SECRET123/x", "not an address/SECRET123", "http://[/SECRET123"] {
        call.url = url.into();
        let transport = HttpTransport::new().expect("a transport");
        let error = error(transport.send(&call, Duration::from_secs(10)).await);
        assert_eq!(error.class, FailureClass::NotSent, "{error}");
    }
}

#[tokio::test]
async fn a_failed_tls_handshake_proves_that_nothing_was_sent() {
    // Not a TLS server: whatever it answers, the handshake ends before the request.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let mut call = call_to(address);
    call.url = call.url.replace("http://", "https://");
    let transport = HttpTransport::new().expect("a transport");
    assert_eq!(error(transport.send(&call, Duration::from_secs(10)).await).class, FailureClass::NotSent);
}

#[tokio::test]
async fn a_tls_handshake_that_never_ends_proves_that_nothing_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut call = call_to(listener.local_addr().expect("an address"));
    call.url = call.url.replace("http://", "https://");
    let transport = HttpTransport::new().expect("a transport");
    let error = error(transport.send(&call, Duration::from_millis(600)).await);
    assert_eq!(error.class, FailureClass::NotSent, "{error}");
    drop(listener);
}

/// A library may send a refused HTTP/2 stream again by itself, and then an attempt is missing in the log.
#[tokio::test]
async fn c75_a_crm_is_spoken_to_in_http_1_1_whatever_it_offers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut call = call_to(listener.local_addr().expect("an address"));
    call.url = call.url.replace("http://", "https://");
    // The greeting of TLS names the protocols that the client speaks.
    let greeting = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut head = [0; 5];
        stream.read_exact(&mut head).expect("a record");
        let mut greeting = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
        stream.read_exact(&mut greeting).expect("all of it");
        greeting
    });
    let transport = HttpTransport::new().expect("a transport");
    assert!(transport.send(&call, Duration::from_secs(10)).await.is_err());
    let greeting = greeting.join().expect("a greeting");
    let names = |protocols: &[u8]| greeting.windows(protocols.len()).any(|part| part == protocols);
    assert_eq!(greeting.first(), Some(&1), "a client's greeting");
    assert!(!names(b"\x02h2\x08http/1.1") && !names(b"\x00\x03\x02h2"));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_uncertain_wherever_it_breaks() {
    for (bytes, status) in [
        (&b""[..], None),
        (b"HTTP/1.1 20", None),
        (b"HTTP/1.1 200 OK\r\nContent-Le", None),
        (b"rubbish\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"result\":42", Some(200)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n{\"result\":42\r\n", Some(200)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{\"result\":42}\r\n", Some(200)),
    ] {
        let server = Server::answering(bytes);
        let error = error(send(server.address).await);
        let shown = String::from_utf8_lossy(bytes);
        assert_eq!((error.class, error.status), (FailureClass::Uncertain, status), "{shown}: {error}");
        assert_eq!(server.requests(), 1, "{shown}");
    }
}

#[tokio::test]
async fn an_answer_that_is_complete_before_the_connection_breaks_counts() {
    let server = Server::start(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"result\":42}");
        let _ = stream.shutdown(Shutdown::Both);
        false
    });
    assert_eq!(send(server.address).await.expect("an answer").body, b"{\"result\":42}");
}

/// Runs out of patience: a server that would go on for ever.
async fn stopped_in_time(server: &Server, status: Option<u16>) {
    let clock = SystemClock::default();
    let error = error(send_within(server.address, Duration::from_millis(700)).await);
    assert_eq!((error.class, error.status), (FailureClass::Uncertain, status), "{error}");
    assert!(error.message.contains("timed out"), "{error}");
    let took = clock.monotonic();
    assert!((600..3000).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test]
async fn silence_ends_at_the_total_timeout() {
    let server = Server::start(|_, _, _| {
        thread::sleep(Duration::from_secs(20));
        false
    });
    stopped_in_time(&server, None).await;
}

#[tokio::test]
async fn a_drip_ends_at_the_total_timeout() {
    for (head, status) in [("HTTP/1.1 200 OK\r\n", None), ("HTTP/1.1 200 OK\r\n\r\n", Some(200))] {
        let server = Server::start(move |_, _, stream| {
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(b"x");
            while stream.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(50));
            }
            false
        });
        stopped_in_time(&server, status).await;
    }
}

#[tokio::test]
async fn a_huge_answer_ends_at_the_cap() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let server = Server::start(move |_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n");
        let block = [b'x'; 65536];
        while count.load(Ordering::SeqCst) < 1 << 30 && stream.write_all(&block).is_ok() {
            count.fetch_add(block.len(), Ordering::SeqCst);
        }
        false
    });
    let error = error(send(server.address).await);
    assert_eq!((error.class, error.status), (FailureClass::Uncertain, Some(200)));
    assert!(error.message.contains("larger"), "{error}");
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < 64 * MAX_ANSWER, "{sent} bytes were taken");
}

#[tokio::test]
async fn an_answer_of_exactly_the_cap_is_complete() {
    let server = Server::start(|_, _, stream| {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {MAX_ANSWER}\r\n\r\n");
        let _ = stream.write_all(&vec![b'x'; MAX_ANSWER]);
        false
    });
    assert_eq!(send(server.address).await.expect("an answer").body.len(), MAX_ANSWER);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    for status in ["301", "302", "303", "307", "308"] {
        let other = Server::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let target = other.address;
        let server = Server::start(move |_, _, stream| {
            let _ = write!(stream, "HTTP/1.1 {status} x\r\nLocation: http://{target}/\r\nContent-Length: 0\r\n\r\n");
            true
        });
        let answer = send(server.address).await.expect("an answer");
        assert_eq!(answer.status.to_string(), status);
        assert_eq!((server.requests(), other.requests()), (1, 0), "{status}");
    }
}

#[tokio::test]
async fn a_kept_connection_that_dies_around_the_request_is_uncertain_and_not_resent() {
    for read in [true, false] {
        let server = Server::start(move |number, _, stream| {
            if number > 0 {
                return false;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            if !read {
                // The second request is there and is never read: closing then resets the connection.
                let _ = stream.peek(&mut [0]);
            }
            read
        });
        let transport = HttpTransport::new().expect("a transport");
        let call = call_to(server.address);
        assert_eq!(transport.send(&call, Duration::from_secs(5)).await.expect("an answer").body, b"ok");
        let error = error(transport.send(&call, Duration::from_secs(5)).await);
        assert_eq!(error.class, FailureClass::Uncertain, "{error}");
        assert_eq!(server.requests(), if read { 2 } else { 1 }, "each call is on the wire once");
    }
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_before_is_replaced_by_a_new_one() {
    let server = Server::start(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        // Kept by its headers, closed all the same.
        false
    });
    let transport = HttpTransport::new().expect("a transport");
    let call = call_to(server.address);
    for round in 1..=5 {
        let answer = transport.send(&call, Duration::from_secs(5)).await.expect("an answer");
        assert_eq!((answer.body.as_slice(), server.requests()), (&b"ok"[..], round));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_is_named_without_its_value() {
    let mut call = call_to("127.0.0.1:1".parse().expect("an address"));
    call.headers = vec![("x-token".into(), "SECRET123\nx: y".into())];
    let error = error(HttpTransport::new().expect("a transport").send(&call, Duration::from_secs(1)).await);
    assert_eq!(error.class, FailureClass::NotSent);
    assert!(error.message.contains("x-token"), "{error}");
}

#[test]
fn what_a_library_says_of_the_address_is_masked() {
    let call = call_to("127.0.0.1:1".parse().expect("an address"));
    let said = format!("cannot send to {}: authorization TOPSECRETTOKEN refused", call.url);
    let text = scrubbed(&call, &said);
    assert!(!text.contains(SECRET) && !text.contains("TOPSECRETTOKEN"), "{text}");
    assert!(text.contains("http://127.0.0.1:1/rest/***/crm.item.add"), "{text}");
}

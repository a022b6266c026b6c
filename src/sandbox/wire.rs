//! HTTP/1.1 by hand, as much of it as a CRM's client sends: reads requests, writes answers, and breaks off where told.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LONGEST_HEAD: usize = 64 * 1024;
const LONGEST_BODY: usize = 16 * 1024 * 1024;

/// A request.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    /// Without `?`.
    pub(super) query: String,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// An answer, before it is decided how much of it leaves.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

impl Reply {
    pub(super) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: vec![("Content-Type", content_type.to_owned())], body: body.into() }
    }

    pub(super) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::new(status, "application/json; charset=utf-8", body.to_string())
    }

    pub(super) fn html(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::new(status, "text/html; charset=utf-8", body)
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(n, _)| *n != name);
        self.headers.push((name, value.into()));
        self
    }

    /// Status line and headers. A value from outside cannot open a header of its own: line breaks become blanks.
    fn head(&self, length: usize) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            let value: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.status != 204 && self.status != 304 {
            head.push_str(&format!("Content-Length: {length}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

/// How much of an answer leaves, and how the connection fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// All of it; the connection lives on.
    Whole,
    /// All of it; then the connection is closed without a word.
    WholeThenClose,
    /// Not a byte: the connection is closed.
    Nothing,
    /// Half of the status line.
    PartOfStatus,
    /// The headers and none of the body they promise.
    HeadersOnly,
    /// The headers and half of the body they promise.
    HalfBody,
    /// Silence until the client leaves.
    Silence,
    /// The headers, then a byte of the body each time.
    DripBody(Duration),
    /// A byte of everything each time.
    DripAll(Duration),
    /// The headers and so many bytes of `x`.
    Huge(u64),
}

/// A connection, between requests or in the middle of an answer.
pub(super) struct Connection {
    stream: TcpStream,
    /// Read from the socket and not yet used.
    ahead: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        let _ = stream.set_nodelay(true);
        Self { stream, ahead: Vec::new() }
    }

    /// The next request; `None` where the client has closed.
    pub(super) async fn request(&mut self) -> io::Result<Option<Request>> {
        let end = loop {
            if let Some(end) = find(&self.ahead, b"\r\n\r\n") {
                break end;
            }
            if self.ahead.len() > LONGEST_HEAD {
                return Err(bad("the head of the request is too long"));
            }
            if !self.read_more().await? {
                return if self.ahead.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        };
        let head: Vec<u8> = self.ahead.drain(..end + 4).collect();
        let head = String::from_utf8(head).map_err(|_| bad("the head of the request is not UTF-8"))?;
        let mut lines = head.trim_end().split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version)) = (first.next(), first.next(), first.next()) else {
            return Err(bad("the request line has no three parts"));
        };
        if !version.starts_with("HTTP/1.") {
            return Err(bad("only HTTP/1 is spoken here"));
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers = lines
            .map(|line| line.split_once(':').ok_or_else(|| bad("a header has no colon")))
            .map(|header| header.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())))
            .collect::<io::Result<Vec<_>>>()?;
        let mut request =
            Request { method: method.into(), path: path.into(), query: query.into(), headers, body: Vec::new() };
        if request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        if request.header("transfer-encoding").is_some() {
            request.body = self.chunked().await?;
        } else if let Some(length) = request.header("content-length") {
            let length = length.parse().map_err(|_| bad("the content length is no number"))?;
            request.body = self.exactly(length).await?;
        }
        Ok(Some(request))
    }

    async fn read_more(&mut self) -> io::Result<bool> {
        let mut piece = [0; 16 * 1024];
        let count = self.stream.read(&mut piece).await?;
        self.ahead.extend(piece.iter().take(count));
        Ok(count > 0)
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > LONGEST_BODY {
            return Err(bad("the body is too long"));
        }
        while self.ahead.len() < length {
            if !self.read_more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.ahead.drain(..length).collect())
    }

    async fn chunked(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| bad("a chunk has no size"))?;
            if body.len().saturating_add(size) > LONGEST_BODY {
                return Err(bad("the body is too long"));
            }
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.exactly(size).await?);
            self.line().await?;
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.ahead, b"\r\n") {
                let line: Vec<u8> = self.ahead.drain(..end + 2).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.ahead.len() > LONGEST_HEAD {
                return Err(bad("a line is too long"));
            }
            if !self.read_more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Writes an answer, or as much of it as `manner` says; whether the connection can take another request.
    pub(super) async fn answer(&mut self, reply: &Reply, manner: Manner) -> io::Result<bool> {
        let head = reply.head(reply.body.len());
        let half = reply.body.len() / 2;
        match manner {
            Manner::Whole | Manner::WholeThenClose => {
                self.stream.write_all(&[head.as_slice(), reply.body.as_slice()].concat()).await?;
                return Ok(manner == Manner::Whole);
            }
            Manner::Nothing => {}
            Manner::PartOfStatus => self.stream.write_all(b"HTTP/1.1 2").await?,
            Manner::HeadersOnly => self.stream.write_all(&head).await?,
            Manner::HalfBody => {
                let some: Vec<u8> = reply.body.iter().copied().take(half).collect();
                self.stream.write_all(&[head, some].concat()).await?;
            }
            Manner::Silence => self.until_left().await,
            Manner::DripBody(every) => {
                self.stream.write_all(&head).await?;
                self.drip(&reply.body, every).await?;
            }
            Manner::DripAll(every) => self.drip(&[head.as_slice(), reply.body.as_slice()].concat(), every).await?,
            Manner::Huge(bytes) => {
                let length = usize::try_from(bytes).unwrap_or(usize::MAX);
                self.stream.write_all(&reply.head(length)).await?;
                let piece = [b'x'; 64 * 1024];
                let mut left = length;
                while left > 0 {
                    let now = left.min(piece.len());
                    self.stream.write_all(piece.get(..now).unwrap_or(&piece)).await?;
                    left -= now;
                }
            }
        }
        Ok(false)
    }

    async fn drip(&mut self, bytes: &[u8], every: Duration) -> io::Result<()> {
        for byte in bytes {
            self.stream.write_all(&[*byte]).await?;
            tokio::time::sleep(every).await;
        }
        Ok(())
    }

    async fn until_left(&mut self) {
        while let Ok(true) = self.read_more().await {
            self.ahead.clear();
        }
    }

    /// Ends the connection: in order, or by a reset.
    pub(super) async fn close(mut self, reset: bool) {
        if reset {
            let _ = self.stream.set_zero_linger();
        } else {
            let _ = self.stream.shutdown().await;
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn bad(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unnamed",
    }
}

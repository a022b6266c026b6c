//! The client's side: an answer as it came over the wire.

use std::io::Read;
use std::net::TcpStream;

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Got {
    /// Reads until the answer is whole or the connection ends.
    pub(crate) fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        // A reset is an end, too.
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..length]);
            let got = Self::parse(&bytes);
            let announced = got.header("content-length").and_then(|length| length.parse::<usize>().ok());
            if announced.is_some_and(|announced| announced > 0 && got.body.len() >= announced) {
                return got;
            }
        }
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Self { status, headers, body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The body of an answer that came in chunks.
    pub(crate) fn unchunked(&self) -> String {
        let (mut rest, mut whole) = (self.body.as_bytes(), Vec::new());
        while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
            let length = std::str::from_utf8(&rest[..end]).expect("a length");
            let length = usize::from_str_radix(length, 16).expect("a length in hex");
            whole.extend_from_slice(&rest[end + 2..end + 2 + length]);
            rest = &rest[end + 2 + length + 2..];
        }
        String::from_utf8(whole).expect("UTF-8")
    }

    /// The member `operation_id`.
    pub(crate) fn id(&self) -> String {
        self.json()["operation_id"].as_str().unwrap_or_else(|| panic!("no operation: {self:?}")).to_owned()
    }

    /// The last part of the problem's type.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let kind = self.json()["type"].as_str().expect("a type").to_owned();
        assert_eq!(self.json()["status"], self.status);
        kind.strip_prefix("urn:leadonce:problem:").expect("our urn").to_owned()
    }
}

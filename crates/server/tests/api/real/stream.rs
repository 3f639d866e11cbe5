//! Client of event streams that reads as slowly as a test wants.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::test_server::TestServer;
use crate::support::KEY;

/// Open stream.
pub(crate) struct Stream {
    reader: BufReader<TcpStream>,
}

/// Event of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) kind: String,
    /// Value for `Last-Event-ID`.
    pub(crate) id: String,
    pub(crate) data: Value,
}

impl Event {
    /// Output of the command.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self.data["dataBase64"].as_str() {
            Some(encoded) => BASE64_STANDARD.decode(encoded).unwrap(),
            None => self.data["data"].as_str().unwrap_or_default().as_bytes().to_vec(),
        }
    }

    pub(crate) fn is_last(&self) -> bool {
        matches!(self.kind.as_str(), "exit" | "error")
    }
}

impl Stream {
    /// Runs a command.
    pub(crate) fn run(server: &TestServer, sandbox: &str, mut body: Value) -> Self {
        body["stream"] = true.into();
        Self::run_as(server, sandbox, &body)
    }

    /// Runs a command with this request body.
    pub(crate) fn run_as(server: &TestServer, sandbox: &str, body: &Value) -> Self {
        let path = format!("/api/v1/sandboxes/{sandbox}/process/run");
        Self::open(server.address(), KEY, "POST", &path, None, &body.to_string())
    }

    /// Opens a stream with another key or a token.
    pub(crate) fn open_as(server: &TestServer, key: &str, method: &str, path: &str, body: &Value) -> Self {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Self::open(server.address(), key, method, path, None, &body)
    }

    /// Streams the output of a command after an event.
    pub(crate) fn output(server: &TestServer, sandbox: &str, command: &str, last: Option<&str>) -> Self {
        let path = format!("/api/v1/sandboxes/{sandbox}/process/{command}/output");
        Self::open(server.address(), KEY, "GET", &path, last, "")
    }

    /// Watches a directory.
    pub(crate) fn watch(server: &TestServer, sandbox: &str, path: &str) -> Self {
        let path = format!("/api/v1/sandboxes/{sandbox}/watch/{path}");
        Self::open(server.address(), KEY, "GET", &path, None, "")
    }

    // HTTP/1.0, so that the body has no chunked encoding.
    fn open(
        address: SocketAddr,
        key: &str,
        method: &str,
        path: &str,
        last: Option<&str>,
        body: &str,
    ) -> Self {
        Self::open_with(address, key, (method, path), last, ("application/json", body.as_bytes()))
    }

    /// Sends bytes, and opens the stream of the response.
    pub(crate) fn upload(server: &TestServer, path: &str, body: &[u8]) -> Self {
        Self::open_with(server.address(), KEY, ("POST", path), None, ("application/octet-stream", body))
    }

    fn open_with(
        address: SocketAddr,
        key: &str,
        (method, path): (&str, &str),
        last: Option<&str>,
        (content_type, body): (&str, &[u8]),
    ) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let last = last.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nhost: test\r\nauthorization: Bearer {key}\r\n{last}\
             content-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(&[head.as_bytes(), body].concat()).unwrap();
        Self { reader: BufReader::new(socket) }
    }

    /// Reads the response headers.
    pub(crate) fn begun(mut self) -> Self {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        assert!(line.contains(" 200 "), "{line}");
        while line != "\r\n" {
            line.clear();
            self.reader.read_line(&mut line).unwrap();
        }
        self
    }

    /// Returns the next event; `None` at the end or after an error.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let mut event = Event { kind: String::new(), id: String::new(), data: Value::Null };
        loop {
            let mut line = String::new();
            match self.reader.read_line(&mut line) {
                Ok(read) if read > 0 => {}
                _ => return None,
            }
            match line.trim_end_matches('\n').split_once(": ") {
                Some(("event", kind)) => kind.clone_into(&mut event.kind),
                Some(("id", id)) => id.clone_into(&mut event.id),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                _ if line == "\n" && !event.kind.is_empty() => return Some(event),
                _ => {}
            }
        }
    }

    /// Returns all remaining events.
    pub(crate) fn rest(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Returns the first output.
    pub(crate) fn first(&mut self) -> Event {
        self.next().expect("the stream has an event")
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.reader.get_ref()
    }
}

/// Returns stdout and stderr together.
pub(crate) fn printed(events: &[Event]) -> Vec<u8> {
    events.iter().flat_map(Event::bytes).collect()
}

/// Checks that each event starts at the end of the previous one, from `from` on. Returns the end of the last one.
#[track_caller]
pub(crate) fn assert_seamless(events: &[Event], from: u64) -> u64 {
    let mut behind = from;
    for event in events {
        if let Some(offset) = event.data["offset"].as_u64() {
            assert_eq!(offset, behind, "a gap or a repeat before {event:?}");
            behind += event.bytes().len() as u64;
        }
        assert_eq!(event.id, behind.to_string());
    }
    behind
}

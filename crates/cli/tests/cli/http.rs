//! Plain HTTP requests to URLs that commands print.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::LONG;

/// Response to a request.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Sends a request to an `http` or `ws` URL at an IP address.
pub(crate) fn request(method: &str, url: &str, headers: &str, body: &[u8]) -> Response {
    let (_, rest) = url.split_once("://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let length = body.len();
    let head =
        format!("{method} /{path} HTTP/1.0\r\nhost: {host}\r\ncontent-length: {length}\r\n{headers}\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut received = Vec::new();
    // An error that is sent before the whole body was read ends with a reset.
    drop(stream.read_to_end(&mut received));
    let end = received.windows(4).position(|four| four == b"\r\n\r\n").expect("a response");
    let status = String::from_utf8_lossy(&received[..end]).split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, body: received.split_off(end + 4) }
}

/// Requests a WebSocket, and returns the status of the response: 101 if it was opened.
pub(crate) fn open_websocket(url: &str) -> u16 {
    let (_, rest) = url.split_once("://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let head = format!(
        "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    String::from_utf8_lossy(&status[9..]).parse().unwrap()
}

//! TCP ports of a sandbox.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::handshake::HandshakeError;
use tungstenite::{Message, WebSocket};

use super::files::{FileServer, noise};
use super::test_server::wait_until;
use crate::support::{Answer, KEY};

/// Program that returns all bytes of its connections, on port 7000 of the loopback.
const ECHO: &str = "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1); \
                    bind(S, sockaddr_in(7000, INADDR_LOOPBACK)) or die; listen(S, 50); \
                    while (accept(C, S)) { if (!fork) { while (sysread(C, $b, 65536)) { syswrite(C, $b) } exit } close C }'";

fn listening(fixture: &FileServer) -> Vec<Value> {
    let answer = fixture.call("GET", "ports").send();
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["items"].as_array().unwrap().clone()
}

/// Starts a program, and waits until it listens on port 7000.
fn start(fixture: &FileServer, program: &str) -> Value {
    fixture.server.start_background(&fixture.id, json!({"command": program, "timeout": 0}));
    let mut found = None;
    wait_until("it listens", || {
        found = listening(fixture).into_iter().find(|port| port["port"] == 7000);
        found.is_some()
    });
    found.unwrap()
}

/// Connects to a port. Fails with the error response.
pub(super) fn connect(fixture: &FileServer, port: u16) -> Result<WebSocket<TcpStream>, Answer> {
    let stream = TcpStream::connect(fixture.server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let route = fixture.route(&format!("ports/{port}/connect"));
    let mut request = format!("ws://{}{route}", fixture.server.address()).into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {KEY}").parse().unwrap());
    match tungstenite::client(request, stream) {
        Ok((socket, _)) => Ok(socket),
        Err(HandshakeError::Failure(tungstenite::Error::Http(response))) => {
            let status = response.status().as_u16();
            let body = String::from_utf8(response.body().clone().unwrap()).unwrap();
            let id = response.headers()["x-request-id"].to_str().unwrap();
            Err(Answer { status, head: format!("HTTP/1.1 {status}\r\nx-request-id: {id}"), body })
        }
        Err(error) => panic!("{error}"),
    }
}

/// Receives bytes up to the end of the direction, or this many.
fn receive(socket: &mut WebSocket<TcpStream>, max: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < max {
        match socket.read().unwrap() {
            Message::Binary(data) if data.is_empty() => break,
            Message::Binary(data) => bytes.extend(data),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?} after {} bytes", bytes.len()),
        }
    }
    bytes
}

fn close_code(socket: &mut WebSocket<TcpStream>) -> u16 {
    loop {
        if let Message::Close(frame) = socket.read().unwrap() {
            return frame.unwrap().code.into();
        }
    }
}

#[test]
fn a_port_of_a_sandbox_without_network_is_listed_and_reached() {
    let fixture = FileServer::new();
    let port = start(&fixture, ECHO);
    assert_eq!((&port["address"], &port["program"]), (&json!("127.0.0.1"), &json!("perl")));
    assert!(port["pid"].as_u64().unwrap() > 0);
    let mut socket = connect(&fixture, 7000).unwrap();
    let mut other = connect(&fixture, 7000).unwrap();
    for word in ["first", "second"] {
        socket.send(Message::binary(word.as_bytes().to_vec())).unwrap();
        assert_eq!(receive(&mut socket, word.len()), word.as_bytes());
    }
    other.send(Message::binary(b"other".to_vec())).unwrap();
    assert_eq!(receive(&mut other, 5), b"other");
    // The end of one direction leaves the other open.
    let content = noise(200_000);
    socket.send(Message::binary(content.clone())).unwrap();
    socket.send(Message::binary(Vec::new())).unwrap();
    assert!(receive(&mut socket, usize::MAX) == content);
    assert_eq!(close_code(&mut socket), 1000);
}

#[test]
fn a_program_that_ends_its_direction_can_still_be_sent_bytes() {
    let fixture = FileServer::new();
    let program = "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); bind(S, sockaddr_in(7000, INADDR_LOOPBACK)); \
                   listen(S, 5); accept(C, S); syswrite(C, q(hello)); shutdown(C, 1); open(F, q(>), q(part)); \
                   while (sysread(C, $b, 65536)) { syswrite(F, $b) } close F; rename(q(part), q(received))'";
    start(&fixture, program);
    let mut socket = connect(&fixture, 7000).unwrap();
    assert_eq!(receive(&mut socket, usize::MAX), b"hello");
    socket.send(Message::binary(b"one ".to_vec())).unwrap();
    socket.send(Message::binary(b"two".to_vec())).unwrap();
    socket.send(Message::binary(Vec::new())).unwrap();
    assert_eq!(close_code(&mut socket), 1000);
    wait_until("it has everything", || {
        fixture.server.run(&fixture.id, "cat received")["stdout"] == "one two"
    });
}

#[test]
fn more_bytes_than_all_buffers_arrive_in_both_directions() {
    let fixture = FileServer::new();
    start(&fixture, ECHO);
    let socket = connect(&fixture, 7000).unwrap();
    let content = noise(8 << 20);
    // Two halves of one connection, so that the client reads while it writes.
    let mut writer = WebSocket::from_raw_socket(
        socket.get_ref().try_clone().unwrap(),
        tungstenite::protocol::Role::Client,
        None,
    );
    let mut reader = socket;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for piece in content.chunks(300_000) {
                writer.send(Message::binary(piece.to_vec())).unwrap();
            }
            writer.send(Message::binary(Vec::new())).unwrap();
        });
        assert!(receive(&mut reader, usize::MAX) == content);
    });
}

#[test]
fn impossible_connections_are_refused() {
    let fixture = FileServer::new();
    assert!(!listening(&fixture).iter().any(|port| port["port"] == 7000));
    let refused = connect(&fixture, 7000).unwrap_err();
    assert_eq!((refused.status, refused.error().as_str()), (502, "PORT_NOT_LISTENING"));
    for (path, error) in [
        ("ports/7000/connect", "INVALID_REQUEST"),
        ("ports/0/connect", "INVALID_REQUEST"),
        ("ports/65536/connect", "INVALID_REQUEST"),
        ("ports/http/connect", "INVALID_REQUEST"),
    ] {
        assert_eq!(fixture.call("GET", path).send().error(), error, "{path}");
    }
    start(&fixture, ECHO);
    let mut socket = connect(&fixture, 7000).unwrap();
    socket.send(Message::text("text")).unwrap();
    assert_eq!(close_code(&mut socket), 1003);
    let mut socket = connect(&fixture, 7000).unwrap();
    socket.send(Message::binary(Vec::new())).unwrap();
    socket.send(Message::binary(b"after the end".to_vec())).unwrap();
    assert!([1000, 1002].contains(&close_code(&mut socket)), "the program may end first");
}

#[test]
fn a_connection_ends_with_its_program() {
    let fixture = FileServer::new();
    let program =
        ECHO.replacen("sysread(C, $b, 65536)", "sysread(C, $b, 1)", 1).replacen("syswrite(C, $b)", "exit", 1);
    start(&fixture, &program);
    let mut socket = connect(&fixture, 7000).unwrap();
    socket.send(Message::binary(b"x".to_vec())).unwrap();
    assert_eq!(receive(&mut socket, usize::MAX), b"");
}

//! Terminals over WebSocket.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::handshake::HandshakeError;
use tungstenite::protocol::CloseFrame;
use tungstenite::{Message, WebSocket};

use super::test_server::{TestServer, wait_until};
use crate::support::KEY;

/// Connection to a terminal.
pub(super) struct Terminal {
    socket: WebSocket<TcpStream>,
    /// All received output.
    shown: Vec<u8>,
}

/// Message of the server. All fields are empty for a WebSocket ping.
#[derive(Debug, Default)]
struct Received {
    message: Value,
    close: Option<CloseFrame>,
    binary: bool,
}

pub(super) fn open(server: &TestServer, sandbox: &str, body: &Value) -> String {
    let answer = server.post(&format!("/api/v1/sandboxes/{sandbox}/pty"), body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let (id, url) = (answer.json()["id"].clone(), answer.json()["websocketUrl"].clone());
    let id = id.as_str().unwrap().to_owned();
    assert_eq!(url, format!("ws://test/api/v1/sandboxes/{sandbox}/pty/{id}/ws"));
    id
}

impl Terminal {
    pub(super) fn connect(server: &TestServer, sandbox: &str, pty: &str, query: &str) -> Self {
        Self::try_connect(server, sandbox, pty, query).unwrap()
    }

    /// Tries to connect. Fails with the HTTP status of the response.
    fn try_connect(server: &TestServer, sandbox: &str, pty: &str, query: &str) -> Result<Self, u16> {
        Self::try_connect_as(server, Some(KEY), sandbox, pty, query)
    }

    /// Connects with a ticket alone, as a browser does.
    fn connect_with_ticket(server: &TestServer, sandbox: &str, pty: &str, ticket: &str) -> Result<Self, u16> {
        Self::try_connect_as(server, None, sandbox, pty, &format!("?ticket={ticket}"))
    }

    fn try_connect_as(
        server: &TestServer,
        key: Option<&str>,
        sandbox: &str,
        pty: &str,
        query: &str,
    ) -> Result<Self, u16> {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let url = format!("ws://{}/api/v1/sandboxes/{sandbox}/pty/{pty}/ws{query}", server.address());
        let mut request = url.into_client_request().unwrap();
        if let Some(key) = key {
            request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        }
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Self { socket, shown: Vec::new() }),
            Err(HandshakeError::Failure(tungstenite::Error::Http(answer))) => Err(answer.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    fn send(&mut self, message: &Value) {
        self.socket.send(Message::text(message.to_string())).unwrap();
    }

    pub(super) fn type_in(&mut self, text: &str) {
        self.send(&json!({"type": "input", "data": BASE64_STANDARD.encode(text)}));
    }

    /// Returns the next message, and collects output.
    fn receive(&mut self) -> Received {
        let message = self.socket.read();
        match message
            .unwrap_or_else(|error| panic!("{error}; shown: {:?}", String::from_utf8_lossy(&self.shown)))
        {
            Message::Text(text) => {
                let message: Value = serde_json::from_str(&text).unwrap();
                if message["type"] == "output" {
                    self.shown.extend(BASE64_STANDARD.decode(message["data"].as_str().unwrap()).unwrap());
                }
                Received { message, ..Received::default() }
            }
            Message::Binary(data) => {
                self.shown.extend(data);
                Received { binary: true, ..Received::default() }
            }
            Message::Close(close) => Received { close, ..Received::default() },
            _ => Received::default(),
        }
    }

    /// Receives messages up to one of this type, and returns it.
    fn receive_until(&mut self, kind: &str) -> Value {
        loop {
            let received = self.receive();
            assert!(received.close.is_none(), "closed before {kind}: {received:?}");
            if received.message["type"] == kind {
                return received.message;
            }
        }
    }

    /// Receives messages until the output contains a text.
    #[track_caller]
    pub(super) fn wait_for_output(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.shown).contains(text) {
            let received = self.receive();
            let shown = String::from_utf8_lossy(&self.shown);
            assert!(received.close.is_none(), "closed before {text:?} in {shown:?}");
        }
    }

    fn close_code(&mut self) -> u16 {
        loop {
            if let Some(close) = self.receive().close {
                return close.code.into();
            }
        }
    }
}

#[test]
fn a_terminal_takes_input_and_sizes_and_survives_a_disconnect() {
    let server = TestServer::new();
    let id = server.create();
    let body = json!({"cols": 80, "rows": 24, "shell": "/bin/sh", "cwd": "/tmp", "envs": {"A": "1"}});
    let pty = open(&server, &id, &body);
    let mut terminal = Terminal::connect(&server, &id, &pty, "");
    terminal.type_in("stty size; pwd; echo $A$TERM; tty\n");
    terminal.wait_for_output("24 80\r\n/tmp\r\n1xterm-256color\r\n/dev/pts/");
    terminal.send(&json!({"type": "ping"}));
    terminal.receive_until("pong");
    terminal.send(&json!({"type": "resize", "cols": 100, "rows": 30}));
    terminal.type_in("stty size\n");
    terminal.wait_for_output("30 100");
    let resize = format!("/api/v1/sandboxes/{id}/pty/{pty}/resize");
    assert_eq!(server.post(&resize, &json!({"cols": 55, "rows": 11})).status, 204);
    terminal.type_in("stty size\n");
    terminal.wait_for_output("11 55");
    terminal.socket.send(Message::binary(b"echo binary $((3*4))\n".to_vec())).unwrap();
    terminal.wait_for_output("binary 12");
    // Ctrl-C interrupts the running command.
    terminal.type_in("sleep 1000\n");
    wait_until("it sleeps", || server.run(&id, "pgrep -x sleep")["exitCode"] == 0);
    terminal.type_in("\u{3}");
    terminal.wait_for_output("^C\r\n$ ");
    terminal.type_in("exit 7\n");
    assert_eq!(terminal.receive_until("exit")["exitCode"], 7);
    assert_eq!(terminal.close_code(), 1000);
    wait_until("it is closed", || {
        let answer = server.post(&resize, &json!({"cols": 5, "rows": 5}));
        answer.status != 204 && answer.error() == "PTY_CLOSED"
    });
    // The last output is still available.
    let mut again = Terminal::connect(&server, &id, &pty, "");
    assert_eq!(again.receive_until("exit")["exitCode"], 7);
    assert!(String::from_utf8_lossy(&again.shown).contains("binary 12"));
}

/// Creates a ticket with a key or a token.
fn ticket(server: &TestServer, key: &str, sandbox: &str, pty: &str, body: &Value) -> String {
    let path = format!("/api/v1/sandboxes/{sandbox}/pty/{pty}/ticket");
    let answer = server.call_as(key, "POST", &path).json(&body.to_string()).send();
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["ticket"].as_str().unwrap().to_owned()
}

/// Creates a token.
fn token(server: &TestServer, sandbox: &str, body: &Value) -> String {
    let answer = server.post(&format!("/api/v1/sandboxes/{sandbox}/token"), body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_ticket_opens_one_connection_without_a_key() {
    let server = TestServer::new();
    let id = server.create();
    let pty = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let once = ticket(&server, KEY, &id, &pty, &json!({}));
    let mut terminal = Terminal::connect_with_ticket(&server, &id, &pty, &once).unwrap();
    terminal.type_in("echo by $((40+2))\n");
    terminal.wait_for_output("by 42");
    assert_eq!(Terminal::connect_with_ticket(&server, &id, &pty, &once).err(), Some(401), "it was used");
    assert_eq!(Terminal::try_connect_as(&server, None, &id, &pty, "").err(), Some(401));
    let other = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let once = ticket(&server, KEY, &id, &pty, &json!({}));
    assert_eq!(Terminal::connect_with_ticket(&server, &id, &other, &once).err(), Some(401));
    let mut again = ticket(&server, KEY, &id, &pty, &json!({}));
    again.push_str("&binary=true");
    Terminal::connect_with_ticket(&server, &id, &pty, &again).unwrap().wait_for_output("by 42");
}

#[test]
fn a_read_only_ticket_shows_output_and_refuses_input() {
    let server = TestServer::new();
    let id = server.create();
    let pty = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let once = ticket(&server, KEY, &id, &pty, &json!({"readOnly": true}));
    let mut reader = Terminal::connect_with_ticket(&server, &id, &pty, &once).unwrap();
    for message in [
        Message::text(json!({"type": "input", "data": BASE64_STANDARD.encode("echo no\n")}).to_string()),
        Message::binary(b"echo no\n".to_vec()),
        Message::binary(b"\x03".to_vec()),
        Message::text(json!({"type": "resize", "cols": 5, "rows": 5}).to_string()),
    ] {
        reader.socket.send(message).unwrap();
        assert_eq!(reader.receive_until("error")["message"], "this connection is read-only");
    }
    reader.send(&json!({"type": "ping"}));
    reader.receive_until("pong");
    let mut writer = Terminal::connect(&server, &id, &pty, "");
    writer.type_in("stty size; echo yes $((1+1))\n");
    reader.wait_for_output("24 80");
    reader.wait_for_output("yes 2");
    assert!(!String::from_utf8_lossy(&reader.shown).contains("echo no"));
}

#[test]
fn a_token_opens_terminals_and_creates_tickets() {
    let server = TestServer::new();
    let id = server.create();
    let token = token(&server, &id, &json!({"rights": ["terminal"]}));
    let body = json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}).to_string();
    let opened = server.call_as(&token, "POST", &format!("/api/v1/sandboxes/{id}/pty")).json(&body).send();
    assert_eq!(opened.status, 201, "{}", opened.body);
    let pty = opened.json()["id"].as_str().unwrap().to_owned();
    let mut by_token = Terminal::try_connect_as(&server, Some(&token), &id, &pty, "").unwrap();
    let once = ticket(&server, &token, &id, &pty, &json!({}));
    let mut by_ticket = Terminal::connect_with_ticket(&server, &id, &pty, &once).unwrap();
    by_token.type_in("echo token $((40+2))\n");
    by_ticket.wait_for_output("token 42");
    by_ticket.type_in("echo ticket $((40+2))\n");
    by_token.wait_for_output("ticket 42");
}

#[test]
fn connections_by_a_token_end_with_it_and_the_terminal_stays() {
    let server = TestServer::new();
    let id = server.create();
    let pty = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let token = token(&server, &id, &json!({"rights": ["terminal"], "expiresInSeconds": 5}));
    let mut by_token = Terminal::try_connect_as(&server, Some(&token), &id, &pty, "").unwrap();
    let once = ticket(&server, &token, &id, &pty, &json!({}));
    let mut by_ticket = Terminal::connect_with_ticket(&server, &id, &pty, &once).unwrap();
    assert_eq!((by_token.close_code(), by_ticket.close_code()), (1008, 1008));
    assert_eq!(Terminal::try_connect_as(&server, Some(&token), &id, &pty, "").err(), Some(401));
    let mut by_key = Terminal::connect(&server, &id, &pty, "");
    by_key.type_in("echo key $((40+2))\n");
    by_key.wait_for_output("key 42");
}

#[test]
fn tokens_and_tickets_are_in_no_log() {
    let server = TestServer::with(&[("RUST_LOG", "trace")]);
    let id = server.create();
    let token = token(&server, &id, &json!({"rights": ["process", "terminal"]}));
    let pty = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let once = ticket(&server, &token, &id, &pty, &json!({}));
    Terminal::connect_with_ticket(&server, &id, &pty, &once).unwrap();
    assert_eq!(Terminal::connect_with_ticket(&server, &id, &pty, &once).err(), Some(401));
    let run = server.call_as(&token, "POST", &format!("/api/v1/sandboxes/{id}/process/run?token={token}"));
    assert_eq!(run.json(r#"{"command":"true"}"#).send().status, 200);
    wait_until("the requests are logged", || {
        server.log().contains("POST /api/v1/sandboxes/{id}/process/run")
    });
    let audit = std::fs::read_to_string(server.path().join("audit.log")).unwrap();
    for text in [server.log(), audit] {
        assert!(!text.contains(&token) && !text.contains(&once));
        assert!(!text.contains(&token[4..]) && !text.contains(&once[4..]), "not even without the prefix");
    }
}

#[test]
fn output_can_be_sent_as_binary_messages() {
    let server = TestServer::new();
    let id = server.create();
    let pty = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let mut terminal = Terminal::connect(&server, &id, &pty, "?binary=true");
    terminal.type_in("stty raw -echo; printf '\\377\\376\\000end'\n");
    let mut binary = false;
    while !terminal.shown.ends_with(b"\xff\xfe\0end")
        && !terminal.shown.windows(6).any(|w| w == b"\xff\xfe\0end")
    {
        binary |= terminal.receive().binary;
    }
    assert!(binary);
}

#[test]
fn dropped_output_is_announced_with_the_next_offset() {
    let server = TestServer::new();
    let id = server.create();
    let pty = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let mut terminal = Terminal::connect(&server, &id, &pty, "?binary=true");
    terminal.type_in("head -c 2000000 /dev/zero | tr '\\0' x; echo; echo the $((40+2))\n");
    terminal.wait_for_output("the 42");
    let mut late = Terminal::connect(&server, &id, &pty, "?binary=true");
    let gap = late.receive_until("gap");
    assert_eq!(gap["from"], 0);
    assert!(late.shown.is_empty());
    late.wait_for_output("the 42");
    // Offsets count all output: the line as it was typed, and its result.
    let end = gap["to"].as_u64().unwrap() + late.shown.len() as u64;
    assert!((2_000_000..2_001_000).contains(&end), "{gap}, {} bytes", late.shown.len());
}

#[test]
fn invalid_messages_get_an_error_and_change_nothing() {
    let server = TestServer::new();
    let id = server.create();
    let pty = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let mut terminal = Terminal::connect(&server, &id, &pty, "");
    for wrong in [
        "not json",
        "{}",
        "[]",
        r#"{"type":"dance"}"#,
        r#"{"type":"input"}"#,
        r#"{"type":"input","data":"%%%"}"#,
        r#"{"type":"resize","cols":0,"rows":5}"#,
        r#"{"type":"resize","cols":-1,"rows":5}"#,
        r#"{"type":"resize","cols":70000,"rows":5}"#,
    ] {
        terminal.socket.send(Message::text(wrong)).unwrap();
        let error = terminal.receive_until("error");
        assert!(!error["message"].as_str().unwrap().is_empty(), "{wrong}");
    }
    terminal.type_in("stty size\n");
    terminal.wait_for_output("24 80");
    for wrong in [json!({"cols": 80}), json!({"cols": 0, "rows": 1}), json!({"cols": 1001, "rows": 1})] {
        let answer = server.post(&format!("/api/v1/sandboxes/{id}/pty"), &wrong);
        assert_eq!(answer.error(), "INVALID_REQUEST", "{wrong}");
    }
    let plain = server.get(&format!("/api/v1/sandboxes/{id}/pty/{pty}/ws"));
    assert_eq!(plain.error(), "INVALID_REQUEST", "it is a WebSocket");
    // A message that is too large closes the connection, but not the terminal.
    let large = vec![b'x'; 2 << 20];
    let _ = terminal.socket.send(Message::binary(large));
    wait_until("another connection works", || {
        let mut again = Terminal::connect(&server, &id, &pty, "");
        again.type_in("echo still $((1+1))\n");
        again.wait_for_output("still 2");
        true
    });
}

#[test]
fn the_number_of_terminals_is_limited() {
    let server = TestServer::new();
    let id = server.create();
    let size = json!({"cols": 80, "rows": 24, "shell": "/bin/sh"});
    let ptys: Vec<String> = (0..5).map(|_| open(&server, &id, &size)).collect();
    let path = format!("/api/v1/sandboxes/{id}/pty");
    let refused = server.post(&path, &size);
    assert_eq!(refused.error(), "PTY_LIMIT_EXCEEDED");
    assert_eq!(refused.json()["error"]["details"]["limit"], 5);
    assert_eq!(server.call("DELETE", &format!("{path}/{}", ptys[0])).send().status, 204);
    wait_until("there is room", || server.post(&path, &size).status == 201);
    assert_eq!(
        server.call("DELETE", &format!("{path}/{}", ptys[0])).send().status,
        204,
        "closed stays closed"
    );
    assert_eq!(server.call("DELETE", &format!("{path}/pty-none")).send().error(), "PTY_NOT_FOUND");
}

#[test]
fn reconnecting_shows_earlier_output_even_after_a_server_kill() {
    let mut server = TestServer::new();
    let id = server.create();
    let pty = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let mut terminal = Terminal::connect(&server, &id, &pty, "");
    terminal.type_in("X=kept; echo first $((40+2))\n");
    terminal.wait_for_output("first 42");
    drop(terminal);
    let mut again = Terminal::connect(&server, &id, &pty, "");
    again.wait_for_output("first 42");
    let both = Terminal::connect(&server, &id, &pty, "");
    server.restart();
    drop((again, both));
    wait_until("the guest is back", || server.sandbox(&id)["agentConnected"] == true);
    let mut after = Terminal::connect(&server, &id, &pty, "");
    after.wait_for_output("first 42");
    after.type_in("echo $X$((1+1))\n");
    after.wait_for_output("kept2");
    // With an offset, no output is repeated.
    let seen = after.shown.len();
    let mut rest = Terminal::connect(&server, &id, &pty, &format!("?from={seen}"));
    rest.type_in("echo more$((1+2))\n");
    rest.wait_for_output("more3");
    assert!(!String::from_utf8_lossy(&rest.shown).contains("first 42"));
}

#[test]
fn a_shutdown_notifies_clients_and_terminals_keep_running() {
    let mut server = TestServer::new();
    let id = server.create();
    let pty = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let mut terminal = Terminal::connect(&server, &id, &pty, "");
    terminal.type_in("echo here $((2*3))\n");
    terminal.wait_for_output("here 6");
    // A terminal with a lot of output, whose client does not read.
    let flood = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let mut deaf = Terminal::connect(&server, &id, &flood, "");
    deaf.type_in("yes 0123456789012345678901234567890123456789\n");
    std::thread::sleep(Duration::from_millis(500));
    let began = std::time::Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(terminal.close_code(), 1001);
    assert!(server.wait().success());
    assert!(began.elapsed() < Duration::from_secs(10), "nobody waits for who does not read");
    server.start();
    wait_until("the guest is back", || server.sandbox(&id)["agentConnected"] == true);
    let mut after = Terminal::connect(&server, &id, &pty, "");
    after.wait_for_output("here 6");
}

#[test]
fn a_silent_client_is_disconnected_with_a_reason() {
    let server = TestServer::with(&[("TERMINAL_TIMEOUT", "2")]);
    let id = server.create();
    let pty = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let path = format!("/api/v1/sandboxes/{id}/pty/{pty}/ws");
    // No WebSocket library, because it would respond to pings.
    let mut silent = TcpStream::connect(server.address()).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {KEY}\r\nconnection: upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    silent.write_all(head.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    silent.read_to_end(&mut bytes).unwrap();
    let ping = [0x89, 0];
    assert!(bytes.windows(2).any(|two| two == ping), "it was pinged");
    // A close frame: its code, 1008, and the reason.
    let close = bytes.windows(4).position(|four| four[0] == 0x88 && four[2..] == [0x03, 0xf0]);
    let close = close.unwrap_or_else(|| panic!("no close frame in {bytes:?}"));
    assert!(String::from_utf8_lossy(&bytes[close + 4..]).starts_with("the client sent nothing for 2 s"));

    // A client that only responds to pings stays connected.
    let mut quiet = Terminal::connect(&server, &id, &pty, "");
    let until = std::time::Instant::now() + Duration::from_secs(4);
    while std::time::Instant::now() < until {
        assert!(quiet.receive().close.is_none());
        quiet.socket.flush().unwrap();
    }
    quiet.type_in("echo still $((1+1))\n");
    quiet.wait_for_output("still 2");
}

#[test]
fn the_number_of_connections_to_a_terminal_is_limited() {
    let server = TestServer::new();
    let id = server.create();
    let pty = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let mut terminals: Vec<_> = (0..16).map(|_| Terminal::connect(&server, &id, &pty, "")).collect();
    assert_eq!(Terminal::try_connect(&server, &id, &pty, "").err(), Some(429));
    let other = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    Terminal::connect(&server, &id, &other, "");
    terminals.truncate(15);
    wait_until("there is a place again", || Terminal::try_connect(&server, &id, &pty, "").is_ok());
}

#[test]
fn a_frame_above_the_message_limit_is_refused_before_it_is_received() {
    let server = TestServer::new();
    let id = server.create();
    let pty = open(&server, &id, &json!({"cols": 80, "rows": 24, "shell": "/bin/sh"}));
    let mut terminal = Terminal::connect(&server, &id, &pty, "");
    // The head of a masked binary frame that announces 2 MiB; nothing follows.
    let mut head = vec![0x82, 0x80 | 127];
    head.extend((2_u64 << 20).to_be_bytes());
    head.extend([0; 4]);
    terminal.socket.get_mut().write_all(&head).unwrap();
    // The connection is closed at once, long before the first ping.
    terminal.socket.get_mut().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    loop {
        match terminal.socket.read() {
            Ok(Message::Close(_)) | Err(tungstenite::Error::ConnectionClosed) => break,
            Ok(_) => {}
            Err(tungstenite::Error::Io(error)) => {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the server waits for the rest");
                break;
            }
            Err(_) => break,
        }
    }
}

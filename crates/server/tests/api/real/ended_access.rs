//! Streams and WebSockets end with the token or the key that opened them.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::{Message, WebSocket};

use super::previews::APP;
use super::stream::Stream;
use super::test_server::{TestServer, wait_until};
use crate::support::KEY;

const PORT: u16 = 7000;

/// Sandbox of alice in which a command prints without an end.
struct Fixture {
    server: TestServer,
    key: String,
    sandbox: String,
    command: String,
}

impl Fixture {
    fn new() -> Self {
        let server = TestServer::new();
        let key = server.key("alice", "user");
        let body = json!({"template": "base"}).to_string();
        let sandbox = server.call_as(&key, "POST", "/api/v1/sandboxes").json(&body).send().json();
        let sandbox = sandbox["id"].as_str().unwrap().to_owned();
        let print = "while :; do echo line; sleep 0.05; done";
        let command = server.start_background(&sandbox, json!({"command": print, "timeout": 0}));
        Self { server, key, sandbox, command }
    }

    fn route(&self, path: &str) -> String {
        format!("/api/v1/sandboxes/{}/{path}", self.sandbox)
    }

    fn token(&self, rights: &Value, seconds: u64) -> String {
        let body = json!({"rights": rights, "expiresInSeconds": seconds}).to_string();
        let made = self.server.call_as(&self.key, "POST", &self.route("token")).json(&body).send();
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["token"].as_str().unwrap().to_owned()
    }

    fn output(&self, key: &str) -> Stream {
        let path = self.route(&format!("process/{}/output", self.command));
        Stream::open_as(&self.server, key, "GET", &path, &Value::Null).begun()
    }

    fn watch(&self, key: &str) -> Stream {
        Stream::open_as(&self.server, key, "GET", &self.route("watch/workspace"), &Value::Null).begun()
    }

    fn terminal(&self, key: &str) -> WebSocket<TcpStream> {
        let body = json!({"cols": 80, "rows": 24, "shell": "/bin/sh"});
        let opened = self.server.post(&self.route("pty"), &body);
        assert_eq!(opened.status, 201, "{}", opened.body);
        let path = self.route(&format!("pty/{}/ws", opened.json()["id"].as_str().unwrap()));
        self.websocket("test", &path, ("authorization", &format!("Bearer {key}")))
    }

    /// Starts the program that listens.
    fn serve(&self) {
        self.server.output_of(&self.sandbox, &format!("cat > /tmp/app.py <<'EOF'\n{APP}\nEOF"));
        let command = format!("exec /usr/bin/python3 /tmp/app.py {PORT}");
        self.server.start_background(&self.sandbox, json!({"command": command, "timeout": 0}));
        wait_until("it listens", || {
            let ports = self.server.get(&self.route("ports")).json();
            ports["items"].as_array().unwrap().iter().any(|port| port["port"] == PORT)
        });
    }

    fn port(&self, key: &str) -> WebSocket<TcpStream> {
        let path = self.route(&format!("ports/{PORT}/connect"));
        self.websocket("test", &path, ("authorization", &format!("Bearer {key}")))
    }

    fn preview(&self, seconds: u64) -> WebSocket<TcpStream> {
        let body = json!({"expiresInSeconds": seconds}).to_string();
        let route = self.route(&format!("ports/{PORT}"));
        let made = self.server.call_as(&self.key, "POST", &route).json(&body).send();
        let token = made.json()["token"].as_str().unwrap().to_owned();
        let host = format!("{PORT}-{}.localhost", self.sandbox);
        self.websocket(&host, "/socket", ("x-workspace-preview-token", &token))
    }

    fn websocket(&self, host: &str, path: &str, header: (&'static str, &str)) -> WebSocket<TcpStream> {
        let stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut request = format!("ws://{host}{path}").into_client_request().unwrap();
        request.headers_mut().insert(header.0, header.1.parse().unwrap());
        tungstenite::client(request, stream).unwrap().0
    }

    /// Revokes the key of alice.
    fn revoke(&self) {
        let keys = self.server.get("/api/v1/keys").json();
        let found = keys["items"].as_array().unwrap().iter().find(|key| key["owner"] == "alice").unwrap();
        let path = format!("/api/v1/keys/{}", found["id"].as_str().unwrap());
        assert_eq!(self.server.call("DELETE", &path).send().status, 204);
    }

    fn is_running(&self) -> bool {
        self.server.command(&self.sandbox, &self.command)["state"] == "running"
    }
}

/// Checks that output ended with an event that has this reason, and can be resumed after it.
#[track_caller]
fn assert_ended(stream: &mut Stream, reason: &str) {
    let events = stream.rest();
    let [.., before, last] = &events[..] else { panic!("{events:?}") };
    assert_eq!((last.kind.as_str(), &last.data["message"]), ("ended", &json!(reason)), "{last:?}");
    assert_eq!((before.kind.as_str(), &before.id), ("stdout", &last.id), "it can be resumed there");
}

/// Returns code and reason with which the server closed a WebSocket.
fn close_frame(socket: &mut WebSocket<TcpStream>) -> (u16, String) {
    loop {
        if let Message::Close(frame) = socket.read().unwrap() {
            let frame = frame.unwrap();
            return (frame.code.into(), frame.reason.as_str().to_owned());
        }
    }
}

/// Checks that a WebSocket is closed without a closing handshake.
#[track_caller]
fn assert_closed(socket: &mut WebSocket<TcpStream>) {
    match socket.read().unwrap_err() {
        tungstenite::Error::Io(error) => {
            let timed_out = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind());
            assert!(!timed_out, "it is still open");
        }
        tungstenite::Error::Protocol(_) | tungstenite::Error::ConnectionClosed => {}
        error => panic!("{error}"),
    }
}

#[test]
fn output_streams_end_with_their_token() {
    let fixture = Fixture::new();
    let token = fixture.token(&json!(["process", "files:read"]), 3);
    let (mut output, mut watch) = (fixture.output(&token), fixture.watch(&token));
    let body = json!({"command": "while :; do echo line; sleep 0.05; done", "stream": true, "timeout": 0});
    let mut run =
        Stream::open_as(&fixture.server, &token, "POST", &fixture.route("process/run"), &body).begun();
    let body = json!({"command": "echo one; sleep 1000", "stream": true, "killOnDisconnect": true});
    let mut killed =
        Stream::open_as(&fixture.server, &token, "POST", &fixture.route("process/run"), &body).begun();
    let reason = "the token has expired";
    assert_ended(&mut output, reason);
    assert_ended(&mut run, reason);
    assert_ended(&mut killed, reason);
    let last = watch.rest().pop().unwrap();
    assert_eq!((last.kind.as_str(), &last.data["reason"]), ("ended", &json!(reason)));
    assert!(fixture.is_running(), "commands do not end with the token");
    wait_until("only the command whose client must stay was killed", || {
        let list = fixture.server.get(&fixture.route("process")).json();
        let items = list["items"].as_array().unwrap();
        items.iter().filter(|command| command["state"] == "running").count() == 2
    });
}

#[test]
fn streams_and_websockets_end_with_the_key_of_their_token() {
    let fixture = Fixture::new();
    fixture.serve();
    let token = fixture.token(&json!(["process", "files:read", "terminal", "ports"]), 3_600);
    let reason = "the key was revoked";
    let (mut output, mut by_key) = (fixture.output(&token), fixture.output(&fixture.key));
    let mut watch = fixture.watch(&token);
    let (mut terminal, mut port) = (fixture.terminal(&token), fixture.port(&token));
    let mut preview = fixture.preview(3_600);
    preview.send(Message::text("hello")).unwrap();
    assert_eq!(preview.read().unwrap(), Message::text("hello"));
    // A stream of another key stays.
    let mut other = fixture.output(KEY);
    fixture.revoke();
    assert_ended(&mut output, reason);
    assert_ended(&mut by_key, reason);
    assert_eq!(watch.rest().pop().unwrap().data["reason"], reason);
    assert_eq!(close_frame(&mut terminal), (1008, reason.to_owned()));
    assert_eq!(close_frame(&mut port), (1008, reason.to_owned()));
    assert_closed(&mut preview);
    assert!(fixture.is_running());
    let before = other.next().unwrap();
    assert!((0..10).all(|_| other.next().is_some_and(|event| event.kind == before.kind)));
}

#[test]
fn websockets_of_previews_and_ports_end_with_their_token() {
    let fixture = Fixture::new();
    fixture.serve();
    let mut preview = fixture.preview(4);
    let mut port = fixture.port(&fixture.token(&json!(["ports"]), 3));
    port.send(Message::binary(b"GET /endless HTTP/1.1\r\n\r\n".to_vec())).unwrap();
    preview.send(Message::text("hello")).unwrap();
    assert_eq!(preview.read().unwrap(), Message::text("hello"));
    assert_eq!(close_frame(&mut port), (1008, "the token has expired".to_owned()));
    assert_closed(&mut preview);
}

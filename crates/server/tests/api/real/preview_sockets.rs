//! Many WebSockets through one preview.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use tungstenite::client::IntoClientRequest as _;
use tungstenite::handshake::HandshakeError;
use tungstenite::{Message, WebSocket};

use super::previews::{PORT, Preview};
use super::test_server::{TestServer, wait_until};
use crate::support::Call;

const PROGRAM: &str = include_str!("previews/sockets.py");
/// Maximum number of WebSockets to one sandbox.
const SOCKETS: usize = 1_000;

fn open(server: &TestServer, preview: &Preview) -> Result<WebSocket<TcpStream>, u16> {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut request = format!("ws://{}/socket", preview.host).into_client_request().unwrap();
    request.headers_mut().insert("x-workspace-preview-token", preview.token.parse().unwrap());
    match tungstenite::client(request, stream) {
        Ok((socket, _)) => Ok(socket),
        Err(HandshakeError::Failure(tungstenite::Error::Http(answer))) => Err(answer.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_thousand_websockets_are_open_at_once() {
    let server = TestServer::new();
    // An ordinary owner, whose limits apply.
    let key = server.key("alice", "user");
    let created = server.call_as(&key, "POST", "/api/v1/sandboxes").json(r#"{"template":"base"}"#).send();
    let sandbox = created.json()["id"].as_str().unwrap().to_owned();
    server.output_of(&sandbox, &format!("cat > /tmp/sockets.py <<'EOF'\n{PROGRAM}\nEOF"));
    let command = format!("exec /usr/bin/python3 /tmp/sockets.py {PORT}");
    server.start_background(&sandbox, json!({ "command": command, "timeout": 0 }));
    let preview = Preview::create_as(&server, &key, &sandbox, PORT, &json!({}));
    let page = || {
        let call = Call::new(server.address(), "GET", "/").host(&preview.host);
        call.header("x-workspace-preview-token", &preview.token).send()
    };
    wait_until("the program listens", || page().status == 200);
    let before = server.resident_bytes();
    let mut sockets: Vec<_> = (0..SOCKETS).map(|_| open(&server, &preview).unwrap()).collect();
    for (number, socket) in sockets.iter_mut().enumerate() {
        socket.send(Message::text(number.to_string())).unwrap();
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        assert_eq!(socket.read().unwrap(), Message::text(number.to_string()));
    }
    assert_eq!(open(&server, &preview).unwrap_err(), 429);
    assert_eq!(page().body, "ok", "pages still load");
    assert_eq!(server.output_of(&sandbox, "echo usable"), "usable\n");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 128 << 20, "the server grew by {} MiB", grown >> 20);
    sockets.truncate(SOCKETS / 2);
    wait_until("there is a place again", || open(&server, &preview).is_ok());
    for socket in &mut sockets {
        socket.send(Message::text("again")).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text("again"));
    }
}

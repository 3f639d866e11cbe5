//! Previews over the server's own TLS.

use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tungstenite::Message;
use tungstenite::client::IntoClientRequest as _;

use super::previews::{APP, PORT};
use super::test_server::{TestServer, wait_until};
use crate::support::{Answer, KEY};
use crate::tls::certificate;

/// TLS connection to a server.
struct TlsStream(Child);

impl TlsStream {
    fn connect(server: &TestServer) -> Self {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-verify_quiet", "-servername", "localhost", "-connect"]);
        command.arg(server.address().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Read for TlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.stdout.as_mut().unwrap().read(buffer)
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.stdin.as_mut().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.stdin.as_mut().unwrap().flush()
    }
}

/// Sends a request, and returns the response.
fn request(server: &TestServer, method: &str, path: &str, host: &str, headers: &str, body: &str) -> Answer {
    let mut stream = TlsStream::connect(server);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.flush().unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    Answer::parse(&answer)
}

fn api(server: &TestServer, path: &str, body: &Value) -> Value {
    let headers = format!("authorization: Bearer {KEY}\r\ncontent-type: application/json\r\n");
    let answer =
        request(server, "POST", &format!("/api/v1/sandboxes{path}"), "test", &headers, &body.to_string());
    assert!(answer.status < 300, "{}", answer.body);
    answer.json()
}

#[test]
fn a_preview_works_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = certificate(directory.path());
    let server = TestServer::with(&[("TLS_CERT", &cert), ("TLS_KEY", &key)]);
    let sandbox = api(&server, "", &json!({"template": "base"}))["id"].as_str().unwrap().to_owned();
    let write = format!("cat > /tmp/app.py <<'EOF'\n{APP}\nEOF");
    api(&server, &format!("/{sandbox}/process/run"), &json!({ "command": write }));
    let serve = format!("exec /usr/bin/python3 /tmp/app.py {PORT}");
    api(
        &server,
        &format!("/{sandbox}/process/run"),
        &json!({"command": serve, "background": true, "timeout": 0}),
    );
    let preview = api(&server, &format!("/{sandbox}/ports/{PORT}"), &json!({}));
    let token = preview["token"].as_str().unwrap();
    let host = format!("{PORT}-{sandbox}.localhost");
    assert_eq!(preview["url"], format!("https://{host}/?workspace_token={token}"));
    let header = format!("x-workspace-preview-token: {token}\r\n");
    wait_until("the program listens", || request(&server, "GET", "/echo", &host, &header, "").status == 200);
    let echo = request(&server, "GET", "/echo", &host, &header, "").json();
    let headers = echo["headers"].as_array().unwrap();
    assert!(headers.contains(&json!(["x-forwarded-proto", "https"])), "{headers:?}");
    let first = request(&server, "GET", &format!("/?workspace_token={token}"), &host, "", "");
    let cookie = first.header("set-cookie").unwrap();
    assert!(first.status == 303 && cookie.contains("; Secure"), "{cookie}");
    let path = preview["pathUrl"].as_str().unwrap().strip_prefix("https://test").unwrap();
    let sandboxed = request(&server, "GET", &format!("{path}echo"), "test", "", "");
    assert_eq!(sandboxed.header("content-security-policy"), Some("sandbox allow-scripts allow-forms"));

    let mut upgrade = format!("ws://{host}/socket").into_client_request().unwrap();
    upgrade.headers_mut().insert("x-workspace-preview-token", token.parse().unwrap());
    let (mut socket, _) = tungstenite::client(upgrade, TlsStream::connect(&server)).unwrap();
    for text in ["hello", "again"] {
        socket.send(Message::text(text)).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text(text));
    }
}

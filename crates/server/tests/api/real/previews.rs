//! Previews of HTTP servers in sandboxes without a network.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::handshake::HandshakeError;
use tungstenite::{Message, WebSocket};

use super::test_server::{TestServer, wait_until};
use crate::support::Answer;

pub(super) const APP: &str = include_str!("previews/app.py");
pub(super) const PORT: u16 = 8000;

/// Sandbox with an HTTP server, and a preview of it.
struct Fixture {
    server: TestServer,
    sandbox: String,
    preview: Preview,
}

#[derive(Debug, Clone)]
pub(super) struct Preview {
    pub(super) url: String,
    pub(super) path_url: String,
    pub(super) token: String,
    pub(super) host: String,
}

impl Preview {
    pub(super) fn create(server: &TestServer, sandbox: &str, port: u16, body: &Value) -> Self {
        Self::create_as(server, crate::support::KEY, sandbox, port, body)
    }

    pub(super) fn create_as(server: &TestServer, key: &str, sandbox: &str, port: u16, body: &Value) -> Self {
        let path = format!("/api/v1/sandboxes/{sandbox}/ports/{port}");
        let answer = server.call_as(key, "POST", &path).json(&body.to_string()).send();
        assert_eq!(answer.status, 201, "{}", answer.body);
        let field = |name: &str| answer.json()[name].as_str().unwrap().to_owned();
        let host = format!("{port}-{sandbox}.localhost");
        Self { url: field("url"), path_url: field("pathUrl"), token: field("token"), host }
    }

    fn cookie(&self) -> String {
        format!("cookie: own=1; workspace_preview={}\r\n", self.token)
    }

    fn header(&self) -> String {
        format!("x-workspace-preview-token: {}\r\n", self.token)
    }

    /// Path of the path form.
    fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.path_url.strip_prefix("http://test").unwrap())
    }
}

impl Fixture {
    fn new() -> Self {
        let server = TestServer::new();
        let sandbox = server.create();
        serve(&server, &sandbox);
        let preview = Preview::create(&server, &sandbox, PORT, &json!({}));
        let fixture = Self { server, sandbox, preview };
        wait_until("the program listens", || fixture.get("/echo").status == 200);
        fixture
    }

    /// Sends a request with the token in the header.
    fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &self.preview.host, &self.preview.header(), b"")
    }

    fn request(&self, method: &str, path: &str, host: &str, headers: &str, body: &[u8]) -> Answer {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}");
        let length =
            if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        self.raw(&[head.as_bytes(), length.as_bytes(), b"\r\n", body].concat())
    }

    /// Sends bytes, and returns the first response.
    fn raw(&self, bytes: &[u8]) -> Answer {
        Answer::parse(&exchange(&self.server, bytes))
    }
}

/// Starts the program in a sandbox.
pub(super) fn serve(server: &TestServer, sandbox: &str) {
    server.output_of(sandbox, &format!("cat > /tmp/app.py <<'EOF'\n{APP}\nEOF"));
    let command = format!("exec /usr/bin/python3 /tmp/app.py {PORT}");
    server.start_background(sandbox, json!({ "command": command, "timeout": 600_000 }));
}

/// Sends bytes, and reads until the server closes the connection.
fn exchange(server: &TestServer, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(server);
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A connection that is closed with unread bytes is reset.
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn connect(server: &TestServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Returns the values of a header that the program got.
fn got<'a>(echo: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = echo["headers"].as_array().unwrap().iter();
    headers.filter(|header| header[0] == name).map(|header| header[1].as_str().unwrap()).collect()
}

fn values<'a>(answer: &'a Answer, name: &str) -> Vec<&'a str> {
    let lines = answer.head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(found, _)| *found == name).map(|(_, value)| value).collect()
}

#[test]
fn a_preview_forwards_requests_without_credentials_and_responses_without_changes() {
    let fixture = Fixture::new();
    let Fixture { server, sandbox, preview } = &fixture;
    let host = &preview.host;
    assert_eq!(preview.url, format!("http://{host}/?workspace_token={}", preview.token));
    assert_eq!(preview.path_url, format!("http://test/preview/{sandbox}/{PORT}/@{}/", preview.token));

    let headers = format!(
        "{}x-forwarded-for: 1.2.3.4\r\nforwarded: for=1.2.3.4\r\nconnection: x-hop\r\nx-hop: 1\r\nx-own: 2\r\n",
        preview.header()
    );
    let answer = fixture.request("POST", "/echo?a=%20b&workspace_token=x&c", host, &headers, b"some body");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let echo = answer.json();
    assert_eq!(
        (&echo["method"], &echo["path"], &echo["body"]),
        (&json!("POST"), &json!("/echo?a=%20b&c"), &json!("some body"))
    );
    assert_eq!(got(&echo, "host"), [host.as_str()]);
    assert_eq!(got(&echo, "x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(got(&echo, "x-forwarded-host"), [host.as_str()]);
    assert_eq!(got(&echo, "x-forwarded-proto"), ["http"]);
    assert_eq!(got(&echo, "x-own"), ["2"]);
    for name in ["x-workspace-preview-token", "forwarded", "x-hop", "cookie", "connection"] {
        assert_eq!(got(&echo, name), [""; 0], "{name}");
    }
    let head = fixture.request("HEAD", "/echo", host, &preview.header(), b"");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(head.header("content-length").unwrap().parse::<usize>().unwrap() > 10);

    let answer = fixture.get("/headers");
    assert_eq!(values(&answer, "set-cookie"), ["a=1; Path=/"], "the domain and the stolen name are gone");
    assert_eq!(answer.header("x-own"), Some("kept"));
    assert_eq!(answer.header("content-security-policy"), Some("default-src *"));
    assert_eq!((answer.header("keep-alive"), answer.header("clear-site-data")), (None, None));

    let local = Preview::create(server, sandbox, PORT, &json!({"hostHeader": "localhost"}));
    let echo = fixture.request("GET", "/echo", host, &local.header(), b"").json();
    assert_eq!(got(&echo, "host"), [format!("localhost:{PORT}")]);
    assert_eq!(got(&echo, "x-forwarded-host"), [host.as_str()]);
}

#[test]
fn a_token_in_the_url_becomes_a_cookie_of_the_preview() {
    let fixture = Fixture::new();
    let preview = &fixture.preview;
    let path = format!("/echo?a=1&workspace_token={}&b=2", preview.token);
    let answer = fixture.request("GET", &path, &preview.host, "", b"");
    assert_eq!((answer.status, answer.header("location")), (303, Some("/echo?a=1&b=2")));
    let cookie = answer.header("set-cookie").unwrap();
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(pair, format!("workspace_preview={}", preview.token));
    assert!(attributes.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{attributes}");
    assert!(!attributes.contains("Secure") && !attributes.contains("Domain"), "{attributes}");
    let outside = format!("//evil.org/?workspace_token={}", preview.token);
    let answer = fixture.request("GET", &outside, &preview.host, "", b"");
    assert_eq!((answer.status, answer.header("location")), (303, Some("/.//evil.org/")));

    let echo = fixture.request("GET", "/echo?a=1", &preview.host, &preview.cookie(), b"").json();
    assert_eq!((got(&echo, "cookie"), &echo["path"]), (vec!["own=1"], &json!("/echo?a=1")));
    let post = |origin: &str| {
        let headers = format!("{}origin: {origin}\r\n", preview.cookie());
        fixture.request("POST", "/echo", &preview.host, &headers, b"x").status
    };
    assert_eq!(post(&format!("http://{}", preview.host)), 200);
    for origin in ["https://evil.org", "null", "http://8000-sbx-other.localhost", "http://localhost"] {
        assert_eq!(post(origin), 403, "{origin}");
    }
    let answer = fixture.server.call("GET", "/api/v1/sandboxes").header("cookie", &preview.cookie()).send();
    assert_eq!(answer.status, 200);
    let api = fixture.request("GET", "/api/v1/sandboxes", "localhost", &preview.cookie(), b"");
    assert_eq!(api.error(), "UNAUTHORIZED", "the API accepts no cookies");
}

#[test]
fn a_token_is_valid_for_its_port_and_ends_with_its_time_and_its_key() {
    let fixture = Fixture::new();
    let Fixture { server, sandbox, preview } = &fixture;
    let status = |host: &str, token: &str| {
        let headers = format!("x-workspace-preview-token: {token}\r\n");
        let answer = fixture.request("GET", "/echo", host, &headers, b"");
        if answer.status == 401 {
            assert_eq!(answer.error(), "UNAUTHORIZED");
        }
        answer.status
    };
    let (host, token) = (preview.host.as_str(), preview.token.as_str());
    assert_eq!(status(host, token), 200);
    let other = server.create();
    for wrong in [
        format!("8001-{sandbox}.localhost"),
        format!("{PORT}-{other}.localhost"),
        format!("{PORT}-sbx-0.localhost"),
    ] {
        assert_eq!(status(&wrong, token), 401, "{wrong}");
    }
    let tampered = format!("{}A{}", &token[..20], &token[21..]);
    let tampered = if tampered == token { format!("{}B{}", &token[..20], &token[21..]) } else { tampered };
    for wrong in [tampered.as_str(), &token[..token.len() - 1], "", "wsp_x"] {
        assert_eq!(status(host, wrong), 401, "{wrong}");
    }
    let short = Preview::create(server, sandbox, PORT, &json!({"expiresInSeconds": 1}));
    wait_until("the token has expired", || status(host, &short.token) == 401);

    let key = server.key("alice", "admin");
    let answer =
        server.call_as(&key, "POST", &format!("/api/v1/sandboxes/{sandbox}/ports/{PORT}")).json("{}").send();
    let of_key = answer.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(status(host, &of_key), 200);
    let keys = server.get("/api/v1/keys").json();
    let found = keys["items"].as_array().unwrap().iter().find(|key| key["owner"] == "alice").unwrap();
    let id = found["id"].as_str().unwrap();
    assert_eq!(server.call("DELETE", &format!("/api/v1/keys/{id}")).send().status, 204);
    assert_eq!(status(host, &of_key), 401, "its key was revoked");

    let page = fixture.request("GET", "/", host, "accept: text/html\r\n", b"");
    assert_eq!((page.status, page.header("content-type")), (401, Some("text/html; charset=utf-8")));
    assert!(page.body.contains("POST /api/v1/sandboxes/{id}/ports/{port}"), "{}", page.body);
    let unknown = fixture.request("GET", "/", "1-sbx-0.localhost", "accept: text/html\r\n", b"");
    let without_id = |answer: &Answer| answer.body.split(", request ").next().unwrap().to_owned();
    assert_eq!(without_id(&unknown), without_id(&page), "nobody learns which sandboxes exist");
    let secrets = [token, &short.token, &of_key];
    let log = server.log();
    assert!(log.contains("GET (preview)"), "{log}");
    let audit = std::fs::read_to_string(server.path().join("audit.log")).unwrap();
    for secret in secrets {
        assert!(!log.contains(secret) && !audit.contains(secret));
    }
}

#[test]
fn previews_are_made_by_the_owner_of_the_sandbox() {
    let server = TestServer::new();
    let sandbox = server.create();
    let path = |port: &str| format!("/api/v1/sandboxes/{sandbox}/ports/{port}");
    let (other, reader) = (server.key("bob", "user"), server.key("bob", "read_only"));
    assert_eq!(server.call_as(&other, "POST", &path("80")).json("{}").send().error(), "SANDBOX_NOT_FOUND");
    assert_eq!(server.call_as(&reader, "POST", &path("80")).json("{}").send().error(), "FORBIDDEN");
    for port in ["0", "65536", "x"] {
        assert_eq!(server.post(&path(port), &json!({})).error(), "INVALID_REQUEST", "{port}");
    }
    for body in
        [json!({"expiresInSeconds": 0}), json!({"expiresInSeconds": 86_401}), json!({"hostHeader": "x"})]
    {
        assert_eq!(server.post(&path("80"), &body).error(), "INVALID_REQUEST", "{body}");
    }
    let answer = server.call("POST", &path("80")).send();
    assert_eq!(answer.status, 201, "a body is not needed: {}", answer.body);
    let token = answer.json()["token"].as_str().unwrap().to_owned();
    let request = |accept: &str| {
        let bytes = format!(
            "GET / HTTP/1.1\r\nhost: 80-{sandbox}.localhost\r\nconnection: close\r\naccept: {accept}\r\n\
             x-workspace-preview-token: {token}\r\n\r\n"
        );
        Answer::parse(&exchange(&server, bytes.as_bytes()))
    };
    assert_eq!(request("*/*").error(), "PORT_NOT_LISTENING");
    let page = request("text/html");
    assert!(page.status == 502 && page.body.contains("nothing listens on port 80"), "{}", page.body);
    server.delete(&sandbox);
    assert_eq!(request("*/*").error(), "SANDBOX_NOT_FOUND");
}

#[test]
fn bodies_are_streamed_in_both_directions() {
    let fixture = Fixture::new();
    let Fixture { server, sandbox, preview } = &fixture;
    let mut stream = connect(server);
    let head = format!("GET /stream HTTP/1.0\r\nhost: {}\r\n{}\r\n", preview.host, preview.header());
    stream.write_all(head.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while line != "one\n" {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the first part comes before the second is made");
    }
    server.output_of(sandbox, "touch /tmp/go");
    line.clear();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "two\n");

    let large = exchange(
        server,
        format!("GET /large?48 HTTP/1.0\r\nhost: {}\r\n{}\r\n", preview.host, preview.header()).as_bytes(),
    );
    let start = large.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = &large[start..];
    assert_eq!(body.len(), 48 << 20);
    assert!(body.chunks(256).all(|chunk| chunk.iter().copied().eq(0..=255)));

    let mut stream = connect(server);
    let head = format!(
        "POST /hash HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n{}\r\n",
        preview.host,
        preview.header()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let piece = [7; 65_536];
    for _ in 0..256 {
        stream.write_all(&[b"10000\r\n", &piece[..], b"\r\n"].concat()).unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let expected = server.output_of(sandbox, "head -c 16777216 /dev/zero | tr '\\0' '\\007' | sha256sum");
    assert_eq!(Answer::parse(&answer).body, expected.split(' ').next().unwrap());
}

/// Sends requests at once over one connection. Returns the numbers of the program's connections that they were
/// forwarded on.
fn numbers(fixture: &Fixture, requests: &[String]) -> Vec<u64> {
    let answers = exchange(&fixture.server, requests.concat().as_bytes());
    let text = String::from_utf8(answers).unwrap();
    let after = text.split("\"connection\": ").skip(1);
    after.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()).collect()
}

#[test]
fn connections_to_the_program_are_reused_by_the_same_token_only() {
    let fixture = Fixture::new();
    let Fixture { server, sandbox, preview } = &fixture;
    let another = Preview::create(server, sandbox, PORT, &json!({"expiresInSeconds": 100}));
    let get = |preview: &Preview, more: &str| {
        format!("GET /echo HTTP/1.1\r\nhost: {}\r\n{}{more}\r\n", preview.host, preview.header())
    };
    let last = "connection: close\r\n";
    let requests = [get(preview, ""), get(&another, ""), get(preview, ""), get(&another, last)];
    let found = numbers(&fixture, &requests);
    assert!(matches!(found[..], [a, b, c, d] if a == c && b == d && a != b), "{found:?}");

    // The rest of a body that comes after the response would be taken for the next request.
    let early = format!(
        "POST /early HTTP/1.1\r\nhost: {}\r\ncontent-length: 10\r\n{}\r\nabc",
        preview.host,
        preview.header()
    );
    let found = numbers(&fixture, &[get(preview, ""), early]);
    assert!(matches!(found[..], [a, b] if a == b), "{found:?}");
    assert_ne!(numbers(&fixture, &[get(preview, last)]), found[..1]);
    let garbage = fixture.get("/garbage");
    assert_eq!(garbage.error(), "PREVIEW_FAILED");
    assert!(garbage.body.contains("not valid HTTP/1.1"), "{}", garbage.body);
    assert_eq!(fixture.get("/echo").status, 200);
}

#[test]
fn the_path_form_is_sandboxed_and_has_no_cookies() {
    let fixture = Fixture::new();
    let preview = &fixture.preview;
    let get = |path: &str, headers: &str| fixture.request("GET", path, "localhost", headers, b"");
    let secrets = "cookie: session=1\r\nauthorization: Bearer x\r\nx-api-key: x\r\nreferer: http://x/\r\n";
    let echo = get(&preview.path("echo?a=1"), secrets).json();
    assert_eq!(echo["path"], "/echo?a=1");
    for name in ["cookie", "authorization", "x-api-key", "referer"] {
        assert_eq!(got(&echo, name), [""; 0], "{name}");
    }
    assert!(!echo.to_string().contains(&preview.token));
    let answer = get(&preview.path("headers"), "");
    assert_eq!(
        values(&answer, "content-security-policy"),
        ["default-src *", "sandbox allow-scripts allow-forms"]
    );
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(answer.header("x-own"), Some("kept"));
    for name in
        ["set-cookie", "clear-site-data", "service-worker-allowed", "alt-svc", "strict-transport-security"]
    {
        assert_eq!(answer.header(name), None, "{name}");
    }
    let prefix = preview.path("");
    let redirect = get(&preview.path("redirect"), "");
    assert_eq!((redirect.status, redirect.header("location")), (302, Some(preview.path("echo").as_str())));
    let slash = get(&format!("{}?a=1", prefix.trim_end_matches('/')), "");
    assert_eq!((slash.status, slash.header("location")), (307, Some(format!("{prefix}?a=1").as_str())));
    assert_eq!(get(&preview.path("sw.js"), "service-worker: script\r\n").error(), "FORBIDDEN");
    for wrong in [prefix.replace("/8000/", "/8001/"), prefix.replace('@', "@x"), "/preview/".to_owned()] {
        assert_eq!(get(&wrong, "").error(), "UNAUTHORIZED", "{wrong}");
    }
    let traversal = get(&preview.path("../../../../api/v1/sandboxes"), "").json();
    assert_eq!(traversal["path"], "/../../../../api/v1/sandboxes", "it reaches the program alone");
}

#[test]
fn ambiguous_requests_are_refused() {
    let fixture = Fixture::new();
    let (host, token) = (&fixture.preview.host, fixture.preview.header());
    let smuggled = format!("GET /smuggled HTTP/1.1\r\nhost: {host}\r\n{token}\r\n");
    let length = smuggled.len();
    let all = [
        format!(
            "POST /echo HTTP/1.1\r\nhost: {host}\r\n{token}content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
        ),
        format!(
            "POST /echo HTTP/1.1\r\nhost: {host}\r\n{token}transfer-encoding: chunked\r\ncontent-length: {length}\r\n\r\n0\r\n\r\n{smuggled}"
        ),
        format!(
            "POST /echo HTTP/1.1\r\nhost: {host}\r\n{token}transfer-encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"
        ),
        format!(
            "POST /echo HTTP/1.1\r\nhost: {host}\r\n{token}content-length: 1\r\ncontent-length: 2\r\n\r\nab"
        ),
        format!("POST /echo HTTP/1.1\r\nhost: {host}\r\n{token}content-length: +1\r\n\r\na"),
        format!(
            "POST /echo HTTP/1.1\r\nhost: {host}\r\n{token}transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n"
        ),
        format!("POST /echo HTTP/1.1\r\nhost: {host}\r\n{token}transfer-encoding : chunked\r\n\r\n0\r\n\r\n"),
        format!("POST /echo HTTP/1.1\r\nhost: {host}\r\n{token}transfer-encoding: chunked\r\n\r\nzz\r\n\r\n"),
        format!(
            "POST /echo HTTP/1.1\r\nhost: {host}\r\n{token}transfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"
        ),
        format!("GET /echo HTTP/1.1\r\nhost: {host}\r\nhost: localhost\r\n{token}\r\n"),
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\nhost: {host}\r\n\r\n"),
        format!("GET /echo HTTP/1.1\r\nhost: {host}\r\n{token}x: a\r\n b\r\n\r\n"),
        format!("GET /echo HTTP/1.1\r\nhost: {host}\r\n {token}\r\n\r\n"),
        format!("GET http://localhost/health HTTP/1.1\r\nhost: {host}\r\n{token}\r\n"),
        format!("GET /ec ho HTTP/1.1\r\nhost: {host}\r\n{token}\r\n"),
    ];
    for bytes in all {
        let answer = exchange(&fixture.server, bytes.as_bytes());
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with("HTTP/1.1 400 "), "{bytes}\n{text}");
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{bytes}\n{text}");
    }
    // On a connection that was used before.
    let first = format!("POST /echo HTTP/1.1\r\nhost: {host}\r\n{token}content-length: 3\r\n\r\nabc");
    let second = format!(
        "POST /echo HTTP/1.1\r\nhost: {host}\r\n{token}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    );
    let answer = exchange(&fixture.server, [first, second].concat().as_bytes());
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("HTTP/1.1 200 ") && text.contains("HTTP/1.1 400 "), "{text}");
    let echo = fixture.get("/echo").json();
    assert_eq!(echo["path"], "/echo", "the connections to the program were not confused");
}

#[test]
fn a_host_of_a_preview_has_no_routes_of_the_api() {
    let fixture = Fixture::new();
    let Fixture { server, sandbox, preview } = &fixture;
    let key = format!("authorization: Bearer {}\r\n", crate::support::KEY);
    for path in ["/api/v1/sandboxes", "/health", "/preview/x", "/"] {
        let refused = fixture.request("GET", path, &preview.host, &key, b"");
        assert_eq!(refused.error(), "UNAUTHORIZED", "{path}");
        let echo = fixture.get(path).json();
        assert_eq!(echo["path"], path);
    }
    for host in ["0-x.localhost", "99999-sbx-1.localhost", &format!("a.{}", preview.host)] {
        let answer = fixture.request("GET", "/health", host, &preview.header(), b"");
        assert_eq!(answer.error(), "UNAUTHORIZED", "{host}");
    }
    let absolute = format!("http://{}/echo", preview.host);
    let echo = fixture.request("GET", &absolute, &preview.host, &preview.header(), b"").json();
    assert_eq!(echo["path"], "/echo");
    for method in ["CONNECT", "TRACE"] {
        let target = if method == "CONNECT" { preview.host.as_str() } else { "/" };
        let answer = fixture.request(method, target, &preview.host, &preview.header(), b"");
        assert_eq!(answer.error(), "METHOD_NOT_ALLOWED", "{method}");
    }
    let upper = preview.host.to_uppercase();
    assert_eq!(fixture.request("GET", "/echo", &upper, &preview.header(), b"").status, 200);
    // Only the loopback of this sandbox is reachable: neither the API nor another sandbox.
    let api = Preview::create(server, sandbox, server.address().port(), &json!({}));
    let answer = fixture.request("GET", "/health", &api.host, &api.header(), b"");
    assert_eq!(answer.error(), "PORT_NOT_LISTENING");
    let other = server.create();
    let of_other = Preview::create(server, &other, PORT, &json!({}));
    let answer = fixture.request("GET", "/echo", &of_other.host, &of_other.header(), b"");
    assert_eq!(answer.error(), "PORT_NOT_LISTENING");
}

fn open_socket(fixture: &Fixture, headers: &[(&'static str, &str)]) -> Result<WebSocket<TcpStream>, u16> {
    let url = format!("ws://{}/socket", fixture.preview.host);
    let mut request = url.into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match tungstenite::client(request, connect(&fixture.server)) {
        Ok((socket, _)) => Ok(socket),
        Err(HandshakeError::Failure(tungstenite::Error::Http(answer))) => Err(answer.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn websockets_are_forwarded_until_the_sandbox_is_deleted() {
    let fixture = Fixture::new();
    let Fixture { server, sandbox, preview } = &fixture;
    assert_eq!(open_socket(&fixture, &[]).unwrap_err(), 401);
    let cookie = format!("workspace_preview={}", preview.token);
    assert_eq!(
        open_socket(&fixture, &[("cookie", &cookie), ("origin", "https://evil.org")]).unwrap_err(),
        403
    );
    let origin = format!("http://{}", preview.host);
    let mut first = open_socket(&fixture, &[("cookie", &cookie), ("origin", &origin)]).unwrap();
    for text in ["hello", "again"] {
        first.send(Message::text(text)).unwrap();
        assert_eq!(first.read().unwrap(), Message::text(text));
    }
    first.close(None).unwrap();
    while first.read().is_ok() {}

    let mut second = open_socket(&fixture, &[("x-workspace-preview-token", &preview.token)]).unwrap();
    second.send(Message::text("x")).unwrap();
    assert_eq!(second.read().unwrap(), Message::text("x"));
    let mut stream = connect(server);
    let head = format!("GET /endless HTTP/1.0\r\nhost: {}\r\n{}\r\n", preview.host, preview.header());
    stream.write_all(head.as_bytes()).unwrap();
    let mut begun = Vec::new();
    while !begun.ends_with(b"begun") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        begun.push(byte[0]);
    }
    server.delete(sandbox);
    assert!(second.read().is_err(), "the socket was closed");
    let mut rest = Vec::new();
    // The end of a response that is not complete may be a reset.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
    assert_eq!(fixture.get("/echo").error(), "SANDBOX_NOT_FOUND");
}

#[test]
fn the_connection_to_the_program_is_closed_when_a_client_leaves() {
    let fixture = Fixture::new();
    let Fixture { server, sandbox, preview } = &fixture;
    let connections = || {
        let listed =
            server.output_of(sandbox, "grep -c ' 0100007F:1F40 [0-9A-F:]* 01 ' /proc/net/tcp || true");
        listed.trim().parse::<u32>().unwrap()
    };
    wait_until("idle connections were closed", || connections() == 0);
    let mut stream = connect(server);
    let head = format!("GET /endless HTTP/1.1\r\nhost: {}\r\n{}\r\n", preview.host, preview.header());
    stream.write_all(head.as_bytes()).unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    assert_eq!(connections(), 1);
    drop(stream);
    wait_until("the connection was closed", || connections() == 0);
}

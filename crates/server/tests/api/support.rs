//! Server on a free port, and an HTTP client without a library.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;
use uuid::Uuid;
use workspace_catalog::{NewSandbox, State, now};
use workspace_server::extract::{Json, Path, Query};
use workspace_server::settings::{HostEnvironment, SettingsSource};
use workspace_server::{ApiError, App, RouteGroup, Settings, StartedServer, route_groups, start};

pub(crate) const KEY: &str = "test-admin-key-0123456789";
/// Owner of the keys that [`Server::key`] creates.
pub(crate) const OWNER: &str = "someone";

/// Server in this process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) app: App,
    pub(crate) running: Option<JoinHandle<()>>,
    pub(crate) runtime: Runtime,
    pub(crate) data: TempDir,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// Starts a server with these variables.
    pub(crate) fn with(variables: &[(&str, &str)]) -> Self {
        Self::with_groups(variables, Vec::new())
    }

    /// Starts a server with these variables and further routes.
    pub(crate) fn with_groups(variables: &[(&str, &str)], more: Vec<RouteGroup>) -> Self {
        let data = tempfile::tempdir().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let groups = |_: &App| with_test_routes().into_iter().chain(more).collect::<Vec<_>>();
        let started = runtime.block_on(start(settings(&data, variables), groups)).unwrap();
        let StartedServer { app, server, address, metrics, lock, .. } = started;
        let running = runtime.spawn(async move {
            server.run().await;
            drop(lock);
        });
        Self { address: address.socket, metrics, app, running: Some(running), runtime, data }
    }

    pub(crate) fn call(&self, method: &str, path: &str) -> Call {
        Call::new(self.address, method, path)
    }

    pub(crate) fn audit(&self) -> Vec<Value> {
        self.app.audit.close();
        let text = std::fs::read_to_string(self.data.path().join("audit.log")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until a request is in progress.
    pub(crate) fn wait_for_a_request(&self) {
        while self.app.shutdown.in_progress() == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Creates a key with that role.
    pub(crate) fn key(&self, role: &str) -> String {
        let body = format!(r#"{{"name":"a test","owner":"{OWNER}","role":"{role}"}}"#);
        let answer = self.call("POST", "/api/v1/keys").key(KEY).json(&body).send();
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()["key"].as_str().unwrap().to_owned()
    }

    /// Adds a sandbox to the catalog, and returns its id. There are no processes in it.
    pub(crate) fn sandbox(&self, owner: &str) -> String {
        let id = format!("sbx-{}", Uuid::now_v7().simple());
        let new = NewSandbox {
            id: id.clone(),
            server: self.app.sandboxes.settings().server.clone(),
            state: State::Running,
            name: None,
            unique_name: false,
            owner: owner.to_owned(),
            template: "base".to_owned(),
            runtime: "embedded".to_owned(),
            network: "none".to_owned(),
            workspace_path: "/nowhere".to_owned(),
            token_hash: String::new(),
            labels: [].into(),
            config: json!({}),
            created_at: now(),
            expires_at: now() + 3_600_000,
        };
        self.runtime.block_on(self.app.catalog.sandboxes().insert(&new, &[])).unwrap();
        id
    }
}

pub(crate) fn settings(data: &TempDir, variables: &[(&str, &str)]) -> Settings {
    Settings::from_source(&settings_source(data, Some(KEY), variables)).unwrap()
}

pub(crate) fn settings_source(
    data: &TempDir,
    key: Option<&str>,
    variables: &[(&str, &str)],
) -> SettingsSource {
    let directory = data.path().to_str().unwrap();
    let always = [("DATA_DIR", directory), ("API_PORT", "0"), ("API_KEY", key.unwrap_or_default())];
    let variables = always.iter().chain(variables).map(|&(name, value)| (name.into(), value.into()));
    let around =
        HostEnvironment { program_directory: Some(PathBuf::from("/opt")), ..HostEnvironment::default() };
    SettingsSource::new(around, variables, None)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Echo {
    text: String,
    number: u8,
}

/// The API, with routes that do everything that handlers may do.
fn with_test_routes() -> Vec<RouteGroup> {
    let routes = Router::new()
        .route("/test/echo", post(async |Json(echo): Json<Echo>| format!("{} {}", echo.text, echo.number)))
        .route("/test/query", get(async |Query(echo): Query<Echo>| format!("{} {}", echo.text, echo.number)))
        .route("/test/path/{number}", get(async |Path(number): Path<u8>| number.to_string()))
        .route("/test/name/{name}", get(async |Path(name): Path<String>| name))
        .route("/test/panic", get(panics))
        .route("/test/internal", get(async || -> ApiError { ApiError::internal("the secret cause") }))
        .route("/test/slow", get(slow))
        .route("/test/endless", get(endless))
        .route("/test/large", get(async || "x".repeat(LARGE)));
    let mut groups = route_groups();
    groups.push(RouteGroup::authenticated(routes, utoipa::openapi::OpenApi::default()));
    groups
}

async fn panics() -> Body {
    panic!("on purpose")
}

async fn slow() -> &'static str {
    tokio::time::sleep(Duration::from_secs(2)).await;
    "done"
}

/// Size of a response in bytes that does not fit in the buffers of the kernel.
const LARGE: usize = 64 << 20;

/// Response that never ends.
async fn endless() -> Body {
    let begun = tokio_stream::once(Ok::<_, std::convert::Infallible>("begun"));
    Body::from_stream(begun.chain(tokio_stream::pending()))
}

/// HTTP request.
pub(crate) struct Call {
    address: SocketAddr,
    head: String,
    body: Vec<u8>,
}

impl Call {
    pub(crate) fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
        Self { address, head, body: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Sets another host.
    pub(crate) fn host(mut self, host: &str) -> Self {
        self.head = self.head.replacen("host: test", &format!("host: {host}"), 1);
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    pub(crate) fn json(self, body: &str) -> Self {
        self.header("content-type", "application/json").body(body.as_bytes())
    }

    pub(crate) fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    pub(crate) fn send(self) -> Answer {
        Answer::parse(&self.exchange().unwrap())
    }

    /// Sends the request, and returns the body as bytes, too. HTTP/1.0, so that it has no chunked encoding.
    pub(crate) fn send_for_bytes(mut self) -> (Answer, Vec<u8>) {
        self.head = self.head.replacen("HTTP/1.1", "HTTP/1.0", 1);
        let bytes = self.exchange().unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        (Answer::parse(&bytes), bytes[end..].to_vec())
    }

    /// Sends the request. Returns the head of the response, and its body, which must be complete and chunked.
    pub(crate) fn download(self) -> (String, Vec<u8>) {
        let bytes = self.exchange().unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let (mut rest, mut body) = (&bytes[end + 4..], Vec::new());
        loop {
            let line = rest.windows(2).position(|two| two == b"\r\n").expect("the body is complete");
            let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            if length == 0 {
                return (head, body);
            }
            body.extend_from_slice(&rest[line + 2..line + 2 + length]);
            rest = &rest[line + 2 + length + 2..];
        }
    }

    /// Sends the request. `None` if the server ends before it responds.
    pub(crate) fn try_send(self) -> Option<Answer> {
        self.exchange()
            .ok()
            .filter(|bytes| bytes.windows(4).any(|four| four == b"\r\n\r\n"))
            .map(|bytes| Answer::parse(&bytes))
    }

    fn exchange(self) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let length = format!("content-length: {}\r\n\r\n", self.body.len());
        let request = [self.head.as_bytes(), length.as_bytes(), &self.body].concat();
        stream.write_all(&request)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    }
}

/// HTTP response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer in {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().filter_map(|line| line.split_once(": ")).find(|it| it.0 == name).map(|it| it.1)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.body))
    }

    /// Returns the name of the error, and checks the form of the body.
    pub(crate) fn error(&self) -> String {
        let body = self.json();
        let error = &body["error"];
        let fields: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["code", "details", "message", "name", "requestId"]);
        assert_eq!(error["requestId"].as_str(), self.header("x-request-id"));
        let name = error["name"].as_str().unwrap();
        let code = workspace_api::error_codes::TABLE.iter().find(|code| code.name == name).unwrap();
        assert_eq!((error["code"].as_u64(), self.status), (Some(code.number.into()), code.status));
        assert!(error["details"].is_object() && !error["message"].as_str().unwrap().is_empty());
        name.to_owned()
    }
}

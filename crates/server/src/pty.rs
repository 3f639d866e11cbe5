//! `/api/v1/sandboxes/{id}/pty`: terminals in a sandbox.

#![allow(unused_qualifications, reason = "in what the macros of the description make of queries")]

pub(crate) mod socket;

use std::collections::BTreeMap;

use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, OpenApi, ToSchema};
use workspace_sandbox::{Size, TerminalRequest};

use crate::app::{App, Part};
use crate::audit::Entry;
use crate::auth::Caller;
use crate::code;
use crate::connections::Connection;
use crate::error::{ApiError, ErrorBody};
use crate::extract::{Json, Path, Query};
use crate::request::RequestId;
use crate::sandboxes::scope;

const MESSAGE_MAX: usize = 1 << 20;
/// Connections to one terminal at a time.
pub(crate) const CONNECTIONS_MAX: usize = 16;

/// A terminal to be opened.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Open {
    /// Characters in a line.
    #[schema(minimum = 1, maximum = 1000)]
    cols: u16,
    /// Lines.
    #[schema(minimum = 1, maximum = 1000)]
    rows: u16,
    /// What runs in it; `/bin/bash` if none is given, `/bin/sh` where that is not there.
    shell: Option<String>,
    /// A line for `/bin/sh`, or for `shell` if that is given; without it the shell asks for lines.
    command: Option<String>,
    /// In which directory; `/workspace` if none is given.
    cwd: Option<String>,
    /// Beside the sandbox's own variables.
    #[serde(default)]
    envs: BTreeMap<String, String>,
}

/// A terminal.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PtySession {
    /// Names it.
    id: String,
    /// Where to connect, with the same key.
    websocket_url: String,
}

/// A size.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Resize {
    /// Characters in a line.
    #[schema(minimum = 1, maximum = 1000)]
    cols: u16,
    /// Lines.
    #[schema(minimum = 1, maximum = 1000)]
    rows: u16,
}

/// How to connect.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ConnectQuery {
    /// The offset of the first byte to show; without it, all that is kept of the screen.
    from: Option<u64>,
    /// Whether output comes as binary messages instead of base64 in JSON.
    #[serde(default)]
    binary: bool,
}

#[derive(OpenApi)]
#[openapi(paths(open, resize, close, connect))]
struct Document;

/// The routes of this file.
pub(crate) fn part() -> Part {
    let routes = Router::new()
        .route("/api/v1/sandboxes/{id}/pty", post(open))
        .route("/api/v1/sandboxes/{id}/pty/{pty}", delete(close))
        .route("/api/v1/sandboxes/{id}/pty/{pty}/resize", post(resize))
        .route("/api/v1/sandboxes/{id}/pty/{pty}/ws", get(connect));
    Part { open: Router::new(), closed: routes, document: Document::openapi() }
}

/// Open a terminal.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/pty", tag = "pty", operation_id = "open_terminal",
    params(("id" = String, Path)), request_body = Open, responses(
    (status = 201, description = "The terminal", body = PtySession),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn open(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(order): Json<Open>,
) -> Result<(StatusCode, Json<PtySession>), ApiError> {
    let size = Size { cols: order.cols, rows: order.rows };
    let wanted = TerminalRequest {
        size,
        shell: order.shell,
        command: order.command,
        cwd: order.cwd,
        envs: order.envs,
    };
    let terminal = app.sandboxes.open_terminal(&scope(&caller), &id, wanted).await?;
    record(&app, &caller, &request, "pty.created", &id, &terminal.id);
    let scheme = if app.settings.tls_cert.is_some() { "wss" } else { "ws" };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let websocket_url = format!("{scheme}://{host}/api/v1/sandboxes/{id}/pty/{}/ws", terminal.id);
    Ok((StatusCode::CREATED, Json(PtySession { id: terminal.id, websocket_url })))
}

fn record(app: &App, caller: &Caller, request: &RequestId, event: &'static str, id: &str, pty: &str) {
    let (sandbox_id, details) = (Some(id.to_owned()), json!({ "pty_id": pty }));
    app.audit.record(Entry { sandbox_id, ..Entry::by(event, caller, request, details) });
}

/// Give a terminal another size.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/pty/{pty}/resize", tag = "pty", operation_id = "resize_terminal",
    params(("id" = String, Path), ("pty" = String, Path)), request_body = Resize, responses(
    (status = 204, description = "It has that size"),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn resize(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((id, pty)): Path<(String, String)>,
    Json(order): Json<Resize>,
) -> Result<StatusCode, ApiError> {
    let size = Size { cols: order.cols, rows: order.rows };
    app.sandboxes
        .resize(&scope(&caller), &id, &pty, size)
        .await
        .map_err(|error| socket::closed(error, &pty))?;
    record(&app, &caller, &request, "pty.resized", &id, &pty);
    Ok(StatusCode::NO_CONTENT)
}

/// Close a terminal and end all that runs in it.
#[utoipa::path(delete, path = "/api/v1/sandboxes/{id}/pty/{pty}", tag = "pty", operation_id = "close_terminal",
    params(("id" = String, Path), ("pty" = String, Path)), responses(
    (status = 204, description = "It is closed"),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn close(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((id, pty)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    app.sandboxes.close_terminal(&scope(&caller), &id, &pty).await?;
    record(&app, &caller, &request, "pty.closed", &id, &pty);
    Ok(StatusCode::NO_CONTENT)
}

/// Connect to a terminal by WebSocket. What it showed comes first.
///
/// The client sends `{"type":"input","data":BASE64}`, `{"type":"resize","cols":N,"rows":N}` and `{"type":"ping"}`,
/// or input as binary messages. The server sends `output`, `exit`, `pong` and `error`, and pings. A connection over
/// which nothing comes for `TERMINAL_TIMEOUT`, not even an answer to a ping, is closed with the code 1008.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/pty/{pty}/ws", tag = "pty", operation_id = "connect_terminal",
    params(("id" = String, Path), ("pty" = String, Path), ConnectQuery), responses(
    (status = 101, description = "A WebSocket"),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn connect(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((id, pty)): Path<(String, String)>,
    Query(query): Query<ConnectQuery>,
    connection: Option<Extension<Connection>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let scope = scope(&caller);
    let terminal = app.sandboxes.terminal(&scope, &id, &pty).await?;
    let upgrade = upgrade.map_err(|rejection| {
        ApiError::new(code::INVALID_REQUEST, format!("this path is a WebSocket: {rejection}"))
    })?;
    let place = app.terminal_connections.of(&terminal.id).try_acquire_owned().map_err(|_| {
        let message = format!("{CONNECTIONS_MAX} clients are connected to this terminal; close one");
        ApiError::new(code::PTY_LIMIT_EXCEEDED, message).detail("limit", CONNECTIONS_MAX)
    })?;
    let output = terminal.output(query.from.unwrap_or(0)).await?;
    // Whoever is connected may type.
    record(&app, &caller, &request, "pty.connected", &id, &pty);
    let session = socket::Session { app, scope, sandbox: id, terminal, binary: query.binary };
    let upgrade = upgrade.max_message_size(MESSAGE_MAX).max_frame_size(MESSAGE_MAX);
    // Places are taken for as long as somebody looks, and the connection is not idle.
    let busy = connection.map(|connection| connection.begin());
    Ok(upgrade.on_upgrade(async move |socket| {
        let _places = (place, busy);
        session.run(socket, output).await;
    }))
}

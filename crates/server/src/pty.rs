//! `/api/v1/sandboxes/{id}/pty`: terminals in a sandbox.

pub(crate) mod socket;

use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::terminals::{ConnectTerminalQuery, OpenTerminal, ResizeTerminal, Terminal};
use workspace_sandbox::{Size, TerminalRequest};

use crate::app::{App, TERMINAL_CONNECTIONS_MAX};
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::connections::Connection;
use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;

const MESSAGE_BYTES_MAX: usize = 1 << 20;

#[derive(OpenApi)]
#[openapi(paths(open, resize, close, connect))]
struct Document;

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        .route("/api/v1/sandboxes/{id}/pty", post(open))
        .route("/api/v1/sandboxes/{id}/pty/{pty}", delete(close))
        .route("/api/v1/sandboxes/{id}/pty/{pty}/resize", post(resize))
        .route("/api/v1/sandboxes/{id}/pty/{pty}/ws", get(connect));
    RouteGroup::authenticated(routes, Document::openapi())
}

/// Open a terminal in a sandbox.
///
/// Connect to it over WebSocket at `websocketUrl`.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/pty", tag = "pty", operation_id = "open_terminal",
    params(("id" = String, Path, description = "Id of the sandbox")), request_body = OpenTerminal, responses(
    (status = 201, description = "New terminal", body = Terminal),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn open(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(body): Json<OpenTerminal>,
) -> Result<(StatusCode, Json<Terminal>), ApiError> {
    let size = Size { cols: body.cols, rows: body.rows };
    let terminal =
        TerminalRequest { size, shell: body.shell, command: body.command, cwd: body.cwd, envs: body.envs };
    let terminal = app.sandboxes.open_terminal(&scope(&caller), &id, terminal).await?;
    record(&app, &caller, &request, "pty.created", &id, &terminal.id);
    let scheme = if app.settings.tls_cert.is_some() { "wss" } else { "ws" };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let websocket_url = format!("{scheme}://{host}/api/v1/sandboxes/{id}/pty/{}/ws", terminal.id);
    Ok((StatusCode::CREATED, Json(Terminal { id: terminal.id, websocket_url })))
}

fn record(app: &App, caller: &Caller, request: &RequestId, event: &'static str, id: &str, pty: &str) {
    let (sandbox_id, details) = (Some(id.to_owned()), json!({ "pty_id": pty }));
    app.audit.record(Entry { sandbox_id, ..Entry::for_caller(event, caller, request, details) });
}

/// Resize a terminal.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/pty/{pty}/resize", tag = "pty", operation_id = "resize_terminal",
    params(("id" = String, Path, description = "Id of the sandbox"), ("pty" = String, Path, description = "Id of the terminal")), request_body = ResizeTerminal, responses(
    (status = 204, description = "The terminal was resized"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn resize(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((id, pty)): Path<(String, String)>,
    Json(body): Json<ResizeTerminal>,
) -> Result<StatusCode, ApiError> {
    let size = Size { cols: body.cols, rows: body.rows };
    app.sandboxes
        .resize_terminal(&scope(&caller), &id, &pty, size)
        .await
        .map_err(|error| socket::map_closed(error, &pty))?;
    record(&app, &caller, &request, "pty.resized", &id, &pty);
    Ok(StatusCode::NO_CONTENT)
}

/// Close a terminal and kill all its processes.
#[utoipa::path(delete, path = "/api/v1/sandboxes/{id}/pty/{pty}", tag = "pty", operation_id = "close_terminal",
    params(("id" = String, Path, description = "Id of the sandbox"), ("pty" = String, Path, description = "Id of the terminal")), responses(
    (status = 204, description = "The terminal was closed"),
    (status = "default", description = "Error", body = ErrorBody),
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

/// Connect to a terminal over WebSocket.
///
/// The client sends `{"type":"input","data":BASE64}`, `{"type":"resize","cols":N,"rows":N}` and `{"type":"ping"}`, or
/// input as binary messages. The server first sends the retained output. It sends messages of the types `output`,
/// `gap` (output that is no longer retained), `exit`, `pong` and `error`, and WebSocket pings. If the client sends nothing for `TERMINAL_TIMEOUT`, not even a pong,
/// the server closes the connection with the code 1008.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/pty/{pty}/ws", tag = "pty", operation_id = "connect_terminal",
    params(("id" = String, Path, description = "Id of the sandbox"), ("pty" = String, Path, description = "Id of the terminal"), ConnectTerminalQuery), responses(
    (status = 101, description = "WebSocket connection"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn connect(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((id, pty)): Path<(String, String)>,
    Query(query): Query<ConnectTerminalQuery>,
    connection: Option<Extension<Connection>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let scope = scope(&caller);
    let terminal = app.sandboxes.terminal(&scope, &id, &pty).await?;
    let upgrade = upgrade.map_err(|rejection| {
        ApiError::new(
            error_codes::INVALID_REQUEST,
            format!("this path requires a WebSocket upgrade: {rejection}"),
        )
    })?;
    let permit = app.terminal_connections.semaphore(&terminal.id).try_acquire_owned().map_err(|_| {
        let message = format!(
            "{TERMINAL_CONNECTIONS_MAX} clients are already connected to this terminal; disconnect one"
        );
        ApiError::new(error_codes::PTY_LIMIT_EXCEEDED, message).detail("limit", TERMINAL_CONNECTIONS_MAX)
    })?;
    let output = terminal.output(query.from.unwrap_or(0)).await?;
    // Connections are logged, because every client may send input.
    record(&app, &caller, &request, "pty.connected", &id, &pty);
    let session = socket::Session { app, scope, sandbox: id, terminal, binary: query.binary };
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    // While the client is connected, the permit is held and the connection does not count as idle.
    let request = connection.map(|connection| connection.begin_request());
    Ok(upgrade.on_upgrade(async move |socket| {
        let _guards = (permit, request);
        session.run(socket, output).await;
    }))
}

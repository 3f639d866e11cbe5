//! `/api/v1/sandboxes/{id}/pty`: terminals in a sandbox. A terminal is called `pty` in paths and error codes of the
//! API.

pub(crate) mod socket;

use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use serde_json::{Value, json};
use utoipa::OpenApi;
use workspace_api::access::Right;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::terminals::{
    ConnectTerminalQuery, CreateTicket, OpenTerminal, ResizeTerminal, Terminal, TerminalTicket,
};
use workspace_catalog::now;
use workspace_sandbox::{Size, TerminalRequest};

use self::socket::InputMode;
use crate::access::{QueryCredential, Rule};
use crate::app::{App, TERMINAL_CONNECTIONS_MAX};
use crate::audit::Entry;
use crate::caller::{Caller, Credential, scope};
use crate::connections::Connection;
use crate::error::ApiError;
use crate::extract::{Json, Optional, Path, Query};
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;
use crate::stream_access::StreamAccess;
use crate::tickets::{TICKET_LIFETIME, TICKETS_PER_OWNER_MAX, Ticket, TicketError};
use crate::time::format_millis;

/// Maximum size of a WebSocket message of a client in bytes.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

#[derive(OpenApi)]
#[openapi(paths(open, resize, close, ticket, connect))]
struct Document;

const RULES: &[Rule] = &[
    Rule::right("POST", "/api/v1/sandboxes/{id}/pty", Right::Terminal),
    Rule::right("DELETE", "/api/v1/sandboxes/{id}/pty/{pty}", Right::Terminal),
    Rule::right("POST", "/api/v1/sandboxes/{id}/pty/{pty}/resize", Right::Terminal),
    Rule::right("POST", "/api/v1/sandboxes/{id}/pty/{pty}/ticket", Right::Terminal),
    Rule::right("GET", "/api/v1/sandboxes/{id}/pty/{pty}/ws", Right::Terminal)
        .or_query(QueryCredential::Ticket),
];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        .route("/api/v1/sandboxes/{id}/pty", post(open))
        .route("/api/v1/sandboxes/{id}/pty/{pty}", delete(close))
        .route("/api/v1/sandboxes/{id}/pty/{pty}/resize", post(resize))
        .route("/api/v1/sandboxes/{id}/pty/{pty}/ticket", post(ticket))
        .route("/api/v1/sandboxes/{id}/pty/{pty}/ws", get(connect));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
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
    let OpenTerminal { shell, command, cwd, envs, user, .. } = body;
    let terminal = TerminalRequest { size, shell, command, cwd, envs, user };
    let terminal = app.sandboxes.open_terminal(&scope(&caller), &id, terminal).await?;
    record(&app, &caller, &request, "pty.created", &id, json!({ "pty_id": terminal.id }));
    let scheme = if app.settings.tls_cert.is_some() { "wss" } else { "ws" };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let websocket_url = format!("{scheme}://{host}/api/v1/sandboxes/{id}/pty/{}/ws", terminal.id);
    Ok((StatusCode::CREATED, Json(Terminal { id: terminal.id, websocket_url })))
}

fn record(app: &App, caller: &Caller, request: &RequestId, event: &'static str, id: &str, details: Value) {
    let sandbox_id = Some(id.to_owned());
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
    record(&app, &caller, &request, "pty.resized", &id, json!({ "pty_id": pty }));
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
    record(&app, &caller, &request, "pty.closed", &id, json!({ "pty_id": pty }));
    Ok(StatusCode::NO_CONTENT)
}

/// Create a ticket for one connection to a terminal.
///
/// For browsers, which cannot send headers when they open a WebSocket: add `?ticket=TICKET` to `websocketUrl`. A ticket is
/// valid once, within 30 seconds, on the server that created it. An owner may have 100 unused tickets, else
/// `TICKET_LIMIT_EXCEEDED`. A connection by the ticket of a token is closed when the token expires.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/pty/{pty}/ticket", tag = "pty", operation_id = "create_ticket",
    params(("id" = String, Path, description = "Id of the sandbox"), ("pty" = String, Path, description = "Id of the terminal")), request_body = Option<CreateTicket>, responses(
    (status = 201, description = "Ticket", body = TerminalTicket),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn ticket(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((id, pty)): Path<(String, String)>,
    Optional(body): Optional<CreateTicket>,
) -> Result<(StatusCode, Json<TerminalTicket>), ApiError> {
    let scope = scope(&caller);
    let sandbox = app.sandboxes.get(&scope, &id).await?.sandbox;
    app.sandboxes.terminal(&scope, &id, &pty).await?;
    let expires_at = now().saturating_add(i64::try_from(TICKET_LIFETIME.as_millis()).unwrap_or(i64::MAX));
    let ticket = app.tickets.issue(Ticket {
        key_id: caller.key_id.clone(),
        owner: caller.owner.clone(),
        sandbox: sandbox.id,
        sandbox_owner: sandbox.owner,
        pty: pty.clone(),
        read_only: body.read_only,
        connection_ends_at: caller.grant.as_ref().and_then(|grant| grant.expires_at),
    });
    let ticket = ticket.map_err(ticket_error)?;
    let details = json!({ "pty_id": pty, "read_only": body.read_only });
    record(&app, &caller, &request, "pty.ticket_created", &id, details);
    let expires_at = format_millis(expires_at)?;
    Ok((StatusCode::CREATED, Json(TerminalTicket { ticket, expires_at })))
}

fn ticket_error(error: TicketError) -> ApiError {
    match error {
        TicketError::TooMany => {
            let message = "there are too many unused tickets; use them, or wait until they expire";
            ApiError::new(error_codes::TICKET_LIMIT_EXCEEDED, message).detail("limit", TICKETS_PER_OWNER_MAX)
        }
        TicketError::Random(_) => ApiError::internal(error),
    }
}

/// Connect to a terminal over WebSocket.
///
/// The client sends `{"type":"input","data":BASE64}`, `{"type":"resize","cols":N,"rows":N}` and `{"type":"ping"}`, or
/// input as binary messages. The server first sends the retained output. It sends messages of the types `output`,
/// `gap` (output that is no longer retained), `exit`, `pong` and `error`, and WebSocket pings. With a read-only ticket,
/// input and resizing are refused with an `error`. If the client sends nothing for `TERMINAL_TIMEOUT`, not even a pong,
/// the server closes the connection with the code 1008, and also when the token expires or its key is revoked.
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
    let mode = match caller.credential() {
        Some(Credential::Ticket { read_only: true }) => InputMode::Refused,
        Some(Credential::Ticket { read_only: false }) => InputMode::Accepted,
        _ if query.ticket.is_some() => {
            let message = "send either a key or a ticket, not both";
            return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "ticket"));
        }
        _ => InputMode::Accepted,
    };
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
    let details = json!({ "pty_id": pty, "read_only": mode == InputMode::Refused });
    record(&app, &caller, &request, "pty.connected", &id, details);
    let access = StreamAccess::of_caller(&app, &caller);
    let session = socket::Session { app, scope, sandbox: id, terminal, binary: query.binary, mode, access };
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    // While the client is connected, the permit is held and the connection does not count as idle.
    let request = connection.map(|connection| connection.begin_request());
    Ok(upgrade.on_upgrade(async move |socket| {
        let _guards = (permit, request);
        session.run(socket, output).await;
    }))
}

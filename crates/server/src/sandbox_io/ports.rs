//! `/api/v1/sandboxes/{id}/ports`: TCP ports of a sandbox, and connections to them.

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::Response;
use serde_json::json;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::ports::{ListeningPort, PortList};

use super::conversion::invalid;
use super::port_socket;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::connections::Connection;
use crate::error::ApiError;
use crate::extract::{Json, Path};
use crate::request_id::RequestId;
use crate::stream_access::StreamAccess;

/// Maximum size of a message of the client in bytes.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// List the TCP ports on which processes of a sandbox listen.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/ports", tag = "ports", operation_id = "list_ports",
    params(("id" = String, Path, description = "Id of the sandbox")), responses(
    (status = 200, description = "Ports", body = PortList),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<PortList>, ApiError> {
    let ports = app.sandboxes.list_ports(&scope(&caller), &id).await?;
    let items = ports.into_iter().map(|port| ListeningPort {
        port: port.port,
        address: port.address,
        pid: port.pid,
        program: port.program,
    });
    Ok(Json(PortList { items: items.collect() }))
}

/// Connect to a TCP port of a sandbox over WebSocket.
///
/// The server connects to the port on the loopback of the sandbox, which needs no network. Binary messages are the
/// bytes of the connection; an empty one ends its direction, and the other direction stays open. The server closes
/// the WebSocket with the code 1000 when both directions have ended, 1001 when it stops, 1008 if the client sends
/// nothing for `TERMINAL_TIMEOUT`, not even a pong, or when the token expires or its key is revoked, and 1011 if the
/// connection in the sandbox fails. Fails with `PORT_NOT_LISTENING` before the upgrade if nothing accepts the connection.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/ports/{port}/connect", tag = "ports", operation_id = "connect_port",
    params(("id" = String, Path, description = "Id of the sandbox"), ("port" = u16, Path, description = "Number of the port", minimum = 1)), responses(
    (status = 101, description = "WebSocket connection"),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn connect(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((id, port)): Path<(String, u16)>,
    connection: Option<Extension<Connection>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let scope = scope(&caller);
    app.sandboxes.get(&scope, &id).await?;
    if port == 0 {
        return Err(invalid("port", "a port is a number from 1 to 65535"));
    }
    let upgrade = upgrade.map_err(|rejection| {
        let message = format!("this path requires a WebSocket upgrade: {rejection}");
        ApiError::new(error_codes::INVALID_REQUEST, message)
    })?;
    let opened = app.sandboxes.connect_port(&scope, &id, port).await?;
    let details = json!({ "port": port });
    app.audit.record(Entry {
        sandbox_id: Some(id),
        ..Entry::for_caller("port.connected", &caller, &request, details)
    });
    let session = port_socket::Session {
        connection: opened,
        shutdown: app.shutdown.clone(),
        client_timeout: app.settings.terminal_timeout,
        access: StreamAccess::of_caller(&app, &caller),
    };
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    // While the client is connected, the connection does not count as idle.
    let guard = connection.map(|connection| connection.begin_request());
    Ok(upgrade.on_upgrade(async move |socket| {
        let _guard = guard;
        session.run(socket).await;
    }))
}

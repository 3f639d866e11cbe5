//! WebSockets to a server.

use hyper::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::connection::ServerConnection;
use super::{ApiError, RequestError, ServerUrl};

/// WebSocket to a server.
pub(super) type Socket = WebSocketStream<ServerConnection>;

/// Opens a WebSocket at a path of the API, with its query.
pub(super) async fn connect(server: &ServerUrl, path: &str) -> Result<Socket, RequestError> {
    let stream = ServerConnection::connect(server).await?;
    let url = server.websocket_url(path);
    let bad_request = |error: String| RequestError::Unreachable(format!("bad request: {error}"));
    let mut request = url.into_client_request().map_err(|error| bad_request(error.to_string()))?;
    if let Some(key) = &server.key {
        let value = format!("Bearer {key}").parse().map_err(|_| bad_request("the key".to_owned()))?;
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    match client_async(request, stream).await {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(response)) => {
            let body = response.body().as_deref().unwrap_or_default();
            Err(RequestError::Api(Box::new(ApiError::new(response.status(), None, body))))
        }
        Err(error) => Err(RequestError::Disconnected(error.to_string())),
    }
}

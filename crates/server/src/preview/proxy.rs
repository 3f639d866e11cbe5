//! Forwarding of requests to programs in sandboxes.
//!
//! hyper parses and writes the messages on both sides. Bytes are copied without parsing only after the program has
//! accepted a WebSocket (status 101).

use std::error::Error as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, UPGRADE};
use axum::http::{Method, StatusCode, Uri, Version};
use axum::response::Response;
use hyper::body::Incoming;
use tokio::time::timeout;
use workspace_api::error_codes;
use workspace_sandbox::{FileErrorKind, SandboxError};

use super::access::PreviewAccess;
use super::client_body::{ClientBody, ClientBodyError};
use super::headers::{self, Client, Form};
use super::pool::ProgramConnection;
use super::program_body::{BodyConnection, ProgramBody};
use super::state::{LimitReached, PreviewPermit, RequestKind};
use super::stream::PortStream;
use super::tunnel::Tunnel;
use crate::app::App;
use crate::caller::scope;
use crate::connections::Connection;
use crate::error::ApiError;

/// Timeout for the head of a response, after the request was sent.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(300);

/// Request for a program in a sandbox.
pub(crate) struct Forward {
    pub(crate) access: PreviewAccess,
    pub(crate) form: Form,
    pub(crate) client: Client,
    /// Path and query for the program.
    pub(crate) uri: Uri,
    pub(crate) request: Request,
}

/// Error of an exchange with a program.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The program sent no response in time.
    #[error("it sent no response for {} s", RESPONSE_TIMEOUT.as_secs())]
    TimedOut,
    /// The pooled connection was closed before the request was sent.
    #[error("the connection was closed")]
    Unsent(Box<hyper::Request<ClientBody>>),
}

/// Creates the error for a limit of previews.
pub(crate) fn limit_error(reached: LimitReached) -> ApiError {
    ApiError::new(error_codes::CONNECTION_LIMIT_EXCEEDED, reached.to_string()).detail("limit", reached.limit)
}

/// Forwards a request, and returns the response of the program.
pub(crate) async fn forward(app: &App, forward: Forward) -> Result<Response, ApiError> {
    let Forward { access, form, client, uri, mut request } = forward;
    let upgrade = hyper::upgrade::on(&mut request);
    let (mut parts, body) = request.into_parts();
    let kind = if headers::is_websocket(&parts) { RequestKind::WebSocket } else { RequestKind::Plain };
    let target = access.token.target.clone();
    let permit = app.previews.begin(&target.sandbox, &access.caller.owner, kind).map_err(limit_error)?;
    let bytes_max = app.settings.max_upload.0;
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > bytes_max) {
        return Err(body_error(ClientBodyError::TooLarge));
    }
    let connection = parts.extensions.get::<Connection>().cloned();
    let method = parts.method.clone();
    headers::prepare_request(&mut parts.headers, &form, &target, access.token.host_header, &client);
    if kind == RequestKind::WebSocket {
        headers::add_upgrade(&mut parts.headers);
    }
    (parts.uri, parts.version) = (uri, Version::HTTP_11);
    parts.extensions.clear();
    let request = hyper::Request::from_parts(parts, ClientBody::new(body, bytes_max));
    let is_sent = request.body().completion();
    let exchanged = exchange(app, &access, request, kind, &is_sent).await;
    let (mut response, program_connection) = exchanged.map_err(|error| to_api(error, target.port))?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let is_accepted = response.headers().get(UPGRADE).is_some_and(is_websocket);
        if kind != RequestKind::WebSocket || !is_accepted {
            return Err(failed(target.port, "it switched to a protocol that was not requested"));
        }
        let tunnel = Tunnel {
            client: upgrade,
            program: hyper::upgrade::on(&mut response),
            connection: program_connection,
            shutdown: app.shutdown.clone(),
        };
        // While the client is connected, the permit is held and the connection does not count as idle.
        let guards = (permit, connection.map(|connection| connection.begin_request()));
        tokio::spawn(tunnel.run(access.tunnel_ended(app), guards));
        let (mut parts, _) = response.into_parts();
        headers::prepare_response(&mut parts, &method, &form);
        headers::add_upgrade(&mut parts.headers);
        return Ok(Response::from_parts(parts, Body::empty()));
    }
    // If the program responded before it had the whole request, the rest of it would be taken for the next one.
    let is_reusable = kind == RequestKind::Plain && is_sent.load(Ordering::Relaxed);
    let pool = is_reusable.then(|| (app.previews.pool.clone(), access.pool_key()));
    let connection = BodyConnection { connection: program_connection, pool };
    Ok(response_for_client(app, response, &method, &form, &access, connection, permit))
}

fn is_websocket(value: &axum::http::HeaderValue) -> bool {
    value.as_bytes().eq_ignore_ascii_case(b"websocket")
}

fn response_for_client(
    app: &App,
    response: hyper::Response<Incoming>,
    method: &Method,
    form: &Form,
    access: &PreviewAccess,
    connection: BodyConnection,
    permit: PreviewPermit,
) -> Response {
    let (mut parts, body) = response.into_parts();
    headers::prepare_response(&mut parts, method, form);
    let body = ProgramBody::new(Body::new(body), connection, access.ended(app), permit);
    Response::from_parts(parts, Body::new(body))
}

/// Sends a request over a pooled connection or a new one. A request that failed on a pooled connection, which the program
/// may have closed at the same time, is repeated if it is safe.
async fn exchange(
    app: &App,
    access: &PreviewAccess,
    mut request: hyper::Request<ClientBody>,
    kind: RequestKind,
    is_sent: &AtomicBool,
) -> Result<(hyper::Response<Incoming>, ProgramConnection), ExchangeError> {
    if kind == RequestKind::Plain
        && let Some(mut connection) = app.previews.pool.take(&access.pool_key()).await
    {
        let copy = copy_if_repeatable(&request);
        match send(&mut connection, request, is_sent).await {
            Ok(response) => return Ok((response, connection)),
            Err(ExchangeError::Unsent(unsent)) => request = *unsent,
            Err(ExchangeError::Http(error)) if !error.is_parse() => {
                request = copy.ok_or(ExchangeError::Http(error))?;
            }
            Err(error) => return Err(error),
        }
    }
    let target = &access.token.target;
    let port = app.sandboxes.connect_port(&scope(&access.caller), &target.sandbox, target.port).await?;
    let mut connection = ProgramConnection::start(PortStream::of_connection(port)).await?;
    let response = send(&mut connection, request, is_sent).await?;
    Ok((response, connection))
}

/// Returns a copy of a request that may be sent twice, because it has no body and a safe method; else `None`.
fn copy_if_repeatable(request: &hyper::Request<ClientBody>) -> Option<hyper::Request<ClientBody>> {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !is_safe || !request.body().completion().load(Ordering::Relaxed) {
        return None;
    }
    let mut copy = hyper::Request::new(ClientBody::new(Body::empty(), 0));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Sends a request and waits for the head of the response. The timeout starts again until the body was sent, because
/// [`ClientBody`] has a timeout of its own.
async fn send(
    connection: &mut ProgramConnection,
    request: hyper::Request<ClientBody>,
    is_sent: &AtomicBool,
) -> Result<hyper::Response<Incoming>, ExchangeError> {
    let mut responded = pin!(connection.sender.try_send_request(request));
    loop {
        match timeout(RESPONSE_TIMEOUT, responded.as_mut()).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(mut error)) => {
                return Err(match error.take_message() {
                    Some(unsent) => ExchangeError::Unsent(Box::new(unsent)),
                    None => ExchangeError::Http(error.into_error()),
                });
            }
            Err(_) if !is_sent.load(Ordering::Relaxed) => {}
            Err(_) => return Err(ExchangeError::TimedOut),
        }
    }
}

fn failed(port: u16, reason: &str) -> ApiError {
    let message = format!("the program on port {port} of the sandbox did not respond: {reason}");
    ApiError::new(error_codes::PREVIEW_FAILED, message).detail("port", port)
}

fn body_error(error: ClientBodyError) -> ApiError {
    let code = match error {
        ClientBodyError::TooLarge => error_codes::PAYLOAD_TOO_LARGE,
        ClientBodyError::Stalled => error_codes::REQUEST_TIMEOUT,
        ClientBodyError::Invalid => error_codes::INVALID_REQUEST,
    };
    ApiError::new(code, error.to_string())
}

fn to_api(error: ExchangeError, port: u16) -> ApiError {
    match error {
        ExchangeError::Sandbox(SandboxError::File(error)) if error.kind == FileErrorKind::NotListening => {
            let message =
                format!("nothing listens on port {port} of the sandbox; start a server there, and try again");
            ApiError::new(error_codes::PORT_NOT_LISTENING, message).detail("port", port)
        }
        ExchangeError::Sandbox(SandboxError::File(error)) => failed(port, &error.to_string()),
        ExchangeError::Sandbox(error) => error.into(),
        ExchangeError::Http(error) => {
            let of_client = error.source().and_then(|source| source.downcast_ref::<ClientBodyError>());
            match of_client {
                Some(of_client) => body_error(*of_client),
                None => failed(port, describe(&error)),
            }
        }
        ExchangeError::TimedOut | ExchangeError::Unsent(_) => failed(port, &error.to_string()),
    }
}

fn describe(error: &hyper::Error) -> &'static str {
    if error.is_parse_too_large() {
        "the headers of its response are too large"
    } else if error.is_parse() {
        "its response is not valid HTTP/1.1"
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        "it closed the connection"
    } else {
        "the connection failed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    fn request(method: Method, body: Body) -> hyper::Request<ClientBody> {
        let mut request = hyper::Request::new(ClientBody::new(body, 1 << 10));
        *request.method_mut() = method;
        request
    }

    /// Sends a request to a program that answers with these bytes.
    async fn respond(with: &'static [u8], body: Body) -> Result<hyper::Response<Incoming>, ExchangeError> {
        let (near, mut far) = duplex(1 << 16);
        let mut connection = ProgramConnection::start(near).await.unwrap();
        tokio::spawn(async move {
            // The request may have failed before it was sent.
            if far.read_exact(&mut [0; 4]).await.is_ok() {
                far.write_all(with).await.unwrap();
            }
        });
        let request = request(Method::POST, body);
        let is_sent = request.body().completion();
        send(&mut connection, request, &is_sent).await
    }

    #[tokio::test]
    async fn invalid_responses_are_explained() {
        for (with, reason) in [
            (&b""[..], "it closed the connection"),
            (b"HTTP/1.1 200 OK\r\ncontent-", "it closed the connection"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "its response is not valid HTTP/1.1"),
            (b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n", "its response is not valid HTTP/1.1"),
            (
                b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
                "its response is not valid HTTP/1.1",
            ),
        ] {
            let error = to_api(respond(with, Body::empty()).await.unwrap_err(), 3000);
            assert_eq!(error.code(), error_codes::PREVIEW_FAILED);
            assert!(error.message().ends_with(reason), "{}: {with:?}", error.message());
            assert!(error.message().contains("port 3000"));
        }
    }

    #[tokio::test]
    async fn a_damaged_body_is_the_error_of_the_client() {
        let damaged = tokio_stream::iter([Ok("begun"), Err(std::io::Error::other("damaged"))]);
        let error = to_api(respond(b"", Body::from_stream(damaged)).await.unwrap_err(), 3000);
        assert_eq!(error.code(), error_codes::INVALID_REQUEST);
        let large = to_api(respond(b"", Body::from("x".repeat(2 << 10))).await.unwrap_err(), 3000);
        assert_eq!(large.code(), error_codes::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_does_not_respond_times_out() {
        let (near, _far) = duplex(1 << 16);
        let mut connection = ProgramConnection::start(near).await.unwrap();
        let request = request(Method::GET, Body::empty());
        let is_sent = request.body().completion();
        let error = send(&mut connection, request, &is_sent).await.unwrap_err();
        assert!(matches!(error, ExchangeError::TimedOut), "{error}");
        assert_eq!(to_api(error, 80).code(), error_codes::PREVIEW_FAILED);
    }

    #[test]
    fn only_safe_requests_without_a_body_are_repeated() {
        assert!(copy_if_repeatable(&request(Method::GET, Body::empty())).is_some());
        assert!(copy_if_repeatable(&request(Method::POST, Body::empty())).is_none());
        assert!(copy_if_repeatable(&request(Method::GET, Body::from("x"))).is_none());
    }
}

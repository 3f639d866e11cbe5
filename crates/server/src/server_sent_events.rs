//! Responses that are streams of server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

/// Interval of keepalive comments, because proxies close idle connections.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Comment that keeps a connection alive.
pub(crate) const KEEPALIVE: &[u8] = b": waiting\n\n";

/// Creates a response that sends these chunks as they come. It ends when the sender is dropped.
pub(crate) fn response(chunks: mpsc::Receiver<Bytes>) -> Response {
    let body = Body::from_stream(ReceiverStream::new(chunks).map(Ok::<_, Infallible>));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies must not buffer the stream.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body).into_response()
}

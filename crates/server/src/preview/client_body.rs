//! Body of a client's request on its way to a sandbox.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// Timeout for the client to send more of its body.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Reason why a body ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientBodyError {
    #[error("the body is larger than allowed")]
    TooLarge,
    #[error("the client stopped sending the body")]
    Stalled,
    #[error("the body is incomplete or not valid")]
    Invalid,
}

/// Body with a maximum size and a stall timeout. The timeout runs only while the sandbox waits for the client.
#[derive(Debug)]
pub(crate) struct ClientBody {
    body: Body,
    /// Number of bytes that the client may still send.
    left: u64,
    /// Deadline for the next frame; `None` unless the sandbox waits for the client.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Flag of [`ClientBody::completion`].
    is_complete: Arc<AtomicBool>,
}

impl ClientBody {
    pub(crate) fn new(body: Body, bytes_max: u64) -> Self {
        let is_complete = Arc::new(AtomicBool::new(body.is_end_stream()));
        Self { body, left: bytes_max, deadline: None, is_complete }
    }

    /// Returns a flag that is set once the whole body was read, to be sent to the program.
    pub(crate) fn completion(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_complete)
    }
}

impl http_body::Body for ClientBody {
    type Data = Bytes;
    type Error = ClientBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        let this = &mut *self;
        let frame = match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let deadline = this.deadline.get_or_insert_with(|| Box::pin(sleep(STALL_TIMEOUT)));
                return deadline.as_mut().poll(context).map(|()| Some(Err(ClientBodyError::Stalled)));
            }
        };
        this.deadline = None;
        if frame.is_none() || this.body.is_end_stream() {
            this.is_complete.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|_| ClientBodyError::Invalid)?;
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            this.left = this.left.checked_sub(bytes).ok_or(ClientBodyError::TooLarge)?;
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::future::poll_fn;
    use tokio::time::Instant;
    use tokio_stream::StreamExt as _;

    async fn next(body: &mut ClientBody) -> Option<Result<Bytes, ClientBodyError>> {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }

    #[tokio::test]
    async fn a_body_is_complete_when_all_of_it_was_taken() {
        assert!(ClientBody::new(Body::empty(), 0).completion().load(Ordering::Relaxed));
        let pieces = tokio_stream::iter(["ab", "c"].map(Ok::<_, Infallible>));
        let mut body = ClientBody::new(Body::from_stream(pieces), 3);
        let completion = body.completion();
        for piece in ["ab", "c"] {
            assert!(!completion.load(Ordering::Relaxed));
            assert_eq!(next(&mut body).await, Some(Ok(Bytes::from_static(piece.as_bytes()))));
        }
        assert_eq!(next(&mut body).await, None);
        assert!(completion.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn a_body_above_its_limit_fails() {
        let pieces = tokio_stream::iter(["ab", "c"].map(Ok::<_, Infallible>));
        let mut body = ClientBody::new(Body::from_stream(pieces), 2);
        assert!(next(&mut body).await.unwrap().is_ok());
        assert_eq!(next(&mut body).await, Some(Err(ClientBodyError::TooLarge)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_sending_times_out_but_a_slow_sandbox_does_not() {
        let begun = tokio_stream::iter(["a", "b"].map(Ok::<_, Infallible>));
        let mut body = ClientBody::new(Body::from_stream(begun.chain(tokio_stream::pending())), 10);
        assert!(next(&mut body).await.unwrap().is_ok());
        sleep(STALL_TIMEOUT * 10).await;
        assert!(next(&mut body).await.unwrap().is_ok());
        let began = Instant::now();
        assert_eq!(next(&mut body).await, Some(Err(ClientBodyError::Stalled)));
        assert_eq!(began.elapsed(), STALL_TIMEOUT);
    }
}

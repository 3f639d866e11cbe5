//! Response body that holds the permits and other guards of its request until it has been sent or dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};

/// Response body with the guards of its request, such as permits of a semaphore.
pub(crate) struct BodyWithPermits<G> {
    body: Body,
    /// True once a frame was requested.
    has_begun: bool,
    _guard: G,
}

impl<G> BodyWithPermits<G> {
    pub(crate) fn new(body: Body, guard: G) -> Self {
        Self { body, has_begun: false, _guard: guard }
    }
}

impl<G: Unpin> http_body::Body for BodyWithPermits<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.has_begun = true;
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        // hyper drops a body that reports its end together with the last frame, while that frame still waits to be sent.
        // Otherwise hyper polls again when it has sent the frame.
        !self.has_begun && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body as _;
    use std::task::Waker;

    #[test]
    fn a_body_reports_its_end_only_after_the_last_frame_was_sent() {
        let mut body = BodyWithPermits::new(Body::from("all of it"), ());
        assert!(!body.is_end_stream());
        let mut next = || Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(next(), Poll::Ready(Some(Ok(_)))));
        assert!(!body.is_end_stream());
        let mut next = || Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(next(), Poll::Ready(None)));
        assert!(BodyWithPermits::new(Body::empty(), ()).is_end_stream());
    }
}

//! The body of an answer, which counts as under way until it was sent or given up.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};

/// A body with what its request holds until then.
pub(crate) struct Tracked<G> {
    body: Body,
    has_begun: bool,
    _guard: G,
}

impl<G> Tracked<G> {
    pub(crate) fn new(body: Body, guard: G) -> Self {
        Self { body, has_begun: false, _guard: guard }
    }
}

impl<G: Unpin> http_body::Body for Tracked<G> {
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
        // Of a body that ends with what it gave, the rest would be dropped while that still waits for the client. One that
        // does not say so is asked again when there is room for more.
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
    fn a_body_has_not_ended_when_its_last_piece_was_taken() {
        let mut body = Tracked::new(Body::from("all of it"), ());
        assert!(!body.is_end_stream());
        let mut next = || Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(next(), Poll::Ready(Some(Ok(_)))));
        assert!(!body.is_end_stream());
        let mut next = || Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(next(), Poll::Ready(None)));
        assert!(Tracked::new(Body::empty(), ()).is_end_stream());
    }
}

//! Body of a program's response on its way to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Body as _, Frame, SizeHint};

use super::pool::{Pool, PoolKey, ProgramConnection};
use super::state::PreviewPermit;

/// Reason why a response ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramBodyError {
    #[error("the preview has ended")]
    Ended,
    #[error("the program in the sandbox ended its response early: {0}")]
    Lost(axum::Error),
}

/// Connection that a response comes from, with the pool that gets it after the response was read to its end.
pub(crate) struct BodyConnection {
    pub(crate) connection: ProgramConnection,
    /// Pool for the next request; `None` if the connection cannot be used again.
    pub(crate) pool: Option<(Arc<Pool>, PoolKey)>,
}

/// Response body that ends with the access to the preview. Dropping it early closes the connection to the program.
pub(crate) struct ProgramBody {
    body: Body,
    has_ended: bool,
    access_ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    connection: Option<BodyConnection>,
    _permit: PreviewPermit,
}

impl ProgramBody {
    pub(crate) fn new(
        body: Body,
        connection: BodyConnection,
        access_ended: impl Future<Output = ()> + Send + 'static,
        permit: PreviewPermit,
    ) -> Self {
        Self {
            body,
            has_ended: false,
            access_ended: Box::pin(access_ended),
            connection: Some(connection),
            _permit: permit,
        }
    }
}

impl Drop for ProgramBody {
    fn drop(&mut self) {
        let is_complete = self.has_ended || self.body.is_end_stream();
        if let Some(BodyConnection { connection, pool: Some((pool, key)) }) = self.connection.take()
            && is_complete
        {
            pool.put(key, connection);
        }
    }
}

impl http_body::Body for ProgramBody {
    type Data = Bytes;
    type Error = ProgramBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProgramBodyError>>> {
        let this = &mut *self;
        if this.access_ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(ProgramBodyError::Ended)));
        }
        let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(context));
        this.has_ended = frame.is_none();
        Poll::Ready(frame.map(|frame| frame.map_err(ProgramBodyError::Lost)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

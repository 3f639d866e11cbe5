//! Response bodies that come from a sandbox piece by piece.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use workspace_sandbox::FileRead;

use crate::error::ApiError;

/// Maximum number of pieces in the queue to the client.
const QUEUE_MAX: usize = 2;
/// Timeout for the client to accept a piece.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Source of a response body.
pub(super) trait Source: Send + 'static {
    /// Waits for the next piece; `None` at the end.
    fn next_piece(&mut self) -> impl Future<Output = Result<Option<Bytes>, ApiError>> + Send;

    /// Returns true if there are no more pieces.
    fn has_ended(&self) -> bool;
}

/// Creates a body that sends the pieces as fast as the client reads them. The source is dropped when the client leaves
/// or does not read. An error of the first piece becomes an error response; after a later error the connection is
/// closed before the end of the body.
pub(super) async fn body(mut source: impl Source) -> Result<Body, ApiError> {
    let Some(first) = source.next_piece().await? else { return Ok(Body::empty()) };
    if source.has_ended() {
        return Ok(Body::from(first));
    }
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    tokio::spawn(send(first, source, sender));
    Ok(Body::from_stream(ReceiverStream::new(receiver)))
}

async fn send(mut piece: Bytes, mut source: impl Source, sender: mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let sent = tokio::time::timeout(SEND_TIMEOUT, sender.send(Ok(piece))).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
        let next = tokio::select! {
            next = source.next_piece() => next,
            () = sender.closed() => return,
        };
        piece = match next {
            Ok(Some(next)) => next,
            Ok(None) => return,
            Err(error) => {
                tracing::info!(code = error.code().name, reason = error.message(), "transfer failed");
                // The client may have left.
                let _ = sender.send(Err(io::Error::other("the response could not be finished"))).await;
                return;
            }
        };
    }
}

/// Range of a file. It fails if the file has become shorter.
pub(super) struct FileContent {
    read: FileRead,
    remaining: u64,
}

impl FileContent {
    /// Creates the content of a response with `length` bytes.
    pub(super) fn new(read: FileRead, length: u64) -> Self {
        Self { read, remaining: length }
    }
}

impl Source for FileContent {
    async fn next_piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        if self.remaining == 0 {
            return Ok(None);
        }
        let next = self.read.next().await?;
        let mut piece = next.ok_or_else(|| ApiError::internal("a file became shorter while it was read"))?;
        piece.truncate(usize::try_from(self.remaining).unwrap_or(usize::MAX));
        self.remaining -= piece.len() as u64;
        Ok(Some(piece))
    }

    fn has_ended(&self) -> bool {
        self.remaining == 0
    }
}

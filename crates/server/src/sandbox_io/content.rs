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
pub(super) trait PieceSource: Send + 'static {
    /// Waits for the next piece; `None` at the end.
    fn next_piece(&mut self) -> impl Future<Output = Result<Option<Bytes>, ApiError>> + Send;

    /// Returns true if there are no more pieces.
    fn has_ended(&self) -> bool;
}

/// Creates a body that sends the pieces as fast as the client reads them. The source is dropped when the client leaves
/// or does not read. An error of the first piece becomes an error response; after a later error, and if the client does
/// not read, the connection is closed before the end of the body.
pub(super) async fn body(mut source: impl PieceSource) -> Result<Body, ApiError> {
    let Some(first) = source.next_piece().await? else { return Ok(Body::empty()) };
    if source.has_ended() {
        return Ok(Body::from(first));
    }
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    tokio::spawn(send(first, source, sender));
    Ok(Body::from_stream(ReceiverStream::new(receiver)))
}

async fn send(mut piece: Bytes, mut source: impl PieceSource, sender: mpsc::Sender<io::Result<Bytes>>) {
    loop {
        match tokio::time::timeout(SEND_TIMEOUT, sender.send(Ok(piece))).await {
            Ok(Ok(())) => {}
            // The client has left.
            Ok(Err(_)) => return,
            Err(_) => {
                drop(source);
                return fail(&sender).await;
            }
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
                return fail(&sender).await;
            }
        };
    }
}

/// Ends a body with an error, which closes the connection. Without it, a client could take the part that it has for the
/// whole body, because archives are sent without their length.
async fn fail(sender: &mpsc::Sender<io::Result<Bytes>>) {
    // An error means that the client has left.
    let _ = sender.send(Err(io::Error::other("the response could not be finished"))).await;
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

impl PieceSource for FileContent {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Source of this many pieces.
    struct Pieces(usize);

    impl PieceSource for Pieces {
        async fn next_piece(&mut self) -> Result<Option<Bytes>, ApiError> {
            let left = self.0.checked_sub(1);
            self.0 = left.unwrap_or(0);
            Ok(left.map(|_| Bytes::from_static(b"x")))
        }

        fn has_ended(&self) -> bool {
            self.0 == 0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_the_client_did_not_read_in_time_has_no_regular_end() {
        let pieces = QUEUE_MAX + 3;
        let read_at_once = body(Pieces(pieces)).await.unwrap();
        assert_eq!(axum::body::to_bytes(read_at_once, 100).await.unwrap().len(), pieces);
        let read_late = body(Pieces(pieces)).await.unwrap();
        tokio::time::sleep(SEND_TIMEOUT * 2).await;
        assert!(axum::body::to_bytes(read_late, 100).await.is_err());
    }
}

//! Response bodies that are produced piece by piece.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use workspace_state::Cancel;

use super::work_limits::{WorkLimits, WorkPermit};
use crate::error::ApiError;
use crate::store::blocking_until;

/// Approximate size of a piece in bytes.
pub(super) const PIECE_SIZE: usize = 256 << 10;
/// Maximum number of pieces in the queue to the client.
const QUEUE_MAX: usize = 2;
/// Timeout for the client to accept a piece.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Response body that is produced piece by piece.
pub(super) trait Pieces: Send + Sized + 'static {
    /// Produces the next piece, which may be empty; `None` at the end. May block.
    fn next_piece(&mut self) -> Result<Option<Bytes>, ApiError>;

    /// Returns the flag that cancels a piece in progress.
    fn cancel(&self) -> &Cancel;

    /// Waits for the permit under which a piece is produced.
    fn permit(limits: &WorkLimits, owner: &str) -> impl Future<Output = WorkPermit> + Send;
}

/// Creates a body from pieces. Each piece is produced under a permit of the owner, which is released before the piece
/// is sent, and only while the client is connected. An error of the first piece becomes an error response; after a
/// later error, and if the client does not read, the connection is closed before the end of the body.
pub(super) async fn stream<P: Pieces>(
    pieces: P,
    limits: &Arc<WorkLimits>,
    owner: &str,
) -> Result<Body, ApiError> {
    let (first, rest) = advance(pieces, limits, owner).await?;
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    tokio::spawn(send(first, rest, Arc::clone(limits), owner.to_owned(), sender));
    Ok(Body::from_stream(ReceiverStream::new(receiver)))
}

/// Produces the next piece; `None` at the end. Cancelled when the future is dropped.
pub(super) async fn advance<P: Pieces>(
    mut pieces: P,
    limits: &WorkLimits,
    owner: &str,
) -> Result<(Option<Bytes>, P), ApiError> {
    let permit = P::permit(limits, owner).await;
    let cancel = pieces.cancel().clone();
    let advanced = blocking_until(&cancel, move || {
        let _permit = permit;
        let piece = pieces.next_piece()?;
        Ok((piece, pieces))
    });
    advanced.await
}

/// Sends the pieces until the last one, or until the client disconnects or does not read.
async fn send<P: Pieces>(
    mut piece: Option<Bytes>,
    mut pieces: P,
    limits: Arc<WorkLimits>,
    owner: String,
    sender: mpsc::Sender<io::Result<Bytes>>,
) {
    while let Some(bytes) = piece {
        if !bytes.is_empty() {
            match tokio::time::timeout(SEND_TIMEOUT, sender.send(Ok(bytes))).await {
                Ok(Ok(())) => {}
                // The client has left.
                Ok(Err(_)) => return,
                Err(_) => {
                    drop(pieces);
                    return fail(&sender).await;
                }
            }
        }
        let advanced = tokio::select! {
            advanced = advance(pieces, &limits, &owner) => advanced,
            () = sender.closed() => return,
        };
        match advanced {
            Ok(advanced) => (piece, pieces) = advanced,
            Err(error) => {
                tracing::error!(?error, "failed to finish a response");
                return fail(&sender).await;
            }
        }
    }
}

/// Ends a body with an error, which closes the connection. Without it, a client could take the part that it has for the
/// whole body, because archives and patches are sent without their length.
async fn fail(sender: &mpsc::Sender<io::Result<Bytes>>) {
    // An error means that the client has left.
    let _ = sender.send(Err(io::Error::other("the response could not be finished"))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Body of this many pieces.
    struct Counted {
        left: usize,
        cancel: Cancel,
    }

    impl Pieces for Counted {
        fn next_piece(&mut self) -> Result<Option<Bytes>, ApiError> {
            let left = self.left.checked_sub(1);
            self.left = left.unwrap_or(0);
            Ok(left.map(|_| Bytes::from_static(b"x")))
        }

        fn cancel(&self) -> &Cancel {
            &self.cancel
        }

        async fn permit(limits: &WorkLimits, owner: &str) -> WorkPermit {
            limits.read(owner).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_the_client_did_not_read_in_time_has_no_regular_end() {
        let limits = Arc::new(WorkLimits::for_tests());
        let pieces = QUEUE_MAX + 3;
        let counted = || Counted { left: pieces, cancel: Cancel::new() };
        let read_at_once = stream(counted(), &limits, "alice").await.unwrap();
        assert_eq!(axum::body::to_bytes(read_at_once, 100).await.unwrap().len(), pieces);
        let read_late = stream(counted(), &limits, "alice").await.unwrap();
        tokio::time::sleep(SEND_TIMEOUT * 2).await;
        assert!(axum::body::to_bytes(read_late, 100).await.is_err());
    }
}

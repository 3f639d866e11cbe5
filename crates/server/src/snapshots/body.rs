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

/// Creates a body from pieces. Each piece is produced under a permit of the owner, which is released before the piece is
/// sent, and only while the client is connected. An error of the first piece becomes an error response; after a later error
/// the connection is closed before the end of the body.
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
            let sent = tokio::time::timeout(SEND_TIMEOUT, sender.send(Ok(bytes))).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
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
                let _ = sender.send(Err(io::Error::other("the response could not be finished"))).await;
                return;
            }
        }
    }
}

//! Answers that are longer than memory.

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

/// About so long is a piece.
pub(super) const PIECE: usize = 256 << 10;
/// Pieces that wait for the client.
const QUEUE: usize = 2;
/// A client that does not take a piece for so long is gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// An answer that is made piece by piece.
pub(super) trait Pieces: Send + Sized + 'static {
    /// Makes the next piece, which may be empty; none at the end. May block.
    fn next_piece(&mut self) -> Result<Option<Bytes>, ApiError>;

    /// Returns the flag that cancels a piece in progress.
    fn cancel(&self) -> &Cancel;

    /// Waits for the permit in which a piece is made.
    fn permit(limits: &WorkLimits, owner: &str) -> impl Future<Output = WorkPermit> + Send;
}

/// Makes a body of pieces. Each is made under a permit of the owner, when there is room for it, and none after the client left. The
/// permit is not kept for a client that reads slowly. What goes wrong with the first piece is told; later the connection ends
/// early, and that is how the client knows.
pub(super) async fn stream<P: Pieces>(
    pieces: P,
    limits: &Arc<WorkLimits>,
    owner: &str,
) -> Result<Body, ApiError> {
    let (first, rest) = advance(pieces, limits, owner).await?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(send(first, rest, Arc::clone(limits), owner.to_owned(), sender));
    Ok(Body::from_stream(ReceiverStream::new(receiver)))
}

/// Makes the next piece; none at the end. Cancelled when the future is dropped.
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

/// Sends the pieces until the last one, or until the client left or takes nothing.
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
                let _ = sender.send(Err(io::Error::other("the answer could not be finished"))).await;
                return;
            }
        }
    }
}

//! Answers that are longer than memory.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio_stream::wrappers::ReceiverStream;
use workspace_state::StoreError;

use crate::error::ApiError;
use crate::store::blocking;

/// About so long is a piece.
pub(super) const PIECE: usize = 256 << 10;
/// Pieces that wait for the client.
pub(super) const QUEUE: usize = 2;
/// A client that does not take a piece for so long is gone.
pub(super) const SILENCE: Duration = Duration::from_secs(60);

/// A body made of pieces. The next one is made when there is room for it, so no thread waits for a slow client. What goes wrong with
/// the first one is told; later the connection ends early, and that is how the client knows.
pub(super) async fn stream<P>(mut pieces: P) -> Result<Body, ApiError>
where
    P: Iterator<Item = Result<Bytes, StoreError>> + Send + 'static,
{
    let begun = blocking(move || Ok((pieces.next().transpose()?, pieces))).await?;
    let mut pieces = begun.0.into_iter().map(Ok).chain(begun.1);
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        loop {
            let next = spawn_blocking(move || {
                let piece = pieces.next();
                (pieces, piece)
            });
            let Ok((rest, Some(piece))) = next.await else { break };
            pieces = rest;
            let failed = piece.is_err();
            let piece = piece.map_err(|error| {
                tracing::error!(%error, "an answer could not be finished");
                io::Error::other(error)
            });
            let sent = tokio::time::timeout(SILENCE, sender.send(piece)).await;
            if failed || !matches!(sent, Ok(Ok(()))) {
                break;
            }
        }
    });
    Ok(Body::from_stream(ReceiverStream::new(receiver)))
}

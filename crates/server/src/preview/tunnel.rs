//! Bytes of a WebSocket between a client and a program in a sandbox.

use std::pin::pin;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy, split};
use tokio::time::timeout;

use super::pool::ProgramConnection;
use crate::shutdown::Shutdown;

/// Timeout for both sides to switch protocols.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that one side has to close after the other did.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// WebSocket between a client and a program. It may be idle: only its two sides, the end of the access and the shutdown
/// of the server close it. A side that does not read is closed by the write timeout of its connection.
pub(crate) struct Tunnel {
    pub(crate) client: OnUpgrade,
    pub(crate) program: OnUpgrade,
    pub(crate) connection: ProgramConnection,
    pub(crate) shutdown: Shutdown,
}

impl Tunnel {
    /// Copies bytes until one side closes. `guards` are held until then.
    pub(crate) async fn run<G>(self, access_ended: impl Future<Output = ()>, guards: G) {
        let Self { client, program, connection, shutdown } = self;
        let _guards = (guards, connection);
        let upgraded = timeout(UPGRADE_TIMEOUT, async { tokio::try_join!(client, program) }).await;
        let Ok(Ok((client, program))) = upgraded else {
            return tracing::debug!("WebSocket of a preview was not established");
        };
        tokio::select! {
            () = copy_both(TokioIo::new(client), TokioIo::new(program)) => {}
            () = access_ended => tracing::debug!("WebSocket closed because the preview ended"),
            () = shutdown.wait_until_begun() => {}
        }
    }
}

/// Copies in both directions. When one has ended, the other has [`CLOSE_TIMEOUT`].
async fn copy_both(client: impl AsyncRead + AsyncWrite, program: impl AsyncRead + AsyncWrite) {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_program, mut to_program) = split(program);
    // An error ends a direction, like the end of the stream.
    let mut up = pin!(async {
        drop(copy(&mut from_client, &mut to_program).await);
        drop(to_program.shutdown().await);
    });
    let mut down = pin!(async {
        drop(copy(&mut from_program, &mut to_client).await);
        drop(to_client.shutdown().await);
    });
    tokio::select! {
        () = up.as_mut() => drop(timeout(CLOSE_TIMEOUT, down).await),
        () = down.as_mut() => drop(timeout(CLOSE_TIMEOUT, up).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, duplex};
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn bytes_are_copied_both_ways_and_an_end_is_passed_on() {
        let ((client, mut at_client), (program, mut at_program)) = (duplex(64), duplex(64));
        let copied = tokio::spawn(copy_both(client, program));
        at_client.write_all(b"ping").await.unwrap();
        let mut four = [0; 4];
        at_program.read_exact(&mut four).await.unwrap();
        assert_eq!(&four, b"ping");
        at_program.write_all(b"pong").await.unwrap();
        at_client.read_exact(&mut four).await.unwrap();
        assert_eq!(&four, b"pong");
        tokio::time::sleep(CLOSE_TIMEOUT * 100).await;
        assert!(!copied.is_finished(), "it may be idle");
        at_client.shutdown().await.unwrap();
        assert_eq!(at_program.read(&mut four).await.unwrap(), 0);
        at_program.write_all(b"last").await.unwrap();
        drop(at_program);
        at_client.read_exact(&mut four).await.unwrap();
        assert_eq!(&four, b"last");
        copied.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_does_not_close_is_closed() {
        let ((client, at_client), (program, mut at_program)) = (duplex(64), duplex(64));
        let copied = tokio::spawn(copy_both(client, program));
        let began = Instant::now();
        drop(at_client);
        copied.await.unwrap();
        assert_eq!(began.elapsed(), CLOSE_TIMEOUT);
        assert_eq!(at_program.read(&mut [0; 1]).await.unwrap(), 0);
    }
}

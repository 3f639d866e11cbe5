//! A WebSocket connection to a TCP port of a sandbox.

use std::pin::pin;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use workspace_sandbox::{PortConnection, PortReader, PortWriter, SandboxError};

use crate::error::ApiError;
use crate::shutdown::Shutdown;
use crate::stream_access::StreamAccess;

/// Number of unanswered pings after which the client counts as disconnected.
const UNANSWERED_PINGS_MAX: u32 = 3;
/// Timeout for sending the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of the reason in a close frame in bytes (RFC 6455).
const REASON_BYTES_MAX: usize = 123;

type Sink = SplitSink<WebSocket, Message>;

/// Connection to a port, on behalf of a client.
pub(super) struct Session {
    pub(super) connection: PortConnection,
    pub(super) shutdown: Shutdown,
    /// Time after which a client that has sent nothing counts as disconnected.
    pub(super) client_timeout: Duration,
    /// Access of the client. The connection is closed when it expires or is revoked.
    pub(super) access: StreamAccess,
}

/// Reason why a connection ended.
enum EndReason {
    /// Both directions have ended.
    Finished,
    /// The client left, or closed the WebSocket.
    Disconnected,
    /// The client sent nothing for too long.
    TimedOut(Duration),
    /// The token has expired, or the key was revoked.
    AccessEnded(&'static str),
    /// The client sent a message that is not allowed: close code and reason.
    Violation(u16, &'static str),
    /// The connection in the sandbox failed, for this reason.
    Failed(String),
    /// The server is stopping.
    Stopping,
}

impl From<SandboxError> for EndReason {
    fn from(error: SandboxError) -> Self {
        Self::Failed(ApiError::from(error).message().to_owned())
    }
}

impl From<axum::Error> for EndReason {
    fn from(_: axum::Error) -> Self {
        Self::Disconnected
    }
}

impl Session {
    /// Forwards bytes in both directions. They are independent: one that waits does not stop the other.
    pub(super) async fn run(self, socket: WebSocket) {
        let _running = self.shutdown.enter();
        let (mut sink, stream) = socket.split();
        let PortConnection { reader, writer } = self.connection;
        let client_has_ended = watch::Sender::new(false);
        let ping_interval = self.client_timeout / UNANSWERED_PINGS_MAX;
        let reason = tokio::select! {
            reason = send(&mut sink, reader, client_has_ended.subscribe(), ping_interval) => reason,
            reason = receive(stream, &writer, &client_has_ended, self.client_timeout) => reason,
            reason = self.access.ended() => Err(EndReason::AccessEnded(reason)),
            () = self.shutdown.wait_until_begun() => Err(EndReason::Stopping),
        };
        let Some((code, reason)) = close_frame(reason.err().unwrap_or(EndReason::Finished)) else { return };
        let frame = CloseFrame { code, reason: reason.into() };
        // An error means that the client is disconnected or does not read.
        drop(timeout(CLOSE_TIMEOUT, sink.send(Message::Close(Some(frame)))).await);
    }
}

/// Returns code and reason of the close frame; `None` if the client has closed the WebSocket.
fn close_frame(reason: EndReason) -> Option<(u16, String)> {
    let (code, reason) = match reason {
        EndReason::Disconnected => return None,
        EndReason::Finished => (close_code::NORMAL, "the connection has ended".to_owned()),
        EndReason::TimedOut(limit) => {
            let seconds = limit.as_secs();
            (close_code::POLICY, format!("nothing was received for {seconds} s, not even a pong"))
        }
        EndReason::AccessEnded(reason) => (close_code::POLICY, reason.to_owned()),
        EndReason::Violation(code, reason) => (code, reason.to_owned()),
        EndReason::Failed(reason) => (close_code::ERROR, reason),
        EndReason::Stopping => (close_code::AWAY, "the server is stopping; connect again".to_owned()),
    };
    Some((code, shortened(reason)))
}

/// Cuts a reason to the length that a close frame can have, between characters.
fn shortened(mut reason: String) -> String {
    let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
    reason.truncate(end.unwrap_or(0));
    reason
}

/// Sends bytes from the sandbox, and pings. Ends when both directions have ended.
async fn send(
    sink: &mut Sink,
    mut reader: PortReader,
    mut client_has_ended: watch::Receiver<bool>,
    ping_interval: Duration,
) -> Result<(), EndReason> {
    let mut pings = interval_at(Instant::now() + ping_interval, ping_interval);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // A pending call must not be dropped, because it may be granting the sandbox more bytes.
        let mut next = pin!(reader.next());
        let data = loop {
            tokio::select! {
                data = &mut next => break data?,
                _ = pings.tick() => sink.send(Message::Ping(Bytes::new())).await?,
            }
        };
        let has_ended = data.is_none();
        // An empty message ends the direction.
        sink.send(Message::Binary(data.unwrap_or_default())).await?;
        if has_ended {
            break;
        }
    }
    let mut ended = pin!(async {
        // The sender lives longer than this.
        drop(client_has_ended.wait_for(|has_ended| *has_ended).await);
    });
    loop {
        tokio::select! {
            () = &mut ended => return Ok(()),
            _ = pings.tick() => sink.send(Message::Ping(Bytes::new())).await?,
        }
    }
}

/// Forwards bytes of the client to the sandbox, until the client leaves.
async fn receive(
    mut stream: SplitStream<WebSocket>,
    writer: &PortWriter,
    has_ended: &watch::Sender<bool>,
    limit: Duration,
) -> Result<(), EndReason> {
    loop {
        let received = timeout(limit, stream.next()).await.map_err(|_| EndReason::TimedOut(limit))?;
        match received.ok_or(EndReason::Disconnected)?? {
            Message::Binary(_) if *has_ended.borrow() => {
                return Err(EndReason::Violation(close_code::PROTOCOL, "there is data after the end"));
            }
            Message::Binary(data) if data.is_empty() => {
                writer.end().await?;
                has_ended.send_replace(true);
            }
            Message::Binary(data) => writer.send(data).await?,
            Message::Text(_) => {
                return Err(EndReason::Violation(
                    close_code::UNSUPPORTED,
                    "only binary messages are allowed",
                ));
            }
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return Err(EndReason::Disconnected),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_fit_into_a_close_frame() {
        assert_eq!(shortened("a reason".to_owned()), "a reason");
        let cut = shortened("\u{20ac}".repeat(100));
        assert_eq!(cut, "\u{20ac}".repeat(REASON_BYTES_MAX / 3));
        assert!(close_frame(EndReason::Disconnected).is_none());
        let lost = SandboxError::AgentLost { id: "sbx-1".to_owned(), reason: "x".repeat(500) };
        let (code, reason) = close_frame(lost.into()).unwrap();
        assert_eq!((code, reason.len()), (1011, REASON_BYTES_MAX));
    }
}

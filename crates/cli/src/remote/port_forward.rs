//! Connections to a port of a sandbox on a server: each is one WebSocket.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::websocket::{self, Socket};
use super::{RequestError, ServerUrl};
use crate::error::CommandError;

/// Bytes that are read from a local connection at a time.
const BUFFER_SIZE: usize = 64 << 10;
/// Ping interval. The server disconnects clients that are silent for 90 seconds.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout of connecting to a port.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

type Sink = Mutex<SplitSink<Socket, Message>>;

/// Reason why a connection was not forwarded to its end.
pub(crate) enum ForwardError {
    /// The request failed, or the connection to the server broke.
    Request(RequestError),
    /// The server closed the connection, because the one in the sandbox broke; the reason.
    Closed(String),
}

impl ForwardError {
    /// Converts the failure to an error for the user.
    pub(crate) fn explain(self, server: &ServerUrl, port: u16) -> CommandError {
        match self {
            Self::Request(failure) => failure.explain(server),
            Self::Closed(reason) => {
                CommandError::failed(format!("a connection to port {port} of the sandbox broke: {reason}"))
                    .hint("`workspace ports SANDBOX` lists the ports on which programs listen")
            }
        }
    }
}

/// End of a connection, or of one half of it.
enum End {
    /// Both directions have ended, or the local program has closed the connection.
    Done,
    /// One of the connections broke.
    Failed(ForwardError),
}

impl End {
    fn lost(reason: &impl ToString) -> Self {
        Self::Failed(ForwardError::Request(RequestError::Disconnected(reason.to_string())))
    }
}

/// Forwards a local connection to a port of a sandbox, until both directions have ended or one of them failed. After a
/// failure, the local connection is reset, so that its program does not take what has come for everything.
pub(crate) async fn forward(
    server: &ServerUrl,
    sandbox: &str,
    port: u16,
    local: TcpStream,
) -> Result<(), ForwardError> {
    let path = format!("/api/v1/sandboxes/{sandbox}/ports/{port}/connect");
    let connected = timeout(CONNECT_TIMEOUT, websocket::connect(server, &path)).await;
    let connected = connected.unwrap_or_else(|_| Err(RequestError::Unreachable("no response".to_owned())));
    let socket = connected.map_err(ForwardError::Request)?;
    let (reader, mut writer) = local.into_split();
    let (sink, stream) = socket.split();
    let sink = Mutex::new(sink);
    // The server closes the WebSocket when both directions have ended, which ends all three. The first has the reason
    // of the server, if a broken WebSocket ends several.
    let end = tokio::select! {
        biased;
        end = receive(stream, &mut writer) => end,
        end = send(reader, &sink) => end,
        end = ping(&sink) => end,
    };
    match end {
        End::Done => Ok(()),
        End::Failed(failure) => {
            // Without this, the program sees an end instead of a reset.
            drop(writer.as_ref().set_zero_linger());
            writer.forget();
            Err(failure)
        }
    }
}

/// Sends the bytes of the local connection. Returns if the WebSocket is closed or the local connection fails. Does not
/// return at the end of the local input, because the other direction may still have bytes.
async fn send(mut reader: OwnedReadHalf, sink: &Sink) -> End {
    let mut buffer = vec![0; BUFFER_SIZE];
    loop {
        let read = match reader.read(&mut buffer).await {
            Ok(read) => read,
            // The local program reset the connection.
            Err(_) => return End::Done,
        };
        // An empty message ends the direction.
        if let Err(error) = sink.lock().await.send(Message::binary(buffer[..read].to_vec())).await {
            return End::lost(&error);
        }
        if read == 0 {
            return std::future::pending().await;
        }
    }
}

/// Writes the bytes of the sandbox to the local connection, until the server closes the WebSocket.
async fn receive(mut stream: SplitStream<Socket>, writer: &mut OwnedWriteHalf) -> End {
    loop {
        let message = match stream.next().await {
            Some(Ok(message)) => message,
            Some(Err(error)) => return End::lost(&error),
            None => return End::lost(&"it was closed"),
        };
        let written = match message {
            Message::Binary(data) if data.is_empty() => writer.shutdown().await,
            Message::Binary(data) => writer.write_all(&data).await,
            Message::Close(Some(frame)) if frame.code != CloseCode::Normal => {
                return End::Failed(ForwardError::Closed(frame.reason.to_string()));
            }
            Message::Close(_) => return End::Done,
            _ => Ok(()),
        };
        if written.is_err() {
            return End::Done;
        }
    }
}

/// Keeps a silent connection open.
async fn ping(sink: &Sink) -> End {
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    loop {
        pings.tick().await;
        if let Err(error) = sink.lock().await.send(Message::Ping(Vec::new().into())).await {
            return End::lost(&error);
        }
    }
}

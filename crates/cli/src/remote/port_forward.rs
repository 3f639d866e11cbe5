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

use super::websocket::{self, Socket};
use super::{RequestError, ServerUrl};

/// Bytes that are read from a local connection at a time.
const BUFFER_SIZE: usize = 64 << 10;
/// Ping interval. The server disconnects clients that are silent for 90 seconds.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout of connecting to a port.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

type Sink = Mutex<SplitSink<Socket, Message>>;

/// Forwards a local connection to a port of a sandbox, until both directions have ended or one of them failed.
pub(crate) async fn forward(
    server: &ServerUrl,
    sandbox: &str,
    port: u16,
    local: TcpStream,
) -> Result<(), RequestError> {
    let path = format!("/api/v1/sandboxes/{sandbox}/ports/{port}/connect");
    let connected = timeout(CONNECT_TIMEOUT, websocket::connect(server, &path)).await;
    let socket = connected.unwrap_or_else(|_| Err(RequestError::Unreachable("no response".to_owned())))?;
    let (reader, writer) = local.into_split();
    let (sink, stream) = socket.split();
    let sink = Mutex::new(sink);
    // The server closes the WebSocket when both directions have ended, which ends all three.
    tokio::select! {
        () = send(reader, &sink) => {}
        () = receive(stream, writer) => {}
        () = ping(&sink) => {}
    }
    Ok(())
}

/// Sends the bytes of the local connection. Returns if the WebSocket is closed or the local connection fails. Does not
/// return at the end of the local input, because the other direction may still have bytes.
async fn send(mut reader: OwnedReadHalf, sink: &Sink) {
    let mut buffer = vec![0; BUFFER_SIZE];
    loop {
        let read = match reader.read(&mut buffer).await {
            Ok(read) => read,
            // The local program reset the connection.
            Err(_) => return,
        };
        // An empty message ends the direction.
        if sink.lock().await.send(Message::binary(buffer[..read].to_vec())).await.is_err() {
            return;
        }
        if read == 0 {
            return std::future::pending().await;
        }
    }
}

/// Writes the bytes of the sandbox to the local connection, until the server closes the WebSocket.
async fn receive(mut stream: SplitStream<Socket>, mut writer: OwnedWriteHalf) {
    while let Some(Ok(message)) = stream.next().await {
        let written = match message {
            Message::Binary(data) if data.is_empty() => writer.shutdown().await,
            Message::Binary(data) => writer.write_all(&data).await,
            Message::Close(_) => return,
            _ => Ok(()),
        };
        if written.is_err() {
            return;
        }
    }
}

/// Keeps a silent connection open.
async fn ping(sink: &Sink) {
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    loop {
        pings.tick().await;
        if sink.lock().await.send(Message::Ping(Vec::new().into())).await.is_err() {
            return;
        }
    }
}

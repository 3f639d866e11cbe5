//! A connection to the server, with TLS or without.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::{RequestError, ServerUrl, tls};

/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the server.
pub(super) enum ServerConnection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl ServerConnection {
    /// Connects within [`CONNECT_TIMEOUT`].
    pub(super) async fn connect(server: &ServerUrl) -> Result<Self, RequestError> {
        match timeout(CONNECT_TIMEOUT, Self::dial(server)).await {
            Ok(stream) => stream,
            Err(_) => Err(RequestError::Unreachable("no response".to_owned())),
        }
    }

    async fn dial(server: &ServerUrl) -> Result<Self, RequestError> {
        let unreachable = |error: io::Error| RequestError::Unreachable(error.to_string());
        let stream = TcpStream::connect((server.host.as_str(), server.port)).await.map_err(unreachable)?;
        // Terminal input is small and must not be delayed.
        stream.set_nodelay(true).map_err(unreachable)?;
        if !server.tls {
            return Ok(Self::Plain(stream));
        }
        Ok(Self::Tls(Box::new(tls::connect(&server.host, stream).await?)))
    }
}

impl AsyncRead for ServerConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ServerConnection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(context),
        }
    }
}

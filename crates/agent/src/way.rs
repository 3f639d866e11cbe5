//! The way to the server: a socket in a directory of the sandbox, or TCP with TLS.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::Endpoint;
use workspace_agent_protocol::handover::Handover;

use crate::trust;

/// How long the network may take to connect.
const CONNECT: Duration = Duration::from_secs(10);
/// A network can lose a connection without a word: so often the server is asked whether it is there, and so long it
/// may take to answer.
const ASK: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// How the server is reached.
#[derive(Clone)]
pub(crate) enum Way {
    Socket(PathBuf),
    Network(Network),
}

/// A server at an address, known by its certificate.
#[derive(Clone)]
pub(crate) struct Network {
    addresses: Vec<SocketAddr>,
    name: ServerName<'static>,
    tls: TlsConnector,
}

/// A connection to the server.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Way {
    /// How connections on this way are made and watched.
    pub(crate) fn endpoint(&self) -> Endpoint {
        // The address is of no use: who connects knows where to go.
        let endpoint = Endpoint::from_static("http://server");
        match self {
            Self::Socket(_) => endpoint,
            Self::Network(_) => endpoint
                .connect_timeout(CONNECT)
                .http2_keep_alive_interval(ASK.0)
                .keep_alive_timeout(ASK.1)
                .keep_alive_while_idle(true),
        }
    }

    pub(crate) async fn connect(self) -> io::Result<Box<dyn Connection>> {
        match self {
            Self::Socket(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Self::Network(network) => network.connect().await,
        }
    }
}

impl Network {
    pub(crate) fn of(given: &Handover) -> io::Result<Self> {
        let invalid = |error: &dyn std::fmt::Display| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("no server can be dialled: {error}"))
        };
        // Addresses alone: looking up a name would start a thread, and who forks has none.
        let addresses: Result<Vec<SocketAddr>, _> = given.addresses.iter().map(|text| text.parse()).collect();
        let addresses = addresses.map_err(|error| invalid(&error))?;
        let name = ServerName::try_from(given.name.clone()).map_err(|error| invalid(&error))?;
        let tls = trust::connector(&given.trusted).map_err(|error| invalid(&error))?;
        Ok(Self { addresses, name, tls })
    }

    async fn connect(self) -> io::Result<Box<dyn Connection>> {
        let stream = TcpStream::connect(self.addresses.as_slice()).await?;
        // A keystroke's echo must not wait for more to send.
        stream.set_nodelay(true)?;
        // Nothing is said before the server has proved who it is.
        Ok(Box::new(self.tls.connect(self.name, stream).await?))
    }
}

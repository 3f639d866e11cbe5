//! Transport to the server: a Unix socket in a directory of the sandbox, or TCP with TLS.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::Endpoint;
use workspace_agent_protocol::start_parameters::StartParameters;

use crate::tls;

/// Timeout of a connection attempt, for all addresses of the server and the TLS handshake together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of HTTP/2 keep-alive pings, since a network can drop a connection silently.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout of the response to a keep-alive ping.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Transport to the server.
#[derive(Clone)]
pub(crate) enum Transport {
    /// Unix socket at this path.
    Socket(PathBuf),
    /// TCP with TLS.
    Network(Network),
}

/// Server at a network address, identified by its certificate.
#[derive(Clone)]
pub(crate) struct Network {
    /// Parameters without the token, for the I/O worker.
    parameters: StartParameters,
    addresses: Vec<SocketAddr>,
    name: ServerName<'static>,
    tls: TlsConnector,
}

/// Byte stream to the server.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Transport {
    /// Returns the endpoint with the timeouts of this transport.
    pub(crate) fn endpoint(&self) -> Endpoint {
        // The URL is unused: the connector knows the address.
        let endpoint = Endpoint::from_static("http://server");
        match self {
            Self::Socket(_) => endpoint,
            Self::Network(_) => endpoint
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
                .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
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
    pub(crate) fn from_parameters(parameters: &StartParameters) -> io::Result<Self> {
        let invalid = |error: &dyn std::fmt::Display| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("invalid address, name or certificate of the server: {error}"),
            )
        };
        // Only addresses: resolving a name would start a thread, and forking needs a single-threaded process.
        let addresses: Result<Vec<SocketAddr>, _> =
            parameters.addresses.iter().map(|text| text.parse()).collect();
        let addresses = addresses.map_err(|error| invalid(&error))?;
        let name = ServerName::try_from(parameters.server_name.clone()).map_err(|error| invalid(&error))?;
        let tls = tls::connector(&parameters.trusted_certificates).map_err(|error| invalid(&error))?;
        let parameters = StartParameters { token: Vec::new(), ..parameters.clone() };
        Ok(Self { parameters, addresses, name, tls })
    }

    /// Returns the parameters with which another process can connect, if it has a token.
    pub(crate) fn parameters(&self) -> &StartParameters {
        &self.parameters
    }

    async fn connect(self) -> io::Result<Box<dyn Connection>> {
        let stream = TcpStream::connect(self.addresses.as_slice()).await?;
        // Disables Nagle's algorithm, since the echo of a keystroke must not wait.
        stream.set_nodelay(true)?;
        // The handshake verifies the server before anything is sent.
        Ok(Box::new(self.tls.connect(self.name, stream).await?))
    }
}

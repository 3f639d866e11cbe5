//! TCP port for guest agents that connect over a network: one for all, always with TLS.
//!
//! Until its sandbox is known, a connection counts for its address: few are accepted from each at a time,
//! handshake and registration have a time limit, and further connections are closed at once. So a sandbox
//! that floods the port affects only itself.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;

use crate::guest::connection_limit::{ConnectionPermit, ConnectionQuota, LimitedStream, Peer};
use crate::guest::endpoint::ServerEndpoint;
use crate::guest::identity::Identity;
use crate::guest::listener::{GuestHandler, GuestService, REGISTER_TIMEOUT, server};

/// Maximum number of unidentified connections from one address. A guest agent needs one; its I/O worker opens two at
/// the same time.
const PER_ADDRESS_MAX: usize = 8;
/// Maximum number of unidentified connections from all addresses.
const UNIDENTIFIED_MAX: usize = 1_024;
/// Connections after their handshake that wait to be served.
const HANDSHAKE_QUEUE: usize = 16;
/// Interval and timeout of keepalive pings. A network can lose a connection silently.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// A TCP port for guest agents that connect over a network.
#[derive(Debug)]
pub struct GuestPort {
    listener: TcpListener,
    /// Certificate and key of the server.
    identity: Identity,
    /// Address and certificates, as guest agents get them.
    endpoint: ServerEndpoint,
}

impl GuestPort {
    /// Makes a port from `listener`. Guest agents are told to connect to `advertised`, host and port; without it,
    /// to the address by which the runtime's network reaches this machine.
    pub fn new(
        listener: TcpListener,
        identity: Identity,
        advertised: Option<(String, u16)>,
    ) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        let endpoint = ServerEndpoint { advertised, port, trusted: identity.trusted().to_vec() };
        Ok(Self { listener, identity, endpoint })
    }

    /// Address that it listens on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(crate) fn endpoint(&self) -> ServerEndpoint {
        self.endpoint.clone()
    }

    /// Accepts guest agents until the task is aborted, which closes the port.
    pub(crate) fn open(self, handler: Arc<dyn GuestHandler>) -> JoinHandle<()> {
        let service = GuestService::new(None, handler).service();
        let (sender, receiver) = mpsc::channel(HANDSHAKE_QUEUE);
        let Self { listener, identity, .. } = self;
        let mut server =
            server().http2_keepalive_interval(Some(KEEPALIVE.0)).http2_keepalive_timeout(Some(KEEPALIVE.1));
        tokio::spawn(async move {
            tokio::select! {
                () = accept(listener, identity.acceptor(), sender) => {}
                served = server.add_service(service).serve_with_incoming(ReceiverStream::new(receiver)) => {
                    if let Err(error) = served {
                        tracing::error!(%error, "guest port failed");
                    }
                }
            }
        })
    }
}

type GuestStream = LimitedStream<TlsStream<TcpStream>>;

async fn accept(listener: TcpListener, tls: TlsAcceptor, sender: mpsc::Sender<io::Result<GuestStream>>) {
    let quota = ConnectionQuota::new(PER_ADDRESS_MAX, UNIDENTIFIED_MAX);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match quota.acquire(peer.ip().to_canonical()) {
                Some(permit) => {
                    tokio::spawn(shake_hands(stream, permit, tls.clone(), sender.clone()));
                }
                None => tracing::debug!(%peer, "rejected a guest agent: too many unidentified connections"),
            },
            // Perhaps out of file descriptors; the guest agent retries.
            Err(error) => {
                tracing::warn!(%error, "failed to accept a guest agent");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn shake_hands(
    stream: TcpStream,
    permit: ConnectionPermit<IpAddr>,
    tls: TlsAcceptor,
    sender: mpsc::Sender<io::Result<GuestStream>>,
) {
    let deadline = Instant::now() + REGISTER_TIMEOUT;
    let peer = Peer::unidentified(permit);
    let address = peer.address();
    // Disables Nagle's algorithm, so that a keystroke is sent at once. Fails only on a closed connection.
    let _ = stream.set_nodelay(true);
    match timeout_at(deadline, tls.accept(stream)).await {
        // If the gRPC server has stopped, the stream is dropped, which closes it.
        Ok(Ok(stream)) => drop(sender.send(Ok(LimitedStream::new(stream, peer, deadline, None))).await),
        Ok(Err(error)) => tracing::debug!(%error, peer = ?address, "TLS handshake of a guest agent failed"),
        Err(_) => tracing::debug!(peer = ?address, "TLS handshake of a guest agent timed out"),
    }
}

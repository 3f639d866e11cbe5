//! The port on which guest agents come in that dial over a network: one for all, always with TLS.
//!
//! Until it is known whose a connection is, it counts: few are let in from each address at a time, the handshake and
//! the registration have to be over in time, and the rest is closed at once. So a sandbox that floods the port keeps
//! nobody but itself out.

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

use crate::guest::connection_limit::{ConnectionPermit, ConnectionQuota, Identified, LimitedStream};
use crate::guest::identity::Identity;
use crate::guest::listener::{GuestHandler, GuestService, REGISTER, server};

/// Connections from one address of which it is not known whose they are; a guest needs one.
const EACH: usize = 8;
/// Such connections from all addresses.
const ALL: usize = 1_024;
/// Connections that passed their handshake and wait to be served.
const QUEUE: usize = 16;
/// A network can lose a connection without a word: so often a guest is asked whether it is there, and so long it may
/// take to answer.
const ASK: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// A port for guest agents that dial over a network.
#[derive(Debug)]
pub struct GuestPort {
    listener: TcpListener,
    identity: Identity,
    reach: Reach,
}

/// How guest agents reach the port.
#[derive(Debug, Clone)]
pub struct Reach {
    /// Host and port to dial, if they are not those that the runtime finds.
    pub(crate) advertised: Option<(String, u16)>,
    /// The port that is listened on.
    pub(crate) port: u16,
    /// Certificates that guests trust, in DER.
    pub(crate) trusted: Vec<Vec<u8>>,
}

impl GuestPort {
    /// Takes in who dials `listener`. Guests are told to dial `advertised`, host and port; without it, the address by
    /// which the runtime's network reaches this machine.
    pub fn new(
        listener: TcpListener,
        identity: Identity,
        advertised: Option<(String, u16)>,
    ) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        let reach = Reach { advertised, port, trusted: identity.trusted().to_vec() };
        Ok(Self { listener, identity, reach })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(crate) fn reach(&self) -> Reach {
        self.reach.clone()
    }

    /// Lets guests in until the task is ended, which closes the port.
    pub(crate) fn open(self, listener: Arc<dyn GuestHandler>) -> JoinHandle<()> {
        let service = GuestService::new(None, listener).service();
        let (sender, receiver) = mpsc::channel(QUEUE);
        let Self { listener, identity, .. } = self;
        let mut server = server().http2_keepalive_interval(Some(ASK.0)).http2_keepalive_timeout(Some(ASK.1));
        tokio::spawn(async move {
            tokio::select! {
                () = accept(listener, identity.acceptor(), sender) => {}
                served = server.add_service(service).serve_with_incoming(ReceiverStream::new(receiver)) => {
                    if let Err(error) = served {
                        tracing::error!(%error, "the guests' port failed");
                    }
                }
            }
        })
    }
}

type Guarded = LimitedStream<TlsStream<TcpStream>>;

async fn accept(listener: TcpListener, tls: TlsAcceptor, sender: mpsc::Sender<io::Result<Guarded>>) {
    let quota = ConnectionQuota::new(EACH, ALL);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match quota.enter(peer.ip().to_canonical()) {
                Some(permit) => {
                    tokio::spawn(shake_hands(stream, permit, tls.clone(), sender.clone()));
                }
                None => tracing::debug!(%peer, "a guest was not let in: too many have not said who they are"),
            },
            // Out of descriptors, perhaps; whoever dials tries again.
            Err(error) => {
                tracing::warn!(%error, "a guest could not be let in");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn shake_hands(
    stream: TcpStream,
    permit: ConnectionPermit<IpAddr>,
    tls: TlsAcceptor,
    sender: mpsc::Sender<io::Result<Guarded>>,
) {
    let deadline = Instant::now() + REGISTER;
    let identified = Identified::waiting(permit);
    let peer = identified.peer();
    // A keystroke must not wait for more to send. A failure means that the connection is gone already.
    let _ = stream.set_nodelay(true);
    match timeout_at(deadline, tls.accept(stream)).await {
        // When nobody serves any more, it is closed.
        Ok(Ok(stream)) => drop(sender.send(Ok(LimitedStream::new(stream, identified, deadline, None))).await),
        Ok(Err(error)) => tracing::debug!(%error, ?peer, "a guest's TLS handshake failed"),
        Err(_) => tracing::debug!(?peer, "a guest's TLS handshake took too long"),
    }
}

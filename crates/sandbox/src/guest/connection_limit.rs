//! Connections of guest agents: limited in number, and closed when they do not register in time.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::transport::server::Connected;

use crate::leaf_mutex::{LeafGuard, LeafMutex};

/// A connection that counts for a limit, and is closed when it does not register in time.
pub(crate) struct LimitedStream<S> {
    stream: S,
    /// Client of the connection.
    peer: Peer,
    /// Time until which it has to register.
    deadline: Pin<Box<Sleep>>,
    /// Permit that it holds while it is open.
    _permit: Option<OwnedSemaphorePermit>,
}

/// Other end of a connection: unidentified until it has registered for its sandbox. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer(Arc<PeerState>);

#[derive(Debug, Default)]
struct PeerState {
    /// True once it has registered for its sandbox.
    identified: AtomicBool,
    /// Quota that it counts for: unidentified connections of its address, and then connections of its
    /// sandbox.
    quota_use: LeafMutex<QuotaUse>,
    /// Address of the client; `None` for a Unix socket.
    address: Option<IpAddr>,
}

#[derive(Debug, Default)]
enum QuotaUse {
    /// None: a Unix socket.
    #[default]
    None,
    /// Quota of the address, until the connection has registered for a sandbox.
    Unidentified { _permit: ConnectionPermit<IpAddr> },
    /// Quota of the sandbox that it has registered for.
    Sandbox { _permit: ConnectionPermit<String> },
}

impl Peer {
    /// Creates the state of an unidentified connection.
    pub(crate) fn unidentified(permit: ConnectionPermit<IpAddr>) -> Self {
        let address = Some(permit.key);
        let quota_use = LeafMutex::new(QuotaUse::Unidentified { _permit: permit });
        Self(Arc::new(PeerState { identified: AtomicBool::new(false), quota_use, address }))
    }

    /// Marks the connection as identified. From now on it counts for its sandbox.
    pub(crate) fn identify(&self, permit: ConnectionPermit<String>) {
        self.0.identified.store(true, Ordering::Relaxed);
        let quota_use = QuotaUse::Sandbox { _permit: permit };
        let former = std::mem::replace(&mut *self.0.quota_use.lock(), quota_use);
        // After the lock is released: a permit takes the lock of its quota.
        drop(former);
    }

    fn is_identified(&self) -> bool {
        self.0.identified.load(Ordering::Relaxed)
    }

    /// Returns the address of the peer; `None` for a Unix socket.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.0.address
    }
}

impl<S> LimitedStream<S> {
    pub(crate) fn new(
        stream: S,
        peer: Peer,
        deadline: Instant,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { stream, peer, deadline: Box::pin(sleep_until(deadline)), _permit: permit }
    }

    /// Returns true if it did not register in time. Wakes the reader at the deadline.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        !self.peer.is_identified() && self.deadline.as_mut().poll(cx).is_ready() && !self.peer.is_identified()
    }
}

impl<S> Connected for LimitedStream<S> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_late(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Limit on connections in total, and per key, which is an address or a sandbox: a key that opens too many
/// connections affects only itself.
#[derive(Debug)]
pub(crate) struct ConnectionQuota<K: Eq + Hash> {
    /// Maximum number of connections of a key.
    per_key: usize,
    /// Maximum number of connections of all keys.
    all: usize,
    /// Number of connections of each key.
    taken: LeafMutex<HashMap<K, usize>>,
}

/// A connection that counts for the quota until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit<K: Eq + Hash> {
    quota: Arc<ConnectionQuota<K>>,
    key: K,
}

impl<K: Eq + Hash + Clone> ConnectionQuota<K> {
    pub(crate) fn new(per_key: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { per_key, all, taken: LeafMutex::default() })
    }

    /// Counts one more connection. `None` if the quota is used up.
    pub(crate) fn acquire(self: &Arc<Self>, key: K) -> Option<ConnectionPermit<K>> {
        let mut taken = self.taken();
        let all: usize = taken.values().sum();
        let of_key = taken.get(&key).copied().unwrap_or_default();
        if of_key >= self.per_key || all >= self.all {
            return None;
        }
        taken.insert(key.clone(), of_key + 1);
        Some(ConnectionPermit { quota: self.clone(), key })
    }
}

impl<K: Eq + Hash> ConnectionQuota<K> {
    fn taken(&self) -> LeafGuard<'_, HashMap<K, usize>> {
        self.taken.lock()
    }
}

impl<K: Eq + Hash> Drop for ConnectionPermit<K> {
    fn drop(&mut self) {
        let mut taken = self.quota.taken();
        match taken.get_mut(&self.key) {
            Some(count) if *count > 1 => *count -= 1,
            // Keys without connections are forgotten.
            _ => drop(taken.remove(&self.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_uses_up_its_quota_leaves_that_of_others() {
        let quota = ConnectionQuota::new(2, 3);
        let [one, other, third]: [IpAddr; 3] =
            ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|it| it.parse().unwrap());
        let first = quota.acquire(one).unwrap();
        let peer = Peer::unidentified(quota.acquire(one).unwrap());
        assert!(quota.acquire(one).is_none());
        let last = quota.acquire(other).unwrap();
        assert!(quota.acquire(third).is_none(), "there are no more than three in all");
        let sandboxes = ConnectionQuota::new(1, 3);
        peer.identify(sandboxes.acquire("sbx-1".to_owned()).unwrap());
        assert!(quota.acquire(third).is_some(), "an identified connection counts for its sandbox instead");
        assert!(
            sandboxes.acquire("sbx-1".to_owned()).is_none()
                && sandboxes.acquire("sbx-2".to_owned()).is_some()
        );
        drop((first, last, peer));
        assert!(quota.taken().is_empty());
        assert!(sandboxes.taken().is_empty());
    }
}

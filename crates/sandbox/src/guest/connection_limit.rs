//! Connections of guests: counted, and closed when nobody says in time whose they are.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::transport::server::Connected;

/// A connection that counts, and is closed when nobody says in time whose it is.
pub(crate) struct LimitedStream<S> {
    stream: S,
    identified: Identified,
    deadline: Pin<Box<Sleep>>,
    /// What it takes up for as long as it is there.
    _permit: Option<OwnedSemaphorePermit>,
}

/// Whether it is known whose a connection is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identified(Arc<PeerState>);

#[derive(Debug, Default)]
struct PeerState {
    identified: AtomicBool,
    /// What it takes up: a place among the unknown of its address, and then one among those of its sandbox.
    quota_use: Mutex<QuotaUse>,
    peer: Option<IpAddr>,
}

#[derive(Debug, Default)]
enum QuotaUse {
    #[default]
    None,
    Unknown {
        _permit: ConnectionPermit<IpAddr>,
    },
    Sandbox {
        _permit: ConnectionPermit<String>,
    },
}

impl Identified {
    /// Of a connection that waits in a room.
    pub(crate) fn waiting(permit: ConnectionPermit<IpAddr>) -> Self {
        let peer = Some(permit.of);
        let quota_use = Mutex::new(QuotaUse::Unknown { _permit: permit });
        Self(Arc::new(PeerState { identified: AtomicBool::new(false), quota_use, peer }))
    }

    /// It is known now, and takes up a place of its sandbox's.
    pub(crate) fn set(&self, permit: ConnectionPermit<String>) {
        self.0.identified.store(true, Ordering::Relaxed);
        let quota_use = QuotaUse::Sandbox { _permit: permit };
        drop(std::mem::replace(
            &mut *self.0.quota_use.lock().unwrap_or_else(PoisonError::into_inner),
            quota_use,
        ));
    }

    fn is_set(&self) -> bool {
        self.0.identified.load(Ordering::Relaxed)
    }

    /// Where it comes from, over a network.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.0.peer
    }
}

impl<S> LimitedStream<S> {
    pub(crate) fn new(
        stream: S,
        identified: Identified,
        deadline: Instant,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { stream, identified, deadline: Box::pin(sleep_until(deadline)), _permit: permit }
    }

    /// Whether it took too long. Wakes who reads when it does.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        !self.identified.is_set() && self.deadline.as_mut().poll(cx).is_ready() && !self.identified.is_set()
    }
}

impl<S> Connected for LimitedStream<S> {
    type ConnectInfo = Identified;

    fn connect_info(&self) -> Identified {
        self.identified.clone()
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

/// Counts connections: so many of each, of an address or a sandbox, so that who floods keeps nobody but itself out; and
/// so many in all.
#[derive(Debug)]
pub(crate) struct ConnectionQuota<K: Eq + Hash> {
    each: usize,
    all: usize,
    taken: Mutex<HashMap<K, usize>>,
}

/// A place in the room; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit<K: Eq + Hash> {
    quota: Arc<ConnectionQuota<K>>,
    of: K,
}

impl<K: Eq + Hash + Clone> ConnectionQuota<K> {
    pub(crate) fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { each, all, taken: Mutex::default() })
    }

    /// A place for one more, if there is one.
    pub(crate) fn enter(self: &Arc<Self>, of: K) -> Option<ConnectionPermit<K>> {
        let mut taken = self.taken();
        let all: usize = taken.values().sum();
        let own = taken.get(&of).copied().unwrap_or_default();
        if own >= self.each || all >= self.all {
            return None;
        }
        taken.insert(of.clone(), own + 1);
        Some(ConnectionPermit { quota: self.clone(), of })
    }
}

impl<K: Eq + Hash> ConnectionQuota<K> {
    fn taken(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Drop for ConnectionPermit<K> {
    fn drop(&mut self) {
        let mut taken = self.quota.taken();
        match taken.get_mut(&self.of) {
            Some(own) if *own > 1 => *own -= 1,
            // Those that have gone are not remembered.
            _ => drop(taken.remove(&self.of)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_takes_all_its_places_leaves_those_of_others() {
        let quota = ConnectionQuota::new(2, 3);
        let [one, other, third]: [IpAddr; 3] =
            ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|it| it.parse().unwrap());
        let first = quota.enter(one).unwrap();
        let identified = Identified::waiting(quota.enter(one).unwrap());
        assert!(quota.enter(one).is_none());
        let last = quota.enter(other).unwrap();
        assert!(quota.enter(third).is_none(), "there are no more than three in all");
        let sandboxes = ConnectionQuota::new(1, 3);
        identified.set(sandboxes.enter("sbx-1".to_owned()).unwrap());
        assert!(quota.enter(third).is_some(), "who is identified takes a quota_use of its sandbox's instead");
        assert!(
            sandboxes.enter("sbx-1".to_owned()).is_none() && sandboxes.enter("sbx-2".to_owned()).is_some()
        );
        drop((first, last, identified));
        assert!(quota.taken().is_empty() && sandboxes.taken().is_empty());
    }
}

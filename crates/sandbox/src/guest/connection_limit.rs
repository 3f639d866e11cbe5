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
pub(crate) struct Limited<S> {
    stream: S,
    known: Known,
    deadline: Pin<Box<Sleep>>,
    /// What it takes up for as long as it is there.
    _permit: Option<OwnedSemaphorePermit>,
}

/// Whether it is known whose a connection is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Arc<Origin>);

#[derive(Debug, Default)]
struct Origin {
    known: AtomicBool,
    /// What it takes up: a place among the unknown of its address, and then one among those of its sandbox.
    place: Mutex<Place>,
    peer: Option<IpAddr>,
}

#[derive(Debug, Default)]
enum Place {
    #[default]
    None,
    Unknown {
        _ticket: Ticket<IpAddr>,
    },
    Sandbox {
        _ticket: Ticket<String>,
    },
}

impl Known {
    /// Of a connection that waits in a room.
    pub(crate) fn waiting(ticket: Ticket<IpAddr>) -> Self {
        let peer = Some(ticket.of);
        let place = Mutex::new(Place::Unknown { _ticket: ticket });
        Self(Arc::new(Origin { known: AtomicBool::new(false), place, peer }))
    }

    /// It is known now, and takes up a place of its sandbox's.
    pub(crate) fn set(&self, ticket: Ticket<String>) {
        self.0.known.store(true, Ordering::Relaxed);
        let place = Place::Sandbox { _ticket: ticket };
        drop(std::mem::replace(&mut *self.0.place.lock().unwrap_or_else(PoisonError::into_inner), place));
    }

    fn is_set(&self) -> bool {
        self.0.known.load(Ordering::Relaxed)
    }

    /// Where it comes from, over a network.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.0.peer
    }
}

impl<S> Limited<S> {
    pub(crate) fn new(
        stream: S,
        known: Known,
        deadline: Instant,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { stream, known, deadline: Box::pin(sleep_until(deadline)), _permit: permit }
    }

    /// Whether it took too long. Wakes who reads when it does.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        !self.known.is_set() && self.deadline.as_mut().poll(cx).is_ready() && !self.known.is_set()
    }
}

impl<S> Connected for Limited<S> {
    type ConnectInfo = Known;

    fn connect_info(&self) -> Known {
        self.known.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
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
pub(crate) struct Room<K: Eq + Hash> {
    each: usize,
    all: usize,
    taken: Mutex<HashMap<K, usize>>,
}

/// A place in the room; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket<K: Eq + Hash> {
    room: Arc<Room<K>>,
    of: K,
}

impl<K: Eq + Hash + Clone> Room<K> {
    pub(crate) fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { each, all, taken: Mutex::default() })
    }

    /// A place for one more, if there is one.
    pub(crate) fn enter(self: &Arc<Self>, of: K) -> Option<Ticket<K>> {
        let mut taken = self.taken();
        let all: usize = taken.values().sum();
        let own = taken.get(&of).copied().unwrap_or_default();
        if own >= self.each || all >= self.all {
            return None;
        }
        taken.insert(of.clone(), own + 1);
        Some(Ticket { room: self.clone(), of })
    }
}

impl<K: Eq + Hash> Room<K> {
    fn taken(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Drop for Ticket<K> {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
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
        let room = Room::new(2, 3);
        let [one, other, third]: [IpAddr; 3] =
            ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|it| it.parse().unwrap());
        let first = room.enter(one).unwrap();
        let known = Known::waiting(room.enter(one).unwrap());
        assert!(room.enter(one).is_none());
        let last = room.enter(other).unwrap();
        assert!(room.enter(third).is_none(), "there are no more than three in all");
        let sandboxes = Room::new(1, 3);
        known.set(sandboxes.enter("sbx-1".to_owned()).unwrap());
        assert!(room.enter(third).is_some(), "who is known takes a place of its sandbox's instead");
        assert!(
            sandboxes.enter("sbx-1".to_owned()).is_none() && sandboxes.enter("sbx-2".to_owned()).is_some()
        );
        drop((first, last, known));
        assert!(room.taken().is_empty() && sandboxes.taken().is_empty());
    }
}

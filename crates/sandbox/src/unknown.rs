//! Connections of which nobody has said yet whose they are.

use std::collections::HashMap;
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
    /// What it takes up until it is known.
    ticket: Mutex<Option<Ticket>>,
    peer: Option<IpAddr>,
}

impl Known {
    /// Of a connection that waits in a room.
    pub(crate) fn waiting(ticket: Ticket) -> Self {
        let peer = Some(ticket.peer);
        Self(Arc::new(Origin { known: AtomicBool::new(false), ticket: Mutex::new(Some(ticket)), peer }))
    }

    /// It is known now.
    pub(crate) fn set(&self) {
        self.0.known.store(true, Ordering::Relaxed);
        drop(self.0.ticket.lock().unwrap_or_else(PoisonError::into_inner).take());
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

/// Where connections over a network wait until it is known whose they are: so many of each address, so that who
/// floods it keeps nobody but itself out, and so many in all.
#[derive(Debug)]
pub(crate) struct Room {
    each: usize,
    all: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// A place in the room; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    room: Arc<Room>,
    peer: IpAddr,
}

impl Room {
    pub(crate) fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { each, all, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from that address, if there is one.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Ticket> {
        let peer = peer.to_canonical();
        let mut taken = self.taken();
        let all: usize = taken.values().sum();
        let own = taken.get(&peer).copied().unwrap_or_default();
        if own >= self.each || all >= self.all {
            return None;
        }
        taken.insert(peer, own + 1);
        Some(Ticket { room: self.clone(), peer })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
        match taken.get_mut(&self.peer) {
            Some(own) if *own > 1 => *own -= 1,
            // Addresses that have gone are not remembered.
            _ => drop(taken.remove(&self.peer)),
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
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let first = room.enter(one).unwrap();
        let known = Known::waiting(room.enter(mapped).unwrap());
        assert!(room.enter(one).is_none());
        let last = room.enter(other).unwrap();
        assert!(room.enter(third).is_none(), "there are no more than three in all");
        known.set();
        assert!(room.enter(third).is_some(), "who is known takes no place");
        drop((first, last));
        assert!(room.taken().is_empty());
    }
}

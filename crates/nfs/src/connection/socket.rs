//! Socket of a connection, and the timeouts of its peer.
//!
//! The timeout of the socket bounds the time without progress: when it is over, `recv` and `send` return the number of
//! bytes that were transferred, or fail with `EAGAIN` if there are none. It is set once for each connection. So a quick
//! request needs no system calls other than `recv` and `send`, and reads no clock.
//!
//! A large record needs a *permit* before it is read, because the memory for large requests is limited.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::large_requests::Permit;
use crate::buffers::is_large;
use crate::server::Context;
use crate::settings::Limits;
use crate::wire::Source;

/// Minimum number of requested bytes for which a receive waits until all of them have arrived. It is more than the
/// reader of records requests when it does not know the length of the record.
const WAIT_ALL_MIN: usize = 32 * 1024;

/// Receiving side of a socket.
pub(super) struct Socket {
    stream: Arc<TcpStream>,
    client: IpAddr,
    context: Arc<Context>,
    /// Permit for the record that is being read; `None` if the record is small.
    permit: Option<Permit>,
    /// Time for which no byte of the next record was received; `None` within a record.
    idle: Option<Duration>,
    /// Deadline of the record that is being read.
    transfer: Transfer,
}

/// Sets the timeouts of a socket.
pub(super) fn set_timeouts(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    let timeout = call_timeout(limits);
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))
}

/// Returns the timeout of one call on a socket: the shortest of the timeouts.
fn call_timeout(limits: &Limits) -> Duration {
    limits.idle_timeout.min(limits.transfer_timeout).min(limits.transfer_total_timeout)
}

impl Socket {
    pub(super) fn new(stream: Arc<TcpStream>, client: IpAddr, context: Arc<Context>) -> Self {
        Self { stream, client, context, permit: None, idle: None, transfer: Transfer::default() }
    }

    /// Takes the permit of the record that was read. `None` if the record is small.
    pub(super) fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// Called after bytes were received. `is_part` is true if they are fewer than requested. Fails if the record has
    /// taken longer than `transfer_total_timeout`.
    fn received(&mut self, is_part: bool) -> io::Result<()> {
        let has_just_begun = self.idle.take().is_some();
        if is_part && !has_just_begun { self.transfer.check(&self.context.limits) } else { Ok(()) }
    }

    /// Called when no bytes were received within the timeout of the socket. Fails within a record, and between two
    /// records after `idle_timeout`.
    fn received_nothing(&mut self) -> io::Result<()> {
        let limits = &self.context.limits;
        let Some(idle) = &mut self.idle else { return Err(stalled()) };
        *idle += call_timeout(limits);
        if *idle >= limits.idle_timeout { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl Source for Socket {
    fn begin_record(&mut self, has_begun: bool) {
        self.idle = (!has_begun).then_some(Duration::ZERO);
        self.transfer = Transfer::default();
    }

    fn read_some(&mut self, out: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        let flags = if max >= WAIT_ALL_MIN { RecvFlags::WAITALL } else { RecvFlags::empty() };
        out.reserve(max);
        let start = out.len();
        loop {
            let room = &mut out.spare_capacity_mut()[..max];
            match rustix::net::recv(&*self.stream, room, flags) {
                Ok(((received, _), _)) => {
                    let count = received.len();
                    // SAFETY: `recv` has written `count` bytes behind the old length.
                    unsafe { out.set_len(start + count) };
                    self.received(count < max)?;
                    return Ok(count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.received_nothing()?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn reserve(&mut self, out: &mut Vec<u8>, length: usize) -> io::Result<()> {
        if is_large(length) && self.permit.is_none() {
            let permit = self.context.large_requests.acquire(self.client);
            self.permit = Some(permit.ok_or(io::ErrorKind::ConnectionAborted)?);
            // The wait for the permit does not count as time of the peer.
            self.transfer = Transfer::default();
        }
        self.context.buffers.reserve(out, length);
        Ok(())
    }
}

/// Sends a whole reply. Fails if the peer receives nothing for the timeout of the socket, or if the reply takes longer
/// than `transfer_total_timeout`.
pub(super) fn send(stream: &TcpStream, mut reply: &[u8], limits: &Limits) -> io::Result<()> {
    let mut transfer = Transfer::default();
    loop {
        match rustix::net::send(stream, reply, SendFlags::NOSIGNAL) {
            Ok(count) if count == reply.len() => return Ok(()),
            Ok(count) => {
                reply = &reply[count..];
                transfer.check(limits)?;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(stalled()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Deadline of the transfer of a record or a reply. It is set when a call has transferred only a part; until then no
/// clock is read.
#[derive(Debug, Default)]
struct Transfer {
    deadline: Option<Instant>,
}

impl Transfer {
    /// Fails if the deadline has passed. Sets it in the first call.
    fn check(&mut self, limits: &Limits) -> io::Result<()> {
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert_with(|| now + limits.transfer_total_timeout);
        if now < deadline { Ok(()) } else { Err(stalled()) }
    }
}

fn stalled() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client took too long for a request or a reply")
}

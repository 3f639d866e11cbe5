//! Socket of a connection, and the time that its peer has.
//!
//! The timeout of a call on the socket is the time without progress: the kernel returns what has moved when it is over,
//! or `EAGAIN` if nothing has. It is set once, so a quick request costs no other call than `recv` and `send`, and reads
//! no clock.

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

/// Number of bytes from which on a receive waits for all of them. More than the reader of records asks for
/// when it does not know how many there are.
const WAIT_ALL_MIN: usize = 32 * 1024;

/// Receiving side of a socket.
pub(super) struct Socket {
    stream: Arc<TcpStream>,
    client: IpAddr,
    context: Arc<Context>,
    /// Permit for the record that is read, if it is large.
    permit: Option<Permit>,
    /// Time without a byte of the next record; `None` within a record.
    idle: Option<Duration>,
    transfer: Transfer,
}

/// Sets the timeouts of a socket.
pub(super) fn set_timeouts(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    let timeout = call_timeout(limits);
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))
}

/// Timeout of one call on a socket.
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

    /// Fails if the peer has taken too long for a record of which a part was received.
    fn received_part(&mut self) -> io::Result<()> {
        if self.idle.take().is_some() {
            // The record has just begun.
            return Ok(());
        }
        self.transfer.check(&self.context.limits)
    }

    /// Fails if the peer has been silent for too long.
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
                    if count < max {
                        self.received_part()?;
                    }
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
            // The peer is not to blame for the wait.
            self.transfer = Transfer::default();
        }
        self.context.buffers.reserve(out, length);
        Ok(())
    }
}

/// Sends all of a reply.
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

/// Time that a record or a reply takes. The clock is read when a call has moved only a part of it.
#[derive(Debug, Default)]
struct Transfer {
    deadline: Option<Instant>,
}

impl Transfer {
    /// Fails if the transfer takes too long.
    fn check(&mut self, limits: &Limits) -> io::Result<()> {
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert_with(|| now + limits.transfer_total_timeout);
        if now < deadline { Ok(()) } else { Err(stalled()) }
    }
}

fn stalled() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client took too long for a request or a reply")
}

//! Socket of a connection.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::server::Context;
use crate::wire::Source;

/// Number of bytes from which on a receive waits for all of them. More than the reader of records asks for
/// when it does not know how many there are.
const WAIT_ALL_MIN: usize = 32 * 1024;

/// Receiving side of a socket.
pub(super) struct Socket {
    stream: Arc<TcpStream>,
    context: Arc<Context>,
}

impl Socket {
    pub(super) fn new(stream: Arc<TcpStream>, context: Arc<Context>) -> Self {
        Self { stream, context }
    }
}

impl Source for Socket {
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
                    return Ok(count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn reserve(&mut self, out: &mut Vec<u8>, length: usize) {
        self.context.buffers.reserve(out, length);
    }
}

/// Sends all of a reply.
pub(super) fn send(stream: &TcpStream, mut reply: &[u8]) -> io::Result<()> {
    while !reply.is_empty() {
        match rustix::net::send(stream, reply, SendFlags::NOSIGNAL) {
            Ok(count) => reply = &reply[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

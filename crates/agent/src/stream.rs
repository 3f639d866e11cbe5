//! Non-blocking descriptors of pipes and terminals.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Non-blocking descriptor of a pipe or terminal.
pub(crate) struct NonBlockingFd(AsyncFd<OwnedFd>);

impl NonBlockingFd {
    pub(crate) fn reader(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Interest::READABLE)
    }

    pub(crate) fn writer(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Interest::WRITABLE)
    }

    fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        // SAFETY: the descriptor is owned by the result, which keeps it open and does not replace it.
        let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
        Ok(Self(registered.map_err(|error| error.into_parts().1)?))
    }

    /// Reads bytes. Returns 0 at end of file.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut *buffer)?)).await;
        match read {
            // Linux reports EIO for a terminal whose other end is closed.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(0),
            other => other,
        }
    }

    /// Writes some of the bytes. Returns their number.
    pub(crate) async fn write(&self, data: &[u8]) -> io::Result<usize> {
        self.0.async_io(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, data)?)).await
    }
}

impl AsFd for NonBlockingFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

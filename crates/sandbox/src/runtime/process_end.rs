//! Waiting for the end of a process that is no child of this one.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits until the process of a descriptor has ended: from then on the descriptor can be read.
pub(super) async fn wait_for_end(process: OwnedFd) -> io::Result<()> {
    // SAFETY: the `AsyncFd` owns the descriptor and closes it.
    let watched = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) };
    watched?.readable().await.map(|_| ())
}

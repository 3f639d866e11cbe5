//! Waiting for the exit of a process that is no child of this one.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits until the process of a pidfd has exited: from then on the pidfd is readable.
pub(super) async fn wait_for_exit(process: OwnedFd) -> io::Result<()> {
    // SAFETY: the `AsyncFd` owns the descriptor and closes it.
    let watched = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) };
    watched?.readable().await.map(|_| ())
}

//! Watches that report when a head has ended.
//!
//! A *head* is a read-only overlay that shows a snapshot to several workspaces, until a newer head replaces it. It has
//! *ended* when the kernel has destroyed the overlay, because no mount, open file, memory mapping or working directory
//! uses it any more. Only then may the layers (the lower directories) of the overlay be removed.

use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// Id of the watch of one head: an inotify watch descriptor. The kernel does not reuse ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WatchId(i32);

/// Watches of heads, on one inotify instance. A watch does not keep an overlay from being destroyed. The kernel removes
/// the watch together with the overlay.
#[derive(Debug)]
pub(super) struct HeadWatches {
    /// inotify instance; `None` if the limit of instances is reached. Then no head is ever reported to have ended.
    inotify: Option<OwnedFd>,
    /// Watches of ended heads, until [`HeadWatches::has_ended`] has returned true for them.
    ended: Mutex<HashSet<WatchId>>,
}

impl HeadWatches {
    pub(super) fn new() -> Self {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        Self { inotify, ended: Mutex::default() }
    }

    /// Watches the overlay whose root directory is `root`. Returns `None` if that is not possible.
    pub(super) fn add(&self, root: &OwnedFd) -> Option<WatchId> {
        let path = format!("/proc/self/fd/{}", root.as_raw_fd());
        // A watch must name an event. `IN_DELETE_SELF` never happens in a read-only filesystem. The kernel reports
        // `IN_UNMOUNT` in any case.
        let flags = WatchFlags::DELETE_SELF | WatchFlags::ONLYDIR;
        inotify::add_watch(self.inotify.as_ref()?, path, flags).ok().map(WatchId)
    }

    /// Reads all pending events, and records the heads that have ended.
    pub(super) fn read(&self) {
        let Some(inotify) = &self.inotify else { return };
        let mut buffer = [MaybeUninit::uninit(); 4_096];
        let mut reader = Reader::new(inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::UNMOUNT) => {
                    self.ended.lock().insert(WatchId(event.wd()));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Returns true if the head of a watch has ended. Returns true only once for each watch, and then forgets it.
    pub(super) fn has_ended(&self, watch: WatchId) -> bool {
        self.ended.lock().remove(&watch)
    }
}

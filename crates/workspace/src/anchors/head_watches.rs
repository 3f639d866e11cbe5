//! Watches that report when a head has ended: its overlay was destroyed by the kernel, because no mount, open file,
//! mapping or working directory uses it any more.

use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// Watch of one head. Ids are not reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WatchId(i32);

/// Watches of heads, on one inotify instance. A watch does not keep the overlay from being destroyed, and is removed by
/// the kernel with it.
#[derive(Debug)]
pub(super) struct HeadWatches {
    /// `None` if the limit of inotify instances is reached: then no head is known to have ended.
    inotify: Option<OwnedFd>,
    /// Watches that have reported an end, until [`HeadWatches::has_ended`] is called for them.
    ended: Mutex<HashSet<WatchId>>,
}

impl HeadWatches {
    pub(super) fn new() -> Self {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        Self { inotify, ended: Mutex::default() }
    }

    /// Watches the filesystem of a directory; `None` if that is not possible.
    pub(super) fn add(&self, root: &OwnedFd) -> Option<WatchId> {
        let path = format!("/proc/self/fd/{}", root.as_raw_fd());
        // A watch needs an event to wait for. This one never happens in a read-only filesystem. `IN_UNMOUNT` is
        // reported in any case.
        let flags = WatchFlags::DELETE_SELF | WatchFlags::ONLYDIR;
        inotify::add_watch(self.inotify.as_ref()?, path, flags).ok().map(WatchId)
    }

    /// Reads which heads have ended since the last call.
    pub(super) fn read(&self) {
        let Some(inotify) = &self.inotify else { return };
        let mut buffer = [MaybeUninit::uninit(); 4_096];
        let mut reader = Reader::new(inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::UNMOUNT) => {
                    self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(WatchId(event.wd()));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Returns true if the head of a watch has ended, only once for each watch.
    pub(super) fn has_ended(&self, watch: WatchId) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).remove(&watch)
    }
}

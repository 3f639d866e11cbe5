//! Free space of the disk of the workspaces, and its decrease since the last search for files that are deleted and
//! still open. Scans do not see such files, but they take space.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Highest free space since the last search for deleted files, in bytes, so that the next one waits until the disk is
/// notably fuller.
#[derive(Debug, Default)]
pub(crate) struct Fullness(AtomicU64);

impl Fullness {
    /// Decrease of the free space, in bytes, after which the next search is due.
    const STEP: u64 = 16 << 20;

    /// Records the free space, in bytes. Returns true if deleted files are to be searched for now: the free space
    /// has decreased by [`Self::STEP`] from its maximum since this last returned true.
    pub(crate) fn record_free_space(&self, free: u64) -> bool {
        let before = self.0.fetch_max(free, Ordering::Relaxed);
        let is_fuller = before.saturating_sub(free) >= Self::STEP;
        if is_fuller {
            self.0.store(free, Ordering::Relaxed);
        }
        is_fuller
    }
}

/// Returns the free bytes of the filesystem of a directory that users other than root can use; `None` if the system
/// call fails.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail * stat.f_frsize)
}

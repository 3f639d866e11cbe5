//! Free space of the disk of the workspaces, and its decrease since the last search for files that are deleted and
//! still open. Scans do not see such files, but they take space.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Decides when to search for deleted files that are still open: at first, and whenever the free space has decreased by
/// [`Self::STEP`] from its maximum since the last search.
#[derive(Debug)]
pub(crate) struct DeletedFileSearch {
    /// Maximum free space since the last search, in bytes. [`u64::MAX`] before the first: such files may have filled the
    /// disk before the server started.
    max_free: AtomicU64,
}

impl DeletedFileSearch {
    /// Decrease of the free space, in bytes, after which the next search is due.
    const STEP: u64 = 16 << 20;

    /// Records the free space, in bytes. Returns true if a search is due; the caller then makes it.
    pub(crate) fn is_due(&self, free: u64) -> bool {
        let before = self.max_free.fetch_max(free, Ordering::Relaxed);
        let is_due = before.saturating_sub(free) >= Self::STEP;
        if is_due {
            self.max_free.store(free, Ordering::Relaxed);
        }
        is_due
    }
}

impl Default for DeletedFileSearch {
    fn default() -> Self {
        Self { max_free: AtomicU64::new(u64::MAX) }
    }
}

/// Returns the free bytes of the filesystem of a directory that users other than root can use; `None` if the system
/// call fails.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail * stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_due_at_first_and_whenever_the_disk_is_fuller() {
        let search = DeletedFileSearch::default();
        // A server that starts on a full disk searches, too.
        assert!(search.is_due(0));
        assert!(!search.is_due(0));
        assert!(!search.is_due(100 << 20));
        assert!(!search.is_due((84 << 20) + 1));
        assert!(search.is_due(84 << 20));
        assert!(!search.is_due(84 << 20));
    }
}

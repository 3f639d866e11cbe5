//! State of the traces of a sandbox.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::leaf_mutex::LeafMutex;
use crate::lock_rank::{LockRank, Ranked};

/// Time for which a check of the quota of snapshots holds.
const QUOTA_CHECK_LIFETIME: Duration = Duration::from_secs(10);
/// Number of snapshots for which one check of the quota holds.
pub(crate) const QUOTA_CHECK_SNAPSHOTS: u32 = 32;

/// State of the traces of a sandbox.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    /// Held exclusively while a trace or an automatic completion reads files after a command, and shared while a
    /// command starts, so that changes of the next command are not in the snapshot of the last one.
    starts: RwLock<()>,
    /// True if files were written over the API since the last snapshot.
    pub(crate) has_outside_changes: AtomicBool,
    /// True if a command may have changed files and has no snapshot.
    pub(crate) has_untraced_changes: AtomicBool,
    /// Time until which a check of the quota holds, and number of snapshots that it allows.
    quota: LeafMutex<Option<(Instant, u32)>>,
    /// Number of further snapshots before old ones are removed again.
    until_cleanup: AtomicU32,
}

impl Tracer {
    /// Waits until no files are read after a command. The result keeps others from beginning to read.
    pub(crate) async fn block_reads(&self) -> Ranked<RwLockReadGuard<'_, ()>> {
        LockRank::Starts.wait(self.starts.read()).await
    }

    /// Waits until no command is being started. The result keeps others from starting.
    pub(crate) async fn block_starts(&self) -> Ranked<RwLockWriteGuard<'_, ()>> {
        LockRank::Starts.wait(self.starts.write()).await
    }

    /// Does the same as [`Self::block_starts`] at once; `None` if that needs waiting.
    pub(crate) fn try_block_starts(&self) -> Option<Ranked<RwLockWriteGuard<'_, ()>>> {
        Some(LockRank::Starts.taken(self.starts.try_write().ok()?))
    }

    /// Records that files may be changed from outside the sandbox.
    pub(crate) fn set_outside_changes(&self) {
        self.has_outside_changes.store(true, Ordering::Relaxed);
    }

    /// Records that a command may have changed files, and has no snapshot.
    pub(crate) fn set_untraced_changes(&self) {
        self.has_untraced_changes.store(true, Ordering::Relaxed);
    }

    /// Uses up one of the snapshots that the last check of the quota allows. Returns false if there is none left.
    pub(crate) fn use_checked_quota(&self) -> bool {
        let mut quota = self.quota.lock();
        match &mut *quota {
            Some((until, left)) if *left > 0 && Instant::now() < *until => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// Records that a check of the quota allowed [`QUOTA_CHECK_SNAPSHOTS`] snapshots, of which the caller makes the
    /// first.
    pub(crate) fn set_checked_quota(&self) {
        *self.quota.lock() = Some((Instant::now() + QUOTA_CHECK_LIFETIME, QUOTA_CHECK_SNAPSHOTS - 1));
    }

    /// Counts a snapshot. Returns true if it is time to remove old ones: the first time, and then every `period` times.
    pub(crate) fn count_snapshot(&self, period: u32) -> bool {
        let next = |left: u32| Some(left.checked_sub(1).unwrap_or(period.saturating_sub(1)));
        self.until_cleanup.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) == Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_of_the_quota_holds_for_some_snapshots() {
        let tracer = Tracer::default();
        assert!(!tracer.use_checked_quota());
        tracer.set_checked_quota();
        assert_eq!(
            (0..100).filter(|_| tracer.use_checked_quota()).count(),
            QUOTA_CHECK_SNAPSHOTS as usize - 1
        );
    }

    #[test]
    fn old_snapshots_are_removed_the_first_time_and_then_periodically() {
        let tracer = Tracer::default();
        let due: Vec<bool> = (0..6).map(|_| tracer.count_snapshot(3)).collect();
        assert_eq!(due, [true, false, false, true, false, false]);
        assert!((0..3).all(|_| Tracer::default().count_snapshot(0)));
    }
}

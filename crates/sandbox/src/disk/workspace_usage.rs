//! Disk usage of one sandbox's workspace, as measured from time to time.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use workspace_workspace::DiskUsage;

use crate::clock::now;
use crate::leaf_mutex::{LeafGuard, LeafMutex};

/// Maximum number of times that the timeout of a scan is doubled.
const TIMEOUT_DOUBLINGS: u32 = 3;

/// Measurements of a workspace, and when the next scan is due.
///
/// Its two mutexes are leaf mutexes: a thread that holds one takes no other lock.
#[derive(Debug)]
pub(crate) struct WorkspaceUsage {
    /// Time at which the next scan is due.
    next_scan: LeafMutex<Instant>,
    /// Results of the scans.
    measured: LeafMutex<Measurements>,
    /// True while the workspace is being scanned.
    is_being_scanned: AtomicBool,
    /// Consecutive scans that timed out.
    unfinished_scans: AtomicU32,
    /// Bytes in files that are deleted and still open. Scans do not see them; they are searched for separately.
    deleted_open_bytes: AtomicU64,
}

/// Growth of a workspace since its baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Growth {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    /// True if the scan of the baseline was not finished: part of the growth may have been there already.
    pub(crate) is_upper_bound: bool,
}

#[derive(Debug, Default)]
struct Measurements {
    /// Result of the last scan, and its time in milliseconds since 1970.
    last: Option<(DiskUsage, i64)>,
    /// Usage from which growth is counted: the last result before the disk was found to have enough space, or the
    /// last result on a nearly full disk. `None` before the first of these. It is not always the last result,
    /// because a scan may have come after the sandbox had filled the disk.
    baseline: Option<DiskUsage>,
}

impl Measurements {
    /// Records the result of a scan and returns the usage. A scan that was not finished never lowers the usage.
    fn record(&mut self, scanned: DiskUsage) -> DiskUsage {
        let usage = match self.last {
            Some((last, _)) if scanned.is_lower_bound => DiskUsage {
                bytes: scanned.bytes.max(last.bytes),
                files: scanned.files.max(last.files),
                ..scanned
            },
            _ => scanned,
        };
        self.last = Some((usage, now()));
        usage
    }
}

impl Default for WorkspaceUsage {
    fn default() -> Self {
        Self {
            next_scan: LeafMutex::new(Instant::now()),
            measured: LeafMutex::default(),
            is_being_scanned: AtomicBool::default(),
            unfinished_scans: AtomicU32::default(),
            deleted_open_bytes: AtomicU64::default(),
        }
    }
}

impl WorkspaceUsage {
    fn measured(&self) -> LeafGuard<'_, Measurements> {
        self.measured.lock()
    }

    /// Records the result of a scan.
    pub(crate) fn record(&self, scanned: DiskUsage) {
        self.measured().record(scanned);
    }

    /// Records the usage of a new workspace, before the sandbox writes anything.
    pub(crate) fn record_first(&self, scanned: DiskUsage) {
        *self.measured() = Measurements { last: Some((scanned, now())), baseline: Some(scanned) };
    }

    /// Returns the usage at the last scan; `None` before the first.
    pub(crate) fn last(&self) -> Option<DiskUsage> {
        self.measured().last.map(|(usage, _)| usage)
    }

    /// Returns the bytes at the last scan; zero before the first.
    pub(crate) fn bytes(&self) -> u64 {
        self.last().map_or(0, |usage| usage.bytes)
    }

    /// Returns the bytes at the last scan, and its time in milliseconds since 1970; `None` before the first.
    pub(crate) fn last_with_time(&self) -> Option<(u64, i64)> {
        self.measured().last.map(|(usage, time)| (usage.bytes, time))
    }

    /// Moves the baseline of growth to the result of a scan after which the disk had enough space; `None`
    /// keeps the baseline.
    pub(crate) fn set_baseline(&self, usage: Option<DiskUsage>) {
        let mut measured = self.measured();
        measured.baseline = usage.or(measured.baseline);
    }

    /// Records the result of a scan while the disk was nearly full, and makes it the baseline. Returns the
    /// growth since the former baseline; zero if there was none.
    pub(crate) fn record_growth(&self, scanned: DiskUsage) -> Growth {
        let mut measured = self.measured();
        let usage = measured.record(scanned);
        let baseline = measured.baseline.replace(usage).unwrap_or(usage);
        Growth {
            bytes: usage.bytes.saturating_sub(baseline.bytes),
            files: usage.files.saturating_sub(baseline.files),
            is_upper_bound: baseline.is_lower_bound,
        }
    }

    /// Lowers the baseline by a growth that had no consequence: the next
    /// [`record_growth`](Self::record_growth) returns it again.
    pub(crate) fn undo_growth(&self, growth: Growth) {
        if let Some(baseline) = &mut self.measured().baseline {
            baseline.bytes = baseline.bytes.saturating_sub(growth.bytes);
            baseline.files = baseline.files.saturating_sub(growth.files);
        }
    }

    /// Returns the bytes in files that are deleted and still open, as the last search for them found.
    pub(crate) fn deleted_open_bytes(&self) -> u64 {
        self.deleted_open_bytes.load(Ordering::Relaxed)
    }

    /// Records the result of a search for deleted files that are still open, and returns the previous one.
    pub(crate) fn set_deleted_open_bytes(&self, bytes: u64) -> u64 {
        self.deleted_open_bytes.swap(bytes, Ordering::Relaxed)
    }

    /// Begins a scan. Returns false if one is in progress.
    pub(crate) fn begin_scan(&self) -> bool {
        !self.is_being_scanned.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn end_scan(&self) {
        self.is_being_scanned.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_scan_due(&self) -> bool {
        *self.next_scan.lock() <= Instant::now()
    }

    pub(crate) fn schedule_scan(&self, pause: Duration) {
        *self.next_scan.lock() = Instant::now() + pause;
    }

    /// Returns the timeout of the next scan: `usual`, doubled for each consecutive scan that did not finish, at
    /// most [`TIMEOUT_DOUBLINGS`] times. With a constant timeout, a large workspace would never be measured
    /// beyond the directories that are visited first.
    pub(crate) fn scan_timeout(&self, usual: Duration) -> Duration {
        usual * (1 << self.unfinished_scans.load(Ordering::Relaxed).min(TIMEOUT_DOUBLINGS))
    }

    /// Records whether a scan was finished, for the timeout of the next one.
    pub(crate) fn record_scan_result(&self, is_finished: bool) {
        let unfinished =
            if is_finished { 0 } else { self.unfinished_scans.load(Ordering::Relaxed).saturating_add(1) };
        self.unfinished_scans.store(unfinished, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(bytes: u64, files: u64) -> DiskUsage {
        DiskUsage { bytes, files, is_lower_bound: false }
    }

    fn growth(bytes: u64, files: u64) -> Growth {
        Growth { bytes, files, is_upper_bound: false }
    }

    #[test]
    fn everything_that_a_new_sandbox_writes_is_growth() {
        let workspace = WorkspaceUsage::default();
        workspace.record_first(usage(10, 1));
        assert_eq!(workspace.record_growth(usage(100, 5)), growth(90, 4));
        assert_eq!(workspace.record_growth(usage(100, 5)), growth(0, 0));
        assert_eq!(workspace.last_with_time().unwrap().0, 100);
    }

    #[test]
    fn another_scan_hides_no_growth() {
        let workspace = WorkspaceUsage::default();
        workspace.record_first(usage(0, 0));
        workspace.record(usage(100, 5));
        assert_eq!(workspace.record_growth(usage(100, 5)), growth(100, 5));
        workspace.record(usage(150, 6));
        let found = workspace.last();
        // A scan after the check of the disk may include the files that filled the disk.
        workspace.record(usage(170, 6));
        workspace.set_baseline(found);
        // Growth since the baseline of 150 bytes and 6 files. New files count even if they take no bytes, as empty
        // files do with a quota.
        assert_eq!(workspace.record_growth(usage(170, 60)), growth(20, 54));
    }

    #[test]
    fn files_from_before_a_restart_are_no_growth() {
        let workspace = WorkspaceUsage::default();
        workspace.set_baseline(workspace.last());
        assert_eq!((workspace.bytes(), workspace.last_with_time()), (0, None));
        assert_eq!(workspace.record_growth(usage(100, 5)), growth(0, 0));
        assert_eq!(workspace.record_growth(usage(101, 6)), growth(1, 1));
    }

    #[test]
    fn an_unfinished_scan_never_lowers_the_usage() {
        let workspace = WorkspaceUsage::default();
        workspace.record_first(usage(100, 5));
        workspace.record(DiskUsage { is_lower_bound: true, ..usage(50, 7) });
        assert_eq!(workspace.bytes(), 100);
        assert_eq!(workspace.record_growth(usage(60, 7)), growth(0, 2));
        assert_eq!(workspace.bytes(), 60);
    }

    #[test]
    fn the_scan_after_an_unfinished_one_has_more_time() {
        const UNFINISHED: bool = false;
        const FINISHED: bool = true;
        let (workspace, usual) = (WorkspaceUsage::default(), Duration::from_secs(10));
        assert_eq!(workspace.scan_timeout(usual), usual);
        workspace.record_scan_result(UNFINISHED);
        workspace.record_scan_result(UNFINISHED);
        assert_eq!(workspace.scan_timeout(usual), usual * 4);
        (0..100).for_each(|_| workspace.record_scan_result(UNFINISHED));
        assert_eq!(workspace.scan_timeout(usual), usual * 8);
        workspace.record_scan_result(FINISHED);
        assert_eq!(workspace.scan_timeout(usual), usual);
    }

    #[test]
    fn growth_after_an_unfinished_scan_is_uncertain_and_can_be_counted_again() {
        let workspace = WorkspaceUsage::default();
        let used = |bytes, is_lower_bound| DiskUsage { bytes, files: 1, is_lower_bound };
        workspace.record_first(used(100, true));
        let growth = workspace.record_growth(used(500, false));
        assert_eq!((growth.bytes, growth.is_upper_bound), (400, true), "it may have been there");
        let growth = workspace.record_growth(used(700, false));
        assert_eq!((growth.bytes, growth.is_upper_bound), (200, false));
        workspace.undo_growth(growth);
        assert_eq!(workspace.record_growth(used(700, false)).bytes, 200);
        assert_eq!(workspace.record_growth(used(700, false)).bytes, 0);
    }
}

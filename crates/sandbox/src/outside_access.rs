//! Access of a service outside a sandbox to the files of its workspace, for many small changes.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::RwLock;
use workspace_catalog::{Sandbox, State};
use workspace_host::free_space::Shortage;
use workspace_host::quota;
use workspace_workspace::{Bounds, DiskUsage};

use crate::blocking::blocking;
use crate::error::Result;
use crate::gate::SharedAccess;
use crate::leaf_mutex::LeafMutex;
use crate::service::{Inner, Service, config_of};

/// Timeout of a scan of a workspace that seems to be full, and the time until the next one.
const SCAN_TIMEOUT: Duration = Duration::from_secs(2);
const SCAN_INTERVAL: Duration = Duration::from_secs(2);
/// Time after which the size of a workspace whose sandbox does not run is not known any more: a restore, for example,
/// may have replaced its files. The sandbox service scans only those that run.
const SCAN_AGE_MAX: Duration = Duration::from_secs(30);
/// Bytes after which a workspace whose sandbox does not run is checked again, and the free space of the disk with it:
/// nobody stops such a sandbox when the disk becomes full.
const UNCHECKED_MAX: u64 = 64 << 20;

/// Access of a service to the files of a workspace. It keeps neither the workspace nor [`Service`] alive.
#[derive(Debug)]
pub struct OutsideAccess {
    service: Weak<Inner>,
    id: String,
    /// Gate of the workspace: held shared by writers outside, exclusively by snapshots.
    gate: Arc<RwLock<()>>,
    /// Disk limit that no quota of the kernel enforces; `None` if there is none.
    limit: Option<u64>,
    /// Size at the last scan, and bytes written since.
    growth: LeafMutex<Growth>,
    /// Held during a scan.
    scanning: tokio::sync::Mutex<()>,
}

/// Estimate of the size of a workspace.
#[derive(Debug, Default)]
struct Growth {
    /// Bytes at the last scan; `None` before the first.
    scanned: Option<u64>,
    /// Time of the last scan of the sandbox service that is included, in milliseconds since 1970.
    scan_time: i64,
    /// Bytes that were written since the last scan. Those that replaced others count, too.
    written: u64,
    /// Time of the last scan that was made because the workspace seemed to be full.
    checked: Option<Instant>,
    /// True if the disk had less free space than the reserve at that time.
    is_disk_short: bool,
}

impl Service {
    /// Returns the ids of the sandboxes of this server whose workspaces can be used now, or when they are recovered or
    /// resumed. That of a sandbox that has stopped can be used now or never.
    pub async fn expected_workspaces(&self) -> Result<HashSet<String>> {
        let sandboxes = self.0.catalog.sandboxes().all(&self.0.settings.server).await?;
        let is_expected = |sandbox: &Sandbox| sandbox.state != State::Stopped || sandbox.pause.is_some();
        Ok(sandboxes.into_iter().filter(is_expected).map(|sandbox| sandbox.id).collect())
    }

    /// Returns access to the workspace of a sandbox.
    pub async fn outside_access(&self, id: &str) -> Result<OutsideAccess> {
        let directory = self.0.workspaces.directory_of(id);
        let has_quota = blocking(move || matches!(quota::used(&directory), Ok(Some(_)))).await?;
        let limit = config_of(&self.read_row(id).await?)?.disk;
        Ok(OutsideAccess {
            service: Arc::downgrade(&self.0),
            id: id.to_owned(),
            gate: self.0.gates.gate(id),
            limit: limit.filter(|_| !has_quota),
            growth: LeafMutex::default(),
            scanning: tokio::sync::Mutex::default(),
        })
    }
}

impl OutsideAccess {
    /// Returns shared access ([`Service::shared_access`]) at once; `None` if that needs waiting.
    pub fn try_shared(&self) -> Option<SharedAccess> {
        SharedAccess::try_new(&self.gate)
    }

    /// Waits for shared access; `None` after `max_wait`.
    pub async fn shared(&self, max_wait: Duration) -> Option<SharedAccess> {
        SharedAccess::new(&self.gate, max_wait).await
    }

    /// Records that files are about to be changed. The caller has shared access.
    pub fn record_change(&self) {
        if let Some(handle) = self.service().and_then(|service| service.handle(&self.id)) {
            handle.record_outside_changes();
        }
    }

    /// Returns true if the workspace has room for `bytes` more, which then count as written. Bytes that replaced others
    /// count, too, until the next scan: after false, the caller may call [`scan`](Self::scan) and ask again.
    pub fn reserve(&self, bytes: u64) -> bool {
        let Some(service) = self.service() else { return false };
        let last_scan = service.handle(&self.id).map(|handle| handle.usage.last_with_time());
        let mut growth = self.growth.lock();
        match (last_scan, self.limit) {
            (Some(_), None) => true,
            (Some(last_scan), Some(limit)) => {
                growth.include(last_scan);
                growth.reserve(bytes, limit)
            }
            (None, limit) => {
                growth.forget_old();
                !growth.is_disk_short && growth.reserve(bytes, limit.unwrap_or(u64::MAX))
            }
        }
    }

    /// Measures the workspace again, unless that was done a moment ago.
    pub async fn scan(&self) {
        let Some(service) = self.service() else { return };
        let _scanning = self.scanning.lock().await;
        if self.growth.lock().is_fresh() {
            return;
        }
        let usage = service.measure(&self.id, Bounds { time: SCAN_TIMEOUT, ..Bounds::NONE }).await;
        let is_disk_short = service.is_disk_short().await;
        let mut growth = self.growth.lock();
        growth.record(usage);
        growth.is_disk_short = is_disk_short;
    }

    fn service(&self) -> Option<Service> {
        self.service.upgrade().map(Service)
    }
}

impl Service {
    /// Returns true if less than the reserve is free on the disk of the workspaces.
    async fn is_disk_short(&self) -> bool {
        let (path, reserve) = (self.0.settings.workspaces_dir.clone(), self.0.settings.disk_reserve_bytes);
        blocking(move || Shortage::at(&path, reserve).is_some()).await.unwrap_or(true)
    }
}

impl Growth {
    /// Includes the last scan of the sandbox service: the size, and the time in milliseconds since 1970.
    fn include(&mut self, last_scan: Option<(u64, i64)>) {
        if let Some((scanned, scan_time)) = last_scan.filter(|(_, time)| *time > self.scan_time) {
            *self = Self { scanned: Some(scanned), scan_time, written: 0, ..*self };
        }
    }

    /// Returns true if the size was scanned a moment ago.
    fn is_fresh(&self) -> bool {
        self.scanned.is_some() && self.checked.is_some_and(|time| time.elapsed() < SCAN_INTERVAL)
    }

    /// Forgets the size if it was scanned long ago, or much was written since.
    fn forget_old(&mut self) {
        let is_old = self.checked.is_none_or(|time| time.elapsed() > SCAN_AGE_MAX);
        if is_old || self.written > UNCHECKED_MAX {
            self.scanned = None;
        }
    }

    /// Counts `bytes` as written if they fit in the limit. Returns false if they do not, or if the size is not known.
    fn reserve(&mut self, bytes: u64, limit: u64) -> bool {
        let Some(scanned) = self.scanned else { return false };
        let has_room = scanned.saturating_add(self.written).saturating_add(bytes) <= limit;
        if has_room {
            self.written += bytes;
        }
        has_room
    }

    /// Records the result of a scan. One that took too long found only a part, which is a lower bound.
    fn record(&mut self, usage: DiskUsage) {
        self.checked = Some(Instant::now());
        if usage.is_lower_bound {
            self.scanned = self.scanned.max(Some(usage.bytes));
        } else {
            (self.scanned, self.written) = (Some(usage.bytes), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(bytes: u64, is_lower_bound: bool) -> DiskUsage {
        DiskUsage { bytes, is_lower_bound, ..DiskUsage::default() }
    }

    #[test]
    fn nothing_is_written_before_the_size_is_known() {
        let mut growth = Growth::default();
        assert!(!growth.reserve(1, 100));
        let is_lower_bound = false;
        growth.record(usage(90, is_lower_bound));
        growth.forget_old();
        assert!(growth.reserve(10, 100));
        assert!(!growth.reserve(1, 100));
        growth.checked = Instant::now().checked_sub(SCAN_AGE_MAX * 2);
        growth.forget_old();
        assert!(!growth.reserve(0, 100));
    }

    #[test]
    fn a_scan_replaces_what_was_counted_unless_it_found_only_a_part() {
        let (complete, only_a_part) = (false, true);
        let mut growth = Growth::default();
        growth.record(usage(0, complete));
        assert!(growth.reserve(100, 100));
        growth.record(usage(10, only_a_part));
        assert!(!growth.reserve(1, 100));
        growth.record(usage(10, complete));
        assert!(growth.reserve(90, 100));
        // The sandbox service has scanned it since.
        growth.include(Some((50, 1)));
        assert!(growth.reserve(50, 100));
        growth.include(Some((50, 1)));
        assert!(!growth.reserve(1, 100));
    }
}

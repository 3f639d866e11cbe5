//! Access of a service outside a sandbox to the files of its workspace, for many small changes.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::RwLock;
use workspace_host::quota;
use workspace_workspace::Bounds;

use crate::blocking::blocking;
use crate::gate::SharedAccess;
use crate::service::{Inner, Service};

/// Timeout of a scan of a workspace that seems to be full, and the time until the next one.
const SCAN_TIMEOUT: Duration = Duration::from_secs(2);
const SCAN_INTERVAL: Duration = Duration::from_secs(2);

/// Access of a service to the files of a workspace. It keeps neither the workspace nor [`Service`] alive.
#[derive(Debug)]
pub struct OutsideAccess {
    service: Weak<Inner>,
    id: String,
    gate: Arc<RwLock<()>>,
    /// True if a quota of the kernel enforces the disk limit.
    has_quota: bool,
    growth: Mutex<Growth>,
}

/// Estimate of the size of a workspace.
#[derive(Debug, Default)]
struct Growth {
    /// Bytes at the last scan.
    scanned: u64,
    /// Time of the last scan of the sandbox service that is included, in milliseconds since 1970.
    scan_time: i64,
    /// Bytes that were written since the last scan. Those that replaced others count, too.
    written: u64,
    /// Time of the last scan that was made because the workspace seemed to be full.
    checked: Option<Instant>,
}

impl Service {
    /// Returns access to the workspace of a sandbox.
    pub async fn outside_access(&self, id: &str) -> OutsideAccess {
        let directory = self.0.workspaces.directory_of(id);
        let has_quota = blocking(move || matches!(quota::used(&directory), Ok(Some(_)))).await;
        OutsideAccess {
            service: Arc::downgrade(&self.0),
            id: id.to_owned(),
            gate: self.0.gates.gate(id),
            has_quota: has_quota.unwrap_or_default(),
            growth: Mutex::default(),
        }
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
        if self.has_quota {
            return true;
        }
        let handle = self.service().and_then(|service| service.handle(&self.id));
        // Nothing is measured for a sandbox that does not run, or has no limit.
        let Some((handle, limit)) = handle.and_then(|it| it.disk().map(|limit| (it, limit))) else {
            return true;
        };
        let last_scan = handle.usage.last_with_time();
        let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((scanned, time)) = last_scan.filter(|(_, time)| *time > growth.scan_time) {
            *growth = Growth { scanned, scan_time: time, written: 0, ..*growth };
        }
        let has_room = growth.scanned.saturating_add(growth.written).saturating_add(bytes) <= limit;
        if has_room {
            growth.written += bytes;
        }
        has_room
    }

    /// Measures the workspace again, unless that was done a moment ago.
    pub async fn scan(&self) {
        let Some(service) = self.service() else { return };
        {
            let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
            if growth.checked.is_some_and(|time| time.elapsed() < SCAN_INTERVAL) {
                return;
            }
            growth.checked = Some(Instant::now());
        }
        let usage = service.measure(&self.id, Bounds { time: SCAN_TIMEOUT, ..Bounds::NONE }).await;
        let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        // A scan that took too long found only a part.
        if !usage.is_lower_bound {
            *growth = Growth { scanned: usage.bytes, written: 0, ..*growth };
        }
    }

    fn service(&self) -> Option<Service> {
        self.service.upgrade().map(Service)
    }
}

//! Scheduling of scans that measure the disk usage of workspaces. The number of scans at once is limited in total; one
//! owner may have at most half of that number ([`FairSemaphore`]).

use std::sync::Arc;

use crate::fair_semaphore::{FairPermit, FairSemaphore};
use crate::guest::handle::SandboxHandle;

/// Maximum number of scans of workspaces that the server makes at the same time.
pub(crate) const SCANS_AT_ONCE: u32 = 4;

/// Scans that the monitor ([`crate::lifecycle::monitor`]) begins periodically, as opposed to scans that a client
/// requests. Each has its own task: its caller does not wait for it, and a slow one delays no other sandbox.
#[derive(Debug)]
pub(crate) struct DiskScans(Arc<FairSemaphore>);

impl DiskScans {
    pub(crate) fn new(at_once: u32) -> Self {
        Self(Arc::new(FairSemaphore::new(at_once)))
    }

    /// Begins a scan of a sandbox, unless one is in progress. The scan gets a permit, which it drops when it
    /// is done.
    pub(crate) fn begin<L: Future<Output = ()> + Send + 'static>(
        &self,
        handle: &Arc<SandboxHandle>,
        scan: impl FnOnce(FairPermit) -> L + Send + 'static,
    ) {
        if !handle.usage.begin_scan() {
            return;
        }
        let (semaphore, handle) = (Arc::clone(&self.0), Arc::clone(handle));
        tokio::spawn(async move {
            // A sandbox of the warm pool has no owner, and counts as an owner of its own.
            if let Ok(permit) = semaphore.acquire(handle.owner().unwrap_or(&handle.id)).await {
                scan(permit).await;
            }
            handle.usage.end_scan();
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, mpsc};

    use super::*;
    use crate::sandbox_dir::SandboxDir;

    fn handle(id: &str) -> Arc<SandboxHandle> {
        Arc::new(SandboxHandle::new(id, SandboxDir::new("/nonexistent".into()), ""))
    }

    #[tokio::test]
    async fn slow_scan_delays_no_other_sandbox() {
        let scans = DiskScans::new(2);
        let (began, mut begun) = mpsc::unbounded_channel();
        let tree_end = Arc::new(Semaphore::new(0));
        let huge = |handle: &Arc<SandboxHandle>| {
            let (began, id, end) = (began.clone(), handle.id.clone(), Arc::clone(&tree_end));
            scans.begin(handle, move |permit| async move {
                began.send(id).unwrap();
                end.acquire().await.unwrap().forget();
                drop(permit);
            });
        };
        let small = |handle: &Arc<SandboxHandle>| {
            let (began, id) = (began.clone(), handle.id.clone());
            scans.begin(handle, move |permit| async move {
                began.send(id).unwrap();
                drop(permit);
            });
        };
        let (first, second) = (handle("first"), handle("second"));
        huge(&first);
        assert_eq!(begun.recv().await.unwrap(), "first");
        for id in ["a", "b", "c"] {
            small(&handle(id));
            assert_eq!(begun.recv().await.unwrap(), id, "the first is still being scanned");
        }
        // One sandbox takes one permit.
        huge(&first);
        small(&handle("d"));
        assert_eq!(begun.recv().await.unwrap(), "d");
        // No more scans at once than permits.
        huge(&second);
        assert_eq!(begun.recv().await.unwrap(), "second");
        small(&handle("e"));
        tokio::task::yield_now().await;
        assert!(begun.try_recv().is_err());
        tree_end.add_permits(1);
        assert_eq!(begun.recv().await.unwrap(), "e");
    }
}

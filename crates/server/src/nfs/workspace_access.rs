//! Access of NFS clients to the files of a workspace.

use std::fmt;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use tokio::runtime::Handle;
use workspace_nfs::{DiskLimit, Gate, GateGuard};
use workspace_sandbox::{OutsideAccess, Service, SharedAccess};

/// Access to the files of a workspace: operations wait for commits and restores, and writes respect the disk limit.
///
/// The threads of clients take the identity of a tenant, and a thread that they start would keep it. So they never run
/// a task of the server themselves, which might start one: a thread of the server does.
pub(super) struct WorkspaceAccess {
    sandboxes: Arc<OnceLock<Service>>,
    id: String,
    /// Runtime of the server. Clients are served by threads outside of it.
    runtime: Handle,
    access: OnceLock<Arc<OutsideAccess>>,
}

impl WorkspaceAccess {
    /// Creates the access to a workspace of `sandboxes`, which must be set before the first client comes. Must be called
    /// in the runtime of the server.
    pub(super) fn new(sandboxes: Arc<OnceLock<Service>>, id: String) -> Self {
        Self { sandboxes, id, runtime: Handle::current(), access: OnceLock::new() }
    }

    /// Returns the access; `None` if the sandboxes are not set yet, or the sandbox cannot be read now. Clients then try
    /// again.
    fn access(&self) -> Option<&Arc<OutsideAccess>> {
        if let Some(access) = self.access.get() {
            return Some(access);
        }
        let (sandboxes, id) = (self.sandboxes.get()?.clone(), self.id.clone());
        match self.wait_for(async move { sandboxes.outside_access(&id).await })? {
            Ok(access) => Some(self.access.get_or_init(|| Arc::new(access))),
            Err(error) => {
                tracing::warn!(sandbox = self.id, %error, "failed to read a sandbox for an NFS client");
                None
            }
        }
    }

    /// Runs a task on a thread of the server, and waits for it. `None` if the server stops.
    fn wait_for<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.runtime.spawn(async move {
            // The client may be gone.
            let _ = sender.send(task.await);
        });
        receiver.recv().ok()
    }
}

impl Gate for WorkspaceAccess {
    fn try_shared(&self) -> Option<GateGuard> {
        self.access()?.try_shared().map(guard)
    }

    fn shared(&self, max_wait: Duration) -> Option<GateGuard> {
        let access = Arc::clone(self.access()?);
        self.wait_for(async move { access.shared(max_wait).await })?.map(guard)
    }

    fn changing(&self) {
        if let Some(access) = self.access() {
            access.record_change();
        }
    }
}

impl DiskLimit for WorkspaceAccess {
    fn allows(&self, bytes: u64) -> bool {
        let Some(access) = self.access() else { return false };
        if access.reserve(bytes) {
            return true;
        }
        let scanned = Arc::clone(access);
        self.wait_for(async move { scanned.scan().await });
        access.reserve(bytes)
    }
}

impl fmt::Debug for WorkspaceAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WorkspaceAccess").field("id", &self.id).finish_non_exhaustive()
    }
}

fn guard(access: SharedAccess) -> GateGuard {
    Box::new(access)
}

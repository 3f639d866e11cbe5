//! Access of NFS clients to the files of a workspace.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use workspace_nfs::{DiskLimit, Gate, GateGuard};
use workspace_sandbox::{OutsideAccess, Service, SharedAccess};

/// Access to the files of a workspace: operations wait for commits and restores, and writes respect the disk limit.
pub(super) struct WorkspaceAccess {
    sandboxes: Arc<OnceLock<Service>>,
    id: String,
    /// Runtime of the server. Clients are served by threads outside of it.
    runtime: Handle,
    access: OnceLock<OutsideAccess>,
}

impl WorkspaceAccess {
    /// Creates the access to a workspace of `sandboxes`, which must be set before the first client comes. Must be called
    /// in the runtime of the server.
    pub(super) fn new(sandboxes: Arc<OnceLock<Service>>, id: String) -> Self {
        Self { sandboxes, id, runtime: Handle::current(), access: OnceLock::new() }
    }

    /// Returns the access; `None` if the sandboxes are not set yet.
    fn access(&self) -> Option<&OutsideAccess> {
        let sandboxes = self.sandboxes.get()?;
        Some(self.access.get_or_init(|| self.runtime.block_on(sandboxes.outside_access(&self.id))))
    }
}

impl Gate for WorkspaceAccess {
    fn try_shared(&self) -> Option<GateGuard> {
        self.access()?.try_shared().map(guard)
    }

    fn shared(&self, max_wait: Duration) -> Option<GateGuard> {
        self.runtime.block_on(self.access()?.shared(max_wait)).map(guard)
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
        access.reserve(bytes) || {
            self.runtime.block_on(access.scan());
            access.reserve(bytes)
        }
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

//! Current namespace holder of the mounts of workspaces.
//!
//! A *namespace holder* is a process that keeps the user and mount namespaces in which an unprivileged
//! user may mount. A server that runs as root mounts in the initial namespaces and needs no holder
//! ([`NamespaceHolder::None`]). When a holder dies, its mounts disappear, and a new holder replaces it.

use std::sync::Arc;

use parking_lot::RwLock;
use workspace_host::NamespaceHolder;

/// Current namespace holder. All clones of a value return the same holder, also after [`CurrentHolder::set`].
#[derive(Debug, Clone)]
pub(crate) struct CurrentHolder(Arc<RwLock<NamespaceHolder>>);

impl CurrentHolder {
    pub(crate) fn new(holder: NamespaceHolder) -> Self {
        Self(Arc::new(RwLock::new(holder)))
    }

    pub(crate) fn get(&self) -> NamespaceHolder {
        self.0.read().clone()
    }

    pub(crate) fn set(&self, holder: NamespaceHolder) {
        *self.0.write() = holder;
    }
}

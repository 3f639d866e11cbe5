//! Holder in whose namespaces workspaces are mounted. It is replaced when it has died.

use std::sync::{Arc, PoisonError, RwLock};

use workspace_host::Holder;

/// The current holder. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct CurrentHolder(Arc<RwLock<Holder>>);

impl CurrentHolder {
    pub(crate) fn new(holder: Holder) -> Self {
        Self(Arc::new(RwLock::new(holder)))
    }

    pub(crate) fn get(&self) -> Holder {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, holder: Holder) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = holder;
    }
}

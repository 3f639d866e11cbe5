//! The holder in whose namespaces workspaces are mounted. Another one takes its place when it has died.

use std::sync::{Arc, PoisonError, RwLock};

use workspace_host::Holder;

/// Whichever holder there is now. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Here(Arc<RwLock<Holder>>);

impl Here {
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

//! Builds in progress.

use std::sync::Arc;

use tokio::sync::{Mutex, RwLock, Semaphore};

/// Locks of the template builds of a server.
#[derive(Debug)]
pub(crate) struct Builds {
    /// Limits builds that run at the same time.
    pub(super) permits: Semaphore,
    /// Held for reading by every build, from before its context is in the store, and for writing while kept results and
    /// contexts are removed: a build may need a result that it has not inserted into the catalog yet.
    pub(super) cache: Arc<RwLock<()>>,
    /// Held while a template gets its version and becomes visible.
    pub(super) publish: Mutex<()>,
}

impl Builds {
    pub(crate) fn new(at_once: u32) -> Self {
        Self {
            permits: Semaphore::new(at_once.max(1) as usize),
            cache: Arc::default(),
            publish: Mutex::default(),
        }
    }
}

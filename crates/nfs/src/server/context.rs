//! State of a server that all of its connections share, and its creation from the settings.

use std::sync::Arc;

use super::mounts::Mounts;
use super::registry::Registry;
use crate::buffers::BufferPool;
use crate::clients::ClientList;
use crate::connection::{ExtraThreads, LargeRequests};
use crate::dispatch::ReplayCache;
use crate::hooks::Observer;
use crate::settings::{Limits, Settings};
use crate::state_dir::KEY_LEN;
use crate::table::TableBudget;
use crate::volume::OpenFileCount;

/// State that all connections of a server share.
pub(crate) struct Context {
    pub(crate) limits: Limits,
    pub(crate) allowed_clients: ClientList,
    /// Key of the MAC in file handles.
    pub(crate) key: [u8; KEY_LEN],
    /// Exports that are served.
    pub(crate) registry: Registry,
    /// Mounts that clients have announced.
    pub(crate) mounts: Mounts,
    /// Observer of all operations, for metrics and the audit log.
    pub(crate) observer: Arc<dyn Observer>,
    /// Number of descriptors that are cached for all exports.
    pub(crate) open_files: Arc<OpenFileCount>,
    /// Memory of the tables that map the ids in file handles to files.
    pub(crate) table_budget: Arc<TableBudget>,
    /// Pool of large buffers for requests and replies.
    pub(crate) buffers: BufferPool,
    /// Permits for requests that need large buffers.
    pub(crate) large_requests: Arc<LargeRequests>,
    /// Number of threads beyond the first of each connection.
    pub(crate) extra_threads: Arc<ExtraThreads>,
    /// Replies that are sent again when a client repeats a call.
    pub(crate) replies: ReplayCache,
}

impl Context {
    pub(crate) fn new(settings: &Settings, key: [u8; KEY_LEN], observer: Arc<dyn Observer>) -> Self {
        Self {
            limits: settings.limits.clone(),
            allowed_clients: settings.allowed_clients.clone(),
            key,
            registry: Registry::default(),
            mounts: Mounts::default(),
            observer,
            open_files: Arc::new(OpenFileCount::new(settings.limits.open_files.min(descriptors_max() / 2))),
            table_budget: Arc::new(TableBudget::new(settings.limits.table_bytes)),
            buffers: BufferPool::default(),
            large_requests: Arc::new(LargeRequests::new(&settings.limits)),
            extra_threads: Arc::new(ExtraThreads::new(settings.limits.extra_threads)),
            replies: ReplayCache::default(),
        }
    }
}

/// Returns the maximum number of file descriptors of this process. The cache of open files takes at most half of them;
/// the rest is for connections and for the other parts of the process.
fn descriptors_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

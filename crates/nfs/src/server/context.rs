//! State that all connections of a server share.

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
    pub(crate) key: [u8; KEY_LEN],
    pub(crate) registry: Registry,
    pub(crate) mounts: Mounts,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) open_files: Arc<OpenFileCount>,
    pub(crate) table_budget: Arc<TableBudget>,
    pub(crate) buffers: BufferPool,
    pub(crate) large_requests: Arc<LargeRequests>,
    pub(crate) extra_threads: Arc<ExtraThreads>,
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

/// Maximum number of descriptors of this process. The half of it is for connections, and for others.
fn descriptors_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

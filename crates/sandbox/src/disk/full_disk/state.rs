//! State of freeing space on a full disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use workspace_workspace::DiskUsage;

use crate::leaf_mutex::{LeafGuard, LeafMutex};

/// State that is kept between two checks of the disk.
#[derive(Debug, Default)]
pub(crate) struct FullDisk {
    /// Time at which a garbage collection was last started, because of a full disk or a used-up quota.
    pub(super) last_gc: LeafMutex<Option<Instant>>,
    /// Held while a task removes unused layers.
    pub(super) layer_removal: Arc<tokio::sync::Mutex<()>>,
    /// Sandboxes in which nothing runs.
    inactive: LeafMutex<InactiveSandboxes>,
}

/// Sandboxes in which nothing runs.
#[derive(Debug, Default)]
pub(super) struct InactiveSandboxes {
    /// Times at which sandboxes were stopped because of the disk, by id.
    pub(super) stopped: HashMap<String, Instant>,
    /// Disk usage of their workspaces, by id, which no longer changes.
    pub(super) usage: HashMap<String, DiskUsage>,
}

impl FullDisk {
    /// Records that a sandbox was stopped because of a full disk.
    pub(crate) fn record_stopped(&self, id: &str) {
        self.inactive().stopped.entry(id.to_owned()).or_insert_with(Instant::now);
    }

    /// Returns the bytes of the workspace of a sandbox in which nothing runs; zero before it is measured.
    pub(crate) fn known_usage(&self, id: &str) -> u64 {
        self.inactive().usage.get(id).map_or(0, |usage| usage.bytes)
    }

    pub(super) fn inactive(&self) -> LeafGuard<'_, InactiveSandboxes> {
        self.inactive.lock()
    }
}

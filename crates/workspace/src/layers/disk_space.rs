//! Disk space for layers.
//!
//! Layers do not count against the quota of any owner, because owners may share them. The server stops
//! sandboxes when the free space falls below a reserve. Layers are written only while twice this reserve is
//! free, so that no layer can cause a sandbox to be stopped. If less is free, unused layers are removed, the
//! least recently used first. The total size of unused layers is also limited to a fraction of the disk.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use workspace_host::free_space::{self, Shortage};
use workspace_state::{Cancel, WriteLimit};

use super::{Inner, LayerGcResult, LayerState, Layers, StackKey};

/// Multiple of the free-space reserve that layers leave free.
const RESERVE_FACTOR: u64 = 2;
/// Fraction of the disk that unused layers may take, as a divisor of its size.
const UNUSED_DIVISOR: u64 = 4;
/// Number of bytes written between two checks of the free space.
const CHECK_INTERVAL_BYTES: u64 = 1 << 20;

/// Counter of written bytes, which fails writes when free space is low.
#[derive(Debug)]
pub(super) struct WriteCounter {
    layers: Arc<Inner>,
    written: AtomicU64,
}

impl WriteCounter {
    pub(super) fn bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

impl WriteLimit for WriteCounter {
    fn take(&self, bytes: u64) -> io::Result<()> {
        // True for the write that crosses a multiple of the interval.
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        let is_due = (before + bytes) / CHECK_INTERVAL_BYTES > before / CHECK_INTERVAL_BYTES;
        if is_due { self.layers.ensure_free_space() } else { Ok(()) }
    }
}

impl Layers {
    pub(super) fn write_counter(&self) -> Arc<WriteCounter> {
        Arc::new(WriteCounter { layers: Arc::clone(&self.0), written: AtomicU64::new(0) })
    }

    /// Removes unused layers until there is enough free space. Returns false if there is still too little.
    pub(crate) fn ensure_free_space(&self) -> bool {
        self.0.ensure_free_space().is_ok()
    }

    /// Pairs names of layers with their sizes in bytes; 0 for an unknown layer.
    pub(crate) fn sizes(&self, names: Vec<String>) -> Vec<(String, u64)> {
        let state = self.0.lock();
        let bytes = |name: &String| state.layers.get(name).map_or(0, |layer| layer.bytes);
        names.into_iter().map(|name| (bytes(&name), name)).map(|(bytes, name)| (name, bytes)).collect()
    }

    /// Returns a limit for writes that are not layers, such as checkouts into workspaces on the same file
    /// system.
    pub(crate) fn write_limit(&self) -> Arc<dyn WriteLimit> {
        self.write_counter()
    }
}

impl Inner {
    /// Removes unused layers, the least recently used first, until there is enough free space. Fails with
    /// `StorageFull` if there is still too little.
    pub(super) fn ensure_free_space(&self) -> io::Result<()> {
        let shortage = || Shortage::at_multiple(&self.root, self.reserve, RESERVE_FACTOR);
        if shortage().is_none() {
            return Ok(());
        }
        // One thread at a time: several would remove more than needed.
        let _lock = self.freeing.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(shortage) = shortage() {
            if !self.remove_oldest_unused() {
                return Err(io::Error::new(io::ErrorKind::StorageFull, shortage.to_string()));
            }
        }
        Ok(())
    }

    /// Removes unused layers until they fit in their fraction of the disk.
    pub(super) fn enforce_unused_limit(&self) {
        let max_bytes = free_space::size(&self.root).map_or(u64::MAX, |bytes| bytes / UNUSED_DIVISOR);
        let _lock = self.freeing.lock().unwrap_or_else(PoisonError::into_inner);
        while self.lock().unused_bytes() > max_bytes && self.remove_oldest_unused() {}
    }

    /// Removes the least recently used of the unused stacks, with all layers that no other stack or workspace
    /// needs. Returns false if there is none, or it cannot be removed.
    fn remove_oldest_unused(&self) -> bool {
        loop {
            let (stack, layers) = {
                let mut state = self.lock();
                let oldest = state.oldest_unused();
                (oldest, state.take_stacks_and_unneeded_layers(oldest.as_slice()))
            };
            if stack.is_none() && layers.is_empty() {
                return false;
            }
            match self.remove_unused(stack.as_slice(), layers, &Cancel::new()) {
                // All layers of the stack are shared with other stacks, so nothing was freed.
                Ok(LayerGcResult { layers: 0, .. }) => {}
                Ok(LayerGcResult { layers, bytes, .. }) => {
                    tracing::info!(layers, bytes, "removed unused layers to free disk space");
                    return true;
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to remove unused layers");
                    return false;
                }
            }
        }
    }
}

impl LayerState {
    fn unused_bytes(&self) -> u64 {
        let unused = self.layers.iter().filter(|(name, _)| !self.use_counts.contains_key(*name));
        unused.map(|(_, layer)| layer.bytes).sum()
    }

    fn oldest_unused(&self) -> Option<StackKey> {
        let unused = self.stacks.values().filter(|(stack, _)| !self.is_used(stack));
        unused.min_by_key(|(_, last_request)| *last_request).map(|(stack, _)| stack.key)
    }
}

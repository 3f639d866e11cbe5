//! Disk space for layers, the read-only lower directories of overlays (`layers.rs`).
//!
//! Layers do not count against the quota of any owner (tenant), because owners may share them. The server stops
//! sandboxes when the free space falls below a reserve. Layers are written only while twice this reserve is
//! free, so that no layer can cause a sandbox to be stopped. If less is free, unused layers are removed, the
//! least recently used first. The total size of unused layers is also limited to a fraction of the disk.
//!
//! A *stack* is the list of layers that together show one tree. Several stacks may share layers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use workspace_host::free_space::{self, Shortage};
use workspace_state::{Cancel, WriteLimit};

use super::{Inner, LayerGcResult, LayerState, Layers, StackKey};

/// Multiple of the free-space reserve that layers leave free.
const RESERVE_FACTOR: u64 = 2;
/// Divisor of the size of the file system: unused layers may take a quarter of it.
const UNUSED_DIVISOR: u64 = 4;
/// Number of bytes written between two checks of the free space.
const CHECK_INTERVAL_BYTES: u64 = 1 << 20;

/// Counter of written bytes. Makes the write that it counts fail when free space is low.
#[derive(Debug)]
pub(super) struct WriteCounter {
    layers: Arc<Inner>,
    /// Number of bytes written so far.
    written: AtomicU64,
}

impl WriteCounter {
    pub(super) fn bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

impl WriteLimit for WriteCounter {
    fn take(&self, bytes: u64) -> io::Result<()> {
        // The free space is checked by the write that crosses a multiple of the interval.
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        let is_check_due = (before + bytes) / CHECK_INTERVAL_BYTES > before / CHECK_INTERVAL_BYTES;
        if is_check_due { self.layers.ensure_free_space() } else { Ok(()) }
    }
}

impl Layers {
    /// Returns a new counter for the bytes of one layer or checkout.
    pub(super) fn write_counter(&self) -> Arc<WriteCounter> {
        Arc::new(WriteCounter { layers: Arc::clone(&self.0), written: AtomicU64::new(0) })
    }

    /// Removes unused layers, the least recently used first, until twice the reserve is free. Returns false if less is
    /// free even without unused layers.
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
    /// Removes unused layers, the least recently used first, until [`RESERVE_FACTOR`] times the reserve is free. Fails
    /// with `StorageFull` if less is free even without unused layers.
    pub(super) fn ensure_free_space(&self) -> io::Result<()> {
        // `Some` while less than this multiple of the reserve is free.
        let shortage = || Shortage::at_multiple(&self.root, self.reserve, RESERVE_FACTOR);
        if shortage().is_none() {
            return Ok(());
        }
        // Only one thread at a time removes layers: several would remove more than needed.
        let _lock = self.freeing.lock();
        while let Some(shortage) = shortage() {
            if !self.remove_least_recently_used() {
                return Err(io::Error::new(io::ErrorKind::StorageFull, shortage.to_string()));
            }
        }
        Ok(())
    }

    /// Removes unused layers until they take at most their fraction of the file system.
    pub(super) fn enforce_unused_limit(&self) {
        let max_bytes = free_space::size(&self.root).map_or(u64::MAX, |bytes| bytes / UNUSED_DIVISOR);
        let _lock = self.freeing.lock();
        while self.lock().unused_bytes() > max_bytes && self.remove_least_recently_used() {}
    }

    /// Removes unused stacks, the least recently used first, until at least one layer is removed. Returns false if no
    /// unused stack or layer is left, or one cannot be removed.
    fn remove_least_recently_used(&self) -> bool {
        loop {
            let (stack, layers) = {
                let mut state = self.lock();
                let stack = state.least_recently_used_stack();
                (stack, state.take_stacks_and_unneeded_layers(stack.as_slice()))
            };
            if stack.is_none() && layers.is_empty() {
                return false;
            }
            match self.remove_unused(stack.as_slice(), layers, &Cancel::new()) {
                // Other stacks share all layers of the stack, so no space was freed.
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
    /// Returns the total size of the layers that no workspace uses.
    fn unused_bytes(&self) -> u64 {
        let unused = self.layers.iter().filter(|(name, _)| !self.use_counts.contains_key(*name));
        unused.map(|(_, layer)| layer.bytes).sum()
    }

    /// Returns the key of the least recently requested stack that no workspace uses.
    fn least_recently_used_stack(&self) -> Option<StackKey> {
        let unused = self.stacks.values().filter(|(stack, _)| !self.is_used(stack));
        unused.min_by_key(|(_, last_request)| *last_request).map(|(stack, _)| stack.key)
    }
}

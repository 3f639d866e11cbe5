//! Room on the disk for layers.
//!
//! Layers count for nobody's limit, since workspaces of several owners may lie over one. So they leave twice what
//! sandboxes are to leave free: no sandbox is ended because a layer was written. Where there is less, layers over
//! which no workspace lies go first, the longest unused one first. They take at most a part of the disk together, too.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use workspace_host::free_space::{Shortage, size};
use workspace_state::{Cancel, WriteLimit};

use super::{Collected, Inner, Key, Known, Layers};

/// Layers leave so many times the reserve free.
const RESERVES: u64 = 2;
/// Layers over which nothing lies take at most one part in so many of the disk.
const UNUSED_SHARE: u64 = 4;
/// Bytes between two looks at the disk.
const LOOK_EVERY: u64 = 1 << 20;

/// Counts what is written, and ends it where the disk has no room for it.
#[derive(Debug)]
pub(super) struct Counter {
    layers: Arc<Inner>,
    written: AtomicU64,
}

impl Counter {
    pub(super) fn bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

impl WriteLimit for Counter {
    fn take(&self, bytes: u64) -> io::Result<()> {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        let is_due = (before + bytes) / LOOK_EVERY > before / LOOK_EVERY;
        if is_due { self.layers.make_room() } else { Ok(()) }
    }
}

impl Layers {
    /// Counts what is going to be written on the disk of the layers.
    pub(super) fn counter(&self) -> Arc<Counter> {
        Arc::new(Counter { layers: Arc::clone(&self.0), written: AtomicU64::new(0) })
    }

    /// Drops layers over which nothing lies until there is room for others; whether there is.
    pub(crate) fn drop_unused(&self) -> bool {
        self.0.make_room().is_ok()
    }

    /// Layers with the bytes that each takes.
    pub(crate) fn sizes(&self, names: Vec<String>) -> Vec<(String, u64)> {
        let state = self.0.lock();
        let bytes = |name: &String| state.layers.get(name).map_or(0, |layer| layer.bytes);
        names.into_iter().map(|name| (bytes(&name), name)).map(|(bytes, name)| (name, bytes)).collect()
    }

    /// Limit of what is written on the disk of the layers, whatever it is for.
    pub(crate) fn limit(&self) -> Arc<dyn WriteLimit> {
        self.counter()
    }
}

impl Inner {
    /// Drops layers over which nothing lies, the longest unused first, until there is room. Fails if there is none then.
    pub(super) fn make_room(&self) -> io::Result<()> {
        let shortage = || Shortage::at_times(&self.root, self.reserve, RESERVES);
        if shortage().is_none() {
            return Ok(());
        }
        // One at a time: several would drop more than is needed.
        let _turn = self.dropping.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(short) = shortage() {
            if !self.drop_oldest() {
                return Err(io::Error::new(io::ErrorKind::StorageFull, short.to_string()));
            }
        }
        Ok(())
    }

    /// Drops layers over which nothing lies as long as they take more than their part of the disk.
    pub(super) fn bound_unused(&self) {
        let most = size(&self.root).map_or(u64::MAX, |all| all / UNUSED_SHARE);
        let _turn = self.dropping.lock().unwrap_or_else(PoisonError::into_inner);
        while self.lock().unused_bytes() > most && self.drop_oldest() {}
    }

    /// Drops the stack that was used the longest ago, of those over which nothing lies, with all layers that nothing else
    /// needs. False if there is none, or it cannot be removed.
    fn drop_oldest(&self) -> bool {
        loop {
            let (stack, layers) = {
                let mut state = self.lock();
                let oldest = state.oldest_unused();
                (oldest, state.take_unneeded(oldest.as_slice()))
            };
            if stack.is_none() && layers.is_empty() {
                return false;
            }
            match self.remove_unused(stack.as_slice(), layers, &Cancel::new()) {
                // The layers of a stack may be those of others, too.
                Ok(Collected { layers: 0, .. }) => {}
                Ok(Collected { layers, bytes, .. }) => {
                    tracing::info!(layers, bytes, "dropped unused layers to make room");
                    return true;
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to drop unused layers");
                    return false;
                }
            }
        }
    }
}

impl Known {
    /// Bytes of layers over which nothing lies.
    fn unused_bytes(&self) -> u64 {
        let unused = self.layers.iter().filter(|(name, _)| !self.users.contains_key(*name));
        unused.map(|(_, layer)| layer.bytes).sum()
    }

    /// The stack that was used the longest ago, of those over which nothing lies.
    fn oldest_unused(&self) -> Option<Key> {
        let unused = self.stacks.values().filter(|(stack, _)| !self.is_used(stack));
        unused.min_by_key(|(_, used)| *used).map(|(stack, _)| stack.key)
    }
}

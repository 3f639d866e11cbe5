//! An open store and its virtual trees, shared by the Python objects that use them.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError, Weak};

use pyo3::prelude::*;
use workspace_state::{Store, VirtualTree};

use crate::call::detached;
use crate::error::{Failure, Result};
use crate::fork;

/// An open store. Its trees are registered, so that closing it also closes them: only then are its files closed.
pub(crate) struct Handle {
    store: RwLock<Option<Store>>,
    trees: Mutex<Registry>,
}

/// A virtual tree; `None` once the store was closed.
pub(crate) struct TreeCell(Mutex<Option<VirtualTree>>);

/// Virtual trees of a store. Those that were dropped are removed when the list has doubled.
#[derive(Default)]
struct Registry {
    cells: Vec<Weak<TreeCell>>,
    /// Length at which dropped trees are removed.
    limit: usize,
}

/// Smallest number of trees at which dropped ones are removed.
const REGISTRY_MIN: usize = 1024;

impl Registry {
    fn add(&mut self, cell: &Arc<TreeCell>) {
        if self.cells.len() >= self.limit.max(REGISTRY_MIN) {
            self.cells.retain(|cell| cell.strong_count() > 0);
            self.limit = self.cells.len() * 2;
        }
        self.cells.push(Arc::downgrade(cell));
    }
}

impl Handle {
    pub(crate) fn new(store: Store) -> Arc<Self> {
        Arc::new(Self { store: RwLock::new(Some(store)), trees: Mutex::default() })
    }

    /// Calls `work` with the store. The store stays open during the call.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
        work(open_store(&store)?)
    }

    /// Calls `work` with the store, without the GIL.
    pub(crate) fn detached<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Store) -> Result<T> + Send,
    ) -> Result<T> {
        detached(py, || self.with(work))
    }

    /// Returns true if the store was closed, or cannot be used because the process was forked.
    pub(crate) fn is_closed(&self) -> bool {
        fork::is_forked() || self.store.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Registers a tree. The caller keeps the store, or another tree of it, locked meanwhile, so that the store is not
    /// closed before.
    pub(crate) fn register(&self, tree: VirtualTree) -> Arc<TreeCell> {
        let cell = Arc::new(TreeCell(Mutex::new(Some(tree))));
        self.trees.lock().unwrap_or_else(PoisonError::into_inner).add(&cell);
        cell
    }

    /// Closes the store and its trees. Waits for calls that are running.
    pub(crate) fn close(&self) {
        drop(self.store.write().unwrap_or_else(PoisonError::into_inner).take());
        // A clone of a tree that is not closed yet may be registered meanwhile.
        loop {
            let cells = mem::take(&mut self.trees.lock().unwrap_or_else(PoisonError::into_inner).cells);
            if cells.is_empty() {
                return;
            }
            for cell in cells.iter().filter_map(Weak::upgrade) {
                drop(cell.0.lock().unwrap_or_else(PoisonError::into_inner).take());
            }
        }
    }
}

fn open_store<'s>(store: &'s RwLockReadGuard<'_, Option<Store>>) -> Result<&'s Store> {
    store.as_ref().ok_or(Failure::Closed)
}

impl TreeCell {
    /// Calls `work` with the tree.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut VirtualTree) -> Result<T>) -> Result<T> {
        let tree = self.0.lock().map_err(|_| broken())?;
        with_locked(tree, work)
    }

    /// Calls `work` with the tree if no other thread uses it; returns `work` otherwise. For work that takes less time
    /// than releasing the GIL.
    pub(crate) fn try_with<T, W>(&self, work: W) -> std::result::Result<Result<T>, W>
    where
        W: FnOnce(&mut VirtualTree) -> Result<T>,
    {
        match self.0.try_lock() {
            Ok(tree) => Ok(with_locked(tree, work)),
            Err(TryLockError::Poisoned(_)) => Ok(Err(broken())),
            Err(TryLockError::WouldBlock) => Err(work),
        }
    }
}

fn with_locked<T>(
    mut tree: MutexGuard<'_, Option<VirtualTree>>,
    work: impl FnOnce(&mut VirtualTree) -> Result<T>,
) -> Result<T> {
    work(tree.as_mut().ok_or(Failure::Closed)?)
}

fn broken() -> Failure {
    Failure::Internal("an earlier call on this tree failed; its content is unknown".to_owned())
}

// See `fork.rs`: a forked child must not close what the parent uses.

impl Drop for Handle {
    fn drop(&mut self) {
        if fork::is_forked() {
            mem::forget(self.store.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

impl Drop for TreeCell {
    fn drop(&mut self) {
        if fork::is_forked() {
            mem::forget(self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

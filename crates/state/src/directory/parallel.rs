//! Parallel work with a bounded number of open directories.
//!
//! A rayon thread that waits for its subtasks runs other tasks in the meantime. Such a task may open another directory
//! and wait again, so one thread could keep any number of directories open. For this reason, walks close a directory
//! before they process its subdirectories. And while [`OPEN_MAX`] directories are open during parallel work on their
//! entries, entries of further directories are processed sequentially.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::error::Result;

/// Maximum number of directories of this process that are open while their entries are processed in parallel.
const OPEN_MAX: usize = 16;

/// Number of directories of this process that are open while their entries are processed.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` for all items, in parallel if there is more than one. The caller must not keep a directory open.
pub(super) fn each<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    if items.len() > 1 { items.par_iter().map(work).collect() } else { items.iter().map(work).collect() }
}

/// Runs `work` for all items, while the caller keeps their directory open. Runs it in parallel, or sequentially if
/// [`OPEN_MAX`] directories are already open.
pub(super) fn each_with_open_directory<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    let slot = OpenSlot::take();
    if slot.is_within_limit { each(items, work) } else { items.iter().map(work).collect() }
}

/// Counts a directory in [`OPEN`] until it is dropped.
struct OpenSlot {
    /// True if fewer than [`OPEN_MAX`] directories were open before.
    is_within_limit: bool,
}

impl OpenSlot {
    fn take() -> Self {
        Self { is_within_limit: OPEN.fetch_add(1, Ordering::Relaxed) < OPEN_MAX }
    }
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

//! Parallel work with a bounded number of open directories.
//!
//! A rayon thread that waits for its subtasks starts other tasks, which may open a directory and wait in
//! turn. So walks close a directory before they descend, and the number of directories that stay open is
//! bounded.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::error::Result;

/// Maximum number of directories of this process that are open while their entries are processed in parallel.
const OPEN_MAX: usize = 16;

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` for all items, in parallel if there is more than one.
pub(super) fn each<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    if items.len() > 1 { items.par_iter().map(work).collect() } else { items.iter().map(work).collect() }
}

/// Runs `work` for all items, which are entries of a directory that the caller keeps open meanwhile: sequentially if
/// too many directories are open.
pub(super) fn each_with_open_directory<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    let slot = OpenSlot::take();
    if slot.is_within_limit { each(items, work) } else { items.iter().map(work).collect() }
}

struct OpenSlot {
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

//! Working on many things at once with few open files.
//!
//! While a thread waits for its parts it takes up other work, which may open a directory and wait in turn. So
//! walks close a directory before they go below it, and where parts need it open, only so many may wait at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::error::Result;

/// Directories of this process that may be open while their entries are worked on in parallel.
const OPEN_MAX: usize = 16;

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// In parallel where there is more than one thing to do.
pub(super) fn each<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    if items.len() > 1 { items.par_iter().map(work).collect() } else { items.iter().map(work).collect() }
}

/// The same for work during which a directory stays open: one after the other if too many are.
pub(super) fn each_while_open<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    let turn = Turn::take();
    if turn.is_one_of_few { each(items, work) } else { items.iter().map(work).collect() }
}

struct Turn {
    is_one_of_few: bool,
}

impl Turn {
    fn take() -> Self {
        Self { is_one_of_few: OPEN.fetch_add(1, Ordering::Relaxed) < OPEN_MAX }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

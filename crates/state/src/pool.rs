//! The threads that read and write directories.

use std::sync::LazyLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Walks recurse once per level of a tree, and while a thread waits for one part it works on another.
const STACK: usize = 64 << 20;

static POOL: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .stack_size(STACK)
        .thread_name(|number| format!("workspace-{number}"))
        .build()
        .ok()
});

/// Runs `work` where it and its parts can use all cores.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match &*POOL {
        Some(pool) => pool.install(work),
        // No threads to be had: the caller's own.
        None => work(),
    }
}

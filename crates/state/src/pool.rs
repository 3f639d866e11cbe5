//! Thread pool for reading and writing directories.

use std::sync::LazyLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Stack size in bytes. Walks recurse once per level of a tree, and a waiting thread starts other tasks on
/// the same stack.
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

/// Runs `work` on the pool, so that it can use all cores.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match &*POOL {
        Some(pool) => pool.install(work),
        // No pool could be started: run on the caller's thread.
        None => work(),
    }
}

//! Thread pool for work on many files or nodes of a tree.

use std::sync::LazyLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Stack size of a thread in bytes. Work on a tree recurses once for each level. A thread that waits for tasks of other
/// threads runs further tasks on the same stack.
const STACK_SIZE: usize = 64 << 20;

static POOL: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .stack_size(STACK_SIZE)
        .thread_name(|number| format!("workspace-{number}"))
        .build()
        .ok()
});

/// Runs `work` on the pool, so that it can use all cores.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match &*POOL {
        Some(pool) => pool.install(work),
        // The threads of the pool could not be started.
        None => work(),
    }
}

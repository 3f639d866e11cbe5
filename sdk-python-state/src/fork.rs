//! Detection of forks.
//!
//! The index of an open store (LMDB), its file locks and the thread pools do not survive `fork`: the child has locks
//! that belong to the parent, and no threads. If the child dropped its copy of a store, it would mark the index as cleanly
//! closed while the parent writes to it. Therefore, once a store was opened, a forked child can neither use nor
//! close nor open any: calls fail, and its copies are leaked.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::PyResult;

use crate::error::{Failure, Result};

/// True once this process, or one that it was forked from, has opened a store.
static HAS_OPENED: AtomicBool = AtomicBool::new(false);
/// True in a process that was forked after a store was opened.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn after_fork_in_child() {
    if HAS_OPENED.load(Ordering::Relaxed) {
        IS_FORKED.store(true, Ordering::Relaxed);
    }
}

/// Registers the detection. Called once, when the module is imported.
pub(crate) fn watch() -> PyResult<()> {
    // SAFETY: the handler only accesses atomics, which is allowed in a child of a process with threads. Python never
    // unloads extension modules, so the handler stays valid.
    let status = unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(status).into()) }
}

/// Records that a store is being opened.
pub(crate) fn set_opened() {
    HAS_OPENED.store(true, Ordering::Relaxed);
}

/// Returns true in a process that was forked after a store was opened.
pub(crate) fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// Fails in a process that was forked after a store was opened.
pub(crate) fn check() -> Result<()> {
    if is_forked() { Err(Failure::Forked) } else { Ok(()) }
}

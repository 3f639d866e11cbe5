//! The state engine as a Python module.
//!
//! `workspace_state._state` has the classes of `python/workspace_state/_state.pyi`: stores, virtual trees, snapshots,
//! references and episodes, with the names of the SDK. Every call takes the path of the crate `workspace-state`; this
//! crate converts arguments, results and errors.
//!
//! - Work runs without the GIL (`call.rs`), so that other Python threads continue.
//! - Objects are shared by threads: a lock each serialises their calls, and [`handle::Handle::close`] waits for them.
//! - A panic becomes the exception `InternalError`; no panic unwinds into Python.
//! - A process that was forked while a store was open must not use it (`fork.rs`).
//!
//! Design: `docs/design/python-state.md`.

mod call;
mod content;
mod directories;
mod entry;
mod episodes;
mod error;
mod fork;
mod handle;
mod path;
mod references;
mod snapshot;
mod snapshots;
mod store;
mod tree;

use pyo3::prelude::*;

/// Native part of `workspace_state`.
#[pymodule]
mod _state {
    use super::{PyResult, fork};

    #[pymodule_export]
    use super::directories::{CheckoutReport, DirectorySnapshot, SkippedEntry};
    #[pymodule_export]
    use super::entry::{Difference, Entry, Stat};
    #[pymodule_export]
    use super::episodes::{Episode, Episodes};
    #[pymodule_export]
    use super::references::References;
    #[pymodule_export]
    use super::snapshot::{Expect, Snapshot};
    #[pymodule_export]
    use super::snapshots::{GarbageReport, Snapshots};
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::tree::VirtualTree;

    #[pymodule_init]
    fn init() -> PyResult<()> {
        fork::watch()?;
        Ok(())
    }
}

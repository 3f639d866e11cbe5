//! Directories of the file system: snapshots and checkouts, which Ctrl-C interrupts.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyString;
use workspace_state::{
    CheckoutOptions, CheckoutReport as StateReport, NoProgress, SkippedEntry as StateSkipped,
    SnapshotOptions, SnapshotReport, Tree, checkout as check_out, snapshot_directory,
};

use crate::call::interruptible;
use crate::error::Result;
use crate::handle::Handle;
use crate::path::decode_name;
use crate::snapshot::{CommitArguments, Snapshot, SnapshotArgument};

/// Result of a checkout.
#[pyclass(frozen, module = "workspace_state")]
pub(crate) struct CheckoutReport(StateReport);

#[pymethods]
impl CheckoutReport {
    /// Number of files, symlinks and directories created or replaced.
    #[getter]
    fn written(&self) -> u64 {
        self.0.written
    }

    /// Number of entries removed.
    #[getter]
    fn removed(&self) -> u64 {
        self.0.removed
    }

    /// Number of entries that were checked and did not have to be changed.
    #[getter]
    fn unchanged(&self) -> u64 {
        self.0.unchanged
    }

    /// Bytes of file content written.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    fn __repr__(&self) -> String {
        let StateReport { written, removed, unchanged, bytes, .. } = self.0;
        format!("CheckoutReport(written={written}, removed={removed}, unchanged={unchanged}, bytes={bytes})")
    }
}

/// Entry that a snapshot of a directory does not include.
#[pyclass(frozen, module = "workspace_state")]
#[derive(Clone)]
pub(crate) struct SkippedEntry(StateSkipped);

#[pymethods]
impl SkippedEntry {
    /// Path relative to the directory.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        decode_name(py, self.0.path.as_os_str().as_bytes())
    }

    /// Reason, as text.
    #[getter]
    fn reason(&self) -> String {
        self.0.reason.to_string()
    }

    fn __repr__(&self) -> String {
        format!("SkippedEntry({:?}, {})", self.0.path, self.0.reason)
    }
}

/// Snapshot of a directory, with counts of what was read.
#[pyclass(frozen, module = "workspace_state")]
pub(crate) struct DirectorySnapshot(SnapshotReport);

#[pymethods]
impl DirectorySnapshot {
    /// The snapshot.
    #[getter]
    fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.snapshot.clone())
    }

    /// Number of regular files in it.
    #[getter]
    fn files(&self) -> u64 {
        self.0.files
    }

    /// Total size of its files in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Number of files whose content had to be read.
    #[getter]
    fn files_read(&self) -> u64 {
        self.0.files_read
    }

    /// Number of all entries that were skipped, without ignored ones.
    #[getter]
    fn skipped_count(&self) -> u64 {
        self.0.skipped_count
    }

    /// The first thousand skipped entries.
    #[getter]
    fn skipped(&self) -> Vec<SkippedEntry> {
        self.0.skipped.iter().cloned().map(SkippedEntry).collect()
    }

    fn __repr__(&self) -> String {
        format!("DirectorySnapshot(id='{}', files={})", self.0.snapshot.id, self.0.files)
    }
}

pub(crate) fn checkout(
    py: Python<'_>,
    handle: &Handle,
    snapshot: SnapshotArgument,
    directory: &Path,
    options: CheckoutOptions,
) -> Result<CheckoutReport> {
    let report = interruptible(py, |cancel| {
        handle.with(|store| {
            let store = &store.with_cancel(cancel);
            let snapshot = store.snapshot(&snapshot.resolve(store)?)?;
            // Protects the content from garbage collections meanwhile.
            let _tree = Tree::of_snapshot(store, &snapshot)?;
            Ok(check_out(store, &snapshot, directory, &options, &NoProgress)?)
        })
    })?;
    Ok(CheckoutReport(report))
}

pub(crate) fn snapshot(
    py: Python<'_>,
    handle: &Handle,
    directory: &Path,
    arguments: CommitArguments,
    use_ignore_files: bool,
    allow_incomplete: bool,
) -> Result<DirectorySnapshot> {
    let report = interruptible(py, |cancel| {
        handle.with(|store| {
            let store = &store.with_cancel(cancel);
            let options = SnapshotOptions {
                new: arguments.resolve_in(store)?,
                use_ignore_files,
                fail_if_incomplete: !allow_incomplete,
                ..SnapshotOptions::default()
            };
            Ok(snapshot_directory(store, directory, options, &NoProgress)?)
        })
    })?;
    Ok(DirectorySnapshot(report))
}

//! The class `Store`.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyString};
use workspace_state::{CheckoutOptions, Store as StateStore};

use crate::call::detached;
use crate::directories::{self, CheckoutReport, DirectorySnapshot};
use crate::episodes::Episodes;
use crate::error::{Failure, Result};
use crate::fork;
use crate::handle::Handle;
use crate::references::References;
use crate::snapshot::{CommitArguments, SnapshotArgument, parse_labels, parse_references, parse_snapshots};
use crate::snapshots::Snapshots;
use crate::tree::VirtualTree;

/// Open store: one directory with snapshots, which several processes may have open.
#[pyclass(frozen, module = "workspace_state")]
pub(crate) struct Store {
    handle: Arc<Handle>,
    path: PathBuf,
}

#[pymethods]
impl Store {
    /// Opens the store in a directory. With `create`, makes one if the directory is missing or empty.
    #[new]
    #[pyo3(signature = (path, *, create = true))]
    fn new(py: Python<'_>, path: PathBuf, create: bool) -> Result<Self> {
        let store = detached(py, || {
            fork::set_opened();
            if create {
                return Ok(StateStore::open_or_create(&path)?);
            }
            if !path.is_dir() {
                return Err(Failure::NoStore(path));
            }
            Ok(StateStore::open(&path)?)
        })?;
        let path = store.path().to_owned();
        Ok(Self { handle: Handle::new(store), path })
    }

    /// Directory of the store.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        self.path.as_os_str().into_pyobject(py).map_err(Into::into)
    }

    /// True if the store was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.handle.is_closed())
    }

    /// Closes the store and its trees. Waits for calls that other threads make.
    fn close(&self, py: Python<'_>) -> Result<()> {
        detached(py, || {
            self.handle.close();
            Ok(())
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> Result<()> {
        self.close(py)
    }

    /// Snapshots of the store.
    #[getter]
    fn snapshots(&self) -> Snapshots {
        Snapshots(Arc::clone(&self.handle))
    }

    /// Names of snapshots.
    #[getter]
    fn references(&self) -> References {
        References(Arc::clone(&self.handle))
    }

    /// Steps of searches.
    #[getter]
    fn episodes(&self) -> Episodes {
        Episodes(Arc::clone(&self.handle))
    }

    /// Creates an empty virtual tree.
    fn empty_tree(&self, py: Python<'_>) -> Result<VirtualTree> {
        VirtualTree::open(py, &self.handle, |store| Ok(store.empty_tree()?))
    }

    /// Opens the tree of a snapshot for changes, in constant time.
    fn restore(&self, py: Python<'_>, snapshot: SnapshotArgument) -> Result<VirtualTree> {
        VirtualTree::open(py, &self.handle, |store| Ok(store.restore(&snapshot.resolve(store)?)?))
    }

    /// Writes a snapshot into a directory. If the directory holds another snapshot of this store, only the differences
    /// are written. Fails if local changes would be lost, unless `force` is true.
    #[pyo3(signature = (snapshot, directory, *, force = false, sync = false))]
    fn checkout(
        &self,
        py: Python<'_>,
        snapshot: SnapshotArgument,
        directory: PathBuf,
        force: bool,
        sync: bool,
    ) -> Result<CheckoutReport> {
        let options = CheckoutOptions { force, sync, ..CheckoutOptions::default() };
        directories::checkout(py, &self.handle, snapshot, &directory, options)
    }

    /// Takes a snapshot of a directory. Files that have not changed since the last one are not read.
    #[pyo3(signature = (
        directory, message = String::new(), *, durability = "synced", author = String::new(), labels = None,
        parents = None, references = None, ignore_files = true, incomplete = false
    ))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn snapshot_directory(
        &self,
        py: Python<'_>,
        directory: PathBuf,
        message: String,
        durability: &str,
        author: String,
        labels: Option<&Bound<'_, PyDict>>,
        parents: Option<Vec<Bound<'_, PyAny>>>,
        references: Option<&Bound<'_, PyDict>>,
        ignore_files: bool,
        incomplete: bool,
    ) -> Result<DirectorySnapshot> {
        let arguments = CommitArguments {
            message,
            author,
            durability: durability.parse()?,
            labels: parse_labels(labels)?,
            parents: parse_snapshots(parents)?,
            references: parse_references(references)?,
        };
        directories::snapshot(py, &self.handle, &directory, arguments, ignore_files, incomplete)
    }

    /// Makes all previous commits durable.
    fn sync(&self, py: Python<'_>) -> Result<()> {
        self.handle.detached(py, |store| Ok(store.sync()?))
    }

    fn __repr__(&self) -> String {
        format!("Store({:?})", self.path)
    }
}

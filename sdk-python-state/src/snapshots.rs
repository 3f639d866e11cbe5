//! The class `Snapshots`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use workspace_state::{
    GcOptions, GcReport, NoProgress, Node, Snapshot as StateSnapshot, Store, Tree, TreeError, diff, insight,
    quote_path,
};

use crate::call::interruptible;
use crate::entry::Difference;
use crate::episodes::parse_json;
use crate::error::{Failure, Result};
use crate::handle::Handle;
use crate::path::TreePath;
use crate::snapshot::{Snapshot, SnapshotArgument};

/// Snapshots of a store.
#[pyclass(frozen, module = "workspace_state")]
pub(crate) struct Snapshots(pub(crate) Arc<Handle>);

#[pymethods]
impl Snapshots {
    /// Returns a snapshot.
    fn get(&self, py: Python<'_>, snapshot: SnapshotArgument) -> Result<Snapshot> {
        let found = self.0.detached(py, |store| Ok(store.snapshot(&snapshot.resolve(store)?)?))?;
        Ok(Snapshot(found))
    }

    /// Returns all snapshots, oldest first.
    fn list(&self, py: Python<'_>) -> Result<Vec<Snapshot>> {
        let found = self.0.detached(py, |store| Ok(store.snapshots()?))?;
        Ok(found.into_iter().map(Snapshot).collect())
    }

    /// Returns the ids of all snapshots that have this tree.
    fn with_tree(&self, py: Python<'_>, tree: &str) -> Result<Vec<String>> {
        let tree = tree.parse()?;
        let ids = self.0.detached(py, |store| Ok(store.snapshots_with_tree(&tree)?))?;
        Ok(ids.iter().map(ToString::to_string).collect())
    }

    /// Returns a snapshot and its ancestors, newest first, at most `limit`.
    #[pyo3(signature = (snapshot, *, limit = 1000))]
    fn history(&self, py: Python<'_>, snapshot: SnapshotArgument, limit: usize) -> Result<Vec<Snapshot>> {
        let found = self.0.detached(py, |store| {
            let history = store.history(&snapshot.resolve(store)?)?;
            Ok(history.take(limit).collect::<std::result::Result<Vec<_>, _>>()?)
        })?;
        Ok(found.into_iter().map(Snapshot).collect())
    }

    /// Deletes snapshots. A later garbage collection frees their content.
    fn delete(&self, py: Python<'_>, snapshots: Vec<SnapshotArgument>) -> Result<()> {
        self.0.detached(py, |store| {
            let ids = snapshots.into_iter().map(|snapshot| snapshot.resolve(store));
            let ids = ids.collect::<Result<Vec<_>>>()?;
            Ok(store.remove_snapshots(&ids)?)
        })
    }

    /// Returns the differences between two snapshots, sorted by path.
    fn diff(&self, py: Python<'_>, a: SnapshotArgument, b: SnapshotArgument) -> Result<Vec<Difference>> {
        let found = self.0.detached(py, |store| Ok(diff(&open(store, a)?, &open(store, b)?)?))?;
        Ok(found.into_iter().map(Difference::from).collect())
    }

    /// Returns the insight diff between two snapshots: line counts, totals and risk notes.
    fn insight<'py>(
        &self,
        py: Python<'py>,
        a: SnapshotArgument,
        b: SnapshotArgument,
    ) -> Result<Bound<'py, PyAny>> {
        let text = self.0.detached(py, |store| {
            let judged = insight(&open(store, a)?, &open(store, b)?)?;
            serde_json::to_string(&judged).map_err(|error| Failure::Internal(error.to_string()))
        })?;
        Ok(parse_json(py, &text)?)
    }

    /// Returns the content of a file of a snapshot.
    fn read_bytes<'py>(
        &self,
        py: Python<'py>,
        snapshot: SnapshotArgument,
        path: TreePath,
    ) -> Result<Bound<'py, PyBytes>> {
        let content = self.0.detached(py, |store| read_file(&open(store, snapshot)?, &path.0))?;
        Ok(PyBytes::new(py, &content))
    }

    /// Frees the content of deleted snapshots. Commits continue meanwhile.
    fn collect_garbage(&self, py: Python<'_>) -> Result<GarbageReport> {
        let report = interruptible(py, |cancel| {
            self.0.with(|store| {
                Ok(store.with_cancel(cancel).collect_garbage(&GcOptions::default(), &NoProgress)?)
            })
        })?;
        Ok(GarbageReport(report))
    }
}

/// Result of a garbage collection.
#[pyclass(frozen, module = "workspace_state")]
pub(crate) struct GarbageReport(GcReport);

#[pymethods]
impl GarbageReport {
    /// Number of reachable objects.
    #[getter]
    fn live_objects(&self) -> u64 {
        self.0.live_objects
    }

    /// Number of unreachable objects.
    #[getter]
    fn dead_objects(&self) -> u64 {
        self.0.dead_objects
    }

    /// Bytes by which the files of the store shrank.
    #[getter]
    fn freed_bytes(&self) -> u64 {
        self.0.freed_bytes
    }

    fn __repr__(&self) -> String {
        let GcReport { live_objects, dead_objects, freed_bytes, .. } = self.0;
        format!(
            "GarbageReport(live_objects={live_objects}, dead_objects={dead_objects}, freed_bytes={freed_bytes})"
        )
    }
}

/// Opens the tree of a snapshot for reading.
fn open(store: &Store, snapshot: SnapshotArgument) -> Result<Tree> {
    let snapshot: StateSnapshot = store.snapshot(&snapshot.resolve(store)?)?;
    Ok(Tree::of_snapshot(store, &snapshot)?)
}

fn read_file(tree: &Tree, path: &[u8]) -> Result<Vec<u8>> {
    let shown = || quote_path(path).into_owned();
    match tree.entry(path)? {
        None => Err(TreeError::NotFound { path: shown() }.into()),
        Some(entry) => match entry.node {
            Node::File(file) => Ok(tree.read(&file)?),
            Node::Directory(_) => Err(TreeError::IsADirectory { path: shown() }.into()),
            Node::Symlink(_) => Err(Failure::Invalid(format!("`{}` is a symlink", shown()))),
        },
    }
}

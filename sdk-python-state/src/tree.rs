//! The class `VirtualTree`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use workspace_state::{Difference as StateDifference, Store, Tree, VirtualTree as StateTree, diff};

use crate::call::{detached, guarded};
use crate::content::Content;
use crate::entry::{Difference, Entry, Stat};
use crate::error::{Failure, Result};
use crate::fork;
use crate::handle::{Handle, TreeCell};
use crate::path::{TreePath, decode_name};
use crate::snapshot::{CommitArguments, Snapshot, parse_labels, parse_references, parse_snapshots};

/// Mutable tree in memory over a snapshot. Its clones are independent.
///
/// Threads may share a tree: their calls take turns.
#[pyclass(frozen, module = "workspace_state")]
pub(crate) struct VirtualTree {
    handle: Arc<Handle>,
    cell: Arc<TreeCell>,
}

impl VirtualTree {
    /// Opens a tree of the store for changes, without the GIL.
    pub(crate) fn open(
        py: Python<'_>,
        handle: &Arc<Handle>,
        open: impl FnOnce(&Store) -> Result<StateTree> + Send,
    ) -> Result<Self> {
        let cell = handle.detached(py, |store| Ok(handle.register(open(store)?)))?;
        Ok(Self { handle: Arc::clone(handle), cell })
    }

    /// Calls `work` with the tree, without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut StateTree) -> Result<T> + Send,
    ) -> Result<T> {
        detached(py, || self.cell.with(work))
    }

    /// Calls `work` with the tree. Keeps the GIL unless another thread uses the tree: for work that takes less time than
    /// releasing the GIL.
    fn with_quick<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut StateTree) -> Result<T> + Send,
    ) -> Result<T> {
        fork::check()?;
        let work = |tree: &mut StateTree| guarded(|| work(tree));
        self.cell.try_with(work).unwrap_or_else(|work| self.with(py, work))
    }

    fn read_content(&self, py: Python<'_>, path: TreePath, offset: u64, length: u64) -> Result<Vec<u8>> {
        self.with(py, |tree| Ok(tree.read_range(path, offset, length)?))
    }
}

#[pymethods]
impl VirtualTree {
    /// Id of the snapshot that the tree was restored from or last committed as.
    #[getter]
    fn base(&self, py: Python<'_>) -> Result<Option<String>> {
        self.with_quick(py, |tree| Ok(tree.base().map(|id| id.to_string())))
    }

    /// Returns an independent tree with the same content, in constant time.
    fn clone(&self, py: Python<'_>) -> Result<Self> {
        let handle = &self.handle;
        let cell = self.with_quick(py, |tree| Ok(handle.register(tree.clone())))?;
        Ok(Self { handle: Arc::clone(handle), cell })
    }

    fn __copy__(&self, py: Python<'_>) -> Result<Self> {
        self.clone(py)
    }

    /// Returns a file as text. Fails if it is not UTF-8.
    fn read<'py>(&self, py: Python<'py>, path: TreePath) -> Result<Bound<'py, PyString>> {
        let shown = String::from_utf8_lossy(&path.0).into_owned();
        let content = self.read_content(py, path, 0, u64::MAX)?;
        let text = std::str::from_utf8(&content);
        let text = text.map_err(|error| Failure::Invalid(format!("`{shown}` is not text: {error}")))?;
        Ok(PyString::new(py, text))
    }

    /// Returns the content of a file: bytes `start` (inclusive) to `end` (exclusive).
    #[pyo3(signature = (path, *, start = 0, end = None))]
    fn read_bytes<'py>(
        &self,
        py: Python<'py>,
        path: TreePath,
        start: u64,
        end: Option<u64>,
    ) -> Result<Bound<'py, PyBytes>> {
        let length = end.unwrap_or(u64::MAX).saturating_sub(start);
        Ok(PyBytes::new(py, &self.read_content(py, path, start, length)?))
    }

    /// Writes a whole file and creates missing parents. An existing file keeps its mode.
    fn write(&self, py: Python<'_>, path: TreePath, content: Content) -> Result<()> {
        self.with(py, |tree| Ok(tree.write(path, content.0)?))
    }

    /// Appends to a file, or creates it.
    fn append(&self, py: Python<'_>, path: TreePath, content: Content) -> Result<()> {
        self.with(py, |tree| Ok(tree.append(path, &content.0)?))
    }

    /// Removes a file, a symlink, or a directory with everything below it.
    fn remove(&self, py: Python<'_>, path: TreePath) -> Result<()> {
        self.with(py, |tree| Ok(tree.remove(path)?))
    }

    /// Renames an entry, replacing a file or an empty directory at `to`.
    fn r#move(&self, py: Python<'_>, from_: TreePath, to: TreePath) -> Result<()> {
        self.with(py, |tree| Ok(tree.rename(from_, to)?))
    }

    /// Creates a directory and its missing parents.
    fn mkdir(&self, py: Python<'_>, path: TreePath) -> Result<()> {
        self.with(py, |tree| Ok(tree.mkdir(path)?))
    }

    /// Creates a symlink, replacing a file or symlink.
    fn symlink(&self, py: Python<'_>, path: TreePath, target: TreePath) -> Result<()> {
        self.with(py, |tree| Ok(tree.symlink(path, target.0)?))
    }

    /// Returns the target of a symlink.
    fn read_link<'py>(&self, py: Python<'py>, path: TreePath) -> Result<Bound<'py, PyString>> {
        let target = self.with(py, |tree| Ok(tree.read_link(path)?))?;
        Ok(decode_name(py, &target)?)
    }

    /// Changes the permission bits of a file or directory.
    fn chmod(&self, py: Python<'_>, path: TreePath, mode: u16) -> Result<()> {
        self.with(py, |tree| Ok(tree.chmod(path, mode)?))
    }

    /// Returns the entries of a directory, sorted by name.
    #[pyo3(signature = (path = TreePath(Vec::new())))]
    fn list(&self, py: Python<'_>, path: TreePath) -> Result<Vec<Entry>> {
        let entries = self.with(py, |tree| Ok(tree.list(path)?))?;
        Ok(entries.into_iter().map(Entry::from).collect())
    }

    /// Returns the metadata of an entry.
    fn stat(&self, py: Python<'_>, path: TreePath) -> Result<Stat> {
        self.with(py, |tree| Ok(tree.stat(path)?.into()))
    }

    /// Returns true if there is an entry at the path.
    fn exists(&self, py: Python<'_>, path: TreePath) -> Result<bool> {
        self.with(py, |tree| Ok(tree.exists(path)?))
    }

    /// Returns the differences to the snapshot that the tree was restored from or last committed as; to an empty tree if
    /// there is none. Sorted by path.
    fn changes(&self, py: Python<'_>) -> Result<Vec<Difference>> {
        let handle = &self.handle;
        let found = detached(py, || {
            let changed = self.cell.with(|tree| Ok(tree.clone()))?;
            handle.with(|store| changes_of(store, &changed))
        })?;
        Ok(found.into_iter().map(Difference::from).collect())
    }

    /// Returns the hash that the tree would have if it were committed now. Equal trees have equal hashes.
    fn tree_id(&self, py: Python<'_>) -> Result<String> {
        self.with(py, |tree| Ok(tree.tree_id()?.to_string()))
    }

    /// Commits the tree as a snapshot, which becomes its base. The cost depends on the changes.
    #[pyo3(signature = (
        message = String::new(), *, durability = "synced", author = String::new(), labels = None, parents = None,
        references = None
    ))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn commit(
        &self,
        py: Python<'_>,
        message: String,
        durability: &str,
        author: String,
        labels: Option<&Bound<'_, PyDict>>,
        parents: Option<Vec<Bound<'_, PyAny>>>,
        references: Option<&Bound<'_, PyDict>>,
    ) -> Result<Snapshot> {
        let arguments = CommitArguments {
            message,
            author,
            durability: durability.parse()?,
            labels: parse_labels(labels)?,
            parents: parse_snapshots(parents)?,
            references: parse_references(references)?,
        };
        let handle = &self.handle;
        let snapshot = detached(py, || {
            let new = arguments.resolve(handle)?;
            self.cell.with(|tree| Ok(tree.commit(new)?))
        })?;
        Ok(Snapshot(snapshot))
    }

    /// Panics while the tree is locked, for the tests. Not in a release build.
    #[cfg(debug_assertions)]
    fn _panic(&self, py: Python<'_>) -> Result<()> {
        self.with(py, |_| panic!("a panic of a test"))
    }

    fn __repr__(&self, py: Python<'_>) -> Result<String> {
        let base = self.with_quick(py, |tree| Ok(tree.base()))?;
        Ok(base.map_or("VirtualTree()".to_owned(), |id| format!("VirtualTree(base='{id}')")))
    }
}

fn changes_of(store: &Store, changed: &StateTree) -> Result<Vec<StateDifference>> {
    let to = changed.preview()?;
    let from = match changed.base() {
        Some(base) => Tree::of_snapshot(store, &store.snapshot(&base)?)?,
        None => store.empty_tree()?.preview()?,
    };
    Ok(diff(&from, &to)?)
}

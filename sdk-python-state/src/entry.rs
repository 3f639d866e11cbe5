//! The classes `Entry`, `Stat` and `Difference`.

use pyo3::prelude::*;
use pyo3::types::PyString;
use workspace_state::{
    Difference as StateDifference, DifferenceKind, Entry as StateEntry, Node, NodeKind, Stat as StateStat,
    Timestamp, VirtualEntry,
};

use crate::path::decode_name;

fn kind_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::File => "file",
        NodeKind::Directory => "directory",
        NodeKind::Symlink => "symlink",
    }
}

/// One name in a directory.
#[pyclass(frozen, module = "workspace_state")]
pub(crate) struct Entry(VirtualEntry);

impl From<VirtualEntry> for Entry {
    fn from(entry: VirtualEntry) -> Self {
        Self(entry)
    }
}

#[pymethods]
impl Entry {
    /// File name. Bytes that are not UTF-8 are surrogates, as `os.fsdecode` makes them.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        decode_name(py, &self.0.name)
    }

    /// Kind: `file`, `directory` or `symlink`.
    #[getter]
    fn kind(&self) -> &'static str {
        kind_name(self.0.kind)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Entry(name={}, kind='{}')", self.name(py)?.repr()?, self.kind()))
    }
}

/// Metadata of an entry.
#[pyclass(frozen, eq, module = "workspace_state")]
#[derive(Clone, PartialEq)]
pub(crate) struct Stat {
    kind: NodeKind,
    /// Permission bits.
    #[pyo3(get)]
    mode: u16,
    /// Size in bytes of a file or of the target of a symlink; 0 for a directory.
    #[pyo3(get)]
    size: u64,
    modified: Option<Timestamp>,
}

#[pymethods]
impl Stat {
    /// Kind: `file`, `directory` or `symlink`.
    #[getter]
    fn kind(&self) -> &'static str {
        kind_name(self.kind)
    }

    /// Modification time in nanoseconds since the epoch; `None` if it is not known.
    #[getter]
    fn modified_ns(&self) -> Option<i64> {
        self.modified.map(|time| time.0)
    }

    fn __repr__(&self) -> String {
        format!("Stat(kind='{}', mode=0o{:o}, size={})", self.kind(), self.mode, self.size)
    }
}

impl From<StateStat> for Stat {
    fn from(stat: StateStat) -> Self {
        Self { kind: stat.kind, mode: stat.mode, size: stat.size, modified: stat.modified }
    }
}

impl From<&StateEntry> for Stat {
    fn from(entry: &StateEntry) -> Self {
        let size = if matches!(entry.node, Node::Directory(_)) { 0 } else { entry.node.size() };
        Self { kind: entry.node.kind(), mode: entry.node.mode(), size, modified: entry.modified }
    }
}

/// Difference of one entry between two trees.
#[pyclass(frozen, module = "workspace_state")]
pub(crate) struct Difference(StateDifference);

impl From<StateDifference> for Difference {
    fn from(difference: StateDifference) -> Self {
        Self(difference)
    }
}

#[pymethods]
impl Difference {
    /// Path of the entry; after a rename, the new path. Empty for the root.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        decode_name(py, &self.0.path)
    }

    /// Kind of the difference: `added`, `removed`, `modified`, `type_changed`, `mode_changed` or `renamed`.
    #[getter]
    fn change(&self) -> &'static str {
        match self.0.kind {
            DifferenceKind::Added => "added",
            DifferenceKind::Removed => "removed",
            DifferenceKind::Modified => "modified",
            DifferenceKind::TypeChanged => "type_changed",
            DifferenceKind::ModeChanged => "mode_changed",
            DifferenceKind::Renamed { .. } => "renamed",
        }
    }

    /// Former path of a renamed entry.
    #[getter]
    fn renamed_from<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        match &self.0.kind {
            DifferenceKind::Renamed { from } => decode_name(py, from).map(Some),
            _ => Ok(None),
        }
    }

    /// Entry in the old tree; `None` if it was added.
    #[getter(old)]
    fn old_stat(&self) -> Option<Stat> {
        self.0.old.as_ref().map(Stat::from)
    }

    /// Entry in the new tree; `None` if it was removed.
    #[getter(new)]
    fn new_stat(&self) -> Option<Stat> {
        self.0.new.as_ref().map(Stat::from)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Difference(path={}, change='{}')", self.path(py)?.repr()?, self.change()))
    }
}

//! The class `Snapshot`, and the arguments of commits.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use workspace_state::{
    Durability, Expect as StateExpect, NewSnapshot, Resolution, Snapshot as StateSnapshot, SnapshotId, Store,
    Timestamp,
};

use crate::error::{Failure, Result};
use crate::handle::Handle;

/// Immutable file tree with its metadata.
#[pyclass(frozen, module = "workspace_state")]
pub(crate) struct Snapshot(pub(crate) StateSnapshot);

#[pymethods]
impl Snapshot {
    /// Id of the snapshot.
    #[getter]
    fn id(&self) -> String {
        self.0.id.to_string()
    }

    /// Hash of the tree. Equal trees have equal hashes.
    #[getter]
    fn tree(&self) -> String {
        self.0.tree.to_string()
    }

    /// Ids of the snapshots that it was created from.
    #[getter]
    fn parents(&self) -> Vec<String> {
        self.0.parents.iter().map(ToString::to_string).collect()
    }

    /// Author, free text.
    #[getter]
    fn author(&self) -> &str {
        &self.0.author
    }

    /// Message, free text.
    #[getter]
    fn message(&self) -> &str {
        &self.0.message
    }

    /// Labels.
    #[getter]
    fn labels(&self) -> BTreeMap<String, String> {
        self.0.labels.clone()
    }

    /// Creation time.
    #[getter]
    fn time(&self) -> SystemTime {
        system_time(self.0.time)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().0.id == self.0.id)
    }

    fn __hash__(&self) -> u64 {
        let (_, random) = self.0.id.as_bytes().split_at(8);
        random.iter().fold(0, |hash, byte| hash << 8 | u64::from(*byte))
    }

    fn __repr__(&self) -> String {
        format!("Snapshot(id='{}', message={:?})", self.0.id, self.0.message)
    }
}

/// Converts a time for Python, whose times have microseconds.
pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    let distance = Duration::from_nanos(time.0.unsigned_abs());
    let exact = if time.0 < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    exact.unwrap_or(UNIX_EPOCH)
}

/// Required state of a reference before it is changed. An id or a `Snapshot` requires that it points there.
#[pyclass(frozen, eq, eq_int, hash, module = "workspace_state", rename_all = "SCREAMING_SNAKE_CASE")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Expect {
    /// Any state.
    Anything,
    /// The reference must not exist.
    Absent,
}

/// A snapshot as an argument: an id, the name of a reference, the beginning of an id, or a `Snapshot`.
pub(crate) enum SnapshotArgument {
    Id(SnapshotId),
    Text(String),
}

impl<'py> FromPyObject<'_, 'py> for SnapshotArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(snapshot) = object.cast::<Snapshot>() {
            return Ok(Self::Id(snapshot.get().0.id));
        }
        let text = object.cast::<PyString>()?;
        let text = text.to_cow().map_err(|error| Failure::Invalid(format!("not a snapshot: {error}")))?;
        Ok(text.parse().map_or_else(|_| Self::Text(text.into_owned()), Self::Id))
    }
}

impl SnapshotArgument {
    /// Returns the id. Looks up names and the beginnings of ids.
    pub(crate) fn resolve(self, store: &Store) -> Result<SnapshotId> {
        match self {
            Self::Id(id) => Ok(id),
            Self::Text(text) => match store.resolve(&text)? {
                Resolution::One(id) => Ok(id),
                Resolution::None => Err(Failure::NoSnapshot(text)),
                Resolution::Ambiguous(ids) => Err(Failure::Ambiguous(text, ids)),
            },
        }
    }
}

/// Required state of a reference as an argument.
pub(crate) enum ExpectArgument {
    Known(Expect),
    At(SnapshotArgument),
}

impl<'py> FromPyObject<'_, 'py> for ExpectArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<Expect>() {
            Ok(expect) => Ok(Self::Known(*expect.get())),
            Err(_) => object.extract().map(Self::At),
        }
    }
}

impl ExpectArgument {
    pub(crate) fn resolve(self, store: &Store) -> Result<StateExpect> {
        Ok(match self {
            Self::Known(Expect::Anything) => StateExpect::Anything,
            Self::Known(Expect::Absent) => StateExpect::Absent,
            Self::At(snapshot) => StateExpect::At(snapshot.resolve(store)?),
        })
    }
}

/// Durability as an argument.
#[derive(Clone, Copy)]
pub(crate) struct DurabilityArgument(pub(crate) Durability);

impl FromStr for DurabilityArgument {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "synced" => Ok(Self(Durability::Synced)),
            "buffered" => Ok(Self(Durability::Buffered)),
            _ => Err(Failure::Invalid(format!("durability is `synced` or `buffered`, not `{text}`"))),
        }
    }
}

/// Arguments of a commit, of which names of snapshots are not looked up yet.
pub(crate) struct CommitArguments {
    pub(crate) message: String,
    pub(crate) author: String,
    pub(crate) durability: DurabilityArgument,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) parents: Vec<SnapshotArgument>,
    pub(crate) references: Vec<(String, ExpectArgument)>,
}

impl CommitArguments {
    pub(crate) fn resolve(self, handle: &Handle) -> Result<NewSnapshot> {
        if self.parents.is_empty() && self.references.is_empty() {
            return Ok(self.describe(Vec::new(), Vec::new()));
        }
        handle.with(|store| self.resolve_in(store))
    }

    pub(crate) fn resolve_in(mut self, store: &Store) -> Result<NewSnapshot> {
        let parents = std::mem::take(&mut self.parents).into_iter().map(|parent| parent.resolve(store));
        let parents = parents.collect::<Result<_>>()?;
        let references = std::mem::take(&mut self.references).into_iter();
        let references = references.map(|(name, expect)| Ok((name, expect.resolve(store)?)));
        let references = references.collect::<Result<_>>()?;
        Ok(self.describe(parents, references))
    }

    fn describe(self, parents: Vec<SnapshotId>, references: Vec<(String, StateExpect)>) -> NewSnapshot {
        NewSnapshot {
            parents,
            author: self.author,
            message: self.message,
            labels: self.labels,
            references,
            durability: self.durability.0,
            ..NewSnapshot::default()
        }
    }
}

pub(crate) fn parse_labels(labels: Option<&Bound<'_, PyDict>>) -> Result<BTreeMap<String, String>> {
    Ok(labels.map(|labels| labels.extract()).transpose()?.unwrap_or_default())
}

pub(crate) fn parse_snapshots(snapshots: Option<Vec<Bound<'_, PyAny>>>) -> Result<Vec<SnapshotArgument>> {
    snapshots.unwrap_or_default().iter().map(|snapshot| Ok(snapshot.extract()?)).collect()
}

pub(crate) fn parse_references(
    references: Option<&Bound<'_, PyDict>>,
) -> Result<Vec<(String, ExpectArgument)>> {
    let Some(references) = references else { return Ok(Vec::new()) };
    references.iter().map(|(name, expect)| Ok((name.extract()?, expect.extract()?))).collect()
}

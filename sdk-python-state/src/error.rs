//! Errors, and the exceptions that they become.
//!
//! Each error has the name that the HTTP API gives it, or one of its own. `workspace_state.errors` maps names to
//! classes, all of which derive from `workspace_sdk.errors.WorkspaceError`.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use workspace_state::{DirectoryError, ParseIdError, SnapshotId, StoreError, TreeError};

use crate::path::decode_name;

/// Error of a call.
pub(crate) enum Failure {
    /// The store was closed.
    Closed,
    /// The process was forked after a store was opened.
    Forked,
    /// A call panicked: this one, or an earlier one of the same object.
    Internal(String),
    /// There is no store at the path.
    NoStore(PathBuf),
    /// There is no such episode.
    NoEpisode(String),
    /// There is no such reference.
    NoReference(String),
    /// The text denotes no snapshot.
    NoSnapshot(String),
    /// The prefix of several snapshot ids.
    Ambiguous(String, Vec<SnapshotId>),
    /// An argument is not valid.
    Invalid(String),
    /// A path cannot be encoded.
    BadPath(String),
    /// No thread could be started.
    NoThread(io::Error),
    Tree(TreeError),
    Store(StoreError),
    Directory(DirectoryError),
    /// An exception from Python.
    Python(PyErr),
}

/// Result of a call.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl From<TreeError> for Failure {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Store(error) => Self::Store(error),
            other => Self::Tree(other),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<DirectoryError> for Failure {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Store(error) => Self::Store(error),
            other => Self::Directory(other),
        }
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<ParseIdError> for Failure {
    fn from(error: ParseIdError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// Further fields of an exception.
enum Details {
    None,
    Text(&'static str, String),
    Texts(&'static str, Vec<String>),
    Paths(Vec<PathBuf>),
}

/// Name, message, details and retryability of an exception.
struct Description {
    name: &'static str,
    message: String,
    details: Details,
    is_retryable: bool,
}

impl Description {
    fn new(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, message: message.into(), details: Details::None, is_retryable: false }
    }

    fn with(self, key: &'static str, value: impl Into<String>) -> Self {
        Self { details: Details::Text(key, value.into()), ..self }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Python(error) => error,
            other => Python::attach(|py| exception(py, describe(other)).unwrap_or_else(|error| error)),
        }
    }
}

/// Creates the exception. Fails if `workspace_state.errors` cannot be imported.
fn exception(py: Python<'_>, description: Description) -> PyResult<PyErr> {
    static CREATE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let create = CREATE.import(py, "workspace_state.errors", "error_of")?;
    let details = PyDict::new(py);
    match description.details {
        Details::None => {}
        Details::Text(key, value) => details.set_item(key, value)?,
        Details::Texts(key, values) => details.set_item(key, values)?,
        Details::Paths(paths) => {
            let names = paths.iter().map(|path| decode_name(py, path.as_os_str().as_bytes()));
            details.set_item("paths", names.collect::<PyResult<Vec<Bound<'_, PyString>>>>()?)?;
        }
    }
    let error = create.call1((description.name, description.message, details, description.is_retryable))?;
    Ok(PyErr::from_value(error))
}

fn describe(failure: Failure) -> Description {
    match failure {
        Failure::Closed => Description::new("STORE_CLOSED", "the store is closed"),
        Failure::Forked => Description::new(
            "STORE_FORKED",
            "this process was forked from one with an open store; start it with the method `spawn` or `forkserver` of \
             `multiprocessing`",
        ),
        Failure::Internal(message) => {
            Description::new("INTERNAL_ERROR", format!("the state engine panicked: {message}"))
        }
        Failure::NoStore(path) => {
            let path = path.display().to_string();
            Description::new("STORE_NOT_FOUND", format!("{path} is not a store")).with("path", path)
        }
        Failure::NoEpisode(id) => {
            Description::new("EPISODE_NOT_FOUND", format!("episode `{id}` not found")).with("episode", id)
        }
        Failure::NoReference(name) => {
            let message = format!("reference `{name}` not found");
            Description::new("REFERENCE_NOT_FOUND", message).with("reference", name)
        }
        Failure::NoSnapshot(text) => no_snapshot(text),
        Failure::Ambiguous(text, ids) => {
            let ids = ids.iter().map(ToString::to_string).collect();
            let message = format!("`{text}` is the beginning of several snapshot ids");
            Description {
                details: Details::Texts("snapshots", ids),
                ..Description::new("INVALID_REQUEST", message)
            }
        }
        Failure::Invalid(message) => Description::new("INVALID_REQUEST", message),
        Failure::BadPath(message) => Description::new("PATH_INVALID", message),
        Failure::NoThread(error) => {
            Description::new("STORE_FAILED", format!("cannot start a thread: {error}"))
        }
        Failure::Tree(error) => describe_tree_error(&error),
        Failure::Store(error) => describe_store_error(error),
        Failure::Directory(error) => describe_directory_error(error),
        Failure::Python(error) => Description::new("INTERNAL_ERROR", error.to_string()),
    }
}

fn no_snapshot(text: String) -> Description {
    Description::new("SNAPSHOT_NOT_FOUND", format!("snapshot `{text}` not found")).with("snapshot", text)
}

fn describe_tree_error(error: &TreeError) -> Description {
    let (name, path) = match error {
        TreeError::NotFound { path } => ("PATH_NOT_FOUND", Some(path)),
        TreeError::NotADirectory { path }
        | TreeError::IsADirectory { path }
        | TreeError::NotEmpty { path }
        | TreeError::IntoItself { path } => ("FILE_CONFLICT", Some(path)),
        TreeError::BadPath { path } | TreeError::TooDeep { path } => ("PATH_INVALID", Some(path)),
        TreeError::BadTarget { .. } => ("PATH_INVALID", None),
        _ => ("STORE_FAILED", None),
    };
    let description = Description::new(name, error.to_string());
    match path {
        Some(path) => description.with("path", path),
        None => description,
    }
}

fn describe_store_error(error: StoreError) -> Description {
    let name = match &error {
        StoreError::NotAStore { path } => return describe(Failure::NoStore(path.clone())),
        StoreError::UnknownSnapshot(id) => return no_snapshot(id.to_string()),
        StoreError::ReferenceMoved { .. } => "PRECONDITION_FAILED",
        StoreError::BadReferenceName(_) | StoreError::Refused(_) | StoreError::TooLarge(_) => {
            "INVALID_REQUEST"
        }
        StoreError::Busy { .. } | StoreError::InUse { .. } => "STORE_BUSY",
        StoreError::UnsupportedFormat { .. } => "STORE_UNSUPPORTED",
        StoreError::WalkTooLarge(_) => "TREE_TOO_LARGE",
        error if error.is_corruption() => "STORE_DAMAGED",
        error if error.is_full() => "STORAGE_FULL",
        _ => "STORE_FAILED",
    };
    Description { is_retryable: error.may_retry(), ..Description::new(name, error.to_string()) }
}

fn describe_directory_error(error: DirectoryError) -> Description {
    let message = error.to_string();
    let name = match error {
        DirectoryError::LocalEdits { paths, .. } => {
            return Description {
                details: Details::Paths(paths),
                ..Description::new("LOCAL_CHANGES", message)
            };
        }
        DirectoryError::NotEmpty { .. }
        | DirectoryError::Unsaved { .. }
        | DirectoryError::Collision { .. } => "DIRECTORY_CONFLICT",
        DirectoryError::Incomplete { .. } => "DIRECTORY_UNREADABLE",
        DirectoryError::TooDeep { .. } | DirectoryError::TooLarge { .. } => "TREE_TOO_LARGE",
        _ => "DIRECTORY_FAILED",
    };
    Description::new(name, message)
}

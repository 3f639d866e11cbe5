//! Errors of the catalog.

use std::io;
use std::path::PathBuf;

use crate::state::State;

/// Result of an operation of the catalog.
pub type Result<T> = std::result::Result<T, CatalogError>;

/// Error of a catalog operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain most fields")]
pub enum CatalogError {
    /// The URL is not supported. It is not part of the message, since it may contain a password.
    #[error(
        "the catalog's URL is not supported: {reason}\nhint: sqlite:///PATH or postgres://USER@HOST/DATABASE"
    )]
    UnsupportedUrl {
        /// Reason without the URL.
        reason: String,
    },
    /// The database file could not be created or restricted to its owner.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// Failed action, as an infinitive.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The database was written by a newer version.
    #[error(
        "the catalog has schema version {found}, this program supports up to {known}\nhint: start a newer version"
    )]
    NewerSchema {
        /// Version of the database.
        found: i64,
        /// Newest version known to this program.
        known: i64,
    },
    /// A string contains NUL, which PostgreSQL cannot store. It is rejected on SQLite too.
    #[error("{field} contains a NUL character, which the catalog cannot store")]
    Nul { field: &'static str },
    /// A value does not belong to its enum.
    #[error("`{value}` is not a valid {what}")]
    UnknownValue {
        /// Name of the enum.
        what: &'static str,
        value: String,
    },
    /// The hash of an API key is malformed. It is not part of the message, since the caller may have passed the key
    /// itself.
    #[error("the hash of an API key must be 64 lowercase hexadecimal digits")]
    InvalidHash,
    /// The row does not exist.
    #[error("there is no {what} `{id}`")]
    NotFound { what: &'static str, id: String },
    /// The owner has the maximum number of rows.
    #[error("the owner has {limit} {what}, which is the maximum")]
    LimitReached {
        /// Name of the table.
        what: &'static str,
        limit: u64,
    },
    /// The row already exists.
    #[error("{what} `{id}` already exists")]
    Exists { what: &'static str, id: String },
    /// The owner has another sandbox with the same unique name.
    #[error("a sandbox named `{name}` already exists")]
    NameTaken { name: String },
    /// The sandbox was changed since it was read.
    #[error("sandbox `{id}` was changed by another request: expected version {expected}")]
    Conflict {
        id: String,
        /// Version that the caller has read.
        expected: i64,
    },
    /// The state machine of sandboxes does not allow the transition.
    #[error("sandbox `{id}` is {from} and cannot become {to}")]
    Transition { id: String, from: State, to: State },
    /// The command already has an exit status.
    #[error("command `{id}` has already ended")]
    Ended { id: String },
    /// The idempotency key was used for a different request.
    #[error("idempotency key `{key}` was used for another request")]
    IdempotencyConflict { key: String },
    /// A completion of the project still waits to be merged, or agents have workspaces of it.
    #[error(
        "project `{id}` has completions that are not merged yet, or workspaces of agents\nhint: wait until they are \
         merged, and remove the workspaces; then delete it again"
    )]
    ProjectBusy { id: String },
    /// Another import began to stage file versions of the project, or its head moved.
    #[error("the staged file versions of project `{project}` were discarded\nhint: start the import again")]
    StagingReplaced { project: String },
    /// The parts of an [`Advance`](crate::Advance), a change of a project's head, contradict each other, such as a
    /// merged completion without an outcome.
    #[error("invalid change of a project: {reason}")]
    InvalidAdvance { reason: &'static str },
    /// A column contains invalid JSON.
    #[error("column {column} of the catalog contains invalid JSON: {source}")]
    Json { column: &'static str, source: serde_json::Error },
    /// The database reported an error.
    #[error("the catalog database failed: {source}")]
    Database {
        #[from]
        source: sqlx::Error,
    },
}

impl CatalogError {
    /// Returns the error for a project that does not exist.
    pub(crate) fn no_project(id: &str) -> Self {
        Self::NotFound { what: "project", id: id.to_owned() }
    }

    /// Converts a unique constraint violation to [`Self::Exists`].
    pub(crate) fn unique_key_as_exists(self, what: &'static str, id: &str) -> Self {
        match self.database() {
            Some(error) if error.is_unique_violation() => Self::Exists { what, id: id.to_owned() },
            _ => self,
        }
    }

    /// Converts a foreign key violation to [`Self::NotFound`].
    pub(crate) fn foreign_key_as_not_found(self, what: &'static str, id: &str) -> Self {
        match self.database() {
            Some(error) if error.is_foreign_key_violation() => Self::NotFound { what, id: id.to_owned() },
            _ => self,
        }
    }

    /// Returns true if the disk of the database is full.
    pub fn is_full(&self) -> bool {
        // SQLITE_FULL, and PostgreSQL's disk_full.
        self.database()
            .and_then(sqlx::error::DatabaseError::code)
            .is_some_and(|code| code == "13" || code == "53100")
    }

    /// Returns the error that the database reported, if it was one.
    fn database(&self) -> Option<&dyn sqlx::error::DatabaseError> {
        match self {
            Self::Database { source } => source.as_database_error(),
            _ => None,
        }
    }
}

//! What can go wrong with the catalog.

use std::io;
use std::path::PathBuf;

use crate::state::State;

/// What the operations of the catalog answer.
pub type Result<T> = std::result::Result<T, CatalogError>;

/// An error of the catalog.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The address is of no database that is known. It is not repeated: it may hold a password.
    #[error(
        "the catalog's address is not usable: {reason}\nhint: sqlite:///PATH or postgres://USER@HOST/DATABASE"
    )]
    Address {
        /// What is wrong with it.
        reason: String,
    },
    /// The file of the database cannot be made or kept to its owner.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database was written by a newer version.
    #[error("the catalog has schema {found}, this version knows up to {known}\nhint: start a newer version")]
    NewerSchema {
        /// The schema's version.
        found: i64,
        /// The newest known here.
        known: i64,
    },
    /// PostgreSQL cannot keep the character NUL in text, so neither database is given it.
    #[error("{field} holds the character NUL, which the catalog cannot keep")]
    Nul {
        /// Where it was.
        field: &'static str,
    },
    /// A value is none of those that are known.
    #[error("`{word}` is no {what}")]
    UnknownWord {
        /// What it should be.
        what: &'static str,
        /// What it is.
        word: String,
    },
    /// A key's hash does not look like one; perhaps it is the key itself.
    #[error("the hash of an API key must be 64 hexadecimal digits in lower case")]
    NotAHash,
    /// There is nothing of that id.
    #[error("there is no {what} `{id}`")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// There is one already.
    #[error("there is a {what} `{id}` already")]
    Exists {
        /// What was to be made.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// Another sandbox of the owner has the name, which was to be unique.
    #[error("there is a sandbox named `{name}` already")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Somebody else changed the sandbox since it was read.
    #[error("sandbox `{id}` was changed by somebody else: version {expected} was expected")]
    Conflict {
        /// The sandbox.
        id: String,
        /// The version that the caller knew.
        expected: i64,
    },
    /// A sandbox cannot go from its state to the wanted one.
    #[error("sandbox `{id}` is {from} and cannot become {to}")]
    Transition {
        /// The sandbox.
        id: String,
        /// Its state.
        from: State,
        /// The wanted one.
        to: State,
    },
    /// The command's end is known already.
    #[error("command `{id}` has ended already")]
    Ended {
        /// The command.
        id: String,
    },
    /// The idempotency key was used for another request.
    #[error("idempotency key `{key}` was used for another request")]
    OtherRequest {
        /// The key.
        key: String,
    },
    /// A column holds what this version never writes.
    #[error("column {column} of the catalog holds no valid JSON: {source}")]
    Json {
        /// The column.
        column: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The database answered with an error.
    #[error("the catalog's database failed: {source}")]
    Database {
        /// What it said.
        #[from]
        source: sqlx::Error,
    },
}

impl CatalogError {
    /// Says what a refused insert means: a row of that id, or of another unique value, is there already.
    pub(crate) fn or_exists(self, what: &'static str, id: &str) -> Self {
        match self.database() {
            Some(error) if error.is_unique_violation() => Self::Exists { what, id: id.to_owned() },
            _ => self,
        }
    }

    /// Says what a refused insert means: the row that it refers to is not there.
    pub(crate) fn or_not_found(self, what: &'static str, id: &str) -> Self {
        match self.database() {
            Some(error) if error.is_foreign_key_violation() => Self::NotFound { what, id: id.to_owned() },
            _ => self,
        }
    }

    /// Whether it failed because the disk is full.
    pub fn is_full(&self) -> bool {
        // SQLITE_FULL, and PostgreSQL's disk_full.
        self.database()
            .and_then(sqlx::error::DatabaseError::code)
            .is_some_and(|code| code == "13" || code == "53100")
    }

    fn database(&self) -> Option<&dyn sqlx::error::DatabaseError> {
        match self {
            Self::Database { source } => source.as_database_error(),
            _ => None,
        }
    }
}

//! Databases in which the fixtures keep their catalogs.

use std::path::Path;

use workspace_catalog::sqlite_url;
use workspace_test_support::PostgresDatabase;

/// Kind of the databases of a test.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum DatabaseKind {
    Sqlite,
    Postgres,
}

/// New database.
pub(crate) struct Database {
    pub(crate) url: String,
    /// Value that removes the database on drop; `None` for one in a file.
    _postgres: Option<PostgresDatabase>,
}

impl Database {
    /// Creates a database; one of SQLite is a file in `directory`.
    pub(crate) fn new(kind: DatabaseKind, directory: &Path) -> Self {
        match kind {
            DatabaseKind::Sqlite => Self { url: sqlite_url(&directory.join("catalog.db")), _postgres: None },
            DatabaseKind::Postgres => {
                let database = PostgresDatabase::new();
                Self { url: database.url(), _postgres: Some(database) }
            }
        }
    }
}

//! Databases for test cases.

use sqlx::{AnyPool, Executor};
use tempfile::TempDir;
use workspace_catalog::{Catalog, sqlite_url};
use workspace_test_support::PostgresDatabase;

/// Empty database.
pub(crate) struct TestDatabase {
    pub(crate) url: String,
    /// Value that removes the database on drop.
    _lifetime: Lifetime,
}

enum Lifetime {
    Sqlite { _directory: TempDir },
    Postgres { _database: PostgresDatabase },
}

impl TestDatabase {
    pub(crate) fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = sqlite_url(&directory.path().join("a catalog?#%.db"));
        Self { url, _lifetime: Lifetime::Sqlite { _directory: directory } }
    }

    pub(crate) fn postgres() -> Self {
        let database = PostgresDatabase::new();
        Self { url: database.url(), _lifetime: Lifetime::Postgres { _database: database } }
    }

    pub(crate) async fn open(&self) -> Catalog {
        Catalog::open(&self.url).await.unwrap()
    }

    /// Executes SQL that the catalog itself never would.
    pub(crate) async fn tamper(&self, sql: &str) {
        sqlx::any::install_default_drivers();
        let pool = AnyPool::connect(&self.url).await.unwrap();
        pool.execute(sql).await.unwrap();
        pool.close().await;
    }
}

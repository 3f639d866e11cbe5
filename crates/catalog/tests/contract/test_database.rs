//! Databases for test cases.

use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::{AnyPool, Executor};
use tempfile::TempDir;
use workspace_catalog::{Catalog, sqlite_url};
use workspace_test_support::Postgres;

/// Empty database.
pub(crate) struct TestDatabase {
    pub(crate) url: String,
    _directory: Option<TempDir>,
}

impl TestDatabase {
    pub(crate) fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = sqlite_url(&directory.path().join("a catalog?#%.db"));
        Self { url, _directory: Some(directory) }
    }

    pub(crate) async fn postgres(server: &Postgres) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("case{}", COUNT.fetch_add(1, Ordering::Relaxed));
        sqlx::any::install_default_drivers();
        let admin = AnyPool::connect(&server.url("postgres")).await.unwrap();
        admin.execute(format!("CREATE DATABASE {name}").as_str()).await.unwrap();
        admin.close().await;
        Self { url: server.url(&name), _directory: None }
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

//! Tests of the SQLite file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sqlx::{AnyPool, Row};
use workspace_catalog::{Catalog, CatalogError, sqlite_url};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn database_files_are_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let catalog = Catalog::open(&sqlite_url(&path)).await.unwrap();
    for name in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        assert_eq!(mode(&directory.path().join(name)), 0o600, "{name}");
    }
    catalog.close().await;

    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    Catalog::open(&sqlite_url(&path)).await.unwrap();
    assert_eq!(mode(&path), 0o600);
}

#[tokio::test]
async fn journal_mode_is_wal() {
    let directory = tempfile::tempdir().unwrap();
    let url = sqlite_url(&directory.path().join("catalog.db"));
    Catalog::open(&url).await.unwrap().close().await;
    let pool = AnyPool::connect(&url).await.unwrap();
    let row = sqlx::query("PRAGMA journal_mode").fetch_one(&pool).await.unwrap();
    assert_eq!(row.get::<String, _>(0), "wal");
}

#[tokio::test]
async fn invalid_url_is_rejected_without_quoting_it() {
    for (url, reason) in [
        ("mysql://root:secret@localhost/x", "`mysql` is no known database"),
        ("secret", "relative URL without a base"),
        ("sqlite::memory:", "a catalog in memory would be forgotten"),
        ("sqlite:///secret?mode=memory", "a catalog in memory would be forgotten"),
        ("sqlite:///secret?mode=odd", "unknown value \"odd\" for `mode`"),
    ] {
        let error = Catalog::open(url).await.unwrap_err();
        assert!(matches!(error, CatalogError::UnsupportedUrl { .. }), "{url}: {error}");
        let text = error.to_string();
        let first = text.lines().next().unwrap();
        assert_eq!(first, format!("the catalog's URL is not supported: {reason}"));
        assert!(!text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn uncreatable_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing").join("catalog.db");
    let error = Catalog::open(&sqlite_url(&path)).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot create {}: ", path.display())), "{error}");
}

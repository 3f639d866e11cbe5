//! What the tests share.

use tempfile::TempDir;
use workspace_state::{NewSnapshot, Store};

/// A store of its own, gone with the test.
pub(crate) fn new_store() -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(directory.path().join("store")).unwrap();
    (directory, store)
}

pub(crate) fn message(text: &str) -> NewSnapshot {
    NewSnapshot::with_message(text)
}

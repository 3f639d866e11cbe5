//! File system operations that several modules share.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use uuid::Uuid;

use crate::error::{IoContext, Result};

/// Replaces a small file atomically. The caller must sync the directory to make the change durable. Several processes
/// may replace the file at once: the last one wins.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> Result<()> {
    let new = path.with_extension(format!("new-{}", Uuid::now_v7()));
    let written = File::create(&new)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .context("write", &new)
        .and_then(|()| fs::rename(&new, path).context("rename", &new));
    if written.is_err() {
        // The original error is more useful than a failure to clean up.
        drop(fs::remove_file(&new));
    }
    written
}

/// Removes a file; a missing one is not an error.
pub(crate) fn remove_if_exists(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other.context("remove", path),
    }
}

/// Removes a directory with everything in it; a missing one is not an error.
pub(crate) fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other.context("remove", path),
    }
}

//! What a sandbox keeps in its workspace.
//!
//! Where the filesystem keeps quotas for the runtime's workspaces, what does not fit is refused and the sandbox goes on.
//! Everywhere else a sandbox that keeps too much is ended ([`crate::watch`]).

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::task::spawn_blocking;
use workspace_host::{HostError, quota};

use crate::error::{Doing as _, Result};
use crate::place::remove_tree;
use crate::service::Service;

impl Service {
    /// Makes the workspace of a sandbox, which may hold so many bytes.
    pub(crate) fn make_workspace(&self, id: &str, bytes: Option<u64>) -> Result<PathBuf> {
        let path = self.0.settings.workspaces.join(id);
        make(&path).doing(|| format!("make {}", path.display()))?;
        if let Some(bytes) = bytes.filter(|_| self.0.runtime.keeps_quotas()) {
            limit(id, &path, bytes);
        }
        Ok(path)
    }
}

/// Sets a quota where one can be had.
fn limit(id: &str, path: &Path, bytes: u64) {
    match quota::limit(path, bytes) {
        Ok(()) => {}
        Err(error @ HostError::NoQuota { .. }) => {
            tracing::debug!(sandbox = id, %error, "its workspace is measured instead");
        }
        Err(error) => {
            tracing::warn!(sandbox = id, %error, "its workspace is measured instead");
        }
    }
}

/// The workspace is the sandbox's own; as the superuser, the runtime gives it away.
fn make(path: &Path) -> io::Result<()> {
    let mode = if geteuid().is_root() { 0o755 } else { 0o700 };
    DirBuilder::new().mode(mode).create(path)
}

/// Removes a workspace and its quota. What is not there is gone.
pub(crate) fn remove_workspace(path: &Path) -> io::Result<()> {
    release(path);
    remove_tree(path)
}

/// Lets a workspace hold any number of bytes, because it is no sandbox's any more.
pub(crate) fn release(path: &Path) {
    if let Err(error) = quota::release(path) {
        tracing::warn!(workspace = %path.display(), %error, "a quota could not be lifted");
    }
}

/// Bytes on disk below a directory. What cannot be looked at does not count.
pub(crate) async fn disk_usage(path: &Path) -> u64 {
    let path = path.to_owned();
    spawn_blocking(move || used(&path)).await.unwrap_or(0)
}

/// As the filesystem counts them, else by looking at every file.
fn used(path: &Path) -> u64 {
    match quota::used(path) {
        Ok(Some(used)) => used,
        Ok(None) => measure(path),
        Err(error) => {
            tracing::warn!(workspace = %path.display(), %error, "its quota cannot be seen: files are counted");
            measure(path)
        }
    }
}

fn measure(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let of = |entry: std::fs::DirEntry| {
        let own = entry.metadata().map_or(0, |metadata| metadata.blocks() * 512);
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        own + if is_directory { measure(&entry.path()) } else { 0 }
    };
    entries.flatten().map(of).sum()
}

//! Keeping the content of a workspace that is removed, as a directory of the host.
//!
//! This is not the *kept root* of a sandbox, a root filesystem that is writable and part of its snapshots.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::{KEPT_DIR, Workspaces};
use crate::error::{Context as _, Result, WorkspaceError};
use crate::provider_kind::ProviderKind;

/// Result of [`Workspaces::keep_content`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptContent {
    /// The workspace is removed, and its content is in this directory.
    Directory(PathBuf),
    /// Nothing is changed: the content is spread over layers, so only a commit can keep it.
    InLayers,
    /// There is neither a workspace with this id nor kept content, for example because an earlier removal
    /// committed the content and was interrupted afterwards.
    Missing,
}

impl Workspaces {
    /// Removes a workspace, but moves its content to a directory that is kept. Changes nothing for an overlay.
    pub fn keep_content(&self, id: &str) -> Result<KeptContent> {
        let directory = self.directory.join(KEPT_DIR);
        let to = directory.join(id);
        let moved = self.with_locked(id, |workspace| {
            let current = &workspace.record.current;
            if current.provider == ProviderKind::Overlay {
                return Ok(false);
            }
            let from = self.provider(current.provider).path(&self.current_dir(id, &workspace.record));
            fs::create_dir_all(&directory).context("create", &directory)?;
            match fs::rename(&from, &to) {
                // Moved by an earlier, interrupted attempt.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
                moved => moved.context("move", &from).map(|()| true),
            }
        });
        match moved {
            Ok(false) => return Ok(KeptContent::InLayers),
            Ok(true) => self.remove(id)?,
            // Removed by an earlier, interrupted attempt.
            Err(WorkspaceError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(if to.exists() { KeptContent::Directory(to) } else { KeptContent::Missing })
    }
}

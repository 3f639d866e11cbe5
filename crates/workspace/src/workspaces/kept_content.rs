//! Kept content: the files of a removed workspace, which stay on the host as a plain directory.
//!
//! Not to be confused with the *kept root* of a sandbox, a root filesystem that is writable and part of its snapshots.

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
    /// Nothing was changed, because the workspace is an overlay: its files are in several layers, so only a commit can
    /// keep its content.
    InLayers,
    /// There is neither a workspace with this id nor kept content of it. For example, an earlier removal committed the
    /// content, removed the workspace, and was interrupted.
    Missing,
}

impl Workspaces {
    /// Moves the content of a workspace to a directory that is kept, and removes the workspace. Changes nothing if the
    /// workspace is an overlay. After an interruption, repeat the call.
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
                // An earlier, interrupted call has moved the content.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
                moved => moved.context("move", &from).map(|()| true),
            }
        });
        match moved {
            Ok(false) => return Ok(KeptContent::InLayers),
            Ok(true) => self.remove(id)?,
            // An earlier, interrupted call may have removed the workspace.
            Err(WorkspaceError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(if to.exists() { KeptContent::Directory(to) } else { KeptContent::Missing })
    }
}

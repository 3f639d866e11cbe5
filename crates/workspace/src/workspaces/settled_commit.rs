//! Commits of workspaces whose processes cannot be frozen, because the server did not start them.
//!
//! The content is read again after it was committed. If both reads agree, the snapshot is *settled*: it is the content
//! that the workspace had at a moment between the two reads. If no file has changed, the second read only compares
//! fingerprints of files (mode, size, mtime, ctime and inode).
//!
//! The operations belong to [`CancellableWorkspaces`], the handle whose operations stop when their caller cancels them.

use std::fs;
use std::io;

use workspace_state::NewSnapshot;

use super::{CancellableWorkspaces, Changes, Workspaces};
use crate::error::{Context as _, Result, WorkspaceError};
use crate::provider::CommitResult;
use crate::writers::Writers;

/// Number of attempts to read or commit a workspace that keeps changing.
const ATTEMPTS: u32 = 5;

impl CancellableWorkspaces<'_> {
    /// Commits a workspace to which processes may write meanwhile. The snapshot is the content of one moment: it agrees
    /// with a second read after the commit. The exception is a file that a process changes between the two reads, and
    /// changes back before the second one. Fails with [`WorkspaceError::Changing`] if the content differs in several
    /// attempts, and with [`WorkspaceError::Unusable`] if the directory was removed or replaced.
    pub fn commit_settled(&self, id: &str, new: &NewSnapshot) -> Result<CommitResult> {
        for _ in 0..ATTEMPTS {
            self.workspaces.check_directory(id)?;
            let committed = self.commit_if_settled(id, new);
            if let Err(unusable) = self.workspaces.check_directory(id) {
                // Removes the snapshot again.
                if let Ok(Some(committed)) = &committed {
                    self.workspaces.uncommit(id, &committed.snapshot)?;
                }
                return Err(unusable);
            }
            if let Some(committed) = committed? {
                return Ok(committed);
            }
        }
        Err(WorkspaceError::Changing { id: id.to_owned() })
    }

    /// Commits a workspace. Returns `None`, without a snapshot, if the content has changed meanwhile.
    fn commit_if_settled(&self, id: &str, new: &NewSnapshot) -> Result<Option<CommitResult>> {
        let Some(committed) = none_if_unsettled(self.commit(id, new.clone(), Writers::Running))? else {
            return Ok(None);
        };
        let second_read = none_if_unsettled(self.changes(id, Writers::Running));
        if let Ok(Some(changes)) = &second_read
            && changes.after.id() == committed.snapshot.tree
        {
            return Ok(Some(committed));
        }
        self.workspaces.uncommit(id, &committed.snapshot)?;
        second_read.map(|_| None)
    }

    /// Computes the differences between a workspace and its base, while processes may write to the workspace. Each file
    /// has the content of one moment, but different files may be from different moments. Fails as
    /// [`Self::commit_settled`] does.
    pub fn changes_while_running(&self, id: &str) -> Result<Changes> {
        for _ in 0..ATTEMPTS {
            self.workspaces.check_directory(id)?;
            let changes = none_if_unsettled(self.changes(id, Writers::Running));
            self.workspaces.check_directory(id)?;
            if let Some(changes) = changes? {
                return Ok(changes);
            }
        }
        Err(WorkspaceError::Changing { id: id.to_owned() })
    }
}

impl Workspaces {
    /// Fails with [`WorkspaceError::Unusable`] if the agent's directory was removed, or replaced by something else.
    /// Without this check, a removed directory would be committed as the removal of all files, and a symlink in its
    /// place would be followed. Must not be called for an overlay: it may be mounted in another namespace, and its
    /// directory is empty in this one.
    pub(super) fn check_directory(&self, id: &str) -> Result<()> {
        let path = self.path(id)?;
        let unusable =
            |reason: &str| Err(WorkspaceError::Unusable { id: id.to_owned(), reason: reason.to_owned() });
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => unusable("its directory was replaced by something else"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => unusable("its directory was removed"),
            Err(error) => Err(error).context("stat", &path),
        }
    }
}

/// Converts the error that files kept changing while they were read to `None`.
pub(super) fn none_if_unsettled<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.is_changing() => Ok(None),
        result => result.map(Some),
    }
}

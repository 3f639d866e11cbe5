//! Commits of workspaces whose processes cannot be frozen, because others started them.
//!
//! The content is read again after it was committed. If both reads agree, the snapshot is *settled*: it is the content
//! that the workspace had between them. The second read only compares fingerprints of files, as long as nothing
//! changes.
//!
//! The operations belong to [`CancellableWorkspaces`], the handle whose operations stop when their caller cancels them.

use std::fs;
use std::io;

use workspace_state::NewSnapshot;

use super::{CancellableWorkspaces, Changes, Workspaces};
use crate::error::{Context as _, Result, WorkspaceError};
use crate::provider::CommitResult;
use crate::writers::Writers;

/// Number of attempts to commit a workspace that keeps changing.
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
            if let Err(missing) = self.workspaces.check_directory(id) {
                if let Ok(Some(committed)) = &committed {
                    self.workspaces.uncommit(id, &committed.snapshot)?;
                }
                return Err(missing);
            }
            if let Some(committed) = committed? {
                return Ok(committed);
            }
        }
        Err(WorkspaceError::Changing { id: id.to_owned() })
    }

    /// Commits a workspace; `None` if it has changed meanwhile, and there is no snapshot.
    fn commit_if_settled(&self, id: &str, new: &NewSnapshot) -> Result<Option<CommitResult>> {
        let Some(committed) = none_if_unsettled(self.commit(id, new.clone(), Writers::Running))? else {
            return Ok(None);
        };
        let again = none_if_unsettled(self.changes(id, Writers::Running));
        if let Ok(Some(again)) = &again
            && again.after.id() == committed.snapshot.tree
        {
            return Ok(Some(committed));
        }
        self.workspaces.uncommit(id, &committed.snapshot)?;
        again.map(|_| None)
    }

    /// Computes the differences of a workspace to which processes may write meanwhile. No file is read while it is half
    /// written, but different files may be from different moments. Fails like [`Self::commit_settled`].
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
    /// Fails with [`WorkspaceError::Unusable`] if the directory of an agent was removed, or replaced by something else.
    /// Without this check, a removed directory would be committed as the removal of all files, and a symlink in its
    /// place would be followed. The caller makes sure that the workspace is no overlay: that may be mounted in
    /// another namespace, and its directory is empty here.
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

/// Returns `None` instead of the error that files kept changing while they were read.
pub(super) fn none_if_unsettled<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.is_changing() => Ok(None),
        result => result.map(Some),
    }
}

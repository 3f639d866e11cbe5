//! Commits of workspaces that may not have changed.

use workspace_state::{NewSnapshot, SnapshotId, Store};

use super::Workspaces;
use crate::base::{Base, Materialize};
use crate::error::{Result, WorkspaceError};
use crate::provider::{ChangeDigest, CommitResult};
use crate::writers::Writers;

/// Result of a commit of a workspace that may not have changed.
#[derive(Debug, Clone)]
pub enum ConditionalCommit {
    /// The content differed from that of the last snapshot.
    Committed(CommitResult),
    /// The content is that of the last snapshot of the workspace, or of its base; `None` if both are missing or empty.
    Unchanged(Option<SnapshotId>),
}

/// Digest of a generation whose content was found to be that of the last snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnchangedDigest {
    generation: u32,
    digest: ChangeDigest,
}

impl Workspaces {
    pub(super) fn may_have_changed_with(&self, store: &Store, id: &str) -> Result<bool> {
        self.with_cancellable_lock(store.cancel_flag(), id, |workspace| {
            let generation = &workspace.record.current;
            let number = generation.number;
            let Some(known) = workspace.unchanged.filter(|known| known.generation == number) else {
                return Ok(true);
            };
            let dir = self.current_dir(id, &workspace.record);
            let digest = self.provider(generation.provider).change_digest(&dir, store.cancel_flag())?;
            Ok(digest.is_none_or(|digest| digest.hash != known.digest.hash))
        })
    }

    pub(super) fn commit_if_changed_with(
        &self,
        store: &Store,
        id: &str,
        new: NewSnapshot,
        writers: Writers,
    ) -> Result<ConditionalCommit> {
        self.with_cancellable_lock(store.cancel_flag(), id, |workspace| {
            if workspace.record.is_partly_reset() {
                let reason = "its last reset failed halfway; reset it again".to_owned();
                return Err(WorkspaceError::Unusable { id: id.to_owned(), reason });
            }
            let (dir, generation) = (self.current_dir(id, &workspace.record), &workspace.record.current);
            let (number, provider) = (generation.number, self.provider(generation.provider));
            let base = Base::new(store, generation.base, Materialize::default())?;
            let new = self.with_parent(workspace, new)?;
            let parent = new.parents.first().copied();
            let last = match parent {
                Some(parent) => store.snapshot(&parent)?.tree,
                None => base.tree.id(),
            };
            // Before the content is read: a change after this makes it differ.
            let digest = provider.change_digest(&dir, store.cancel_flag())?;
            let committed = provider.commit_if_changed(&dir, &base, &last, new, writers)?;
            let certain = digest.filter(|digest| digest.is_certain);
            workspace.unchanged = certain.map(|digest| UnchangedDigest { generation: number, digest });
            Ok(match committed {
                Some(committed) => {
                    self.record_commit(id, workspace, &committed);
                    ConditionalCommit::Committed(committed)
                }
                None => ConditionalCommit::Unchanged(parent),
            })
        })
    }
}

//! Commits of workspaces that may not have changed. The store parameters are handles that can be cancelled.

use workspace_state::{NewSnapshot, Store};

use super::Workspaces;
use crate::base::{Base, Materialize};
use crate::conditional_commit::{ConditionalCommit, UnchangedDigest};
use crate::error::{Result, WorkspaceError};
use crate::writers::Writers;

impl Workspaces {
    /// See [`CancellableWorkspaces::may_have_changed`](super::CancellableWorkspaces::may_have_changed).
    pub(super) fn may_have_changed_with(&self, store: &Store, id: &str) -> Result<bool> {
        self.with_cancellable_lock(store.cancel_flag(), id, |workspace| {
            let generation = &workspace.record.current;
            let number = generation.number;
            let Some(last_digest) = workspace.unchanged_digest.filter(|last| last.generation == number)
            else {
                return Ok(true);
            };
            let dir = self.current_dir(id, &workspace.record);
            let digest = self.provider(generation.provider).change_digest(&dir, store.cancel_flag())?;
            Ok(digest.is_none_or(|digest| digest.hash != last_digest.digest.hash))
        })
    }

    /// See [`CancellableWorkspaces::commit_if_changed`](super::CancellableWorkspaces::commit_if_changed).
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
            let base = Base::new(store, self.part, generation.base, Materialize::default())?;
            let new = self.with_parent(workspace, new)?;
            let parent = new.parents.first().copied();
            let last = match parent {
                Some(parent) => store.snapshot(&parent)?.tree,
                None => base.tree.id(),
            };
            // Computed before the content is read, so that a change during the read makes the next digest differ.
            let digest = provider.change_digest(&dir, store.cancel_flag())?;
            let committed = provider.commit_if_changed(&dir, &base, &last, new, writers)?;
            let reliable_digest = digest.filter(|digest| digest.is_reliable);
            workspace.unchanged_digest =
                reliable_digest.map(|digest| UnchangedDigest { generation: number, digest });
            Ok(match committed {
                Some(committed) => {
                    self.record_commit(id, workspace, &committed);
                    ConditionalCommit::Committed(Box::new(committed))
                }
                None => ConditionalCommit::Unchanged(parent),
            })
        })
    }
}

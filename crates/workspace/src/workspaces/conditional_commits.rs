//! Conditional commits: a workspace is committed only if its content differs from its last snapshot.
//!
//! A server makes such a commit after each traced command in a sandbox. Many commands change no file,
//! so a digest of the directory (`upper/digest.rs`: a hash of names, modes, sizes, times and inodes) is compared before
//! any content is read. A digest is *reliable* if any later change of the directory changes it.
//!
//! Functions whose names end in `_with` stop when the `Cancel` flag of the handle `store` is set. `LiveWorkspace` is
//! the state of a workspace in memory. A *generation* is one of the directories that a workspace has had.

use workspace_state::{Cancel, NewSnapshot, Store};

use super::{LiveWorkspace, Workspaces};
use crate::base::{Base, Materialize};
use crate::conditional_commit::{ConditionalCommit, UnchangedDigest};
use crate::error::{Result, WorkspaceError};
use crate::provider::DigestEffort;
use crate::writers::Writers;

impl Workspaces {
    /// See [`CancellableWorkspaces::may_have_changed`](super::CancellableWorkspaces::may_have_changed).
    pub(super) fn may_have_changed_with(&self, store: &Store, id: &str) -> Result<bool> {
        let cancel = store.cancel_flag();
        self.with_cancellable_lock(cancel, id, |workspace| {
            Ok(!self.has_last_digest(id, workspace, DigestEffort::Full, cancel)?)
        })
    }

    /// Returns true if a workspace has certainly not changed since its last conditional commit. Returns false if the
    /// workspace has changed, or if this cannot be found out quickly. Makes few system calls and waits for no lock, so
    /// that async code may call it.
    pub fn is_known_unchanged(&self, id: &str) -> bool {
        let Ok(slot) = self.slot(id) else { return false };
        let Some(workspace) = slot.workspace.try_lock() else { return false };
        let is_unchanged =
            |workspace| self.has_last_digest(id, workspace, DigestEffort::Quick, &Cancel::new());
        workspace.as_ref().is_some_and(|workspace| is_unchanged(workspace).unwrap_or(false))
    }

    /// Returns true if the digest of a workspace is the same as at its last conditional commit.
    fn has_last_digest(
        &self,
        id: &str,
        workspace: &LiveWorkspace,
        effort: DigestEffort,
        cancel: &Cancel,
    ) -> Result<bool> {
        let generation = &workspace.record.current;
        let last_digest = workspace.unchanged_digest.filter(|last| last.generation == generation.number);
        let Some(last) = last_digest else { return Ok(false) };
        let dir = self.current_dir(id, &workspace.record);
        let digest = self.provider(generation.provider).change_digest(&dir, effort, cancel)?;
        Ok(digest.is_some_and(|digest| digest.hash == last.digest.hash))
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
            let last_tree = match parent {
                Some(parent) => store.snapshot(&parent)?.tree,
                None => base.tree.id(),
            };
            // Computed before the content is read, so that a change during the read makes the next digest differ.
            let digest = provider.change_digest(&dir, DigestEffort::Full, store.cancel_flag())?;
            let writers = self.all_writers(writers);
            let committed = provider.commit_if_changed(&dir, &base, &last_tree, new, writers)?;
            // The content equals the last snapshot now, whether it was committed or unchanged.
            let reliable_digest = digest.filter(|digest| digest.is_reliable);
            workspace.unchanged_digest =
                reliable_digest.map(|digest| UnchangedDigest { generation: number, digest });
            Ok(match committed {
                Some(committed) => {
                    self.record_next_parent(id, workspace, &committed);
                    ConditionalCommit::Committed(Box::new(committed))
                }
                None => ConditionalCommit::Unchanged(parent),
            })
        })
    }
}

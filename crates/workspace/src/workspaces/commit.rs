//! Reading and committing the content of workspaces.
//!
//! The *base* of a workspace is the snapshot that it was created from, or last reset to. A *generation* is a directory
//! with the content of a workspace: a reset (to another snapshot) creates the next one, unless it replaces the files in
//! place. `LiveWorkspace` is the state of a workspace in memory. Its field `record` is also stored on disk, and
//! `record.current` is the generation in use.
//!
//! Functions whose names end in `_with` stop when the `Cancel` flag of the handle `store` is set. The operations of
//! [`CancellableWorkspaces`](super::CancellableWorkspaces) are cancelled in this way.

use workspace_state::{Difference, NewSnapshot, SkippedEntry, Snapshot, SnapshotId, Store, Tree, diff};

use super::{LiveWorkspace, Workspaces};
use crate::base::{Base, Materialize};
use crate::error::{Result, WorkspaceError};
use crate::provider::{CommitResult, ReliableFingerprints, UncommittedContent, WorkspaceContent};
use crate::writers::Writers;

/// Differences between a workspace and its base.
pub struct Changes {
    /// Base snapshot; `None` if the workspace was created empty.
    pub base: Option<SnapshotId>,
    /// Content of the base.
    pub before: Tree,
    /// Content of the workspace, as an uncommitted tree.
    pub after: Tree,
    /// First thousand entries that a snapshot cannot hold, such as sockets.
    pub skipped: Vec<SkippedEntry>,
    /// Number of all entries that a snapshot cannot hold.
    pub skipped_count: u64,
}

impl Changes {
    /// Returns the differences, sorted by path.
    pub fn differences(&self) -> Result<Vec<Difference>> {
        Ok(diff(&self.before, &self.after)?)
    }
}

impl Workspaces {
    /// Computes the differences between a workspace and its base. `writers` tells if processes may write to the
    /// workspace meanwhile.
    pub fn changes(&self, id: &str, writers: Writers) -> Result<Changes> {
        self.changes_with(&self.store, id, writers)
    }

    pub(super) fn changes_with(&self, store: &Store, id: &str, writers: Writers) -> Result<Changes> {
        self.with_cancellable_lock(store.cancel_flag(), id, |workspace| {
            let (dir, generation) = (self.current_dir(id, &workspace.record), &workspace.record.current);
            let base = Base::new(store, self.part, generation.base, Materialize::default())?;
            let content =
                self.provider(generation.provider).content(&dir, &base, self.all_writers(writers))?;
            let WorkspaceContent { tree: after, skipped, skipped_count } = content;
            Ok(Changes { base: generation.base, before: base.tree, after, skipped, skipped_count })
        })
    }

    /// Commits the content of a workspace as a snapshot. If `new` has no parents, the parent is the last snapshot of
    /// the workspace, or else its base. `writers` tells if processes may write to the workspace meanwhile. Fails if the
    /// last reset in place could be neither completed nor undone.
    pub fn commit(&self, id: &str, new: NewSnapshot, writers: Writers) -> Result<CommitResult> {
        self.commit_with(&self.store, id, new, writers)
    }

    pub(super) fn commit_with(
        &self,
        store: &Store,
        id: &str,
        new: NewSnapshot,
        writers: Writers,
    ) -> Result<CommitResult> {
        self.with_cancellable_lock(store.cancel_flag(), id, |workspace| {
            if workspace.record.is_partly_reset() {
                let reason = "its last reset failed halfway; reset it again".to_owned();
                return Err(WorkspaceError::Unusable { id: id.to_owned(), reason });
            }
            let (dir, generation) = (self.current_dir(id, &workspace.record), &workspace.record.current);
            let base = Base::new(store, self.part, generation.base, Materialize::default())?;
            let new = self.with_parent(workspace, new)?;
            let provider = self.provider(generation.provider);
            let committed = provider.commit(&dir, &base, new, self.all_writers(writers))?;
            self.record_next_parent(id, workspace, &committed);
            Ok(committed)
        })
    }

    /// Reads the content of a workspace without committing it. The caller commits it as a part of the snapshot of
    /// another workspace, and then calls [`Workspaces::record_fingerprints`]. In this way, the kept root filesystem of
    /// a sandbox is committed in one snapshot with the files of the sandbox's workspace.
    pub fn read(&self, id: &str, writers: Writers) -> Result<UncommittedContent> {
        self.read_with(&self.store, id, writers)
    }

    pub(super) fn read_with(&self, store: &Store, id: &str, writers: Writers) -> Result<UncommittedContent> {
        self.with_cancellable_lock(store.cancel_flag(), id, |workspace| {
            let (dir, generation) = (self.current_dir(id, &workspace.record), &workspace.record.current);
            let base = Base::new(store, self.part, generation.base, Materialize::default())?;
            self.provider(generation.provider).read(&dir, &base, self.all_writers(writers))
        })
    }

    /// Records that a snapshot has the content that [`Workspaces::read`] returned, so that the next read skips files
    /// with the same fingerprint (mode, size, mtime, ctime and inode). `files` has only reliable fingerprints: those
    /// that any later change of the file changes.
    pub fn record_fingerprints(
        &self,
        id: &str,
        files: ReliableFingerprints,
        snapshot: &Snapshot,
    ) -> Result<()> {
        self.with_locked(id, |workspace| {
            let dir = self.current_dir(id, &workspace.record);
            self.provider(workspace.record.current.provider).record_fingerprints(&dir, files, snapshot.id);
            Ok(())
        })
    }

    /// Records the last snapshot of a workspace, which is the parent of the next commit, in memory and on disk. A
    /// failed write is only logged, because the snapshot exists already.
    pub(super) fn record_next_parent(
        &self,
        id: &str,
        workspace: &mut LiveWorkspace,
        committed: &CommitResult,
    ) {
        workspace.record.next_parent = Some(committed.snapshot.id);
        if let Err(error) = workspace.record.write(&self.workspace_dir(id)) {
            tracing::warn!(workspace = id, %error, "failed to record the last snapshot of the workspace");
        }
    }

    /// Undoes a commit whose snapshot id no client has received. Makes the first parent of the snapshot the parent of
    /// the next commit, as [`Workspaces::forget_commit`] does, and removes the snapshot.
    pub fn uncommit(&self, id: &str, snapshot: &Snapshot) -> Result<()> {
        self.forget_commit(id, snapshot)?;
        self.store.remove_snapshots(&[snapshot.id])?;
        Ok(())
    }

    /// Makes the first parent of `snapshot` the parent of the next commit, if `snapshot` is the last snapshot of the
    /// workspace. Does not remove the snapshot from the store. Does nothing if there is no such workspace.
    pub fn forget_commit(&self, id: &str, snapshot: &Snapshot) -> Result<()> {
        let undone = self.with_locked(id, |workspace| {
            if workspace.record.next_parent != Some(snapshot.id) {
                return Ok(());
            }
            workspace.record.next_parent = snapshot.parents.first().copied();
            // The digest says that the content equals the last snapshot. The workspace has another last snapshot now.
            workspace.unchanged_digest = None;
            // Not fatal: the commit may be undone because the disk is full. If the record on disk keeps a snapshot that
            // is removed, `with_parent` skips it.
            if let Err(error) = workspace.record.write(&self.workspace_dir(id)) {
                tracing::warn!(workspace = id, %error, "failed to record an undone commit of the workspace");
            }
            Ok(())
        });
        match undone {
            Err(WorkspaceError::NotFound { .. }) => Ok(()),
            undone => undone,
        }
    }

    /// Adds a parent to `new`, unless it has parents: the last snapshot of the workspace if it still exists, or else
    /// the base if it exists.
    pub(super) fn with_parent(&self, workspace: &LiveWorkspace, new: NewSnapshot) -> Result<NewSnapshot> {
        if !new.parents.is_empty() {
            return Ok(new);
        }
        for id in workspace.record.next_parent.iter().chain(&workspace.record.current.base) {
            if self.store.find_snapshot(id)?.is_some() {
                return Ok(NewSnapshot { parents: vec![*id], ..new });
            }
        }
        Ok(new)
    }
}

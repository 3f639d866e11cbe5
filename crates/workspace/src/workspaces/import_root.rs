//! Import of a directory as the root filesystem of a snapshot.
//!
//! A snapshot has the files of a workspace, and possibly the root filesystem of a sandbox. The imported directory is
//! for example a *template*, the root filesystem that sandboxes start with.

use std::path::Path;

use workspace_state::{
    Durability, Expect, NewSnapshot, NoProgress, Snapshot, SnapshotId, SnapshotOptions, StoreError,
    TreeError, VirtualTree, snapshot_directory_with_reader,
};

use super::{CancellableWorkspaces, Workspaces};
use crate::error::{Result, WorkspaceError};
use crate::file_opener::Reader;
use crate::writers::Writers;

/// Directory to be imported as a root filesystem.
pub struct RootImport<'a> {
    /// Path of the directory. No process may write to it during the import.
    pub directory: &'a Path,
    /// Name of the template that the directory belongs to.
    pub template: &'a str,
    /// Unused name for a reference (a name of a snapshot in the store). While the import is in progress, the reference
    /// names a temporary snapshot of the content. If the process is killed, or the removal of reference and snapshot
    /// fails, both are left behind. The next process passes them to [`Workspaces::remove_import`].
    pub temporary_reference: &'a str,
    /// Callback that changes the content before it is committed, for example to add missing directories.
    pub change: &'a dyn Fn(&mut VirtualTree) -> Result<(), TreeError>,
}

impl CancellableWorkspaces<'_> {
    /// Commits a directory as the root filesystem of a new snapshot, whose workspace is empty. All files belong
    /// to user 0, unless `change` sets another owner.
    pub fn import_root(&self, import: &RootImport<'_>, new: NewSnapshot) -> Result<Snapshot> {
        let store = self.store();
        let content = NewSnapshot {
            references: vec![(import.temporary_reference.to_owned(), Expect::Absent)],
            durability: Durability::Buffered,
            ..NewSnapshot::with_message(new.message.clone())
        };
        let options = SnapshotOptions {
            new: content,
            use_ignore_files: false,
            record_as_checkout: false,
            fail_if_incomplete: true,
            ..SnapshotOptions::default()
        };
        // With `Writers::Stopped`, the reader reads every file once. `SnapshotOptions::quiescent` has no effect with a
        // reader of the caller.
        let reader = Reader::new(&self.workspaces.namespace_holder(), Writers::Stopped);
        let report = snapshot_directory_with_reader(store, import.directory, options, &reader, &NoProgress);
        let content = report.map_err(|error| WorkspaceError::of_directory(error, import.directory))?.snapshot;
        let committed = (|| {
            let mut tree = store.restore(&content.id)?;
            (import.change)(&mut tree)?;
            let root = tree.into_root(import.template)?;
            Ok(store.empty_tree()?.commit(NewSnapshot { root: Some(root), ..new })?)
        })();
        // Runs also after an error or a cancellation: the store handle of `workspaces` is not cancelled. A failure is
        // only logged, because the caller must get `committed`, and removes the leftovers later.
        if let Err(error) = self.workspaces.remove_import(import.temporary_reference, content.id) {
            let (reference, snapshot) = (import.temporary_reference, content.id);
            tracing::warn!(reference, %snapshot, %error, "failed to remove the temporary snapshot of an import");
        }
        committed
    }
}

impl Workspaces {
    /// Removes the temporary reference of an import and the snapshot that it names. Removes both in one commit: without
    /// the reference, the next process could not find the snapshot. If something else needs the snapshot, such as
    /// another reference, removes only the reference.
    pub fn remove_import(&self, reference: &str, content: SnapshotId) -> Result<()> {
        match self.store.remove_reference_with_snapshot(reference, content) {
            Err(StoreError::Refused(_)) => Ok(self.store.remove_reference(reference, Expect::At(content))?),
            removed => Ok(removed?),
        }
    }
}

//! Providers `copy` and `clone`: workspaces with their own files, which are written or reflinked from layers
//! (read-only directories that workspaces share).
//!
//! ```text
//! tree/      the workspace
//! special/   sockets, named pipes and devices, moved away during a reset
//! ```
//!
//! Changes are found with the store's stat index, which has the fingerprint (mode, size, mtime, ctime and inode) of
//! each file when it was last written or committed. Only files with another fingerprint are read. The *base* of a
//! workspace is the snapshot that it was created from. A *reset* replaces the files by those of another base, in place.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use workspace_host::overlay;
use workspace_state::{
    CheckoutOptions, DirectoryError, EditCheck, NewSnapshot, NoProgress, Snapshot, SnapshotOptions,
    SnapshotReport, Store, StoreError, WORKSPACE_LABEL, checkout, preview_directory_with_reader,
    snapshot_directory_with_reader, undo_checkout,
};

use crate::base::Base;
use crate::current_holder::CurrentHolder;
use crate::error::{Context as _, Result, WorkspaceError};
use crate::file_opener::{self, Reader};
use crate::layers::{LayerSync, Layers};
use crate::provider::{
    CommitResult, LowerLayers, Provider, ResetInPlaceError, WorkspaceContent, WorkspaceDir,
};
use crate::provider_kind::ProviderKind;
use crate::special::SpecialFiles;
use crate::writers::Writers;

/// Maximum number of entries of a digest (a hash of names, modes, sizes, times and inodes). For a larger workspace, a
/// digest is hardly faster than a commit, which compares all entries with the store's stat index.
#[cfg(target_os = "linux")]
const DIGEST_ENTRIES_MAX: usize = 1_000;

/// Provider of workspaces with their own files.
#[derive(Debug)]
pub(crate) struct CopyProvider {
    pub(crate) store: Store,
    /// Namespace holder: a process in whose user namespace files are read that this process has no permission to read.
    pub(crate) holder: CurrentHolder,
    /// UID and GID that own the files of workspaces on disk; `None` for those of this process.
    pub(crate) file_owner: Option<(u32, u32)>,
    /// Layers to reflink from. They also limit what may be written while free space is low.
    pub(crate) layers: Layers,
    /// Set if files are reflinked from layers (provider `clone`) instead of written.
    pub(crate) reflink: bool,
}

impl CopyProvider {
    /// Returns the path of the agent's directory.
    fn tree(dir: &WorkspaceDir) -> PathBuf {
        dir.join("tree")
    }

    /// Returns the options of a checkout of the base. For the provider `clone`, writes the layers of the base first.
    fn options(&self, base: &Base) -> Result<CheckoutOptions> {
        // Directories that files are reflinked from, uppermost first. Some layers have only changed files, so each file
        // comes from the first directory that has it.
        let share = match &base.snapshot {
            Some(snapshot) if self.reflink => {
                self.layers.find_or_write(&base.store, snapshot, LayerSync::Unsynced)?.paths()
            }
            _ => Vec::new(),
        };
        // Set-id bits are kept: they have no effect in a sandbox, and no other user can access a workspace.
        let (owner, limit) = (self.file_owner, Some(self.layers.write_limit()));
        Ok(CheckoutOptions { owner, keep_set_id: true, share, limit, ..CheckoutOptions::default() })
    }

    /// Returns the options of a snapshot of the workspace. The option `quiescent` is not set, because it has no effect:
    /// the [`Reader`] knows whether processes may write meanwhile.
    fn snapshot_options(new: NewSnapshot) -> SnapshotOptions {
        // Ignore files (`.workspaceignore`) apply only to directories of users. A commit has all files of an agent.
        SnapshotOptions {
            new,
            use_ignore_files: false,
            fail_if_incomplete: true,
            ..SnapshotOptions::default()
        }
    }

    /// Commits the directory `tree`.
    fn snapshot(
        &self,
        store: &Store,
        tree: &Path,
        options: SnapshotOptions,
        writers: Writers,
    ) -> Result<SnapshotReport> {
        let reader = Reader::new(&self.holder.get(), writers);
        let report = snapshot_directory_with_reader(store, tree, options, &reader, &NoProgress);
        report.map_err(|error| WorkspaceError::of_directory(error, tree))
    }

    /// Returns the parameters of the temporary snapshot of the content that a reset replaces. It is pending (its
    /// process has still to record or remove it), and its label names the workspace: if this server is killed, the next
    /// server may need the snapshot to repeat the reset.
    fn former_content(dir: &WorkspaceDir) -> NewSnapshot {
        let workspace = dir.root.parent().and_then(Path::file_name).unwrap_or_default();
        let labels = [(WORKSPACE_LABEL.to_owned(), workspace.to_string_lossy().into_owned())].into();
        NewSnapshot { labels, pending: true, ..NewSnapshot::default() }
    }

    /// Replaces the files of the workspace by those of the base. `current` is a snapshot of the present content, to
    /// undo the changes on failure. `special` are the paths of sockets, named pipes and devices, which a snapshot does
    /// not hold.
    fn replace(
        &self,
        dir: &WorkspaceDir,
        base: &Base,
        options: &CheckoutOptions,
        current: &Snapshot,
        special: Vec<PathBuf>,
    ) -> Result<(), ResetInPlaceError> {
        base.store.cancel_flag().check().map_err(StoreError::from).map_err(WorkspaceError::from)?;
        let (tree, holder) = (Self::tree(dir), self.holder.get());
        let special = SpecialFiles::move_aside(&holder, &tree, dir.join("special"), special)?;
        let Err(error) = self.check_out(base, &tree, options) else {
            // Not fatal: the next reset removes them.
            if let Err(error) = special.remove() {
                tracing::warn!(%error, "failed to remove the special files of a reset workspace");
            }
            return Ok(());
        };
        // Restore as much of the former content as possible, even if disk space is low.
        let options = CheckoutOptions { force: true, share: Vec::new(), limit: None, ..options.clone() };
        let restored = checkout(&self.store, current, &tree, &options, &NoProgress);
        let moved_back = special.move_back();
        Err(match restored.map_err(WorkspaceError::from).and(moved_back) {
            Ok(_) => ResetInPlaceError { error, is_undone: true },
            Err(error) => ResetInPlaceError { error, is_undone: false },
        })
    }

    /// Writes the base over the content of the workspace. The caller has made sure that the content is that of a
    /// snapshot in the store. Entries that neither this snapshot nor the base has are kept. Returns false if a process
    /// has changed an entry meanwhile that would be replaced: then all replaced entries get their former content again,
    /// and the changes are kept.
    pub(crate) fn check_out_over(&self, dir: &WorkspaceDir, base: &Base) -> Result<bool> {
        let (tree, options) = (Self::tree(dir), self.options(base)?);
        let options = CheckoutOptions { edits: EditCheck::EachTime, ..options };
        match self.check_out(base, &tree, &options) {
            // An entry was changed (`LocalEdits`), the snapshot of the present content was removed (`Unsaved`), or the
            // record of the last checkout is lost (`NotEmpty`).
            Err(WorkspaceError::Directory(
                DirectoryError::LocalEdits { .. }
                | DirectoryError::Unsaved { .. }
                | DirectoryError::NotEmpty { .. },
            )) => {
                // Some entries may have been replaced before the changes were found.
                undo_checkout(
                    &base.store,
                    &tree,
                    &CheckoutOptions { share: Vec::new(), ..options },
                    &NoProgress,
                )?;
                Ok(false)
            }
            checked_out => checked_out.map(|()| true),
        }
    }

    /// Checks the base out into `tree`. A checkout needs a snapshot, so an empty base is committed temporarily.
    fn check_out(&self, base: &Base, tree: &Path, options: &CheckoutOptions) -> Result<()> {
        if let Some(snapshot) = &base.snapshot {
            checkout(&base.store, snapshot, tree, options, &NoProgress)?;
            return Ok(());
        }
        let empty =
            self.store.empty_tree()?.commit(NewSnapshot { pending: true, ..NewSnapshot::default() })?;
        let result = checkout(&base.store, &empty, tree, options, &NoProgress);
        self.store.remove_snapshots(&[empty.id])?;
        result?;
        Ok(())
    }
}

impl Provider for CopyProvider {
    fn kind(&self) -> ProviderKind {
        if self.reflink { ProviderKind::Clone } else { ProviderKind::Copy }
    }

    fn create(&self, dir: &WorkspaceDir, base: &Base) -> Result<LowerLayers> {
        let tree = Self::tree(dir);
        fs::create_dir(&tree).context("create", &tree)?;
        let Some(snapshot) = &base.snapshot else {
            // Sets the mode that the root of an empty tree has, regardless of the umask. Another mode would be reported
            // as a change.
            let mode = fs::Permissions::from_mode(u32::from(base.tree.root().node.mode()));
            fs::set_permissions(&tree, mode).context("change", &tree)?;
            if let Some((user, group)) = self.file_owner {
                std::os::unix::fs::chown(&tree, Some(user), Some(group))
                    .context("change the owner of", &tree)?;
            }
            return Ok(LowerLayers::default());
        };
        checkout(&base.store, snapshot, &tree, &self.options(base)?, &NoProgress)?;
        Ok(LowerLayers::default())
    }

    fn path(&self, dir: &WorkspaceDir) -> PathBuf {
        Self::tree(dir)
    }

    fn open_root(&self, dir: &WorkspaceDir) -> Result<OwnedFd> {
        let tree = Self::tree(dir);
        file_opener::open_root(&self.holder.get(), &tree).context("open", &tree)
    }

    fn remount(&self, dir: &WorkspaceDir, _base: &Base, _layers: &[String]) -> Result<LowerLayers> {
        let tree = Self::tree(dir);
        fs::metadata(&tree).context("find", &tree)?;
        Ok(LowerLayers::default())
    }

    fn content(&self, dir: &WorkspaceDir, base: &Base, writers: Writers) -> Result<WorkspaceContent> {
        let options = Self::snapshot_options(NewSnapshot::default());
        let reader = Reader::new(&self.holder.get(), writers);
        let tree = Self::tree(dir);
        let preview = preview_directory_with_reader(&base.store, &tree, &options, &reader, &NoProgress)
            .map_err(|error| WorkspaceError::of_directory(error, &tree))?;
        Ok(WorkspaceContent {
            tree: preview.tree,
            skipped: preview.skipped,
            skipped_count: preview.skipped_count,
        })
    }

    fn commit(
        &self,
        dir: &WorkspaceDir,
        base: &Base,
        new: NewSnapshot,
        writers: Writers,
    ) -> Result<CommitResult> {
        let options = Self::snapshot_options(new);
        let SnapshotReport { snapshot, skipped, skipped_count, .. } =
            self.snapshot(&base.store, &Self::tree(dir), options, writers)?;
        Ok(CommitResult { snapshot, skipped, skipped_count })
    }

    #[cfg(target_os = "linux")]
    fn change_digest(
        &self,
        dir: &WorkspaceDir,
        effort: crate::provider::DigestEffort,
        cancel: &workspace_state::Cancel,
    ) -> Result<Option<crate::provider::ChangeDigest>> {
        // With the effort `Quick`, few entries are read, and none through a helper process.
        let opener = effort.opener(&self.holder.get());
        let entries_max = effort.entries_max(DIGEST_ENTRIES_MAX);
        crate::upper::digest::read(&opener, &Self::tree(dir), entries_max, cancel)
    }

    /// Takes a snapshot of the current content, and writes only the entries that differ in the base. A reset that fails
    /// or is cancelled is undone. The undo cannot be cancelled.
    fn reset_in_place(&self, dir: &WorkspaceDir, base: &Base) -> Result<(), ResetInPlaceError> {
        let options = self.options(base)?;
        let writers = Writers::Stopped;
        let options_with_special =
            SnapshotOptions { all_special: true, ..Self::snapshot_options(Self::former_content(dir)) };
        let report = self.snapshot(&base.store, &Self::tree(dir), options_with_special, writers)?;
        let special = report.skipped.into_iter().map(|skipped| skipped.path).collect();
        let former = report.snapshot;
        let replaced = self.replace(dir, base, &options, &former, special);
        if let Err(ResetInPlaceError { error, is_undone: false }) = &replaced {
            // The snapshot may be the only complete copy of the former content. It is pending and its label names the
            // workspace, so it is kept as long as the workspace exists.
            tracing::error!(snapshot = %former.id, %error, "failed to undo a reset; kept the former content");
        } else if let Err(error) = self.store.remove_snapshots(&[former.id]) {
            tracing::warn!(snapshot = %former.id, %error, "failed to remove the snapshot of a reset workspace");
        }
        replaced
    }

    fn private_dir(&self, dir: &WorkspaceDir) -> PathBuf {
        // There are no shared layers, so the disk usage of all files is that of the workspace.
        Self::tree(dir)
    }

    fn unmount(&self, _dir: &WorkspaceDir) -> Result<()> {
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        Ok(overlay::remove_tree(&self.holder.get(), path)?)
    }
}

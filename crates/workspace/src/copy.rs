//! Workspaces of files of their own: copied, or sharing their blocks with the files of a layer.
//!
//! ```text
//! tree/      the workspace
//! special/   sockets and the like, out of the way of a restore
//! ```
//!
//! What was changed is found by the store's stat index: only files that look other than when they were written or
//! committed are read.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use workspace_host::overlay;
use workspace_state::{
    CheckoutOptions, NewSnapshot, Quiet, Snapshot, SnapshotOptions, SnapshotReport, Store, StoreError,
    checkout, preview_directory_with, snapshot_directory_with,
};

use crate::access::Reader;
use crate::base::Base;
use crate::error::{Context as _, Result, WorkspaceError};
use crate::here::Here;
use crate::layers::Layers;
use crate::provider::{Committed, Kind, Place, Present, Provider, Under};
use crate::special::Special;

/// Makes workspaces of whole files.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) store: Store,
    pub(crate) here: Here,
    /// Whom files of workspaces belong to, where that is not this process's user.
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) layers: Layers,
    /// Set if files share their blocks with those of layers.
    pub(crate) shared: bool,
}

impl Copy {
    fn tree(place: &Place) -> PathBuf {
        place.join("tree")
    }

    /// Files share their blocks with those of the layers that hold the snapshot, where there are layers.
    fn options(&self, base: &Base) -> Result<CheckoutOptions> {
        let share = match &base.snapshot {
            // Deltas have only what changed: such a file is shared with the layer that has it.
            Some(snapshot) if self.shared => self.layers.find_or_write(&base.store, snapshot, false)?.paths(),
            _ => Vec::new(),
        };
        // Set-id bits stay: they are without effect in a sandbox, and nobody else reaches a workspace.
        let (owner, limit) = (self.owner, Some(self.layers.limit()));
        Ok(CheckoutOptions { owner, keep_set_id: true, share, limit, ..CheckoutOptions::default() })
    }

    fn snapshot_options(new: NewSnapshot, quiescent: bool) -> SnapshotOptions {
        // The user's ignore files are for his directories; here everything is the agent's work.
        SnapshotOptions { new, ignore: false, quiescent, complete: true, ..SnapshotOptions::default() }
    }

    fn snapshot(&self, store: &Store, tree: &Path, options: SnapshotOptions) -> Result<SnapshotReport> {
        let reader = Reader::new(&self.here.get(), options.quiescent);
        let report = snapshot_directory_with(store, tree, options, &reader, &Quiet);
        report.map_err(|error| WorkspaceError::of_directory(error, tree))
    }

    /// Writes what differs from `present`, which the workspace holds besides the special files; or nothing at all.
    fn replace(
        &self,
        place: &Place,
        base: &Base,
        options: &CheckoutOptions,
        present: &Snapshot,
        special: Vec<PathBuf>,
    ) -> Result<()> {
        base.store.cancel().check().map_err(StoreError::from)?;
        let (tree, holder) = (Self::tree(place), self.here.get());
        let special = Special::set_aside(&holder, &tree, place.join("special"), special)?;
        let Err(error) = self.check_out(base, &tree, options) else { return special.remove() };
        // Back to what it held, as far as that can be had, also where room is short.
        let options = CheckoutOptions { force: true, share: Vec::new(), limit: None, ..options.clone() };
        let back = checkout(&self.store, present, &tree, &options, &Quiet);
        special.put_back()?;
        back?;
        Err(error)
    }

    fn check_out(&self, base: &Base, tree: &Path, options: &CheckoutOptions) -> Result<()> {
        if let Some(snapshot) = &base.snapshot {
            checkout(&base.store, snapshot, tree, options, &Quiet)?;
            return Ok(());
        }
        let empty = self.store.empty_tree()?.commit(NewSnapshot::default())?;
        let done = checkout(&base.store, &empty, tree, options, &Quiet);
        self.store.remove_snapshots(&[empty.id])?;
        done?;
        Ok(())
    }
}

impl Provider for Copy {
    fn kind(&self) -> Kind {
        if self.shared { Kind::Clone } else { Kind::Copy }
    }

    fn make(&self, place: &Place, base: &Base) -> Result<Under> {
        let tree = Self::tree(place);
        fs::create_dir(&tree).on("make", &tree)?;
        let Some(snapshot) = &base.snapshot else {
            // As the root of an empty tree, whatever the umask is: nothing was changed in it yet.
            let mode = fs::Permissions::from_mode(u32::from(base.tree.root().node.mode()));
            fs::set_permissions(&tree, mode).on("change", &tree)?;
            if let Some((user, group)) = self.owner {
                std::os::unix::fs::chown(&tree, Some(user), Some(group)).on("give away", &tree)?;
            }
            return Ok(Under::default());
        };
        checkout(&base.store, snapshot, &tree, &self.options(base)?, &Quiet)?;
        Ok(Under::default())
    }

    fn path(&self, place: &Place) -> PathBuf {
        Self::tree(place)
    }

    fn revive(&self, place: &Place, _base: &Base, _layers: &[String]) -> Result<Under> {
        let tree = Self::tree(place);
        fs::metadata(&tree).on("find", &tree)?;
        Ok(Under::default())
    }

    fn present(&self, place: &Place, base: &Base, quiescent: bool) -> Result<Present> {
        let options = Self::snapshot_options(NewSnapshot::default(), quiescent);
        let reader = Reader::new(&self.here.get(), quiescent);
        let tree = Self::tree(place);
        let preview = preview_directory_with(&base.store, &tree, &options, &reader, &Quiet)
            .map_err(|error| WorkspaceError::of_directory(error, &tree))?;
        Ok(Present { tree: preview.tree, skipped: preview.skipped, skipped_count: preview.skipped_count })
    }

    fn commit(&self, place: &Place, base: &Base, new: NewSnapshot, quiescent: bool) -> Result<Committed> {
        let options = Self::snapshot_options(new, quiescent);
        let SnapshotReport { snapshot, skipped, skipped_count, .. } =
            self.snapshot(&base.store, &Self::tree(place), options)?;
        Ok(Committed { snapshot, skipped, skipped_count })
    }

    /// Whatever is there is noted as what the directory holds, and then only what differs is written. One that is
    /// cancelled is undone, which nothing cancels.
    fn switch(&self, place: &Place, base: &Base) -> Result<bool> {
        let options = self.options(base)?;
        let everything =
            SnapshotOptions { all_special: true, ..Self::snapshot_options(NewSnapshot::default(), true) };
        let report = self.snapshot(&base.store, &Self::tree(place), everything)?;
        let special = report.skipped.into_iter().map(|skipped| skipped.path).collect();
        let done = self.replace(place, base, &options, &report.snapshot, special);
        self.store.remove_snapshots(&[report.snapshot.id])?;
        done?;
        Ok(true)
    }

    fn own(&self, place: &Place) -> PathBuf {
        Self::tree(place)
    }

    fn clear(&self, _place: &Place) -> Result<()> {
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        Ok(overlay::remove_tree(&self.here.get(), path)?)
    }
}

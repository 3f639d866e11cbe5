//! Resets: the content of a workspace is replaced by that of another snapshot.
//!
//! The files of a workspace of the providers clone and copy are replaced *in place*. An overlay gets a new directory,
//! the next *generation*: the caller switches all processes from the former generation to it, and then finishes or
//! undoes the reset. Until then the phase in the workspace's record (its state on disk) is [`Phase::Resetting`]. A
//! reset in place has this phase, too, while it runs.
//!
//! The *base* of a workspace is the snapshot that it was created from, or last reset to. A *pin* protects the base from
//! garbage collection. *Recovery* is the work of [`Workspaces::open`] after a server was killed.

use std::fs;
use std::path::PathBuf;

use workspace_state::{PinId, SnapshotId, Store};

use super::{LiveWorkspace, REMOVED_DIR, WorkspaceInfo, Workspaces};
use crate::base::{Base, Materialize};
use crate::error::{Context as _, Result, WorkspaceError};
use crate::provider::{LowerLayers, Provider as _, ResetInPlaceError};
use crate::provider_kind::ProviderKind;
use crate::record::{Generation, Phase, PreparedRecord, Record};
use crate::writers::Writers;

/// Permission to give a workspace a new directory when it is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetMode {
    /// The workspace may get a new directory. The caller can switch all its processes to it.
    MayMove,
    /// Only a reset in place is allowed, which fails for an overlay.
    InPlaceOnly,
}

/// Result of a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetResult {
    /// Location of the workspace after the reset.
    pub workspace: WorkspaceInfo,
    /// Set if the path of the agent's directory has changed. The caller must then switch all processes
    /// that use the workspace to the new path, and call [`Workspaces::finish_reset`] or
    /// [`Workspaces::undo_reset`].
    pub moved: bool,
}

/// Guard of the layers (lower directories of an overlay) that were written in advance for a reset. They are kept until
/// it is dropped.
#[derive(Debug)]
pub struct PreparedReset {
    _lower: LowerLayers,
}

impl Workspaces {
    /// Resets a workspace to another snapshot, with the same provider. `materialize` says when the files of the
    /// snapshot are written to disk. An overlay gets a new directory, which `mode` must allow. The files of other
    /// workspaces are replaced in place, while no process may write to them.
    pub fn reset(
        &self,
        id: &str,
        snapshot: Option<SnapshotId>,
        materialize: Materialize,
        mode: ResetMode,
    ) -> Result<ResetResult> {
        self.reset_with(&self.store, id, (snapshot, None), materialize, mode)
    }

    /// Resets a workspace to `snapshot`. `base_info` is a text of the caller about the snapshot. One write of the
    /// record stores both. Stops when the `Cancel` flag of the handle `store` is set.
    pub(super) fn reset_with(
        &self,
        store: &Store,
        id: &str,
        (snapshot, base_info): (Option<SnapshotId>, Option<String>),
        materialize: Materialize,
        mode: ResetMode,
    ) -> Result<ResetResult> {
        self.with_cancellable_lock(store.cancel_flag(), id, |workspace| {
            let base = Base::new(store, self.part, snapshot, materialize)?;
            if workspace.record.current.provider == ProviderKind::Overlay {
                if mode == ResetMode::InPlaceOnly {
                    let reason = "its processes cannot be moved to another directory".to_owned();
                    return Err(WorkspaceError::Unusable { id: id.to_owned(), reason });
                }
                return self.reset_by_moving(id, workspace, &base, base_info);
            }
            self.reset_in_place(id, workspace, &base, base_info)
        })
    }

    /// Replaces the files of a workspace by those of `base`. On failure, undoes the reset if possible.
    fn reset_in_place(
        &self,
        id: &str,
        workspace: &mut LiveWorkspace,
        base: &Base,
        base_info: Option<String>,
    ) -> Result<ResetResult> {
        let mut record = workspace.record.clone();
        // An earlier reset in place left this pin, if it could be neither completed nor undone.
        self.unpin(record.in_place_former_pin.take());
        let pin = base.snapshot.as_ref().map(|_| PinId::generate());
        record.in_place_former_pin = std::mem::replace(&mut record.current.pin, pin);
        (record.current.base, record.current.base_info) = (base.id(), base_info);
        record.next_parent = base.id();
        record.phase = Phase::Resetting;
        let workspace_dir = self.workspace_dir(id);
        let undo = workspace.record.prepare_undo(&workspace_dir)?;
        // Pinned before the record is written: recovery needs the base that the record names. If no record names the
        // pin, recovery removes the pin.
        self.pin(id, base, pin)?;
        record.write(&workspace_dir)?;
        let applied = self.apply_reset(id, &mut record, base);
        if let Err(ResetInPlaceError { error, is_undone }) = applied {
            if is_undone && self.install_undo(id, undo) {
                self.unpin(pin);
            } else {
                // The record on disk says that the reset is in progress. The content may be a mix of two snapshots, so
                // no commit is possible until another reset, or recovery after a restart, has replaced it.
                workspace.record = record;
            }
            return Err(error);
        }
        workspace.record = record;
        let info = self.info(id, &workspace.record.current, &workspace.lower);
        Ok(ResetResult { workspace: info, moved: false })
    }

    /// Restores the record that the workspace had before a reset in place. Returns false if that fails: then the record
    /// on disk still says that the reset is in progress, so that recovery repeats it.
    fn install_undo(&self, id: &str, undo: PreparedRecord) -> bool {
        let installed = undo.install();
        if let Err(error) = &installed {
            tracing::error!(workspace = id, %error, "failed to record that a reset was undone");
        }
        installed.is_ok()
    }

    /// Replaces the files of a workspace by those of `base`, which its record names already. Then records that the
    /// reset is complete, and removes the pin of the former base. If that cannot be recorded, the reset is still in
    /// progress, and recovery repeats it.
    pub(super) fn apply_reset(
        &self,
        id: &str,
        record: &mut Record,
        base: &Base,
    ) -> Result<(), ResetInPlaceError> {
        let done = Record { phase: Phase::Ready, in_place_former_pin: None, ..record.clone() };
        // Written before anything is changed: the reset may fill the disk.
        let prepared = done.prepare_done(&self.workspace_dir(id)).map_err(ResetInPlaceError::from)?;
        self.provider(record.current.provider).reset_in_place(&self.current_dir(id, record), base)?;
        prepared.install().map_err(|error| ResetInPlaceError { error, is_undone: false })?;
        self.unpin(record.in_place_former_pin);
        *record = done;
        Ok(())
    }

    /// Creates the next generation of a workspace with the content of `base`, and makes it the current one. The phase
    /// is then [`Phase::Resetting`]. On failure, removes the next generation again.
    fn reset_by_moving(
        &self,
        id: &str,
        workspace: &mut LiveWorkspace,
        base: &Base,
        base_info: Option<String>,
    ) -> Result<ResetResult> {
        self.remove_former_locked(id, workspace)?;
        let (workspace_dir, mut record) = (self.workspace_dir(id), workspace.record.clone());
        let mut next = Generation { base_info, ..record.current.next(ProviderKind::Overlay, base.id()) };
        // Until the next generation is ready, record it as the former one, so that recovery removes it.
        record.former = Some(next.clone());
        let lower = record.write(&workspace_dir).and_then(|()| {
            let lower = self.create_generation(id, &record.creation_id, &mut next, base)?;
            record.former = Some(std::mem::replace(&mut record.current, next.clone()));
            record.phase = Phase::Resetting;
            record.former_next_parent = std::mem::replace(&mut record.next_parent, base.id());
            record.write(&workspace_dir)?;
            Ok(lower)
        });
        let lower = match lower {
            Ok(lower) => lower,
            Err(error) => {
                workspace.record.former = Some(next);
                self.remove_former_locked(id, workspace)?;
                return Err(error);
            }
        };
        workspace.former_lower = Some(std::mem::replace(&mut workspace.lower, lower));
        workspace.record = record;
        let info = self.info(id, &workspace.record.current, &workspace.lower);
        Ok(ResetResult { workspace: info, moved: true })
    }

    /// Returns the directory that processes must still be switched to. Returns `None` if no reset is in progress, the
    /// reset is in place, or there is no such workspace.
    pub fn pending_reset(&self, id: &str) -> Result<Option<PathBuf>> {
        let path = |workspace: &mut LiveWorkspace| {
            let is_pending = workspace.record.has_pending_switch();
            Ok(is_pending.then(|| self.info(id, &workspace.record.current, &workspace.lower).path))
        };
        match self.with_locked(id, path) {
            Err(WorkspaceError::NotFound { .. }) => Ok(None),
            path => path,
        }
    }

    /// Returns false if a workspace should be mounted but is not. A mount disappears when the namespace holder (the
    /// process that keeps the namespaces of mounts) dies, and leaves an empty directory.
    pub fn is_available(&self, id: &str) -> Result<bool> {
        self.with_locked(id, |workspace| {
            let dir = self.current_dir(id, &workspace.record);
            self.provider(workspace.record.current.provider).is_available(&dir)
        })
    }

    /// Returns the current and the former directory of a workspace during a reset. Each is `None` if it does not exist
    /// or is not mounted.
    pub fn reset_directories(&self, id: &str) -> Result<(Option<PathBuf>, Option<PathBuf>)> {
        self.with_locked(id, |workspace| {
            let mounted_path = |generation: &Generation| -> Result<Option<PathBuf>> {
                let dir = self.generation_dir(id, &workspace.record.creation_id, generation);
                let provider = self.provider(generation.provider);
                Ok(provider.is_available(&dir)?.then(|| provider.path(&dir)))
            };
            let former = workspace.record.former.as_ref().map(&mounted_path).transpose()?;
            Ok((mounted_path(&workspace.record.current)?, former.flatten()))
        })
    }

    /// See [`CancellableWorkspaces::prepare_reset`](super::CancellableWorkspaces::prepare_reset).
    pub(super) fn prepare_reset_with(
        &self,
        store: &Store,
        id: &str,
        snapshot: SnapshotId,
    ) -> Result<PreparedReset> {
        let (kind, dir) = self.with_cancellable_lock(store.cancel_flag(), id, |workspace| {
            Ok((workspace.record.current.provider, self.current_dir(id, &workspace.record)))
        })?;
        let base = Base::new(store, self.part, Some(snapshot), Materialize::Auto)?;
        Ok(PreparedReset { _lower: self.provider(kind).prepare(&dir, &base)? })
    }

    /// Ends a reset after all processes were switched to the new directory. The former generation stays on disk until
    /// [`Workspaces::remove_former`] is called.
    pub fn finish_reset(&self, id: &str) -> Result<()> {
        self.with_locked(id, |workspace| {
            let record = Record { phase: Phase::Ready, ..workspace.record.clone() };
            // Written first: if that fails, the reset stays in progress.
            record.write(&self.workspace_dir(id))?;
            workspace.record = record;
            Ok(())
        })
    }

    /// Undoes a reset after processes could not be switched. The former directory becomes the workspace
    /// again. Does nothing if no such reset is in progress.
    pub fn undo_reset(&self, id: &str) -> Result<()> {
        self.with_locked(id, |workspace| {
            if workspace.record.phase != Phase::Resetting {
                return Ok(());
            }
            let mut record = workspace.record.clone();
            let Some(former) = record.former.take() else { return Ok(()) };
            record.former = Some(std::mem::replace(&mut record.current, former));
            record.phase = Phase::Ready;
            record.next_parent = record.former_next_parent.take();
            // Written first: if that fails, the reset stays in progress.
            record.write(&self.workspace_dir(id))?;
            workspace.record = record;
            if let Some(lower) = workspace.former_lower.take() {
                workspace.former_lower = Some(std::mem::replace(&mut workspace.lower, lower));
            }
            self.remove_former_locked(id, workspace)
        })
    }

    /// Ends a reset of a workspace that no process uses any more, if it is not known whether its processes were
    /// switched to the new directory: that directory becomes the workspace if something in it was changed, else the
    /// former one. Does nothing if no such reset is in progress.
    pub fn settle_reset_of_unused(&self, id: &str) -> Result<()> {
        if self.pending_reset(id)?.is_none() {
            return Ok(());
        }
        let changes = self.changes(id, Writers::Stopped)?;
        let is_changed = changes.skipped_count > 0 || !changes.differences()?.is_empty();
        if is_changed { self.finish_reset(id) } else { self.undo_reset(id) }
    }

    /// Removes the former generation of a workspace after a reset. The caller guarantees that no process uses
    /// it. The workspace is locked only briefly, not while files are deleted.
    pub fn remove_former(&self, id: &str) -> Result<()> {
        let moved = match self.with_locked(id, |workspace| self.move_former_aside(id, workspace)) {
            Err(WorkspaceError::NotFound { .. }) => return Ok(()),
            moved => moved?,
        };
        moved.map_or(Ok(()), |path| self.overlay.remove(&path))
    }

    /// Moves the former generation into [`REMOVED_DIR`], from which the caller removes it. Returns its new path; `None`
    /// if there is no former generation, or a reset still needs it.
    fn move_former_aside(&self, id: &str, workspace: &mut LiveWorkspace) -> Result<Option<PathBuf>> {
        let Some(former) = workspace.record.former.clone() else { return Ok(None) };
        if workspace.record.phase == Phase::Resetting {
            return Ok(None);
        }
        let dir = self.generation_dir(id, &workspace.record.creation_id, &former);
        self.provider(former.provider).unmount(&dir)?;
        let removed_dir = self.directory.join(REMOVED_DIR);
        fs::create_dir_all(&removed_dir).context("create", &removed_dir)?;
        let aside = removed_dir.join(format!("{}-{}", workspace.record.creation_id, former.number));
        fs::rename(&dir.root, &aside).context("move", &dir.root)?;
        self.unpin(former.pin);
        workspace.former_lower = None;
        workspace.record.former = None;
        workspace.record.write(&self.workspace_dir(id))?;
        Ok(Some(aside))
    }

    /// Removes the former generation of a locked workspace.
    pub(super) fn remove_former_locked(&self, id: &str, workspace: &mut LiveWorkspace) -> Result<()> {
        let Some(former) = workspace.record.former.clone() else { return Ok(()) };
        self.remove_generation(id, &workspace.record.creation_id, &former)?;
        workspace.former_lower = None;
        workspace.record.former = None;
        workspace.record.write(&self.workspace_dir(id))
    }
}

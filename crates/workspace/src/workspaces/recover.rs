//! Recovery of workspaces after the death of a process, and removal of workspaces.
//!
//! A *reset* replaces the content of a workspace by that of another snapshot: in place, or by a new directory, the next
//! *generation*. During a reset, the phase in the record is `Phase::Resetting`. If the reset is not in place, the
//! record has a former generation, too. A *pin* protects a base snapshot (from which a generation was created) from
//! garbage collection. An *anchor* is a mount that shows the present files of a project to several workspaces.

use std::sync::Arc;

use parking_lot::Mutex;
use workspace_host::overlay;

use super::{LiveWorkspace, REMOVED_DIR, Slot, Workspaces, names};
use crate::anchors::FollowerProcesses;
use crate::error::Result;
use crate::provider::{LowerLayers, Provider as _};
use crate::provider_kind::ProviderKind;
use crate::record::{Generation, Phase, Record};

impl Workspaces {
    /// Loads all workspaces, and finishes or undoes the operations of a killed process. If that fails for a
    /// workspace, the failure is logged, and the workspace is kept.
    pub(super) fn recover(&self) -> Result<()> {
        for id in names(&self.directory)? {
            if let Err(error) = self.recover_one(&id) {
                tracing::warn!(workspace = id, %error, "failed to recover workspace; it is left unchanged");
            }
        }
        self.anchors.remove_unused();
        // Former generations that a killed process was removing.
        let removed = self.directory.join(REMOVED_DIR);
        if removed.exists() {
            self.overlay.remove(&removed)?;
        }
        self.remove_unused_pins()
    }

    /// Removes the pins of workspaces that do not exist, and pins that the record of their workspace does not name. A
    /// workspace with an unreadable record keeps its pins.
    fn remove_unused_pins(&self) -> Result<()> {
        let prefix = self.pin_holder("");
        for pin in self.store.pins()? {
            let Some(id) = pin.holder.strip_prefix(&prefix) else { continue };
            let record = Record::read(&self.workspace_dir(id));
            let is_used = match &record {
                Ok(record) => record.pins().any(|pin_id| pin_id == pin.id),
                Err(_) => self.workspace_dir(id).exists(),
            };
            if !is_used {
                self.store.unpin(pin.id)?;
            }
        }
        Ok(())
    }

    /// Loads a workspace, or finishes its removal.
    fn recover_one(&self, id: &str) -> Result<()> {
        let directory = self.workspace_dir(id);
        let record = match Record::read(&directory) {
            // The creation of the workspace was never completed.
            Err(_) if Record::is_missing(&directory)? => return self.remove_all(id, None),
            // A record that exists but cannot be read is an error: an operator must repair or remove the workspace.
            record => record?,
        };
        match record.phase {
            Phase::Removing => self.remove_all(id, Some(&record)),
            Phase::Ready | Phase::Resetting => self.load(id, record),
        }
    }

    /// Loads a workspace. Removes its former generation unless a reset is in progress. Repeats an interrupted reset in
    /// place. A reset to a new generation stays in progress, because only the caller of [`Workspaces::open`] can find
    /// out which generation the processes use.
    pub(super) fn load(&self, id: &str, mut record: Record) -> Result<()> {
        if record.phase == Phase::Ready
            && let Some(former) = record.former.take()
        {
            // The process died after the reset was finished or undone, and before the former generation was removed.
            self.remove_generation(id, &record.creation_id, &former)?;
            record.write(&self.workspace_dir(id))?;
        }
        if record.is_partly_reset() {
            let base = self.base(&record.current)?;
            self.pin(id, &base, record.current.pin)?;
            self.apply_reset(id, &mut record, &base).map_err(|failure| failure.error)?;
        }
        let lower = |generation: &Generation| LowerLayers {
            stack: self.layers.reacquire(&generation.layers),
            // An overlay with a base but without layers reads its base from the lazy mount, the FUSE mount that is
            // used until layers are written.
            lazy: generation.provider == ProviderKind::Overlay
                && generation.anchor.is_none()
                && generation.layers.is_empty()
                && generation.base.is_some(),
        };
        if let Some(anchor) = &record.current.anchor {
            self.anchors.load(anchor, id, &self.store)?;
        }
        let former = record.former.as_ref().map(lower);
        // `unchanged_digest` is not stored: the next conditional commit (which commits only if files have changed)
        // computes it again.
        let workspace = LiveWorkspace {
            lower: lower(&record.current),
            former_lower: former,
            record,
            unchanged_digest: None,
        };
        let summary = self.summarize(id, &workspace.record, &workspace.lower);
        let slot = Slot { workspace: Mutex::new(Some(workspace)), summary: Mutex::new(Some(summary)) };
        self.lock_slots().insert(id.to_owned(), Arc::new(slot));
        Ok(())
    }

    /// Unmounts a workspace and removes its directory with all generations, the record and the pins. If `record` is
    /// `None`, reads the record from the directory.
    pub(super) fn remove_all(&self, id: &str, record: Option<&Record>) -> Result<()> {
        let directory = self.workspace_dir(id);
        let record = record.cloned().or_else(|| Record::read(&directory).ok());
        if let Some(record) = &record {
            for generation in record.former.iter().chain([&record.current]) {
                self.remove_generation(id, &record.creation_id, generation)?;
            }
            // Pin of the former base of a reset in place. `remove_generation` has removed the pins of generations.
            self.unpin(record.in_place_former_pin);
            if let Some(anchor) = &record.current.anchor {
                self.anchors.leave(anchor, id, FollowerProcesses::Ended)?;
            }
        }
        // Mounts of generations that the record does not name.
        let holder = self.holder.get();
        for path in overlay::mounted(&holder, &directory)? {
            overlay::unmount(&holder, &path)?;
        }
        // Without mounts it is a plain directory, whatever the provider was.
        self.copy.remove(&directory)
    }

    /// Unmounts and removes a generation, and its pin. Its directory need not exist any more.
    pub(super) fn remove_generation(
        &self,
        id: &str,
        creation_id: &str,
        generation: &Generation,
    ) -> Result<()> {
        let (dir, provider) =
            (self.generation_dir(id, creation_id, generation), self.provider(generation.provider));
        if dir.root.exists() {
            provider.unmount(&dir)?;
            provider.remove(&dir.root)?;
        }
        self.unpin(generation.pin);
        Ok(())
    }
}

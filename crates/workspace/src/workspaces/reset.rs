//! Resetting a workspace to another snapshot.

use std::fs;
use std::path::PathBuf;

use workspace_state::{PinId, SnapshotId, Store};

use super::{LiveWorkspace, Made, REMOVED_DIR, Workspaces};
use crate::base::{Base, Materialize};
use crate::error::{Context as _, Result, WorkspaceError};
use crate::kind::Kind;
use crate::provider::{LowerLayers, Provider as _};
use crate::record::{Generation, Phase, Record};

/// Result of a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switched {
    /// The agent's directory.
    pub made: Made,
    /// Set if it is another directory than before. Then move its users, and call [`Workspaces::switched`] or
    /// [`Workspaces::switch_back`].
    pub moved: bool,
}

/// Layers that a reset is going to use; they are kept as long as this lives.
#[derive(Debug)]
pub struct Prepared {
    _lower: LowerLayers,
}

impl Workspaces {
    /// Resets a workspace to another snapshot, with the same provider. An overlay gets another directory,
    /// which requires `may_move`; others are changed in place.
    pub fn reset(
        &self,
        id: &str,
        snapshot: Option<SnapshotId>,
        materialize: Materialize,
        may_move: bool,
    ) -> Result<Switched> {
        self.reset_with(&self.store, id, snapshot, materialize, may_move)
    }

    pub(super) fn reset_with(
        &self,
        store: &Store,
        id: &str,
        snapshot: Option<SnapshotId>,
        materialize: Materialize,
        may_move: bool,
    ) -> Result<Switched> {
        self.with_cancel(store.cancel(), id, |known| {
            let base = Base::new(store, snapshot, materialize)?;
            if known.record.current.provider == Kind::Overlay {
                if !may_move {
                    let reason = "whoever uses it cannot be moved to another directory".to_owned();
                    return Err(WorkspaceError::Unusable { id: id.to_owned(), reason });
                }
                return self.reset_by_moving(id, known, &base);
            }
            self.reset_in_place(id, known, &base)
        })
    }

    fn reset_in_place(&self, id: &str, known: &mut LiveWorkspace, base: &Base) -> Result<Switched> {
        let mut record = known.record.clone();
        let pin = base.snapshot.as_ref().map(|_| PinId::generate());
        record.spare = std::mem::replace(&mut record.current.pin, pin);
        record.current.base = base.id();
        record.last = base.id();
        record.phase = Phase::Switching;
        let directory = self.directory.join(id);
        record.write(&directory)?;
        if let Err(error) = self.pin(id, base, pin).and_then(|()| self.switch(id, &mut record, base)) {
            // The content was restored.
            self.unpin(pin);
            known.record.write(&directory)?;
            return Err(error);
        }
        known.record = record;
        let made = self.made(id, &known.record.current, &known.lower);
        Ok(Switched { made, moved: false })
    }

    /// Changes a workspace to its base, in place.
    pub(super) fn switch(&self, id: &str, record: &mut Record, base: &Base) -> Result<()> {
        self.provider(record.current.provider).switch(&self.current(id, record), base)?;
        self.unpin(record.spare.take());
        record.phase = Phase::Ready;
        // If this is lost, recovery repeats the switch.
        if let Err(error) = record.write(&self.directory.join(id)) {
            tracing::warn!(workspace = id, %error, "failed to record the end of a reset");
        }
        Ok(())
    }

    fn reset_by_moving(&self, id: &str, known: &mut LiveWorkspace, base: &Base) -> Result<Switched> {
        self.remove_former(id, known)?;
        let (directory, mut record) = (self.directory.join(id), known.record.clone());
        let mut next = record.current.next(Kind::Overlay, base.id());
        // Until it is ready, it is recorded as the former one, so that recovery removes it.
        record.former = Some(next.clone());
        let made = record.write(&directory).and_then(|()| {
            let lower = self.make_generation(id, &record.uid, &mut next, base)?;
            record.former = Some(std::mem::replace(&mut record.current, next.clone()));
            record.phase = Phase::Switching;
            record.former_last = std::mem::replace(&mut record.last, base.id());
            record.write(&directory)?;
            Ok(lower)
        });
        let lower = match made {
            Ok(lower) => lower,
            Err(error) => {
                known.record.former = Some(next);
                self.remove_former(id, known)?;
                return Err(error);
            }
        };
        known.former = Some(std::mem::replace(&mut known.lower, lower));
        known.record = record;
        let made = self.made(id, &known.record.current, &known.lower);
        Ok(Switched { made, moved: true })
    }

    /// Returns the directory that the users of a workspace still have to be moved to, if a reset is in
    /// progress.
    pub fn switching(&self, id: &str) -> Result<Option<PathBuf>> {
        let path = |known: &mut LiveWorkspace| {
            let is_switching = known.record.phase == Phase::Switching;
            Ok(is_switching.then(|| self.made(id, &known.record.current, &known.lower).path))
        };
        match self.with(id, path) {
            Err(WorkspaceError::NotFound { .. }) => Ok(None),
            found => found,
        }
    }

    /// Returns true if the directory of a workspace is mounted. A mount disappears with the holder's
    /// namespaces and leaves an empty directory.
    pub fn is_there(&self, id: &str) -> Result<bool> {
        self.with(id, |known| {
            let dir = self.current(id, &known.record);
            self.provider(known.record.current.provider).is_there(&dir)
        })
    }

    /// Returns the new and the former directory of a workspace during a reset, each only if it is mounted.
    pub fn switching_between(&self, id: &str) -> Result<(Option<PathBuf>, Option<PathBuf>)> {
        self.with(id, |known| {
            let there = |generation: &Generation| -> Result<Option<PathBuf>> {
                let dir = self.dir(id, &known.record.uid, generation);
                let provider = self.provider(generation.provider);
                Ok(provider.is_there(&dir)?.then(|| provider.path(&dir)))
            };
            let former = known.record.former.as_ref().map(&there).transpose()?;
            Ok((there(&known.record.current)?, former.flatten()))
        })
    }

    /// Writes everything that a reset to this snapshot needs, and keeps it until the result is dropped, so
    /// that the reset itself is short.
    pub(super) fn prepare_with(&self, store: &Store, id: &str, snapshot: SnapshotId) -> Result<Prepared> {
        let (kind, dir) = self.with_cancel(store.cancel(), id, |known| {
            Ok((known.record.current.provider, self.current(id, &known.record)))
        })?;
        let base = Base::new(store, Some(snapshot), Materialize::Auto)?;
        Ok(Prepared { _lower: self.provider(kind).prepare(&dir, &base)? })
    }

    /// Ends a reset: all users were moved to the new directory.
    pub fn switched(&self, id: &str) -> Result<()> {
        self.with(id, |known| {
            known.record.phase = Phase::Ready;
            known.record.write(&self.directory.join(id))
        })
    }

    /// Undoes a reset: the users could not be moved, and the former directory is the workspace again.
    pub fn switch_back(&self, id: &str) -> Result<()> {
        self.with(id, |known| {
            let Some(former) = known.record.former.take() else { return Ok(()) };
            known.record.former = Some(std::mem::replace(&mut known.record.current, former));
            if let Some(lower) = known.former.take() {
                known.former = Some(std::mem::replace(&mut known.lower, lower));
            }
            known.record.phase = Phase::Ready;
            known.record.last = known.record.former_last.take();
            known.record.write(&self.directory.join(id))?;
            self.remove_former(id, known)
        })
    }

    /// Removes the former generation of a workspace, which is not in use any more. The workspace can be used
    /// meanwhile.
    pub fn forget_former(&self, id: &str) -> Result<()> {
        let aside = match self.with(id, |known| self.set_former_aside(id, known)) {
            Err(WorkspaceError::NotFound { .. }) => return Ok(()),
            aside => aside?,
        };
        aside.map_or(Ok(()), |path| self.overlay.remove(&path))
    }

    /// Moves the former generation away. Returns its new path, if there was one.
    fn set_former_aside(&self, id: &str, known: &mut LiveWorkspace) -> Result<Option<PathBuf>> {
        let Some(former) = known.record.former.clone() else { return Ok(None) };
        if known.record.phase == Phase::Switching {
            return Ok(None);
        }
        let dir = self.dir(id, &known.record.uid, &former);
        self.provider(former.provider).clear(&dir)?;
        let aside = self.directory.join(REMOVED_DIR);
        fs::create_dir_all(&aside).context("make", &aside)?;
        let aside = aside.join(format!("{}-{}", known.record.uid, former.number));
        fs::rename(&dir.root, &aside).context("move", &dir.root)?;
        self.unpin(former.pin);
        known.former = None;
        known.record.former = None;
        known.record.write(&self.directory.join(id))?;
        Ok(Some(aside))
    }

    /// Removes the former generation of a locked workspace.
    pub(super) fn remove_former(&self, id: &str, known: &mut LiveWorkspace) -> Result<()> {
        let Some(former) = known.record.former.clone() else { return Ok(()) };
        self.remove_generation(id, &known.record.uid, &former)?;
        known.former = None;
        known.record.former = None;
        known.record.write(&self.directory.join(id))
    }
}

//! Giving a workspace another snapshot.

use std::fs;
use std::path::PathBuf;

use workspace_state::{PinId, SnapshotId, Store};

use super::{ASIDE, Known, Made, Workspaces};
use crate::base::{Base, Materialize};
use crate::error::{Context as _, Result, WorkspaceError};
use crate::provider::{Kind, Provider as _, Under};
use crate::record::{Generation, Phase, Record};

/// Where the agent's directory is after a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switched {
    /// The directory.
    pub made: Made,
    /// Whether it is another than before. Then whoever uses the former one is to be moved, and
    /// [`Workspaces::switched`] or [`Workspaces::switch_back`] called.
    pub moved: bool,
}

/// Layers that a reset is going to lie over; they stay for as long as this lives.
#[derive(Debug)]
pub struct Prepared {
    _under: Under,
}

impl Workspaces {
    /// Makes a workspace hold another snapshot, by the provider that made it. An overlay gets another directory, which
    /// `may_move` has to allow; any other is changed in place.
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

    fn reset_in_place(&self, id: &str, known: &mut Known, base: &Base) -> Result<Switched> {
        let mut record = known.record.clone();
        let pin = base.snapshot.as_ref().map(|_| PinId::generate());
        record.spare = std::mem::replace(&mut record.current.pin, pin);
        record.current.base = base.id();
        record.last = base.id();
        record.phase = Phase::Switching;
        let directory = self.directory.join(id);
        record.write(&directory)?;
        if let Err(error) = self.pin(id, base, pin).and_then(|()| self.switch(id, &mut record, base)) {
            // It holds what it held.
            self.unpin(pin);
            known.record.write(&directory)?;
            return Err(error);
        }
        known.record = record;
        let made = self.made(id, &known.record.current, &known.under);
        Ok(Switched { made, moved: false })
    }

    /// Makes a workspace hold its base, in place.
    pub(super) fn switch(&self, id: &str, record: &mut Record, base: &Base) -> Result<()> {
        self.provider(record.current.provider).switch(&self.current(id, record), base)?;
        self.unpin(record.spare.take());
        record.phase = Phase::Ready;
        // If this is lost, it is done once more.
        if let Err(error) = record.write(&self.directory.join(id)) {
            tracing::warn!(workspace = id, %error, "the end of a reset could not be noted");
        }
        Ok(())
    }

    fn reset_by_moving(&self, id: &str, known: &mut Known, base: &Base) -> Result<Switched> {
        self.remove_former(id, known)?;
        let (directory, mut record) = (self.directory.join(id), known.record.clone());
        let mut next = record.current.next(Kind::Overlay, base.id());
        // Until it is ready it is the former one that goes if this is interrupted.
        record.former = Some(next.clone());
        let made = record.write(&directory).and_then(|()| {
            let under = self.make_generation(id, &record.uid, &mut next, base)?;
            record.former = Some(std::mem::replace(&mut record.current, next.clone()));
            record.phase = Phase::Switching;
            record.former_last = std::mem::replace(&mut record.last, base.id());
            record.write(&directory)?;
            Ok(under)
        });
        let under = match made {
            Ok(under) => under,
            Err(error) => {
                known.record.former = Some(next);
                self.remove_former(id, known)?;
                return Err(error);
            }
        };
        known.former = Some(std::mem::replace(&mut known.under, under));
        known.record = record;
        let made = self.made(id, &known.record.current, &known.under);
        Ok(Switched { made, moved: true })
    }

    /// The directory that whoever uses a workspace is to be moved to, if that was not done.
    pub fn switching(&self, id: &str) -> Result<Option<PathBuf>> {
        let path = |known: &mut Known| {
            let is_switching = known.record.phase == Phase::Switching;
            Ok(is_switching.then(|| self.made(id, &known.record.current, &known.under).path))
        };
        match self.with(id, path) {
            Err(WorkspaceError::NotFound { .. }) => Ok(None),
            found => found,
        }
    }

    /// Returns true if the directory of a workspace is mounted where it should be. One that is mounted goes with the holder's namespaces,
    /// and leaves an empty directory.
    pub fn is_there(&self, id: &str) -> Result<bool> {
        self.with(id, |known| {
            let place = self.current(id, &known.record);
            self.provider(known.record.current.provider).is_there(&place)
        })
    }

    /// The new and the former directory of a workspace that is switching, each only if it is mounted where it should be.
    pub fn switching_between(&self, id: &str) -> Result<(Option<PathBuf>, Option<PathBuf>)> {
        self.with(id, |known| {
            let there = |generation: &Generation| -> Result<Option<PathBuf>> {
                let place = self.place(id, &known.record.uid, generation);
                let provider = self.provider(generation.provider);
                Ok(provider.is_there(&place)?.then(|| provider.path(&place)))
            };
            let former = known.record.former.as_ref().map(&there).transpose()?;
            Ok((there(&known.record.current)?, former.flatten()))
        })
    }

    /// Writes what a reset to this snapshot needs, and keeps it until what is returned is dropped: the reset is short then.
    pub(super) fn prepare_with(&self, store: &Store, id: &str, snapshot: SnapshotId) -> Result<Prepared> {
        let (kind, place) = self.with_cancel(store.cancel(), id, |known| {
            Ok((known.record.current.provider, self.current(id, &known.record)))
        })?;
        let base = Base::new(store, Some(snapshot), Materialize::Auto)?;
        Ok(Prepared { _under: self.provider(kind).prepare(&place, &base)? })
    }

    /// Whoever used the former directory of a workspace uses the new one now.
    pub fn switched(&self, id: &str) -> Result<()> {
        self.with(id, |known| {
            known.record.phase = Phase::Ready;
            known.record.write(&self.directory.join(id))
        })
    }

    /// Whoever used the former directory could not be moved: it is the workspace again.
    pub fn switch_back(&self, id: &str) -> Result<()> {
        self.with(id, |known| {
            let Some(former) = known.record.former.take() else { return Ok(()) };
            known.record.former = Some(std::mem::replace(&mut known.record.current, former));
            if let Some(under) = known.former.take() {
                known.former = Some(std::mem::replace(&mut known.under, under));
            }
            known.record.phase = Phase::Ready;
            known.record.last = known.record.former_last.take();
            known.record.write(&self.directory.join(id))?;
            self.remove_former(id, known)
        })
    }

    /// Removes what a workspace was before it was reset, which nobody uses any more. Others can work on it meanwhile.
    pub fn forget_former(&self, id: &str) -> Result<()> {
        let aside = match self.with(id, |known| self.set_former_aside(id, known)) {
            Err(WorkspaceError::NotFound { .. }) => return Ok(()),
            aside => aside?,
        };
        aside.map_or(Ok(()), |path| self.overlay.remove(&path))
    }

    /// Where it is then, if there was one.
    fn set_former_aside(&self, id: &str, known: &mut Known) -> Result<Option<PathBuf>> {
        let Some(former) = known.record.former.clone() else { return Ok(None) };
        if known.record.phase == Phase::Switching {
            return Ok(None);
        }
        let place = self.place(id, &known.record.uid, &former);
        self.provider(former.provider).clear(&place)?;
        let aside = self.directory.join(ASIDE);
        fs::create_dir_all(&aside).on("make", &aside)?;
        let aside = aside.join(format!("{}-{}", known.record.uid, former.number));
        fs::rename(&place.root, &aside).on("move", &place.root)?;
        self.unpin(former.pin);
        known.former = None;
        known.record.former = None;
        known.record.write(&self.directory.join(id))?;
        Ok(Some(aside))
    }

    /// The same while whoever calls this works on it.
    pub(super) fn remove_former(&self, id: &str, known: &mut Known) -> Result<()> {
        let Some(former) = known.record.former.clone() else { return Ok(()) };
        self.remove_generation(id, &known.record.uid, &former)?;
        known.former = None;
        known.record.former = None;
        known.record.write(&self.directory.join(id))
    }
}

//! Taking up what another process left, and clearing away.

use std::sync::{Arc, Mutex};

use workspace_host::overlay;

use super::{ASIDE, Known, Slot, Workspaces, names};
use crate::error::Result;
use crate::provider::{Provider as _, Under};
use crate::record::{Generation, Phase, Record};

impl Workspaces {
    pub(super) fn recover(&self) -> Result<()> {
        for id in names(&self.directory)? {
            if let Err(error) = self.recover_one(&id) {
                tracing::warn!(workspace = id, %error, "a workspace cannot be used; it is left as it is");
            }
        }
        let aside = self.directory.join(ASIDE);
        if aside.exists() {
            self.overlay.remove(&aside)?;
        }
        self.remove_unknown_pins()
    }

    /// Removes the pins of workspaces that never came to be. One that cannot be read keeps its own.
    fn remove_unknown_pins(&self) -> Result<()> {
        let prefix = self.owner_of_pins("");
        for pin in self.store.pins()? {
            let Some(id) = pin.owner.strip_prefix(&prefix) else { continue };
            let record = Record::read(&self.directory.join(id));
            let keeps = match &record {
                Ok(record) => record.pins().any(|known| known == pin.id),
                Err(_) => self.directory.join(id).exists(),
            };
            if !keeps {
                self.store.unpin(pin.id)?;
            }
        }
        Ok(())
    }

    fn recover_one(&self, id: &str) -> Result<()> {
        let directory = self.directory.join(id);
        let record = match Record::read(&directory) {
            // Nobody was given it.
            Err(_) if Record::is_unwritten(&directory)? => return self.remove_all(id, None),
            record => record?,
        };
        match record.phase {
            Phase::Removing => self.remove_all(id, Some(&record)),
            Phase::Ready | Phase::Switching => self.take_up(id, record),
        }
    }

    pub(super) fn take_up(&self, id: &str, mut record: Record) -> Result<()> {
        if record.phase == Phase::Ready
            && let Some(former) = record.former.take()
        {
            // Left by a reset that was interrupted, or by one whose workspace nobody used any more.
            self.remove_generation(id, &record.uid, &former)?;
            record.write(&self.directory.join(id))?;
        }
        if record.phase == Phase::Switching && record.former.is_none() {
            let base = self.base(&record.current)?;
            self.pin(id, &base, record.current.pin)?;
            self.switch(id, &mut record, &base)?;
        }
        let under = |generation: &Generation| Under {
            held: self.layers.hold_again(&generation.layers),
            lazy: generation.layers.is_empty() && generation.base.is_some(),
        };
        let former = record.former.as_ref().map(under);
        let known = Known { under: under(&record.current), former, record };
        let told = self.tell(id, &known.record, &known.under);
        let slot = Slot { known: Mutex::new(Some(known)), told: Mutex::new(Some(told)) };
        self.lock().insert(id.to_owned(), Arc::new(slot));
        Ok(())
    }

    /// Removes all that a workspace has, its record last.
    pub(super) fn remove_all(&self, id: &str, record: Option<&Record>) -> Result<()> {
        let directory = self.directory.join(id);
        let read = record.cloned().or_else(|| Record::read(&directory).ok());
        if let Some(record) = &read {
            for generation in record.former.iter().chain([&record.current]) {
                self.remove_generation(id, &record.uid, generation)?;
            }
            self.unpin(record.spare);
        }
        let holder = self.here.get();
        for path in overlay::mounted(&holder, &directory)? {
            overlay::unmount(&holder, &path)?;
        }
        self.copy.remove(&directory)
    }

    pub(super) fn remove_generation(&self, id: &str, uid: &str, generation: &Generation) -> Result<()> {
        let (place, provider) = (self.place(id, uid, generation), self.provider(generation.provider));
        if place.root.exists() {
            provider.clear(&place)?;
            provider.remove(&place.root)?;
        }
        self.unpin(generation.pin);
        Ok(())
    }
}

//! Registry of the exports of a server: by name for MOUNT, by generation for file handles.
//!
//! An export is served as a *volume*: its directory with the table of its file handles. The *generation* of a volume is
//! a random number in all of its handles. An export without a volume for the moment is *detached*: its clients are told
//! to try again later.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use super::rules::Rules;
use super::users::Users;
use crate::error::NfsError;
use crate::volume::Volume;

/// Registry of the exports.
#[derive(Default)]
pub(crate) struct Registry {
    exports: RwLock<Exports>,
    /// Counts of running operations by export. An entry stays after the removal of its export until all operations have
    /// ended, so that a repeated removal can wait for them too.
    users: RwLock<HashMap<String, Arc<Users>>>,
}

#[derive(Default)]
struct Exports {
    /// Exports that were added, or whose names are reserved.
    by_name: BTreeMap<String, AddedExport>,
    /// Generations whose handles are not stale.
    by_generation: HashMap<u64, GenerationState>,
    /// Exports of an earlier server that were not added again yet: name and generation of the stored table. They count
    /// as detached.
    expected: HashMap<String, u64>,
}

impl Exports {
    /// Removes an expected export. The handles of its stored table become stale.
    fn remove_expected(&mut self, name: &str) {
        if let Some(generation) = self.expected.remove(name) {
            self.by_generation.remove(&generation);
        }
    }
}

/// Export that was added, or whose name is reserved.
struct AddedExport {
    rules: Arc<Rules>,
    /// Counts of running operations.
    users: Arc<Users>,
    /// `None` while the export is detached.
    volume: Option<Arc<Volume>>,
    /// Generation of the volume that was taken from the export, until another volume takes its place.
    detached: Option<u64>,
}

/// State of the volume with a generation.
enum GenerationState {
    /// The volume is served.
    Volume { volume: Arc<Volume>, users: Arc<Users> },
    /// The volume was taken from its export, or its export is expected to be added again.
    Detached,
}

/// Result of a lookup in the registry.
pub(crate) enum Found {
    /// The export is served.
    Volume(VolumeInUse),
    /// The export has no volume for the moment, or an earlier server had it and it was not added again yet.
    Detached,
    /// There is no such export.
    Nothing,
}

/// Volume that an operation uses. [`Registry::wait_unused`] waits until it is dropped.
pub(crate) struct VolumeInUse {
    /// `None` only in `drop`.
    volume: Option<Arc<Volume>>,
    users: Arc<Users>,
    generation: u64,
}

impl VolumeInUse {
    fn new(volume: &Arc<Volume>, users: &Arc<Users>) -> Self {
        let generation = volume.generation();
        users.enter(generation);
        Self { volume: Some(Arc::clone(volume)), users: Arc::clone(users), generation }
    }
}

impl Deref for VolumeInUse {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        self.volume.as_ref().expect("it is taken only by `drop`")
    }
}

impl Drop for VolumeInUse {
    fn drop(&mut self) {
        // First the volume, because the last reference closes its descriptors; then the operation counts as ended.
        drop(self.volume.take());
        self.users.leave(self.generation);
    }
}

impl Registry {
    /// Adds an export of an earlier server as expected: it counts as detached until it is added or removed.
    pub(super) fn expect(&self, name: &str, generation: u64) {
        let mut exports = self.exports.write();
        exports.expected.insert(name.to_owned(), generation);
        exports.by_generation.insert(generation, GenerationState::Detached);
    }

    /// Makes the handles of an expected export stale. Returns false, and does nothing, if the export was added.
    pub(super) fn cancel_expected(&self, name: &str) -> bool {
        let mut exports = self.exports.write();
        if exports.by_name.contains_key(name) {
            return false;
        }
        exports.remove_expected(name);
        true
    }

    /// Frees a reserved name after its directory could not be opened. If the export was expected, it still is.
    pub(super) fn cancel_reserved(&self, name: &str) {
        let mut exports = self.exports.write();
        if exports.by_name.get(name).is_some_and(|added| added.volume.is_none()) {
            exports.by_name.remove(name);
        }
    }

    /// Reserves a name. Fails if an export has it. The export is detached until [`publish`](Self::publish).
    pub(crate) fn reserve(&self, rules: &Arc<Rules>) -> Result<(), NfsError> {
        let name = rules.name.clone();
        let mut exports = self.exports.write();
        if exports.by_name.contains_key(&name) {
            return Err(NfsError::ExportExists { name });
        }
        let mut users = self.users.write();
        let users = Arc::clone(users.entry(name.clone()).or_default());
        let added = AddedExport { rules: Arc::clone(rules), users, volume: None, detached: None };
        exports.by_name.insert(name, added);
        Ok(())
    }

    /// Begins to serve a volume for the export with this name. Does nothing if the export was removed in the meantime.
    pub(crate) fn publish(&self, name: &str, volume: Arc<Volume>) {
        let mut exports = self.exports.write();
        if exports.by_name.contains_key(name) {
            exports.remove_expected(name);
        }
        let Exports { by_name, by_generation, .. } = &mut *exports;
        let Some(added) = by_name.get_mut(name) else { return };
        if let Some(generation) = added.detached.take() {
            by_generation.remove(&generation);
        }
        let users = Arc::clone(&added.users);
        by_generation
            .insert(volume.generation(), GenerationState::Volume { volume: Arc::clone(&volume), users });
        added.volume = Some(volume);
    }

    /// Takes the volume from an export, which is detached then, and returns the rules of the export.
    pub(super) fn detach(&self, name: &str) -> Result<Arc<Rules>, NfsError> {
        let mut exports = self.exports.write();
        let Exports { by_name, by_generation, .. } = &mut *exports;
        let Some(added) = by_name.get_mut(name) else {
            return Err(NfsError::NoSuchExport { name: name.to_owned() });
        };
        if let Some(volume) = added.volume.take() {
            by_generation.insert(volume.generation(), GenerationState::Detached);
            added.detached = Some(volume.generation());
        }
        Ok(Arc::clone(&added.rules))
    }

    /// Removes an export, or an expected export. Returns the rules of the export; `None` if it was not added.
    pub(super) fn remove(&self, name: &str) -> Option<Arc<Rules>> {
        let mut exports = self.exports.write();
        exports.remove_expected(name);
        let added = exports.by_name.remove(name)?;
        let generation = added.volume.as_ref().map(|volume| volume.generation()).or(added.detached);
        generation.and_then(|generation| exports.by_generation.remove(&generation));
        Some(added.rules)
    }

    /// Waits until no operation uses a former volume of an export: one that was taken from the export, or that of a
    /// removed export. Returns false after the timeout.
    pub(super) fn wait_unused(&self, name: &str, max_wait: Duration) -> bool {
        let users = self.users.read().get(name).map(Arc::clone);
        let Some(users) = users else { return true };
        let current = {
            let exports = self.exports.read();
            let added = exports.by_name.get(name);
            added.and_then(|it| it.volume.as_ref()).map(|volume| volume.generation())
        };
        if !users.wait_unused(current, max_wait) {
            return false;
        }
        let exports = self.exports.read();
        if !exports.by_name.contains_key(name) {
            self.users.write().remove(name);
        }
        true
    }

    /// Returns the rules of an export.
    pub(crate) fn rules(&self, name: &str) -> Option<Arc<Rules>> {
        let exports = self.exports.read();
        exports.by_name.get(name).map(|added| Arc::clone(&added.rules))
    }

    /// Returns the rules of all exports, ordered by name.
    pub(crate) fn all(&self) -> Vec<Arc<Rules>> {
        let exports = self.exports.read();
        exports.by_name.values().map(|added| Arc::clone(&added.rules)).collect()
    }

    /// Returns all volumes that are served. They count as in use until they are dropped.
    pub(super) fn volumes(&self) -> Vec<VolumeInUse> {
        let exports = self.exports.read();
        let in_use = |it: &AddedExport| it.volume.as_ref().map(|volume| VolumeInUse::new(volume, &it.users));
        exports.by_name.values().filter_map(in_use).collect()
    }

    /// Returns true if handles of a generation are not stale.
    pub(crate) fn has_generation(&self, generation: u64) -> bool {
        let exports = self.exports.read();
        exports.by_generation.contains_key(&generation)
    }

    /// Finds an export by its name.
    pub(crate) fn by_name(&self, name: &str) -> Found {
        let exports = self.exports.read();
        match exports.by_name.get(name) {
            Some(AddedExport { volume: Some(volume), users, .. }) => {
                Found::Volume(VolumeInUse::new(volume, users))
            }
            Some(_) => Found::Detached,
            None if exports.expected.contains_key(name) => Found::Detached,
            None => Found::Nothing,
        }
    }

    /// Finds a volume by the generation in a file handle.
    pub(crate) fn by_generation(&self, generation: u64) -> Found {
        let exports = self.exports.read();
        match exports.by_generation.get(&generation) {
            Some(GenerationState::Volume { volume, users }) => Found::Volume(VolumeInUse::new(volume, users)),
            Some(GenerationState::Detached) => Found::Detached,
            None => Found::Nothing,
        }
    }
}

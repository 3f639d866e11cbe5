//! Registry of the exports: by name for MOUNT, by generation for file handles.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::rules::Rules;
use super::users::Users;
use crate::error::NfsError;
use crate::volume::Volume;

/// Registry of the exports.
#[derive(Default)]
pub(crate) struct Registry {
    tables: RwLock<Tables>,
    /// Operations of each export. They outlive the export, so that its removal can be waited for again.
    users: RwLock<HashMap<String, Arc<Users>>>,
}

#[derive(Default)]
struct Tables {
    by_name: BTreeMap<String, Published>,
    by_generation: HashMap<u64, Served>,
    /// Generations of the stored tables whose exports were not added since the start of the server, by name. Each is
    /// detached.
    expected: HashMap<String, u64>,
}

impl Tables {
    /// Makes the generation of a stored table stale, if its export was not added.
    fn remove_expected(&mut self, name: &str) {
        if let Some(generation) = self.expected.remove(name) {
            self.by_generation.remove(&generation);
        }
    }
}

struct Published {
    rules: Arc<Rules>,
    users: Arc<Users>,
    volume: Option<Arc<Volume>>,
    /// Generation that was detached and has no successor.
    detached: Option<u64>,
}

enum Served {
    Volume { volume: Arc<Volume>, users: Arc<Users> },
    Detached,
}

/// Result of a look into the registry.
pub(crate) enum Found {
    /// The export is served.
    Volume(InUse),
    /// The export has no directory for the moment, or is expected to be added: a server before this one had it.
    Detached,
    /// There is no such export, or not any more.
    Nothing,
}

/// Volume that an operation uses. As long as one exists, its export is not drained.
pub(crate) struct InUse {
    /// `None` only while it is dropped.
    volume: Option<Arc<Volume>>,
    users: Arc<Users>,
    generation: u64,
}

impl InUse {
    fn new(volume: &Arc<Volume>, users: &Arc<Users>) -> Self {
        let generation = volume.generation();
        users.enter(generation);
        Self { volume: Some(Arc::clone(volume)), users: Arc::clone(users), generation }
    }
}

impl Deref for InUse {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        self.volume.as_ref().expect("it is taken only by `drop`")
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // The descriptors are closed before the operation counts as ended.
        drop(self.volume.take());
        self.users.leave(self.generation);
    }
}

impl Registry {
    /// Expects an export that a server before this one had: it is detached until it is added or removed.
    pub(super) fn expect(&self, name: &str, generation: u64) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        tables.expected.insert(name.to_owned(), generation);
        tables.by_generation.insert(generation, Served::Detached);
    }

    /// Makes the handles of an expected export stale. Returns false if the export was added, which stays.
    pub(super) fn cancel_expected(&self, name: &str) -> bool {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        if tables.by_name.contains_key(name) {
            return false;
        }
        tables.remove_expected(name);
        true
    }

    /// Gives up a reserved name whose export cannot be served. An expected export is still expected.
    pub(super) fn cancel_reserved(&self, name: &str) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        if tables.by_name.get(name).is_some_and(|published| published.volume.is_none()) {
            tables.by_name.remove(name);
        }
    }

    /// Reserves a name. The export is detached until [`publish`](Self::publish).
    pub(crate) fn reserve(&self, rules: &Arc<Rules>) -> Result<(), NfsError> {
        let name = rules.name.clone();
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        if tables.by_name.contains_key(&name) {
            return Err(NfsError::ExportExists { name });
        }
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        let users = Arc::clone(users.entry(name.clone()).or_default());
        let published = Published { rules: Arc::clone(rules), users, volume: None, detached: None };
        tables.by_name.insert(name, published);
        Ok(())
    }

    /// Serves a volume. An export that was removed in the meantime stays removed.
    pub(crate) fn publish(&self, name: &str, volume: Arc<Volume>) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        if tables.by_name.contains_key(name) {
            tables.remove_expected(name);
        }
        let Tables { by_name, by_generation, .. } = &mut *tables;
        let Some(published) = by_name.get_mut(name) else { return };
        if let Some(generation) = published.detached.take() {
            by_generation.remove(&generation);
        }
        let users = Arc::clone(&published.users);
        by_generation.insert(volume.generation(), Served::Volume { volume: Arc::clone(&volume), users });
        published.volume = Some(volume);
    }

    /// Takes the volume from an export, and returns its rules.
    pub(super) fn detach(&self, name: &str) -> Result<Arc<Rules>, NfsError> {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let Tables { by_name, by_generation, .. } = &mut *tables;
        let Some(published) = by_name.get_mut(name) else {
            return Err(NfsError::NoSuchExport { name: name.to_owned() });
        };
        if let Some(volume) = published.volume.take() {
            by_generation.insert(volume.generation(), Served::Detached);
            published.detached = Some(volume.generation());
        }
        Ok(Arc::clone(&published.rules))
    }

    /// Removes an export, also one that is only expected. `None` if none was added.
    pub(super) fn remove(&self, name: &str) -> Option<Arc<Rules>> {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        tables.remove_expected(name);
        let published = tables.by_name.remove(name)?;
        let generation = published.volume.as_ref().map(|volume| volume.generation()).or(published.detached);
        generation.and_then(|generation| tables.by_generation.remove(&generation));
        Some(published.rules)
    }

    /// Waits until no operation uses a volume that was detached or removed. Returns false after the timeout.
    pub(super) fn wait_unused(&self, name: &str, max_wait: Duration) -> bool {
        let users = self.users.read().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone);
        let Some(users) = users else { return true };
        let current = {
            let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
            let published = tables.by_name.get(name);
            published.and_then(|it| it.volume.as_ref()).map(|volume| volume.generation())
        };
        if !users.wait_unused(current, max_wait) {
            return false;
        }
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        if !tables.by_name.contains_key(name) {
            self.users.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        }
        true
    }

    /// Returns the rules of an export.
    pub(crate) fn rules(&self, name: &str) -> Option<Arc<Rules>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.by_name.get(name).map(|published| Arc::clone(&published.rules))
    }

    /// Returns the rules of all exports, ordered by name.
    pub(crate) fn all(&self) -> Vec<Arc<Rules>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.by_name.values().map(|published| Arc::clone(&published.rules)).collect()
    }

    /// Returns all volumes that are served.
    pub(super) fn volumes(&self) -> Vec<InUse> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let in_use = |it: &Published| it.volume.as_ref().map(|volume| InUse::new(volume, &it.users));
        tables.by_name.values().filter_map(in_use).collect()
    }

    /// Returns true if handles of a generation are not stale.
    pub(crate) fn has_generation(&self, generation: u64) -> bool {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.by_generation.contains_key(&generation)
    }

    /// Finds an export by its name.
    pub(crate) fn by_name(&self, name: &str) -> Found {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        match tables.by_name.get(name) {
            Some(Published { volume: Some(volume), users, .. }) => Found::Volume(InUse::new(volume, users)),
            Some(_) => Found::Detached,
            None if tables.expected.contains_key(name) => Found::Detached,
            None => Found::Nothing,
        }
    }

    /// Finds an export by the generation in a file handle.
    pub(crate) fn by_generation(&self, generation: u64) -> Found {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        match tables.by_generation.get(&generation) {
            Some(Served::Volume { volume, users }) => Found::Volume(InUse::new(volume, users)),
            Some(Served::Detached) => Found::Detached,
            None => Found::Nothing,
        }
    }
}

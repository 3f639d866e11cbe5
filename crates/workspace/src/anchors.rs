//! Anchors: heads that many workspaces follow (`workspace_host::anchor`).
//!
//! ```text
//! NAME/record    head that the anchor shows, and layers of all heads that processes may use
//! NAME/anchor/   the mounts, in the namespaces of the holder
//! ```
//!
//! A detached head exists as long as a process uses it, and needs its layers so long. An inotify watch on its root
//! tells when the kernel has ended it. A head without a watch, because the server was started again since, is kept
//! until the last follower leaves the anchor. An anchor is removed with its last follower.

mod head_watches;
mod record;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use workspace_host::{anchor, overlay};
use workspace_state::{Snapshot, Store};

use crate::base::Base;
use crate::current_holder::CurrentHolder;
use crate::error::{Context as _, Result, WorkspaceError};
use crate::follower::NewFollower;
use crate::layers::{LayerSync, Layers, StackGuard, StackKey};
use head_watches::{HeadWatches, WatchId};
use record::AnchorRecord;
pub use record::ShownHead;

/// Maximum number of heads of an anchor whose layers are kept. With more, the head is not replaced.
const HEADS_MAX: usize = 1_000;

/// All anchors of a directory.
#[derive(Debug)]
pub(crate) struct Anchors {
    directory: PathBuf,
    holder: CurrentHolder,
    layers: Layers,
    watches: HeadWatches,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
}

#[derive(Debug, Default)]
struct Slot {
    /// `None` while nothing follows it. Locked during operations on it, which may write layers.
    anchor: Mutex<Option<Anchor>>,
    /// Readable without waiting for operations.
    shown: Mutex<Option<ShownHead>>,
}

#[derive(Debug, Default)]
struct Anchor {
    /// Ids of the workspaces that follow it.
    followers: HashSet<String>,
    /// Tree and times of the head that it shows; `None` if nothing is known to be mounted.
    key: Option<StackKey>,
    shown: Option<ShownHead>,
    /// Heads that processes may use; the last one is mounted.
    heads: Vec<Head>,
}

/// Head whose layers are kept.
#[derive(Debug)]
struct Head {
    stack: StackGuard,
    /// Watch that tells its end; `None` if it is kept as long as the anchor.
    watch: Option<WatchId>,
}

impl Anchors {
    pub(crate) fn new(directory: PathBuf, holder: &CurrentHolder, layers: &Layers) -> Self {
        let (holder, layers) = (holder.clone(), layers.clone());
        Self { directory, holder, layers, watches: HeadWatches::new(), slots: Mutex::default() }
    }

    /// Returns the directory of an anchor.
    pub(crate) fn directory_of(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the head that an anchor shows; `None` if there is no such anchor.
    pub(crate) fn shown(&self, name: &str) -> Option<ShownHead> {
        let slot = lock(&self.slots).get(name).cloned()?;
        *lock(&slot.shown)
    }

    /// Adds a follower. Mounts the base as the head if nothing is mounted, or an earlier head.
    pub(crate) fn join(&self, new: &NewFollower<'_>, id: &str, base: &Base) -> Result<()> {
        let slot = self.slot(new.name);
        let mut locked = lock(&slot.anchor);
        let mut anchor = locked.take().unwrap_or_default();
        let joined = self.mount_first(new, &mut anchor, base);
        if joined.is_ok() {
            anchor.followers.insert(id.to_owned());
        }
        let is_used = !anchor.followers.is_empty();
        *lock(&slot.shown) = anchor.shown;
        *locked = Some(anchor);
        if !is_used {
            drop(locked);
            self.leave(new.name, id)?;
        }
        joined
    }

    /// Mounts the head that an anchor shows, or else the base, unless a head is mounted. Replaces a head that is
    /// earlier than the base.
    fn mount_first(&self, new: &NewFollower<'_>, anchor: &mut Anchor, base: &Base) -> Result<()> {
        let directory = self.directory_of(new.name);
        fs::create_dir_all(&directory).context("create", &directory)?;
        if anchor.heads.is_empty() {
            let snapshot = match anchor.shown {
                // After a reboot its layers are gone.
                Some(shown) => base.part.find(&base.store, shown.snapshot).ok(),
                None => None,
            };
            let sequence =
                anchor.shown.filter(|_| snapshot.is_some()).map_or(new.sequence, |shown| shown.sequence);
            let snapshot = snapshot.or_else(|| base.snapshot.clone());
            let snapshot = snapshot.ok_or_else(|| unusable(new.name, "it has no snapshot to show"))?;
            let stack = self.layers.find_or_write(&base.store, &snapshot, LayerSync::Unsynced)?;
            anchor.heads.push(Head { stack, watch: None });
            anchor.key = Some(StackKey::of(&snapshot));
            anchor.shown = Some(ShownHead { snapshot: snapshot.id, sequence });
            anchor.record().write(&directory)?;
        }
        let Some(head) = anchor.heads.last_mut() else { return Ok(()) };
        let lower = self.layers.for_read_only(&head.stack.paths())?;
        if anchor::prepare(&self.holder.get(), &directory, &lower)? {
            // With followers, the former mount of this head ended with its namespace holder, and they still use it.
            head.watch = anchor.followers.is_empty().then(|| self.watch(&directory)).flatten();
        }
        // A new follower sees at least the head that its creator knows.
        match &base.snapshot {
            Some(snapshot) if anchor.shown.is_some_and(|shown| shown.sequence < new.sequence) => {
                self.replace_head(new.name, anchor, &base.store, snapshot, new.sequence).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Watches the mounted head of an anchor.
    fn watch(&self, directory: &Path) -> Option<WatchId> {
        let root = overlay::open_root(&self.holder.get(), &anchor::head_path(directory)).ok()?;
        self.watches.add(&root)
    }

    /// Replaces the head of an anchor for all its followers. Returns false if nothing differs, or nothing follows.
    pub(crate) fn switch(
        &self,
        name: &str,
        store: &Store,
        snapshot: &Snapshot,
        sequence: i64,
    ) -> Result<bool> {
        let slot = self.slot(name);
        let mut locked = lock(&slot.anchor);
        let Some(anchor) = locked.as_mut() else { return Ok(false) };
        let switched = self.replace_head(name, anchor, store, snapshot, sequence);
        *lock(&slot.shown) = anchor.shown;
        switched
    }

    /// Replaces the head of an anchor that is mounted. Returns false if nothing differs.
    fn replace_head(
        &self,
        name: &str,
        anchor: &mut Anchor,
        store: &Store,
        snapshot: &Snapshot,
        sequence: i64,
    ) -> Result<bool> {
        self.release_ended(anchor);
        let key = StackKey::of(snapshot);
        if anchor.key == Some(key) {
            return Ok(false);
        }
        if anchor.heads.len() >= HEADS_MAX {
            return Err(unusable(name, "processes use too many of its former heads"));
        }
        let stack = self.layers.find_or_write(store, snapshot, LayerSync::Unsynced)?;
        let directory = self.directory_of(name);
        let lower = self.layers.for_read_only(&stack.paths())?;
        let is_new = anchor.push_head(stack);
        // The layers of both heads are recorded before the new one can be used.
        anchor.record().write(&directory)?;
        // Not known until it has succeeded.
        anchor.key = None;
        anchor::switch(&self.holder.get(), &directory, &lower)?;
        anchor.key = Some(key);
        anchor.shown = Some(ShownHead { snapshot: snapshot.id, sequence });
        let watch = self.watch(&directory);
        if let Some(head) = anchor.heads.last_mut() {
            head.watch = watch.filter(|_| is_new);
        }
        self.release_ended(anchor);
        anchor.record().write(&directory)?;
        Ok(true)
    }

    /// Releases the layers of heads that have ended.
    fn release_ended(&self, anchor: &mut Anchor) {
        self.watches.read();
        let last = anchor.heads.len().saturating_sub(1);
        let mut number = 0;
        anchor.heads.retain(|head| {
            let is_mounted = number == last;
            number += 1;
            is_mounted || !head.watch.is_some_and(|watch| self.watches.has_ended(watch))
        });
    }

    /// Releases the layers of heads that have ended, of all anchors that are not being changed.
    pub(crate) fn release_all_ended(&self) {
        let slots: Vec<(String, Arc<Slot>)> =
            lock(&self.slots).iter().map(|(name, slot)| (name.clone(), Arc::clone(slot))).collect();
        for (name, slot) in slots {
            let Ok(mut locked) = slot.anchor.try_lock() else { continue };
            let Some(anchor) = locked.as_mut() else { continue };
            let before = anchor.heads.len();
            self.release_ended(anchor);
            if anchor.heads.len() < before
                && let Err(error) = anchor.record().write(&self.directory_of(&name))
            {
                // They are kept longer after a restart.
                tracing::warn!(anchor = name, %error, "failed to record that former heads have ended");
            }
        }
    }

    /// Returns the number of heads of an anchor whose layers are kept.
    pub(crate) fn head_count(&self, name: &str) -> usize {
        let slot = lock(&self.slots).get(name).cloned();
        slot.and_then(|slot| lock(&slot.anchor).as_ref().map(|anchor| anchor.heads.len())).unwrap_or_default()
    }

    /// Removes a follower, and the anchor with its last follower. The caller has ended the processes of the follower.
    pub(crate) fn leave(&self, name: &str, id: &str) -> Result<()> {
        let slot = self.slot(name);
        let mut locked = lock(&slot.anchor);
        let is_unused = locked.as_mut().is_none_or(|anchor| {
            anchor.followers.remove(id);
            anchor.followers.is_empty()
        });
        if is_unused {
            self.remove_mounts(name)?;
            *lock(&slot.shown) = None;
            *locked = None;
        }
        drop(locked);
        drop(slot);
        let mut slots = lock(&self.slots);
        // Another thread that has the slot may add a follower.
        if slots.get(name).is_some_and(|slot| Arc::strong_count(slot) == 1 && lock(&slot.anchor).is_none()) {
            slots.remove(name);
        }
        Ok(())
    }

    /// Unmounts an anchor and removes its directory.
    fn remove_mounts(&self, name: &str) -> Result<()> {
        let (holder, directory) = (self.holder.get(), self.directory_of(name));
        if directory.exists() {
            anchor::remove(&holder, &directory)?;
            overlay::remove_tree(&holder, &directory)?;
        }
        Ok(())
    }

    /// Adds a follower that an earlier process created. The head stays as it is mounted.
    pub(crate) fn load(&self, name: &str, id: &str, store: &Store) -> Result<()> {
        let slot = self.slot(name);
        let mut locked = lock(&slot.anchor);
        if locked.is_none() {
            let record = AnchorRecord::read(&self.directory_of(name))?;
            let heads = record.heads.iter().filter_map(|layers| self.layers.reacquire(layers));
            let heads: Vec<Head> = heads.map(|stack| Head { stack, watch: None }).collect();
            let shown = match record.shown {
                Some(shown) => store.find_snapshot(&shown.snapshot)?.map(|_| shown),
                None => None,
            };
            *lock(&slot.shown) = shown;
            // After an interrupted switch either head may be mounted, so the key is not known.
            *locked = Some(Anchor { followers: HashSet::new(), key: None, shown, heads });
        }
        if let Some(anchor) = locked.as_mut() {
            anchor.followers.insert(id.to_owned());
        }
        Ok(())
    }

    /// Removes anchors without followers, which a killed process has left. Failures are only logged.
    pub(crate) fn remove_unused(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if lock(&self.slots).contains_key(&name) {
                continue;
            }
            if let Err(error) = self.remove_mounts(&name) {
                tracing::warn!(anchor = name, %error, "failed to remove an unused anchor");
            }
        }
    }

    fn slot(&self, name: &str) -> Arc<Slot> {
        Arc::clone(lock(&self.slots).entry(name.to_owned()).or_default())
    }
}

impl Anchor {
    fn record(&self) -> AnchorRecord {
        let heads = self.heads.iter().map(|head| head.stack.layers.clone()).collect();
        AnchorRecord { shown: self.shown, heads }
    }

    /// Adds the head that is about to be mounted. Returns false if the last attempt to mount it failed, or its outcome
    /// is not known: two mounts may have these layers, so the end of one of them is not enough to release the layers.
    fn push_head(&mut self, stack: StackGuard) -> bool {
        let is_new = self.heads.last().is_none_or(|last| last.stack.layers != stack.layers);
        if !is_new {
            self.heads.pop();
        }
        self.heads.push(Head { stack, watch: None });
        is_new
    }
}

fn unusable(name: &str, reason: &str) -> WorkspaceError {
    WorkspaceError::Unusable { id: name.to_owned(), reason: reason.to_owned() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

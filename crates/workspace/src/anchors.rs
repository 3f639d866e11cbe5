//! Anchors: heads that many workspaces follow (`workspace_host::anchor`).
//!
//! ```text
//! NAME/record    head that the anchor shows, and layers of all heads that processes may use
//! NAME/anchor/   the mounts, in the namespaces of the namespace holder
//! ```
//!
//! Each head is a read-only overlay. A former head is detached, but its overlay exists, and needs its layers, as long
//! as a process uses it. When the kernel destroys the overlay, an inotify watch on its root reports `IN_UNMOUNT`: the
//! head has *ended*. Watches do not survive a restart of the server. The layers of a head without a watch are kept
//! until the last follower leaves the anchor. An anchor is removed with its last follower. If processes of a former
//! follower go on, because it changed to another anchor, the layers of the removed anchor are kept until its heads have
//! ended.

mod head_watches;
mod record;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use workspace_host::{anchor, overlay};
use workspace_state::{Snapshot, Store};

use crate::anchor_to_follow::AnchorToFollow;
use crate::base::Base;
use crate::current_holder::CurrentHolder;
use crate::error::{Context as _, Result, WorkspaceError};
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
    /// Heads of removed anchors that processes of former followers may still use. Their layers are kept until the heads
    /// have ended, or, without a watch, until the server restarts.
    detached_heads: Mutex<Vec<Head>>,
}

/// Processes of a workspace that leaves an anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowerProcesses {
    /// None can use a head of the anchor any more.
    Ended,
    /// They go on, and may still use heads of the anchor: they have working directories or open files there.
    Running,
}

#[derive(Debug, Default)]
struct Slot {
    /// `None` while no workspace follows the anchor. Locked during operations on the anchor, which may write layers.
    anchor: Mutex<Option<Anchor>>,
    /// Copy of [`Anchor::shown`], which can be read without waiting for operations on the anchor.
    shown: Mutex<Option<ShownHead>>,
}

#[derive(Debug, Default)]
struct Anchor {
    /// Ids of the workspaces that follow the anchor.
    followers: HashSet<String>,
    /// Tree and times of the head that is mounted. `None` if that is not known: after a restart, or a failure.
    key: Option<StackKey>,
    /// Head that followers see; during a switch the former one.
    shown: Option<ShownHead>,
    /// Heads that processes may use, oldest first. The last one is mounted, or the last attempt to mount a head was for
    /// it.
    heads: Vec<Head>,
    /// Set if a workspace has left the anchor whose processes went on.
    is_used_by_former_followers: bool,
}

/// Head whose layers are kept.
#[derive(Debug)]
struct Head {
    stack: StackGuard,
    /// Watch that reports when the head has ended; `None` if its layers are kept as long as the anchor.
    watch: Option<WatchId>,
}

impl Anchors {
    pub(crate) fn new(directory: PathBuf, holder: &CurrentHolder, layers: &Layers) -> Self {
        let (holder, layers) = (holder.clone(), layers.clone());
        Self {
            directory,
            holder,
            layers,
            watches: HeadWatches::new(),
            slots: Mutex::default(),
            detached_heads: Mutex::default(),
        }
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

    /// Adds the workspace `id` as a follower. The anchor then shows the base, or the head that it showed before if that
    /// has a higher sequence.
    pub(crate) fn join(&self, followed: &AnchorToFollow<'_>, id: &str, base: &Base) -> Result<()> {
        let slot = self.slot(followed.name);
        let mut locked = lock(&slot.anchor);
        let mut anchor = locked.take().unwrap_or_default();
        let joined = self.mount_head(followed, &mut anchor, base);
        if joined.is_ok() {
            anchor.followers.insert(id.to_owned());
        }
        let is_used = !anchor.followers.is_empty();
        *lock(&slot.shown) = anchor.shown;
        *locked = Some(anchor);
        if !is_used {
            drop(locked);
            self.leave(followed.name, id, FollowerProcesses::Ended)?;
        }
        joined
    }

    /// Mounts the head that an anchor shows, or else the base, unless that is done already. Replaces a head that is
    /// earlier than the base.
    fn mount_head(&self, followed: &AnchorToFollow<'_>, anchor: &mut Anchor, base: &Base) -> Result<()> {
        let directory = self.directory_of(followed.name);
        fs::create_dir_all(&directory).context("create", &directory)?;
        // Key of the head that this call selects; `None` if one is selected already.
        let mut new_key = None;
        if anchor.heads.is_empty() {
            let shown = match anchor.shown {
                // The record of the anchor was loaded, but the layers of its head are gone, because of a reboot.
                Some(shown) => base.part.find_snapshot(&base.store, shown.snapshot).ok(),
                None => None,
            };
            let sequence =
                anchor.shown.filter(|_| shown.is_some()).map_or(followed.sequence, |shown| shown.sequence);
            let snapshot = shown.or_else(|| base.snapshot.clone());
            let snapshot = snapshot.ok_or_else(|| unusable(followed.name, "it has no snapshot to show"))?;
            let stack = self.layers.find_or_write(&base.store, &snapshot, LayerSync::Unsynced)?;
            anchor.heads.push(Head { stack, watch: None });
            anchor.key = None;
            anchor.shown = Some(ShownHead { snapshot: snapshot.id, sequence });
            anchor.record().write(&directory)?;
            new_key = Some(StackKey::of(&snapshot));
        }
        let Some(head) = anchor.heads.last_mut() else { return Ok(()) };
        let lower = self.layers.lower_without_upper(&head.stack.paths())?;
        let holder = self.holder.get();
        let has_mounted = anchor::mount_unless_mounted(&holder, &directory, &lower)?;
        if has_mounted {
            // If the anchor already has followers, their mounts are clones of an earlier mount of these layers, which
            // was lost with its namespace holder. The end of the new mount would not be the end of theirs, so the
            // layers are kept as long as the anchor.
            head.watch = anchor.followers.is_empty().then(|| self.watch(&directory)).flatten();
        } else if new_key.is_some() {
            // Another head is mounted: a killed process left it, and it could not be removed at the start. The new head
            // is not watched, because the former one may have the same layers.
            anchor::switch(&holder, &directory, &lower)?;
        }
        anchor.key = new_key.or(anchor.key);
        // A new follower sees at least the head that its creator knows.
        match &base.snapshot {
            Some(snapshot) if anchor.shown.is_some_and(|shown| shown.sequence < followed.sequence) => {
                self.replace_head(followed.name, anchor, &base.store, snapshot, followed.sequence).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Watches the mounted head of an anchor; `None` if that is not possible.
    fn watch(&self, directory: &Path) -> Option<WatchId> {
        let root = overlay::open_root(&self.holder.get(), &anchor::head_path(directory)).ok()?;
        self.watches.add(&root)
    }

    /// Replaces the head of an anchor for all its followers. Returns false if its files and times are shown already, or
    /// no workspace follows the anchor.
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

    /// Replaces the head of an anchor that is mounted. Returns false if its files and times are shown already.
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
        let lower = self.layers.lower_without_upper(&stack.paths())?;
        let is_new = anchor.push_head(stack);
        // The layers of both heads are recorded before the new one can be used.
        anchor.record().write(&directory)?;
        // The mounted head is not known until the switch has succeeded.
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

    /// Releases the layers of former heads that have ended.
    fn release_ended(&self, anchor: &mut Anchor) {
        self.watches.read();
        let last = anchor.heads.len().saturating_sub(1);
        let mut number = 0;
        anchor.heads.retain(|head| {
            let is_last = number == last;
            number += 1;
            is_last || !head.watch.is_some_and(|watch| self.watches.has_ended(watch))
        });
    }

    /// Releases the layers of former heads that have ended, of all anchors. Skips those with an operation in progress.
    pub(crate) fn release_all_ended(&self) {
        self.watches.read();
        let has_ended = |head: &Head| head.watch.is_some_and(|watch| self.watches.has_ended(watch));
        lock(&self.detached_heads).retain(|head| !has_ended(head));
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
                // After a restart, the layers of these heads would be kept as long as the anchor.
                tracing::warn!(anchor = name, %error, "failed to record that former heads have ended");
            }
        }
    }

    /// Returns the number of heads of an anchor whose layers are kept, with the present one; 0 without followers.
    pub(crate) fn head_count(&self, name: &str) -> usize {
        let slot = lock(&self.slots).get(name).cloned();
        slot.and_then(|slot| lock(&slot.anchor).as_ref().map(|anchor| anchor.heads.len())).unwrap_or_default()
    }

    /// Removes a follower, and the anchor with its last follower. Layers that processes may still use are kept until the
    /// heads have ended.
    pub(crate) fn leave(&self, name: &str, id: &str, processes: FollowerProcesses) -> Result<()> {
        let slot = self.slot(name);
        let mut locked = lock(&slot.anchor);
        let is_unused = locked.as_mut().is_none_or(|anchor| {
            anchor.followers.remove(id);
            anchor.is_used_by_former_followers |= processes == FollowerProcesses::Running;
            anchor.followers.is_empty()
        });
        if is_unused {
            self.remove_mounts(name)?;
            *lock(&slot.shown) = None;
            if let Some(anchor) = locked.take().filter(|anchor| anchor.is_used_by_former_followers) {
                lock(&self.detached_heads).extend(anchor.heads);
            }
        }
        drop(locked);
        drop(slot);
        let mut slots = lock(&self.slots);
        // Another thread that holds the slot may be about to add a follower.
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

    /// Adds a follower that an earlier process created, without changing mounts.
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
            *locked = Some(Anchor { shown, heads, ..Anchor::default() });
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

    /// Adds the head that is about to be mounted. Returns false if the last head has the same layers, because the last
    /// attempt to mount it failed, or its outcome is not known: two overlays may have these layers, so the end of one
    /// of them is not enough to release the layers.
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
    WorkspaceError::UnusableAnchor { name: name.to_owned(), reason: reason.to_owned() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

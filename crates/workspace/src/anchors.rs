//! Anchors: mounts that show the head of a project (the snapshot of its present files) to many workspaces at once.
//!
//! A *follower* is a read-only workspace whose content is the head that an anchor shows. When the head changes, the
//! anchor is *switched*: the mounts of all followers show the new head. `workspace_host::anchor` has the system calls.
//!
//! ```text
//! NAME/record    head that the anchor shows, and layers of all heads that processes may use
//! NAME/anchor/   the mounts, in the namespaces of the namespace holder
//! ```
//!
//! Each head is a read-only overlay over a *stack* of layers (read-only directories that together show one tree). A
//! switch detaches the former head, but its overlay exists, and needs its layers, as long as a process uses it. When
//! the kernel destroys the overlay, an inotify watch on its root directory reports `IN_UNMOUNT`: the head has *ended*,
//! and its layers are released. Watches do not survive a restart of the server. The layers of a head without a watch
//! are kept until the last follower leaves the anchor.
//!
//! An anchor is removed with its last follower. If that workspace left to follow another anchor, its processes go on,
//! and may still use heads of the removed anchor. The layers of these heads are then kept until the heads have ended.

mod head_watches;
mod record;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
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

/// Maximum number of heads of an anchor whose layers are kept. When it is reached, a switch fails.
const HEADS_MAX: usize = 1_000;

/// Set of anchors in one directory.
#[derive(Debug)]
pub(crate) struct Anchors {
    /// Directory with a subdirectory per anchor.
    directory: PathBuf,
    holder: CurrentHolder,
    layers: Layers,
    /// Watches that tell when a head has no users any more.
    watches: HeadWatches,
    /// Slots by name of the anchor.
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    /// Heads of removed anchors that processes of former followers may still use. The layers of a head are kept until
    /// the head has ended, or, if it has no watch, until the server restarts.
    detached_heads: Mutex<Vec<Head>>,
}

/// State of the processes of a workspace that leaves an anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowerProcesses {
    /// All ended: no process can use a head of the anchor.
    Ended,
    /// Still running. They may use heads of the anchor, because they have working directories or open files there.
    Running,
}

/// Anchor with its lock, also while the anchor is created or removed.
#[derive(Debug, Default)]
struct Slot {
    /// `None` while no workspace follows the anchor. Locked during operations on the anchor, which may write layers.
    anchor: Mutex<Option<Anchor>>,
    /// Copy of [`Anchor::shown`], which can be read without waiting for operations on the anchor.
    shown: Mutex<Option<ShownHead>>,
}

/// State of an anchor in memory.
#[derive(Debug, Default)]
struct Anchor {
    /// Ids of the workspaces that follow the anchor.
    followers: HashSet<String>,
    /// Tree and times of the mounted head. `None` if it is not known which head is mounted: after a restart or failure.
    key: Option<StackKey>,
    /// Head that followers see; during a switch the former head.
    shown: Option<ShownHead>,
    /// Heads that processes may use, oldest first. The last head is mounted, or was to be mounted by the last attempt.
    heads: Vec<Head>,
    /// Set if a workspace has left the anchor while its processes were running.
    is_used_by_former_followers: bool,
}

/// Head whose layers are kept.
#[derive(Debug)]
struct Head {
    /// Guard that keeps the layers.
    stack: StackGuard,
    /// Watch that reports when the head has ended; `None` if its layers are kept as long as the anchor.
    watch: Option<WatchId>,
}

impl Anchors {
    /// Returns the anchors of a directory, which need not exist yet.
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
        let slot = self.slots.lock().get(name).cloned()?;
        *slot.shown.lock()
    }

    /// Adds the workspace `id` as a follower of an anchor, which is created if it does not exist. The anchor then shows
    /// the snapshot of `base`, or still its former head, if the sequence of that head (number of changes of the
    /// project's head so far) is at least that of `followed`.
    pub(crate) fn join(&self, followed: &AnchorToFollow<'_>, id: &str, base: &Base) -> Result<()> {
        let slot = self.slot(followed.name);
        let mut locked = slot.anchor.lock();
        let mut anchor = locked.take().unwrap_or_default();
        let joined = self.mount_head(followed, &mut anchor, base);
        if joined.is_ok() {
            anchor.followers.insert(id.to_owned());
        }
        let is_used = !anchor.followers.is_empty();
        *slot.shown.lock() = anchor.shown;
        *locked = Some(anchor);
        if !is_used {
            drop(locked);
            self.leave(followed.name, id, FollowerProcesses::Ended)?;
        }
        joined
    }

    /// Mounts the head of an anchor unless it is mounted. An anchor without a head gets the snapshot of `base` as its
    /// head. A head with a lower sequence than `followed` is replaced by that snapshot.
    fn mount_head(&self, followed: &AnchorToFollow<'_>, anchor: &mut Anchor, base: &Base) -> Result<()> {
        let directory = self.directory_of(followed.name);
        fs::create_dir_all(&directory).context("create", &directory)?;
        // Key of the head that this call adds to `anchor.heads`; `None` if the anchor has heads already.
        let mut new_key = None;
        if anchor.heads.is_empty() {
            let shown = match anchor.shown {
                // After a reboot, the anchor has its record but not the layers of its head.
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
            // was lost with its namespace holder. A watch of the new mount would not report the end of that earlier
            // mount, so the head gets no watch, and its layers are kept as long as the anchor.
            head.watch = anchor.followers.is_empty().then(|| self.watch(&directory)).flatten();
        } else if new_key.is_some() {
            // Another head is mounted: a killed server left it, and it could not be removed at the start of this
            // server. The new head gets no watch, because the former head may have the same layers.
            anchor::switch(&holder, &directory, &lower)?;
        }
        anchor.key = new_key.or(anchor.key);
        // A new follower sees at least the head that its creator has passed.
        match &base.snapshot {
            Some(snapshot) if anchor.shown.is_some_and(|shown| shown.sequence < followed.sequence) => {
                self.replace_head(followed.name, anchor, &base.store, snapshot, followed.sequence).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Watches the mounted head of an anchor. Returns `None` if that is not possible.
    fn watch(&self, directory: &Path) -> Option<WatchId> {
        let root = overlay::open_root(&self.holder.get(), &anchor::head_path(directory)).ok()?;
        self.watches.add(&root)
    }

    /// Replaces the head of an anchor by a snapshot, for all its followers. Returns false if the anchor already shows
    /// the files and times of the snapshot, or no workspace follows the anchor.
    pub(crate) fn switch(
        &self,
        name: &str,
        store: &Store,
        snapshot: &Snapshot,
        sequence: i64,
    ) -> Result<bool> {
        let slot = self.slot(name);
        let mut locked = slot.anchor.lock();
        let Some(anchor) = locked.as_mut() else { return Ok(false) };
        let switched = self.replace_head(name, anchor, store, snapshot, sequence);
        *slot.shown.lock() = anchor.shown;
        switched
    }

    /// Replaces the mounted head of an anchor by a snapshot. Returns false if the anchor already shows the files and
    /// times of the snapshot; then only the sequence of the head is raised.
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
            // Otherwise a new follower with an earlier head could bring the anchor back to that head.
            self.raise_sequence(name, anchor, ShownHead { snapshot: snapshot.id, sequence })?;
            return Ok(false);
        }
        if anchor.heads.len() >= HEADS_MAX {
            return Err(unusable(name, "processes use too many of its former heads"));
        }
        let stack = self.layers.find_or_write(store, snapshot, LayerSync::Unsynced)?;
        let directory = self.directory_of(name);
        let lower = self.layers.lower_without_upper(&stack.paths())?;
        let is_new = anchor.push_head(stack);
        // The record on disk has the layers of both heads before a process can use the new head.
        anchor.record().write(&directory)?;
        // If the switch fails, it is not known which head is mounted.
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

    /// Records that the head which an anchor shows has the files of a later head, too.
    fn raise_sequence(&self, name: &str, anchor: &mut Anchor, later: ShownHead) -> Result<()> {
        let former = anchor.shown;
        if former.is_some_and(|former| former.sequence >= later.sequence) {
            return Ok(());
        }
        anchor.shown = Some(later);
        let written = anchor.record().write(&self.directory_of(name));
        if written.is_err() {
            anchor.shown = former;
        }
        written
    }

    /// Releases the layers of the former heads of an anchor that have ended.
    fn release_ended(&self, anchor: &mut Anchor) {
        self.watches.read();
        let last = anchor.heads.len().saturating_sub(1);
        let mut index = 0;
        anchor.heads.retain(|head| {
            let is_last = index == last;
            index += 1;
            is_last || !head.watch.is_some_and(|watch| self.watches.has_ended(watch))
        });
    }

    /// Releases the layers of former heads that have ended, of all anchors. Skips anchors with an operation in
    /// progress.
    pub(crate) fn release_all_ended(&self) {
        self.watches.read();
        let has_ended = |head: &Head| head.watch.is_some_and(|watch| self.watches.has_ended(watch));
        self.detached_heads.lock().retain(|head| !has_ended(head));
        let slots: Vec<(String, Arc<Slot>)> =
            self.slots.lock().iter().map(|(name, slot)| (name.clone(), Arc::clone(slot))).collect();
        for (name, slot) in slots {
            let Some(mut locked) = slot.anchor.try_lock() else { continue };
            let Some(anchor) = locked.as_mut() else { continue };
            let before = anchor.heads.len();
            self.release_ended(anchor);
            if anchor.heads.len() < before
                && let Err(error) = anchor.record().write(&self.directory_of(&name))
            {
                // Not fatal: after a restart, the layers of these heads are kept as long as the anchor.
                tracing::warn!(anchor = name, %error, "failed to record that former heads have ended");
            }
        }
    }

    /// Returns the number of heads of an anchor whose layers are kept, including the present head; 0 without followers.
    pub(crate) fn head_count(&self, name: &str) -> usize {
        let slot = self.slots.lock().get(name).cloned();
        slot.and_then(|slot| slot.anchor.lock().as_ref().map(|anchor| anchor.heads.len())).unwrap_or_default()
    }

    /// Removes a follower, and also the anchor if it was the last follower. Layers of heads that processes may still
    /// use are kept until the heads have ended.
    pub(crate) fn leave(&self, name: &str, id: &str, processes: FollowerProcesses) -> Result<()> {
        let slot = self.slot(name);
        let mut locked = slot.anchor.lock();
        let is_unused = locked.as_mut().is_none_or(|anchor| {
            anchor.followers.remove(id);
            anchor.is_used_by_former_followers |= processes == FollowerProcesses::Running;
            anchor.followers.is_empty()
        });
        if is_unused {
            self.remove_mounts(name)?;
            *slot.shown.lock() = None;
            if let Some(anchor) = locked.take().filter(|anchor| anchor.is_used_by_former_followers) {
                self.detached_heads.lock().extend(anchor.heads);
            }
        }
        drop(locked);
        drop(slot);
        let mut slots = self.slots.lock();
        // Another thread that has a reference to the slot may be about to add a follower.
        if slots.get(name).is_some_and(|slot| Arc::strong_count(slot) == 1 && slot.anchor.lock().is_none()) {
            slots.remove(name);
        }
        Ok(())
    }

    /// Unmounts an anchor and removes its directory, if it exists.
    fn remove_mounts(&self, name: &str) -> Result<()> {
        let (holder, directory) = (self.holder.get(), self.directory_of(name));
        if directory.exists() {
            anchor::remove(&holder, &directory)?;
            overlay::remove_tree(&holder, &directory)?;
        }
        Ok(())
    }

    /// Adds a follower that an earlier server process created. Loads the anchor from its record if necessary. Does not
    /// change mounts.
    pub(crate) fn load(&self, name: &str, id: &str, store: &Store) -> Result<()> {
        let slot = self.slot(name);
        let mut locked = slot.anchor.lock();
        if locked.is_none() {
            let record = AnchorRecord::read(&self.directory_of(name))?;
            let heads = record.heads.iter().filter_map(|layers| self.layers.reacquire(layers));
            let heads: Vec<Head> = heads.map(|stack| Head { stack, watch: None }).collect();
            let shown = match record.shown {
                Some(shown) => store.find_snapshot(&shown.snapshot)?.map(|_| shown),
                None => None,
            };
            *slot.shown.lock() = shown;
            // If a switch was interrupted, either head may be mounted, so `key` stays `None`.
            *locked = Some(Anchor { shown, heads, ..Anchor::default() });
        }
        if let Some(anchor) = locked.as_mut() {
            anchor.followers.insert(id.to_owned());
        }
        Ok(())
    }

    /// Removes anchors without followers, which a killed server has left. Failures are only logged.
    pub(crate) fn remove_unused(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if self.slots.lock().contains_key(&name) {
                continue;
            }
            if let Err(error) = self.remove_mounts(&name) {
                tracing::warn!(anchor = name, %error, "failed to remove an unused anchor");
            }
        }
    }

    /// Returns the slot of an anchor, which is created if it does not exist.
    fn slot(&self, name: &str) -> Arc<Slot> {
        Arc::clone(self.slots.lock().entry(name.to_owned()).or_default())
    }
}

impl Anchor {
    /// Returns the state to be written to disk.
    fn record(&self) -> AnchorRecord {
        let heads = self.heads.iter().map(|head| head.stack.layers.clone()).collect();
        AnchorRecord { shown: self.shown, heads }
    }

    /// Adds the head that is about to be mounted. Returns false if the last head had the same layers, because the last
    /// attempt to mount it failed or has an unknown outcome. Two overlays may then have these layers, so the layers
    /// must not be released when one overlay has ended.
    fn push_head(&mut self, stack: StackGuard) -> bool {
        let is_new = self.heads.last().is_none_or(|last| last.stack.layers != stack.layers);
        if !is_new {
            self.heads.pop();
        }
        self.heads.push(Head { stack, watch: None });
        is_new
    }
}

/// Returns the error for an anchor that cannot be used.
fn unusable(name: &str, reason: &str) -> WorkspaceError {
    WorkspaceError::UnusableAnchor { name: name.to_owned(), reason: reason.to_owned() }
}

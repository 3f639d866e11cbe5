//! Layers: the read-only lower directories of overlays, and the stacks that they form. The provider `clone` reflinks
//! files from them.
//!
//! ```text
//! lock                 locked by the process that uses the directory
//! layers/NAME/tree     content of a layer
//! layers/NAME/layer    record of the layer; written last: without it the layer does not exist
//! stacks/KEY           the layers of a tree, lowest first; KEY is a hash of the tree and its times
//! empty/               the lower directory of workspaces that were created empty
//! lowest/              an empty directory below all layers of a read-only workspace
//! ```
//!
//! A *stack* consists of the layers that together show one tree. Its lowest layer is a *base*: a whole tree. Above it
//! are *deltas*, each with the changes since the layer below. A tree gets a delta if it differs little from another
//! tree that has a stack, else a base. A stack of the maximum length is replaced by its base and one delta. Layers are
//! immutable and shared by all workspaces with the same tree and *times* (a second tree with the modification times and
//! hard links). They are removed when no workspace uses them and their tree was not requested for a while, or when disk
//! space is short (`disk_space.rs`).
//!
//! Unsynced layers may be torn after a machine crash, so they are valid only until the next boot. Every layer can be
//! recreated from the snapshots in the store.

mod disk_space;
mod queue;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use workspace_host::NamespaceHolder;
use workspace_host::disk_usage::measure;
use workspace_host::overlay;
use workspace_state::{
    Cancel, CheckoutOptions, NoProgress, NodeId, Snapshot, SnapshotId, Store, StoreError, Tree, TreeId,
    WriteLimit, materialize, platform,
};

use crate::delta::Delta;
use crate::error::{Context as _, Result, WorkspaceError};
use crate::part::SnapshotPart;
use queue::Queue;

/// Number of layers of a full stack. A tree derived from a full stack gets its base and one delta.
const STACK_MAX: usize = 24;
/// Maximum number of files, directories, symlinks and whiteouts in a delta. A tree with more differences gets a base.
const DELTA_ENTRIES_MAX: usize = 20_000;
/// Maximum number of ancestors of a snapshot that are searched for one with a stack.
const ANCESTORS_MAX: usize = 128;
/// Maximum number of stacks that a root filesystem of a sandbox is compared with if no ancestor of its snapshot has a
/// stack.
const RELATIVES_MAX: usize = 4;
/// Time for which an unused stack with deltas is kept after its tree was last requested.
const DELTA_RETENTION: Duration = Duration::from_secs(15 * 60);
/// Time for which an unused stack without deltas is kept after its tree was last requested.
const BASE_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Time between two cancellation checks while waiting for a layer.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time to wait until another process releases the lock file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Key of a stack: a tree and its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct StackKey {
    tree: TreeId,
    /// Root of the tree of times (modification times and hard links).
    times: NodeId,
}

impl StackKey {
    /// Returns the key of a snapshot's tree.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        Self { tree: snapshot.tree, times: snapshot.times }
    }

    /// Returns a hash of the key, in hexadecimal, for names of files.
    fn name(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.tree.as_bytes()).update(self.times.as_bytes());
        hasher.finalize().to_hex()[..32].to_owned()
    }

    /// Opens the tree for reading.
    fn open(&self, store: &Store) -> Result<Tree> {
        Ok(Tree::open(store, self.tree, Some(self.times))?)
    }
}

/// Durability of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerSync {
    /// Synced to disk, and so valid after a reboot.
    Synced,
    /// Not synced: written faster, and valid only until the next boot.
    Unsynced,
}

/// Record of a layer.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Layer {
    /// Tree that the layers below show; `None` for a base.
    #[serde(rename = "over")]
    below: Option<StackKey>,
    /// Tree that this layer and the layers below show together.
    #[serde(rename = "shows")]
    visible: StackKey,
    /// Boot id of the machine when the layer was written, with a newline.
    boot: String,
    /// Set if the layer is synced to disk, and so valid after a reboot.
    synced: bool,
    /// Approximate size in bytes; zero in records of earlier versions.
    #[serde(default)]
    bytes: u64,
}

impl Layer {
    /// Creates a record. [`Layers::write_layer`] sets the boot id and the size.
    fn new(below: Option<StackKey>, visible: StackKey, sync: LayerSync) -> Self {
        Self { below, visible, boot: String::new(), synced: sync == LayerSync::Synced, bytes: 0 }
    }
}

/// Record of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stack {
    /// Tree that the layers show.
    key: StackKey,
    /// Names of the layers, lowest first.
    layers: Vec<String>,
}

/// Guard of a stack in use, or of some of its layers. The layers are kept as long as this value lives.
#[derive(Debug)]
pub(crate) struct StackGuard {
    inner: Arc<Inner>,
    /// Names of the layers, lowest first.
    pub(crate) layers: Vec<String>,
}

impl Drop for StackGuard {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        for name in &self.layers {
            if let Some(count) = state.use_counts.get_mut(name) {
                *count = count.saturating_sub(1);
            }
        }
        state.use_counts.retain(|_, count| *count > 0);
    }
}

impl StackGuard {
    /// Returns the directories of the layers, uppermost first.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.layers.iter().rev().map(|name| self.inner.tree_of(name)).collect()
    }
}

/// Selection of unused layers to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnusedLayers {
    /// Layers whose tree was not requested during their retention time.
    Expired,
    /// All unused layers.
    All,
}

/// Result of removing unused layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LayerGcResult {
    /// Number of layers removed.
    pub layers: u64,
    /// Number of stacks removed.
    pub stacks: u64,
    /// Size of the removed layers in bytes.
    pub bytes: u64,
}

/// Handle of all layers in one directory. Clones are handles of the same layers.
#[derive(Debug, Clone)]
pub(crate) struct Layers(Arc<Inner>);

/// Data that all clones of a [`Layers`] handle share.
#[derive(Debug)]
struct Inner {
    /// Directory of the layers.
    root: PathBuf,
    store: Store,
    /// Part of snapshots that the layers hold: the files of workspaces, or root filesystems of sandboxes.
    part: SnapshotPart,
    /// Options with which the files of layers are written.
    options: CheckoutOptions,
    /// Number of bytes that sandboxes must leave free. Layers leave twice as many.
    reserve: u64,
    /// Boot id of the machine, with a newline.
    boot: String,
    state: Mutex<LayerState>,
    /// Notified when a layer is no longer in `busy`, and when the queue changes.
    changed: Condvar,
    /// Lock that is held while layers are removed to free disk space.
    freeing: Mutex<()>,
    /// Cancellation flag of background writes.
    stop: Cancel,
    /// Lock file, locked by `flock` until [`Layers::close`].
    lock_file: File,
}

/// State of the layers that the mutex protects.
#[derive(Debug, Default)]
struct LayerState {
    /// Stacks with the time at which each was last requested.
    stacks: HashMap<StackKey, (Stack, Instant)>,
    /// Records of complete layers by name.
    layers: HashMap<String, Layer>,
    /// Number of [`StackGuard`]s of each layer. Unused layers have no entry.
    use_counts: HashMap<String, usize>,
    /// Names of layers that are being written or removed.
    busy: HashSet<String>,
    /// Trees to be written in the background.
    queue: Queue,
}

impl Layers {
    /// Opens the layers in the directory `root`, for exclusive use by this process. `part` is the part of snapshots
    /// that they hold, `reserve` the number of bytes that sandboxes must leave free.
    pub(crate) fn open(
        root: &Path,
        (store, part): (Store, SnapshotPart),
        options: CheckoutOptions,
        reserve: u64,
    ) -> Result<Self> {
        for directory in [root.to_owned(), root.join("layers"), root.join("stacks")] {
            fs::create_dir_all(&directory).context("create", &directory)?;
        }
        let path = root.join("lock");
        let lock_file = File::create(&path).context("create", &path)?;
        // A killed process may have left a forked child that has not called `exec` yet. The child still holds the lock
        // for a moment.
        let deadline = Instant::now() + LOCK_TIMEOUT;
        while flock(&lock_file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() > deadline {
                return Err(WorkspaceError::Busy { path: root.to_owned() });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Records of existing layers have the boot id with a newline.
        let boot = platform::boot_id().map(|id| id + "\n").unwrap_or_default();
        let inner = Inner {
            root: root.to_owned(),
            store,
            part,
            options,
            reserve,
            boot,
            state: Mutex::default(),
            changed: Condvar::new(),
            freeing: Mutex::default(),
            stop: Cancel::new(),
            lock_file,
        };
        inner.load()?;
        Ok(Self(Arc::new(inner)))
    }

    /// Releases the directory for another process. Do not use this handle afterwards.
    pub(crate) fn close(&self) -> Result<()> {
        self.stop_writing();
        flock(&self.0.lock_file, FlockOperation::Unlock).context("unlock", &self.0.root)
    }

    /// Returns the stack of a snapshot's tree; `None` if it does not exist.
    pub(crate) fn find(&self, snapshot: &Snapshot) -> Option<StackGuard> {
        self.find_key(&StackKey::of(snapshot))
    }

    /// Returns the stack with a key, and records the request; `None` if it does not exist.
    fn find_key(&self, key: &StackKey) -> Option<StackGuard> {
        let mut state = self.0.lock();
        let (stack, last_request) = state.stacks.get_mut(key)?;
        *last_request = Instant::now();
        let layers = stack.layers.clone();
        Some(self.acquire(&mut state, layers))
    }

    /// Returns the stack of a snapshot's tree. If it does not exist, writes a delta over the stack of an ancestor of
    /// the snapshot, or, for a root filesystem, over a recently requested stack. Returns `None` if there is no such
    /// stack, or the delta is too large. Stops when the [`Cancel`] flag of the handle `store` is set.
    pub(crate) fn find_or_derive(&self, store: &Store, snapshot: &Snapshot) -> Result<Option<StackGuard>> {
        if let Some(stack) = self.find(snapshot) {
            return Ok(Some(stack));
        }
        if let Some(ancestor) = self.nearest_ancestor(snapshot)? {
            return self.derive(store, snapshot, StackKey::of(&ancestor));
        }
        for relative in self.possible_relatives() {
            match self.derive(store, snapshot, relative) {
                // No snapshot has the tree of this stack any more, and garbage collection has deleted its objects.
                Err(error) if error.is_missing_content() => {}
                Ok(None) => {}
                derived => return derived,
            }
        }
        Ok(None)
    }

    /// Returns keys of stacks whose trees may be similar to that of a snapshot without an ancestor, the last requested
    /// first. Does so only for root filesystems: the root filesystem in the first snapshot of a sandbox is a changed
    /// copy of a template, but the template is not a parent of the snapshot. Returns nothing for files of workspaces.
    fn possible_relatives(&self) -> Vec<StackKey> {
        if self.0.part != SnapshotPart::Root {
            return Vec::new();
        }
        let state = self.0.lock();
        let mut stacks: Vec<(Instant, StackKey)> =
            state.stacks.iter().map(|(key, (_, last_request))| (*last_request, *key)).collect();
        stacks.sort_by_key(|(last_request, _)| Reverse(*last_request));
        stacks.into_iter().take(RELATIVES_MAX).map(|(_, key)| key).collect()
    }

    /// Writes a delta from the tree `relative` to a snapshot's tree, and records the stack of the snapshot's tree: the
    /// stack of `relative` with the delta on top. Returns `None` if `relative` has no stack, or the delta is too large.
    fn derive(&self, store: &Store, snapshot: &Snapshot, relative: StackKey) -> Result<Option<StackGuard>> {
        let Some(below) = self.find_key(&relative) else { return Ok(None) };
        // Key and layers of the stack below the new delta.
        let lower = match below.layers.first() {
            // The new delta is over the base, and replaces all deltas of the full stack.
            Some(base) if below.layers.len() >= STACK_MAX => {
                let visible = self.0.lock().layers.get(base).map(|layer| layer.visible);
                visible.map(|key| (key, vec![base.clone()]))
            }
            _ => Some((relative, below.layers.clone())),
        };
        let Some((from, mut layers)) = lower else { return Ok(None) };
        let to = StackKey::of(snapshot);
        let name = format!("delta-{}-{}", from.name(), to.name());
        let layer = Layer::new(Some(from), to, LayerSync::Unsynced);
        let acquired = self.create_layer(&name, &layer, store.cancel_flag(), |directory, options| {
            let (old, new) = (from.open(store)?, to.open(store)?);
            match Delta::between(&old, &new, DELTA_ENTRIES_MAX)? {
                Some(delta) => delta.write(directory, options).map(|()| true),
                None => Ok(false),
            }
        })?;
        // `_acquired` keeps the new layer from being removed until the guard of the whole stack exists.
        let Some(_acquired) = acquired else { return Ok(None) };
        layers.push(name);
        Ok(Some(self.add_stack(Stack { key: to, layers })?))
    }

    /// Returns the stack of a snapshot's tree. If it does not exist, writes the tree: as a delta if possible (see
    /// [`Layers::find_or_derive`]), else as a base. A delta is not synced, whatever `sync` is.
    pub(crate) fn find_or_write(
        &self,
        store: &Store,
        snapshot: &Snapshot,
        sync: LayerSync,
    ) -> Result<StackGuard> {
        if let Some(stack) = self.find_or_derive(store, snapshot)? {
            return Ok(stack);
        }
        let key = StackKey::of(snapshot);
        let name = format!("base-{}", key.name());
        let layer = Layer::new(None, key, sync);
        let _acquired = self.create_layer(&name, &layer, store.cancel_flag(), |directory, options| {
            materialize(&key.open(store)?, directory, options, &NoProgress)?;
            Ok(true)
        })?;
        self.add_stack(Stack { key, layers: vec![name] })
    }

    /// Returns the path of an empty directory, the lower directory of workspaces that were created empty.
    pub(crate) fn empty(&self) -> Result<PathBuf> {
        let path = self.0.root.join("empty");
        fs::create_dir_all(&path).context("create", &path)?;
        Ok(path)
    }

    /// Returns the lower directories of an overlay without an upper directory: `paths` (uppermost first), and an empty
    /// directory below them, because the kernel requires at least two lower directories.
    pub(crate) fn lower_without_upper(&self, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let lowest = self.0.root.join("lowest");
        fs::create_dir_all(&lowest).context("create", &lowest)?;
        Ok(paths.iter().cloned().chain([lowest]).collect())
    }

    /// Returns the nearest ancestor of a snapshot that has a stack; `None` if the next [`ANCESTORS_MAX`] have none.
    fn nearest_ancestor(&self, snapshot: &Snapshot) -> Result<Option<Snapshot>> {
        let mut seen: HashSet<SnapshotId> = HashSet::new();
        let mut level: Vec<SnapshotId> = snapshot.parents.clone();
        while seen.len() < ANCESTORS_MAX && !level.is_empty() {
            let mut next_level = Vec::new();
            for id in level {
                if !seen.insert(id) {
                    continue;
                }
                let Some(ancestor) = self.0.store.find_snapshot(&id)? else { continue };
                next_level.extend(&ancestor.parents);
                let Some(ancestor) = self.0.part.select(ancestor) else { continue };
                if self.0.lock().stacks.contains_key(&StackKey::of(&ancestor)) {
                    return Ok(Some(ancestor));
                }
            }
            level = next_level;
        }
        Ok(None)
    }

    /// Creates a layer with `write` unless it exists, and returns a guard of it. Waits while another thread writes or
    /// removes the layer; fails when `cancel` is set meanwhile. Returns `None` if `write` returned false: then there is
    /// no layer.
    fn create_layer(
        &self,
        name: &str,
        layer: &Layer,
        cancel: &Cancel,
        write: impl FnOnce(&Path, &CheckoutOptions) -> Result<bool>,
    ) -> Result<Option<StackGuard>> {
        let mut state = self.0.lock();
        while state.busy.contains(name) {
            cancel.check().map_err(StoreError::from)?;
            self.0.changed.wait_for(&mut state, CANCEL_POLL_INTERVAL);
        }
        if !state.layers.contains_key(name) {
            state.busy.insert(name.to_owned());
            drop(state);
            let written = self.write_layer(name, layer, write);
            state = self.0.lock();
            state.busy.remove(name);
            self.0.changed.notify_all();
            let Some(layer) = written? else { return Ok(None) };
            state.layers.insert(name.to_owned(), layer);
        }
        Ok(Some(self.acquire(&mut state, vec![name.to_owned()])))
    }

    /// Records a stack on disk and in memory, and returns its guard.
    fn add_stack(&self, stack: Stack) -> Result<StackGuard> {
        let path = self.0.root.join("stacks").join(stack.key.name());
        let text = serde_json::to_vec(&stack).map_err(io::Error::from).context("write", &path)?;
        replace(&path, &text)?;
        let mut state = self.0.lock();
        let guard = self.acquire(&mut state, stack.layers.clone());
        state.stacks.insert(stack.key, (stack, Instant::now()));
        Ok(guard)
    }

    /// Counts a use of each layer, until the returned guard is dropped.
    fn acquire(&self, state: &mut LayerState, layers: Vec<String>) -> StackGuard {
        for name in &layers {
            *state.use_counts.entry(name.clone()).or_default() += 1;
        }
        StackGuard { inner: Arc::clone(&self.0), layers }
    }

    /// Returns a guard of the layers of an existing workspace; `None` if some do not exist.
    pub(crate) fn reacquire(&self, layers: &[String]) -> Option<StackGuard> {
        let mut state = self.0.lock();
        let all = layers.iter().all(|name| state.layers.contains_key(name));
        all.then(|| self.acquire(&mut state, layers.to_vec()))
    }

    /// Removes unused layers and stacks: all, or those whose retention time has passed at `now` (`selection`). After a
    /// cancellation or failure, a later call removes the rest.
    pub(crate) fn collect(
        &self,
        now: Instant,
        selection: UnusedLayers,
        cancel: &Cancel,
    ) -> Result<LayerGcResult> {
        let (stacks, layers) = {
            let mut state = self.0.lock();
            let stacks = state.unused_stacks(now, selection);
            let layers = state.take_stacks_and_unneeded_layers(&stacks);
            (stacks, layers)
        };
        let result = self.0.remove_unused(&stacks, layers, cancel)?;
        // Unused layers that have not expired may take a fraction of the file system at most.
        self.0.enforce_unused_limit();
        Ok(result)
    }

    /// Writes the tree of a layer with `write`, and then its record. If a write fails or `write` returns false, removes
    /// the files of the layer again. Returns `None` if `write` returned false.
    fn write_layer(
        &self,
        name: &str,
        layer: &Layer,
        write: impl FnOnce(&Path, &CheckoutOptions) -> Result<bool>,
    ) -> Result<Option<Layer>> {
        // Removes what an interrupted write left.
        self.0.remove_layer(name)?;
        self.0.enforce_unused_limit();
        let (directory, tree) = (self.0.root.join("layers").join(name), self.0.tree_of(name));
        self.0.ensure_free_space().context("write", &tree)?;
        fs::create_dir_all(&tree).context("create", &tree)?;
        // Counts the bytes of the layer, and fails writes when free space is low.
        let counter = self.write_counter();
        let limit: Arc<dyn WriteLimit> = Arc::clone(&counter) as _;
        let options = CheckoutOptions { sync: layer.synced, limit: Some(limit), ..self.0.options.clone() };
        let written = write(&tree, &options).and_then(|is_written| {
            let layer = Layer { boot: self.0.boot.clone(), bytes: counter.bytes(), ..layer.clone() };
            if is_written {
                write_record(&directory, &layer)?;
            }
            Ok(is_written.then_some(layer))
        });
        if !matches!(written, Ok(Some(_))) {
            self.0.remove_layer(name)?;
        }
        written
    }
}

/// Layers to be removed, which were taken out of [`LayerState`]. Drop puts the remaining layers back, so that threads
/// that wait for them can use them.
struct LayersToRemove<'a> {
    inner: &'a Inner,
    layers: Vec<(String, Layer)>,
}

impl Drop for LayersToRemove<'_> {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        for (name, layer) in self.layers.drain(..) {
            state.busy.remove(&name);
            state.layers.insert(name, layer);
        }
        self.inner.changed.notify_all();
    }
}

impl Inner {
    /// Locks the state in memory.
    fn lock(&self) -> MutexGuard<'_, LayerState> {
        self.state.lock()
    }

    /// Returns the path of the content of a layer.
    fn tree_of(&self, name: &str) -> PathBuf {
        self.root.join("layers").join(name).join("tree")
    }

    /// Loads all complete and valid layers and stacks, and removes the others from disk.
    fn load(&self) -> Result<()> {
        let mut state = self.lock();
        for name in names(&self.root.join("layers"))? {
            let path = self.root.join("layers").join(&name).join("layer");
            let layer = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Layer>(&text).ok());
            match layer.filter(|layer| layer.synced || layer.boot == self.boot) {
                Some(mut layer) => {
                    if layer.bytes == 0 {
                        layer.bytes = measure(&NamespaceHolder::None, &self.tree_of(&name)).bytes;
                    }
                    state.layers.insert(name, layer);
                }
                None => self.remove_layer(&name)?,
            }
        }
        for name in names(&self.root.join("stacks"))? {
            let path = self.root.join("stacks").join(&name);
            let stack = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Stack>(&text).ok());
            // A file whose name is not its key is a temporary file of a process that was killed in `replace`.
            let is_complete = |stack: &Stack| {
                stack.key.name() == name && stack.layers.iter().all(|name| state.layers.contains_key(name))
            };
            match stack.filter(is_complete) {
                Some(stack) => drop(state.stacks.insert(stack.key, (stack, Instant::now()))),
                None => remove_file(&path)?,
            }
        }
        Ok(())
    }

    /// Removes stacks and layers that were taken out of [`LayerState`] from disk. After a cancellation or failure, the
    /// remaining layers are put back into the state.
    fn remove_unused(
        &self,
        stacks: &[StackKey],
        layers: Vec<(String, Layer)>,
        cancel: &Cancel,
    ) -> Result<LayerGcResult> {
        let mut result = LayerGcResult::default();
        let mut to_remove = LayersToRemove { inner: self, layers };
        for key in stacks {
            remove_file(&self.root.join("stacks").join(key.name()))?;
            result.stacks += 1;
        }
        while let Some((name, layer)) = to_remove.layers.pop() {
            if let Err(cancelled) = cancel.check() {
                to_remove.layers.push((name, layer));
                return Err(StoreError::from(cancelled).into());
            }
            let removed = self.remove_layer(&name);
            self.lock().busy.remove(&name);
            self.changed.notify_all();
            removed?;
            result.bytes += layer.bytes;
            result.layers += 1;
        }
        Ok(result)
    }

    /// Removes a layer from disk, its record first: without a record, the layer does not exist.
    fn remove_layer(&self, name: &str) -> Result<()> {
        let directory = self.root.join("layers").join(name);
        remove_file(&directory.join("layer"))?;
        remove_tree(&directory).context("remove", &directory)
    }
}

impl LayerState {
    /// Returns true if a workspace uses the uppermost layer of a stack, and so the stack.
    fn is_used(&self, stack: &Stack) -> bool {
        stack.layers.last().is_some_and(|name| self.use_counts.contains_key(name))
    }

    /// Returns the keys of unused stacks: all, or those whose retention time has passed at `now`.
    fn unused_stacks(&self, now: Instant, selection: UnusedLayers) -> Vec<StackKey> {
        let is_selected = |(stack, last_request): &(Stack, Instant)| {
            let retention = if stack.layers.len() > 1 { DELTA_RETENTION } else { BASE_RETENTION };
            let is_expired = now.saturating_duration_since(*last_request) > retention;
            !self.is_used(stack) && (selection == UnusedLayers::All || is_expired)
        };
        self.stacks.iter().filter(|(_, entry)| is_selected(entry)).map(|(key, _)| *key).collect()
    }

    /// Removes stacks from the state, and all layers that no remaining stack and no workspace needs. Returns these
    /// layers, also those that belonged to none of the given stacks. The layers are marked busy until they are removed
    /// from disk, so that no thread writes them again before that.
    fn take_stacks_and_unneeded_layers(&mut self, stacks: &[StackKey]) -> Vec<(String, Layer)> {
        for key in stacks {
            self.stacks.remove(key);
        }
        let needed: HashSet<&String> = self.stacks.values().flat_map(|(stack, _)| &stack.layers).collect();
        let is_unneeded = |name: &&String| !needed.contains(name) && !self.use_counts.contains_key(*name);
        let unneeded: Vec<String> = self.layers.keys().filter(is_unneeded).cloned().collect();
        self.busy.extend(unneeded.iter().cloned());
        unneeded.into_iter().filter_map(|name| self.layers.remove(&name).map(|layer| (name, layer))).collect()
    }
}

/// Writes the record of a layer into the directory of the layer.
fn write_record(directory: &Path, layer: &Layer) -> Result<()> {
    let path = directory.join("layer");
    let text = serde_json::to_vec(layer).map_err(io::Error::from).context("write", &path)?;
    replace(&path, &text)
}

/// Removes a directory, even with inaccessible subdirectories. No other process may write to it meanwhile.
fn remove_tree(path: &Path) -> io::Result<()> {
    Ok(overlay::remove_tree(&NamespaceHolder::None, path)?)
}

/// Replaces a file atomically. If several threads replace it at once, the last content stays.
fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let new = path.with_extension(format!("new-{}", uuid::Uuid::now_v7()));
    let replaced = fs::write(&new, content)
        .context("write", &new)
        .and_then(|()| fs::rename(&new, path).context("replace", path));
    if replaced.is_err() {
        drop(fs::remove_file(&new));
    }
    replaced
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.context("remove", path),
    }
}

/// Returns the names of the entries of a directory.
fn names(directory: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(directory).context("list", directory)?;
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    entries.map(name).collect::<io::Result<_>>().context("list", directory)
}

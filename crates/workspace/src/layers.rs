//! Layers: the read-only lower directories of workspaces, and the stacks that they form.
//!
//! ```text
//! lock                 held by the process that uses the directory
//! layers/NAME/tree     content of a layer
//! layers/NAME/layer    its record; written last: without it the layer does not exist
//! stacks/KEY           the layers of a tree, lowest first; KEY is a hash of the tree and its times
//! empty/               the lower directory of workspaces without a base
//! lowest/              an empty directory below all layers of a read-only workspace
//! ```
//!
//! The lowest layer of a stack is a *base*: a whole tree. Above it are *deltas*, each with the changes since
//! the layer below. A tree that differs little from one with a stack gets a delta; any other gets a base. A
//! stack that grows long is replaced by its base and one delta. Layers are immutable and shared by all
//! workspaces with the same tree and times. They are removed when no workspace uses them and their tree was
//! not requested for a while, or when disk space is short (`disk_space.rs`).
//!
//! Unsynced layers may be torn after a machine crash, so they are valid only until the next boot. Everything
//! here can be recreated from the store.

mod disk_space;
mod queue;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

/// Maximum number of layers in a stack. The next delta replaces all deltas of a full stack.
const STACK_MAX: usize = 24;
/// Maximum number of entries of a delta. A tree with more differences gets a base instead.
const DELTA_ENTRIES_MAX: usize = 20_000;
/// Maximum number of ancestors of a snapshot that are searched for one with a stack.
const ANCESTORS_MAX: usize = 128;
/// Maximum number of stacks that a root filesystem is compared with if its snapshot has no ancestor with a stack.
const RELATIVES_MAX: usize = 4;
/// Time for which an unused stack with deltas is kept.
const DELTA_RETENTION: Duration = Duration::from_secs(15 * 60);
/// Time for which an unused base is kept.
const BASE_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Time between two cancellation checks while waiting for a layer.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time to wait for another process to release the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Key of a stack: a tree and its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct StackKey {
    tree: TreeId,
    times: NodeId,
}

impl StackKey {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        Self { tree: snapshot.tree, times: snapshot.times }
    }

    /// Returns the key as a hash, for names of files.
    fn name(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.tree.as_bytes()).update(self.times.as_bytes());
        hasher.finalize().to_hex()[..32].to_owned()
    }

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
    /// Tree of the stack below the layer; `None` for a base.
    #[serde(rename = "over")]
    below: Option<StackKey>,
    /// Tree of the stack with this layer on top.
    #[serde(rename = "shows")]
    visible: StackKey,
    /// Boot id of the machine when the layer was written.
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
    key: StackKey,
    /// Names of the layers, lowest first.
    layers: Vec<String>,
}

/// Stack in use. Its layers are kept as long as this value lives.
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
    /// Layers whose tree was not requested for their retention time.
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

/// All layers of a directory. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Layers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    store: Store,
    /// Part of snapshots that the layers hold.
    part: SnapshotPart,
    options: CheckoutOptions,
    /// Number of bytes that sandboxes must leave free. Layers leave twice as many.
    reserve: u64,
    /// Boot id of the machine.
    boot: String,
    state: Mutex<LayerState>,
    /// Notified when a layer is no longer busy, and when the queue changes.
    changed: Condvar,
    /// Held while layers are removed to free disk space.
    freeing: Mutex<()>,
    /// Stops background writes.
    stop: Cancel,
    /// Lock file, locked by `flock` until the layers are closed.
    lock: File,
}

#[derive(Debug, Default)]
struct LayerState {
    /// Stacks with the time at which each was last requested.
    stacks: HashMap<StackKey, (Stack, Instant)>,
    layers: HashMap<String, Layer>,
    /// Number of [`StackGuard`]s of each layer. Unused layers have no entry.
    use_counts: HashMap<String, usize>,
    /// Names of layers that are being written or removed.
    busy: HashSet<String>,
    /// Trees to be written in the background.
    queue: Queue,
}

impl Layers {
    /// Opens the layers in `root`, for exclusive use by this process.
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
        let lock = File::create(&path).context("create", &path)?;
        // A killed process may have left a forked child that has not called `exec` yet, and still holds the
        // lock.
        let deadline = Instant::now() + LOCK_TIMEOUT;
        while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
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
            lock,
        };
        inner.load()?;
        Ok(Self(Arc::new(inner)))
    }

    /// Releases the directory for another process. Do not use this handle afterwards.
    pub(crate) fn close(&self) -> Result<()> {
        self.stop_writing();
        flock(&self.0.lock, FlockOperation::Unlock).context("unlock", &self.0.root)
    }

    /// Returns the stack of a snapshot's tree, if it exists.
    pub(crate) fn find(&self, snapshot: &Snapshot) -> Option<StackGuard> {
        self.find_key(&StackKey::of(snapshot))
    }

    fn find_key(&self, key: &StackKey) -> Option<StackGuard> {
        let mut state = self.0.lock();
        let (stack, last_request) = state.stacks.get_mut(key)?;
        *last_request = Instant::now();
        let layers = stack.layers.clone();
        Some(self.acquire(&mut state, layers))
    }

    /// Returns the stack of a snapshot's tree. If there is none, derives it by a delta from the stack of an ancestor,
    /// or for a root filesystem from a recently requested stack; returns `None` if there is none or the delta is too
    /// large. Stops when the `Cancel` flag of the handle `store` is set.
    pub(crate) fn find_or_derive(&self, store: &Store, snapshot: &Snapshot) -> Result<Option<StackGuard>> {
        if let Some(stack) = self.find(snapshot) {
            return Ok(Some(stack));
        }
        if let Some(ancestor) = self.nearest_ancestor(snapshot)? {
            return self.derive(store, snapshot, StackKey::of(&ancestor));
        }
        for relative in self.possible_relatives() {
            match self.derive(store, snapshot, relative) {
                // No snapshot keeps the tree of the stack, and garbage collection has deleted it.
                Err(error) if error.is_missing_content() => {}
                Ok(None) => {}
                derived => return derived,
            }
        }
        Ok(None)
    }

    /// Returns keys of stacks whose trees may be similar to a tree without an ancestor, the last requested first. Only
    /// for root filesystems: the root in the first snapshot of a sandbox is a changed template, but the snapshot does
    /// not name the template as its parent. Returns nothing for files of workspaces.
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

    /// Derives the stack of a snapshot's tree from the stack with the key `relative`, by a delta. Returns `None` if
    /// that stack does not exist, or the delta is too large.
    fn derive(&self, store: &Store, snapshot: &Snapshot, relative: StackKey) -> Result<Option<StackGuard>> {
        let Some(below) = self.find_key(&relative) else { return Ok(None) };
        // Key and layers of the stack below the new delta.
        let lower = match below.layers.first() {
            // One delta over the base replaces all deltas.
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
        // Keeps the new layer until the guard of the whole stack exists.
        let Some(_acquired) = acquired else { return Ok(None) };
        layers.push(name);
        Ok(Some(self.add_stack(Stack { key: to, layers })?))
    }

    /// Returns the stack of a snapshot's tree. If there is none, writes the tree: as a delta if a related tree has a
    /// stack, else as a base.
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

    /// Returns the path of an empty layer, for a workspace without a base.
    pub(crate) fn empty(&self) -> Result<PathBuf> {
        let path = self.0.root.join("empty");
        fs::create_dir_all(&path).context("create", &path)?;
        Ok(path)
    }

    /// Returns the lower directories of an overlay without an upper one. The kernel wants at least two of them, so an
    /// empty one is added below `paths`.
    pub(crate) fn lower_without_upper(&self, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let lowest = self.0.root.join("lowest");
        fs::create_dir_all(&lowest).context("create", &lowest)?;
        Ok(paths.iter().cloned().chain([lowest]).collect())
    }

    /// Returns the nearest ancestor that has a stack.
    fn nearest_ancestor(&self, snapshot: &Snapshot) -> Result<Option<Snapshot>> {
        let mut seen: HashSet<SnapshotId> = HashSet::new();
        let mut nearest: Vec<SnapshotId> = snapshot.parents.clone();
        while seen.len() < ANCESTORS_MAX && !nearest.is_empty() {
            let mut their_parents = Vec::new();
            for id in nearest {
                if !seen.insert(id) {
                    continue;
                }
                let Some(ancestor) = self.0.store.find_snapshot(&id)? else { continue };
                their_parents.extend(&ancestor.parents);
                let Some(ancestor) = self.0.part.select(ancestor) else { continue };
                if self.0.lock().stacks.contains_key(&StackKey::of(&ancestor)) {
                    return Ok(Some(ancestor));
                }
            }
            nearest = their_parents;
        }
        Ok(None)
    }

    /// Creates a layer unless it exists, and acquires it. Waits while another thread writes or removes it,
    /// until `cancel` is set. Returns `None` if `write` returned false and wrote nothing.
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
            let waited = self.0.changed.wait_timeout(state, CANCEL_POLL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
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

    /// Records a stack, and acquires it.
    fn add_stack(&self, stack: Stack) -> Result<StackGuard> {
        let path = self.0.root.join("stacks").join(stack.key.name());
        let text = serde_json::to_vec(&stack).map_err(io::Error::from).context("write", &path)?;
        replace(&path, &text)?;
        let mut state = self.0.lock();
        let guard = self.acquire(&mut state, stack.layers.clone());
        state.stacks.insert(stack.key, (stack, Instant::now()));
        Ok(guard)
    }

    /// Counts a use of each layer, until the guard is dropped.
    fn acquire(&self, state: &mut LayerState, layers: Vec<String>) -> StackGuard {
        for name in &layers {
            *state.use_counts.entry(name.clone()).or_default() += 1;
        }
        StackGuard { inner: Arc::clone(&self.0), layers }
    }

    /// Acquires the layers of an existing workspace; `None` if some are missing.
    pub(crate) fn reacquire(&self, layers: &[String]) -> Option<StackGuard> {
        let mut state = self.0.lock();
        let all = layers.iter().all(|name| state.layers.contains_key(name));
        all.then(|| self.acquire(&mut state, layers.to_vec()))
    }

    /// Removes unused layers and stacks: all, or those whose retention time has passed at `now`. After a cancellation
    /// or failure, a later call removes the rest.
    pub(crate) fn collect(
        &self,
        now: Instant,
        which: UnusedLayers,
        cancel: &Cancel,
    ) -> Result<LayerGcResult> {
        let (stacks, layers) = {
            let mut state = self.0.lock();
            let stacks = state.unused_stacks(now, which);
            let layers = state.take_stacks_and_unneeded_layers(&stacks);
            (stacks, layers)
        };
        let result = self.0.remove_unused(&stacks, layers, cancel)?;
        self.0.enforce_unused_limit();
        Ok(result)
    }

    /// Writes the tree of a layer with `write`, and then its record. Removes the layer again if a write fails
    /// or `write` returns false. The result is `None` if `write` returned false.
    fn write_layer(
        &self,
        name: &str,
        layer: &Layer,
        write: impl FnOnce(&Path, &CheckoutOptions) -> Result<bool>,
    ) -> Result<Option<Layer>> {
        // Leftovers of an interrupted write.
        self.0.remove_layer(name)?;
        self.0.enforce_unused_limit();
        let (directory, tree) = (self.0.root.join("layers").join(name), self.0.tree_of(name));
        self.0.ensure_free_space().context("write", &tree)?;
        fs::create_dir_all(&tree).context("create", &tree)?;
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

/// Layers to be removed, which were taken out of the state. Drop puts the remaining ones back, so that threads that
/// wait for them can use them.
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
    fn lock(&self) -> MutexGuard<'_, LayerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tree_of(&self, name: &str) -> PathBuf {
        self.root.join("layers").join(name).join("tree")
    }

    /// Loads all complete layers and stacks, and removes the rest.
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
            // A file whose name is not its key was left by a process that was killed in `replace`.
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

    /// Removes stacks and layers that were taken out of the state. The rest is kept after a cancellation or
    /// failure.
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

    /// Removes a layer, its record first: without it, the layer does not exist.
    fn remove_layer(&self, name: &str) -> Result<()> {
        let directory = self.root.join("layers").join(name);
        remove_file(&directory.join("layer"))?;
        remove_tree(&directory).context("remove", &directory)
    }
}

impl LayerState {
    /// Returns true if a workspace uses a stack, that is, its uppermost layer.
    fn is_used(&self, stack: &Stack) -> bool {
        stack.layers.last().is_some_and(|name| self.use_counts.contains_key(name))
    }

    fn unused_stacks(&self, now: Instant, which: UnusedLayers) -> Vec<StackKey> {
        let is_selected = |(stack, last_request): &(Stack, Instant)| {
            let retention = if stack.layers.len() > 1 { DELTA_RETENTION } else { BASE_RETENTION };
            let is_expired = now.saturating_duration_since(*last_request) > retention;
            !self.is_used(stack) && (which == UnusedLayers::All || is_expired)
        };
        self.stacks.iter().filter(|(_, entry)| is_selected(entry)).map(|(key, _)| *key).collect()
    }

    /// Removes stacks from the state, and returns all layers that no other stack or workspace needs, also those of no
    /// given stack. The layers are marked busy until they are removed, so that no thread writes them again before that.
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

fn write_record(directory: &Path, layer: &Layer) -> Result<()> {
    let path = directory.join("layer");
    let text = serde_json::to_vec(layer).map_err(io::Error::from).context("write", &path)?;
    replace(&path, &text)
}

/// Removes a directory, even with inaccessible subdirectories. Only this process may write to it.
fn remove_tree(path: &Path) -> io::Result<()> {
    Ok(overlay::remove_tree(&NamespaceHolder::None, path)?)
}

/// Replaces a file atomically. If several threads do so at once, the last one wins.
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

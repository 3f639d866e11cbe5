//! Layers: the read-only directories that workspaces lie over, and the stacks they form.
//!
//! ```text
//! lock                 held by the process that uses the directory
//! layers/NAME/tree     what a layer holds
//! layers/NAME/layer    what that is; comes last: without it the layer is not there
//! stacks/KEY           the layers of a tree, lowest first
//! ```
//!
//! The lowest layer of a stack is a *base*: a whole tree. Above it lie *deltas*, each what changed since. A tree that
//! differs little from one that has a stack gets a delta; any other gets a base. A stack that grows long is cut short by
//! one delta over its base. Layers never change once they are there, are shared by all workspaces over the same tree
//! and times, and go when no workspace lies over them and nobody asked for their tree for a while, or room is short (`room.rs`).
//!
//! What was written and not synced may be torn after a crash of the machine: such a layer counts only until the
//! machine is started anew. Everything here can be made again from the store.

mod queue;
mod room;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use workspace_host::Holder;
use workspace_host::disk_usage::measure;
use workspace_host::{HostError, overlay};
use workspace_state::{
    Cancel, CheckoutOptions, NodeId, Quiet, Snapshot, SnapshotId, Store, StoreError, Tree, TreeId,
    WriteLimit, materialize, platform,
};

use crate::delta::Delta;
use crate::error::{Context as _, Result, WorkspaceError};
use queue::Queue;

/// A stack this long gets no further delta: the next one lies over its base.
const LONGEST: usize = 24;
/// A delta of more entries than this is a base instead.
const LARGEST_DELTA: usize = 20_000;
/// So many snapshots back a stack is looked for.
const ANCESTORS: usize = 128;
/// How long a stack of deltas is kept for nobody.
const DELTA_KEPT: Duration = Duration::from_secs(15 * 60);
/// How long a base is kept for nobody.
const BASE_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Time between two looks whether a request that waits for a layer is cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(50);
/// How long another process may take to let go.
const PATIENCE: Duration = Duration::from_secs(5);

/// A tree and its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    tree: TreeId,
    times: NodeId,
}

impl Key {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        Self { tree: snapshot.tree, times: snapshot.times }
    }

    fn name(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.tree.as_bytes()).update(self.times.as_bytes());
        hasher.finalize().to_hex()[..32].to_owned()
    }

    fn open(&self, store: &Store) -> Result<Tree> {
        Ok(Tree::open(store, self.tree, Some(self.times))?)
    }
}

/// What a layer is.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Layer {
    /// What it lies over; nothing for a base.
    over: Option<Key>,
    /// What is seen through it.
    shows: Key,
    /// In which run of the machine it was written.
    boot: String,
    /// Whether it is on disk for certain.
    synced: bool,
    /// Bytes that it takes, about; zero where an older version wrote it.
    #[serde(default)]
    bytes: u64,
}

impl Layer {
    fn new(over: Option<Key>, shows: Key, synced: bool) -> Self {
        Self { over, shows, boot: String::new(), synced, bytes: 0 }
    }
}

/// The layers of a tree, lowest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stack {
    key: Key,
    layers: Vec<String>,
}

/// A stack in use: its layers stay for as long as this lives.
#[derive(Debug)]
pub(crate) struct Held {
    inner: Arc<Inner>,
    /// Lowest first.
    pub(crate) layers: Vec<String>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        for name in &self.layers {
            if let Some(count) = state.users.get_mut(name) {
                *count = count.saturating_sub(1);
            }
        }
        state.users.retain(|_, count| *count > 0);
    }
}

impl Held {
    /// The directories of the layers, uppermost first.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.layers.iter().rev().map(|name| self.inner.tree_of(name)).collect()
    }
}

/// What a collection of layers cleared away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Layers that are gone.
    pub layers: u64,
    /// Stacks that are forgotten.
    pub stacks: u64,
    /// Bytes that the layers took.
    pub bytes: u64,
}

/// All layers of a directory. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Layers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    store: Store,
    options: CheckoutOptions,
    /// Bytes that sandboxes are to leave free.
    reserve: u64,
    boot: String,
    state: Mutex<Known>,
    done: Condvar,
    /// Held by who drops layers to make room.
    dropping: Mutex<()>,
    /// Ends what is written in the background.
    stop: Cancel,
    lock: File,
}

#[derive(Debug, Default)]
struct Known {
    stacks: HashMap<Key, (Stack, Instant)>,
    layers: HashMap<String, Layer>,
    /// How many workspaces lie over each.
    users: HashMap<String, usize>,
    /// Layers that somebody is writing or removing.
    busy: HashSet<String>,
    /// Trees that are to be written in the background.
    later: Queue,
}

impl Layers {
    /// Takes up what is in `root`, of which this process becomes the only user.
    pub(crate) fn open(root: &Path, store: Store, options: CheckoutOptions, reserve: u64) -> Result<Self> {
        for directory in [root.to_owned(), root.join("layers"), root.join("stacks")] {
            fs::create_dir_all(&directory).on("make", &directory)?;
        }
        let path = root.join("lock");
        let lock = File::create(&path).on("make", &path)?;
        // A process that is gone may have left a child which has not begun its own program yet.
        let until = Instant::now() + PATIENCE;
        while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() > until {
                return Err(WorkspaceError::Busy { path: root.to_owned() });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // With a line end, as it is noted in layers that workspaces lie over.
        let boot = platform::boot_id().map(|id| id + "\n").unwrap_or_default();
        let inner = Inner {
            root: root.to_owned(),
            store,
            options,
            reserve,
            boot,
            state: Mutex::default(),
            done: Condvar::new(),
            dropping: Mutex::default(),
            stop: Cancel::new(),
            lock,
        };
        inner.take_up()?;
        Ok(Self(Arc::new(inner)))
    }

    /// Lets another process have them. Nothing is to be made here any more.
    pub(crate) fn close(&self) -> Result<()> {
        self.stop_writing();
        flock(&self.0.lock, FlockOperation::Unlock).on("unlock", &self.0.root)
    }

    /// The stack of a snapshot's tree, if it is there.
    pub(crate) fn find(&self, snapshot: &Snapshot) -> Option<Held> {
        let mut state = self.0.lock();
        let (stack, used) = state.stacks.get_mut(&Key::of(snapshot))?;
        *used = Instant::now();
        let layers = stack.layers.clone();
        Some(self.hold(&mut state, layers))
    }

    /// The stack of a snapshot's tree, made of the stack of one of its ancestors if that takes little.
    /// The store's handle stops it when it is cancelled.
    pub(crate) fn find_or_derive(&self, store: &Store, snapshot: &Snapshot) -> Result<Option<Held>> {
        if let Some(held) = self.find(snapshot) {
            return Ok(Some(held));
        }
        let Some(ancestor) = self.ancestor(snapshot)? else { return Ok(None) };
        let Some(below) = self.find(&ancestor) else { return Ok(None) };
        let from = match below.layers.first() {
            // One delta over the base takes the place of many.
            Some(base) if below.layers.len() >= LONGEST => {
                let shows = self.0.lock().layers.get(base).map(|layer| layer.shows);
                shows.map(|key| (key, vec![base.clone()]))
            }
            _ => Some((Key::of(&ancestor), below.layers.clone())),
        };
        let Some((from, mut layers)) = from else { return Ok(None) };
        let to = Key::of(snapshot);
        let name = format!("delta-{}-{}", from.name(), to.name());
        let layer = Layer::new(Some(from), to, false);
        let made = self.make(&name, &layer, store.cancel(), |directory, options| {
            let (old, new) = (from.open(store)?, to.open(store)?);
            match Delta::between(&old, &new, LARGEST_DELTA)? {
                Some(delta) => delta.write(directory, options).map(|()| true),
                None => Ok(false),
            }
        })?;
        let Some(_made) = made else { return Ok(None) };
        layers.push(name);
        Ok(Some(self.note(Stack { key: to, layers })?))
    }

    /// The stack of a snapshot's tree, written whole if there is none.
    pub(crate) fn find_or_write(&self, store: &Store, snapshot: &Snapshot, sync: bool) -> Result<Held> {
        if let Some(held) = self.find_or_derive(store, snapshot)? {
            return Ok(held);
        }
        let key = Key::of(snapshot);
        let name = format!("base-{}", key.name());
        let layer = Layer::new(None, key, sync);
        let _made = self.make(&name, &layer, store.cancel(), |directory, options| {
            materialize(&key.open(store)?, directory, options, &Quiet)?;
            Ok(true)
        })?;
        self.note(Stack { key, layers: vec![name] })
    }

    /// An empty layer, for what is made from nothing.
    pub(crate) fn empty(&self) -> Result<PathBuf> {
        let path = self.0.root.join("empty");
        fs::create_dir_all(&path).on("make", &path)?;
        Ok(path)
    }

    /// The nearest snapshot before this one that has a stack.
    fn ancestor(&self, snapshot: &Snapshot) -> Result<Option<Snapshot>> {
        let mut seen: HashSet<SnapshotId> = HashSet::new();
        let mut open: Vec<SnapshotId> = snapshot.parents.clone();
        while seen.len() < ANCESTORS && !open.is_empty() {
            let mut next = Vec::new();
            for id in open {
                if !seen.insert(id) {
                    continue;
                }
                let Some(found) = self.0.store.find_snapshot(&id)? else { continue };
                if self.0.lock().stacks.contains_key(&Key::of(&found)) {
                    return Ok(Some(found));
                }
                next.extend(found.parents);
            }
            open = next;
        }
        Ok(None)
    }

    /// Makes a layer unless it is there, and takes hold of it. Who comes while another makes or removes it waits, until
    /// it is cancelled itself. None if `write` gave it up.
    fn make(
        &self,
        name: &str,
        layer: &Layer,
        cancel: &Cancel,
        write: impl FnOnce(&Path, &CheckoutOptions) -> Result<bool>,
    ) -> Result<Option<Held>> {
        let mut state = self.0.lock();
        while state.busy.contains(name) {
            cancel.check().map_err(StoreError::from)?;
            let waited = self.0.done.wait_timeout(state, CANCEL_POLL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if !state.layers.contains_key(name) {
            state.busy.insert(name.to_owned());
            drop(state);
            let made = self.write_layer(name, layer, write);
            state = self.0.lock();
            state.busy.remove(name);
            self.0.done.notify_all();
            let Some(layer) = made? else { return Ok(None) };
            state.layers.insert(name.to_owned(), layer);
        }
        Ok(Some(self.hold(&mut state, vec![name.to_owned()])))
    }

    /// Remembers a stack, and takes hold of it.
    fn note(&self, stack: Stack) -> Result<Held> {
        let path = self.0.root.join("stacks").join(stack.key.name());
        let text = serde_json::to_vec(&stack).map_err(io::Error::from).on("write", &path)?;
        replace(&path, &text)?;
        let mut state = self.0.lock();
        let held = self.hold(&mut state, stack.layers.clone());
        state.stacks.insert(stack.key, (stack, Instant::now()));
        Ok(held)
    }

    fn hold(&self, state: &mut Known, layers: Vec<String>) -> Held {
        for name in &layers {
            *state.users.entry(name.clone()).or_default() += 1;
        }
        Held { inner: Arc::clone(&self.0), layers }
    }

    /// Takes hold of layers that a workspace lies over from before; none if they are not all there.
    pub(crate) fn hold_again(&self, layers: &[String]) -> Option<Held> {
        let mut state = self.0.lock();
        let all = layers.iter().all(|name| state.layers.contains_key(name));
        all.then(|| self.hold(&mut state, layers.to_vec()))
    }

    /// Removes what nobody lies over, and what nobody asked for in the time that it is kept unless that is to go too.
    /// What is left when it is cancelled, or fails, goes with a later collection.
    pub(crate) fn collect(&self, now: Instant, recent: bool, cancel: &Cancel) -> Result<Collected> {
        let (stacks, layers) = {
            let mut state = self.0.lock();
            let stacks = state.old(now, recent);
            let layers = state.take_unneeded(&stacks);
            (stacks, layers)
        };
        let collected = self.0.remove_unused(&stacks, layers, cancel)?;
        self.0.bound_unused();
        Ok(collected)
    }

    fn write_layer(
        &self,
        name: &str,
        layer: &Layer,
        write: impl FnOnce(&Path, &CheckoutOptions) -> Result<bool>,
    ) -> Result<Option<Layer>> {
        // What was left by somebody who did not finish it.
        self.0.remove_layer(name)?;
        self.0.bound_unused();
        let (directory, tree) = (self.0.root.join("layers").join(name), self.0.tree_of(name));
        self.0.make_room().on("write", &tree)?;
        fs::create_dir_all(&tree).on("make", &tree)?;
        let counter = self.counter();
        let limit: Arc<dyn WriteLimit> = Arc::clone(&counter) as _;
        let options = CheckoutOptions { sync: layer.synced, limit: Some(limit), ..self.0.options.clone() };
        let written = write(&tree, &options).and_then(|is_there| {
            let layer = Layer { boot: self.0.boot.clone(), bytes: counter.bytes(), ..layer.clone() };
            if is_there {
                note_layer(&directory, &layer)?;
            }
            Ok(is_there.then_some(layer))
        });
        if !matches!(written, Ok(Some(_))) {
            self.0.remove_layer(name)?;
        }
        written
    }
}

/// Layers that are to be removed. Those that are still here in the end stay, for whoever waits for them.
struct Leaving<'a> {
    inner: &'a Inner,
    layers: Vec<(String, Layer)>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        for (name, layer) in self.layers.drain(..) {
            state.busy.remove(&name);
            state.layers.insert(name, layer);
        }
        self.inner.done.notify_all();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tree_of(&self, name: &str) -> PathBuf {
        self.root.join("layers").join(name).join("tree")
    }

    /// Finds what is whole, and removes the rest.
    fn take_up(&self) -> Result<()> {
        let mut state = self.lock();
        for name in names(&self.root.join("layers"))? {
            let path = self.root.join("layers").join(&name).join("layer");
            let layer = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Layer>(&text).ok());
            match layer.filter(|layer| layer.synced || layer.boot == self.boot) {
                Some(mut layer) => {
                    if layer.bytes == 0 {
                        layer.bytes = measure(&Holder::Machine, &self.tree_of(&name)).bytes;
                    }
                    state.layers.insert(name, layer);
                }
                None => self.remove_layer(&name)?,
            }
        }
        for name in names(&self.root.join("stacks"))? {
            let path = self.root.join("stacks").join(&name);
            let stack = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Stack>(&text).ok());
            // Under another name it is one that was being written.
            let whole = |stack: &Stack| {
                stack.key.name() == name && stack.layers.iter().all(|name| state.layers.contains_key(name))
            };
            match stack.filter(whole) {
                Some(stack) => drop(state.stacks.insert(stack.key, (stack, Instant::now()))),
                None => remove_file(&path)?,
            }
        }
        Ok(())
    }

    /// Removes stacks and layers that were taken out of what is known. What is left when it is cancelled, or fails, stays.
    fn remove_unused(
        &self,
        stacks: &[Key],
        layers: Vec<(String, Layer)>,
        cancel: &Cancel,
    ) -> Result<Collected> {
        let mut collected = Collected::default();
        let mut leaving = Leaving { inner: self, layers };
        for key in stacks {
            remove_file(&self.root.join("stacks").join(key.name()))?;
            collected.stacks += 1;
        }
        while let Some((name, layer)) = leaving.layers.pop() {
            if let Err(cancelled) = cancel.check() {
                leaving.layers.push((name, layer));
                return Err(StoreError::from(cancelled).into());
            }
            let removed = self.remove_layer(&name);
            self.lock().busy.remove(&name);
            self.done.notify_all();
            removed?;
            collected.bytes += layer.bytes;
            collected.layers += 1;
        }
        Ok(collected)
    }

    /// What says that the layer is there goes first.
    fn remove_layer(&self, name: &str) -> Result<()> {
        let directory = self.root.join("layers").join(name);
        remove_file(&directory.join("layer"))?;
        remove_tree(&directory).on("remove", &directory)
    }
}

impl Known {
    /// Returns true if a workspace lies over a stack.
    fn is_used(&self, stack: &Stack) -> bool {
        stack.layers.last().is_some_and(|name| self.users.contains_key(name))
    }

    /// Stacks over which nothing lies, and that nobody asked for in the time that they are kept unless recent ones are to go
    /// too.
    fn old(&self, now: Instant, recent: bool) -> Vec<Key> {
        let is_old = |(stack, used): &(Stack, Instant)| {
            let kept = if stack.layers.len() > 1 { DELTA_KEPT } else { BASE_KEPT };
            !self.is_used(stack) && (recent || now.saturating_duration_since(*used) > kept)
        };
        self.stacks.iter().filter(|(_, one)| is_old(one)).map(|(key, _)| *key).collect()
    }

    /// Takes stacks out of what is known, and all layers that nothing needs then. Nobody makes the layers anew before
    /// they were removed.
    fn take_unneeded(&mut self, stacks: &[Key]) -> Vec<(String, Layer)> {
        for key in stacks {
            self.stacks.remove(key);
        }
        let needed: HashSet<&String> = self.stacks.values().flat_map(|(stack, _)| &stack.layers).collect();
        let is_free = |name: &&String| !needed.contains(name) && !self.users.contains_key(*name);
        let free: Vec<String> = self.layers.keys().filter(is_free).cloned().collect();
        self.busy.extend(free.iter().cloned());
        free.into_iter().filter_map(|name| self.layers.remove(&name).map(|layer| (name, layer))).collect()
    }
}

/// Says that the layer in a directory is there.
fn note_layer(directory: &Path, layer: &Layer) -> Result<()> {
    let path = directory.join("layer");
    let text = serde_json::to_vec(layer).map_err(io::Error::from).on("write", &path)?;
    replace(&path, &text)
}

/// Removes a directory that only this process writes to, also what is in directories of odd modes.
fn remove_tree(path: &Path) -> io::Result<()> {
    overlay::remove_tree(&Holder::Machine, path).map_err(|error| match error {
        HostError::System { source, .. } => source,
        other => io::Error::other(other),
    })
}

/// Several may do so at once: the last wins.
fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let new = path.with_extension(format!("new-{}", uuid::Uuid::now_v7()));
    let replaced =
        fs::write(&new, content).on("write", &new).and_then(|()| fs::rename(&new, path).on("replace", path));
    if replaced.is_err() {
        drop(fs::remove_file(&new));
    }
    replaced
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.on("remove", path),
    }
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(directory).on("list", directory)?;
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    entries.map(name).collect::<io::Result<_>>().on("list", directory)
}

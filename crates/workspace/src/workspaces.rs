//! All workspaces of a directory.
//!
//! ```text
//! ID/record   state of the workspace
//! ID/N/       its Nth generation: data of its provider
//! ```
//!
//! Operations on one workspace are serialised; those on several run concurrently. Each operation first
//! records what it is about to do: if the process is killed, the next one that opens the directory finishes
//! or undoes it.

mod cancellable;
mod recover;
mod reset;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use workspace_host::Holder;
use workspace_host::disk_usage::{measure, measure_within};
use workspace_state::{
    Cancel, CheckoutOptions, Difference, Durability, NewSnapshot, PinId, Skipped, Snapshot, SnapshotId,
    Store, Tree, diff,
};

use crate::base::{Base, Materialize};
use crate::choice::{Choice, Chosen, choose};
use crate::copy::Copy;
use crate::current_holder::CurrentHolder;
use crate::error::{Context as _, Result, WorkspaceError};
use crate::kind::Kind;
use crate::layers::{Collected, Layers};
use crate::lazy_command::LazyCommand;
use crate::overlay::Overlay;
use crate::provider::{Committed, LowerLayers, Present, Provider, WorkspaceDir};
use crate::record::{Generation, Phase, Record};

pub use cancellable::Cancellable;
pub use reset::{Prepared, Switched};
pub use workspace_host::disk_usage::{Bounds, Usage};

/// Longest name of a workspace, in bytes.
const NAME_MAX: usize = 100;
/// Directory for the content of workspaces that outlives them.
const KEPT_DIR: &str = "kept";
/// Directory for generations that are being removed; names of workspaces do not begin with a dot.
const REMOVED_DIR: &str = ".removed";
/// Directory for probing overlays.
const PROBE_DIR: &str = "overlay-probe";

/// Configuration of workspaces.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of the workspaces.
    pub directory: PathBuf,
    /// Directory of the layers; on the same file system.
    pub layers: PathBuf,
    /// Store of their snapshots.
    pub store: Store,
    /// Holder in whose namespaces overlays are mounted; if sandboxes cannot see such mounts, the reason why.
    pub holder: Result<Holder, String>,
    /// User and group id that own the files; `None` for those of this process.
    pub owner: Option<(u32, u32)>,
    /// Requested provider.
    pub provider: Choice,
    /// Command of the lazy mount; without it, files are always written first.
    pub lazy: Option<LazyCommand>,
    /// Bytes of the file system that must stay free, a tenth of a small one. Layers are written only if twice
    /// as many are free.
    pub reserve: u64,
}

/// Description of a workspace that is to be created.
#[derive(Clone, Copy)]
pub struct New<'a> {
    /// Base snapshot; `None` for an empty directory.
    pub snapshot: Option<SnapshotId>,
    /// Provider; `None` for the default one.
    pub provider: Option<Kind>,
    /// Time at which its files are written.
    pub materialize: Materialize,
    /// User id of a sandbox's own user, to whom mounted files are shown as their owner; `None` for the real
    /// owner. Stored with the workspace.
    pub user: Option<u32>,
    /// Owner, for fair scheduling of background writes. Stored with the workspace.
    pub owner: Option<&'a str>,
    /// Called with the empty directory in which everything of the workspace is going to be.
    pub prepare: &'a dyn Fn(&Path),
}

impl Default for New<'_> {
    fn default() -> Self {
        Self {
            snapshot: None,
            provider: None,
            materialize: Materialize::default(),
            user: None,
            owner: None,
            prepare: &|_| {},
        }
    }
}

/// A workspace that was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Path of the agent's directory in the holder's namespaces.
    pub path: PathBuf,
    /// Provider that made it.
    pub provider: Kind,
    /// Set if its files are loaded on first read from the lazy mount.
    pub lazy: bool,
}

/// Differences between a workspace and its base.
pub struct Changes {
    /// Base snapshot; `None` if it was made empty.
    pub base: Option<SnapshotId>,
    /// Content of the base.
    pub before: Tree,
    /// Content of the workspace, as an uncommitted tree.
    pub after: Tree,
    /// First thousand entries that no snapshot can hold.
    pub skipped: Vec<Skipped>,
    /// Number of all entries that no snapshot can hold.
    pub skipped_count: u64,
}

impl Changes {
    /// Returns the differences, sorted by path.
    pub fn differences(&self) -> Result<Vec<Difference>> {
        Ok(diff(&self.before, &self.after)?)
    }
}

/// A workspace that was found when the directory was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Name of the workspace.
    pub id: String,
    /// Its record, or the reason why it cannot be read.
    pub record: Result<Record, String>,
}

/// All workspaces of a directory, which one process at a time may use.
#[derive(Debug)]
pub struct Workspaces {
    directory: PathBuf,
    store: Store,
    chosen: Chosen,
    holder: CurrentHolder,
    layers: Layers,
    overlay: Overlay,
    clone: Copy,
    copy: Copy,
    live: Mutex<HashMap<String, Arc<Slot>>>,
}

/// Slot of a workspace name.
#[derive(Debug, Default)]
struct Slot {
    /// `None` while it is being made, and after it is removed. Locked during operations on it.
    known: Mutex<Option<LiveWorkspace>>,
    /// Summary that can be read during operations on it.
    summary: Mutex<Option<Summary>>,
}

/// Summary of a workspace that is available at any time.
#[derive(Debug, Clone)]
struct Summary {
    made: Made,
    /// Directory that is not shared with other workspaces.
    own: PathBuf,
    /// Layers below it.
    layers: Vec<String>,
}

#[derive(Debug)]
struct LiveWorkspace {
    record: Record,
    /// Keeps the layers.
    lower: LowerLayers,
    /// Keeps those of the former generation.
    former: Option<LowerLayers>,
}

impl Workspaces {
    /// Opens the workspaces of a directory; recovers those that another process was making or removing when
    /// it ended.
    pub fn open(options: Options) -> Result<Self> {
        make_private(&options.directory)?;
        make_private(&options.layers)?;
        let absolute = |path: &Path| fs::canonicalize(path).context("find", path);
        let options = Options {
            directory: absolute(&options.directory)?,
            layers: absolute(&options.layers)?,
            ..options
        };
        let seen = options.holder.as_ref().map_err(String::as_str);
        let chosen = choose(&options.directory, seen, options.provider)?;
        let Options { directory, store, owner, .. } = options;
        let holder = options.holder.unwrap_or(Holder::Machine);
        let escape = Overlay::escapes(&holder);
        let written = CheckoutOptions { owner, escape, keep_set_id: true, ..CheckoutOptions::default() };
        let layers = Layers::open(&options.layers, store.clone(), written, options.reserve)?;
        let holder = CurrentHolder::new(holder);
        let files = |shared| Copy {
            store: store.clone(),
            holder: holder.clone(),
            owner,
            layers: layers.clone(),
            shared,
        };
        let this = Self {
            clone: files(true),
            copy: files(false),
            overlay: Overlay::new(&store, &holder, &layers, owner, options.lazy, options.layers.join("view")),
            holder,
            layers,
            directory,
            store,
            chosen,
            live: Mutex::default(),
        };
        this.recover()?;
        Ok(this)
    }

    /// Returns the result of probing the providers.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// Returns the store of the snapshots.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the holder in whose namespaces mounts are made.
    pub fn holder(&self) -> Holder {
        self.holder.get()
    }

    /// Sets the holder in whose namespaces mounts are made from now on, after the former one has died.
    pub fn use_holder(&self, holder: Holder) {
        self.holder.set(holder);
    }

    /// Creates a workspace.
    pub fn create(&self, id: &str, new: &New<'_>) -> Result<Made> {
        self.create_with(&self.store, id, new)
    }

    fn create_with(&self, store: &Store, id: &str, new: &New<'_>) -> Result<Made> {
        check_name(id)?;
        let kind = new.provider.unwrap_or(self.chosen.kind);
        self.check_available(kind)?;
        let slot = Arc::new(Slot::default());
        let mut known = locked(&slot.known);
        {
            let mut all = self.lock();
            if all.contains_key(id) {
                return Err(WorkspaceError::Exists { id: id.to_owned() });
            }
            all.insert(id.to_owned(), Arc::clone(&slot));
        }
        let made = self.make(store, id, kind, new);
        if made.is_err() {
            self.forget(id, &slot);
        }
        let (record, lower) = made?;
        let made = self.made(id, &record.current, &lower);
        *locked(&slot.summary) = Some(self.summarize(id, &record, &lower));
        *known = Some(LiveWorkspace { record, lower, former: None });
        Ok(made)
    }

    fn make(&self, store: &Store, id: &str, kind: Kind, new: &New<'_>) -> Result<(Record, LowerLayers)> {
        let directory = self.directory.join(id);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(WorkspaceError::Exists { id: id.to_owned() });
            }
            made => made.context("make", &directory)?,
        }
        let base = Base::new(store, new.snapshot, new.materialize);
        let current = base.as_ref().map_or(None, Base::id);
        let (user, owner) = (new.user, new.owner.map(str::to_owned));
        let mut record = Record::new(Generation { user, owner, ..Generation::first(kind, current) });
        let made = base.and_then(|base| {
            (new.prepare)(&directory);
            self.make_in(id, &directory, &mut record, &base)
        });
        if let Err(error) = &made {
            tracing::debug!(workspace = id, %error, "failed to create workspace");
            self.remove_all(id, Some(&record))?;
        }
        made.map(|lower| (record, lower))
    }

    /// Makes a workspace and writes its record last: one without a record is removed when the directory is
    /// opened.
    fn make_in(&self, id: &str, directory: &Path, record: &mut Record, base: &Base) -> Result<LowerLayers> {
        let lower = self.make_generation(id, &record.uid, &mut record.current, base)?;
        record.write(directory)?;
        Ok(lower)
    }

    fn make_generation(
        &self,
        id: &str,
        uid: &str,
        generation: &mut Generation,
        base: &Base,
    ) -> Result<LowerLayers> {
        self.pin(id, base, generation.pin)?;
        let dir = self.dir(id, uid, generation);
        fs::create_dir(&dir.root).context("make", &dir.root)?;
        let lower = self.provider(generation.provider).make(&dir, base)?;
        generation.layers = lower.layers();
        Ok(lower)
    }

    fn pin(&self, id: &str, base: &Base, pin: Option<PinId>) -> Result<()> {
        let (Some(snapshot), Some(pin)) = (&base.snapshot, pin) else { return Ok(()) };
        Ok(self.store.pin_as(pin, snapshot, &self.owner_of_pins(id), Durability::Buffered)?)
    }

    /// Returns the owner of the pins of a workspace, or the prefix for all workspaces of this directory if
    /// the name is empty.
    fn owner_of_pins(&self, id: &str) -> String {
        format!("workspace {}/{id}", self.directory.display())
    }

    /// Returns a workspace.
    pub fn get(&self, id: &str) -> Result<Made> {
        self.summary(id).map(|summary| summary.made)
    }

    /// Returns the path of a workspace's directory.
    pub fn path(&self, id: &str) -> Result<PathBuf> {
        self.get(id).map(|made| made.path)
    }

    /// Returns the record of a workspace.
    pub fn record(&self, id: &str) -> Result<Record> {
        self.with(id, |known| Ok(known.record.clone()))
    }

    /// Computes the differences to its base. `quiescent` means that no process writes to it meanwhile.
    pub fn changes(&self, id: &str, quiescent: bool) -> Result<Changes> {
        self.changes_with(&self.store, id, quiescent)
    }

    fn changes_with(&self, store: &Store, id: &str, quiescent: bool) -> Result<Changes> {
        self.with_cancel(store.cancel(), id, |known| {
            let (dir, generation) = (self.current(id, &known.record), &known.record.current);
            let base = Base::new(store, generation.base, Materialize::default())?;
            let present = self.provider(generation.provider).present(&dir, &base, quiescent)?;
            let Present { tree: after, skipped, skipped_count } = present;
            Ok(Changes { base: generation.base, before: base.tree, after, skipped, skipped_count })
        })
    }

    /// Commits its content as a snapshot, whose parent is the last one, or its base.
    pub fn commit(&self, id: &str, new: NewSnapshot, quiescent: bool) -> Result<Committed> {
        self.commit_with(&self.store, id, new, quiescent)
    }

    fn commit_with(&self, store: &Store, id: &str, new: NewSnapshot, quiescent: bool) -> Result<Committed> {
        self.with_cancel(store.cancel(), id, |known| {
            let (dir, generation) = (self.current(id, &known.record), &known.record.current);
            let base = Base::new(store, generation.base, Materialize::default())?;
            let new = self.with_parent(known, new)?;
            let provider = self.provider(generation.provider);
            let committed = provider.commit(&dir, &base, new, quiescent)?;
            known.record.last = Some(committed.snapshot.id);
            // Losing this only affects the parent of the next commit: the snapshot exists.
            if let Err(error) = known.record.write(&self.directory.join(id)) {
                tracing::warn!(workspace = id, %error, "failed to record the last snapshot of the workspace");
            }
            Ok(committed)
        })
    }

    /// Undoes a commit that was not reported to anybody: removes the snapshot and restores the parent of the
    /// next one.
    pub fn uncommit(&self, id: &str, snapshot: &Snapshot) -> Result<()> {
        let forgotten = self.with(id, |known| {
            if known.record.last != Some(snapshot.id) {
                return Ok(());
            }
            known.record.last = snapshot.parents.first().copied();
            // A full disk may be the reason for undoing it. The next commit skips a missing snapshot.
            if let Err(error) = known.record.write(&self.directory.join(id)) {
                tracing::warn!(workspace = id, %error, "failed to record an undone commit of the workspace");
            }
            Ok(())
        });
        match forgotten {
            Ok(()) | Err(WorkspaceError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        self.store.remove_snapshots(&[snapshot.id])?;
        Ok(())
    }

    fn with_parent(&self, known: &LiveWorkspace, new: NewSnapshot) -> Result<NewSnapshot> {
        if !new.parents.is_empty() {
            return Ok(new);
        }
        for id in known.record.last.iter().chain(&known.record.current.base) {
            if self.store.find_snapshot(id)?.is_some() {
                return Ok(NewSnapshot { parents: vec![*id], ..new });
            }
        }
        Ok(new)
    }

    /// Removes a workspace with everything in it, if it exists.
    pub fn cleanup(&self, id: &str) -> Result<()> {
        check_name(id)?;
        // An unusable one may have been reported, and can be removed too. The slot prevents its creation
        // meanwhile.
        let slot = Arc::clone(self.lock().entry(id.to_owned()).or_default());
        let mut known = locked(&slot.known);
        // Another thread may have removed it, and it may have been created again.
        if !self.lock().get(id).is_some_and(|now| Arc::ptr_eq(now, &slot)) {
            return Ok(());
        }
        let directory = self.directory.join(id);
        Record::remove(&directory)?;
        if let Some(known) = known.as_mut() {
            known.record.phase = Phase::Removing;
        }
        self.remove_all(id, known.as_ref().map(|known| &known.record))?;
        *known = None;
        *locked(&slot.summary) = None;
        self.forget(id, &slot);
        Ok(())
    }

    /// Removes a slot, unless the name has another one by now.
    fn forget(&self, id: &str, slot: &Arc<Slot>) {
        let mut all = self.lock();
        if all.get(id).is_some_and(|now| Arc::ptr_eq(now, slot)) {
            all.remove(id);
        }
    }

    /// Mounts a workspace whose mount is gone, after a reboot or the death of its holder. The caller
    /// guarantees that the former mount is not in use any more: two overlays with one upper directory corrupt
    /// each other.
    pub fn revive(&self, id: &str) -> Result<Made> {
        self.with(id, |known| {
            let dir = self.current(id, &known.record);
            let generation = &mut known.record.current;
            let base = self.base(generation)?;
            known.lower = self.provider(generation.provider).revive(&dir, &base, &generation.layers)?;
            generation.layers = known.lower.layers();
            known.record.write(&self.directory.join(id))?;
            Ok(self.made(id, &known.record.current, &known.lower))
        })
    }

    /// Removes a workspace, but keeps its content in a directory, whose path is returned. Returns `None` if
    /// the content is spread over layers: then nothing is changed.
    pub fn keep(&self, id: &str) -> Result<Option<PathBuf>> {
        let directory = self.directory.join(KEPT_DIR);
        let to = directory.join(id);
        let moved = self.with(id, |known| {
            let generation = &known.record.current;
            if generation.provider == Kind::Overlay {
                return Ok(false);
            }
            let from = self.provider(generation.provider).path(&self.current(id, &known.record));
            fs::create_dir_all(&directory).context("make", &directory)?;
            match fs::rename(&from, &to) {
                // Moved by an earlier, interrupted attempt.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
                moved => moved.context("move", &from).map(|()| true),
            }
        });
        match moved {
            Ok(false) => return Ok(None),
            Ok(true) => self.cleanup(id)?,
            // Removed by an earlier, interrupted attempt.
            Err(WorkspaceError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(to.exists().then_some(to))
    }

    /// Measures the disk usage of a workspace, without what it shares with others.
    pub fn usage(&self, id: &str) -> Result<Usage> {
        match self.summary(id) {
            // It exists, but has no usable record.
            Err(WorkspaceError::NotFound { .. }) => Ok(measure(&self.holder.get(), &self.directory.join(id))),
            summary => summary.map(|summary| measure(&self.holder.get(), &summary.own)),
        }
    }

    /// Measures the disk usage like [`Workspaces::usage`], up to a bound.
    pub fn usage_within(&self, id: &str, bounds: Bounds) -> Result<Usage> {
        let own = match self.summary(id) {
            Err(WorkspaceError::NotFound { .. }) => self.directory.join(id),
            summary => summary?.own,
        };
        Ok(measure_within(&self.holder.get(), &own, bounds))
    }

    /// Returns the layers below a workspace with their approximate sizes in bytes. Other workspaces may use
    /// them, too.
    pub fn layers_of(&self, id: &str) -> Vec<(String, u64)> {
        self.summary(id).map(|summary| self.layers.sizes(summary.layers)).unwrap_or_default()
    }

    /// Drops unused layers, the least recently used first, until twice the reserve is free. Returns false if
    /// it is not.
    pub fn drop_unused_layers(&self) -> bool {
        self.layers.drop_unused()
    }

    /// Returns the directory that holds everything of a workspace.
    pub fn directory_of(&self, id: &str) -> PathBuf {
        self.directory.join(id)
    }

    /// Lists all workspaces, including unusable ones.
    pub fn list(&self) -> Result<Vec<State>> {
        let mut states = Vec::new();
        for id in names(&self.directory)? {
            let record = match self.with(&id, |known| Ok(known.record.clone())) {
                Err(WorkspaceError::NotFound { .. }) => Record::read(&self.directory.join(&id)),
                record => record,
            };
            states.push(State { id, record: record.map_err(|error| error.to_string()) });
        }
        Ok(states)
    }

    /// Removes layers that were not needed for a while; with `recent`, all unused ones.
    pub fn collect(&self, recent: bool) -> Result<Collected> {
        self.layers.collect(Instant::now(), recent, self.store.cancel())
    }

    /// Returns true while layers are being written in the background.
    pub fn is_materializing(&self) -> bool {
        self.layers.is_writing()
    }

    /// Unmounts the lazy mount, unless there is a workspace: one that is being created is counted before it
    /// uses the mount. Returns true if it was mounted.
    pub fn unmount_lazy(&self) -> Result<bool> {
        self.overlay.unmount_lazy(&|| !self.lock().is_empty())
    }

    /// Releases the directory for another process, even if this value is still referenced. It must not be
    /// used any more.
    pub fn close(&self) -> Result<()> {
        self.layers.close()
    }

    /// Removes a pin. A failure only keeps content for too long.
    fn unpin(&self, pin: Option<PinId>) {
        if let Some(pin) = pin
            && let Err(error) = self.store.unpin(pin)
        {
            tracing::warn!(%error, "failed to remove pin");
        }
    }

    fn base(&self, generation: &Generation) -> Result<Base> {
        Base::new(&self.store, generation.base, Materialize::default())
    }

    fn made(&self, id: &str, generation: &Generation, lower: &LowerLayers) -> Made {
        let dir = self.dir(id, "", generation);
        let path = self.provider(generation.provider).path(&dir);
        Made { path, provider: generation.provider, lazy: lower.lazy }
    }

    fn current(&self, id: &str, record: &Record) -> WorkspaceDir {
        self.dir(id, &record.uid, &record.current)
    }

    fn dir(&self, id: &str, uid: &str, generation: &Generation) -> WorkspaceDir {
        let number = generation.number;
        WorkspaceDir {
            root: self.directory.join(id).join(number.to_string()),
            name: format!("{uid}/{number}"),
            user: generation.user,
            owner: generation.owner.clone(),
        }
    }

    fn provider(&self, kind: Kind) -> &dyn Provider {
        match kind {
            Kind::Overlay => &self.overlay,
            Kind::Clone => &self.clone,
            Kind::Copy => &self.copy,
        }
    }

    fn check_available(&self, kind: Kind) -> Result<()> {
        match self.chosen.lack(kind) {
            Some(reason) => Err(WorkspaceError::Provider { provider: kind, reason: reason.to_owned() }),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Slot>>> {
        locked(&self.live)
    }

    fn slot(&self, id: &str) -> Result<Arc<Slot>> {
        self.lock().get(id).cloned().ok_or_else(|| WorkspaceError::NotFound { id: id.to_owned() })
    }

    fn summary(&self, id: &str) -> Result<Summary> {
        let summary = locked(&self.slot(id)?.summary).clone();
        summary.ok_or_else(|| WorkspaceError::NotFound { id: id.to_owned() })
    }

    /// Locks a workspace and runs `work` on it.
    fn with<T>(&self, id: &str, work: impl FnOnce(&mut LiveWorkspace) -> Result<T>) -> Result<T> {
        let slot = self.slot(id)?;
        self.work(id, &slot, locked(&slot.known), work)
    }

    /// Locks a workspace, waiting until `cancel` is set, and runs `work` on it.
    fn with_cancel<T>(
        &self,
        cancel: &Cancel,
        id: &str,
        work: impl FnOnce(&mut LiveWorkspace) -> Result<T>,
    ) -> Result<T> {
        let slot = self.slot(id)?;
        self.work(id, &slot, cancellable::lock(&slot.known, cancel)?, work)
    }

    fn work<T>(
        &self,
        id: &str,
        slot: &Slot,
        mut known: MutexGuard<'_, Option<LiveWorkspace>>,
        work: impl FnOnce(&mut LiveWorkspace) -> Result<T>,
    ) -> Result<T> {
        let known = known.as_mut().ok_or_else(|| WorkspaceError::NotFound { id: id.to_owned() })?;
        let done = work(known);
        *locked(&slot.summary) = Some(self.summarize(id, &known.record, &known.lower));
        done
    }

    fn summarize(&self, id: &str, record: &Record, lower: &LowerLayers) -> Summary {
        let made = self.made(id, &record.current, lower);
        let own = self.provider(record.current.provider).own(&self.current(id, record));
        Summary { made, own, layers: lower.layers() }
    }
}

impl Drop for Workspaces {
    fn drop(&mut self) {
        self.layers.stop_writing();
    }
}

/// Creates a directory that no other user can enter: files of workspaces and layers may have set-id bits and
/// are written by agents.
fn make_private(path: &Path) -> Result<()> {
    fs::create_dir_all(path).context("make", path)?;
    let mode = fs::metadata(path).context("look at", path)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7700)).context("change", path)?;
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_name(id: &str) -> Result<()> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = id.bytes().all(fits) && !id.starts_with('.') && id != KEPT_DIR && id != PROBE_DIR;
    let valid = !id.is_empty() && id.len() <= NAME_MAX && fits;
    if valid { Ok(()) } else { Err(WorkspaceError::BadName { id: id.to_owned() }) }
}

/// Lists the names of workspaces in a directory; those that begin with a dot are none.
fn names(directory: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(directory).context("list", directory)?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.context("list", directory)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if check_name(&name).is_ok() && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

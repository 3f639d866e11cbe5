//! All workspaces of a directory.
//!
//! ```text
//! ID/record   what is known of it
//! ID/N/       its Nth generation: what its provider keeps
//! ```
//!
//! Operations on one workspace come one after another, on several at once. Each first writes down what it is about to do:
//! killed in between, the next process that opens the directory finishes it or takes it back.

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
use crate::error::{Context as _, Result, WorkspaceError};
use crate::here::Here;
use crate::layers::{Collected, Layers};
use crate::lazy_command::LazyCommand;
use crate::overlay::Overlay;
use crate::provider::{Committed, Kind, Place, Present, Provider, Under};
use crate::record::{Generation, Phase, Record};

pub use cancellable::Cancellable;
pub use reset::{Prepared, Switched};
pub use workspace_host::disk_usage::{Bounds, Usage};

/// Longest name of a workspace.
const NAME_MAX: usize = 100;
/// Where the content of workspaces is that was to outlive them.
const KEPT: &str = "kept";
/// Where what is being removed is; no workspace's name begins with a dot.
const ASIDE: &str = ".removed";
/// Where it is tried whether overlays work.
const PROBE: &str = "overlay-probe";

/// Where workspaces are, and how they are made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where they are.
    pub directory: PathBuf,
    /// Where layers are; on the same filesystem.
    pub layers: PathBuf,
    /// What their snapshots are in.
    pub store: Store,
    /// Where overlays are mounted; if whoever uses the workspaces cannot see such mounts, why not.
    pub holder: Result<Holder, String>,
    /// User and group that files belong to; those of this process, when not said.
    pub owner: Option<(u32, u32)>,
    /// Which provider to use.
    pub provider: Choice,
    /// What serves files before they are written; without it they are always written first.
    pub lazy: Option<LazyCommand>,
    /// Bytes of the filesystem that are to stay free, a tenth of a small one. Snapshots are written only where twice as many are.
    pub reserve: u64,
}

/// What to make.
#[derive(Clone, Copy)]
pub struct New<'a> {
    /// From what; an empty directory when not said.
    pub snapshot: Option<SnapshotId>,
    /// How; by the one that was chosen when not said.
    pub provider: Option<Kind>,
    /// When its files are written.
    pub materialize: Materialize,
    /// The user of a sandbox's own to whom files are shown as his, where they are mounted for him; those that files belong to,
    /// when not said. Kept for as long as the workspace is.
    pub user: Option<u32>,
    /// Whose it is: snapshots that are written in the background are written in turns of the owners. Kept as well.
    pub owner: Option<&'a str>,
    /// Called with the directory in which everything of the workspace is going to be, while it is empty.
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

/// A workspace that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The agent's directory, as the holder's namespaces have it.
    pub path: PathBuf,
    /// How it was made.
    pub provider: Kind,
    /// Whether its files are loaded as they are read.
    pub lazy: bool,
}

/// What differs between a workspace and what it was made from.
pub struct Changes {
    /// What it was made from.
    pub base: Option<SnapshotId>,
    /// What that holds.
    pub before: Tree,
    /// What the workspace holds; not part of the store.
    pub after: Tree,
    /// The first thousand entries that no snapshot can hold.
    pub skipped: Vec<Skipped>,
    /// Number of all entries that no snapshot can hold.
    pub skipped_count: u64,
}

impl Changes {
    /// The differences, sorted by path.
    pub fn differences(&self) -> Result<Vec<Difference>> {
        Ok(diff(&self.before, &self.after)?)
    }
}

/// A workspace that was found when the directory was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Its name.
    pub id: String,
    /// What is known of it, or why nothing is.
    pub record: Result<Record, String>,
}

/// All workspaces of a directory. One process at a time uses it.
#[derive(Debug)]
pub struct Workspaces {
    directory: PathBuf,
    store: Store,
    chosen: Chosen,
    here: Here,
    layers: Layers,
    overlay: Overlay,
    clone: Copy,
    copy: Copy,
    live: Mutex<HashMap<String, Arc<Slot>>>,
}

/// A workspace by its name.
#[derive(Debug, Default)]
struct Slot {
    /// None while it is being made, and when it is gone. Held for as long as somebody works on it.
    known: Mutex<Option<Known>>,
    /// Told while somebody works on it.
    told: Mutex<Option<Told>>,
}

/// What can be told of a workspace at any time.
#[derive(Debug, Clone)]
struct Told {
    made: Made,
    /// What of it is its own.
    own: PathBuf,
    /// The layers it lies over.
    layers: Vec<String>,
}

#[derive(Debug)]
struct Known {
    record: Record,
    /// Keeps the layers.
    under: Under,
    /// Those of the former generation.
    former: Option<Under>,
}

impl Workspaces {
    /// Takes up the workspaces of a directory; what was being made or removed when another process ended is cleared
    /// away.
    pub fn open(options: Options) -> Result<Self> {
        make_private(&options.directory)?;
        make_private(&options.layers)?;
        let absolute = |path: &Path| fs::canonicalize(path).on("find", path);
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
        let here = Here::new(holder);
        let files =
            |shared| Copy { store: store.clone(), here: here.clone(), owner, layers: layers.clone(), shared };
        let this = Self {
            clone: files(true),
            copy: files(false),
            overlay: Overlay::new(&store, &here, &layers, owner, options.lazy, options.layers.join("view")),
            here,
            layers,
            directory,
            store,
            chosen,
            live: Mutex::default(),
        };
        this.recover()?;
        Ok(this)
    }

    /// What is used, and what cannot be.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// The store of the snapshots.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The holder in whose namespaces mounts are made.
    pub fn holder(&self) -> Holder {
        self.here.get()
    }

    /// Mounts are made in the namespaces of this holder from now on, because the one before has died.
    pub fn use_holder(&self, holder: Holder) {
        self.here.set(holder);
    }

    /// Makes a workspace.
    pub fn create(&self, id: &str, new: &New<'_>) -> Result<Made> {
        self.create_with(&self.store, id, new)
    }

    fn create_with(&self, store: &Store, id: &str, new: &New<'_>) -> Result<Made> {
        check_name(id)?;
        let kind = new.provider.unwrap_or(self.chosen.kind);
        self.must_have(kind)?;
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
        let (record, under) = made?;
        let made = self.made(id, &record.current, &under);
        *locked(&slot.told) = Some(self.tell(id, &record, &under));
        *known = Some(Known { record, under, former: None });
        Ok(made)
    }

    fn make(&self, store: &Store, id: &str, kind: Kind, new: &New<'_>) -> Result<(Record, Under)> {
        let directory = self.directory.join(id);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(WorkspaceError::Exists { id: id.to_owned() });
            }
            made => made.on("make", &directory)?,
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
            tracing::debug!(workspace = id, %error, "a workspace could not be made");
            self.remove_all(id, Some(&record))?;
        }
        made.map(|under| (record, under))
    }

    /// There is no record until all of it is there: what has none when the directory is opened goes.
    fn make_in(&self, id: &str, directory: &Path, record: &mut Record, base: &Base) -> Result<Under> {
        let under = self.make_generation(id, &record.uid, &mut record.current, base)?;
        record.write(directory)?;
        Ok(under)
    }

    fn make_generation(
        &self,
        id: &str,
        uid: &str,
        generation: &mut Generation,
        base: &Base,
    ) -> Result<Under> {
        self.pin(id, base, generation.pin)?;
        let place = self.place(id, uid, generation);
        fs::create_dir(&place.root).on("make", &place.root)?;
        let under = self.provider(generation.provider).make(&place, base)?;
        generation.layers = under.layers();
        Ok(under)
    }

    fn pin(&self, id: &str, base: &Base, pin: Option<PinId>) -> Result<()> {
        let (Some(snapshot), Some(pin)) = (&base.snapshot, pin) else { return Ok(()) };
        Ok(self.store.pin_as(pin, snapshot, &self.owner_of_pins(id), Durability::Buffered)?)
    }

    /// Who holds the pins of a workspace; of all workspaces of this directory, where the name is empty.
    fn owner_of_pins(&self, id: &str) -> String {
        format!("workspace {}/{id}", self.directory.display())
    }

    /// A workspace as it is now.
    pub fn get(&self, id: &str) -> Result<Made> {
        self.told(id).map(|told| told.made)
    }

    /// Where a workspace's directory is.
    pub fn path(&self, id: &str) -> Result<PathBuf> {
        self.get(id).map(|made| made.path)
    }

    /// What is known of a workspace.
    pub fn record(&self, id: &str) -> Result<Record> {
        self.with(id, |known| Ok(known.record.clone()))
    }

    /// What differs from what it was made from. `still` says that nobody writes to it meanwhile.
    pub fn changes(&self, id: &str, still: bool) -> Result<Changes> {
        self.changes_with(&self.store, id, still)
    }

    fn changes_with(&self, store: &Store, id: &str, still: bool) -> Result<Changes> {
        self.with_cancel(store.cancel(), id, |known| {
            let (place, generation) = (self.current(id, &known.record), &known.record.current);
            let base = Base::new(store, generation.base, Materialize::default())?;
            let present = self.provider(generation.provider).present(&place, &base, still)?;
            let Present { tree: after, skipped, skipped_count } = present;
            Ok(Changes { base: generation.base, before: base.tree, after, skipped, skipped_count })
        })
    }

    /// Makes what is in it a snapshot, whose parent is the last one, or what it was made from.
    pub fn commit(&self, id: &str, new: NewSnapshot, still: bool) -> Result<Committed> {
        self.commit_with(&self.store, id, new, still)
    }

    fn commit_with(&self, store: &Store, id: &str, new: NewSnapshot, still: bool) -> Result<Committed> {
        self.with_cancel(store.cancel(), id, |known| {
            let (place, generation) = (self.current(id, &known.record), &known.record.current);
            let base = Base::new(store, generation.base, Materialize::default())?;
            let new = self.with_parent(known, new)?;
            let provider = self.provider(generation.provider);
            let committed = provider.commit(&place, &base, new, still)?;
            known.record.last = Some(committed.snapshot.id);
            // Only who asks for the parent of the next one notices if this is lost: the snapshot is there.
            if let Err(error) = known.record.write(&self.directory.join(id)) {
                tracing::warn!(workspace = id, %error, "which snapshot was made last could not be noted");
            }
            Ok(committed)
        })
    }

    /// Takes back a commit of which nobody is told: the snapshot goes, and the next one has the parent that it had.
    pub fn uncommit(&self, id: &str, snapshot: &Snapshot) -> Result<()> {
        let forgotten = self.with(id, |known| {
            if known.record.last != Some(snapshot.id) {
                return Ok(());
            }
            known.record.last = snapshot.parents.first().copied();
            // A full disk may be why it is taken back. The next commit passes over a snapshot that is gone.
            if let Err(error) = known.record.write(&self.directory.join(id)) {
                tracing::warn!(workspace = id, %error, "a commit that was taken back could not be noted");
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

    fn with_parent(&self, known: &Known, new: NewSnapshot) -> Result<NewSnapshot> {
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

    /// Removes a workspace and all that is in it. One that is not there is gone.
    pub fn cleanup(&self, id: &str) -> Result<()> {
        check_name(id)?;
        // One that is not known may have been reported, and is wanted no more. Nobody makes it meanwhile.
        let slot = Arc::clone(self.lock().entry(id.to_owned()).or_default());
        let mut known = locked(&slot.known);
        // Unless somebody else has removed it, and it was made again.
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
        *locked(&slot.told) = None;
        self.forget(id, &slot);
        Ok(())
    }

    /// Lets go of a name, unless it is another's by now.
    fn forget(&self, id: &str, slot: &Arc<Slot>) {
        let mut all = self.lock();
        if all.get(id).is_some_and(|now| Arc::ptr_eq(now, slot)) {
            all.remove(id);
        }
    }

    /// Mounts a workspace whose mount is gone, because the machine was started anew or its holder has died. Whoever
    /// calls this knows that nobody uses the former mount any more: two of one directory destroy each other's work.
    pub fn revive(&self, id: &str) -> Result<Made> {
        self.with(id, |known| {
            let place = self.current(id, &known.record);
            let generation = &mut known.record.current;
            let base = self.base(generation)?;
            known.under = self.provider(generation.provider).revive(&place, &base, &generation.layers)?;
            generation.layers = known.under.layers();
            known.record.write(&self.directory.join(id))?;
            Ok(self.made(id, &known.record.current, &known.under))
        })
    }

    /// Removes a workspace, and keeps what is in it in a directory of which this tells. None if that is spread over
    /// layers: then everything stays as it is.
    pub fn keep(&self, id: &str) -> Result<Option<PathBuf>> {
        let directory = self.directory.join(KEPT);
        let to = directory.join(id);
        let moved = self.with(id, |known| {
            let generation = &known.record.current;
            if generation.provider == Kind::Overlay {
                return Ok(false);
            }
            let from = self.provider(generation.provider).path(&self.current(id, &known.record));
            fs::create_dir_all(&directory).on("make", &directory)?;
            match fs::rename(&from, &to) {
                // Moved by whoever was about to do this before.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
                moved => moved.on("move", &from).map(|()| true),
            }
        });
        match moved {
            Ok(false) => return Ok(None),
            Ok(true) => self.cleanup(id)?,
            // Removed by whoever was about to do this before.
            Err(WorkspaceError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(to.exists().then_some(to))
    }

    /// What a workspace takes that no other does.
    pub fn usage(&self, id: &str) -> Result<Usage> {
        match self.told(id) {
            // Nothing is known of it but that it is there.
            Err(WorkspaceError::NotFound { .. }) => Ok(measure(&self.here.get(), &self.directory.join(id))),
            told => told.map(|told| measure(&self.here.get(), &told.own)),
        }
    }

    /// The same up to a bound.
    pub fn usage_within(&self, id: &str, bounds: Bounds) -> Result<Usage> {
        let own = match self.told(id) {
            Err(WorkspaceError::NotFound { .. }) => self.directory.join(id),
            told => told?.own,
        };
        Ok(measure_within(&self.here.get(), &own, bounds))
    }

    /// The layers that a workspace lies over, and the bytes that each takes, about. Others may lie over them, too.
    pub fn layers_of(&self, id: &str) -> Vec<(String, u64)> {
        self.told(id).map(|told| self.layers.sizes(told.layers)).unwrap_or_default()
    }

    /// Drops layers over which no workspace lies, the longest unused one first, until twice as much is free as is to stay so.
    /// False if it is not.
    pub fn drop_unused_layers(&self) -> bool {
        self.layers.drop_unused()
    }

    /// The directory in which everything of a workspace is.
    pub fn directory_of(&self, id: &str) -> PathBuf {
        self.directory.join(id)
    }

    /// All of them: those that can be used, and those of which nothing is known.
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

    /// Removes layers that nobody has needed for a while; with `recent`, all that nobody needs now.
    pub fn collect(&self, recent: bool) -> Result<Collected> {
        self.layers.collect(Instant::now(), recent, self.store.cancel())
    }

    /// Whether layers are being written in the background.
    pub fn is_materializing(&self) -> bool {
        self.layers.is_writing()
    }

    /// Ends the lazy view, unless there is a workspace: whoever makes one is counted before he uses it. Returns whether
    /// there was a view.
    pub fn end_view(&self) -> Result<bool> {
        self.overlay.end_view(&|| !self.lock().is_empty())
    }

    /// Lets another process have them, though somebody here may still hold this. Nothing is to be done with it any more.
    pub fn close(&self) -> Result<()> {
        self.layers.close()
    }

    /// A pin that cannot be removed keeps content for too long, and nothing worse.
    fn unpin(&self, pin: Option<PinId>) {
        if let Some(pin) = pin
            && let Err(error) = self.store.unpin(pin)
        {
            tracing::warn!(%error, "a pin could not be removed");
        }
    }

    fn base(&self, generation: &Generation) -> Result<Base> {
        Base::new(&self.store, generation.base, Materialize::default())
    }

    fn made(&self, id: &str, generation: &Generation, under: &Under) -> Made {
        let place = self.place(id, "", generation);
        let path = self.provider(generation.provider).path(&place);
        Made { path, provider: generation.provider, lazy: under.lazy }
    }

    fn current(&self, id: &str, record: &Record) -> Place {
        self.place(id, &record.uid, &record.current)
    }

    fn place(&self, id: &str, uid: &str, generation: &Generation) -> Place {
        let number = generation.number;
        Place {
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

    fn must_have(&self, kind: Kind) -> Result<()> {
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

    fn told(&self, id: &str) -> Result<Told> {
        let told = locked(&self.slot(id)?.told).clone();
        told.ok_or_else(|| WorkspaceError::NotFound { id: id.to_owned() })
    }

    /// Works on a workspace; others that want to wait.
    fn with<T>(&self, id: &str, work: impl FnOnce(&mut Known) -> Result<T>) -> Result<T> {
        let slot = self.slot(id)?;
        self.work(id, &slot, locked(&slot.known), work)
    }

    /// Works on a workspace; others that want to wait, until they are cancelled.
    fn with_cancel<T>(
        &self,
        cancel: &Cancel,
        id: &str,
        work: impl FnOnce(&mut Known) -> Result<T>,
    ) -> Result<T> {
        let slot = self.slot(id)?;
        self.work(id, &slot, cancellable::lock(&slot.known, cancel)?, work)
    }

    fn work<T>(
        &self,
        id: &str,
        slot: &Slot,
        mut known: MutexGuard<'_, Option<Known>>,
        work: impl FnOnce(&mut Known) -> Result<T>,
    ) -> Result<T> {
        let known = known.as_mut().ok_or_else(|| WorkspaceError::NotFound { id: id.to_owned() })?;
        let done = work(known);
        *locked(&slot.told) = Some(self.tell(id, &known.record, &known.under));
        done
    }

    fn tell(&self, id: &str, record: &Record, under: &Under) -> Told {
        let made = self.made(id, &record.current, under);
        let own = self.provider(record.current.provider).own(&self.current(id, record));
        Told { made, own, layers: under.layers() }
    }
}

impl Drop for Workspaces {
    fn drop(&mut self) {
        self.layers.stop_writing();
    }
}

/// Makes a directory that no other user of the machine can enter: files of workspaces and layers may have set-id bits,
/// and an agent wrote them.
fn make_private(path: &Path) -> Result<()> {
    fs::create_dir_all(path).on("make", path)?;
    let mode = fs::metadata(path).on("look at", path)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7700)).on("change", path)?;
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_name(id: &str) -> Result<()> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = id.bytes().all(fits) && !id.starts_with('.') && id != KEPT && id != PROBE;
    let valid = !id.is_empty() && id.len() <= NAME_MAX && fits;
    if valid { Ok(()) } else { Err(WorkspaceError::BadName { id: id.to_owned() }) }
}

/// The names of workspaces in a directory; what begins with a dot is none.
fn names(directory: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(directory).on("list", directory)?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.on("list", directory)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if check_name(&name).is_ok() && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

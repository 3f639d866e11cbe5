//! Set of workspaces in one directory.
//!
//! ```text
//! ID/record   state of the workspace
//! ID/N/       its Nth generation: data of its provider
//! ```
//!
//! A *provider* is a method of making the directory of a workspace: overlay, clone (reflinked files) or copy. The
//! *base* of a workspace is the snapshot that it was created from, which a *pin* protects from garbage collection.
//! *Layers* are read-only directories with the files of bases, which workspaces share. An *anchor* is a mount that
//! shows the head of a project (the snapshot of its present files) to several read-only workspaces, its *followers*.
//!
//! A *generation* is a directory with the content of a workspace. A reset (to another snapshot) creates the next
//! generation and keeps the *former* one until all processes use the new one, or it replaces the files of the only
//! generation *in place*.
//!
//! Operations on the same workspace are serialised; operations on different workspaces run concurrently. Resets and
//! removals record their phase first. If the process is killed, the next process that opens the directory
//! finishes or undoes the operation.

mod cancellable;
mod commit;
mod conditional_commits;
mod followers;
mod import_root;
mod kept_content;
mod move_in_place;
mod recover;
mod reset;
mod settled_commit;

use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use workspace_host::NamespaceHolder;
use workspace_host::disk_usage::{measure, measure_within};
use workspace_state::{Cancel, CheckoutOptions, Durability, OwnerIds, PinId, SnapshotId, Store};

use crate::anchor_to_follow::AnchorToFollow;
use crate::anchors::Anchors;
use crate::base::{Base, Materialize};
use crate::cancellable_lock::lock_cancellable;
use crate::conditional_commit::UnchangedDigest;
use crate::copy::CopyProvider;
use crate::current_holder::CurrentHolder;
use crate::error::{Context as _, Result, WorkspaceError};
use crate::layers::{LayerGcResult, Layers, UnusedLayers};
use crate::lazy_command::LazyCommand;
use crate::overlay::OverlayProvider;
use crate::part::SnapshotPart;
use crate::provider::{LowerLayers, MountKind, Provider, WorkspaceDir};
use crate::provider_kind::ProviderKind;
use crate::record::{Generation, Phase, Record};
use crate::selection::{ProviderPreference, ProviderSelection, select_provider};
use crate::writers::Writers;

pub use cancellable::CancellableWorkspaces;
pub use commit::Changes;
pub use import_root::RootImport;
pub use kept_content::KeptContent;
pub use move_in_place::{MoveStart, MoveTarget};
pub use reset::{PreparedReset, ResetMode, ResetResult};
pub use workspace_host::disk_usage::{Bounds, DiskUsage};

/// Maximum length of the name of a workspace, in bytes.
const NAME_MAX: usize = 100;
/// Directory for the content of removed workspaces that is to be kept ([`Workspaces::keep_content`]).
const KEPT_DIR: &str = "kept";
/// Directory for generations that are being removed. Names of workspaces cannot begin with a dot.
const REMOVED_DIR: &str = ".removed";
/// Directory of the anchors.
const ANCHORS_DIR: &str = ".anchors";
/// Mountpoint of the lazy mount (a FUSE mount that loads the files of snapshots on first read), in the directory of the
/// layers.
const LAZY_MOUNTPOINT: &str = "view";
/// Directory in which `workspace_host::overlay::probe` tries to mount an overlay.
const PROBE_DIR: &str = "overlay-probe";

/// Configuration of a set of workspaces.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of the workspaces.
    pub directory: PathBuf,
    /// Directory of the layers, on the same file system.
    pub layers: PathBuf,
    /// Store of the snapshots.
    pub store: Store,
    /// Namespace holder: the process that keeps the namespaces of overlay mounts. An error is the reason why sandboxes
    /// cannot see such mounts; new workspaces are then never overlays.
    pub holder: Result<NamespaceHolder, String>,
    /// UID and GID that own the files on disk; `None` for those of this process.
    pub file_owner: Option<(u32, u32)>,
    /// Part of a snapshot that becomes the content of a workspace: the files of a workspace, or the root filesystem of
    /// a sandbox.
    pub part: SnapshotPart,
    /// Range of the UIDs and GIDs on disk for root filesystems, whose files have several owners. Takes precedence over
    /// `file_owner`. `None` if all files have one owner.
    pub owner_ids: Option<OwnerIds>,
    /// Provider that is used for new workspaces if it works.
    pub provider: ProviderPreference,
    /// Writers that no caller can stop, such as clients of an NFS server of the kernel. [`Writers::Running`] if there
    /// may be some: no operation then relies on stopped writers.
    pub outside_writers: Writers,
    /// Command that serves the lazy mount, a FUSE mount that loads files on first read; `None` to write all files
    /// before a workspace is created.
    pub lazy: Option<LazyCommand>,
    /// Free disk space in bytes that must remain; capped at a tenth of the file system. Layers are written
    /// only while twice as much is free.
    pub reserve: u64,
}

/// Parameters of a workspace to be created.
#[derive(Clone, Copy)]
pub struct NewWorkspace<'a> {
    /// Base snapshot; `None` for an empty directory.
    pub snapshot: Option<SnapshotId>,
    /// Provider; `None` for the default one.
    pub provider: Option<ProviderKind>,
    /// Mode of writing the files of the snapshot to disk.
    pub materialize: Materialize,
    /// UID that owns the files as seen in the sandbox (idmapped mount); `None` if the mount is not idmapped. Stored in
    /// the record.
    pub idmap_uid: Option<u32>,
    /// Tenant that owns the workspace, for fair scheduling of background writes; `None` if it is unknown. Stored in the
    /// record.
    pub owner: Option<&'a str>,
    /// True for an overlay without an upper directory. Other providers ignore it. Stored in the record.
    pub read_only: bool,
    /// Anchor that the workspace follows: it always shows the present head of the anchor, read-only. If the anchor has
    /// no head, or a head with a lower sequence than [`AnchorToFollow::sequence`], `snapshot` becomes its head. A
    /// follower is an overlay, whatever `provider` says, and its creation fails if overlays are not available. `None`
    /// if the workspace does not follow an anchor.
    pub anchor: Option<AnchorToFollow<'a>>,
    /// Callback that receives the empty directory of the workspace before anything is written to it, for
    /// example to set a disk quota.
    pub prepare: &'a dyn Fn(&Path),
}

impl Default for NewWorkspace<'_> {
    fn default() -> Self {
        Self {
            snapshot: None,
            provider: None,
            materialize: Materialize::default(),
            idmap_uid: None,
            owner: None,
            read_only: false,
            anchor: None,
            prepare: &|_| {},
        }
    }
}

/// Location and provider of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceInfo {
    /// Path of the directory that the agent sees, in the mount namespace of the namespace holder.
    pub path: PathBuf,
    /// Provider of the workspace.
    pub provider: ProviderKind,
    /// Set if its files are loaded on first read from the lazy mount.
    pub lazy: bool,
    /// True if the agent cannot change its files.
    pub read_only: bool,
    /// Directory of the anchor that the workspace follows; `None` if it does not follow an anchor. A sandbox then gets
    /// a clone of the anchor's mount instead of `path`.
    pub anchor: Option<PathBuf>,
}

/// Entry in the list of all workspaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceEntry {
    /// Name of the workspace.
    pub id: String,
    /// Record of the workspace, or the reason why it cannot be read.
    pub record: Result<Record, String>,
}

/// Set of workspaces in one directory, which only one process at a time may use.
#[derive(Debug)]
pub struct Workspaces {
    /// Directory with a subdirectory per workspace.
    directory: PathBuf,
    store: Store,
    /// Part of a snapshot that is the content of a workspace.
    part: SnapshotPart,
    /// Result of probing the providers.
    selection: ProviderSelection,
    /// Holder of the namespaces in which overlays are mounted.
    holder: CurrentHolder,
    /// Layers that all workspaces share.
    layers: Layers,
    overlay: OverlayProvider,
    clone: CopyProvider,
    copy: CopyProvider,
    /// Mounts that show heads of projects to read-only workspaces.
    anchors: Anchors,
    /// State of the writers that no caller can stop.
    outside_writers: Writers,
    /// Slots by name of the workspace.
    slots: Mutex<HashMap<String, Arc<Slot>>>,
}

/// Slot of a workspace name, also while the workspace is created or removed. Its lock serialises the operations on the
/// workspace.
#[derive(Debug, Default)]
struct Slot {
    /// `None` while the workspace is being created and after it was removed. Locked during operations on it.
    workspace: Mutex<Option<LiveWorkspace>>,
    /// Summary, which can be read without waiting for operations on the workspace. `None` as for `workspace`.
    summary: Mutex<Option<Summary>>,
}

/// Summary of a workspace after its last operation.
#[derive(Debug, Clone)]
struct Summary {
    info: WorkspaceInfo,
    /// Directory whose disk usage is charged to the workspace.
    private_dir: PathBuf,
    /// Names of the layers below the workspace.
    layers: Vec<String>,
}

/// State in memory of a workspace with a usable record.
#[derive(Debug)]
struct LiveWorkspace {
    record: Record,
    /// Guard that keeps the layers of the current generation.
    lower: LowerLayers,
    /// Guard that keeps the layers of the former generation; `None` if there is no former generation.
    former_lower: Option<LowerLayers>,
    /// Digest (names, modes, sizes, times and inodes) of the directory when its content was last found to equal the
    /// last snapshot; `None` if it is not known. It is not stored: after a restart, the next conditional commit (only
    /// if the content has changed) computes it again.
    unchanged_digest: Option<UnchangedDigest>,
}

impl Workspaces {
    /// Opens the workspaces of a directory, and finishes or undoes the operations of a killed process.
    pub fn open(options: Options) -> Result<Self> {
        create_private_dir(&options.directory)?;
        create_private_dir(&options.layers)?;
        let absolute = |path: &Path| fs::canonicalize(path).context("find", path);
        let options = Options {
            directory: absolute(&options.directory)?,
            layers: absolute(&options.layers)?,
            ..options
        };
        let holder_or_reason = options.holder.as_ref().map_err(String::as_str);
        let selection = select_provider(&options.directory, holder_or_reason, options.provider)?;
        let Options { directory, store, file_owner, part, owner_ids, .. } = options;
        let holder = options.holder.unwrap_or(NamespaceHolder::None);
        let escape_overlay_xattrs = OverlayProvider::must_escape_overlay_xattrs(&holder);
        let layer_options = CheckoutOptions {
            owner: file_owner,
            owner_ids,
            escape_overlay_xattrs,
            keep_set_id: true,
            ..CheckoutOptions::default()
        };
        let layers = Layers::open(&options.layers, (store.clone(), part), layer_options, options.reserve)?;
        let holder = CurrentHolder::new(holder);
        let [clone, copy] = [true, false].map(|reflink| CopyProvider {
            store: store.clone(),
            holder: holder.clone(),
            file_owner,
            layers: layers.clone(),
            reflink,
        });
        let lazy_mountpoint = options.layers.join(LAZY_MOUNTPOINT);
        let anchors = Anchors::new(directory.join(ANCHORS_DIR), &holder, &layers);
        let this = Self {
            clone,
            copy,
            overlay: OverlayProvider::new(
                &store,
                &holder,
                &layers,
                (file_owner, owner_ids),
                options.lazy,
                lazy_mountpoint,
            ),
            anchors,
            holder,
            layers,
            directory,
            store,
            part,
            selection,
            outside_writers: options.outside_writers,
            slots: Mutex::default(),
        };
        this.recover()?;
        Ok(this)
    }

    /// Returns the state of all writers of a workspace: those that the caller knows, and those outside of its control.
    fn all_writers(&self, known: Writers) -> Writers {
        known.and(self.outside_writers)
    }

    /// Returns the result of probing the providers.
    pub fn provider_selection(&self) -> &ProviderSelection {
        &self.selection
    }

    /// Returns the store of the snapshots.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the namespace holder that has the mounts of the workspaces.
    pub fn namespace_holder(&self) -> NamespaceHolder {
        self.holder.get()
    }

    /// Replaces the namespace holder after it has died. Later mounts use the new one.
    pub fn set_holder(&self, holder: NamespaceHolder) {
        self.holder.set(holder);
    }

    /// Creates a workspace. Removes everything again on failure.
    pub fn create(&self, id: &str, new: &NewWorkspace<'_>) -> Result<WorkspaceInfo> {
        self.create_with(&self.store, id, new)
    }

    /// Creates a workspace like [`Workspaces::create`]. All functions whose names end in `_with` stop when the
    /// [`Cancel`] flag of the handle `store` is set.
    fn create_with(&self, store: &Store, id: &str, new: &NewWorkspace<'_>) -> Result<WorkspaceInfo> {
        check_name(id)?;
        let kind = match new.anchor {
            // Only an overlay can follow an anchor.
            Some(_) => ProviderKind::Overlay,
            None => new.provider.unwrap_or(self.selection.kind),
        };
        self.check_available(kind)?;
        let slot = Arc::new(Slot::default());
        let mut workspace = slot.workspace.lock();
        {
            let mut slots = self.lock_slots();
            if slots.contains_key(id) {
                return Err(WorkspaceError::Exists { id: id.to_owned() });
            }
            slots.insert(id.to_owned(), Arc::clone(&slot));
        }
        let created = self.create_on_disk(store, id, kind, new);
        if created.is_err() {
            self.remove_slot(id, &slot);
        }
        let (record, lower) = created?;
        let info = self.info(id, &record.current, &lower);
        *slot.summary.lock() = Some(self.summarize(id, &record, &lower));
        *workspace = Some(LiveWorkspace { record, lower, former_lower: None, unchanged_digest: None });
        Ok(info)
    }

    /// Creates the directory of a workspace with its first generation. Removes everything again on failure.
    fn create_on_disk(
        &self,
        store: &Store,
        id: &str,
        kind: ProviderKind,
        new: &NewWorkspace<'_>,
    ) -> Result<(Record, LowerLayers)> {
        let directory = self.workspace_dir(id);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(WorkspaceError::Exists { id: id.to_owned() });
            }
            created => created.context("create", &directory)?,
        }
        let base = Base::new(store, self.part, new.snapshot, new.materialize);
        // The base of a follower is the head of its anchor, which changes, so it is neither recorded nor pinned.
        let base_id = base.as_ref().map_or(None, Base::id).filter(|_| new.anchor.is_none());
        let (idmap_uid, owner) = (new.idmap_uid, new.owner.map(str::to_owned));
        let read_only = kind == ProviderKind::Overlay && (new.read_only || new.anchor.is_some());
        let anchor = new.anchor.map(|anchor| anchor.name.to_owned());
        let first = Generation::first(kind, base_id);
        let mut record = Record::new(Generation { idmap_uid, owner, read_only, anchor, ..first });
        let lower = base.and_then(|base| {
            (new.prepare)(&directory);
            if let Some(anchor) = new.anchor {
                self.anchors.join(&anchor, id, &base)?;
            }
            self.create_first_generation(id, &directory, &mut record, &base)
        });
        if let Err(error) = &lower {
            tracing::debug!(workspace = id, %error, "failed to create workspace");
            self.remove_all(id, Some(&record))?;
        }
        lower.map(|lower| (record, lower))
    }

    /// Creates the first generation and then writes the record. A workspace without a record is incomplete, and is
    /// removed by the next [`Workspaces::open`].
    fn create_first_generation(
        &self,
        id: &str,
        directory: &Path,
        record: &mut Record,
        base: &Base,
    ) -> Result<LowerLayers> {
        let lower = self.create_generation(id, &record.creation_id, &mut record.current, base)?;
        record.write(directory)?;
        Ok(lower)
    }

    /// Pins the base, and creates the directory of a generation. Sets the field `layers` of `generation`.
    fn create_generation(
        &self,
        id: &str,
        creation_id: &str,
        generation: &mut Generation,
        base: &Base,
    ) -> Result<LowerLayers> {
        self.pin(id, base, generation.pin)?;
        let dir = self.generation_dir(id, creation_id, generation);
        fs::create_dir(&dir.root).context("create", &dir.root)?;
        let lower = self.provider(generation.provider).create(&dir, base)?;
        generation.layers = lower.layers();
        Ok(lower)
    }

    /// Pins the base snapshot with the id `pin`. Does nothing for an empty base.
    fn pin(&self, id: &str, base: &Base, pin: Option<PinId>) -> Result<()> {
        let (Some(snapshot), Some(pin)) = (&base.snapshot, pin) else { return Ok(()) };
        Ok(self.store.pin_as(pin, snapshot, &self.pin_holder(id), Durability::Buffered)?)
    }

    /// Returns the text in the field `holder` of the pins of a workspace, which says for what they are. For an empty
    /// id, it is the common prefix of these texts for all workspaces in this directory.
    fn pin_holder(&self, id: &str) -> String {
        format!("workspace {}/{id}", self.directory.display())
    }

    /// Returns the location and provider of a workspace.
    pub fn get(&self, id: &str) -> Result<WorkspaceInfo> {
        self.summary(id).map(|summary| summary.info)
    }

    /// Returns the path of the agent's directory.
    pub fn path(&self, id: &str) -> Result<PathBuf> {
        self.get(id).map(|info| info.path)
    }

    /// Opens the agent's directory for reading, also if it is mounted in other namespaces. This process opens files
    /// below it with its own permissions.
    ///
    /// After a reset to a new directory, the descriptor still refers to the former directory.
    pub fn open_root(&self, id: &str) -> Result<OwnedFd> {
        self.with_locked(id, |workspace| {
            let dir = self.current_dir(id, &workspace.record);
            self.provider(workspace.record.current.provider).open_root(&dir)
        })
    }

    /// Returns the record of a workspace.
    pub fn record(&self, id: &str) -> Result<Record> {
        self.with_locked(id, |workspace| Ok(workspace.record.clone()))
    }

    /// Removes a workspace with everything in it, if it exists.
    pub fn remove(&self, id: &str) -> Result<()> {
        check_name(id)?;
        // A workspace without a usable record has no slot. A new slot prevents another thread from creating a workspace
        // with the same name during the removal.
        let slot = Arc::clone(self.lock_slots().entry(id.to_owned()).or_default());
        let mut workspace = slot.workspace.lock();
        // Another thread may have removed the workspace and created a new one.
        if !self.lock_slots().get(id).is_some_and(|current| Arc::ptr_eq(current, &slot)) {
            return Ok(());
        }
        let directory = self.workspace_dir(id);
        Record::mark_removing(&directory)?;
        if let Some(workspace) = workspace.as_mut() {
            workspace.record.phase = Phase::Removing;
        }
        self.remove_all(id, workspace.as_ref().map(|workspace| &workspace.record))?;
        *workspace = None;
        *slot.summary.lock() = None;
        self.remove_slot(id, &slot);
        Ok(())
    }

    /// Removes a slot, unless the name has another slot by now.
    fn remove_slot(&self, id: &str, slot: &Arc<Slot>) {
        let mut slots = self.lock_slots();
        if slots.get(id).is_some_and(|current| Arc::ptr_eq(current, slot)) {
            slots.remove(id);
        }
    }

    /// Mounts a workspace again after a reboot or the death of the namespace holder. The caller guarantees
    /// that no process uses the former mount: two overlays with the same upper directory corrupt each other.
    pub fn remount(&self, id: &str) -> Result<WorkspaceInfo> {
        self.with_locked(id, |workspace| {
            let dir = self.current_dir(id, &workspace.record);
            let generation = &mut workspace.record.current;
            let base = self.base(generation)?;
            workspace.lower = self.provider(generation.provider).remount(&dir, &base, &generation.layers)?;
            generation.layers = workspace.lower.layers();
            workspace.record.write(&self.workspace_dir(id))?;
            Ok(self.info(id, &workspace.record.current, &workspace.lower))
        })
    }

    /// Measures the disk usage of a workspace, without shared layers.
    pub fn usage(&self, id: &str) -> Result<DiskUsage> {
        match self.summary(id) {
            // A workspace without a usable record has no summary.
            Err(WorkspaceError::NotFound { .. }) => Ok(measure(&self.holder.get(), &self.workspace_dir(id))),
            summary => summary.map(|summary| measure(&self.holder.get(), &summary.private_dir)),
        }
    }

    /// Measures the disk usage like [`Workspaces::usage`], but stops as soon as it exceeds `bounds`.
    pub fn usage_within(&self, id: &str, bounds: Bounds) -> Result<DiskUsage> {
        let private_dir = match self.summary(id) {
            Err(WorkspaceError::NotFound { .. }) => self.workspace_dir(id),
            summary => summary?.private_dir,
        };
        Ok(measure_within(&self.holder.get(), &private_dir, bounds))
    }

    /// Returns the layers below a workspace with their approximate sizes in bytes. Other workspaces may share
    /// them.
    pub fn layers_of(&self, id: &str) -> Vec<(String, u64)> {
        self.summary(id).map(|summary| self.layers.sizes(summary.layers)).unwrap_or_default()
    }

    /// Removes unused layers, the least recently used first, until twice the reserve ([`Options::reserve`]) is free.
    /// Returns false if less is free even without unused layers. [`Workspaces::collect_layers`] removes them by age.
    pub fn drop_unused_layers(&self) -> bool {
        self.layers.ensure_free_space()
    }

    /// Returns the path of the directory that holds the record and all generations of a workspace.
    pub fn directory_of(&self, id: &str) -> PathBuf {
        self.workspace_dir(id)
    }

    /// Lists all workspaces, including those without a usable record.
    pub fn list(&self) -> Result<Vec<WorkspaceEntry>> {
        let mut entries = Vec::new();
        for id in names(&self.directory)? {
            let record = match self.with_locked(&id, |workspace| Ok(workspace.record.clone())) {
                Err(WorkspaceError::NotFound { .. }) => Record::read(&self.directory.join(&id)),
                record => record,
            };
            entries.push(WorkspaceEntry { id, record: record.map_err(|error| error.to_string()) });
        }
        Ok(entries)
    }

    /// Removes all unused layers, or those whose retention time has passed (`selection`), regardless of the free disk
    /// space.
    pub fn collect_layers(&self, selection: UnusedLayers) -> Result<LayerGcResult> {
        self.layers.collect(Instant::now(), selection, self.store.cancel_flag())
    }

    /// Returns true while layers are being written in the background.
    pub fn is_materializing(&self) -> bool {
        self.layers.is_writing()
    }

    /// Unmounts the lazy mount if no workspace exists or is being created. Returns true if it was unmounted.
    pub fn unmount_lazy_mount(&self) -> Result<bool> {
        self.overlay.unmount_lazy_mount(&|| !self.lock_slots().is_empty())
    }

    /// Stops background writes and unlocks the directory of the layers, so that another process can open the same
    /// directories. Workspaces stay mounted. Do not use this value afterwards.
    pub fn close(&self) -> Result<()> {
        self.layers.close()
    }

    /// Removes a pin. A failure is only logged: it costs disk space until the next start of the server.
    fn unpin(&self, pin: Option<PinId>) {
        if let Some(pin) = pin
            && let Err(error) = self.store.unpin(pin)
        {
            tracing::warn!(%error, "failed to remove pin");
        }
    }

    /// Opens the base of a generation.
    fn base(&self, generation: &Generation) -> Result<Base> {
        Base::new(&self.store, self.part, generation.base, Materialize::default())
    }

    /// Returns the location and provider of a generation. `lower` has the layers below it.
    fn info(&self, id: &str, generation: &Generation, lower: &LowerLayers) -> WorkspaceInfo {
        // The creation id is only used for `unique_name`, which the path does not depend on, so it is left empty.
        let dir = self.generation_dir(id, "", generation);
        let path = self.provider(generation.provider).path(&dir);
        let anchor = match dir.kind {
            MountKind::Anchor(directory) => Some(directory),
            MountKind::Writable | MountKind::ReadOnly => None,
        };
        let read_only = generation.read_only;
        WorkspaceInfo { path, provider: generation.provider, lazy: lower.lazy, read_only, anchor }
    }

    /// Returns the directory of the current generation.
    fn current_dir(&self, id: &str, record: &Record) -> WorkspaceDir {
        self.generation_dir(id, &record.creation_id, &record.current)
    }

    /// Returns the directory of a workspace, with its record and its generations.
    fn workspace_dir(&self, id: &str) -> PathBuf {
        self.directory.join(id)
    }

    /// Returns the directory of a generation. `creation_id`, which is never reused, is only part of `unique_name`. Link
    /// labels (the numbers by which snapshots identify hard links) are derived from that name.
    fn generation_dir(&self, id: &str, creation_id: &str, generation: &Generation) -> WorkspaceDir {
        let number = generation.number;
        WorkspaceDir {
            root: self.workspace_dir(id).join(number.to_string()),
            unique_name: format!("{creation_id}/{number}"),
            idmap_uid: generation.idmap_uid,
            owner: generation.owner.clone(),
            kind: self.mount_kind(generation),
        }
    }

    /// Returns the kind of the directory that the agent sees.
    fn mount_kind(&self, generation: &Generation) -> MountKind {
        match &generation.anchor {
            Some(name) => MountKind::Anchor(self.anchors.directory_of(name)),
            None if generation.read_only => MountKind::ReadOnly,
            None => MountKind::Writable,
        }
    }

    fn provider(&self, kind: ProviderKind) -> &dyn Provider {
        match kind {
            ProviderKind::Overlay => &self.overlay,
            ProviderKind::Clone => &self.clone,
            ProviderKind::Copy => &self.copy,
        }
    }

    /// Fails if a provider cannot be used.
    fn check_available(&self, kind: ProviderKind) -> Result<()> {
        match self.selection.unavailable_reason(kind) {
            Some(reason) => Err(WorkspaceError::Provider { provider: kind, reason: reason.to_owned() }),
            None => Ok(()),
        }
    }

    fn lock_slots(&self) -> MutexGuard<'_, HashMap<String, Arc<Slot>>> {
        self.slots.lock()
    }

    /// Returns the slot of a workspace. Fails if it does not exist.
    fn slot(&self, id: &str) -> Result<Arc<Slot>> {
        self.lock_slots().get(id).cloned().ok_or_else(|| WorkspaceError::NotFound { id: id.to_owned() })
    }

    /// Returns the summary of a workspace. Fails if the workspace does not exist, or is being created.
    fn summary(&self, id: &str) -> Result<Summary> {
        let summary = self.slot(id)?.summary.lock().clone();
        summary.ok_or_else(|| WorkspaceError::NotFound { id: id.to_owned() })
    }

    /// Locks a workspace and runs `work` on it. Waits for other operations on the workspace.
    fn with_locked<T>(&self, id: &str, work: impl FnOnce(&mut LiveWorkspace) -> Result<T>) -> Result<T> {
        let slot = self.slot(id)?;
        self.run_locked(id, &slot, slot.workspace.lock(), work)
    }

    /// Locks a workspace and runs `work` on it. When `cancel` is set, stops waiting for the lock and fails.
    fn with_cancellable_lock<T>(
        &self,
        cancel: &Cancel,
        id: &str,
        work: impl FnOnce(&mut LiveWorkspace) -> Result<T>,
    ) -> Result<T> {
        let slot = self.slot(id)?;
        self.run_locked(id, &slot, lock_cancellable(&slot.workspace, cancel)?, work)
    }

    /// Runs `work` on a workspace whose lock is held, and updates the summary of its slot.
    fn run_locked<T>(
        &self,
        id: &str,
        slot: &Slot,
        mut workspace: MutexGuard<'_, Option<LiveWorkspace>>,
        work: impl FnOnce(&mut LiveWorkspace) -> Result<T>,
    ) -> Result<T> {
        let workspace = workspace.as_mut().ok_or_else(|| WorkspaceError::NotFound { id: id.to_owned() })?;
        // The base of a follower is the head that it sees now. A base that was read from disk may be outdated, so it is
        // replaced before each operation.
        if let Some(anchor) = &workspace.record.current.anchor {
            workspace.record.current.base = self.anchors.shown(anchor).map(|head| head.snapshot);
        }
        let result = work(workspace);
        *slot.summary.lock() = Some(self.summarize(id, &workspace.record, &workspace.lower));
        result
    }

    /// Creates the summary of a workspace.
    fn summarize(&self, id: &str, record: &Record, lower: &LowerLayers) -> Summary {
        let info = self.info(id, &record.current, lower);
        let private_dir = self.provider(record.current.provider).private_dir(&self.current_dir(id, record));
        Summary { info, private_dir, layers: lower.layers() }
    }
}

impl Drop for Workspaces {
    fn drop(&mut self) {
        self.layers.stop_writing();
    }
}

/// Creates a directory that other users cannot enter, because agents may have written files with set-id bits below it.
/// An existing directory loses the permissions of other users.
fn create_private_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).context("create", path)?;
    let mode = fs::metadata(path).context("stat", path)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7700)).context("change", path)?;
    }
    Ok(())
}

/// Fails if a workspace must not have this name.
fn check_name(id: &str) -> Result<()> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_reserved = id.starts_with('.') || id == KEPT_DIR || id == PROBE_DIR;
    let is_valid = !id.is_empty() && id.len() <= NAME_MAX && id.bytes().all(is_allowed) && !is_reserved;
    if is_valid { Ok(()) } else { Err(WorkspaceError::BadName { id: id.to_owned() }) }
}

/// Returns the names of workspaces in a directory, sorted. Ignores other entries.
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

//! Provider `overlay`: workspaces on the kernel's overlay file system.
//!
//! ```text
//! upper/   changes
//! work/    the kernel's work directory
//! mount/   the workspace, mounted in the mount namespace of the namespace holder
//! index    fingerprints of the files of `upper` at the last commit
//! ```
//!
//! A read-only workspace has only `mount`. A workspace that follows an *anchor* has none of these: the anchor is a
//! mount that shows the present files of a project to several workspaces, and the workspace shows that mount.
//!
//! The lower directories of an overlay are *layers*, read-only directories that workspaces share. A *stack* is the list
//! of layers that together show the base, the snapshot that the workspace was created from. Until a large base is
//! written as layers, the *lazy mount* is the lower directory: a FUSE mount that loads files on first read. The mounts
//! are in the namespaces of the *namespace holder*, a separate process, or of this process if it runs as root.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, setxattr, utimensat};
use workspace_host::NamespaceHolder;
use workspace_host::overlay::{self, Overlay as Mount, Upper, Xattrs};
use workspace_state::{Cancel, NewSnapshot, Node, OwnerIds, SnapshotId, Store, Tree, TreeId, escape_xattrs};

use crate::base::{Base, Materialize};
use crate::current_holder::CurrentHolder;
use crate::error::{Context as _, Result};
use crate::file_opener::FileOpener;
use crate::fingerprint_index::FingerprintIndex;
use crate::layers::{LayerSync, Layers, StackGuard};
use crate::lazy::LazyLayer;
use crate::lazy_command::LazyCommand;
use crate::provider::{
    ChangeDigest, CommitResult, DigestEffort, LowerLayers, MountKind, Provider, ReliableFingerprints,
    UncommittedContent, WorkspaceContent, WorkspaceDir,
};
use crate::provider_kind::ProviderKind;
use crate::upper::{Scan, digest};
use crate::writers::Writers;

/// Maximum number of entries of a digest. A larger upper directory has no digest, so each commit reads it.
const DIGEST_ENTRIES_MAX: usize = 200_000;
/// Number of entries below which a tree is not mounted lazily, but written before the workspace is created.
const SMALL_TREE_ENTRIES: usize = 1_000;

/// Provider of workspaces on the kernel's overlay file system.
#[derive(Debug)]
pub(crate) struct OverlayProvider {
    holder: CurrentHolder,
    layers: Layers,
    /// Lazy mount; `None` if all files are written before a workspace is created.
    lazy: Option<LazyLayer>,
    /// UID and GID that own the files of workspaces on disk; `None` for those of this process.
    file_owner: Option<(u32, u32)>,
    /// Range of the UIDs and GIDs on disk for root filesystems of sandboxes, whose files have several owners; `None` if
    /// all files belong to `file_owner`.
    owner_ids: Option<OwnerIds>,
}

/// Lower directories of a workspace, uppermost first, and the guard of their layers.
struct Lower {
    paths: Vec<PathBuf>,
    /// Guard that keeps the layers.
    layers: LowerLayers,
}

impl Lower {
    fn from_stack(stack: StackGuard) -> Self {
        Self { paths: stack.paths(), layers: LowerLayers { stack: Some(stack), lazy: false } }
    }
}

impl OverlayProvider {
    /// Creates the provider. `lazy` is the command that serves the lazy mount on `mountpoint`; `None` for no lazy
    /// mount.
    pub(crate) fn new(
        store: &Store,
        holder: &CurrentHolder,
        layers: &Layers,
        (file_owner, owner_ids): (Option<(u32, u32)>, Option<OwnerIds>),
        lazy: Option<LazyCommand>,
        mountpoint: PathBuf,
    ) -> Self {
        let lazy =
            lazy.map(|command| LazyLayer::new(command, store.path(), mountpoint, &holder.get(), file_owner));
        Self { holder: holder.clone(), layers: layers.clone(), lazy, file_owner, owner_ids }
    }

    /// Returns true if layers must escape extended attributes with the prefix `user.overlay.`, because overlays of this
    /// namespace holder keep their own attributes there, and agents can set such attributes.
    pub(crate) fn must_escape_overlay_xattrs(holder: &NamespaceHolder) -> bool {
        overlay::xattrs(holder) == Xattrs::User
    }

    /// Unmounts the lazy mount unless `is_used` returns true. Returns true if it was unmounted. No other thread can
    /// mount it during this call.
    pub(crate) fn unmount_lazy_mount(&self, is_used: &dyn Fn() -> bool) -> Result<bool> {
        self.lazy.as_ref().map_or(Ok(false), |lazy| lazy.unmount_if_unused(&self.holder.get(), is_used))
    }

    /// Returns the lower directories for a base: its layers, which are written if needed, or its directory in the lazy
    /// mount.
    fn find_lower(&self, dir: &WorkspaceDir, base: &Base) -> Result<Lower> {
        let Some(snapshot) = &base.snapshot else {
            return Ok(Lower { paths: vec![self.layers.empty()?], layers: LowerLayers::default() });
        };
        if let Some(stack) = self.layers.find_or_derive(&base.store, snapshot)? {
            return Ok(Lower::from_stack(stack));
        }
        let lazy = match (&self.lazy, base.materialize) {
            (None, _) | (_, Materialize::Full) => None,
            (Some(lazy), Materialize::Lazy) => Some(lazy),
            (Some(lazy), Materialize::Auto) => (!is_small(&base.tree)?).then_some(lazy),
        };
        let Some(lazy) = lazy else {
            return Ok(Lower::from_stack(self.layers.find_or_write(
                &base.store,
                snapshot,
                LayerSync::Unsynced,
            )?));
        };
        let needs_idmap = dir.idmap_uid.is_some();
        let path = match lazy.mount_snapshot(&self.holder.get(), &snapshot.id, needs_idmap) {
            Err(error) if base.materialize == Materialize::Auto => {
                tracing::warn!(%error, "failed to mount snapshot lazily; falling back to writing its files");
                return Ok(Lower::from_stack(self.layers.find_or_write(
                    &base.store,
                    snapshot,
                    LayerSync::Unsynced,
                )?));
            }
            path => path?,
        };
        if base.materialize == Materialize::Auto {
            // Background writes are scheduled fairly between the tenants that own the workspaces.
            self.layers.write_in_background(snapshot, dir.owner.as_deref().unwrap_or_default());
        }
        Ok(Lower { paths: vec![path], layers: LowerLayers { stack: None, lazy: true } })
    }

    /// Mounts the overlay of a workspace. If the process of the lazy mount has died, starts it again.
    fn mount(&self, dir: &WorkspaceDir, lower: &Lower) -> Result<()> {
        let (upper, work, mountpoint) = (dir.join("upper"), dir.join("work"), dir.join("mount"));
        let (upper, paths) = match dir.kind {
            MountKind::Writable => (Some(Upper { directory: &upper, work: &work }), lower.paths.clone()),
            MountKind::ReadOnly | MountKind::Anchor(_) => {
                (None, self.layers.lower_without_upper(&lower.paths)?)
            }
        };
        let mount = Mount { lower: &paths, upper, mount_point: &mountpoint, idmap_uid: dir.idmap_uid };
        let mounted = overlay::mount(&self.holder.get(), &mount);
        match (&self.lazy, mounted) {
            // The process of the lazy mount has died. The lower directory is `MOUNTPOINT/SNAPSHOT_ID` in the lazy
            // mount.
            (Some(lazy), Err(_))
                if lower.layers.lazy && !overlay::is_responding(&self.holder.get(), &lower.paths[0])? =>
            {
                lazy.unmount_if_dead(&self.holder.get())?;
                if let Some(id) = lower.paths[0].file_name().and_then(|name| name.to_str()?.parse().ok()) {
                    let needs_idmap = dir.idmap_uid.is_some();
                    lazy.mount_snapshot(&self.holder.get(), &id, needs_idmap)?;
                }
                Ok(overlay::mount(&self.holder.get(), &mount)?)
            }
            (_, mounted) => Ok(mounted?),
        }
    }

    /// Commits the content of a workspace, and records the fingerprints of its files.
    fn commit_content(
        &self,
        dir: &WorkspaceDir,
        content: UncommittedContent,
        new: NewSnapshot,
    ) -> Result<CommitResult> {
        let UncommittedContent { mut tree, skipped, skipped_count, files } = content;
        let snapshot = tree.commit(new)?;
        self.record_fingerprints(dir, files, snapshot.id);
        Ok(CommitResult { snapshot, skipped, skipped_count })
    }

    /// Creates the upper directory with the attributes of the root of the base.
    fn create_upper(&self, path: &Path, base: &Tree) -> Result<()> {
        fs::create_dir(path).context("create", path)?;
        let root = base.root();
        let Node::Directory(node) = root.node else { return Ok(()) };
        let owner = self.owner_ids.map(|ids| ids.owner_on_disk(&node.xattrs)).or(self.file_owner);
        // If files have several owners, the tree has the owner of an entry as an extended attribute. That attribute is
        // not written to disk.
        let xattrs = match self.owner_ids {
            Some(_) => OwnerIds::xattrs_on_disk(&node.xattrs).into_owned(),
            None => node.xattrs,
        };
        let xattrs = match overlay::xattrs(&self.holder.get()) {
            Xattrs::User => escape_xattrs(&xattrs),
            Xattrs::Trusted => xattrs,
        };
        for (name, value) in &xattrs {
            setxattr(path, name.as_slice(), value, XattrFlags::empty())
                .context("set the attributes of", path)?;
        }
        if let Some((user, group)) = owner {
            chown(path, Some(user), Some(group)).context("change the owner of", path)?;
        }
        let mode = u32::from(node.mode & 0o7777);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).context("change", path)?;
        if let Some(modified) = root.modified {
            let time = Timespec {
                tv_sec: modified.0.div_euclid(1_000_000_000),
                tv_nsec: modified.0.rem_euclid(1_000_000_000) as _,
            };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(CWD, path, &times, AtFlags::empty()).context("set the times of", path)?;
        }
        Ok(())
    }
}

impl Provider for OverlayProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Overlay
    }

    fn create(&self, dir: &WorkspaceDir, base: &Base) -> Result<LowerLayers> {
        let names: &[&str] = match dir.kind {
            MountKind::Writable => {
                self.create_upper(&dir.join("upper"), &base.tree)?;
                &["work", "mount"]
            }
            MountKind::ReadOnly => &["mount"],
            // The agent sees the mount of the anchor, which exists already.
            MountKind::Anchor(_) => return Ok(LowerLayers::default()),
        };
        for name in names {
            let path = dir.join(name);
            fs::create_dir(&path).context("create", &path)?;
        }
        let lower = self.find_lower(dir, base)?;
        self.mount(dir, &lower)?;
        Ok(lower.layers)
    }

    fn path(&self, dir: &WorkspaceDir) -> PathBuf {
        match &dir.kind {
            MountKind::Writable | MountKind::ReadOnly => dir.join("mount"),
            MountKind::Anchor(anchor) => workspace_host::anchor::head_path(anchor),
        }
    }

    fn open_root(&self, dir: &WorkspaceDir) -> Result<OwnedFd> {
        Ok(overlay::open_root(&self.holder.get(), &self.path(dir))?)
    }

    fn remount(&self, dir: &WorkspaceDir, base: &Base, layers: &[String]) -> Result<LowerLayers> {
        if matches!(dir.kind, MountKind::Anchor(_)) {
            return Ok(LowerLayers::default());
        }
        if self.is_available(dir)? {
            // An overlay with a base but without layers reads its base from the lazy mount.
            let lazy = layers.is_empty() && base.snapshot.is_some();
            return Ok(LowerLayers { stack: self.layers.reacquire(layers), lazy });
        }
        let lower = self.find_lower(dir, base)?;
        self.mount(dir, &lower)?;
        Ok(lower.layers)
    }

    fn prepare(&self, dir: &WorkspaceDir, base: &Base) -> Result<LowerLayers> {
        Ok(self.find_lower(dir, base)?.layers)
    }

    fn is_available(&self, dir: &WorkspaceDir) -> Result<bool> {
        let parent = match &dir.kind {
            MountKind::Writable | MountKind::ReadOnly => &dir.root,
            MountKind::Anchor(anchor) => anchor,
        };
        let found = fs::canonicalize(parent).context("find", parent)?;
        let path = self.path(dir);
        // `path` may exist only in the namespaces of the holder, so its parent directory is canonicalized instead.
        let mountpoint = path.strip_prefix(parent).map_or(path.clone(), |below| found.join(below));
        Ok(overlay::mounted(&self.holder.get(), parent)?.contains(&mountpoint))
    }

    // With `Writers::Running`, processes may change files meanwhile, so recently changed files are read twice.
    fn content(&self, dir: &WorkspaceDir, base: &Base, writers: Writers) -> Result<WorkspaceContent> {
        let UncommittedContent { tree, skipped, skipped_count, .. } = self.read(dir, base, writers)?;
        Ok(WorkspaceContent { tree: tree.preview()?, skipped, skipped_count })
    }

    fn commit(
        &self,
        dir: &WorkspaceDir,
        base: &Base,
        new: NewSnapshot,
        writers: Writers,
    ) -> Result<CommitResult> {
        self.commit_content(dir, self.read(dir, base, writers)?, new)
    }

    fn commit_if_changed(
        &self,
        dir: &WorkspaceDir,
        base: &Base,
        last_tree: &TreeId,
        new: NewSnapshot,
        writers: Writers,
    ) -> Result<Option<CommitResult>> {
        let content = self.read(dir, base, writers)?;
        if content.tree.preview()?.id() == *last_tree {
            return Ok(None);
        }
        self.commit_content(dir, content, new).map(Some)
    }

    fn change_digest(
        &self,
        dir: &WorkspaceDir,
        effort: DigestEffort,
        cancel: &Cancel,
    ) -> Result<Option<ChangeDigest>> {
        if dir.kind != MountKind::Writable {
            // The content of a read-only workspace is known without reading it.
            return Ok(None);
        }
        let path = dir.join("upper");
        // `DigestEffort::Quick` reads at most a few entries, and starts no helper process to open directories.
        let opener = effort.opener(&self.holder.get());
        digest::read(&opener, &path, effort.entries_max(DIGEST_ENTRIES_MAX), cancel)
    }

    fn read(&self, dir: &WorkspaceDir, base: &Base, writers: Writers) -> Result<UncommittedContent> {
        if dir.kind != MountKind::Writable {
            let (tree, files) = (base.to_virtual_tree()?, ReliableFingerprints::default());
            return Ok(UncommittedContent { tree, skipped: Vec::new(), skipped_count: 0, files });
        }
        let upper = dir.join("upper");
        let (holder, index) = (self.holder.get(), FingerprintIndex::read(&dir.join("index")));
        let scan = Scan {
            store: &base.store,
            holder: &holder,
            opener: &FileOpener::new(&holder),
            base,
            upper: &upper,
            // Link labels, the numbers of hard links in a snapshot, are derived from this name, which no other
            // workspace has.
            unique_name: &dir.unique_name,
            index: &index,
            // State of the processes that may write to the workspace during the scan.
            writers,
            owner_ids: self.owner_ids,
        };
        scan.run()
    }

    fn record_fingerprints(&self, dir: &WorkspaceDir, files: ReliableFingerprints, snapshot: SnapshotId) {
        if dir.kind != MountKind::Writable {
            return;
        }
        let index = FingerprintIndex { snapshot: Some(snapshot), files: files.0.into_iter().collect() };
        index.write(&dir.join("index"));
    }

    fn private_dir(&self, dir: &WorkspaceDir) -> PathBuf {
        // The files of the lower directories are in layers that workspaces share; the others are in the upper
        // directory.
        dir.join("upper")
    }

    fn unmount(&self, dir: &WorkspaceDir) -> Result<()> {
        // The upper directory is removed next, so `abandon` does not wait until the kernel has synced it.
        overlay::abandon(&self.holder.get(), &dir.join("mount"))?;
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        Ok(overlay::remove_tree(&self.holder.get(), path)?)
    }
}

/// Returns true if a tree has fewer than [`SMALL_TREE_ENTRIES`] entries. Stops reading a larger tree early.
fn is_small(tree: &Tree) -> Result<bool> {
    let Node::Directory(root) = tree.root().node else { return Ok(true) };
    let (mut pending, mut count) = (vec![root], 0);
    while let Some(directory) = pending.pop() {
        count += usize::try_from(directory.entries).unwrap_or(usize::MAX);
        if count >= SMALL_TREE_ENTRIES {
            return Ok(false);
        }
        let entries = tree.list(&directory)?;
        pending.extend(entries.into_iter().filter_map(|entry| match entry.node {
            Node::Directory(node) => Some(node),
            _ => None,
        }));
    }
    Ok(true)
}

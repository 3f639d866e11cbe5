//! Trait of the workspace providers, and the values that they return.
//!
//! A provider is a method of making the directory of a workspace: overlay (the kernel's overlay file system), clone
//! (reflinked files) or copy. The *base* of a workspace is the snapshot that it was created from. A *generation* is one
//! of the directories that a workspace has had: a reset to another snapshot creates the next one, unless it replaces
//! the files in place. *Layers* are read-only directories, the lower directories of overlays; a *stack* is the list of
//! layers that together show one tree.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use workspace_state::{
    Cancel, NewSnapshot, SkippedEntry, Snapshot, SnapshotId, StatFingerprint, Tree, TreeId, VirtualTree,
};

use crate::base::Base;
use crate::error::{Result, WorkspaceError};
use crate::layers::StackGuard;
use crate::provider_kind::ProviderKind;
use crate::writers::Writers;

/// Directory of one generation of a workspace, managed by its provider.
#[derive(Debug, Clone)]
pub struct WorkspaceDir {
    /// Path of the directory, which exists. Only the provider changes it.
    pub(crate) root: PathBuf,
    /// Creation id of the workspace ([`Record::creation_id`](crate::Record)) and number of the generation. No other
    /// workspace has this name. If a reset is undone, the next reset uses the same number again.
    pub(crate) unique_name: String,
    /// UID that owns the files inside the sandbox; `None` if the mount is not idmapped.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has idmapped mounts"))]
    pub(crate) idmap_uid: Option<u32>,
    /// Tenant that owns the workspace, for fair scheduling of background writes; `None` if it is unknown.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only overlays have background writes"))]
    pub(crate) owner: Option<String>,
    /// Kind of the directory that the agent sees.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only overlays can be read-only"))]
    pub(crate) kind: MountKind,
}

/// Kind of the directory that the agent in a workspace sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MountKind {
    /// Directory that the agent may change.
    Writable,
    /// Overlay without an upper directory.
    ReadOnly,
    /// Mount of an anchor, read-only. It shows the present files of a project to several workspaces. The path is the
    /// directory of the anchor.
    Anchor(PathBuf),
}

impl WorkspaceDir {
    /// Returns the path of an entry of the directory.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

/// Layers below a workspace. They are not removed as long as this value lives.
#[derive(Debug, Default)]
pub struct LowerLayers {
    /// Guard of the layers; `None` if the base is empty or read from the lazy mount, or if the provider uses no layers.
    pub(crate) stack: Option<StackGuard>,
    /// Set if the base is read from the lazy mount, a FUSE mount that loads files on first read.
    pub(crate) lazy: bool,
}

impl LowerLayers {
    /// Returns the names of the layers, lowest first.
    pub(crate) fn layers(&self) -> Vec<String> {
        self.stack.as_ref().map(|stack| stack.layers.clone()).unwrap_or_default()
    }
}

/// Current content of a workspace.
#[derive(Clone)]
pub struct WorkspaceContent {
    /// Content as an uncommitted tree.
    pub tree: Tree,
    /// First thousand entries that a snapshot cannot hold, such as sockets.
    pub skipped: Vec<SkippedEntry>,
    /// Number of all entries that a snapshot cannot hold.
    pub skipped_count: u64,
}

/// Content of a workspace, which the caller commits.
pub struct UncommittedContent {
    /// Content as a virtual tree, which can be changed and committed.
    pub tree: VirtualTree,
    /// First thousand entries that a snapshot cannot hold, such as sockets.
    pub skipped: Vec<SkippedEntry>,
    /// Number of all entries that a snapshot cannot hold.
    pub skipped_count: u64,
    /// Fingerprints of the files, for [`Workspaces::record_fingerprints`](crate::Workspaces::record_fingerprints).
    pub files: ReliableFingerprints,
}

/// Paths of files of a workspace with their fingerprints (mode, size, mtime, ctime and inode) at the time of the read.
/// Only reliable fingerprints are included: those that any later change of the file changes.
#[derive(Debug, Default)]
pub struct ReliableFingerprints(pub(crate) Vec<(Vec<u8>, StatFingerprint)>);

/// Result of a commit of a workspace.
#[derive(Debug, Clone)]
pub struct CommitResult {
    /// Snapshot that was committed.
    pub snapshot: Snapshot,
    /// First thousand entries that a snapshot cannot hold, such as sockets.
    pub skipped: Vec<SkippedEntry>,
    /// Number of all entries that a snapshot cannot hold.
    pub skipped_count: u64,
}

/// Digest of the entries of a workspace without their content (`upper/digest.rs`). If a later digest has the same hash
/// as a reliable one, nothing has changed in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeDigest {
    /// BLAKE3 hash of paths, modes, sizes, times and inodes.
    pub(crate) hash: [u8; 32],
    /// False if an entry has changed so recently that another change may leave the hash as it is.
    pub(crate) is_reliable: bool,
}

/// Effort that may be spent on the computation of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestEffort {
    /// Reads as many entries as the provider allows. This is cheaper than reading their content.
    Full,
    /// Reads at most [`QUICK_ENTRIES_MAX`] entries, and starts no helper process: for callers that must not block.
    Quick,
}

/// Maximum number of entries of a digest that is computed with [`DigestEffort::Quick`].
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "digests need Linux"))]
const QUICK_ENTRIES_MAX: usize = 64;

#[cfg(target_os = "linux")]
impl DigestEffort {
    /// Returns the maximum number of entries of a digest. `full_max` is the maximum for [`DigestEffort::Full`].
    pub(crate) fn entries_max(self, full_max: usize) -> usize {
        if self == Self::Full { full_max } else { QUICK_ENTRIES_MAX }
    }

    /// Returns the opener for the entries. With [`DigestEffort::Quick`], it does not open directories without read
    /// permission through a helper process, so such a directory makes the digest fail.
    pub(crate) fn opener(self, holder: &workspace_host::NamespaceHolder) -> crate::file_opener::FileOpener {
        let no_helper = &workspace_host::NamespaceHolder::None;
        crate::file_opener::FileOpener::new(if self == Self::Full { holder } else { no_helper })
    }
}

/// Failure of a reset in place: the replacement of the files in a workspace's directory by those of another snapshot.
#[derive(Debug)]
pub struct ResetInPlaceError {
    /// Cause.
    pub error: WorkspaceError,
    /// Set if the workspace has its former content. Otherwise its content may be a mix of both snapshots.
    pub is_undone: bool,
}

/// Converts a failure that happened before a file was changed, which counts as undone. Later failures are constructed
/// with their value of `is_undone`.
impl From<WorkspaceError> for ResetInPlaceError {
    fn from(error: WorkspaceError) -> Self {
        Self { error, is_undone: true }
    }
}

/// Method of making the directory of a workspace: overlay, clone or copy. The tests in `tests/providers` run against
/// every provider.
pub trait Provider: Send + Sync + fmt::Debug {
    /// Returns the kind of this provider, which is stored in the records of its workspaces.
    fn kind(&self) -> ProviderKind;

    /// Creates the workspace in `dir` with the content of `base`. The result keeps the layers below the workspace from
    /// being removed.
    fn create(&self, dir: &WorkspaceDir, base: &Base) -> Result<LowerLayers>;

    /// Returns the path of the agent's directory, which is inside `dir` unless an anchor is followed.
    fn path(&self, dir: &WorkspaceDir) -> PathBuf;

    /// Opens the agent's directory for reading. Fails if it should be a mount and is not mounted.
    fn open_root(&self, dir: &WorkspaceDir) -> Result<OwnedFd>;

    /// Mounts an existing workspace again, after a reboot or the death of the process that mounted it.
    /// `layers` are its former layers.
    fn remount(&self, dir: &WorkspaceDir, base: &Base, layers: &[String]) -> Result<LowerLayers>;

    /// Returns the current content of the agent's directory.
    fn content(&self, dir: &WorkspaceDir, base: &Base, writers: Writers) -> Result<WorkspaceContent>;

    /// Commits the current content as a snapshot.
    fn commit(
        &self,
        dir: &WorkspaceDir,
        base: &Base,
        new: NewSnapshot,
        writers: Writers,
    ) -> Result<CommitResult>;

    /// Reads the current content, to be committed by the caller in a snapshot of another workspace. Fails if the
    /// provider does not support it: only an overlay does.
    fn read(&self, dir: &WorkspaceDir, base: &Base, writers: Writers) -> Result<UncommittedContent> {
        let _ = (dir, base, writers);
        let reason = "its content cannot be committed with that of another workspace".to_owned();
        Err(WorkspaceError::Provider { provider: self.kind(), reason })
    }

    /// Records that a snapshot has the content that was read, so that the next commit skips unchanged files. Does
    /// nothing for clone and copy, where the store's stat index has the fingerprints.
    fn record_fingerprints(&self, dir: &WorkspaceDir, files: ReliableFingerprints, snapshot: SnapshotId) {
        let _ = (dir, files, snapshot);
    }

    /// Commits the current content as a snapshot. Returns `None`, without a commit, if the content is `last_tree`.
    fn commit_if_changed(
        &self,
        dir: &WorkspaceDir,
        base: &Base,
        last_tree: &TreeId,
        new: NewSnapshot,
        writers: Writers,
    ) -> Result<Option<CommitResult>> {
        if self.content(dir, base, writers)?.tree.id() == *last_tree {
            return Ok(None);
        }
        self.commit(dir, base, new, writers).map(Some)
    }

    /// Computes a digest of the entries that may have changed, without reading their content. Returns `None` if there
    /// are too many entries, entries change meanwhile, or the provider does not support digests.
    fn change_digest(
        &self,
        dir: &WorkspaceDir,
        effort: DigestEffort,
        cancel: &Cancel,
    ) -> Result<Option<ChangeDigest>> {
        let _ = (dir, effort, cancel);
        Ok(None)
    }

    /// Replaces the files in the agent's directory by those of another base. Fails if the provider does not support it:
    /// a workspace made by overlay gets a new generation instead.
    fn reset_in_place(&self, dir: &WorkspaceDir, base: &Base) -> Result<(), ResetInPlaceError> {
        let _ = (dir, base);
        let reason = "its workspaces cannot be reset in place".to_owned();
        Err(WorkspaceError::Provider { provider: self.kind(), reason }.into())
    }

    /// Writes the layers that [`Provider::create`] needs for `base`. The result keeps the layers from being removed.
    fn prepare(&self, dir: &WorkspaceDir, base: &Base) -> Result<LowerLayers> {
        let _ = (dir, base);
        Ok(LowerLayers::default())
    }

    /// Returns false if the agent's directory should be a mount and is not mounted.
    fn is_available(&self, dir: &WorkspaceDir) -> Result<bool> {
        let _ = dir;
        Ok(true)
    }

    /// Returns the directory whose disk usage is charged to this workspace. Shared layers are not in it.
    fn private_dir(&self, dir: &WorkspaceDir) -> PathBuf;

    /// Unmounts all mounts in `dir`, so that it can be removed.
    fn unmount(&self, dir: &WorkspaceDir) -> Result<()>;

    /// Removes a directory with everything in it, if it exists.
    fn remove(&self, path: &Path) -> Result<()>;
}

//! Trait of the workspace providers (overlay, clone, copy), and the values that they return.

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
    /// Path of the directory. It exists, and only the provider uses it.
    pub(crate) root: PathBuf,
    /// Creation id of the workspace ([`Record::creation_id`](crate::Record)) and number of the generation. No other
    /// workspace has this name. A reset that is undone leaves its number to the next reset.
    pub(crate) unique_name: String,
    /// UID that owns the files inside the sandbox; `None` if the mount is not idmapped.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has idmapped mounts"))]
    pub(crate) idmap_uid: Option<u32>,
    /// Tenant that owns the workspace, for fair scheduling of background writes; `None` if it is unknown.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only overlays have background writes"))]
    pub(crate) owner: Option<String>,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only overlays can be read-only"))]
    pub(crate) kind: MountKind,
}

/// Kind of the directory that an agent sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MountKind {
    /// The agent may change it.
    Writable,
    /// An overlay without an upper directory.
    ReadOnly,
    /// The head of the anchor in this directory, read-only.
    Anchor(PathBuf),
}

impl WorkspaceDir {
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

/// Layers below a workspace. They are not removed as long as this value lives.
#[derive(Debug, Default)]
pub struct LowerLayers {
    /// `None` if the base is empty or mounted lazily, or if the provider uses no layers.
    pub(crate) stack: Option<StackGuard>,
    /// Set if files are loaded on first read from the lazy mount.
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

/// Content of a workspace that was read, to be committed by the caller.
pub struct UncommittedContent {
    /// Content as a tree that can be changed and committed.
    pub tree: VirtualTree,
    /// First thousand entries that a snapshot cannot hold, such as sockets.
    pub skipped: Vec<SkippedEntry>,
    /// Number of all entries that a snapshot cannot hold.
    pub skipped_count: u64,
    /// Fingerprints of the files, for [`Workspaces::record_fingerprints`](crate::Workspaces::record_fingerprints).
    pub files: ReliableFingerprints,
}

/// Paths of files of a workspace with their fingerprints (mode, size, times, inode) when they were read. Only
/// reliable fingerprints: any later change of the file changes them.
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

/// Digest of the entries of a workspace without their content (`upper/digest.rs`). If a reliable digest is equal to a
/// later one, nothing has changed in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeDigest {
    pub(crate) hash: [u8; 32],
    /// False if an entry has changed so recently that another change may leave the digest as it is.
    pub(crate) is_reliable: bool,
}

/// Effort to compute a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestEffort {
    /// As many entries as the provider allows. Still cheaper than reading their content.
    Full,
    /// At most [`QUICK_ENTRIES_MAX`] entries, and no helper process: for callers that must not block.
    Quick,
}

/// Maximum number of entries of a digest that is computed with [`DigestEffort::Quick`].
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "digests need Linux"))]
const QUICK_ENTRIES_MAX: usize = 64;

#[cfg(target_os = "linux")]
impl DigestEffort {
    /// Returns the maximum number of entries. `full_max` is the one for [`DigestEffort::Full`].
    pub(crate) fn entries_max(self, full_max: usize) -> usize {
        if self == Self::Full { full_max } else { QUICK_ENTRIES_MAX }
    }

    /// Returns the access to the entries. With [`DigestEffort::Quick`], a directory without read permission makes the
    /// digest fail, because no helper process opens it.
    pub(crate) fn opener(self, holder: &workspace_host::NamespaceHolder) -> crate::file_opener::FileOpener {
        let no_helper = &workspace_host::NamespaceHolder::None;
        crate::file_opener::FileOpener::new(if self == Self::Full { holder } else { no_helper })
    }
}

/// Failure of a reset in place.
#[derive(Debug)]
pub struct ResetInPlaceError {
    /// Cause.
    pub error: WorkspaceError,
    /// Set if the workspace has its former content; otherwise it may be a mix of both contents.
    pub is_undone: bool,
}

/// Converts a failure before anything was changed: it counts as undone. Later failures are constructed with their flag.
impl From<WorkspaceError> for ResetInPlaceError {
    fn from(error: WorkspaceError) -> Self {
        Self { error, is_undone: true }
    }
}

/// Method of making the directory of a workspace: overlay, clone or copy. The tests in `tests/providers` run against
/// every provider.
pub trait Provider: Send + Sync + fmt::Debug {
    /// Returns the kind by which the provider is selected and recorded.
    fn kind(&self) -> ProviderKind;

    /// Creates the workspace in `dir` with the content of `base`. The result keeps its layers from being
    /// removed.
    fn create(&self, dir: &WorkspaceDir, base: &Base) -> Result<LowerLayers>;

    /// Returns the path of the agent's directory.
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

    /// Commits the current content as a snapshot. Returns `None` if the content is the tree `last_tree`.
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
    /// are too many, they change meanwhile, or the provider cannot do that.
    fn change_digest(
        &self,
        dir: &WorkspaceDir,
        effort: DigestEffort,
        cancel: &Cancel,
    ) -> Result<Option<ChangeDigest>> {
        let _ = (dir, effort, cancel);
        Ok(None)
    }

    /// Resets the agent's directory to another base in place. Fails if the provider does not support it: a workspace
    /// made by overlay gets a new generation instead.
    fn reset_in_place(&self, dir: &WorkspaceDir, base: &Base) -> Result<(), ResetInPlaceError> {
        let _ = (dir, base);
        let reason = "its workspaces cannot be reset in place".to_owned();
        Err(WorkspaceError::Provider { provider: self.kind(), reason }.into())
    }

    /// Writes the layers that [`Provider::create`] needs for this base. The result keeps them from being removed.
    fn prepare(&self, dir: &WorkspaceDir, base: &Base) -> Result<LowerLayers> {
        let _ = (dir, base);
        Ok(LowerLayers::default())
    }

    /// Returns false if the agent's directory should be a mount and is not mounted.
    fn is_available(&self, dir: &WorkspaceDir) -> Result<bool> {
        let _ = dir;
        Ok(true)
    }

    /// Returns the directory whose disk usage is charged to this workspace, without shared layers.
    fn private_dir(&self, dir: &WorkspaceDir) -> PathBuf;

    /// Unmounts all mounts in the directory, so that it can be removed.
    fn unmount(&self, dir: &WorkspaceDir) -> Result<()>;

    /// Removes a directory with everything in it, if it exists.
    fn remove(&self, path: &Path) -> Result<()>;
}

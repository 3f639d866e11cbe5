//! Providers: ways of making workspaces.

use std::fmt;
use std::path::{Path, PathBuf};

use workspace_state::{NewSnapshot, Skipped, Snapshot, Tree};

use crate::base::Base;
use crate::error::Result;
use crate::kind::Kind;
use crate::layers::StackGuard;

/// Directory of one generation of a workspace, in which its provider may write.
#[derive(Debug, Clone)]
pub struct WorkspaceDir {
    /// Path; the directory exists and is used only by the provider.
    pub(crate) root: PathBuf,
    /// Unique name, never reused.
    pub(crate) name: String,
    /// User id of a sandbox's own user, to whom a mount shows the files as their owner.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "only Linux can show files to another user")
    )]
    pub(crate) user: Option<u32>,
    /// Owner of the workspace, for fair scheduling; `None` if it is unknown.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only overlays are filled later"))]
    pub(crate) owner: Option<String>,
}

impl WorkspaceDir {
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

/// Layers below a workspace.
#[derive(Debug, Default)]
pub struct LowerLayers {
    pub(crate) held: Option<StackGuard>,
    /// Set if its files are loaded on first read from the lazy mount.
    pub(crate) lazy: bool,
}

impl LowerLayers {
    /// Returns the names of the layers, lowest first.
    pub(crate) fn layers(&self) -> Vec<String> {
        self.held.as_ref().map(|held| held.layers.clone()).unwrap_or_default()
    }
}

/// Current content of a workspace.
#[derive(Clone)]
pub struct Present {
    /// Content as an uncommitted tree.
    pub tree: Tree,
    /// First thousand entries that no snapshot can hold.
    pub skipped: Vec<Skipped>,
    /// Number of all entries that no snapshot can hold.
    pub skipped_count: u64,
}

/// Result of a commit of a workspace.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// First thousand entries that are not in it.
    pub skipped: Vec<Skipped>,
    /// Number of all entries that are not in it.
    pub skipped_count: u64,
}

/// A way of making workspaces. One test suite checks all of them.
///
/// `quiescent` means that no process writes to the workspace during the call.
pub trait Provider: Send + Sync + fmt::Debug {
    /// Returns the name of the provider.
    fn kind(&self) -> Kind;

    /// Fills `dir` with the content of `base`. The layers below it are kept as long as the result lives.
    fn make(&self, dir: &WorkspaceDir, base: &Base) -> Result<LowerLayers>;

    /// Returns the path of the agent's directory.
    fn path(&self, dir: &WorkspaceDir) -> PathBuf;

    /// Mounts a workspace of another process, or from before a reboot, again. `layers` are its former layers.
    fn revive(&self, dir: &WorkspaceDir, base: &Base, layers: &[String]) -> Result<LowerLayers>;

    /// Returns the current content of the agent's directory.
    fn present(&self, dir: &WorkspaceDir, base: &Base, quiescent: bool) -> Result<Present>;

    /// Commits the current content as a snapshot.
    fn commit(&self, dir: &WorkspaceDir, base: &Base, new: NewSnapshot, quiescent: bool)
    -> Result<Committed>;

    /// Changes the agent's directory to another base in place, if this provider supports that: then no other
    /// directory is needed. Returns false if it does not.
    fn switch(&self, dir: &WorkspaceDir, base: &Base) -> Result<bool> {
        let _ = (dir, base);
        Ok(false)
    }

    /// Writes everything that `make` would need for this base, and keeps it as long as the result lives.
    fn prepare(&self, dir: &WorkspaceDir, base: &Base) -> Result<LowerLayers> {
        let _ = (dir, base);
        Ok(LowerLayers::default())
    }

    /// Returns true if the agent's directory is intact: a mount may be gone.
    fn is_there(&self, dir: &WorkspaceDir) -> Result<bool> {
        let _ = dir;
        Ok(true)
    }

    /// Returns the directory that is not shared with other workspaces.
    fn own(&self, dir: &WorkspaceDir) -> PathBuf;

    /// Unmounts everything. The directory is removed afterwards.
    fn clear(&self, dir: &WorkspaceDir) -> Result<()>;

    /// Removes a directory with everything in it, if it exists.
    fn remove(&self, path: &Path) -> Result<()>;
}

//! Ways of making workspaces.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use workspace_state::{NewSnapshot, Skipped, Snapshot, Tree};

use crate::base::Base;
use crate::error::Result;
use crate::layers::Held;

/// The name of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The kernel's overlay over shared layers.
    Overlay,
    /// Files that share their blocks until they are written to.
    Clone,
    /// Whole files.
    Copy,
}

impl Kind {
    /// All of them, the best first.
    pub const ALL: [Self; 3] = [Self::Overlay, Self::Clone, Self::Copy];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlay => "overlay",
            Self::Clone => "clone",
            Self::Copy => "copy",
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is no provider: overlay, clone and copy are"))
    }
}

/// The directory of one generation of a workspace: what a provider may write in.
#[derive(Debug, Clone)]
pub struct Place {
    /// Exists, and nothing else is in it.
    pub(crate) root: PathBuf,
    /// Told from every other, also from those that are gone.
    pub(crate) name: String,
    /// The user of a sandbox's own to whom a mount shows files as his.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "only Linux can show files to another user")
    )]
    pub(crate) user: Option<u32>,
    /// Whose it is, for turns; none where nobody said.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only overlays are filled later"))]
    pub(crate) owner: Option<String>,
}

impl Place {
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

/// What a workspace lies over.
#[derive(Debug, Default)]
pub struct Under {
    pub(crate) held: Option<Held>,
    /// Whether its files are loaded as they are read.
    pub(crate) lazy: bool,
}

impl Under {
    /// The names of the layers, lowest first.
    pub(crate) fn layers(&self) -> Vec<String> {
        self.held.as_ref().map(|held| held.layers.clone()).unwrap_or_default()
    }
}

/// What is in a workspace now.
#[derive(Clone)]
pub struct Present {
    /// As a tree that is not part of the store.
    pub tree: Tree,
    /// The first thousand entries that no snapshot can hold.
    pub skipped: Vec<Skipped>,
    /// Number of all entries that no snapshot can hold.
    pub skipped_count: u64,
}

/// A snapshot that was made of a workspace.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The first thousand entries that are not in it.
    pub skipped: Vec<Skipped>,
    /// Number of all entries that are not in it.
    pub skipped_count: u64,
}

/// A way of making workspaces. All are held to one suite of tests.
///
/// `still` says that nobody writes to the workspace during the call.
pub trait Provider: Send + Sync + fmt::Debug {
    /// Its name.
    fn kind(&self) -> Kind;

    /// Makes `place` hold what `base` holds. The layers that it lies over stay for as long as the answer lives.
    fn make(&self, place: &Place, base: &Base) -> Result<Under>;

    /// Where the agent's directory is.
    fn path(&self, place: &Place) -> PathBuf;

    /// Takes up a workspace of another process, or of the time before the machine was started anew. `layers` are
    /// those it lay over.
    fn revive(&self, place: &Place, base: &Base, layers: &[String]) -> Result<Under>;

    /// What the agent's directory holds now.
    fn present(&self, place: &Place, base: &Base, quiescent: bool) -> Result<Present>;

    /// Makes that a snapshot.
    fn commit(&self, place: &Place, base: &Base, new: NewSnapshot, quiescent: bool) -> Result<Committed>;

    /// Makes the agent's directory hold another base in place, if this provider can: then nobody needs another
    /// directory. False if it cannot.
    fn switch(&self, place: &Place, base: &Base) -> Result<bool> {
        let _ = (place, base);
        Ok(false)
    }

    /// Writes what `make` would write for every workspace of this base, and keeps it for as long as the answer lives.
    fn prepare(&self, place: &Place, base: &Base) -> Result<Under> {
        let _ = (place, base);
        Ok(Under::default())
    }

    /// Returns true if the agent's directory is what was made: a mount may be gone.
    fn is_there(&self, place: &Place) -> Result<bool> {
        let _ = place;
        Ok(true)
    }

    /// What belongs to this workspace alone.
    fn own(&self, place: &Place) -> PathBuf;

    /// Lets go of what is mounted. The place is removed afterwards.
    fn clear(&self, place: &Place) -> Result<()>;

    /// Removes a directory of a place with all in it. What is not there is gone.
    fn remove(&self, path: &Path) -> Result<()>;
}

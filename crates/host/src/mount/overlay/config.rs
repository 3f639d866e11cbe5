//! Directories and attributes of an overlay.

use std::path::{Path, PathBuf};

/// Maximum number of read-only layers that the kernel supports. Before Linux 6.7 all paths must fit into the options of
/// `mount(2)`, which limits them to about 200; more fail when the overlay is mounted.
pub const LAYERS_MAX: usize = 500;

/// Directories of an overlay.
#[derive(Debug, Clone, Copy)]
pub struct Overlay<'a> {
    /// Read-only layers, topmost first.
    pub lower: &'a [PathBuf],
    /// Directories that get the changes. `None` for a read-only overlay, which needs at least two lower layers.
    pub upper: Option<Upper<'a>>,
    /// Mount point.
    pub mount_point: &'a Path,
    /// UID of a sandbox to which all layers are id-mapped ([`dedicated_uids`](crate::dedicated_uids)); `None` to
    /// mount them as they are. With a UID, upper and work directory must be in one directory. Needs root.
    pub idmap_uid: Option<u32>,
}

/// Directories of an overlay that can be written to.
#[derive(Debug, Clone, Copy)]
pub struct Upper<'a> {
    /// Upper directory, which gets the changes.
    pub directory: &'a Path,
    /// Work directory of the kernel: empty, and on the filesystem of the upper directory.
    pub work: &'a Path,
}

impl<'a> Overlay<'a> {
    /// Returns upper and work directory; nothing if the overlay is read-only.
    pub(super) fn writable_dirs(&self) -> impl Iterator<Item = &'a Path> + use<'a> {
        self.upper.into_iter().flat_map(|upper| [upper.directory, upper.work])
    }
}

/// Extended attributes in which overlays keep their metadata. Attributes with the other prefix are ordinary
/// data for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Xattrs {
    /// `trusted.overlay.*`, which only root of the host can read.
    Trusted,
    /// `user.overlay.*`
    User,
}

impl Xattrs {
    /// Returns the prefix of the names.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Trusted => "trusted.overlay.",
            Self::User => "user.overlay.",
        }
    }
}

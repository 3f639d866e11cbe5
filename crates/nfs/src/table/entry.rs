//! Files of a [`Table`](super::Table), which maps the ids in file handles to files.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::Arc;

/// Unique id of a file in its export. Ids are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileId(pub(crate) u64);

/// Id of the root directory of every export.
pub(crate) const ROOT: FileId = FileId(1);

/// Directory entry at which a file was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) parent: FileId,
    pub(crate) name: Arc<CStr>,
}

impl Location {
    /// Returns true if this is the entry with a name in a directory.
    pub(super) fn is(&self, parent: FileId, name: &CStr) -> bool {
        self.parent == parent && *self.name == *name
    }
}

/// File that clients have handles for.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) inode: Inode,
    /// Inode number that clients see. It stays when the file moves to another layer of an overlay.
    pub(crate) fileid: u64,
    /// Main location. `None` if all known names were removed while the file had more links.
    pub(crate) location: Option<Location>,
    /// Locations of further known hard links.
    pub(crate) others: Vec<Location>,
    /// Number of times that the file goes from the front to the back of the queue for eviction before it is evicted.
    pub(super) chances: Cell<u8>,
}

impl Entry {
    pub(super) fn new(inode: Inode, fileid: u64, location: Option<Location>) -> Self {
        Self { inode, fileid, location, others: Vec::new(), chances: Cell::new(0) }
    }

    /// Returns all known locations.
    pub(super) fn locations(&self) -> impl Iterator<Item = &Location> {
        self.location.iter().chain(&self.others)
    }
}

/// Inode of a file, by which the file is recognised at a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode {
    /// Device number, or zero for the device of the export's root. The root's number is not stored, because it may
    /// change when the same file system is mounted again.
    pub(crate) device: u64,
    pub(crate) number: u64,
    /// Birth time (`stx_btime`) in nanoseconds, or zero if the file system has none.
    pub(crate) born: u64,
}

impl Inode {
    /// Returns device and inode number.
    pub(super) fn key(&self) -> (u64, u64) {
        (self.device, self.number)
    }

    /// Returns true if both are the same file. A file that reuses the inode number of another has a different birth
    /// time.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    /// Returns true if this may be a file of a lower overlay layer, and `other` its copy in the upper layer. The copy
    /// has the same inode number, but a new birth time. The birth time of `root`, the root of the export, is that of
    /// the upper layer: every file of the lower layer is older, and every copy is younger.
    pub(super) fn may_be_copied_to(&self, other: &Self, root: &Self) -> bool {
        self.key() == other.key() && self.born <= root.born && other.born >= root.born
    }
}

//! Options and results of checkouts.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::owner_ids::OwnerIds;

/// Number of bytes that a [`WriteLimit`] counts for each file, directory or symlink, in addition to file content.
pub(super) const ENTRY_BYTES: u64 = 4096;

/// Limit on the number of bytes that a checkout writes. Several threads call it at once, each before a write.
pub trait WriteLimit: fmt::Debug + Send + Sync {
    /// Counts `bytes` bytes against the limit. An error ends the checkout; files that were written before are kept.
    fn take(&self, bytes: u64) -> io::Result<()>;
}

/// Time at which a checkout searches for local changes that it would undo, and handling of these changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EditCheck {
    /// Before anything is written. The checkout fails if there are local changes.
    #[default]
    Before,
    /// Before anything is written, and again for each entry just before it is replaced or removed, because processes
    /// may write to the directory during the checkout. A local change that is found in the second search ends the
    /// checkout halfway with [`DirectoryError::LocalEdits`](crate::DirectoryError::LocalEdits).
    /// [`undo_checkout`](crate::undo_checkout) then restores the former tree.
    EachTime,
    /// For each entry just before it is replaced or removed. Changed entries are kept.
    Keep,
}

/// Options of a checkout.
#[derive(Debug, Clone, Default)]
pub struct CheckoutOptions {
    /// True to undo local changes, and to replace untracked files that have the path of an entry of the snapshot.
    pub force: bool,
    /// Search for local changes that the checkout would undo. Ignored with `force`.
    pub edits: EditCheck,
    /// True to keep set-uid and set-gid bits, which are dropped otherwise.
    pub keep_set_id: bool,
    /// True to return only when everything is on disk.
    pub sync: bool,
    /// UID and GID that own all written entries; `None` for the ids of the process.
    pub owner: Option<(u32, u32)>,
    /// Ids on disk of the owners that the tree of a root filesystem records. They take precedence over `owner`. `None`
    /// for any other tree. Written files get these owners; files that are not written keep their owners.
    pub owner_ids: Option<OwnerIds>,
    /// Directories that together hold the same tree, for example layers of an overlay, the uppermost first. If the file
    /// system supports reflinks, files are created as reflink copies of the files in these directories.
    pub share: Vec<PathBuf>,
    /// True to escape extended attributes with the prefix of overlay attributes, for a directory that becomes a layer
    /// of an overlay with `userxattr`. Otherwise the kernel would interpret these attributes.
    pub escape_overlay_xattrs: bool,
    /// Limit on the bytes written; `None` for no limit.
    pub limit: Option<Arc<dyn WriteLimit>>,
}

/// Result of a checkout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckoutReport {
    /// Number of files, symlinks and directories created or replaced.
    pub written: u64,
    /// Number of entries removed.
    pub removed: u64,
    /// Number of entries that did not have to be written.
    pub unchanged: u64,
    /// Bytes of file content written.
    pub bytes: u64,
    /// True if an interrupted checkout was resumed.
    pub resumed: bool,
    /// True if the directory was already recorded as a checkout of the snapshot, so nothing was done. Local changes
    /// were not searched for; `force` undoes them.
    pub up_to_date: bool,
}

//! Options and results of checkouts.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::owner_ids::OwnerIds;

/// Bytes that a [`WriteLimit`] counts for a file, directory or symlink besides its content.
pub(super) const ENTRY_BYTES: u64 = 4096;

/// Limit on the bytes that a checkout writes. It is called before every write, by several threads at once.
pub trait WriteLimit: fmt::Debug + Send + Sync {
    /// Counts `bytes` more. An error aborts the checkout; files written before it are kept.
    fn take(&self, bytes: u64) -> io::Result<()>;
}

/// Search of a checkout for local changes that it would undo.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EditCheck {
    /// Before anything is written.
    #[default]
    Before,
    /// Before anything is written, and again for each entry just before it is replaced or removed, because processes
    /// may write to the directory meanwhile. A change that is found only then ends the checkout halfway, with
    /// [`DirectoryError::LocalEdits`](crate::DirectoryError::LocalEdits); [`undo_checkout`](crate::undo_checkout) goes
    /// back.
    EachTime,
    /// For each entry just before it is replaced or removed. Changed ones are kept.
    Keep,
}

/// Options of a checkout.
#[derive(Debug, Clone, Default)]
pub struct CheckoutOptions {
    /// True to undo local changes, and to replace untracked files that have the path of an entry of the snapshot.
    pub force: bool,
    /// Search for local changes that the checkout would undo. Without effect if forced.
    pub edits: EditCheck,
    /// True to keep set-uid and set-gid bits, which are dropped otherwise.
    pub keep_set_id: bool,
    /// True to return only when everything is on disk.
    pub sync: bool,
    /// User and group id that own everything that is written; `None` for those of the process.
    pub owner: Option<(u32, u32)>,
    /// Ids of the owners in the tree of a root filesystem, which take precedence over `owner`; `None` if it
    /// is another kind of tree. New files get these owners, existing files keep theirs.
    pub owner_ids: Option<OwnerIds>,
    /// Directories that together hold the same tree, the uppermost first. Files are made as reflink copies of
    /// the files there if the file system supports it.
    pub share: Vec<PathBuf>,
    /// True to escape attributes with the prefix of overlay attributes, so that they stay data: for a directory that
    /// becomes a layer of an overlay with `userxattr`.
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
    /// Number of entries that were checked and did not have to be changed.
    pub unchanged: u64,
    /// Bytes of file content written.
    pub bytes: u64,
    /// Set if an interrupted checkout was resumed.
    pub resumed: bool,
    /// Set if the directory was already recorded as a checkout of the snapshot, so that nothing was done.
    /// Local changes were not looked for; with `force` they would have been undone.
    pub up_to_date: bool,
}

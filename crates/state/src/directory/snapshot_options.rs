//! Options of a snapshot of a directory.

use crate::commit_options::NewSnapshot;

/// Options of a snapshot of a directory.
#[derive(Debug, Clone)]
pub struct SnapshotOptions {
    /// Message, author, parents and other properties of the snapshot.
    pub new: NewSnapshot,
    /// True to leave out entries that `.workspaceignore` files exclude.
    pub use_ignore_files: bool,
    /// True to record the directory as a checkout of the snapshot, so that a later checkout may replace its content.
    /// Must be false for a temporary snapshot: once it is removed, content that a checkout has replaced is lost.
    pub record_as_checkout: bool,
    /// True if no process writes to the directory during the snapshot. Recently changed files are then read once
    /// instead of twice. Ignored if the caller passes a [`DirectoryReader`](crate::DirectoryReader), which has a method
    /// for this.
    pub quiescent: bool,
    /// True to fail with [`DirectoryError::Incomplete`](crate::DirectoryError::Incomplete) if user data cannot be read,
    /// before anything is committed. If false, such data is skipped and reported.
    pub fail_if_incomplete: bool,
    /// True to report the path of every skipped socket, device and named pipe, not only of the first thousand.
    pub all_special: bool,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self {
            new: NewSnapshot::default(),
            use_ignore_files: true,
            record_as_checkout: true,
            quiescent: false,
            fail_if_incomplete: false,
            all_special: false,
        }
    }
}

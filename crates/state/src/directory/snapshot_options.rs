//! Options of a snapshot of a directory.

use crate::commit_options::NewSnapshot;

/// Options of a snapshot of a directory.
#[derive(Debug, Clone)]
pub struct SnapshotOptions {
    /// Description of the snapshot.
    pub new: NewSnapshot,
    /// True to honour `.workspaceignore` files.
    pub use_ignore_files: bool,
    /// True to record the directory as a checkout of the snapshot, so that a later checkout may replace its content.
    /// Not for a temporary snapshot: the content that such a checkout replaced would be lost with the snapshot.
    pub record_as_checkout: bool,
    /// True if no process writes to the directory during the snapshot: recently changed files are then read once
    /// instead of twice. Without effect if the caller passes a [`DirectoryReader`](crate::DirectoryReader), which says
    /// this itself.
    pub quiescent: bool,
    /// True to fail with [`DirectoryError::Incomplete`](crate::DirectoryError::Incomplete), before anything is committed,
    /// if user data cannot be read. If false, such data is skipped and reported.
    pub fail_if_incomplete: bool,
    /// True to report every skipped socket, device and named pipe by name, not only the first thousand.
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

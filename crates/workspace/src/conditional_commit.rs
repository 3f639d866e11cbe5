//! Results of conditional commits. Such a commit stores a snapshot of a workspace only if the content differs from that
//! of the workspace's last snapshot.

use workspace_state::SnapshotId;

use crate::provider::{ChangeDigest, CommitResult};

/// Result of a conditional commit.
#[derive(Debug, Clone)]
pub enum ConditionalCommit {
    /// The content differed from that of the last snapshot.
    Committed(Box<CommitResult>),
    /// Nothing was committed, because the content equals this snapshot: the last one of the workspace, or else its base
    /// (the snapshot that it was created from). A commit would have had it as its parent. `None` if the workspace was
    /// created empty, is still empty, and the store has no last snapshot of it.
    Unchanged(Option<SnapshotId>),
}

/// Digest (names, modes, sizes, times and inodes) of the directory of a workspace at a time when its content equalled
/// the last snapshot. If the directory has the same digest later, its content still equals that snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnchangedDigest {
    /// Number of the generation (a directory of the workspace) that was read. A reset that gives the workspace a new
    /// directory creates the next generation, to which the digest does not apply.
    pub(crate) generation: u32,
    /// Digest, which is reliable: any later change of the directory changes it.
    pub(crate) digest: ChangeDigest,
}

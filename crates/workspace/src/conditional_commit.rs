//! Results of conditional commits: a workspace is committed only if its content differs from its last snapshot.

use workspace_state::SnapshotId;

use crate::provider::{ChangeDigest, CommitResult};

/// Result of a conditional commit.
#[derive(Debug, Clone)]
pub enum ConditionalCommit {
    /// The content differed from that of the last snapshot.
    Committed(Box<CommitResult>),
    /// Nothing was committed: the content equals this snapshot, which a commit would have had as its parent: the last
    /// one of the workspace, or else its base. `None` if the workspace was created empty, is still empty, and the store
    /// has no last snapshot of it.
    Unchanged(Option<SnapshotId>),
}

/// Reliable digest (names, modes, sizes, times and inodes) of the directory of a workspace at a time when its content
/// equalled the last snapshot. If the digest is the same later, the content still equals it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnchangedDigest {
    /// Number of the generation: a reset that gives the workspace a new directory starts the next one, for which the
    /// digest does not hold.
    pub(crate) generation: u32,
    pub(crate) digest: ChangeDigest,
}

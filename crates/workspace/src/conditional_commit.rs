//! Results of conditional commits: a workspace is committed only if its content differs from its last snapshot.

use workspace_state::SnapshotId;

use crate::provider::{ChangeDigest, CommitResult};

/// Result of a conditional commit.
#[derive(Debug, Clone)]
pub enum ConditionalCommit {
    /// The content differed from that of the last snapshot.
    Committed(Box<CommitResult>),
    /// Nothing was committed: the content equals this snapshot, the last one of the workspace or else its base.
    /// `None` if the store has neither, and the workspace is empty like its base.
    Unchanged(Option<SnapshotId>),
}

/// Digest of a generation at a time when its content equalled the last snapshot. If the digest is the same later, the
/// content still equals it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnchangedDigest {
    /// Number of the generation.
    pub(crate) generation: u32,
    pub(crate) digest: ChangeDigest,
}

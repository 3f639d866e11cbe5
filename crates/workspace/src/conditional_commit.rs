//! Results of commits of workspaces that may not have changed.

use workspace_state::SnapshotId;

use crate::provider::{ChangeDigest, CommitResult};

/// Result of a commit of a workspace that may not have changed.
#[derive(Debug, Clone)]
pub enum ConditionalCommit {
    /// The content differed from that of the last snapshot.
    Committed(Box<CommitResult>),
    /// The content is that of the last snapshot of the workspace, or of its base; `None` if both are missing or empty.
    Unchanged(Option<SnapshotId>),
}

/// Digest of a generation whose content was found to be that of the last snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnchangedDigest {
    pub(crate) generation: u32,
    pub(crate) digest: ChangeDigest,
}

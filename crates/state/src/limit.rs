//! Limits on untrusted content.

use std::fmt;

/// Quantity limited by [`ArchiveLimits`](crate::ArchiveLimits) or [`WalkLimits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// Number of bytes of file content.
    Bytes,
    /// Number of files, links, directories and skipped members.
    Entries,
    /// Number of bytes of paths, link targets and extended attributes; of a walk, also of extent lists.
    Metadata,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes of files",
            Self::Entries => "entries",
            Self::Metadata => "bytes of names and attributes",
        })
    }
}

/// Memory limits of one walk through a directory, or one comparison of trees. Unlimited by default; set them
/// with [`Store::with_walk_limits`](crate::Store::with_walk_limits) for untrusted content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkLimits {
    /// Maximum number of files, links and directories.
    pub entries: u64,
    /// Maximum number of bytes of paths, link targets, extended attributes and extent lists.
    pub metadata: u64,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self { entries: u64::MAX, metadata: u64::MAX }
    }
}

/// Error of a walk that exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {limit} {kind}")]
pub struct LimitExceeded {
    /// Limited quantity.
    pub kind: LimitKind,
    /// Value of the limit.
    pub limit: u64,
}

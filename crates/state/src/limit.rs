//! Limits on untrusted content.

use std::fmt;

/// Quantity limited by [`ArchiveLimits`](crate::ArchiveLimits) or [`WalkLimits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// Number of bytes of file content.
    Bytes,
    /// Number of files, links, directories and skipped members.
    Entries,
    /// Number of bytes of paths, link targets and extended attributes. In [`WalkLimits`] also of the lists of chunks
    /// and holes of files.
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

/// Memory limits of one walk (a traversal of a directory or tree) or one comparison of trees. Unlimited by default. Use
/// [`Store::with_walk_limits`](crate::Store::with_walk_limits) to limit the memory for untrusted content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkLimits {
    /// Maximum number of files, links and directories in memory.
    pub entries: u64,
    /// Maximum number of bytes of their paths, link targets, extended attributes, and lists of chunks and holes.
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

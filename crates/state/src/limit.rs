//! Limits on content that is not trusted.

use std::fmt;

/// Quantity limited by [`ArchiveLimits`](crate::ArchiveLimits) or [`WalkLimits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// Bytes of files.
    Bytes,
    /// Files, links, directories and skipped members.
    Entries,
    /// Bytes of paths, link targets and extended attributes.
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
/// with [`Store::with_walk_limits`](crate::Store::with_walk_limits) for content that is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkLimits {
    /// Files, links and directories.
    pub entries: u64,
    /// Bytes of paths, link targets, extended attributes and lists of extents.
    pub metadata: u64,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self { entries: u64::MAX, metadata: u64::MAX }
    }
}

/// Limit that a walk has exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {limit} {kind}")]
pub struct LimitExceeded {
    /// The quantity that is limited.
    pub kind: LimitKind,
    /// The limit.
    pub limit: u64,
}

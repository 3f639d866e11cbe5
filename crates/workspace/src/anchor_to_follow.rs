//! Anchor that a workspace is to follow.

/// Anchor that a workspace is to follow, and the head that its creator knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnchorToFollow<'a> {
    /// Name of the anchor. All workspaces that follow this name share its head.
    pub name: &'a str,
    /// Sequence of the snapshot that is given with it, which becomes the head if the anchor has none, or an earlier
    /// one.
    pub sequence: i64,
}

//! Parameter for workspaces that follow an anchor.
//!
//! The *head* of a project is the snapshot of its present files. An *anchor* is a mount of a head that several
//! read-only workspaces share: they *follow* the anchor, and see each new head as soon as it is mounted there. The
//! *sequence* of a head is the number of changes of the project's head so far: a later head has a higher sequence.

/// Anchor that a workspace is to follow, and the sequence of the snapshot that is given with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnchorToFollow<'a> {
    /// Name of the anchor. All workspaces that follow an anchor with this name show the same head.
    pub name: &'a str,
    /// Sequence of the snapshot that is given with this value. That snapshot becomes the head of the anchor if the
    /// anchor has no head, or a head with a lower sequence.
    pub sequence: i64,
}

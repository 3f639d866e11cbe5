//! Parameters of a workspace that follows an anchor.

/// Anchor that a new workspace follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewFollower<'a> {
    /// Name of the anchor. All workspaces with this name share its head.
    pub name: &'a str,
    /// Sequence of the head, if the anchor has none yet.
    pub sequence: i64,
}

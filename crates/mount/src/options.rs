//! How a view is mounted and served, on whatever system.

use std::num::NonZero;

/// How a view is mounted and served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViewOptions {
    /// Let other users see it; an ordinary user needs `user_allow_other` in `/etc/fuse.conf` for this.
    pub allow_other: bool,
    /// Requests answered at once; by default as many as there are processors, from two to eight.
    pub threads: Option<NonZero<usize>>,
    /// The user and the group whom files belong to, as the serving process counts them; by default its own.
    pub owner: Option<(u32, u32)>,
    /// The view is to be a lower layer of an overlay that keeps its notes in user attributes (`userxattr`). So that
    /// none of a snapshot is taken for a note, `user.overlay.X` is served as `user.overlay.overlay.X`, which the
    /// overlay shows as what it was; other names that begin with `user.overlay.` are never served.
    pub escape: bool,
    /// Show set-id bits, which are dropped otherwise. They have no effect in the view, whose mount is always `nosuid`.
    pub keep_set_id: bool,
}

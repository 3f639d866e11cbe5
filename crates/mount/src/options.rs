//! Options of a lazy mount (a read-only FUSE mount that loads content on first read).

use std::num::NonZero;

/// Options of a lazy mount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Allow access for other users; an unprivileged user needs `user_allow_other` in `/etc/fuse.conf` for
    /// this.
    pub allow_other: bool,
    /// Number of threads that serve requests; by default one per processor, from two to eight.
    pub threads: Option<NonZero<usize>>,
    /// User and group id that own the files, in the user namespace of the serving process; by default its
    /// own.
    pub owner: Option<(u32, u32)>,
    /// Escape overlay-like attributes, for a lower layer of an overlay with `userxattr`: `user.overlay.X` is
    /// served as `user.overlay.overlay.X`, which the overlay unescapes; other names that begin with
    /// `user.overlay.` are never served.
    pub escape_overlay_xattrs: bool,
    /// Show the set-id bits of files, which are hidden otherwise. They have no effect in either case, because the mount is
    /// always `nosuid`.
    pub keep_set_id: bool,
}

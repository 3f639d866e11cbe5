//! Options of a lazy mount (a read-only FUSE mount that loads content on first read).

use std::num::NonZero;

/// Options of a lazy mount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// True to allow access for other users; an unprivileged user needs `user_allow_other` in `/etc/fuse.conf` for
    /// this.
    pub allow_other: bool,
    /// Number of threads that serve requests; `None` for one per processor, but at least two and at most eight.
    pub threads: Option<NonZero<usize>>,
    /// User and group id that own the files, in the user namespace of the serving process; `None` for the ids of that
    /// process.
    pub owner: Option<(u32, u32)>,
    /// True to escape overlay-like attributes, for a lower layer of an overlay with `userxattr`: `user.overlay.X` is
    /// served as `user.overlay.overlay.X`, which the overlay unescapes; other names that begin with
    /// `user.overlay.` are never served.
    pub escape_overlay_xattrs: bool,
    /// True to show the set-id bits of files, which are hidden otherwise. They have no effect in either case, because
    /// the mount is always `nosuid`.
    pub show_set_id_bits: bool,
}

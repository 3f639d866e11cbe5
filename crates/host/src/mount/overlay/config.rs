//! The parts of an overlay, and the attributes in which overlays keep their own notes.

use std::path::{Path, PathBuf};

/// So many layers below the upper one the kernel takes; before 6.7 about 200.
pub const LAYERS: usize = 500;

/// What to mount where.
#[derive(Debug, Clone, Copy)]
pub struct Overlay<'a> {
    /// The read-only layers, uppermost first.
    pub lower: &'a [PathBuf],
    /// Gets what is changed.
    pub upper: &'a Path,
    /// Empty, of the kernel's own use, on the filesystem of the upper.
    pub work: &'a Path,
    /// The directory to mount on.
    pub at: &'a Path,
    /// The user of a sandbox's own to whom all of it is shown as his ([`own_users`](crate::own_users)); then upper and work are in one
    /// directory. Only the superuser can do that.
    pub user: Option<u32>,
}

/// Which attributes the overlays of a holder keep their own notes in. Those of the other kind are data there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Xattrs {
    /// `trusted.overlay.*`, which nobody but the machine's superuser can read.
    Trusted,
    /// `user.overlay.*`
    User,
}

impl Xattrs {
    /// How their names begin.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Trusted => "trusted.overlay.",
            Self::User => "user.overlay.",
        }
    }
}

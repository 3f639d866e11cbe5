//! State of the processes that may write to a workspace while its content is read, for example by a commit.

/// State of the processes that may write to a workspace, as the caller of a read or commit knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// All frozen or ended: no process writes to the workspace during the call. Every file is read once.
    Stopped,
    /// Some may be running. Recently changed files are read twice, so that no half-written content is stored.
    Running,
}

impl Writers {
    /// Returns the state of two groups of processes together.
    pub(crate) fn and(self, other: Self) -> Self {
        if self == Self::Running { self } else { other }
    }
}

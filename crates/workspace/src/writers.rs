//! Processes that write to a workspace while it is read.

/// State of the processes that write to a workspace, while its content is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Frozen or ended: no process writes to the workspace during the call. Every file is read once.
    Stopped,
    /// Possibly running. Recently changed files are read twice, so that no half-written content is stored.
    Running,
}

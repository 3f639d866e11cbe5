//! Use of the lazy mount by workspaces, on which the ids of sandboxes depend.

/// Use of the lazy mount, a filesystem that serves files of snapshots on demand, by workspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LazyMount {
    /// Some workspaces have the lazy mount as their lowest layer.
    Used,
    /// No workspace uses it.
    Unused,
}

//! Files of a project that a new sandbox starts with.

use workspace_sandbox::ProjectBase;

/// Files of a project for a new sandbox.
#[derive(Debug, Clone)]
pub(crate) struct ProjectFiles {
    pub(crate) base: ProjectBase,
    /// Name of the anchor with which the sandbox can follow the head.
    pub(crate) anchor: String,
    /// True if the agent may change nothing.
    pub(crate) is_read_only: bool,
}

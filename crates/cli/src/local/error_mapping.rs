//! Explains errors of local sandboxes.

use workspace_sandbox::runtime::RuntimeError;
use workspace_sandbox::{SandboxError, WorkspaceError};

use crate::error::CommandError;

impl From<SandboxError> for CommandError {
    fn from(error: SandboxError) -> Self {
        match error {
            SandboxError::Runtime(error) => error.into(),
            SandboxError::Workspace(WorkspaceError::Directory(error)) => error.into(),
            SandboxError::Workspace(WorkspaceError::Store(error)) => error.into(),
            SandboxError::Invalid { .. } => {
                Self::failed(error.to_string()).hint("`--help` explains the options")
            }
            other => Self::failed(other.to_string()).hint("nothing was changed; try again"),
        }
    }
}

impl From<RuntimeError> for CommandError {
    fn from(error: RuntimeError) -> Self {
        let failed = Self::failed(error.to_string());
        match error {
            RuntimeError::Unavailable { .. } | RuntimeError::Isolation(_) => failed
                .hint("a server elsewhere can run it: `workspace sandbox create --dir DIR --server URL`"),
            RuntimeError::NoTemplate { .. } | RuntimeError::TemplateNotPresent { .. } => {
                failed.hint("`workspace template ls` lists the templates of a server on this machine")
            }
            _ => failed.hint("nothing was changed; the system log (`dmesg`) may have details"),
        }
    }
}

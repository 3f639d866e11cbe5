//! Sandboxes that work on projects and do not follow their heads (the present files of a project).

use crate::guest::handle::SandboxHandle;
use crate::service::Service;

/// Sandbox with a workspace that was made from a head of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectSandbox {
    /// Id of the sandbox.
    pub id: String,
    /// Id of the project.
    pub project: String,
    /// Agent for which the files were chosen.
    pub agent: String,
    /// True if its workspace is to be rebased onto each new head.
    pub rebases: bool,
    /// True if no command runs in it, and it is not paused.
    pub is_idle: bool,
    /// Number of times that its work was completed since the server started.
    pub completions: u64,
    /// Number of times that the base of its workspace was replaced since then, by a rebase or a restore.
    pub base_changes: u64,
}

impl Service {
    /// Lists the sandboxes of projects whose processes may run, without those that follow a head.
    pub fn project_sandboxes(&self) -> Vec<ProjectSandbox> {
        self.handles().iter().filter_map(|handle| project_sandbox(handle)).collect()
    }

    /// Counts a completion of a sandbox ([`ProjectSandbox::completions`]).
    pub fn count_completion(&self, id: &str) {
        if let Some(handle) = self.handle(id) {
            handle.count_completion();
        }
    }

    /// Counts a replacement of the base of a workspace ([`ProjectSandbox::base_changes`]).
    pub(crate) fn count_base_change(&self, id: &str) {
        if let Some(handle) = self.handle(id) {
            handle.count_base_change();
        }
    }
}

fn project_sandbox(handle: &SandboxHandle) -> Option<ProjectSandbox> {
    let (base, rebases) = handle.project()?;
    Some(ProjectSandbox {
        id: handle.id.clone(),
        project: base.project.clone(),
        agent: base.agent.clone(),
        rebases,
        is_idle: !handle.is_paused() && handle.guest.is_connected() && handle.commands.running().is_empty(),
        completions: handle.completions(),
        base_changes: handle.base_changes(),
    })
}

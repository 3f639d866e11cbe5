//! Processes of a sandbox, and the commands that started them.
//!
//! A process may outlive the command that started it. It stays below the command's supervisor, so it is known
//! which command left it behind, and a signal to that command reaches it.

use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::scope::Scope;
use crate::service::Service;

/// A process of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// PID inside the sandbox.
    pub pid: u32,
    /// PID of its parent inside the sandbox.
    pub parent: u32,
    /// The command or terminal that started it, directly or not.
    pub command: String,
    /// True if that command has ended, and the process outlived it.
    pub is_leftover: bool,
    /// Its arguments, separated by spaces; long ones are cut off.
    pub arguments: String,
}

impl Service {
    /// Lists the running processes that commands and terminals of a sandbox started, by PID.
    pub async fn processes(&self, scope: &Scope, sandbox: &str) -> Result<Vec<Process>> {
        let handle = self.find_running(scope, sandbox).await?;
        processes(&handle).await
    }

    /// Returns true if processes of an ended command still run.
    pub(crate) async fn has_leftover_processes(&self, handle: &SandboxHandle, command: &str) -> Result<bool> {
        Ok(processes(handle).await?.iter().any(|process| process.command == command))
    }
}

async fn processes(handle: &SandboxHandle) -> Result<Vec<Process>> {
    let listed = handle.guest.request_processes().await;
    let listed = listed.ok_or_else(|| SandboxError::AgentAway { id: handle.id.clone() })?;
    // `commands` has the terminals too.
    let runs = |id: &str| handle.commands.get(id).is_some_and(|command| !command.has_ended());
    let with_command_state = |process: workspace_agent_protocol::v1::Process| Process {
        pid: process.pid,
        parent: process.parent,
        is_leftover: !runs(&process.command_id),
        command: process.command_id,
        arguments: process.arguments,
    };
    Ok(listed.into_iter().map(with_command_state).collect())
}

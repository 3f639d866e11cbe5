//! Start of commands and terminals.
//!
//! A command is recorded before its agent is told to start it. A request that is dropped in between, because its client
//! has left, would leave the row of a running command that does not run. So both happen in a task of its own, which is
//! not dropped.

use std::sync::Arc;
use std::time::Duration;

use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_catalog::{CommandInsertion, IdempotencyClaim, NewCommand};

use crate::command::running::RunningCommand;
use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::service::Service;

/// Command that is about to start.
pub(crate) struct PendingStart {
    pub(crate) handle: Arc<SandboxHandle>,
    pub(crate) row: NewCommand,
    pub(crate) claim: Option<IdempotencyClaim>,
    /// Message to the agent.
    pub(crate) message: ServerPayload,
    /// Prefix of the ids of such commands, and how many of them may run.
    pub(crate) limit: (&'static str, u32),
    pub(crate) options: StartOptions,
}

/// Properties of a command that the server keeps in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartOptions {
    /// Time in which the agent reports the exit; `None` without a timeout.
    pub(crate) report_timeout: Option<Duration>,
    /// True if the command waits for readers of its output.
    pub(crate) block: bool,
    /// True if input can be written.
    pub(crate) stdin: bool,
}

impl StartOptions {
    fn apply(self, running: &RunningCommand) {
        if let Some(timeout) = self.report_timeout {
            running.set_report_timeout(timeout);
        }
        if self.block {
            running.set_waits_for_readers();
        }
        if !self.stdin {
            running.input.close();
        }
    }
}

/// Command that was started, or had been before.
pub(crate) enum Started {
    New(Arc<RunningCommand>),
    /// The idempotency key belongs to this command.
    Existing(String),
    /// Too many commands run.
    LimitReached,
}

impl Service {
    /// Records a command and starts it, also if the caller is dropped meanwhile.
    pub(crate) async fn record_and_start(&self, pending: PendingStart) -> Result<Started> {
        let service = self.clone();
        let started = tokio::spawn(async move { service.record_and_start_here(pending).await });
        started.await.map_err(|error| SandboxError::task_failed("start a command", error))?
    }

    async fn record_and_start_here(&self, pending: PendingStart) -> Result<Started> {
        let PendingStart { handle, row, claim, message, limit: (prefix, limit), options } = pending;
        let Some(reservation) = handle.commands.reserve(prefix, &row.id, limit) else {
            return Ok(Started::LimitReached);
        };
        match &claim {
            Some(claim) => {
                let inserted = self.0.catalog.command_claims().insert(claim, &row).await?;
                if let CommandInsertion::Existing { command_id } = inserted {
                    return Ok(Started::Existing(command_id));
                }
            }
            None => self.0.catalog.commands().insert(&row).await?,
        }
        let running = self.start_recorded(&handle, &row.id, message, reservation).await?;
        options.apply(&running);
        Ok(Started::New(running))
    }
}

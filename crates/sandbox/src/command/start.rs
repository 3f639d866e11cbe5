//! Start of commands and terminals.
//!
//! A command is recorded in the catalog before its guest agent is told to start it. A request that is dropped in
//! between, because its client has disconnected, would leave the row of a running command that does not run. So both
//! happen in a task of their own, which is not dropped with the request.

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
    /// Row for the catalog.
    pub(crate) row: NewCommand,
    /// Idempotency key of the request; `None` if the request may be executed twice.
    pub(crate) idempotency_claim: Option<IdempotencyClaim>,
    /// Message that tells the guest agent to start it.
    pub(crate) message: ServerPayload,
    pub(crate) limit: RunningLimit,
    pub(crate) options: StartOptions,
}

/// Limit on the commands or terminals that run in a sandbox at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunningLimit {
    /// Prefix of the ids that count: that of commands, or that of terminals.
    pub(crate) id_prefix: &'static str,
    /// Maximum number of commands that run at the same time.
    pub(crate) max: u32,
}

/// Properties of a command that the server keeps in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartOptions {
    /// Time after the start in which the guest agent must report the exit; `None` if the command has no timeout.
    pub(crate) exit_report_timeout: Option<Duration>,
    /// True if the command blocks when too much of its output is unread.
    pub(crate) blocks_on_unread_output: bool,
    /// True if input can be written.
    pub(crate) stdin: bool,
}

impl StartOptions {
    fn apply(self, running: &RunningCommand) {
        if let Some(timeout) = self.exit_report_timeout {
            running.set_exit_report_timeout(timeout);
        }
        if self.blocks_on_unread_output {
            running.set_blocks_on_unread_output();
        }
        if !self.stdin {
            running.input.close();
        }
    }
}

/// Result of [`Service::record_and_start`].
pub(crate) enum Started {
    New(Arc<RunningCommand>),
    /// An earlier request with the same idempotency key started the command with this id.
    Existing(String),
    /// As many commands run as the limit allows.
    LimitReached,
}

impl Service {
    /// Records a command and starts it, also if the caller is dropped meanwhile.
    pub(crate) async fn record_and_start(&self, pending: PendingStart) -> Result<Started> {
        let service = self.clone();
        let started = tokio::spawn(async move { service.record_and_start_inner(pending).await });
        started.await.map_err(|error| SandboxError::task_failed("start a command", error))?
    }

    async fn record_and_start_inner(&self, pending: PendingStart) -> Result<Started> {
        let PendingStart { handle, row, idempotency_claim, message, limit, options } = pending;
        let Some(reservation) = handle.commands.reserve(limit.id_prefix, &row.id, limit.max) else {
            return Ok(Started::LimitReached);
        };
        match &idempotency_claim {
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

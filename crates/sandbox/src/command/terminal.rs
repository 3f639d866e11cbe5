//! Terminals: commands with a pseudo-terminal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{CreatePtyRequest, KillPtyRequest, PtyInput, ResizePtyRequest};

use crate::command::command_line::check_command;
use crate::command::run::{CommandHandle, environment, new_command};
use crate::command::start::{PendingStart, RunningLimit, StartOptions, Started};
use crate::config::{check_cwd, check_envs};
use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::id;
use crate::scope::Scope;
use crate::service::Service;

/// Default working directory.
const WORKSPACE: &str = "/workspace";
/// Timeout for a terminal to accept input. It is short, because a user waits for the echo.
const INPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// Default interactive shell.
const INTERACTIVE_SHELL: &str = "/bin/bash";
/// Default shell of a command line.
const COMMAND_SHELL: &str = "/bin/sh";
/// Prefix of the ids of terminals.
pub(crate) const TERMINAL_ID_PREFIX: &str = "pty";

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

impl Size {
    /// Validates the size. Returns columns and rows.
    fn check(self) -> Result<(i32, i32)> {
        let check = |field, value: u16| {
            if (1..=1_000).contains(&value) {
                return Ok(i32::from(value));
            }
            Err(SandboxError::Invalid { field, message: "must be between 1 and 1000".to_owned() })
        };
        Ok((check("cols", self.cols)?, check("rows", self.rows)?))
    }
}

/// Parameters of a new terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalRequest {
    /// Size of the screen.
    pub size: Size,
    /// Program to run. The guest falls back to `/bin/sh` if it does not exist.
    pub shell: Option<String>,
    /// Command line for `shell`, or `/bin/sh` by default. Without it, the shell is interactive.
    pub command: Option<String>,
    /// Working directory; `/workspace` by default.
    pub cwd: Option<String>,
    /// Environment variables in addition to those of the sandbox.
    pub envs: BTreeMap<String, String>,
    /// User that runs it: a name in the sandbox, or a UID; `None` for the user of the sandbox.
    pub user: Option<String>,
}

impl Service {
    /// Opens a terminal.
    pub async fn open_terminal(
        &self,
        scope: &Scope,
        sandbox: &str,
        request: TerminalRequest,
    ) -> Result<CommandHandle> {
        let handle = self.find_running(scope, sandbox).await?;
        let (cols, rows) = request.size.check()?;
        let default_shell = if request.command.is_some() { COMMAND_SHELL } else { INTERACTIVE_SHELL };
        let shell = request.shell.as_deref().unwrap_or(default_shell);
        let cwd = request.cwd.as_deref().unwrap_or(WORKSPACE);
        check_cwd(cwd)?;
        check_envs(&request.envs)?;
        check_shell(shell)?;
        request.command.as_deref().map(check_command).transpose()?;
        // Shown in lists of commands.
        let title = request.command.clone().unwrap_or_else(|| shell.to_owned());
        let create = CreatePtyRequest {
            pty_id: id::new(TERMINAL_ID_PREFIX),
            cols,
            rows,
            shell: shell.to_owned(),
            cwd: cwd.to_owned(),
            envs: environment(&handle, request.envs),
            command: request.command.unwrap_or_default(),
            user: handle.requested_user(request.user)?,
        };
        let (id, max) = (create.pty_id.clone(), self.0.settings.max_terminals);
        let pending = PendingStart {
            row: new_command(&handle, &id, &title, cwd),
            handle,
            idempotency_claim: None,
            message: ServerPayload::CreatePty(create),
            limit: RunningLimit { id_prefix: TERMINAL_ID_PREFIX, max },
            options: StartOptions { exit_report_timeout: None, blocks_on_unread_output: false, stdin: true },
        };
        match self.record_and_start(pending).await? {
            Started::New(_) | Started::Existing(_) => self.terminal(scope, sandbox, &id).await,
            Started::LimitReached => Err(SandboxError::TooManyTerminals { limit: max }),
        }
    }

    /// Returns the terminal with this id, open or closed.
    pub async fn terminal(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<CommandHandle> {
        if !is_terminal(id) {
            self.find_on_this_server(scope, sandbox).await?;
            return Err(SandboxError::NoTerminal { id: id.to_owned() });
        }
        self.command(scope, sandbox, id).await.map_err(|error| no_terminal(error, id))
    }

    /// Writes input to a terminal.
    pub async fn write_terminal(&self, scope: &Scope, sandbox: &str, id: &str, data: Vec<u8>) -> Result<()> {
        let handle = self.sandbox_of_open_terminal(scope, sandbox, id).await?;
        handle.record_activity();
        let message = |data| ServerPayload::PtyInput(PtyInput { pty_id: id.to_owned(), data });
        handle.write_input(id, &data, INPUT_TIMEOUT, message).await
    }

    /// Changes the size of a terminal.
    pub async fn resize_terminal(&self, scope: &Scope, sandbox: &str, id: &str, size: Size) -> Result<()> {
        let (cols, rows) = size.check()?;
        let resize = ResizePtyRequest { pty_id: id.to_owned(), cols, rows };
        self.send_to_terminal(scope, sandbox, id, ServerPayload::ResizePty(resize)).await
    }

    /// Closes a terminal and kills its processes. Succeeds if it is already closed.
    pub async fn close_terminal(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<()> {
        let kill = KillPtyRequest { pty_id: id.to_owned() };
        match self.send_to_terminal(scope, sandbox, id, ServerPayload::KillPty(kill)).await {
            Err(SandboxError::CommandEnded { .. }) => Ok(()),
            result => result,
        }
    }

    async fn send_to_terminal(
        &self,
        scope: &Scope,
        sandbox: &str,
        id: &str,
        message: ServerPayload,
    ) -> Result<()> {
        self.sandbox_of_open_terminal(scope, sandbox, id).await?.guest.send(message).await
    }

    /// Returns the sandbox of an open terminal. Queries the catalog only if the terminal is not open.
    async fn sandbox_of_open_terminal(
        &self,
        scope: &Scope,
        sandbox: &str,
        id: &str,
    ) -> Result<Arc<SandboxHandle>> {
        let handle = self.handle_in(scope, sandbox);
        let open = handle.filter(|handle| handle.commands.get(id).is_some_and(|one| !one.has_ended()));
        match open.filter(|_| is_terminal(id)) {
            Some(handle) => handle.check_not_paused().map(|()| handle),
            // Finds out why: there is no such terminal, or the sandbox does not run, or the terminal is closed.
            None => {
                self.terminal(scope, sandbox, id).await?;
                self.find_running(scope, sandbox).await?;
                Err(SandboxError::CommandEnded { id: id.to_owned() })
            }
        }
    }
}

/// Returns true for the id of a terminal.
pub(crate) fn is_terminal(id: &str) -> bool {
    id.strip_prefix(TERMINAL_ID_PREFIX).is_some_and(|rest| rest.starts_with('-'))
}

fn no_terminal(error: SandboxError, id: &str) -> SandboxError {
    match error {
        SandboxError::NoCommand { .. } => SandboxError::NoTerminal { id: id.to_owned() },
        other => other,
    }
}

fn check_shell(shell: &str) -> Result<()> {
    if shell.is_empty() || shell.len() > 4_095 || shell.contains('\0') {
        let message = "must be the path of a program, of at most 4095 bytes".to_owned();
        return Err(SandboxError::Invalid { field: "shell", message });
    }
    Ok(())
}

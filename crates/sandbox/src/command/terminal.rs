//! Terminals: commands with a pseudo-terminal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{CreatePtyRequest, KillPtyRequest, PtyInput, ResizePtyRequest};

use crate::command::run::{CommandHandle, check_command, environment, new_command};
use crate::config::{check_cwd, check_envs};
use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::id;
use crate::scope::Scope;
use crate::service::Service;

const WORKSPACE: &str = "/workspace";
/// Time limit for a terminal to take input; nothing is shown meanwhile.
const INPUT_TIMEOUT: Duration = Duration::from_secs(1);
const SHELL: &str = "/bin/bash";
/// Shell that runs a command line, in a terminal and without one.
const LINE_SHELL: &str = "/bin/sh";
/// Prefix of the ids of terminals.
pub(crate) const TERMINAL: &str = "pty";

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

impl Size {
    fn check(self) -> Result<(i32, i32)> {
        let of = |field, value: u16| {
            if (1..=1_000).contains(&value) {
                return Ok(i32::from(value));
            }
            Err(SandboxError::Invalid { field, message: "1 to 1000 are allowed".to_owned() })
        };
        Ok((of("cols", self.cols)?, of("rows", self.rows)?))
    }
}

/// A terminal to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalRequest {
    /// Size of the screen.
    pub size: Size,
    /// Program that runs in it; `/bin/sh` where it does not exist.
    pub shell: Option<String>,
    /// Command line for `/bin/sh`, or for `shell`. Without it the shell is interactive.
    pub command: Option<String>,
    /// Working directory; `/workspace` if there is none.
    pub cwd: Option<String>,
    /// Environment variables in addition to those of the sandbox.
    pub envs: BTreeMap<String, String>,
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
        let usual = if request.command.is_some() { LINE_SHELL } else { SHELL };
        let (shell, cwd) = (request.shell.as_deref().unwrap_or(usual), request.cwd.as_deref());
        let cwd = cwd.unwrap_or(WORKSPACE);
        check_cwd(cwd)?;
        check_envs(&request.envs)?;
        check_shell(shell)?;
        request.command.as_deref().map(check_command).transpose()?;
        let shown = request.command.clone().unwrap_or_else(|| shell.to_owned());
        let create = CreatePtyRequest {
            pty_id: id::new(TERMINAL),
            cols,
            rows,
            shell: shell.to_owned(),
            cwd: cwd.to_owned(),
            envs: environment(&handle, request.envs),
            command: request.command.unwrap_or_default(),
        };
        let _terminals_lock = handle.terminals.lock().await;
        let limit = self.0.settings.terminals;
        if handle.commands.running(TERMINAL).len() >= limit as usize {
            return Err(SandboxError::TooManyTerminals { limit });
        }
        let id = create.pty_id.clone();
        self.0.catalog.commands().insert(&new_command(&handle, &id, &shown, cwd)).await?;
        self.start_recorded(&handle, &id, ServerPayload::CreatePty(create), None).await?;
        self.terminal(scope, sandbox, &id).await
    }

    /// Returns the terminal with this id, open or closed.
    pub async fn terminal(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<CommandHandle> {
        if !is_terminal(id) {
            self.find_here(scope, sandbox).await?;
            return Err(SandboxError::NoTerminal { id: id.to_owned() });
        }
        self.command(scope, sandbox, id).await.map_err(|error| no_terminal(error, id))
    }

    /// Writes input to a terminal.
    pub async fn write_terminal(&self, scope: &Scope, sandbox: &str, id: &str, data: Vec<u8>) -> Result<()> {
        let handle = self.open_terminal_of(scope, sandbox, id).await?;
        let message = |data| ServerPayload::PtyInput(PtyInput { pty_id: id.to_owned(), data });
        handle.write_input(id, &data, INPUT_TIMEOUT, message).await
    }

    /// Changes the size of a terminal.
    pub async fn resize_terminal(&self, scope: &Scope, sandbox: &str, id: &str, size: Size) -> Result<()> {
        let (cols, rows) = size.check()?;
        let resize = ResizePtyRequest { pty_id: id.to_owned(), cols, rows };
        self.send_to_terminal(scope, sandbox, id, ServerPayload::ResizePty(resize)).await
    }

    /// Closes a terminal and ends all that runs in it. Closing it twice is no error.
    pub async fn close_terminal(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<()> {
        let kill = KillPtyRequest { pty_id: id.to_owned() };
        match self.send_to_terminal(scope, sandbox, id, ServerPayload::KillPty(kill)).await {
            Err(SandboxError::CommandEnded { .. }) => Ok(()),
            done => done,
        }
    }

    async fn send_to_terminal(
        &self,
        scope: &Scope,
        sandbox: &str,
        id: &str,
        message: ServerPayload,
    ) -> Result<()> {
        self.open_terminal_of(scope, sandbox, id).await?.guest.send(message).await
    }

    /// Returns the sandbox of an open terminal.
    async fn open_terminal_of(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<Arc<SandboxHandle>> {
        let handle = self.handle(sandbox).filter(|handle| scope.covers(handle.owner()));
        let open = handle.filter(|handle| handle.commands.get(id).is_some_and(|one| !one.has_ended()));
        match open.filter(|_| is_terminal(id)) {
            Some(handle) => Ok(handle),
            None => {
                self.terminal(scope, sandbox, id).await?;
                self.find_running(scope, sandbox).await?;
                Err(SandboxError::CommandEnded { id: id.to_owned() })
            }
        }
    }
}

fn is_terminal(id: &str) -> bool {
    id.strip_prefix(TERMINAL).is_some_and(|rest| rest.starts_with('-'))
}

fn no_terminal(error: SandboxError, id: &str) -> SandboxError {
    match error {
        SandboxError::NoCommand { .. } => SandboxError::NoTerminal { id: id.to_owned() },
        other => other,
    }
}

fn check_shell(shell: &str) -> Result<()> {
    if shell.is_empty() || shell.len() > 4_095 || shell.contains('\0') {
        let message = "the path of a program, of at most 4095 bytes, is allowed".to_owned();
        return Err(SandboxError::Invalid { field: "shell", message });
    }
    Ok(())
}

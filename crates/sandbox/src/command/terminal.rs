//! Terminals: commands with a screen.

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
/// How long somebody waits for a terminal to take what was typed; nothing is shown meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);
const SHELL: &str = "/bin/bash";
/// What runs a line, in a terminal as without one.
const LINE_SHELL: &str = "/bin/sh";
/// Terminals have names of this kind, commands of another.
pub(crate) const TERMINAL: &str = "pty";

/// How large a screen is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Characters in a line.
    pub cols: u16,
    /// Lines.
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

/// A terminal that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalRequest {
    /// How large its screen is.
    pub size: Size,
    /// What runs in it. Where it is not there, `/bin/sh` does.
    pub shell: Option<String>,
    /// A line for `/bin/sh`, or for the shell that was asked for. Without it the shell asks.
    pub command: Option<String>,
    /// In which directory.
    pub cwd: Option<String>,
    /// Beside the sandbox's own variables.
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
        let handle = self.running(scope, sandbox).await?;
        let (cols, rows) = request.size.check()?;
        let usual = if request.command.is_some() { LINE_SHELL } else { SHELL };
        let (shell, cwd) = (request.shell.as_deref().unwrap_or(usual), request.cwd.as_deref());
        let cwd = cwd.unwrap_or(WORKSPACE);
        check_cwd(cwd)?;
        check_envs(&request.envs)?;
        check_shell(shell)?;
        request.command.as_deref().map(check_command).transpose()?;
        let shown = request.command.clone().unwrap_or_else(|| shell.to_owned());
        let order = CreatePtyRequest {
            pty_id: id::new(TERMINAL),
            cols,
            rows,
            shell: shell.to_owned(),
            cwd: cwd.to_owned(),
            envs: environment(&handle, request.envs),
            command: request.command.unwrap_or_default(),
        };
        let _counting = handle.terminals.lock().await;
        let limit = self.0.settings.terminals;
        if handle.commands.running(TERMINAL).len() >= limit as usize {
            return Err(SandboxError::TooManyTerminals { limit });
        }
        let id = order.pty_id.clone();
        self.0.catalog.commands().insert(&new_command(&handle, &id, &shown, cwd)).await?;
        self.begin(&handle, &id, ServerPayload::CreatePty(order), None).await?;
        self.terminal(scope, sandbox, &id).await
    }

    /// The terminal of that id, whether it is open or not.
    pub async fn terminal(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<CommandHandle> {
        if !is_terminal(id) {
            self.find_here(scope, sandbox).await?;
            return Err(SandboxError::NoTerminal { id: id.to_owned() });
        }
        self.command(scope, sandbox, id).await.map_err(|error| no_terminal(error, id))
    }

    /// Types something.
    pub async fn type_in(&self, scope: &Scope, sandbox: &str, id: &str, data: Vec<u8>) -> Result<()> {
        let handle = self.open_terminal_of(scope, sandbox, id).await?;
        let order = |data| ServerPayload::PtyInput(PtyInput { pty_id: id.to_owned(), data });
        handle.write_input(id, &data, PATIENCE, order).await
    }

    /// Gives the screen another size.
    pub async fn resize(&self, scope: &Scope, sandbox: &str, id: &str, size: Size) -> Result<()> {
        let (cols, rows) = size.check()?;
        let resize = ResizePtyRequest { pty_id: id.to_owned(), cols, rows };
        self.order_terminal(scope, sandbox, id, ServerPayload::ResizePty(resize)).await
    }

    /// Closes a terminal and ends all that runs in it. One that is closed already stays so.
    pub async fn close_terminal(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<()> {
        let kill = KillPtyRequest { pty_id: id.to_owned() };
        match self.order_terminal(scope, sandbox, id, ServerPayload::KillPty(kill)).await {
            Err(SandboxError::CommandEnded { .. }) => Ok(()),
            done => done,
        }
    }

    async fn order_terminal(
        &self,
        scope: &Scope,
        sandbox: &str,
        id: &str,
        order: ServerPayload,
    ) -> Result<()> {
        self.open_terminal_of(scope, sandbox, id).await?.guest.send(order).await
    }

    /// The sandbox of a terminal that is open.
    async fn open_terminal_of(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<Arc<SandboxHandle>> {
        let handle = self.handle(sandbox).filter(|handle| scope.covers(handle.owner()));
        let open = handle.filter(|handle| handle.commands.get(id).is_some_and(|one| !one.has_ended()));
        match open.filter(|_| is_terminal(id)) {
            Some(handle) => Ok(handle),
            None => {
                self.terminal(scope, sandbox, id).await?;
                self.running(scope, sandbox).await?;
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

//! Commands: what is run in a sandbox, from the order to the end.
//!
//! A command is written down before the guest is told, and the guest keeps its end until the server has written
//! that down too. So whatever is killed in between, every command is known, and every end is told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{
    CommandInput, ForgetCommandRequest, KillCommandRequest, RunCommandRequest,
};
use workspace_catalog::{CatalogError, Command, CommandState, InsertedCommand, NewClaim, NewCommand};

use crate::clock::now;
use crate::command::output::{self, Output};
use crate::command::running::{CommandReservation, End, Progress, RunningCommand};
use crate::config::{check_cwd, check_envs};
use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::id;
use crate::retry::Backoff;
use crate::sandbox_dir::SandboxDir;
use crate::scope::Scope;
use crate::service::Service;

const WORKSPACE: &str = "/workspace";
const COMMAND_MAX: usize = 1 << 20;
/// How long somebody waits for a command to read its input.
const PATIENCE: Duration = Duration::from_secs(5);
/// As many signals as there are.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;
/// Commands have names of this kind, terminals of another.
pub(crate) const COMMAND: &str = "cmd";

/// What to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunRequest {
    /// A line for `/bin/sh`.
    pub command: String,
    /// In which directory.
    pub cwd: Option<String>,
    /// Beside the sandbox's own variables.
    pub envs: BTreeMap<String, String>,
    /// How long it may run. Zero for as long as the sandbox lives.
    pub timeout: Option<Duration>,
    /// Whether its input stays open; else it is empty.
    pub stdin: bool,
    /// Whether it waits when much of its output was not read yet, instead of losing the oldest.
    pub block: bool,
}

/// A command, whether it runs or not.
#[derive(Debug, Clone)]
pub struct CommandHandle {
    /// Names it.
    pub id: String,
    dir: SandboxDir,
    progress: watch::Receiver<Progress>,
    /// One that runs, and its sandbox. Keeps the progress coming.
    running: Option<(Arc<SandboxHandle>, Arc<RunningCommand>)>,
}

impl CommandHandle {
    fn of(handle: &Arc<SandboxHandle>, running: &Arc<RunningCommand>) -> Self {
        let (id, dir, progress) = (running.id.clone(), handle.dir.clone(), running.subscribe());
        Self { id, dir, progress, running: Some((handle.clone(), running.clone())) }
    }

    /// One that ended before anybody asked.
    fn ended(dir: SandboxDir, command: &Command) -> Self {
        let lost = || "it was lost with its sandbox, or could not be run".to_owned();
        let end = End {
            exit_code: command.exit_code.and_then(|code| i32::try_from(code).ok()).unwrap_or(-1),
            timed_out: command.timed_out,
            failed: (command.state == CommandState::Failed).then(lost),
        };
        let (_, progress) = watch::channel(Progress { written: 0, end: Some(end) });
        Self { id: command.id.clone(), dir, progress, running: None }
    }

    /// What it prints, from the byte at `from` on.
    pub async fn output(&self, from: u64) -> Result<Output> {
        if self.running.is_none() && self.has_exited() && !output::is_kept(&self.dir, &self.id).await? {
            return Err(SandboxError::OutputGone { id: self.id.clone() });
        }
        Output::open(&self.dir, &self.id, from, self.progress.clone(), self.running.clone()).await
    }

    /// Whether it ran to its end, so that its guest wrote at least that down.
    fn has_exited(&self) -> bool {
        self.progress.borrow().end.as_ref().is_some_and(|end| end.failed.is_none())
    }

    /// Waits for its end. Fails when its guest agent is given up, or does not tell the end in time.
    pub async fn wait(&mut self) -> Result<End> {
        loop {
            if let Some(end) = self.progress.borrow_and_update().end.clone() {
                return Ok(end);
            }
            // Nobody waits for one that has ended: its end is there.
            let Some((handle, running)) = &self.running else { return Ok(End::default()) };
            if !handle.changed(running, &mut self.progress).await? {
                return Ok(End::default());
            }
        }
    }
}

/// Outcome of [`Service::run_once`].
#[derive(Debug, Clone)]
pub enum Run {
    /// The command was started.
    Started(CommandHandle),
    /// The same request started it before. It may run still, or have ended.
    Repeated(CommandHandle),
}

impl Run {
    /// The command, whoever started it.
    pub fn into_command(self) -> CommandHandle {
        match self {
            Self::Started(command) | Self::Repeated(command) => command,
        }
    }
}

impl Service {
    /// Starts a command.
    pub async fn run(&self, scope: &Scope, sandbox: &str, request: RunRequest) -> Result<CommandHandle> {
        Ok(self.run_once(scope, sandbox, request, None).await?.into_command())
    }

    /// Starts a command, unless the same request, known by its claim, started one before.
    pub async fn run_once(
        &self,
        scope: &Scope,
        sandbox: &str,
        request: RunRequest,
        claim: Option<NewClaim>,
    ) -> Result<Run> {
        // Before anything else: what was begun is answered also when nothing more can be begun.
        if let Some(claim) = &claim {
            self.find_here(scope, sandbox).await?;
            if let Some(id) = self.0.catalog.command_claims().find(claim, sandbox).await? {
                return self.command(scope, sandbox, &id).await.map(Run::Repeated);
            }
        }
        let handle = self.running(scope, sandbox).await?;
        let cwd = request.cwd.as_deref().unwrap_or(WORKSPACE);
        check_command(&request.command)?;
        check_cwd(cwd)?;
        check_envs(&request.envs)?;
        let timeout = request.timeout.unwrap_or(self.0.settings.command_timeout);
        let order = RunCommandRequest {
            command_id: id::new(COMMAND),
            command: request.command.clone(),
            cwd: cwd.to_owned(),
            envs: environment(&handle, request.envs),
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            stdin: request.stdin,
            keep_output: self.kept_of_command(&handle, request.block),
            block_output: request.block,
        };
        let id = order.command_id.clone();
        let limit = self.0.settings.commands;
        let room = handle.commands.reserve(COMMAND, limit).ok_or(SandboxError::TooManyCommands { limit })?;
        let row = new_command(&handle, &id, &request.command, cwd);
        if let Some(claim) = &claim {
            let inserted = self.0.catalog.command_claims().insert(claim, &row).await?;
            if let InsertedCommand::Repeated { command_id } = inserted {
                return self.command(scope, sandbox, &command_id).await.map(Run::Repeated);
            }
        } else {
            self.0.catalog.commands().insert(&row).await?;
        }
        let running = self.begin(&handle, &id, ServerPayload::RunCommand(order), Some(room)).await?;
        if !timeout.is_zero() {
            running.set_report_timeout(timeout.saturating_add(self.0.settings.command_grace));
        }
        if request.block {
            running.set_waits();
        }
        if !request.stdin {
            running.input.close();
        }
        Ok(Run::Started(CommandHandle::of(&handle, &running)))
    }

    /// Orders a command that was written down.
    pub(crate) async fn begin(
        &self,
        handle: &SandboxHandle,
        id: &str,
        order: ServerPayload,
        room: Option<CommandReservation<'_>>,
    ) -> Result<Arc<RunningCommand>> {
        let begun = handle.start_command(id, order, room).await;
        if let Err(error) = &begun {
            self.never_began(&handle.id, id, &End { failed: Some(error.to_string()), ..End::default() })
                .await;
        }
        begun
    }

    /// Writes down that a command never began. Its request may come again.
    pub(crate) async fn never_began(&self, sandbox: &str, id: &str, end: &End) {
        self.write_end(sandbox, id, end).await;
        if let Err(error) = self.0.catalog.command_claims().release(sandbox, id).await {
            tracing::error!(command = id, %error, "failed to release the claim of a command that never began");
        }
    }

    /// The command of that id, whether it runs or has ended.
    pub async fn command(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<CommandHandle> {
        let handle = self.handle(sandbox).filter(|handle| scope.covers(handle.owner()));
        if let Some((handle, running)) =
            handle.and_then(|handle| Some((handle.clone(), handle.commands.get(id)?)))
        {
            return Ok(CommandHandle::of(&handle, &running));
        }
        let command = self.known_command(scope, sandbox, id).await?;
        if command.state != CommandState::Running {
            return Ok(CommandHandle::ended(self.dir(sandbox), &command));
        }
        // It runs, but its guest has not told of it since the server was started.
        let handle =
            self.handle(sandbox).ok_or_else(|| SandboxError::AgentAway { id: sandbox.to_owned() })?;
        Ok(CommandHandle::of(&handle, &handle.commands.get_or_add(id)))
    }

    async fn known_command(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<Command> {
        self.find_here(scope, sandbox).await?;
        let none = || SandboxError::NoCommand { id: id.to_owned() };
        match self.0.catalog.commands().get(id).await {
            Err(CatalogError::Nul { .. }) => Err(none()),
            found => found?.filter(|command| command.sandbox_id == sandbox).ok_or_else(none),
        }
    }

    /// The newest commands of a sandbox, newest first.
    pub async fn commands(&self, scope: &Scope, sandbox: &str, limit: u32) -> Result<Vec<Command>> {
        self.find(scope, sandbox).await?;
        Ok(self.0.catalog.commands().list(sandbox, limit).await?)
    }

    /// Sends a signal to a command and all that came of it, also to what it left behind when it ended.
    pub async fn kill(&self, scope: &Scope, sandbox: &str, id: &str, signal: i32) -> Result<()> {
        if !SIGNALS.contains(&signal) {
            let message = "a number from 1 to 64 is allowed".to_owned();
            return Err(SandboxError::Invalid { field: "signal", message });
        }
        let handle = match self.takes_orders(scope, sandbox, id).await {
            Err(SandboxError::CommandEnded { id }) => {
                let Ok(handle) = self.running(scope, sandbox).await else {
                    return Err(SandboxError::CommandEnded { id });
                };
                match self.has_left(&handle, &id).await {
                    Ok(true) => handle,
                    Ok(false) => return Err(SandboxError::CommandEnded { id }),
                    // Nobody knows whether it left something, because the guest is older, slow or away. It is told anyway.
                    Err(_) => {
                        let order = KillCommandRequest { command_id: id.clone(), signal };
                        drop(handle.guest.send(ServerPayload::KillCommand(order)).await);
                        return Err(SandboxError::CommandEnded { id });
                    }
                }
            }
            handle => handle?,
        };
        let order = KillCommandRequest { command_id: id.to_owned(), signal };
        handle.guest.send(ServerPayload::KillCommand(order)).await.map(|_| ())
    }

    /// Gives a command something to read.
    pub async fn input(
        &self,
        scope: &Scope,
        sandbox: &str,
        id: &str,
        data: Vec<u8>,
        close: bool,
    ) -> Result<()> {
        let handle = self.takes_orders(scope, sandbox, id).await?;
        let order = |data, close| {
            ServerPayload::CommandInput(CommandInput { command_id: id.to_owned(), data, close })
        };
        handle.write_input(id, &data, PATIENCE, |data| order(data, false)).await?;
        if close {
            handle.close_input(id, PATIENCE, order(Vec::new(), true)).await?;
        }
        Ok(())
    }

    /// The sandbox of a command that has not ended.
    async fn takes_orders(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<Arc<SandboxHandle>> {
        let handle = self.handle(sandbox).filter(|handle| scope.covers(handle.owner()));
        if let Some(handle) =
            handle.filter(|handle| handle.commands.get(id).is_some_and(|one| !one.has_ended()))
        {
            return Ok(handle);
        }
        match self.known_command(scope, sandbox, id).await?.state {
            CommandState::Running => self.running(scope, sandbox).await,
            _ => Err(SandboxError::CommandEnded { id: id.to_owned() }),
        }
    }

    /// A command ended: whoever waits is told, it is written down, and then the guest may forget it.
    pub(crate) async fn ended(&self, handle: &Arc<SandboxHandle>, id: &str, end: &End) {
        let mut backoff = Backoff::new();
        while !self.write_end(&handle.id, id, end).await {
            backoff.wait().await;
            if self.handle(&handle.id).is_none() {
                // The guest tells the next server, or whoever removes the sandbox writes its commands off.
                return;
            }
        }
        // A guest that is away tells again when it is back.
        let forget = ForgetCommandRequest { command_id: id.to_owned() };
        drop(handle.guest.send(ServerPayload::ForgetCommand(forget)).await);
        handle.commands.remove(id);
        self.forget_old(handle).await;
    }

    /// Whether it is known now how the command ended.
    pub(crate) async fn write_end(&self, sandbox: &str, id: &str, end: &End) -> bool {
        let row = workspace_catalog::End {
            exited: end.failed.is_none(),
            exit_code: Some(end.exit_code.into()),
            timed_out: end.timed_out,
            ended_at: now(),
        };
        match self.0.catalog.commands().finish(sandbox, id, row).await {
            // Told twice, of a sandbox that is gone, or by a guest that has no such command.
            Ok(()) | Err(CatalogError::Ended { .. } | CatalogError::NotFound { .. }) => true,
            Err(error) => {
                tracing::error!(command = id, %error, "the end of a command could not be written down");
                false
            }
        }
    }
}

/// The row of a command that is about to begin.
pub(crate) fn new_command(handle: &SandboxHandle, id: &str, command: &str, cwd: &str) -> NewCommand {
    NewCommand {
        id: id.to_owned(),
        sandbox_id: handle.id.clone(),
        command: command.to_owned(),
        cwd: Some(cwd.to_owned()),
        started_at: now(),
    }
}

/// The sandbox's variables, and over them the command's.
pub(crate) fn environment(
    handle: &SandboxHandle,
    own: BTreeMap<String, String>,
) -> std::collections::HashMap<String, String> {
    handle.envs().into_iter().chain(own).collect()
}

pub(crate) fn check_command(command: &str) -> Result<()> {
    if command.is_empty() || command.len() > COMMAND_MAX || command.contains('\0') {
        let message = format!("1 to {COMMAND_MAX} bytes without a NUL are allowed");
        return Err(SandboxError::Invalid { field: "command", message });
    }
    Ok(())
}

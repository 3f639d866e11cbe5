//! Commands in a sandbox, from the request to the exit.
//!
//! A command is in the catalog before the guest agent is told to start it, and the agent keeps its exit
//! status until the server has recorded it. So every command is known and every exit is reported, even if the
//! server or the agent is killed in between.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{
    CommandInput, ForgetCommandRequest, KillCommandRequest, RunCommandRequest,
};
use workspace_catalog::{
    CatalogError, Command, CommandEnd, CommandState, CommandTrace, IdempotencyClaim, NewCommand,
};

use crate::clock::now;
use crate::command::command_line::{CommandLine, check_tag};
use crate::command::output::{self, Output};
use crate::command::running::{CommandExit, CommandReservation, Progress, RunningCommand, TraceOutcome};
use crate::command::start::{PendingStart, RunningLimit, StartOptions, Started};
use crate::command::trace::TRACE_PENDING;
use crate::config::{check_cwd, check_envs};
use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::id;
use crate::retry::Backoff;
use crate::sandbox_dir::SandboxDir;
use crate::scope::Scope;
use crate::service::{RECONNECT_TIMEOUT, Service};

/// Default working directory.
const WORKSPACE: &str = "/workspace";
/// Timeout for a command to read its input.
const INPUT_TIMEOUT: Duration = Duration::from_secs(5);
/// Numbers of signals.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;
/// Prefix of the ids of commands.
pub(crate) const COMMAND_ID_PREFIX: &str = "cmd";

/// Parameters of a new command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunRequest {
    /// Program to run.
    pub command: CommandLine,
    /// Tag, by which commands can be listed.
    pub tag: Option<String>,
    /// Working directory; `/workspace` by default.
    pub cwd: Option<String>,
    /// Environment variables in addition to those of the sandbox.
    pub envs: BTreeMap<String, String>,
    /// Timeout. Zero for none, `None` for the default.
    pub timeout: Option<Duration>,
    /// True if standard input stays open; otherwise it is empty.
    pub stdin: bool,
    /// True if the command waits when much of its output is not read yet; otherwise the oldest output is dropped.
    pub block_on_unread_output: bool,
    /// User that runs it: a name in the sandbox, or a UID; `None` for the user of the sandbox.
    pub user: Option<String>,
}

/// A command that runs or has exited.
#[derive(Debug, Clone)]
pub struct CommandHandle {
    /// Unique id of the command, `cmd-` or `pty-` followed by a UUIDv7.
    pub id: String,
    /// Directory of the sandbox, with the output.
    dir: SandboxDir,
    /// Latest progress of the command.
    progress: watch::Receiver<Progress>,
    /// A running command and its sandbox. Keeps the sender of the progress alive.
    running: Option<(Arc<SandboxHandle>, Arc<RunningCommand>)>,
}

impl CommandHandle {
    fn of(handle: &Arc<SandboxHandle>, running: &Arc<RunningCommand>) -> Self {
        let (id, dir, progress) = (running.id.clone(), handle.dir.clone(), running.subscribe());
        Self { id, dir, progress, running: Some((handle.clone(), running.clone())) }
    }

    /// Creates the handle of a command that the catalog lists as ended.
    fn ended(dir: SandboxDir, command: &Command) -> Self {
        let lost = || "it was lost with its sandbox, or could not be started".to_owned();
        let exit = CommandExit {
            exit_code: command.exit_code.and_then(|code| i32::try_from(code).ok()).unwrap_or(-1),
            timed_out: command.timed_out,
            failure_reason: (command.state == CommandState::Failed).then(lost),
            trace: match (&command.snapshot, &command.trace_error) {
                (Some(snapshot), _) => TraceOutcome::Snapshot(snapshot.clone()),
                (None, Some(reason)) => TraceOutcome::Failed(reason.clone()),
                (None, None) => TraceOutcome::None,
            },
        };
        let (_, progress) = watch::channel(Progress { written: 0, exit: Some(exit) });
        Self { id: command.id.clone(), dir, progress, running: None }
    }

    /// Reads its output from offset `from` on.
    pub async fn output(&self, from: u64) -> Result<Output> {
        if self.running.is_none() && self.has_exited() && !output::has_segments(&self.dir, &self.id).await? {
            return Err(SandboxError::OutputGone { id: self.id.clone() });
        }
        Output::open(&self.dir, &self.id, from, self.progress.clone(), self.running.clone()).await
    }

    /// Returns true if the program exited: then the guest agent has written at least the exit status to its output.
    fn has_exited(&self) -> bool {
        self.progress.borrow().exit.as_ref().is_some_and(|exit| exit.failure_reason.is_none())
    }

    /// Waits for its exit. Fails when its guest agent is lost, or does not report the exit in time.
    pub async fn wait(&mut self) -> Result<CommandExit> {
        loop {
            if let Some(exit) = self.progress.borrow_and_update().exit.clone() {
                return Ok(exit);
            }
            // A command without a handle has exited, so its exit is known.
            let Some((handle, running)) = &self.running else { return Ok(CommandExit::default()) };
            if !handle.wait_for_progress(running, &mut self.progress).await? {
                return Ok(CommandExit::default());
            }
        }
    }
}

/// State of a command's standard input after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterInput {
    /// More input can be written.
    KeepOpen,
    /// The command reads end of file after this input.
    Close,
}

/// Result of [`Service::run_once`].
#[derive(Debug, Clone)]
pub enum CommandStart {
    /// The command was started.
    New(CommandHandle),
    /// An earlier request with the same idempotency key started the command, which may have ended.
    Existing(CommandHandle),
}

impl CommandStart {
    /// Returns the command, new or existing.
    pub fn command(&self) -> &CommandHandle {
        match self {
            Self::New(command) | Self::Existing(command) => command,
        }
    }

    /// Returns the command, new or existing.
    pub fn into_command(self) -> CommandHandle {
        match self {
            Self::New(command) | Self::Existing(command) => command,
        }
    }
}

/// Result of [`Service::record_exit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitRecord {
    /// The exit was recorded.
    New,
    /// An exit is recorded already, or the command does not exist.
    Existing,
    /// The exit was not recorded; that has to be retried.
    Failed,
}

impl Service {
    /// Starts a command.
    pub async fn run(&self, scope: &Scope, sandbox: &str, request: RunRequest) -> Result<CommandHandle> {
        Ok(self.run_once(scope, sandbox, request, None).await?.into_command())
    }

    /// Starts a command, unless an earlier request with the idempotency key of `claim` did.
    pub async fn run_once(
        &self,
        scope: &Scope,
        sandbox: &str,
        request: RunRequest,
        claim: Option<IdempotencyClaim>,
    ) -> Result<CommandStart> {
        // Before anything else: a repeated request is answered even when nothing more can be started.
        if let Some(claim) = &claim {
            self.find_on_this_server(scope, sandbox).await?;
            if let Some(id) = self.0.catalog.command_claims().find(claim, sandbox).await? {
                return self.command(scope, sandbox, &id).await.map(CommandStart::Existing);
            }
        }
        let timeout = request.timeout.unwrap_or(self.0.settings.command_timeout);
        let max_wait = if timeout.is_zero() { RECONNECT_TIMEOUT } else { timeout };
        let handle = self.find_running_within(scope, sandbox, max_wait).await?;
        let cwd = request.cwd.as_deref().unwrap_or(WORKSPACE);
        request.command.check()?;
        request.tag.as_deref().map(check_tag).transpose()?;
        check_cwd(cwd)?;
        check_envs(&request.envs)?;
        let text = request.command.to_text();
        let (command, argv) = request.command.into_parts();
        if argv.is_some() && !handle.guest.stream()?.capabilities.runs_argv {
            return Err(handle.guest.outdated_error());
        }
        let user = handle.requested_user(request.user)?;
        let start = RunCommandRequest {
            command_id: id::new(COMMAND_ID_PREFIX),
            command,
            argv: argv.clone().unwrap_or_default(),
            cwd: cwd.to_owned(),
            envs: environment(&handle, request.envs),
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            stdin: request.stdin,
            keep_output: self.kept_of_command(&handle, request.block_on_unread_output),
            block_output: request.block_on_unread_output,
            user,
        };
        let id = start.command_id.clone();
        let max = self.0.settings.max_commands;
        let pending = PendingStart {
            handle: handle.clone(),
            row: NewCommand { argv, tag: request.tag, ..new_command(&handle, &id, &text, cwd) },
            idempotency_claim: claim,
            message: ServerPayload::RunCommand(start),
            limit: RunningLimit { id_prefix: COMMAND_ID_PREFIX, max },
            options: StartOptions {
                exit_report_timeout: (!timeout.is_zero())
                    .then(|| timeout.saturating_add(self.0.settings.command_grace)),
                blocks_on_unread_output: request.block_on_unread_output,
                stdin: request.stdin,
            },
        };
        let running = match self.record_and_start(pending).await? {
            Started::New(running) => running,
            Started::Existing(id) => {
                return self.command(scope, sandbox, &id).await.map(CommandStart::Existing);
            }
            Started::LimitReached => return Err(SandboxError::TooManyCommands { limit: max }),
        };
        Ok(CommandStart::New(CommandHandle::of(&handle, &running)))
    }

    /// Tells the guest agent to start a command that is in the catalog.
    pub(crate) async fn start_recorded(
        &self,
        handle: &SandboxHandle,
        id: &str,
        request: ServerPayload,
        reservation: CommandReservation<'_>,
    ) -> Result<Arc<RunningCommand>> {
        // No command starts while a trace reads the files that another one changed.
        let started = match handle.block_traces().await {
            Ok(_permit) => handle.start_command(reservation, request).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &started {
            self.record_never_began(&handle.id, id, &CommandExit::failed(error.to_string())).await;
        }
        started
    }

    /// Records that a command never started, and releases its idempotency key: the request may be repeated.
    /// Does neither for a command whose end is already recorded, because it may have run.
    pub(crate) async fn record_never_began(&self, sandbox: &str, id: &str, exit: &CommandExit) {
        if self.record_exit(sandbox, id, exit, None).await == ExitRecord::Existing {
            return;
        }
        if let Err(error) = self.0.catalog.command_claims().release(sandbox, id).await {
            tracing::error!(command = id, %error, "failed to release the claim of an unstarted command");
        }
    }

    /// Returns the command with this id, running or ended.
    pub async fn command(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<CommandHandle> {
        let handle = self.handle_in(scope, sandbox);
        if let Some((handle, running)) =
            handle.and_then(|handle| Some((handle.clone(), handle.commands.get(id)?)))
        {
            return Ok(CommandHandle::of(&handle, &running));
        }
        let command = self.known_command(scope, sandbox, id).await?;
        if command.state != CommandState::Running {
            return Ok(CommandHandle::ended(self.dir(sandbox), &command));
        }
        // It runs, but its guest agent has not reported it since the server was started.
        let handle =
            self.handle(sandbox).ok_or_else(|| SandboxError::AgentAway { id: sandbox.to_owned() })?;
        Ok(CommandHandle::of(&handle, &handle.commands.get_or_add(id)))
    }

    /// Returns the row of a command of a sandbox on this server.
    async fn known_command(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<Command> {
        self.find_on_this_server(scope, sandbox).await?;
        self.sandbox_command(sandbox, id).await
    }

    /// Returns the row of a command of a sandbox. The caller has checked that the sandbox is in its scope.
    pub(crate) async fn sandbox_command(&self, sandbox: &str, id: &str) -> Result<Command> {
        let none = || SandboxError::NoCommand { id: id.to_owned() };
        match self.0.catalog.commands().get(id).await {
            // No command has an id with a NUL.
            Err(CatalogError::Nul { .. }) => Err(none()),
            found => found?.filter(|command| command.sandbox_id == sandbox).ok_or_else(none),
        }
    }

    /// Lists the newest commands of a sandbox, newest first; with `tag`, only those that have it.
    pub async fn commands(
        &self,
        scope: &Scope,
        sandbox: &str,
        tag: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Command>> {
        self.find(scope, sandbox).await?;
        tag.map(check_tag).transpose()?;
        let mut commands = self.0.catalog.commands().list(sandbox, tag, limit).await?;
        if let Some(handle) = self.handle(sandbox) {
            commands.iter_mut().for_each(|command| set_reported_pid(&handle, command));
        }
        Ok(commands)
    }

    /// Returns the record of a command, and the offsets between which its output is kept; `None` if there is none.
    pub async fn command_record(
        &self,
        scope: &Scope,
        sandbox: &str,
        id: &str,
    ) -> Result<(Command, Option<Range<u64>>)> {
        let mut command = self.known_command(scope, sandbox, id).await?;
        if let Some(handle) = self.handle(sandbox) {
            set_reported_pid(&handle, &mut command);
        }
        let kept = output::kept_range(&self.dir(sandbox), id).await?;
        Ok((command, kept))
    }

    /// Sends a signal to all processes of a command, also to those that outlived it.
    pub async fn kill(&self, scope: &Scope, sandbox: &str, id: &str, signal: i32) -> Result<()> {
        if !SIGNALS.contains(&signal) {
            let message = "must be between 1 and 64".to_owned();
            return Err(SandboxError::Invalid { field: "signal", message });
        }
        let handle = match self.find_active(scope, sandbox, id).await {
            Err(SandboxError::CommandEnded { id }) => {
                let Ok(handle) = self.find_running(scope, sandbox).await else {
                    return Err(SandboxError::CommandEnded { id });
                };
                match self.has_leftover_processes(&handle, &id).await {
                    Ok(true) => handle,
                    Ok(false) => return Err(SandboxError::CommandEnded { id }),
                    // It is unknown whether processes outlived it, because the guest agent is older, slow or away.
                    // The signal is sent anyway.
                    Err(_) => {
                        let kill = KillCommandRequest { command_id: id.clone(), signal };
                        drop(handle.guest.send(ServerPayload::KillCommand(kill)).await);
                        return Err(SandboxError::CommandEnded { id });
                    }
                }
            }
            handle => handle?,
        };
        let kill = KillCommandRequest { command_id: id.to_owned(), signal };
        handle.guest.send(ServerPayload::KillCommand(kill)).await.map(|_| ())
    }

    /// Writes to the standard input of a command. Waits up to 5 s for each piece while the command reads
    /// slower.
    pub async fn input(
        &self,
        scope: &Scope,
        sandbox: &str,
        id: &str,
        data: Vec<u8>,
        after: AfterInput,
    ) -> Result<()> {
        let handle = self.find_active(scope, sandbox, id).await?;
        let message = |data, close| {
            ServerPayload::CommandInput(CommandInput { command_id: id.to_owned(), data, close })
        };
        handle.write_input(id, &data, INPUT_TIMEOUT, |data| message(data, false)).await?;
        if after == AfterInput::Close {
            handle.close_input(id, INPUT_TIMEOUT, message(Vec::new(), true)).await?;
        }
        Ok(())
    }

    /// Returns the sandbox of a command that has not ended.
    async fn find_active(&self, scope: &Scope, sandbox: &str, id: &str) -> Result<Arc<SandboxHandle>> {
        let ended = || SandboxError::CommandEnded { id: id.to_owned() };
        if let Some(handle) = self.handle_in(scope, sandbox)
            && let Some(command) = handle.commands.get(id)
        {
            // The exit may not be in the catalog yet.
            return match command.has_ended() {
                true => Err(ended()),
                false => handle.check_not_paused().map(|()| handle),
            };
        }
        match self.known_command(scope, sandbox, id).await?.state {
            CommandState::Running => self.find_running(scope, sandbox).await,
            _ => Err(ended()),
        }
    }

    /// Records the exit of a command, with retries, and then tells the guest agent to forget it.
    pub(crate) async fn finish_command(&self, handle: &Arc<SandboxHandle>, id: &str, exit: &CommandExit) {
        if self.record_exit_until_done(handle, id, exit).await {
            self.forget_command(handle, id).await;
        }
    }

    /// Records the exit of a command, with retries. Returns false if the sandbox was removed before that was possible.
    pub(crate) async fn record_exit_until_done(
        &self,
        handle: &SandboxHandle,
        id: &str,
        exit: &CommandExit,
    ) -> bool {
        let mut backoff = Backoff::default();
        let pid = handle.commands.get(id).and_then(|command| command.pid());
        while self.record_exit(&handle.id, id, exit, pid).await == ExitRecord::Failed {
            backoff.wait().await;
            if self.handle(&handle.id).is_none() {
                // The guest agent reports it to the next server, or the removal of the sandbox records it.
                return false;
            }
        }
        true
    }

    /// Tells the guest agent to forget a command whose exit is recorded.
    pub(crate) async fn forget_command(&self, handle: &Arc<SandboxHandle>, id: &str) {
        // A disconnected guest agent reports the exit again when it reconnects.
        let forget = ForgetCommandRequest { command_id: id.to_owned() };
        drop(handle.guest.send(ServerPayload::ForgetCommand(forget)).await);
        handle.commands.remove(id);
        self.remove_old_commands(handle).await;
    }

    /// Records the exit of a command, and its PID if that is known.
    pub(crate) async fn record_exit(
        &self,
        sandbox: &str,
        id: &str,
        exit: &CommandExit,
        pid: Option<u32>,
    ) -> ExitRecord {
        let row = exit_row(exit, pid);
        let trace_error = match &exit.trace {
            TraceOutcome::Failed(reason) => Some(reason.as_str()),
            TraceOutcome::Pending => Some(TRACE_PENDING),
            TraceOutcome::None | TraceOutcome::Snapshot(_) => None,
        };
        let recorded = match trace_error {
            Some(reason) => {
                let trace = CommandTrace::Failed(reason.to_owned());
                self.0.catalog.commands().finish_traced(sandbox, id, row, trace).await
            }
            None => self.0.catalog.commands().finish(sandbox, id, row).await,
        };
        match recorded {
            Ok(()) => ExitRecord::New,
            // Reported twice, for a removed sandbox, or for a command that does not exist.
            Err(CatalogError::Ended { .. } | CatalogError::NotFound { .. }) => ExitRecord::Existing,
            Err(error) => {
                tracing::error!(command = id, %error, "failed to record the exit of a command");
                ExitRecord::Failed
            }
        }
    }
}

/// Returns the exit status for the catalog.
pub(crate) fn exit_row(exit: &CommandExit, pid: Option<u32>) -> CommandEnd {
    CommandEnd {
        exited: exit.failure_reason.is_none(),
        // -1 means that there is no exit code.
        exit_code: Some(i64::from(exit.exit_code)).filter(|code| *code >= 0),
        timed_out: exit.timed_out,
        pid,
        ended_at: now(),
    }
}

/// Sets the PID of a running command. It is in the catalog only when the command has ended.
fn set_reported_pid(handle: &SandboxHandle, command: &mut Command) {
    let reported = || handle.commands.get(&command.id).and_then(|running| running.pid());
    command.pid = command.pid.or_else(reported);
}

/// Creates the row of a command that is about to start.
pub(crate) fn new_command(handle: &SandboxHandle, id: &str, command: &str, cwd: &str) -> NewCommand {
    NewCommand {
        id: id.to_owned(),
        sandbox_id: handle.id.clone(),
        command: command.to_owned(),
        argv: None,
        cwd: Some(cwd.to_owned()),
        tag: None,
        started_at: now(),
    }
}

/// Merges the environment variables of the sandbox and of the command, which take precedence.
pub(crate) fn environment(
    handle: &SandboxHandle,
    of_command: BTreeMap<String, String>,
) -> std::collections::HashMap<String, String> {
    handle.envs().into_iter().chain(of_command).collect()
}

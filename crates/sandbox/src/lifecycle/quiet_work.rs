//! Completions of running sandboxes, at moments at which nothing in them changes files.
//!
//! Such a moment is *quiet*: no command runs, nor any process that a command left behind; the shell of each open
//! terminal has no child; and no request changes files. So half a file that a program writes, or half a commit of git,
//! is never completed. Commands and requests that begin meanwhile wait until the files are read. Input of terminals
//! does not wait; if there was any, the snapshot is thrown away.

use std::sync::Arc;

use workspace_agent_protocol::v1::Process;
use workspace_catalog::{Sandbox, State};
use workspace_state::Cancel;

use crate::command::running::RunningCommand;
use crate::command::terminal::is_terminal;
use crate::config::Config;
use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::lifecycle::operation_lock::OperationLockGuard;
use crate::lifecycle::remaining_work::{CommittedWork, CompletedWork};
use crate::project_work::{Occasion, WorkRecorder};
use crate::service::{Service, config_of};

/// Names of programs that change no files while they wait for input.
const SHELLS: [&str; 7] = ["sh", "ash", "bash", "dash", "fish", "ksh", "zsh"];

/// Running sandbox whose changes are merged into a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveSandbox {
    /// Id of the sandbox.
    pub id: String,
    /// Id of the project.
    pub project: String,
    /// Number of events so far after which its files may differ.
    pub activity: u64,
}

/// Result of [`Service::complete_if_quiet`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuietWork {
    /// Id of the completion.
    Completed(String),
    /// There is nothing to complete.
    Unchanged,
    /// Files may be changing, or an earlier completion is not decided yet. Try again later.
    NotQuiet,
}

/// Input and output of an open terminal.
#[derive(Debug, PartialEq, Eq)]
struct TerminalPosition {
    id: String,
    /// Bytes of input that were sent.
    input: u64,
    /// Bytes of output.
    output: u64,
}

impl Service {
    /// Lists the sandboxes of this server whose processes may run and whose changes are merged into a project.
    pub fn active_sandboxes(&self) -> Vec<ActiveSandbox> {
        let handles = self.handles();
        let active = handles.iter().filter_map(|handle| {
            let project = handle.target_project()?.to_owned();
            Some(ActiveSandbox { id: handle.id.clone(), project, activity: handle.activity() })
        });
        active.collect()
    }

    /// Completes the changes in a sandbox, if it is quiet now. Waits for no other operation on the sandbox.
    pub async fn complete_if_quiet(&self, id: &str) -> Result<QuietWork> {
        let id = id.to_owned();
        self.cancellable(|service, cancel| async move { service.complete_quiet(&id, &cancel).await }).await
    }

    async fn complete_quiet(&self, id: &str, cancel: &Cancel) -> Result<QuietWork> {
        let Some(recorder) = &self.0.settings.work_recorder else { return Ok(QuietWork::Unchanged) };
        let (Some(handle), Some(_work)) = (self.handle(id), self.try_lock_work(id)) else {
            return Ok(QuietWork::NotQuiet);
        };
        let Some(operation) = self.0.operation_locks.try_lock(id) else { return Ok(QuietWork::NotQuiet) };
        let sandbox = self.with_recorded_base(self.read_row(id).await?).await?;
        let config = config_of(&sandbox)?;
        let runs = sandbox.state == State::Running && sandbox.pause.is_none() && self.is_current(&handle);
        if !runs {
            return Ok(QuietWork::NotQuiet);
        }
        if config.completion_base().is_none() {
            return Ok(QuietWork::Unchanged);
        }
        self.check_trace_quota(&handle).await?;
        let committed = match self.commit_if_quiet(&sandbox, &handle, operation, cancel).await {
            // A client changes files.
            Err(SandboxError::WorkspaceBusy { .. }) => return Ok(QuietWork::NotQuiet),
            committed => committed?,
        };
        match committed {
            QuietCommit::Committed(committed) => {
                self.record_quiet(&sandbox, &config, *committed, recorder.as_ref()).await
            }
            QuietCommit::Empty => Ok(QuietWork::Unchanged),
            QuietCommit::NotQuiet => Ok(QuietWork::NotQuiet),
        }
    }

    /// Commits the workspace of a sandbox if that is quiet from before the files are read until after it.
    async fn commit_if_quiet(
        &self,
        sandbox: &Sandbox,
        handle: &Arc<SandboxHandle>,
        operation: OperationLockGuard,
        cancel: &Cancel,
    ) -> Result<QuietCommit> {
        // No command starts while this guard is held.
        let Some(_no_starts) = handle.tracer.try_block_starts() else { return Ok(QuietCommit::NotQuiet) };
        let Some(terminals) = quiet_terminals(handle).await else { return Ok(QuietCommit::NotQuiet) };
        let access = self.exclusive_access(&handle.id, &operation, cancel).await?;
        if handle.io.is_transferring() {
            return Ok(QuietCommit::NotQuiet);
        }
        let commit = self.commit_work(sandbox, Occasion::Quiet, cancel);
        let (committed, thawed) = if terminals.is_empty() {
            (commit.await?, Ok(()))
        } else {
            let (committed, thawed) = self.while_frozen(sandbox, &access, commit).await?;
            (committed, thawed.map(drop))
        };
        let Some(committed) = committed else { return thawed.map(|()| QuietCommit::Empty) };
        let stayed_quiet = thawed.is_ok() && quiet_terminals(handle).await == Some(terminals);
        if stayed_quiet {
            return Ok(QuietCommit::Committed(Box::new(committed)));
        }
        self.discard_work(sandbox, &committed).await;
        thawed.map(|()| QuietCommit::NotQuiet)
    }

    async fn record_quiet(
        &self,
        sandbox: &Sandbox,
        config: &Config,
        committed: CommittedWork,
        recorder: &dyn WorkRecorder,
    ) -> Result<QuietWork> {
        let completed = self.record_work(sandbox, config, committed, Occasion::Quiet, recorder).await?;
        Ok(match completed {
            CompletedWork::Completed(completion) => {
                self.count_completion(&sandbox.id);
                QuietWork::Completed(completion)
            }
            CompletedWork::Nothing => QuietWork::Unchanged,
            CompletedWork::Postponed => QuietWork::NotQuiet,
        })
    }
}

/// Result of [`Service::commit_if_quiet`].
enum QuietCommit {
    Committed(Box<CommittedWork>),
    /// It was quiet, and its workspace is empty and has no snapshot.
    Empty,
    NotQuiet,
}

/// Moment at which no process in a sandbox may be changing files, but for input of its terminals.
pub(crate) struct QuietMoment {
    terminals: Vec<TerminalPosition>,
}

impl QuietMoment {
    /// Returns the present moment if the sandbox is quiet. The caller keeps commands from starting.
    pub(crate) async fn of(handle: &SandboxHandle) -> Option<Self> {
        Some(Self { terminals: quiet_terminals(handle).await? })
    }

    /// Returns true if the terminals had neither input nor output since then. Asks the server alone, and so also while
    /// the sandbox is frozen.
    pub(crate) fn lasts(&self, handle: &SandboxHandle) -> bool {
        positions(&handle.commands.running()) == self.terminals
    }
}

/// Returns the open terminals of a sandbox in which nothing but their idle shells runs; `None` if anything else does,
/// or if the agent does not say.
async fn quiet_terminals(handle: &SandboxHandle) -> Option<Vec<TerminalPosition>> {
    let running = handle.commands.running();
    if !running.iter().all(|command| is_terminal(&command.id)) || handle.commands.has_reserved() {
        return None;
    }
    let terminals = positions(&running);
    let shells: Vec<u32> = running.iter().map(|terminal| terminal.pid()).collect::<Option<_>>()?;
    let processes = handle.guest.request_processes().await?;
    let is_idle = |process: &Process| shells.contains(&process.pid) && is_shell(&process.arguments);
    processes.iter().all(is_idle).then_some(terminals)
}

fn positions(terminals: &[Arc<RunningCommand>]) -> Vec<TerminalPosition> {
    let mut positions: Vec<TerminalPosition> = terminals.iter().map(|terminal| position(terminal)).collect();
    positions.sort_by(|one, other| one.id.cmp(&other.id));
    positions
}

fn position(terminal: &RunningCommand) -> TerminalPosition {
    TerminalPosition { id: terminal.id.clone(), input: terminal.input.sent(), output: terminal.written() }
}

/// Returns true for the arguments of an interactive shell: its name, and options at most, but no script or command.
fn is_shell(arguments: &str) -> bool {
    let mut words = arguments.split(' ').filter(|word| !word.is_empty());
    let name = words.next().map(|program| program.rsplit('/').next().unwrap_or_default());
    let is_known = name.is_some_and(|name| SHELLS.contains(&name.trim_start_matches('-')));
    is_known && words.all(|word| ["-i", "-l", "-il", "-li", "--login"].contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shell_without_a_script_is_idle() {
        for idle in ["/bin/bash", "-bash", "bash -i", "/usr/bin/zsh -l", "sh"] {
            assert!(is_shell(idle), "{idle}");
        }
        for busy in
            ["", "vim a.txt", "bash -c make", "sh build.sh", "/bin/bash -i script", "bashful", "git commit"]
        {
            assert!(!is_shell(busy), "{busy}");
        }
    }
}

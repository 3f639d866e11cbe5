//! Shared state of the agent: running commands, and those whose exit the server has not acknowledged.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::process::Pid;
use tokio::sync::{Notify, mpsc};
use workspace_agent_protocol::output::Writer;
use workspace_agent_protocol::v1::CommandProgress;

use crate::idle_supervisors::{IdleSupervisor, IdleSupervisors};
use crate::inherited_attributes::CommandUsers;
use crate::output::{OutputEvent, OutputSink, UnstoredOutput};
use crate::privileges::Privileges;
use crate::program_start::TerminalSize;

/// Shared state of the agent. Clones share it.
#[derive(Clone)]
pub(crate) struct AgentState {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when there is progress to report to the server.
    progress_notify: Notify,
    /// Directory of output files; `None` if output is sent over the connection.
    output_directory: Option<OwnedFd>,
    /// Capabilities of the agent (`privileges.rs`).
    privileges: Privileges,
}

#[derive(Default)]
struct State {
    /// Commands by id.
    commands: HashMap<String, CommandEntry>,
    /// Commands with progress since the last report.
    changed: BTreeSet<String>,
    /// Supervisors of commands that have processes, by PID.
    supervisors: HashMap<Pid, CommandSupervisor>,
    /// Supervisors without a program, for the next commands.
    idle_supervisors: IdleSupervisors,
    /// Running I/O worker (`io.rs`).
    io_worker: Option<Pid>,
    /// True while the sandbox is paused: timeouts do not advance, and nothing is started.
    is_paused: bool,
}

impl State {
    /// Removes the supervisor of a command, which has no processes any more. Returns the supervisor with the command's
    /// mailbox. If the server has acknowledged the exit of the command, the command is removed as well.
    fn end_supervisor(
        &mut self,
        pid: Pid,
    ) -> Option<(CommandSupervisor, Option<mpsc::Sender<CommandMessage>>)> {
        let supervisor = self.supervisors.remove(&pid)?;
        let entry = self.commands.get(&supervisor.command);
        let mailbox = entry.map(|entry| entry.mailbox.clone());
        if entry.is_some_and(|entry| entry.is_acknowledged) {
            self.commands.remove(&supervisor.command);
        }
        Some((supervisor, mailbox))
    }
}

/// Supervisor of a command: a process forked from the agent, which starts the program and waits for all its processes.
/// Afterwards it can run the program of another command.
struct CommandSupervisor {
    /// Id of the command.
    command: String,
    /// Socket for its next program; `None` if it exits after the command.
    socket: Option<OwnedFd>,
}

/// Command with the channel to its task.
struct CommandEntry {
    progress: CommandProgress,
    /// Sender of messages to the task of the command.
    mailbox: mpsc::Sender<CommandMessage>,
    /// Output that the server has not stored yet; `None` if output goes to files.
    unstored: Option<UnstoredOutput>,
    /// True if the server has acknowledged the exit. The entry is kept while processes of the command run, so
    /// that they can be killed.
    is_acknowledged: bool,
}

impl CommandEntry {
    /// Returns the progress for a server that has just connected. If output goes over the connection, the server gets
    /// the output before it learns of the number of bytes and the exit, so both are left out here.
    fn initial_progress(&self) -> CommandProgress {
        let progress = self.progress.clone();
        match self.unstored {
            Some(_) => CommandProgress { written: 0, end: None, ..progress },
            None => progress,
        }
    }
}

/// Message to the task of a running command.
#[derive(Debug)]
pub(crate) enum CommandMessage {
    /// Sends a signal to all processes of the command.
    Signal(i32),
    /// Writes bytes to the standard input.
    Input(Vec<u8>),
    /// Closes the standard input.
    CloseInput,
    /// A client has received the output up to this offset, so a command with backpressure may continue.
    OutputTaken(u64),
    /// The server has stored output, so a command whose output buffer was full may continue.
    OutputStored,
    /// Changes the size of the terminal.
    Resize(TerminalSize),
    /// Suspends the timeout of the command (true) or continues it (false).
    SuspendTimers(bool),
    /// The supervisor with this PID exited.
    SupervisorExited(Pid),
}

impl AgentState {
    pub(crate) fn new(output_directory: Option<OwnedFd>, privileges: Privileges) -> Self {
        let (state, progress_notify) = (Mutex::default(), Notify::new());
        let shared = Shared { state, progress_notify, output_directory, privileges };
        Self { shared: Arc::new(shared) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }

    /// Returns the privileges of the agent.
    pub(crate) fn privileges(&self) -> Privileges {
        self.shared.privileges
    }

    /// Returns true if output is sent over the connection to the server.
    pub(crate) fn sends_output(&self) -> bool {
        self.shared.output_directory.is_none()
    }

    /// Creates the output of a command. If it goes to files, at least the last `retention` bytes are kept.
    pub(crate) fn create_output(&self, id: &str, retention: u64) -> std::io::Result<OutputSink> {
        if let Some(directory) = &self.shared.output_directory {
            return Ok(OutputSink::Files(Writer::create(directory.try_clone()?, id, retention)?));
        }
        let unstored = UnstoredOutput::default();
        if let Some(entry) = self.state().commands.get_mut(id) {
            entry.unstored = Some(unstored.clone());
        }
        Ok(OutputSink::Streamed(unstored))
    }

    /// Takes the output of a command that has to be sent before its progress.
    pub(crate) fn take_unsent(&self, id: &str) -> Vec<OutputEvent> {
        let unstored = self.state().commands.get(id).and_then(|entry| entry.unstored.clone());
        unstored.map(|unstored| unstored.take_unsent()).unwrap_or_default()
    }

    /// Drops the output of a command up to an offset, which the server has stored. Returns true if the
    /// command has to be notified.
    pub(crate) fn drop_stored(&self, id: &str, offset: u64) -> bool {
        let unstored = self.state().commands.get(id).and_then(|entry| entry.unstored.clone());
        unstored.inspect(|unstored| unstored.drop_stored(offset)).is_some()
    }

    /// Resumes the output on a new connection. The server has stored the output of each command up to the
    /// offset in `stored`; the rest is sent again, followed by the progress of the commands. Returns the
    /// commands, which have to be notified: one that blocked may continue, also if nothing is left to send.
    pub(crate) fn resume_output(&self, stored: &HashMap<String, u64>) -> Vec<String> {
        let mut state = self.state();
        let mut unsent = Vec::new();
        for (id, entry) in &state.commands {
            if let Some(unstored) = entry.unstored.as_ref().filter(|_| !entry.is_acknowledged) {
                unstored.resume(stored.get(id).copied().unwrap_or_default());
                unsent.push(id.clone());
            }
        }
        state.changed.extend(unsent.iter().cloned());
        self.shared.progress_notify.notify_one();
        unsent
    }

    /// Adds a command that is about to start. `has_stdin` is false if its standard input is empty. Returns
    /// false if there is a command with this id.
    pub(crate) fn add(&self, id: &str, mailbox: mpsc::Sender<CommandMessage>, has_stdin: bool) -> bool {
        let mut state = self.state();
        if state.commands.contains_key(id) {
            return false;
        }
        let (command_id, input_closed) = (id.to_owned(), !has_stdin);
        let progress = CommandProgress { command_id, input_closed, ..CommandProgress::default() };
        state.commands.insert(
            id.to_owned(),
            CommandEntry { progress, mailbox, unstored: None, is_acknowledged: false },
        );
        true
    }

    /// Records the supervisor of a command, and its socket for further programs.
    pub(crate) fn add_supervisor(&self, id: &str, pid: Pid, socket: Option<OwnedFd>) {
        let supervisor = CommandSupervisor { command: id.to_owned(), socket };
        self.state().supervisors.insert(pid, supervisor);
    }

    /// Takes an idle supervisor for another command.
    pub(crate) fn take_idle_supervisor(&self) -> Option<IdleSupervisor> {
        // A command may have changed the limits and priorities of a supervisor; such a supervisor is killed instead of
        // taken. The users that commands run as decide which of them can be changed.
        let can_switch_users = self.privileges().can_switch_users();
        let users = if can_switch_users { CommandUsers::All } else { CommandUsers::AgentOnly };
        self.state().idle_supervisors.take(users)
    }

    /// Handles the report that the supervisor of a command has no processes left and waits for the next program.
    pub(crate) fn on_supervisor_idle(&self, id: &str, pid: Pid) {
        let mut state = self.state();
        // The supervisor may have been killed since then, and its PID reused for the supervisor of another command.
        if state.supervisors.get(&pid).is_none_or(|supervisor| supervisor.command != id) {
            return;
        }
        let socket = state.end_supervisor(pid).and_then(|(supervisor, _)| supervisor.socket);
        if let Some(socket) = socket {
            state.idle_supervisors.add(IdleSupervisor { pid, socket });
        }
    }

    /// Handles the exit of a child process. If it was the supervisor of a command, returns the command's
    /// mailbox.
    pub(crate) fn on_child_exited(&self, pid: Pid) -> Option<mpsc::Sender<CommandMessage>> {
        let mut state = self.state();
        state.io_worker.take_if(|worker| *worker == pid);
        state.idle_supervisors.remove(pid);
        state.end_supervisor(pid)?.1
    }

    /// Removes a supervisor that was killed before it received the program of a command. The command goes on under
    /// another one.
    pub(crate) fn forget_killed_supervisor(&self, pid: Pid) {
        self.state().supervisors.remove(&pid);
    }

    /// Records a new I/O worker, and returns the one before it if that still runs.
    pub(crate) fn replace_io_worker(&self, worker: Option<Pid>) -> Option<Pid> {
        std::mem::replace(&mut self.state().io_worker, worker)
    }

    /// Returns true for a child that the agent started: a supervisor or the I/O worker.
    pub(crate) fn is_own_child(&self, pid: Pid) -> bool {
        let state = self.state();
        let is_supervisor = state.supervisors.contains_key(&pid) || state.idle_supervisors.contains(pid);
        is_supervisor || state.io_worker == Some(pid)
    }

    /// Returns true while the sandbox is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.state().is_paused
    }

    /// Suspends the timeouts of all commands because the sandbox is paused, or continues them. No timeout can fire
    /// after this returns: a command handles its messages before its timeout.
    pub(crate) async fn suspend_timers(&self, is_paused: bool) {
        let ids: Vec<String> = {
            let mut state = self.state();
            state.is_paused = is_paused;
            state.commands.keys().cloned().collect()
        };
        for id in ids {
            self.send(&id, CommandMessage::SuspendTimers(is_paused)).await;
        }
    }

    /// Returns the supervisors of commands, with the ids of the commands.
    pub(crate) fn supervisors(&self) -> HashMap<Pid, String> {
        let state = self.state();
        state.supervisors.iter().map(|(pid, supervisor)| (*pid, supervisor.command.clone())).collect()
    }

    /// Returns the number of supervisors without a command.
    pub(crate) fn idle_supervisor_count(&self) -> usize {
        self.state().idle_supervisors.len()
    }

    /// Updates the progress of a command.
    pub(crate) fn set_progress(&self, progress: CommandProgress) {
        let mut state = self.state();
        let id = progress.command_id.clone();
        if let Some(entry) = state.commands.get_mut(&id).filter(|entry| !entry.is_acknowledged) {
            // `count_input` sets this field: input in the mailbox counts as received.
            let input_received = entry.progress.input_received;
            entry.progress = CommandProgress { input_received, ..progress };
            state.changed.insert(id);
            self.shared.progress_notify.notify_one();
        }
    }

    /// Removes a command whose exit the server has acknowledged, or that was not started. A command that still has
    /// processes is removed when they have exited.
    pub(crate) fn forget(&self, id: &str) {
        let mut state = self.state();
        state.changed.remove(id);
        let is_running = state.supervisors.values().any(|supervisor| supervisor.command == id);
        match state.commands.get_mut(id) {
            Some(entry) if is_running => (entry.is_acknowledged, entry.unstored) = (true, None),
            _ => drop(state.commands.remove(id)),
        }
    }

    /// Sends a message to a command. Returns false if the command is not running. Waits while its mailbox is
    /// full, which is brief: a command handles messages before other events.
    pub(crate) async fn send(&self, id: &str, message: CommandMessage) -> bool {
        let mailbox = self.state().commands.get(id).map(|entry| entry.mailbox.clone());
        let Some(mailbox) = mailbox else { return false };
        let input = if let CommandMessage::Input(data) = &message { data.len() as u64 } else { 0 };
        if mailbox.send(message).await.is_err() {
            return false;
        }
        if input > 0 {
            self.count_input(id, input);
        }
        true
    }

    /// Counts received input. The server is notified immediately, since it repeats unacknowledged input after
    /// a reconnect.
    fn count_input(&self, id: &str, input: u64) {
        let mut state = self.state();
        if let Some(entry) = state.commands.get_mut(id).filter(|entry| !entry.is_acknowledged) {
            entry.progress.input_received += input;
            state.changed.insert(id.to_owned());
            self.shared.progress_notify.notify_one();
        }
    }

    /// Returns the progress of all commands, for a server that connects.
    pub(crate) fn all_progress(&self) -> Vec<CommandProgress> {
        let mut state = self.state();
        state.changed.clear();
        let unacknowledged = state.commands.values().filter(|entry| !entry.is_acknowledged);
        unacknowledged.map(CommandEntry::initial_progress).collect()
    }

    /// Waits until commands make progress, and returns it.
    pub(crate) async fn wait_for_progress(&self) -> Vec<CommandProgress> {
        loop {
            let changed = {
                let mut state = self.state();
                let ids = std::mem::take(&mut state.changed);
                let progress = |id: &String| state.commands.get(id).map(|entry| entry.progress.clone());
                ids.iter().filter_map(progress).collect::<Vec<_>>()
            };
            if !changed.is_empty() {
                return changed;
            }
            self.shared.progress_notify.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn resumed_commands_are_to_be_notified_even_if_all_output_is_stored() {
        let (no_output_directory, has_stdin, default_retention) = (None, false, 0);
        let agent = AgentState::new(no_output_directory, Privileges::default());
        let (mailbox, _inbox) = mpsc::channel(1);
        assert!(agent.add("cmd-1", mailbox, has_stdin));
        let mut output = agent.create_output("cmd-1", default_retention).unwrap();
        output.write(workspace_agent_protocol::output::Stream::Stdout, 0, b"text").unwrap();
        assert_eq!(agent.resume_output(&HashMap::from([("cmd-1".to_owned(), 4)])), ["cmd-1"]);
        assert!(agent.take_unsent("cmd-1").is_empty());
        agent.forget("cmd-1");
        assert!(agent.resume_output(&HashMap::new()).is_empty());
    }
}

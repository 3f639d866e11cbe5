//! What the agent knows: the commands it runs, and those whose end the server has not heard of.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use tokio::sync::{Notify, mpsc};
use workspace_agent_protocol::output::Writer;
use workspace_agent_protocol::v1::CommandProgress;

use crate::output::{Output, Piece, Unstored};
use crate::supervise::Size;

/// Shared by everything in the agent.
#[derive(Clone)]
pub(crate) struct Guest {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Something is to be told to the server.
    news: Notify,
    /// The directory of output files; none where output goes over the connection.
    output: Option<OwnedFd>,
}

#[derive(Default)]
struct State {
    commands: HashMap<String, Known>,
    /// Commands that came further since the server was told.
    changed: BTreeSet<String>,
    /// Supervisors that run.
    supervisors: HashMap<Pid, String>,
}

/// A command, and how to reach it.
struct Known {
    progress: CommandProgress,
    orders: mpsc::Sender<Order>,
    /// What is to be sent of its output, where that goes over the connection.
    unstored: Option<Unstored>,
    /// The server knows how it ended. It is kept while something of it runs, which may still be killed.
    forgotten: bool,
}

impl Known {
    /// How far it came, for a server that has just connected. Where output is sent, that comes first.
    fn first_told(&self) -> CommandProgress {
        let progress = self.progress.clone();
        match self.unstored {
            Some(_) => CommandProgress { written: 0, end: None, ..progress },
            None => progress,
        }
    }
}

/// What the server wants of a running command.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send this signal to all of it.
    Signal(i32),
    /// Give it this to read.
    Input(Vec<u8>),
    /// Its input ends.
    CloseInput,
    /// Somebody has its output up to here.
    OutputTaken(u64),
    /// Some of its output is stored, so there may be room for more.
    OutputStored,
    /// Its terminal has another size.
    Resize(Size),
    /// Its supervisor ended: nothing is left of it.
    Gone,
}

impl Guest {
    pub(crate) fn new(output: Option<OwnedFd>) -> Self {
        let shared = Shared { state: Mutex::default(), news: Notify::new(), output };
        Self { shared: Arc::new(shared) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether output goes over the connection to the server.
    pub(crate) fn sends_output(&self) -> bool {
        self.shared.output.is_none()
    }

    /// Begins the output of a command, of which at least the last `keep` bytes stay if it goes to files.
    pub(crate) fn output(&self, id: &str, keep: u64) -> std::io::Result<Output> {
        if let Some(directory) = &self.shared.output {
            return Ok(Output::Files(Writer::create(directory.try_clone()?, id, keep)?));
        }
        let unstored = Unstored::default();
        if let Some(known) = self.state().commands.get_mut(id) {
            known.unstored = Some(unstored.clone());
        }
        Ok(Output::Sent(unstored))
    }

    /// What is to be sent of a command's output before it is told how far it came.
    pub(crate) fn unsent(&self, id: &str) -> Vec<Piece> {
        let unstored = self.state().commands.get(id).and_then(|known| known.unstored.clone());
        unstored.map(|unstored| unstored.unsent()).unwrap_or_default()
    }

    /// The server has stored the output of a command up to here. Whether the command is to be told.
    pub(crate) fn stored(&self, id: &str, offset: u64) -> bool {
        let unstored = self.state().commands.get(id).and_then(|known| known.unstored.clone());
        unstored.inspect(|unstored| unstored.stored(offset)).is_some()
    }

    /// A server connected that has stored this much of each command's output: the rest is to be sent, and then how far
    /// the commands came.
    pub(crate) fn resume(&self, stored: &HashMap<String, u64>) {
        let mut state = self.state();
        let mut unsent = Vec::new();
        for (id, known) in &state.commands {
            if let Some(unstored) = known.unstored.as_ref().filter(|_| !known.forgotten) {
                unstored.resume(stored.get(id).copied().unwrap_or_default());
                unsent.push(id.clone());
            }
        }
        state.changed.extend(unsent);
        self.shared.news.notify_one();
    }

    /// Takes in a command that is about to start; false if there is one of that id already.
    pub(crate) fn add(&self, id: &str, orders: mpsc::Sender<Order>, input: bool) -> bool {
        let mut state = self.state();
        if state.commands.contains_key(id) {
            return false;
        }
        let (command_id, input_closed) = (id.to_owned(), !input);
        let progress = CommandProgress { command_id, input_closed, ..CommandProgress::default() };
        state.commands.insert(id.to_owned(), Known { progress, orders, unstored: None, forgotten: false });
        true
    }

    /// The command runs below this process.
    pub(crate) fn supervised(&self, id: &str, supervisor: Pid) {
        self.state().supervisors.insert(supervisor, id.to_owned());
    }

    /// A process of this agent ended; the command whose supervisor it was.
    pub(crate) fn ended(&self, pid: Pid) -> Option<mpsc::Sender<Order>> {
        let mut state = self.state();
        let id = state.supervisors.remove(&pid)?;
        let known = state.commands.get(&id)?;
        let (orders, forgotten) = (known.orders.clone(), known.forgotten);
        if forgotten {
            state.commands.remove(&id);
        }
        Some(orders)
    }

    /// The supervisors that run, and their commands.
    pub(crate) fn supervisors(&self) -> HashMap<Pid, String> {
        self.state().supervisors.clone()
    }

    /// A command came further.
    pub(crate) fn set_progress(&self, progress: CommandProgress) {
        let mut state = self.state();
        let id = progress.command_id.clone();
        if let Some(known) = state.commands.get_mut(&id).filter(|known| !known.forgotten) {
            // What is on its way to the command came, though the command does not know of it yet.
            let input_received = known.progress.input_received;
            known.progress = CommandProgress { input_received, ..progress };
            state.changed.insert(id);
            self.shared.news.notify_one();
        }
    }

    /// The server knows how it ended, or that it never began.
    pub(crate) fn forget(&self, id: &str) {
        let mut state = self.state();
        state.changed.remove(id);
        let runs = state.supervisors.values().any(|running| running == id);
        match state.commands.get_mut(id) {
            Some(known) if runs => (known.forgotten, known.unstored) = (true, None),
            _ => drop(state.commands.remove(id)),
        }
    }

    /// Passes an order on; false if no such command runs. Waits while many orders are on their way: a command takes
    /// orders before it does anything else, so none is lost and nobody waits long.
    pub(crate) async fn order(&self, id: &str, order: Order) -> bool {
        let orders = self.state().commands.get(id).map(|known| known.orders.clone());
        let Some(orders) = orders else { return false };
        let input = if let Order::Input(data) = &order { data.len() as u64 } else { 0 };
        if orders.send(order).await.is_err() {
            return false;
        }
        if input > 0 {
            self.received(id, input);
        }
        true
    }

    /// Input came. The server is told at once: until then it would send it again to a guest that connects anew.
    fn received(&self, id: &str, input: u64) {
        let mut state = self.state();
        if let Some(known) = state.commands.get_mut(id).filter(|known| !known.forgotten) {
            known.progress.input_received += input;
            state.changed.insert(id.to_owned());
            self.shared.news.notify_one();
        }
    }

    /// All commands, for a server that connects anew.
    pub(crate) fn all_progress(&self) -> Vec<CommandProgress> {
        let mut state = self.state();
        state.changed.clear();
        let untold = state.commands.values().filter(|known| !known.forgotten);
        untold.map(Known::first_told).collect()
    }

    /// Waits until commands came further; how far.
    pub(crate) async fn news(&self) -> Vec<CommandProgress> {
        loop {
            let changed = {
                let mut state = self.state();
                let ids = std::mem::take(&mut state.changed);
                let progress = |id: &String| state.commands.get(id).map(|known| known.progress.clone());
                ids.iter().filter_map(progress).collect::<Vec<_>>()
            };
            if !changed.is_empty() {
                return changed;
            }
            self.shared.news.notified().await;
        }
    }
}

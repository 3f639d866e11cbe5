//! What the server knows of a sandbox beside what the catalog says: the line to its guest agent, and how far its
//! commands have come. All of it can be lost: the guest tells it anew when it connects.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use workspace_agent_protocol::output::Writer;
use workspace_agent_protocol::v1::server_message::Payload as ServerPayload;
use workspace_agent_protocol::v1::{
    CommandProgress, OutputTaken, Process, ProcessesRequest, ResourceUsage, ServerMessage, UsageRequest,
};
use workspace_catalog::{Sandbox, State};
use workspace_workspace::Usage;

use crate::command::input::{Arrival, Input, NoInput, PIECE};
use crate::command::output_limit::KeptOutput;
use crate::config::Config;
use crate::error::{Result, SandboxError};
use crate::sandbox_dir::SandboxDir;
use crate::service::now;

/// How long an order may take to get into the line.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a guest may take to count, or to list processes.
const COUNTING: Duration = Duration::from_secs(1);

/// Time that a guest which was frozen may take to say something.
const AFTER_SILENCE: Duration = Duration::from_secs(15);
/// Between two looks at a sandbox that is frozen when a command's time is over.
const SILENCE_POLL: Duration = Duration::from_millis(500);

/// Limit on doublings of the time for measuring a workspace.
const LOOK_DOUBLINGS: u32 = 3;
/// Commands that a guest may tell of: more than run at once and are remembered, by far.
const TOLD_OF_MAX: usize = 100_000;
/// Length of the longest id of a command, in bytes.
const ID_MAX: usize = 64;
/// Ends of commands of one sandbox that are written down at the same time. A guest that tells of more waits.
const ENDS_AT_ONCE: usize = 64;
/// Processes that a guest may list, and bytes of the arguments of each.
const PROCESSES_MAX: usize = 4_096;
const ARGUMENTS_MAX: usize = 4_096;
/// Connections of a guest, made or lost, that become events, and the period for which that many are allowed.
const CONNECTION_EVENTS: (u32, Duration) = (20, Duration::from_secs(60));

/// A sandbox whose guest agent may dial.
#[derive(Debug)]
pub(crate) struct SandboxHandle {
    pub(crate) id: String,
    /// None for one that was started for nobody yet.
    purpose: OnceLock<Purpose>,
    /// When its time is up, in milliseconds since 1970.
    expires_at: AtomicI64,
    /// When to look at its workspace again.
    pub(crate) disk_due: Mutex<Instant>,
    /// What its workspace had.
    disk_looks: Mutex<DiskLooks>,
    /// True while its workspace is being measured.
    is_looked_at: AtomicBool,
    /// Looks in a row at its workspace that ran out of time.
    unfinished_looks: AtomicU32,
    /// Of files without a name, at the last look.
    deleted: AtomicU64,
    /// What is kept of the output of its commands.
    pub(crate) output: KeptOutput,
    pub(crate) dir: SandboxDir,
    pub(crate) token_hash: String,
    /// Whoever makes it announces that its guest is there for the first time.
    pub(crate) is_being_made: AtomicBool,
    /// Held by who counts its terminals and makes one more.
    pub(crate) terminals: tokio::sync::Mutex<()>,
    line: watch::Sender<Option<Line>>,
    /// The reason why its guest agent was given up; none while it is there or may come back.
    lost: watch::Sender<Option<String>>,
    /// Operations during which its guest agent may be frozen, and the end of the last one.
    silences: Mutex<(usize, Option<Instant>)>,
    /// What its guest counted last.
    usage: watch::Sender<Option<ResourceUsage>>,
    /// The processes that its guest listed last.
    processes: watch::Sender<Vec<Process>>,
    /// Number of the line over which the guest did not answer when it was asked for them; [`NO_LINE`] if it did.
    lists_nothing: AtomicU64,
    commands: Mutex<HashMap<String, Arc<Running>>>,
    /// Ends of commands that are being written down.
    ends: Arc<Semaphore>,
    /// When the present period of events on its connections began, and how many came since.
    connection_events: Mutex<Option<(tokio::time::Instant, u32)>>,
    /// Commands that will be among those soon; changed only by who has the lock of those, or gives up.
    coming: AtomicUsize,
    /// Commands that may end until old ones are looked for.
    until_forgetting: AtomicU32,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// Whose a sandbox is, and what for.
#[derive(Debug)]
struct Purpose {
    owner: String,
    envs: BTreeMap<String, String>,
    disk: Option<u64>,
}

/// The way to a guest agent. A guest that connects anew has another.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) number: u64,
    /// Whether the guest counts the input of commands.
    pub(crate) counts_input: bool,
    /// Whether it says at once how much came.
    confirms_input: bool,
    pub(crate) sender: mpsc::Sender<ServerMessage>,
}

/// A command that has not ended, or whose end was not asked for yet.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: String,
    /// On which line it was ordered; zero for one that the guest told of, or that is about to be ordered.
    line: AtomicU64,
    /// When its end is told at the latest, if it has a time limit.
    due: OnceLock<tokio::time::Instant>,
    progress: watch::Sender<Progress>,
    pub(crate) input: Input,
    /// How much of its output is out before somebody takes it; zero for one that does not wait.
    window: AtomicU64,
    /// How much the guest was told is taken.
    taken: AtomicU64,
    /// Writes its output, where the guest sends that.
    pub(crate) stored: tokio::sync::Mutex<Option<Writer>>,
    /// Whether it waits for its readers.
    waits: AtomicBool,
}

/// How far a command has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of output so far.
    pub written: u64,
    /// How it ended, if it did.
    pub end: Option<End>,
}

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    /// 128 + n for a program that signal n ended.
    pub exit_code: i32,
    /// It ran out of time.
    pub timed_out: bool,
    /// Why it could not be run, or was lost.
    pub failed: Option<String>,
}

impl Running {
    fn new(id: &str, line: u64) -> Self {
        Self {
            id: id.to_owned(),
            line: AtomicU64::new(line),
            due: OnceLock::new(),
            progress: watch::Sender::default(),
            input: Input::default(),
            window: AtomicU64::default(),
            taken: AtomicU64::default(),
            stored: tokio::sync::Mutex::default(),
            waits: AtomicBool::default(),
        }
    }

    pub(crate) fn follow(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Sets the time until its guest has told how it ended.
    pub(crate) fn set_due(&self, after: Duration) {
        if let Some(due) = tokio::time::Instant::now().checked_add(after) {
            // The first stays.
            let _ = self.due.set(due);
        }
    }

    /// It waits for its output to be taken.
    pub(crate) fn waits_for_readers(&self, window: u64) {
        self.window.store(window, Ordering::Relaxed);
        if window > 0 {
            self.set_waits();
        }
    }

    /// Notes that it waits for its readers, before its guest tells how far it goes.
    pub(crate) fn set_waits(&self) {
        self.waits.store(true, Ordering::Relaxed);
    }

    /// Whether its guest is to be told that somebody has its output up to here: it waits for that, and a part of
    /// what it may print meanwhile is out.
    fn is_worth_telling(&self, taken: u64) -> bool {
        let (window, told) = (self.window.load(Ordering::Relaxed), self.taken.load(Ordering::Relaxed));
        let worth = window > 0 && taken > told && taken - told >= window / 8;
        worth && self.taken.fetch_max(taken, Ordering::Relaxed) < taken
    }

    /// Reports whether this server ordered it, so that all it printed was told to this server.
    pub(crate) fn was_ordered_here(&self) -> bool {
        self.line.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.progress.borrow().end.is_some()
    }

    /// Bytes of output so far.
    pub(crate) fn written(&self) -> u64 {
        self.progress.borrow().written
    }

    /// Takes note of how far it came. The first end stays; true for that one.
    pub(crate) fn advance(&self, written: u64, end: Option<&End>) -> bool {
        let mut first_end = false;
        self.progress.send_if_modified(|progress| {
            first_end = progress.end.is_none() && end.is_some();
            let further = written > progress.written;
            progress.written = progress.written.max(written);
            if first_end {
                progress.end = end.cloned();
            }
            further || first_end
        });
        if first_end {
            // Whoever gives it input, or closes that, waits for nothing more.
            self.input.close();
        }
        first_end
    }
}

/// Measurements of a sandbox's workspace.
#[derive(Debug, Default)]
struct DiskLooks {
    /// At the last look, and its time in milliseconds since 1970.
    last: Option<(Usage, i64)>,
    /// From which growth counts: not the last look, which may have come after a sandbox had filled the disk.
    before: Option<Usage>,
}

impl DiskLooks {
    /// Records a measurement and returns the usage. One that was not finished never lowers it.
    fn see(&mut self, used: Usage) -> Usage {
        let seen = match self.last {
            Some((last, _)) if used.at_least => {
                Usage { bytes: used.bytes.max(last.bytes), files: used.files.max(last.files), ..used }
            }
            _ => used,
        };
        self.last = Some((seen, now()));
        seen
    }
}

impl SandboxHandle {
    pub(crate) fn new(id: &str, dir: SandboxDir, token_hash: &str) -> Self {
        Self {
            id: id.to_owned(),
            purpose: OnceLock::new(),
            expires_at: AtomicI64::new(i64::MAX),
            disk_due: Mutex::new(Instant::now()),
            disk_looks: Mutex::default(),
            is_looked_at: AtomicBool::default(),
            unfinished_looks: AtomicU32::new(0),
            deleted: AtomicU64::new(0),
            output: KeptOutput::default(),
            dir,
            token_hash: token_hash.to_owned(),
            is_being_made: AtomicBool::new(true),
            terminals: tokio::sync::Mutex::default(),
            line: watch::Sender::default(),
            lost: watch::Sender::default(),
            silences: Mutex::default(),
            usage: watch::Sender::default(),
            processes: watch::Sender::default(),
            lists_nothing: AtomicU64::new(NO_LINE),
            commands: Mutex::default(),
            ends: Arc::new(Semaphore::new(ENDS_AT_ONCE)),
            connection_events: Mutex::default(),
            coming: AtomicUsize::default(),
            until_forgetting: AtomicU32::default(),
            tasks: Mutex::default(),
        }
    }

    /// The one that the catalog tells of.
    pub(crate) fn of(sandbox: &Sandbox, dir: SandboxDir, config: &Config) -> Self {
        let handle = Self::new(&sandbox.id, dir, &sandbox.token_hash);
        handle.give(&sandbox.owner, sandbox.expires_at, config);
        handle.is_being_made.store(sandbox.state == State::Starting, Ordering::SeqCst);
        // Nobody has looked yet what its commands printed before.
        handle.output.end(Some(u64::MAX));
        handle
    }

    /// Gives one that was started for nobody to somebody. It stays his.
    pub(crate) fn give(&self, owner: &str, expires_at: i64, config: &Config) {
        self.expires_at(expires_at);
        let purpose = Purpose { owner: owner.to_owned(), envs: config.envs.clone(), disk: config.disk };
        // Given twice, it stays with the first.
        drop(self.purpose.set(purpose));
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.purpose.get().map(|purpose| purpose.owner.as_str())
    }

    /// What every command in it finds in its environment.
    pub(crate) fn envs(&self) -> BTreeMap<String, String> {
        self.purpose.get().map(|purpose| purpose.envs.clone()).unwrap_or_default()
    }

    /// Bytes that may be in its workspace.
    pub(crate) fn disk(&self) -> Option<u64> {
        self.purpose.get().and_then(|purpose| purpose.disk)
    }

    /// A task that ends with this.
    pub(crate) fn keep(&self, task: JoinHandle<()>) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    /// Whether its time is up, though nobody has removed it yet.
    pub(crate) fn has_expired(&self, now: i64) -> bool {
        self.expires_at.load(Ordering::Relaxed) <= now
    }

    pub(crate) fn expires_at(&self, time: i64) {
        self.expires_at.store(time, Ordering::Relaxed);
    }

    /// Counts a command that ended; whether it is time to look for old ones, which is so every `period` ends and the
    /// first time.
    pub(crate) fn is_forgetting_due(&self, period: u32) -> bool {
        let next = |left: u32| Some(left.checked_sub(1).unwrap_or(period));
        self.until_forgetting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) == Ok(0)
    }

    pub(crate) fn is_disk_due(&self) -> bool {
        *self.disk_due.lock().unwrap_or_else(PoisonError::into_inner) <= Instant::now()
    }

    /// Notes what was found in its workspace.
    pub(crate) fn disk_seen(&self, used: Usage) {
        self.disk_looks().see(used);
    }

    /// Notes what is in its workspace before it writes anything.
    pub(crate) fn disk_begins(&self, used: Usage) {
        *self.disk_looks() = DiskLooks { last: Some((used, now())), before: Some(used) };
    }

    /// Disk usage of its workspace at the last measurement.
    pub(crate) fn disk_last_usage(&self) -> Option<Usage> {
        self.disk_looks().last.map(|(used, _)| used)
    }

    /// Notes that the disk had enough room after a look that found this: how its workspace grew until then does not matter.
    pub(crate) fn disk_had_room(&self, found: Option<Usage>) {
        let mut looks = self.disk_looks();
        looks.before = found.or(looks.before);
    }

    /// Notes what was found in its workspace while the disk was nearly full; by how much that is more than at the last such
    /// look, or when there was room. Nothing for a sandbox of which nobody knows what it had. `at_least` when the look before
    /// had found no end: then the difference may have been there already.
    pub(crate) fn disk_grown(&self, used: Usage) -> Usage {
        let mut looks = self.disk_looks();
        let seen = looks.see(used);
        let before = looks.before.replace(seen).unwrap_or(seen);
        Usage {
            bytes: seen.bytes.saturating_sub(before.bytes),
            files: seen.files.saturating_sub(before.files),
            at_least: before.at_least,
        }
    }

    /// Lets growth count again at the next look, because nothing came of this one.
    pub(crate) fn disk_grew(&self, grown: Usage) {
        if let Some(before) = &mut self.disk_looks().before {
            before.bytes = before.bytes.saturating_sub(grown.bytes);
            before.files = before.files.saturating_sub(grown.files);
        }
    }

    /// Bytes of its workspace at the last look, and when that was, in milliseconds since 1970; none before the first.
    pub(crate) fn disk_last_seen(&self) -> Option<(u64, i64)> {
        self.disk_looks().last.map(|(used, time)| (used.bytes, time))
    }

    fn disk_looks(&self) -> MutexGuard<'_, DiskLooks> {
        self.disk_looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to look at its workspace; false if somebody does.
    pub(crate) fn begin_look(&self) -> bool {
        !self.is_looked_at.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn end_look(&self) {
        self.is_looked_at.store(false, Ordering::SeqCst);
    }

    /// Bytes that its workspace had at the last look; none before the first.
    pub(crate) fn disk_used(&self) -> u64 {
        self.disk_last_seen().map_or(0, |(bytes, _)| bytes)
    }

    /// Commands that run, each with the offset up to which its output need not be kept.
    pub(crate) fn kept_of_running(&self) -> HashMap<String, u64> {
        let read = |one: &Arc<Running>| match one.waits.load(Ordering::Relaxed) {
            true => one.taken.load(Ordering::Relaxed),
            false => u64::MAX,
        };
        self.running("").iter().map(|one| (one.id.clone(), read(one))).collect()
    }

    /// How many bytes of its workspace were in files without a name at the last look.
    pub(crate) fn deleted(&self) -> u64 {
        self.deleted.load(Ordering::Relaxed)
    }

    /// The same; what is said is the new one.
    pub(crate) fn deleted_seen(&self, bytes: u64) -> u64 {
        self.deleted.swap(bytes, Ordering::Relaxed)
    }

    /// Time limit of the next measurement, doubled for each one in a row that did not finish. Otherwise what is visited first
    /// hides the rest.
    pub(crate) fn look_time(&self, usual: Duration) -> Duration {
        usual * (1 << self.unfinished_looks.load(Ordering::Relaxed).min(LOOK_DOUBLINGS))
    }

    /// Notes whether a look at its workspace found the end.
    pub(crate) fn look_ended(&self, is_finished: bool) {
        let looks =
            if is_finished { 0 } else { self.unfinished_looks.load(Ordering::Relaxed).saturating_add(1) };
        self.unfinished_looks.store(looks, Ordering::Relaxed);
    }

    pub(crate) fn look_again_after(&self, pause: Duration) {
        *self.disk_due.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + pause;
    }

    fn commands(&self) -> MutexGuard<'_, HashMap<String, Arc<Running>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.line.borrow().is_some()
    }

    pub(crate) fn follow_line(&self) -> watch::Receiver<Option<Line>> {
        self.line.subscribe()
    }

    /// A guest connected; the former line, if there is one, is no longer used.
    pub(crate) fn connect(
        &self,
        sender: mpsc::Sender<ServerMessage>,
        counts_input: bool,
        confirms_input: bool,
    ) -> u64 {
        let number = next_line();
        self.lost.send_replace(None);
        self.line.send_replace(Some(Line { number, counts_input, confirms_input, sender }));
        number
    }

    /// The line is lost; false if another took its place before.
    pub(crate) fn disconnect(&self, number: u64) -> bool {
        self.line.send_if_modified(|line| {
            let present = line.as_ref().is_some_and(|line| line.number == number);
            if present {
                *line = None;
            }
            present
        })
    }

    /// Lets nobody in any more, and closes the line; the guest looks for another server.
    pub(crate) fn shut(&self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
        self.line.send_replace(None);
    }

    /// Waits for news of a command: false when there will be none because the service was closed. An error when its
    /// guest agent was given up, or should have told how it ended long ago.
    pub(crate) async fn news(
        &self,
        running: &Running,
        progress: &mut watch::Receiver<Progress>,
    ) -> Result<bool> {
        let mut lost = self.lost.subscribe();
        tokio::select! {
            biased;
            changed = progress.changed() => Ok(changed.is_ok()),
            reason = async { lost.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone()) } => {
                // None when this is dropped, which whoever waits prevents.
                Err(self.unanswered(&reason.unwrap_or_default()))
            }
            () = self.overdue(running) => {
                let reason = format!("it did not tell how command `{}` ended, whose time is over", running.id);
                Err(self.unanswered(&reason))
            }
        }
    }

    fn unanswered(&self, reason: &str) -> SandboxError {
        SandboxError::AgentLost { id: self.id.clone(), reason: reason.to_owned() }
    }

    /// Waits until a command's guest should have told its end. Time in which the guest may be frozen does not count.
    async fn overdue(&self, running: &Running) {
        let Some(due) = running.due.get() else { return std::future::pending().await };
        tokio::time::sleep_until(*due).await;
        while self.is_silent() {
            tokio::time::sleep(SILENCE_POLL).await;
        }
    }

    /// Its guest agent is not expected to say anything until what is returned is dropped.
    pub(crate) fn expect_silence(&self) -> Silence<'_> {
        self.silences().0 += 1;
        Silence(self)
    }

    fn silences(&self) -> MutexGuard<'_, (usize, Option<Instant>)> {
        self.silences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_silent(&self) -> bool {
        let (count, last) = *self.silences();
        count > 0 || last.is_some_and(|last| last.elapsed() < AFTER_SILENCE)
    }

    /// Tells whoever waits for its guest agent that it was given up.
    pub(crate) fn set_lost(&self, reason: &str) {
        self.lost.send_replace(Some(reason.to_owned()));
    }

    /// Sends an order to the guest; on which line.
    pub(crate) async fn ask(&self, order: ServerPayload) -> Result<u64> {
        let away = || SandboxError::AgentAway { id: self.id.clone() };
        let line = self.line.borrow().clone().ok_or_else(away)?;
        self.ask_on(&line, order).await?;
        Ok(line.number)
    }

    async fn ask_on(&self, line: &Line, order: ServerPayload) -> Result<()> {
        let away = || SandboxError::AgentAway { id: self.id.clone() };
        let sent = line.sender.send_timeout(ServerMessage { payload: Some(order) }, PATIENCE);
        sent.await.map_err(|_| away())
    }

    /// Somebody has the output of a command up to here.
    pub(crate) async fn taken(&self, running: &Running, taken: u64) {
        if running.is_worth_telling(taken) {
            self.tell_taken(running).await;
        }
    }

    /// Tells the guest, which waits for it, how much of a command's output was taken.
    pub(crate) async fn tell_taken(&self, running: &Running) {
        let taken = running.taken.load(Ordering::Relaxed);
        if taken > 0 {
            let order = OutputTaken { command_id: running.id.clone(), taken };
            // A guest that is away is told when it is back.
            drop(self.ask(ServerPayload::OutputTaken(order)).await);
        }
    }

    /// What its guest counts now; none from one that does not know how, or is away.
    pub(crate) async fn count(&self) -> Option<ResourceUsage> {
        let mut usage = self.usage.subscribe();
        usage.mark_unchanged();
        self.ask(ServerPayload::Usage(UsageRequest {})).await.ok()?;
        tokio::time::timeout(COUNTING, usage.changed()).await.ok()?.ok()?;
        *usage.borrow()
    }

    /// The processes that its guest lists now; none from one that does not know how, or is away.
    pub(crate) async fn list_processes(&self) -> Option<Vec<Process>> {
        let mut listed = self.processes.subscribe();
        listed.mark_unchanged();
        let line = self.line.borrow().clone()?;
        if self.lists_nothing.load(Ordering::Relaxed) == line.number {
            return None;
        }
        self.ask_on(&line, ServerPayload::Processes(ProcessesRequest {})).await.ok()?;
        if !matches!(tokio::time::timeout(COUNTING, listed.changed()).await, Ok(Ok(()))) {
            // An older guest: nobody waits for it again until another one connects.
            self.lists_nothing.store(line.number, Ordering::Relaxed);
            return None;
        }
        let processes = listed.borrow().clone();
        Some(processes)
    }

    /// Takes the processes that its guest lists, as many as a sandbox may have. A guest may say anything.
    pub(crate) fn listed(&self, mut processes: Vec<Process>) {
        processes.truncate(PROCESSES_MAX);
        processes.retain(|process| process.command_id.len() <= ID_MAX);
        for process in &mut processes {
            let cut = (0..=ARGUMENTS_MAX).rev().find(|at| process.arguments.is_char_boundary(*at));
            process.arguments.truncate(cut.unwrap_or(0));
            process.arguments.shrink_to_fit();
        }
        processes.shrink_to_fit();
        // It was only slow.
        self.lists_nothing.store(NO_LINE, Ordering::Relaxed);
        self.processes.send_replace(processes);
    }

    pub(crate) fn counted(&self, usage: ResourceUsage) {
        self.usage.send_replace(Some(usage));
    }

    /// Gives a command something to read, piece by piece, as `order` says it. Waits while the command reads slower,
    /// for each piece as long as patience lasts.
    pub(crate) async fn feed(
        &self,
        id: &str,
        data: &[u8],
        patience: Duration,
        order: impl Fn(Vec<u8>) -> ServerPayload,
    ) -> Result<()> {
        let running = self.command(id).ok_or_else(|| SandboxError::CommandEnded { id: id.to_owned() })?;
        let _turn = running.input.turn(patience).await.map_err(|reason| no_input(id, reason, 0))?;
        for (n, piece) in data.chunks(PIECE).enumerate() {
            let counts = self.line.borrow().as_ref().is_some_and(|line| line.counts_input);
            if counts && let Err(reason) = running.input.reserve(piece.len() as u64, patience).await {
                return Err(no_input(id, reason, n * PIECE));
            }
            let delivered = self.deliver(&running, piece, patience, &order).await;
            delivered.map_err(|error| match error {
                // Earlier pieces came.
                SandboxError::AgentAway { .. } if n > 0 => SandboxError::InputLost { id: id.to_owned() },
                other => other,
            })?;
        }
        Ok(())
    }

    /// Sends a piece of input until the guest says that it came. What was on a line that is lost is sent again on the
    /// next, and only that.
    async fn deliver(
        &self,
        running: &Running,
        piece: &[u8],
        patience: Duration,
        order: &impl Fn(Vec<u8>) -> ServerPayload,
    ) -> Result<()> {
        let away = || SandboxError::AgentAway { id: self.id.clone() };
        let lost = || SandboxError::InputLost { id: running.id.clone() };
        let mut left = piece;
        loop {
            let missing = || if left.len() == piece.len() { away() } else { lost() };
            let line = self.line.borrow().clone().ok_or_else(missing)?;
            // What is sent on a line before the guest said there how much came would count as lost, and be sent again.
            let begun_here = running.line.load(Ordering::Relaxed) == line.number;
            if line.confirms_input && !begun_here && !running.input.told_on(line.number, patience).await {
                return Err(missing());
            }
            let awaited = running.input.awaited();
            // Whether a line that is lost carried it shows when the guest is back.
            let sent = self.ask_on(&line, order(left.to_vec())).await;
            if !line.confirms_input {
                return sent;
            }
            match running.input.arrived(&awaited, patience).await {
                Some(Arrival::All) => return Ok(()),
                Some(Arrival::Closed) => return Err(SandboxError::InputClosed { id: running.id.clone() }),
                Some(Arrival::Lost(missing)) => left = &left[left.len().saturating_sub(missing)..],
                None => return Err(lost()),
            }
        }
    }

    /// Closes a command's input, and waits until the guest says so.
    pub(crate) async fn close_input(&self, id: &str, patience: Duration, order: ServerPayload) -> Result<()> {
        let away = || SandboxError::AgentAway { id: self.id.clone() };
        let Some(running) = self.command(id) else { return self.ask(order).await.map(|_| ()) };
        let _turn = running.input.turn(patience).await.map_err(|reason| no_input(id, reason, 0))?;
        loop {
            let awaited = running.input.awaited();
            let line = self.line.borrow().clone().ok_or_else(away)?;
            let sent = self.ask_on(&line, order.clone()).await;
            if !line.confirms_input {
                running.input.close();
                return sent;
            }
            match running.input.closed(&awaited, patience).await {
                Some(true) => return Ok(()),
                Some(false) => {}
                None => return Err(away()),
            }
        }
    }

    /// Keeps room for one more command of that kind; none when as many run, or are about to.
    pub(crate) fn room(&self, prefix: &str, limit: u32) -> Option<Coming<'_>> {
        let commands = self.commands();
        let running = commands.values().filter(|one| one.id.starts_with(prefix) && !one.has_ended()).count();
        if running + self.coming.load(Ordering::SeqCst) >= limit as usize {
            return None;
        }
        self.coming.fetch_add(1, Ordering::SeqCst);
        Some(Coming(&self.coming))
    }

    /// Orders a new command. It is known before the guest can answer, and takes the room that was kept for it.
    pub(crate) async fn begin(
        &self,
        id: &str,
        order: ServerPayload,
        room: Option<Coming<'_>>,
    ) -> Result<Arc<Running>> {
        let away = || SandboxError::AgentAway { id: self.id.clone() };
        let line = self.line.borrow().clone().ok_or_else(away)?;
        let running = {
            let mut commands = self.commands();
            // Somebody who repeats the request may follow it already.
            let running = commands.entry(id.to_owned()).or_insert_with(|| Arc::new(Running::new(id, 0)));
            running.line.store(line.number, Ordering::Relaxed);
            // Whoever counts counts it once.
            drop(room);
            running.clone()
        };
        if let Err(error) = self.ask_on(&line, order).await {
            running.advance(0, Some(&End { failed: Some(error.to_string()), ..End::default() }));
            self.commands().remove(id);
            return Err(error);
        }
        Ok(running)
    }

    pub(crate) fn command(&self, id: &str) -> Option<Arc<Running>> {
        self.commands().get(id).cloned()
    }

    /// The command of that id; one that the guest told of is taken in, unless it tells of more than a sandbox can have. A guest
    /// may say anything.
    pub(crate) fn told_of(&self, id: &str) -> Arc<Running> {
        let mut commands = self.commands();
        if let Some(known) = commands.get(id) {
            return known.clone();
        }
        let running = Arc::new(Running::new(id, 0));
        if commands.len() < TOLD_OF_MAX && id.len() <= ID_MAX {
            commands.insert(id.to_owned(), running.clone());
        }
        running
    }

    /// Takes note of what its guest tells of a command; how far it came is left to the caller.
    pub(crate) fn progressed(&self, progress: CommandProgress) -> (Arc<Running>, Option<End>) {
        let end = progress.end.map(|end| End {
            exit_code: end.exit_code,
            timed_out: end.timed_out,
            failed: Some(end.failed).filter(|why| !why.is_empty()),
        });
        let running = self.told_of(&progress.command_id);
        running.input.told(progress.input_received, progress.input_taken, progress.input_closed);
        running.waits_for_readers(progress.output_window);
        (running, end)
    }

    /// Waits until the end of one more command may be written down. None for a command that is not known.
    pub(crate) async fn end_turn(&self, id: &str) -> Option<OwnedSemaphorePermit> {
        self.command(id)?;
        // Never closed.
        Arc::clone(&self.ends).acquire_owned().await.ok()
    }

    /// Counts an event on its connection, and reports whether it is to be told: a guest that connects again and again
    /// does not fill the catalog.
    pub(crate) fn tells_connection(&self) -> bool {
        let mut period = self.connection_events.lock().unwrap_or_else(PoisonError::into_inner);
        let now = tokio::time::Instant::now();
        let fresh = period.filter(|(began, _)| now.duration_since(*began) < CONNECTION_EVENTS.1);
        let (began, told) = fresh.unwrap_or((now, 0));
        *period = Some((began, told.saturating_add(1)));
        if told == CONNECTION_EVENTS.0 {
            tracing::warn!(sandbox = self.id, "the guest agent connects again and again");
        }
        told < CONNECTION_EVENTS.0
    }

    pub(crate) fn forget(&self, id: &str) {
        self.commands().remove(id);
    }

    /// Commands that run and whose id begins with `prefix`.
    pub(crate) fn running(&self, prefix: &str) -> Vec<Arc<Running>> {
        let commands = self.commands();
        let running = commands.values().filter(|one| one.id.starts_with(prefix) && !one.has_ended());
        running.cloned().collect()
    }

    /// Commands that run and were ordered before the line of that number: what the guest does not tell of now, it
    /// never heard of.
    pub(crate) fn ordered_before(&self, line: u64) -> Vec<Arc<Running>> {
        self.running("").into_iter().filter(|one| one.line.load(Ordering::Relaxed) < line).collect()
    }
}

/// A time in which a guest agent may be frozen.
#[derive(Debug)]
pub(crate) struct Silence<'a>(&'a SandboxHandle);

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        let mut silences = self.0.silences();
        *silences = (silences.0 - 1, Some(Instant::now()));
    }
}

/// Room for a command that is about to run.
#[derive(Debug)]
pub(crate) struct Coming<'a>(&'a AtomicUsize);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for SandboxHandle {
    fn drop(&mut self) {
        for task in self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

fn no_input(id: &str, reason: NoInput, written: usize) -> SandboxError {
    let id = id.to_owned();
    match reason {
        NoInput::Closed => SandboxError::InputClosed { id },
        NoInput::Full => SandboxError::InputFull { id, written },
    }
}

/// The number of no line.
const NO_LINE: u64 = 0;

/// Lines are numbered in the order in which they were made, from one.
fn next_line() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

#[cfg(test)]
mod tests;

//! The state that the server keeps in memory for a sandbox, beside its row in the catalog.
//!
//! All of it can be lost: after a restart it is rebuilt from the catalog, and the guest agent reports the
//! rest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::task::JoinHandle;
use workspace_catalog::{Sandbox, State};

use crate::command::kept_output::KeptOutput;
use crate::command::running::RunningCommands;
use crate::command::tracer::Tracer;
use crate::config::{Config, Trace};
use crate::disk::workspace_usage::WorkspaceUsage;
use crate::error::{Result, SandboxError};
use crate::guest::connection::GuestConnection;
use crate::io::worker::IoWorker;
use crate::leaf_mutex::LeafMutex;
use crate::lineage::ProjectBase;
use crate::sandbox_dir::SandboxDir;

/// A sandbox whose guest agent may connect.
///
/// Locks: an operation on a sandbox holds its lock in
/// [`OperationLocks`](crate::lifecycle::operation_lock::OperationLocks) first. Then, before it freezes the sandbox, the
/// gate of the workspace ([`Gates`](crate::gate::Gates)), exclusively; a shared holder of the gate takes no operation
/// lock. The fields of this struct itself are [`LeafMutex`]es and atomics: no other lock is taken while one is held.
/// `commands`, `io` and `tracer` contain async locks, which are described there.
#[derive(Debug)]
pub(crate) struct SandboxHandle {
    pub(crate) id: String,
    /// Directory of the sandbox on the host.
    pub(crate) dir: SandboxDir,
    /// Hash of the token that authenticates the guest agent.
    pub(crate) token_hash: String,
    /// Owner and configuration. Not set for a sandbox of the warm pool, which has no owner yet.
    assignment: OnceLock<Assignment>,
    /// Expiry time, in milliseconds since 1970.
    expires_at: AtomicI64,
    /// True until the creation has finished.
    pub(crate) is_being_created: AtomicBool,
    /// Connection to the guest agent.
    pub(crate) guest: GuestConnection,
    /// Commands and terminals that run, or are about to.
    pub(crate) commands: RunningCommands,
    /// Files and ports.
    pub(crate) io: IoWorker,
    /// Disk usage of its workspace.
    pub(crate) usage: WorkspaceUsage,
    /// Size of the retained output of its commands.
    pub(crate) output: KeptOutput,
    /// Snapshots after its commands.
    pub(crate) tracer: Tracer,
    /// Number of events after which files may differ: commands that ended, input of terminals, requests that change
    /// files. The first one is its creation, or the start of the server.
    activity: AtomicU64,
    /// True while its resource usage is being measured for the history of measurements.
    pub(crate) is_being_sampled: Arc<AtomicBool>,
    /// Time since which it is paused in memory, or about to be.
    paused_since: LeafMutex<Option<Instant>>,
    /// Number of times that its work was completed.
    completions: AtomicU64,
    /// Number of times that the base of its workspace was replaced.
    base_changes: AtomicU64,
    /// Tasks that end with this handle.
    tasks: LeafMutex<Vec<JoinHandle<()>>>,
}

/// Owner and configuration of a sandbox.
#[derive(Debug)]
struct Assignment {
    owner: String,
    /// Environment of commands.
    envs: BTreeMap<String, String>,
    /// Disk limit of the workspace, in bytes.
    disk: Option<u64>,
    /// Automatic snapshots after commands.
    trace: Trace,
    /// Project and agent of the workspace; `None` without a project. The other fields are those at its creation: a
    /// rebase does not update them.
    project: Option<ProjectBase>,
    /// Relation of the workspace to later heads of the project.
    mode: HeadMode,
    /// Id of the project that its completions are merged into; `None` without a project, with a read-only workspace,
    /// and for a follower.
    target_project: Option<String>,
}

/// Relation of a workspace to the heads of its project that come after it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadMode {
    /// It is rebased on request.
    Fixed,
    /// It is rebased by the server.
    Rebased,
    /// It shows the present head.
    Followed,
}

impl SandboxHandle {
    pub(crate) fn new(id: &str, dir: SandboxDir, token_hash: &str) -> Self {
        Self {
            id: id.to_owned(),
            dir,
            token_hash: token_hash.to_owned(),
            assignment: OnceLock::new(),
            expires_at: AtomicI64::new(i64::MAX),
            is_being_created: AtomicBool::new(true),
            guest: GuestConnection::new(id),
            commands: RunningCommands::default(),
            io: IoWorker::default(),
            usage: WorkspaceUsage::default(),
            output: KeptOutput::default(),
            paused_since: LeafMutex::default(),
            tracer: Tracer::default(),
            activity: AtomicU64::new(1),
            is_being_sampled: Arc::default(),
            completions: AtomicU64::new(0),
            base_changes: AtomicU64::new(0),
            tasks: LeafMutex::default(),
        }
    }

    /// Creates the handle of a sandbox that is in the catalog.
    pub(crate) fn of(sandbox: &Sandbox, dir: SandboxDir, config: &Config) -> Self {
        let handle = Self::new(&sandbox.id, dir, &sandbox.token_hash);
        handle.assign(&sandbox.owner, sandbox.expires_at, config);
        handle.is_being_created.store(sandbox.state == State::Starting, Ordering::SeqCst);
        // A command that the former server did not trace may have changed files.
        handle.tracer.set_untraced_changes();
        if sandbox.is_paused() {
            handle.begin_pause();
        }
        handle.output.set_unknown();
        handle
    }

    /// Assigns a sandbox of the warm pool to an owner. Does nothing if it is already assigned.
    pub(crate) fn assign(&self, owner: &str, expires_at: i64, config: &Config) {
        self.set_expires_at(expires_at);
        let (envs, disk, trace) = (config.envs.clone(), config.disk, config.trace);
        let project = config.lineage.project_base.clone();
        let mode = match (config.follows, config.rebases) {
            (true, _) => HeadMode::Followed,
            (false, true) => HeadMode::Rebased,
            (false, false) => HeadMode::Fixed,
        };
        let target_project = config.completion_base().map(|base| base.project.clone());
        let assignment =
            Assignment { owner: owner.to_owned(), envs, disk, trace, project, mode, target_project };
        drop(self.assignment.set(assignment));
    }

    /// Returns the owner; `None` for a sandbox of the warm pool.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.assignment.get().map(|assignment| assignment.owner.as_str())
    }

    /// Returns the environment variables of every command in the sandbox.
    pub(crate) fn envs(&self) -> BTreeMap<String, String> {
        self.assignment.get().map(|assignment| assignment.envs.clone()).unwrap_or_default()
    }

    /// Returns the disk limit of the workspace, in bytes; `None` if there is no limit, or no owner yet.
    pub(crate) fn disk(&self) -> Option<u64> {
        self.assignment.get().and_then(|assignment| assignment.disk)
    }

    /// Returns the project and agent whose view of the head the workspace shows; `None` if it does not follow.
    pub(crate) fn followed(&self) -> Option<&ProjectBase> {
        let assignment = self.assignment.get().filter(|assignment| assignment.mode == HeadMode::Followed)?;
        assignment.project.as_ref()
    }

    /// Returns the project and agent of the workspace, and whether the server rebases it; `None` without a project, and
    /// if it follows the head.
    pub(crate) fn project(&self) -> Option<(&ProjectBase, bool)> {
        let assignment = self.assignment.get().filter(|assignment| assignment.mode != HeadMode::Followed)?;
        Some((assignment.project.as_ref()?, assignment.mode == HeadMode::Rebased))
    }

    pub(crate) fn count_completion(&self) {
        self.completions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn completions(&self) -> u64 {
        self.completions.load(Ordering::Relaxed)
    }

    pub(crate) fn count_base_change(&self) {
        self.base_changes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn base_changes(&self) -> u64 {
        self.base_changes.load(Ordering::Relaxed)
    }

    /// Returns the id of the project that its completions are merged into; `None` if there is none.
    pub(crate) fn target_project(&self) -> Option<&str> {
        self.assignment.get().and_then(|assignment| assignment.target_project.as_deref())
    }

    /// Records that files may have changed.
    pub(crate) fn record_activity(&self) {
        self.activity.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a client may change files from outside the sandbox.
    pub(crate) fn record_outside_changes(&self) {
        self.tracer.set_outside_changes();
        self.record_activity();
    }

    /// Returns the number of events after which files may differ.
    pub(crate) fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed)
    }

    /// Returns true if a snapshot is made after each command that changed files.
    pub(crate) fn is_traced(&self) -> bool {
        self.assignment.get().is_some_and(|assignment| assignment.trace == Trace::Command)
    }

    /// Returns true if the sandbox has expired. It may not be removed yet.
    pub(crate) fn has_expired(&self, now: i64) -> bool {
        self.expires_at.load(Ordering::Relaxed) <= now
    }

    pub(crate) fn set_expires_at(&self, time: i64) {
        self.expires_at.store(time, Ordering::Relaxed);
    }

    /// Fails if it is paused in memory, or about to be.
    pub(crate) fn check_not_paused(&self) -> Result<()> {
        match self.is_paused() {
            true => Err(SandboxError::Paused { id: self.id.clone() }),
            false => Ok(()),
        }
    }

    /// Returns true while it is paused in memory, or about to be.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused_since.lock().is_some()
    }

    /// Refuses requests from now on, and does not expect its guest agent to respond, until [`Self::end_pause`].
    pub(crate) fn begin_pause(&self) {
        let was_paused = self.paused_since.lock().replace(Instant::now()).is_some();
        if !was_paused {
            self.guest.begin_freeze();
        }
    }

    /// Accepts requests again. The guest agent gets the time of the pause in addition to report exits of commands.
    pub(crate) fn end_pause(&self) {
        let Some(since) = self.paused_since.lock().take() else { return };
        self.commands.extend_exit_report_deadlines(since.elapsed());
        self.guest.end_freeze();
    }

    /// Keeps a task that ends with this handle.
    pub(crate) fn keep_task(&self, task: JoinHandle<()>) {
        self.tasks.lock().push(task);
    }

    /// Aborts its tasks, so that no guest agent can connect, and closes the connection.
    pub(crate) fn close(&self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        self.io.close();
        self.guest.close();
    }
}

impl Drop for SandboxHandle {
    fn drop(&mut self) {
        for task in self.tasks.get_mut() {
            task.abort();
        }
    }
}

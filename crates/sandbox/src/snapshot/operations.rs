//! Commit, fork and restore: the workspace of a sandbox becomes a snapshot, is replaced by one, and is copied
//! to other sandboxes.
//!
//! The sandbox is frozen while its workspace is read, and writers outside are excluded ([`crate::gate`]), so
//! that a snapshot is consistent. The freeze is recorded in the directory of the sandbox; if the server is
//! killed meanwhile, the next one thaws the sandbox.
//!
//! Each operation is cancelled with its request (see [`crate::lifecycle::cancellable`]), and then it has no
//! effect: a commit makes no snapshot, a fork no sandbox, and a restore leaves the workspace as it was. Once
//! the workspace is being replaced, a restore is finished.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use workspace_catalog::{Change, EventKind, PauseStep, Sandbox, SnapshotOrigin, State, owner_behind_agent};
use workspace_state::{Cancel, Durability, NewSnapshot, Snapshot, SnapshotId};
use workspace_workspace::{
    CancellableWorkspaces, Changes, CommitResult, Materialize, WorkspaceError, Workspaces, Writers,
};

use crate::config::{Config, NewSandbox, OnEnd, ResourceRequest, check_labels};
use crate::error::{Result, SandboxError};
use crate::gate::ExclusiveAccess;
use crate::lifecycle::cancellable::or_cancelled;
use crate::lifecycle::create::Creator;
use crate::lifecycle::operation::with_runtime_timeout;
use crate::lifecycle::remove::{ReclaimPolicy, RemoveRequest};
use crate::lineage::{ProjectBase, origin_in};
use crate::root::roots::commit;
use crate::runtime::{Frozen, Network, WorkspaceProcess};
use crate::scope::Scope;
use crate::service::{SandboxInfo, Service, config_of, not_running};
use crate::snapshot::bases::project_base_text;
use crate::snapshot::replacement::Replaced;

/// Maximum number of sandboxes that one fork makes.
pub const FORKS_MAX: u32 = 1_000;
/// Maximum length of the message of a snapshot, in bytes.
const MESSAGE_MAX: usize = 64 << 10;

/// Description of a new snapshot of a sandbox.
#[derive(Debug, Clone, Default)]
pub struct NewCommit {
    /// Message of the snapshot.
    pub message: String,
    /// Labels of the snapshot.
    pub labels: BTreeMap<String, String>,
    /// True if the commit returns before the snapshot is on disk: a crash of the machine may lose it.
    pub buffered: bool,
}

/// Time for which an operation froze a sandbox. A pause that a client requests is something else
/// ([`PauseMode`](crate::PauseMode)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreezeTime {
    /// Method of the freeze; `None` if nothing ran.
    pub frozen: Option<Frozen>,
    /// Duration, from before the freeze until after the thaw.
    pub lasted: Duration,
}

/// A commit of a sandbox.
#[derive(Debug, Clone)]
pub struct SandboxCommit {
    /// The snapshot, and files that are not in it.
    pub committed: CommitResult,
    /// Freeze of the sandbox during the operation.
    pub freeze: FreezeTime,
    /// Head of the project that the committed files are based on; `None` without a project.
    pub base: Option<ProjectBase>,
}

/// Treatment of processes that use the workspace which a restore or a rebase replaces: processes with their working
/// directory in a directory of the workspace, or with a file of it open or mapped. A process whose working
/// directory is the workspace itself is none of them: it keeps running, in the restored workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfInUse {
    /// Fails the operation, with an error that names the processes.
    Fail,
    /// Kills the processes.
    KillProcesses,
}

/// A sandbox that was restored.
#[derive(Debug, Clone)]
pub struct RestoreResult {
    /// The sandbox after the restore.
    pub info: SandboxInfo,
    /// Processes that were killed because they used the workspace; empty if all were killed.
    pub killed: Vec<WorkspaceProcess>,
    /// Freeze of the sandbox during the operation.
    pub freeze: FreezeTime,
}

/// Parameters of a fork, where the new sandboxes differ from the original.
#[derive(Debug, Clone, Default)]
pub struct Fork {
    /// Number of sandboxes.
    pub count: u32,
    /// Lifetime of the new sandboxes.
    pub timeout: Option<Duration>,
    /// Treatment of their uncompleted changes when they end; `None` for that of the sandbox.
    pub on_end: Option<OnEnd>,
    /// Labels in addition to those of the sandbox.
    pub labels: BTreeMap<String, String>,
    /// Description of the snapshot that they are made from.
    pub commit: NewCommit,
    /// Name of the key that forks.
    pub created_by: Option<String>,
    /// Snapshot of the last completion of the sandbox, with which the changes of the new sandboxes are compared, so
    /// that they do not complete the same changes again; `None` without a completion.
    pub completed: Option<SnapshotId>,
}

/// Sandboxes made from the present state of another one.
#[derive(Debug, Clone)]
pub struct ForkResult {
    /// The snapshot that they are made from.
    pub commit: SandboxCommit,
    /// The new sandboxes.
    pub infos: Vec<SandboxInfo>,
}

impl NewCommit {
    fn check(&self) -> Result<()> {
        check_labels(&self.labels)?;
        if self.message.len() > MESSAGE_MAX {
            let message = format!("must have at most {MESSAGE_MAX} bytes");
            return Err(SandboxError::Invalid { field: "message", message });
        }
        Ok(())
    }
}

impl Service {
    /// Makes a snapshot of a sandbox's workspace, which belongs to the owner of the sandbox. Processes keep
    /// running after it.
    pub async fn commit(&self, scope: &Scope, id: &str, new: NewCommit) -> Result<SandboxCommit> {
        let sandbox = self.find_on_this_server(scope, id).await?;
        self.commit_found(scope, &sandbox, new).await
    }

    /// Makes a snapshot like [`Self::commit`], of a sandbox whose row the caller has read in this scope. The row may have
    /// changed since.
    pub async fn commit_found(
        &self,
        scope: &Scope,
        sandbox: &Sandbox,
        new: NewCommit,
    ) -> Result<SandboxCommit> {
        new.check()?;
        self.check_is_here(sandbox)?;
        self.check_snapshot_quota(scope, 1).await?;
        let id = sandbox.id.clone();
        self.cancellable(|service, cancel| async move { service.commit_inner(&id, new, &cancel).await }).await
    }

    /// Fails unless the owner may have `more` further snapshots. A caller with access to all sandboxes has no
    /// quota.
    pub async fn check_snapshot_quota(&self, scope: &Scope, more: u64) -> Result<()> {
        let Some(owner) = scope.owner() else { return Ok(()) };
        let limit = self.settings().snapshots_per_owner;
        if limit > 0 && self.0.catalog.snapshots().count(owner).await? + more > u64::from(limit) {
            return Err(SandboxError::TooManySnapshots { owner: owner.to_owned(), limit });
        }
        let (bytes, limit) =
            (self.0.catalog.snapshots().bytes(owner).await?, self.settings().snapshot_bytes_per_owner);
        if bytes >= limit {
            // Deleted snapshots count until garbage is collected.
            self.start_gc();
            let bytes = owner_behind_agent(owner).is_none().then_some(bytes);
            return Err(SandboxError::SnapshotsTooLarge { owner: owner.to_owned(), bytes, limit });
        }
        Ok(())
    }

    /// Fails if the owner of a project, who accounts for its content, has used up the quota of snapshots. `requester`
    /// may be another owner: an agent, with a quota of its own. It does not learn how much the owner of the project
    /// has.
    pub async fn check_project_quota(&self, project: &str, requester: &str) -> Result<()> {
        let Some(project) = self.0.catalog.projects().get(project).await? else {
            // Nothing is added to it.
            return Ok(());
        };
        match self.check_snapshot_quota(&Scope::Owner(project.owner.clone()), 0).await {
            Err(error) if error.is_snapshot_quota() && project.owner != requester => {
                Err(SandboxError::ProjectQuota { project: project.name })
            }
            checked => checked,
        }
    }

    async fn commit_inner(&self, id: &str, new: NewCommit, cancel: &Cancel) -> Result<SandboxCommit> {
        let operation = self.lock_operation(id, cancel).await?;
        let sandbox = &self.with_recorded_base(self.read_row(id).await?).await?;
        let base = config_of(sandbox)?.lineage.project_base;
        let access = self.exclusive_access(id, &operation, cancel).await?;
        let (buffered, stored) = (new.buffered, Arc::default());
        let snapshot = NewSnapshot {
            author: sandbox.owner.clone(),
            message: new.message,
            labels: new.labels,
            durability: Durability::Buffered,
            pending: true,
            stored_bytes: Some(Arc::clone(&stored)),
            ..NewSnapshot::default()
        };
        let commit = self.commit_workspace(id, snapshot, cancel);
        let (committed, freeze) = match self.while_frozen(sandbox, &access, commit).await? {
            (committed, Ok(freeze)) if !cancel.is_cancelled() => (committed, freeze),
            (committed, thawed) => {
                // The client gets an error, so it does not learn of the snapshot.
                self.remove_snapshot_from_store(id, &committed.snapshot).await;
                return Err(thawed.err().unwrap_or(SandboxError::Cancelled));
            }
        };
        drop(access);
        drop(operation);
        if !buffered {
            // The sandbox need not be frozen for this.
            if let Err(error) = self.on_workspaces(|workspaces| Ok(workspaces.store().sync()?)).await {
                self.remove_snapshot_from_store(id, &committed.snapshot).await;
                return Err(error);
            }
        }
        let made_in = (id, base.as_ref());
        self.record_snapshot(&sandbox.owner, &committed.snapshot, made_in, &stored).await?;
        Ok(SandboxCommit { committed, freeze, base })
    }

    /// Records the owner of a snapshot that was made in a sandbox whose files have this base, and that made the store
    /// larger by `stored` bytes. If that fails the snapshot is removed: without an owner it could be neither seen nor
    /// removed.
    pub(crate) async fn record_snapshot(
        &self,
        owner: &str,
        snapshot: &Snapshot,
        (sandbox, base): (&str, Option<&ProjectBase>),
        stored: &AtomicU64,
    ) -> Result<()> {
        self.record_snapshot_of(owner, snapshot, (sandbox, &origin_in(sandbox, base)), stored).await
    }

    /// Records the owner of a snapshot like [`Self::record_snapshot`], for a directory that need not be that of a
    /// sandbox.
    pub(crate) async fn record_snapshot_of(
        &self,
        owner: &str,
        snapshot: &Snapshot,
        (directory, origin): (&str, &SnapshotOrigin),
        stored: &AtomicU64,
    ) -> Result<()> {
        let (id, bytes) = (snapshot.id.to_string(), stored.load(Ordering::Relaxed));
        let recorded = self.0.catalog.snapshots().add_of_origin(owner, &id, origin, bytes).await;
        if recorded.is_err() {
            self.remove_snapshot_from_store(directory, snapshot).await;
        }
        recorded?;
        self.settle_snapshot(snapshot.id).await;
        Ok(())
    }

    /// Ends the pending state of a snapshot that has an owner by now.
    pub(crate) async fn settle_snapshot(&self, id: SnapshotId) {
        let settle = move |workspaces: &Workspaces| Ok(workspaces.store().end_pending(&[id])?);
        if let Err(error) = self.on_workspaces(settle).await {
            // The next server finds that it is recorded.
            tracing::warn!(snapshot = %id, %error, "failed to settle a recorded snapshot");
        }
    }

    /// Removes the last snapshot of a sandbox from the store, if possible.
    pub(crate) async fn remove_snapshot_from_store(&self, sandbox: &str, snapshot: &Snapshot) {
        let (id, snapshot) = (sandbox.to_owned(), snapshot.clone());
        let name = snapshot.id;
        let removed = self.on_workspaces(move |workspaces| workspaces.uncommit(&id, &snapshot)).await;
        if let Err(error) = removed {
            tracing::warn!(snapshot = %name, %error, "failed to remove a snapshot without an owner");
        }
    }

    /// Removes a snapshot that was made for an operation which failed.
    async fn remove_unused_snapshot(&self, sandbox: &Sandbox, snapshot: &Snapshot) {
        match self.0.catalog.snapshots().remove_owner(Some(&sandbox.owner), &snapshot.id.to_string()).await {
            // Another owner has it by now.
            Ok(true) => {}
            Ok(false) => self.remove_snapshot_from_store(&sandbox.id, snapshot).await,
            Err(error) => {
                tracing::warn!(snapshot = %snapshot.id, %error, "failed to remove the snapshot of a failed fork");
            }
        }
    }

    /// Makes a snapshot of a workspace, and of the root of its sandbox if that is kept. The caller has frozen or killed
    /// the processes that write to them, and has exclusive access.
    pub(crate) async fn commit_workspace(
        &self,
        id: &str,
        new: NewSnapshot,
        cancel: &Cancel,
    ) -> Result<CommitResult> {
        let (id, roots, flag) = (id.to_owned(), self.0.roots.get().cloned(), cancel.clone());
        let commit = move |workspaces: &CancellableWorkspaces<'_>| {
            commit(workspaces, roots.as_deref(), (&id, &flag), new)
        };
        self.on_workspaces_until(cancel, commit).await
    }

    /// Compares a sandbox's workspace with the snapshot that it was made from, or the head that it was rebased onto.
    /// The comparison stops with the cancel flag of its store handle, which closing the service sets.
    pub async fn changes(&self, scope: &Scope, id: &str) -> Result<(Changes, FreezeTime)> {
        let sandbox = self.find_on_this_server(scope, id).await?;
        self.cancellable(|service, cancel| async move {
            let operation = service.lock_operation(&sandbox.id, &cancel).await?;
            let sandbox = service.with_recorded_base(service.read_row(&sandbox.id).await?).await?;
            let access = service.exclusive_access(&sandbox.id, &operation, &cancel).await?;
            let id = sandbox.id.clone();
            let read =
                move |workspaces: &CancellableWorkspaces<'_>| workspaces.changes(&id, Writers::Stopped);
            let changes = service.on_workspaces_until(&cancel, read);
            let (changes, thawed) = service.while_frozen(&sandbox, &access, changes).await?;
            Ok((service.since_rebase(changes, &sandbox).await?, thawed?))
        })
        .await
    }

    /// Replaces the workspace of a running sandbox by a snapshot.
    pub async fn restore(
        &self,
        scope: &Scope,
        id: &str,
        snapshot: SnapshotId,
        if_in_use: IfInUse,
    ) -> Result<RestoreResult> {
        self.find_running(scope, id).await?;
        let id = id.to_owned();
        self.cancellable(|service, cancel| async move {
            service.restore_inner(&id, snapshot, if_in_use, &cancel).await
        })
        .await
    }

    async fn restore_inner(
        &self,
        id: &str,
        snapshot: SnapshotId,
        if_in_use: IfInUse,
        cancel: &Cancel,
    ) -> Result<RestoreResult> {
        let operation = self.lock_operation(id, cancel).await?;
        let sandbox = &self.read_row(id).await?;
        check_writable(
            sandbox,
            "it shows the head of its project; create another sandbox from the snapshot",
        )?;
        let handle = self.replaceable_handle(sandbox)?;
        // Checked before any process is terminated.
        let found =
            self.on_workspaces(move |workspaces| Ok(workspaces.store().find_snapshot(&snapshot)?)).await?;
        let found = found.ok_or(WorkspaceError::UnknownSnapshot(snapshot))?;
        if found.root.is_some() && self.has_root(id) {
            return self.restore_with_root(sandbox, &handle, &found, if_in_use, operation, cancel).await;
        }
        let config = self.restored_config(sandbox, snapshot).await?;
        let prepared =
            self.prepare_replacement(sandbox, &handle, snapshot, if_in_use, &operation, cancel).await?;
        // With the new files, so that a killed server need not look for their base again.
        let info = project_base_text(&config);
        let replace = || self.replace(&handle, snapshot, info.clone(), cancel);
        let Replaced { killed, thawed, .. } =
            self.replace_unused(sandbox, &handle, &prepared.access, if_in_use, cancel, replace).await?;
        self.notify_hooks_of_replacement(id, &prepared.access).await;
        drop(prepared);
        let freeze = thawed?;
        self.remove_former_workspace_directory(id);
        let config = serde_json::to_value(config).unwrap_or_default();
        let change = |_: &Sandbox| Some(Change { config: Some(config.clone()), ..Change::default() });
        let info = self.info(self.change(id, change, &[EventKind::SandboxRestored]).await?)?;
        self.count_base_change(id);
        Ok(RestoreResult { info, killed, freeze })
    }

    /// Makes copies of a sandbox with its present workspace: all of them, or none.
    pub async fn fork(&self, scope: &Scope, id: &str, creator: Creator, fork: Fork) -> Result<ForkResult> {
        if fork.count == 0 || fork.count > FORKS_MAX {
            let message = format!("must be between 1 and {FORKS_MAX}");
            return Err(SandboxError::Invalid { field: "count", message });
        }
        check_labels(&fork.labels)?;
        fork.commit.check()?;
        let sandbox = self.find_on_this_server(scope, id).await?;
        // Checked before the freeze, and before a snapshot is made that would have to be removed.
        let mut parameters = fork_parameters(&sandbox, &fork)?;
        parameters.follow = self.followed_anchor(&sandbox)?;
        self.check_creatable(&parameters).await?;
        self.check_snapshot_quota(scope, 1).await?;
        self.check_capacity(&creator, fork.count).await?;
        self.cancellable(|service, cancel| async move {
            service.fork_inner(&sandbox, parameters, creator, fork, &cancel).await
        })
        .await
    }

    async fn fork_inner(
        &self,
        sandbox: &Sandbox,
        parameters: NewSandbox,
        creator: Creator,
        fork: Fork,
        cancel: &Cancel,
    ) -> Result<ForkResult> {
        let commit = self.commit_inner(&sandbox.id, fork.commit, cancel).await?;
        let rebased = |base: &Option<ProjectBase>| base.as_ref().and_then(|base| base.rebased);
        if rebased(&commit.base) != rebased(&config_of(sandbox)?.lineage.project_base) {
            // It was rebased or restored meanwhile: `parameters` have another base.
            self.remove_unused_snapshot(sandbox, &commit.committed.snapshot).await;
            return Err(SandboxError::Busy { id: sandbox.id.clone(), seconds: 0 });
        }
        let snapshot = Some(commit.committed.snapshot.id);
        let mut new = NewSandbox { snapshot, ..parameters };
        if let Some(base) = &mut new.lineage.project_base {
            base.untouched = snapshot;
        }
        // No more at once than the limit of one owner: the rest does not fill the queue.
        let semaphore = Arc::new(Semaphore::new((self.settings().creations_at_once / 2).max(1) as usize));
        let creations = (0..fork.count).map(|_| {
            let (service, creator, new) = (self.clone(), creator.clone(), new.clone());
            let (semaphore, cancel) = (Arc::clone(&semaphore), cancel.clone());
            tokio::spawn(async move {
                let _permit = or_cancelled(&cancel, semaphore.acquire()).await?;
                service.create_cancellable(&cancel, creator, new).await
            })
        });
        let mut infos = Vec::new();
        let mut failed = None;
        for creation in creations.collect::<Vec<_>>() {
            match creation.await.unwrap_or_else(|error| Err(SandboxError::task_failed("finish", error))) {
                Ok(info) => infos.push(info),
                Err(error) => failed = Some(error),
            }
        }
        let failed = failed.or_else(|| cancel.check().err().map(SandboxError::from));
        let Some(error) = failed else { return Ok(ForkResult { commit, infos }) };
        self.remove_forks(infos).await;
        self.remove_unused_snapshot(sandbox, &commit.committed.snapshot).await;
        Err(error)
    }

    /// Removes the sandboxes of a failed fork.
    async fn remove_forks(&self, infos: Vec<SandboxInfo>) {
        let semaphore = Arc::new(Semaphore::new(self.settings().creations_at_once.max(1) as usize));
        let removals = infos.into_iter().map(|info| {
            let (service, semaphore) = (self.clone(), Arc::clone(&semaphore));
            tokio::spawn(async move {
                let _permit = semaphore.acquire().await;
                let request = RemoveRequest::discarding(ReclaimPolicy::Delete);
                if let Err(error) = service.remove(&Scope::All, &info.sandbox.id, request).await {
                    tracing::error!(sandbox = info.sandbox.id, %error, "failed to remove an unwanted fork");
                }
            })
        });
        for removal in removals.collect::<Vec<_>>() {
            if let Err(error) = removal.await {
                tracing::error!(%error, "failed to remove an unwanted fork");
            }
        }
    }

    /// Runs `work` while a sandbox is frozen and writers outside are excluded. The caller holds its operation
    /// lock. The result of `work` stands even if the sandbox could not be thawed after it.
    pub(crate) async fn while_frozen<T>(
        &self,
        sandbox: &Sandbox,
        _access: &ExclusiveAccess,
        work: impl Future<Output = Result<T>>,
    ) -> Result<(T, Result<FreezeTime>)> {
        let began = Instant::now();
        let (id, dir) = (sandbox.id.as_str(), self.dir(&sandbox.id));
        // A sandbox that is paused in memory is frozen, and stays so.
        let runs = self.has_processes(sandbox).await? && !sandbox.is_paused();
        let handle = self.handle(id);
        // Before the freeze, which can take long: meanwhile the guest agent may already be unable to respond.
        let expected_freeze = handle.as_ref().map(|handle| handle.guest.expect_freeze());
        let frozen = if runs { Some(self.freeze(id, &dir).await?) } else { None };
        let done = work.await;
        let thawed = if runs { self.thaw(id, &dir).await } else { Ok(()) };
        drop(expected_freeze);
        Ok((done?, thawed.map(|()| FreezeTime { frozen, lasted: began.elapsed() })))
    }

    /// Returns whether a sandbox has processes that use its workspace. Fails if the workspace cannot be read now.
    pub(crate) async fn has_processes(&self, sandbox: &Sandbox) -> Result<bool> {
        let id = sandbox.id.as_str();
        match (sandbox.state, sandbox.pause) {
            // Its workspace is in a snapshot only.
            (_, Some(PauseStep::Committed | PauseStep::Disk)) => {
                Err(SandboxError::Paused { id: id.to_owned() })
            }
            (State::Running, _) => Ok(true),
            // Processes of a sandbox that is starting or stopping are about to change.
            (State::Starting | State::Stopping, _) => Err(not_running(sandbox)),
            // It is unknown which directory is its workspace.
            (State::Error, _) if self.has_unresolved_swap(id).await? => Err(not_running(sandbox)),
            // A sandbox whose guest agent is lost still has processes.
            (State::Error, _) => {
                Ok(with_runtime_timeout(self.0.runtime.is_running(id, &self.dir(id))).await?)
            }
            (State::Stopped, _) => Ok(false),
        }
    }
}

/// Returns the parameters of a fork of a sandbox, without the snapshot.
fn fork_parameters(sandbox: &Sandbox, fork: &Fork) -> Result<NewSandbox> {
    let config = config_of(sandbox)?;
    let network = network_of(sandbox, &config);
    let mut labels = sandbox.labels.clone();
    labels.extend(fork.labels.clone());
    Ok(NewSandbox {
        template: sandbox.template.clone(),
        name: None,
        unique_name: false,
        envs: config.envs,
        timeout: fork.timeout,
        on_timeout: config.on_timeout,
        on_end: fork.on_end.unwrap_or(config.on_end),
        resources: ResourceRequest {
            cpu_millis: config.limits.cpu_millis,
            memory: config.limits.memory_bytes,
            disk: config.disk,
            processes: config.limits.processes,
        },
        network,
        outside_clients: config.outside_clients,
        labels,
        snapshot: None,
        provider: config.provider.filter(|_| config.snapshot.is_some()),
        materialize: Materialize::Auto,
        root: config.root,
        lineage: config.lineage.fork(&sandbox.id, fork.created_by.clone(), fork.completed),
        trace: config.trace,
        template_build: false,
        read_only: config.read_only,
        follow: None,
        rebases: config.rebases,
    })
}

/// Fails if a sandbox follows the head of its project.
pub(crate) fn check_writable(sandbox: &Sandbox, hint: &'static str) -> Result<()> {
    match config_of(sandbox)?.follows {
        true => Err(SandboxError::ReadOnly { id: sandbox.id.clone(), hint }),
        false => Ok(()),
    }
}

/// Returns the network access of a sandbox.
pub(crate) fn network_of(sandbox: &Sandbox, config: &Config) -> Network {
    match sandbox.network.as_str() {
        "egress" => Network::Egress { allow: config.egress_allow.clone() },
        _ => Network::None,
    }
}

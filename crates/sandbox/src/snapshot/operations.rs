//! Sandboxes and snapshots: what a sandbox holds is committed, replaced, and given to others.
//!
//! While a workspace is read, everything in its sandbox stands still, so that a snapshot is a moment in time. Whoever is
//! killed meanwhile has noted in the sandbox's place that it stands still; the next server lets it go on.
//!
//! Each operation stops when its request does (see [`crate::lifecycle::cancellable`]), and then it was not done: a commit made no
//! snapshot, a fork no sandbox, and a restore either left the workspace as it was or, once the workspace is being
//! replaced, is finished.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use workspace_catalog::{Change, Sandbox, State};
use workspace_state::{Cancel, Durability, NewSnapshot, Snapshot, SnapshotId};
use workspace_workspace::{Cancellable, Changes, Committed, Materialize, WorkspaceError};

use crate::config::{Config, NewSandbox, ResourceRequest, check_labels};
use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::lifecycle::cancellable::{lost, until};
use crate::lifecycle::create::Caller;
use crate::lifecycle::operation::limited;
use crate::lifecycle::operation_lock::OPERATION_WAIT;
use crate::runtime::{Frozen, Network, RuntimeError, WorkspaceUser, WorkspaceUsers};
use crate::sandbox_dir::SandboxDir;
use crate::scope::Scope;
use crate::service::{Service, View, config_of, not_running};
use crate::snapshot::swap::Swap;

/// How many sandboxes one fork may make.
pub const FORKS_MAX: u32 = 1_000;
/// Attempts to replace a workspace whose users were ended, and the pause between them. The last one ends everybody in it.
const RESTORE_ATTEMPTS: (u32, Duration) = (4, Duration::from_millis(100));
/// Longest message of a snapshot.
const MESSAGE_MAX: usize = 64 << 10;

/// What to say about a snapshot of a sandbox.
#[derive(Debug, Clone, Default)]
pub struct NewCommit {
    /// Why it is made.
    pub message: String,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is answered before it is on disk: a crash of the machine may lose it.
    pub buffered: bool,
}

/// How a sandbox was stopped while it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// By what; nothing where nothing ran.
    pub frozen: Option<Frozen>,
    /// For how long.
    pub lasted: Duration,
}

/// A snapshot of a sandbox.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The snapshot, and what is not in it.
    pub committed: Committed,
    /// How the sandbox was stopped meanwhile.
    pub pause: Pause,
}

/// A sandbox that was restored.
#[derive(Debug, Clone)]
pub struct Restored {
    /// The sandbox.
    pub view: View,
    /// The processes that had to end.
    pub ended: Vec<WorkspaceUser>,
    /// How long everything stood still.
    pub pause: Pause,
}

/// What forks are made with, where they are not like the sandbox they come from.
#[derive(Debug, Clone, Default)]
pub struct Fork {
    /// How many.
    pub count: u32,
    /// How long they live.
    pub timeout: Option<Duration>,
    /// Labels in addition to those of the sandbox.
    pub labels: BTreeMap<String, String>,
    /// What to say about the snapshot that they are made from.
    pub commit: NewCommit,
}

/// Sandboxes made from another one's present state.
#[derive(Debug, Clone)]
pub struct Forked {
    /// What they were made from.
    pub taken: Taken,
    /// The sandboxes.
    pub views: Vec<View>,
}

impl NewCommit {
    fn check(&self) -> Result<()> {
        check_labels(&self.labels)?;
        if self.message.len() > MESSAGE_MAX {
            let message = format!("{MESSAGE_MAX} bytes are allowed");
            return Err(SandboxError::Invalid { field: "message", message });
        }
        Ok(())
    }
}

impl Service {
    /// Makes what a sandbox holds a snapshot of its owner's. What runs in it goes on.
    pub async fn commit(&self, scope: &Scope, id: &str, new: NewCommit) -> Result<Taken> {
        new.check()?;
        let sandbox = self.find_here(scope, id).await?;
        self.must_have_snapshot_room(scope, 1).await?;
        self.cancellable(|service, cancel| async move { service.commit_now(&sandbox.id, new, &cancel).await })
            .await
    }

    /// An error unless an owner may have so many snapshots more. Those who see everything may have any number.
    pub async fn must_have_snapshot_room(&self, scope: &Scope, more: u64) -> Result<()> {
        let Some(owner) = scope.owner() else { return Ok(()) };
        let limit = self.settings().snapshots_per_owner;
        if limit > 0 && self.0.catalog.snapshots().count(owner).await? + more > u64::from(limit) {
            return Err(SandboxError::TooManySnapshots { owner: owner.to_owned(), limit });
        }
        let (bytes, limit) =
            (self.0.catalog.snapshots().bytes(owner).await?, self.settings().snapshot_bytes_per_owner);
        if bytes >= limit {
            // What was deleted counts until then.
            self.collect_for_room();
            return Err(SandboxError::SnapshotsTooLarge { owner: owner.to_owned(), bytes, limit });
        }
        Ok(())
    }

    async fn commit_now(&self, id: &str, new: NewCommit, cancel: &Cancel) -> Result<Taken> {
        let operation = self.operation(id, cancel).await?;
        let sandbox = &self.current(id).await?;
        let (buffered, stored) = (new.buffered, Arc::default());
        let snapshot = NewSnapshot {
            author: sandbox.owner.clone(),
            message: new.message,
            labels: new.labels,
            durability: Durability::Buffered,
            stored: Some(Arc::clone(&stored)),
            ..NewSnapshot::default()
        };
        let (committed, pause) =
            match self.while_frozen(sandbox, self.commit_still(id, snapshot, cancel)).await? {
                (committed, Ok(pause)) if !cancel.is_cancelled() => (committed, pause),
                (committed, thawed) => {
                    // Whoever asked is told that it failed, so nobody knows of the snapshot.
                    self.forget_snapshot(id, &committed.snapshot).await;
                    return Err(thawed.err().unwrap_or(SandboxError::Cancelled));
                }
            };
        drop(operation);
        if !buffered {
            // Nobody has to stand still for this.
            if let Err(error) = self.on_workspaces(|workspaces| Ok(workspaces.store().sync()?)).await {
                self.forget_snapshot(id, &committed.snapshot).await;
                return Err(error);
            }
        }
        self.note_snapshot(&sandbox.owner, &committed.snapshot, id, &stored).await?;
        Ok(Taken { committed, pause })
    }

    /// Notes whose a snapshot is that was made in a sandbox. One that cannot be noted goes: nobody could see it or remove it.
    /// It made the store larger by `stored` bytes.
    pub(crate) async fn note_snapshot(
        &self,
        owner: &str,
        snapshot: &Snapshot,
        sandbox: &str,
        stored: &AtomicU64,
    ) -> Result<()> {
        let (id, bytes) = (snapshot.id.to_string(), stored.load(Ordering::Relaxed));
        let noted = self.0.catalog.snapshots().add(owner, &id, Some(sandbox), bytes).await;
        if noted.is_err() {
            self.forget_snapshot(sandbox, snapshot).await;
        }
        Ok(noted?)
    }

    /// Removes the last snapshot of a sandbox from the store, if that can be done.
    async fn forget_snapshot(&self, sandbox: &str, snapshot: &Snapshot) {
        let (id, snapshot) = (sandbox.to_owned(), snapshot.clone());
        let name = snapshot.id;
        let removed = self.on_workspaces(move |workspaces| workspaces.uncommit(&id, &snapshot)).await;
        if let Err(error) = removed {
            tracing::warn!(snapshot = %name, %error, "a snapshot that nobody has is left");
        }
    }

    /// Takes back a snapshot that was made for something which was not done.
    async fn take_back_snapshot(&self, sandbox: &Sandbox, snapshot: &Snapshot) {
        match self.0.catalog.snapshots().remove(Some(&sandbox.owner), &snapshot.id.to_string()).await {
            // Somebody else has it by now.
            Ok(true) => {}
            Ok(false) => self.forget_snapshot(&sandbox.id, snapshot).await,
            Err(error) => {
                tracing::warn!(snapshot = %snapshot.id, %error, "a snapshot that nobody wanted is left");
            }
        }
    }

    /// Makes what a workspace holds a snapshot, while nobody writes to it.
    pub(crate) async fn commit_still(
        &self,
        id: &str,
        new: NewSnapshot,
        cancel: &Cancel,
    ) -> Result<Committed> {
        let id = id.to_owned();
        self.on_workspaces_until(cancel, move |workspaces| workspaces.commit(&id, new, true)).await
    }

    /// Reads what differs between a sandbox's workspace and what it was made from. The trees stop with the flag of their
    /// store's handle, which closing the service sets.
    pub async fn changes(&self, scope: &Scope, id: &str) -> Result<(Changes, Pause)> {
        let sandbox = self.find_here(scope, id).await?;
        self.cancellable(|service, cancel| async move {
            let _operation = service.operation(&sandbox.id, &cancel).await?;
            let sandbox = service.current(&sandbox.id).await?;
            let id = sandbox.id.clone();
            let read = move |workspaces: &Cancellable<'_>| workspaces.changes(&id, true);
            let changes = service.on_workspaces_until(&cancel, read);
            let (changes, thawed) = service.while_frozen(&sandbox, changes).await?;
            Ok((changes, thawed?))
        })
        .await
    }

    /// Makes a running sandbox hold another snapshot. Processes that are in a directory of its workspace, or have something
    /// open or mapped there, end; unless that is to be forced, their being there is an error. Those that are in the
    /// workspace itself go on, and find themselves in the restored one.
    pub async fn restore(
        &self,
        scope: &Scope,
        id: &str,
        snapshot: SnapshotId,
        force: bool,
    ) -> Result<Restored> {
        self.running(scope, id).await?;
        let id = id.to_owned();
        self.cancellable(
            |service, cancel| async move { service.restore_now(&id, snapshot, force, &cancel).await },
        )
        .await
    }

    async fn restore_now(
        &self,
        id: &str,
        snapshot: SnapshotId,
        force: bool,
        cancel: &Cancel,
    ) -> Result<Restored> {
        let _operation = self.operation(id, cancel).await?;
        let sandbox = &self.current(id).await?;
        let handle = self.handle(id).filter(|_| sandbox.state == State::Running);
        let handle = handle.ok_or_else(|| not_running(sandbox))?;
        // Before anybody is ended for it.
        let known =
            self.on_workspaces(move |workspaces| Ok(workspaces.store().find_snapshot(&snapshot)?)).await?;
        if known.is_none() {
            return Err(WorkspaceError::UnknownSnapshot(snapshot).into());
        }
        let must_be_free = async || {
            let users = if force { Vec::new() } else { self.workspace_users(&handle, None).await? };
            match users.is_empty() {
                true => Ok(()),
                false => Err(SandboxError::WorkspaceUsed { id: id.to_owned(), users }),
            }
        };
        must_be_free().await?;
        // So is what takes long or may fail, in a turn as when a sandbox is made.
        // The lock is held meanwhile, and what has it is not ended for the disk it takes: the wait has a bound.
        let turn = until(cancel, timeout(OPERATION_WAIT, self.0.fills.acquire(&sandbox.owner))).await?;
        let busy = |_| SandboxError::Busy { id: id.to_owned(), seconds: OPERATION_WAIT.as_secs() };
        let turn = turn.map_err(busy)?.map_err(|_| SandboxError::Cancelled)?;
        let name = id.to_owned();
        let prepare = move |workspaces: &Cancellable<'_>| workspaces.prepare(&name, snapshot);
        let _prepared = self.on_workspaces_until(cancel, prepare).await?;
        drop(turn);
        must_be_free().await?;
        let (mut ended, mut left) = (Vec::new(), RESTORE_ATTEMPTS.0);
        let mut whose = WorkspaceUsers::Bound;
        let pause = loop {
            left -= 1;
            cancel.check()?;
            if force {
                ended.extend(self.workspace_users(&handle, Some((whose, Duration::ZERO))).await?);
            }
            match self.while_frozen(sandbox, self.replace(&handle, snapshot, cancel)).await {
                // Of those that go on, some may be in a directory each time: in the end they go as well.
                Err(SandboxError::WorkspaceUsed { .. }) if force && left > 0 => {
                    if left == 1 {
                        whose = WorkspaceUsers::All;
                    }
                }
                // Files of processes that were just ended may be open still: what is frozen does not close them.
                Err(SandboxError::Workspace(WorkspaceError::Unusable { .. })) if left > 0 => {}
                done => break done?.1?,
            }
            sleep(RESTORE_ATTEMPTS.1).await;
        };
        self.forget_former(id);
        let config = Config { snapshot: Some(snapshot), ..config_of(sandbox)? };
        let config = serde_json::to_value(config).unwrap_or_default();
        let change = |_: &Sandbox| Some(Change { config: Some(config.clone()), ..Change::default() });
        let view = self.view(self.change(id, change, &[]).await?)?;
        Ok(Restored { view, ended, pause })
    }

    /// Gives a sandbox, of which nothing runs, another workspace. If that fails, or is cancelled before the workspace is
    /// replaced, it has the one it had.
    async fn replace(&self, handle: &SandboxHandle, snapshot: SnapshotId, cancel: &Cancel) -> Result<()> {
        let (id, dir) = (handle.id.as_str(), &handle.dir);
        // Somebody may have come to use it before everything stood still.
        let users = self.workspace_users(handle, None).await?;
        if !users.is_empty() {
            return Err(SandboxError::WorkspaceUsed { id: id.to_owned(), users });
        }
        let may_move = self.0.runtime.swaps();
        let name = id.to_owned();
        let switched = self
            .on_workspaces_until(cancel, move |workspaces| {
                workspaces.reset(&name, Some(snapshot), Materialize::Auto, may_move)
            })
            .await?;
        if !switched.moved {
            return Ok(());
        }
        if cancel.is_cancelled() {
            let name = id.to_owned();
            self.on_workspaces(move |workspaces| workspaces.switch_back(&name)).await?;
            return Err(SandboxError::Cancelled);
        }
        let swapped = match self.unmounted(id).await {
            // Nothing was begun.
            Some(error) => Swap::NotDone(error),
            None => self.swap(id, dir, &switched.made.path).await,
        };
        let name = id.to_owned();
        match swapped {
            Swap::Done => self.on_workspaces(move |workspaces| workspaces.switched(&name)).await,
            Swap::NotDone(error) => {
                self.on_workspaces(move |workspaces| workspaces.switch_back(&name)).await?;
                Err(self.unmoved(id, dir, error).await)
            }
            Swap::Unknown(error) => Err(self.leave_undecided(id, error).await),
        }
    }

    /// The processes that use the workspace of a sandbox, ended if they are to.
    async fn workspace_users(
        &self,
        handle: &SandboxHandle,
        end: Option<(WorkspaceUsers, Duration)>,
    ) -> Result<Vec<WorkspaceUser>> {
        match limited(self.0.runtime.workspace_users(&handle.id, &handle.dir, end)).await {
            Ok(users) => Ok(users),
            Err(error) => Err(self.unmoved(&handle.id, &handle.dir, error).await),
        }
    }

    /// The reason why a sandbox does not get another workspace: its state, or the runtime. Those who hold its mounts may
    /// have died, for instance.
    async fn unmoved(&self, id: &str, dir: &SandboxDir, error: RuntimeError) -> SandboxError {
        match self.reason(id, dir, error).await {
            SandboxError::Operation { source, .. } | SandboxError::Runtime(source) => {
                let reason = format!(
                    "it cannot be replaced where it is ({source}); fork the sandbox, or commit it, and go on there"
                );
                WorkspaceError::Unusable { id: id.to_owned(), reason }.into()
            }
            state => state,
        }
    }

    /// Removes what was in a workspace before it was restored. Nobody waits for it.
    pub(crate) fn forget_former(&self, id: &str) {
        let (service, id) = (self.clone(), id.to_owned());
        tokio::spawn(async move {
            let name = id.clone();
            let gone = service.on_workspaces(move |workspaces| workspaces.forget_former(&name)).await;
            if let Err(error) = gone {
                // The next restore, or the end of the sandbox, tries again.
                tracing::warn!(sandbox = id, %error, "what was restored from is still there");
            }
        });
    }

    /// Makes sandboxes like one, whose workspaces hold what that one's holds now. All of them, or none.
    pub async fn fork(&self, scope: &Scope, id: &str, wanted: Caller, fork: Fork) -> Result<Forked> {
        if fork.count == 0 || fork.count > FORKS_MAX {
            let message = format!("1 to {FORKS_MAX} are allowed");
            return Err(SandboxError::Invalid { field: "count", message });
        }
        check_labels(&fork.labels)?;
        fork.commit.check()?;
        let sandbox = self.find_here(scope, id).await?;
        // Before anything stands still for it, and a snapshot is made that nobody wants then.
        let like = like(&sandbox, &fork)?;
        self.must_be_possible(&like).await?;
        self.must_have_snapshot_room(scope, 1).await?;
        self.must_have_room(&wanted, fork.count).await?;
        self.cancellable(|service, cancel| async move {
            service.fork_now(&sandbox, like, wanted, fork, &cancel).await
        })
        .await
    }

    async fn fork_now(
        &self,
        sandbox: &Sandbox,
        like: NewSandbox,
        wanted: Caller,
        fork: Fork,
        cancel: &Cancel,
    ) -> Result<Forked> {
        let taken = self.commit_now(&sandbox.id, fork.commit, cancel).await?;
        let new = NewSandbox { snapshot: Some(taken.committed.snapshot.id), ..like };
        // No more at once than one owner's are made at once: the others do not stand in the way of whoever waits.
        let turns = Arc::new(Semaphore::new((self.settings().creations_at_once / 2).max(1) as usize));
        let made = (0..fork.count).map(|_| {
            let (service, wanted, new) = (self.clone(), wanted.clone(), new.clone());
            let (turns, cancel) = (Arc::clone(&turns), cancel.clone());
            tokio::spawn(async move {
                let _turn = until(&cancel, turns.acquire()).await?;
                service.create_until(&cancel, wanted, new).await
            })
        });
        let mut views = Vec::new();
        let mut failed = None;
        for one in made.collect::<Vec<_>>() {
            match one.await.unwrap_or_else(|error| Err(lost(error))) {
                Ok(view) => views.push(view),
                Err(error) => failed = Some(error),
            }
        }
        let failed = failed.or_else(|| cancel.check().err().map(SandboxError::from));
        let Some(error) = failed else { return Ok(Forked { taken, views }) };
        self.remove_forks(views).await;
        self.take_back_snapshot(sandbox, &taken.committed.snapshot).await;
        Err(error)
    }

    /// Removes forks of which nobody is told.
    async fn remove_forks(&self, views: Vec<View>) {
        let turns = Arc::new(Semaphore::new(self.settings().creations_at_once.max(1) as usize));
        let removed = views.into_iter().map(|view| {
            let (service, turns) = (self.clone(), Arc::clone(&turns));
            tokio::spawn(async move {
                let _turn = turns.acquire().await;
                if let Err(error) = service.remove(&Scope::All, &view.sandbox.id, false).await {
                    tracing::error!(sandbox = view.sandbox.id, %error, "failed to remove an unwanted fork");
                }
            })
        });
        for one in removed.collect::<Vec<_>>() {
            if let Err(error) = one.await {
                tracing::error!(%error, "failed to remove an unwanted fork");
            }
        }
    }

    /// Does something while nothing in a sandbox runs, for whoever holds its lock. The result stands even if the sandbox
    /// could not be thawed after it.
    async fn while_frozen<T>(
        &self,
        sandbox: &Sandbox,
        work: impl Future<Output = Result<T>>,
    ) -> Result<(T, Result<Pause>)> {
        let began = Instant::now();
        let (id, dir) = (sandbox.id.as_str(), self.dir(&sandbox.id));
        let runs = match sandbox.state {
            State::Running => true,
            // What runs in one that is not made yet, or goes, is about to change anyway.
            State::Starting | State::Stopping => return Err(not_running(sandbox)),
            // Nobody knows which directory is its workspace.
            State::Error if self.is_undecided(id).await? => return Err(not_running(sandbox)),
            // One whose guest is lost has processes all the same.
            State::Error => limited(self.0.runtime.is_running(id, &dir)).await?,
            State::Stopped => false,
        };
        let frozen = if runs { Some(self.freeze(id, &dir).await?) } else { None };
        let handle = self.handle(id);
        let silence = handle.as_ref().map(|handle| handle.guest.expect_freeze());
        let done = work.await;
        let thawed = if runs { self.thaw(id, &dir).await } else { Ok(()) };
        drop(silence);
        Ok((done?, thawed.map(|()| Pause { frozen, lasted: began.elapsed() })))
    }
}

/// What another sandbox like this one is made with, but for the snapshot.
fn like(sandbox: &Sandbox, fork: &Fork) -> Result<NewSandbox> {
    let config = config_of(sandbox)?;
    let network = match sandbox.network.as_str() {
        "egress" => Network::Egress { allow: config.egress_allow },
        _ => Network::None,
    };
    let mut labels = sandbox.labels.clone();
    labels.extend(fork.labels.clone());
    Ok(NewSandbox {
        template: sandbox.template.clone(),
        name: None,
        unique_name: false,
        envs: config.envs,
        timeout: fork.timeout,
        resources: ResourceRequest {
            cpu_millis: config.limits.cpu_millis,
            memory: config.limits.memory_bytes,
            disk: config.disk,
            processes: config.limits.processes,
        },
        network,
        labels,
        snapshot: None,
        provider: config.provider.filter(|_| config.snapshot.is_some()),
        materialize: Materialize::Auto,
    })
}

//! Sandboxes and snapshots: what a sandbox holds is committed, replaced, and given to others.
//!
//! While a workspace is read, everything in its sandbox stands still, so that a snapshot is a moment in time. Whoever is
//! killed meanwhile has noted in the sandbox's place that it stands still; the next server lets it go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use workspace_catalog::{Change, Sandbox, State};
use workspace_state::{Durability, NewSnapshot, SnapshotId};
use workspace_workspace::{Changes, Committed, Materialize};

use crate::config::{Config, NewSandbox, ResourceRequest, check_labels};
use crate::create::Wanted;
use crate::error::{Result, SandboxError};
use crate::live::Live;
use crate::place::Place;
use crate::runtime::{Frozen, Network, RuntimeError, WorkspaceUser};
use crate::service::{Scope, Service, View, config_of, not_running};

/// How many sandboxes one fork may make.
pub const FORKS_MAX: u32 = 1_000;
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
        let service = self.clone();
        // Goes on when nobody waits for it any more: nothing stays frozen.
        spawned(async move { service.commit_now(&sandbox, new).await }).await
    }

    async fn commit_now(&self, sandbox: &Sandbox, new: NewCommit) -> Result<Taken> {
        let id = sandbox.id.as_str();
        let buffered = new.buffered;
        let snapshot = NewSnapshot {
            author: sandbox.owner.clone(),
            message: new.message,
            labels: new.labels,
            durability: Durability::Buffered,
            ..NewSnapshot::default()
        };
        let (committed, pause) = self.while_frozen(sandbox, self.commit_still(id, snapshot)).await?;
        if !buffered {
            // Nobody has to stand still for this.
            self.on_workspaces(|workspaces| Ok(workspaces.store().sync()?)).await?;
        }
        self.note_snapshot(&sandbox.owner, committed.snapshot.id, id).await?;
        Ok(Taken { committed, pause })
    }

    /// Notes whose a snapshot is that was made in a sandbox. One that cannot be noted goes: nobody could see it or remove it.
    pub(crate) async fn note_snapshot(&self, owner: &str, snapshot: SnapshotId, sandbox: &str) -> Result<()> {
        let noted = self.0.catalog.snapshots().add(owner, &snapshot.to_string(), Some(sandbox)).await;
        if noted.is_err() {
            self.forget_snapshot(snapshot).await;
        }
        Ok(noted?)
    }

    /// Removes a snapshot from the store, if that can be done.
    async fn forget_snapshot(&self, snapshot: SnapshotId) {
        let removed =
            self.on_workspaces(move |workspaces| Ok(workspaces.store().remove_snapshots(&[snapshot])?)).await;
        if let Err(error) = removed {
            tracing::warn!(%snapshot, %error, "a snapshot that nobody has is left");
        }
    }

    /// Takes back a snapshot that was made for something which was not done.
    async fn take_back_snapshot(&self, owner: &str, snapshot: SnapshotId) {
        match self.0.catalog.snapshots().remove(Some(owner), &snapshot.to_string()).await {
            // Somebody else has it by now.
            Ok(true) => {}
            Ok(false) => self.forget_snapshot(snapshot).await,
            Err(error) => tracing::warn!(%snapshot, %error, "a snapshot that nobody wanted is left"),
        }
    }

    /// Makes what a workspace holds a snapshot, while nobody writes to it.
    pub(crate) async fn commit_still(&self, id: &str, new: NewSnapshot) -> Result<Committed> {
        let id = id.to_owned();
        self.on_workspaces(move |workspaces| workspaces.commit(&id, new, true)).await
    }

    /// What differs between a sandbox's workspace and what it was made from.
    pub async fn changes(&self, scope: &Scope, id: &str) -> Result<(Changes, Pause)> {
        let sandbox = self.find_here(scope, id).await?;
        let service = self.clone();
        spawned(async move {
            let id = sandbox.id.clone();
            let changes = service.on_workspaces(move |workspaces| workspaces.changes(&id, true));
            service.while_frozen(&sandbox, changes).await
        })
        .await
    }

    /// Makes a running sandbox hold another snapshot. Processes that use its workspace end; unless that is to be forced,
    /// their being there is an error.
    pub async fn restore(
        &self,
        scope: &Scope,
        id: &str,
        snapshot: SnapshotId,
        force: bool,
    ) -> Result<Restored> {
        let live = self.running(scope, id).await?;
        let sandbox = self.find_here(scope, id).await?;
        let service = self.clone();
        spawned(async move { service.restore_now(&sandbox, &live, snapshot, force).await }).await
    }

    async fn restore_now(
        &self,
        sandbox: &Sandbox,
        live: &Live,
        snapshot: SnapshotId,
        force: bool,
    ) -> Result<Restored> {
        let (id, runtime) = (sandbox.id.as_str(), &self.0.runtime);
        let _work = live.work.lock().await;
        // What stands still does not end.
        let _still = live.still.lock().await;
        // Before anybody is ended for it.
        let known =
            self.on_workspaces(move |workspaces| Ok(workspaces.store().find_snapshot(&snapshot)?)).await?;
        if known.is_none() {
            return Err(workspace_workspace::WorkspaceError::UnknownSnapshot(snapshot).into());
        }
        if !force {
            let users = runtime.workspace_users(id, &live.place, None).await;
            let users = users.map_err(|error| unmoved(id, &error))?;
            if !users.is_empty() {
                return Err(SandboxError::WorkspaceUsed { id: id.to_owned(), users });
            }
        }
        let ended = runtime.workspace_users(id, &live.place, Some(Duration::ZERO)).await;
        let ended = ended.map_err(|error| unmoved(id, &error))?;
        let ((), pause) = self.freeze_for(sandbox, self.replace(id, &live.place, snapshot)).await?;
        self.forget_former(id);
        let config = Config { snapshot: Some(snapshot), ..config_of(sandbox)? };
        let config = serde_json::to_value(config).unwrap_or_default();
        let change = |_: &Sandbox| Some(Change { config: Some(config.clone()), ..Change::default() });
        let view = self.view(self.change(id, change, &[]).await?)?;
        Ok(Restored { view, ended, pause })
    }

    /// Gives a sandbox, of which nothing runs, another workspace. If that fails it has the one it had.
    async fn replace(&self, id: &str, place: &Place, snapshot: SnapshotId) -> Result<()> {
        let may_move = self.0.runtime.swaps();
        let name = id.to_owned();
        let switched = self
            .on_workspaces(move |workspaces| {
                workspaces.reset(&name, Some(snapshot), Materialize::Auto, may_move)
            })
            .await?;
        if !switched.moved {
            return Ok(());
        }
        let swapped = self.0.runtime.swap(id, place, &switched.made.path).await;
        let (name, is_swapped) = (id.to_owned(), swapped.is_ok());
        self.on_workspaces(move |workspaces| {
            if is_swapped { workspaces.switched(&name) } else { workspaces.switch_back(&name) }
        })
        .await?;
        swapped.map_err(|error| unmoved(id, &error))
    }

    /// Removes what was in a workspace before it was restored. Nobody waits for it.
    fn forget_former(&self, id: &str) {
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
    pub async fn fork(&self, scope: &Scope, id: &str, wanted: Wanted, fork: Fork) -> Result<Forked> {
        if fork.count == 0 || fork.count > FORKS_MAX {
            let message = format!("1 to {FORKS_MAX} are allowed");
            return Err(SandboxError::Invalid { field: "count", message });
        }
        check_labels(&fork.labels)?;
        let sandbox = self.find_here(scope, id).await?;
        // Before anything stands still for it, and a snapshot is made that nobody wants then.
        let like = like(&sandbox, &fork)?;
        self.must_be_possible(&like).await?;
        self.must_have_room(&wanted, fork.count).await?;
        let taken = self.commit(scope, id, fork.commit.clone()).await?;
        let new = NewSandbox { snapshot: Some(taken.committed.snapshot.id), ..like };
        // No more at once than are made at once: the others do not stand in the way of whoever waits.
        let turns = Arc::new(Semaphore::new(self.settings().creations_at_once.max(1) as usize));
        let made = (0..fork.count).map(|_| {
            let (service, wanted, new) = (self.clone(), wanted.clone(), new.clone());
            let turns = Arc::clone(&turns);
            tokio::spawn(async move {
                let _turn = turns.acquire().await;
                service.create(wanted, new).await
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
        let Some(error) = failed else { return Ok(Forked { taken, views }) };
        for view in views {
            if let Err(error) = self.remove(&Scope::All, &view.sandbox.id, false).await {
                tracing::error!(sandbox = view.sandbox.id, %error, "a fork that is not wanted stays");
            }
        }
        self.take_back_snapshot(&sandbox.owner, taken.committed.snapshot.id).await;
        Err(error)
    }

    /// Does something while nothing in a sandbox runs.
    async fn while_frozen<T>(
        &self,
        sandbox: &Sandbox,
        work: impl Future<Output = Result<T>>,
    ) -> Result<(T, Pause)> {
        let live = self.live(&sandbox.id);
        // One after the other: what stands still is not stopped again.
        let _still = match &live {
            Some(live) => Some(live.still.lock().await),
            None => None,
        };
        self.freeze_for(sandbox, work).await
    }

    /// The same for whoever holds that lock.
    async fn freeze_for<T>(
        &self,
        sandbox: &Sandbox,
        work: impl Future<Output = Result<T>>,
    ) -> Result<(T, Pause)> {
        let began = Instant::now();
        let place = self.place(&sandbox.id);
        let frozen = match sandbox.state {
            State::Running => Some(self.0.runtime.freeze(&sandbox.id, &place).await?),
            // What runs in one that is not made yet, or goes, is about to change anyway.
            State::Starting | State::Stopping => return Err(not_running(sandbox)),
            State::Stopped | State::Error => None,
        };
        let done = work.await;
        if frozen.is_some() {
            self.0.runtime.thaw(&sandbox.id, &place).await?;
        }
        Ok((done?, Pause { frozen, lasted: began.elapsed() }))
    }

    /// Lets a sandbox go on that a server which is gone has stopped, and finishes what it was doing.
    pub(crate) async fn finish_interrupted(&self, id: &str, place: &Place) -> Result<()> {
        let name = id.to_owned();
        let path = self.on_workspaces(move |workspaces| workspaces.switching(&name)).await?;
        if let Some(path) = path {
            tracing::info!(sandbox = id, "a sandbox was being restored; it is now");
            self.0.runtime.swap(id, place, &path).await?;
            let name = id.to_owned();
            self.on_workspaces(move |workspaces| workspaces.switched(&name)).await?;
        }
        Ok(self.0.runtime.thaw(id, place).await?)
    }
}

/// Runs to its end, whoever waits for it.
async fn spawned<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::spawn(work).await.unwrap_or_else(|error| Err(lost(error)))
}

fn lost(error: tokio::task::JoinError) -> SandboxError {
    SandboxError::Io { action: "finish".to_owned(), source: std::io::Error::other(error) }
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

/// Why a sandbox does not get another workspace. Those who hold its mounts may have died, for instance.
fn unmoved(id: &str, error: &RuntimeError) -> SandboxError {
    let reason = format!(
        "it cannot be replaced where it is ({error}); fork the sandbox, or commit it, and go on there"
    );
    workspace_workspace::WorkspaceError::Unusable { id: id.to_owned(), reason }.into()
}

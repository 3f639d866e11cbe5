//! Finding everything again, and clearing away what belongs to nobody.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use workspace_catalog::{Change, EventKind, Sandbox, State};
use workspace_state::{GcOptions, Quiet};
use workspace_workspace::Workspaces;

use crate::config::Config;
use crate::door;
use crate::error::{Doing as _, Result};
use crate::live::Live;
use crate::remove::KEPT;
use crate::service::{Service, config_of};

/// What a collection cleared away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Sandboxes whose time was up, and those that nobody knew of.
    pub sandboxes: u64,
    /// Workspaces that nobody knew of.
    pub workspaces: u64,
    /// Layers of snapshots that nobody needed.
    pub layers: u64,
    /// Bytes that are free now.
    pub freed: u64,
}

impl Service {
    /// Takes up what the last server left.
    pub(crate) async fn recover(&self) -> Result<()> {
        for sandbox in self.0.catalog.sandboxes().all(&self.0.settings.node).await? {
            let id = sandbox.id.clone();
            // One that cannot be taken up must not keep the others waiting.
            if let Err(error) = self.recover_one(sandbox).await {
                tracing::error!(sandbox = id, %error, "a sandbox could not be recovered");
                self.mark(&id, State::Error, &format!("it could not be recovered: {error}")).await?;
            }
        }
        self.clear_orphans().await?;
        Ok(())
    }

    async fn recover_one(&self, sandbox: Sandbox) -> Result<()> {
        match sandbox.state {
            State::Stopped => Ok(()),
            State::Stopping => {
                let keep = sandbox.state_reason.as_deref() == Some(KEPT);
                self.remove_now(sandbox, keep).await.map(|_| ())
            }
            State::Starting | State::Running | State::Error => {
                let place = self.place(&sandbox.id);
                if self.0.runtime.is_running(&sandbox.id, &place).await? {
                    self.finish_interrupted(&sandbox.id, &place).await?;
                    return self.take_up(&sandbox);
                }
                self.0.runtime.end(&sandbox.id, &place).await?;
                let (state, reason) = match sandbox.state {
                    State::Starting => (State::Error, "the server was stopped while it was being made"),
                    // Nothing failed: somebody ended it, or what ran in it came to its end.
                    State::Running => (State::Stopped, "its processes ended while the server was away"),
                    _ => return Ok(()),
                };
                if sandbox.state == State::Starting {
                    // Nobody was answered, so the same request may make another.
                    self.0.catalog.idempotency().release(&sandbox.id).await?;
                }
                self.mark(&sandbox.id, state, reason).await?;
                self.lose_commands(&sandbox.id, None, reason).await;
                Ok(())
            }
        }
    }

    /// Lets the guest of a sandbox come back.
    fn take_up(&self, sandbox: &Sandbox) -> Result<()> {
        let config = config_of(sandbox)?;
        let live = Arc::new(Live::of(sandbox, self.place(&sandbox.id), &config));
        let socket = live.place.listen().doing(|| "listen for the guest agent".to_owned())?;
        self.add_live(&live);
        door::open(socket, &live, Arc::new(self.clone()));
        if sandbox.state == State::Starting {
            self.finish_making(live, config);
        } else {
            self.watch_end(&live);
            self.expect_back(&live);
        }
        Ok(())
    }

    /// Goes on where the last server was stopped.
    fn finish_making(&self, live: Arc<Live>, config: Config) {
        let service = self.clone();
        tokio::spawn(async move {
            if let Err(error) = service.finish_made(&live, config).await {
                tracing::warn!(sandbox = live.id, %error, "a sandbox could not be finished");
                let reason = error.to_string();
                if let Err(error) = service.mark(&live.id, State::Error, &reason).await {
                    tracing::error!(sandbox = live.id, %error, "and could not be marked");
                }
            }
        });
    }

    async fn finish_made(&self, live: &Live, config: Config) -> Result<()> {
        self.wait_for_guest(live).await?;
        let missing = self.0.runtime.missing(&live.id, &live.place).await?;
        if let Err(error) = self.must_be_strict(&missing) {
            self.0.runtime.end(&live.id, &live.place).await?;
            return Err(error);
        }
        self.set_running(&live.id, &Config { missing, ..config }).await.map(|_| ())
    }

    async fn mark(&self, id: &str, state: State, reason: &str) -> Result<()> {
        let change = |sandbox: &Sandbox| {
            sandbox.state.may_become(state).then(|| Change {
                state: Some(state),
                state_reason: Some(reason.to_owned()),
                ..Change::default()
            })
        };
        self.change(id, change, &[EventKind::SandboxError]).await.map(|_| ())
    }

    /// Removes what expired, what belongs to nobody, and what nothing reaches in the store.
    pub async fn collect(&self) -> Result<Collected> {
        let expired = self.expire().await?;
        let orphans = self.clear_orphans().await?;
        let unneeded = self.collect_content(false).await?;
        Ok(Collected {
            sandboxes: orphans.sandboxes + expired,
            workspaces: orphans.workspaces,
            layers: unneeded.layers,
            freed: orphans.freed + unneeded.freed,
        })
    }

    /// Removes layers that nobody has needed for a while, or with `recent` all that nobody needs now, and what nothing
    /// reaches in the store.
    pub(crate) async fn collect_content(&self, recent: bool) -> Result<Collected> {
        self.on_workspaces(move |workspaces| {
            let layers = workspaces.collect(recent)?;
            let report = workspaces.store().collect_garbage(&GcOptions::default(), &Quiet)?;
            tracing::info!(layers = layers.layers, freed = report.freed_bytes, "collected garbage");
            let freed = layers.bytes + report.freed_bytes;
            Ok(Collected { layers: layers.layers, freed, ..Collected::default() })
        })
        .await
    }

    /// What nobody knows of: a process, a directory, a workspace without a row.
    async fn clear_orphans(&self) -> Result<Collected> {
        let mut collected = Collected::default();
        // Names first, rows after: whoever makes one now writes the row before the directory, or has it in the pool.
        let places = names(&self.0.settings.sandboxes).doing(|| "look for sandboxes".to_owned())?;
        let workspaces = self.on_workspaces(Workspaces::list).await?;
        let workspaces: Vec<String> = workspaces.into_iter().map(|found| found.id).collect();
        let noted = self.0.runtime.known().await?;
        // One that is taken from the pool is in the catalog before it leaves the pool's list.
        let pooled = self.0.pool.ids();
        let known = self.0.catalog.sandboxes().all(&self.0.settings.node).await?;
        let known = known.iter().map(|sandbox| sandbox.id.as_str());
        let known: HashSet<&str> = known.chain(pooled.iter().map(String::as_str)).collect();
        let orphans = places.iter().chain(&noted).filter(|id| !known.contains(id.as_str()));
        for id in orphans.collect::<HashSet<_>>() {
            tracing::info!(sandbox = id, "nobody knows of a sandbox; it is removed");
            let place = self.place(id);
            self.0.runtime.end(id, &place).await?;
            place.remove()?;
            collected.sandboxes += 1;
        }
        for id in workspaces.iter().filter(|id| !known.contains(id.as_str())) {
            collected.freed += self.disk_usage(id).await;
            self.remove_workspace(id).await?;
            collected.workspaces += 1;
        }
        Ok(collected)
    }
}

fn names(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

//! Sandboxes that follow the head of their project: the snapshot of its present files.
//!
//! Their workspaces show the head of an *anchor* ([`Workspaces`](workspace_workspace::Workspaces)), a mount that all of
//! them share. It is changed for all of them at once. The caller decides which head an anchor shows, and which anchor a
//! sandbox follows.

use workspace_catalog::Sandbox;
use workspace_state::SnapshotId;
use workspace_workspace::AnchorToFollow;

use crate::config::{Config, NewSandbox};
use crate::error::{Result, SandboxError};
use crate::sandbox_dir::SandboxDir;
use crate::service::{Service, config_of};

/// Sandbox that follows the head of its project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follower {
    /// Id of the sandbox.
    pub id: String,
    /// Id of the project.
    pub project: String,
    /// Agent whose view of the head it shows.
    pub agent: String,
    /// Name of the anchor that it follows.
    pub anchor: String,
}

impl Service {
    /// Lists the sandboxes that follow a head and whose processes may run.
    pub fn followers(&self) -> Vec<Follower> {
        let handles = self.handles();
        let followers = handles.iter().filter_map(|handle| {
            let base = handle.followed()?;
            let (anchor, _) = self.0.workspaces.followed(&handle.id)?;
            let (project, agent) = (base.project.clone(), base.agent.clone());
            Some(Follower { id: handle.id.clone(), project, agent, anchor })
        });
        followers.collect()
    }

    /// Shows another head in all sandboxes that follow an anchor. Returns false if they show these files already.
    pub async fn switch_head(&self, anchor: &str, snapshot: SnapshotId, sequence: i64) -> Result<bool> {
        self.update_holder().await;
        let anchor = anchor.to_owned();
        self.on_workspaces(move |workspaces| workspaces.switch_anchor(&anchor, snapshot, sequence)).await
    }

    /// Makes a sandbox follow another anchor. `snapshot`, with this `sequence`, becomes the head of that anchor unless
    /// it has a newer one. If this fails, the sandbox follows its former anchor.
    pub async fn move_follower(
        &self,
        id: &str,
        anchor: &str,
        snapshot: SnapshotId,
        sequence: i64,
    ) -> Result<()> {
        let _operation = self.0.operation_locks.lock(id).await;
        let Some(handle) = self.handle(id) else { return Ok(()) };
        self.update_holder().await;
        let (name, to) = (id.to_owned(), anchor.to_owned());
        let directory = self
            .on_workspaces(move |workspaces| {
                workspaces.begin_anchor_change(&name, &AnchorToFollow { name: &to, sequence }, snapshot)
            })
            .await?;
        // It follows this anchor already, or none.
        let Some(directory) = directory else { return Ok(()) };
        let attached = self.0.runtime.attach_follower(id, &handle.dir, &directory).await;
        let (name, to) = (id.to_owned(), anchor.to_owned());
        match attached {
            Ok(()) => self.on_workspaces(move |workspaces| workspaces.finish_anchor_change(&name, &to)).await,
            Err(error) => {
                self.on_workspaces(move |workspaces| workspaces.leave_anchor(&to, &name)).await?;
                Err(error.into())
            }
        }
    }

    /// Releases the disk space of former heads that no process uses any more.
    pub async fn release_former_heads(&self) -> Result<()> {
        self.on_workspaces(|workspaces| {
            workspaces.release_former_heads();
            Ok(())
        })
        .await
    }

    /// Fails if a new sandbox is to follow the head of a project, and the runtime does not support that.
    pub(crate) fn check_following(&self, new: &NewSandbox) -> Result<()> {
        if new.follow.is_none() {
            return Ok(());
        }
        self.0.runtime.check_following().map_err(|reason| SandboxError::FollowUnavailable { reason })
    }

    /// Returns the name of the anchor that a sandbox follows; `None` if it does not follow. Fails if it is not known.
    pub(crate) fn followed_anchor(&self, sandbox: &Sandbox) -> Result<Option<String>> {
        if !config_of(sandbox)?.follows {
            return Ok(None);
        }
        let followed = self.0.workspaces.followed(&sandbox.id).map(|(anchor, _)| anchor);
        let missing =
            || SandboxError::FollowUnavailable { reason: "its workspace does not exist".to_owned() };
        followed.map(Some).ok_or_else(missing)
    }

    /// Returns the sequence of the head that a sandbox shows; `None` without a project.
    pub(crate) fn shown_sequence(&self, id: &str, config: &Config) -> Option<i64> {
        let shown_head = || self.0.workspaces.followed(id).and_then(|(_, shown)| shown);
        let shown = if config.follows { shown_head() } else { None };
        let base = config.lineage.project_base.as_ref();
        shown.map(|head| head.sequence).or_else(|| base.map(|base| base.sequence))
    }

    /// Makes a sandbox that was found running follow its anchor, for the case that the last server was killed before it
    /// had done that.
    pub(crate) async fn attach_follower_again(&self, sandbox: &Sandbox, dir: &SandboxDir) -> Result<()> {
        let Some(anchor) = self.followed_anchor(sandbox)? else { return Ok(()) };
        let directory = self.0.workspaces.anchor_directory(&anchor);
        if let Err(error) = self.0.runtime.attach_follower(&sandbox.id, dir, &directory).await {
            // It has the head that it had before, for example because the process that holds the mounts has died.
            tracing::warn!(sandbox = sandbox.id, %error, "failed to make a sandbox follow its project again");
        }
        Ok(())
    }
}

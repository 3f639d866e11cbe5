//! Completions (finished work of agents, to be merged into a project) without a workspace on this server: an agent
//! changed the files elsewhere. The API calls this a push.

use workspace_catalog::{CatalogError, Completion, NewCompletion, Project};
use workspace_state::{Durability, SnapshotId, Tree, TreeId, VirtualTree};

use super::{
    PROJECT_LABEL, ProjectError, Projects, Result, WorkspaceBase, blocking, failpoint, find_snapshot,
    no_such_sequence, parse_snapshot, pending_snapshot, references,
};

/// Work that an agent did outside of this server.
#[derive(Debug, Clone)]
pub struct DirectCompletion {
    /// Id of the completion; `None` to derive it from agent, base and content.
    pub id: Option<String>,
    /// Agent that did the work.
    pub agent: String,
    /// Owner of the agent's key; `None` if the owner of the project acts as the agent.
    pub owner: Option<String>,
    /// Base of the work: the snapshot of the agent's view of a head.
    pub base: WorkspaceBase,
    /// Snapshot with all files of the agent's view after the work.
    pub content: SnapshotId,
    /// Message for the history.
    pub message: String,
}

impl Projects {
    /// Returns the base of work that an agent does on the head at a sequence of the project: the snapshot of the
    /// agent's view, with this sequence. The sequence is not that of the agent ([`AgentView`](super::AgentView)),
    /// which counts only the changes that the agent can see.
    pub async fn workspace_base_at(
        &self,
        project: &Project,
        agent: &str,
        sequence: i64,
    ) -> Result<WorkspaceBase> {
        let head = match sequence {
            0 => None,
            _ if sequence == project.sequence => project.head.clone(),
            _ => {
                let found = self.catalog.operations().find(&project.id, sequence).await?;
                Some(found.ok_or_else(|| no_such_sequence(project, sequence))?.snapshot)
            }
        };
        let project_then = Project { sequence, head, ..project.clone() };
        self.workspace_base(&project_then, agent).await
    }

    /// Queues work that was done outside of this server. A repetition of the same work returns the existing completion.
    /// Other work with the same id fails with [`CatalogError::IdempotencyConflict`].
    pub async fn complete_directly(&self, project: &Project, new: DirectCompletion) -> Result<Completion> {
        let DirectCompletion { id, agent, owner, base, content, message } = new;
        let store = self.store.clone();
        let tree =
            blocking(move || Tree::of_snapshot(&store, &find_snapshot(&store, content)?).map_err(Into::into));
        let tree = tree.await?;
        let id = id.unwrap_or_else(|| content_id(&agent, &base, &tree.id().to_string()));
        if let Some(existing) = self.catalog.completions().find(&project.id, &id).await? {
            return self.check_same_work(existing, &agent, &base, tree.id()).await;
        }
        let tree_id = tree.id();
        // The history takes message and author from the snapshot, so `content` itself cannot be used.
        let mut snapshot = pending_snapshot([(PROJECT_LABEL, project.id.clone())]);
        (snapshot.author, snapshot.message) = (agent.clone(), message);
        snapshot.parents = vec![base.snapshot];
        snapshot.durability = Durability::Synced;
        let theirs = blocking(move || Ok(VirtualTree::over(&tree)?.commit(snapshot)?)).await?;
        failpoint::hit("direct-committed")?;
        let completed = self.complete(NewCompletion {
            id,
            project: project.id.clone(),
            owner: project.owner.clone(),
            workspace_owner: owner,
            agent: agent.clone(),
            sandbox: None,
            round_id: None,
            base_snapshot: base.snapshot.to_string(),
            base_sequence: base.sequence,
            theirs_snapshot: theirs.id.to_string(),
            policy_version: base.policy_version,
        });
        let completed = match completed.await {
            // After these errors, the completion is not recorded. After others it may be, so the snapshot stays
            // pending: a server removes it later, unless it is recorded.
            Err(
                error @ (ProjectError::NotFound { .. }
                | ProjectError::Catalog(
                    CatalogError::IdempotencyConflict { .. } | CatalogError::NotFound { .. },
                )),
            ) => {
                self.discard_direct(&project.id, theirs.id).await;
                return Err(error);
            }
            completed => completed?,
        };
        if completed.completion.theirs_snapshot == theirs.id.to_string() {
            self.end_pending(&project.id, vec![theirs.id]).await?;
        } else {
            // Another request with the same id was faster, and the completion has the snapshot of that request.
            self.discard_direct(&project.id, theirs.id).await;
            return self.check_same_work(completed, &agent, &base, tree_id).await;
        }
        Ok(completed)
    }

    /// Returns `existing`. Fails if it is of another agent, has other files than `tree`, or another head as its base.
    async fn check_same_work(
        &self,
        existing: Completion,
        agent: &str,
        base: &WorkspaceBase,
        tree: TreeId,
    ) -> Result<Completion> {
        let (store, theirs) = (self.store.clone(), parse_snapshot(&existing.completion.theirs_snapshot)?);
        let completed = blocking(move || find_snapshot(&store, theirs)).await?;
        let is_same = existing.completion.agent == agent
            && existing.completion.base_sequence == base.sequence
            && completed.tree == tree;
        if !is_same {
            return Err(CatalogError::IdempotencyConflict { key: existing.completion.id }.into());
        }
        Ok(existing)
    }

    /// Removes the snapshot of a push that is not recorded, with the reference that [`Self::complete`] may have set to
    /// protect it.
    async fn discard_direct(&self, project: &str, snapshot: SnapshotId) {
        let (store, name) = (self.store.clone(), references::name_of(project, snapshot));
        let removed = blocking(move || match store.reference(&name)? {
            Some(_) => Ok(store.remove_reference_with_snapshot(&name, snapshot)?),
            None => Ok(store.remove_snapshots(&[snapshot])?),
        });
        if let Err(error) = removed.await {
            tracing::warn!(%snapshot, %error, "failed to remove the snapshot of a push that is not recorded");
        }
    }
}

/// Returns an id that is derived from the content of a completion, so that a repeated push is the same completion.
fn content_id(agent: &str, base: &WorkspaceBase, tree: &str) -> String {
    let text = format!("{agent}\0{}\0{}\0{tree}", base.sequence, base.snapshot);
    format!("push-{}", blake3::hash(text.as_bytes()).to_hex())
}

//! Rebase of a workspace: its changes are merged with a newer head, in the view of its agent.
//!
//! Nothing of the project changes. The result is a snapshot for the workspace, and the view of the head is what its
//! changes are compared with from then on.

use std::sync::Arc;

use workspace_catalog::{CreationOrder, Operation, OperationFilter, Project};
use workspace_merge::{Author, TreeOptions, merge_trees};
use workspace_state::{NewSnapshot, Snapshot, SnapshotId, Store, Tree};

use super::agent_view::AgentView;
use super::error::Result;
use super::git_directory::GitDirectory;
use super::landing::{Lander, tree_of};
use super::report::{Conflict, MergedFile};
use super::store_access::{blocking, find_snapshot, parse_snapshot};
use super::{Projects, WorkspaceBase};
use crate::policy::Policy;

/// Maximum number of changes of a head that are searched for one of others.
const OPERATIONS_MAX: u32 = 100;

/// Head that a workspace is rebased onto, as its agent sees it.
#[derive(Debug, Clone)]
pub struct RebaseTarget {
    /// Files of the new head, from which the workspace could have been made.
    pub base: WorkspaceBase,
    project: Project,
    agent: String,
    policy: Policy,
}

/// Files of a workspace that is rebased.
#[derive(Debug)]
pub struct RebaseInput {
    /// Snapshot that its changes are compared with ([`Projects::changes_base`]).
    pub from: SnapshotId,
    /// Snapshot of the workspace.
    pub theirs: SnapshotId,
    /// Description of the snapshot with the result. Its parents are set.
    pub new: NewSnapshot,
}

/// Result of [`Projects::rebase`].
#[derive(Debug)]
pub enum RebasedFiles {
    /// The changes of both sides.
    Merged {
        /// Files for the workspace, on disk.
        snapshot: Snapshot,
        /// Files that a merge strategy combined.
        merged: Vec<MergedFile>,
        /// True if a rule dropped a version of the agent, which only the snapshot of the workspace has.
        has_dropped: bool,
    },
    /// Conflicts that no rule decides.
    Conflicts(Vec<Conflict>),
}

impl Projects {
    /// Returns the present head of a project as the target of a rebase.
    pub async fn rebase_target(&self, project: &Project, agent: &str) -> Result<RebaseTarget> {
        let (base, policy) = (self.workspace_base(project, agent).await?, self.policy(project).await?);
        Ok(RebaseTarget { base, project: project.clone(), agent: agent.to_owned(), policy })
    }

    /// Returns the snapshot that the changes of a workspace are compared with: the last one that it completed, or
    /// `made_from`.
    pub async fn changes_base(
        &self,
        project: &str,
        workspace: &str,
        made_from: SnapshotId,
    ) -> Result<SnapshotId> {
        match self.catalog.completions().last_decided(project, workspace).await? {
            Some(last) => parse_snapshot(&last.completion.theirs_snapshot),
            None => Ok(made_from),
        }
    }

    /// Returns true if a workspace whose changes are compared with `from` has nothing to get from the target.
    pub async fn is_current(&self, target: &RebaseTarget, from: SnapshotId) -> Result<bool> {
        if target.base.snapshot == from {
            return Ok(true);
        }
        let (store, head, git) =
            (self.store.clone(), target.base.snapshot, GitDirectory::of(&target.project));
        blocking(move || {
            let (from, head) = (tree_of(&store, from)?.0, tree_of(&store, head)?.0);
            let from = match git.apply(&from)? {
                Some(without) => without.tree_id()?,
                None => from.id(),
            };
            Ok(from == head.id())
        })
        .await
    }

    /// Merges the changes of a workspace with the head of the target. The result is on disk.
    pub async fn rebase(&self, target: &RebaseTarget, input: RebaseInput) -> Result<RebasedFiles> {
        let (store, views, target) = (self.store.clone(), Arc::clone(&self.views), target.clone());
        blocking(move || {
            let git = GitDirectory::of(&target.project);
            let mut lander =
                Lander { store: &store, policy: &target.policy, views: &views, git, temporary: Vec::new() };
            let rebased = merge(&mut lander, &target, input);
            lander.clean_up()?;
            let rebased = rebased?;
            store.sync()?;
            Ok(rebased)
        })
        .await
    }

    /// Returns true if the head has changes that the agent of a sandbox can see, since a sequence, and did not make in
    /// this sandbox; or if the policy gives the agent another view than `view`.
    pub async fn has_base_moved(
        &self,
        agent: &AgentView,
        sandbox: &str,
        since: i64,
        view: Option<&str>,
    ) -> Result<bool> {
        if view.is_some_and(|view| *view != agent.policy().view_key().to_string()) {
            return Ok(true);
        }
        if agent.number_at(since) == agent.sequence() {
            return Ok(false);
        }
        let filter = OperationFilter {
            after: Some(since),
            order: CreationOrder::Oldest,
            limit: OPERATIONS_MAX,
            ..OperationFilter::default()
        };
        let operations = self.catalog.operations().list(&agent.project().id, &filter).await?;
        for operation in &operations {
            let is_visible = agent.number_at(operation.sequence) != agent.number_at(operation.sequence - 1);
            if is_visible && !self.is_of_sandbox(agent, sandbox, operation).await? {
                return Ok(true);
            }
        }
        Ok(operations.len() as u64 == u64::from(OPERATIONS_MAX))
    }

    /// Returns true if an operation merged a completion of a sandbox.
    async fn is_of_sandbox(&self, agent: &AgentView, sandbox: &str, operation: &Operation) -> Result<bool> {
        let Some(completion) =
            operation.completion.as_deref().filter(|_| operation.author == agent.policy().agent())
        else {
            return Ok(false);
        };
        let found = self.catalog.completions().find(&agent.project().id, completion).await?;
        Ok(found.is_some_and(|found| found.completion.sandbox.as_deref() == Some(sandbox)))
    }
}

fn merge(lander: &mut Lander<'_>, target: &RebaseTarget, input: RebaseInput) -> Result<RebasedFiles> {
    let store: &Store = lander.store;
    let workspace = tree_of(store, input.theirs)?.0;
    let base = lander.without_git(tree_of(store, input.from)?.0)?;
    let theirs = lander.without_git(workspace.clone())?;
    let ours = Tree::of_snapshot(store, &find_snapshot(store, target.base.snapshot)?)?;
    // As in a completion, the changes of the agent are later than everything in the head.
    let (our_author, their_author) = (Author::default(), Author { time: 1, ..Author::default() });
    let options = TreeOptions {
        policy: target.policy.for_agent(&target.agent).merge_policy_without_reviews(),
        ours: our_author,
        theirs: their_author,
        ..TreeOptions::default()
    };
    let mut merged = merge_trees(&base, &ours, &theirs, &options)?;
    let undecided = merged.conflicts.iter().filter(|conflict| conflict.decided.is_none());
    let conflicts: Vec<Conflict> = undecided.map(Conflict::of).collect();
    if !conflicts.is_empty() {
        return Ok(RebasedFiles::Conflicts(conflicts));
    }
    let has_dropped = !merged.conflicts.is_empty();
    lander.git.keep(&workspace, &mut merged.tree)?;
    let kept = has_dropped.then_some(input.theirs);
    let parents = [target.base.snapshot].into_iter().chain(kept).collect();
    let snapshot = merged.tree.commit(NewSnapshot { parents, ..input.new })?;
    let files = merged.merged.iter().map(|file| MergedFile::new(&file.path.0, file.strategy)).collect();
    Ok(RebasedFiles::Merged { snapshot, merged: files, has_dropped })
}

//! Rebase of a workspace: its changes are merged with a newer head (the present files of its project), in the view of
//! its agent (the part of the head that the agent may read).
//!
//! The project does not change. The result is a snapshot for the workspace. From then on, this view is the base of the
//! workspace: its changes are those since the base.

use std::sync::Arc;

use workspace_catalog::{CreationOrder, Operation, OperationFilter, Project};
use workspace_merge::merge_trees;
use workspace_state::{NewSnapshot, Snapshot, SnapshotId, Store, Tree};

use super::agent_view::AgentView;
use super::completion_merge::{CompletionMerger, tree_of};
use super::error::Result;
use super::git_directory::GitDirectory;
use super::head_authors::HeadAuthors;
use super::report::{Conflict, MergedFile};
use super::store_access::{blocking, find_snapshot, parse_snapshot};
use super::{Projects, WorkspaceBase, failpoint};
use crate::policy::Policy;

/// Maximum number of operations (changes of the head) that [`Projects::has_base_moved`] reads. If it reads this many
/// without a result, it returns true.
const OPERATIONS_MAX: u32 = 100;

/// Head that a workspace is rebased onto, as its agent sees it.
#[derive(Debug, Clone)]
pub struct RebaseTarget {
    /// View that the agent has of the new head.
    pub base: WorkspaceBase,
    project: Project,
    agent: String,
    policy: Policy,
}

/// Files of a workspace that is rebased.
#[derive(Debug)]
pub struct RebaseInput {
    /// Base of the changes of the workspace ([`Projects::changes_base`]).
    pub from: SnapshotId,
    /// Snapshot of the workspace with its changes.
    pub theirs: SnapshotId,
    /// Description of the snapshot with the result. The rebase sets its parents.
    pub new: NewSnapshot,
}

/// Result of [`Projects::rebase`].
#[derive(Debug)]
pub enum RebasedFiles {
    /// Files with the changes of both sides.
    Merged {
        /// Files for the workspace. The snapshot is synced to disk.
        snapshot: Snapshot,
        /// Files that a merge strategy combined.
        merged: Vec<MergedFile>,
        /// True if a rule resolved a conflict, and may have dropped a version of the agent. The snapshot of the
        /// workspace, which has this version, is then a parent of `snapshot`.
        has_dropped: bool,
    },
    /// Conflicts that no rule resolves; nothing was written.
    Conflicts(Vec<Conflict>),
}

impl Projects {
    /// Returns the present head of a project as the target of a rebase.
    pub async fn rebase_target(&self, project: &Project, agent: &str) -> Result<RebaseTarget> {
        let (base, policy) = (self.workspace_base(project, agent).await?, self.policy(project).await?);
        Ok(RebaseTarget { base, project: project.clone(), agent: agent.to_owned(), policy })
    }

    /// Returns the base of the changes of a workspace: the snapshot of its last completion in this round (the time of a
    /// workspace between two moves to a newer head), or else `made_from`.
    pub async fn changes_base(
        &self,
        project: &str,
        round_id: &str,
        made_from: SnapshotId,
    ) -> Result<SnapshotId> {
        match self.catalog.completions().newest_merged_or_refused(project, round_id).await? {
            Some(last) => parse_snapshot(&last.completion.theirs_snapshot),
            None => Ok(made_from),
        }
    }

    /// Returns true if a workspace with the base `from` has all changes of the target already.
    pub async fn is_current(&self, target: &RebaseTarget, from: SnapshotId) -> Result<bool> {
        if target.base.snapshot == from {
            return Ok(true);
        }
        let (store, head, git) =
            (self.store.clone(), target.base.snapshot, GitDirectory::of(&target.project));
        blocking(move || {
            let (from, head) = (tree_of(&store, from)?.0, tree_of(&store, head)?.0);
            Ok(git.tree_id_without_ignored(&from)? == head.id())
        })
        .await
    }

    /// Merges the changes of a workspace with the head of the target. The resulting snapshot is synced to disk. It is
    /// pending if `input.new` says so.
    pub async fn rebase(&self, target: &RebaseTarget, input: RebaseInput) -> Result<RebasedFiles> {
        let (store, views, target) = (self.store.clone(), Arc::clone(&self.view_cache), target.clone());
        let authors = HeadAuthors::new(&self.catalog, &target.project.id);
        blocking(move || {
            let git = GitDirectory::of(&target.project);
            let mut merger = CompletionMerger::new(&store, &target.policy, &views, git, authors);
            let rebased = merge(&mut merger, &target, input);
            merger.clean_up()?;
            let rebased = rebased?;
            failpoint::hit("rebase-merged")?;
            store.sync()?;
            failpoint::hit("rebase-synced")?;
            Ok(rebased)
        })
        .await
    }

    /// Returns true if the head has changes after the sequence `since` of the project that the agent can see and did
    /// not make in this sandbox. Also returns true if the policy now gives the agent another view: `view_key` is the
    /// former [`ViewKey`] in hexadecimal; `None` skips this check.
    ///
    /// [`ViewKey`]: crate::ViewKey
    pub async fn has_base_moved(
        &self,
        agent: &AgentView,
        sandbox: &str,
        since: i64,
        view_key: Option<&str>,
    ) -> Result<bool> {
        if view_key.is_some_and(|key| *key != agent.policy().view_key().to_string()) {
            return Ok(true);
        }
        if agent.agent_sequence_at(since) == agent.sequence() {
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
            let is_visible = agent.agent_sequence_at(operation.sequence)
                != agent.agent_sequence_at(operation.sequence - 1);
            if is_visible && !self.is_of_sandbox(agent, sandbox, operation).await? {
                return Ok(true);
            }
        }
        Ok(operations.len() as u64 == u64::from(OPERATIONS_MAX))
    }

    /// Returns true if an operation merged a completion of the agent in this sandbox.
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

/// Merges the changes of a workspace with the head of the target. Commits the result, but does not sync it.
fn merge(
    merger: &mut CompletionMerger<'_>,
    target: &RebaseTarget,
    input: RebaseInput,
) -> Result<RebasedFiles> {
    let store: &Store = merger.store;
    let workspace = tree_of(store, input.theirs)?.0;
    let base = merger.without_git(tree_of(store, input.from)?.0)?;
    let theirs = merger.without_git(workspace.clone())?;
    let ours = Tree::of_snapshot(store, &find_snapshot(store, target.base.snapshot)?)?;
    let rules = target.policy.for_agent(&target.agent).merge_rules_without_reviews();
    let options = merger.options(rules, (&base, &ours, &theirs))?;
    let mut merged = merge_trees(&base, &ours, &theirs, &options)?;
    let undecided = merged.conflicts.iter().filter(|conflict| conflict.decided.is_none());
    let conflicts: Vec<Conflict> = undecided.map(Conflict::of).collect();
    if !conflicts.is_empty() {
        return Ok(RebasedFiles::Conflicts(conflicts));
    }
    let has_dropped = !merged.conflicts.is_empty();
    merger.git.add_ignored(&workspace, &mut merged.tree)?;
    let kept = has_dropped.then_some(input.theirs);
    let parents = [target.base.snapshot].into_iter().chain(kept).collect();
    let snapshot = merged.tree.commit(NewSnapshot { parents, ..input.new })?;
    let files = merged.merged.iter().map(|file| MergedFile::new(&file.path.0, file.strategy)).collect();
    Ok(RebasedFiles::Merged { snapshot, merged: files, has_dropped })
}

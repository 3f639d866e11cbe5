//! Merge of one completion (finished work of an agent) into a head (the snapshot of the present files of a project).
//! This module reads and writes only the store: the caller moves the head in the catalog.
//!
//! The changes of an agent are checked and merged in its view of the head: the part that it may read. So the report
//! about the merge reveals nothing about hidden files. The merged view is then lifted: its changes are applied to the
//! full head.

use std::collections::{BTreeMap, HashMap};

use workspace_merge::{Author, ConflictClass, PathRules, TreeConflict, TreeOptions, merge_trees};
use workspace_state::{Durability, NewSnapshot, Snapshot, SnapshotId, Store, Tree, VirtualTree};

use super::error::{ProjectError, Result};
use super::git_directory::GitDirectory;
use super::head_authors::HeadAuthors;
use crate::check::{Checked, Refused, RenamedAddition, check_changes, revert_at_occupied_path};
use crate::lift::{LiftError, lift};
use crate::policy::{AgentPolicy, Policy};
use crate::view::{ViewCache, view};

/// Name of the label of a head that was made for a completion. Its value is the id of the completion.
pub const COMPLETION_LABEL: &str = "completion";
/// Name of the label of a snapshot of a project. Its value is the id of the project.
pub const PROJECT_LABEL: &str = "project";

/// Completed work to merge into a head.
#[derive(Debug, Clone)]
pub(super) struct Work<'a> {
    /// Id of the project.
    pub(super) project: &'a str,
    /// Id of the completion.
    pub(super) completion: &'a str,
    pub(super) agent: &'a str,
    /// Snapshot of the previous completion of the same round (the time of the workspace between two moves to a newer
    /// head) that was merged or refused; without one, the snapshot from which the workspace was made or last rebased.
    pub(super) base: SnapshotId,
    /// Snapshot of the workspace with the changes.
    pub(super) theirs: SnapshotId,
}

/// Result of merging one completion. The completion gets the state `in_review` if there are conflicts, `refused` if
/// changes were refused and the head does not change, and `landed` otherwise.
#[derive(Debug)]
pub(super) struct MergeOutcome {
    /// New head; `None` if the head does not change.
    pub(super) head: Option<Snapshot>,
    /// Snapshot that the changes of the agent were compared with.
    pub(super) base: SnapshotId,
    /// Names of the merge strategies that merged files which both sides changed, by path.
    pub(super) strategies: BTreeMap<Vec<u8>, &'static str>,
    /// Conflicts that no rule resolves. Until their reviews are decided, the new head has the entries of the present
    /// head at these paths.
    pub(super) conflicts: Vec<TreeConflict>,
    /// Changes that the policy refused.
    pub(super) refused: Vec<Refused>,
    /// Additions that were kept under another name: the head has the name by now, and the agent may only read and add
    /// there ([`Access::ReadAdd`](crate::policy::Access::ReadAdd)).
    pub(super) renamed: Vec<RenamedAddition>,
    /// True if the agent changed anything, refused changes included.
    pub(super) has_changes: bool,
}

/// Merges completions into a head. Reads and writes only the store.
pub(super) struct CompletionMerger<'a> {
    pub(super) store: &'a Store,
    pub(super) policy: &'a Policy,
    pub(super) views: &'a ViewCache,
    pub(super) git: GitDirectory,
    /// Authors of the files of the head, for conflict rules that compare priorities.
    pub(super) authors: HeadAuthors,
    /// Snapshots of intermediate trees, which are not needed after the merge.
    pub(super) temporary: Vec<SnapshotId>,
    /// Snapshots of the new heads that were made, in order.
    heads: Vec<SnapshotId>,
}

impl<'a> CompletionMerger<'a> {
    pub(super) fn new(
        store: &'a Store,
        policy: &'a Policy,
        views: &'a ViewCache,
        git: GitDirectory,
        authors: HeadAuthors,
    ) -> Self {
        Self { store, policy, views, git, authors, temporary: Vec::new(), heads: Vec::new() }
    }

    /// Returns the number of heads that were made and are not discarded.
    pub(super) fn head_count(&self) -> usize {
        self.heads.len()
    }

    /// Discards the heads after the first `count`: [`Self::clean_up`] removes them.
    pub(super) fn discard_heads_after(&mut self, count: usize) {
        self.temporary.extend(self.heads.drain(count..));
    }

    /// Merges a completion into `head`. The new head is committed, but not synced. It is pending: another server
    /// removes it if this process ends before the head is recorded in the catalog.
    pub(super) fn merge(&mut self, head: &Snapshot, work: &Work<'_>) -> Result<MergeOutcome> {
        let agent = self.policy.for_agent(work.agent);
        let full = Tree::of_snapshot(self.store, head)?;
        let ours = self.view_of(&full, &agent)?;
        let (base, (theirs, message)) =
            (tree_of(self.store, work.base)?.0, tree_of(self.store, work.theirs)?);
        let (base, theirs) = (self.without_git(base)?, self.without_git(theirs)?);
        let has_changes = base.id() != theirs.id();
        let Checked { tree, mut refused, renamed } = check_changes(&base, &theirs, &ours, &agent)?;
        let theirs = match tree {
            Some(mut allowed) => self.commit_temporary(&mut allowed)?,
            None => theirs,
        };
        let options = self.options(agent.merge_rules(), (&base, &ours, &theirs))?;
        let mut merged = merge_trees(&base, &ours, &theirs, &options)?;
        let strategies = merged.merged.iter().map(|file| (file.path.0.clone(), file.strategy)).collect();
        // `decided` has the decision of a conflict rule; `None` if no rule resolves the conflict.
        let needs_review = |conflict: &TreeConflict| conflict.decided.is_none();
        let conflicts: Vec<TreeConflict> = merged.conflicts.into_iter().filter(needs_review).collect();
        apply_removals_of_head(&mut merged.tree, &ours, &conflicts)?;
        let head = if merged.tree.tree_id()? == ours.id() {
            None
        } else if agent.has_full_access_everywhere() {
            // The view of this agent is the full head, and no change can be refused.
            Some(merged.tree.commit(description(head, work, message))?)
        } else {
            let merged = self.commit_temporary(&mut merged.tree)?;
            let lifted = self.lift(&full, &ours, merged, &agent, &mut refused)?;
            lifted.map(|mut lifted| lifted.commit(description(head, work, message))).transpose()?
        };
        self.heads.extend(head.iter().map(|head| head.id));
        Ok(MergeOutcome { head, base: work.base, strategies, conflicts, refused, renamed, has_changes })
    }

    /// Returns the options of a merge of three trees: the base, ours (a view of the head) and theirs. For rules that
    /// compare times, the changes of the agent count as later than everything in the head, whatever the times of its
    /// files.
    pub(super) fn options(&self, rules: PathRules, trees: (&Tree, &Tree, &Tree)) -> Result<TreeOptions> {
        let authors = match rules.depends_on_author() {
            true => self.authors.of_conflicts(trees, self.policy)?,
            false => HashMap::new(),
        };
        let (ours, theirs) = (Author::default(), Author { time: 1, ..Author::default() });
        Ok(TreeOptions { rules, ours, theirs, authors, ..TreeOptions::default() })
    }

    /// Applies a merged view to the full head. A merge follows renames, so it can move a change to a path that the
    /// agent may not change. Such changes are reverted and added to `refused`. Returns `None` if no change is left.
    fn lift(
        &mut self,
        full: &Tree,
        ours: &Tree,
        merged: Tree,
        agent: &AgentPolicy,
        refused: &mut Vec<Refused>,
    ) -> Result<Option<VirtualTree>> {
        let checked = check_changes(ours, &merged, ours, agent)?;
        refused.extend(checked.refused);
        let mut merged = match checked.tree {
            Some(mut allowed) => self.commit_temporary(&mut allowed)?,
            None => merged,
        };
        while merged.id() != ours.id() {
            let path = match lift(full, ours, &merged, agent, self.views) {
                Err(LiftError::Occupied { path }) => path,
                lifted => return Ok(Some(lifted?)),
            };
            // Reverts the change at the path that a hidden entry of the head occupies.
            let checked = revert_at_occupied_path(ours, &merged, &path.0, agent)?;
            let allowed = match checked.tree {
                Some(mut allowed) => self.commit_temporary(&mut allowed)?,
                None => merged.clone(),
            };
            if allowed.id() == merged.id() {
                // The next iteration would find the same path.
                return Err(LiftError::Occupied { path }.into());
            }
            merged = allowed;
            refused.extend(checked.refused);
        }
        Ok(None)
    }

    /// Returns the part of a head that an agent sees.
    fn view_of(&mut self, full: &Tree, agent: &AgentPolicy) -> Result<Tree> {
        if agent.reads_everything() {
            return Ok(full.clone());
        }
        let (snapshot, tree) = view(full, agent, self.views)?.commit(unsynced(), self.views)?;
        self.temporary.push(snapshot.id);
        Ok(tree)
    }

    /// Returns a tree without the `.git` that the project ignores, committed if it was removed.
    pub(super) fn without_git(&mut self, tree: Tree) -> Result<Tree> {
        match self.git.without_ignored(&tree)? {
            Some(mut without) => self.commit_temporary(&mut without),
            None => Ok(tree),
        }
    }

    /// Commits an intermediate tree: trees can be compared and lifted only when they are in the store.
    fn commit_temporary(&mut self, tree: &mut VirtualTree) -> Result<Tree> {
        let snapshot = tree.commit(unsynced())?;
        self.temporary.push(snapshot.id);
        Ok(Tree::of_snapshot(self.store, &snapshot)?)
    }

    /// Removes the snapshots of intermediate trees.
    pub(super) fn clean_up(&mut self) -> Result<()> {
        if self.temporary.is_empty() {
            return Ok(());
        }
        Ok(self.store.remove_snapshots(&std::mem::take(&mut self.temporary))?)
    }
}

/// Removes entries that the head has removed and the agent has changed or renamed. [`merge_trees`] keeps such entries,
/// but here they stay removed, as in the head, until their review is decided. Also removes parent directories that the
/// merge added for them.
fn apply_removals_of_head(merged: &mut VirtualTree, ours: &Tree, conflicts: &[TreeConflict]) -> Result<()> {
    let is_removal =
        |class: ConflictClass| matches!(class, ConflictClass::ModifyDelete | ConflictClass::RenameDelete);
    for conflict in conflicts.iter().filter(|conflict| conflict.ours.is_none() && is_removal(conflict.class))
    {
        let mut path = conflict.path.0.as_slice();
        if ours.entry(path)?.is_some() || !merged.exists(path)? {
            continue;
        }
        merged.remove(path)?;
        while let Some(slash) = path.iter().rposition(|byte| *byte == b'/') {
            path = &path[..slash];
            if ours.entry(path)?.is_some() || !merged.list(path)?.is_empty() {
                break;
            }
            merged.remove(path)?;
        }
    }
    Ok(())
}

/// Returns the description of a snapshot of an intermediate tree: pending, and not synced by its commit.
fn unsynced() -> NewSnapshot {
    NewSnapshot { durability: Durability::Buffered, pending: true, ..NewSnapshot::default() }
}

/// Returns the tree and the message of a snapshot.
pub(super) fn tree_of(store: &Store, id: SnapshotId) -> Result<(Tree, String)> {
    let snapshot = store.find_snapshot(&id)?.ok_or(ProjectError::SnapshotMissing { id })?;
    Ok((Tree::of_snapshot(store, &snapshot)?, snapshot.message))
}

/// Returns the description of the new head that a completion makes from `head`.
fn description(head: &Snapshot, work: &Work<'_>, message: String) -> NewSnapshot {
    let labels = [(PROJECT_LABEL, work.project), (COMPLETION_LABEL, work.completion)];
    NewSnapshot {
        parents: vec![head.id, work.theirs],
        author: work.agent.to_owned(),
        message,
        labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        durability: Durability::Buffered,
        pending: true,
        ..NewSnapshot::default()
    }
}

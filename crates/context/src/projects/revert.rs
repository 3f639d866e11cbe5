//! Reverting refused changes in the workspace of their agent.
//!
//! A refused change is not in the head, but still in the workspace: the base of the next completion has it, too. The
//! functions here find the refused changes of a workspace, and make the files without them: those for the workspace, and
//! those that its later changes are compared with. Changes at the same paths that the agent made since then are left
//! alone; compared with the new base, they are changes of the entry that the agent started from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use workspace_catalog::Completion;
use workspace_state::{
    Durability, NewSnapshot, Snapshot, SnapshotId, Store, Tree, WORKSPACE_LABEL, quote_path, unquote_path,
};

use super::completion_merge::tree_of;
use super::error::Result;
use super::store_access::{blocking, parse_snapshot};
use super::{CompletionReport, Projects, failpoint, references};
use crate::check::{EntryBefore, Reverted, is_same_entry, revert_unchanged};

/// Message of the snapshot with the files of a workspace.
const MESSAGE: &str = "refused changes reverted";
/// Number of completions that are read at a time.
const PAGE_SIZE: u32 = 20;
/// Maximum number of completions of a round that are read. The refused changes of a longer round stay until a rebase.
const COMPLETIONS_MAX: usize = 1_000;
/// Maximum number of paths that are reverted in a workspace, because it is frozen meanwhile. More stay until a rebase.
const PATHS_MAX: usize = 10_000;

/// Refused changes of a workspace since it was made, rebased or last reverted.
#[derive(Debug, Clone)]
pub struct RefusedChanges {
    /// Id of the last completion that was merged or refused.
    pub completion: String,
    /// Snapshot of the workspace at that completion. It has the refused changes.
    completed: SnapshotId,
    /// Snapshots that have the entries from before the changes, by path.
    before: Arc<BTreeMap<Vec<u8>, SnapshotId>>,
}

/// Files of a workspace in which refused changes are reverted.
#[derive(Debug)]
pub struct RevertInput {
    /// Id of the workspace.
    pub workspace: String,
    /// Base of the workspace. Becomes the parent of the snapshots, whose layers are then small.
    pub base: SnapshotId,
    /// Snapshot of the workspace.
    pub theirs: SnapshotId,
    /// Description of the snapshot with the result. The revert sets its parents.
    pub new: NewSnapshot,
}

/// Result of [`Projects::revert`]. The snapshots are synced to disk.
#[derive(Debug)]
pub struct RevertedFiles {
    /// Files for the workspace.
    pub snapshot: Snapshot,
    /// Files that later changes of the workspace are compared with: those of the last completion without refused
    /// changes. The snapshot is pending; [`Projects::keep_reverted_base`] or
    /// [`Projects::abandon_reverted_bases`] ends that.
    pub base: SnapshotId,
    /// Paths whose changes were reverted, quoted as by [`quote_path`].
    pub reverted: Vec<String>,
    /// Paths that the agent changed again. They were left alone.
    pub kept: Vec<String>,
}

impl Projects {
    /// Returns the refused changes of a round of a workspace (the time between two moves to another base). `None` if
    /// there are none, or too many for a revert. `made_from` is the base of the round.
    pub async fn refused_changes(
        &self,
        project: &str,
        round_id: &str,
        made_from: SnapshotId,
    ) -> Result<Option<RefusedChanges>> {
        let mut search = Search { base: made_from, completion: String::new(), before: BTreeMap::new() };
        let (mut cursor, mut count): (Option<(i64, String)>, usize) = (None, 0);
        loop {
            let after = cursor.as_ref().map(|(time, id)| (*time, id.as_str()));
            let page =
                self.catalog.completions().merged_or_refused(project, round_id, after, PAGE_SIZE).await?;
            let Some(last) = page.last() else { break };
            cursor = Some((last.created_at, last.completion.id.clone()));
            count += page.len();
            if count > COMPLETIONS_MAX {
                return Ok(None);
            }
            let store = self.store.clone();
            search = blocking(move || {
                for completion in &page {
                    search.add(&store, completion)?;
                }
                Ok(search)
            })
            .await?;
        }
        let store = self.store.clone();
        blocking(move || search.finish(&store)).await
    }

    /// Makes the files of a workspace without its refused changes, at exactly their paths. Returns `None`, and makes no
    /// snapshot, if the agent has changed all of these paths again.
    pub async fn revert(
        &self,
        refused: &RefusedChanges,
        input: RevertInput,
    ) -> Result<Option<RevertedFiles>> {
        let (store, refused) = (self.store.clone(), refused.clone());
        blocking(move || {
            let made = revert(&store, &refused, input)?;
            if made.is_some() {
                failpoint::hit("revert-committed")?;
                store.sync()?;
                failpoint::hit("revert-synced")?;
            }
            Ok(made)
        })
        .await
    }

    /// Protects the base of a workspace in which refused changes were reverted, as long as the project exists.
    pub async fn keep_reverted_base(&self, project: &str, base: SnapshotId) -> Result<()> {
        let (store, name) = (self.store.clone(), project.to_owned());
        blocking(move || references::protect_base(&store, &name, base)).await?;
        references::undo_if_project_deleted(&self.store, &self.catalog, project, vec![base]).await?;
        let store = self.store.clone();
        blocking(move || Ok(store.end_pending(&[base])?)).await
    }

    /// Abandons bases that were made for a workspace whose files were probably not replaced. They are removed when the
    /// workspace is.
    pub async fn abandon_reverted_bases(&self, bases: Vec<SnapshotId>) -> Result<()> {
        let store = self.store.clone();
        blocking(move || Ok(store.abandon_snapshots(&bases)?)).await
    }
}

/// Search for the refused changes of a round, completion by completion.
struct Search {
    /// Snapshot of the last completion, or the base of the round.
    base: SnapshotId,
    /// Id of the last completion.
    completion: String,
    /// Snapshots that have the entries from before the first refused change at each path.
    before: BTreeMap<Vec<u8>, SnapshotId>,
}

impl Search {
    fn add(&mut self, store: &Store, completion: &Completion) -> Result<()> {
        let (base, theirs) = (self.base, parse_snapshot(&completion.completion.theirs_snapshot)?);
        (self.base, self.completion) = (theirs, completion.completion.id.clone());
        let report = completion.result.clone().and_then(|report| serde_json::from_value(report).ok());
        let CompletionReport { refused, .. } = report.unwrap_or_default();
        let refused: BTreeSet<Vec<u8>> =
            refused.iter().filter_map(|change| Some(unquote_path(&change.path)?.into_owned())).collect();
        if self.before.is_empty() && refused.is_empty() {
            return Ok(());
        }
        let (old, new) = (tree_of(store, base)?.0, tree_of(store, theirs)?.0);
        let is_changed = |path: &[u8]| -> Result<bool> {
            Ok(!is_same_entry(old.entry(path)?.as_ref(), new.entry(path)?.as_ref()))
        };
        // If a later change at the same path was allowed, it is in the head: there is nothing to revert.
        let mut allowed = Vec::new();
        for path in self.before.keys().filter(|path| !refused.contains(*path)) {
            if is_changed(path)? {
                allowed.push(path.clone());
            }
        }
        for path in allowed {
            self.before.remove(&path);
        }
        for path in refused {
            // A merge can carry a change to another path, which is refused there. The workspace has no change at it.
            if is_changed(&path)? {
                self.before.entry(path).or_insert(base);
            }
        }
        Ok(())
    }

    fn finish(mut self, store: &Store) -> Result<Option<RefusedChanges>> {
        if self.before.is_empty() || self.before.len() > PATHS_MAX {
            return Ok(None);
        }
        let (completed, trees) = (tree_of(store, self.base)?.0, trees_of(store, &self.before)?);
        let mut undone = Vec::new();
        for (path, before) in &trees {
            if is_same_entry(before.tree.entry(path)?.as_ref(), completed.entry(path)?.as_ref()) {
                undone.push(path.clone());
            }
        }
        for path in undone {
            self.before.remove(&path);
        }
        let Self { base, completion, before } = self;
        let found = RefusedChanges { completion, completed: base, before: Arc::new(before) };
        Ok((!found.before.is_empty()).then_some(found))
    }
}

fn revert(store: &Store, refused: &RefusedChanges, input: RevertInput) -> Result<Option<RevertedFiles>> {
    let completed = tree_of(store, refused.completed)?.0;
    let workspace = tree_of(store, input.theirs)?.0;
    let before = trees_of(store, &refused.before)?;
    let Reverted { mut tree, reverted, kept } = revert_unchanged(&workspace, &completed, &before)?;
    if reverted.is_empty() {
        return Ok(None);
    }
    let base = NewSnapshot {
        // The label keeps the snapshot as long as the workspace exists: a server that is killed may have replaced the
        // files, and not yet recorded that this is their base.
        labels: [(WORKSPACE_LABEL.to_owned(), input.workspace)].into(),
        parents: vec![input.base],
        durability: Durability::Buffered,
        pending: true,
        ..NewSnapshot::default()
    };
    let base = revert_unchanged(&completed, &completed, &before)?.tree.commit(base)?.id;
    let new = NewSnapshot { parents: vec![input.base], message: MESSAGE.to_owned(), ..input.new };
    let snapshot = tree.commit(new)?;
    let quoted = |paths: Vec<Vec<u8>>| paths.iter().map(|path| quote_path(path).into_owned()).collect();
    Ok(Some(RevertedFiles { snapshot, base, reverted: quoted(reverted), kept: quoted(kept) }))
}

/// Returns the trees of snapshots by path. Each snapshot is opened once.
fn trees_of(
    store: &Store,
    snapshots: &BTreeMap<Vec<u8>, SnapshotId>,
) -> Result<BTreeMap<Vec<u8>, EntryBefore>> {
    let mut open = BTreeMap::<SnapshotId, Tree>::new();
    let mut trees = BTreeMap::new();
    for (path, id) in snapshots {
        let tree = match open.get(id) {
            Some(tree) => tree.clone(),
            None => open.entry(*id).or_insert(tree_of(store, *id)?.0).clone(),
        };
        trees.insert(path.clone(), EntryBefore { tree });
    }
    Ok(trees)
}

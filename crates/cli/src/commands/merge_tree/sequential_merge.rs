//! Merges several sides one after the other: each into the *current tree*, the result of the merges before it.

use std::collections::{HashMap, HashSet};

use workspace_merge::{
    Author, HistorySource, MergedFile, Side, TreeConflict, TreeOptions, TreeVersion, merge_trees,
    tree_choices,
};
use workspace_state::{Node, Store, Tree, VirtualTree, diff};

use super::ConflictFields;
use super::sides::commit_temporarily;
use crate::error::Result;

/// State of a merge of several sides.
pub(super) struct SequentialMerge<'a> {
    store: &'a Store,
    base: &'a Tree,
    /// Tree that the last side was merged into.
    current: Tree,
    /// Result of the last merge, which becomes the current tree of the next one; `None` before the first.
    pub(super) result: Option<VirtualTree>,
    pub(super) conflicts: Vec<ConflictFields>,
    /// Files of all merges that both sides changed and a strategy merged.
    pub(super) merged: Vec<MergedFile>,
    /// Merged files of the current tree, by path, with the histories that their strategies keep (only the CRDT strategy
    /// has any).
    histories: HashMap<Vec<u8>, (Node, Vec<u8>)>,
    /// Sides that are merged into the current tree, and whose authors are not recorded per file yet.
    unrecorded: Vec<MergedSide>,
}

/// A side that is merged into the current tree.
struct MergedSide {
    tree: Tree,
    author: Author,
    /// Paths at which a rule decided a conflict against this side.
    lost_paths: HashSet<Vec<u8>>,
}

impl<'a> SequentialMerge<'a> {
    pub(super) fn new(store: &'a Store, base: &'a Tree, ours: Tree, author: Author) -> Self {
        let (conflicts, merged, histories) = (Vec::new(), Vec::new(), HashMap::new());
        let unrecorded = vec![MergedSide { tree: ours.clone(), author, lost_paths: HashSet::new() }];
        Self { store, base, current: ours, result: None, conflicts, merged, histories, unrecorded }
    }

    /// Merges the next side into the current tree. `name` is the side in reports of conflicts; `with_choices` adds the
    /// possible resolutions to them.
    pub(super) fn merge(
        &mut self,
        theirs: &Tree,
        name: Option<&str>,
        options: &mut TreeOptions,
        with_choices: bool,
    ) -> Result<()> {
        if let Some(mut before) = self.result.take() {
            self.current = commit_temporarily(self.store, &mut before)?;
            self.keep_histories(options)?;
            self.keep_authors(options)?;
        }
        let merge = merge_trees(self.base, &self.current, theirs, options)?;
        let is_lost =
            |conflict: &&TreeConflict| conflict.decided.is_some_and(|decision| decision.winner == Side::Ours);
        let lost_paths =
            merge.conflicts.iter().filter(is_lost).map(|conflict| conflict.path.0.clone()).collect();
        self.unrecorded.push(MergedSide { tree: theirs.clone(), author: options.theirs, lost_paths });
        for conflict in merge.conflicts {
            let choices = if with_choices {
                tree_choices(&conflict, self.base, &self.current, theirs, options)?
            } else {
                Vec::new()
            };
            self.conflicts.push(ConflictFields { side: name.map(str::to_owned), conflict, choices });
        }
        self.merged.extend(merge.merged);
        self.result = Some(merge.tree);
        Ok(())
    }

    /// Records the histories of CRDT files, so that the result does not depend on the order of the sides.
    fn keep_histories(&mut self, options: &mut TreeOptions) -> Result<()> {
        for file in &mut self.merged {
            let path = &file.path.0;
            if let Some(history) = file.history.take()
                && let Some(entry) = self.current.entry(path)?
            {
                self.histories.insert(path.clone(), (entry.node, history));
            }
        }
        // Without histories the lookup would only cost time.
        if !self.histories.is_empty() {
            let histories = self.histories.clone();
            options.histories = HistorySource::new(move |version: &TreeVersion| {
                let (node, history) = histories.get(&version.path)?;
                (*node == version.entry.node).then(|| history.clone())
            });
        }
        Ok(())
    }

    /// Passes author and time of each file to rules that depend on them, instead of those of the side merged
    /// last.
    fn keep_authors(&mut self, options: &mut TreeOptions) -> Result<()> {
        if !options.rules.depends_on_author() {
            return Ok(());
        }
        for side in self.unrecorded.drain(..) {
            for path in diff(self.base, &side.tree)?.into_iter().map(|difference| difference.path) {
                if !side.lost_paths.contains(&path) {
                    let author = options.authors.entry(path).or_insert(side.author);
                    author.time = author.time.max(side.author.time);
                    author.priority = author.priority.max(side.author.priority);
                }
            }
        }
        Ok(())
    }
}

//! Check of an agent's changes against its access.
//!
//! The agent works on a view: the part of a tree that it may read. A change is allowed or refused by its kind and by
//! the access at its path; content does not matter. Two more rules apply to additions:
//!
//! - If the head (the present files of the project) has the name of an addition by now, and the agent may add entries
//!   but not change them, the addition is renamed or refused.
//! - A new empty directory is refused where entries may be hidden. No view shows an empty directory there, because it
//!   would look like one whose entries are all hidden.
//!
//! A type change deletes the old entry and adds the new one; a rename deletes one entry and adds another. A refused
//! change is reverted, and these changes with it:
//!
//! - a change that put another entry in the place of an entry that is restored,
//! - the deletion half of a rename whose addition was refused: otherwise the file would be lost. This includes files
//!   that were both renamed and edited.

mod changes;
mod free_name;
mod refusal;
mod reversal;

use std::collections::{BTreeMap, HashSet};

use workspace_merge::{RenameCandidate, RenameOptions, pair_similar_files};
use workspace_state::{Entry, Node, NodeKind, Tree, TreePath, VirtualTree};

use crate::paths::ancestors;
use crate::policy::{Access, AgentPolicy};
use changes::{Changes, PathChange, below};
use free_name::numbered;
use reversal::Reversal;

pub use changes::CheckError;
pub use refusal::{Change, RefusalReason, Refused, RenamedAddition};
pub(crate) use reversal::{EntryBefore, Reverted, is_same_entry, revert_unchanged};

type Result<T, E = CheckError> = std::result::Result<T, E>;

/// Result of [`check_changes`].
pub struct Checked {
    /// Tree of the agent without the refused changes; `None` if nothing was refused or renamed. The caller commits it
    /// before a merge.
    pub tree: Option<VirtualTree>,
    /// Refused changes, sorted by path.
    pub refused: Vec<Refused>,
    /// Additions that were kept under another name, sorted by path.
    pub renamed: Vec<RenamedAddition>,
}

/// Checks the changes between `base`, the view that an agent started from, and `theirs`, the tree with its changes.
/// `head_view` is the view of the present head. If it has the name of an addition by now, and the access there is
/// [`Access::ReadAdd`], the addition is kept under another name, or refused if no other name is allowed.
pub fn check_changes(base: &Tree, theirs: &Tree, head_view: &Tree, policy: &AgentPolicy) -> Result<Checked> {
    let changes = changes::between(base, theirs)?;
    let mut check = Check::new((base, theirs), head_view, policy, &changes);
    check.refuse_by_access();
    // Before `rename_taken_names`, so that a directory that is refused anyway gets no other name.
    check.refuse_empty_directories();
    let mut renamed = check.rename_taken_names()?;
    check.refuse_sources_of_edited_renames()?;
    // The two steps above may have refused the last entry of a new directory.
    check.refuse_empty_directories();
    renamed.retain(|addition| !check.refused.contains_key(addition.from.0.as_slice()));
    check.finish(renamed)
}

/// Reverts the change of the merged view at `path`, because a hidden entry of the head has that path
/// (`LiftError::Occupied`). The changes are those between the view of the head and the merged view. Also reverts the
/// changes below the path, the removals from a directory that was replaced there, and the removals of entries that were
/// renamed to the path or below it.
pub(crate) fn revert_at_occupied_path(
    head_view: &Tree,
    merged_view: &Tree,
    path: &[u8],
    policy: &AgentPolicy,
) -> Result<Checked> {
    let changes = changes::between(head_view, merged_view)?;
    let mut check = Check::new((head_view, merged_view), head_view, policy, &changes);
    if let Some((path, _)) = changes.get_key_value(path) {
        check.refuse_taken_name(path);
    }
    check.refuse_sources_of_edited_renames()?;
    check.refuse_empty_directories();
    check.finish(Vec::new())
}

struct Check<'a> {
    /// View that the agent started from.
    base: &'a Tree,
    /// Tree with the changes of the agent.
    theirs: &'a Tree,
    /// View of the present head.
    head_view: &'a Tree,
    policy: &'a AgentPolicy,
    /// Changes between `base` and `theirs`.
    changes: &'a Changes,
    /// Former paths of files that were renamed and edited, by new path. Found by similarity, because
    /// [`PathChange::renamed_from`] has only renames with equal content. Empty until
    /// [`Self::refuse_sources_of_edited_renames`] fills it, after the refusals on which the search depends.
    renames_with_edits: BTreeMap<&'a [u8], &'a [u8]>,
    /// Refused changes by path.
    refused: BTreeMap<&'a [u8], RefusalReason>,
}

impl<'a> Check<'a> {
    fn new(
        (base, theirs): (&'a Tree, &'a Tree),
        head_view: &'a Tree,
        policy: &'a AgentPolicy,
        changes: &'a Changes,
    ) -> Self {
        let (renames_with_edits, refused) = (BTreeMap::new(), BTreeMap::new());
        Self { base, theirs, head_view, policy, changes, renames_with_edits, refused }
    }

    /// Refuses the changes that the access at their paths does not allow.
    fn refuse_by_access(&mut self) {
        for (path, change) in self.changes {
            let access = self.policy.access(path);
            if !change.is_allowed(access) {
                self.refuse(path, RefusalReason::Access);
            }
        }
    }

    /// Refuses a change, and the changes that must be reverted with it.
    fn refuse(&mut self, path: &'a [u8], reason: RefusalReason) {
        let changes = self.changes;
        let mut queue = vec![(path, reason)];
        while let Some((path, reason)) = queue.pop() {
            let Some(change) = changes.get(path) else { continue };
            if self.refused.contains_key(path) {
                continue;
            }
            self.refused.insert(path, reason);
            let renamed_from = change.renamed_from.as_deref().or(self.renames_with_edits.get(path).copied());
            queue.extend(renamed_from.map(|from| (from, RefusalReason::NewNameRefused)));
            let Some(old) = &change.old else { continue };
            // The old entry is restored, so every parent must be a directory.
            let has_leaf = |path: &&[u8]| changes.get(*path).is_some_and(PathChange::has_new_leaf);
            queue.extend(
                ancestors_of_key(changes, path).filter(has_leaf).map(|path| (path, RefusalReason::InTheWay)),
            );
            if old.node.kind() != NodeKind::Directory {
                let added = below(changes, path).filter(|(_, change)| change.new.is_some());
                queue.extend(added.map(|(path, _)| (path.as_slice(), RefusalReason::InTheWay)));
            }
        }
    }

    /// Refuses the change at a path, and the changes below it. Entries that were renamed from below the path keep their
    /// new paths.
    fn refuse_taken_name(&mut self, path: &'a [u8]) {
        self.refuse(path, RefusalReason::NameTaken);
        let sources: HashSet<&[u8]> =
            self.changes.values().filter_map(|change| change.renamed_from.as_deref()).collect();
        for (path, _) in below(self.changes, path).filter(|(path, _)| !sources.contains(path.as_slice())) {
            self.refuse(path, RefusalReason::NameTaken);
        }
    }

    /// Refuses the deletions of files that were renamed and edited, if the addition under the new name was refused. A
    /// comparison of trees reports such a file as a deletion and an addition; the deletion alone would be allowed.
    fn refuse_sources_of_edited_renames(&mut self) -> Result<()> {
        self.renames_with_edits = self.find_renames_with_edits()?;
        let sources: Vec<&[u8]> = self
            .renames_with_edits
            .iter()
            .filter(|(path, _)| self.refused.contains_key(*path))
            .map(|(_, from)| *from)
            .collect();
        for from in sources {
            self.refuse(from, RefusalReason::NewNameRefused);
        }
        Ok(())
    }

    /// Returns the former paths of files that were probably renamed and edited, by new path; nothing if no file was
    /// refused, since the search serves only to find the sources of refused files.
    fn find_renames_with_edits(&self) -> Result<BTreeMap<&'a [u8], &'a [u8]>> {
        let changes = self.changes;
        let is_refused = |path: &[u8]| self.refused.contains_key(path);
        let sources: HashSet<&[u8]> =
            changes.values().filter_map(|change| change.renamed_from.as_deref()).collect();
        let removed: Vec<RenameCandidate<'_>> = changes
            .iter()
            .filter(|(path, change)| {
                change.new.is_none() && !is_refused(path) && !sources.contains(path.as_slice())
            })
            .filter_map(|(path, change)| candidate(path, change.old.as_ref(), None))
            .collect();
        let added = |(path, change): (&'a Vec<u8>, &'a PathChange)| {
            let new = change.new.as_ref().filter(|_| change.renamed_from.is_none());
            candidate(path, new, change.old.as_ref())
        };
        let refused = changes.iter().filter(|(path, _)| is_refused(path)).filter_map(added);
        let mut all: Vec<RenameCandidate<'_>> = refused.collect();
        if removed.is_empty() || all.is_empty() {
            return Ok(BTreeMap::new());
        }
        // Allowed additions are candidates, too: if a removed file is more similar to an allowed addition, it was
        // renamed to that path, and the refused addition is only a copy. Refused additions come first, because the
        // search compares a limited number of files.
        let allowed = changes.iter().filter(|(path, change)| change.old.is_none() && !is_refused(path));
        all.extend(allowed.filter_map(added));
        let found = pair_similar_files(RenameOptions::default(), (self.base, &removed), (self.theirs, &all))?;
        let key = |path: &[u8]| changes.get_key_value(path).map(|(key, _)| key.as_slice());
        Ok(found.iter().filter_map(|(to, from)| Some((key(to)?, key(from)?))).collect())
    }

    /// Finds other names for additions whose name the head has by now, if the access is [`Access::ReadAdd`]. Refuses an
    /// addition without an allowed free name.
    fn rename_taken_names(&mut self) -> Result<Vec<RenamedAddition>> {
        let mut names = BTreeMap::new();
        let mut taken = HashSet::new();
        for (path, change) in self.changes {
            let (None, Some(new)) = (&change.old, &change.new) else { continue };
            let is_in_renamed = ancestors(path).any(|parent| names.contains_key(parent));
            let is_add_only = self.policy.access(path) == Access::ReadAdd;
            if is_in_renamed || !is_add_only || self.refused.contains_key(path.as_slice()) {
                continue;
            }
            let Some(existing) = self.head_view.entry(path)? else { continue };
            let kinds = [&existing.node, &new.node].map(Node::kind);
            if kinds == [NodeKind::Directory; 2] || existing.node == new.node {
                continue;
            }
            match self.free_name(path, &taken)? {
                Some(to) => {
                    taken.insert(to.clone());
                    names.insert(path.as_slice(), to);
                }
                None => self.refuse_taken_name(path),
            }
        }
        let renamed = |(from, to): (&[u8], Vec<u8>)| RenamedAddition {
            from: TreePath(from.to_vec()),
            to: TreePath(to),
        };
        Ok(names.into_iter().map(renamed).collect())
    }

    /// Returns a free path for an addition at `path`, in the same directory; `None` if the agent may not add the entry,
    /// or an entry below it, at the free path. `taken` are the paths that other additions got.
    fn free_name(&self, path: &[u8], taken: &HashSet<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let mut number = 2;
        let to = loop {
            let to = numbered(path, number);
            let is_taken = taken.contains(&to)
                || self.theirs.entry(&to)?.is_some()
                || self.base.entry(&to)?.is_some()
                || self.head_view.entry(&to)?.is_some();
            if !is_taken {
                break to;
            }
            number += 1;
        };
        let kept = below(self.changes, path).filter(|(path, _)| !self.refused.contains_key(path.as_slice()));
        let moved = kept.map(|(below, _)| [&to[..], &below[path.len()..]].concat());
        let mut all = [to.clone()].into_iter().chain(moved);
        Ok(all.all(|path| self.policy.access(&path).can_add()).then_some(to))
    }

    /// Refuses new directories that are empty without the refused changes, where entries may be hidden: views do not
    /// show them.
    fn refuse_empty_directories(&mut self) {
        let kept = self.parents_of_kept();
        for (path, change) in self.changes {
            let is_new = change.old.is_none() && change.new_kind() == Some(NodeKind::Directory);
            if is_new && !kept.contains(path.as_slice()) && !self.is_shown_empty(path) {
                self.refused.entry(path).or_insert(RefusalReason::EmptyDirectory);
            }
        }
    }

    /// Returns true if views show a directory at this path even if it is empty: nothing below it can be hidden.
    fn is_shown_empty(&self, path: &[u8]) -> bool {
        self.policy.read_rules().shows_whole(path)
    }

    /// Returns all parent directories of new and changed entries that are not refused and that views show.
    fn parents_of_kept(&self) -> HashSet<&'a [u8]> {
        let mut parents = HashSet::new();
        for (path, change) in self.changes {
            let is_shown = match change.new_kind() {
                None => false,
                Some(NodeKind::Directory) => self.is_shown_empty(path),
                Some(_) => true,
            };
            if is_shown && !self.refused.contains_key(path.as_slice()) {
                for parent in ancestors_of_key(self.changes, path) {
                    if !parents.insert(parent) {
                        break;
                    }
                }
            }
        }
        parents
    }

    /// Reverts the refused changes, and reports them.
    fn finish(self, renamed: Vec<RenamedAddition>) -> Result<Checked> {
        if self.refused.is_empty() && renamed.is_empty() {
            return Ok(Checked { tree: None, refused: Vec::new(), renamed });
        }
        let kept = self.parents_of_kept();
        let mut reversal = Reversal { base: self.base, tree: VirtualTree::over(self.theirs)? };
        // A directory that must not be added is still needed for the entries below it that may be added. It becomes a
        // passage, and is not reported as refused.
        let is_needed = |path: &[u8], change: &PathChange| change.old.is_none() && kept.contains(path);
        let mut refused = Vec::new();
        // Children are removed before their parents, and all additions are removed before an old entry is restored.
        for path in self.refused.keys().rev() {
            let change = &self.changes[*path];
            match &change.new {
                Some(_) if is_needed(path, change) => reversal.make_passage(path)?,
                Some(_) if !change.is_directory_on_both_sides() => reversal.remove(path)?,
                _ => {}
            }
        }
        for (path, reason) in &self.refused {
            let change = &self.changes[*path];
            if is_needed(path, change) {
                continue;
            }
            if let Some(old) = &change.old {
                reversal.restore(path, old)?;
            }
            refused.push(Refused {
                path: TreePath(path.to_vec()),
                change: change.kind(),
                access: self.policy.access(path),
                reason: *reason,
            });
        }
        for RenamedAddition { from, to } in &renamed {
            reversal.tree.rename(&from.0, &to.0)?;
        }
        Ok(Checked { tree: Some(reversal.tree), refused, renamed })
    }
}

/// Returns a file as a possible source or target of a rename; `None` if the entry is no file. `replaced` is the entry
/// that was at the path before: if the file is still similar to it, the file was edited and not renamed.
fn candidate<'c>(
    path: &'c [u8],
    entry: Option<&'c Entry>,
    replaced: Option<&'c Entry>,
) -> Option<RenameCandidate<'c>> {
    let file = |entry: &'c Entry| match &entry.node {
        Node::File(file) => Some(file),
        Node::Directory(_) | Node::Symlink(_) => None,
    };
    Some(RenameCandidate { path, file: entry.and_then(file)?, replaced: replaced.and_then(file) })
}

/// Iterates over the parent directories of a path, innermost first and without the root. They are slices of the key of
/// `changes`, so that they live as long as the changes; there are none if `changes` does not have the path.
fn ancestors_of_key<'c>(changes: &'c Changes, path: &[u8]) -> impl Iterator<Item = &'c [u8]> + use<'c> {
    let key: &'c [u8] = changes.get_key_value(path).map_or(b"", |(key, _)| key.as_slice());
    ancestors(key)
}

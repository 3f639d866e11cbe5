//! Check of an agent's changes against its access.
//!
//! A change is allowed or refused by its path alone. A type change deletes the old entry and adds the new one; a
//! rename deletes one entry and adds another. A refused change is taken back, and with it every change that
//! cannot stand without it:
//!
//! - what is now in the place of an entry that comes back,
//! - the deletion of an entry whose new name was refused, because it would be lost.

mod changes;
mod free_name;
mod refusal;

use std::collections::{BTreeMap, HashSet};

use workspace_state::{Attributes, Entry, Node, NodeKind, Tree, TreeError, TreePath, VirtualTree};

use crate::paths::ancestors;
use crate::policy::{Access, AgentPolicy};
use crate::view::PASSAGE_MODE;
use changes::{Changes, PathChange, below};
use free_name::numbered;

pub use changes::CheckError;
pub use refusal::{Change, RefusalReason, Refused, RenamedAddition};

type Result<T, E = CheckError> = std::result::Result<T, E>;

/// Result of [`check_changes`].
pub struct Checked {
    /// Their tree without the refused changes; `None` if it is unchanged. Commit it before it is merged.
    pub tree: Option<VirtualTree>,
    /// Refused changes, sorted by path.
    pub refused: Vec<Refused>,
    /// Additions that were kept under another name, sorted by path.
    pub renamed: Vec<RenamedAddition>,
}

/// Checks the changes between `base`, the view that an agent started from, and `theirs`, its result.
/// `head_view` is the view of the present head: an addition with access `RA` to a name that it has by now is kept
/// under another name.
pub fn check_changes(base: &Tree, theirs: &Tree, head_view: &Tree, policy: &AgentPolicy) -> Result<Checked> {
    let changes = changes::between(base, theirs)?;
    let mut check = Check { base, theirs, head_view, policy, changes: &changes, refused: BTreeMap::new() };
    check.refuse_by_access();
    check.refuse_empty_directories();
    let mut renamed = check.rename_taken_names()?;
    // A name without a replacement may have been the last entry of a new directory.
    check.refuse_empty_directories();
    renamed.retain(|addition| !check.refused.contains_key(addition.from.0.as_slice()));
    check.finish(renamed)
}

/// Takes back the change at a path whose name an entry has that the agent cannot see, between the view of the head and
/// the merged view. With it go everything below the path, what was removed from a directory that was replaced there, and
/// the removal of entries that were renamed to it.
pub(crate) fn take_back_taken_name(
    head_view: &Tree,
    merged_view: &Tree,
    path: &[u8],
    policy: &AgentPolicy,
) -> Result<Checked> {
    let changes = changes::between(head_view, merged_view)?;
    let mut check = Check {
        base: head_view,
        theirs: merged_view,
        head_view,
        policy,
        changes: &changes,
        refused: BTreeMap::new(),
    };
    if let Some((path, _)) = changes.get_key_value(path) {
        check.refuse_taken_name(path);
    }
    check.refuse_empty_directories();
    check.finish(Vec::new())
}

struct Check<'a> {
    base: &'a Tree,
    theirs: &'a Tree,
    head_view: &'a Tree,
    policy: &'a AgentPolicy,
    changes: &'a Changes,
    refused: BTreeMap<&'a [u8], RefusalReason>,
}

impl<'a> Check<'a> {
    fn refuse_by_access(&mut self) {
        for (path, change) in self.changes {
            let access = self.policy.access(path);
            if !change.is_allowed(access) {
                self.refuse(path, RefusalReason::Access);
            }
        }
    }

    /// Refuses a change, and the changes that cannot stand without it.
    fn refuse(&mut self, path: &'a [u8], reason: RefusalReason) {
        let changes = self.changes;
        let mut queue = vec![(path, reason)];
        while let Some((path, reason)) = queue.pop() {
            let Some(change) = changes.get(path) else { continue };
            if self.refused.contains_key(path) {
                continue;
            }
            self.refused.insert(path, reason);
            if let Some(from) = &change.renamed_from {
                queue.push((from, RefusalReason::NewNameRefused));
            }
            let Some(old) = &change.old else { continue };
            // The old entry comes back, so every parent must be a directory.
            let replaced = |path: &&[u8]| changes.get(*path).is_some_and(PathChange::leaves_non_directory);
            queue.extend(
                ancestors_of_key(changes, path).filter(replaced).map(|path| (path, RefusalReason::InTheWay)),
            );
            if old.node.kind() != NodeKind::Directory {
                let added = below(changes, path).filter(|(_, change)| change.new.is_some());
                queue.extend(added.map(|(path, _)| (path.as_slice(), RefusalReason::InTheWay)));
            }
        }
    }

    /// Refuses the change at a path, and those below it. What was renamed from below to another place stays there.
    fn refuse_taken_name(&mut self, path: &'a [u8]) {
        self.refuse(path, RefusalReason::NameTaken);
        let sources: HashSet<&[u8]> =
            self.changes.values().filter_map(|change| change.renamed_from.as_deref()).collect();
        for (path, _) in below(self.changes, path).filter(|(path, _)| !sources.contains(path.as_slice())) {
            self.refuse(path, RefusalReason::NameTaken);
        }
    }

    /// Finds other names for additions whose name the head has by now, if the access is to add only.
    fn rename_taken_names(&mut self) -> Result<Vec<RenamedAddition>> {
        let mut names = BTreeMap::new();
        let mut taken = HashSet::new();
        for (path, change) in self.changes {
            let (None, Some(new)) = (&change.old, &change.new) else { continue };
            let is_moved = ancestors(path).any(|parent| names.contains_key(parent));
            let is_add_only = self.policy.access(path) == Access::ReadAdd;
            if is_moved || !is_add_only || self.refused.contains_key(path.as_slice()) {
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

    /// Returns a free name beside `path`; `None` if something at or below it may not be added there.
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

    /// Refuses new directories that views do not show: empty ones, where entries may be hidden.
    fn refuse_empty_directories(&mut self) {
        let kept = self.parents_of_kept();
        for (path, change) in self.changes {
            let is_new = change.old.is_none() && change.new_kind() == Some(NodeKind::Directory);
            if is_new && !kept.contains(path.as_slice()) && !self.is_shown_empty(path) {
                self.refused.entry(path).or_insert(RefusalReason::EmptyDirectory);
            }
        }
    }

    /// Returns true if a view shows a directory that is empty.
    fn is_shown_empty(&self, path: &[u8]) -> bool {
        let state = self.policy.read_rules().at(path);
        state.value() && state.uniform() == Some(true)
    }

    /// Returns the parents of the additions that are kept and shown.
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

    /// Takes the refused changes back and reports them.
    fn finish(self, renamed: Vec<RenamedAddition>) -> Result<Checked> {
        if self.refused.is_empty() && renamed.is_empty() {
            return Ok(Checked { tree: None, refused: Vec::new(), renamed });
        }
        let kept = self.parents_of_kept();
        let mut reversal = Reversal { base: self.base, tree: VirtualTree::over(self.theirs)? };
        // A directory that must not be added is still needed for the entries below it that may.
        let is_needed = |path: &[u8], change: &PathChange| change.old.is_none() && kept.contains(path);
        let mut refused = Vec::new();
        // Entries below come first, and what was added is gone before anything comes back.
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
                reversal.put_back(path, old)?;
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

/// Their tree, in which changes are taken back.
struct Reversal<'a> {
    base: &'a Tree,
    tree: VirtualTree,
}

impl Reversal<'_> {
    fn remove(&mut self, path: &[u8]) -> Result<()> {
        match self.tree.remove(path) {
            Err(TreeError::NotFound { .. }) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Removes the attributes of a directory.
    fn make_passage(&mut self, path: &[u8]) -> Result<()> {
        let attributes = Attributes { mode: PASSAGE_MODE, ..Attributes::default() };
        Ok(self.tree.put_directory(path, attributes)?)
    }

    /// Puts an entry of the base back, and its missing parents.
    fn put_back(&mut self, path: &[u8], old: &Entry) -> Result<()> {
        let mut missing = Vec::new();
        for parent in ancestors(path) {
            if self.tree.exists(parent)? {
                break;
            }
            missing.push(parent);
        }
        for parent in missing.into_iter().rev() {
            if let Some(entry) = self.base.entry(parent)? {
                self.put_entry(parent, &entry)?;
            }
        }
        self.put_entry(path, old)
    }

    fn put_entry(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        match &entry.node {
            Node::Directory(node) => {
                let (mode, xattrs) = (node.mode, node.xattrs.clone());
                Ok(self.tree.put_directory(path, Attributes { mode, xattrs, ..Attributes::default() })?)
            }
            // Its label may now belong to other files.
            Node::File(_) | Node::Symlink(_) => {
                Ok(self.tree.graft(path, &Entry { link: None, ..entry.clone() }, path)?)
            }
        }
    }
}

/// Iterates over the parent directories of a key, innermost first, as slices of it.
fn ancestors_of_key<'c>(changes: &'c Changes, path: &[u8]) -> impl Iterator<Item = &'c [u8]> + use<'c> {
    let key: &'c [u8] = changes.get_key_value(path).map_or(b"", |(key, _)| key.as_slice());
    ancestors(key)
}

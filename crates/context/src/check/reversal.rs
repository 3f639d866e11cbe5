//! Reversal of changes in a tree: entries that were added are removed, and former entries are restored.

use std::collections::BTreeMap;

use workspace_state::{Attributes, Entry, Node, NodeKind, Tree, TreeError, VirtualTree};

use super::Result;
use crate::paths::ancestors;
use crate::view::PASSAGE_MODE;

/// Tree of the agent, in which refused changes are reverted.
pub(super) struct Reversal<'a> {
    /// Tree that the agent started from. It has the entries to restore.
    pub(super) base: &'a Tree,
    pub(super) tree: VirtualTree,
}

impl Reversal<'_> {
    pub(super) fn remove(&mut self, path: &[u8]) -> Result<()> {
        match self.tree.remove(path) {
            Err(TreeError::NotFound { .. }) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Makes a new directory a passage: a directory that is kept only because of the entries in it. It loses the
    /// attributes that the agent gave it.
    pub(super) fn make_passage(&mut self, path: &[u8]) -> Result<()> {
        let attributes = Attributes { mode: PASSAGE_MODE, ..Attributes::default() };
        Ok(self.tree.put_directory(path, attributes)?)
    }

    /// Restores an entry of the base, and its missing parents.
    pub(super) fn restore(&mut self, path: &[u8], old: &Entry) -> Result<()> {
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
            // Without the link label, which is equal for all hard links to a file: in the tree of the agent, other
            // files may have the same label.
            Node::File(_) | Node::Symlink(_) => {
                let path_in_base = path;
                Ok(self.tree.graft(path, &Entry { link_label: None, ..entry.clone() }, path_in_base)?)
            }
        }
    }
}

/// State of an entry before a change that was refused.
#[derive(Clone)]
pub(crate) struct EntryBefore {
    /// Tree that has the entry and its parents, or has no entry at the path.
    pub(crate) tree: Tree,
}

/// Result of [`revert_unchanged`].
pub(crate) struct Reverted {
    /// Tree without the reverted changes.
    pub(crate) tree: VirtualTree,
    /// Paths whose changes were reverted.
    pub(crate) reverted: Vec<Vec<u8>>,
    /// Paths that keep their entry, because it was changed again.
    pub(crate) kept: Vec<Vec<u8>>,
}

/// Reverts changes in a tree at exactly the given paths, each to the entry that it had before. A path whose entry, or
/// the kind of one of its parents, differs between `tree` and `completed` was changed again, and keeps its entry; so does
/// a directory to remove in which other entries are left. Paths that have their former entry already are in no list.
pub(crate) fn revert_unchanged(
    tree: &Tree,
    completed: &Tree,
    before: &BTreeMap<Vec<u8>, EntryBefore>,
) -> Result<Reverted> {
    let mut edited = VirtualTree::over(tree)?;
    let (mut planned, mut kept) = (BTreeMap::new(), Vec::new());
    for (path, before) in before {
        let (present, old) = (tree.entry(path)?, before.tree.entry(path)?);
        if is_same_entry(present.as_ref(), old.as_ref()) {
            continue;
        }
        let is_unchanged = is_same_entry(present.as_ref(), completed.entry(path)?.as_ref());
        if is_unchanged && has_same_parents(path, tree, completed)? {
            planned.insert(path.as_slice(), (present, old, &before.tree));
        } else {
            kept.push(path.clone());
        }
    }
    // Children are removed before their parents, and all additions before a former entry is restored.
    let mut blocked = Vec::new();
    for (path, (present, old, _)) in planned.iter().rev() {
        let Some(present) = present else { continue };
        let is_directory = present.node.kind() == NodeKind::Directory;
        let stays_directory = old.as_ref().is_some_and(|old| old.node.kind() == NodeKind::Directory);
        if is_directory && stays_directory {
            continue;
        }
        if is_directory && !edited.list(path)?.is_empty() {
            blocked.push(*path);
        } else {
            edited.remove(path)?;
        }
    }
    for path in blocked {
        planned.remove(path);
        kept.push(path.to_vec());
    }
    let mut reverted = Vec::new();
    for (path, (_, old, base)) in planned {
        if let Some(old) = old {
            if !can_have_entry(path, &edited)? {
                kept.push(path.to_vec());
                continue;
            }
            let mut reversal = Reversal { base, tree: edited };
            reversal.restore(path, &old)?;
            edited = reversal.tree;
        }
        reverted.push(path.to_vec());
    }
    kept.sort_unstable();
    Ok(Reverted { tree: edited, reverted, kept })
}

/// Returns true if two entries at one path are equal apart from times and link labels. Of directories, the attributes
/// are compared, and not the entries in them.
pub(crate) fn is_same_entry(one: Option<&Entry>, other: Option<&Entry>) -> bool {
    match (one.map(|one| &one.node), other.map(|other| &other.node)) {
        (None, None) => true,
        (Some(Node::Directory(one)), Some(Node::Directory(other))) => {
            (one.mode, &one.xattrs) == (other.mode, &other.xattrs)
        }
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Returns true if all parents of a path have the same kind in two trees, or are missing in both.
fn has_same_parents(path: &[u8], one: &Tree, other: &Tree) -> Result<bool> {
    for parent in ancestors(path) {
        let kind = |tree: &Tree| Ok::<_, TreeError>(tree.entry(parent)?.map(|entry| entry.node.kind()));
        if kind(one)? != kind(other)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if no parent of a path is a file or a symlink.
fn can_have_entry(path: &[u8], tree: &VirtualTree) -> Result<bool> {
    let parents: Vec<&[u8]> = ancestors(path).collect();
    for parent in parents.into_iter().rev() {
        if !tree.exists(parent)? {
            break;
        }
        if tree.stat(parent)?.kind != NodeKind::Directory {
            return Ok(false);
        }
    }
    Ok(true)
}

//! Changes of an agent by path: the differences between the tree that it started from and its result.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use workspace_state::{
    Difference, DifferenceKind, Entry, Extent, Node, NodeKind, StoreError, Tree, TreeError, diff,
};

use super::refusal::Change;
use crate::paths::walk_below;
use crate::policy::Access;

/// Error of [`check_changes`](crate::check_changes). Refused changes are not errors.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Refused changes could not be undone in the tree.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Change at a path: the entries before and after, `None` where there is none.
#[derive(Debug, Default)]
pub(super) struct PathChange {
    pub(super) old: Option<Entry>,
    pub(super) new: Option<Entry>,
    /// Former path of a file or symlink that was renamed without an edit; `None` for other entries.
    pub(super) renamed_from: Option<Vec<u8>>,
}

/// Changes by path, including those of every entry below a renamed directory.
pub(super) type Changes = BTreeMap<Vec<u8>, PathChange>;

impl PathChange {
    pub(super) fn kind(&self) -> Change {
        match (&self.old, &self.new) {
            (None, _) => Change::Add,
            (Some(_), None) => Change::Delete,
            (Some(old), Some(new)) if old.node.kind() == new.node.kind() => Change::Modify,
            (Some(_), Some(_)) => Change::Replace,
        }
    }

    pub(super) fn is_allowed(&self, access: Access) -> bool {
        match self.kind() {
            Change::Add => access.can_add(),
            Change::Modify => access.can_change(),
            Change::Delete if self.is_passage(access) => true,
            Change::Delete | Change::Replace => access.can_delete(),
        }
    }

    /// Returns true if the old entry is a directory that was shown only because of the entries in it (a passage). When
    /// these entries are gone, the view does not have the directory: the agent need not have deleted it.
    fn is_passage(&self, access: Access) -> bool {
        let is_directory = self.old.as_ref().is_some_and(|old| old.node.kind() == NodeKind::Directory);
        access == Access::None && is_directory
    }

    /// Records the new entry of a rename. The rename of a directory is recorded at the entries below it.
    fn set_renamed(&mut self, new: Entry, from: Vec<u8>) {
        self.renamed_from = (new.node.kind() != NodeKind::Directory).then_some(from);
        self.new = Some(new);
    }

    pub(super) fn new_kind(&self) -> Option<NodeKind> {
        self.new.as_ref().map(|new| new.node.kind())
    }

    /// Returns true if the new entry is a leaf: a file or symlink.
    pub(super) fn has_new_leaf(&self) -> bool {
        self.new_kind().is_some_and(|kind| kind != NodeKind::Directory)
    }

    pub(super) fn is_directory_on_both_sides(&self) -> bool {
        let is_directory =
            |entry: &Option<Entry>| matches!(entry, Some(Entry { node: Node::Directory(_), .. }));
        is_directory(&self.old) && is_directory(&self.new)
    }
}

/// Returns the changes between two trees, including those of every entry below a renamed directory.
pub(super) fn between(base: &Tree, theirs: &Tree) -> Result<Changes, CheckError> {
    let mut changes = Changes::new();
    for Difference { path, kind, old, new } in diff(base, theirs)? {
        match (kind, old, new) {
            (DifferenceKind::Renamed { from }, Some(old), Some(new)) => {
                if let (Node::Directory(before), Node::Directory(after)) = (&old.node, &new.node) {
                    walk_below(base, &from, before, &mut |path, entry| {
                        changes.entry(path).or_default().old = Some(entry);
                        Ok::<_, CheckError>(())
                    })?;
                    walk_below(theirs, &path, after, &mut |below, entry| {
                        let source = [&from[..], &below[path.len()..]].concat();
                        changes.entry(below).or_default().set_renamed(entry, source);
                        Ok::<_, CheckError>(())
                    })?;
                }
                changes.entry(from.clone()).or_default().old = Some(old);
                changes.entry(path).or_default().set_renamed(new, from);
            }
            (_, old, new) => {
                let change = changes.entry(path).or_default();
                change.old = old.or(change.old.take());
                change.new = new.or(change.new.take());
            }
        }
    }
    for (path, from) in renamed_over(&changes) {
        if let Some(change) = changes.get_mut(&path) {
            change.renamed_from = Some(from);
        }
    }
    Ok(changes)
}

/// Content of a file or symlink.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Content<'e> {
    File(&'e [Extent]),
    Symlink(&'e [u8]),
}

impl<'e> Content<'e> {
    /// Returns the content of an entry; `None` for a directory, and for an empty file, since all empty files are
    /// equal.
    fn of(entry: Option<&'e Entry>) -> Option<Self> {
        match &entry?.node {
            Node::File(file) => (file.size() > 0).then_some(Self::File(&file.extents)),
            Node::Symlink(link) => Some(Self::Symlink(&link.target)),
            Node::Directory(_) => None,
        }
    }
}

/// Returns the paths of files and symlinks that were replaced by the rename of another one, each with the old path of
/// that one. A comparison of trees reports such a rename as a modification and a deletion.
fn renamed_over(changes: &Changes) -> Vec<(Vec<u8>, Vec<u8>)> {
    let removed = changes.iter().filter(|(_, change)| change.new.is_none());
    let removed = removed.filter_map(|(path, change)| Some((Content::of(change.old.as_ref())?, path)));
    let removed: HashMap<Content<'_>, &Vec<u8>> = removed.collect();
    let replaced = changes.iter().filter(|(_, change)| change.old.is_some() && change.renamed_from.is_none());
    let moved = replaced.filter_map(|(path, change)| {
        let content = Content::of(change.new.as_ref())?;
        let is_new = Content::of(change.old.as_ref()).as_ref() != Some(&content);
        let from = removed.get(&content).filter(|_| is_new)?;
        Some((path.clone(), (*from).clone()))
    });
    moved.collect()
}

/// Iterates over the changes below a path.
pub(super) fn below<'c>(
    changes: &'c Changes,
    path: &[u8],
) -> impl Iterator<Item = (&'c Vec<u8>, &'c PathChange)> + use<'c> {
    // `0` is the byte after `/`, so the range has all paths that start with `path/`.
    let (from, to) = ([path, b"/"].concat(), [path, b"0"].concat());
    let bounds = if path.is_empty() {
        (Bound::Excluded(Vec::new()), Bound::Unbounded)
    } else {
        (Bound::Included(from), Bound::Excluded(to))
    };
    changes.range::<Vec<u8>, _>(bounds)
}

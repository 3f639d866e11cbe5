//! Changes of one side relative to the base, by path. Paths have no leading `/`; the root is the empty path.

use std::collections::{BTreeMap, HashSet};

use workspace_state::{Difference, DifferenceKind, Entry, Node, StoreError, Subtree, Tree};

use super::paths::{ancestors, contains_at_or_below, join, parent};

type Result<T> = std::result::Result<T, StoreError>;

/// Old entry (in the base) and new entry (in the tree of the side) of a path. `old` is `None` for an addition, and
/// `new` is `None` for a removal.
#[derive(Debug, Default)]
pub(super) struct EntryChange {
    pub(super) old: Option<Entry>,
    pub(super) new: Option<Entry>,
}

impl EntryChange {
    /// Returns true if the new entry is an empty directory.
    pub(super) fn is_empty_directory(&self) -> bool {
        matches!(self.new.as_ref().map(|entry| &entry.node), Some(Node::Directory(node)) if node.entries == 0)
    }

    /// Returns true if the entry exists before and after the change.
    pub(super) fn is_edit(&self) -> bool {
        self.old.is_some() && self.new.is_some()
    }
}

/// Move of a directory with its content unchanged. The old path is the key in [`SideChanges::directory_moves`].
#[derive(Debug)]
pub(super) struct DirectoryMove {
    /// New path.
    pub(super) to: Vec<u8>,
    /// Directory in the base.
    pub(super) old: Entry,
    /// Directory in the tree of the side.
    pub(super) new: Entry,
}

/// All changes of one side, to leaves (files and symlinks) and to directories. A path that is a leaf in one version
/// and a directory in the other is in both maps.
pub(super) struct SideChanges<'t> {
    pub(super) base: &'t Tree,
    /// Tree of the side.
    pub(super) tree: &'t Tree,
    /// Changed files and symlinks.
    pub(super) leaves: BTreeMap<Vec<u8>, EntryChange>,
    /// Added and removed directories, and those with changed attributes.
    pub(super) directories: BTreeMap<Vec<u8>, EntryChange>,
    /// Moves of whole directories, by old path. The entries in these directories are in none of the other maps.
    pub(super) directory_moves: BTreeMap<Vec<u8>, DirectoryMove>,
    /// New paths of moved directories. It is a map without values, because [`contains_at_or_below`] searches maps.
    pub(super) targets: BTreeMap<Vec<u8>, ()>,
    /// Renamed leaves: old path to new path.
    pub(super) renames: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Directories that only this side changed. They have not been read, and their entries are in none of the
    /// maps.
    pub(super) one_sided: Vec<Subtree>,
}

impl<'t> SideChanges<'t> {
    pub(super) fn new(
        base: &'t Tree,
        tree: &'t Tree,
        differences: Vec<Difference>,
        one_sided: Vec<Subtree>,
    ) -> Self {
        let mut changes = Self {
            base,
            tree,
            leaves: BTreeMap::new(),
            directories: BTreeMap::new(),
            directory_moves: BTreeMap::new(),
            targets: BTreeMap::new(),
            renames: BTreeMap::new(),
            one_sided,
        };
        for difference in differences {
            match (difference.kind, difference.old, difference.new) {
                (DifferenceKind::Renamed { from }, Some(old), Some(new)) => {
                    changes.add_rename(from, difference.path, old, new);
                }
                (_, old, new) => {
                    changes.set_old(&difference.path, old);
                    changes.set_new(&difference.path, new);
                }
            }
        }
        changes
    }

    /// Returns the change of a path in the map of directories or of leaves. Adds an empty change if there is none.
    fn change_mut(&mut self, path: &[u8], is_directory: bool) -> &mut EntryChange {
        let map = if is_directory { &mut self.directories } else { &mut self.leaves };
        map.entry(path.to_vec()).or_default()
    }

    fn set_old(&mut self, path: &[u8], entry: Option<Entry>) {
        if let Some(entry) = entry {
            let is_directory = is_directory(&entry);
            self.change_mut(path, is_directory).old = Some(entry);
        }
    }

    fn set_new(&mut self, path: &[u8], entry: Option<Entry>) {
        if let Some(entry) = entry {
            let is_directory = is_directory(&entry);
            self.change_mut(path, is_directory).new = Some(entry);
        }
    }

    /// Adds a rename with equal content, as found by the tree diff.
    fn add_rename(&mut self, from: Vec<u8>, to: Vec<u8>, old: Entry, new: Entry) {
        match &new.node {
            Node::Directory(node) if node.entries > 0 => {
                self.targets.insert(to.clone(), ());
                self.directory_moves.insert(from, DirectoryMove { to, old, new });
            }
            Node::Directory(_) => {
                self.set_old(&from, Some(old));
                self.set_new(&to, Some(new));
            }
            Node::File(_) | Node::Symlink(_) => {
                // All empty files are equal, so equal content does not identify a rename.
                let is_identified = new.node.size() > 0;
                self.set_old(&from, Some(old));
                self.set_new(&to, Some(new));
                if is_identified {
                    self.renames.insert(from, to);
                }
            }
        }
    }

    /// Returns true if the other side changed nothing at or below the paths that this side added, removed or moved, nor
    /// in the directories that only this side changed.
    pub(super) fn is_disjoint_from(&self, other: &Self) -> bool {
        let is_unaffected = |path: &[u8]| !other.has_changes_at(path);
        let mut changes = self.leaves.iter().chain(&self.directories);
        changes.all(|(path, change)| change.is_edit() || is_unaffected(path))
            && self
                .directory_moves
                .iter()
                .all(|(from, moved)| is_unaffected(from) && is_unaffected(&moved.to))
            && self.one_sided.iter().all(|directory| is_unaffected(&directory.path))
    }

    /// Returns true if this side changed a path, or a path below it.
    pub(super) fn has_changes_at(&self, path: &[u8]) -> bool {
        contains_at_or_below(&self.leaves, path)
            || contains_at_or_below(&self.directories, path)
            || contains_at_or_below(&self.directory_moves, path)
            || contains_at_or_below(&self.targets, path)
    }

    /// Returns true if a move of a directory by the other side overlaps with the changes of this side, so that the
    /// entries of the directory must be read. `from` and `to` are its old and new path.
    pub(super) fn overlaps_move(&self, from: &[u8], to: &[u8]) -> bool {
        // The directory `to` cannot exist below a leaf, or below a directory that this side removed.
        let is_blocking =
            |path| self.leaves.get(path).is_some_and(|change| change.new.is_some()) || self.has_removed(path);
        self.has_changes_at(from) || self.has_changes_at(to) || ancestors(to).any(is_blocking)
    }

    /// Returns true if this side moved a directory to a path or below it.
    pub(super) fn moves_into(&self, path: &[u8]) -> bool {
        contains_at_or_below(&self.targets, path)
    }

    /// Returns true if this side removed a directory.
    pub(super) fn has_removed(&self, directory: &[u8]) -> bool {
        self.directories.get(directory).is_some_and(|change| change.new.is_none())
    }

    /// Returns the directories, except the root, to which this side added leaves.
    pub(super) fn directories_with_additions(&self) -> HashSet<&[u8]> {
        let added = self.leaves.iter().filter(|(_, change)| change.old.is_none() && change.new.is_some());
        added.filter_map(|(path, _)| parent(path)).collect()
    }

    /// Returns all entries that this side added, by path: also directories, and directories moved to a new path.
    pub(super) fn added(&self) -> BTreeMap<&[u8], &Entry> {
        let both = self.leaves.iter().chain(&self.directories);
        let added = both.filter(|(_, change)| change.old.is_none());
        let added = added.filter_map(|(path, change)| Some((&path[..], change.new.as_ref()?)));
        added.chain(self.directory_moves.values().map(|moved| (&moved.to[..], &moved.new))).collect()
    }

    /// Returns true if this side added a directory.
    pub(super) fn has_added(&self, directory: &[u8]) -> bool {
        self.directories.get(directory).is_some_and(|change| change.old.is_none())
    }

    /// Replaces selected moves of directories by moves of their entries. `is_selected` gets the old and the new path.
    /// Returns true if any move was selected.
    pub(super) fn expand_where(&mut self, is_selected: impl Fn(&[u8], &[u8]) -> bool) -> Result<bool> {
        let selected = self.directory_moves.iter().filter(|(from, moved)| is_selected(from, &moved.to));
        let selected: Vec<Vec<u8>> = selected.map(|(from, _)| from.clone()).collect();
        for from in &selected {
            if let Some(moved) = self.directory_moves.remove(from) {
                self.expand(from, moved)?;
            }
        }
        Ok(!selected.is_empty())
    }

    /// Replaces the move of a directory from the path `from` by moves of its entries.
    fn expand(&mut self, from: &[u8], moved: DirectoryMove) -> Result<()> {
        let DirectoryMove { to, old, new } = moved;
        self.targets.remove(&to);
        let children = |tree: &Tree, entry: &Entry| match &entry.node {
            Node::Directory(node) => tree.list(node),
            Node::File(_) | Node::Symlink(_) => Ok(Vec::new()),
        };
        let pairs = children(self.base, &old)?.into_iter().zip(children(self.tree, &new)?);
        self.set_old(from, Some(old));
        self.set_new(&to, Some(new));
        for (old, new) in pairs {
            self.add_rename(join(from, &old.name), join(&to, &new.name), old, new);
        }
        Ok(())
    }
}

pub(super) fn is_directory(entry: &Entry) -> bool {
    matches!(entry.node, Node::Directory(_))
}

//! What one side did to the base.

use std::collections::{BTreeMap, HashSet};

use workspace_state::{Difference, DifferenceKind, Entry, Node, StoreError, Subtree, Tree};

use super::paths::{above, join, parent, touches};

type Result<T> = std::result::Result<T, StoreError>;

/// What was and is at a path.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) old: Option<Entry>,
    pub(super) new: Option<Entry>,
}

impl Change {
    /// Whether a directory is there now that holds nothing.
    pub(super) fn is_empty_directory(&self) -> bool {
        matches!(self.new.as_ref().map(|entry| &entry.node), Some(Node::Directory(node)) if node.entries == 0)
    }

    /// Whether something of its kind is still there.
    pub(super) fn is_edit(&self) -> bool {
        self.old.is_some() && self.new.is_some()
    }
}

/// A directory that is elsewhere now, with all it holds and nothing else.
#[derive(Debug)]
pub(super) struct Moved {
    pub(super) to: Vec<u8>,
    pub(super) old: Entry,
    pub(super) new: Entry,
}

/// All that one side did. A path where a directory became a leaf, or the other way round, is in both maps.
pub(super) struct Changes<'t> {
    pub(super) base: &'t Tree,
    pub(super) tree: &'t Tree,
    /// Files and symlinks.
    pub(super) leaves: BTreeMap<Vec<u8>, Change>,
    pub(super) directories: BTreeMap<Vec<u8>, Change>,
    /// Directories that moved as a whole, by where they were. What is in them is in none of the other maps.
    pub(super) moved: BTreeMap<Vec<u8>, Moved>,
    /// Where they are now.
    pub(super) targets: BTreeMap<Vec<u8>, ()>,
    /// Leaves that are elsewhere now: from where, and where to.
    pub(super) renames: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Directories that only this side changed: they are not looked into, and what is in them is in none of the maps.
    pub(super) alone: Vec<Subtree>,
}

impl<'t> Changes<'t> {
    pub(super) fn new(
        base: &'t Tree,
        tree: &'t Tree,
        differences: Vec<Difference>,
        alone: Vec<Subtree>,
    ) -> Self {
        let mut changes = Self {
            base,
            tree,
            leaves: BTreeMap::new(),
            directories: BTreeMap::new(),
            moved: BTreeMap::new(),
            targets: BTreeMap::new(),
            renames: BTreeMap::new(),
            alone,
        };
        for difference in differences {
            match (difference.kind, difference.old, difference.new) {
                (DifferenceKind::Renamed { from }, Some(old), Some(new)) => {
                    changes.renamed(from, difference.path, old, new);
                }
                (_, old, new) => {
                    changes.old(&difference.path, old);
                    changes.new_at(&difference.path, new);
                }
            }
        }
        changes
    }

    fn change(&mut self, path: &[u8], is_directory: bool) -> &mut Change {
        let map = if is_directory { &mut self.directories } else { &mut self.leaves };
        map.entry(path.to_vec()).or_default()
    }

    fn old(&mut self, path: &[u8], entry: Option<Entry>) {
        if let Some(entry) = entry {
            let is_directory = is_directory(&entry);
            self.change(path, is_directory).old = Some(entry);
        }
    }

    fn new_at(&mut self, path: &[u8], entry: Option<Entry>) {
        if let Some(entry) = entry {
            let is_directory = is_directory(&entry);
            self.change(path, is_directory).new = Some(entry);
        }
    }

    fn renamed(&mut self, from: Vec<u8>, to: Vec<u8>, old: Entry, new: Entry) {
        match &new.node {
            Node::Directory(node) if node.entries > 0 => {
                self.targets.insert(to.clone(), ());
                self.moved.insert(from, Moved { to, old, new });
            }
            Node::Directory(_) => {
                self.old(&from, Some(old));
                self.new_at(&to, Some(new));
            }
            Node::File(_) | Node::Symlink(_) => {
                // Every empty file is like every other: nothing says that this is the same one.
                let is_known = new.node.size() > 0;
                self.old(&from, Some(old));
                self.new_at(&to, Some(new));
                if is_known {
                    self.renames.insert(from, to);
                }
            }
        }
    }

    /// Whether the other side did nothing where this one added, removed or moved something.
    pub(super) fn is_apart_from(&self, other: &Self) -> bool {
        let is_left = |path: &[u8]| !other.touches(path);
        let mut changes = self.leaves.iter().chain(&self.directories);
        changes.all(|(path, change)| change.is_edit() || is_left(path))
            && self.moved.iter().all(|(from, moved)| is_left(from) && is_left(&moved.to))
            && self.alone.iter().all(|directory| is_left(&directory.path))
    }

    /// Whether anything is different at a path or below it.
    pub(super) fn touches(&self, path: &[u8]) -> bool {
        touches(&self.leaves, path)
            || touches(&self.directories, path)
            || touches(&self.moved, path)
            || touches(&self.targets, path)
    }

    /// Whether a directory that the other side moved has to be looked into.
    pub(super) fn meets(&self, from: &[u8], to: &[u8]) -> bool {
        let in_the_way =
            |path| self.leaves.get(path).is_some_and(|change| change.new.is_some()) || self.has_removed(path);
        self.touches(from) || self.touches(to) || above(to).any(in_the_way)
    }

    /// Whether a directory moved to a path or below it.
    pub(super) fn moves_into(&self, path: &[u8]) -> bool {
        touches(&self.targets, path)
    }

    /// Whether a directory is gone.
    pub(super) fn has_removed(&self, directory: &[u8]) -> bool {
        self.directories.get(directory).is_some_and(|change| change.new.is_none())
    }

    /// Directories that leaves were added to.
    pub(super) fn filled(&self) -> HashSet<&[u8]> {
        let added = self.leaves.iter().filter(|(_, change)| change.old.is_none() && change.new.is_some());
        added.filter_map(|(path, _)| parent(path)).collect()
    }

    /// All that was added, directories and what was moved included.
    pub(super) fn added(&self) -> BTreeMap<&[u8], &Entry> {
        let both = self.leaves.iter().chain(&self.directories);
        let added = both.filter(|(_, change)| change.old.is_none());
        let added = added.filter_map(|(path, change)| Some((&path[..], change.new.as_ref()?)));
        added.chain(self.moved.values().map(|moved| (&moved.to[..], &moved.new))).collect()
    }

    /// Whether a directory was made.
    pub(super) fn has_added(&self, directory: &[u8]) -> bool {
        self.directories.get(directory).is_some_and(|change| change.old.is_none())
    }

    /// Replaces moves of directories that meet what the other side did by moves of what is in them.
    pub(super) fn open_where(&mut self, meets: impl Fn(&[u8], &[u8]) -> bool) -> Result<bool> {
        let met = self.moved.iter().filter(|(from, moved)| meets(from, &moved.to));
        let met: Vec<Vec<u8>> = met.map(|(from, _)| from.clone()).collect();
        for from in &met {
            if let Some(moved) = self.moved.remove(from) {
                self.open(from, moved)?;
            }
        }
        Ok(!met.is_empty())
    }

    fn open(&mut self, from: &[u8], moved: Moved) -> Result<()> {
        let Moved { to, old, new } = moved;
        self.targets.remove(&to);
        let children = |tree: &Tree, entry: &Entry| match &entry.node {
            Node::Directory(node) => tree.list(node),
            Node::File(_) | Node::Symlink(_) => Ok(Vec::new()),
        };
        let pairs = children(self.base, &old)?.into_iter().zip(children(self.tree, &new)?);
        self.old(from, Some(old));
        self.new_at(&to, Some(new));
        for (old, new) in pairs {
            self.renamed(join(from, &old.name), join(&to, &new.name), old, new);
        }
        Ok(())
    }
}

pub(super) fn is_directory(entry: &Entry) -> bool {
    matches!(entry.node, Node::Directory(_))
}

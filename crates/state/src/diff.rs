//! Differences between two trees.
//!
//! A node of a tree is named by the hash of its content, so two directories with the same id are equal and are not
//! read. The same holds for pages, the nodes into which a long list of entries is split. Other directories are merged
//! by name, and the encoded references to the nodes of their entries are compared. Only entries that differ are
//! decoded, so the cost depends on the directories on the paths to the changes.
//!
//! Modification times are not compared: they are in nodes of their own, and not part of a tree's identity.

mod cursor;
mod renames;
mod three_way;

use crate::entry::{Entry, Node};
use crate::error::Result;
use crate::id::NodeId;
use crate::node::NodeRef;
use crate::store::Store;
use crate::tree::Tree;
use crate::tree_path::join;
use crate::walk_limits::{WalkUsage, entry_size};
use cursor::{Cursor, Item, PagePosition};

pub use three_way::{SideDiff, Subtree, ThreeWayDiff, diff_both};

/// One difference between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Path of the entry, the new one for a rename. Empty for the root directory.
    pub path: Vec<u8>,
    /// Kind of the difference.
    pub kind: DifferenceKind,
    /// Entry before the change; `None` for an addition.
    pub old: Option<Entry>,
    /// Entry after the change; `None` for a removal.
    pub new: Option<Entry>,
}

/// Kind of a difference at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The entry is new.
    Added,
    /// The entry no longer exists.
    Removed,
    /// A file with other content (mode and attributes may differ too), or a symlink to another target.
    Modified,
    /// Another kind of entry. Entries below a former or new directory are listed as removed or added.
    TypeChanged,
    /// A file with the same content, or a directory, with other mode bits or extended attributes.
    ModeChanged,
    /// A file with the content of a removed one, or a directory equal to a removed one: nothing below it
    /// differs and nothing below it is listed.
    Renamed {
        /// Path before the rename.
        from: Vec<u8>,
    },
}

/// Compares two trees and returns their differences, sorted by path.
///
/// An added or removed directory is listed with everything below it. Renames are detected among removed and
/// added entries, one to one: directories that are equal and not empty, and files with equal content that is
/// not empty. Among several candidates the one with the same base name wins, then the order of paths.
///
/// Memory is bounded by the [`WalkLimits`](crate::WalkLimits) of the handle of the store that `to` was opened through.
pub fn diff(from: &Tree, to: &Tree) -> Result<Vec<Difference>> {
    let mut comparison = Comparison::new(from.store(), to.store());
    comparison.push(Vec::new(), root(from), root(to))?;
    comparison.run()?;
    comparison.finish()
}

fn root(tree: &Tree) -> Directory {
    match tree.root().node {
        Node::Directory(root) => Directory { id: root.id, times: root.times },
        Node::File(_) | Node::Symlink(_) => unreachable!("the root of a tree is a directory"),
    }
}

/// Id of a directory node, and of the node with its modification times; `None` if they are not known.
#[derive(Clone, Copy)]
struct Directory {
    id: NodeId,
    times: Option<NodeId>,
}

/// An entry that only one of the two trees has. It may be one side of a rename.
struct UnpairedEntry {
    path: Vec<u8>,
    entry: Entry,
}

impl UnpairedEntry {
    fn new(parent: &[u8], entry: Entry, usage: &WalkUsage) -> Result<Self> {
        let path = join(parent, &entry.name);
        usage.add(path.len() + entry_size(&entry))?;
        Ok(Self { path, entry })
    }
}

/// Walk over two trees side by side. Directories are queued instead of recursing: trees may be too deep for the
/// stack.
struct Comparison<'s> {
    /// Store handle of the old tree.
    old: &'s Store,
    /// Store handle of the new tree.
    new: &'s Store,
    /// Directories that differ and are not compared yet: path, old directory and new directory.
    queue: Vec<(Vec<u8>, Directory, Directory)>,
    differences: Vec<Difference>,
    /// Removed entries, some of which may be renamed.
    removed: Vec<UnpairedEntry>,
    /// Added entries, some of which may be renamed.
    added: Vec<UnpairedEntry>,
    /// Memory use, counted against the walk limits.
    usage: WalkUsage,
}

impl<'s> Comparison<'s> {
    fn new(old: &'s Store, new: &'s Store) -> Self {
        Self {
            old,
            new,
            queue: Vec::new(),
            differences: Vec::new(),
            removed: Vec::new(),
            added: Vec::new(),
            usage: WalkUsage::new(new.walk_limits()),
        }
    }

    /// Queues two directories unless they are equal.
    fn push(&mut self, path: Vec<u8>, old: Directory, new: Directory) -> Result<()> {
        if old.id != new.id {
            self.usage.add(path.len())?;
            self.queue.push((path, old, new));
        }
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        while let Some((path, old, new)) = self.queue.pop() {
            self.compare_directories(&path, old, new)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<Difference>> {
        let mut differences = self.differences;
        let (removed, added) = ((self.old, self.removed), (self.new, self.added));
        renames::pair(removed, added, &mut differences, &self.usage)?;
        differences.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(differences)
    }

    /// Compares the lists of entries of two directories. `a` is from the old directory, and `b` from the new one.
    fn compare_directories(&mut self, path: &[u8], old: Directory, new: Directory) -> Result<()> {
        let mut old_cursor = Cursor::open(self.old, old)?;
        let mut new_cursor = Cursor::open(self.new, new)?;
        // A header holds the mode and the extended attributes of the directory itself.
        if old_cursor.header() != new_cursor.header() {
            self.add_changed_directory(path, old, new)?;
        }
        loop {
            match (old_cursor.peek()?, new_cursor.peek()?) {
                (Item::Page(a), Item::Page(b)) if a.id == b.id => {
                    old_cursor.skip();
                    new_cursor.skip();
                }
                (Item::Page(a), Item::Page(b)) => {
                    // The level of a page is its height above the entries. The higher page is entered, because pages of
                    // the same level may be equal.
                    if a.level >= b.level {
                        old_cursor.enter(a)?;
                    }
                    if b.level >= a.level {
                        new_cursor.enter(b)?;
                    }
                }
                (Item::Page(a), _) => old_cursor.enter(a)?,
                (_, Item::Page(b)) => new_cursor.enter(b)?,
                (Item::Entries(a), Item::Entries(b)) => self.compare_entries(path, a, b)?,
                (Item::Entries(a), Item::End) => {
                    while a.has_more() {
                        take(self.old, path, a, &mut self.removed, &self.usage)?;
                    }
                }
                (Item::End, Item::Entries(b)) => {
                    while b.has_more() {
                        take(self.new, path, b, &mut self.added, &self.usage)?;
                    }
                }
                (Item::End, Item::End) => return Ok(()),
            }
        }
    }

    /// Merges a list of old entries and a list of new ones until one of them ends.
    fn compare_entries(&mut self, path: &[u8], a: &mut PagePosition, b: &mut PagePosition) -> Result<()> {
        loop {
            a.skip_same(b);
            if !a.has_more() || !b.has_more() {
                return Ok(());
            }
            match a.name().cmp(b.name()) {
                std::cmp::Ordering::Less => take(self.old, path, a, &mut self.removed, &self.usage)?,
                std::cmp::Ordering::Greater => take(self.new, path, b, &mut self.added, &self.usage)?,
                std::cmp::Ordering::Equal => {
                    if a.encoded_node_ref() != b.encoded_node_ref() {
                        self.compare_differing_entries(path, a, b)?;
                    }
                    a.skip();
                    b.skip();
                }
            }
        }
    }

    /// Compares two entries of the same name: queues two directories, and adds the difference of other entries.
    fn compare_differing_entries(
        &mut self,
        parent: &[u8],
        a: &mut PagePosition,
        b: &mut PagePosition,
    ) -> Result<()> {
        let path = join(parent, a.name());
        if let (NodeRef::Directory(old), NodeRef::Directory(new)) = (a.node_ref()?, b.node_ref()?) {
            let old = Directory { id: old, times: a.directory_times(self.old)? };
            let new = Directory { id: new, times: b.directory_times(self.new)? };
            return self.push(path, old, new);
        }
        let (old, new) = (a.entry(self.old)?, b.entry(self.new)?);
        let kind = match (&old.node, &new.node) {
            (Node::File(old), Node::File(new)) if old.same_content(new) => DifferenceKind::ModeChanged,
            (Node::File(_), Node::File(_)) | (Node::Symlink(_), Node::Symlink(_)) => DifferenceKind::Modified,
            _ => DifferenceKind::TypeChanged,
        };
        if let Node::Directory(_) = &old.node {
            list_children(self.old, &path, &old, &mut self.removed, &self.usage)?;
        }
        if let Node::Directory(_) = &new.node {
            list_children(self.new, &path, &new, &mut self.added, &self.usage)?;
        }
        self.add_difference(path, kind, old, new)
    }

    /// Adds the difference of two directories whose own mode or extended attributes differ.
    fn add_changed_directory(&mut self, path: &[u8], old: Directory, new: Directory) -> Result<()> {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let old = directory_entry(self.old, name, old)?;
        let new = directory_entry(self.new, name, new)?;
        self.add_difference(path.to_vec(), DifferenceKind::ModeChanged, old, new)
    }

    fn add_difference(&mut self, path: Vec<u8>, kind: DifferenceKind, old: Entry, new: Entry) -> Result<()> {
        self.usage.add(path.len() + entry_size(&old) + entry_size(&new))?;
        self.differences.push(Difference { path, kind, old: Some(old), new: Some(new) });
        Ok(())
    }
}

fn directory_entry(store: &Store, name: &[u8], directory: Directory) -> Result<Entry> {
    let (node, modified) = store.directory(directory.id, directory.times)?;
    Ok(Entry { name: name.to_vec(), node: Node::Directory(node), modified, link_label: None })
}

/// Appends the entry at `position` to `into`, and moves the position to the next entry.
fn take(
    store: &Store,
    parent: &[u8],
    position: &mut PagePosition,
    into: &mut Vec<UnpairedEntry>,
    usage: &WalkUsage,
) -> Result<()> {
    into.push(UnpairedEntry::new(parent, position.entry(store)?, usage)?);
    position.skip();
    Ok(())
}

/// Appends the direct entries of a directory to `into`; does nothing for other kinds. [`renames::pair`] expands the
/// directories among them.
fn list_children(
    store: &Store,
    path: &[u8],
    entry: &Entry,
    into: &mut Vec<UnpairedEntry>,
    usage: &WalkUsage,
) -> Result<()> {
    let Node::Directory(directory) = &entry.node else { return Ok(()) };
    store.for_each_entry(directory, &mut |entry| {
        into.push(UnpairedEntry::new(path, entry, usage)?);
        Ok(())
    })
}

#[cfg(test)]
mod tests;

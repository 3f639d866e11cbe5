//! Delta layers. A *layer* is a read-only lower directory of overlays. A *delta* is a layer with the differences
//! between two trees: over layers that show the first tree, it shows the second one.
//!
//! A delta has every file, symlink and directory that differs, complete with its modification time; the parent
//! directories of these; and a *whiteout* (a character device 0:0, which hides the entry in lower layers) for every
//! removed entry. It has all names of a hard-linked file or none, because an overlay does not link across layers. A
//! delta is first a tree in memory, which is written to disk like any other tree. Whiteouts, which a tree cannot have,
//! are created afterwards. In a tree, the names of one hard-linked file have the same *link label*, a number.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, chmodat, fchmod, fstat, futimens, mknodat,
    openat, statat,
};
use workspace_state::{
    Attributes, CheckoutOptions, DirectoryNode, Entry, NoProgress, Node, Tree, VirtualTree, materialize,
};

use crate::error::{Context as _, Result};

/// Differences between two trees, as the content of a layer.
pub(crate) struct Delta {
    /// Entries that differ, and their parent directories.
    tree: VirtualTree,
    /// Paths of the removed entries.
    whiteouts: Vec<Vec<u8>>,
    /// Link labels of the hard-linked files in `tree`.
    link_labels: HashSet<u64>,
    /// Number of entries, whiteouts included.
    pub(crate) entries: usize,
}

impl Delta {
    /// Computes the delta from the tree `from` to the tree `to`. Returns `None` if it would have more than
    /// `max_entries` entries.
    pub(crate) fn between(from: &Tree, to: &Tree, max_entries: usize) -> Result<Option<Self>> {
        let tree = to.store().empty_tree()?;
        let mut delta = Self { tree, whiteouts: Vec::new(), link_labels: HashSet::new(), entries: 0 };
        let comparison = Comparison { from, to, max_entries };
        let (Node::Directory(old), Node::Directory(new)) = (from.root().node, to.root().node) else {
            return Ok(None);
        };
        let entry = Entry { node: Node::Directory(new.clone()), ..to.root() };
        let is_complete = comparison.add_directory(b"", &old, &new, &entry, &mut delta)?
            && comparison.complete_links(&mut delta)?;
        Ok(is_complete.then_some(delta))
    }

    /// Writes the layer into an empty directory.
    pub(crate) fn write(&self, directory: &Path, options: &CheckoutOptions) -> Result<()> {
        // `preview` returns the tree that a commit would produce.
        materialize(&self.tree.preview()?, directory, options, &NoProgress)?;
        let path = directory.as_os_str().as_bytes();
        let create_whiteouts =
            |root: BorrowedFd<'_>| self.whiteouts.iter().try_for_each(|path| create_whiteout(root, path));
        with_owner_access(CWD, path, create_whiteouts).context("write a layer in", directory)
    }
}

/// Trees that are compared, and the maximum number of entries of the delta.
struct Comparison<'a> {
    from: &'a Tree,
    to: &'a Tree,
    /// Maximum number of entries of the delta.
    max_entries: usize,
}

impl Comparison<'_> {
    /// Adds the differences between the directories `old` and `new`, both at `path`, to the delta. `new_entry` is the
    /// entry of `new`, which has its modification time. Returns false if the delta has too many entries.
    fn add_directory(
        &self,
        path: &[u8],
        old: &DirectoryNode,
        new: &DirectoryNode,
        new_entry: &Entry,
        delta: &mut Delta,
    ) -> Result<bool> {
        let (before, after) = (self.from.list(old)?, self.to.list(new)?);
        let mut before = before.iter().peekable();
        for entry in &after {
            while let Some(removed) = before.next_if(|old| old.name < entry.name) {
                delta.whiteouts.push(join(path, &removed.name));
                delta.entries += 1;
            }
            let old = before.next_if(|old| old.name == entry.name);
            if !self.add_entry(&join(path, &entry.name), old, entry, delta)? {
                return Ok(false);
            }
        }
        for removed in before {
            delta.whiteouts.push(join(path, &removed.name));
            delta.entries += 1;
        }
        delta.tree.put_directory(path, attributes(new, new_entry))?;
        delta.entries += 1;
        Ok(delta.entries <= self.max_entries)
    }

    /// Adds an entry to the delta if it differs from `old`. Returns false if the delta has too many entries.
    fn add_entry(&self, path: &[u8], old: Option<&Entry>, new: &Entry, delta: &mut Delta) -> Result<bool> {
        if let Some(old) = old
            && old.node == new.node
            && old.modified == new.modified
            && old.link_label == new.link_label
        {
            return Ok(true);
        }
        if let (Some(Node::Directory(old)), Node::Directory(node)) = (old.map(|old| &old.node), &new.node) {
            return self.add_directory(path, old, node, new, delta);
        }
        if !self.count_added(new, delta)? {
            return Ok(false);
        }
        delta.tree.graft_at_same_path(path, new)?;
        Ok(true)
    }

    /// Counts an entry that is added with all entries below it, and collects their link labels. Returns false if the
    /// delta has too many entries.
    fn count_added(&self, entry: &Entry, delta: &mut Delta) -> Result<bool> {
        delta.entries += 1;
        let mut queue = vec![entry.clone()];
        while let Some(entry) = queue.pop() {
            delta.link_labels.extend(entry.link_label);
            let Node::Directory(node) = &entry.node else { continue };
            let children = usize::try_from(node.entries).unwrap_or(usize::MAX);
            delta.entries = delta.entries.saturating_add(children);
            // Checked before the entries are read: a directory may have millions.
            if delta.entries > self.max_entries {
                return Ok(false);
            }
            queue.extend(self.to.list(node)?);
        }
        Ok(delta.entries <= self.max_entries)
    }

    /// Adds the other names of hard-linked files of which one name is in the delta. Returns false if the delta has too
    /// many entries.
    fn complete_links(&self, delta: &mut Delta) -> Result<bool> {
        if delta.link_labels.is_empty() {
            return Ok(true);
        }
        let mut linked = Vec::new();
        self.to.walk(&mut |path, entry| {
            if entry.link_label.is_some_and(|label| delta.link_labels.contains(&label)) {
                linked.push((path.to_vec(), entry.clone()));
            }
            Ok(())
        })?;
        let mut parents = BTreeSet::new();
        for (path, entry) in linked {
            if delta.tree.exists(&path)? {
                continue;
            }
            // Paths of all parent directories. That of the root is empty.
            let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(slash, _)| slash);
            for parent in [0].into_iter().chain(slashes).map(|slash| &path[..slash]) {
                // `graft_at_same_path` below creates the parents that the delta lacks.
                if parents.insert(parent.to_vec()) && !delta.tree.exists(parent)? {
                    delta.entries += 1;
                }
            }
            delta.tree.graft_at_same_path(&path, &entry)?;
            delta.entries += 1;
        }
        // Sets the attributes of all parents, children first: adding entries to a directory changes its time.
        for path in parents.iter().rev() {
            if let Some(entry) = self.to.entry(path)?
                && let Node::Directory(node) = &entry.node
            {
                delta.tree.put_directory(path, attributes(node, &entry))?;
            }
        }
        Ok(delta.entries <= self.max_entries)
    }
}

/// Returns the attributes of a directory. The modification time is in the entry, not in the node.
fn attributes(node: &DirectoryNode, entry: &Entry) -> Attributes {
    Attributes { mode: node.mode, modified: entry.modified, xattrs: node.xattrs.clone(), link_label: None }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// Creates a whiteout at a path below `directory`. The modification time of its parent directory and the modes of all
/// parents are kept. No other process uses the layer yet, so modes may be changed for a moment.
fn create_whiteout(directory: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<()> {
    let Some(slash) = path.iter().position(|byte| *byte == b'/') else {
        let stat = fstat(directory)?;
        mknodat(directory, path, FileType::CharacterDevice, Mode::empty(), 0)?;
        let time = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
        return futimens(directory, &Timestamps { last_access: time, last_modification: time });
    };
    let (name, rest) = (&path[..slash], &path[slash + 1..]);
    with_owner_access(directory, name, |inner| create_whiteout(inner, rest))
}

/// Opens the directory `name` in `directory`, and runs `work` on it. If the mode of the opened directory denies access
/// to its owner, changes the mode temporarily.
fn with_owner_access(
    directory: BorrowedFd<'_>,
    name: &[u8],
    work: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    let is_inaccessible = !mode.contains(Mode::RWXU);
    if is_inaccessible {
        chmodat(directory, name, mode | Mode::RWXU, AtFlags::empty())?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let inner = openat(directory, name, flags, Mode::empty())?;
    let result = work(inner.as_fd());
    if is_inaccessible {
        fchmod(&inner, mode)?;
    }
    result
}

#[cfg(test)]
mod tests {
    use workspace_state::{NewSnapshot, Store};

    use super::*;

    #[test]
    fn entries_below_a_new_directory_count_against_the_limit() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let mut tree = store.empty_tree().unwrap();
        let before = tree.commit(NewSnapshot::default()).unwrap();
        for number in 0..10 {
            tree.write(format!("new/deep/{number}"), "x").unwrap();
        }
        let after = tree.commit(NewSnapshot::default()).unwrap();
        let [from, to] = [&before, &after].map(|snapshot| Tree::of_snapshot(&store, snapshot).unwrap());
        // The root, two directories and ten files.
        let delta = Delta::between(&from, &to, 13).unwrap();
        assert_eq!(delta.map(|delta| delta.entries), Some(13));
        assert!(Delta::between(&from, &to, 12).unwrap().is_none());
    }

    #[test]
    fn parents_of_names_that_are_added_for_their_hard_links_count_against_the_limit() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let mut tree = store.empty_tree().unwrap();
        let attributes = Attributes {
            mode: 0o644,
            modified: Some(workspace_state::Timestamp::now()),
            link_label: Some(1),
            ..Attributes::default()
        };
        for path in ["one/a", "one/b", "two/deep/c"] {
            tree.put_content(path, b"x".to_vec(), attributes.clone()).unwrap();
        }
        let before = tree.commit(NewSnapshot::default()).unwrap();
        tree.put_content("new", b"x".to_vec(), attributes).unwrap();
        let after = tree.commit(NewSnapshot::default()).unwrap();
        let [from, to] = [&before, &after].map(|snapshot| Tree::of_snapshot(&store, snapshot).unwrap());
        // The root, the new name, the three other names, and their three parent directories.
        let delta = Delta::between(&from, &to, 8).unwrap();
        assert_eq!(delta.map(|delta| delta.entries), Some(8));
        assert!(Delta::between(&from, &to, 7).unwrap().is_none());
    }
}

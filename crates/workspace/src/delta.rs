//! A delta layer: what makes one tree of another when it lies over it.
//!
//! It holds every file, symlink and directory that differs, whole, with its time; the directories on the way to them; and
//! a whiteout for everything that is gone. It is written as a tree of its own, by what writes any tree.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Timespec, Timestamps, fchmod, fstat, futimens, mknodat, openat};
use workspace_state::{
    Attributes, CheckoutOptions, DirectoryNode, Entry, Node, Quiet, Tree, VirtualTree, materialize,
};

use crate::error::{Context as _, Result};

/// What differs between two trees, as a layer holds it.
pub(crate) struct Delta {
    part: VirtualTree,
    whiteouts: Vec<Vec<u8>>,
    /// Entries in it, whiteouts included.
    pub(crate) entries: usize,
}

impl Delta {
    /// What makes `to` of `from`. None if there is more of it than `most`.
    pub(crate) fn between(from: &Tree, to: &Tree, most: usize) -> Result<Option<Self>> {
        let part = to.store().empty_tree()?;
        let mut delta = Self { part, whiteouts: Vec::new(), entries: 0 };
        let comparison = Comparison { from, to, most };
        let (Node::Directory(old), Node::Directory(new)) = (from.root().node, to.root().node) else {
            return Ok(None);
        };
        let entry = Entry { node: Node::Directory(new.clone()), ..to.root() };
        let fits = comparison.directory(b"", &old, &new, &entry, &mut delta)?;
        Ok(fits.then_some(delta))
    }

    /// Writes it into an empty directory.
    pub(crate) fn write(&self, directory: &Path, options: &CheckoutOptions) -> Result<()> {
        materialize(&self.part.preview()?, directory, options, &Quiet)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory, flags, Mode::empty()).on("open", directory)?;
        for path in &self.whiteouts {
            whiteout(&root, path).on("write a layer in", directory)?;
        }
        Ok(())
    }
}

struct Comparison<'a> {
    from: &'a Tree,
    to: &'a Tree,
    most: usize,
}

impl Comparison<'_> {
    /// Puts what differs between two directories into the delta. False if it is too much.
    fn directory(
        &self,
        path: &[u8],
        old: &DirectoryNode,
        new: &DirectoryNode,
        entry: &Entry,
        delta: &mut Delta,
    ) -> Result<bool> {
        let (before, after) = (self.from.list(old)?, self.to.list(new)?);
        let mut before = before.iter().peekable();
        for entry in &after {
            while let Some(gone) = before.next_if(|old| old.name < entry.name) {
                delta.whiteouts.push(join(path, &gone.name));
                delta.entries += 1;
            }
            let old = before.next_if(|old| old.name == entry.name);
            if !self.entry(&join(path, &entry.name), old, entry, delta)? {
                return Ok(false);
            }
        }
        for gone in before {
            delta.whiteouts.push(join(path, &gone.name));
            delta.entries += 1;
        }
        delta.part.put_directory(path, attributes(new, entry))?;
        delta.entries += 1;
        Ok(delta.entries <= self.most)
    }

    fn entry(&self, path: &[u8], old: Option<&Entry>, new: &Entry, delta: &mut Delta) -> Result<bool> {
        if let Some(old) = old
            && old.node == new.node
            && old.modified == new.modified
            && old.link == new.link
        {
            return Ok(true);
        }
        if let (Some(Node::Directory(old)), Node::Directory(node)) = (old.map(|old| &old.node), &new.node) {
            return self.directory(path, old, node, new, delta);
        }
        delta.part.graft(path, new)?;
        delta.entries += 1;
        Ok(delta.entries <= self.most)
    }
}

fn attributes(node: &DirectoryNode, entry: &Entry) -> Attributes {
    Attributes { mode: node.mode, modified: entry.modified, xattrs: node.xattrs.clone(), link: None }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// Puts a whiteout where the directory around it is; that keeps its time and its mode.
fn whiteout(root: &OwnedFd, path: &[u8]) -> rustix::io::Result<()> {
    let cut = path.iter().rposition(|byte| *byte == b'/');
    let (parent, name) = cut.map_or((&b"."[..], path), |cut| (&path[..cut], &path[cut + 1..]));
    // What is here was just made by us and is nobody else's to change.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let parent = openat(root, parent, flags, Mode::empty())?;
    let stat = fstat(&parent)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    let shut = !mode.contains(Mode::WUSR | Mode::XUSR);
    if shut {
        fchmod(&parent, mode | Mode::RWXU)?;
    }
    mknodat(parent.as_fd(), name, FileType::CharacterDevice, Mode::empty(), 0)?;
    if shut {
        fchmod(&parent, mode)?;
    }
    let time = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
    futimens(&parent, &Timestamps { last_access: time, last_modification: time })
}

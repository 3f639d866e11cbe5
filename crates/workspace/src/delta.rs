//! A delta layer: what makes one tree of another when it lies over it.
//!
//! It holds every file, symlink and directory that differs, whole, with its time; the directories on the way to them; and
//! a whiteout for everything that is gone. Of a file of several names it holds all or none: names are one file only in one
//! layer. It is written as a tree of its own, by what writes any tree.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, chmodat, fchmod, fstat, futimens, mknodat,
    openat, statat,
};
use workspace_state::{
    Attributes, CheckoutOptions, DirectoryNode, Entry, Node, Quiet, Tree, VirtualTree, materialize,
};

use crate::error::{Context as _, Result};

/// What differs between two trees, as a layer holds it.
pub(crate) struct Delta {
    part: VirtualTree,
    whiteouts: Vec<Vec<u8>>,
    /// The labels of files of several names in it.
    links: HashSet<u64>,
    /// Entries in it, whiteouts included.
    pub(crate) entries: usize,
}

impl Delta {
    /// What makes `to` of `from`. None if there is more of it than `most`.
    pub(crate) fn between(from: &Tree, to: &Tree, most: usize) -> Result<Option<Self>> {
        let part = to.store().empty_tree()?;
        let mut delta = Self { part, whiteouts: Vec::new(), links: HashSet::new(), entries: 0 };
        let comparison = Comparison { from, to, most };
        let (Node::Directory(old), Node::Directory(new)) = (from.root().node, to.root().node) else {
            return Ok(None);
        };
        let entry = Entry { node: Node::Directory(new.clone()), ..to.root() };
        let fits = comparison.directory(b"", &old, &new, &entry, &mut delta)?
            && comparison.complete_links(&mut delta)?;
        Ok(fits.then_some(delta))
    }

    /// Writes it into an empty directory.
    pub(crate) fn write(&self, directory: &Path, options: &CheckoutOptions) -> Result<()> {
        materialize(&self.part.preview()?, directory, options, &Quiet)?;
        let path = directory.as_os_str().as_bytes();
        let all = |root: BorrowedFd<'_>| self.whiteouts.iter().try_for_each(|path| whiteout(root, path));
        open_up(CWD, path, all).on("write a layer in", directory)
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
        self.note_links(new, delta)?;
        Ok(delta.entries <= self.most)
    }

    /// Notes the files of several names in an entry, or below it.
    fn note_links(&self, entry: &Entry, delta: &mut Delta) -> Result<()> {
        let mut open = vec![entry.clone()];
        while let Some(entry) = open.pop() {
            delta.links.extend(entry.link);
            if let Node::Directory(node) = &entry.node {
                open.extend(self.to.list(node)?);
            }
        }
        Ok(())
    }

    /// Adds the other names of files of which one name is there. False if it is too much.
    fn complete_links(&self, delta: &mut Delta) -> Result<bool> {
        if delta.links.is_empty() {
            return Ok(true);
        }
        let mut lacking = Vec::new();
        self.to.walk(&mut |path, entry| {
            if entry.link.is_some_and(|link| delta.links.contains(&link)) {
                lacking.push((path.to_vec(), entry.clone()));
            }
            Ok(())
        })?;
        let mut around = BTreeSet::new();
        for (path, entry) in lacking {
            if delta.part.exists(&path)? {
                continue;
            }
            delta.part.graft(&path, &entry)?;
            delta.entries += 1;
            let cuts = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(cut, _)| cut);
            around.extend([0].into_iter().chain(cuts).map(|cut| path[..cut].to_vec()));
        }
        // The innermost first: what is put into a directory changes its time.
        for path in around.iter().rev() {
            if let Some(entry) = self.to.entry(path)?
                && let Node::Directory(node) = &entry.node
            {
                delta.part.put_directory(path, attributes(node, &entry))?;
            }
        }
        Ok(delta.entries <= self.most)
    }
}

fn attributes(node: &DirectoryNode, entry: &Entry) -> Attributes {
    Attributes { mode: node.mode, modified: entry.modified, xattrs: node.xattrs.clone(), link: None }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// Puts a whiteout where the directory around it is; that keeps its time, and all on the way keep their modes.
///
/// What is here was just made by us and is nobody else's to change.
fn whiteout(directory: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<()> {
    let Some(cut) = path.iter().position(|byte| *byte == b'/') else {
        let stat = fstat(directory)?;
        mknodat(directory, path, FileType::CharacterDevice, Mode::empty(), 0)?;
        let time = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
        return futimens(directory, &Timestamps { last_access: time, last_modification: time });
    };
    let (name, rest) = (&path[..cut], &path[cut + 1..]);
    open_up(directory, name, |inner| whiteout(inner, rest))
}

/// Works in a directory whose mode may keep even its owner out.
fn open_up(
    directory: BorrowedFd<'_>,
    name: &[u8],
    work: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    let shut = !mode.contains(Mode::RWXU);
    if shut {
        chmodat(directory, name, mode | Mode::RWXU, AtFlags::empty())?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let inner = openat(directory, name, flags, Mode::empty())?;
    let done = work(inner.as_fd());
    if shut {
        fchmod(&inner, mode)?;
    }
    done
}

//! Writes a tree (the content of a snapshot) as a tar archive, at once or in parts of a chosen size.

mod content;
mod links;
mod output;

use std::io::Write;

use tar::EntryType;

use super::error::{ArchiveError, Result};
use crate::entry::{DirectoryNode, Entry, Node};
use crate::id::NodeId;
use crate::progress::Progress;
use crate::tree::{Leaf, Tree};
use crate::tree_path::join;

use content::FileContent;
use links::Links;
use output::{NewMember, Output};

/// Path of the root directory in an archive.
const ROOT: &[u8] = b"./";

/// Writes a tree as a tar archive, parents before children and sorted by name. The same tree with the same
/// times gives the same bytes.
pub fn export_tar(tree: &Tree, out: &mut dyn Write, progress: &dyn Progress) -> Result<()> {
    TarExport::new(Vec::new(), tree.root()).write_all(tree, out, progress)
}

/// Archive of an entry of a tree and everything below it, written in parts, in the format of [`export_tar`].
///
/// If the entry is a directory, paths in the archive are relative to it. A file or a symlink becomes one member with
/// its own name. Between two parts, the export keeps no object of the store (chunk or node) open, so each part may be
/// written from another handle of the tree. An export cannot be continued after an error.
#[derive(Debug)]
pub struct TarExport {
    /// Path of the entry in the tree.
    base: Vec<u8>,
    /// The entry; `None` after its header is written.
    start: Option<Entry>,
    /// Directories whose entries are being written: the exported directory first, the current directory last.
    directories: Vec<OpenDirectory>,
    /// Path of the current directory in the archive.
    path: Vec<u8>,
    /// Unwritten rest of the current file's content; `None` between two files.
    file: Option<FileContent>,
    /// Names of the hard-linked files that the archive already has.
    links: Links,
    /// True once the end of the archive is written.
    is_finished: bool,
}

impl TarExport {
    /// Creates an export of `entry`, which is at `path` in its tree.
    pub fn new(path: Vec<u8>, entry: Entry) -> Self {
        Self {
            base: path,
            start: Some(entry),
            directories: Vec::new(),
            path: Vec::new(),
            file: None,
            links: Links::default(),
            is_finished: false,
        }
    }

    /// Writes the whole archive. `tree` must be the tree of the entry.
    pub fn write_all(mut self, tree: &Tree, out: &mut dyn Write, progress: &dyn Progress) -> Result<()> {
        progress.begin("exporting entries", None);
        self.write_part(tree, out, u64::MAX, progress)?;
        progress.end();
        out.flush().map_err(|source| ArchiveError::Write { source })
    }

    /// Writes the next part of the archive: at least `min` bytes, or the rest if that is shorter. The last entry or
    /// chunk (a piece of a file's content) of a part may exceed `min`. `tree` must be the tree of the entry.
    pub fn write_part(
        &mut self,
        tree: &Tree,
        out: &mut dyn Write,
        min: u64,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut out = Output::new(out);
        let mut leaf = None;
        while out.written() < min && !self.is_finished {
            if let Some(file) = self.file.take() {
                self.file = file.write_next(tree, &mut out)?;
                continue;
            }
            let depth = self.directories.len();
            self.write_next(tree, &mut leaf, &mut out, progress)?;
            if self.directories.len() != depth {
                leaf = None;
            }
        }
        // Limits the memory that the export keeps until the next part.
        if let Some(file) = &mut self.file {
            file.shrink();
        }
        Ok(())
    }

    /// Returns true if the archive is complete.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Returns the approximate size in bytes of the data that the export keeps between two parts and that has no
    /// upper bound: the names of hard-linked files, and the map of a sparse file.
    pub fn memory(&self) -> usize {
        self.links.memory() + self.file.as_ref().map_or(0, FileContent::map_memory)
    }

    /// Performs one step: writes an entry (of a file, only the header), leaves a directory, or ends the archive. `leaf`
    /// caches the page of the current directory's entries that was read last.
    fn write_next(
        &mut self,
        tree: &Tree,
        leaf: &mut Option<Leaf>,
        out: &mut Output<'_>,
        progress: &dyn Progress,
    ) -> Result<()> {
        if let Some(start) = self.start.take() {
            let is_directory = matches!(start.node, Node::Directory(_));
            let path = if is_directory { ROOT.to_vec() } else { start.name.clone() };
            return self.write_entry(path, start, out);
        }
        let Some(directory) = self.directories.last_mut() else {
            self.is_finished = true;
            return out.write_end();
        };
        if directory.next == directory.entry_count {
            self.path.truncate(directory.parent_path_len);
            self.directories.pop();
            return Ok(());
        }
        let entry = directory.read_next(tree, leaf)?;
        let path = join(&self.path, &entry.name);
        progress.advance(1);
        self.write_entry(path, entry, out)
    }

    /// Writes the header of an entry. The entries of a directory and the content of a file follow in later steps.
    fn write_entry(&mut self, path: Vec<u8>, entry: Entry, out: &mut Output<'_>) -> Result<()> {
        let mut member = NewMember::new(&path, &entry);
        match entry.node {
            Node::Directory(directory) => {
                if !member.path.ends_with(b"/") {
                    member.path.push(b'/');
                }
                member.pax.set_xattrs(&directory.xattrs);
                member.kind = EntryType::Directory;
                out.write_header(member)?;
                self.enter(path, &directory);
                Ok(())
            }
            Node::Symlink(link) => {
                member.kind = EntryType::Symlink;
                member.target = link.target;
                out.write_header(member)
            }
            Node::File(file) => match self.links.first_name(&path, entry.link_label, &file) {
                Some(first) => {
                    member.kind = EntryType::Link;
                    member.target = first;
                    out.write_header(member)
                }
                None => {
                    let in_tree = self.path_in_tree(&path);
                    self.file = Some(FileContent::begin(in_tree, member, file, out)?);
                    Ok(())
                }
            },
        }
    }

    /// Makes a directory the current one.
    fn enter(&mut self, path: Vec<u8>, directory: &DirectoryNode) {
        self.directories.push(OpenDirectory {
            id: directory.id,
            times: directory.times,
            entry_count: directory.entries,
            next: 0,
            parent_path_len: self.path.len(),
        });
        if path != ROOT {
            self.path = path;
        }
    }

    /// Returns the path in the tree of a file with this path in the archive.
    fn path_in_tree(&self, path: &[u8]) -> Vec<u8> {
        if self.directories.is_empty() { self.base.clone() } else { join(&self.base, path) }
    }
}

/// Directory whose entries are being written.
#[derive(Debug)]
struct OpenDirectory {
    /// Id of the directory's node.
    id: NodeId,
    /// Id of the node with the modification times of the entries; `None` if they are not known.
    times: Option<NodeId>,
    entry_count: u64,
    /// Index of the next entry to write.
    next: u64,
    /// Length of the path of the parent directory in the archive, in bytes.
    parent_path_len: usize,
}

impl OpenDirectory {
    /// Reads the next entry from `leaf`, a page of this directory's entries. Replaces `leaf` with the right page if it
    /// is `None` or does not hold the entry.
    fn read_next(&mut self, tree: &Tree, leaf: &mut Option<Leaf>) -> Result<Entry> {
        let current = match leaf.take() {
            Some(leaf) if leaf.contains(self.next) => leaf,
            _ => tree.store().leaf_at(self.id, self.times, self.next)?,
        };
        let entry = current.entry(tree.store(), self.next)?;
        self.next += 1;
        *leaf = Some(current);
        Ok(entry)
    }
}

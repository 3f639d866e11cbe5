//! Content of a file that is being written to an archive, in steps of one extent (a chunk of data, or a hole).
//!
//! A file with holes becomes a sparse member: a map (offset and length of each piece of data) and the data follow the
//! header. If its data is not aligned to blocks of the archive, its holes are written as zeros instead.

use std::collections::VecDeque;

use super::super::error::Result;
use super::super::header::padding;
use super::super::sparse::SparseMap;
use super::output::{NewMember, Output};
use crate::codec::DecodeError;
use crate::entry::{Entry, Node};
use crate::error::StoreError;
use crate::node::{Extent, FileNode};
use crate::tree::Tree;

/// Maximum number of extents that stay in memory between two parts of an archive. They take 192 KiB, and cover about
/// 256 MiB of a file without holes. A file may have millions of extents.
const EXTENTS_MAX: usize = 4_096;
/// Maximum number of bytes of a map or of a hole that are written at a time.
const STEP: usize = 64 << 10;

/// Handling of the holes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holes {
    /// Writes holes as zeros.
    Write,
    /// Leaves holes out; the map describes them.
    Omit,
}

/// Unwritten rest of a file.
#[derive(Debug)]
pub(super) struct FileContent {
    /// Path of the file in the tree.
    path: Vec<u8>,
    /// Encoded map of a sparse file, which precedes the data. Empty for other files, and once the map is written.
    map: Vec<u8>,
    /// Number of bytes of the map that are written.
    map_written: usize,
    /// Unwritten extents that are in memory, in order.
    extents: VecDeque<Extent>,
    /// Index of the extent after the last of `extents`, among all extents of the file.
    loaded: usize,
    /// Number of all extents of the file.
    count: usize,
    /// Handling of the file's holes.
    holes: Holes,
    /// Number of zero bytes after the content, up to a whole block.
    padding: u64,
}

impl FileContent {
    /// Writes the header of a file. `path` is the path of the file in the tree.
    pub(super) fn begin(
        path: Vec<u8>,
        mut member: NewMember,
        file: FileNode,
        out: &mut Output<'_>,
    ) -> Result<Self> {
        member.pax.set_xattrs(&file.xattrs);
        let (holes, map, stored) = match SparseMap::of(&file.extents) {
            Some(map) => {
                let encoded = map.encode();
                member.size = encoded.len() as u64 + map.stored();
                member.set_sparse(map.size);
                (Holes::Omit, encoded, map.stored())
            }
            None => {
                member.size = file.size();
                (Holes::Write, Vec::new(), file.size())
            }
        };
        out.write_header(member)?;
        let count = file.extents.len();
        Ok(Self {
            path,
            map,
            map_written: 0,
            extents: file.extents.into(),
            loaded: count,
            count,
            holes,
            padding: padding(stored),
        })
    }

    /// Writes a part of the map, an extent, or a part of a hole. Returns the rest of the file; `None` at its end.
    pub(super) fn write_next(mut self, tree: &Tree, out: &mut Output<'_>) -> Result<Option<Self>> {
        if self.map_written < self.map.len() {
            self.write_map(out)?;
            return Ok(Some(self));
        }
        if self.extents.is_empty() && self.loaded < self.count {
            self.reload(tree)?;
        }
        let Some(extent) = self.extents.pop_front() else {
            out.write_zeros(self.padding)?;
            return Ok(None);
        };
        match extent {
            Extent::Data { len, .. } => {
                let data = tree.store().read_extents(std::slice::from_ref(&extent), 0, len)?;
                out.write(&data)?;
            }
            Extent::Hole { .. } if self.holes == Holes::Omit => {}
            Extent::Hole { len } => {
                let step = len.min(STEP as u64);
                out.write_zeros(step)?;
                if step < len {
                    self.extents.push_front(Extent::Hole { len: len - step });
                }
            }
        }
        Ok(Some(self))
    }

    /// Writes up to [`STEP`] bytes of the map.
    fn write_map(&mut self, out: &mut Output<'_>) -> Result<()> {
        let end = self.map.len().min(self.map_written + STEP);
        out.write(&self.map[self.map_written..end])?;
        self.map_written = end;
        if end == self.map.len() {
            (self.map, self.map_written) = (Vec::new(), 0);
        }
        Ok(())
    }

    /// Reads the file's node from the tree again, for the extents that [`Self::shrink`] has dropped.
    fn reload(&mut self, tree: &Tree) -> Result<()> {
        match tree.entry(&self.path)? {
            Some(Entry { node: Node::File(file), .. }) if file.extents.len() == self.count => {
                self.extents = file.extents.into_iter().skip(self.loaded).collect();
                self.loaded = self.count;
                Ok(())
            }
            _ => {
                let source = DecodeError("another node than before");
                Err(StoreError::Undecodable { what: "a file".to_owned(), source }.into())
            }
        }
    }

    /// Drops all but the next [`EXTENTS_MAX`] extents from memory.
    pub(super) fn shrink(&mut self) {
        self.loaded -= self.extents.len().saturating_sub(EXTENTS_MAX);
        self.extents.truncate(EXTENTS_MAX);
        self.extents.shrink_to(EXTENTS_MAX);
    }

    /// Returns the size of the map in bytes. All other memory of `self` is bounded.
    pub(super) fn map_memory(&self) -> usize {
        self.map.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit_options::NewSnapshot;
    use crate::store::Store;
    use crate::virtual_tree::Attributes;

    /// Writes the header of the file `file`. Returns the content that is to be written.
    fn begin(tree: &Tree) -> FileContent {
        let entry = tree.entry("file").unwrap().unwrap();
        let member = NewMember::new(b"file", &entry);
        let Node::File(file) = entry.node else { panic!("not a file") };
        let mut header = Vec::new();
        FileContent::begin(b"file".to_vec(), member, file, &mut Output::new(&mut header)).unwrap()
    }

    #[test]
    fn extents_beyond_the_maximum_are_dropped_and_read_again() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let mut tree = store.empty_tree().unwrap();
        tree.write("word", "abc").unwrap();
        let word = tree.commit(NewSnapshot::default()).unwrap();
        let word = Tree::of_snapshot(&store, &word).unwrap().entry("word").unwrap().unwrap();
        let Node::File(word) = word.node else { panic!("not a file") };
        // Three bytes of data and a hole of one byte alternate. The data is not aligned to blocks, so the holes are
        // written as zeros.
        let pair = [word.extents[0], Extent::Hole { len: 1 }];
        let count = 5 * EXTENTS_MAX / 2;
        let extents: Vec<_> = pair.into_iter().cycle().take(count).collect();
        tree.put_extents("file", &extents, Attributes { mode: 0o644, ..Attributes::default() }).unwrap();
        let snapshot = tree.commit(NewSnapshot::default()).unwrap();
        let tree = Tree::of_snapshot(&store, &snapshot).unwrap();

        let (mut written, mut reloads) = (Vec::new(), 0);
        let mut content = Some(begin(&tree));
        while let Some(mut rest) = content {
            rest.shrink();
            assert!(rest.extents.len() <= EXTENTS_MAX && rest.extents.capacity() <= 2 * EXTENTS_MAX);
            reloads += usize::from(rest.extents.is_empty() && rest.loaded < rest.count);
            content = rest.write_next(&tree, &mut Output::new(&mut written)).unwrap();
        }
        assert_eq!(reloads, 2);
        let whole = b"abc\0".repeat(count / 2);
        assert!(written[..whole.len()] == whole, "{} bytes", written.len());
        assert_eq!(written.len(), whole.len().next_multiple_of(512));
    }
}

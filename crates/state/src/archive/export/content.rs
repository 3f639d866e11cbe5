//! Content of a file that is being written to an archive.

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

/// Maximum number of extents in memory between two parts of an archive: 192 KiB, for about 256 MiB of a file
/// without holes. A file may have millions.
const EXTENTS_MAX: usize = 4_096;
/// Maximum number of bytes of a map or of a hole that are written at a time.
const STEP: usize = 64 << 10;

/// Handling of the holes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holes {
    /// Writes zeros.
    Write,
    Omit,
}

/// Rest of a file that is being written.
#[derive(Debug)]
pub(super) struct FileContent {
    /// Path of the file in the tree.
    path: Vec<u8>,
    /// Map of a sparse file, which precedes its data; empty when it is written.
    map: Vec<u8>,
    map_written: usize,
    /// Next extents.
    extents: VecDeque<Extent>,
    /// Number of extents of the file up to the last of `extents`.
    loaded: usize,
    /// Number of all extents of the file.
    count: usize,
    holes: Holes,
    /// Number of zeros after the content.
    padding: u64,
}

impl FileContent {
    /// Writes the header of a file. `path` is its path in the tree.
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

    /// Writes a part of the map, an extent, or a part of a hole. Returns the rest; `None` at the end of the file.
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

    fn write_map(&mut self, out: &mut Output<'_>) -> Result<()> {
        let end = self.map.len().min(self.map_written + STEP);
        out.write(&self.map[self.map_written..end])?;
        self.map_written = end;
        if end == self.map.len() {
            (self.map, self.map_written) = (Vec::new(), 0);
        }
        Ok(())
    }

    /// Reads the extents that [`Self::shrink`] dropped from the tree again.
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

    /// Drops all but the next [`EXTENTS_MAX`] extents.
    pub(super) fn shrink(&mut self) {
        self.loaded -= self.extents.len().saturating_sub(EXTENTS_MAX);
        self.extents.truncate(EXTENTS_MAX);
        self.extents.shrink_to(EXTENTS_MAX);
    }

    /// Returns the memory use of the map in bytes; that of the rest is bounded.
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

    /// Begins to write the file `file`.
    fn begin(tree: &Tree) -> FileContent {
        let entry = tree.entry("file").unwrap().unwrap();
        let member = NewMember::new(b"file", &entry);
        let Node::File(file) = entry.node else { panic!("not a file") };
        let mut header = Vec::new();
        FileContent::begin(b"file".to_vec(), member, file, &mut Output::new(&mut header)).unwrap()
    }

    #[test]
    fn a_file_of_many_extents_is_read_again_and_not_kept() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let mut tree = store.empty_tree().unwrap();
        tree.write("word", "abc").unwrap();
        let word = tree.commit(NewSnapshot::default()).unwrap();
        let word = Tree::of_snapshot(&store, &word).unwrap().entry("word").unwrap().unwrap();
        let Node::File(word) = word.node else { panic!("not a file") };
        // Three bytes and a hole of one byte, which is no whole block, in turn.
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

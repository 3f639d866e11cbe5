//! Reading trees: paths, entries and file content of a snapshot.
//!
//! A directory is a node with a list of entries. A long list is split into pages, which are nodes of their own: the
//! list of the directory node, the root list, then refers to pages (`page.rs`). Lists with entries have level 0.
//! Modification times and link labels are in a second tree of nodes, the times, with lists of the same shape. A link
//! label is a number that all hard links to one file have in common.

use std::ops::Range;
use std::sync::Arc;

use crate::codec::DecodeError;
use crate::entry::{DirectoryNode, Entry, Node};
use crate::error::{Result, StoreError};
use crate::gc_guards::Guard;
use crate::id::{ChunkId, NodeId, TreeId};
use crate::node::{Extent, FileNode, NodeRef, SymlinkNode};
use crate::page::{EncodedList, EntryTime, ListHeader, PageRef};
use crate::snapshot::{Snapshot, Timestamp};
use crate::store::Store;
use crate::tree_path::{join, path_names};
use crate::walk_limits::{WalkUsage, queued_size};

/// A tree of the store, opened for reading.
#[derive(Clone)]
pub struct Tree {
    store: Store,
    /// Protects the objects of the tree from garbage collection.
    guard: Arc<Guard>,
    root: DirectoryNode,
    /// Modification time of the root directory.
    modified: Option<Timestamp>,
}

impl Tree {
    /// Opens the tree of a snapshot.
    pub fn of_snapshot(store: &Store, snapshot: &Snapshot) -> Result<Self> {
        Self::open(store, snapshot.tree, Some(snapshot.times))
    }

    /// Opens a tree by its id. `times` is the id of the second tree with modification times and link labels
    /// ([`Snapshot::times`]). If it is `None`, these are unknown.
    pub fn open(store: &Store, tree: TreeId, times: Option<NodeId>) -> Result<Self> {
        let guard = Arc::new(store.guard()?);
        let (root, modified) = store.directory(tree.root(), times)?;
        Ok(Self { store: store.clone(), guard, root, modified })
    }

    /// Returns the id of the tree.
    pub fn id(&self) -> TreeId {
        self.root.id.into()
    }

    /// Returns the ids of the tree and of its times; `None` if it has no times.
    pub(crate) fn ids(&self) -> Option<(NodeId, NodeId)> {
        self.root.times.map(|times| (self.root.id, times))
    }

    /// Returns the guard that protects the objects of the tree from garbage collection.
    pub(crate) fn guard(&self) -> Arc<Guard> {
        Arc::clone(&self.guard)
    }

    /// Returns the store's handle that the tree was opened through.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the directory at the root, as an entry without a name.
    pub fn root(&self) -> Entry {
        let node = Node::Directory(self.root.clone());
        Entry { name: Vec::new(), node, modified: self.modified, link_label: None }
    }

    /// Returns the entry at `path`; `None` if there is none. Fails if the path is invalid.
    pub fn entry(&self, path: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        let names = path_names(path.as_ref()).map_err(|bad| StoreError::Refused(bad.to_string()))?;
        let mut entry = self.root();
        for name in names {
            let Node::Directory(directory) = &entry.node else { return Ok(None) };
            match self.store.directory_entry(directory, name)? {
                Some(found) => entry = found,
                None => return Ok(None),
            }
        }
        Ok(Some(entry))
    }

    /// Returns the entries of a directory, sorted by name.
    pub fn list(&self, directory: &DirectoryNode) -> Result<Vec<Entry>> {
        self.store.directory_entries(directory)
    }

    /// Returns at most `count` entries of a directory, sorted by name, after the first `skip` entries. Reads only the
    /// pages with these entries.
    pub fn list_range(&self, directory: &DirectoryNode, skip: u64, count: u64) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let range = skip..skip.saturating_add(count);
        self.store.entries_in(directory.id, directory.times, range, &mut entries)?;
        Ok(entries)
    }

    /// Returns the entry `name` of a directory of this tree; `None` if there is none.
    pub fn entry_of(&self, directory: &DirectoryNode, name: &[u8]) -> Result<Option<Entry>> {
        self.store.directory_entry(directory, name)
    }

    /// Returns the content of a file.
    pub fn read(&self, file: &FileNode) -> Result<Vec<u8>> {
        self.read_range(file, 0, file.size())
    }

    /// Returns `len` bytes of a file from `offset` on, or fewer at the end of the file.
    pub fn read_range(&self, file: &FileNode, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.store.read_extents(&file.extents, offset, len)
    }

    /// Calls `visit` with path and entry for everything below the root, parents before children. Fails if the queued
    /// directories exceed the walk limits of the store's handle: their number, and the bytes of paths and attributes.
    pub fn walk(&self, visit: &mut impl FnMut(&[u8], &Entry) -> Result<()>) -> Result<()> {
        let usage = WalkUsage::new(self.store.walk_limits());
        usage.add(queued_size(b"", &self.root))?;
        let mut queue = vec![(Vec::new(), self.root.clone())];
        while let Some((path, directory)) = queue.pop() {
            usage.remove(queued_size(&path, &directory));
            let mut subdirectories = Vec::new();
            self.store.for_each_entry(&directory, &mut |entry| {
                let path = join(&path, &entry.name);
                visit(&path, &entry)?;
                if let Node::Directory(directory) = entry.node {
                    usage.add(queued_size(&path, &directory))?;
                    subdirectories.push((path, directory));
                }
                Ok(())
            })?;
            subdirectories.reverse();
            queue.append(&mut subdirectories);
        }
        Ok(())
    }
}

/// List of a directory at level 0, with the list of its times: the root list, or a page.
#[derive(Debug)]
pub(crate) struct Leaf {
    list: Arc<EncodedList>,
    times: Option<Arc<EncodedList>>,
    /// Position of the list's first entry in the directory.
    first: u64,
}

impl Leaf {
    /// Returns true if the list holds the entry at this position of the directory.
    pub(crate) fn contains(&self, position: u64) -> bool {
        self.index(position).is_some()
    }

    /// Returns the entry at this position of the directory. Fails if the list does not hold it.
    pub(crate) fn entry(&self, store: &Store, position: u64) -> Result<Entry> {
        let index = self.index(position).ok_or_else(|| too_few_entries("a directory".to_owned()))?;
        store.decode_entry(&self.list, self.times.as_deref(), index)
    }

    fn index(&self, position: u64) -> Option<usize> {
        let index = usize::try_from(position.checked_sub(self.first)?).ok()?;
        (index < self.list.len()).then_some(index)
    }
}

fn too_few_entries(what: String) -> StoreError {
    StoreError::Undecodable { what, source: DecodeError("fewer entries than recorded") }
}

/// Callback for a list of entries and the list of their times.
type VisitLeaf<'v> = dyn FnMut(&Arc<EncodedList>, Option<&Arc<EncodedList>>) -> Result<()> + 'v;

fn undecodable(id: &NodeId, source: DecodeError) -> StoreError {
    StoreError::Undecodable { what: format!("node {id}"), source }
}

impl Store {
    /// Returns a directory and its modification time.
    pub(crate) fn directory(
        &self,
        id: NodeId,
        times: Option<NodeId>,
    ) -> Result<(DirectoryNode, Option<Timestamp>)> {
        let list = self.read_list(&id)?;
        let ListHeader::Directory { mode, xattrs } = &list.header else {
            return Err(undecodable(&id, DecodeError("not a directory")));
        };
        let modified = match times {
            Some(times) => match &self.read_list(&times)?.header {
                ListHeader::Times(modified) => *modified,
                _ => return Err(undecodable(&times, DecodeError("not the times of a directory"))),
            },
            None => None,
        };
        let node = DirectoryNode { id, times, mode: *mode, xattrs: xattrs.clone(), entries: list.entries };
        Ok((node, modified))
    }

    /// Returns the entry `name` of a directory; `None` if there is none.
    pub(crate) fn directory_entry(&self, directory: &DirectoryNode, name: &[u8]) -> Result<Option<Entry>> {
        match self.find_entry(directory.id, directory.times, name)? {
            Some((list, times, index)) => self.decode_entry(&list, times.as_deref(), index).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the list with the entry `name`, the list of times with its time, and the position in both lists. `id`
    /// and `times` are the lists of the directory; `times` is `None` if the time is not needed.
    #[expect(clippy::type_complexity, reason = "three things found together, used in one place each")]
    pub(crate) fn find_entry(
        &self,
        id: NodeId,
        times: Option<NodeId>,
        name: &[u8],
    ) -> Result<Option<(Arc<EncodedList>, Option<Arc<EncodedList>>, usize)>> {
        let mut id = id;
        let mut list = self.read_list(&id)?;
        let mut times = times.map(|times| self.read_list(&times)).transpose()?;
        loop {
            let Some(index) = list.find(name) else { return Ok(None) };
            if list.level == 0 {
                return Ok(Some((list, times, index)));
            }
            let child = list.child(index).map_err(|source| undecodable(&id, source))?;
            times = match times {
                Some(times) => Some(
                    self.read_list(
                        &check_same_shape(&id, &list, &times)?
                            .child(index)
                            .map_err(|source| undecodable(&id, source))?
                            .id,
                    )?,
                ),
                None => None,
            };
            id = child.id;
            list = self.read_list(&id)?;
        }
    }

    /// Returns all entries of a directory, sorted by name.
    pub(crate) fn directory_entries(&self, directory: &DirectoryNode) -> Result<Vec<Entry>> {
        let mut entries = Vec::with_capacity(usize::try_from(directory.entries).unwrap_or(0).min(1 << 20));
        self.for_each_entry(directory, &mut |entry| {
            entries.push(entry);
            Ok(())
        })?;
        Ok(entries)
    }

    /// Calls `visit` for all entries of a directory, sorted by name.
    pub(crate) fn for_each_entry(
        &self,
        directory: &DirectoryNode,
        visit: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        self.for_each_leaf(directory.id, directory.times, &mut |list, times| {
            (0..list.len())
                .try_for_each(|index| visit(self.decode_entry(list, times.map(|times| &**times), index)?))
        })
    }

    /// Appends the entries at the positions `range` to `entries`. Positions count the entries of the list `id` and of
    /// the pages below it.
    fn entries_in(
        &self,
        id: NodeId,
        times: Option<NodeId>,
        range: Range<u64>,
        entries: &mut Vec<Entry>,
    ) -> Result<()> {
        let list = self.read_list(&id)?;
        let times = times.map(|times| self.read_list(&times)).transpose()?;
        if let Some(times) = &times {
            check_same_shape(&id, &list, times)?;
        }
        let decode_error = |source| undecodable(&id, source);
        let mut start = 0;
        for index in 0..list.len() {
            if start >= range.end {
                break;
            }
            let child = if list.level == 0 { None } else { Some(list.child(index).map_err(decode_error)?) };
            let end = child.map_or(1, |child| child.entries).saturating_add(start);
            if end > range.start {
                match child {
                    None => entries.push(self.decode_entry(&list, times.as_deref(), index)?),
                    Some(child) => {
                        let times = times
                            .as_ref()
                            .map(|times| times.child(index))
                            .transpose()
                            .map_err(decode_error)?;
                        let child_range = range.start.saturating_sub(start)..range.end - start;
                        self.entries_in(child.id, times.map(|times| times.id), child_range, entries)?;
                    }
                }
            }
            start = end;
        }
        Ok(())
    }

    /// Returns the list with the entry at `position` of a directory. Fails if the directory has fewer entries.
    pub(crate) fn leaf_at(&self, id: NodeId, times: Option<NodeId>, position: u64) -> Result<Leaf> {
        let (mut id, mut times, mut first) = (id, times, 0);
        loop {
            let list = self.read_list(&id)?;
            let time_list = times.map(|times| self.read_list(&times)).transpose()?;
            if let Some(time_list) = &time_list {
                check_same_shape(&id, &list, time_list)?;
            }
            if list.level == 0 {
                return Ok(Leaf { list, times: time_list, first });
            }
            let decode_error = |source| undecodable(&id, source);
            let mut found = None;
            for index in 0..list.len() {
                let child = list.child(index).map_err(decode_error)?;
                let end = child.entries.saturating_add(first);
                if position < end {
                    found = Some((index, child.id));
                    break;
                }
                first = end;
            }
            let (index, child) = found.ok_or_else(|| too_few_entries(format!("node {id}")))?;
            times = match &time_list {
                Some(time_list) => Some(time_list.child(index).map_err(decode_error)?.id),
                None => None,
            };
            id = child;
        }
    }

    /// Calls `visit` for all lists of a directory at level 0, with the lists of their times: the root list, or the
    /// pages.
    pub(crate) fn for_each_leaf(
        &self,
        id: NodeId,
        times: Option<NodeId>,
        visit: &mut VisitLeaf<'_>,
    ) -> Result<()> {
        let list = self.read_list(&id)?;
        let times = times.map(|times| self.read_list(&times)).transpose()?;
        if let Some(times) = &times {
            check_same_shape(&id, &list, times)?;
        }
        if list.level == 0 {
            return visit(&list, times.as_ref());
        }
        for index in 0..list.len() {
            let decode_error = |source| undecodable(&id, source);
            let child = list.child(index).map_err(decode_error)?.id;
            let times = times
                .as_ref()
                .map(|times| times.child(index).map(|child| child.id))
                .transpose()
                .map_err(decode_error)?;
            self.for_each_leaf(child, times, visit)?;
        }
        Ok(())
    }

    /// Returns references to all pages at level 0 below the list `id`, which must be split into pages.
    pub(crate) fn leaf_pages(&self, id: NodeId, times: NodeId) -> Result<Vec<PageRef>> {
        let list = self.read_list(&id)?;
        let time_list = self.read_list(&times)?;
        check_same_shape(&id, &list, &time_list)?;
        let mut leaves = Vec::new();
        for index in 0..list.len() {
            let decode_error = |source| undecodable(&id, source);
            let child = list.child(index).map_err(decode_error)?;
            let times = time_list.child(index).map_err(decode_error)?.id;
            if list.level == 1 {
                let last_name = list.name(index).to_vec();
                leaves.push(PageRef { last_name, entries: child.entries, id: child.id, times });
            } else {
                leaves.append(&mut self.leaf_pages(child.id, times)?);
            }
        }
        Ok(leaves)
    }

    /// Returns the entry at position `index` of a list at level 0.
    pub(crate) fn decode_entry(
        &self,
        list: &EncodedList,
        times: Option<&EncodedList>,
        index: usize,
    ) -> Result<Entry> {
        let decode_error =
            |source| StoreError::Undecodable { what: "an entry of a directory".to_owned(), source };
        let time = match times {
            Some(times) if times.len() > index => times.time(index).map_err(decode_error)?,
            Some(_) => return Err(decode_error(DecodeError("times do not fit the directory"))),
            None => EntryTime::Unknown,
        };
        let node_ref = list.node_ref(index).map_err(decode_error)?;
        self.entry_from_parts(list.name(index), node_ref, time)
    }

    /// Returns the entry with this name, node reference and time. Reads its node if the node is not inline.
    pub(crate) fn entry_from_parts(
        &self,
        name: &[u8],
        node_ref: NodeRef<'_>,
        time: EntryTime,
    ) -> Result<Entry> {
        let (mut modified, link_label) = match time {
            EntryTime::Modified { time, link_label } => (Some(time), link_label),
            EntryTime::Unknown | EntryTime::Directory(_) => (None, None),
        };
        let node = match (node_ref, time) {
            (NodeRef::Directory(id), EntryTime::Directory(times)) => {
                let (node, time) = self.directory(id, Some(times))?;
                modified = time;
                Node::Directory(node)
            }
            (NodeRef::Directory(id), _) => Node::Directory(self.directory(id, None)?.0),
            (NodeRef::File(_) | NodeRef::InlineFile(_), _) => Node::File(self.read_file_node(node_ref)?),
            (NodeRef::Symlink(_) | NodeRef::InlineSymlink(_), _) => {
                Node::Symlink(self.read_symlink_node(node_ref)?)
            }
        };
        Ok(Entry { name: name.to_vec(), node, modified, link_label })
    }

    /// Returns the node of a file, which may be inline in its directory.
    pub(crate) fn read_file_node(&self, node_ref: NodeRef<'_>) -> Result<FileNode> {
        let decode_error = |source| StoreError::Undecodable { what: "a file".to_owned(), source };
        match node_ref {
            NodeRef::InlineFile(node) => FileNode::decode(node).map_err(decode_error),
            NodeRef::File(id) => {
                FileNode::decode(&self.read_node(&id)?).map_err(|source| undecodable(&id, source))
            }
            _ => Err(decode_error(DecodeError("not a file"))),
        }
    }

    /// Returns the node of a symlink, which may be inline in its directory.
    pub(crate) fn read_symlink_node(&self, node_ref: NodeRef<'_>) -> Result<SymlinkNode> {
        let decode_error = |source| StoreError::Undecodable { what: "a symlink".to_owned(), source };
        match node_ref {
            NodeRef::InlineSymlink(node) => SymlinkNode::decode(node).map_err(decode_error),
            NodeRef::Symlink(id) => {
                SymlinkNode::decode(&self.read_node(&id)?).map_err(|source| undecodable(&id, source))
            }
            _ => Err(decode_error(DecodeError("not a symlink"))),
        }
    }

    /// Returns bytes `offset .. offset + len` of content made of `extents`; fewer at its end.
    pub fn read_extents(&self, extents: &[Extent], offset: u64, len: u64) -> Result<Vec<u8>> {
        read_extents(extents, offset, len, |chunk| self.read_chunk(chunk))
    }
}

/// Returns bytes `offset .. offset + len` of content made of `extents`; fewer at its end. `read_chunk` returns the
/// content of a chunk.
pub(crate) fn read_extents(
    extents: &[Extent],
    offset: u64,
    len: u64,
    read_chunk: impl Fn(&ChunkId) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let end = offset.saturating_add(len);
    let size: u64 = extents.iter().map(Extent::len).sum();
    let wanted = end.min(size).saturating_sub(offset);
    if let ([Extent::Data { chunk, .. }], true) = (extents, wanted == size) {
        return check_length(chunk, read_chunk(chunk)?, size);
    }
    let mut out = Vec::new();
    // A sparse file may be larger than memory.
    usize::try_from(wanted).ok().and_then(|wanted| out.try_reserve_exact(wanted).ok()).ok_or_else(|| {
        StoreError::Refused(format!("{wanted} bytes do not fit into memory: read them in parts"))
    })?;
    let mut start = 0;
    for extent in extents {
        let next = start + extent.len();
        if next > offset && start < end {
            let from = offset.saturating_sub(start);
            let to = end.min(next) - start;
            match extent {
                Extent::Hole { .. } => out.resize(out.len() + (to - from) as usize, 0),
                Extent::Data { chunk, len } => {
                    let content = check_length(chunk, read_chunk(chunk)?, *len)?;
                    out.extend_from_slice(&content[from as usize..to as usize]);
                }
            }
        }
        start = next;
        if start >= end {
            break;
        }
    }
    Ok(out)
}

/// Returns the content of a chunk if it has the expected length.
fn check_length(chunk: &ChunkId, content: Vec<u8>, len: u64) -> Result<Vec<u8>> {
    if content.len() as u64 == len {
        return Ok(content);
    }
    let source = DecodeError("its length differs from the one that the file records");
    Err(StoreError::Undecodable { what: format!("chunk {chunk}"), source })
}

/// Returns `times`, the list of the times of `list`. Fails if the two lists do not have the same shape. `id` is the
/// node of `list`, for error messages.
pub(crate) fn check_same_shape<'a>(
    id: &NodeId,
    list: &EncodedList,
    times: &'a EncodedList,
) -> Result<&'a EncodedList> {
    if list.level == times.level && list.len() == times.len() {
        Ok(times)
    } else {
        Err(undecodable(id, DecodeError("its times have another shape")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewSnapshot;

    #[test]
    fn a_part_of_a_directory_is_read_from_the_pages_that_hold_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let store = Store::open_or_create(&path).unwrap();
        let mut tree = store.empty_tree().unwrap();
        tree.mkdir("d").unwrap();
        for n in 0..5_000 {
            tree.write(format!("d/{n:05}"), "").unwrap();
        }
        let snapshot = tree.commit(NewSnapshot::default()).unwrap();
        drop((tree, store));
        // The cache of a store that was just opened is empty.
        let store = Store::open_or_create(&path).unwrap();
        let tree = Tree::of_snapshot(&store, &snapshot).unwrap();
        let Some(Entry { node: Node::Directory(directory), .. }) = tree.entry("d").unwrap() else {
            panic!("not a directory")
        };
        let before = store.inner.lists.len();
        let few = tree.list_range(&directory, 2_500, 10).unwrap();
        let read = store.inner.lists.len() - before;
        assert!((1..=16).contains(&read), "{read} pages of the directory and of its times");
        assert_eq!(few.first().map(|entry| &*entry.name), Some(&b"02500"[..]));

        let all = tree.list(&directory).unwrap();
        assert!(store.inner.lists.len() - before > 200, "the whole has many pages");
        for skip in [0, 1, 63, 64, 1_000, 2_499, 4_990, 4_999, 5_000, 9_000, u64::MAX] {
            for count in [0, 1, 2, 100, 999, u64::MAX] {
                let from = usize::try_from(skip).unwrap().min(all.len());
                let to = from.saturating_add(usize::try_from(count).unwrap()).min(all.len());
                let found = tree.list_range(&directory, skip, count).unwrap();
                assert!(found == all[from..to], "{skip} {count}");
            }
        }
    }
}

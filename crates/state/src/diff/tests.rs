//! Tests of the comparison of trees: which nodes it reads, and which differences it finds. In a [`PartialStore`], only
//! chosen nodes can be read, so reading any other node is an error.

use std::cell::RefCell;
use std::collections::HashMap;

use super::*;
use crate::id::{ChunkId, TreeId};
use crate::node::{Extent, FileNode, TAG_TIMES, TAG_TIMES_PAGE, Xattrs};
use crate::page::{DirectoryWriter, EncodedList, EntryTime, ListHeader, NodeSink};
use crate::snapshot::Timestamp;

/// Encoded nodes by id, outside of any store.
#[derive(Default)]
struct NodeMap(RefCell<HashMap<NodeId, Vec<u8>>>);

impl NodeSink for NodeMap {
    fn put_node(&self, node: &[u8]) -> Result<NodeId> {
        let id = NodeId::of(node);
        self.0.borrow_mut().insert(id, node.to_vec());
        Ok(id)
    }
}

impl NodeMap {
    /// Encodes a directory with these entries.
    fn directory<'e>(&self, mode: u16, entries: impl IntoIterator<Item = &'e EncodedEntry>) -> Directory {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort();
        let mut writer = DirectoryWriter::new(self, entries.len() as u64);
        for (name, node_ref, time) in entries {
            writer.push(name, node_ref, time).unwrap();
        }
        let header = ListHeader::Directory { mode, xattrs: Xattrs::new() };
        let (id, times) = writer.finish(&header, None).unwrap();
        Directory { id, times: Some(times) }
    }
}

/// Name of an entry, its encoded node reference and its encoded time.
type EncodedEntry = (Vec<u8>, Vec<u8>, Vec<u8>);

fn file(name: &str, content: &str) -> EncodedEntry {
    let extents = vec![Extent::Data { len: content.len() as u64, chunk: ChunkId::of(content.as_bytes()) }];
    let node = FileNode { mode: 0o644, extents, ..FileNode::default() }.encode();
    let time = EntryTime::Modified { time: Timestamp(1), link_label: None };
    (name.into(), NodeRef::InlineFile(&node).encode(), time.encode())
}

fn directory(name: &str, directory: Directory) -> EncodedEntry {
    let time = directory.times.map_or(EntryTime::Unknown, EntryTime::Directory);
    (name.into(), NodeRef::Directory(directory.id).encode(), time.encode())
}

/// Returns a directory whose node does not exist.
fn unreadable(name: &str) -> EncodedEntry {
    directory(name, Directory { id: NodeId::of(b"nowhere"), times: None })
}

/// A store in which a test chooses the nodes that can be read.
struct PartialStore {
    _directory: tempfile::TempDir,
    store: Store,
}

impl PartialStore {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path()).unwrap();
        Self { _directory: directory, store }
    }

    /// Makes a node readable.
    fn add(&self, nodes: &NodeMap, id: NodeId) {
        let node = nodes.0.borrow()[&id].clone();
        self.store.cache_list(id, EncodedList::decode(node).unwrap());
    }

    /// Makes a directory and its times readable.
    fn add_directory(&self, nodes: &NodeMap, directory: Directory) {
        self.add(nodes, directory.id);
        self.add(nodes, directory.times.unwrap());
    }

    /// Makes all nodes with times readable, and all other nodes that only one of the two sides has. Returns the number
    /// of these other nodes: directories and their pages.
    fn add_differing(&self, old: &NodeMap, new: &NodeMap) -> usize {
        let mut differing_nodes = 0;
        for (nodes, other) in [(old, new), (new, old)] {
            for (id, node) in nodes.0.borrow().iter() {
                let times = matches!(node[0], TAG_TIMES | TAG_TIMES_PAGE);
                if times || !other.0.borrow().contains_key(id) {
                    self.add(nodes, *id);
                    differing_nodes += usize::from(!times);
                }
            }
        }
        differing_nodes
    }

    fn tree(&self, directory: Directory) -> Tree {
        Tree::open(&self.store, TreeId::from(directory.id), directory.times).unwrap()
    }

    fn diff(&self, old: Directory, new: Directory) -> Result<Vec<Difference>> {
        diff(&self.tree(old), &self.tree(new))
    }
}

/// Returns a line per difference: its kind and path.
fn summary(differences: &[Difference]) -> Vec<String> {
    let line = |difference: &Difference| {
        let path = String::from_utf8_lossy(&difference.path);
        match &difference.kind {
            DifferenceKind::Renamed { from } => format!("{} => {path}", String::from_utf8_lossy(from)),
            kind => format!("{kind:?} {path}"),
        }
    };
    differences.iter().map(line).collect()
}

/// Returns files `file-00000`, `file-00001` and so on.
fn numbered_files(count: usize) -> Vec<EncodedEntry> {
    (0..count).map(|index| file(&format!("file-{index:05}"), &format!("content {index}"))).collect()
}

#[test]
fn equal_directories_are_not_read() {
    let store = PartialStore::new();
    let (old, new) = (NodeMap::default(), NodeMap::default());
    let a = old.directory(0o755, &[unreadable("d"), file("f", "1"), unreadable("z")]);
    let b = new.directory(0o755, &[unreadable("d"), file("f", "2"), unreadable("z")]);
    assert_eq!(store.add_differing(&old, &new), 2);
    assert_eq!(summary(&store.diff(a, b).unwrap()), ["Modified f"]);
}

/// Returns a directory whose node does not exist. `content` determines its id.
fn unreadable_with_content(name: &str, content: &str) -> EncodedEntry {
    let directory = Directory { id: NodeId::of(content.as_bytes()), times: Some(NodeId::of(b"times")) };
    self::directory(name, directory)
}

#[test]
fn three_way_diff_reads_only_directories_that_both_changed() {
    let store = PartialStore::new();
    let nodes = NodeMap::default();
    // A tree with a readable directory `both` and unreadable directories `a`, `b`, `both/c` and `d`.
    let tree = |f: &str, [a, b, c, d]: [&str; 4], more: &[EncodedEntry]| {
        let unreadable = unreadable_with_content;
        let both = nodes.directory(0o755, &[file("f", f), unreadable("c", c), unreadable("same", "same")]);
        let entries = [directory("both", both), unreadable("a", a), unreadable("b", b), unreadable("d", d)];
        let root = nodes.directory(0o755, entries.iter().chain(more));
        for directory in [root, both] {
            store.add_directory(&nodes, directory);
        }
        store.tree(root)
    };
    let base = tree("0", ["0", "0", "0", "0"], &[file("gone", "1")]);
    let ours = tree("1", ["1", "0", "0", "1"], &[file("gone", "1")]);
    let theirs = tree("2", ["0", "2", "2", "2"], &[]);
    // Both sides changed `d`, so it must be read, which fails.
    assert!(diff_both(&base, &ours, &theirs).unwrap_err().is_corruption());
    let theirs = tree("2", ["0", "2", "2", "0"], &[]);
    let ThreeWayDiff { ours: our_diff, theirs: their_diff } = diff_both(&base, &ours, &theirs).unwrap();
    let one_sided = |side: &SideDiff| -> Vec<String> {
        side.one_sided.iter().map(|subtree| String::from_utf8(subtree.path.clone()).unwrap()).collect()
    };
    assert_eq!(
        (one_sided(&our_diff), one_sided(&their_diff)),
        (vec!["a".into(), "d".into()], vec!["b".into(), "both/c".into()])
    );
    assert_eq!(summary(&our_diff.differences), ["Modified both/f"]);
    assert_eq!(summary(&their_diff.differences), ["Modified both/f", "Removed gone"]);
    let ThreeWayDiff { ours: unchanged, theirs: changed } = diff_both(&base, &base, &theirs).unwrap();
    assert!(unchanged.one_sided.is_empty() && changed.differences.is_empty());
    assert_eq!(one_sided(&changed), [""]);
}

#[test]
fn a_directory_that_cannot_be_read_is_an_error() {
    let store = PartialStore::new();
    let (old, new) = (NodeMap::default(), NodeMap::default());
    let other = new.directory(0o755, &[]);
    let a = old.directory(0o755, &[unreadable("d")]);
    let b = new.directory(0o755, &[directory("d", other)]);
    store.add_differing(&old, &new);
    assert!(store.diff(a, b).unwrap_err().is_corruption());
}

#[test]
fn the_pages_of_a_renamed_directory_are_not_read() {
    let store = PartialStore::new();
    let (old, new) = (NodeMap::default(), NodeMap::default());
    let files = numbered_files(5_000);
    let large = old.directory(0o755, &files);
    new.directory(0o755, &files);
    let a = old.directory(0o755, &[directory("old-name", large), unreadable("x")]);
    let b = new.directory(0o755, &[directory("new-name", large), unreadable("x")]);
    assert_eq!(store.add_differing(&old, &new), 2);
    store.add(&old, large.id);
    assert!(old.0.borrow().len() > 40, "the directory has pages, and none of them can be read");
    assert_eq!(summary(&store.diff(a, b).unwrap()), ["old-name => new-name"]);
}

#[test]
fn the_pages_of_a_directory_that_moved_to_another_depth_are_not_read() {
    let store = PartialStore::new();
    let (old, new) = (NodeMap::default(), NodeMap::default());
    let files = numbered_files(5_000);
    let large = old.directory(0o755, &files);
    new.directory(0o755, &files);
    let a = old.directory(0o755, &[directory("src", large)]);
    let inner = new.directory(0o755, &[directory("src", large), file("README", "hello")]);
    let b = new.directory(0o755, &[directory("packages", inner)]);
    store.add_differing(&old, &new);
    store.add(&old, large.id);
    assert_eq!(
        summary(&store.diff(a, b).unwrap()),
        ["Added packages", "Added packages/README", "src => packages/src"]
    );
}

#[test]
fn only_pages_that_differ_are_read() {
    let files = numbered_files(60_000);
    let mut edited = files.clone();
    edited[7_000] = file("file-07000", "other");
    edited.remove(31_234);
    edited.push(file("file-45000x", "added"));
    for (from, to) in [(&files, &edited), (&edited, &files)] {
        let store = PartialStore::new();
        let (old, new) = (NodeMap::default(), NodeMap::default());
        let (a, b) = (old.directory(0o755, from), new.directory(0o755, to));
        let readable = store.add_differing(&old, &new);
        assert!(readable <= 2 * 2 * 4, "{readable} nodes differ");
        assert!(old.0.borrow().len() > 400);
        let found = summary(&store.diff(a, b).unwrap());
        let (kind_31234, kind_45000x) = if from.len() == files.len() && from[7_000] == files[7_000] {
            ("Removed", "Added")
        } else {
            ("Added", "Removed")
        };
        assert_eq!(
            found,
            [
                "Modified file-07000".to_owned(),
                format!("{kind_31234} file-31234"),
                format!("{kind_45000x} file-45000x")
            ]
        );
    }
}

#[test]
fn lists_of_different_depth_are_compared() {
    let files = numbered_files(60_000);
    for (from, to) in [(60_000, 100), (100, 60_000), (257, 256), (256, 257), (300, 60_000), (0, 300)] {
        let store = PartialStore::new();
        let (old, new) = (NodeMap::default(), NodeMap::default());
        let a = old.directory(0o755, &files[..from]);
        let b = new.directory(0o755, &files[..to]);
        store.add_differing(&old, &new);
        let found = store.diff(a, b).unwrap();
        let kind = if from < to { DifferenceKind::Added } else { DifferenceKind::Removed };
        assert!(found.iter().all(|difference| difference.kind == kind));
        assert_eq!(found.len(), from.abs_diff(to), "{from} and {to} entries");
    }
}

#[test]
fn times_are_not_a_difference() {
    let store = PartialStore::new();
    let nodes = NodeMap::default();
    let f = file("f", "1");
    let later = EntryTime::Modified { time: Timestamp(2), link_label: Some(9) }.encode();
    let a = nodes.directory(0o755, &[f.clone(), file("g", "1")]);
    let b = nodes.directory(0o755, &[(f.0, f.1, later.clone()), (b"g".to_vec(), file("g", "2").1, later)]);
    for directory in [a, b] {
        store.add_directory(&nodes, directory);
    }
    let found = store.diff(a, b).unwrap();
    assert_eq!(summary(&found), ["Modified g"]);
    assert_eq!(found[0].old.as_ref().unwrap().modified, Some(Timestamp(1)));
    let new = found[0].new.as_ref().unwrap();
    assert_eq!((new.modified, new.link_label), (Some(Timestamp(2)), Some(9)));
}

#[test]
fn the_mode_of_the_root_is_a_difference_at_the_empty_path() {
    let store = PartialStore::new();
    let (old, new) = (NodeMap::default(), NodeMap::default());
    let a = old.directory(0o755, &[unreadable("d")]);
    let b = new.directory(0o700, &[unreadable("d")]);
    store.add_differing(&old, &new);
    let found = store.diff(a, b).unwrap();
    assert_eq!(summary(&found), ["ModeChanged "]);
    assert_eq!(found[0].new.as_ref().unwrap().node.mode(), 0o700);
}

#[test]
fn a_tree_that_is_too_deep_for_recursion_is_compared() {
    let store = PartialStore::new();
    let (old, new) = (NodeMap::default(), NodeMap::default());
    let nest = |nodes: &NodeMap, content: &str| {
        let bottom = nodes.directory(0o755, &[file("f", content)]);
        (0..5_000).fold(bottom, |below, _| nodes.directory(0o755, &[directory("d", below)]))
    };
    let (a, b) = (nest(&old, "1"), nest(&new, "2"));
    let empty = new.directory(0o755, &[]);
    store.add_differing(&old, &new);
    assert_eq!(store.diff(a, b).unwrap().len(), 1);
    let all = store.diff(a, empty).unwrap();
    assert_eq!(all.len(), 5_001);
}

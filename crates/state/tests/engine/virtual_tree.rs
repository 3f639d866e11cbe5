//! Tests of virtual trees (mutable trees in memory over a snapshot). Random steps are compared with a plain map.

use std::collections::BTreeMap;

use proptest::prelude::*;
use workspace_state::{
    Attributes, ChunkId, Extent, Node, NodeKind, Store, StoreError, Timestamp, Tree, TreeError, VirtualTree,
    diff_both,
};

use crate::support::{commit_files, message, new_store};

/// Expected entries of a tree, by path.
#[derive(Debug, Clone, Default)]
struct Model {
    nodes: BTreeMap<Vec<u8>, ModelNode>,
}

/// Expected entry.
#[derive(Debug, Clone, PartialEq)]
enum ModelNode {
    File { content: Vec<u8>, mode: u16 },
    Symlink(Vec<u8>),
    Directory { mode: u16 },
}

impl Model {
    /// Returns the parent paths, the outermost first.
    fn parents(path: &[u8]) -> Vec<Vec<u8>> {
        (0..path.len()).filter(|index| path[*index] == b'/').map(|index| path[..index].to_vec()).collect()
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        path.is_empty() || matches!(self.nodes.get(path), Some(ModelNode::Directory { .. }))
    }

    /// Creates missing parents. Returns false, without a change, if a parent is not a directory.
    fn make_parents(&mut self, path: &[u8]) -> bool {
        let parents = Self::parents(path);
        if parents.iter().any(|parent| self.nodes.contains_key(parent) && !self.is_directory(parent)) {
            return false;
        }
        for parent in parents {
            self.nodes.entry(parent).or_insert(ModelNode::Directory { mode: 0o755 });
        }
        true
    }

    /// Returns all paths below a path.
    fn below(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let prefix = [path, b"/"].concat();
        self.nodes.keys().filter(|key| key.starts_with(&prefix)).cloned().collect()
    }

    /// Applies a step. Returns false, without a change, if the virtual tree must refuse it.
    fn apply(&mut self, step: &Step) -> bool {
        match step {
            Step::Write(path, content) => {
                if self.is_directory(path) || !self.make_parents(path) {
                    return false;
                }
                let mode = match self.nodes.get(path) {
                    Some(ModelNode::File { mode, .. }) => *mode,
                    _ => 0o644,
                };
                self.nodes.insert(path.clone(), ModelNode::File { content: content.clone(), mode });
            }
            Step::Append(path, content) => match self.nodes.get_mut(path) {
                Some(ModelNode::File { content: old, .. }) => old.extend_from_slice(content),
                Some(_) => return false,
                None => return self.apply(&Step::Write(path.clone(), content.clone())),
            },
            Step::Remove(path) => {
                if self.nodes.remove(path).is_none() {
                    return false;
                }
                for below in self.below(path) {
                    self.nodes.remove(&below);
                }
            }
            Step::Mkdir(path) => {
                if self.nodes.contains_key(path) {
                    return self.is_directory(path);
                }
                if !self.make_parents(path) {
                    return false;
                }
                self.nodes.insert(path.clone(), ModelNode::Directory { mode: 0o755 });
            }
            Step::Symlink(path, target) => {
                if self.is_directory(path) || !self.make_parents(path) {
                    return false;
                }
                self.nodes.insert(path.clone(), ModelNode::Symlink(target.clone()));
            }
            Step::Chmod(path, mode) => match self.nodes.get_mut(path) {
                Some(ModelNode::File { mode: old, .. } | ModelNode::Directory { mode: old }) => *old = *mode,
                _ => return false,
            },
            Step::Rename(from, to) => return self.rename(from, to),
            Step::Commit | Step::Fork => {}
        }
        true
    }

    /// Renames an entry as `rename(2)` does. Returns false, without a change, if that is impossible.
    fn rename(&mut self, from: &[u8], to: &[u8]) -> bool {
        let Some(node) = self.nodes.get(from).cloned() else { return false };
        if from == to {
            return true;
        }
        if to.starts_with(&[from, b"/"].concat()) {
            return false;
        }
        let is_directory = matches!(node, ModelNode::Directory { .. });
        if let Some(target) = self.nodes.get(to) {
            let is_target_directory = matches!(target, ModelNode::Directory { .. });
            if is_directory != is_target_directory || (is_target_directory && !self.below(to).is_empty()) {
                return false;
            }
        }
        if !self.clone().make_parents(to) {
            return false;
        }
        let below: Vec<(Vec<u8>, ModelNode)> = self
            .below(from)
            .into_iter()
            .map(|path| {
                let node = self.nodes.remove(&path).unwrap();
                ([to, &path[from.len()..]].concat(), node)
            })
            .collect();
        self.nodes.remove(from);
        self.make_parents(to);
        self.nodes.insert(to.to_vec(), node);
        self.nodes.extend(below);
        true
    }
}

/// Random step: a change of the tree, a commit, or a clone.
#[derive(Debug, Clone)]
enum Step {
    Write(Vec<u8>, Vec<u8>),
    Append(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Rename(Vec<u8>, Vec<u8>),
    Mkdir(Vec<u8>),
    Symlink(Vec<u8>, Vec<u8>),
    Chmod(Vec<u8>, u16),
    Commit,
    Fork,
}

/// Applies a step to a virtual tree.
fn run(tree: &mut VirtualTree, step: &Step) -> Result<(), TreeError> {
    match step {
        Step::Write(path, content) => tree.write(path, content.clone()),
        Step::Append(path, content) => tree.append(path, content),
        Step::Remove(path) => tree.remove(path),
        Step::Rename(from, to) => tree.rename(from, to),
        Step::Mkdir(path) => tree.mkdir(path),
        Step::Symlink(path, target) => tree.symlink(path, target.clone()),
        Step::Chmod(path, mode) => tree.chmod(path, *mode),
        Step::Commit => tree.commit(message("step")).map(drop),
        Step::Fork => Ok(()),
    }
}

/// Reads all entries of a virtual tree.
fn read_all_entries(tree: &VirtualTree) -> BTreeMap<Vec<u8>, ModelNode> {
    let mut all = BTreeMap::new();
    let mut queue = vec![Vec::new()];
    while let Some(directory) = queue.pop() {
        for entry in tree.list(&directory).unwrap() {
            let path =
                if directory.is_empty() { entry.name } else { [&directory[..], b"/", &entry.name].concat() };
            let stat = tree.stat(&path).unwrap();
            assert_eq!(stat.kind, entry.kind);
            let node = match stat.kind {
                NodeKind::Directory => {
                    queue.push(path.clone());
                    ModelNode::Directory { mode: stat.mode }
                }
                NodeKind::Symlink => ModelNode::Symlink(tree.read_link(&path).unwrap()),
                NodeKind::File => {
                    let content = tree.read(&path).unwrap();
                    assert_eq!(stat.size, content.len() as u64);
                    ModelNode::File { content, mode: stat.mode }
                }
            };
            all.insert(path, node);
        }
    }
    all
}

/// Generates a path of up to three names. There are few names, so that steps affect the same paths.
fn path() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "dd", "\u{e9}"]), 1..4)
        .prop_map(|names| names.join("/").into_bytes())
}

/// Generates content: mostly short, sometimes of several chunks, sometimes zeros.
fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..20),
        1 => (any::<u8>(), 60_000usize..300_000).prop_map(|(seed, len)| {
            let byte = |index: usize| (index as u64).wrapping_mul(0x9e37_79b9).wrapping_add(u64::from(seed)) as u8;
            (0..len).map(|index| byte(index) ^ (index >> 9) as u8).collect()
        }),
        1 => (1usize..40_000).prop_map(|len| vec![0; len]),
    ]
}

/// Generates a random step.
fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (path(), content()).prop_map(|(path, content)| Step::Write(path, content)),
        3 => (path(), content()).prop_map(|(path, content)| Step::Append(path, content)),
        3 => path().prop_map(Step::Remove),
        4 => (path(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => path().prop_map(Step::Mkdir),
        2 => (path(), prop::collection::vec(1u8..255, 1..300)).prop_map(|(path, target)| Step::Symlink(path, target)),
        2 => (path(), 0u16..0o7777).prop_map(|(path, mode)| Step::Chmod(path, mode)),
        2 => Just(Step::Commit),
        1 => Just(Step::Fork),
    ]
}

/// Returns the number of random runs.
fn cases() -> u32 {
    if std::env::var_os("WORKSPACE_TEST_FULL").is_some() { 2000 } else { 64 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_virtual_tree_behaves_like_a_plain_map(steps in prop::collection::vec(step(), 1..60)) {
        let (_directory, store) = new_store();
        let mut tree = store.empty_tree().unwrap();
        let mut model = Model::default();
        let mut forks = Vec::new();
        for step in &steps {
            let expected = model.apply(step);
            let before = if expected { None } else { Some(read_all_entries(&tree)) };
            let result = run(&mut tree, step);
            prop_assert_eq!(result.is_ok(), expected, "{:?} gave {:?}", step, result);
            if let Some(before) = before {
                prop_assert_eq!(before, read_all_entries(&tree), "a refused step changed something");
            }
            if matches!(step, Step::Fork) {
                forks.push((tree.clone(), model.clone()));
            }
        }
        prop_assert_eq!(&read_all_entries(&tree), &model.nodes);
        for (fork, model) in forks {
            prop_assert_eq!(read_all_entries(&fork), model.nodes, "a clone is independent");
        }
        // The committed tree has the expected entries when it is read from the store. A tree that is built directly
        // from the model has the same id.
        let snapshot = tree.commit(message("end")).unwrap();
        prop_assert_eq!(&read_all_entries(&store.restore(&snapshot.id).unwrap()), &model.nodes);
        prop_assert_eq!(build(&store, &model).commit(message("again")).unwrap().tree, snapshot.tree);
    }
}

/// Builds a virtual tree from a model.
fn build(store: &Store, model: &Model) -> VirtualTree {
    let mut tree = store.empty_tree().unwrap();
    for (path, node) in &model.nodes {
        match node {
            ModelNode::Directory { mode } => {
                tree.mkdir(path).unwrap();
                tree.chmod(path, *mode).unwrap();
            }
            ModelNode::Symlink(target) => tree.symlink(path, target.clone()).unwrap(),
            ModelNode::File { content, mode } => {
                tree.write(path, content.clone()).unwrap();
                tree.chmod(path, *mode).unwrap();
            }
        }
    }
    tree
}

#[test]
fn the_tree_id_does_not_depend_on_the_history() {
    let (_directory, store) = new_store();
    let mut one = store.empty_tree().unwrap();
    one.write("a/x", "1").unwrap();
    one.write("b", "2").unwrap();
    let first = one.commit(message("one")).unwrap();
    let mut two = store.restore(&first.id).unwrap();
    two.remove("b").unwrap();
    two.write("c", "2").unwrap();
    two.commit(message("away")).unwrap();
    two.rename("c", "b").unwrap();
    let back = two.commit(message("back")).unwrap();
    assert_eq!(first.tree, back.tree);
    assert_eq!(store.snapshots_with_tree(&first.tree).unwrap(), [first.id, back.id]);
}

#[test]
fn the_id_of_a_directory_with_many_pages_does_not_depend_on_the_history() {
    let (_directory, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    for number in 0..5000 {
        tree.write(format!("big/file-{number:05}"), number.to_string()).unwrap();
    }
    tree.commit(message("all")).unwrap();
    for number in (0..5000).step_by(3) {
        tree.remove(format!("big/file-{number:05}")).unwrap();
        if number % 100 == 0 {
            tree.commit(message("some gone")).unwrap();
        }
    }
    let incremental = tree.commit(message("third gone")).unwrap();
    let mut fresh = store.empty_tree().unwrap();
    for number in (0..5000).filter(|number| number % 3 != 0) {
        fresh.write(format!("big/file-{number:05}"), number.to_string()).unwrap();
    }
    assert_eq!(fresh.commit(message("fresh")).unwrap().tree, incremental.tree);
    assert_eq!(tree.list("big").unwrap().len(), 3333);
    for number in 0..4900 {
        if number % 3 != 0 {
            tree.remove(format!("big/file-{number:05}")).unwrap();
        }
    }
    let small = tree.commit(message("small again")).unwrap();
    assert_eq!(store.restore(&small.id).unwrap().list("big").unwrap().len(), 67);
}

#[test]
fn appended_content_has_the_same_chunks_as_content_written_at_once() {
    let (_directory, store) = new_store();
    let noise: Vec<u8> = (0..3_000_000u64).map(|index| (index.wrapping_mul(index) >> 7) as u8).collect();
    for split in [1, 65_535, 65_536, 65_537, 400_001, 1_048_576, 2_999_999] {
        let mut once = store.empty_tree().unwrap();
        once.write("f", noise.clone()).unwrap();
        let mut steps = store.empty_tree().unwrap();
        steps.write("f", &noise[..split]).unwrap();
        steps.commit(message("part")).unwrap();
        steps.append("f", &noise[split..]).unwrap();
        assert_eq!(once.tree_id().unwrap(), steps.tree_id().unwrap(), "split at {split}");
    }
}

/// All content of a file whose mode was changed, or that was streamed, is in the store. Once, an append to such a file
/// kept a chunk boundary at the old end of the file.
#[test]
fn content_appended_to_a_stored_file_has_the_same_chunks_as_content_written_at_once() {
    let (_directory, store) = new_store();
    let noise = crate::support::noise(5, 2_000_000);
    for split in [1, 65_536, 65_537, 1_000_000] {
        let mut once = store.empty_tree().unwrap();
        once.write("f", noise.clone()).unwrap();
        once.chmod("f", 0o600).unwrap();
        let mut changed = store.empty_tree().unwrap();
        changed.write("f", &noise[..split]).unwrap();
        changed.commit(message("part")).unwrap();
        changed.chmod("f", 0o600).unwrap();
        changed.append("f", &noise[split..]).unwrap();
        assert_eq!(once.tree_id().unwrap(), changed.tree_id().unwrap(), "mode changed, split at {split}");
        let mut streamed = store.empty_tree().unwrap();
        let attributes = Attributes { mode: 0o600, ..Default::default() };
        streamed.put_file("f", &mut std::io::Cursor::new(&noise[..split]), attributes).unwrap();
        streamed.append("f", &noise[split..]).unwrap();
        assert_eq!(streamed.read("f").unwrap(), noise);
        assert_eq!(once.tree_id().unwrap(), streamed.tree_id().unwrap(), "streamed, split at {split}");
    }
}

#[test]
fn a_directory_without_times_cannot_be_grafted() {
    let (_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    tree.write("d/file", "content").unwrap();
    let first = tree.commit(message("first")).unwrap();
    let entry = Tree::open(&store, first.tree, None).unwrap().entry("d").unwrap().unwrap();
    let refused = store.empty_tree().unwrap().graft("copy", &entry, "d");
    assert!(matches!(refused, Err(TreeError::Store(StoreError::Refused(_)))), "{refused:?}");
}

#[test]
fn grafted_subtrees_replace_existing_entries() {
    let (_home, store) = new_store();
    let commit = |files: &[(&str, &str)]| commit_files(&store, files);
    let files = ["top/f", "in/a/f", "in/b/f", "in/deep/er/f", "both"];
    let base = commit(&files.map(|path| (path, "base")));
    let ours = commit(
        &[files.map(|path| (path, "base")).as_slice(), &[("both", "ours"), ("in/c/f", "ours")]].concat(),
    );
    let theirs = commit(&files.map(|path| (path, "theirs")));
    let [base, ours, theirs] =
        [&base, &ours, &theirs].map(|snapshot| Tree::of_snapshot(&store, snapshot).unwrap());
    let their_diff = diff_both(&base, &ours, &theirs).unwrap().theirs;
    let paths: Vec<&[u8]> = their_diff.one_sided.iter().map(|subtree| subtree.path.as_slice()).collect();
    assert_eq!(paths, [&b"top"[..], b"in/a", b"in/b", b"in/deep"]);
    let mut tree = VirtualTree::over(&ours).unwrap();
    tree.graft_subtrees(&theirs, &their_diff.one_sided).unwrap();
    for path in &files[..4] {
        assert_eq!(tree.read(path).unwrap(), b"theirs", "{path}");
    }
    assert_eq!(
        (tree.read("both").unwrap(), tree.read("in/c/f").unwrap()),
        (b"ours".to_vec(), b"ours".to_vec())
    );
    let whole_tree_diff = diff_both(&base, &base, &theirs).unwrap().theirs;
    let mut tree = VirtualTree::over(&base).unwrap();
    tree.graft_subtrees(&theirs, &whole_tree_diff.one_sided).unwrap();
    assert_eq!(tree.tree_id().unwrap(), theirs.id());
    let without_times = Tree::open(&store, theirs.id(), None).unwrap();
    let diff_without_times = diff_both(&base, &ours, &without_times).unwrap().theirs;
    assert!(tree.graft_subtrees(&without_times, &diff_without_times.one_sided).is_err());
}

#[test]
fn a_virtual_tree_over_a_tree_has_no_parent_snapshot() {
    let (_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    tree.write("d/file", "content").unwrap();
    let first = tree.commit(message("first")).unwrap();
    let opened = Tree::of_snapshot(&store, &first).unwrap();
    let mut changed = VirtualTree::over(&opened).unwrap();
    assert_eq!(changed.tree_id().unwrap(), first.tree);
    changed.write("d/other", "more").unwrap();
    let second = changed.commit(message("second")).unwrap();
    assert!(second.parents.is_empty(), "nothing says what it was made from");
    assert_eq!(changed.read("d/file").unwrap(), b"content");
    assert!(VirtualTree::over(&Tree::open(&store, first.tree, None).unwrap()).is_err());
}

#[test]
fn content_and_extents_are_added_with_attributes() {
    let (_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    let attributes = || Attributes {
        mode: 0o750,
        modified: Some(Timestamp(7)),
        xattrs: [(b"user.a".to_vec(), b"1".to_vec())].into(),
        link_label: None,
    };
    // The content has several chunks, so the file node is an object of its own.
    let content: Vec<u8> = (0..600_000_u32).flat_map(u32::to_le_bytes).collect();
    tree.put_content("a", content.clone(), attributes()).unwrap();
    let first = tree.commit(message("first")).unwrap();
    let opened = Tree::of_snapshot(&store, &first).unwrap();
    let Node::File(node) = opened.entry("a").unwrap().unwrap().node else { panic!("not a file") };
    let mut copy = VirtualTree::over(&opened).unwrap();
    copy.put_extents("b", &node.extents, Attributes { mode: 0o600, ..attributes() }).unwrap();
    let second = copy.commit(message("second")).unwrap();
    let opened = Tree::of_snapshot(&store, &second).unwrap();
    let entry = opened.entry("b").unwrap().unwrap();
    assert_eq!((entry.node.mode(), entry.modified), (0o600, Some(Timestamp(7))));
    let Node::File(other) = entry.node else { panic!("not a file") };
    assert!(other.same_content(&node) && other.xattrs == node.xattrs);
    assert_eq!(opened.read(&other).unwrap(), content);
    let unknown = [Extent::Data { len: 1, chunk: ChunkId::from_bytes([7; 32]) }];
    let refused = copy.put_extents("c", &unknown, attributes());
    assert!(matches!(refused, Err(TreeError::Store(StoreError::Refused(_)))), "{refused:?}");
}

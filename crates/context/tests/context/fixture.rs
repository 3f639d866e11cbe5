//! Trees and policies for tests, and a plain model of a tree to compare with.

use std::collections::BTreeMap;
use std::rc::Rc;

use proptest::prelude::*;
use workspace_context::{AgentPolicy, Policy};
use workspace_state::{
    Attributes, Durability, NewSnapshot, Node, NodeKind, Store, Timestamp, Tree, VirtualTree,
};

/// Store in a temporary directory.
pub(crate) struct TestStore {
    /// Removed when the value is dropped.
    _directory: tempfile::TempDir,
    pub(crate) store: Store,
}

/// Entry of a model of a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    /// Content and mode.
    File(String, u16),
    /// Target of a symlink.
    Link(String),
    /// Mode.
    Directory(u16),
}

/// Plain model of a tree: all its entries by path, directories included.
pub(crate) type Model = BTreeMap<String, Item>;

impl TestStore {
    /// Creates an empty store in a temporary directory.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        Self { _directory: directory, store }
    }

    /// Returns a store that all cases of a property test use, because creating one takes most of the time.
    pub(crate) fn shared() -> Rc<Self> {
        thread_local! {
            static STORE: Rc<TestStore> = Rc::new(TestStore::new());
        }
        STORE.with(Rc::clone)
    }

    /// Commits a tree that is built by `build`.
    pub(crate) fn build(&self, build: impl FnOnce(&mut VirtualTree)) -> Tree {
        let mut tree = self.store.empty_tree().unwrap();
        build(&mut tree);
        self.commit(tree)
    }

    /// Commits a tree of files with their paths as content.
    pub(crate) fn files(&self, paths: &[&str]) -> Tree {
        self.build(|tree| paths.iter().for_each(|path| tree.write(path, *path).unwrap()))
    }

    /// Commits a changed copy of a tree.
    pub(crate) fn edit(&self, tree: &Tree, edit: impl FnOnce(&mut VirtualTree)) -> Tree {
        let mut copy = VirtualTree::over(tree).unwrap();
        edit(&mut copy);
        self.commit(copy)
    }

    /// Commits a tree, and returns the tree of the new snapshot.
    pub(crate) fn commit(&self, mut tree: VirtualTree) -> Tree {
        let snapshot = tree.commit(new_snapshot()).unwrap();
        Tree::of_snapshot(&self.store, &snapshot).unwrap()
    }
}

/// Returns the options of a commit that is not synced to the disk.
pub(crate) fn new_snapshot() -> NewSnapshot {
    NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::default() }
}

/// Adds an entry with a time that depends on its path.
pub(crate) fn put(tree: &mut VirtualTree, path: &str, item: &Item) {
    let modified = Some(Timestamp(path.bytes().map(i64::from).sum::<i64>() * 1_000));
    match item {
        Item::File(content, mode) => {
            let attributes = Attributes { mode: *mode, modified, ..Attributes::default() };
            tree.put_content(path, content.clone().into_bytes(), attributes).unwrap();
        }
        Item::Link(target) => tree.put_symlink(path, target.as_bytes(), modified).unwrap(),
        Item::Directory(mode) => {
            tree.put_directory(path, Attributes { mode: *mode, modified, ..Attributes::default() }).unwrap();
        }
    }
}

/// Reads a tree into a model.
pub(crate) fn read(tree: &Tree) -> Model {
    let mut model = Model::new();
    tree.walk(&mut |path, entry| {
        let path = String::from_utf8(path.to_vec()).unwrap();
        let item = match &entry.node {
            Node::File(file) => {
                Item::File(String::from_utf8(tree.read(file).unwrap()).unwrap(), entry.node.mode())
            }
            Node::Symlink(link) => Item::Link(String::from_utf8(link.target.clone()).unwrap()),
            Node::Directory(node) => Item::Directory(node.mode),
        };
        model.insert(path, item);
        Ok(())
    })
    .unwrap();
    model
}

/// Returns the paths of the files and symlinks of a tree.
pub(crate) fn file_paths(tree: &Tree) -> Vec<String> {
    let is_leaf = |(_, item): &(String, Item)| !matches!(item, Item::Directory(_));
    read(tree).into_iter().filter(is_leaf).map(|(path, _)| path).collect()
}

/// Compiles the policy of the agent `a`: default access, and paths with their access, as in the JSON form.
pub(crate) fn agent_policy(default: &str, rules: &[(&str, &str)]) -> AgentPolicy {
    let rules: Vec<_> =
        rules.iter().map(|(path, access)| serde_json::json!({"path": path, "access": access})).collect();
    let document = serde_json::json!({"default": default, "rules": rules});
    Policy::compile(serde_json::from_value(document).unwrap()).unwrap().for_agent("a")
}

/// Generates paths with few different names, so that some are equal or parents of others.
pub(crate) fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c", "x.md"]);
    prop::collection::vec(name, 1..5).prop_map(|names| names.join("/"))
}

fn item() -> impl Strategy<Value = Item> {
    prop_oneof![
        6 => ("[0-3]", prop::sample::select(vec![0o644, 0o755])).prop_map(|(content, mode)| Item::File(content, mode)),
        1 => Just(Item::Link("target".to_owned())),
        2 => prop::sample::select(vec![0o755, 0o700]).prop_map(Item::Directory),
    ]
}

/// Edit of a tree. [`apply`] skips an edit that is not possible in the tree.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    Put(String, Item),
    Remove(String),
    Rename(String, String),
    Chmod(String),
}

pub(crate) fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        4 => (path(), item()).prop_map(|(path, item)| Edit::Put(path, item)),
        2 => path().prop_map(Edit::Remove),
        2 => (path(), path()).prop_map(|(from, to)| Edit::Rename(from, to)),
        1 => path().prop_map(Edit::Chmod),
    ];
    prop::collection::vec(edit, 0..12)
}

/// Generates sequences of edits that build a tree from an empty one.
pub(crate) fn trees() -> impl Strategy<Value = Vec<Edit>> {
    let put = (path(), item()).prop_map(|(path, item)| Edit::Put(path, item));
    prop::collection::vec(put, 0..20)
}

/// Applies the edits that are possible in the tree.
pub(crate) fn apply(tree: &mut VirtualTree, edits: &[Edit]) {
    for edit in edits {
        let mut changed = tree.clone();
        let result = match edit {
            Edit::Put(path, item) => replace(&mut changed, path, item),
            Edit::Remove(path) => changed.remove(path).is_ok(),
            Edit::Rename(from, to) => changed.rename(from, to).is_ok(),
            Edit::Chmod(path) => changed.chmod(path, 0o711).is_ok(),
        };
        if result {
            *tree = changed;
        }
    }
}

/// Puts an entry at a path, and removes one of another type there. Returns false if a parent is not a directory.
fn replace(tree: &mut VirtualTree, path: &str, item: &Item) -> bool {
    let kind = |tree: &VirtualTree, path: &str| tree.stat(path).ok().map(|stat| stat.kind);
    let mut parents = path.match_indices('/').map(|(at, _)| &path[..at]);
    if parents.any(|parent| kind(tree, parent).is_some_and(|kind| kind != NodeKind::Directory)) {
        return false;
    }
    let is_directory = |kind: NodeKind| kind == NodeKind::Directory;
    let differs = |kind| is_directory(kind) != matches!(item, Item::Directory(_));
    if kind(tree, path).is_some_and(differs) {
        tree.remove(path).unwrap();
    }
    put(tree, path, item);
    true
}

/// Generates policies with all levels of access, for the paths that [`path`] generates.
pub(crate) fn agent_policies() -> impl Strategy<Value = AgentPolicy> {
    agent_policies_with(vec!["none", "none", "R", "RA", "RW-", "RW", "RW"])
}

/// Generates policies that hide or show paths that [`path`] generates.
pub(crate) fn visibility_policies() -> impl Strategy<Value = AgentPolicy> {
    agent_policies_with(vec!["none", "RW"])
}

fn agent_policies_with(levels: Vec<&'static str>) -> impl Strategy<Value = AgentPolicy> {
    let name = prop::sample::select(vec!["a", "b", "c", "*", "**", "*.md"]);
    let path = prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"));
    let access = prop::sample::select(levels);
    (access.clone(), prop::collection::vec((path, access), 0..6)).prop_map(|(default, rules)| {
        let rules: Vec<_> = rules.iter().map(|(path, access)| (path.as_str(), *access)).collect();
        agent_policy(default, &rules)
    })
}

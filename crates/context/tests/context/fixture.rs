//! Trees and policies for tests.

use std::collections::BTreeMap;

use proptest::prelude::*;
use workspace_context::{AgentPolicy, Policy};
use workspace_state::{Attributes, NewSnapshot, Node, Store, Timestamp, Tree, VirtualTree};

/// Store in a temporary directory.
pub struct TestStore {
    _directory: tempfile::TempDir,
    pub store: Store,
}

/// Entry of a model of a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    File(String, u16),
    Link(String),
    Directory(u16),
}

/// Plain model of a tree: entries by path, parents listed too.
pub type Model = BTreeMap<String, Item>;

impl TestStore {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        Self { _directory: directory, store }
    }

    /// Commits a tree that is built by `build`.
    pub fn build(&self, build: impl FnOnce(&mut VirtualTree)) -> Tree {
        let mut tree = self.store.empty_tree().unwrap();
        build(&mut tree);
        self.commit(tree)
    }

    /// Commits a tree of files with their paths as content.
    pub fn files(&self, paths: &[&str]) -> Tree {
        self.build(|tree| paths.iter().for_each(|path| tree.write(path, *path).unwrap()))
    }

    pub fn tree(&self, model: &Model) -> Tree {
        self.build(|tree| {
            for (path, item) in model {
                put(tree, path, item);
            }
        })
    }

    /// Commits a changed copy of a tree.
    pub fn edit(&self, tree: &Tree, edit: impl FnOnce(&mut VirtualTree)) -> Tree {
        let mut copy = VirtualTree::over(tree).unwrap();
        edit(&mut copy);
        self.commit(copy)
    }

    pub fn commit(&self, mut tree: VirtualTree) -> Tree {
        let snapshot = tree.commit(NewSnapshot::default()).unwrap();
        Tree::of_snapshot(&self.store, &snapshot).unwrap()
    }
}

/// Adds an entry with a time that depends on its path.
pub fn put(tree: &mut VirtualTree, path: &str, item: &Item) {
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
pub fn read(tree: &Tree) -> Model {
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
pub fn leaves(tree: &Tree) -> Vec<String> {
    let is_leaf = |(_, item): &(String, Item)| !matches!(item, Item::Directory(_));
    read(tree).into_iter().filter(is_leaf).map(|(path, _)| path).collect()
}

/// Compiles rules for the agent `a`: paths with their access.
pub fn agent(default: &str, rules: &[(&str, &str)]) -> AgentPolicy {
    let rules: Vec<_> =
        rules.iter().map(|(path, access)| serde_json::json!({"path": path, "access": access})).collect();
    let document = serde_json::json!({"default": default, "rules": rules});
    Policy::compile(serde_json::from_value(document).unwrap()).unwrap().for_agent("a")
}

/// Generates paths of few names, so that they collide.
pub fn path() -> impl Strategy<Value = String> {
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

/// Edit of a tree. One that does not fit the tree is skipped.
#[derive(Debug, Clone)]
pub enum Edit {
    Put(String, Item),
    Remove(String),
    Rename(String, String),
    Chmod(String),
}

pub fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        4 => (path(), item()).prop_map(|(path, item)| Edit::Put(path, item)),
        2 => path().prop_map(Edit::Remove),
        2 => (path(), path()).prop_map(|(from, to)| Edit::Rename(from, to)),
        1 => path().prop_map(Edit::Chmod),
    ];
    prop::collection::vec(edit, 0..12)
}

/// Generates a sequence of edits of an empty tree.
pub fn trees() -> impl Strategy<Value = Vec<Edit>> {
    let put = (path(), item()).prop_map(|(path, item)| Edit::Put(path, item));
    prop::collection::vec(put, 0..20)
}

pub fn apply(tree: &mut VirtualTree, edits: &[Edit]) {
    for edit in edits {
        let mut changed = tree.clone();
        let result = match edit {
            Edit::Put(path, item) => {
                let exists = changed.exists(path).unwrap_or(true);
                let is_directory = exists
                    && changed.stat(path).is_ok_and(|stat| stat.kind == workspace_state::NodeKind::Directory);
                if exists && is_directory != matches!(item, Item::Directory(_)) {
                    changed.remove(path).ok();
                }
                if !(0..path.len()).filter(|at| path.as_bytes()[*at] == b'/').all(|at| {
                    let parent = &path[..at];
                    !changed.exists(parent).unwrap()
                        || changed.stat(parent).unwrap().kind == workspace_state::NodeKind::Directory
                }) {
                    continue;
                }
                put(&mut changed, path, item);
                Ok(())
            }
            Edit::Remove(path) => changed.remove(path),
            Edit::Rename(from, to) => changed.rename(from, to),
            Edit::Chmod(path) => changed.chmod(path, 0o711),
        };
        if result.is_ok() {
            *tree = changed;
        }
    }
}

/// Generates rules with all levels of access for such trees.
pub fn rules() -> impl Strategy<Value = AgentPolicy> {
    rules_with(vec!["none", "none", "R", "RA", "RW-", "RW", "RW"])
}

/// Generates rules that hide and show parts of such trees.
pub fn read_rules() -> impl Strategy<Value = AgentPolicy> {
    rules_with(vec!["none", "RW"])
}

fn rules_with(levels: Vec<&'static str>) -> impl Strategy<Value = AgentPolicy> {
    let name = prop::sample::select(vec!["a", "b", "c", "*", "**", "*.md"]);
    let path = prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"));
    let access = prop::sample::select(levels);
    (access.clone(), prop::collection::vec((path, access), 0..6)).prop_map(|(default, rules)| {
        let rules: Vec<_> = rules.iter().map(|(path, access)| (path.as_str(), *access)).collect();
        agent(default, &rules)
    })
}

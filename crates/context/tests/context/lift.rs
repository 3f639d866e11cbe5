//! Tests of lifts: changes of a view (the part of a tree that an agent may read) are applied to the full tree.
//! The head is the full tree of the present files of a project.
//!
//! `agent_policy(default, rules)` is the policy of an agent: its access to all paths, and to those of the rules.
//! `read(tree)` returns the entries of a tree by path, and `file_paths(tree)` the paths without directories.

use std::rc::Rc;

use proptest::prelude::*;
use workspace_context::{AgentPolicy, LiftError, ViewCache, check_changes, lift, view};
use workspace_merge::{TreeOptions, merge_trees};
use workspace_state::{Attributes, Tree, VirtualTree};

use crate::fixture::{
    Item, TestStore, agent_policies, agent_policy, apply, edits, file_paths, new_snapshot, read, trees,
};

/// Store and cache for lifts.
struct LiftFixture {
    store: Rc<TestStore>,
    cache: ViewCache,
}

impl LiftFixture {
    fn new() -> Self {
        Self { store: Rc::new(TestStore::new()), cache: ViewCache::new() }
    }

    /// Uses the store that all cases of a property test share.
    fn shared() -> Self {
        Self { store: TestStore::shared(), cache: ViewCache::new() }
    }

    /// Commits the view of a tree.
    fn view(&self, tree: &Tree, policy: &AgentPolicy) -> Tree {
        view(tree, policy, &self.cache).unwrap().commit(new_snapshot(), &self.cache).unwrap().1
    }

    /// Returns a changed tree without the changes that the policy refuses.
    fn checked(&self, base: &Tree, theirs: Tree, head_view: &Tree, policy: &AgentPolicy) -> Tree {
        let checked = check_changes(base, &theirs, head_view, policy).unwrap();
        checked.tree.map_or(theirs, |tree| self.store.commit(tree))
    }

    /// Edits the view of a tree and lifts the result.
    fn lift(
        &self,
        head: &Tree,
        policy: &AgentPolicy,
        edit: impl FnOnce(&mut VirtualTree),
    ) -> Result<Tree, LiftError> {
        let head_view = self.view(head, policy);
        let merged = self.store.edit(&head_view, edit);
        let lifted = lift(head, &head_view, &merged, policy, &self.cache)?;
        Ok(self.store.commit(lifted))
    }
}

#[test]
fn removing_a_directory_leaves_hidden_entries() {
    let fixture = LiftFixture::new();
    let head = fixture.store.files(&["d/x", "d/e/y", "d/e/.env", "f/z"]);
    let policy = agent_policy("RW", &[("**/.env", "none")]);
    let lifted = fixture.lift(&head, &policy, |view| view.remove("d").unwrap()).unwrap();
    assert_eq!(file_paths(&lifted), ["d/e/.env", "f/z"]);
    let lifted = fixture.lift(&head, &policy, |view| view.remove("f").unwrap()).unwrap();
    assert!(lifted.entry("f").unwrap().is_none());
}

#[test]
fn renaming_a_directory_leaves_hidden_entries() {
    let fixture = LiftFixture::new();
    let head = fixture.store.files(&["d/x", "d/e/y", "d/e/.env"]);
    let policy = agent_policy("RW", &[("**/.env", "none")]);
    let lifted = fixture.lift(&head, &policy, |view| view.rename("d", "n").unwrap()).unwrap();
    assert_eq!(file_paths(&lifted), ["d/e/.env", "n/e/y", "n/x"]);
}

#[test]
fn a_directory_without_hidden_entries_is_renamed_as_a_whole() {
    let fixture = LiftFixture::new();
    let head = fixture.store.files(&["open/d/x", "open/d/y", "secret/z"]);
    let policy = agent_policy("RW", &[("secret/**", "none")]);
    let lifted = fixture.lift(&head, &policy, |view| view.rename("open/d", "open/n").unwrap()).unwrap();
    assert_eq!(file_paths(&lifted), ["open/n/x", "open/n/y", "secret/z"]);
}

#[test]
fn attributes_of_hidden_directories_stay() {
    let fixture = LiftFixture::new();
    let head = fixture.store.build(|tree| {
        tree.write("d/x", "1").unwrap();
        tree.put_directory("d", Attributes { mode: 0o700, ..Attributes::default() }).unwrap();
    });
    let policy = agent_policy("RW", &[("d", "none")]);
    let lifted = fixture
        .lift(&head, &policy, |view| {
            view.write("d/x", "2").unwrap();
            view.chmod("d", 0o777).unwrap();
        })
        .unwrap();
    assert_eq!(read(&lifted)["d"], Item::Directory(0o700));
    assert_eq!(read(&lifted)["d/x"], Item::File("2".to_owned(), 0o644));
}

#[test]
fn a_directory_that_may_not_be_deleted_stays() {
    let fixture = LiftFixture::new();
    let head = fixture.store.files(&["d/x", "s/.env"]);
    let policy = agent_policy("RW", &[("d", "RW-"), ("**/.env", "none")]);
    let lifted = fixture.lift(&head, &policy, |view| view.remove("d").unwrap()).unwrap();
    assert_eq!(read(&lifted).keys().collect::<Vec<_>>(), ["d", "s", "s/.env"]);
}

#[test]
fn a_hidden_entry_is_neither_replaced_nor_named_in_the_error() {
    let fixture = LiftFixture::new();
    let head = fixture.store.files(&["d/.env", "x"]);
    let policy = agent_policy("RW", &[("**/.env", "none")]);
    let error = fixture.lift(&head, &policy, |view| view.write("d", "file").unwrap()).err().unwrap();
    assert_eq!(error.to_string(), "`d` cannot be added there: choose another name");

    let head = fixture.store.files(&["p", "x"]);
    let policy = agent_policy("RW", &[("p", "none")]);
    let error = fixture.lift(&head, &policy, |view| view.write("p/q", "file").unwrap()).err().unwrap();
    assert!(matches!(error, LiftError::Occupied { .. }), "{error}");
}

#[test]
fn a_hidden_file_in_the_merged_view_is_an_error() {
    let fixture = LiftFixture::new();
    let head = fixture.store.files(&["x"]);
    let policy = agent_policy("RW", &[("secret/**", "none")]);
    let error = fixture.lift(&head, &policy, |view| view.write("secret/a", "1").unwrap()).err().unwrap();
    assert!(matches!(&error, LiftError::NotVisible { path } if path.0 == b"secret/a"), "{error}");
}

#[test]
fn an_agent_that_reads_everything_replaces_the_head() {
    let fixture = LiftFixture::new();
    let head = fixture.store.files(&["a", "b"]);
    let lifted = fixture.lift(&head, &agent_policy("RW", &[]), |view| view.remove("a").unwrap()).unwrap();
    assert_eq!(file_paths(&lifted), ["b"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lifting_checked_changes_gives_the_merged_view_and_keeps_hidden_entries(
        head in trees(),
        edits in edits(),
        policy in agent_policies(),
    ) {
        let fixture = LiftFixture::shared();
        let head = fixture.store.build(|tree| apply(tree, &head));
        let head_view = fixture.view(&head, &policy);
        let theirs = fixture.store.edit(&head_view, |tree| apply(tree, &edits));
        let merged = fixture.checked(&head_view, theirs, &head_view, &policy);
        match lift(&head, &head_view, &merged, &policy, &fixture.cache) {
            Ok(lifted) => {
                let lifted = fixture.store.commit(lifted);
                let target = fixture.view(&merged, &policy);
                prop_assert_eq!(fixture.view(&lifted, &policy).id(), target.id());
                prop_assert_eq!(hidden(&head, &policy), hidden_of(&lifted, &head, &policy));
            }
            Err(LiftError::Occupied { path }) => {
                let path = String::from_utf8(path.0).unwrap();
                let before = read(&head);
                let parents = path.match_indices('/').map(|(at, _)| &path[..at]);
                let mut path_and_parents = parents.chain([path.as_str()]);
                prop_assert!(path_and_parents.any(|path| before.contains_key(path)), "nothing is at {}", path);
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn merged_changes_are_lifted_onto_a_head_that_changed_meanwhile(
        first in trees(),
        ours in edits(),
        theirs in edits(),
        policy in agent_policies(),
    ) {
        let fixture = LiftFixture::shared();
        let first = fixture.store.build(|tree| apply(tree, &first));
        let head = fixture.store.edit(&first, |tree| apply(tree, &ours));
        let (base, head_view) = (fixture.view(&first, &policy), fixture.view(&head, &policy));
        let theirs = fixture.store.edit(&base, |tree| apply(tree, &theirs));
        let theirs = fixture.checked(&base, theirs, &head_view, &policy);
        let options = TreeOptions { rules: policy.merge_rules(), ..TreeOptions::default() };
        // Some combinations of renames with changes of type cannot be merged. Nothing lands then.
        let Ok(merged) = merge_trees(&base, &head_view, &theirs, &options) else { return Ok(()) };
        let merged = fixture.store.commit(merged.tree);
        // A merge follows renames, so it can move a change to a path that the agent may not change.
        let merged = fixture.checked(&head_view, merged, &head_view, &policy);
        match lift(&head, &head_view, &merged, &policy, &fixture.cache) {
            Ok(lifted) => {
                let lifted = fixture.store.commit(lifted);
                let target = fixture.view(&merged, &policy);
                prop_assert_eq!(fixture.view(&lifted, &policy).id(), target.id());
                prop_assert_eq!(hidden(&head, &policy), hidden_of(&lifted, &head, &policy));
            }
            Err(LiftError::Occupied { .. }) => {}
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}

/// Returns the hidden entries of a tree.
fn hidden(tree: &Tree, policy: &AgentPolicy) -> Vec<(String, Item)> {
    read(tree).into_iter().filter(|(path, _)| !policy.access(path.as_bytes()).can_read()).collect()
}

/// Returns the hidden entries of a tree whose paths the tree `before` has, too.
fn hidden_of(tree: &Tree, before: &Tree, policy: &AgentPolicy) -> Vec<(String, Item)> {
    let before = read(before);
    hidden(tree, policy).into_iter().filter(|(path, _)| before.contains_key(path)).collect()
}

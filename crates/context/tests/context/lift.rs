//! Lifting changes of views onto full trees.

use std::rc::Rc;

use proptest::prelude::*;
use workspace_context::{AgentPolicy, LiftError, ViewCache, check_changes, lift, view};
use workspace_merge::{TreeOptions, merge_trees};
use workspace_state::{Attributes, Tree, VirtualTree};

use crate::fixture::{Item, TestStore, agent, apply, edits, leaves, new_snapshot, read, rules, trees};

struct Lifting {
    fixture: Rc<TestStore>,
    cache: ViewCache,
}

impl Lifting {
    fn new() -> Self {
        Self { fixture: Rc::new(TestStore::new()), cache: ViewCache::new() }
    }

    fn shared() -> Self {
        Self { fixture: TestStore::shared(), cache: ViewCache::new() }
    }

    fn view(&self, tree: &Tree, policy: &AgentPolicy) -> Tree {
        view(tree, policy, &self.cache).unwrap().commit(new_snapshot(), &self.cache).unwrap().1
    }

    /// Returns a changed tree without the changes that the policy refuses.
    fn checked(&self, base: &Tree, theirs: Tree, head_view: &Tree, policy: &AgentPolicy) -> Tree {
        let checked = check_changes(base, &theirs, head_view, policy).unwrap();
        checked.tree.map_or(theirs, |tree| self.fixture.commit(tree))
    }

    /// Edits the view of a tree and lifts the result.
    fn lift(
        &self,
        head: &Tree,
        policy: &AgentPolicy,
        edit: impl FnOnce(&mut VirtualTree),
    ) -> Result<Tree, LiftError> {
        let head_view = self.view(head, policy);
        let merged = self.fixture.edit(&head_view, edit);
        let lifted = lift(head, &head_view, &merged, policy, &self.cache)?;
        Ok(self.fixture.commit(lifted))
    }
}

#[test]
fn removing_a_directory_leaves_hidden_entries() {
    let lifting = Lifting::new();
    let head = lifting.fixture.files(&["d/x", "d/e/y", "d/e/.env", "f/z"]);
    let policy = agent("RW", &[("**/.env", "none")]);
    let lifted = lifting.lift(&head, &policy, |view| view.remove("d").unwrap()).unwrap();
    assert_eq!(leaves(&lifted), ["d/e/.env", "f/z"]);
    let lifted = lifting.lift(&head, &policy, |view| view.remove("f").unwrap()).unwrap();
    assert!(lifted.entry("f").unwrap().is_none());
}

#[test]
fn renaming_a_directory_leaves_hidden_entries() {
    let lifting = Lifting::new();
    let head = lifting.fixture.files(&["d/x", "d/e/y", "d/e/.env"]);
    let policy = agent("RW", &[("**/.env", "none")]);
    let lifted = lifting.lift(&head, &policy, |view| view.rename("d", "n").unwrap()).unwrap();
    assert_eq!(leaves(&lifted), ["d/e/.env", "n/e/y", "n/x"]);
}

#[test]
fn a_directory_that_is_shown_whole_is_renamed_whole() {
    let lifting = Lifting::new();
    let head = lifting.fixture.files(&["open/d/x", "open/d/y", "secret/z"]);
    let policy = agent("RW", &[("secret/**", "none")]);
    let lifted = lifting.lift(&head, &policy, |view| view.rename("open/d", "open/n").unwrap()).unwrap();
    assert_eq!(leaves(&lifted), ["open/n/x", "open/n/y", "secret/z"]);
}

#[test]
fn attributes_of_hidden_directories_stay() {
    let lifting = Lifting::new();
    let head = lifting.fixture.build(|tree| {
        tree.write("d/x", "1").unwrap();
        tree.put_directory("d", Attributes { mode: 0o700, ..Attributes::default() }).unwrap();
    });
    let policy = agent("RW", &[("d", "none")]);
    let lifted = lifting
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
    let lifting = Lifting::new();
    let head = lifting.fixture.files(&["d/x", "s/.env"]);
    let policy = agent("RW", &[("d", "RW-"), ("**/.env", "none")]);
    let lifted = lifting.lift(&head, &policy, |view| view.remove("d").unwrap()).unwrap();
    assert_eq!(read(&lifted).keys().collect::<Vec<_>>(), ["d", "s", "s/.env"]);
}

#[test]
fn an_entry_that_the_agent_cannot_see_is_not_replaced_or_named() {
    let lifting = Lifting::new();
    let head = lifting.fixture.files(&["d/.env", "x"]);
    let policy = agent("RW", &[("**/.env", "none")]);
    let error = lifting.lift(&head, &policy, |view| view.write("d", "file").unwrap()).err().unwrap();
    assert_eq!(error.to_string(), "`d` cannot be added there: choose another name");

    let head = lifting.fixture.files(&["p", "x"]);
    let policy = agent("RW", &[("p", "none")]);
    let error = lifting.lift(&head, &policy, |view| view.write("p/q", "file").unwrap()).err().unwrap();
    assert!(matches!(error, LiftError::Occupied { .. }), "{error}");
}

#[test]
fn a_hidden_file_in_the_merged_view_is_an_error() {
    let lifting = Lifting::new();
    let head = lifting.fixture.files(&["x"]);
    let policy = agent("RW", &[("secret/**", "none")]);
    let error = lifting.lift(&head, &policy, |view| view.write("secret/a", "1").unwrap()).err().unwrap();
    assert!(matches!(&error, LiftError::NotVisible { path } if path.0 == b"secret/a"), "{error}");
}

#[test]
fn an_agent_that_reads_everything_replaces_the_head() {
    let lifting = Lifting::new();
    let head = lifting.fixture.files(&["a", "b"]);
    let lifted = lifting.lift(&head, &agent("RW", &[]), |view| view.remove("a").unwrap()).unwrap();
    assert_eq!(leaves(&lifted), ["b"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lifting_checked_changes_gives_the_merged_view_and_keeps_hidden_entries(
        head in trees(),
        edits in edits(),
        policy in rules(),
    ) {
        let lifting = Lifting::shared();
        let head = lifting.fixture.build(|tree| apply(tree, &head));
        let head_view = lifting.view(&head, &policy);
        let theirs = lifting.fixture.edit(&head_view, |tree| apply(tree, &edits));
        let merged = lifting.checked(&head_view, theirs, &head_view, &policy);
        match lift(&head, &head_view, &merged, &policy, &lifting.cache) {
            Ok(lifted) => {
                let lifted = lifting.fixture.commit(lifted);
                let target = lifting.view(&merged, &policy);
                prop_assert_eq!(lifting.view(&lifted, &policy).id(), target.id());
                prop_assert_eq!(hidden(&head, &policy), hidden_of(&lifted, &head, &policy));
            }
            Err(LiftError::Occupied { path }) => {
                let path = String::from_utf8(path.0).unwrap();
                let before = read(&head);
                let mut on_the_way = path.match_indices('/').map(|(at, _)| &path[..at]).chain([path.as_str()]);
                prop_assert!(on_the_way.any(|path| before.contains_key(path)), "nothing is at {}", path);
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn completions_land_on_a_head_that_moved(
        first in trees(),
        ours in edits(),
        theirs in edits(),
        policy in rules(),
    ) {
        let lifting = Lifting::shared();
        let first = lifting.fixture.build(|tree| apply(tree, &first));
        let head = lifting.fixture.edit(&first, |tree| apply(tree, &ours));
        let (base, head_view) = (lifting.view(&first, &policy), lifting.view(&head, &policy));
        let theirs = lifting.fixture.edit(&base, |tree| apply(tree, &theirs));
        let theirs = lifting.checked(&base, theirs, &head_view, &policy);
        let options = TreeOptions { rules: policy.merge_rules(), ..TreeOptions::default() };
        // Some combinations of renames with changes of type cannot be merged. Nothing lands then.
        let Ok(merged) = merge_trees(&base, &head_view, &theirs, &options) else { return Ok(()) };
        let merged = lifting.fixture.commit(merged.tree);
        // A merge follows renames, so it can carry a change to a path that the agent may not change.
        let merged = lifting.checked(&head_view, merged, &head_view, &policy);
        match lift(&head, &head_view, &merged, &policy, &lifting.cache) {
            Ok(lifted) => {
                let lifted = lifting.fixture.commit(lifted);
                let target = lifting.view(&merged, &policy);
                prop_assert_eq!(lifting.view(&lifted, &policy).id(), target.id());
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

/// Returns the hidden entries of a tree that another tree has too.
fn hidden_of(tree: &Tree, before: &Tree, policy: &AgentPolicy) -> Vec<(String, Item)> {
    let before = read(before);
    hidden(tree, policy).into_iter().filter(|(path, _)| before.contains_key(path)).collect()
}

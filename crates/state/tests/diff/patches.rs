//! Tests of patches: `git apply` must turn the old tree into the new one.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use workspace_state::{Patch, PatchBody, PatchSections, diff, unified_diff};

use crate::model::{self, Item, Model, ModelStore, insert};

/// Joins a directory of the file system and a path in a tree.
fn join_path(directory: &Path, path: &[u8]) -> PathBuf {
    directory.join(OsStr::from_bytes(path))
}

/// Writes the entries of a model that git supports, files and symlinks, to a directory.
fn write(directory: &Path, model: &Model) {
    for (path, item) in model {
        let file_path = join_path(directory, path);
        match item {
            Item::Directory { .. } => continue,
            _ => fs::create_dir_all(file_path.parent().unwrap()).unwrap(),
        }
        match item {
            Item::File { content, mode } => {
                fs::write(&file_path, content).unwrap();
                fs::set_permissions(&file_path, fs::Permissions::from_mode((*mode).into())).unwrap();
            }
            Item::Symlink(target) => symlink(OsStr::from_bytes(target), &file_path).unwrap(),
            Item::Directory { .. } => {}
        }
    }
}

/// Reads what git supports from `directory`, which is at or below `top`: files with their execute bit, and symlinks.
fn read(top: &Path, directory: &Path, into: &mut Model) {
    for entry in fs::read_dir(directory).unwrap() {
        let file_path = entry.unwrap().path();
        let path = file_path.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
        let metadata = fs::symlink_metadata(&file_path).unwrap();
        if metadata.is_dir() {
            read(top, &file_path, into);
        } else if metadata.is_symlink() {
            let target = fs::read_link(&file_path).unwrap();
            into.insert(path, Item::Symlink(target.as_os_str().as_bytes().to_vec()));
        } else {
            let content = fs::read(&file_path).unwrap();
            let mode = (metadata.permissions().mode() & 0o100) as u16;
            into.insert(path, Item::File { content, mode });
        }
    }
}

/// Returns the part of a model that git supports: files with their execute bit, and symlinks.
fn part_supported_by_git(model: &Model) -> Model {
    let supported = |item: &Item| match item {
        Item::File { content, mode } => Some(Item::File { content: content.clone(), mode: mode & 0o100 }),
        Item::Symlink(target) => Some(Item::Symlink(target.clone())),
        Item::Directory { .. } => None,
    };
    model.iter().filter_map(|(path, item)| Some((path.clone(), supported(item)?))).collect()
}

/// Returns all differences of two trees as one patch.
fn patch(store: &ModelStore, from: &Model, to: &Model, context: usize) -> Vec<u8> {
    let (from, to) = (store.tree(from), store.tree(to));
    let mut out = Vec::new();
    for difference in diff(&from, &to).unwrap() {
        unified_diff(&from, &to, &difference, context).unwrap().write_to(&mut out).unwrap();
    }
    out
}

/// Applies a patch to a directory with git. `context` is the number of context lines in the patch.
fn git_apply(directory: &Path, patch: &[u8], context: usize) -> std::process::Output {
    let mut git = Command::new("git");
    git.arg("apply").args((context == 0).then_some("--unidiff-zero"));
    git.current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    git.env("GIT_CEILING_DIRECTORIES", directory.parent().unwrap());
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("LC_ALL", "C");
    let mut child = git.spawn().expect("these tests need git");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), patch).unwrap();
    child.wait_with_output().unwrap()
}

/// Asserts that git can apply the patch of two trees, and gets the new tree.
#[track_caller]
fn assert_patch_applies(store: &ModelStore, from: &Model, to: &Model, context: usize) {
    let patch = patch(store, from, to, context);
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path().join("checkout");
    fs::create_dir(&top).unwrap();
    write(&top, from);
    if patch.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"diff --git ")) {
        let output = git_apply(&top, &patch, context);
        let (text, error) = (String::from_utf8_lossy(&patch), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{error}\n{text}\nfrom {from:?}");
    }
    let mut result = Model::new();
    read(&top, &top, &mut result);
    assert_eq!(result, part_supported_by_git(to), "{}", String::from_utf8_lossy(&patch));
}

#[test]
fn git_apply_turns_the_old_tree_into_the_new_one() {
    let store = ModelStore::new();
    let config = ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |((from, to) in model::related_pair(16), context in 0usize..5)| {
        assert_patch_applies(&store, &from, &to, context);
    });
}

fn text_file(content: impl Into<Vec<u8>>) -> Item {
    Item::File { content: content.into(), mode: 0o644 }
}

/// Creates a model with these entries and their parent directories.
fn model<const N: usize>(items: [(&str, Item); N]) -> Model {
    let mut model = Model::new();
    for (path, item) in items {
        insert(&mut model, path.as_bytes(), item);
    }
    model
}

/// Returns the patch of two trees as text, with three lines of context.
fn text(store: &ModelStore, from: &Model, to: &Model) -> String {
    String::from_utf8(patch(store, from, to, 3)).unwrap()
}

#[test]
fn long_files_with_distant_changes_apply() {
    let store = ModelStore::new();
    let lines = |edited: &[usize]| -> Item {
        let line = |number: usize| {
            let start = if edited.contains(&number) { "edited" } else { "line" };
            format!("{start} {number}\n")
        };
        text_file((0..500).map(line).collect::<String>())
    };
    for edited in [&[0, 6, 7, 100, 106, 113, 499][..], &[250], &[499], &[0]] {
        let (from, to) = (model([("f", lines(&[]))]), model([("f", lines(edited))]));
        assert_patch_applies(&store, &from, &to, 3);
        assert_patch_applies(&store, &to, &from, 0);
    }
}

#[test]
fn text_that_is_not_utf_8_is_kept() {
    let store = ModelStore::new();
    let from = model([("f", text_file(b"caf\xe9\nsame\xff\n"))]);
    let to = model([("f", text_file(b"caf\xc3\xa9\nsame\xff\n\r"))]);
    assert_patch_applies(&store, &from, &to, 3);
}

#[test]
fn headers_have_the_format_of_git() {
    let store = ModelStore::new();
    let from = model([("a b", text_file("1\n2\n")), ("gone", text_file("x")), ("moved", text_file("m"))]);
    let to = model([
        ("a b", Item::File { content: b"1\n3\n".to_vec(), mode: 0o755 }),
        ("new\n", text_file("")),
        ("to", text_file("m")),
    ]);
    let expected = "\
diff --git a/a b b/a b
old mode 100644
new mode 100755
--- a/a b\t
+++ b/a b\t
@@ -1,2 +1,2 @@
 1
-2
+3
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-x
\\ No newline at end of file
diff --git \"a/new\\n\" \"b/new\\n\"
new file mode 100644
diff --git a/moved b/to
similarity index 100%
rename from moved
rename to to
";
    assert_eq!(text(&store, &from, &to), expected);
}

#[test]
fn changes_that_git_cannot_express_are_lines_between_patches() {
    let store = ModelStore::new();
    let private = Item::File { content: b"x".to_vec(), mode: 0o600 };
    let from =
        model([("d", Item::Directory { mode: 0o755 }), ("f", text_file("x")), ("g", text_file("1\n"))]);
    let to = model([("d", Item::Directory { mode: 0o700 }), ("f", private), ("g", text_file("2\n"))]);
    let text = text(&store, &from, &to);
    assert!(
        text.starts_with(" mode change 0755 => 0700 d\n mode change 0644 => 0600 f\ndiff --git a/g b/g\n"),
        "{text}"
    );
    assert_patch_applies(&store, &from, &to, 3);
}

#[test]
fn binary_and_large_files_are_noted_and_not_printed() {
    let store = ModelStore::new();
    let large = |last: u8| {
        let mut content = b"line\n".repeat(2 << 20);
        content.push(last);
        text_file(content)
    };
    let from = model([("b", text_file("text")), ("l", large(b'1'))]);
    let to = model([("b", text_file("\0")), ("l", large(b'2')), ("n", text_file("\0new"))]);
    let expected = "\
diff --git a/b b/b
Binary files a/b and b/b differ
diff --git a/l b/l
Large files a/l and b/l differ
diff --git a/n b/n
new file mode 100644
Binary files /dev/null and b/n differ
";
    assert_eq!(text(&store, &from, &to), expected);
    let (from, to) = (store.tree(&from), store.tree(&to));
    let bodies = diff(&from, &to).unwrap();
    let bodies =
        bodies.iter().flat_map(|difference| unified_diff(&from, &to, difference, 3).unwrap().sections);
    let bodies: Vec<_> = bodies.map(|section| section.body).collect();
    assert!(matches!(bodies[..], [PatchBody::Binary(_), PatchBody::TooLarge(_), PatchBody::Binary(_)]));
}

#[test]
fn a_binary_file_of_which_only_the_mode_changed_applies() {
    let store = ModelStore::new();
    let binary = |mode| Item::File { content: b"\0".to_vec(), mode };
    assert_patch_applies(&store, &model([("b", binary(0o644))]), &model([("b", binary(0o755))]), 3);
    assert_patch_applies(&store, &model([("b", binary(0o644))]), &model([("c", binary(0o755))]), 3);
}

#[test]
fn a_renamed_directory_is_a_rename_of_each_file() {
    let store = ModelStore::new();
    let from =
        model([("d/x/f", text_file("1")), ("d/l", Item::Symlink(b"x/f".to_vec())), ("d/e", text_file(""))]);
    let to =
        model([("n/x/f", text_file("1")), ("n/l", Item::Symlink(b"x/f".to_vec())), ("n/e", text_file(""))]);
    assert_patch_applies(&store, &from, &to, 3);
    assert_eq!(text(&store, &from, &to).matches("rename from d/").count(), 3);
}

#[test]
fn files_of_a_large_renamed_directory_come_one_at_a_time_and_in_order() {
    let store = ModelStore::new();
    let files = |top: &str| -> Model {
        let mut model = Model::new();
        for n in 0..700 {
            insert(&mut model, format!("{top}/{n:03}").as_bytes(), text_file("same"));
        }
        model
    };
    let (from, to) = (store.tree(&files("old")), store.tree(&files("new")));
    let differences = diff(&from, &to).unwrap();
    assert_eq!(differences.len(), 1, "a rename of the directory");
    let mut sections = PatchSections::new(&from, &to, differences[0].clone(), 3);
    for n in 0..700 {
        let section = sections.next().unwrap().unwrap();
        assert!(section.header.ends_with(&format!("rename to new/{n:03}\n")), "{n}: {}", section.header);
    }
    assert!(sections.next().is_none());
    assert_eq!(sections.compared(), 0, "equal files are not read");
}

#[test]
fn an_added_directory_alone_gives_an_empty_patch() {
    assert!(Patch::default().to_bytes().is_empty());
    let store = ModelStore::new();
    let from = model([("d", Item::Directory { mode: 0o755 })]);
    assert_eq!(text(&store, &Model::new(), &from), "");
}

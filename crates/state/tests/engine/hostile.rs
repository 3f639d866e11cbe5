//! Tests with hostile trees and directories: impossible names, symlinks, deep trees, inaccessible directories. They are
//! refused, or cannot affect files outside of the directory.
//!
//! A *role* is a function that a child process runs (`child.rs`). A *failpoint*, set as `NAME=ACTION@VISIT`, is a named
//! place in the source at which a test kills, stops or pauses the child, or lets a write fail.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use workspace_state::testing::{RawEntry, RawTree, commit_nested};
use workspace_state::{
    Attributes, CheckoutOptions, DifferenceKind, DirectoryError, NoProgress, SkipReason, Snapshot,
    SnapshotOptions, Store, StoreError, Timestamp, Tree, TreeError, checkout, diff, insight, materialize,
    snapshot_directory,
};

use crate::child::{ChildProcess, as_role, say, text};
use crate::directory::{check_out, describe, snapshot};
use crate::support::{assert_sound, collect, is_full_run, message, new_store};

fn forced() -> CheckoutOptions {
    CheckoutOptions { force: true, ..CheckoutOptions::default() }
}

/// Names that would lead out of a directory, or that no file can have.
const BAD_NAMES: &[&[u8]] =
    &[b"", b".", b"..", b"/", b"a/b", b"../x", b"/etc/passwd", b"a/../../x", b"x\0y", b"\0", b"a/", b"./a"];

#[test]
fn no_operation_decodes_a_stored_tree_with_an_impossible_name() {
    let (home, store) = new_store();
    let outside = home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let long = [b'n'; 256];
    for name in BAD_NAMES.iter().copied().chain([&long[..]]) {
        let raw = RawTree::new().with(name, RawEntry::File(b"owned".to_vec()));
        let snapshot = raw.commit(&store).unwrap();
        let error = Tree::of_snapshot(&store, &snapshot).err().expect("a bad name was decoded");
        assert!(
            matches!(error, StoreError::Undecodable { .. }) && error.is_corruption(),
            "{name:?}: {error}"
        );
        let tree = store.restore(&snapshot.id).unwrap();
        assert!(tree.list("").is_err() && tree.read("x").is_err());
        let out = home.path().join("out");
        for options in [CheckoutOptions::default(), forced()] {
            let error = checkout(&store, &snapshot, &out, &options, &NoProgress).unwrap_err();
            assert!(matches!(error, DirectoryError::Store(StoreError::Undecodable { .. })), "{error}");
        }
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "something was written for {name:?}");
        let report = store.verify(&NoProgress).unwrap();
        assert!(report.damage.iter().any(|damage| damage.snapshot == Some(snapshot.id)));
        store.remove_snapshots(&[snapshot.id]).unwrap();
    }
    assert_eq!(names(home.path()), ["out", "outside", "store"]);
    assert_sound(&store);
}

/// Returns the names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_tree_with_repeated_or_unsorted_entries_is_not_decoded() {
    let (home, store) = new_store();
    let file = || RawEntry::File(b"x".to_vec());
    for raw in [
        RawTree::new().with(b"a", RawEntry::Symlink(b"/tmp".to_vec())).with(b"a", file()),
        RawTree::new().with(b"b", file()).with(b"a", file()),
    ] {
        let snapshot = raw.commit(&store).unwrap();
        assert!(Tree::of_snapshot(&store, &snapshot).is_err());
        check_out(&store, &snapshot, &home.path().join("out")).unwrap_err();
    }
    assert!(names(&home.path().join("out")).is_empty());
}

#[test]
fn impossible_symlink_targets_are_refused() {
    let (home, store) = new_store();
    for target in [&b""[..], b"a\0b", &[b'x'; 4096]] {
        let snapshot =
            RawTree::new().with(b"link", RawEntry::Symlink(target.to_vec())).commit(&store).unwrap();
        let tree = Tree::of_snapshot(&store, &snapshot).unwrap();
        assert!(tree.entry("link").is_err());
        check_out(&store, &snapshot, &home.path().join("out")).unwrap_err();
        assert!(store.empty_tree().unwrap().symlink("link", target).is_err());
    }
    assert!(names(&home.path().join("out")).is_empty());
}

#[test]
fn a_virtual_tree_refuses_paths_that_lead_out_of_it() {
    let (_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    tree.write("there", "x").unwrap();
    let before = tree.tree_id().unwrap();
    let long = "n".repeat(256);
    for path in ["..", "../x", "a/../../x", "a/..", "x\0y", "", "/", ".", long.as_str()] {
        assert!(tree.write(path, "x").is_err(), "{path:?}");
        assert!(tree.symlink(path, "x").is_err(), "{path:?}");
        assert!(tree.rename("there", path).is_err(), "{path:?}");
        assert!(tree.remove(path).is_err(), "{path:?}");
    }
    for path in ["..", "a/..", "x\0y", long.as_str()] {
        let error = tree.mkdir(path).unwrap_err();
        assert!(matches!(error, TreeError::BadPath { .. }), "{error}");
    }
    for target in ["", "x\0y", "t".repeat(4_096).as_str()] {
        let error = tree.symlink("link", target).unwrap_err();
        assert!(matches!(error, TreeError::BadTarget { .. }), "{error}");
    }
    assert_eq!(tree.tree_id().unwrap(), before);
    // An absolute path starts at the root of the tree.
    tree.write("/etc/passwd", "mine").unwrap();
    assert_eq!(tree.read("etc/passwd").unwrap(), b"mine");
}

/// Commits two snapshots: `a` is a symlink to `outside` in the first one, and a directory with a file in the second
/// one.
fn link_then_directory(store: &Store, outside: &Path) -> (Snapshot, Snapshot) {
    let mut tree = store.empty_tree().unwrap();
    tree.symlink("a", text(outside)).unwrap();
    tree.symlink("deep/er/a", text(outside)).unwrap();
    let first = tree.commit(message("links")).unwrap();
    for path in ["a", "deep/er/a"] {
        tree.remove(path).unwrap();
        tree.write(format!("{path}/file"), "inside").unwrap();
    }
    let second = tree.commit(message("directories")).unwrap();
    (first, second)
}

#[test]
fn a_directory_that_replaces_a_symlink_is_written_inside() {
    let (home, store) = new_store();
    let (outside, out) = (home.path().join("outside"), home.path().join("out"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "precious").unwrap();
    let (first, second) = link_then_directory(&store, &outside);
    for _ in 0..2 {
        check_out(&store, &first, &out).unwrap();
        assert!(fs::symlink_metadata(out.join("a")).unwrap().is_symlink());
        check_out(&store, &second, &out).unwrap();
        assert_eq!(fs::read(out.join("a/file")).unwrap(), b"inside");
        assert_eq!(fs::read(out.join("deep/er/a/file")).unwrap(), b"inside");
    }
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"precious");
    assert_eq!(names(&outside), ["file"]);
}

#[test]
fn a_checkout_never_follows_a_symlink_that_replaced_a_directory() {
    let (home, store) = new_store();
    let outside = home.path().join("outside");
    let mut tree = store.empty_tree().unwrap();
    for path in ["d/keep", "d/sub/change", "d/sub/gone", "top"] {
        tree.write(path, "first").unwrap();
    }
    let first = tree.commit(message("first")).unwrap();
    tree.write("d/sub/change", "second").unwrap();
    tree.write("d/sub/new", "second").unwrap();
    tree.remove("d/sub/gone").unwrap();
    let second = tree.commit(message("second")).unwrap();
    for (number, replaced) in ["d", "d/sub"].into_iter().enumerate() {
        for force in [false, true] {
            drop(fs::remove_dir_all(&outside));
            fs::create_dir_all(outside.join("sub")).unwrap();
            for path in ["change", "gone", "keep", "sub/change", "sub/gone"] {
                fs::write(outside.join(path), "precious").unwrap();
            }
            let precious = describe(&outside);
            let out = home.path().join(format!("out{number}{force}"));
            check_out(&store, &first, &out).unwrap();
            fs::remove_dir_all(out.join(replaced)).unwrap();
            symlink(&outside, out.join(replaced)).unwrap();
            let options = CheckoutOptions { force, ..CheckoutOptions::default() };
            let result = checkout(&store, &second, &out, &options, &NoProgress);
            assert_eq!(describe(&outside), precious, "written through {replaced}, force {force}");
            if force {
                result.unwrap();
                assert_eq!(fs::read(out.join("d/sub/change")).unwrap(), b"second");
                assert!(!out.join("d/sub/gone").exists());
                assert!(fs::symlink_metadata(out.join(replaced)).unwrap().is_dir());
            } else {
                let error = result.unwrap_err();
                let DirectoryError::LocalEdits { paths, .. } = &error else { panic!("{error}") };
                assert_eq!(paths, &[PathBuf::from(replaced)]);
            }
        }
    }
}

#[test]
fn a_snapshot_of_a_directory_never_follows_a_symlink() {
    let (home, store) = new_store();
    let (work, outside) = (home.path().join("work"), home.path().join("outside"));
    fs::create_dir_all(&work).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, work.join("link")).unwrap();
    symlink(outside.join("secret"), work.join("file-link")).unwrap();
    symlink("/proc/self/environ", work.join("magic")).unwrap();
    let report = snapshot(&store, &work);
    assert_eq!((report.files, report.directories, report.symlinks), (0, 0, 3));
}

/// Another thread replaces a file with a symlink, and back, while snapshots are taken.
#[test]
fn a_snapshot_never_follows_a_symlink_that_replaces_a_file_concurrently() {
    let (home, store) = new_store();
    let (work, secret) = (home.path().join("work"), home.path().join("secret"));
    fs::create_dir(&work).unwrap();
    fs::write(&secret, "secret").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                fs::write(work.join("new"), "public").unwrap();
                fs::rename(work.join("new"), work.join("file")).unwrap();
                symlink(&secret, work.join("new")).unwrap();
                fs::rename(work.join("new"), work.join("file")).unwrap();
            }
        });
        for _ in 0..if is_full_run() { 300 } else { 20 } {
            let report = snapshot(&store, &work);
            let tree = store.restore(&report.snapshot.id).unwrap();
            if let Ok(content) = tree.read("file") {
                assert_eq!(content, b"public");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Another thread replaces a directory with a symlink, and back, while a checkout writes into the directory.
#[test]
fn a_checkout_never_follows_a_symlink_that_replaces_a_directory_concurrently() {
    let (home, store) = new_store();
    let (out, outside) = (home.path().join("out"), home.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    let mut tree = store.empty_tree().unwrap();
    for number in 0..40 {
        tree.write(format!("d/f{number:02}"), "first").unwrap();
    }
    let first = tree.commit(message("first")).unwrap();
    for number in 0..40 {
        tree.write(format!("d/f{number:02}"), "second").unwrap();
    }
    let second = tree.commit(message("second")).unwrap();
    check_out(&store, &first, &out).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                if fs::rename(out.join("d"), out.join("moved")).is_ok() {
                    drop(symlink(&outside, out.join("d")));
                    drop(fs::remove_file(out.join("d")));
                    drop(fs::rename(out.join("moved"), out.join("d")));
                }
            }
        });
        for round in 0..if is_full_run() { 300 } else { 20 } {
            let target = if round % 2 == 0 { &second } else { &first };
            // Any error is acceptable; writing outside is not.
            drop(checkout(&store, target, &out, &forced(), &NoProgress));
            assert!(names(&outside).is_empty(), "a checkout wrote outside");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn colliding_names_are_reported() {
    let home = tempfile::tempdir().unwrap();
    let disk = home.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let Some(_mounted) = CaseFolding::mount(home.path(), &disk) else {
        // This kernel does not support case folding. A file that is created meanwhile gives the same error.
        return assert_collision_with_a_new_file();
    };
    let (_store_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    tree.write("d/README", "one").unwrap();
    tree.write("d/readme", "two").unwrap();
    let snapshot = tree.commit(message("both")).unwrap();
    let error = check_out(&store, &snapshot, &disk.join("out")).unwrap_err();
    assert!(matches!(error, DirectoryError::Collision { .. }), "{error}");
}

/// Mounted ext4 image with a case-insensitive directory `out`; unmounted when it is dropped.
struct CaseFolding(PathBuf);

impl CaseFolding {
    /// Creates and mounts the image. Returns `None` if that is not supported or not permitted.
    fn mount(home: &Path, mount_point: &Path) -> Option<Self> {
        let run = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let image = home.join("image");
        fs::File::create(&image).ok()?.set_len(16 << 20).ok()?;
        let is_created =
            run(Command::new("mkfs.ext4").args(["-q", "-O", "casefold", "-E", "encoding=utf8"]).arg(&image));
        if !is_created || !run(Command::new("mount").arg("-o").arg("loop").arg(&image).arg(mount_point)) {
            return None;
        }
        let mounted = Self(mount_point.to_owned());
        let out = mount_point.join("out");
        fs::create_dir(&out).ok()?;
        run(Command::new("chattr").arg("+F").arg(&out)).then_some(mounted)
    }
}

impl Drop for CaseFolding {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(&self.0).status());
    }
}

/// Asserts that a checkout reports a collision if a file does not exist when the checkout looks, but exists when the
/// checkout creates it.
fn assert_collision_with_a_new_file() {
    let (home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    tree.write("file", "x").unwrap();
    let snapshot = tree.commit(message("one")).unwrap();
    let out = home.path().join("out");
    let arguments = [text(store.path()), &snapshot.id.to_string(), text(&out), ""];
    let child = ChildProcess::start_failing("check-out", &arguments, "checkout-file=stop");
    child.wait_until_stopped();
    fs::write(out.join("file"), "mine").unwrap();
    child.signal(Signal::CONT);
    let output = child.finish();
    assert!(output.stderr.contains("Collision"), "{}", output.stderr);
    assert_eq!(fs::read(out.join("file")).unwrap(), b"mine", "what was in the way was replaced");
}

#[test]
fn a_file_with_the_name_of_a_temporary_file_is_kept() {
    let (home, store) = new_store();
    let out = home.path().join("out");
    let mut tree = store.empty_tree().unwrap();
    tree.write("d/.workspace-new-1-2", "a file").unwrap();
    tree.write("d/other", "first").unwrap();
    let first = tree.commit(message("first")).unwrap();
    tree.write("d/other", "second").unwrap();
    let second = tree.commit(message("second")).unwrap();
    for snapshot in [&first, &second, &first] {
        check_out(&store, snapshot, &out).unwrap();
        assert_eq!(fs::read(out.join("d/.workspace-new-1-2")).unwrap(), b"a file");
    }
}

#[test]
fn names_of_the_maximum_length_are_kept() {
    let (home, store) = new_store();
    let (work, out) = (home.path().join("work"), home.path().join("out"));
    fs::create_dir(&work).unwrap();
    let long = "é".repeat(127) + "x";
    assert_eq!(long.len(), 255);
    fs::create_dir(work.join(&long)).unwrap();
    fs::write(work.join(&long).join(&long), "long").unwrap();
    symlink(&long, work.join("link")).unwrap();
    let snapshot = snapshot(&store, &work).snapshot;
    check_out(&store, &snapshot, &out).unwrap();
    assert_eq!(describe(&out), describe(&work));
}

/// Creates `depth` nested directories with a file in the innermost one. Uses no path that is too long for the kernel.
fn deep_directory(top: &Path, depth: usize) {
    fs::create_dir_all(top).unwrap();
    let mut fd = rustix::fs::open(top, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&fd, "directory", rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY;
        fd = rustix::fs::openat(&fd, "directory", flags, rustix::fs::Mode::empty()).unwrap();
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let file = rustix::fs::openat(&fd, "bottom", flags, rustix::fs::Mode::RUSR).unwrap();
    rustix::io::write(&file, b"reached").unwrap();
}

#[test]
fn a_thousand_levels_of_directories_are_kept() {
    let (home, store) = new_store();
    let (work, out) = (home.path().join("work"), home.path().join("out"));
    deep_directory(&work, 1000);
    let report = snapshot(&store, &work);
    assert_eq!((report.files, report.directories), (1, 1000));
    let path = "directory/".repeat(1000) + "bottom";
    let mut tree = store.restore(&report.snapshot.id).unwrap();
    assert_eq!(tree.read(&path).unwrap(), b"reached");
    tree.write(&path, "changed").unwrap();
    let changed = tree.commit(message("changed")).unwrap();
    drop(tree);
    let trees = [&report.snapshot, &changed].map(|snapshot| Tree::of_snapshot(&store, snapshot).unwrap());
    let differences = diff(&trees[0], &trees[1]).unwrap();
    assert_eq!(differences.len(), 1);
    assert_eq!(differences[0].path, path.as_bytes());
    assert!(matches!(differences[0].kind, DifferenceKind::Modified));
    drop(trees);
    check_out(&store, &report.snapshot, &out).unwrap();
    check_out(&store, &changed, &out).unwrap();
    assert_eq!(snapshot(&store, &out).snapshot.tree, changed.tree);
    collect(&store);
    assert_sound(&store);
    // `tempfile` cannot remove these directories, because their paths are too long.
    for directory in [&work, &out] {
        assert!(Command::new("rm").arg("-rf").arg(directory).status().unwrap().success());
    }
}

#[test]
fn a_tree_deeper_than_the_limit_is_refused_everywhere() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    deep_directory(&work, 1025);
    let error = snapshot_directory(&store, &work, SnapshotOptions::default(), &NoProgress).unwrap_err();
    assert!(matches!(error, DirectoryError::TooDeep { .. }), "{error}");
    assert!(Command::new("rm").arg("-rf").arg(&work).status().unwrap().success());
    let mut tree = store.empty_tree().unwrap();
    let deep = "d/".repeat(1024) + "file";
    let error = tree.write(&deep, "x").unwrap_err();
    assert!(matches!(error, TreeError::TooDeep { .. }), "{error}");
    // The path is shortened in the message.
    let message_text = error.to_string();
    assert!(
        message_text.len() < 500 && message_text.contains("d/file") && message_text.contains("1024"),
        "{message_text}"
    );
    // A stored tree that is too deep is detected when it is checked out.
    let half = "d/".repeat(600) + "file";
    tree.write(&half, "x").unwrap();
    let first = tree.commit(message("half")).unwrap();
    let deep = commit_nested(&store, &first, 600).unwrap();
    let error = check_out(&store, &deep, &home.path().join("out")).unwrap_err();
    assert!(matches!(error, DirectoryError::TooDeep { .. }), "{error}");
    assert!(Command::new("rm").arg("-rf").arg(home.path().join("out")).status().unwrap().success());
    // The stack does not overflow at any depth.
    let last = commit_nested(&store, &deep, 20_000).unwrap();
    let entry = Tree::of_snapshot(&store, &last).unwrap().entry("d").unwrap().unwrap();
    let error = store.empty_tree().unwrap().graft("d/d", &entry, "d").unwrap_err();
    assert!(matches!(error, TreeError::TooDeep { .. }), "{error}");
    let trees = [&first, &last].map(|snapshot| Tree::of_snapshot(&store, snapshot).unwrap());
    drop(diff(&trees[0], &trees[1]));
    drop(diff(&trees[1], &trees[0]));
    drop(trees);
    store.verify(&NoProgress).unwrap();
    collect(&store);
    let all: Vec<_> = store.snapshots().unwrap().iter().map(|snapshot| snapshot.id).collect();
    store.remove_snapshots(&all).unwrap();
    collect(&store);
    assert_sound(&store);
}

#[test]
fn a_directory_without_times_is_not_checked_out_as_empty() {
    let (home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    tree.write("file", "x").unwrap();
    let inner = tree.commit(message("inner")).unwrap();
    let raw = RawTree::new().with(b"d", RawEntry::Directory(inner.tree)).commit(&store).unwrap();
    let restored = store.restore(&raw.id).unwrap();
    let listed: Vec<_> = restored.list("d").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!((listed, restored.read("d/file").unwrap()), (vec![b"file".to_vec()], b"x".to_vec()));
    let out = home.path().join("out");
    for options in [CheckoutOptions::default(), forced()] {
        let error = checkout(&store, &raw, &out, &options, &NoProgress).unwrap_err();
        assert!(matches!(error, DirectoryError::Store(StoreError::Refused(_))), "{error}");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    }
    let without_times = Tree::open(&store, inner.tree, None).unwrap();
    let error = materialize(&without_times, &out, &CheckoutOptions::default(), &NoProgress).unwrap_err();
    assert!(matches!(error, DirectoryError::Store(StoreError::Refused(_))), "{error}");
}

#[test]
fn a_directory_is_not_moved_if_its_entries_would_be_too_deep() {
    let (_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    // The file has 601 names, of which `d` is the first.
    tree.write("d/".repeat(600) + "file", "x").unwrap();
    tree.write("d/short", "x").unwrap();
    let first = tree.commit(message("half")).unwrap();
    let below = |levels: usize| "e/".repeat(levels) + "d";
    let entry = Tree::of_snapshot(&store, &first).unwrap().entry("d").unwrap().unwrap();
    let mut grafted = store.empty_tree().unwrap();
    let error = grafted.graft(below(424), &entry, "d").unwrap_err();
    assert!(matches!(error, TreeError::TooDeep { .. }), "{error}");
    grafted.graft(below(423), &entry, "d").unwrap();
    let stored = store.restore(&first.id).unwrap();
    // `d` is changed in memory, but its deepest entry is in the store.
    let mut changed = stored.clone();
    changed.write("d/d/d/new", "x").unwrap();
    // All of `d` is in memory.
    let mut new = store.empty_tree().unwrap();
    new.write("d/".repeat(600) + "file", "x").unwrap();
    for mut tree in [stored, changed, new] {
        let before = tree.tree_id().unwrap();
        let error = tree.rename("d", below(424)).unwrap_err();
        assert!(matches!(error, TreeError::TooDeep { .. }), "{error}");
        assert_eq!(tree.tree_id().unwrap(), before);
        tree.rename("d", below(423)).unwrap();
        tree.rename(below(423), "d").unwrap();
        // An entry that was removed does not count.
        tree.remove("d/".repeat(600) + "file").unwrap();
        tree.rename("d", below(424)).unwrap();
        let deep = tree.commit(message("deep")).unwrap();
        assert!(store.restore(&deep.id).unwrap().exists(below(424)).unwrap());
    }
    assert_sound(&store);
}

#[test]
fn a_directory_with_a_hundred_thousand_entries_is_kept() {
    let (home, store) = new_store();
    let count = if is_full_run() { 100_000 } else { 20_000 };
    let mut tree = store.empty_tree().unwrap();
    for number in 0..count {
        tree.write(format!("many/{number:06}"), "same").unwrap();
    }
    let all = tree.commit(message("all")).unwrap();
    tree.remove("many/001234").unwrap();
    tree.write("many/new", "new").unwrap();
    let changed = tree.commit(message("changed")).unwrap();
    let trees = [&all, &changed].map(|snapshot| Tree::of_snapshot(&store, snapshot).unwrap());
    assert_eq!(diff(&trees[0], &trees[1]).unwrap().len(), 2);
    drop(trees);
    let out = home.path().join("out");
    check_out(&store, &all, &out).unwrap();
    check_out(&store, &changed, &out).unwrap();
    assert_eq!(fs::read_dir(out.join("many")).unwrap().count(), count);
    assert_eq!(snapshot(&store, &out).snapshot.tree, changed.tree);
    assert_sound(&store);
}

#[test]
fn set_id_bits_are_kept_in_the_tree_and_dropped_on_checkout_by_default() {
    let (home, store) = new_store();
    let (work, out) = (home.path().join("work"), home.path().join("out"));
    fs::create_dir_all(work.join("shared")).unwrap();
    fs::write(work.join("tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(work.join("tool"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::set_permissions(work.join("shared"), fs::Permissions::from_mode(0o2775)).unwrap();
    let snapshot = snapshot(&store, &work).snapshot;
    assert_eq!(store.restore(&snapshot.id).unwrap().stat("tool").unwrap().mode, 0o6755);
    let mode = |path: &str| fs::metadata(out.join(path)).unwrap().mode() & 0o7777;
    check_out(&store, &snapshot, &out).unwrap();
    assert_eq!((mode("tool"), mode("shared")), (0o755, 0o775));
    fs::remove_dir_all(&out).unwrap();
    let keep = CheckoutOptions { keep_set_id: true, force: true, ..CheckoutOptions::default() };
    checkout(&store, &snapshot, &out, &keep, &NoProgress).unwrap();
    assert_eq!((mode("tool"), mode("shared")), (0o6755, 0o2775));
}

/// Role, as an ordinary user: takes a snapshot of a directory with unreadable parts.
pub(crate) fn snapshot_unreadable(arguments: &[&str]) {
    let [home] = arguments else { panic!("directory") };
    let home = Path::new(home);
    assert!(!rustix::process::geteuid().is_root());
    let work = home.join("work");
    for directory in ["closed", "no-search", "open"] {
        fs::create_dir_all(work.join(directory)).unwrap();
        fs::write(work.join(directory).join("file"), "x").unwrap();
    }
    fs::write(work.join("secret"), "x").unwrap();
    let set =
        |path: &str, mode| fs::set_permissions(work.join(path), fs::Permissions::from_mode(mode)).unwrap();
    set("secret", 0o000);
    set("closed", 0o000);
    set("no-search", 0o600);
    let store = Store::open_or_create(home.join("store")).unwrap();
    let report = snapshot_directory(&store, &work, SnapshotOptions::default(), &NoProgress).unwrap();
    let skipped: Vec<String> =
        report.skipped.iter().map(|skipped| skipped.path.to_string_lossy().into_owned()).collect();
    assert_eq!(skipped, ["closed", "no-search/file", "secret"]);
    for skipped in &report.skipped {
        assert!(skipped.reason == SkipReason::NoPermission && skipped.reason.is_loss(), "{skipped:?}");
    }
    assert_eq!(report.files, 1);
    // A tree whose modes deny access to the owner can be checked out, and another tree afterwards.
    let mut tree = store.empty_tree().unwrap();
    tree.write("closed/deeper/file", "first").unwrap();
    tree.write("locked", "first").unwrap();
    for path in ["closed/deeper", "closed", "locked"] {
        tree.chmod(path, 0).unwrap();
    }
    let first = tree.commit(message("first")).unwrap();
    tree.write("closed/deeper/file", "second").unwrap();
    tree.chmod("locked", 0o400).unwrap();
    let second = tree.commit(message("second")).unwrap();
    let out = home.join("out");
    for snapshot in [&first, &second, &first] {
        check_out(&store, snapshot, &out).unwrap();
    }
    let mode = |path: &str| fs::metadata(out.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("closed"), mode("locked")), (0, 0));
    for path in
        [&out.join("closed"), &out.join("closed/deeper"), &work.join("closed"), &work.join("no-search")]
    {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    assert_eq!(fs::read(out.join("closed/deeper/file")).unwrap(), b"first");
    say("done");
}

/// Returns the command that runs a role as an ordinary user. `home` is the argument of the role.
fn as_ordinary_user(role: &str, home: &Path) -> Command {
    set_mode(home, 0o777);
    // An ordinary user may not be able to execute the test program in its original directory.
    let program = home.join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        command
    } else {
        Command::new(&program)
    };
    as_role(command, role, &[text(home)])
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs the command of a role, which must succeed.
#[track_caller]
fn assert_role_succeeds(command: Command) {
    let output = ChildProcess::run(command).finish();
    output.assert_success();
    assert_eq!(output.lines, ["done"]);
}

#[test]
fn a_snapshot_reports_unreadable_files_and_succeeds() {
    let home = tempfile::tempdir().unwrap();
    assert_role_succeeds(as_ordinary_user("snapshot-unreadable", home.path()));
}

/// Commits files with the same content in directories with the same mode. If `link_label` is set, the files are hard
/// links to one file.
fn commit_in_directories(
    store: &Store,
    directories: &[&str],
    mode: u16,
    files: &[&str],
    content: &str,
    link_label: Option<u64>,
) -> Snapshot {
    let mut tree = store.empty_tree().unwrap();
    let modified = Some(Timestamp(1_000_000_000_000_000_000));
    for path in files {
        let attributes = Attributes { mode: 0o644, link_label, modified, ..Attributes::default() };
        tree.put_file(path, &mut content.as_bytes(), attributes).unwrap();
    }
    for path in directories {
        tree.put_directory(path, Attributes { mode, modified, ..Attributes::default() }).unwrap();
    }
    tree.commit(message(content)).unwrap()
}

/// Role, as an ordinary user: creates hard links below directories that deny access to their owner.
pub(crate) fn link_in_inaccessible_directories(arguments: &[&str]) {
    let [home] = arguments else { panic!("directory") };
    let home = Path::new(home);
    let store = Store::open_or_create(home.join("store")).unwrap();
    for mode in [0o755, 0o555, 0o600, 0o300, 0o000] {
        for link_label in [None, Some(7)] {
            let out = home.join(format!("out-{mode:o}-{}", link_label.is_some()));
            for (files, content) in [
                (&["p/q/a", "p/q/b"][..], "one"),
                (&["p/q/a", "p/q/b", "p/q/c"], "one"),
                (&["p/q/a", "p/q/b"], "two"),
            ] {
                let snapshot = commit_in_directories(&store, &["p/q", "p"], mode, files, content, link_label);
                check_out(&store, &snapshot, &out).unwrap();
                assert_linked(&out, &["p", "p/q"], mode, files, content, link_label);
            }
        }
    }
    say("done");
}

/// Role, as an ordinary user: creates hard links in two directories that cannot be listed.
pub(crate) fn link_between_unlisted_directories(arguments: &[&str]) {
    let [home] = arguments else { panic!("directory") };
    let home = Path::new(home);
    let store = Store::open_or_create(home.join("store")).unwrap();
    let (directories, files, out) = (["p1", "p2"], ["p1/a", "p2/b"], home.join("out"));
    for content in ["one", "two"] {
        let snapshot = commit_in_directories(&store, &directories, 0o300, &files, content, Some(7));
        check_out(&store, &snapshot, &out).unwrap();
        assert_linked(&out, &directories, 0o300, &files, content, Some(7));
    }
    say("done");
}

/// Asserts that directories (parents first) have this mode and the expected time, and that files have this content and,
/// with a link label, are hard links to one file.
#[track_caller]
fn assert_linked(
    out: &Path,
    directories: &[&str],
    mode: u16,
    files: &[&str],
    content: &str,
    link_label: Option<u64>,
) {
    for path in directories {
        let found = fs::metadata(out.join(path)).unwrap();
        assert_eq!((found.mode() & 0o7777, found.mtime()), (u32::from(mode), 1_000_000_000), "{path}");
        set_mode(&out.join(path), 0o700);
    }
    let link_count = if link_label.is_some() { files.len() as u64 } else { 1 };
    for path in files {
        assert_eq!(fs::read_to_string(out.join(path)).unwrap(), content);
        assert_eq!(fs::metadata(out.join(path)).unwrap().nlink(), link_count, "{path} of mode {mode:o}");
    }
    for path in directories.iter().rev() {
        set_mode(&out.join(path), u32::from(mode));
    }
}

#[test]
fn hard_links_in_inaccessible_directories_are_kept() {
    let home = tempfile::tempdir().unwrap();
    assert_role_succeeds(as_ordinary_user("link-in-inaccessible-directories", home.path()));
}

#[test]
fn hard_links_between_directories_that_cannot_be_listed_are_kept() {
    let home = tempfile::tempdir().unwrap();
    assert_role_succeeds(as_ordinary_user("link-between-unlisted-directories", home.path()));
}

/// Role, as an ordinary user: checks out one snapshot and then another one. A test may kill it before the end.
pub(crate) fn check_out_two(arguments: &[&str]) {
    let [home] = arguments else { panic!("directory") };
    let home = Path::new(home);
    let store = Store::open_or_create(home.join("store")).unwrap();
    for content in ["one", "two"] {
        let snapshot = commit_in_directories(&store, &["p/q", "p"], 0, &["p/q/file"], content, None);
        check_out(&store, &snapshot, &home.join("out")).unwrap();
    }
    say("done");
}

/// Returns the temporary files of a killed checkout in a directory.
fn temporary_files(directory: &Path) -> Vec<std::ffi::OsString> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().starts_with(".workspace-new-")).collect()
}

#[test]
fn temporary_files_of_a_killed_checkout_are_removed_from_inaccessible_directories() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("out");
    let (inaccessible, of_root) = (out.join("p/q"), out.join("of-root"));
    let mut killed = as_ordinary_user("check-out-two", home.path());
    killed.env("WORKSPACE_FAILPOINT", "checkout-named=kill@1");
    ChildProcess::run(killed).finish().assert_killed();
    let temporary = temporary_files(&inaccessible);
    assert_eq!(temporary.len(), 1);
    for path in ["p/q", "p"] {
        set_mode(&out.join(path), 0);
    }
    // The temporary file in a directory that only root can read stays, until root runs a checkout.
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        fs::create_dir(&of_root).unwrap();
        set_mode(&of_root, 0o700);
        fs::write(of_root.join(&temporary[0]), "left").unwrap();
    }
    assert_role_succeeds(as_ordinary_user("check-out-two", home.path()));
    if is_root {
        assert_eq!(temporary_files(&of_root).len(), 1);
        check_out_two(&[text(home.path())]);
        assert!(temporary_files(&of_root).is_empty());
    }
    for path in ["p", "p/q"] {
        assert_eq!(fs::metadata(out.join(path)).unwrap().mode() & 0o7777, 0);
        set_mode(&out.join(path), 0o700);
    }
    assert!(temporary_files(&inaccessible).is_empty());
    assert_eq!(fs::read_to_string(inaccessible.join("file")).unwrap(), "two");
}

#[test]
fn files_with_equal_link_labels_but_different_content_are_not_linked() {
    let (home, store) = new_store();
    let out = home.path().join("out");
    let mut tree = store.empty_tree().unwrap();
    for (name, content, mode) in
        [("a", "one", 0o644), ("b", "one", 0o644), ("c", "other", 0o644), ("d", "one", 0o600)]
    {
        let attributes = Attributes { mode, link_label: Some(7), ..Attributes::default() };
        tree.put_file(name, &mut content.as_bytes(), attributes).unwrap();
    }
    let snapshot = tree.commit(message("linked")).unwrap();
    check_out(&store, &snapshot, &out).unwrap();
    let inode = |name: &str| fs::metadata(out.join(name)).unwrap().ino();
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(["a", "b", "c", "d"].map(read), ["one", "one", "other", "one"]);
    assert_eq!(fs::metadata(out.join("d")).unwrap().mode() & 0o777, 0o600);
    let inodes = ["a", "b", "c", "d"].map(inode);
    let same = inodes.iter().filter(|other| **other == inodes[0]).count();
    assert!(same >= 1 && inodes[2] != inodes[0] && inodes[3] != inodes[2], "{inodes:?}");
}

#[test]
fn a_sparse_file_larger_than_memory_is_handled() {
    let (home, store) = new_store();
    let (work, out) = (home.path().join("work"), home.path().join("out"));
    fs::create_dir(&work).unwrap();
    let size = 8 << 40;
    let file = fs::File::create(work.join("huge")).unwrap();
    file.set_len(size).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", size - 3).unwrap();
    let first = snapshot(&store, &work).snapshot;
    let mut tree = store.restore(&first.id).unwrap();
    assert_eq!(tree.stat("huge").unwrap().size, size);
    assert_eq!(tree.read_range("huge", size - 5, 100).unwrap(), b"\0\0end");
    assert!(tree.read("huge").is_err());
    tree.append("huge", b"more").unwrap();
    assert_eq!(tree.read_range("huge", size - 3, 100).unwrap(), b"endmore");
    let longer = tree.commit(message("longer")).unwrap();
    let trees = [&first, &longer].map(|snapshot| Tree::of_snapshot(&store, snapshot).unwrap());
    assert_eq!(diff(&trees[0], &trees[1]).unwrap().len(), 1);
    insight(&trees[0], &trees[1]).unwrap();
    check_out(&store, &first, &out).unwrap();
    assert_eq!(fs::metadata(out.join("huge")).unwrap().len(), size);
    assert!(fs::metadata(out.join("huge")).unwrap().blocks() < 1024);
    assert_sound(&store);
}

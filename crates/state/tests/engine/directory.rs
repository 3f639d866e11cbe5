//! Tests of snapshots of directories of the file system, and of checkouts into directories.
//!
//! A *role* is a function that a child process runs (`child.rs`).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use workspace_state::{
    CheckoutOptions, DirectoryError, GcOptions, NewSnapshot, NoProgress, Snapshot, SnapshotOptions,
    SnapshotReport, Store, Tree, checkout, diff, ignored_paths, record_as_checkout, snapshot_directory,
};

use crate::child::{ChildProcess, say, text};
use crate::support::{Random, commit_file, message, new_store};

/// Takes a snapshot of a directory with default options.
pub(crate) fn snapshot(store: &Store, directory: &Path) -> SnapshotReport {
    snapshot_directory(store, directory, SnapshotOptions::default(), &NoProgress).unwrap()
}

/// Checks out a snapshot with default options.
pub(crate) fn check_out(store: &Store, snapshot: &Snapshot, directory: &Path) -> Result<(), DirectoryError> {
    checkout(store, snapshot, directory, &CheckoutOptions::default(), &NoProgress).map(drop)
}

fn forced() -> CheckoutOptions {
    CheckoutOptions { force: true, ..CheckoutOptions::default() }
}

/// Returns a description of each entry of a directory by path: kind, content, mode and modification time.
pub(crate) fn describe(directory: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut all = BTreeMap::new();
    let mut queue = vec![directory.to_owned()];
    while let Some(parent) = queue.pop() {
        for entry in fs::read_dir(&parent).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(directory).unwrap().as_os_str().as_bytes().to_vec();
            let content = if meta.is_dir() {
                queue.push(path.clone());
                "directory".to_owned()
            } else if meta.is_symlink() {
                format!("-> {:?}", fs::read_link(&path).unwrap())
            } else {
                let bytes = fs::read(&path).unwrap();
                format!(
                    "{} bytes {:x}",
                    bytes.len(),
                    bytes
                        .iter()
                        .fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte)))
                )
            };
            all.insert(
                name,
                format!("{content} {:o} {}.{:09}", meta.mode(), meta.mtime(), meta.mtime_nsec()),
            );
        }
    }
    all
}

/// Fills a directory with all kinds of entries: long and non-UTF-8 names, old times, symlinks, several modes.
fn fill_directory(directory: &Path) {
    fs::create_dir_all(directory.join("src/deep/deeper")).unwrap();
    fs::create_dir(directory.join("empty")).unwrap();
    fs::write(directory.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::write(directory.join("src/empty"), "").unwrap();
    fs::write(directory.join("src/deep/big"), vec![7u8; 1_000_000]).unwrap();
    fs::write(directory.join("script"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(directory.join("script"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(directory.join("empty"), fs::Permissions::from_mode(0o500)).unwrap();
    symlink("src/main.rs", directory.join("link")).unwrap();
    symlink("/nowhere/at/all", directory.join("dangling")).unwrap();
    let not_utf_8 = std::ffi::OsString::from_vec(b"odd\xff\nname".to_vec());
    fs::write(directory.join(not_utf_8), "x").unwrap();
    fs::write(directory.join("n".repeat(255)), "long name").unwrap();
    let old = std::time::UNIX_EPOCH - std::time::Duration::new(1000, 5);
    fs::File::options().write(true).open(directory.join("script")).unwrap().set_modified(old).unwrap();
}

#[test]
fn a_checked_out_directory_equals_the_original() {
    let (home, store) = new_store();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fill_directory(&from);
    let report = snapshot(&store, &from);
    assert_eq!((report.files, report.directories, report.symlinks), (6, 4, 2));
    check_out(&store, &report.snapshot, &to).unwrap();
    assert_eq!(describe(&from), describe(&to));
    let again = snapshot(&store, &to);
    assert_eq!(again.snapshot.tree, report.snapshot.tree);
}

/// The recorded checkout state of a directory is ignored if the directory was removed or emptied.
#[test]
fn a_directory_that_was_removed_is_written_again() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    fill_directory(&work);
    let expected = describe(&work);
    let first = snapshot(&store, &work).snapshot;
    fs::write(work.join("another"), "file").unwrap();
    let second = snapshot(&store, &work).snapshot;
    check_out(&store, &first, &work).unwrap();
    for target in [&first, &second, &first] {
        make_removable(&work);
        fs::remove_dir_all(&work).unwrap();
        check_out(&store, target, &work).unwrap();
        assert_eq!(work.join("another").exists(), target.id == second.id);
        assert_eq!(snapshot(&store, &work).snapshot.tree, target.tree);
    }
    make_removable(&work);
    for entry in fs::read_dir(&work).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
    check_out(&store, &first, &work).unwrap();
    assert_eq!(describe(&work), expected, "emptied, then written");
    // Another directory at the same path is not a checkout of this store.
    fs::rename(&work, home.path().join("away")).unwrap();
    fs::create_dir(&work).unwrap();
    fs::write(work.join("theirs"), "keep").unwrap();
    let refused = check_out(&store, &second, &work);
    assert!(matches!(refused, Err(DirectoryError::NotEmpty { .. })), "{refused:?}");
    assert_eq!(fs::read_dir(&work).unwrap().count(), 1);
}

/// Changes the modes of a directory and all directories below it, so that the user who runs the tests can remove them.
fn make_removable(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            make_removable(&path);
        }
    }
}

#[test]
fn unchanged_files_are_not_read_again() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    fill_directory(&work);
    let first = snapshot(&store, &work);
    assert_eq!(first.files_read, 6);
    std::thread::sleep(std::time::Duration::from_millis(30));
    snapshot(&store, &work);
    let second = snapshot(&store, &work);
    assert_eq!(second.files_read, 0);
    assert_eq!(second.snapshot.tree, first.snapshot.tree);
    assert_eq!(second.snapshot.times, first.snapshot.times);
    fs::write(work.join("src/main.rs"), "fn main() { }").unwrap();
    let changed = snapshot(&store, &work);
    assert_eq!(changed.files_read, 1);
    assert_ne!(changed.snapshot.tree, first.snapshot.tree);
}

#[test]
fn an_edit_that_does_not_change_size_and_mtime_is_detected() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    for round in 0..20 {
        let file = work.join("file");
        let before = fs::metadata(&file).and_then(|meta| meta.modified()).ok();
        fs::write(&file, format!("{round:04}")).unwrap();
        if let Some(before) = before {
            fs::File::options().write(true).open(&file).unwrap().set_modified(before).unwrap();
        }
        let report = snapshot(&store, &work);
        let content = store.restore(&report.snapshot.id).unwrap().read("file").unwrap();
        assert_eq!(content, format!("{round:04}").into_bytes());
    }
}

#[test]
fn holes_and_hard_links_are_kept() {
    let (home, store) = new_store();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::create_dir(&from).unwrap();
    let sparse = fs::File::create(from.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 32 << 20).unwrap();
    fs::write(from.join("one"), "linked").unwrap();
    fs::hard_link(from.join("one"), from.join("two")).unwrap();
    fs::create_dir(from.join("sub")).unwrap();
    fs::hard_link(from.join("one"), from.join("sub/three")).unwrap();
    let report = snapshot(&store, &from);
    check_out(&store, &report.snapshot, &to).unwrap();
    assert_eq!(describe(&from), describe(&to));
    let blocks = fs::metadata(to.join("sparse")).unwrap().blocks();
    assert!(blocks < 1024, "{blocks} blocks are not sparse");
    let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
    assert_eq!(inode("one"), inode("two"));
    assert_eq!(inode("one"), inode("sub/three"));
    assert!(store.path().metadata().is_ok());
    let stored: u64 = fs::read_dir(store.path().join("packs"))
        .unwrap()
        .map(|pack| pack.unwrap().metadata().unwrap().len())
        .sum();
    assert!(stored < 4 << 20, "{stored} bytes stored for holes");
}

/// Returns groups of the names in a directory that are hard links to the same symlink.
fn symlink_groups(directory: &Path) -> Vec<Vec<&'static str>> {
    let mut groups: BTreeMap<u64, Vec<&'static str>> = BTreeMap::new();
    for name in ["one", "two", "sub/three", "other"] {
        let meta = fs::symlink_metadata(directory.join(name)).unwrap();
        assert!(meta.is_symlink() && fs::read_link(directory.join(name)).unwrap() == Path::new("target"));
        groups.entry(meta.ino()).or_default().push(name);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_unstable();
    groups
}

#[test]
fn hard_links_to_a_symlink_are_kept() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    fs::create_dir_all(work.join("sub")).unwrap();
    for name in ["one", "other"] {
        symlink("target", work.join(name)).unwrap();
    }
    for name in ["two", "sub/three"] {
        fs::hard_link(work.join("one"), work.join(name)).unwrap();
    }
    let first = snapshot(&store, &work).snapshot;
    // One name leaves the group and joins another.
    fs::remove_file(work.join("two")).unwrap();
    fs::hard_link(work.join("other"), work.join("two")).unwrap();
    let second = snapshot(&store, &work).snapshot;
    assert_eq!(first.tree, second.tree);
    let first_groups = [vec!["one", "two", "sub/three"], vec!["other"]];
    let second_groups = [vec!["one", "sub/three"], vec!["two", "other"]];
    for _ in 0..2 {
        for (target, groups) in [(&first, &first_groups), (&second, &second_groups)] {
            check_out(&store, target, &to).unwrap();
            assert_eq!(symlink_groups(&to), groups);
            let again = snapshot(&store, &to).snapshot;
            assert_eq!((again.tree, again.times), (target.tree, target.times));
        }
    }
}

#[test]
fn checkouts_set_and_remove_user_xattrs() {
    let (home, store) = new_store();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::write(from.join("file"), "x").unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    let get = |path: &Path, name: &str| {
        let mut value = [0; 64];
        rustix::fs::getxattr(path, name, &mut value[..]).map(|len| value[..len].to_vec())
    };
    set(&from.join("file"), "user.note", b"of the file");
    set(&from.join("sub"), "user.note", b"of the directory");
    let first = snapshot(&store, &from).snapshot;
    rustix::fs::removexattr(from.join("file"), "user.note").unwrap();
    set(&from.join("sub"), "user.other", b"");
    let second = snapshot(&store, &from).snapshot;
    assert_ne!(first.tree, second.tree);
    check_out(&store, &first, &to).unwrap();
    assert_eq!(get(&to.join("file"), "user.note").unwrap(), b"of the file");
    assert_eq!(get(&to.join("sub"), "user.note").unwrap(), b"of the directory");
    check_out(&store, &second, &to).unwrap();
    assert!(get(&to.join("file"), "user.note").is_err());
    assert_eq!(get(&to.join("sub"), "user.other").unwrap(), b"");
}

#[test]
fn a_checkout_writes_only_differences() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    fill_directory(&work);
    let first = snapshot(&store, &work).snapshot;
    fs::write(work.join("src/main.rs"), "changed").unwrap();
    fs::remove_file(work.join("link")).unwrap();
    fs::create_dir(work.join("link")).unwrap();
    fs::write(work.join("link/inside"), "x").unwrap();
    fs::remove_dir_all(work.join("src/deep")).unwrap();
    fs::write(work.join("src/deep"), "now a file").unwrap();
    fs::set_permissions(work.join("src/empty"), fs::Permissions::from_mode(0o600)).unwrap();
    let second = snapshot(&store, &work).snapshot;
    let expected_second = describe(&work);
    check_out(&store, &first, &to).unwrap();
    let expected_first = describe(&to);
    let script = fs::metadata(to.join("script")).unwrap().ino();
    for _ in 0..3 {
        check_out(&store, &second, &to).unwrap();
        assert_eq!(describe(&to), expected_second);
        check_out(&store, &first, &to).unwrap();
        assert_eq!(describe(&to), expected_first);
    }
    assert_eq!(fs::metadata(to.join("script")).unwrap().ino(), script, "an equal file was replaced");
}

#[test]
fn a_checkout_that_would_undo_local_changes_is_refused_and_changes_nothing() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    fill_directory(&work);
    let first = snapshot(&store, &work).snapshot;
    fs::write(work.join("src/main.rs"), "changed").unwrap();
    fs::write(work.join("added"), "by the second").unwrap();
    fs::remove_file(work.join("script")).unwrap();
    let second = snapshot(&store, &work).snapshot;
    for edit in ["src/main.rs", "added", "script"] {
        let to = to.join(edit.replace('/', "-"));
        check_out(&store, &first, &to).unwrap();
        fs::write(to.join(edit), "mine").unwrap();
        fs::write(to.join("unrelated"), "stays").unwrap();
        let before = describe(&to);
        let error = check_out(&store, &second, &to).unwrap_err();
        let DirectoryError::LocalEdits { paths, .. } = &error else { panic!("{error}") };
        assert_eq!(paths, &[Path::new(edit)]);
        assert_eq!(describe(&to), before);
        checkout(&store, &second, &to, &forced(), &NoProgress).unwrap();
        assert_eq!(fs::read(to.join("unrelated")).unwrap(), b"stays");
        fs::remove_file(to.join("unrelated")).unwrap();
        assert_eq!(names(&to), names(&work), "{to:?}");
        assert_eq!(fs::read(to.join("src/main.rs")).unwrap(), b"changed");
    }
}

/// Returns the paths of all entries of a directory.
fn names(directory: &Path) -> Vec<Vec<u8>> {
    describe(directory).into_keys().collect()
}

#[test]
fn a_forced_checkout_undoes_local_changes() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    fill_directory(&work);
    let first = snapshot(&store, &work).snapshot;
    check_out(&store, &first, &to).unwrap();
    let expected = describe(&to);
    fs::write(to.join("src/main.rs"), "damaged").unwrap();
    fs::remove_dir_all(to.join("src/deep")).unwrap();
    fs::remove_file(to.join("link")).unwrap();
    symlink("elsewhere", to.join("link")).unwrap();
    checkout(&store, &first, &to, &forced(), &NoProgress).unwrap();
    assert_eq!(describe(&to), expected);
}

#[test]
fn a_directory_with_untracked_files_is_replaced_only_if_forced() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    fill_directory(&work);
    let first = snapshot(&store, &work).snapshot;
    fs::create_dir(&to).unwrap();
    fs::write(to.join("mine"), "mine").unwrap();
    let error = check_out(&store, &first, &to).unwrap_err();
    assert!(matches!(error, DirectoryError::NotEmpty { .. }), "{error}");
    checkout(&store, &first, &to, &forced(), &NoProgress).unwrap();
    assert_eq!(fs::read(to.join("mine")).unwrap(), b"mine");
}

#[test]
fn ignored_paths_and_special_files_are_left_out() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    fs::create_dir_all(work.join("target/debug")).unwrap();
    fs::write(work.join(".workspaceignore"), "target/\n*.tmp\n!keep.tmp\n").unwrap();
    fs::write(work.join("target/debug/x"), "").unwrap();
    fs::write(work.join("a.tmp"), "").unwrap();
    fs::write(work.join("keep.tmp"), "").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(work.join("socket")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(work.join("fifo")).status().unwrap().success());
    let report = snapshot(&store, &work);
    let tree = store.restore(&report.snapshot.id).unwrap();
    let names: Vec<Vec<u8>> = tree.list("").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [b".workspaceignore".to_vec(), b"keep.tmp".to_vec()]);
    let skipped: Vec<String> = report
        .skipped
        .iter()
        .map(|skipped| format!("{} {}", skipped.path.display(), skipped.reason))
        .collect();
    assert_eq!(skipped, ["fifo a named pipe", "socket a socket"]);
}

#[test]
fn a_file_that_keeps_changing_is_reported_or_stored_consistently() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    let file = work.join("busy");
    fs::write(&file, vec![0u8; 300_000]).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let reports = std::thread::scope(|scope| {
        scope.spawn(|| {
            let handle = fs::File::options().write(true).open(&file).unwrap();
            for round in (0u8..=255).cycle() {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                for block in 0..75 {
                    std::os::unix::fs::FileExt::write_all_at(&handle, &[round; 4000], block * 4000).unwrap();
                }
            }
        });
        let reports: Vec<_> = (0..20)
            .map(|_| snapshot_directory(&store, &work, SnapshotOptions::default(), &NoProgress))
            .collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        reports
    });
    for report in reports {
        let report = report.unwrap();
        match report.skipped.as_slice() {
            [] => {
                let content = store.restore(&report.snapshot.id).unwrap().read("busy").unwrap();
                // The writer writes all blocks in order, with a new value in each pass. So at any moment, the blocks up
                // to some position have the new value, and the other blocks the value of the pass before.
                let rounds: Vec<u8> = content.chunks(4000).map(|block| block[0]).collect();
                let steps: Vec<u8> = rounds
                    .windows(2)
                    .map(|pair| pair[0].wrapping_sub(pair[1]))
                    .filter(|step| *step != 0)
                    .collect();
                assert!(matches!(steps.as_slice(), [] | [1]), "a torn file was stored: {rounds:?}");
            }
            [skipped] => assert_eq!(skipped.path, Path::new("busy")),
            _ => panic!("one file, one report"),
        }
    }
}

#[test]
fn a_store_inside_the_directory_is_not_part_of_the_snapshot() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("file"), "x").unwrap();
    let store = Store::open_or_create(home.path().join(".store")).unwrap();
    let report = snapshot(&store, home.path());
    assert_eq!((report.files, report.directories), (1, 0));
}

#[test]
fn untracked_files_in_a_replaced_directory_are_found_before_anything_is_written() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    fs::create_dir_all(work.join("d/sub")).unwrap();
    fs::write(work.join("d/sub/known"), "known").unwrap();
    fs::write(work.join("a"), "one").unwrap();
    let first = snapshot(&store, &work).snapshot;
    fs::remove_dir_all(work.join("d")).unwrap();
    fs::write(work.join("d"), "now a file").unwrap();
    fs::write(work.join("a"), "two").unwrap();
    let second = snapshot(&store, &work).snapshot;
    check_out(&store, &first, &to).unwrap();
    fs::write(to.join("d/sub/mine"), "mine").unwrap();
    let before = describe(&to);
    let refused = check_out(&store, &second, &to);
    assert!(matches!(refused, Err(DirectoryError::LocalEdits { .. })), "{refused:?}");
    assert_eq!(before, describe(&to));
    check_out(&store, &first, &to).unwrap();
    assert!(to.join("d/sub/mine").exists());
}

/// A snapshot that is interrupted after it wrote the stat records (fingerprints of the files) and before it wrote the
/// checkout state leaves records of another tree.
#[test]
fn stat_records_of_another_tree_are_ignored() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    fs::create_dir_all(&work).unwrap();
    fs::write(work.join("edited"), "original").unwrap();
    fs::write(work.join("other"), "one").unwrap();
    let first = snapshot(&store, &work).snapshot;
    fs::write(work.join("other"), "two").unwrap();
    let second = snapshot(&store, &work).snapshot;
    check_out(&store, &first, &work).unwrap();
    fs::write(work.join("edited"), "my edit").unwrap();
    // After this time, the fingerprint of the edited file is reliable.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let state_file = fs::read_dir(store.path().join("directories")).unwrap().next().unwrap().unwrap().path();
    // The name of the temporary file for the new state is taken, so the state cannot be written.
    let temporary = state_file.with_extension(std::process::id().to_string());
    fs::create_dir(&temporary).unwrap();
    snapshot_directory(&store, &work, SnapshotOptions::default(), &NoProgress).unwrap_err();
    fs::remove_dir(&temporary).unwrap();
    check_out(&store, &second, &work).unwrap();
    let last = snapshot(&store, &work).snapshot;
    let stored = store.restore(&last.id).unwrap().read("edited").unwrap();
    assert_eq!(stored, fs::read(work.join("edited")).unwrap());
}

#[test]
fn a_directory_that_is_kept_for_its_untracked_files_keeps_its_mode() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    fs::create_dir_all(work.join("d")).unwrap();
    fs::write(work.join("d/known"), "known").unwrap();
    let first = snapshot(&store, &work).snapshot;
    fs::remove_dir_all(work.join("d")).unwrap();
    fs::write(work.join("x"), "x").unwrap();
    let second = snapshot(&store, &work).snapshot;
    check_out(&store, &first, &to).unwrap();
    fs::write(to.join("d/mine"), "mine").unwrap();
    fs::set_permissions(to.join("d"), fs::Permissions::from_mode(0o555)).unwrap();
    check_out(&store, &second, &to).unwrap();
    assert_eq!(fs::metadata(to.join("d")).unwrap().permissions().mode() & 0o7777, 0o555);
    fs::set_permissions(to.join("d"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns groups of the paths in a directory that are hard links to the same file.
fn hard_link_groups(directory: &Path) -> Vec<Vec<Vec<u8>>> {
    let mut by_inode: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
    for name in names(directory) {
        let meta = fs::symlink_metadata(directory.join(std::ffi::OsStr::from_bytes(&name))).unwrap();
        if meta.is_file() && meta.nlink() > 1 {
            by_inode.entry(meta.ino()).or_default().push(name);
        }
    }
    let mut groups: Vec<_> = by_inode.into_values().collect();
    groups.sort();
    groups
}

/// Checks out a snapshot. Asserts that the directory has these hard links, and that a snapshot of it has the same tree,
/// times and link labels.
#[track_caller]
fn assert_checkout(store: &Store, target: &Snapshot, to: &Path, expected: &[Vec<Vec<u8>>]) {
    check_out(store, target, to).unwrap();
    assert_eq!(hard_link_groups(to), expected);
    let again = snapshot(store, to).snapshot;
    assert_eq!((again.tree, again.times), (target.tree, target.times));
}

#[test]
fn a_checkout_links_a_new_name_to_an_unchanged_file() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    fs::create_dir_all(work.join("untouched/below")).unwrap();
    fs::write(work.join("a"), "linked").unwrap();
    fs::hard_link(work.join("a"), work.join("b")).unwrap();
    fs::write(work.join("untouched/below/c"), "linked").unwrap();
    fs::hard_link(work.join("untouched/below/c"), work.join("untouched/d")).unwrap();
    let (first, first_groups) = (snapshot(&store, &work).snapshot, hard_link_groups(&work));
    fs::hard_link(work.join("a"), work.join("e")).unwrap();
    fs::hard_link(work.join("untouched/d"), work.join("f")).unwrap();
    let (second, second_groups) = (snapshot(&store, &work).snapshot, hard_link_groups(&work));
    for _ in 0..2 {
        assert_checkout(&store, &first, &to, &first_groups);
        let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
        let inode_before = inode("a");
        assert_checkout(&store, &second, &to, &second_groups);
        assert_eq!(inode("a"), inode_before, "an equal file was replaced");
    }
}

#[test]
fn a_checkout_separates_names_that_are_no_longer_hard_links() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    fs::create_dir(&work).unwrap();
    fs::write(work.join("a"), "same").unwrap();
    let modified = fs::metadata(work.join("a")).unwrap().modified().unwrap();
    for name in ["b", "c"] {
        fs::hard_link(work.join("a"), work.join(name)).unwrap();
    }
    let (first, first_groups) = (snapshot(&store, &work).snapshot, hard_link_groups(&work));
    fs::remove_file(work.join("c")).unwrap();
    fs::write(work.join("c"), "same").unwrap();
    fs::File::options().write(true).open(work.join("c")).unwrap().set_modified(modified).unwrap();
    let (second, second_groups) = (snapshot(&store, &work).snapshot, hard_link_groups(&work));
    fs::remove_file(work.join("b")).unwrap();
    fs::hard_link(work.join("c"), work.join("b")).unwrap();
    let (third, third_groups) = (snapshot(&store, &work).snapshot, hard_link_groups(&work));
    assert_eq!(first.tree, third.tree);
    for _ in 0..2 {
        assert_checkout(&store, &first, &to, &first_groups);
        assert_checkout(&store, &second, &to, &second_groups);
        assert_checkout(&store, &third, &to, &third_groups);
    }
}

#[test]
fn a_new_name_is_not_linked_to_a_locally_changed_file() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    fs::create_dir(&work).unwrap();
    fs::write(work.join("a"), "linked").unwrap();
    fs::hard_link(work.join("a"), work.join("b")).unwrap();
    let first = snapshot(&store, &work).snapshot;
    fs::hard_link(work.join("a"), work.join("c")).unwrap();
    fs::hard_link(work.join("a"), work.join("d")).unwrap();
    let second = snapshot(&store, &work).snapshot;
    check_out(&store, &first, &to).unwrap();
    fs::write(to.join("a"), "edited").unwrap();
    check_out(&store, &second, &to).unwrap();
    assert_eq!(fs::read(to.join("b")).unwrap(), b"edited");
    assert_eq!(fs::read(to.join("c")).unwrap(), b"linked");
    let group = |names: [&str; 2]| names.map(|name| name.as_bytes().to_vec()).to_vec();
    assert_eq!(hard_link_groups(&to), [group(["a", "b"]), group(["c", "d"])]);
    // A snapshot of this state restores the same links.
    let mixed = snapshot(&store, &to).snapshot;
    let other = home.path().join("other");
    check_out(&store, &mixed, &other).unwrap();
    assert_eq!(hard_link_groups(&other), hard_link_groups(&to));
}

#[test]
fn a_hard_link_to_a_file_outside_of_the_directory_keeps_its_label() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    fs::create_dir(&work).unwrap();
    fs::write(work.join("a"), "linked").unwrap();
    fs::hard_link(work.join("a"), home.path().join("elsewhere")).unwrap();
    let first = snapshot(&store, &work).snapshot;
    assert_checkout(&store, &first, &to, &[]);
    fs::write(to.join("a"), "edited").unwrap();
    let edited = snapshot(&store, &to).snapshot;
    let tree = Tree::of_snapshot(&store, &edited).unwrap();
    assert_eq!(tree.entry("a").unwrap().unwrap().link_label, None);
}

/// A checkout must not change a file outside of the directory through a hard link.
#[test]
fn a_checkout_of_another_mode_does_not_change_untracked_hard_links() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    fs::create_dir(&work).unwrap();
    fs::write(work.join("a"), "x").unwrap();
    fs::set_permissions(work.join("a"), fs::Permissions::from_mode(0o644)).unwrap();
    let first = snapshot(&store, &work).snapshot;
    fs::set_permissions(work.join("a"), fs::Permissions::from_mode(0o755)).unwrap();
    let second = snapshot(&store, &work).snapshot;
    check_out(&store, &first, &to).unwrap();
    fs::hard_link(to.join("a"), home.path().join("mine")).unwrap();
    check_out(&store, &second, &to).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&to.join("a")), mode(&home.path().join("mine"))), (0o755, 0o644));
}

#[test]
fn hard_links_are_restored_by_checkouts_in_random_order() {
    let (home, store) = new_store();
    let (work, to) = (home.path().join("work"), home.path().join("to"));
    let mut random = Random::new();
    let paths: Vec<String> = ["", "d/", "d/e/", "f/"]
        .iter()
        .flat_map(|parent| (0..4).map(move |name| format!("{parent}{name}")))
        .collect();
    fs::create_dir_all(work.join("d/e")).unwrap();
    fs::create_dir_all(work.join("f")).unwrap();
    let mut snapshots = Vec::new();
    for _ in 0..12 {
        for _ in 0..1 + random.below(5) {
            let [one, other] = [0, 1].map(|_| work.join(&paths[random.below(paths.len() as u64) as usize]));
            if one == other {
                continue;
            }
            drop(fs::remove_file(&one));
            match random.below(4) {
                0 => {}
                1 => fs::write(&one, format!("{}", random.below(2))).unwrap(),
                _ if other.exists() => fs::hard_link(&other, &one).unwrap(),
                _ => fs::write(&one, "").unwrap(),
            }
        }
        let is_moved = random.one_in(4) && work.join("f").exists();
        if is_moved {
            fs::rename(work.join("f"), work.join("g")).unwrap();
        }
        snapshots.push((snapshot(&store, &work).snapshot, hard_link_groups(&work)));
        if is_moved {
            fs::rename(work.join("g"), work.join("f")).unwrap();
        }
    }
    for _ in 0..40 {
        let (target, groups) = &snapshots[random.below(snapshots.len() as u64) as usize];
        if random.one_in(4) {
            checkout(&store, target, &to, &forced(), &NoProgress).unwrap();
        }
        assert_checkout(&store, target, &to, groups);
    }
}

/// Commits `count` chains of nested directories, with further entries at every fourth level.
fn commit_chains(store: &Store, count: usize, depth: usize, content: &str) -> Snapshot {
    let mut tree = store.empty_tree().unwrap();
    for chain in 0..count {
        let mut path = format!("c{chain}");
        for level in 0..depth {
            path.push_str("/d");
            if level % 4 == 0 || level + 1 == depth {
                tree.symlink(format!("{path}/f"), content).unwrap();
                tree.symlink(format!("{path}/e/g"), content).unwrap();
            }
        }
    }
    tree.commit(message(content)).unwrap()
}

/// Role: runs all operations that walk directories, with a low limit of open files.
pub(crate) fn walk_with_few_files(arguments: &[&str]) {
    let [home, files, count, depth] = arguments else { panic!("directory, files, chains, depth") };
    let (count, depth) = (count.parse().unwrap(), depth.parse().unwrap());
    let limit = rustix::process::Rlimit { current: files.parse().ok(), maximum: files.parse().ok() };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let home = Path::new(home);
    let store = Store::open_or_create(home.join("store")).unwrap();
    let to = home.join("to");
    let first = commit_chains(&store, count, depth, "first");
    for target in [&first, &commit_chains(&store, count, depth, "second")] {
        check_out(&store, target, &to).unwrap();
        assert_eq!(snapshot(&store, &to).snapshot.tree, target.tree);
    }
    checkout(&store, &first, &to, &forced(), &NoProgress).unwrap();
    let mut files = store.empty_tree().unwrap();
    for chain in 0..count / 2 {
        files.write(format!("c{chain}"), "now a file").unwrap();
    }
    let files = files.commit(message("files")).unwrap();
    check_out(&store, &files, &to).unwrap();
    assert_eq!(snapshot(&store, &to).snapshot.tree, files.tree);
    say("done");
}

#[test]
fn many_deep_directories_need_few_open_files() {
    for (files, count, depth) in [("64", "16", "200"), ("64", "2", "900")] {
        let home = tempfile::tempdir().unwrap();
        let arguments = [text(home.path()), files, count, depth];
        let output = ChildProcess::start("walk-with-few-files", &arguments).finish();
        output.assert_success();
        assert_eq!(output.lines, ["done"]);
    }
}

#[test]
fn an_unreadable_checkout_state_is_an_error() {
    let (home, store) = new_store();
    let out = home.path().join("out");
    let [first, second] = ["one", "two"].map(|content| commit_file(&store, "file", content));
    check_out(&store, &first, &out).unwrap();
    let state_file = fs::read_dir(store.path().join("directories")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&state_file).unwrap();
    fs::create_dir(&state_file).unwrap();
    let error = checkout(&store, &second, &out, &forced(), &NoProgress).unwrap_err();
    assert!(
        matches!(&error, DirectoryError::Io { action: "read", path, .. } if *path == state_file),
        "{error:?}"
    );
    assert_eq!(fs::read(out.join("file")).unwrap(), b"one");
}

/// A snapshot without `record_as_checkout` does not make the directory a checkout.
#[test]
fn a_temporary_snapshot_does_not_allow_a_checkout_to_replace_files() {
    let (home, store) = new_store();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), "one").unwrap();
    let one = snapshot(&store, &from).snapshot;
    fs::write(from.join("file"), "two").unwrap();
    let two = snapshot(&store, &from).snapshot;
    let take_and_remove_snapshot = |directory: &Path| {
        let options = SnapshotOptions { record_as_checkout: false, ..SnapshotOptions::default() };
        let temporary = snapshot_directory(&store, directory, options, &NoProgress).unwrap().snapshot;
        store.remove_snapshots(&[temporary.id]).unwrap();
    };
    // The directory has a file that the store does not have.
    fs::create_dir(&to).unwrap();
    fs::write(to.join("precious"), "mine").unwrap();
    take_and_remove_snapshot(&to);
    assert!(matches!(check_out(&store, &one, &to), Err(DirectoryError::NotEmpty { .. })));
    // The directory has a local change and an untracked file.
    fs::remove_file(to.join("precious")).unwrap();
    check_out(&store, &one, &to).unwrap();
    fs::write(to.join("file"), "edited").unwrap();
    fs::write(to.join("other"), "mine").unwrap();
    take_and_remove_snapshot(&to);
    assert!(matches!(check_out(&store, &two, &to), Err(DirectoryError::LocalEdits { .. })));
    fs::write(to.join("file"), "one").unwrap();
    take_and_remove_snapshot(&to);
    check_out(&store, &two, &to).unwrap();
    assert_eq!(fs::read_to_string(to.join("other")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "two");
}

#[test]
fn content_of_a_removed_snapshot_is_replaced_only_if_forced() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("file"), "kept").unwrap();
    let kept = snapshot(&store, &work).snapshot;
    fs::write(work.join("file"), "removed").unwrap();
    let removed = snapshot(&store, &work).snapshot;
    store.remove_snapshots(&[removed.id]).unwrap();
    let assert_refused = || {
        let refused = check_out(&store, &kept, &work);
        assert!(
            matches!(&refused, Err(DirectoryError::Unsaved { snapshot, .. }) if *snapshot == Some(removed.id)),
            "{refused:?}"
        );
        assert_eq!(fs::read_to_string(work.join("file")).unwrap(), "removed");
    };
    assert_refused();
    // Its objects are no longer in the store.
    store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
    assert_refused();
    let force = CheckoutOptions { force: true, ..CheckoutOptions::default() };
    checkout(&store, &kept, &work, &force, &NoProgress).unwrap();
    assert_eq!(fs::read_to_string(work.join("file")).unwrap(), "kept");
}

/// A forced checkout removes untracked files only where a file has to be written.
#[test]
fn a_forced_checkout_keeps_untracked_files_outside_of_replaced_directories() {
    let (home, store) = new_store();
    let (one, two, to) = (home.path().join("one"), home.path().join("two"), home.path().join("to"));
    for (directory, names) in
        [(&one, vec!["goes/known", "turns/known", "stays/known"]), (&two, vec!["turns"])]
    {
        for name in names {
            fs::create_dir_all(directory.join(name).parent().unwrap()).unwrap();
            fs::write(directory.join(name), "known").unwrap();
        }
    }
    let (one, two) = (snapshot(&store, &one).snapshot, snapshot(&store, &two).snapshot);
    check_out(&store, &one, &to).unwrap();
    for name in ["goes/mine", "turns/mine", "stays/mine", "mine"] {
        fs::write(to.join(name), "mine").unwrap();
    }
    checkout(&store, &two, &to, &forced(), &NoProgress).unwrap();
    let mut remaining: Vec<Vec<u8>> = describe(&to).into_keys().collect();
    remaining.retain(|path| !to.join(std::ffi::OsStr::from_bytes(path)).is_dir());
    assert_eq!(
        remaining,
        [b"goes/mine".to_vec(), b"mine".to_vec(), b"stays/mine".to_vec(), b"turns".to_vec()]
    );
}

#[test]
fn ignored_changes_are_found_with_the_ignore_files_of_the_old_tree() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    fs::create_dir_all(work.join("sub")).unwrap();
    fs::write(work.join(".workspaceignore"), "/target/\n*.tmp\n").unwrap();
    fs::write(work.join("sub/.workspaceignore"), "!keep.tmp\nlocal\n").unwrap();
    let before = snapshot(&store, &work).snapshot;
    let mut tree = store.restore(&before.id).unwrap();
    for path in ["target/deep/a", "target/b", "x.tmp", "sub/keep.tmp", "sub/new/y.tmp", "sub/local", "local"]
    {
        tree.write(path, "content\n").unwrap();
    }
    // The new ignore file of the agent (the program that changes the tree) does not count, because it could hide
    // changes.
    tree.write(".workspaceignore", "*\n").unwrap();
    let before = Tree::of_snapshot(&store, &before).unwrap();
    let differences = diff(&before, &tree.preview().unwrap()).unwrap();
    let expected: [&[u8]; 4] = [b"sub/local", b"sub/new/y.tmp", b"target", b"x.tmp"];
    assert_eq!(ignored_paths(&before, &differences).unwrap(), expected);
}

#[test]
fn a_directory_recorded_as_checkout_later_keeps_local_changes() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("a"), "one\n").unwrap();
    fs::write(work.join("b"), "one\n").unwrap();
    let options = SnapshotOptions { record_as_checkout: false, ..SnapshotOptions::default() };
    let before = snapshot_directory(&store, &work, options, &NoProgress).unwrap().snapshot;
    let mut tree = store.restore(&before.id).unwrap();
    tree.write("a", "two\n").unwrap();
    let after = tree.commit(NewSnapshot::default()).unwrap();
    let check_out_after = || checkout(&store, &after, &work, &CheckoutOptions::default(), &NoProgress);
    assert!(matches!(check_out_after(), Err(DirectoryError::NotEmpty { .. })));
    record_as_checkout(&store, &work, &before).unwrap();
    fs::write(work.join("b"), "mine\n").unwrap();
    fs::write(work.join("a"), "mine, too\n").unwrap();
    assert!(matches!(check_out_after(), Err(DirectoryError::LocalEdits { .. })));
    fs::write(work.join("a"), "one\n").unwrap();
    check_out_after().unwrap();
    assert_eq!(fs::read_to_string(work.join("a")).unwrap(), "two\n");
    assert_eq!(fs::read_to_string(work.join("b")).unwrap(), "mine\n");
}

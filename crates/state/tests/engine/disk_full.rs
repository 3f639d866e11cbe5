//! Tests with full disks and failing writes: clear errors, no loss of acknowledged data, and normal operation once
//! space is free again.
//!
//! Roles (functions that a child process runs) mount a small disk. A failpoint is a named place in the source at which
//! a write can be made to fail.

use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use workspace_state::{
    Attributes, CheckoutOptions, DirectoryError, Durability, Expect, GcOptions, NoProgress, SnapshotId,
    SnapshotOptions, Store, StoreError, TreeError, VirtualTree, checkout, snapshot_directory,
};
use workspace_test_support::SmallDisk;

use crate::child::{ChildProcess, mounting, say, text};
use crate::support::{Random, assert_sound, assert_usable, buffered, is_full_run, message, new_store, noise};

/// Number of bytes of a mebibyte.
const MIB: usize = 1 << 20;

/// Outcome of an operation with regard to disk space.
#[derive(Debug)]
enum SpaceOutcome {
    Done,
    DiskFull,
}

/// Returns true for an error because of a full disk.
fn is_disk_full(error: &StoreError) -> bool {
    match error {
        StoreError::Io { source, .. } => {
            assert!(error.may_retry() || source.kind() != std::io::ErrorKind::StorageFull);
            source.kind() == std::io::ErrorKind::StorageFull
        }
        StoreError::Index { source } => source.to_string().contains("No space left"),
        _ => false,
    }
}

/// Separates a result from an error because of a full disk. Panics on other errors.
#[track_caller]
fn space_outcome<T>(result: Result<T, TreeError>) -> (SpaceOutcome, Option<T>) {
    match result {
        Ok(value) => (SpaceOutcome::Done, Some(value)),
        Err(TreeError::Store(error)) if is_disk_full(&error) => (SpaceOutcome::DiskFull, None),
        Err(error) => panic!("not a clear error about a full disk: {error} {error:?}"),
    }
}

/// Role: runs all kinds of operations on a disk with little free space, and checks the store when there is enough
/// again.
pub(crate) fn fill_disk(arguments: &[&str]) {
    let [mount_point] = arguments else { panic!("mount point") };
    let disk = SmallDisk::mount(Path::new(mount_point), 64 * MIB);
    let path = disk.path().join("store");
    let mut random = Random::new();
    let mut kept: Vec<(SnapshotId, u64, usize)> = Vec::new();
    let mut refused = 0;
    let rounds = if is_full_run() { 200 } else { 25 };
    for round in 0..rounds {
        let reopened = round % 2 == 0;
        disk.fill(random.below(if round % 5 == 0 { 12_000_000 } else { 400_000 }));
        let store = match Store::open_or_create(&path) {
            Ok(store) => store,
            Err(error) => {
                assert!(is_disk_full(&error), "{error}");
                refused += 1;
                disk.make_room();
                continue;
            }
        };
        refused += commit_on_full_disk(&store, &mut random, &mut kept);
        if reopened {
            drop(store);
        }
        disk.make_room();
        let store = Store::open_or_create(&path).unwrap();
        for (id, seed, len) in &kept {
            let tree = store.restore(id).unwrap();
            assert_eq!(tree.read("file").unwrap(), noise(*seed, *len), "{id}");
        }
        assert_sound(&store);
        assert_usable(&store);
        let newest = kept.split_off(kept.len().saturating_sub(3));
        let removed: Vec<SnapshotId> = kept.iter().map(|(id, _, _)| *id).collect();
        store.remove_snapshots(&removed).unwrap();
        kept = newest;
        store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
    }
    say(&format!("refused {refused}"));
    drop(disk);
}

/// Commits until several operations have failed because the disk is full. Returns the number of these errors. Adds
/// committed snapshots to `kept`, with seed and length of their content.
fn commit_on_full_disk(
    store: &Store,
    random: &mut Random,
    kept: &mut Vec<(SnapshotId, u64, usize)>,
) -> usize {
    let mut refused = 0;
    for _ in 0..30 {
        let len_max = if random.one_in(4) { 6_000_000 } else { 60_000 };
        let (seed, len) = (random.next(), random.below(len_max) as usize);
        let Ok(mut tree) = store.empty_tree() else {
            refused += 1;
            continue;
        };
        let (outcome, written) = space_outcome(fill_tree(&mut tree, random.one_in(2), seed, len));
        let new = if random.one_in(2) { message("synced") } else { buffered("buffered") };
        let (outcome, snapshot) = match written {
            Some(()) => space_outcome(tree.commit(new)),
            None => (outcome, None),
        };
        match (outcome, snapshot) {
            (SpaceOutcome::Done, Some(snapshot)) => kept.push((snapshot.id, seed, len)),
            _ => refused += 1,
        }
        if refused > 3 {
            break;
        }
    }
    match store.collect_garbage(&GcOptions::default(), &NoProgress) {
        Ok(_) => {}
        Err(error) => assert!(is_disk_full(&error), "{error}"),
    }
    refused
}

/// Writes the file `file`, streamed into the store at once or kept in memory until the commit.
fn fill_tree(tree: &mut VirtualTree, streamed: bool, seed: u64, len: usize) -> Result<(), TreeError> {
    let content = noise(seed, len);
    if streamed {
        tree.put_file("file", &mut Cursor::new(content), Attributes { mode: 0o644, ..Attributes::default() })
    } else {
        tree.write("file", content)
    }
}

#[test]
fn on_a_full_disk_errors_are_clear_and_nothing_acknowledged_is_lost() {
    let home = tempfile::tempdir().unwrap();
    let output = ChildProcess::run(mounting("fill-disk", &[text(&home.path().join("disk"))])).finish();
    output.assert_success();
    let refused: usize = output.lines[0].strip_prefix("refused ").unwrap().parse().unwrap();
    assert!(refused > 10, "the disk was hardly ever full: {refused}");
}

/// Role: runs all kinds of operations with one failing write. Each failed operation is retried.
pub(crate) fn run_with_failing_write(arguments: &[&str]) {
    let [home] = arguments else { panic!("directory") };
    let mut failed = 0;
    match run_all_operations(Path::new(home), &mut failed) {
        Ok(()) => say(&format!("failed {failed}")),
        Err(error) if error.to_string().contains("earlier sync") => say("poisoned"),
        Err(error) => panic!("{error}"),
    }
}

/// Runs all kinds of operations. Counts failed operations in `failed`.
fn run_all_operations(home: &Path, failed: &mut usize) -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::open_or_create(home.join("store"))?;
    let mut expected = Vec::new();
    for step in 0..8u64 {
        let len = if step % 3 == 2 { 5_000_000 } else { 2_000 };
        let new = || if step % 2 == 0 { message("synced") } else { buffered("buffered") };
        let mut tree = store.empty_tree()?;
        retry(failed, || fill_tree(&mut tree, step % 4 >= 2, step, len))?;
        let snapshot = retry(failed, || tree.commit(new()))?;
        expected.push((snapshot.id, step, len));
    }
    // Most of this pack becomes garbage, so a collection must move the other objects.
    let mut tree = store.empty_tree()?;
    retry(failed, || tree.write("file", noise(50, 200_000)))?;
    retry(failed, || tree.write("waste", noise(51, 6_000_000)))?;
    let waste = retry(failed, || tree.commit(message("with waste")))?.id;
    tree.remove("waste")?;
    expected.push((retry(failed, || tree.commit(message("without waste")))?.id, 50, 200_000));
    drop(tree);
    let (work, out) = (home.join("work"), home.join("out"));
    fs::create_dir_all(work.join("sub"))?;
    for number in 0..5 {
        fs::write(work.join(format!("sub/{number}")), noise(number, 3_000))?;
    }
    let take_snapshot = || snapshot_directory(&store, &work, SnapshotOptions::default(), &NoProgress);
    let first = retry(failed, take_snapshot)?.snapshot;
    fs::write(work.join("sub/1"), "changed")?;
    let second = retry(failed, take_snapshot)?.snapshot;
    let options = CheckoutOptions::default();
    for snapshot in [&first, &second] {
        retry(failed, || checkout(&store, snapshot, &out, &options, &NoProgress))?;
    }
    assert_eq!(fs::read(out.join("sub/1"))?, b"changed");
    assert_eq!(fs::read_dir(out.join("sub"))?.count(), 5, "something was left behind");
    let removed: Vec<SnapshotId> = expected.drain(..6).map(|(id, _, _)| id).chain([waste]).collect();
    retry(failed, || match store.remove_snapshots(&removed) {
        // The first attempt may have been reported as failed after it succeeded.
        Err(StoreError::UnknownSnapshot(_)) => Ok(()),
        other => other,
    })?;
    retry(failed, || store.collect_garbage(&GcOptions::default(), &NoProgress))?;
    for (id, seed, len) in &expected {
        assert_eq!(store.restore(id)?.read("file")?, noise(*seed, *len));
    }
    assert_sound(&store);
    Ok(())
}

/// Runs `work`, and retries it once on failure.
fn retry<T, E: std::error::Error>(
    failed: &mut usize,
    mut work: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    match work() {
        Ok(value) => Ok(value),
        Err(error) => {
            *failed += 1;
            assert!(!error.to_string().is_empty());
            work()
        }
    }
}

/// Prefixes of failpoints that removals and garbage collections reach first.
const REMOVALS: [&str; 4] = ["gc-", "settle", "checkpoint-write", "next-log"];

#[test]
fn a_failed_write_is_reported_at_any_failpoint_and_the_next_one_succeeds() {
    for failpoint in crate::crash::failpoints() {
        for errno in ["enospc", "eio"] {
            for visit in if is_full_run() { 1..7 } else { 1..2 } {
                let home = tempfile::tempdir().unwrap();
                let plan = format!("{failpoint}={errno}@{visit}");
                let output =
                    ChildProcess::start_failing("run-with-failing-write", &[text(home.path())], &plan)
                        .finish();
                output.assert_success();
                // After a failed sync the content of the disk is unknown: the process must restart.
                let poisoned = failpoint.ends_with("-sync");
                match output.lines.last().unwrap().as_str() {
                    "poisoned" => assert!(poisoned, "{plan}"),
                    // A failure to truncate the log at close is not reported. Operations that free space use the
                    // reserved disk space and succeed.
                    "failed 0" => {
                        let retried =
                            errno == "enospc" && REMOVALS.iter().any(|prefix| failpoint.starts_with(prefix));
                        assert!(*failpoint == "trim-log" || visit > 1 || retried, "{plan}");
                    }
                    line => assert!(!poisoned && line == "failed 1", "{plan}: {line}"),
                }
                let store = Store::open(home.path().join("store")).unwrap();
                assert_sound(&store);
                assert_usable(&store);
            }
        }
    }
}

/// Streamed content exists only in the batch (the uncommitted objects of a tree), so a failed commit must not remove it
/// from there.
#[test]
fn a_tree_whose_commit_was_refused_can_be_committed_again() {
    let (_home, store) = new_store();
    let other = crate::support::commit_file(&store, "other", "x");
    for len in [2_000, 9_000_000] {
        let mut tree = store.empty_tree().unwrap();
        fill_tree(&mut tree, true, 7, len).unwrap();
        let mut fork = tree.clone();
        for _ in 0..2 {
            let mut refused = message("refused");
            refused.references.push(("main".to_owned(), Expect::At(other.id)));
            assert!(tree.commit(refused).is_err());
        }
        assert_eq!(tree.read("file").unwrap(), noise(7, len));
        let snapshot = tree.commit(message("again")).unwrap();
        assert_eq!(store.restore(&snapshot.id).unwrap().read("file").unwrap(), noise(7, len));
        fork.write("own", "of the fork").unwrap();
        let forked = fork.commit(message("fork")).unwrap();
        assert_eq!(store.restore(&forked.id).unwrap().read("file").unwrap(), noise(7, len));
        assert_sound(&store);
        store.remove_snapshots(&[snapshot.id, forked.id]).unwrap();
        drop((tree, fork));
        crate::support::collect(&store);
        crate::support::collect(&store);
    }
}

#[test]
fn clones_that_stream_and_commit_concurrently_keep_their_content() {
    let (_home, store) = new_store();
    let mut base = store.empty_tree().unwrap();
    fill_tree(&mut base, true, 1, 3_000_000).unwrap();
    let snapshots: Vec<(SnapshotId, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let mut tree = base.clone();
                scope.spawn(move || {
                    let attributes = Attributes { mode: 0o600, ..Attributes::default() };
                    let content = noise(thread + 50, 3_000_000);
                    tree.put_file("own", &mut Cursor::new(content), attributes).unwrap();
                    (tree.commit(buffered("thread")).unwrap().id, thread)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (id, thread) in snapshots {
        let tree = store.restore(&id).unwrap();
        assert_eq!(tree.read("file").unwrap(), noise(1, 3_000_000));
        assert_eq!(tree.read("own").unwrap(), noise(thread + 50, 3_000_000));
    }
    assert_sound(&store);
}

#[test]
fn a_checkout_on_a_full_disk_is_resumed_when_there_is_space() {
    let home = tempfile::tempdir().unwrap();
    let output = ChildProcess::run(mounting("check-out-on-full-disk", &[text(home.path())])).finish();
    output.assert_success();
}

/// Role: checks out into a disk that is full at first.
pub(crate) fn check_out_on_full_disk(arguments: &[&str]) {
    let [home] = arguments else { panic!("directory") };
    let home = Path::new(home);
    let store = Store::open_or_create(home.join("store")).unwrap();
    let mut tree = store.empty_tree().unwrap();
    for number in 0..8 {
        tree.write(format!("d{number}/file"), noise(number, MIB)).unwrap();
    }
    let snapshot = tree.commit(message("large")).unwrap();
    let disk = SmallDisk::mount(&home.join("disk"), 12 * MIB);
    disk.fill(3 * MIB as u64);
    let out = home.join("disk/out");
    let error = checkout(&store, &snapshot, &out, &CheckoutOptions::default(), &NoProgress).unwrap_err();
    let DirectoryError::Io { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull, "{error}");
    disk.make_room();
    let report = checkout(&store, &snapshot, &out, &CheckoutOptions::default(), &NoProgress).unwrap();
    assert!(report.resumed);
    for number in 0..8 {
        assert_eq!(fs::read(out.join(format!("d{number}/file"))).unwrap(), noise(number, MIB));
        assert_eq!(fs::read_dir(out.join(format!("d{number}"))).unwrap().count(), 1);
    }
}

/// Role: opens new and existing stores on a full disk.
pub(crate) fn open_on_full_disk(arguments: &[&str]) {
    let [mount_point] = arguments else { panic!("mount point") };
    let disk = SmallDisk::mount(Path::new(mount_point), 8 * MIB);
    for free_bytes in [0, 4096, 8192, 16_384, 65_536, 131_072, 262_144] {
        let path = disk.path().join(format!("new{free_bytes}"));
        disk.fill(free_bytes);
        match Store::open_or_create(&path) {
            Ok(store) => drop(space_outcome(store.empty_tree().unwrap().commit(message("full")))),
            Err(error) => assert!(is_disk_full(&error), "{error}"),
        }
        disk.make_room();
        assert_usable(&Store::open_or_create(&path).unwrap());
        drop(fs::remove_dir_all(&path));
    }
    let path = disk.path().join("old");
    let snapshot = crate::support::commit_file(&Store::open_or_create(&path).unwrap(), "file", "x");
    disk.fill(0);
    let store = Store::open(&path).unwrap();
    let barrier = std::sync::Barrier::new(150);
    std::thread::scope(|scope| {
        for _ in 0..150 {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..50 {
                    assert_eq!(store.snapshot(&snapshot.id).unwrap(), snapshot);
                }
            });
        }
    });
    assert_eq!(store.restore(&snapshot.id).unwrap().read("file").unwrap(), b"x");
    disk.make_room();
    assert_sound(&store);
    assert_usable(&store);
}

#[test]
fn a_store_can_be_opened_and_read_on_a_full_disk() {
    let home = tempfile::tempdir().unwrap();
    ChildProcess::run(mounting("open-on-full-disk", &[text(&home.path().join("disk"))]))
        .finish()
        .assert_success();
}

/// Role: streams the same content into two clones of a tree concurrently, while one write fails.
pub(crate) fn stream_into_two_clones(arguments: &[&str]) {
    let [home] = arguments else { panic!("directory") };
    let store = Store::open_or_create(home).unwrap();
    let attributes = || Attributes { mode: 0o644, ..Attributes::default() };
    let mut first = store.empty_tree().unwrap();
    first.put_file("small", &mut &b"small"[..], attributes()).unwrap();
    let content = noise(5, 12 * MIB);
    let (barrier, trees) = (std::sync::Barrier::new(2), [first.clone(), first.clone()]);
    std::thread::scope(|scope| {
        for mut tree in trees {
            let (store, content, barrier) = (&store, &content, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let put = tree.put_file("big", &mut content.as_slice(), attributes());
                if let Ok(snapshot) = put.and_then(|()| tree.commit(message("big"))) {
                    let found = store.restore(&snapshot.id).unwrap().read("big");
                    assert!(found.is_ok_and(|found| found == *content), "acknowledged and not there");
                }
            });
        }
    });
    assert_sound(&store);
}

/// A batch skips a chunk that it already has. If the write of that chunk by another thread fails, the chunk must not be
/// skipped.
#[test]
fn a_chunk_whose_write_failed_is_not_reused() {
    for round in 0..8 {
        let home = tempfile::tempdir().unwrap();
        let failpoint = format!("bulk-write=enospc@{}", round % 3 + 1);
        ChildProcess::start_failing("stream-into-two-clones", &[text(home.path())], &failpoint)
            .finish()
            .assert_success();
    }
}

/// Role: on a full disk, reads a store, removes snapshots, collects garbage, and commits into the freed space.
pub(crate) fn free_space_on_full_disk(arguments: &[&str]) {
    let [mount_point] = arguments else { panic!("mount point") };
    let disk = SmallDisk::mount(Path::new(mount_point), 32 * MIB);
    let path = disk.path().join("store");
    let store = Store::open_or_create(&path).unwrap();
    let kept = crate::support::commit_file(&store, "kept", noise(1, 2 * MIB));
    let removed = crate::support::commit_file(&store, "removed", noise(2, 9 * MIB));
    drop(store);
    disk.fill(0);
    let store = Store::open(&path).unwrap();
    let tree = store.restore(&kept.id).unwrap();
    assert_eq!(tree.read("kept").unwrap(), noise(1, 2 * MIB));
    assert_sound(&store);
    let refused = message("refused");
    let mut other = store.empty_tree().unwrap();
    let (outcome, _) =
        space_outcome(fill_tree(&mut other, false, 3, 6 * MIB).and_then(|()| other.commit(refused)));
    assert!(matches!(outcome, SpaceOutcome::DiskFull));
    drop(other);
    // A tree protects its objects from the collection, on a full disk too.
    let protected = store.restore(&removed.id).unwrap();
    store.remove_snapshots(&[removed.id]).unwrap();
    store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
    assert_eq!(protected.read("removed").unwrap(), noise(2, 9 * MIB));
    drop((protected, tree));
    store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
    let report = store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
    assert_eq!(report.condemned_bytes, 0);
    let mut other = store.empty_tree().unwrap();
    fill_tree(&mut other, true, 3, 6 * MIB).unwrap();
    let snapshot = other.commit(message("there is room")).unwrap();
    assert_eq!(store.restore(&snapshot.id).unwrap().read("file").unwrap(), noise(3, 6 * MIB));
    assert_sound(&store);
}

#[test]
fn reading_removing_and_collecting_work_on_a_full_disk() {
    let home = tempfile::tempdir().unwrap();
    ChildProcess::run(mounting("free-space-on-full-disk", &[text(&home.path().join("disk"))]))
        .finish()
        .assert_success();
}

/// Role: uses a store through a read-only mount.
pub(crate) fn use_read_only_mount(arguments: &[&str]) {
    let [home] = arguments else { panic!("directory") };
    let (path, mount_point) = (Path::new(home).join("store"), Path::new(home).join("mount"));
    let store = Store::open_or_create(&path).unwrap();
    let snapshot = crate::support::commit_file(&store, "file", noise(1, 3 * MIB));
    fs::create_dir(&mount_point).unwrap();
    for options in [&["--bind"][..], &["-o", "remount,bind,ro"]] {
        let mounted = Command::new("mount").args(options).arg(&path).arg(&mount_point).status();
        assert!(mounted.unwrap().success(), "cannot mount");
    }
    // A reader on a read-only file system cannot take locks, so it is refused while a process may write.
    assert!(matches!(Store::open(&mount_point), Err(StoreError::InUse { .. })));
    drop(store);
    let store = Store::open(&mount_point).unwrap();
    assert_eq!(store.snapshots().unwrap(), std::slice::from_ref(&snapshot));
    let tree = store.restore(&snapshot.id).unwrap();
    assert_eq!(tree.read("file").unwrap(), noise(1, 3 * MIB));
    assert_sound(&store);
    let error = store.set_reference("main", Expect::Anything, snapshot.id, Durability::Synced).unwrap_err();
    let StoreError::Io { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{error}");
    assert!(store.collect_garbage(&GcOptions::default(), &NoProgress).is_err());
    assert!(matches!(Store::open(&path), Err(StoreError::InUse { .. })));
    drop((tree, store));
    let store = Store::open(&path).unwrap();
    assert_usable(&store);
    assert_sound(&store);
}

#[test]
fn a_store_on_a_read_only_mount_can_be_read_but_not_while_a_writer_has_it_open() {
    let home = tempfile::tempdir().unwrap();
    ChildProcess::run(mounting("use-read-only-mount", &[text(home.path())])).finish().assert_success();
}

//! Full disks and failing writes: clear errors, no loss of acknowledged data, and normal operation once space
//! is free.

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

const MIB: usize = 1 << 20;

/// Outcome of an operation with regard to disk space.
#[derive(Debug)]
enum SpaceOutcome {
    Done,
    NoRoom,
}

fn is_no_room(error: &StoreError) -> bool {
    match error {
        StoreError::Io { source, .. } => {
            assert!(error.may_retry() || source.kind() != std::io::ErrorKind::StorageFull);
            source.kind() == std::io::ErrorKind::StorageFull
        }
        StoreError::Index { source } => source.to_string().contains("No space left"),
        _ => false,
    }
}

#[track_caller]
fn judge<T>(result: Result<T, TreeError>) -> (SpaceOutcome, Option<T>) {
    match result {
        Ok(value) => (SpaceOutcome::Done, Some(value)),
        Err(TreeError::Store(error)) if is_no_room(&error) => (SpaceOutcome::NoRoom, None),
        Err(error) => panic!("not a clear error about a full disk: {error} {error:?}"),
    }
}

/// Role: runs all kinds of operations on a disk with less and less free space, then with enough of it.
pub(crate) fn fill_disk(arguments: &[&str]) {
    let [at] = arguments else { panic!("mount point") };
    let disk = SmallDisk::mount(Path::new(at), 64 * MIB);
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
                assert!(is_no_room(&error), "{error}");
                refused += 1;
                disk.make_room();
                continue;
            }
        };
        refused += work_without_room(&store, &mut random, &mut kept);
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
        let keep = kept.split_off(kept.len().saturating_sub(3));
        let gone: Vec<SnapshotId> = kept.iter().map(|(id, _, _)| *id).collect();
        store.remove_snapshots(&gone).unwrap();
        // Everything else belongs to a commit that was reported as failed or failed later.
        kept = keep;
        store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
    }
    say(&format!("refused {refused}"));
    drop(disk);
}

/// Commits until the disk is full; returns the number of such errors.
fn work_without_room(store: &Store, random: &mut Random, kept: &mut Vec<(SnapshotId, u64, usize)>) -> usize {
    let mut refused = 0;
    for _ in 0..30 {
        let most = if random.one_in(4) { 6_000_000 } else { 60_000 };
        let (seed, len) = (random.next(), random.below(most) as usize);
        let Ok(mut tree) = store.empty_tree() else {
            refused += 1;
            continue;
        };
        let (said, written) = judge(fill_tree(&mut tree, random.one_in(2), seed, len));
        let new = if random.one_in(2) { message("synced") } else { buffered("buffered") };
        let (said, made) = match written {
            Some(()) => judge(tree.commit(new)),
            None => (said, None),
        };
        match (said, made) {
            (SpaceOutcome::Done, Some(snapshot)) => kept.push((snapshot.id, seed, len)),
            _ => refused += 1,
        }
        if refused > 3 {
            break;
        }
    }
    match store.collect_garbage(&GcOptions::default(), &NoProgress) {
        Ok(_) => {}
        Err(error) => assert!(is_no_room(&error), "{error}"),
    }
    refused
}

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
    let ended = ChildProcess::run(mounting("fill-disk", &[text(&home.path().join("disk"))])).finish();
    ended.assert_success();
    let refused: usize = ended.lines[0].strip_prefix("refused ").unwrap().parse().unwrap();
    assert!(refused > 10, "the disk was hardly ever full: {refused}");
}

/// Role: runs everything a store does, with one failing write; each failed step is retried.
pub(crate) fn fail_once(arguments: &[&str]) {
    let [home] = arguments else { panic!("directory") };
    let mut failed = 0;
    match everything(Path::new(home), &mut failed) {
        Ok(()) => say(&format!("failed {failed}")),
        Err(error) if error.to_string().contains("earlier sync") => say("poisoned"),
        Err(error) => panic!("{error}"),
    }
}

fn everything(home: &Path, failed: &mut usize) -> Result<(), Box<dyn std::error::Error>> {
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
    // In a pack that is mostly dead, from which it has to be moved.
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
    let take = || snapshot_directory(&store, &work, SnapshotOptions::default(), &NoProgress);
    let first = retry(failed, take)?.snapshot;
    fs::write(work.join("sub/1"), "changed")?;
    let second = retry(failed, take)?.snapshot;
    let options = CheckoutOptions::default();
    for snapshot in [&first, &second] {
        retry(failed, || checkout(&store, snapshot, &out, &options, &NoProgress))?;
    }
    assert_eq!(fs::read(out.join("sub/1"))?, b"changed");
    assert_eq!(fs::read_dir(out.join("sub"))?.count(), 5, "something was left behind");
    let gone: Vec<SnapshotId> = expected.drain(..6).map(|(id, _, _)| id).chain([waste]).collect();
    retry(failed, || match store.remove_snapshots(&gone) {
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

/// Prefixes of failpoints that are first reached by a removal or a garbage collection.
const REMOVALS: [&str; 4] = ["gc-", "settle", "checkpoint-write", "next-log"];

#[test]
fn a_failed_write_is_reported_at_any_failpoint_and_the_next_one_succeeds() {
    for failpoint in crate::crash::failpoints() {
        for errno in ["enospc", "eio"] {
            for visit in if is_full_run() { 1..7 } else { 1..2 } {
                let home = tempfile::tempdir().unwrap();
                let plan = format!("{failpoint}={errno}@{visit}");
                let ended = ChildProcess::start_failing("fail-once", &[text(home.path())], &plan).finish();
                ended.assert_success();
                // After a failed sync the content of the disk is unknown: the process must restart.
                let poisoned = failpoint.ends_with("-sync");
                match ended.lines.last().unwrap().as_str() {
                    "poisoned" => assert!(poisoned, "{plan}"),
                    // Failing to truncate the log at close is not reported, and operations that free space
                    // are retried with the reserve.
                    "failed 0" => {
                        let retried =
                            errno == "enospc" && REMOVALS.iter().any(|it| failpoint.starts_with(it));
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

/// Streamed content exists only in the batch: a failed commit must not make the next one refer to missing
/// objects.
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
fn clones_that_stream_and_commit_at_once_all_keep_their_content() {
    let (_home, store) = new_store();
    let mut base = store.empty_tree().unwrap();
    fill_tree(&mut base, true, 1, 3_000_000).unwrap();
    let made: Vec<(SnapshotId, u64)> = std::thread::scope(|scope| {
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
    for (id, thread) in made {
        let tree = store.restore(&id).unwrap();
        assert_eq!(tree.read("file").unwrap(), noise(1, 3_000_000));
        assert_eq!(tree.read("own").unwrap(), noise(thread + 50, 3_000_000));
    }
    assert_sound(&store);
}

/// Checkouts into a full disk fail and are resumed when there is space.
#[test]
fn a_checkout_on_a_full_disk_is_resumed_when_there_is_space() {
    let home = tempfile::tempdir().unwrap();
    let ended = ChildProcess::run(mounting("check-out-full", &[text(home.path())])).finish();
    ended.assert_success();
}

/// Role: checks out into a disk that is too small at first.
pub(crate) fn check_out_full(arguments: &[&str]) {
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

/// Role: opens new and existing stores on a disk without a free byte.
pub(crate) fn open_full(arguments: &[&str]) {
    let [at] = arguments else { panic!("mount point") };
    let disk = SmallDisk::mount(Path::new(at), 8 * MIB);
    for leave in [0, 4096, 8192, 16_384, 65_536, 131_072, 262_144] {
        let path = disk.path().join(format!("new{leave}"));
        disk.fill(leave);
        match Store::open_or_create(&path) {
            Ok(store) => drop(judge(store.empty_tree().unwrap().commit(message("full")))),
            Err(error) => assert!(is_no_room(&error), "{error}"),
        }
        disk.make_room();
        assert_usable(&Store::open_or_create(&path).unwrap());
        drop(fs::remove_dir_all(&path));
    }
    let path = disk.path().join("old");
    let made = crate::support::commit_file(&Store::open_or_create(&path).unwrap(), "file", "x");
    disk.fill(0);
    let store = Store::open(&path).unwrap();
    let barrier = std::sync::Barrier::new(150);
    std::thread::scope(|scope| {
        for _ in 0..150 {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..50 {
                    assert_eq!(store.snapshot(&made.id).unwrap(), made);
                }
            });
        }
    });
    assert_eq!(store.restore(&made.id).unwrap().read("file").unwrap(), b"x");
    disk.make_room();
    assert_sound(&store);
    assert_usable(&store);
}

#[test]
fn a_store_can_be_opened_and_read_on_a_full_disk() {
    let home = tempfile::tempdir().unwrap();
    ChildProcess::run(mounting("open-full", &[text(&home.path().join("disk"))])).finish().assert_success();
}

/// Role: two clones stream the same content into shared chunks, and one write fails.
pub(crate) fn stream_twice(arguments: &[&str]) {
    let [home] = arguments else { panic!("directory") };
    let store = Store::open_or_create(home).unwrap();
    let attributes = || Attributes { mode: 0o644, ..Attributes::default() };
    let mut first = store.empty_tree().unwrap();
    first.put_file("small", &mut &b"small"[..], attributes()).unwrap();
    let content = noise(5, 12 * MIB);
    let (both, trees) = (std::sync::Barrier::new(2), [first.clone(), first.clone()]);
    std::thread::scope(|scope| {
        for mut tree in trees {
            let (store, content, both) = (&store, &content, &both);
            scope.spawn(move || {
                both.wait();
                let put = tree.put_file("big", &mut content.as_slice(), attributes());
                if let Ok(taken) = put.and_then(|()| tree.commit(message("big"))) {
                    let found = store.restore(&taken.id).unwrap().read("big");
                    assert!(found.is_ok_and(|found| found == *content), "acknowledged and not there");
                }
            });
        }
    });
    assert_sound(&store);
}

/// If a chunk is reported as known, a commit may refer to it even if the write of the thread that added it
/// failed.
#[test]
fn a_chunk_whose_write_failed_is_not_reused() {
    for round in 0..8 {
        let home = tempfile::tempdir().unwrap();
        let failpoint = format!("bulk-write=enospc@{}", round % 3 + 1);
        ChildProcess::start_failing("stream-twice", &[text(home.path())], &failpoint)
            .finish()
            .assert_success();
    }
}

/// Role: on a disk without a free byte, reads everything, removes, collects, and commits into the freed
/// space.
pub(crate) fn make_room_full(arguments: &[&str]) {
    let [at] = arguments else { panic!("mount point") };
    let disk = SmallDisk::mount(Path::new(at), 32 * MIB);
    let path = disk.path().join("store");
    let store = Store::open_or_create(&path).unwrap();
    let kept = crate::support::commit_file(&store, "kept", noise(1, 2 * MIB));
    let gone = crate::support::commit_file(&store, "gone", noise(2, 9 * MIB));
    drop(store);
    disk.fill(0);
    let store = Store::open(&path).unwrap();
    let tree = store.restore(&kept.id).unwrap();
    assert_eq!(tree.read("kept").unwrap(), noise(1, 2 * MIB));
    assert_sound(&store);
    let refused = message("refused");
    let mut other = store.empty_tree().unwrap();
    let (said, _) = judge(fill_tree(&mut other, false, 3, 6 * MIB).and_then(|()| other.commit(refused)));
    assert!(matches!(said, SpaceOutcome::NoRoom));
    drop(other);
    // Readers protect what they use: the guard of this tree counts here as well.
    let held = store.restore(&gone.id).unwrap();
    store.remove_snapshots(&[gone.id]).unwrap();
    store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
    assert_eq!(held.read("gone").unwrap(), noise(2, 9 * MIB));
    drop((held, tree));
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
    ChildProcess::run(mounting("make-room-full", &[text(&home.path().join("disk"))]))
        .finish()
        .assert_success();
}

/// Role: uses a store through a read-only mount.
pub(crate) fn read_only(arguments: &[&str]) {
    let [home] = arguments else { panic!("directory") };
    let (path, view) = (Path::new(home).join("store"), Path::new(home).join("view"));
    let store = Store::open_or_create(&path).unwrap();
    let made = crate::support::commit_file(&store, "file", noise(1, 3 * MIB));
    fs::create_dir(&view).unwrap();
    for options in [&["--bind"][..], &["-o", "remount,bind,ro"]] {
        let mounted = Command::new("mount").args(options).arg(&path).arg(&view).status();
        assert!(mounted.unwrap().success(), "cannot mount");
    }
    // While another process can write, reading would not be protected by a lock.
    assert!(matches!(Store::open(&view), Err(StoreError::InUse { .. })));
    drop(store);
    let store = Store::open(&view).unwrap();
    assert_eq!(store.snapshots().unwrap(), std::slice::from_ref(&made));
    let tree = store.restore(&made.id).unwrap();
    assert_eq!(tree.read("file").unwrap(), noise(1, 3 * MIB));
    assert_sound(&store);
    let error = store.set_reference("main", Expect::Anything, made.id, Durability::Synced).unwrap_err();
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
fn a_store_on_a_read_only_mount_can_be_read_and_is_kept_apart_from_writers() {
    let home = tempfile::tempdir().unwrap();
    ChildProcess::run(mounting("read-only", &[text(home.path())])).finish().assert_success();
}

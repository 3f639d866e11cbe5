//! Tests of garbage collection: it deletes unreachable objects and keeps all objects that are in use.
//!
//! A collection condemns unreachable objects first: commits do not reuse them any more. It deletes a condemned object
//! when no running operation can use it. Open trees hold guards that protect the objects from deletion; pins keep the
//! objects of a snapshot until they are removed or their process ends. A *role* is a function that a child
//! process runs (`child.rs`); a failpoint (`NAME=ACTION@VISIT`) kills or stops the child at a place in the source.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use workspace_state::{
    CheckoutOptions, Durability, Episode, Expect, GcOptions, GcReport, NewSnapshot, NoProgress, Retention,
    Snapshot, SnapshotId, SnapshotOptions, Store, StoreError, Timestamp, Tree, VirtualTree, checkout,
    diff_both, snapshot_directory,
};

use crate::child::{ChildProcess, say, text, wait_for_parent};
use crate::directory::{describe, snapshot};
use crate::support::{
    Random, assert_sound, buffered, collect, commit_file, commit_files, copy_directory, is_full_run, message,
    new_store, noise, pack_bytes,
};

/// Number of bytes of a mebibyte.
const MIB: usize = 1 << 20;

fn ids(snapshots: &[Snapshot]) -> Vec<SnapshotId> {
    snapshots.iter().map(|snapshot| snapshot.id).collect()
}

#[test]
fn removed_snapshots_free_space_on_disk() {
    let (_home, store) = new_store();
    let kept = commit_file(&store, "kept", noise(1, 6 * MIB));
    let removed: Vec<Snapshot> =
        (2..6).map(|seed| commit_file(&store, "removed", noise(seed, 6 * MIB))).collect();
    let before = pack_bytes(store.path());
    store.remove_snapshots(&ids(&removed)).unwrap();
    let report = collect(&store);
    let after = pack_bytes(store.path());
    assert!(after < before - 20 * MIB as u64, "{before} bytes became {after}");
    assert!(report.freed_bytes >= 20 * MIB as u64, "{report:?}");
    assert_eq!(store.restore(&kept.id).unwrap().read("kept").unwrap(), noise(1, 6 * MIB));
    assert_sound(&store);
}

#[test]
fn a_collection_reports_the_bytes_of_each_snapshot() {
    let (_home, store) = new_store();
    let stored = Arc::<AtomicU64>::default();
    let commit = |tree: &mut VirtualTree| {
        stored.store(0, Ordering::Relaxed);
        let new = NewSnapshot { stored_bytes: Some(Arc::clone(&stored)), ..NewSnapshot::default() };
        (tree.commit(new).unwrap().id, stored.load(Ordering::Relaxed))
    };
    let mut tree = store.empty_tree().unwrap();
    tree.write("first", noise(1, MIB)).unwrap();
    let (first, added_first) = commit(&mut tree);
    tree.write("second", noise(2, MIB / 2)).unwrap();
    let (second, added_second) = commit(&mut tree);
    let near = |bytes: u64, expected: usize| (expected as u64..expected as u64 + 20_000).contains(&bytes);
    assert!(near(added_first, MIB) && near(added_second, MIB / 2), "{added_first} {added_second}");

    let report = collect(&store);
    let sizes: HashMap<_, _> = report.snapshots.iter().copied().collect();
    assert_eq!(report.snapshots.len(), 2);
    assert_eq!(sizes.values().sum::<u64>(), report.live_bytes);
    assert!(near(sizes[&first], MIB) && near(sizes[&second], MIB / 2), "{sizes:?}");

    store.remove_snapshots(&[first]).unwrap();
    let report = collect(&store);
    assert_eq!(report.snapshots, [(second, report.live_bytes)], "it holds what the first one brought");
    assert!(near(report.live_bytes, MIB + MIB / 2), "{report:?}");
}

#[test]
fn removed_snapshots_of_small_commits_free_space_too() {
    let (_home, store) = new_store();
    let kept = commit_file(&store, "kept", "kept");
    let mut removed = Vec::new();
    for seed in 0..60 {
        let mut tree = store.empty_tree().unwrap();
        tree.write("small", noise(seed, 200_000)).unwrap();
        removed.push(tree.commit(buffered("small")).unwrap());
    }
    let before = pack_bytes(store.path());
    store.remove_snapshots(&ids(&removed)).unwrap();
    collect(&store);
    let after = pack_bytes(store.path());
    assert!(after < before / 2, "{before} bytes became {after}");
    assert_eq!(store.restore(&kept.id).unwrap().read("kept").unwrap(), b"kept");
    assert_sound(&store);
    drop(store.restore(&kept.id).unwrap());
    let path = store.path().to_owned();
    drop(store);
    let store = Store::rebuild_index(path).unwrap();
    assert_eq!(store.restore(&kept.id).unwrap().read("kept").unwrap(), b"kept");
    assert_sound(&store);
}

#[test]
fn a_dry_run_reports_garbage_and_changes_nothing() {
    let (_home, store) = new_store();
    let kept = commit_file(&store, "kept", noise(1, MIB));
    let removed = commit_file(&store, "gone", noise(2, 6 * MIB));
    store.remove_snapshots(&[removed.id]).unwrap();
    let before = describe(&store.path().join("packs"));
    let dry = store.collect_garbage(&GcOptions { dry_run: true }, &NoProgress).unwrap();
    assert!(dry.dead_bytes >= 6 * MIB as u64 && dry.freed_bytes == 0, "{dry:?}");
    assert_eq!(describe(&store.path().join("packs")), before);
    let again = store.collect_garbage(&GcOptions { dry_run: true }, &NoProgress).unwrap();
    assert_eq!(again, dry);
    let real = collect(&store);
    assert_eq!((real.dead_objects, real.dead_bytes), (dry.dead_objects, dry.dead_bytes));
    let after = store.collect_garbage(&GcOptions { dry_run: true }, &NoProgress).unwrap();
    assert_eq!(after.dead_objects, 0);
    assert_eq!(store.restore(&kept.id).unwrap().read("kept").unwrap(), noise(1, MIB));
}

#[test]
fn a_dry_run_counts_the_same_objects_as_a_collection() {
    let (_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    // Content that was written before is written again, so there are two copies of some objects.
    for content in ["one", "two", "one", "two"] {
        tree.write("a/b/file", content).unwrap();
        tree.commit(buffered("state")).unwrap();
    }
    let dry = store.collect_garbage(&GcOptions { dry_run: true }, &NoProgress).unwrap();
    let real = collect(&store);
    let counted = |report: &GcReport| (report.live_objects, report.live_bytes, report.dead_objects);
    assert_eq!(counted(&dry), counted(&real));
}

#[test]
fn a_virtual_tree_protects_the_objects_of_its_base_and_can_commit_them_again() {
    let (_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    tree.write("deep/er/file", noise(1, 5 * MIB)).unwrap();
    tree.write("other", noise(2, 1000)).unwrap();
    let base = tree.commit(message("base")).unwrap();
    drop(tree);
    let mut restored = store.restore(&base.id).unwrap();
    let other_clone = restored.clone();
    store.remove_snapshots(&[base.id]).unwrap();
    for _ in 0..3 {
        let report = collect(&store);
        assert_eq!(report.freed_bytes, 0, "{report:?}");
        assert!(report.condemned_bytes > 5 * MIB as u64, "{report:?}");
    }
    assert_eq!(restored.read("deep/er/file").unwrap(), noise(1, 5 * MIB));
    restored.write("other", "changed").unwrap();
    let committed = restored.commit(message("again")).unwrap();
    assert_sound(&store);
    collect(&store);
    drop((restored, other_clone));
    collect(&store);
    collect(&store);
    assert_eq!(store.restore(&committed.id).unwrap().read("deep/er/file").unwrap(), noise(1, 5 * MIB));
    assert_sound(&store);
}

#[test]
fn committing_an_unchanged_tree_revives_its_objects() {
    let (_home, store) = new_store();
    let base = commit_file(&store, "a/b", noise(1, 5 * MIB));
    let mut restored = store.restore(&base.id).unwrap();
    store.remove_snapshots(&[base.id]).unwrap();
    collect(&store);
    // No object is written: only the record of the snapshot refers to condemned objects.
    let again = restored.commit(message("again")).unwrap();
    drop(restored);
    collect(&store);
    collect(&store);
    assert_eq!(again.tree, base.tree);
    assert_sound(&store);
}

#[test]
fn condemned_content_that_is_written_again_is_readable() {
    let (_home, store) = new_store();
    let base = commit_file(&store, "a", noise(1, 5 * MIB));
    let protecting_tree = store.restore(&base.id).unwrap();
    store.remove_snapshots(&[base.id]).unwrap();
    collect(&store);
    let again = commit_file(&store, "elsewhere", noise(1, 5 * MIB));
    drop(protecting_tree);
    collect(&store);
    collect(&store);
    assert_eq!(store.restore(&again.id).unwrap().read("elsewhere").unwrap(), noise(1, 5 * MIB));
    assert_sound(&store);
}

#[test]
fn a_tree_that_is_used_after_its_commit_protects_the_committed_objects() {
    let (_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    tree.write("deep/er/file", noise(1, 50_000)).unwrap();
    tree.write("other", "x").unwrap();
    let committed = tree.commit(message("base")).unwrap();
    store.remove_snapshots(&[committed.id]).unwrap();
    collect(&store);
    collect(&store);
    tree.write("other", "y").unwrap();
    let next = tree.commit(message("next")).unwrap();
    assert_eq!(store.restore(&next.id).unwrap().read("deep/er/file").unwrap(), noise(1, 50_000));
    assert_sound(&store);
}

/// Other threads remove each snapshot and collect garbage right after its commit.
#[test]
fn a_tree_is_readable_after_the_concurrent_removal_of_its_snapshot() {
    let (_home, store) = new_store();
    let stop = AtomicBool::new(false);
    let deadline = Instant::now() + Duration::from_secs(if is_full_run() { 60 } else { 4 });
    std::thread::scope(|scope| {
        // This thread removes every snapshot as soon as it exists, and collects garbage.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let all = ids(&store.snapshots().unwrap());
                if !all.is_empty() {
                    store.remove_snapshots(&all).unwrap();
                }
                collect(&store);
            }
        });
        for thread in 0..2u64 {
            let store = &store;
            let (stop, deadline) = (&stop, deadline);
            scope.spawn(move || {
                let mut tree = store.empty_tree().unwrap();
                tree.write("base", noise(thread, 5000)).unwrap();
                let mut round = 0u64;
                while Instant::now() < deadline {
                    round += 1;
                    tree.write("deep/changing", round.to_le_bytes()).unwrap();
                    tree.commit(buffered("step")).unwrap();
                    assert_eq!(tree.read("base").unwrap(), noise(thread, 5000), "round {round}");
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
    });
    assert_sound(&store);
}

/// Role: restores a snapshot, waits for the parent, reads a file of the snapshot and commits a change.
pub(crate) fn hold_tree(arguments: &[&str]) {
    let [store, id, path, len] = arguments else { panic!("store, snapshot, path, length") };
    let store = Store::open(store).unwrap();
    let mut tree = store.restore(&id.parse().unwrap()).unwrap();
    say("holding");
    wait_for_parent();
    assert_eq!(tree.read(path).unwrap(), noise(1, len.parse().unwrap()));
    tree.write("new", "x").unwrap();
    let snapshot = tree.commit(message("from the child")).unwrap();
    say(&snapshot.id.to_string());
}

#[test]
fn a_virtual_tree_of_another_process_delays_deletion() {
    let (_home, store) = new_store();
    let base = commit_file(&store, "a/b", noise(1, 5 * MIB));
    let arguments = [text(store.path()), &base.id.to_string(), "a/b", &(5 * MIB).to_string()];
    let mut child = ChildProcess::start("hold-tree", &arguments);
    child.expect_line("holding");
    store.remove_snapshots(&[base.id]).unwrap();
    for _ in 0..2 {
        assert!(collect(&store).condemned_bytes > 5 * MIB as u64);
    }
    child.resume();
    let id: SnapshotId = child.next_line().expect("a snapshot").parse().unwrap();
    child.finish().assert_success();
    collect(&store);
    assert_eq!(store.restore(&id).unwrap().read("a/b").unwrap(), noise(1, 5 * MIB));
    assert_sound(&store);
}

#[test]
fn a_killed_process_does_not_delay_deletion() {
    let (_home, store) = new_store();
    let base = commit_file(&store, "a/b", noise(1, 5 * MIB));
    let arguments = [text(store.path()), &base.id.to_string(), "a/b", "0"];
    let mut child = ChildProcess::start("hold-tree", &arguments);
    child.expect_line("holding");
    store.remove_snapshots(&[base.id]).unwrap();
    assert!(collect(&store).condemned_bytes > 0);
    child.kill();
    child.finish().assert_killed();
    let before = pack_bytes(store.path());
    let report = collect(&store);
    assert_eq!(report.condemned_bytes, 0);
    assert!(pack_bytes(store.path()) < before - 5 * MIB as u64, "{report:?}");
    assert_sound(&store);
}

/// Role: pins a snapshot and waits for the parent.
pub(crate) fn hold_pin(arguments: &[&str]) {
    let [store, id] = arguments else { panic!("store, snapshot") };
    let store = Store::open(store).unwrap();
    let snapshot = store.snapshot(&id.parse().unwrap()).unwrap();
    let _pin = store.pin_for_process(&snapshot, "a test").unwrap();
    say("pinned");
    wait_for_parent();
}

#[test]
fn pins_keep_content_until_they_are_removed_or_their_process_ends() {
    let (_home, store) = new_store();
    let dead_bytes = || store.collect_garbage(&GcOptions { dry_run: true }, &NoProgress).unwrap().dead_bytes;
    let snapshot = commit_file(&store, "a/b", noise(1, 5 * MIB));
    let content = |store: &Store| {
        let tree = Tree::of_snapshot(store, &snapshot)?;
        let entry = tree.entry("a/b")?.unwrap();
        let workspace_state::Node::File(file) = entry.node else { panic!("not a file") };
        tree.read(&file)
    };
    let pin = store.pin(&snapshot, "a test").unwrap();
    let mut child = ChildProcess::start("hold-pin", &[text(store.path()), &snapshot.id.to_string()]);
    child.expect_line("pinned");
    assert_eq!(store.pins().unwrap().len(), 2);
    store.remove_snapshots(&[snapshot.id]).unwrap();
    collect(&store);
    assert_eq!(dead_bytes(), 0);
    store.unpin(pin).unwrap();
    collect(&store);
    assert_eq!(content(&store).unwrap(), noise(1, 5 * MIB), "the child's pin does not hold");
    child.kill();
    child.finish().assert_killed();
    collect(&store);
    collect(&store);
    assert!(store.pins().unwrap().is_empty());
    assert!(content(&store).unwrap_err().is_corruption());
    let error = store.pin(&snapshot, "too late").unwrap_err();
    assert!(error.is_corruption(), "{error}");
    assert_sound(&store);
}

#[test]
fn pins_are_kept_by_a_rebuild_of_the_index() {
    let (_home, store) = new_store();
    let snapshot = commit_file(&store, "a/b", noise(1, 5 * MIB));
    store.pin(&snapshot, "a test").unwrap();
    store.remove_snapshots(&[snapshot.id]).unwrap();
    let path = store.path().to_owned();
    drop(store);
    let store = Store::rebuild_index(path).unwrap();
    assert_eq!(store.pins().unwrap()[0].holder, "a test");
    collect(&store);
    let tree = Tree::of_snapshot(&store, &snapshot).unwrap();
    assert!(tree.entry("a/b").unwrap().is_some());
}

#[test]
fn retention_keeps_snapshots_of_any_rule_reference_pin_or_episode() {
    let (_home, store) = new_store();
    let mut all = Vec::new();
    for number in 0..8 {
        let mut tree = store.empty_tree().unwrap();
        tree.write("file", number.to_string()).unwrap();
        let mut new = message("step");
        if number == 1 {
            new.labels.insert("release".to_owned(), "1.0".to_owned());
        }
        all.push(tree.commit(new).unwrap());
    }
    store.set_reference("main", Expect::Absent, all[0].id, Default::default()).unwrap();
    store.pin(&all[2], "a test").unwrap();
    store.put_episode(&Episode::new(all[3].id, None, "go", 1.0), Default::default()).unwrap();
    let removed = |rules: Retention| -> Vec<usize> {
        let plan = store.retention_plan(&rules).unwrap();
        assert_eq!(plan.keep.len() + plan.remove.len(), all.len());
        plan.remove
            .iter()
            .map(|snapshot| all.iter().position(|other| other.id == snapshot.id).unwrap())
            .collect()
    };
    assert_eq!(removed(Retention::default()), [] as [usize; 0]);
    assert_eq!(removed(Retention { keep_last: Some(2), ..Retention::default() }), [1, 4, 5]);
    assert_eq!(removed(Retention { keep_last: Some(100), ..Retention::default() }), [] as [usize; 0]);
    assert_eq!(removed(Retention { keep_last: Some(0), ..Retention::default() }), [1, 4, 5, 6, 7]);
    assert_eq!(removed(Retention { keep_labelled: true, ..Retention::default() }), [4, 5, 6, 7]);
    let since = Some(all[5].time);
    assert_eq!(removed(Retention { keep_since: since, ..Retention::default() }), [1, 4]);
    let all_rules =
        Retention { keep_since: Some(Timestamp(i64::MAX)), keep_last: Some(1), keep_labelled: true };
    assert_eq!(removed(all_rules.clone()), [4, 5, 6]);
    let plan = store.retention_plan(&all_rules).unwrap();
    store.remove_snapshots(&ids(&plan.remove)).unwrap();
    collect(&store);
    assert_eq!(store.snapshots().unwrap().len(), 5);
    assert_sound(&store);
}

#[test]
fn the_target_of_a_reference_is_not_removed() {
    let (_home, store) = new_store();
    let snapshot = commit_file(&store, "a", "b");
    store.set_reference("main", Expect::Absent, snapshot.id, Default::default()).unwrap();
    let error = store.remove_snapshots(&[snapshot.id]).unwrap_err();
    assert!(matches!(error, StoreError::Refused(_)), "{error}");
    assert!(error.to_string().contains("main"), "{error}");
    assert_sound(&store);
}

#[test]
fn collections_during_commits_of_threads_and_another_process_lose_nothing() {
    let (home, store) = new_store();
    let stop = AtomicBool::new(false);
    let mut other =
        ChildProcess::start("commit-loop", &[text(store.path()), text(home.path()), "other", "1"]);
    let deadline = Instant::now() + Duration::from_secs(if is_full_run() { 60 } else { 5 });
    let (kept, collections) = std::thread::scope(|scope| {
        let committers: Vec<_> = (0..4u64)
            .map(|thread| {
                let (store, stop) = (&store, &stop);
                scope.spawn(move || commit_and_remove(store, thread, stop))
            })
            .collect();
        let mut collections = 0;
        while Instant::now() < deadline {
            collect(&store);
            collections += 1;
        }
        stop.store(true, Ordering::Relaxed);
        let kept: Vec<(SnapshotId, u64)> =
            committers.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (kept, collections)
    });
    other.kill();
    let output = other.finish();
    output.assert_killed();
    assert!(collections > 3 && kept.len() > 8, "{collections} collections, {} kept", kept.len());
    for (id, seed) in &kept {
        assert_eq!(store.restore(id).unwrap().read("shared/content").unwrap(), noise(*seed, 20_000));
    }
    assert_sound(&store);
    collect(&store);
    assert_sound(&store);
    assert!(!output.lines.is_empty());
    for line in &output.lines {
        let id = line.split(' ').nth(1).unwrap().parse().unwrap();
        store.restore(&id).unwrap().read("manifest").unwrap();
    }
}

/// Commits a few contents repeatedly, so that condemned objects are needed again, and removes most snapshots. Returns
/// the other snapshots with the seeds of their content.
fn commit_and_remove(store: &Store, thread: u64, stop: &AtomicBool) -> Vec<(SnapshotId, u64)> {
    let mut random = Random::with_seed(thread + 77);
    let mut kept = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let seed = random.below(12);
        let mut tree = store.empty_tree().unwrap();
        tree.write("shared/content", noise(seed, 20_000)).unwrap();
        if random.one_in(10) {
            tree.write("bulk", noise(seed + 100, 4_500_000)).unwrap();
        }
        let new = if random.one_in(4) { message("synced") } else { buffered("buffered") };
        let snapshot = tree.commit(new).unwrap();
        if random.one_in(10) {
            kept.push((snapshot.id, seed));
        } else {
            store.remove_snapshots(&[snapshot.id]).unwrap();
        }
    }
    kept
}

#[test]
fn an_interrupted_collection_is_completed_by_the_next_one() {
    for failpoint in crate::crash::failpoints().iter().filter(|name| name.starts_with("gc-")) {
        let (home, store) = new_store();
        let path = store.path().to_owned();
        // Most of this pack becomes garbage, so a collection must move the other objects.
        let mut tree = store.empty_tree().unwrap();
        tree.write("kept", noise(1, 5 * MIB)).unwrap();
        tree.write("garbage", noise(2, 12 * MIB)).unwrap();
        let both = tree.commit(message("both")).unwrap();
        tree.remove("garbage").unwrap();
        let kept = tree.commit(message("kept")).unwrap();
        store.remove_snapshots(&[both.id]).unwrap();
        drop(tree);
        drop(store);
        let plan = format!("{failpoint}=kill");
        ChildProcess::start_failing("collect-loop", &[text(&path)], &plan).finish().assert_killed();
        let store = Store::open(&path).unwrap();
        assert_sound(&store);
        let all = ids(&store.snapshots().unwrap());
        assert_eq!(all, [kept.id], "{failpoint}");
        collect(&store);
        let report = collect(&store);
        assert_eq!((report.dead_objects, report.condemned_bytes), (0, 0), "{failpoint}");
        assert_eq!(store.restore(&kept.id).unwrap().read("kept").unwrap(), noise(1, 5 * MIB));
        assert_sound(&store);
        drop(store);
        let store = Store::rebuild_index(&path).unwrap();
        assert_eq!(store.restore(&kept.id).unwrap().read("kept").unwrap(), noise(1, 5 * MIB));
        assert_sound(&store);
        drop(home);
    }
}

#[test]
fn a_second_concurrent_collection_is_refused() {
    let (_home, store) = new_store();
    let base = commit_file(&store, "a", noise(1, 2000));
    // The child is stopped in the middle of a garbage collection.
    let mut child = ChildProcess::start_failing("collect-loop", &[text(store.path())], "gc-marked=stop");
    child.wait_until_stopped();
    let refused = store.collect_garbage(&GcOptions { dry_run: true }, &NoProgress).unwrap_err();
    assert!(matches!(refused, StoreError::Refused(_)), "{refused}");
    assert!(refused.to_string().contains("another garbage collection"), "{refused}");
    child.kill();
    child.finish().assert_killed();
    let deadline = Instant::now() + Duration::from_secs(20);
    // A process that another test is just starting may inherit the lock until it calls `exec`.
    while store.collect_garbage(&GcOptions::default(), &NoProgress).is_err() {
        assert!(Instant::now() < deadline, "a dead process holds the lock");
    }
    assert_eq!(ids(&store.snapshots().unwrap()).first(), Some(&base.id));
    assert_sound(&store);
}

/// Role: takes a snapshot of a directory.
pub(crate) fn take_snapshot(arguments: &[&str]) {
    let [store, directory] = arguments else { panic!("store, directory") };
    let store = Store::open(store).unwrap();
    say("starting");
    say(&snapshot(&store, Path::new(directory)).snapshot.id.to_string());
}

/// Two concurrent snapshots of one directory leave stat records (fingerprints of the files) of both trees. The records
/// of the tree that is collected must be ignored.
#[test]
fn stat_records_of_a_collected_tree_are_ignored() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    fs::create_dir_all(work.join("sub")).unwrap();
    fs::write(work.join("sub/file"), "old").unwrap();
    fs::write(work.join("root-file"), "old").unwrap();
    std::thread::sleep(Duration::from_millis(2100));
    snapshot(&store, &work);
    fs::write(work.join("root-file"), "changed before the first").unwrap();
    // The first snapshot is stopped after it read the directory and before its commit.
    let arguments = [text(store.path()), text(&work)];
    let mut child = ChildProcess::start_failing("snapshot-directory", &arguments, "before-commit=stop");
    child.expect_line("starting");
    child.wait_until_stopped();
    fs::write(work.join("sub/file"), noise(5, 20_000)).unwrap();
    let second = snapshot(&store, &work).snapshot;
    child.signal(rustix::process::Signal::CONT);
    child.next_line().expect("a snapshot");
    child.finish().assert_success();
    store.remove_snapshots(&[second.id]).unwrap();
    for _ in 0..3 {
        collect(&store);
    }
    let third = snapshot(&store, &work).snapshot;
    assert_sound(&store);
    assert_eq!(store.restore(&third.id).unwrap().read("sub/file").unwrap(), noise(5, 20_000));
}

#[test]
fn a_checkout_into_a_directory_whose_tree_was_collected_must_be_forced() {
    let (home, store) = new_store();
    let (work, out) = (home.path().join("work"), home.path().join("out"));
    fs::create_dir_all(work.join("sub")).unwrap();
    fs::write(work.join("sub/file"), "first").unwrap();
    let first = snapshot(&store, &work).snapshot;
    checkout(&store, &first, &out, &CheckoutOptions::default(), &NoProgress).unwrap();
    fs::write(work.join("sub/file"), "second").unwrap();
    let second = snapshot(&store, &work).snapshot;
    store.remove_snapshots(&[first.id]).unwrap();
    collect(&store);
    collect(&store);
    let refused = checkout(&store, &second, &out, &CheckoutOptions::default(), &NoProgress);
    assert!(refused.is_err(), "nothing is known about the directory any more");
    let force = CheckoutOptions { force: true, ..CheckoutOptions::default() };
    checkout(&store, &second, &out, &force, &NoProgress).unwrap();
    assert_eq!(fs::read(out.join("sub/file")).unwrap(), b"second");
    let options = SnapshotOptions::default();
    let again = snapshot_directory(&store, &out, options, &NoProgress).unwrap().snapshot;
    assert_eq!(again.tree, second.tree);
    assert_sound(&store);
}

#[test]
fn old_packs_of_a_killed_writer_are_removed() {
    let (_home, store) = new_store();
    let path = store.path().to_owned();
    let kept = commit_file(&store, "kept", "kept");
    // The child is killed after it wrote a bulk pack (a pack of one large commit) and before the commit.
    ChildProcess::start_failing("collect-loop", &[text(&path)], "before-commit=kill")
        .finish()
        .assert_killed();
    fs::write(path.join("packs/000000ff.new"), "half a pack").unwrap();
    assert!(pack_bytes(&path) > 4 * MIB as u64);
    collect(&store);
    assert!(pack_bytes(&path) > 4 * MIB as u64, "its writer might be about to commit it");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    let packs = fs::read_dir(path.join("packs")).unwrap().map(|entry| entry.unwrap().path());
    for path in packs {
        fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
    }
    let report = collect(&store);
    assert!(report.freed_bytes > 4 * MIB as u64 && pack_bytes(&path) < 4 * MIB as u64, "{report:?}");
    assert!(!path.join("packs/000000ff.new").exists());
    assert_eq!(store.restore(&kept.id).unwrap().read("kept").unwrap(), b"kept");
    assert_sound(&store);
}

/// A condemned object that is still protected, and was written again by another commit, exists twice.
#[test]
fn a_live_copy_of_a_condemned_object_is_kept() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("file"), "content").unwrap();
    let take_snapshot = |seconds: u64, text: &str| {
        for path in [work.join("file"), work.clone()] {
            let time = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
            fs::File::open(path).unwrap().set_modified(time).unwrap();
        }
        let options = SnapshotOptions { new: message(text), ..SnapshotOptions::default() };
        snapshot_directory(&store, &work, options, &NoProgress).unwrap().snapshot
    };
    take_snapshot(1000, "kept");
    let first = take_snapshot(2000, "first");
    store.remove_snapshots(&[first.id]).unwrap();
    let guard = store.empty_tree().unwrap();
    collect(&store);
    // With the long message, the log is large enough to be rewritten.
    let again = take_snapshot(2000, &"m".repeat(6 * MIB));
    assert_eq!(first.times, again.times);
    collect(&store);
    drop(guard);
    assert_sound(&store);
}

#[test]
fn directories_grafted_into_a_tree_are_kept_when_their_snapshot_is_removed() {
    let (_home, store) = new_store();
    let commit = |files: &[(&str, &str)]| commit_files(&store, files);
    let base = commit(&[("d/f", "base"), ("top", "base")]);
    let ours = commit(&[("d/f", "base"), ("top", "ours")]);
    let theirs = commit(&[("d/f", "theirs"), ("top", "theirs")]);
    let mut merged_tree = {
        let [base, ours, theirs] =
            [&base, &ours, &theirs].map(|snapshot| Tree::of_snapshot(&store, snapshot).unwrap());
        let their_diff = diff_both(&base, &ours, &theirs).unwrap().theirs;
        let mut merged_tree = VirtualTree::over(&ours).unwrap();
        merged_tree.graft_subtrees(&theirs, &their_diff.one_sided).unwrap();
        merged_tree
    };
    store.remove_snapshots(&[base.id, ours.id, theirs.id]).unwrap();
    collect(&store);
    let merged = merged_tree.commit(message("merged")).unwrap();
    collect(&store);
    let tree = store.restore(&merged.id).unwrap();
    assert_eq!(
        (tree.read("d/f").unwrap(), tree.read("top").unwrap()),
        (b"theirs".to_vec(), b"ours".to_vec())
    );
    assert_sound(&store);
}

/// Role: verifies, collects or rebuilds a store with little memory.
pub(crate) fn work_with_little_memory(arguments: &[&str]) {
    let [path, operation] = arguments else { panic!("store, work") };
    // The thread pool starts its threads before memory is limited.
    let (_home, small) = new_store();
    assert_sound(&small);
    collect(&small);
    let store = Store::open(path).unwrap();
    limit_memory(32 << 20);
    match *operation {
        "verify" => assert_sound(&store),
        "collect" => drop(collect(&store)),
        "rebuild" => {
            drop(store);
            drop(Store::rebuild_index(path).unwrap());
        }
        other => panic!("there is no operation `{other}`"),
    }
    say("done");
}

/// Limits the additional memory of this process to `more` bytes.
fn limit_memory(more: u64) {
    // Systems other than Linux do not have this file.
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return };
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
    let used: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    let limit = Some(used * 1024 + more);
    setrlimit(Resource::Data, Rlimit { current: limit, maximum: limit }).unwrap();
}

#[test]
fn a_log_larger_than_memory_is_verified_collected_and_rebuilt() {
    let (home, store) = new_store();
    let snapshot = commit_file(&store, "file", "content");
    let mut episode = Episode::new(snapshot.id, None, "x".repeat(MIB), 1.0);
    for visits in 100..196 {
        episode.visits = visits;
        store.put_episode(&episode, Durability::Buffered).unwrap();
    }
    let path = store.path().to_owned();
    drop(store);
    assert!(pack_bytes(&path) > 90 * MIB as u64);
    let copy = home.path().join("copy");
    copy_directory(&path, &copy);
    for (path, operation) in [(&path, "verify"), (&path, "collect"), (&copy, "rebuild")] {
        let output = ChildProcess::start("work-with-little-memory", &[text(path), operation]).finish();
        assert_eq!(output.lines, ["done"], "{operation}: {}", output.stderr);
        assert_eq!(Store::open(path).unwrap().episode(&episode.id).unwrap().unwrap().visits, 195);
    }
}

/// Maximum number of objects that one transaction of a garbage collection changes.
const BATCH: u64 = 4096;

/// Role: runs one garbage collection.
pub(crate) fn collect_once(arguments: &[&str]) {
    let [path] = arguments else { panic!("store") };
    collect(&Store::open(path).unwrap());
}

/// Returns a tree with 7000 files below `gone`, each in a directory of its own, and 5000 files in `kept`.
fn large_tree(store: &Store) -> VirtualTree {
    let mut tree = store.empty_tree().unwrap();
    for number in 0..7000 {
        tree.write(format!("gone/{}/{number}/file", number % 7), noise(number, 700)).unwrap();
    }
    for number in 0..5000 {
        tree.write(format!("kept/{number}"), noise(number + 10_000, 300)).unwrap();
    }
    tree
}

/// Returns a closed store with two snapshots: one of the whole large tree, and one without `gone`.
fn store_with_large_tree() -> (tempfile::TempDir, std::path::PathBuf, [SnapshotId; 2]) {
    let (home, store) = new_store();
    let mut tree = large_tree(&store);
    let all = tree.commit(buffered("all")).unwrap().id;
    tree.remove("gone").unwrap();
    let kept = tree.commit(buffered("kept")).unwrap().id;
    let path = store.path().to_owned();
    (home, path, [all, kept])
}

/// Returns the store of [`store_with_large_tree`] without its first snapshot. The dead nodes, the dead chunks, and the
/// live objects in the same packs are each too many for one transaction.
fn store_with_mostly_garbage() -> (tempfile::TempDir, std::path::PathBuf, SnapshotId) {
    let (home, path, [all, kept]) = store_with_large_tree();
    Store::open(&path).unwrap().remove_snapshots(&[all]).unwrap();
    (home, path, kept)
}

/// After each transaction, all objects below a live node must be live.
#[test]
fn a_tree_that_is_committed_between_the_transactions_of_a_collection_keeps_its_content() {
    let (home, original, [all, _]) = store_with_large_tree();
    let copy = home.path().join("copy");
    for visit in 1..=3 {
        drop(fs::remove_dir_all(&copy));
        copy_directory(&original, &copy);
        let store = Store::open(&copy).unwrap();
        let mut tree = store.restore(&all).unwrap();
        store.remove_snapshots(&[all]).unwrap();
        let plan = format!("gc-condemned-batch=kill@{visit}");
        ChildProcess::start_failing("collect-once", &[text(&copy)], &plan).finish().assert_killed();
        tree.write("more", "x").unwrap();
        let again = tree.commit(buffered("again")).unwrap();
        drop(tree);
        for _ in 0..2 {
            collect(&store);
            assert_sound(&store);
        }
        let again = store.restore(&again.id).unwrap();
        assert_eq!(again.read("gone/0/0/file").unwrap(), noise(0, 700), "{plan}");
    }
}

/// After each transaction of a garbage collection, the store is consistent, and commits can use the remaining dead
/// objects.
#[test]
fn a_collection_killed_between_its_transactions_leaves_a_consistent_store() {
    let (home, original, kept) = store_with_mostly_garbage();
    let dead = {
        let store = Store::open(&original).unwrap();
        store.collect_garbage(&GcOptions { dry_run: true }, &NoProgress).unwrap().dead_objects
    };
    assert!(dead > 3 * BATCH, "{dead}");
    let copy = home.path().join("copy");
    for (plan, condemned) in [
        ("gc-condemned-batch=kill@1", BATCH),
        ("gc-condemned-batch=kill@2", 2 * BATCH),
        ("gc-condemned-batch=kill@3", 3 * BATCH),
        ("gc-deleted-batch=kill@1", dead),
        ("gc-deleted-batch=kill@2", dead),
        ("gc-moved-batch=kill@1", dead),
    ] {
        drop(fs::remove_dir_all(&copy));
        copy_directory(&original, &copy);
        ChildProcess::start_failing("collect-once", &[text(&copy)], plan).finish().assert_killed();
        let store = Store::open(&copy).unwrap();
        assert_sound(&store);
        let remaining =
            store.collect_garbage(&GcOptions { dry_run: true }, &NoProgress).unwrap().dead_objects;
        assert_eq!(remaining, dead - condemned, "{plan}");
        let again = large_tree(&store).commit(buffered("again")).unwrap();
        for _ in 0..2 {
            collect(&store);
            assert_sound(&store);
        }
        let (again, kept) = (store.restore(&again.id).unwrap(), store.restore(&kept).unwrap());
        for number in [0, 1234, 4999] {
            assert_eq!(again.read(format!("gone/{}/{number}/file", number % 7)).unwrap(), noise(number, 700));
            assert_eq!(kept.read(format!("kept/{number}")).unwrap(), noise(number + 10_000, 300));
        }
    }
}

#[test]
fn objects_are_moved_in_several_transactions() {
    let (_home, path, kept) = store_with_mostly_garbage();
    let before = pack_bytes(&path);
    ChildProcess::start_failing("collect-once", &[text(&path)], "gc-moved-batch=kill")
        .finish()
        .assert_killed();
    // The old pack and the new pack exist, and the index refers to both.
    assert!(pack_bytes(&path) > before);
    let store = Store::open(&path).unwrap();
    assert_sound(&store);
    collect(&store);
    assert!(pack_bytes(&path) < before - 3 * MIB as u64, "{before} bytes became {}", pack_bytes(&path));
    let tree = store.restore(&kept).unwrap();
    for number in 0..5000 {
        assert_eq!(tree.read(format!("kept/{number}")).unwrap(), noise(number + 10_000, 300));
    }
    assert_sound(&store);
}

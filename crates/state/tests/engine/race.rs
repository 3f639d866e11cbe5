//! Tests with concurrent threads and processes: no update is lost, and no partial commit is visible.
//!
//! A *role* is a function that a child process runs (`child.rs`). A *failpoint*, set as `NAME=ACTION@VISIT`, is a named
//! place in the source at which a test kills, stops or pauses the child, or lets a write fail.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use workspace_state::{
    Attributes, Durability, Expect, NewSnapshot, SnapshotId, Store, StoreError, TreeError,
};

use crate::child::{ChildProcess, say, text, wait_for_parent};
use crate::support::{assert_sound, buffered, commit_file, is_full_run, message, new_store, noise};

#[test]
fn only_one_of_two_concurrent_writers_moves_a_reference() {
    let (_home, store) = new_store();
    let snapshots: Vec<SnapshotId> =
        (0..3).map(|number| commit_file(&store, "f", number.to_string()).id).collect();
    store.set_reference("main", Expect::Absent, snapshots[0], Durability::Buffered).unwrap();
    let barrier = Barrier::new(2);
    for _ in 0..if is_full_run() { 2000 } else { 200 } {
        let base = store.reference("main").unwrap().unwrap();
        let targets: Vec<SnapshotId> = snapshots.iter().copied().filter(|id| *id != base).collect();
        let results: Vec<Result<(), StoreError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = targets
                .iter()
                .map(|target| {
                    let (store, barrier) = (&store, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        store.set_reference("main", Expect::At(base), *target, Durability::Buffered)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winner = results.iter().position(Result::is_ok).expect("somebody wins");
        let Err(StoreError::ReferenceMoved { name, expected, found }) = &results[1 - winner] else {
            panic!("both won: {results:?}");
        };
        assert_eq!((name.as_str(), expected), ("main", &base.to_string()));
        assert_eq!(found, &targets[winner].to_string());
        assert_eq!(store.reference("main").unwrap(), Some(targets[winner]));
        assert!(results[1 - winner].as_ref().unwrap_err().may_retry());
    }
}

/// Role: increments a counter in the snapshot of a reference. Retries when another process has moved the reference.
pub(crate) fn move_reference(arguments: &[&str]) {
    let [store, rounds] = arguments else { panic!("store, rounds") };
    let store = Store::open_or_create(store).unwrap();
    say("ready");
    wait_for_parent();
    let mut retries = 0;
    for round in 0..rounds.parse().unwrap() {
        retries += increment(&store, round % 8 == 0);
    }
    say(&format!("retries {retries}"));
}

/// Increments the counter. Returns the number of retries.
fn increment(store: &Store, synced: bool) -> usize {
    let mut retries = 0;
    loop {
        let head = store.reference("counter").unwrap();
        let (mut tree, count, expect) = match head {
            None => (store.empty_tree().unwrap(), 0, Expect::Absent),
            Some(head) => {
                let tree = store.restore(&head).unwrap();
                let count: u64 = String::from_utf8(tree.read("count").unwrap()).unwrap().parse().unwrap();
                (tree, count, Expect::At(head))
            }
        };
        tree.write("count", (count + 1).to_string()).unwrap();
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        let references = vec![("counter".to_owned(), expect)];
        match tree.commit(NewSnapshot { references, durability, ..NewSnapshot::default() }) {
            Ok(_) => return retries,
            Err(TreeError::Store(StoreError::ReferenceMoved { .. })) => retries += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn no_update_is_lost_between_processes_and_threads() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let rounds = if is_full_run() { 500 } else { 60 };
    // The store does not exist yet, so the children create it concurrently.
    let mut children: Vec<ChildProcess> =
        (0..4).map(|_| ChildProcess::start("move-reference", &[text(&path), &rounds.to_string()])).collect();
    for child in &mut children {
        child.expect_line("ready");
    }
    let store = Store::open(&path).unwrap();
    for child in &mut children {
        child.resume();
    }
    let retries = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..rounds {
                    retries.fetch_add(increment(&store, round % 8 == 0), Ordering::Relaxed);
                }
            });
        }
    });
    let mut retries = retries.into_inner();
    for child in children {
        let output = child.finish();
        output.assert_success();
        retries += output.lines[0].strip_prefix("retries ").unwrap().parse::<usize>().unwrap();
    }
    assert!(retries > 0, "nobody ever met");
    let head = store.reference("counter").unwrap().unwrap();
    let count = store.restore(&head).unwrap().read("count").unwrap();
    assert_eq!(String::from_utf8(count).unwrap(), (rounds * 6).to_string());
    assert_eq!(store.history(&head).unwrap().count(), rounds * 6);
    assert_sound(&store);
}

/// Role: creates or opens a store and commits immediately.
pub(crate) fn create_and_commit(arguments: &[&str]) {
    let [path, number] = arguments else { panic!("store, number") };
    say("ready");
    wait_for_parent();
    let store = Store::open_or_create(path).unwrap();
    let snapshot = commit_file(&store, "file", (*number).to_owned());
    say(&snapshot.id.to_string());
}

#[test]
fn processes_that_create_or_open_a_store_concurrently_all_succeed() {
    for round in 0..if is_full_run() { 100 } else { 8 } {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        if round % 2 == 1 {
            // The store was closed before another boot, so all children write the id of this boot to the trust marker
            // of the index.
            let store = Store::open_or_create(&path).unwrap();
            commit_file(&store, "before", "x");
            drop(store);
            std::fs::write(path.join("boot"), "another boot").unwrap();
        }
        let mut children: Vec<ChildProcess> = (0..6)
            .map(|number| ChildProcess::start("create-and-commit", &[text(&path), &number.to_string()]))
            .collect();
        for child in &mut children {
            child.expect_line("ready");
        }
        for child in &mut children {
            child.resume();
        }
        let mut snapshots = BTreeSet::new();
        for child in children {
            let output = child.finish();
            output.assert_success();
            snapshots.extend(output.lines.iter().map(|id| id.parse::<SnapshotId>().unwrap()));
        }
        assert_eq!(snapshots.len(), 6);
        let store = Store::open(&path).unwrap();
        for id in snapshots {
            store.restore(&id).unwrap().read("file").unwrap();
        }
        assert_sound(&store);
    }
}

/// Role: commits trees in which all files have the same number as content, until killed.
pub(crate) fn commit_forever(arguments: &[&str]) {
    let [store] = arguments else { panic!("store") };
    let store = Store::open(store).unwrap();
    let mut tree = store.empty_tree().unwrap();
    say("ready");
    for number in 0u64.. {
        for file in 0..20 {
            tree.write(format!("d{}/f{file}", file % 4), number.to_string()).unwrap();
        }
        let references = (0..3).map(|name| (format!("at/{name}"), Expect::Anything)).collect();
        tree.commit(NewSnapshot { references, durability: Durability::Buffered, ..NewSnapshot::default() })
            .unwrap();
    }
}

#[test]
fn a_reader_never_sees_half_a_commit() {
    let (_home, store) = new_store();
    let mut child = ChildProcess::start("commit-forever", &[text(store.path())]);
    child.expect_line("ready");
    let stop = AtomicBool::new(false);
    let reads = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = None;
                while !stop.load(Ordering::Relaxed) {
                    let all = store.references().unwrap();
                    let Some((_, id)) = all.first() else { continue };
                    assert!(all.len() == 3 && all.iter().all(|(_, other)| other == id), "{all:?}");
                    if last.replace(*id) == Some(*id) {
                        continue;
                    }
                    let tree = store.restore(id).unwrap();
                    let number = tree.read("d0/f0").unwrap();
                    for file in 0..20 {
                        assert_eq!(tree.read(format!("d{}/f{file}", file % 4)).unwrap(), number);
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_secs(if is_full_run() { 20 } else { 2 }));
        stop.store(true, Ordering::Relaxed);
    });
    child.kill();
    assert!(reads.into_inner() > 20);
    assert_sound(&store);
}

#[test]
fn commits_with_the_same_parent_are_all_kept() {
    let (_home, store) = new_store();
    let base = commit_file(&store, "base", "x");
    let snapshots: Vec<SnapshotId> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    for round in 0..10 {
                        let mut tree = store.restore(&base.id).unwrap();
                        tree.write(format!("{thread}"), round.to_string()).unwrap();
                        let new = if thread % 2 == 0 { message("m") } else { buffered("m") };
                        ids.push(tree.commit(new).unwrap().id);
                    }
                    ids
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(snapshots.iter().collect::<BTreeSet<_>>().len(), 80);
    for id in &snapshots {
        assert_eq!(store.snapshot(id).unwrap().parents, [base.id]);
    }
    assert_sound(&store);
}

#[test]
fn a_refused_commit_does_not_fail_concurrent_commits() {
    let (_home, store) = new_store();
    let base = commit_file(&store, "base", "x");
    let deadline = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let store = &store;
            scope.spawn(move || {
                while Instant::now() < deadline {
                    let mut tree = store.restore(&base.id).unwrap();
                    tree.write("f", thread.to_string()).unwrap();
                    if thread % 2 == 0 {
                        tree.commit(message("good")).unwrap();
                        continue;
                    }
                    let references = vec![("no such reference".to_owned(), Expect::Anything)];
                    let error = tree
                        .commit(NewSnapshot { references, ..NewSnapshot::default() })
                        .expect_err("a bad name");
                    assert!(matches!(error, TreeError::Store(StoreError::BadReferenceName(_))), "{error}");
                }
            });
        }
    });
    assert_sound(&store);
}

/// Role: reads streamed content from a clone of a tree while the tree commits it.
pub(crate) fn read_while_committing(arguments: &[&str]) {
    let [path] = arguments else { panic!("store") };
    let store = Store::open_or_create(path).unwrap();
    let content = noise(5, 300_000);
    let mut tree = store.empty_tree().unwrap();
    tree.put_file("big", &mut &content[..], Attributes::default()).unwrap();
    let clone = tree.clone();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            tree.commit(message("streamed")).unwrap();
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            assert!(clone.read("big").unwrap() == content);
        }
    });
    assert!(clone.read("big").unwrap() == content);
    let mut clone = clone;
    clone.write("more", "more").unwrap();
    clone.commit(message("the clone")).unwrap();
    assert_sound(&store);
}

#[test]
fn a_clone_reads_streamed_content_while_it_is_committed() {
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join("store");
    ChildProcess::start_failing("read-while-committing", &[text(&store)], "before-commit=pause")
        .finish()
        .assert_success();
}

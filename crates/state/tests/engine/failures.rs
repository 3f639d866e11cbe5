//! Tests with failing system calls and panics: no thread waits forever, no refused commit reappears, and no commit is
//! acknowledged that may not be on disk.
//!
//! A *role* is a function that a child process runs (`child.rs`). A failpoint (`NAME=ACTION@VISIT`) makes a place in
//! the source fail at its n-th visit. The *log* is the sequence of packs (append-only files) to which commits are
//! appended.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use workspace_state::{Expect, GcOptions, NewSnapshot, NoProgress, Store, TreeError};

use crate::child::{ChildProcess, say, text, wait_for_parent};
use crate::support::{
    COMMIT, assert_sound, assert_usable, buffered, collect, commit_file, copy_directory, message, noise,
    pack_records, packs,
};

/// Role: commits files of `len` bytes until a commit fails. Then aborts, exits normally, or waits.
pub(crate) fn commit_until_failure(arguments: &[&str]) {
    let [path, len, then] = arguments else { panic!("store, length, what then") };
    let store = Store::open_or_create(path).unwrap();
    for seed in 0..100 {
        let mut tree = store.empty_tree().unwrap();
        tree.write("file", noise(seed, len.parse().unwrap())).unwrap();
        match tree.commit(message("until it fails")) {
            Ok(snapshot) => say(&snapshot.id.to_string()),
            Err(_) => break,
        }
    }
    match *then {
        // An aborted process does not overwrite the bytes of the failed commit in the log.
        "abort" => std::process::abort(),
        "wait" => {
            say("failed");
            wait_for_parent();
        }
        _ => {}
    }
}

fn ids(store: &Store) -> Vec<String> {
    store.snapshots().unwrap().iter().map(|snapshot| snapshot.id.to_string()).collect()
}

#[test]
fn a_failed_commit_does_not_reappear_after_a_rebuild() {
    // The first commit of a store starts a log pack, and so does a commit when the pack is full.
    for (failpoint, len, commit_count) in [
        ("log-write=eio@5", "100", 4),
        ("before-index=enospc@5", "100", 4),
        ("before-index=enospc@1", "100", 0),
        ("before-index=enospc@19", "3900000", 18),
    ] {
        for then in ["abort", "exit"] {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("store");
            let output =
                ChildProcess::start_failing("commit-until-failure", &[text(&path), len, then], failpoint)
                    .finish();
            assert_eq!(output.lines.len(), commit_count, "{failpoint}");
            assert_eq!(ids(&Store::open(&path).unwrap()), output.lines, "{failpoint}, {then}");
            let store = Store::rebuild_index(&path).unwrap();
            assert_eq!(ids(&store), output.lines, "{failpoint}, {then}");
            assert_usable(&store);
            assert_sound(&store);
        }
    }
}

#[test]
fn a_failed_first_commit_does_not_block_the_store() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let arguments = [text(&path), "100", "wait"];
    let mut child = ChildProcess::start_failing("commit-until-failure", &arguments, "before-index=enospc@1");
    child.expect_line("failed");
    let began = Instant::now();
    assert_usable(&Store::open(&path).unwrap());
    assert!(began.elapsed() < Duration::from_secs(10));
    child.resume();
}

/// Role: four threads commit concurrently, and one of them panics.
pub(crate) fn commit_and_panic(arguments: &[&str]) {
    let [path] = arguments else { panic!("store") };
    let store = Store::open_or_create(path).unwrap();
    let (sender, outcomes) = std::sync::mpsc::channel();
    for thread in 0..4u64 {
        let (store, sender) = (store.clone(), sender.clone());
        std::thread::spawn(move || {
            let commit = || -> Result<(), TreeError> {
                for seed in 0..100 {
                    let mut tree = store.empty_tree()?;
                    tree.write("file", noise(thread * 1000 + seed, 100))?;
                    say(&tree.commit(message("one of many"))?.id.to_string());
                }
                Ok(())
            };
            let outcome = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(commit)) {
                Ok(Ok(())) => "finished",
                Ok(Err(_)) => "refused",
                Err(_) => "panicked",
            };
            sender.send(outcome).unwrap();
        });
    }
    let mut outcomes: Vec<&str> =
        (0..4).map(|_| outcomes.recv_timeout(Duration::from_secs(20)).unwrap_or("waits")).collect();
    outcomes.sort_unstable();
    say(&outcomes.join(" "));
}

#[test]
fn a_panic_wakes_all_waiting_commits() {
    for failpoint in ["log-write", "before-index", "after-index", "log-sync", "after-sync"] {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let plan = format!("{failpoint}=panic@20");
        let mut output = ChildProcess::start_failing("commit-and-panic", &[text(&path)], &plan).finish();
        let last = output.lines.pop();
        assert_eq!(last.as_deref(), Some("panicked refused refused refused"), "{plan}");
        let store = Store::open(&path).unwrap();
        for acknowledged in &output.lines {
            store.snapshot(&acknowledged.parse().unwrap()).unwrap();
        }
        assert_sound(&store);
    }
}

/// Role: commits large and small changes and ignores errors. Reports the outcomes from the first failure on.
pub(crate) fn commit_through_failure(arguments: &[&str]) {
    let [path] = arguments else { panic!("store") };
    let store = Store::open_or_create(path).unwrap();
    let commit = |seed: u64, len: usize, new: NewSnapshot| {
        let mut tree = store.empty_tree().unwrap();
        tree.write("file", noise(seed, len)).unwrap();
        tree.commit(new).is_ok()
    };
    let mut outcomes = Vec::new();
    // A buffered large commit leaves a bulk pack that the next synced commit must sync. Smaller commits fill the log.
    for step in 0..40u64 {
        let new = if step % 3 == 1 { buffered("buffered") } else { message("synced") };
        outcomes.push(commit(step, if step % 2 == 1 { 9_000_000 } else { 3_900_000 }, new));
    }
    let after: Vec<&str> = outcomes
        .iter()
        .skip_while(|done| **done)
        .map(|done| if *done { "made" } else { "refused" })
        .collect();
    say(&after.join(" "));
}

/// After a failed sync, the kernel may drop dirty pages and report success for the next sync.
#[test]
fn no_commit_is_acknowledged_after_a_failed_sync() {
    for failpoint in ["log-sync=eio@3", "bulk-sync=eio@2", "unsynced-sync=eio@1", "old-log-sync=eio@1"] {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let output =
            ChildProcess::start_failing("commit-through-failure", &[text(&path)], failpoint).finish();
        output.assert_success();
        let after = &output.lines[0];
        assert!(after.starts_with("refused") && !after.contains("made"), "{failpoint}: {after}");
        let store = Store::open(&path).unwrap();
        assert_sound(&store);
        assert_usable(&store);
    }
}

#[test]
fn the_index_is_not_marked_clean_after_a_failed_sync() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let arguments = [text(&path), "100", "exit"];
    let output = ChildProcess::start_failing("commit-until-failure", &arguments, "log-sync=eio@5").finish();
    output.assert_success();
    assert_eq!(output.lines.len(), 4);
    // Simulates the loss of the data of the failed sync.
    let log = packs(&path).pop().unwrap();
    let content = fs::read(&log).unwrap();
    let records = pack_records(&content);
    let fourth = records.iter().filter(|record| record.kind == COMMIT).nth(3).unwrap().end;
    let file = fs::File::options().write(true).open(&log).unwrap();
    file.write_all_at(&vec![0; content.len() - fourth], fourth as u64).unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!(ids(&store), output.lines);
    assert_sound(&store);
}

/// Role: collects garbage with only a few free file descriptors.
pub(crate) fn collect_with_few_files(arguments: &[&str]) {
    let [path, free_descriptors] = arguments else { panic!("store, files left") };
    let store = Store::open(path).unwrap();
    assert_usable(&store);
    assert_sound(&store);
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), maximum: Some(100) }).unwrap();
    let mut files = Vec::new();
    while let Ok(file) = fs::File::open("/dev/null") {
        files.push(file);
    }
    files.truncate(files.len() - free_descriptors.parse::<usize>().unwrap());
    for _ in 0..2 {
        // The collection may fail, but must not treat live processes as dead.
        drop(store.collect_garbage(&GcOptions::default(), &NoProgress));
    }
}

#[test]
fn a_collection_without_file_descriptors_deletes_nothing_in_use() {
    for free_descriptors in ["0", "1", "2", "3", "4", "6"] {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let store = Store::open_or_create(&path).unwrap();
        let base = commit_file(&store, "a/b", noise(1, 100_000));
        let pinned = commit_file(&store, "pinned", noise(2, 100_000));
        let _pin = store.pin_for_process(&pinned, "someone").unwrap();
        let mut child =
            ChildProcess::start("hold-tree", &[text(&path), &base.id.to_string(), "a/b", "100000"]);
        child.expect_line("holding");
        store.remove_snapshots(&[base.id, pinned.id]).unwrap();
        ChildProcess::start("collect-with-few-files", &[text(&path), free_descriptors])
            .finish()
            .assert_success();
        assert_eq!(store.pins().unwrap().len(), 1, "{free_descriptors} files left");
        child.resume();
        assert!(child.next_line().is_some(), "{free_descriptors} files left: what is held is gone");
        child.finish().assert_success();
    }
}

/// Role: runs all kinds of operations on a store whose index may have been damaged.
pub(crate) fn run_all_operations(arguments: &[&str]) {
    let [path] = arguments else { panic!("store") };
    let store = Store::open(path).unwrap();
    assert_sound(&store);
    collect(&store);
    for seed in 0..80 {
        let mut tree = store.empty_tree().unwrap();
        tree.write("file", noise(seed + 77_000, 100)).unwrap();
        tree.commit(buffered("after")).unwrap();
    }
    let first = store.snapshots().unwrap()[0].id;
    for (name, id) in store.references().unwrap() {
        if id == first {
            store.remove_reference(&name, Expect::At(id)).unwrap();
        }
    }
    store.remove_snapshots(&[first]).unwrap();
    say("done");
}

#[test]
fn an_index_that_was_truncated_after_a_kill_is_rebuilt() {
    let home = tempfile::tempdir().unwrap();
    let original = home.path().join("store");
    let work = home.path().join("work");
    let mut child = ChildProcess::start("commit-loop", &[text(&original), text(&work), "x", "2"]);
    for _ in 0..400 {
        child.next_line().unwrap();
    }
    child.kill();
    child.finish();
    let pages = fs::metadata(original.join("index/data.mdb")).unwrap().len() / 4096;
    let last = (pages - 6)..pages;
    for kept_pages in (2..pages).step_by((pages as usize / 8).max(1)).chain(last) {
        let copy = home.path().join("copy");
        drop(fs::remove_dir_all(&copy));
        copy_directory(&original, &copy);
        let file = fs::File::options().write(true).open(copy.join("index/data.mdb")).unwrap();
        file.set_len(kept_pages * 4096).unwrap();
        let output = ChildProcess::start("run-all-operations", &[text(&copy)]).finish();
        assert_eq!(output.lines, ["done"], "cut to {kept_pages} of {pages} pages: {}", output.stderr);
    }
}

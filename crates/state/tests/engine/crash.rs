//! Tests with killed processes: every acknowledged commit is complete, and the store keeps working.
//!
//! A *role* is a function that a child process runs (`child.rs`). Children send a line `ack SNAPSHOT REFERENCE` after
//! each commit. A *failpoint* is a named place in the source at which a test kills the process, or lets a write fail:
//! `NAME=ACTION@VISIT`. Most trees have a file `manifest` that describes the other files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use workspace_state::{
    CheckoutOptions, DirectoryError, Durability, Expect, GcOptions, NewSnapshot, NoProgress, Snapshot,
    SnapshotId, SnapshotOptions, Store, StoreError, checkout, snapshot_directory, undo_checkout,
};

use crate::child::{ChildProcess, say, text};
use crate::directory::{check_out, describe, snapshot};
use crate::support::{
    Random, all_files, assert_sound, assert_usable, buffered, collect, is_full_run, message, new_store, noise,
};

/// All failpoints in the source. [`exercise`] visits each of them.
const FAILPOINTS: &[&str] = &[
    "bulk-write",
    "bulk-sync",
    "unsynced-sync",
    "old-log-sync",
    "before-commit",
    "log-write",
    "before-index",
    "after-index",
    "log-sync",
    "after-sync",
    "next-log",
    "settle",
    "trim-log",
    "checkpoint-write",
    "checkout-started",
    "checkout-file",
    "checkout-named",
    "checkout-applied",
    "gc-marked",
    "gc-condemned-batch",
    "gc-condemned",
    "gc-deleted-batch",
    "gc-deleted",
    "gc-rewritten",
    "gc-moved-batch",
    "gc-before-remove",
];

/// Returns the names of all failpoints.
pub(crate) fn failpoints() -> &'static [&'static str] {
    FAILPOINTS
}

#[test]
fn every_failpoint_of_the_source_is_tested() {
    let mut found = BTreeSet::new();
    let mut queue = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(path) = queue.pop() {
        if path.is_dir() {
            queue.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        for part in source.split("failpoint::hit(\"").skip(1) {
            found.insert(part.split('"').next().unwrap().to_owned());
        }
    }
    let listed: BTreeSet<String> = FAILPOINTS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(found, listed, "the list of failpoints and the source differ");
}

/// Seed and length of the content of each file of a tree, by path. Each tree has its manifest as the file `manifest`,
/// so that a snapshot can be checked for completeness.
#[derive(Default, Clone)]
struct Manifest(BTreeMap<String, (u64, usize)>);

impl Manifest {
    /// Encodes the manifest as the content of the file `manifest`.
    fn encode(&self) -> String {
        self.0.iter().map(|(path, (seed, len))| format!("{path} {seed} {len}\n")).collect()
    }

    /// Reverses [`Self::encode`].
    fn parse(text: &str) -> Self {
        let parse = |line: &str| {
            let mut words = line.split(' ');
            let path = words.next().unwrap().to_owned();
            let seed = words.next().unwrap().parse().unwrap();
            (path, (seed, words.next().unwrap().parse().unwrap()))
        };
        Self(text.lines().map(parse).collect())
    }

    /// Changes or adds one random file. Returns its path and content.
    fn change_file(&mut self, random: &mut Random) -> (String, Vec<u8>) {
        let len = match random.below(60) {
            0 => 4_500_000,
            1..8 => 100_000,
            _ => 3_000,
        };
        let path = format!("d{}/f{}", random.below(3), random.below(3));
        let (seed, len) = (random.next(), random.below(len) as usize);
        self.0.insert(path.clone(), (seed, len));
        (path, noise(seed, len))
    }
}

/// Asserts that a snapshot has exactly the files and contents that its manifest describes.
#[track_caller]
fn assert_complete(store: &Store, id: &SnapshotId) {
    let tree = store.restore(id).unwrap_or_else(|error| panic!("an acknowledged commit is lost: {error}"));
    let manifest = String::from_utf8(tree.read("manifest").unwrap()).unwrap();
    let mut expected: Vec<(Vec<u8>, Vec<u8>)> = Manifest::parse(&manifest)
        .0
        .into_iter()
        .map(|(path, (seed, len))| (path.into_bytes(), noise(seed, len)))
        .collect();
    expected.push((b"manifest".to_vec(), manifest.into_bytes()));
    expected.sort();
    let found = all_files(&tree);
    let names = |files: &[(Vec<u8>, Vec<u8>)]| -> Vec<Vec<u8>> {
        files.iter().map(|(path, _)| path.clone()).collect()
    };
    assert_eq!(names(&found), names(&expected), "snapshot {id} has other files");
    assert!(found == expected, "snapshot {id} has other content");
}

/// Parses a line `ack SNAPSHOT REFERENCE` of a child; `None` for other lines.
fn acknowledged(line: &str) -> Option<(SnapshotId, &str)> {
    let (id, reference) = line.strip_prefix("ack ")?.split_once(' ')?;
    Some((id.parse().unwrap(), reference))
}

/// Asserts that all snapshots that `lines` acknowledge exist, and are in the history of their references. Returns their
/// number.
#[track_caller]
fn assert_acknowledged_commits_exist(store: &Store, lines: &[String]) -> usize {
    let mut by_reference: BTreeMap<&str, Vec<SnapshotId>> = BTreeMap::new();
    for (id, reference) in lines.iter().filter_map(|line| acknowledged(line)) {
        assert_complete(store, &id);
        by_reference.entry(reference).or_default().push(id);
    }
    for (reference, ids) in &by_reference {
        let head = store.reference(reference).unwrap().expect("an acknowledged reference is lost");
        assert_complete(store, &head);
        let history: BTreeSet<SnapshotId> =
            store.history(&head).unwrap().map(|snapshot| snapshot.unwrap().id).collect();
        for id in ids {
            assert!(history.contains(id), "{reference} went back behind {id}");
        }
    }
    by_reference.values().map(Vec::len).sum()
}

/// Role: commits in several threads until killed.
pub(crate) fn commit_loop(arguments: &[&str]) {
    let [store, work, tag, threads] = arguments else { panic!("store, directory, tag, threads") };
    let store = Store::open_or_create(store).unwrap();
    let threads: u64 = threads.parse().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (store, reference) = (store.clone(), format!("line/{tag}-{thread}"));
            scope.spawn(move || commit_trees(&store, &reference));
        }
        scope.spawn(|| {
            commit_directories(&store, &Path::new(work).join(tag), &format!("line/{tag}-directory"));
        });
    });
}

/// Selects a random durability.
fn durability(random: &mut Random) -> Durability {
    if random.one_in(3) { Durability::Synced } else { Durability::Buffered }
}

/// Returns the options of a commit whose parent is `head`, and which moves `reference` from there to the new snapshot.
fn next_snapshot(reference: &str, head: Option<SnapshotId>, durability: Durability) -> NewSnapshot {
    let expect = head.map_or(Expect::Absent, Expect::At);
    NewSnapshot {
        references: vec![(reference.to_owned(), expect)],
        parents: head.into_iter().collect(),
        durability,
        ..NewSnapshot::default()
    }
}

/// Commits changes of a virtual tree until the process is killed.
fn commit_trees(store: &Store, reference: &str) {
    let mut random = Random::new();
    let mut head = store.reference(reference).unwrap();
    let (mut tree, mut manifest) = match &head {
        Some(head) => {
            let tree = store.restore(head).unwrap();
            let text = String::from_utf8(tree.read("manifest").unwrap()).unwrap();
            (tree, Manifest::parse(&text))
        }
        None => (store.empty_tree().unwrap(), Manifest::default()),
    };
    loop {
        let (path, content) = manifest.change_file(&mut random);
        tree.write(path, content).unwrap();
        tree.write("manifest", manifest.encode()).unwrap();
        let snapshot = tree.commit(next_snapshot(reference, head, durability(&mut random))).unwrap();
        say(&format!("ack {} {reference}", snapshot.id));
        head = Some(snapshot.id);
    }
}

/// Changes the directory `work` and commits snapshots of it until the process is killed.
fn commit_directories(store: &Store, work: &Path, reference: &str) {
    let mut random = Random::new();
    if work.exists() {
        fs::remove_dir_all(work).unwrap();
    }
    fs::create_dir_all(work).unwrap();
    let mut manifest = Manifest::default();
    let mut head = store.reference(reference).unwrap();
    loop {
        let (path, content) = manifest.change_file(&mut random);
        fs::create_dir_all(work.join(&path).parent().unwrap()).unwrap();
        fs::write(work.join(path), content).unwrap();
        fs::write(work.join("manifest"), manifest.encode()).unwrap();
        let new = next_snapshot(reference, head, durability(&mut random));
        let options = SnapshotOptions { new, ..SnapshotOptions::default() };
        let snapshot = snapshot_directory(store, work, options, &NoProgress).unwrap().snapshot;
        say(&format!("ack {} {reference}", snapshot.id));
        head = Some(snapshot.id);
    }
}

/// Removes all references and most snapshots of a store, so that long tests stay fast.
fn remove_old_snapshots(store: &Store) {
    for (name, _) in store.references().unwrap() {
        store.remove_reference(&name, Expect::Anything).unwrap();
    }
    let snapshots: Vec<SnapshotId> = store.snapshots().unwrap().iter().map(|snapshot| snapshot.id).collect();
    store.remove_snapshots(&snapshots[..snapshots.len().saturating_sub(20)]).unwrap();
    collect(store);
}

#[test]
fn every_acknowledged_commit_is_complete_after_a_kill_at_any_moment() {
    let home = tempfile::tempdir().unwrap();
    let (path, work) = (home.path().join("store"), home.path().join("work"));
    let kills = if is_full_run() { 1500 } else { 200 };
    let mut random = Random::new();
    let mut acknowledged = 0;
    for round in 0..kills {
        let mut child = ChildProcess::start("commit-loop", &[text(&path), text(&work), "a", "3"]);
        // The child is sometimes killed before the store exists, and usually in the middle of an operation.
        let delay = if random.one_in(10) { random.below(30) } else { 20 + random.below(60) };
        std::thread::sleep(Duration::from_millis(delay));
        child.kill();
        let output = child.finish();
        output.assert_killed();
        let store = Store::open_or_create(&path).unwrap();
        acknowledged += assert_acknowledged_commits_exist(&store, &output.lines);
        if round % 20 == 19 {
            assert_sound(&store);
            assert_usable(&store);
            remove_old_snapshots(&store);
            assert_sound(&store);
        }
    }
    assert!(acknowledged > kills, "{acknowledged} commits in {kills} rounds prove nothing");
}

#[test]
fn killing_a_process_does_not_disturb_other_processes() {
    let home = tempfile::tempdir().unwrap();
    let (path, work) = (home.path().join("store"), home.path().join("work"));
    let mut random = Random::new();
    drop(Store::open_or_create(&path).unwrap());
    let start = |tag: &str| ChildProcess::start("commit-loop", &[text(&path), text(&work), tag, "1"]);
    let mut survivor = start("survivor");
    let deadline = Instant::now() + Duration::from_secs(if is_full_run() { 120 } else { 5 });
    let mut lines = Vec::new();
    let mut round = 0;
    while Instant::now() < deadline {
        let mut victim = start(&format!("victim{round}"));
        std::thread::sleep(Duration::from_millis(20 + random.below(80)));
        victim.kill();
        lines.extend(victim.finish().lines);
        round += 1;
    }
    survivor.kill();
    let survivor_output = survivor.finish();
    survivor_output.assert_killed();
    assert!(survivor_output.lines.len() > round, "the survivor stood still: {}", survivor_output.stderr);
    lines.extend(survivor_output.lines);
    let store = Store::open(&path).unwrap();
    assert_acknowledged_commits_exist(&store, &lines);
    assert_sound(&store);
    assert_usable(&store);
}

/// Role: commits and removes snapshots, and collects garbage, until killed.
pub(crate) fn collect_loop(arguments: &[&str]) {
    let [store] = arguments else { panic!("store") };
    let store = Store::open(store).unwrap();
    let mut random = Random::new();
    loop {
        let mut garbage = Vec::new();
        let mut tree = store.empty_tree().unwrap();
        for _ in 0..3 {
            tree.write("bulk", noise(random.next(), 4_500_000)).unwrap();
            tree.write("small", noise(random.next(), 2_000)).unwrap();
            garbage.push(tree.commit(buffered("garbage")).unwrap().id);
        }
        drop(tree);
        store.remove_snapshots(&garbage).unwrap();
        say("collecting");
        while let Err(error) = store.collect_garbage(&GcOptions::default(), &NoProgress) {
            assert!(matches!(error, StoreError::Refused(_)), "{error}");
            std::thread::sleep(Duration::from_millis(1));
        }
        say("collected");
    }
}

#[test]
fn a_collection_killed_during_commits_of_other_processes_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (path, work) = (home.path().join("store"), home.path().join("work"));
    drop(Store::open_or_create(&path).unwrap());
    let mut random = Random::new();
    let mut lines = Vec::new();
    let mut collections = 0;
    for _ in 0..if is_full_run() { 300 } else { 15 } {
        let mut committer = ChildProcess::start("commit-loop", &[text(&path), text(&work), "a", "2"]);
        let mut collector = ChildProcess::start("collect-loop", &[text(&path)]);
        let wait_for = |line: &str| while collector.next_line().expect("the collector lives") != line {};
        wait_for("collecting");
        if random.one_in(3) {
            wait_for("collected");
            collections += 1;
            wait_for("collecting");
        }
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        collector.kill();
        std::thread::sleep(Duration::from_millis(random.below(20)));
        committer.kill();
        collector.finish();
        let new_lines = committer.finish().lines;
        let store = Store::open(&path).unwrap();
        assert_acknowledged_commits_exist(&store, &new_lines);
        lines.extend(new_lines);
        if lines.len() > 2_000 {
            remove_old_snapshots(&store);
            lines.clear();
        }
    }
    assert!(collections > 0, "no collection ever got to its end");
    let store = Store::open(&path).unwrap();
    assert_sound(&store);
    collect(&store);
    assert_acknowledged_commits_exist(&store, &lines);
    assert_sound(&store);
}

/// Role: runs all kinds of operations, so that every failpoint is visited.
pub(crate) fn exercise(arguments: &[&str]) {
    let [store, home] = arguments else { panic!("store, directory") };
    let home = Path::new(home);
    let store = Store::open_or_create(store).unwrap();
    let mut random = Random::new();
    let mut manifest = Manifest::default();
    let mut tree = store.empty_tree().unwrap();
    let mut head = store.reference("line").unwrap();
    let mut commit_change = |durability: Durability, large: bool| {
        let (path, content) = manifest.change_file(&mut random);
        tree.write(path, content).unwrap();
        if large {
            let seed = random.next();
            manifest.0.insert("large".to_owned(), (seed, 5_000_000));
            tree.write("large", noise(seed, 5_000_000)).unwrap();
        }
        tree.write("manifest", manifest.encode()).unwrap();
        let snapshot = tree.commit(next_snapshot("line", head, durability)).unwrap();
        say(&format!("ack {} line", snapshot.id));
        head = Some(snapshot.id);
    };
    for step in 0..6 {
        commit_change(if step % 2 == 0 { Durability::Synced } else { Durability::Buffered }, false);
    }
    commit_change(Durability::Buffered, true);
    commit_change(Durability::Synced, true);
    let (first, second) = snapshot_directory_twice(&store, home);
    let out = home.join("out");
    check_out(&store, &first, &out).unwrap();
    check_out(&store, &second, &out).unwrap();
    let garbage: Vec<SnapshotId> = (0..3)
        .map(|number| {
            let mut tree = store.empty_tree().unwrap();
            tree.write("garbage", noise(number, 5_000_000)).unwrap();
            tree.commit(buffered("garbage")).unwrap().id
        })
        .collect();
    // The live objects of the last pack, which has mostly garbage, must be moved by the collection.
    let mut rest = store.restore(&garbage[2]).unwrap();
    rest.write("rest", noise(9, 200_000)).unwrap();
    rest.write("more garbage", noise(10, 5_000_000)).unwrap();
    let garbage_and_rest = rest.commit(buffered("garbage and the rest")).unwrap().id;
    rest.remove("garbage").unwrap();
    rest.remove("more garbage").unwrap();
    rest.commit(buffered("the rest")).unwrap();
    drop(rest);
    store.remove_snapshots(&garbage).unwrap();
    store.remove_snapshots(&[garbage_and_rest]).unwrap();
    collect(&store);
    commit_change(Durability::Buffered, true);
    commit_change(Durability::Synced, false);
    store.remove_snapshots(&[first.id]).unwrap();
    collect(&store);
    check_out(&store, &second, &out).unwrap();
    // After several synced commits, the log has preallocated zeros at its end, which are truncated at the close.
    commit_change(Durability::Synced, false);
    say("done");
}

/// Takes two different snapshots of one directory.
fn snapshot_directory_twice(store: &Store, home: &Path) -> (Snapshot, Snapshot) {
    let work = home.join("work");
    fs::create_dir_all(work.join("deep/er")).unwrap();
    for number in 0..6 {
        fs::write(work.join(format!("f{number}")), format!("first {number}")).unwrap();
    }
    fs::write(work.join("deep/er/x"), noise(1, 300_000)).unwrap();
    let first = snapshot(store, &work).snapshot;
    for number in 0..4 {
        fs::write(work.join(format!("f{number}")), format!("second {number}")).unwrap();
    }
    fs::remove_file(work.join("f5")).unwrap();
    fs::write(work.join("deep/er/y"), "new").unwrap();
    let second = snapshot(store, &work).snapshot;
    (first, second)
}

#[test]
fn no_acknowledged_commit_is_lost_after_a_kill_at_any_failpoint() {
    for failpoint in FAILPOINTS {
        for visit in if is_full_run() { 1..8 } else { 1..3 } {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("store");
            let plan = format!("{failpoint}=kill@{visit}");
            let child = ChildProcess::start_failing("exercise", &[text(&path), text(home.path())], &plan);
            let output = child.finish();
            assert!(output.was_killed() || visit > 1, "{failpoint} was never reached: {}", output.stderr);
            let store = Store::open_or_create(&path).unwrap();
            assert_acknowledged_commits_exist(&store, &output.lines);
            assert_sound(&store);
            assert_usable(&store);
            collect(&store);
            assert_sound(&store);
            drop(store);
            // The interrupted operation succeeds when it is repeated.
            let again = ChildProcess::start("exercise", &[text(&path), text(home.path())]).finish();
            again.assert_success();
            let store = Store::open(&path).unwrap();
            assert_acknowledged_commits_exist(&store, &output.lines);
            assert_acknowledged_commits_exist(&store, &again.lines);
            assert_sound(&store);
            if !output.was_killed() {
                break;
            }
        }
    }
}

/// Role: runs one checkout.
pub(crate) fn check_out_once(arguments: &[&str]) {
    let [store, id, directory, force] = arguments else { panic!("store, snapshot, directory, force") };
    let store = Store::open(store).unwrap();
    let snapshot = store.snapshot(&id.parse().unwrap()).unwrap();
    let options = CheckoutOptions { force: *force == "force", ..CheckoutOptions::default() };
    checkout(&store, &snapshot, Path::new(directory), &options, &NoProgress).unwrap();
}

/// Takes two snapshots of `directory` that differ in files, directories and kinds of entries.
fn snapshots_for_checkouts(directory: &Path, store: &Store) -> (Snapshot, Snapshot) {
    fs::create_dir_all(directory.join("keep")).unwrap();
    fs::create_dir_all(directory.join("gone/below")).unwrap();
    for number in 0..5 {
        fs::write(directory.join(format!("f{number}")), format!("first {number}")).unwrap();
        fs::write(directory.join(format!("keep/k{number}")), format!("kept {number}")).unwrap();
        fs::write(directory.join(format!("gone/below/g{number}")), format!("going {number}")).unwrap();
    }
    fs::hard_link(directory.join("f0"), directory.join("keep/linked")).unwrap();
    fs::write(directory.join("was-file"), "a file").unwrap();
    let first = snapshot(store, directory).snapshot;
    fs::remove_dir_all(directory.join("gone")).unwrap();
    fs::write(directory.join("gone"), "now a file").unwrap();
    fs::remove_file(directory.join("was-file")).unwrap();
    fs::create_dir(directory.join("was-file")).unwrap();
    fs::write(directory.join("was-file/inside"), "x").unwrap();
    for number in 0..4 {
        fs::write(directory.join(format!("f{number}")), format!("second {number}")).unwrap();
        fs::write(directory.join(format!("keep/k{number}")), format!("changed {number}")).unwrap();
    }
    let second = snapshot(store, directory).snapshot;
    (first, second)
}

/// Returns the paths in a directory whose names have the prefix of temporary files of a checkout.
fn temporary_files(directory: &Path) -> Vec<Vec<u8>> {
    let is_temporary = |path: &Vec<u8>| path.windows(14).any(|part| part == b".workspace-new");
    describe(directory).into_keys().filter(is_temporary).collect()
}

#[track_caller]
fn assert_no_leftovers(directory: &Path) {
    let leftovers = temporary_files(directory);
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[test]
fn a_killed_checkout_is_resumed_and_completed() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    let (first, second) = snapshots_for_checkouts(&work, &store);
    let path = store.path().to_owned();
    let expected = |snapshot: &Snapshot, name: &str| {
        let directory = home.path().join(name);
        check_out(&store, snapshot, &directory).unwrap();
        describe(&directory)
    };
    let (expected_first, expected_second) = (expected(&first, "first"), expected(&second, "second"));
    let mut number = 0;
    for (failpoint, visit) in [
        ("checkout-started", 1),
        ("checkout-file", 1),
        ("checkout-file", 4),
        ("checkout-file", 9),
        ("checkout-applied", 1),
    ] {
        for (from, force) in [(None, ""), (None, "force"), (Some(&first), ""), (Some(&first), "force")] {
            for (target, expected) in [(&second, &expected_second), (&first, &expected_first)] {
                number += 1;
                let out = home.path().join(format!("out{number}"));
                if let Some(from) = from {
                    check_out(&store, from, &out).unwrap();
                }
                let arguments = [text(&path), &second.id.to_string(), text(&out), force];
                let plan = format!("{failpoint}=kill@{visit}");
                ChildProcess::start_failing("check-out", &arguments, &plan).finish().assert_killed();
                // A file of the user, although its name looks like a temporary file.
                let user_file = out.join(".workspace-new-1-1");
                fs::write(&user_file, "mine").unwrap();
                let report =
                    checkout(&store, target, &out, &CheckoutOptions::default(), &NoProgress).unwrap();
                assert!(report.resumed, "{failpoint}@{visit} {force}");
                fs::remove_file(&user_file).unwrap();
                assert_no_leftovers(&out);
                assert_eq!(
                    &describe(&out),
                    expected,
                    "{failpoint}@{visit} {force} from {:?}",
                    from.is_some()
                );
            }
        }
    }
}

/// Role: undoes an interrupted checkout.
pub(crate) fn undo_once(arguments: &[&str]) {
    let [store, directory] = arguments else { panic!("store, directory") };
    undo(&Store::open(store).unwrap(), Path::new(directory));
}

fn undo(store: &Store, directory: &Path) {
    undo_checkout(store, directory, &CheckoutOptions::default(), &NoProgress).unwrap();
}

#[test]
fn a_killed_checkout_is_undone_and_local_changes_are_kept() {
    let (home, store) = new_store();
    let (first, second) = snapshots_for_checkouts(&home.path().join("work"), &store);
    let path = store.path().to_owned();
    let mut number = 0;
    for (failpoint, visit) in
        [("checkout-started", 1), ("checkout-file", 1), ("checkout-file", 4), ("checkout-applied", 1)]
    {
        for kills_undo in [false, true] {
            number += 1;
            let out = home.path().join(format!("out{number}"));
            check_out(&store, &first, &out).unwrap();
            let without_user_files = |out: &Path| {
                let mut found = describe(out);
                found.retain(|path, _| path != b"f3" && path != b"mine");
                found
            };
            let expected = without_user_files(&out);
            let arguments = [text(&path), &second.id.to_string(), text(&out), ""];
            let plan = format!("{failpoint}=kill@{visit}");
            ChildProcess::start_failing("check-out", &arguments, &plan).finish().assert_killed();
            fs::write(out.join("f3"), "mine").unwrap();
            fs::write(out.join("mine"), "mine").unwrap();
            if kills_undo {
                let arguments = [text(&path), text(&out)];
                ChildProcess::start_failing("undo-checkout", &arguments, "checkout-file=kill@2")
                    .finish()
                    .assert_killed();
            }
            for _ in 0..2 {
                undo(&store, &out);
                assert_eq!(without_user_files(&out), expected, "{plan} {kills_undo}");
                for name in ["f3", "mine"] {
                    assert_eq!(fs::read(out.join(name)).unwrap(), b"mine", "{plan} {kills_undo}");
                }
                assert_no_leftovers(&out);
            }
            let refused = check_out(&store, &second, &out).unwrap_err();
            assert!(matches!(refused, DirectoryError::LocalEdits { .. }), "{refused}");
            fs::write(out.join("f3"), "first 3").unwrap();
            check_out(&store, &second, &out).unwrap();
            fs::remove_file(out.join("mine")).unwrap();
            assert_eq!(snapshot(&store, &out).snapshot.tree, second.tree);
        }
    }
}

#[test]
fn temporary_files_of_a_killed_checkout_are_skipped_by_snapshots_and_removed_by_the_next_checkout() {
    let (home, store) = new_store();
    let (first, second) = snapshots_for_checkouts(&home.path().join("work"), &store);
    let path = store.path().to_owned();
    for (number, with_snapshot) in [false, true].into_iter().enumerate() {
        let out = home.path().join(format!("out{number}"));
        check_out(&store, &first, &out).unwrap();
        let arguments = [text(&path), &second.id.to_string(), text(&out), ""];
        ChildProcess::start_failing("check-out", &arguments, "checkout-named=kill@2")
            .finish()
            .assert_killed();
        let leftovers = temporary_files(&out);
        assert!(!leftovers.is_empty(), "nothing was left behind");
        // A file of the user, although its name looks like a temporary file.
        let user_file = ".workspace-new-1-1";
        fs::write(out.join(user_file), "mine").unwrap();
        if with_snapshot {
            for _ in 0..2 {
                let snapshot = snapshot(&store, &out).snapshot;
                let tree = store.restore(&snapshot.id).unwrap();
                assert_eq!(tree.read(user_file).unwrap(), b"mine");
                for name in &leftovers {
                    assert!(!tree.exists(name).unwrap(), "{}", String::from_utf8_lossy(name));
                }
            }
            assert_eq!(temporary_files(&out).len(), leftovers.len() + 1, "a snapshot removed something");
        }
        check_out(&store, &second, &out).unwrap();
        if with_snapshot {
            assert_no_leftovers(&out);
            continue;
        }
        assert_eq!(temporary_files(&out), [user_file.as_bytes().to_vec()]);
        fs::remove_file(out.join(user_file)).unwrap();
        assert_eq!(snapshot(&store, &out).snapshot.tree, second.tree);
    }
}

#[test]
fn a_checkout_killed_at_random_moments_is_resumed() {
    let (home, store) = new_store();
    let work = home.path().join("work");
    let (first, second) = snapshots_for_checkouts(&work, &store);
    let out = home.path().join("out");
    check_out(&store, &first, &out).unwrap();
    let expected_first = describe(&out);
    check_out(&store, &second, &out).unwrap();
    let expected_second = describe(&out);
    let path = store.path().to_owned();
    let mut random = Random::new();
    for round in 0..if is_full_run() { 500 } else { 30 } {
        let target = if round % 2 == 0 { &first } else { &second };
        let mut child =
            ChildProcess::start("check-out", &[text(&path), &target.id.to_string(), text(&out), ""]);
        std::thread::sleep(Duration::from_micros(random.below(40_000)));
        child.kill();
        child.finish();
        if random.one_in(2) {
            let (target, expected) =
                if random.one_in(2) { (&first, &expected_first) } else { (&second, &expected_second) };
            checkout(&store, target, &out, &CheckoutOptions::default(), &NoProgress).unwrap();
            assert_no_leftovers(&out);
            assert_eq!(&describe(&out), expected);
        }
    }
}

#[test]
fn a_store_whose_creation_was_killed_is_created_again() {
    let mut random = Random::new();
    for _ in 0..20 {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let mut child = ChildProcess::start("commit-loop", &[text(&path), text(home.path()), "a", "1"]);
        while !path.exists() {
            std::thread::sleep(Duration::from_micros(50));
        }
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        child.kill();
        let output = child.finish();
        let store = Store::open_or_create(&path).unwrap();
        assert_acknowledged_commits_exist(&store, &output.lines);
        let mut tree = store.empty_tree().unwrap();
        tree.write("x", "y").unwrap();
        tree.commit(message("after")).unwrap();
        assert_sound(&store);
    }
}

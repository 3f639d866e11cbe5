//! Tests with simulated crashes of the machine: unsynced data may be lost or torn, but the store opens and has all
//! commits up to the last acknowledged synced one.
//!
//! A crash is simulated on a copy of the store: some unsynced blocks become zeros, and the index, which is not synced,
//! is damaged. The trust marker of the index (file `boot`) gets another boot id. The *log* is the sequence of packs to
//! which commits are appended; *bulk packs* have the objects of one large commit each.
//!
//! A *role* is a function that a child process runs (`child.rs`). A *failpoint*, set as `NAME=ACTION@VISIT`, is a named
//! place in the source at which a test kills, stops or pauses the child, or lets a write fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use workspace_state::{Durability, NewSnapshot, SnapshotId, Store};

use crate::child::{ChildProcess, say, text, wait_for_parent};
use crate::support::{
    Random, all_files, assert_sound, assert_usable, collect, copy_directory, is_full_run, noise,
    pack_records, packs,
};

/// Size of the blocks that a crash loses individually, in bytes.
const BLOCK: usize = 512;

/// Acknowledged commit, with the state of the store at that moment.
#[derive(Debug, Clone)]
struct AcknowledgedCommit {
    id: SnapshotId,
    synced: bool,
    /// Seed of the content of its file.
    seed: u64,
    /// Length of the content of its file in bytes.
    len: usize,
    /// Newest pack of the log.
    log: PathBuf,
    /// Offset of the end of the last record in that pack.
    end: usize,
    /// All packs of the store.
    packs: Vec<PathBuf>,
}

/// Role: commits one file after the other, reports each commit with the state of the packs, and waits to be killed.
/// Collects garbage before commit number `collect_after`.
pub(crate) fn write_history(arguments: &[&str]) {
    let [path, commits, collect_after] = arguments else { panic!("store, commits, collect after") };
    let store = Store::open_or_create(path).unwrap();
    let collect_after: usize = collect_after.parse().unwrap();
    let mut random = Random::new();
    let mut tree = store.empty_tree().unwrap();
    for number in 0..commits.parse().unwrap() {
        if number == collect_after {
            make_and_collect_garbage(&store);
        }
        let len = if random.one_in(9) { 4_500_000 } else { random.below(9_000) as usize };
        let seed = random.next();
        tree.write("same", noise(7, 700)).unwrap();
        tree.write(format!("file{number}"), noise(seed, len)).unwrap();
        let synced = random.one_in(3);
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        let snapshot = tree.commit(NewSnapshot { durability, ..NewSnapshot::default() }).unwrap();
        let (log, end) = log_end(Path::new(path));
        let packs: Vec<String> = packs(Path::new(path)).iter().map(|pack| text(pack).to_owned()).collect();
        say(&format!("{} {synced} {seed} {len} {} {end} {}", snapshot.id, text(&log), packs.join(",")));
        tree.remove(format!("file{number}")).unwrap();
    }
    say("done");
    wait_for_parent();
}

/// Commits and removes snapshots, and collects garbage.
fn make_and_collect_garbage(store: &Store) {
    for number in 0..2 {
        let mut tree = store.empty_tree().unwrap();
        tree.write("garbage", noise(number, 5_000_000)).unwrap();
        let garbage = tree.commit(NewSnapshot::default()).unwrap();
        drop(tree);
        store.remove_snapshots(&[garbage.id]).unwrap();
    }
    collect(store);
}

/// Returns the newest pack of the log, and the offset of the end of its last record.
fn log_end(store: &Path) -> (PathBuf, usize) {
    // Byte 8 of the header of a pack is its role.
    let is_log = |pack: &&PathBuf| fs::read(pack).unwrap()[8] == 1;
    let all = packs(store);
    let log = all.iter().rev().find(is_log).unwrap().clone();
    let end = pack_records(&fs::read(&log).unwrap()).last().unwrap().end;
    (log, end)
}

/// Parses a line of [`write_history`].
fn parse(line: &str) -> AcknowledgedCommit {
    let words: Vec<&str> = line.split(' ').collect();
    AcknowledgedCommit {
        id: words[0].parse().unwrap(),
        synced: words[1] == "true",
        seed: words[2].parse().unwrap(),
        len: words[3].parse().unwrap(),
        log: words[4].into(),
        end: words[5].parse().unwrap(),
        packs: words[6].split(',').map(PathBuf::from).collect(),
    }
}

/// Creates a store at `path` with a process that is killed after `commits` commits. Returns these commits.
fn history(path: &Path, commits: usize, collect_after: usize) -> Vec<AcknowledgedCommit> {
    let arguments = [text(path), &commits.to_string(), &collect_after.to_string()];
    let mut child = ChildProcess::start("write-history", &arguments);
    let mut all = Vec::new();
    loop {
        let line = child.next_line();
        match line.as_deref() {
            Some("done") => break,
            Some(line) => all.push(parse(line)),
            None => panic!("the child died: {}", child.finish().stderr),
        }
    }
    child.kill();
    child.finish().assert_killed();
    all
}

/// Moment of a crash, relative to the commits.
struct Crash<'a> {
    /// All commits.
    all: &'a [AcknowledgedCommit],
    /// Index of the last synced commit that was acknowledged.
    last: usize,
    /// Index of the last commit of which anything was written.
    until: usize,
}

impl<'a> Crash<'a> {
    /// Returns a crash after synced commit `last`, during the buffered commits that follow it.
    fn among_buffered(all: &'a [AcknowledgedCommit], last: usize) -> Self {
        let buffered = all[last + 1..].iter().take_while(|commit| !commit.synced).count();
        Self { all, last, until: last + buffered }
    }

    /// Returns a crash after the next synced commit was written and before it was acknowledged. `None` if no synced
    /// commit follows.
    fn in_next_sync(all: &'a [AcknowledgedCommit], last: usize) -> Option<Self> {
        let next = all[last + 1..].iter().position(|commit| commit.synced)?;
        Some(Self { all, last, until: last + 1 + next })
    }

    /// Changes the copy of the store at `path` to a possible state after the crash.
    fn apply(&self, original: &Path, path: &Path, random: &mut Random) {
        let (last, until) = (&self.all[self.last], &self.all[self.until]);
        let in_copy = |pack: &Path| path.join(pack.strip_prefix(original).unwrap());
        for pack in packs(original) {
            if !until.packs.contains(&pack) {
                fs::remove_file(in_copy(&pack)).unwrap();
            } else if !last.packs.contains(&pack) && !until.synced {
                lose_pack(&in_copy(&pack), random);
            }
        }
        lose_log(&in_copy(&until.log), if last.log == until.log { last.end } else { 16 }, until.end, random);
        fs::write(path.join("boot"), "another boot").unwrap();
        let data = path.join("index/data.mdb");
        match random.below(4) {
            0 => fs::remove_file(data).unwrap(),
            1 => fs::write(data, noise(3, 30_000)).unwrap(),
            2 => fs::write(data, "").unwrap(),
            _ => {}
        }
    }
}

/// Simulates the loss of a bulk pack that was never synced: removes it, truncates it, zeroes blocks, or leaves it
/// intact.
fn lose_pack(pack: &Path, random: &mut Random) {
    let mut content = fs::read(pack).unwrap();
    match random.below(4) {
        0 => return fs::remove_file(pack).unwrap(),
        1 => content.truncate(random.below(content.len() as u64) as usize),
        2 => lose_blocks(&mut content, 16, random),
        _ => {}
    }
    fs::write(pack, content).unwrap();
}

/// Simulates the loss of unsynced bytes of the log, from `synced` to `written`: truncates it, and zeroes blocks.
fn lose_log(log: &Path, synced: usize, written: usize, random: &mut Random) {
    let mut content = fs::read(log).unwrap();
    content.truncate(written);
    match random.below(4) {
        0 => content.truncate(synced),
        1 => content.truncate(synced + random.below((written - synced + 1) as u64) as usize),
        2 => lose_blocks(&mut content, synced, random),
        _ => {
            lose_blocks(&mut content, synced, random);
            content.truncate(synced + random.below((written - synced + 1) as u64) as usize);
        }
    }
    // Preallocated zeros at the end of the log may be on disk or not.
    if random.one_in(2) {
        content.resize(content.len() + random.below(5000) as usize, 0);
    }
    fs::write(log, content).unwrap();
}

/// Zeroes about a third of the blocks after offset `from`.
fn lose_blocks(content: &mut [u8], from: usize, random: &mut Random) {
    let mut start = from;
    while start < content.len() {
        let end = (start / BLOCK * BLOCK + BLOCK).min(content.len());
        if random.one_in(3) {
            content[start..end].fill(0);
        }
        start = end;
    }
}

/// Asserts that all these commits exist with their content.
#[track_caller]
fn assert_commits_exist(store: &Store, commits: &[AcknowledgedCommit]) {
    for commit in commits {
        let tree = store
            .restore(&commit.id)
            .unwrap_or_else(|error| panic!("a commit before the last acknowledged sync is lost: {error}"));
        let files: Vec<Vec<u8>> = all_files(&tree).into_iter().map(|(_, content)| content).collect();
        assert!(files.contains(&noise(7, 700)) && files.contains(&noise(commit.seed, commit.len)));
    }
}

/// Simulates crashes around each synced commit. A garbage collection runs before commit number `collect_after`.
fn crash_around_each_sync(collect_after: usize) {
    let home = tempfile::tempdir().unwrap();
    let original = home.path().join("store");
    let all = history(&original, 24, collect_after);
    let mut random = Random::new();
    let rounds = if is_full_run() { 40 } else { 4 };
    for last in (0..all.len()).filter(|index| all[*index].synced) {
        for round in 0..rounds {
            let crash = match Crash::in_next_sync(&all, last) {
                Some(crash) if round % 2 == 0 => crash,
                _ => Crash::among_buffered(&all, last),
            };
            // A garbage collection writes a synced commit of its own, which is not in `all`.
            if (crash.last..crash.until).contains(&(collect_after.wrapping_sub(1))) {
                continue;
            }
            let path = home.path().join("crashed");
            copy_directory(&original, &path);
            crash.apply(&original, &path, &mut random);
            let store = Store::open(&path).unwrap();
            assert_commits_exist(&store, &all[..=last]);
            assert_sound(&store);
            assert_usable(&store);
            crash_again(store, &all[..=last], &mut random);
            fs::remove_dir_all(&path).unwrap();
        }
    }
}

/// Asserts that a second crash does not bring back commits that the first one lost, and keeps later synced commits.
fn crash_again(store: Store, commits: &[AcknowledgedCommit], random: &mut Random) {
    let path = store.path().to_owned();
    let remaining = store.snapshots().unwrap();
    let mut tree = store.empty_tree().unwrap();
    let mut after = Vec::new();
    for seed in 0..3 {
        tree.write("after", noise(seed, 3000)).unwrap();
        after.push(tree.commit(NewSnapshot::default()).unwrap());
    }
    drop(tree);
    if random.one_in(2) {
        collect(&store);
    }
    drop(store);
    fs::write(path.join("boot"), "yet another boot").unwrap();
    let store = Store::open(&path).unwrap();
    let mut expected: Vec<SnapshotId> = remaining.iter().chain(&after).map(|snapshot| snapshot.id).collect();
    expected.sort();
    let mut found: Vec<SnapshotId> = store.snapshots().unwrap().iter().map(|snapshot| snapshot.id).collect();
    found.sort();
    assert_eq!(found, expected);
    assert_commits_exist(&store, commits);
    assert_sound(&store);
    collect(&store);
    assert_sound(&store);
}

#[test]
fn after_a_machine_crash_the_store_has_all_commits_up_to_the_last_acknowledged_sync() {
    crash_around_each_sync(usize::MAX);
}

#[test]
fn a_machine_crash_after_a_collection_loses_no_acknowledged_sync() {
    crash_around_each_sync(12);
}

/// Role: opens the store and reports the number of its snapshots.
pub(crate) fn open_and_list(arguments: &[&str]) {
    let [path] = arguments else { panic!("store") };
    let store = Store::open(path).unwrap();
    say(&format!("{} snapshots", store.snapshots().unwrap().len()));
}

#[test]
fn a_killed_rebuild_of_the_index_is_repeated_by_the_next_open() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let all = history(&path, 12, usize::MAX);
    let mut random = Random::new();
    for round in 0..if is_full_run() { 200 } else { 16 } {
        fs::write(path.join("boot"), "another boot").unwrap();
        let mut child = match round % 4 {
            0 => ChildProcess::start_failing("open", &[text(&path)], "next-log=kill"),
            1 => ChildProcess::start_failing("open", &[text(&path)], "checkpoint-write=kill"),
            _ => ChildProcess::start("open", &[text(&path)]),
        };
        if round % 4 > 1 {
            std::thread::sleep(Duration::from_micros(random.below(60_000)));
            child.kill();
        }
        let output = child.finish();
        assert!(
            output.was_killed() || output.lines == [format!("{} snapshots", all.len())],
            "{}",
            output.stderr
        );
        if random.one_in(3) {
            let store = Store::open(&path).unwrap();
            assert_commits_exist(&store, &all);
            assert_sound(&store);
            assert_usable(&store);
        }
    }
    let store = Store::open(&path).unwrap();
    assert_commits_exist(&store, &all);
    assert_sound(&store);
}

#[test]
fn a_lost_index_is_rebuilt_after_a_kill_and_after_a_clean_close() {
    for lose in [
        &(|index: &Path| fs::remove_dir_all(index).unwrap()) as &dyn Fn(&Path),
        &|index| fs::remove_file(index.join("data.mdb")).unwrap(),
        &|index| fs::write(index.join("data.mdb"), "").unwrap(),
    ] {
        for killed in [true, false] {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("store");
            let all = history(&path, 5, usize::MAX);
            if !killed {
                let store = Store::open(&path).unwrap();
                assert_usable(&store);
            }
            lose(&path.join("index"));
            let store = Store::open(&path).unwrap();
            assert_commits_exist(&store, &all);
            assert_usable(&store);
            assert_commits_exist(&store, &all);
            assert_sound(&store);
        }
    }
}

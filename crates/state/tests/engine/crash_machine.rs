//! Machine crashes: unsynced data may be lost or torn, and the store reopens with at least the last
//! acknowledged synced commit.
//!
//! A crash is simulated on a copy of the store: unsynced blocks are lost individually, and the index, which
//! is never synced, is in an arbitrary state.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use workspace_state::{Durability, NewSnapshot, SnapshotId, Store};

use crate::child::{ChildProcess, say, text, wait_for_parent};
use crate::support::{
    Random, all_files, assert_sound, assert_usable, collect, copy_directory, is_full_run, noise,
    pack_records, packs,
};

const BLOCK: usize = 512;

/// One acknowledged commit and the state of the disk when it was acknowledged.
#[derive(Debug, Clone)]
struct AcknowledgedCommit {
    id: SnapshotId,
    synced: bool,
    seed: u64,
    len: usize,
    /// Pack of the log and the end of its last record.
    log: PathBuf,
    end: usize,
    packs: Vec<PathBuf>,
}

/// Role: commits one file after the other and reports the state of the packs; waits to be killed.
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

fn log_end(store: &Path) -> (PathBuf, usize) {
    let is_log = |pack: &&PathBuf| fs::read(pack).unwrap()[8] == 1;
    let all = packs(store);
    let log = all.iter().rev().find(is_log).unwrap().clone();
    let end = pack_records(&fs::read(&log).unwrap()).last().unwrap().end;
    (log, end)
}

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

/// Returns a store that was killed after `commits` commits, and the acknowledged commits.
fn history(path: &Path, commits: usize, collect_after: usize) -> Vec<AcknowledgedCommit> {
    let arguments = [text(path), &commits.to_string(), &collect_after.to_string()];
    let mut child = ChildProcess::start("history-of-commits", &arguments);
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

/// Moment of the crash, relative to the commits.
struct Crash<'a> {
    all: &'a [AcknowledgedCommit],
    /// Last synced commit that was acknowledged.
    last: usize,
    /// Last commit of which anything was written.
    until: usize,
}

impl<'a> Crash<'a> {
    /// After commit `last`, in the middle of the buffered ones that follow.
    fn among_buffered(all: &'a [AcknowledgedCommit], last: usize) -> Self {
        let behind = all[last + 1..].iter().take_while(|commit| !commit.synced).count();
        Self { all, last, until: last + behind }
    }

    /// After the next synced commit was written and before it was acknowledged.
    fn in_next_sync(all: &'a [AcknowledgedCommit], last: usize) -> Option<Self> {
        let next = all[last + 1..].iter().position(|commit| commit.synced)?;
        Some(Self { all, last, until: last + 1 + next })
    }

    /// Changes the copy of the store at `path` to a possible state after the crash.
    fn apply(&self, original: &Path, path: &Path, random: &mut Random) {
        let (last, until) = (&self.all[self.last], &self.all[self.until]);
        let here = |pack: &Path| path.join(pack.strip_prefix(original).unwrap());
        for pack in packs(original) {
            if !until.packs.contains(&pack) {
                fs::remove_file(here(&pack)).unwrap();
            } else if !last.packs.contains(&pack) && !until.synced {
                lose_pack(&here(&pack), random);
            }
        }
        lose_log(&here(&until.log), if last.log == until.log { last.end } else { 16 }, until.end, random);
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

/// Changes a bulk pack that was never synced: intact, shorter, torn or missing.
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

/// Changes the log after its last sync: truncated, with blocks that were never written.
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
    // Preallocated zeros may or may not have become part of the file.
    if random.one_in(2) {
        content.resize(content.len() + random.below(5000) as usize, 0);
    }
    fs::write(log, content).unwrap();
}

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

#[track_caller]
fn assert_promises(store: &Store, promised: &[AcknowledgedCommit]) {
    for commit in promised {
        let tree = store
            .restore(&commit.id)
            .unwrap_or_else(|error| panic!("a commit before the last acknowledged sync is lost: {error}"));
        let files: Vec<Vec<u8>> = all_files(&tree).into_iter().map(|(_, content)| content).collect();
        assert!(files.contains(&noise(7, 700)) && files.contains(&noise(commit.seed, commit.len)));
    }
}

fn crash_everywhere(collect_after: usize) {
    let home = tempfile::tempdir().unwrap();
    let original = home.path().join("store");
    let all = history(&original, 24, collect_after);
    let mut random = Random::new();
    let rounds = if is_full_run() { 40 } else { 4 };
    for last in (0..all.len()).filter(|at| all[*at].synced) {
        for round in 0..rounds {
            let crash = match Crash::in_next_sync(&all, last) {
                Some(crash) if round % 2 == 0 => crash,
                _ => Crash::among_buffered(&all, last),
            };
            // A garbage collection is one more synced commit, whose end is unknown here.
            if (crash.last..crash.until).contains(&(collect_after.wrapping_sub(1))) {
                continue;
            }
            let path = home.path().join("crashed");
            copy_directory(&original, &path);
            crash.apply(&original, &path, &mut random);
            let store = Store::open(&path).unwrap();
            assert_promises(&store, &all[..=last]);
            assert_sound(&store);
            assert_usable(&store);
            crash_again(store, &all[..=last], &mut random);
            fs::remove_dir_all(&path).unwrap();
        }
    }
}

/// Commits that were dropped after one crash stay dropped after the next, and later ones are kept.
fn crash_again(store: Store, promised: &[AcknowledgedCommit], random: &mut Random) {
    let path = store.path().to_owned();
    let shown = store.snapshots().unwrap();
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
    let mut expected: Vec<SnapshotId> = shown.iter().chain(&after).map(|snapshot| snapshot.id).collect();
    expected.sort();
    let mut found: Vec<SnapshotId> = store.snapshots().unwrap().iter().map(|snapshot| snapshot.id).collect();
    found.sort();
    assert_eq!(found, expected);
    assert_promises(&store, promised);
    assert_sound(&store);
    collect(&store);
    assert_sound(&store);
}

#[test]
fn after_a_machine_crash_the_store_opens_to_the_last_acknowledged_sync() {
    crash_everywhere(usize::MAX);
}

#[test]
fn after_a_collection_a_machine_crash_loses_nothing_either() {
    crash_everywhere(12);
}

/// Role: opens the store and lists it.
pub(crate) fn open_and_list(arguments: &[&str]) {
    let [path] = arguments else { panic!("store") };
    let store = Store::open(path).unwrap();
    say(&format!("{} snapshots", store.snapshots().unwrap().len()));
}

#[test]
fn a_rebuild_of_the_index_may_itself_be_killed() {
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
        let ended = child.finish();
        assert!(
            ended.was_killed() || ended.lines == [format!("{} snapshots", all.len())],
            "{}",
            ended.stderr
        );
        if random.one_in(3) {
            let store = Store::open(&path).unwrap();
            assert_promises(&store, &all);
            assert_sound(&store);
            assert_usable(&store);
        }
    }
    let store = Store::open(&path).unwrap();
    assert_promises(&store, &all);
    assert_sound(&store);
}

#[test]
fn a_lost_index_is_rebuilt_however_the_store_was_closed() {
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
            assert_promises(&store, &all);
            assert_usable(&store);
            assert_promises(&store, &all);
            assert_sound(&store);
        }
    }
}

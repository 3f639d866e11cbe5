//! Tests with damaged stores: damage is detected and reported, and damaged data is never returned.
//!
//! A *pack* is an append-only file of the store with records. The *log* is the sequence of packs with the commit
//! records and the objects of small commits; a *bulk pack* has the objects of one large commit. A *checkpoint*, at the
//! start of a log pack, has all snapshots, references, pins and episodes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use workspace_state::{
    Damage, Durability, Episode, EpisodeId, FORMAT, GcOptions, NoProgress, Snapshot, SnapshotId, Store,
    StoreError, TreeError,
};

use crate::child::{ChildProcess, text};
use crate::support::{
    CHECKPOINT, CHUNK, COMMIT, NODE, PackRecord, Random, all_files, assert_sound, assert_usable, buffered,
    collect, commit_file, is_full_run, message, new_store, noise, pack_records, packs,
};

/// Content by path.
type Files = Vec<(Vec<u8>, Vec<u8>)>;

/// Closed store with a log and bulk packs, and the content of its snapshots.
struct Sample {
    _home: TempDir,
    path: PathBuf,
    content: BTreeMap<SnapshotId, Files>,
}

impl Sample {
    fn new() -> Self {
        let (home, store) = new_store();
        let mut content = BTreeMap::new();
        let mut tree = store.empty_tree().unwrap();
        for step in 0..4u64 {
            tree.write(format!("small/{step}"), noise(step, 500)).unwrap();
            tree.write(format!("medium/{}", step % 2), noise(step + 10, 150_000)).unwrap();
            tree.write("text", format!("step {step}\n").repeat(1000)).unwrap();
            // Zeros in the middle of incompressible content.
            tree.write("zeros", [noise(step, 4000), vec![0; 500], noise(step + 1, 4000)].concat()).unwrap();
            let snapshot = tree.commit(message("step")).unwrap();
            content.insert(snapshot.id, all_files(&tree));
        }
        let mut bulk = store.empty_tree().unwrap();
        bulk.write("bulk", noise(99, 5_000_000)).unwrap();
        bulk.write("small", "x").unwrap();
        let snapshot = bulk.commit(buffered("bulk")).unwrap();
        content.insert(snapshot.id, all_files(&bulk));
        let path = store.path().to_owned();
        Self { _home: home, path, content }
    }

    fn packs(&self) -> Vec<PathBuf> {
        packs(&self.path)
    }

    /// Asserts that reading a file of a snapshot returns its correct content or a corruption error. Returns the
    /// unreadable files; an empty path stands for a missing snapshot.
    fn read_all(&self, store: &Store) -> Vec<(SnapshotId, Vec<u8>)> {
        let mut unreadable = Vec::new();
        for (id, files) in &self.content {
            let tree = match store.restore(id) {
                Ok(tree) => tree,
                Err(StoreError::UnknownSnapshot(_)) => {
                    unreadable.push((*id, Vec::new()));
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            for (path, content) in files {
                match tree.read(path) {
                    Ok(found) => {
                        assert!(&found == content, "wrong bytes for {}", String::from_utf8_lossy(path));
                    }
                    Err(TreeError::Store(error)) => {
                        assert!(error.is_corruption(), "{error}");
                        unreadable.push((*id, path.clone()));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        unreadable
    }
}

/// First byte of an encoded node with the modification times of a directory.
const TIMES: u8 = 5;

/// Flips a bit of the byte at `offset` of a pack.
#[track_caller]
fn flip_bit(pack: &Path, offset: usize, bit: u8) {
    let file = fs::File::options().read(true).write(true).open(pack).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], offset as u64).unwrap();
}

/// Returns some offsets in the header of a pack, and in the headers and bodies of its records.
fn sample_positions(records: &[PackRecord], random: &mut Random) -> Vec<usize> {
    let mut positions = vec![0, 8, 12];
    for record in records {
        let body = (record.end - record.start - 48) as u64;
        if is_full_run() || random.one_in(3) {
            positions.push(record.start + random.below(48) as usize);
            positions.push(record.start + 48 + random.below(body) as usize);
        }
    }
    positions
}

/// Returns true if the damage includes a path of a snapshot. A damaged directory is reported instead of its entries.
fn is_reported(damage: &[Damage], id: &SnapshotId, path: &[u8]) -> bool {
    damage.iter().any(|damage| {
        let damaged_path = damage.path.as_deref().unwrap_or_default();
        damage.snapshot == Some(*id) && path.starts_with(damaged_path)
    })
}

/// Returns the snapshot and path of each damage that has both.
fn damaged_paths(damage: &[Damage]) -> Vec<(SnapshotId, Vec<u8>)> {
    damage.iter().filter_map(|damage| Some((damage.snapshot?, damage.path.clone()?))).collect()
}

#[test]
fn a_flipped_bit_anywhere_in_a_pack_is_never_returned_as_data() {
    let sample = Sample::new();
    let mut random = Random::new();
    for pack in sample.packs() {
        let records = pack_records(&fs::read(&pack).unwrap());
        for offset in sample_positions(&records, &mut random) {
            let bit = random.below(8) as u8;
            flip_bit(&pack, offset, bit);
            {
                let store = Store::open(&sample.path).unwrap();
                let unreadable = sample.read_all(&store);
                let report = store.verify(&NoProgress).unwrap();
                for (id, path) in &unreadable {
                    assert!(
                        is_reported(&report.damage, id, path),
                        "{offset}: {path:?} is not in {:?}",
                        report.damage
                    );
                }
                let record = records.iter().find(|record| (record.start..record.end).contains(&offset));
                let is_content = record.is_some_and(|record| record.kind == CHUNK);
                assert!(!is_content || !unreadable.is_empty(), "content changed and nobody noticed");
            }
            flip_bit(&pack, offset, bit);
        }
    }
    let store = Store::open(&sample.path).unwrap();
    assert_eq!(sample.read_all(&store), []);
    assert_sound(&store);
}

#[test]
fn verify_names_the_snapshots_and_the_path_of_a_damaged_file() {
    let (_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    tree.write("deep/er/damaged", noise(1, 3000)).unwrap();
    tree.write("fine", noise(2, 3000)).unwrap();
    let first = tree.commit(message("first")).unwrap();
    tree.write("other", noise(3, 3000)).unwrap();
    let second = tree.commit(message("second")).unwrap();
    tree.remove("deep").unwrap();
    tree.commit(message("without")).unwrap();
    let pack = packs(store.path())[0].clone();
    let content = fs::read(&pack).unwrap();
    let damaged_content = noise(1, 3000);
    let offset = content.windows(3000).position(|part| part == damaged_content).expect("stored as it is");
    flip_bit(&pack, offset + 1500, 3);
    let report = store.verify(&NoProgress).unwrap();
    let mut damaged = damaged_paths(&report.damage);
    damaged.sort();
    let path = b"deep/er/damaged".to_vec();
    let mut expected = vec![(first.id, path.clone()), (second.id, path)];
    expected.sort();
    assert_eq!(damaged, expected, "{:#?}", report.damage);
    assert!(report.damage[0].problem.contains("pack"), "{:?}", report.damage[0]);
    // A garbage collection fails if a node is damaged. It does not read content, so it succeeds here.
    collect(&store);
    assert_eq!(damaged_paths(&store.verify(&NoProgress).unwrap().damage).len(), 2);
}

#[test]
fn verify_names_the_directory_and_every_snapshot_of_damaged_times() {
    let (_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    tree.write("deep/er/file", noise(1, 300)).unwrap();
    let first = tree.commit(message("first")).unwrap();
    tree.write("other", noise(2, 300)).unwrap();
    let second = tree.commit(message("second")).unwrap();
    let pack = packs(store.path())[0].clone();
    let content = fs::read(&pack).unwrap();
    let records = pack_records(&content);
    let is_times = |record: &&PackRecord| record.kind == NODE && content[record.start + 48] == TIMES;
    let mut found = Vec::new();
    for times in records.iter().filter(is_times) {
        flip_bit(&pack, times.end - 1, 0);
        let report = store.verify(&NoProgress).unwrap();
        assert!(report.damage.iter().all(|damage| damage.problem.starts_with("times: ")), "{report:#?}");
        found.extend(damaged_paths(&report.damage));
        flip_bit(&pack, times.end - 1, 0);
    }
    found.sort();
    let in_both_snapshots = |path: &[u8]| [(first.id, path.to_vec()), (second.id, path.to_vec())];
    let mut expected =
        [in_both_snapshots(b""), in_both_snapshots(b"deep"), in_both_snapshots(b"deep/er")].concat();
    expected.sort();
    assert_eq!(found, expected, "the root has its own times in each, the others are shared");
}

#[test]
fn a_collection_fails_on_a_damaged_directory_and_deletes_nothing() {
    let sample = Sample::new();
    let log = sample.packs()[0].clone();
    let records = pack_records(&fs::read(&log).unwrap());
    let mut refused = 0;
    for node in records.iter().filter(|record| record.kind == NODE) {
        flip_bit(&log, node.end - 1, 0);
        {
            let store = Store::open(&sample.path).unwrap();
            if let Err(error) = store.collect_garbage(&GcOptions::default(), &NoProgress) {
                assert!(error.is_corruption(), "{error}");
                refused += 1;
            }
        }
        flip_bit(&log, node.end - 1, 0);
        if refused > 3 {
            break;
        }
    }
    assert!(refused > 0);
    let store = Store::open(&sample.path).unwrap();
    assert_eq!(sample.read_all(&store), []);
    assert_sound(&store);
}

#[test]
fn a_truncated_or_missing_pack_is_reported_and_the_rest_is_readable() {
    let mut random = Random::new();
    for round in 0..if is_full_run() { 60 } else { 10 } {
        let sample = Sample::new();
        let all = sample.packs();
        let pack = &all[round % all.len()];
        let length = fs::metadata(pack).unwrap().len();
        if round % 5 == 4 {
            fs::remove_file(pack).unwrap();
        } else {
            fs::File::options().write(true).open(pack).unwrap().set_len(random.below(length)).unwrap();
        }
        let store = Store::open(&sample.path).unwrap();
        let unreadable = sample.read_all(&store);
        let report = store.verify(&NoProgress).unwrap();
        // The lost part may have only commit records. The index still has their rows, so nothing is unreadable.
        let has_content_damage = report.damage.iter().any(|damage| damage.path.is_some());
        assert_eq!(unreadable.is_empty(), !has_content_damage, "{unreadable:?} {:?}", report.damage);
        for (id, path) in &unreadable {
            assert!(is_reported(&report.damage, id, path), "{path:?} is not in {:?}", report.damage);
        }
    }
}

#[test]
fn a_rebuild_keeps_all_intact_commits_and_objects() {
    let mut random = Random::new();
    let sample = Sample::new();
    let before = all_snapshots(&sample.path);
    for pack in sample.packs() {
        let records = pack_records(&fs::read(&pack).unwrap());
        for (number, record) in records.iter().enumerate() {
            if number % 5 != 0 && !is_full_run() {
                continue;
            }
            let copy = tempfile::tempdir().unwrap();
            let path = copy.path().join("store");
            crate::support::copy_directory(&sample.path, &path);
            let pack = path.join("packs").join(pack.file_name().unwrap());
            let offset = record.start + random.below((record.end - record.start) as u64) as usize;
            let offset = if number == 0 { random.below(16) as usize } else { offset };
            flip_bit(&pack, offset, random.below(8) as u8);
            let store = Store::rebuild_index(&path).unwrap();
            let unreadable = sample.read_all(&store);
            let after: Vec<SnapshotId> = ids(&store.snapshots().unwrap());
            if record.kind == COMMIT {
                // Only the commit of the damaged record is lost.
                let lost = before.iter().filter(|id| !after.contains(id)).count();
                assert!(lost <= 1 && unreadable.iter().all(|(id, _)| !after.contains(id)), "{unreadable:?}");
            } else {
                assert_eq!(after, before, "snapshots went with a damaged {}", record.kind);
                let limit = if number == 0 { 0 } else { usize::MAX };
                assert!(unreadable.len() <= limit, "a damaged pack header took content along");
            }
            assert_eq!(
                store.verify(&NoProgress).unwrap().damage.is_empty(),
                record.kind == COMMIT || unreadable.is_empty()
            );
            assert_usable(&store);
        }
    }
}

fn ids(snapshots: &[Snapshot]) -> Vec<SnapshotId> {
    snapshots.iter().map(|snapshot| snapshot.id).collect()
}

fn all_snapshots(path: &Path) -> Vec<SnapshotId> {
    ids(&Store::open(path).unwrap().snapshots().unwrap())
}

#[test]
fn records_after_damaged_content_with_zeros_are_found() {
    let (_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    let content_with_zeros = [noise(1, 3000), vec![0; 200], noise(2, 3000)].concat();
    tree.write("zeros", content_with_zeros.clone()).unwrap();
    tree.commit(message("first")).unwrap();
    tree.write("later", "still here").unwrap();
    let second = tree.commit(message("second")).unwrap();
    let path = store.path().to_owned();
    drop((tree, store));
    let pack = packs(&path)[0].clone();
    let content = fs::read(&pack).unwrap();
    let offset = content
        .windows(content_with_zeros.len())
        .position(|part| part == content_with_zeros)
        .expect("stored as it is");
    flip_bit(&pack, offset + 10, 0);
    let store = Store::rebuild_index(&path).unwrap();
    assert_eq!(store.snapshots().unwrap().len(), 2);
    assert_eq!(store.restore(&second.id).unwrap().read("later").unwrap(), b"still here");
}

#[test]
fn a_damaged_index_is_rebuilt() {
    let sample = Sample::new();
    let data = sample.path.join("index/data.mdb");
    let intact = fs::read(&data).unwrap();
    let mut without_meta = intact.clone();
    without_meta[..8192].fill(0xff);
    for damaged in [Vec::new(), noise(1, 5), noise(1, 100_000), vec![0; 100_000], without_meta] {
        fs::write(&data, damaged).unwrap();
        let store = Store::open(&sample.path).unwrap();
        assert_eq!(sample.read_all(&store), []);
        assert_sound(&store);
        assert_usable(&store);
        assert_eq!(sample.read_all(&store), []);
    }
    // A requested rebuild repairs a damaged index too.
    fs::write(&data, &noise(1, intact.len())[..intact.len() / 2]).unwrap();
    let store = Store::rebuild_index(&sample.path).unwrap();
    assert_eq!(sample.read_all(&store), []);
    assert_sound(&store);
}

#[test]
fn a_store_of_a_newer_format_is_refused() {
    let sample = Sample::new();
    let format = sample.path.join("format");
    // The copy of the format file would contradict the new version.
    fs::remove_file(sample.path.join("format.copy")).unwrap();
    fs::write(&format, format!("elevo-workspace store {}\n", FORMAT + 1)).unwrap();
    let error = |result: Result<Store, StoreError>| result.expect_err("a newer store was opened");
    for error in [
        error(Store::open(&sample.path)),
        error(Store::open_or_create(&sample.path)),
        error(Store::rebuild_index(&sample.path)),
    ] {
        let StoreError::UnsupportedFormat { found, supported, .. } = &error else { panic!("{error}") };
        assert_eq!((*found, *supported), (FORMAT + 1, FORMAT));
        assert!(error.to_string().contains(&format!("format {}", FORMAT + 1)), "{error}");
        assert!(!error.is_corruption() && !error.may_retry());
    }
}

#[test]
fn a_directory_that_is_no_store_is_refused_and_not_changed() {
    let home = tempfile::tempdir().unwrap();
    let foreign = home.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("letter"), "dear").unwrap();
    for opened in [Store::open(&foreign), Store::open_or_create(&foreign), Store::rebuild_index(&foreign)] {
        let error = opened.expect_err("opened something that is no store");
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    }
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1);
    for nonsense in ["", "garbage", "elevo-workspace store ", "elevo-workspace store x"] {
        let path = home.path().join("nonsense");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("format"), nonsense).unwrap();
        let error = Store::open(&path).expect_err("opened something that is no store");
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    }
    assert!(Store::open(home.path().join("missing")).is_err());
    assert!(!home.path().join("missing").exists());
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(Store::open_or_create(&file).is_err());
    let empty = home.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert_usable(&Store::open_or_create(&empty).unwrap());
}

/// Reading a missing page of the mapped index file would kill the process with SIGBUS.
#[test]
fn a_truncated_index_is_rebuilt() {
    let sample = Sample::new();
    let expected = format!("{} snapshots", all_snapshots(&sample.path).len());
    let length = fs::metadata(sample.path.join("index/data.mdb")).unwrap().len();
    for truncated_len in (1..=length / 4096).map(|pages| length - pages * 4096).chain([5000, 9000]) {
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join("store");
        crate::support::copy_directory(&sample.path, &path);
        fs::File::options()
            .write(true)
            .open(path.join("index/data.mdb"))
            .unwrap()
            .set_len(truncated_len)
            .unwrap();
        let output = ChildProcess::start("open", &[text(&path)]).finish();
        assert_eq!(output.lines, [expected.as_str()], "cut to {truncated_len}: {}", output.stderr);
        let store = Store::open(&path).unwrap();
        assert_eq!(sample.read_all(&store), []);
    }
}

/// Closed store with so many records that a checkpoint has three parts.
struct LargeCheckpoint {
    _home: TempDir,
    path: PathBuf,
    snapshot: SnapshotId,
    episodes: Vec<EpisodeId>,
}

/// Number of episodes in each of the first two parts of the checkpoint. The third part has the other records.
const EPISODES_PER_PART: usize = 4;

impl LargeCheckpoint {
    /// Creates the store. Its newest log pack begins with a checkpoint, and the log pack before still exists.
    fn new() -> Self {
        let (home, store) = new_store();
        let (path, snapshot) = (store.path().to_owned(), commit_file(&store, "file", "content").id);
        let mut this = Self { _home: home, path, snapshot, episodes: Vec::new() };
        for _ in 0..=2 * EPISODES_PER_PART {
            this.put_episode(&store);
        }
        drop(store);
        let store = Store::rebuild_index(&this.path).unwrap();
        this.put_episode(&store);
        this
    }

    fn put_episode(&mut self, store: &Store) {
        let episode = Episode::new(self.snapshot, None, "x".repeat((4 << 20) - 1000), 1.0);
        store.put_episode(&episode, Durability::Buffered).unwrap();
        self.episodes.push(episode.id);
    }

    /// Returns the log packs, each with the parts of the checkpoint at its start.
    fn logs(&self) -> Vec<(PathBuf, Vec<PackRecord>)> {
        let mut logs = Vec::new();
        for pack in packs(&self.path) {
            let mut records = pack_records(&fs::read(&pack).unwrap());
            if records.iter().any(|record| record.kind >= COMMIT) {
                records.retain(|record| record.kind == CHECKPOINT);
                logs.push((pack, records));
            }
        }
        logs
    }

    /// Damages the second part of the checkpoint at the start of the newest log pack.
    fn damage_checkpoint(&self) {
        let (log, parts) = self.logs().pop().unwrap();
        assert_eq!(parts.len(), 3);
        flip_bit(&log, parts[1].end - 1, 0);
    }

    /// Returns the problems that a verification reports.
    fn problems(&self) -> Vec<String> {
        let damage = Store::open(&self.path).unwrap().verify(&NoProgress).unwrap().damage;
        damage.into_iter().map(|damage| damage.problem).collect()
    }
}

#[test]
fn a_rebuild_uses_the_previous_log_if_a_part_of_the_checkpoint_is_damaged() {
    let store = LargeCheckpoint::new();
    assert_eq!(store.problems(), Vec::<String>::new());
    store.damage_checkpoint();
    let problems = store.problems();
    assert!(problems.len() == 1 && problems[0].contains("parts of the checkpoint"), "{problems:?}");
    let rebuilt = Store::rebuild_index(&store.path).unwrap();
    let report = rebuilt.rebuild_report().unwrap();
    assert!(report.problems().is_empty(), "{report:?}");
    assert_eq!(rebuilt.missing_episodes(&store.episodes).unwrap(), []);
    assert_sound(&rebuilt);
    assert_usable(&rebuilt);
}

/// Returns a store with a damaged checkpoint and without the log before it. Its last episode was added after the
/// checkpoint.
fn damaged_checkpoint_without_previous_log() -> LargeCheckpoint {
    let mut large = LargeCheckpoint::new();
    {
        let store = Store::open(&large.path).unwrap();
        collect(&store);
        large.put_episode(&store);
    }
    let mut logs = large.logs();
    logs.pop();
    logs.iter().for_each(|(log, _)| fs::remove_file(log).unwrap());
    large.damage_checkpoint();
    large
}

#[test]
fn a_rebuild_reports_the_lost_part_of_a_checkpoint_and_keeps_the_other_parts() {
    let store = damaged_checkpoint_without_previous_log();
    let problems = store.problems();
    assert!(problems.iter().any(|problem| problem.contains("parts of the checkpoint")), "{problems:?}");
    let refused = Store::open(&store.path).unwrap().collect_garbage(&GcOptions::default(), &NoProgress);
    assert!(refused.unwrap_err().is_corruption());
    let rebuilt = Store::rebuild_index(&store.path).unwrap();
    let report = rebuilt.rebuild_report().unwrap();
    let lost_episodes = &store.episodes[EPISODES_PER_PART..2 * EPISODES_PER_PART];
    assert_eq!(report.lost.episodes, lost_episodes);
    assert!(report.log_damaged && report.wrong_rows.is_empty() && report.old_index.is_some(), "{report:?}");
    assert_eq!(rebuilt.missing_episodes(&store.episodes).unwrap(), lost_episodes);
    assert_eq!(rebuilt.restore(&store.snapshot).unwrap().read("file").unwrap(), b"content");
    assert_sound(&rebuilt);
    assert_usable(&rebuilt);
}

#[test]
fn a_part_of_a_checkpoint_that_a_machine_crash_lost_is_reported() {
    let store = damaged_checkpoint_without_previous_log();
    fs::write(store.path.join("boot"), "another boot").unwrap();
    let rebuilt = Store::open(&store.path).unwrap();
    let report = rebuilt.rebuild_report().expect("the index was rebuilt");
    assert!(report.log_damaged && report.commits_given_up == 0, "{report:?}");
    let lost_episodes = &store.episodes[EPISODES_PER_PART..2 * EPISODES_PER_PART];
    assert_eq!(rebuilt.missing_episodes(&store.episodes).unwrap(), lost_episodes);
}

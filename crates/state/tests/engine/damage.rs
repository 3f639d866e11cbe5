//! Damaged stores: damage is detected and reported, and damaged data is never returned.

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

/// A closed store with a log and bulk packs, and the content of its snapshots.
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
        bulk.write("beside", "x").unwrap();
        let snapshot = bulk.commit(buffered("bulk")).unwrap();
        content.insert(snapshot.id, all_files(&bulk));
        let path = store.path().to_owned();
        Self { _home: home, path, content }
    }

    fn packs(&self) -> Vec<PathBuf> {
        packs(&self.path)
    }

    /// Checks that every file of every snapshot is either correct or gives a corruption error. Returns the
    /// unreadable files.
    fn read_all(&self, store: &Store) -> Vec<(SnapshotId, Vec<u8>)> {
        let mut broken = Vec::new();
        for (id, files) in &self.content {
            let tree = match store.restore(id) {
                Ok(tree) => tree,
                Err(StoreError::UnknownSnapshot(_)) => {
                    broken.push((*id, Vec::new()));
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
                        broken.push((*id, path.clone()));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        broken
    }
}

/// First byte of the times of a directory.
const TIMES: u8 = 5;

#[track_caller]
fn flip(pack: &Path, at: usize, bit: u8) {
    let file = fs::File::options().read(true).write(true).open(pack).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], at as u64).unwrap();
}

/// Offsets in each record's kind, header and body.
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

/// Returns true if a report names a path of a snapshot. A damaged directory is reported instead of its
/// entries.
fn names(damage: &[Damage], id: &SnapshotId, path: &[u8]) -> bool {
    damage.iter().any(|damage| {
        let place = damage.path.as_deref().unwrap_or_default();
        damage.snapshot == Some(*id) && path.starts_with(place)
    })
}

fn damaged_places(damage: &[Damage]) -> Vec<(SnapshotId, Vec<u8>)> {
    damage.iter().filter_map(|damage| Some((damage.snapshot?, damage.path.clone()?))).collect()
}

#[test]
fn a_flipped_bit_anywhere_in_a_pack_is_never_returned_as_data() {
    let sample = Sample::new();
    let mut random = Random::new();
    for pack in sample.packs() {
        let records = pack_records(&fs::read(&pack).unwrap());
        for at in sample_positions(&records, &mut random) {
            let bit = random.below(8) as u8;
            flip(&pack, at, bit);
            {
                let store = Store::open(&sample.path).unwrap();
                let broken = sample.read_all(&store);
                let report = store.verify(&NoProgress).unwrap();
                for (id, path) in &broken {
                    assert!(names(&report.damage, id, path), "{at}: {path:?} is not in {:?}", report.damage);
                }
                let record = records.iter().find(|record| (record.start..record.end).contains(&at));
                let is_content = record.is_some_and(|record| record.kind == CHUNK);
                assert!(!is_content || !broken.is_empty(), "content changed and nobody noticed");
            }
            flip(&pack, at, bit);
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
    let wanted = noise(1, 3000);
    let at = content.windows(3000).position(|part| part == wanted).expect("stored as it is");
    flip(&pack, at + 1500, 3);
    let report = store.verify(&NoProgress).unwrap();
    let mut places = damaged_places(&report.damage);
    places.sort();
    let path = b"deep/er/damaged".to_vec();
    let mut expected = vec![(first.id, path.clone()), (second.id, path)];
    expected.sort();
    assert_eq!(places, expected, "{:#?}", report.damage);
    assert!(report.damage[0].problem.contains("pack"), "{:?}", report.damage[0]);
    // A garbage collection that cannot read every node must not guess; here only content is damaged.
    collect(&store);
    assert_eq!(damaged_places(&store.verify(&NoProgress).unwrap().damage).len(), 2);
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
        flip(&pack, times.end - 1, 0);
        let report = store.verify(&NoProgress).unwrap();
        assert!(report.damage.iter().all(|damage| damage.problem.starts_with("times: ")), "{report:#?}");
        found.extend(damaged_places(&report.damage));
        flip(&pack, times.end - 1, 0);
    }
    found.sort();
    let both = |path: &[u8]| [(first.id, path.to_vec()), (second.id, path.to_vec())];
    let mut expected = [both(b""), both(b"deep"), both(b"deep/er")].concat();
    expected.sort();
    assert_eq!(found, expected, "the root has its own times in each, the others are shared");
}

#[test]
fn a_collection_stops_at_a_damaged_directory_and_loses_nothing() {
    let sample = Sample::new();
    let log = sample.packs()[0].clone();
    let records = pack_records(&fs::read(&log).unwrap());
    let mut refused = 0;
    for node in records.iter().filter(|record| record.kind == NODE) {
        flip(&log, node.end - 1, 0);
        {
            let store = Store::open(&sample.path).unwrap();
            if let Err(error) = store.collect_garbage(&GcOptions::default(), &NoProgress) {
                assert!(error.is_corruption(), "{error}");
                refused += 1;
            }
        }
        flip(&log, node.end - 1, 0);
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
        let broken = sample.read_all(&store);
        let report = store.verify(&NoProgress).unwrap();
        // The end of the log may hold only commit records, whose rows the index still has.
        let has_content_damage = report.damage.iter().any(|damage| damage.path.is_some());
        assert_eq!(broken.is_empty(), !has_content_damage, "{broken:?} {:?}", report.damage);
        for (id, path) in &broken {
            assert!(names(&report.damage, id, path), "{path:?} is not in {:?}", report.damage);
        }
    }
}

#[test]
fn a_rebuild_keeps_everything_that_is_intact() {
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
            let at = record.start + random.below((record.end - record.start) as u64) as usize;
            let at = if number == 0 { random.below(16) as usize } else { at };
            flip(&pack, at, random.below(8) as u8);
            let store = Store::rebuild_index(&path).unwrap();
            let broken = sample.read_all(&store);
            let after: Vec<SnapshotId> = ids(&store.snapshots().unwrap());
            if record.kind == COMMIT {
                // Only the commit of the damaged record is lost.
                let lost = before.iter().filter(|id| !after.contains(id)).count();
                assert!(lost <= 1 && broken.iter().all(|(id, _)| !after.contains(id)), "{broken:?}");
            } else {
                assert_eq!(after, before, "snapshots went with a damaged {}", record.kind);
                let limit = if number == 0 { 0 } else { usize::MAX };
                assert!(broken.len() <= limit, "a damaged pack header took content along");
            }
            assert_eq!(
                store.verify(&NoProgress).unwrap().damage.is_empty(),
                record.kind == COMMIT || broken.is_empty()
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
fn zeros_inside_damaged_content_hide_nothing_behind_them() {
    let (_home, store) = new_store();
    let mut tree = store.empty_tree().unwrap();
    let holed = [noise(1, 3000), vec![0; 200], noise(2, 3000)].concat();
    tree.write("holed", holed.clone()).unwrap();
    tree.commit(message("first")).unwrap();
    tree.write("behind", "still here").unwrap();
    let second = tree.commit(message("second")).unwrap();
    let path = store.path().to_owned();
    drop((tree, store));
    let pack = packs(&path)[0].clone();
    let content = fs::read(&pack).unwrap();
    let at = content.windows(holed.len()).position(|part| part == holed).expect("stored as it is");
    flip(&pack, at + 10, 0);
    let store = Store::rebuild_index(&path).unwrap();
    assert_eq!(store.snapshots().unwrap().len(), 2);
    assert_eq!(store.restore(&second.id).unwrap().read("behind").unwrap(), b"still here");
}

#[test]
fn a_broken_index_is_rebuilt_or_refused_clearly() {
    let sample = Sample::new();
    let data = sample.path.join("index/data.mdb");
    let good = fs::read(&data).unwrap();
    let mut without_meta = good.clone();
    without_meta[..8192].fill(0xff);
    for bad in [Vec::new(), noise(1, 5), noise(1, 100_000), vec![0; 100_000], without_meta] {
        fs::write(&data, bad).unwrap();
        let store = Store::open(&sample.path).unwrap();
        assert_eq!(sample.read_all(&store), []);
        assert_sound(&store);
        assert_usable(&store);
        assert_eq!(sample.read_all(&store), []);
    }
    // A requested rebuild repairs any of these.
    fs::write(&data, &noise(1, good.len())[..good.len() / 2]).unwrap();
    let store = Store::rebuild_index(&sample.path).unwrap();
    assert_eq!(sample.read_all(&store), []);
    assert_sound(&store);
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let sample = Sample::new();
    let format = sample.path.join("format");
    // A newer version brings its own copy.
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
fn a_directory_that_is_no_store_is_refused_and_left_alone() {
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

/// A missing page of the file cannot be read, and the attempt would kill the process.
#[test]
fn an_index_cut_short_is_rebuilt() {
    let sample = Sample::new();
    let expected = format!("{} snapshots", all_snapshots(&sample.path).len());
    let length = fs::metadata(sample.path.join("index/data.mdb")).unwrap().len();
    for cut in (1..=length / 4096).map(|pages| length - pages * 4096).chain([5000, 9000]) {
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join("store");
        crate::support::copy_directory(&sample.path, &path);
        fs::File::options().write(true).open(path.join("index/data.mdb")).unwrap().set_len(cut).unwrap();
        let ended = ChildProcess::start("open", &[text(&path)]).finish();
        assert_eq!(ended.lines, [expected.as_str()], "cut to {cut}: {}", ended.stderr);
        let store = Store::open(&path).unwrap();
        assert_eq!(sample.read_all(&store), []);
    }
}

/// A closed store with so many records that a checkpoint has three parts.
struct LargeCheckpoint {
    _home: TempDir,
    path: PathBuf,
    snapshot: SnapshotId,
    episodes: Vec<EpisodeId>,
}

/// Number of episodes in each of the first two parts; the third has the rest.
const IN_A_PART: usize = 4;

impl LargeCheckpoint {
    /// Creates the store. Its last log begins with a checkpoint, and the log before that still exists.
    fn new() -> Self {
        let (home, store) = new_store();
        let (path, snapshot) = (store.path().to_owned(), commit_file(&store, "file", "content").id);
        let mut this = Self { _home: home, path, snapshot, episodes: Vec::new() };
        for _ in 0..=2 * IN_A_PART {
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

    /// Returns the logs, each with the parts of its checkpoint.
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

    /// Damages the second part of the checkpoint at the start of the last log.
    fn damage_checkpoint(&self) {
        let (log, parts) = self.logs().pop().unwrap();
        assert_eq!(parts.len(), 3);
        flip(&log, parts[1].end - 1, 0);
    }

    fn problems(&self) -> Vec<String> {
        let damage = Store::open(&self.path).unwrap().verify(&NoProgress).unwrap().damage;
        damage.into_iter().map(|damage| damage.problem).collect()
    }
}

#[test]
fn a_checkpoint_without_one_of_its_parts_gives_way_to_the_log_before_it() {
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

/// Returns a store with a damaged checkpoint and without the log before it; the episode after the checkpoint
/// is the last.
fn without_the_log_before() -> LargeCheckpoint {
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
fn parts_of_a_checkpoint_that_nothing_else_holds_are_reported_as_lost_and_the_others_kept() {
    let store = without_the_log_before();
    let problems = store.problems();
    assert!(problems.iter().any(|problem| problem.contains("parts of the checkpoint")), "{problems:?}");
    let refused = Store::open(&store.path).unwrap().collect_garbage(&GcOptions::default(), &NoProgress);
    assert!(refused.unwrap_err().is_corruption());
    let rebuilt = Store::rebuild_index(&store.path).unwrap();
    let report = rebuilt.rebuild_report().unwrap();
    let gone = &store.episodes[IN_A_PART..2 * IN_A_PART];
    assert_eq!(report.lost.episodes, gone);
    assert!(report.log_damaged && report.wrong_rows.is_empty() && report.old_index.is_some(), "{report:?}");
    assert_eq!(rebuilt.missing_episodes(&store.episodes).unwrap(), gone);
    assert_eq!(rebuilt.restore(&store.snapshot).unwrap().read("file").unwrap(), b"content");
    assert_sound(&rebuilt);
    assert_usable(&rebuilt);
}

#[test]
fn parts_lost_in_a_machine_crash_are_reported() {
    let store = without_the_log_before();
    fs::write(store.path.join("boot"), "another boot").unwrap();
    let rebuilt = Store::open(&store.path).unwrap();
    let report = rebuilt.rebuild_report().expect("the index was rebuilt");
    assert!(report.log_damaged && report.commits_given_up == 0, "{report:?}");
    let gone = &store.episodes[IN_A_PART..2 * IN_A_PART];
    assert_eq!(rebuilt.missing_episodes(&store.episodes).unwrap(), gone);
}

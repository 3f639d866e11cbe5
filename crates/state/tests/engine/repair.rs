//! Tests of rebuilds of the index: lost records are reported, and wrong rows are found and repaired.
//!
//! The index is rebuilt from the log: the sequence of packs (append-only files) with the commit records.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use workspace_state::testing::{change_row, snapshot_row};
use workspace_state::{
    Durability, Episode, Expect, GcOptions, NewSnapshot, NoProgress, Snapshot, SnapshotId, Store,
};

use crate::support::{
    COMMIT, assert_sound, assert_usable, collect, commit_file, copy_directory, message, new_store,
    pack_records, packs,
};

/// Closed store with six snapshots in one log pack, and an episode for each. Reference `main` points to the last
/// snapshot, `first` to the first one.
struct Fixture {
    _home: TempDir,
    path: PathBuf,
    snapshots: Vec<Snapshot>,
    episodes: Vec<Episode>,
}

impl Fixture {
    fn new() -> Self {
        let (home, store) = new_store();
        let (mut snapshots, mut episodes) = (Vec::new(), Vec::new());
        for number in 0..6 {
            let mut tree = store.empty_tree().unwrap();
            tree.write("file", format!("content {number}")).unwrap();
            let main = ("main".to_owned(), Expect::Anything);
            let references =
                if number == 0 { vec![("first".to_owned(), Expect::Absent), main] } else { vec![main] };
            let new = NewSnapshot { references, ..message(&format!("number {number}")) };
            let snapshot = tree.commit(new).unwrap();
            let episode = Episode::new(snapshot.id, None, "step", 0.5);
            store.put_episode(&episode, Durability::Synced).unwrap();
            snapshots.push(snapshot);
            episodes.push(episode);
        }
        let path = store.path().to_owned();
        Self { _home: home, path, snapshots, episodes }
    }

    fn ids(&self) -> Vec<SnapshotId> {
        self.snapshots.iter().map(|snapshot| snapshot.id).collect()
    }

    /// Truncates the log after its first `commits` commit records.
    fn truncate_log(&self, commits: usize) {
        let log = packs(&self.path)[0].clone();
        let records = pack_records(&fs::read(&log).unwrap());
        let end = records.iter().filter(|record| record.kind == COMMIT).nth(commits - 1).unwrap().end;
        fs::File::options().write(true).open(log).unwrap().set_len(end as u64).unwrap();
    }

    /// Returns the problems that a verification reports.
    fn damage(&self) -> Vec<String> {
        let report = Store::open(&self.path).unwrap().verify(&NoProgress).unwrap();
        report.damage.into_iter().map(|damage| damage.problem).collect()
    }
}

/// Returns the names of the old indexes that a store has kept.
fn old_indexes(store: &Path) -> Vec<String> {
    let names = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("index.")).collect()
}

#[test]
fn a_rebuild_from_a_truncated_log_reports_lost_snapshots_references_and_episodes() {
    let fixture = Fixture::new();
    fixture.truncate_log(6);
    let before = fixture.damage();
    assert!(before.iter().any(|problem| problem.contains("the log is damaged")), "{before:?}");
    let store = Store::rebuild_index(&fixture.path).unwrap();
    let report = store.rebuild_report().unwrap().clone();
    let ids = fixture.ids();
    assert_eq!(report.index.snapshots, 3);
    let lost: Vec<SnapshotId> = report.lost.snapshots.iter().map(|lost| lost.id).collect();
    assert_eq!(lost, ids[3..]);
    assert_eq!(report.lost.snapshots[0].message.as_deref(), Some("number 3"));
    let [main] = report.lost.references.as_slice() else { panic!("{report:?}") };
    assert_eq!((main.name.as_str(), main.was, main.is), ("main", Some(ids[5]), Some(ids[2])));
    let episodes: Vec<_> = fixture.episodes[3..].iter().map(|episode| episode.id).collect();
    assert_eq!(report.lost.episodes, episodes);
    let old = report.old_index.expect("the old index is kept");
    assert!(old.join("data.mdb").exists() && old.starts_with(&fixture.path), "{old:?}");
    assert_sound(&store);
    assert_usable(&store);
}

#[test]
fn a_rebuild_without_loss_keeps_no_old_index() {
    let fixture = Fixture::new();
    let store = Store::rebuild_index(&fixture.path).unwrap();
    let report = store.rebuild_report().unwrap();
    assert!(report.problems().is_empty(), "{report:?}");
    assert_eq!((report.index.snapshots, report.index.references, report.index.episodes), (6, 2, 6));
    assert_eq!(old_indexes(&fixture.path), Vec::<String>::new());
    drop(store);
    assert!(Store::open(&fixture.path).unwrap().rebuild_report().is_none());
}

#[test]
fn a_rebuild_on_open_is_reported() {
    let fixture = Fixture::new();
    fs::write(fixture.path.join("index/data.mdb"), crate::support::noise(1, 100_000)).unwrap();
    let store = Store::open(&fixture.path).unwrap();
    let report = store.rebuild_report().expect("the index was rebuilt");
    assert_eq!(report.index.snapshots, 6);
    assert!(report.old_unreadable && report.old_index.is_some(), "{report:?}");
}

#[test]
fn the_number_of_kept_indexes_is_bounded() {
    let fixture = Fixture::new();
    for seed in 0..7 {
        fs::write(fixture.path.join("index/data.mdb"), crate::support::noise(seed, 50_000)).unwrap();
        drop(Store::open(&fixture.path).unwrap());
    }
    let mut kept = old_indexes(&fixture.path);
    kept.sort();
    assert_eq!(kept, ["index.old-1", "index.old-2", "index.old-3", "index.old-4"]);
}

#[test]
fn a_damaged_format_file_is_found_and_repaired_and_does_not_block_the_store() {
    let fixture = Fixture::new();
    for name in ["format", "format.copy"] {
        let path = fixture.path.join(name);
        let intact = fs::read(&path).unwrap();
        for index in 0..intact.len() {
            for bit in 0..8 {
                let mut damaged = intact.clone();
                damaged[index] ^= 1 << bit;
                fs::write(&path, &damaged).unwrap();
                let store = Store::open(&fixture.path).unwrap();
                assert_eq!(store.snapshots().unwrap().len(), 6, "{name}, byte {index}, bit {bit}");
            }
        }
        assert_eq!(fixture.damage(), [format!("the file `{name}` of the store is damaged")]);
        drop(Store::rebuild_index(&fixture.path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), intact);
        assert_eq!(fixture.damage(), Vec::<String>::new());
    }
}

#[test]
fn a_store_without_a_copy_of_its_format_opens_if_its_packs_are_known() {
    let fixture = Fixture::new();
    fs::remove_file(fixture.path.join("format.copy")).unwrap();
    fs::write(fixture.path.join("format"), &b"elevo-workspace stor\xff 1\n"[..]).unwrap();
    assert_eq!(Store::open(&fixture.path).unwrap().snapshots().unwrap().len(), 6);
    drop(Store::rebuild_index(&fixture.path).unwrap());
    assert_eq!(fs::read_to_string(fixture.path.join("format")).unwrap(), "elevo-workspace store 1\n");
}

/// Change of an index row, and the text with which a verification must report it.
struct Change<'a> {
    table: &'a str,
    key: Vec<u8>,
    /// New row; `None` removes the row.
    row: Option<Vec<u8>>,
    problem: String,
}

/// Returns changes of rows of all tables.
fn changes(fixture: &Fixture) -> Vec<Change<'static>> {
    let ids = fixture.ids();
    let mut other_message = Store::open(&fixture.path).unwrap().snapshot(&ids[1]).unwrap();
    other_message.message = "Number 1".to_owned();
    let episode = Episode { reward: 0.75, ..fixture.episodes[2].clone() };
    let differs = "differs from the log";
    let change = |table, key: &[u8], row: Option<Vec<u8>>, problem: String| Change {
        table,
        key: key.to_vec(),
        row,
        problem,
    };
    vec![
        change("snapshots", ids[1].as_bytes(), Some(snapshot_row(&other_message)), differs.to_owned()),
        change("snapshots", ids[1].as_bytes(), Some(vec![1, 2, 3]), differs.to_owned()),
        change("snapshots", ids[4].as_bytes(), None, "the log has it and the index does not".to_owned()),
        change(
            "references",
            b"main",
            Some(ids[0].as_bytes().to_vec()),
            format!("`main` is at {} in the index", ids[0]),
        ),
        change("references", b"main", Some(vec![7]), "no snapshot id".to_owned()),
        change("references", b"first", None, "reference `first`: the log has it".to_owned()),
        change(
            "references",
            b"new",
            Some(ids[0].as_bytes().to_vec()),
            "reference `new`: the index has it".to_owned(),
        ),
        change(
            "episodes",
            episode.id.as_bytes(),
            Some(serde_json::to_vec(&episode).unwrap()),
            format!("episode {}", episode.id),
        ),
        change("episodes", episode.id.as_bytes(), None, format!("episode {}", episode.id)),
        change(
            "trees",
            &[fixture.snapshots[0].tree.as_bytes().as_slice(), ids[0].as_bytes()].concat(),
            None,
            "table of trees".to_owned(),
        ),
        change("packs", &1u32.to_be_bytes(), None, "not in the table of packs of the index".to_owned()),
    ]
}

#[test]
fn verification_reports_rows_that_differ_from_the_log_and_a_rebuild_repairs_them() {
    let fixture = Fixture::new();
    let counts = Store::open(&fixture.path).unwrap().index_counts().unwrap();
    for change in changes(&fixture) {
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join("store");
        copy_directory(&fixture.path, &path);
        change_row(&path, change.table, &change.key, change.row.as_deref()).unwrap();
        let store = Store::open(&path).unwrap();
        let damage = store.verify(&NoProgress).unwrap().damage;
        let is_reported = damage.iter().any(|damage| damage.problem.contains(&change.problem));
        assert!(is_reported, "{} is not in {damage:?}", change.problem);
        // A garbage collection is refused, because it could delete objects to which the correct row refers.
        let refused = store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap_err();
        assert!(refused.is_corruption(), "{refused}");
        drop(store);
        let store = Store::rebuild_index(&path).unwrap();
        let report = store.rebuild_report().unwrap();
        assert!(report.lost.is_empty(), "{report:?}");
        assert_eq!(report.wrong_rows.is_empty(), change.table == "packs", "{report:?}");
        assert_eq!(store.index_counts().unwrap(), counts);
        assert_sound(&store);
        for snapshot in &fixture.snapshots {
            assert_eq!(store.snapshot(&snapshot.id).unwrap(), *snapshot);
        }
        assert_eq!(store.reference("main").unwrap(), Some(fixture.ids()[5]));
        assert_eq!(store.episode(&fixture.episodes[2].id).unwrap().as_ref(), Some(&fixture.episodes[2]));
    }
}

#[test]
fn the_index_agrees_with_the_log_after_collections_removals_and_many_commits() {
    let (_home, store) = new_store();
    let mut kept = Vec::new();
    for round in 0..40 {
        kept.push(commit_file(&store, "file", format!("{round}")).id);
        let pin = store.pin(&store.snapshot(&kept[0]).unwrap(), "test").unwrap();
        if round % 3 == 0 {
            store.unpin(pin).unwrap();
        }
        store.set_reference("head", Expect::Anything, kept[kept.len() - 1], Durability::Buffered).unwrap();
        let episode = Episode::new(kept[0], None, "step", 1.0);
        store.put_episode(&episode, Durability::Buffered).unwrap();
        if round % 5 == 4 {
            store.remove_snapshots(&[kept.remove(1)]).unwrap();
            store.remove_episodes(&episode.id).unwrap();
            collect(&store);
        }
        assert_sound(&store);
    }
}

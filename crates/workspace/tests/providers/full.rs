//! Full disks: a failed operation leaves no files behind, and succeeds once there is space.
//!
//! *Layers* are read-only directories with the files of snapshots, the lower directories of overlays. The *reserve* is
//! the disk space that workspaces must leave free; layers leave twice as much. `fixture.all()` is the set of workspaces
//! under test. `fixture.seen(id)` is a listing of a workspace, and `fixture.checked_out(&snapshot)` a listing of a
//! snapshot in the same format.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use libtest_mimic::Trial;
use workspace_host::free_space::{Shortage, size};
use workspace_state::{NewSnapshot, Snapshot};
use workspace_test_support::runs_as_root;
use workspace_workspace::{
    Materialize, NewWorkspace, Options, ProviderKind, ResetMode, UnusedLayers, WorkspaceError, Workspaces,
    Writers,
};

use crate::fixture::{Fixture, Setting, options};
use crate::image::{self, Image};

/// Script that creates 12 MB of files.
const BIG: &str = "mkdir d; for i in 1 2 3 4 5 6; do head -c 2000000 /dev/urandom > d/$i; done";

pub(crate) fn trials() -> Vec<Trial> {
    if !runs_as_root("can mount a disk image") || !image::is_available("ext4") {
        return Vec::new();
    }
    let on_ext4 = |setting: Setting| Setting { filesystem: Some("ext4"), ..setting };
    let overlay_and_copy = |name, test: fn(ProviderKind)| {
        [Setting::OVERLAY, Setting::COPY]
            .map(|setting| on_ext4(setting).trial(name, move || test(setting.kind)))
    };
    let mut trials = Vec::from(overlay_and_copy(
        "operations_on_a_full_disk_leave_nothing_incomplete",
        operations_on_a_full_disk_leave_nothing_incomplete,
    ));
    trials.extend(overlay_and_copy(
        "a_snapshot_larger_than_the_space_above_the_reserve_is_refused",
        a_snapshot_larger_than_the_space_above_the_reserve_is_refused,
    ));
    let overlay = |name, test: fn()| on_ext4(Setting::OVERLAY).trial(name, test);
    trials.push(overlay(
        "unused_layers_are_removed_before_a_snapshot_is_refused",
        unused_layers_are_removed_before_a_snapshot_is_refused,
    ));
    trials.push(overlay(
        "unused_layers_take_a_limited_part_of_the_disk",
        unused_layers_take_a_limited_part_of_the_disk,
    ));
    trials
}

/// File that fills the disk until it is dropped.
struct Filler(PathBuf);

impl Filler {
    fn new(fixture: &Fixture) -> Self {
        let path = fixture.home.path().join("filler");
        let mut file = File::create(&path).unwrap();
        for size in [1 << 20, 4096, 1] {
            let block = vec![7_u8; size];
            while file.write_all(&block).is_ok() {}
        }
        Self(path)
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// Fails the test unless an operation failed because the disk is full.
fn assert_disk_full<T>(result: Result<T, WorkspaceError>) {
    let Err(error) = result else { panic!("succeeded on a full disk") };
    assert!(error.is_full(), "{error:?}");
}

/// Returns the number of entries of a directory below the home directory of the fixture.
fn count_entries(fixture: &Fixture, directory: &str) -> usize {
    fs::read_dir(fixture.home.path().join(directory)).map_or(0, Iterator::count)
}

fn operations_on_a_full_disk_leave_nothing_incomplete(kind: ProviderKind) {
    let fixture = Fixture::within(Some(Image::new("ext4", 96 << 20)), kind, false);
    let small = fixture.snapshot("echo small > small");
    let big = fixture.snapshot(BIG);
    let (from_small, from_big) = (
        NewWorkspace { snapshot: Some(small.id), ..NewWorkspace::default() },
        NewWorkspace { snapshot: Some(big.id), ..NewWorkspace::default() },
    );
    fixture.all().create("a", &from_small).unwrap();
    fixture.run("a", "head -c 3000000 /dev/urandom > mine");
    let seen = fixture.seen("a");
    let (pins, snapshots) = (fixture.store.pins().unwrap().len(), fixture.store.snapshots().unwrap().len());
    let layers = count_entries(&fixture, "layers/layers");
    let filler = Filler::new(&fixture);
    assert_disk_full(fixture.all().create("b", &from_big));
    assert_eq!(count_entries(&fixture, "workspaces"), 1);
    assert_eq!(count_entries(&fixture, "layers/layers"), layers);
    assert_disk_full(fixture.all().commit("a", NewSnapshot::default(), Writers::Running));
    assert_disk_full(fixture.all().reset("a", Some(big.id), Materialize::Full, ResetMode::MayMove));
    assert_eq!(fixture.seen("a"), seen);
    assert_eq!(count_entries(&fixture, "workspaces/a"), 2);
    assert_eq!(fixture.store.pins().unwrap().len(), pins);
    assert_eq!(fixture.store.snapshots().unwrap().len(), snapshots);
    drop(filler);
    assert_eq!(fixture.changes("a"), ["Added mine"]);
    let committed = fixture.commit("a");
    assert_eq!(fixture.checked_out(&committed), seen);
    fixture.all().create("b", &from_big).unwrap();
    assert_eq!(fixture.seen("b"), fixture.checked_out(&big));
    // Workspaces can be removed on a full disk.
    let filler = Filler::new(&fixture);
    fixture.all().remove("b").unwrap();
    drop(filler);
    fixture.all().reset("a", Some(big.id), Materialize::Full, ResetMode::MayMove).unwrap();
    fixture.all().finish_reset("a").unwrap();
    assert_eq!(fixture.seen("a"), fixture.checked_out(&big));
    fixture.all().remove("a").unwrap();
    assert_eq!(count_entries(&fixture, "workspaces"), 0);
    assert!(fixture.store.pins().unwrap().is_empty());
}

/// Creates a fixture on a file system of which a tenth, the maximum, is the reserve.
fn with_reserve(kind: ProviderKind) -> Fixture {
    let mut fixture = Fixture::within(Some(Image::new("ext4", 96 << 20)), kind, false);
    fixture.workspaces = None;
    let options = options(fixture.home.path(), &fixture.store, &fixture.holder, fixture.kind);
    fixture.workspaces = Some(Workspaces::open(Options { reserve: u64::MAX, ..options }).unwrap());
    fixture
}

/// Returns the number of free bytes beyond twice the reserve, which layers may still take.
fn available_bytes(fixture: &Fixture) -> u64 {
    // There is always a shortage for 100 times the reserve.
    let shortage = Shortage::at_multiple(fixture.home.path(), u64::MAX, 100).unwrap();
    shortage.free - shortage.reserve / 100 * 2
}

/// Commits a snapshot with `bytes` bytes of equal files. They take little space in the store, where equal content is
/// stored once, but `bytes` bytes in a layer.
fn snapshot_with_equal_files(fixture: &Fixture, name: &str, bytes: u64) -> Snapshot {
    let mut tree = fixture.store.empty_tree().unwrap();
    let content = name.as_bytes().iter().copied().cycle().take(1 << 20).collect::<Vec<u8>>();
    for number in 0..bytes >> 20 {
        tree.write(format!("{name}/{number}"), content.as_slice()).unwrap();
    }
    tree.commit(NewSnapshot::default()).unwrap()
}

/// Returns the parameters of a workspace that is created from a snapshot.
fn from(snapshot: &Snapshot) -> NewWorkspace<'static> {
    NewWorkspace { snapshot: Some(snapshot.id), ..NewWorkspace::default() }
}

fn a_snapshot_larger_than_the_space_above_the_reserve_is_refused(kind: ProviderKind) {
    let fixture = with_reserve(kind);
    // The snapshot would fit without the reserve.
    let large = snapshot_with_equal_files(&fixture, "large", available_bytes(&fixture) + (4 << 20));
    assert_disk_full(fixture.all().create("a", &from(&large)));
    assert_eq!((count_entries(&fixture, "workspaces"), count_entries(&fixture, "layers/layers")), (0, 0));
    let bytes = available_bytes(&fixture) - (4 << 20);
    let small = snapshot_with_equal_files(&fixture, "small", bytes);
    fixture.all().create("a", &from(&small)).unwrap();
    // Too little space is left for another snapshot, so no file of it is written.
    assert_disk_full(fixture.all().create("b", &from(&snapshot_with_equal_files(&fixture, "next", 8 << 20))));
    assert_eq!(count_entries(&fixture, "workspaces"), 1);
    assert_eq!(fixture.run("a", "ls small | wc -l").trim(), (bytes >> 20).to_string());
}

/// Creates a layer of `bytes` bytes that no workspace uses, and returns its path.
fn unused_layer(fixture: &Fixture, name: &str, bytes: u64) -> PathBuf {
    fixture.all().create(name, &from(&snapshot_with_equal_files(fixture, name, bytes))).unwrap();
    let layer = fixture.all().record(name).unwrap().current.layers.remove(0);
    fixture.all().remove(name).unwrap();
    fixture.home.path().join("layers/layers").join(layer)
}

fn unused_layers_are_removed_before_a_snapshot_is_refused() {
    let fixture = with_reserve(ProviderKind::Overlay);
    let [old, new] = ["old", "new"].map(|name| unused_layer(&fixture, name, 9 << 20));
    assert!(old.exists() && new.exists());
    fixture
        .all()
        .create("a", &from(&snapshot_with_equal_files(&fixture, "a", available_bytes(&fixture) + (4 << 20))))
        .unwrap();
    assert!(!old.exists() && new.exists(), "only the least recently used layer is removed");
    assert_disk_full(fixture.all().create("b", &from(&snapshot_with_equal_files(&fixture, "b", 24 << 20))));
    assert!(!new.exists());
}

fn unused_layers_take_a_limited_part_of_the_disk() {
    let fixture = Fixture::within(Some(Image::new("ext4", 96 << 20)), ProviderKind::Overlay, false);
    let max_bytes = size(fixture.home.path()).unwrap() / 4;
    let layers = ["first", "second", "third"].map(|name| unused_layer(&fixture, name, max_bytes / 5 * 2));
    fixture.all().collect_layers(UnusedLayers::Expired).unwrap();
    assert_eq!(layers.map(|layer| layer.exists()), [false, true, true]);
}

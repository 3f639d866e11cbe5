//! Full disks: a failed operation leaves no files behind, and succeeds once there is space.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use libtest_mimic::Trial;
use workspace_host::free_space::{Shortage, size};
use workspace_state::{NewSnapshot, Snapshot};
use workspace_workspace::{
    Materialize, NewWorkspace, Options, ProviderKind, ResetMode, UnusedLayers, WorkspaceError, Workspaces,
    Writers,
};

use crate::fixture::{Fixture, Setting, options};
use crate::image::{self, Image};

const BIG: &str = "mkdir d; for i in 1 2 3 4 5 6; do head -c 2000000 /dev/urandom > d/$i; done";

pub(crate) fn trials() -> Vec<Trial> {
    if !rustix::process::geteuid().is_root() || !image::is_available("ext4") {
        return Vec::new();
    }
    let on = |setting: Setting| Setting { filesystem: Some("ext4"), ..setting };
    let both = |name, test: fn(ProviderKind)| {
        [Setting::OVERLAY, Setting::COPY].map(|setting| on(setting).trial(name, move || test(setting.kind)))
    };
    let mut trials = Vec::from(both(
        "operations_on_a_full_disk_leave_nothing_incomplete",
        operations_on_a_full_disk_leave_nothing_incomplete,
    ));
    trials.extend(both(
        "a_snapshot_larger_than_the_space_above_the_reserve_is_refused",
        a_snapshot_larger_than_the_space_above_the_reserve_is_refused,
    ));
    let overlay = |name, test: fn()| on(Setting::OVERLAY).trial(name, test);
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

fn assert_disk_full<T>(result: Result<T, WorkspaceError>) {
    let Err(error) = result else { panic!("succeeded on a full disk") };
    assert!(error.is_full(), "{error:?}");
}

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

/// Creates a fixture on a disk of which a tenth is reserved.
fn with_reserve(kind: ProviderKind) -> Fixture {
    let mut fixture = Fixture::within(Some(Image::new("ext4", 96 << 20)), kind, false);
    fixture.workspaces = None;
    let options = options(fixture.home.path(), &fixture.store, &fixture.holder, fixture.kind);
    fixture.workspaces = Some(Workspaces::open(Options { reserve: u64::MAX, ..options }).unwrap());
    fixture
}

/// Returns the number of bytes that layers may still take.
fn available_bytes(fixture: &Fixture) -> u64 {
    let shortage = Shortage::at_multiple(fixture.home.path(), u64::MAX, 100).unwrap();
    shortage.free - shortage.reserve / 100 * 2
}

/// Commits a snapshot that takes little space in the store, and `bytes` bytes in a layer.
fn inflated(fixture: &Fixture, name: &str, bytes: u64) -> Snapshot {
    let mut tree = fixture.store.empty_tree().unwrap();
    let content = name.as_bytes().iter().copied().cycle().take(1 << 20).collect::<Vec<u8>>();
    for number in 0..bytes >> 20 {
        tree.write(format!("{name}/{number}"), content.as_slice()).unwrap();
    }
    tree.commit(NewSnapshot::default()).unwrap()
}

fn from(snapshot: &Snapshot) -> NewWorkspace<'static> {
    NewWorkspace { snapshot: Some(snapshot.id), ..NewWorkspace::default() }
}

fn a_snapshot_larger_than_the_space_above_the_reserve_is_refused(kind: ProviderKind) {
    let fixture = with_reserve(kind);
    // It would fit without the reserve.
    let large = inflated(&fixture, "large", available_bytes(&fixture) + (4 << 20));
    assert_disk_full(fixture.all().create("a", &from(&large)));
    assert_eq!((count_entries(&fixture, "workspaces"), count_entries(&fixture, "layers/layers")), (0, 0));
    let bytes = available_bytes(&fixture) - (4 << 20);
    let small = inflated(&fixture, "small", bytes);
    fixture.all().create("a", &from(&small)).unwrap();
    // Nothing is written if there is not enough space.
    assert_disk_full(fixture.all().create("b", &from(&inflated(&fixture, "next", 8 << 20))));
    assert_eq!(count_entries(&fixture, "workspaces"), 1);
    assert_eq!(fixture.run("a", "ls small | wc -l").trim(), (bytes >> 20).to_string());
}

/// Creates an unused layer of a snapshot.
fn unused_layer(fixture: &Fixture, name: &str, bytes: u64) -> PathBuf {
    fixture.all().create(name, &from(&inflated(fixture, name, bytes))).unwrap();
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
        .create("a", &from(&inflated(&fixture, "a", available_bytes(&fixture) + (4 << 20))))
        .unwrap();
    assert!(!old.exists() && new.exists(), "the last recently used layer stays");
    assert_disk_full(fixture.all().create("b", &from(&inflated(&fixture, "b", 24 << 20))));
    assert!(!new.exists());
}

fn unused_layers_take_a_limited_part_of_the_disk() {
    let fixture = Fixture::within(Some(Image::new("ext4", 96 << 20)), ProviderKind::Overlay, false);
    let max_bytes = size(fixture.home.path()).unwrap() / 4;
    let layers = ["first", "second", "third"].map(|name| unused_layer(&fixture, name, max_bytes / 5 * 2));
    fixture.all().collect_layers(UnusedLayers::Expired).unwrap();
    assert_eq!(layers.map(|layer| layer.exists()), [false, true, true]);
}

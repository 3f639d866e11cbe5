//! A disk without room: what fails leaves nothing, and works when there is room again.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use libtest_mimic::Trial;
use workspace_host::free_space::{Shortage, size};
use workspace_state::{NewSnapshot, Snapshot};
use workspace_workspace::{Kind, Materialize, New, Options, WorkspaceError, Workspaces};

use crate::image::{self, Image};
use crate::world::{Setting, World, options};

const BIG: &str = "mkdir d; for i in 1 2 3 4 5 6; do head -c 2000000 /dev/urandom > d/$i; done";

pub(crate) fn trials() -> Vec<Trial> {
    if !rustix::process::geteuid().is_root() || !image::can_be_had("ext4") {
        return Vec::new();
    }
    let on = |setting: Setting| Setting { filesystem: Some("ext4"), ..setting };
    let both = |name, test: fn(Kind)| {
        [Setting::OVERLAY, Setting::COPY].map(|setting| on(setting).trial(name, move || test(setting.kind)))
    };
    let mut trials = Vec::from(both("a_full_disk_leaves_nothing_half_made", run));
    trials.extend(both("a_snapshot_that_would_take_the_reserve_is_refused", reserve));
    let overlay = |name, test: fn()| on(Setting::OVERLAY).trial(name, test);
    trials.push(overlay("unused_layers_go_before_a_snapshot_is_refused", unused_layers_make_room));
    trials.push(overlay("unused_layers_take_a_part_of_the_disk", unused_layers_are_bounded));
    trials
}

/// Takes all the room there is.
struct Filler(PathBuf);

impl Filler {
    fn new(world: &World) -> Self {
        let path = world.home.path().join("filler");
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

fn is_full<T>(done: Result<T, WorkspaceError>) {
    let Err(error) = done else { panic!("it was done, with no room") };
    assert!(error.is_full(), "{error:?}");
}

fn names(world: &World, directory: &str) -> usize {
    fs::read_dir(world.home.path().join(directory)).map_or(0, Iterator::count)
}

fn run(kind: Kind) {
    let world = World::within(Some(Image::new("ext4", 96 << 20)), kind, false);
    let small = world.snapshot("echo small > small");
    let big = world.snapshot(BIG);
    let (from_small, from_big) = (
        New { snapshot: Some(small.id), ..New::default() },
        New { snapshot: Some(big.id), ..New::default() },
    );
    world.all().create("a", &from_small).unwrap();
    world.run("a", "head -c 3000000 /dev/urandom > mine");
    let seen = world.seen("a");
    let (pins, snapshots) = (world.store.pins().unwrap().len(), world.store.snapshots().unwrap().len());
    let layers = names(&world, "layers/layers");
    let filler = Filler::new(&world);
    is_full(world.all().create("b", &from_big));
    assert_eq!(names(&world, "workspaces"), 1);
    assert_eq!(names(&world, "layers/layers"), layers);
    is_full(world.all().commit("a", NewSnapshot::default(), false));
    is_full(world.all().reset("a", Some(big.id), Materialize::Full, true));
    assert_eq!(world.seen("a"), seen);
    assert_eq!(names(&world, "workspaces/a"), 2);
    assert_eq!(world.store.pins().unwrap().len(), pins);
    assert_eq!(world.store.snapshots().unwrap().len(), snapshots);
    drop(filler);
    assert_eq!(world.changes("a"), ["Added mine"]);
    let committed = world.commit("a");
    assert_eq!(world.checked_out(&committed), seen);
    world.all().create("b", &from_big).unwrap();
    assert_eq!(world.seen("b"), world.checked_out(&big));
    // What takes room can be cleared away when there is none.
    let filler = Filler::new(&world);
    world.all().cleanup("b").unwrap();
    drop(filler);
    world.all().reset("a", Some(big.id), Materialize::Full, true).unwrap();
    world.all().switched("a").unwrap();
    assert_eq!(world.seen("a"), world.checked_out(&big));
    world.all().cleanup("a").unwrap();
    assert_eq!(names(&world, "workspaces"), 0);
    assert!(world.store.pins().unwrap().is_empty());
}

/// A disk of which a tenth is kept free.
fn with_reserve(kind: Kind) -> World {
    let mut world = World::within(Some(Image::new("ext4", 96 << 20)), kind, false);
    world.workspaces = None;
    let options = options(world.home.path(), &world.store, &world.holder, world.kind);
    world.workspaces = Some(Workspaces::open(Options { reserve: u64::MAX, ..options }).unwrap());
    world
}

/// Bytes that are free beyond those that layers leave.
fn room(world: &World) -> u64 {
    let short = Shortage::at_times(world.home.path(), u64::MAX, 100).unwrap();
    short.free - short.reserve / 100 * 2
}

/// A snapshot that takes little of the store, and so many bytes where it is written.
fn inflated(world: &World, name: &str, bytes: u64) -> Snapshot {
    let mut tree = world.store.empty_tree().unwrap();
    let content = name.as_bytes().iter().copied().cycle().take(1 << 20).collect::<Vec<u8>>();
    for number in 0..bytes >> 20 {
        tree.write(format!("{name}/{number}"), content.as_slice()).unwrap();
    }
    tree.commit(NewSnapshot::default()).unwrap()
}

fn from(snapshot: &Snapshot) -> New<'static> {
    New { snapshot: Some(snapshot.id), ..New::default() }
}

fn reserve(kind: Kind) {
    let world = with_reserve(kind);
    // It would fit.
    let large = inflated(&world, "large", room(&world) + (4 << 20));
    is_full(world.all().create("a", &from(&large)));
    assert_eq!((names(&world, "workspaces"), names(&world, "layers/layers")), (0, 0));
    let bytes = room(&world) - (4 << 20);
    let small = inflated(&world, "small", bytes);
    world.all().create("a", &from(&small)).unwrap();
    // Nothing is begun where there is no room.
    is_full(world.all().create("b", &from(&inflated(&world, "next", 8 << 20))));
    assert_eq!(names(&world, "workspaces"), 1);
    assert_eq!(world.run("a", "ls small | wc -l").trim(), (bytes >> 20).to_string());
}

/// The layer of a snapshot, over which nothing lies any more.
fn unused_layer(world: &World, name: &str, bytes: u64) -> PathBuf {
    world.all().create(name, &from(&inflated(world, name, bytes))).unwrap();
    let layer = world.all().record(name).unwrap().current.layers.remove(0);
    world.all().cleanup(name).unwrap();
    world.home.path().join("layers/layers").join(layer)
}

fn unused_layers_make_room() {
    let world = with_reserve(Kind::Overlay);
    let [old, new] = ["old", "new"].map(|name| unused_layer(&world, name, 9 << 20));
    assert!(old.exists() && new.exists());
    world.all().create("a", &from(&inflated(&world, "a", room(&world) + (4 << 20)))).unwrap();
    assert!(!old.exists() && new.exists(), "the one that was used last stays");
    is_full(world.all().create("b", &from(&inflated(&world, "b", 24 << 20))));
    assert!(!new.exists());
}

fn unused_layers_are_bounded() {
    let world = World::within(Some(Image::new("ext4", 96 << 20)), Kind::Overlay, false);
    let most = size(world.home.path()).unwrap() / 4;
    let layers = ["first", "second", "third"].map(|name| unused_layer(&world, name, most / 5 * 2));
    world.all().collect(false).unwrap();
    assert_eq!(layers.map(|layer| layer.exists()), [false, true, true]);
}

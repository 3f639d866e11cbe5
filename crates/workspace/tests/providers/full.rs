//! A disk without room: what fails leaves nothing, and works when there is room again.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use libtest_mimic::Trial;
use workspace_state::NewSnapshot;
use workspace_workspace::{Kind, Materialize, New, WorkspaceError};

use crate::image::{self, Image};
use crate::world::{Setting, World};

const BIG: &str = "mkdir d; for i in 1 2 3 4 5 6; do head -c 2000000 /dev/urandom > d/$i; done";

pub(crate) fn trials() -> Vec<Trial> {
    if !rustix::process::geteuid().is_root() || !image::can_be_had("ext4") {
        return Vec::new();
    }
    let on = |setting: Setting| Setting { filesystem: Some("ext4"), ..setting };
    let name = "a_full_disk_leaves_nothing_half_made";
    [Setting::OVERLAY, Setting::COPY].map(|setting| on(setting).trial(name, move || run(setting.kind))).into()
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

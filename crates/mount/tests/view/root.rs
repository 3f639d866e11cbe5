//! The root of the mount: snapshots as they come, names that lead to them, and the pins that keep them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use workspace_mount::unmount;
use workspace_state::{Durability, Expect, GcOptions, Quiet, SnapshotId};

use crate::support::{Place, eventually, names, requires_root};

#[test]
fn a_snapshot_made_after_the_mount_appears_when_used() {
    let place = Place::new();
    let view = place.mount();
    let unknown = SnapshotId::generate();
    let missing = fs::metadata(place.mountpoint().join(unknown.to_string())).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    for round in 0..3 {
        let snapshot = place.commit(|tree| tree.write("f", format!("{round}")).unwrap());
        assert_eq!(fs::read_to_string(view.of(&snapshot).join("f")).unwrap(), format!("{round}"));
    }
}

#[test]
fn the_root_lists_what_is_in_the_store_at_the_moment() {
    let place = Place::new();
    let view = place.mount();
    assert!(names(&place.mountpoint()).is_empty());
    let mut expected = Vec::new();
    for round in 0..5 {
        let snapshot = place.commit(|tree| tree.write("f", format!("{round}")).unwrap());
        expected.push(snapshot.id.to_string());
        assert_eq!(names(&place.mountpoint()), expected);
        assert!(fs::metadata(view.of(&snapshot)).unwrap().is_dir());
    }
    place.store.remove_snapshots(&[expected.pop().unwrap().parse().unwrap()]).unwrap();
    assert_eq!(names(&place.mountpoint()), expected);
}

#[test]
fn listing_the_root_pins_nothing() {
    let place = Place::new();
    place.commit(|tree| tree.write("f", "x").unwrap());
    let _view = place.mount();
    assert_eq!(names(&place.mountpoint()).len(), 1);
    assert!(place.store.pins().unwrap().is_empty());
}

#[test]
fn references_and_short_ids_are_symlinks_that_follow() {
    let place = Place::new();
    let first = place.commit(|tree| tree.write("f", "first").unwrap());
    let second = place.commit(|tree| tree.write("f", "second").unwrap());
    let view = place.mount();
    let reference = place.mountpoint().join("main");
    assert!(!reference.exists());
    let set = |expect, to| place.store.set_reference("main", expect, to, Durability::Buffered).unwrap();
    set(Expect::Absent, first.id);
    assert_eq!(fs::read_link(&reference).unwrap().to_str(), Some(first.id.to_string().as_str()));
    assert_eq!(fs::read_to_string(reference.join("f")).unwrap(), "first");
    set(Expect::At(first.id), second.id);
    assert_eq!(fs::read_link(&reference).unwrap().to_str(), Some(second.id.to_string().as_str()));
    assert_eq!(fs::read_to_string(reference.join("f")).unwrap(), "second");
    assert!(names(&place.mountpoint()).contains(&"main".to_owned()));

    let id = first.id.to_string();
    let short = place.mountpoint().join(&id[..id.len() - 1]);
    assert_eq!(fs::read_to_string(short.join("f")).unwrap(), "first");
    let loud = place.mountpoint().join(id.to_uppercase());
    assert!(!loud.exists() || fs::symlink_metadata(&loud).unwrap().is_symlink(), "a directory has one name");
    drop(view);
}

#[test]
fn what_is_used_is_pinned_until_the_view_is_unmounted() {
    let place = Place::new();
    let used = place.commit(|tree| tree.write("f", "used").unwrap());
    let unused = place.commit(|tree| tree.write("f", "unused").unwrap());
    let view = place.mount();
    assert_eq!(fs::read_to_string(view.of(&used).join("f")).unwrap(), "used");
    let pins = place.store.pins().unwrap();
    assert_eq!(pins.iter().map(|pin| pin.snapshot).collect::<Vec<_>>(), [used.id]);
    assert!(pins[0].of_process && pins[0].owner.contains("view"), "{:?}", pins[0]);

    place.store.remove_snapshots(&[used.id, unused.id]).unwrap();
    assert!(!view.of(&unused).exists());
    assert_eq!(names(&view.of(&used)), ["f"], "removed from the store, still in use here");

    unmount(&place.mountpoint()).unwrap();
    view.ended().unwrap();
    assert!(place.store.pins().unwrap().is_empty());
}

#[test]
fn a_collection_takes_what_is_shown_only_after_the_view_is_gone() {
    let place = Place::new();
    let noise = |seed: u8| -> Vec<u8> {
        let mut state = u32::from(seed) + 1;
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(50_000)
        .collect()
    };
    let snapshot = place.commit(|tree| {
        for at in 0..20 {
            tree.write(format!("d/{at}"), noise(at)).unwrap();
        }
    });
    let collect = || place.store.collect_garbage(&GcOptions::default(), &Quiet).unwrap();
    let view = place.mount();
    assert!(fs::metadata(view.of(&snapshot)).unwrap().is_dir());
    place.store.remove_snapshots(&[snapshot.id]).unwrap();
    for _ in 0..2 {
        assert_eq!(collect().dead_objects, 0);
    }
    for at in 0..20 {
        assert!(fs::read(view.of(&snapshot).join(format!("d/{at}"))).unwrap() == noise(at), "file {at}");
    }
    // A view must not hold up the collection of what it does not show.
    let other = place.commit(|tree| tree.write("other", noise(99)).unwrap());
    place.store.remove_snapshots(&[other.id]).unwrap();
    let report = collect();
    assert!(report.dead_objects > 0 && report.condemned_bytes == 0, "{report:?}");

    unmount(&place.mountpoint()).unwrap();
    view.ended().unwrap();
    let report = collect();
    assert!(report.dead_objects >= 20 && report.live_objects == 0, "{report:?}");
}

#[test]
fn what_the_kernel_forgets_is_unpinned() {
    let place = Place::new();
    let snapshot = place.commit(|tree| tree.write("a/f", "x").unwrap());
    let view = place.mount();
    assert_eq!(fs::read_to_string(view.of(&snapshot).join("a/f")).unwrap(), "x");
    assert_eq!(place.store.pins().unwrap().len(), 1);
    if !requires_root() {
        return;
    }
    eventually("the pin ends", || {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        place.store.pins().unwrap().is_empty()
    });
    assert_eq!(fs::read_to_string(view.of(&snapshot).join("a/f")).unwrap(), "x", "and is used again");
}

#[test]
fn statistics_of_the_filesystem_are_plausible() {
    let place = Place::new();
    let _view = place.mount();
    let statistics = rustix::fs::statvfs(place.mountpoint()).unwrap();
    assert!(statistics.f_blocks > 0 && statistics.f_bavail == 0 && statistics.f_namemax == 255);
    assert!(statistics.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
    assert_ne!(
        fs::metadata(place.mountpoint()).unwrap().dev(),
        fs::metadata(place.directory.path()).unwrap().dev()
    );
}

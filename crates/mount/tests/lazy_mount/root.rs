//! Root of the mount: new snapshots, names that point to them, and the pins that keep them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use workspace_mount::unmount;
use workspace_state::{Durability, Expect, GcOptions, NoProgress, SnapshotId};
use workspace_test_support::wait_until;

use crate::support::{Fixture, names, requires_root};

#[test]
fn a_snapshot_made_after_the_mount_appears_when_used() {
    let fixture = Fixture::new();
    let mount = fixture.mount();
    let unknown = SnapshotId::generate();
    let missing = fs::metadata(fixture.mountpoint().join(unknown.to_string())).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    for round in 0..3 {
        let snapshot = fixture.commit(|tree| tree.write("f", format!("{round}")).unwrap());
        assert_eq!(fs::read_to_string(mount.of(&snapshot).join("f")).unwrap(), format!("{round}"));
    }
}

#[test]
fn the_root_lists_the_current_snapshots() {
    let fixture = Fixture::new();
    let mount = fixture.mount();
    assert!(names(&fixture.mountpoint()).is_empty());
    let mut expected = Vec::new();
    for round in 0..5 {
        let snapshot = fixture.commit(|tree| tree.write("f", format!("{round}")).unwrap());
        expected.push(snapshot.id.to_string());
        assert_eq!(names(&fixture.mountpoint()), expected);
        assert!(fs::metadata(mount.of(&snapshot)).unwrap().is_dir());
    }
    fixture.store.remove_snapshots(&[expected.pop().unwrap().parse().unwrap()]).unwrap();
    assert_eq!(names(&fixture.mountpoint()), expected);
}

#[test]
fn listing_the_root_pins_nothing() {
    let fixture = Fixture::new();
    fixture.commit(|tree| tree.write("f", "x").unwrap());
    let _mount = fixture.mount();
    assert_eq!(names(&fixture.mountpoint()).len(), 1);
    assert!(fixture.store.pins().unwrap().is_empty());
}

#[test]
fn references_and_short_ids_are_symlinks() {
    let fixture = Fixture::new();
    let first = fixture.commit(|tree| tree.write("f", "first").unwrap());
    let second = fixture.commit(|tree| tree.write("f", "second").unwrap());
    let mount = fixture.mount();
    let reference = fixture.mountpoint().join("main");
    assert!(!reference.exists());
    let set = |expect, to| fixture.store.set_reference("main", expect, to, Durability::Buffered).unwrap();
    set(Expect::Absent, first.id);
    assert_eq!(fs::read_link(&reference).unwrap().to_str(), Some(first.id.to_string().as_str()));
    assert_eq!(fs::read_to_string(reference.join("f")).unwrap(), "first");
    set(Expect::At(first.id), second.id);
    assert_eq!(fs::read_link(&reference).unwrap().to_str(), Some(second.id.to_string().as_str()));
    assert_eq!(fs::read_to_string(reference.join("f")).unwrap(), "second");
    assert!(names(&fixture.mountpoint()).contains(&"main".to_owned()));

    let id = first.id.to_string();
    let short = fixture.mountpoint().join(&id[..id.len() - 1]);
    assert_eq!(fs::read_to_string(short.join("f")).unwrap(), "first");
    let loud = fixture.mountpoint().join(id.to_uppercase());
    assert!(!loud.exists() || fs::symlink_metadata(&loud).unwrap().is_symlink(), "a directory has one name");
    drop(mount);
}

#[test]
fn snapshots_in_use_are_pinned_until_unmounted() {
    let fixture = Fixture::new();
    let used = fixture.commit(|tree| tree.write("f", "used").unwrap());
    let unused = fixture.commit(|tree| tree.write("f", "unused").unwrap());
    let mount = fixture.mount();
    assert_eq!(fs::read_to_string(mount.of(&used).join("f")).unwrap(), "used");
    let pins = fixture.store.pins().unwrap();
    assert_eq!(pins.iter().map(|pin| pin.snapshot).collect::<Vec<_>>(), [used.id]);
    assert!(pins[0].ends_with_process && pins[0].holder.contains("lazy mount"), "{:?}", pins[0]);

    fixture.store.remove_snapshots(&[used.id, unused.id]).unwrap();
    assert!(!mount.of(&unused).exists());
    assert_eq!(names(&mount.of(&used)), ["f"], "removed from the store, still in use here");

    unmount(&fixture.mountpoint()).unwrap();
    mount.ended().unwrap();
    assert!(fixture.store.pins().unwrap().is_empty());
}

#[test]
fn used_snapshots_are_collected_only_after_unmounting() {
    let fixture = Fixture::new();
    let noise = |seed: u8| -> Vec<u8> {
        let mut state = u32::from(seed) + 1;
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(50_000)
        .collect()
    };
    let snapshot = fixture.commit(|tree| {
        for at in 0..20 {
            tree.write(format!("d/{at}"), noise(at)).unwrap();
        }
    });
    let collect = || fixture.store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
    let mount = fixture.mount();
    // Open, because the kernel may forget unused directories when memory is short.
    let open = fs::File::open(mount.of(&snapshot)).unwrap();
    fixture.store.remove_snapshots(&[snapshot.id]).unwrap();
    for _ in 0..2 {
        assert_eq!(collect().dead_objects, 0);
    }
    for at in 0..20 {
        assert!(fs::read(mount.of(&snapshot).join(format!("d/{at}"))).unwrap() == noise(at), "file {at}");
    }
    // A mount must not delay the collection of other snapshots.
    let other = fixture.commit(|tree| tree.write("other", noise(99)).unwrap());
    fixture.store.remove_snapshots(&[other.id]).unwrap();
    let report = collect();
    assert!(report.dead_objects > 0 && report.condemned_bytes == 0, "{report:?}");

    drop(open);
    unmount(&fixture.mountpoint()).unwrap();
    mount.ended().unwrap();
    let report = collect();
    assert!(report.dead_objects >= 20 && report.live_objects == 0, "{report:?}");
}

#[test]
fn forgotten_snapshots_are_unpinned() {
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| tree.write("a/f", "x").unwrap());
    let mount = fixture.mount();
    assert_eq!(fs::read_to_string(mount.of(&snapshot).join("a/f")).unwrap(), "x");
    assert_eq!(fixture.store.pins().unwrap().len(), 1);
    if !requires_root() {
        return;
    }
    wait_until("the pin ends", || {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        fixture.store.pins().unwrap().is_empty()
    });
    assert_eq!(fs::read_to_string(mount.of(&snapshot).join("a/f")).unwrap(), "x", "and is used again");
}

#[test]
fn statistics_of_the_filesystem_are_plausible() {
    let fixture = Fixture::new();
    let _mount = fixture.mount();
    let statistics = rustix::fs::statvfs(fixture.mountpoint()).unwrap();
    assert!(statistics.f_blocks > 0 && statistics.f_bavail == 0 && statistics.f_namemax == 255);
    assert!(statistics.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
    assert_ne!(
        fs::metadata(fixture.mountpoint()).unwrap().dev(),
        fs::metadata(fixture.directory.path()).unwrap().dev()
    );
}

//! Where a view can be mounted, that nothing is written through it, and how it goes away.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::io::Errno;
use workspace_mount::{MountError, MountState, View, ViewOptions, detach, mount_state, unmount};
use workspace_state::StoreError;

use crate::support::Place;

fn read_only(result: io::Result<()>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(Errno::ROFS.raw_os_error()));
}

#[test]
fn nothing_can_be_written() {
    let place = Place::new();
    let snapshot = place.commit(|tree| {
        tree.write("f", "content").unwrap();
        tree.mkdir("d").unwrap();
    });
    let view = place.mount();
    let root = view.of(&snapshot);
    let file = root.join("f");
    for parent in [&root, &place.mountpoint()] {
        read_only(File::create(parent.join("new")).map(drop));
        read_only(fs::create_dir(parent.join("new")));
        read_only(std::os::unix::fs::symlink("x", parent.join("new")));
    }
    read_only(OpenOptions::new().append(true).open(&file).map(drop));
    read_only(OpenOptions::new().write(true).truncate(true).open(&file).map(drop));
    read_only(fs::remove_file(&file));
    read_only(fs::remove_dir(root.join("d")));
    read_only(fs::remove_dir(&root));
    read_only(fs::rename(&file, root.join("g")));
    read_only(fs::hard_link(&file, root.join("g")));
    read_only(fs::set_permissions(&file, fs::Permissions::from_mode(0o777)));
    let set = rustix::fs::setxattr(&file, "user.x", b"y", rustix::fs::XattrFlags::empty());
    assert_eq!(set, Err(Errno::ROFS));
    assert_eq!(fs::read_to_string(&file).unwrap(), "content");
}

#[test]
fn a_place_that_cannot_be_mounted_on_is_refused() {
    let place = Place::new();
    let mount = |path: &Path| View::mount(place.store.path(), path, &ViewOptions::default()).map(drop);
    let directory = place.directory.path();
    assert!(matches!(mount(&directory.join("none")), Err(MountError::Mountpoint { .. })));
    assert!(matches!(mount(directory), Err(MountError::NotEmpty { .. })));
    fs::write(directory.join("file"), b"").unwrap();
    assert!(matches!(mount(&directory.join("file")), Err(MountError::NotADirectory { .. })));
    let no_store = View::mount(directory.join("none"), place.mountpoint(), &ViewOptions::default()).map(drop);
    assert!(matches!(no_store, Err(MountError::Store(StoreError::NotAStore { .. }))));
}

#[test]
fn a_living_view_is_not_mounted_over() {
    let place = Place::new();
    let _view = place.mount();
    let store = place.store.path().to_owned();
    assert_eq!(mount_state(&place.mountpoint()).unwrap(), MountState::Alive { store: store.clone() });
    match View::mount(&store, place.mountpoint(), &ViewOptions::default()).map(drop) {
        Err(MountError::AlreadyMounted { store: found, .. }) => assert_eq!(found, store),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_view_that_is_not_served_is_unmounted() {
    let place = Place::new();
    drop(View::mount(place.store.path(), place.mountpoint(), &ViewOptions::default()).unwrap());
    assert_eq!(mount_state(&place.mountpoint()).unwrap(), MountState::NotMounted);
    assert!(matches!(unmount(&place.mountpoint()), Err(MountError::NotMounted { .. })));
}

#[test]
fn a_view_in_use_is_unmounted_only_when_that_is_asked_for() {
    let place = Place::new();
    let snapshot = place.commit(|tree| tree.write("f", "content").unwrap());
    let view = place.mount();
    let open = File::open(view.of(&snapshot).join("f")).unwrap();
    assert!(matches!(unmount(&place.mountpoint()), Err(MountError::Busy { .. })));
    detach(&place.mountpoint()).unwrap();
    assert_eq!(mount_state(&place.mountpoint()).unwrap(), MountState::NotMounted);
    assert_eq!(io::read_to_string(&open).unwrap(), "content", "who uses it can go on");
    drop(open);
    view.ended().unwrap();
}

#[test]
fn a_mountpoint_may_have_an_odd_name() {
    let place = Place::new();
    let odd = place.directory.path().join("a b,c\\d\te");
    fs::create_dir(&odd).unwrap();
    let view = View::mount(place.store.path(), &odd, &ViewOptions::default()).unwrap();
    let thread = std::thread::spawn(|| view.serve());
    assert!(matches!(mount_state(&odd).unwrap(), MountState::Alive { .. }));
    unmount(&odd).unwrap();
    thread.join().unwrap().unwrap();
}

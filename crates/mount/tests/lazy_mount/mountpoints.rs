//! Mountpoints: where a store can be mounted, that the mount is read-only, and unmounting.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::io::Errno;
use workspace_mount::{LazyMount, MountError, MountOptions, MountState, detach, mount_state, unmount};
use workspace_state::StoreError;

use crate::support::Fixture;

fn read_only(result: io::Result<()>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(Errno::ROFS.raw_os_error()));
}

#[test]
fn nothing_can_be_written() {
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| {
        tree.write("f", "content").unwrap();
        tree.mkdir("d").unwrap();
    });
    let mount = fixture.mount();
    let root = mount.of(&snapshot);
    let file = root.join("f");
    for parent in [&root, &fixture.mountpoint()] {
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
fn an_unsuitable_mountpoint_is_refused() {
    let fixture = Fixture::new();
    let mount =
        |path: &Path| LazyMount::mount(fixture.store.path(), path, &MountOptions::default()).map(drop);
    let directory = fixture.directory.path();
    assert!(matches!(mount(&directory.join("none")), Err(MountError::Mountpoint { .. })));
    assert!(matches!(mount(directory), Err(MountError::NotEmpty { .. })));
    fs::write(directory.join("file"), b"").unwrap();
    assert!(matches!(mount(&directory.join("file")), Err(MountError::NotADirectory { .. })));
    let no_store =
        LazyMount::mount(directory.join("none"), fixture.mountpoint(), &MountOptions::default()).map(drop);
    assert!(matches!(no_store, Err(MountError::Store(StoreError::NotAStore { .. }))));
}

#[test]
fn a_live_mount_is_not_mounted_over() {
    let fixture = Fixture::new();
    let _mount = fixture.mount();
    let store = fixture.store.path().to_owned();
    assert_eq!(mount_state(&fixture.mountpoint()).unwrap(), MountState::Alive { store: store.clone() });
    match LazyMount::mount(&store, fixture.mountpoint(), &MountOptions::default()).map(drop) {
        Err(MountError::AlreadyMounted { store: found, .. }) => assert_eq!(found, store),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_mount_dropped_without_serving_is_unmounted() {
    let fixture = Fixture::new();
    drop(LazyMount::mount(fixture.store.path(), fixture.mountpoint(), &MountOptions::default()).unwrap());
    assert_eq!(mount_state(&fixture.mountpoint()).unwrap(), MountState::NotMounted);
    assert!(matches!(unmount(&fixture.mountpoint()), Err(MountError::NotMounted { .. })));
}

#[test]
fn a_mount_in_use_is_only_detached_on_request() {
    let fixture = Fixture::new();
    let snapshot = fixture.commit(|tree| tree.write("f", "content").unwrap());
    let mount = fixture.mount();
    let open = File::open(mount.of(&snapshot).join("f")).unwrap();
    assert!(matches!(unmount(&fixture.mountpoint()), Err(MountError::Busy { .. })));
    detach(&fixture.mountpoint()).unwrap();
    assert_eq!(mount_state(&fixture.mountpoint()).unwrap(), MountState::NotMounted);
    assert_eq!(io::read_to_string(&open).unwrap(), "content", "who uses it can go on");
    drop(open);
    mount.ended().unwrap();
}

#[test]
fn a_mountpoint_may_have_an_odd_name() {
    let fixture = Fixture::new();
    let odd = fixture.directory.path().join("a b,c\\d\te");
    fs::create_dir(&odd).unwrap();
    let mount = LazyMount::mount(fixture.store.path(), &odd, &MountOptions::default()).unwrap();
    let thread = std::thread::spawn(|| mount.serve());
    assert!(matches!(mount_state(&odd).unwrap(), MountState::Alive { .. }));
    unmount(&odd).unwrap();
    thread.join().unwrap().unwrap();
}

//! Overlays in other mount namespaces, as workspaces are.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use workspace_nfs::{Export, Identity};
use workspace_test_support::requires;

use crate::client::Client;
use crate::fixture::{Fixture, NAME};

/// Mounts an overlay over the directories `lower` and `upper` in a mount namespace of its own, and opens its root. The
/// descriptor keeps the mount.
fn overlay(directory: &Path) -> OwnedFd {
    let merged = directory.join("merged");
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir_all(directory.join(name)).unwrap();
    }
    let options =
        ["lower", "upper", "work"].map(|name| format!("{name}dir={}", directory.join(name).display()));
    let open = move || {
        // SAFETY: the call has no memory arguments. It gives this thread alone another namespace.
        let moved = unsafe { libc::unshare(libc::CLONE_NEWNS) };
        assert_eq!(moved, 0, "{}", io::Error::last_os_error());
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let options = std::ffi::CString::new(options.join(",")).unwrap();
        mount("overlay", &merged, "overlay", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        OwnedFd::from(File::open(&merged).unwrap())
    };
    thread::spawn(open).join().unwrap()
}

fn is_root() -> bool {
    requires(Identity::own().uid == 0, "root, to mount an overlay")
}

#[test]
fn an_overlay_of_another_namespace_is_served() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::without_export(|settings| settings);
    fs::create_dir_all(fixture.outside().join("lower/dir")).unwrap();
    fs::write(fixture.outside().join("lower/dir/file"), b"of the layer").unwrap();
    let root = overlay(fixture.outside());
    fixture.server.add_export(Export::new(NAME, root, Identity::own())).unwrap();
    let (mut client, root) = fixture.mount();
    let dir = client.lookup(&root, "dir").unwrap().0;
    let (file, before) = client.lookup(&dir, "file").unwrap();
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"of the layer");
    client.write(&file, 0, b"IN").unwrap();
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"IN the layer");
    let after = client.getattr(&file).unwrap();
    assert_eq!(after.fileid, before.fileid, "the file stays the same when it is copied to the upper layer");
    client.create(&dir, "new").unwrap();
    client.remove(&dir, "file").unwrap();
    client.rename((&dir, "new"), (&root, "moved")).unwrap();
    client.rmdir(&root, "dir").unwrap();
    assert!(fs::read_dir(fixture.outside().join("merged")).unwrap().next().is_none());
    assert!(fixture.outside().join("upper/moved").exists());
}

#[test]
fn handles_survive_a_restart_in_which_a_file_is_copied_to_the_upper_layer() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::without_export(|settings| settings);
    fs::create_dir_all(fixture.outside().join("lower/dir")).unwrap();
    fs::write(fixture.outside().join("lower/dir/file"), b"of the layer").unwrap();
    let root = overlay(fixture.outside());
    let again = root.try_clone().unwrap();
    fixture.server.add_export(Export::new(NAME, root, Identity::own())).unwrap();
    let (mut client, mounted) = fixture.mount();
    let dir = client.lookup(&mounted, "dir").unwrap().0;
    let (file, before) = client.lookup(&dir, "file").unwrap();
    fixture.server.stop().unwrap();
    fixture.server.detach_root(NAME).unwrap();
    // Somebody inside changes the file while no server has it open.
    let inside =
        rustix::fs::openat(&again, "dir/file", rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty());
    rustix::io::write(inside.unwrap(), b"IN").unwrap();
    fixture.server.replace_root(NAME, again, "").unwrap();
    fixture.server.start().unwrap();
    let mut client = Client::connect(fixture.server.get_server_info().port);
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"IN the layer");
    assert_eq!(client.getattr(&file).unwrap().fileid, before.fileid);
}

/// The offsets of an overlay are positions in a list that the kernel makes anew when the directory has changed.
#[test]
fn removal_while_listing_an_overlay_skips_nothing() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::without_export(|settings| settings);
    for layer in ["lower", "upper"] {
        fs::create_dir_all(fixture.outside().join(layer).join("dir")).unwrap();
        for number in 0..500 {
            fs::write(fixture.outside().join(format!("{layer}/dir/{layer}-{number}")), b"").unwrap();
        }
    }
    let root = overlay(fixture.outside());
    fixture.server.add_export(Export::new(NAME, root, Identity::own())).unwrap();
    let (mut client, root) = fixture.mount();
    let dir = client.lookup(&root, "dir").unwrap().0;
    let (mut cookie, mut is_end) = (0, false);
    while !is_end {
        let (entries, end) = client.readdirplus(&dir, cookie, 4096).unwrap();
        is_end = end;
        for entry in &entries {
            cookie = entry.cookie;
            if !entry.name.starts_with(b".") {
                client.remove(&dir, &entry.name).unwrap();
            }
        }
    }
    client.rmdir(&root, "dir").unwrap();
}

//! Exports of overlays that are mounted in another mount namespace. The workspace of a sandbox, which the product
//! exports by NFS, is such an overlay.

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

/// Mounts an overlay of the directories `lower` and `upper` in a mount namespace of its own, and opens its root. The
/// mount exists as long as the returned descriptor is open.
fn overlay(directory: &Path) -> OwnedFd {
    overlay_with(directory, "", |_| {})
}

/// Mounts an overlay like [`overlay`], with further mount options. `prepare` gets the directory `lower`, and may mount
/// something there in the namespace of the overlay.
fn overlay_with(directory: &Path, extra: &str, prepare: impl FnOnce(&Path) + Send + 'static) -> OwnedFd {
    let merged = directory.join("merged");
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir_all(directory.join(name)).unwrap();
    }
    let lower = directory.join("lower");
    let mut options = ["lower", "upper", "work"]
        .map(|name| format!("{name}dir={}", directory.join(name).display()))
        .to_vec();
    options.extend((!extra.is_empty()).then(|| extra.to_owned()));
    let open = move || {
        // SAFETY: the call has no memory arguments. It gives this thread alone another namespace.
        let moved = unsafe { libc::unshare(libc::CLONE_NEWNS) };
        assert_eq!(moved, 0, "{}", io::Error::last_os_error());
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        prepare(&lower);
        let options = std::ffi::CString::new(options.join(",")).unwrap();
        mount("overlay", &merged, "overlay", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        OwnedFd::from(File::open(&merged).unwrap())
    };
    thread::spawn(open).join().unwrap()
}

/// Returns true if this process may mount an overlay; otherwise the test is skipped.
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
    // A local process changes the file, which the kernel copies to the upper layer, while no server has it open.
    let local = rustix::fs::openat(&again, "dir/file", rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty());
    rustix::io::write(local.unwrap(), b"IN").unwrap();
    fixture.server.replace_root(NAME, again, "").unwrap();
    fixture.server.start().unwrap();
    let mut client = Client::connect(fixture.server.get_server_info().port);
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"IN the layer");
    assert_eq!(client.getattr(&file).unwrap().fileid, before.fileid);
}

/// The directory offsets of an overlay are positions in a list of entries. When the directory has changed, the kernel
/// builds this list again for each newly opened descriptor.
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

/// Regression test: READDIR returned the inode number of a file in its layer. If the layers are on several file
/// systems, these numbers are not unique, and the attributes of a file have another number.
#[test]
fn listings_of_an_overlay_have_the_inode_numbers_of_the_attributes() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::without_export(|settings| settings);
    let root = overlay_with(fixture.outside(), "xino=off", |lower| {
        mount("tmpfs", lower, "tmpfs", MountFlags::empty(), None).unwrap();
        fs::create_dir_all(lower.join("dir/below")).unwrap();
        fs::write(lower.join("dir/file"), b"1").unwrap();
        fs::write(lower.join("dir/changed"), b"2").unwrap();
    });
    fixture.server.add_export(Export::new(NAME, root, Identity::own())).unwrap();
    let (mut client, root) = fixture.mount();
    let dir = client.lookup(&root, "dir").unwrap().0;
    let below = client.lookup(&dir, "below").unwrap().0;
    let changed = client.lookup(&dir, "changed").unwrap().0;
    client.write(&changed, 0, b"3").unwrap();
    client.create(&dir, "new").unwrap();
    let fileid = |client: &mut Client, file| client.getattr(file).unwrap().fileid;
    for (handle, above, count) in [(&dir, &root, 6), (&below, &dir, 2)] {
        let (plain, _) = client.readdir(handle, 0, 8192).unwrap();
        let (plus, _) = client.readdirplus(handle, 0, 8192).unwrap();
        assert_eq!((plain.len(), plus.len()), (count, count));
        for entry in plain.iter().chain(&plus) {
            let expected = match &entry.name[..] {
                b"." => fileid(&mut client, handle),
                b".." => fileid(&mut client, above),
                name => client.lookup(handle, name).unwrap().1.fileid,
            };
            assert_eq!(entry.fileid, expected, "{}", String::from_utf8_lossy(&entry.name));
        }
    }
}

//! Tests of names in calls: `.`, `..`, invalid names, and symlinks.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use nfs3_types::nfs3::*;

use crate::client::mode;
use crate::fixture::Fixture;

#[test]
fn the_parent_of_the_root_is_the_root() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("a/b")).unwrap();
    fs::write(fixture.outside().join("secret"), b"").unwrap();
    let (mut client, root) = fixture.mount();
    assert_eq!(client.lookup(&root, "..").unwrap().0, root);
    assert_eq!(client.lookup(&root, ".").unwrap().0, root);
    let a = client.lookup(&root, "a").unwrap().0;
    let b = client.lookup(&a, "b").unwrap().0;
    assert_eq!(client.lookup(&b, "..").unwrap().0, a);
    assert_eq!(client.lookup(&a, "..").unwrap().0, root);
    let up = client.lookup(&root, "..").unwrap().0;
    assert_eq!(client.lookup(&up, "secret").unwrap_err(), nfsstat3::NFS3ERR_NOENT);
}

#[test]
fn the_parent_of_a_directory_that_was_moved_out_of_the_export_is_stale() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("a/b")).unwrap();
    let (mut client, root) = fixture.mount();
    let a = client.lookup(&root, "a").unwrap().0;
    let b = client.lookup(&a, "b").unwrap().0;
    fs::rename(fixture.path("a/b"), fixture.outside().join("b")).unwrap();
    assert_eq!(client.lookup(&b, "..").unwrap_err(), nfsstat3::NFS3ERR_STALE);
}

#[test]
fn names_with_slashes_and_nul_and_long_names_are_refused() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("dir")).unwrap();
    fs::write(fixture.path("dir/file"), b"").unwrap();
    let (mut client, root) = fixture.mount();
    let long = [b'x'; 256];
    for (name, status) in [
        (b"dir/file".as_slice(), nfsstat3::NFS3ERR_ACCES),
        (b"/", nfsstat3::NFS3ERR_ACCES),
        (b"/etc/passwd", nfsstat3::NFS3ERR_ACCES),
        (b"../secret", nfsstat3::NFS3ERR_ACCES),
        (b"fi\0le", nfsstat3::NFS3ERR_INVAL),
        (&long, nfsstat3::NFS3ERR_NAMETOOLONG),
    ] {
        assert_eq!(client.lookup(&root, name).unwrap_err(), status, "{name:?}");
        assert_eq!(client.create(&root, name).unwrap_err(), status, "{name:?}");
        assert_eq!(client.mkdir(&root, name, mode(0o700)).unwrap_err(), status, "{name:?}");
        assert_eq!(client.remove(&root, name).unwrap_err(), status, "{name:?}");
        assert_eq!(client.rmdir(&root, name).unwrap_err(), status, "{name:?}");
    }
    client.create(&root, [b'x'; 255]).unwrap();
}

#[test]
fn dot_and_dot_dot_cannot_be_created_removed_or_renamed() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let dir = client.mkdir(&root, "dir", mode(0o700)).unwrap();
    for name in [".", "..", ""] {
        assert_eq!(client.create(&dir, name).unwrap_err(), nfsstat3::NFS3ERR_EXIST, "{name}");
        assert_eq!(client.mkdir(&dir, name, mode(0o700)).unwrap_err(), nfsstat3::NFS3ERR_EXIST, "{name}");
        assert_eq!(client.remove(&dir, name).unwrap_err(), nfsstat3::NFS3ERR_INVAL, "{name}");
        assert_eq!(client.rename((&dir, name), (&dir, "x")).unwrap_err(), nfsstat3::NFS3ERR_INVAL, "{name}");
    }
    assert_eq!(client.rmdir(&dir, ".").unwrap_err(), nfsstat3::NFS3ERR_INVAL);
    assert_eq!(client.rmdir(&dir, "..").unwrap_err(), nfsstat3::NFS3ERR_EXIST);
}

#[test]
fn names_are_bytes() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let name = b"\xff\xfe caf\xe9 \n*";
    let file = client.create(&root, name).unwrap();
    assert_eq!(client.lookup(&root, name).unwrap().0, file);
    let local: Vec<_> = fs::read_dir(fixture.root()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(local[0].as_bytes(), name);
    let (listed, _) = client.readdirplus(&root, 0, 8192).unwrap();
    assert!(listed.iter().any(|it| it.name == name && it.handle.as_ref() == Some(&file)));
    let fixture = fixture.restart();
    fixture.connect().getattr(&file).unwrap();
}

#[test]
fn symlinks_are_not_followed() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.outside().join("private")).unwrap();
    fs::write(fixture.outside().join("private/key"), b"secret").unwrap();
    symlink("../private", fixture.path("relative")).unwrap();
    symlink(fixture.outside().join("private/key"), fixture.path("absolute")).unwrap();
    let (mut client, root) = fixture.mount();
    let relative = client.lookup(&root, "relative").unwrap().0;
    assert_eq!(client.lookup(&relative, "key").unwrap_err(), nfsstat3::NFS3ERR_NOTDIR);
    assert_eq!(client.readdir(&relative, 0, 4096).unwrap_err(), nfsstat3::NFS3ERR_NOTDIR);
    let absolute = client.lookup(&root, "absolute").unwrap().0;
    assert_eq!(client.read(&absolute, 0, 10).unwrap_err(), nfsstat3::NFS3ERR_INVAL);
    assert_eq!(client.write(&absolute, 0, b"x").unwrap_err(), nfsstat3::NFS3ERR_INVAL);
    assert_eq!(fs::read(fixture.outside().join("private/key")).unwrap(), b"secret");
}

#[test]
fn lookup_distinguishes_a_missing_entry_from_a_file_as_directory() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), b"").unwrap();
    let (mut client, root) = fixture.mount();
    assert_eq!(client.lookup(&root, "none").unwrap_err(), nfsstat3::NFS3ERR_NOENT);
    let file = client.lookup(&root, "file").unwrap().0;
    assert_eq!(client.lookup(&file, "x").unwrap_err(), nfsstat3::NFS3ERR_NOTDIR);
}

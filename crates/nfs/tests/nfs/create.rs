//! Tests of CREATE, MKDIR, SYMLINK and MKNOD.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use nfs3_types::nfs3::*;

use crate::client::{Both, NFS, at, mode, size};
use crate::fixture::Fixture;

#[test]
fn a_file_is_created_with_its_attributes() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let set = sattr3 { size: set_size3::Some(10), ..mode(0o604) };
    let (file, attributes) = client.create_how(&root, "file", createhow3::GUARDED(set)).unwrap();
    assert_eq!((attributes.mode, attributes.size), (0o604, 10));
    assert_eq!(client.lookup(&root, "file").unwrap().0, file);
    // The umask of the server is not applied.
    let (_, open) = client.create_how(&root, "open", createhow3::GUARDED(mode(0o666))).unwrap();
    assert_eq!(open.mode, 0o666);
    let (_, special) = client.create_how(&root, "setuid", createhow3::GUARDED(mode(0o4755))).unwrap();
    assert_eq!(special.mode, 0o4755);
    let times =
        sattr3 { mtime: set_mtime::SET_TO_CLIENT_TIME(nfstime3 { seconds: 77, nseconds: 5 }), ..mode(0o600) };
    let (old, attributes) = client.create_how(&root, "old", createhow3::UNCHECKED(times)).unwrap();
    assert_eq!((attributes.mtime.seconds, attributes.mtime.nseconds), (77, 5));
    assert_eq!(format!("{attributes:?}"), format!("{:?}", client.getattr(&old).unwrap()));
}

#[test]
fn unchecked_create_uses_and_guarded_create_refuses_an_existing_file() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), b"content").unwrap();
    fs::create_dir(fixture.path("dir")).unwrap();
    symlink("file", fixture.path("link")).unwrap();
    let (mut client, root) = fixture.mount();
    let expected = client.lookup(&root, "file").unwrap().0;
    assert_eq!(client.create(&root, "file").unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    let unchecked = |set| createhow3::UNCHECKED(set);
    let (file, attributes) = client.create_how(&root, "file", unchecked(mode(0o600))).unwrap();
    assert_eq!((file, attributes.size), (expected, 7));
    let (_, attributes) = client.create_how(&root, "file", unchecked(size(0))).unwrap();
    assert_eq!(attributes.size, 0);
    for other in ["dir", "link"] {
        let refused = client.create_how(&root, other, unchecked(size(0)));
        assert_eq!(refused.unwrap_err(), nfsstat3::NFS3ERR_EXIST, "{other}");
    }
}

#[test]
fn exclusive_create_can_be_repeated_with_the_same_verifier() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let exclusive = |first| createhow3::EXCLUSIVE(createverf3([first, 0xff, 3, 4, 0xfe, 6, 7, 8]));
    let (file, _) = client.create_how(&root, "file", exclusive(0x81)).unwrap();
    assert_eq!(client.create_how(&root, "file", exclusive(0x81)).unwrap().0, file);
    assert_eq!(client.create_how(&root, "file", exclusive(0x82)).unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    // The verifier is stored in the times of the file, which a write changes.
    client.write(&file, 0, b"x").unwrap();
    assert_eq!(client.create_how(&root, "file", exclusive(0x81)).unwrap_err(), nfsstat3::NFS3ERR_EXIST);
}

#[test]
fn directories_and_symlinks_are_created() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let dir = client.mkdir(&root, "dir", mode(0o1777)).unwrap();
    assert_eq!(fs::metadata(fixture.path("dir")).unwrap().mode() & 0o7777, 0o1777);
    let link = client.symlink(&dir, "link", b"../a\xff/b").unwrap();
    assert_eq!(client.readlink(&link).unwrap(), b"../a\xff/b");
    assert!(matches!(client.getattr(&link).unwrap().type_, ftype3::NF3LNK));
    assert_eq!(client.readlink(&dir).unwrap_err(), nfsstat3::NFS3ERR_INVAL);
    assert_eq!(client.mkdir(&root, "dir", mode(0o700)).unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    assert_eq!(client.symlink(&dir, "link", b"x").unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    assert_eq!(client.symlink(&dir, "long", &[b'x'; 4096]).unwrap_err(), nfsstat3::NFS3ERR_NAMETOOLONG);
    assert_eq!(client.create(&link, "x").unwrap_err(), nfsstat3::NFS3ERR_NOTDIR);
}

#[test]
fn pipes_and_sockets_are_created_and_devices_refused() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let (_, pipe) = client.mknod(&root, "pipe", mknoddata3::NF3FIFO(mode(0o620))).unwrap();
    assert!(matches!(pipe.type_, ftype3::NF3FIFO));
    assert_eq!(pipe.mode, 0o620);
    let (socket, _) = client.mknod(&root, "socket", mknoddata3::NF3SOCK(mode(0o600))).unwrap();
    assert!(fs::symlink_metadata(fixture.path("socket")).unwrap().file_type().is_socket());
    assert_eq!(client.read(&socket, 0, 1).unwrap_err(), nfsstat3::NFS3ERR_INVAL);
    let null = || devicedata3 { dev_attributes: mode(0o666), spec: specdata3 { specdata1: 1, specdata2: 3 } };
    for device in [mknoddata3::NF3CHR(null()), mknoddata3::NF3BLK(null())] {
        assert_eq!(client.mknod(&root, "device", device).unwrap_err(), nfsstat3::NFS3ERR_PERM);
    }
    let regular = Both(at(&root, b"x"), 1_u32);
    let result: Nfs3Result<MKNOD3resok, MKNOD3resfail> = client.call(NFS, 11, &regular);
    assert!(matches!(result, Nfs3Result::Err((nfsstat3::NFS3ERR_BADTYPE, _))));
    assert!(!fixture.path("device").exists());
}

#[test]
fn nothing_is_created_in_a_directory_that_was_removed() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let dir = client.mkdir(&root, "dir", mode(0o700)).unwrap();
    fs::remove_dir(fixture.path("dir")).unwrap();
    assert_eq!(client.create(&dir, "x").unwrap_err(), nfsstat3::NFS3ERR_STALE);
    assert_eq!(client.lookup(&dir, "x").unwrap_err(), nfsstat3::NFS3ERR_STALE);
}

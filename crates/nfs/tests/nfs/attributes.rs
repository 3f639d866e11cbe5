//! Tests of GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO and PATHCONF.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use nfs3_types::nfs3::*;
use workspace_nfs::{Access, Identity};

use crate::client::{mode, size};
use crate::fixture::Fixture;

/// All rights of ACCESS.
const ALL: u32 = 0x3f;

fn time(seconds: u32, nseconds: u32) -> nfstime3 {
    nfstime3 { seconds, nseconds }
}

#[test]
fn attributes_are_equal_to_the_status_of_the_file() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), b"12345").unwrap();
    fs::set_permissions(fixture.path("file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(fixture.path("file"), fixture.path("second")).unwrap();
    let expected = fs::metadata(fixture.path("file")).unwrap();
    let (mut client, root) = fixture.mount();
    let (file, found) = client.lookup(&root, "file").unwrap();
    let attributes = client.getattr(&file).unwrap();
    assert_eq!(format!("{found:?}"), format!("{attributes:?}"));
    assert!(matches!(attributes.type_, ftype3::NF3REG));
    assert_eq!((attributes.mode, attributes.nlink, attributes.size), (0o640, 2, 5));
    assert_eq!((attributes.uid, attributes.gid), (expected.uid(), expected.gid()));
    assert_eq!(attributes.used, expected.blocks() * 512);
    assert_eq!(attributes.fileid, expected.ino());
    assert_eq!(i64::from(attributes.mtime.seconds), expected.mtime());
    assert_eq!(i64::from(attributes.ctime.nseconds), expected.ctime_nsec());
    let root = client.getattr(&root).unwrap();
    assert!(matches!(root.type_, ftype3::NF3DIR));
    assert_eq!(root.fsid, attributes.fsid);
}

#[test]
fn permissions_size_and_times_are_set() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), b"12345").unwrap();
    let (mut client, root) = fixture.mount();
    let file = client.lookup(&root, "file").unwrap().0;
    let wcc = client.setattr(&file, mode(0o400)).unwrap();
    assert_eq!(wcc.before.unwrap().size, 5);
    assert_eq!(wcc.after.unwrap().mode, 0o400);
    client.setattr(&file, mode(0o4755)).unwrap();
    assert_eq!(fs::metadata(fixture.path("file")).unwrap().mode() & 0o7777, 0o4755);
    client.setattr(&file, size(2)).unwrap();
    assert_eq!(fs::read(fixture.path("file")).unwrap(), b"12");
    client.setattr(&file, size(5 << 30)).unwrap();
    assert_eq!(client.getattr(&file).unwrap().size, 5 << 30);
    let times = sattr3 {
        atime: set_atime::SET_TO_CLIENT_TIME(time(1_000_000_000, 7)),
        mtime: set_mtime::SET_TO_CLIENT_TIME(time(u32::MAX, 999_999_999)),
        ..sattr3::default()
    };
    client.setattr(&file, times).unwrap();
    let attributes = client.getattr(&file).unwrap();
    assert_eq!(attributes.atime, time(1_000_000_000, 7));
    assert_eq!(attributes.mtime, time(u32::MAX, 999_999_999));
    assert_eq!(fs::metadata(fixture.path("file")).unwrap().mtime(), -1);
    let now = sattr3 { mtime: set_mtime::SET_TO_SERVER_TIME, ..sattr3::default() };
    client.setattr(&file, now).unwrap();
    let attributes = client.getattr(&file).unwrap();
    assert_eq!(attributes.atime, time(1_000_000_000, 7));
    assert!(attributes.mtime.seconds > 1_700_000_000 && attributes.mtime.seconds != u32::MAX);
}

#[test]
fn attributes_of_directories_and_symlinks_are_set_without_following() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("dir")).unwrap();
    fs::write(fixture.path("target"), b"").unwrap();
    symlink("target", fixture.path("link")).unwrap();
    let (mut client, root) = fixture.mount();
    let dir = client.lookup(&root, "dir").unwrap().0;
    client.setattr(&dir, mode(0o711)).unwrap();
    assert_eq!(client.getattr(&dir).unwrap().mode, 0o711);
    client.setattr(&root, mode(0o750)).unwrap();
    assert_eq!(fs::metadata(fixture.root()).unwrap().mode() & 0o7777, 0o750);
    let link = client.lookup(&root, "link").unwrap().0;
    let before = fs::metadata(fixture.path("target")).unwrap();
    let times = sattr3 { mtime: set_mtime::SET_TO_CLIENT_TIME(time(5, 0)), ..sattr3::default() };
    client.setattr(&link, times).unwrap();
    assert_eq!(fs::symlink_metadata(fixture.path("link")).unwrap().mtime(), 5);
    assert_eq!(client.setattr(&link, mode(0o777)).unwrap_err(), nfsstat3::NFS3ERR_NOTSUPP);
    let after = fs::metadata(fixture.path("target")).unwrap();
    assert_eq!((after.mtime(), after.mode()), (before.mtime(), before.mode()));
    assert_eq!(client.setattr(&dir, size(0)).unwrap_err(), nfsstat3::NFS3ERR_ISDIR);
    assert_eq!(client.setattr(&link, size(0)).unwrap_err(), nfsstat3::NFS3ERR_INVAL);
}

#[test]
fn setattr_with_an_old_ctime_as_guard_is_refused() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), b"").unwrap();
    let (mut client, root) = fixture.mount();
    let (file, attributes) = client.lookup(&root, "file").unwrap();
    client.setattr_guarded(&file, mode(0o600), Some(attributes.ctime)).unwrap();
    let old = time(attributes.ctime.seconds - 1, 0);
    assert_eq!(
        client.setattr_guarded(&file, mode(0o644), Some(old)).unwrap_err(),
        nfsstat3::NFS3ERR_NOT_SYNC
    );
    assert_eq!(client.getattr(&file).unwrap().mode, 0o600);
}

#[test]
fn files_can_only_be_given_to_the_user_of_the_export() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), b"").unwrap();
    let (mut client, root) = fixture.mount();
    let file = client.lookup(&root, "file").unwrap().0;
    let own = Identity::own();
    let owner = |uid, gid| sattr3 { uid, gid, ..sattr3::default() };
    client.setattr(&file, owner(set_uid3::Some(own.uid), set_gid3::Some(own.gid))).unwrap();
    for other in [
        owner(set_uid3::Some(own.uid + 1), set_gid3::None),
        owner(set_uid3::None, set_gid3::Some(own.gid + 1)),
    ] {
        assert_eq!(client.setattr(&file, other).unwrap_err(), nfsstat3::NFS3ERR_PERM);
    }
    let created = client.create_how(
        &root,
        "new",
        createhow3::UNCHECKED(owner(set_uid3::Some(own.uid + 1), set_gid3::None)),
    );
    assert_eq!(created.unwrap_err(), nfsstat3::NFS3ERR_PERM);
    assert!(!fixture.path("new").exists());
}

#[test]
fn access_follows_the_permissions() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), b"").unwrap();
    let (mut client, root) = fixture.mount();
    let file = client.lookup(&root, "file").unwrap().0;
    client.setattr(&file, mode(0o644)).unwrap();
    let read_write = ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND;
    assert_eq!(client.access(&file, ALL).unwrap(), read_write);
    assert_eq!(client.access(&file, ACCESS3_READ).unwrap(), ACCESS3_READ);
    client.setattr(&file, mode(0o755)).unwrap();
    assert_eq!(client.access(&file, ALL).unwrap(), read_write | ACCESS3_EXECUTE);
    let directory = read_write | ACCESS3_LOOKUP | ACCESS3_DELETE;
    assert_eq!(client.access(&root, ALL).unwrap(), directory);
    if Identity::own().uid != 0 {
        client.setattr(&file, mode(0o077)).unwrap();
        assert_eq!(client.access(&file, ALL).unwrap(), 0);
    }
}

#[test]
fn a_read_only_export_refuses_every_change() {
    let fixture = Fixture::with_export(|export| export.access(Access::ReadOnly));
    fs::write(fixture.path("file"), b"content").unwrap();
    fs::create_dir(fixture.path("dir")).unwrap();
    let (mut client, root) = fixture.mount();
    let file = client.lookup(&root, "file").unwrap().0;
    let refused = nfsstat3::NFS3ERR_ROFS;
    assert_eq!(client.access(&file, ALL).unwrap() & (ACCESS3_MODIFY | ACCESS3_EXTEND), 0);
    assert_eq!(client.setattr(&file, mode(0o600)).unwrap_err(), refused);
    assert_eq!(client.write(&file, 0, b"x").unwrap_err(), refused);
    assert_eq!(client.create(&root, "new").unwrap_err(), refused);
    assert_eq!(client.mkdir(&root, "new", sattr3::default()).unwrap_err(), refused);
    assert_eq!(client.symlink(&root, "new", b"file").unwrap_err(), refused);
    assert_eq!(client.remove(&root, "file").unwrap_err(), refused);
    assert_eq!(client.rmdir(&root, "dir").unwrap_err(), refused);
    assert_eq!(client.rename((&root, "file"), (&root, "new")).unwrap_err(), refused);
    assert_eq!(client.link(&file, &root, "new").unwrap_err(), refused);
    assert_eq!(client.read(&file, 0, 100).unwrap(), (b"content".to_vec(), true));
    let mut names: Vec<_> = fs::read_dir(fixture.root()).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["dir", "file"]);
}

#[test]
fn fsstat_fsinfo_and_pathconf_describe_the_file_system() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let space = client.fsstat(&root).unwrap();
    assert!(space.tbytes > 0 && space.fbytes <= space.tbytes && space.abytes <= space.fbytes);
    let info = client.fsinfo(&root).unwrap();
    assert_eq!((info.rtmax, info.wtmax), (1 << 20, 1 << 20));
    assert_eq!(info.properties, FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME);
    let limits = client.pathconf(&root).unwrap();
    assert!(limits.name_max >= 255 && limits.linkmax > 1);
    assert!(limits.no_trunc && limits.chown_restricted && limits.case_preserving && !limits.case_insensitive);
    client.null();
}

//! Tests of RENAME, and of renames by local processes, of which the server is not told.

use std::fs;

use nfs3_types::nfs3::*;

use crate::client::{is_complete, mode};
use crate::fixture::Fixture;

#[test]
fn handles_follow_renames_by_clients() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let dir = client.mkdir(&root, "dir", mode(0o700)).unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file, 0, b"content").unwrap();
    let renamed = client.rename((&root, "file"), (&dir, "moved")).unwrap();
    assert!(is_complete(&renamed.fromdir_wcc) && is_complete(&renamed.todir_wcc));
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"content");
    client.rename((&root, "dir"), (&root, "directory")).unwrap();
    let fixture = fixture.restart();
    let mut client = fixture.connect();
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"content");
    assert_eq!(client.lookup(&dir, "moved").unwrap().0, file);
    assert_eq!(client.lookup(&root, "directory").unwrap().0, dir);
    assert_eq!(client.lookup(&root, "dir").unwrap_err(), nfsstat3::NFS3ERR_NOENT);
}

#[test]
fn the_handle_of_a_file_that_a_rename_replaces_is_stale() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let new = client.create(&root, "new").unwrap();
    let old = client.create(&root, "old").unwrap();
    client.rename((&root, "new"), (&root, "old")).unwrap();
    assert_eq!(client.lookup(&root, "old").unwrap().0, new);
    assert_eq!(client.getattr(&old).unwrap_err(), nfsstat3::NFS3ERR_STALE);
}

#[test]
fn a_rename_between_two_names_of_one_file_changes_nothing() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "one").unwrap();
    client.link(&file, &root, "two").unwrap();
    client.rename((&root, "one"), (&root, "two")).unwrap();
    for name in ["one", "two"] {
        assert_eq!(client.lookup(&root, name).unwrap().0, file, "{name}");
    }
    client.remove(&root, "two").unwrap();
    assert_eq!(client.getattr(&file).unwrap().nlink, 1);
}

#[test]
fn impossible_renames_are_refused() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let dir = client.mkdir(&root, "dir", mode(0o700)).unwrap();
    client.mkdir(&dir, "below", mode(0o700)).unwrap();
    client.mkdir(&root, "other", mode(0o700)).unwrap();
    let file = client.create(&root, "file").unwrap();
    let mut refused = |from, to: (&nfs_fh3, &str)| client.rename((&root, from), to).unwrap_err();
    assert_eq!(refused("none", (&root, "x")), nfsstat3::NFS3ERR_NOENT);
    assert_eq!(refused("other", (&root, "dir")), nfsstat3::NFS3ERR_NOTEMPTY);
    assert_eq!(refused("file", (&root, "dir")), nfsstat3::NFS3ERR_ISDIR);
    assert_eq!(refused("dir", (&root, "file")), nfsstat3::NFS3ERR_NOTDIR);
    assert_eq!(refused("dir", (&dir, "itself")), nfsstat3::NFS3ERR_INVAL);
    assert_eq!(refused("file", (&file, "x")), nfsstat3::NFS3ERR_NOTDIR);
    assert_eq!(refused("file", (&root, "a/b")), nfsstat3::NFS3ERR_ACCES);
}

#[test]
fn handles_follow_renames_by_local_processes() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("a/b/c")).unwrap();
    fs::create_dir(fixture.path("other")).unwrap();
    fs::write(fixture.path("a/b/c/file"), b"content").unwrap();
    let (mut client, root) = fixture.mount();
    let a = client.lookup(&root, "a").unwrap().0;
    let b = client.lookup(&a, "b").unwrap().0;
    let c = client.lookup(&b, "c").unwrap().0;
    let file = client.lookup(&c, "file").unwrap().0;
    fs::rename(fixture.path("a/b/c/file"), fixture.path("a/b/c/renamed")).unwrap();
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"content");
    fs::rename(fixture.path("a/b"), fixture.path("other/b")).unwrap();
    // After a restart, the server has no open descriptors of these directories.
    let fixture = fixture.restart();
    let mut client = fixture.connect();
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"content");
    assert_eq!(client.lookup(&c, "renamed").unwrap().0, file);
    assert_eq!(client.lookup(&b, "..").unwrap().1.fileid, client.lookup(&root, "other").unwrap().1.fileid);
}

#[test]
fn a_file_that_replaces_another_has_another_handle() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), b"old").unwrap();
    let (mut client, root) = fixture.mount();
    let old = client.lookup(&root, "file").unwrap().0;
    // Editors save a file in this way.
    fs::write(fixture.path("file.new"), b"new").unwrap();
    fs::rename(fixture.path("file.new"), fixture.path("file")).unwrap();
    assert_eq!(client.getattr(&old).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    assert_eq!(client.read(&old, 0, 100).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    let new = client.lookup(&root, "file").unwrap().0;
    assert_ne!(new, old);
    assert_eq!(client.read(&new, 0, 100).unwrap().0, b"new");
}

#[test]
fn files_with_the_same_reused_inode_number_have_different_handles() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    fs::write(fixture.path("file"), b"0").unwrap();
    let mut handles = vec![client.lookup(&root, "file").unwrap().0];
    for round in 1..20 {
        fs::remove_file(fixture.path("file")).unwrap();
        fs::write(fixture.path("file"), format!("{round}")).unwrap();
        let file = client.lookup(&root, "file").unwrap().0;
        assert!(!handles.contains(&file), "round {round}");
        handles.push(file);
    }
    let last = handles.pop().unwrap();
    assert_eq!(client.read(&last, 0, 10).unwrap().0, b"19");
    for old in handles {
        assert_eq!(client.getattr(&old).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    }
}

//! Tests of READDIR and READDIRPLUS.

use std::collections::HashSet;
use std::fs;

use nfs3_types::nfs3::*;

use crate::client::{Client, Listed};
use crate::fixture::Fixture;

/// Lists a whole directory. `read` lists a part of it from a cookie on, and returns true at the end.
fn list_all(
    client: &mut Client,
    dir: &nfs_fh3,
    read: impl Fn(&mut Client, &nfs_fh3, u64) -> (Vec<Listed>, bool),
) -> Vec<Listed> {
    let mut all: Vec<Listed> = Vec::new();
    loop {
        let cookie = all.last().map_or(0, |it| it.cookie);
        let (entries, is_end) = read(client, dir, cookie);
        assert!(is_end || !entries.is_empty());
        all.extend(entries);
        if is_end {
            return all;
        }
    }
}

/// Returns the names of entries, which must be different.
fn names(entries: &[Listed]) -> HashSet<String> {
    let names: HashSet<_> = entries.iter().map(|it| String::from_utf8(it.name.clone()).unwrap()).collect();
    assert_eq!(names.len(), entries.len(), "no entry is listed twice");
    names
}

/// Returns the names in a directory with the files of [`create_files`].
fn expected(count: usize) -> HashSet<String> {
    let files = (0..count).map(|number| format!("file-{number}"));
    files.chain([".".to_owned(), "..".to_owned()]).collect()
}

/// Creates empty files in the root of the export.
fn create_files(fixture: &Fixture, count: usize) {
    for number in 0..count {
        fs::write(fixture.path(&format!("file-{number}")), b"").unwrap();
    }
}

#[test]
fn large_directories_are_listed_completely_with_small_replies() {
    let fixture = Fixture::new();
    create_files(&fixture, 3000);
    let (mut client, root) = fixture.mount();
    for count in [512, 4096, 1 << 20] {
        let listed = list_all(&mut client, &root, |client, dir, at| client.readdir(dir, at, count).unwrap());
        assert_eq!(names(&listed), expected(3000), "{count} bytes");
        let plus =
            list_all(&mut client, &root, |client, dir, at| client.readdirplus(dir, at, count).unwrap());
        assert_eq!(names(&plus), expected(3000), "{count} bytes");
    }
}

#[test]
fn a_listing_goes_on_after_a_restart() {
    let mut fixture = Fixture::new();
    create_files(&fixture, 500);
    let (mut client, root) = fixture.mount();
    let (mut all, mut is_end) = client.readdirplus(&root, 0, 8192).unwrap();
    while !is_end {
        fixture = fixture.restart();
        let next = fixture.connect().readdirplus(&root, all.last().unwrap().cookie, 32 * 1024).unwrap();
        all.extend(next.0);
        is_end = next.1;
    }
    assert_eq!(names(&all), expected(500));
}

#[test]
fn a_listing_can_be_continued_at_any_entry() {
    let fixture = Fixture::new();
    create_files(&fixture, 100);
    let (mut client, root) = fixture.mount();
    let (all, is_end) = client.readdir(&root, 0, 1 << 20).unwrap();
    assert!(is_end);
    for (index, entry) in all.iter().enumerate() {
        let (rest, is_end) = client.readdir(&root, entry.cookie, 1 << 20).unwrap();
        let rest: Vec<_> = rest.into_iter().map(|it| it.name).collect();
        assert!(is_end);
        assert_eq!(rest, all[index + 1..].iter().map(|it| it.name.clone()).collect::<Vec<_>>());
    }
}

#[test]
fn removal_while_listing_skips_nothing() {
    let fixture = Fixture::new();
    create_files(&fixture, 1000);
    let (mut client, root) = fixture.mount();
    // `rm -r` removes entries in this way.
    let (mut cookie, mut is_end) = (0, false);
    while !is_end {
        let (entries, end) = client.readdirplus(&root, cookie, 4096).unwrap();
        is_end = end;
        for entry in &entries {
            cookie = entry.cookie;
            if !entry.name.starts_with(b".") {
                client.remove(&root, &entry.name).unwrap();
            }
        }
    }
    assert_eq!(fs::read_dir(fixture.root()).unwrap().count(), 0);
}

#[test]
fn readdirplus_returns_the_same_attributes_and_handles_as_lookup() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("dir")).unwrap();
    create_files(&fixture, 3);
    let (mut client, root) = fixture.mount();
    let (plus, _) = client.readdirplus(&root, 0, 8192).unwrap();
    let (plain, _) = client.readdir(&root, 0, 8192).unwrap();
    assert_eq!(plus.len(), 6);
    for (entry, plain) in plus.iter().zip(&plain) {
        assert_eq!((&entry.name, entry.fileid), (&plain.name, plain.fileid));
        if entry.name == b".." {
            continue;
        }
        let (handle, attributes) = client.lookup(&root, &entry.name).unwrap();
        assert_eq!(entry.handle.as_ref(), Some(&handle));
        let listed = entry.attributes.as_ref().unwrap();
        // The listing itself has changed the access time of the directory.
        let listed = fattr3 { atime: attributes.atime, ..listed.clone() };
        assert_eq!(format!("{listed:?}"), format!("{attributes:?}"));
        assert_eq!(entry.fileid, attributes.fileid);
    }
    let above = plus.iter().find(|it| it.name == b"..").unwrap();
    assert_eq!(
        above.fileid,
        client.getattr(&root).unwrap().fileid,
        "the inode number of the directory above is hidden"
    );
}

#[test]
fn a_limit_that_leaves_no_room_for_an_entry_fails_with_toosmall() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    assert_eq!(client.readdir(&root, 0, 64).unwrap_err(), nfsstat3::NFS3ERR_TOOSMALL);
    assert_eq!(client.readdirplus(&root, 0, 128).unwrap_err(), nfsstat3::NFS3ERR_TOOSMALL);
    let file = client.create(&root, "file").unwrap();
    assert_eq!(client.readdir(&file, 0, 4096).unwrap_err(), nfsstat3::NFS3ERR_NOTDIR);
}

#[test]
fn forged_cookies_give_an_error_or_a_listing() {
    let fixture = Fixture::new();
    create_files(&fixture, 10);
    let (mut client, root) = fixture.mount();
    for cookie in [1, 7, 1 << 31, 1 << 62, u64::MAX, i64::MAX as u64] {
        if let Ok((entries, _)) = client.readdirplus(&root, cookie, 8192) {
            assert!(entries.len() <= 12);
        }
    }
    client.null();
}

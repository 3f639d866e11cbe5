//! Searches for files that a local process has moved, of which the server is not told.
//!
//! A search is a walk over the exported tree. It finds all moved files at once. For a while after a walk, no other walk
//! starts; clients get JUKEBOX then, which asks them to try again.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::thread;
use std::time::{Duration, Instant};

use nfs3_types::nfs3::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use workspace_nfs::{Export, Identity};
use workspace_test_support::child::ChildProcess;

use crate::client::{Answer, Client};
use crate::fixture::{Fixture, NAME, open};

/// Creates files with their names as content, and returns their handles.
fn create_files(fixture: &Fixture, client: &mut Client, root: &nfs_fh3, names: &[String]) -> Vec<nfs_fh3> {
    let create = |name: &String| {
        fs::write(fixture.path(name), name).unwrap();
        client.lookup(root, name).unwrap().0
    };
    names.iter().map(create).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("file-{number}")).collect()
}

#[track_caller]
fn assert_contents(client: &mut Client, names: &[String], files: &[nfs_fh3]) {
    for (name, file) in names.iter().zip(files) {
        assert_eq!(client.read(file, 0, 100).unwrap().0, name.as_bytes(), "{name}");
    }
}

/// Repeats a call while the server asks the client to try again later, for at most four seconds.
fn retry_jukebox<T>(mut call: impl FnMut() -> Answer<T>) -> Answer<T> {
    let began = Instant::now();
    loop {
        match call() {
            Err(nfsstat3::NFS3ERR_JUKEBOX) if began.elapsed() < Duration::from_secs(4) => {
                thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

/// Regression test: a walk ended when it found its file, and made all files stale that it had not reached.
#[test]
fn files_that_were_moved_together_into_a_subdirectory_keep_their_handles() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let names = names(3);
    let files = create_files(&fixture, &mut client, &root, &names);
    fs::create_dir_all(fixture.path("sub/below")).unwrap();
    for name in &names {
        fs::rename(fixture.path(name), fixture.path("sub/below").join(name)).unwrap();
    }
    assert_contents(&mut client, &names, &files);
    let fixture = fixture.restart();
    assert_contents(&mut fixture.connect(), &names, &files);
}

#[test]
fn files_that_were_renamed_together_in_one_directory_keep_their_handles() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let names = names(3);
    let files = create_files(&fixture, &mut client, &root, &names);
    for name in &names {
        fs::rename(fixture.path(name), fixture.path(&format!("{name}.renamed"))).unwrap();
    }
    assert_contents(&mut client, &names, &files);
}

#[test]
fn directories_that_were_moved_together_keep_their_handles() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let mut files = Vec::new();
    for name in names(3) {
        fs::create_dir(fixture.path(&name)).unwrap();
        fs::write(fixture.path(&name).join("inside"), &name).unwrap();
        let directory = client.lookup(&root, &name).unwrap().0;
        files.push(client.lookup(&directory, "inside").unwrap().0);
    }
    fs::create_dir(fixture.path("sub")).unwrap();
    for name in names(3) {
        fs::rename(fixture.path(&name), fixture.path("sub").join(&name)).unwrap();
    }
    // After a restart, the server has no open descriptors of these directories.
    let fixture = fixture.restart();
    assert_contents(&mut fixture.connect(), &names(3), &files);
}

/// One walk finds all files, so no client gets JUKEBOX.
#[test]
fn many_moved_files_are_found_by_one_walk() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let names = names(400);
    let files = create_files(&fixture, &mut client, &root, &names);
    for (number, name) in names.iter().enumerate() {
        let directory = fixture.path(&format!("{}/{}", number % 3, number % 20));
        fs::create_dir_all(&directory).unwrap();
        fs::rename(fixture.path(name), directory.join(name)).unwrap();
    }
    thread::scope(|scope| {
        for quarter in 0..4 {
            let (mut client, range) = (fixture.connect(), quarter * 100..(quarter + 1) * 100);
            let (names, files) = (&names[range.clone()], &files[range]);
            scope.spawn(move || assert_contents(&mut client, names, files));
        }
    });
}

/// One walk shows that all files were removed, so no client gets JUKEBOX.
#[test]
fn many_removed_files_are_stale_at_once() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    fs::create_dir(fixture.path("dir")).unwrap();
    let names: Vec<_> = names(50).into_iter().map(|name| format!("dir/{name}")).collect();
    names.iter().for_each(|name| fs::write(fixture.path(name), b"x").unwrap());
    let dir = client.lookup(&root, "dir").unwrap().0;
    let files: Vec<_> =
        names.iter().map(|name| client.lookup(&dir, name.trim_start_matches("dir/")).unwrap().0).collect();
    fs::remove_dir_all(fixture.path("dir")).unwrap();
    for file in &files {
        assert_eq!(client.getattr(file).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    }
}

/// Regression test: a walk that could not read a directory made all files in it stale, even when the directory could be
/// read again.
#[test]
fn a_directory_that_could_not_be_read_makes_no_other_file_stale() {
    let fixture = Fixture::without_export(|settings| settings);
    let own = Identity::own();
    // Permissions do not restrict root.
    let identity = if own.uid == 0 { Identity { uid: 54_321, gid: 54_321 } } else { own };
    let hidden = fixture.path("hidden");
    fs::create_dir(&hidden).unwrap();
    for path in [fixture.root(), hidden.clone()] {
        chown(path, Some(identity.uid), Some(identity.gid)).unwrap();
    }
    fixture.server.add_export(Export::new(NAME, open(&fixture.root()), identity)).unwrap();
    let (mut client, root) = fixture.mount();
    let names = names(3);
    let files = create_files(&fixture, &mut client, &root, &names);
    for name in &names[..2] {
        fs::rename(fixture.path(name), hidden.join(name)).unwrap();
    }
    fs::set_permissions(&hidden, PermissionsExt::from_mode(0o300)).unwrap();
    assert_eq!(client.getattr(&files[0]).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    fs::set_permissions(&hidden, PermissionsExt::from_mode(0o700)).unwrap();
    for file in &files {
        retry_jukebox(|| client.getattr(file)).unwrap();
    }
}

#[test]
fn a_search_that_failed_makes_no_file_stale() {
    // The limit of descriptors applies to a whole process, so the test needs a process of its own.
    ChildProcess::start("search-without-descriptors", &[]).finish().assert_success();
}

/// Body of the child process of [`a_search_that_failed_makes_no_file_stale`].
pub(crate) fn search_without_descriptors() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let names = names(2);
    let files = create_files(&fixture, &mut client, &root, &names);
    let deep = fixture.path("1/2/3/4/5/6/7/8/9/10/11/12");
    fs::create_dir_all(&deep).unwrap();
    for name in &names {
        fs::rename(fixture.path(name), deep.join(name)).unwrap();
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), ..getrlimit(Resource::Nofile) }).unwrap();
    let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    // Six descriptors are left: too few for a walk to the bottom of the tree.
    taken.truncate(taken.len() - 6);
    assert_eq!(client.getattr(&files[0]).unwrap_err(), nfsstat3::NFS3ERR_JUKEBOX);
    drop(taken);
    for file in &files {
        retry_jukebox(|| client.getattr(file)).unwrap();
    }
}

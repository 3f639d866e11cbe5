//! Tests of READ, WRITE and COMMIT.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nfs3_types::nfs3::*;
use workspace_nfs::{Direction, DiskLimit};

use crate::client::{mode, size};
use crate::fixture::Fixture;

/// From `linux/fcntl.h`; `libc` has it for some systems only.
const F_SETSIG: libc::c_int = 10;

#[test]
fn content_is_read_and_written_at_any_offset() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    let big: Vec<u8> = (0..1 << 20).map(|it: u32| it.to_le_bytes()[it as usize % 3]).collect();
    let written = client.write(&file, 3, &big).unwrap();
    assert_eq!(written.count, 1 << 20);
    assert_eq!(written.file_wcc.before.unwrap().size, 0);
    assert_eq!(written.file_wcc.after.unwrap().size, 3 + (1 << 20));
    let (read, is_end) = client.read(&file, 3, 1 << 20).unwrap();
    assert!(read == big && is_end);
    let (read, is_end) = client.read(&file, 0, 5).unwrap();
    assert_eq!((read, is_end), ([&[0; 3], &big[..2]].concat(), false));
    assert_eq!(client.read(&file, 3 + (1 << 20), 10).unwrap(), (Vec::new(), true));
    assert_eq!(client.read(&file, u64::MAX, 10).unwrap(), (Vec::new(), true));
    let far = 6 << 30;
    client.write(&file, far, b"far").unwrap();
    assert_eq!(client.read(&file, far - 1, 10).unwrap(), (b"\0far".to_vec(), true));
    let used = client.getattr(&file).unwrap().used;
    assert!(used < 8 << 20, "the file is sparse, but uses {used} bytes");
    let bytes = fixture.recorder.bytes.lock();
    assert!(bytes.contains(&(Direction::Write, 1 << 20)) && bytes.contains(&(Direction::Read, 5)));
}

#[test]
fn short_and_odd_lengths_are_padded() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    for length in 0..10 {
        let data = vec![b'a' + length; length.into()];
        client.write(&file, 0, &data).unwrap();
        assert_eq!(client.read(&file, 0, length.into()).unwrap().0, data);
    }
}

#[test]
fn a_read_that_is_longer_than_the_limit_is_cut() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), vec![1; 3 << 20]).unwrap();
    let (mut client, root) = fixture.mount();
    let file = client.lookup(&root, "file").unwrap().0;
    let (read, is_end) = client.read(&file, 0, u32::MAX).unwrap();
    assert_eq!((read.len(), is_end), (1 << 20, false));
}

#[test]
fn offsets_and_lengths_above_the_kernels_maximum_fail_with_fbig() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    for offset in [u64::MAX, i64::MAX as u64] {
        assert_eq!(client.write(&file, offset, b"xy").unwrap_err(), nfsstat3::NFS3ERR_FBIG);
    }
    assert_eq!(client.setattr(&file, size(u64::MAX)).unwrap_err(), nfsstat3::NFS3ERR_FBIG);
}

#[test]
fn every_stability_is_granted_and_the_verifier_stays() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    let first = client.write(&file, 0, b"a").unwrap();
    assert!(matches!(first.committed, stable_how::UNSTABLE));
    for stability in [stable_how::DATA_SYNC, stable_how::FILE_SYNC] {
        let written = client.write_stable(&file, 1, b"b", stability).unwrap();
        assert_eq!(written.committed as u32, stability as u32);
        assert_eq!(written.verf.0, first.verf.0);
    }
    let committed = client.commit(&file).unwrap();
    assert_eq!(committed.verf.0, first.verf.0);
    // The end of the server loses no data, because the kernel has it.
    let fixture = fixture.restart();
    let mut client = fixture.connect();
    assert_eq!(client.commit(&file).unwrap().verf.0, first.verf.0);
    assert_eq!(client.read(&file, 0, 10).unwrap().0, b"ab");
}

#[test]
fn the_owner_reads_and_writes_files_whose_permissions_forbid_it() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    // As `git` does: the file is created without write permission, and then written.
    let (file, _) = client.create_how(&root, "object", createhow3::GUARDED(mode(0o444))).unwrap();
    client.write(&file, 0, b"one").unwrap();
    let fixture = fixture.restart();
    let mut client = fixture.connect();
    client.write(&file, 3, b" two").unwrap();
    client.setattr(&file, mode(0)).unwrap();
    let fixture = fixture.restart();
    let mut client = fixture.connect();
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"one two");
    assert_eq!(client.getattr(&file).unwrap().mode, 0);
}

#[test]
fn clients_and_local_processes_see_changes_of_each_other_at_once() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    client.write(&file, 0, b"client").unwrap();
    assert_eq!(fs::read(fixture.path("file")).unwrap(), b"client");
    let local = fs::OpenOptions::new().write(true).open(fixture.path("file")).unwrap();
    local.write_all_at(b"LOCAL too", 0).unwrap();
    assert_eq!(client.read(&file, 0, 100).unwrap(), (b"LOCAL too".to_vec(), true));
    local.set_len(2).unwrap();
    assert_eq!(client.read(&file, 0, 100).unwrap(), (b"LO".to_vec(), true));
    assert_eq!(client.getattr(&file).unwrap().size, 2);
    fs::set_permissions(fixture.path("file"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(client.getattr(&file).unwrap().mode, 0o600);
}

#[test]
fn only_regular_files_are_read_and_written() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    let pipe = client.mknod(&root, "pipe", mknoddata3::NF3FIFO(mode(0o600))).unwrap().0;
    let link = client.symlink(&root, "link", b"pipe").unwrap();
    for other in [&pipe, &link] {
        assert_eq!(client.read(other, 0, 1).unwrap_err(), nfsstat3::NFS3ERR_INVAL);
        assert_eq!(client.write(other, 0, b"x").unwrap_err(), nfsstat3::NFS3ERR_INVAL);
    }
    assert_eq!(client.read(&root, 0, 1).unwrap_err(), nfsstat3::NFS3ERR_ISDIR);
    assert_eq!(client.write(&root, 0, b"x").unwrap_err(), nfsstat3::NFS3ERR_ISDIR);
}

/// Returns true if this process, in which the server runs, has a file open for writing. The file could not be executed
/// then.
fn is_open_for_writing(path: &Path) -> bool {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().map(|it| it.unwrap());
    let mut of_file = descriptors.filter(|it| fs::read_link(it.path()).is_ok_and(|link| link == path));
    of_file.any(|it| {
        let info = fs::read_to_string(Path::new("/proc/self/fdinfo").join(it.file_name())).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        u32::from_str_radix(flags, 8).unwrap() & 0o3 != 0
    })
}

#[test]
fn a_file_is_not_open_for_writing_after_a_commit_or_a_stable_write() {
    let fixture = Fixture::new();
    let (mut client, root) = fixture.mount();
    for (name, stability) in [("unstable", stable_how::UNSTABLE), ("stable", stable_how::FILE_SYNC)] {
        let file = client.create(&root, name).unwrap();
        assert!(is_open_for_writing(&fixture.path(name)), "the descriptor is kept for the first write");
        let written = client.write_stable(&file, 0, b"#!/bin/sh", stability).unwrap();
        if matches!(written.committed, stable_how::UNSTABLE) {
            client.commit(&file).unwrap();
        }
        assert!(!is_open_for_writing(&fixture.path(name)), "{name}");
    }
}

/// Disk limit that refuses everything while it is true.
struct Full(AtomicBool);

impl DiskLimit for Full {
    fn allows(&self, _bytes: u64) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_reached_disk_limit_refuses_writes_and_new_files_but_no_removal() {
    let limit = Arc::new(Full(AtomicBool::new(false)));
    let fixture = Fixture::with_export(|export| export.disk_limit(Arc::clone(&limit) as Arc<dyn DiskLimit>));
    let (mut client, root) = fixture.mount();
    let file = client.create(&root, "file").unwrap();
    client.write(&file, 0, b"before").unwrap();
    limit.0.store(true, Ordering::Relaxed);
    let full = nfsstat3::NFS3ERR_DQUOT;
    assert_eq!(client.write(&file, 0, b"after").unwrap_err(), full);
    assert_eq!(client.create(&root, "new").unwrap_err(), full);
    assert_eq!(client.mkdir(&root, "new", sattr3::default()).unwrap_err(), full);
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"before");
    client.setattr(&file, size(0)).unwrap();
    client.remove(&root, "file").unwrap();
    limit.0.store(false, Ordering::Relaxed);
    client.create(&root, "new").unwrap();
    assert_eq!(fs::metadata(fixture.path("new")).unwrap().size(), 0);
}

/// If a local process holds a lease of a file, the kernel makes `open` wait up to 45 seconds. The server must not wait.
#[test]
fn a_lease_of_a_local_process_makes_clients_try_again_instead_of_waiting() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), b"content").unwrap();
    let (mut client, root) = fixture.mount();
    let file = client.lookup(&root, "file").unwrap().0;
    let holder = fs::File::open(fixture.path("file")).unwrap();
    // SAFETY: the calls have no memory arguments. The default signal would end this process; SIGURG is ignored.
    let held = unsafe {
        libc::fcntl(holder.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) == 0
    };
    assert!(held, "{}", std::io::Error::last_os_error());
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"content", "readers do not conflict");
    let began = Instant::now();
    assert_eq!(client.write(&file, 0, b"CON").unwrap_err(), nfsstat3::NFS3ERR_JUKEBOX);
    assert_eq!(client.setattr(&file, size(1)).unwrap_err(), nfsstat3::NFS3ERR_JUKEBOX);
    assert!(began.elapsed() < Duration::from_secs(10));
    // SAFETY: the call has no memory arguments.
    assert_eq!(unsafe { libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) }, 0);
    client.write(&file, 0, b"CON").unwrap();
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"CONtent");
}

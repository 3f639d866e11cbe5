//! Tests of the I/O worker: files, trees, watches and ports.
//!
//! The worker has two lanes (connections): `Interactive`, and `Bulk` for content. [`Fixture`] sends it requests, and
//! takes its replies and the frames of content, which have the id of the request.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use workspace_agent_protocol::Bytes;
use workspace_agent_protocol::v1::io_from_guest::Payload as FromWorker;
use workspace_agent_protocol::v1::io_reply::Result as Reply;
use workspace_agent_protocol::v1::io_request::Operation;
use workspace_agent_protocol::v1::io_to_guest::Payload as ToWorker;
use workspace_agent_protocol::v1::{
    CopyPath, FileBatch, FileBatchResult, FileChange, FileChangeKind, FileCondition, FileEntry,
    FileFingerprint, FileKind, FileOperation, IoCancel, IoCredit, IoFailure, IoFailureKind, IoFrame, IoLane,
    IoReply, IoRequest, ListFiles, ListPorts, MakeDirectory, MovePath, OpenPort, PublishFile, ReadFile,
    ReadTree, ReleaseFiles, RemovePath, StatFile, TreeEntry, WatchFiles, WriteFile, WriteTree,
    file_condition, file_operation,
};

use crate::plain;
use crate::server::TestServer;
use crate::trials;

pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
    trials![
        io_entries_are_described_and_listed,
        io_listing_counts_entries_that_cannot_be_examined,
        io_paths_outside_and_special_files_are_refused,
        io_writes_replace_files_atomically_on_conditions,
        io_large_files_are_sent_within_the_credit,
        io_cancelled_write_leaves_the_old_content,
        io_batch_stops_at_the_first_failure,
        io_failed_move_names_the_path_that_is_the_reason,
        io_unknown_operation_is_unsupported,
        io_trees_round_trip_without_following_symlinks,
        io_directories_that_are_removed_meanwhile_do_not_fail_a_read_or_a_copy,
        io_watch_reports_changes_below_a_directory,
        io_ports_are_listed_and_connected,
        io_worker_that_was_killed_is_started_again,
        io_release_cancels_transfers,
    ]
}

/// Agent as an ordinary process, with an I/O worker and a directory for its requests.
struct Fixture {
    server: TestServer,
    directory: tempfile::TempDir,
}

impl Fixture {
    /// Starts an agent and its I/O worker, with an empty directory.
    fn new() -> Self {
        let server = plain::start();
        server.start_io();
        Self { server, directory: tempfile::tempdir().unwrap() }
    }

    /// Returns a path in the directory.
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a path in the directory, as requests have it.
    fn bytes(&self, name: &str) -> Vec<u8> {
        bytes(&self.path(name))
    }

    /// Sends a request, and returns its id. `window` is the number of bytes that the worker may send on the channel.
    fn start(&self, lane: IoLane, window: u64, operation: Operation) -> u64 {
        let id = self.server.next_id();
        let request = IoRequest { id, timeout_ms: 0, window, operation: Some(operation) };
        self.server.send_io(lane, ToWorker::Request(request));
        id
    }

    /// Waits for the reply to a request.
    fn reply(&self, id: u64) -> IoReply {
        self.server.take_io(|message| match message {
            FromWorker::Reply(reply) if reply.id == id => Some(reply.clone()),
            _ => None,
        })
    }

    /// Waits for the next frame of content from the worker.
    fn frame(&self, id: u64) -> IoFrame {
        self.server.take_io(|message| match message {
            FromWorker::Frame(frame) if frame.id == id => Some(frame.clone()),
            _ => None,
        })
    }

    /// Sends a request that transfers no content, and waits for its reply.
    fn call(&self, operation: Operation) -> IoReply {
        let id = self.start(IoLane::Interactive, 0, operation);
        self.reply(id)
    }

    /// Sends a request that must fail. Returns the kind of its failure.
    #[track_caller]
    fn failure(&self, operation: Operation) -> IoFailureKind {
        self.call(operation).failure.expect("the request fails").kind()
    }

    /// Writes a file whose content is in the request, and waits for the reply.
    fn write(&self, request: WriteFile) -> IoReply {
        self.call(Operation::Write(request))
    }

    /// Sends a frame of content to the worker for the request `id`.
    fn send(&self, id: u64, frame: IoFrame) {
        self.server.send_io(IoLane::Bulk, ToWorker::Frame(IoFrame { id, ..frame }));
    }

    /// Sends a batch of operations, and returns its result.
    fn batch(&self, operations: Vec<file_operation::Operation>) -> FileBatchResult {
        let operations =
            operations.into_iter().map(|operation| FileOperation { operation: Some(operation) }).collect();
        match self.call(Operation::Batch(FileBatch { operations })).result {
            Some(Reply::Batch(result)) => result,
            other => panic!("{other:?}"),
        }
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// Returns the entry in a successful reply.
#[track_caller]
fn entry(reply: IoReply) -> FileEntry {
    match reply {
        IoReply { failure: None, result: Some(Reply::Entry(entry)), .. } => entry,
        other => panic!("{other:?}"),
    }
}

fn stat(path: Vec<u8>) -> Operation {
    Operation::Stat(StatFile { path, no_follow: false })
}

fn read(path: Vec<u8>) -> Operation {
    Operation::Read(ReadFile { path, offset: 0, length: 0 })
}

/// Returns a request to write a file with this content in the request.
fn small(path: Vec<u8>, content: &'static str) -> WriteFile {
    WriteFile { path, content: Some(Bytes::from_static(content.as_bytes())), ..WriteFile::default() }
}

fn io_entries_are_described_and_listed() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("d/e")).unwrap();
    fs::write(fixture.path("d/e/f"), "text").unwrap();
    fs::set_permissions(fixture.path("d/e/f"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("e/f", fixture.path("d/link")).unwrap();
    let found = entry(fixture.call(stat(fixture.bytes("d/link"))));
    assert_eq!((found.kind(), found.size, found.mode), (FileKind::File, 4, 0o640));
    let link = Operation::Stat(StatFile { path: fixture.bytes("d/link"), no_follow: true });
    let link = entry(fixture.call(link));
    assert_eq!((link.kind(), link.target.as_slice()), (FileKind::Symlink, &b"e/f"[..]));
    let list = |depth, skip, limit| {
        let list =
            Operation::List(ListFiles { path: fixture.bytes("d"), depth, skip, limit, after: Vec::new() });
        match fixture.call(list).result {
            Some(Reply::Listing(listing)) => listing,
            other => panic!("{other:?}"),
        }
    };
    let names = |listing: &workspace_agent_protocol::v1::FileListing| {
        let names = listing.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned());
        names.collect::<Vec<_>>()
    };
    // Depth, number of entries to skip, and maximum number.
    assert_eq!(names(&list(1, 0, 10)), ["e", "link"]);
    assert_eq!(names(&list(2, 0, 10)), ["e", "e/f", "link"]);
    let page = list(2, 1, 1);
    assert_eq!((names(&page), page.total), (vec!["e/f".to_owned()], 3));
    assert_eq!(page.directory.unwrap().kind(), FileKind::Directory);
    // `next` and `last` say where the next page begins: number of entries to skip, and path of the last entry so far.
    assert_eq!((page.next, page.last), (2, b"e/f".to_vec()));
    // With `last` in `after`, the entries after a path are not shifted by others that are removed, or created.
    fs::write(fixture.path("d/c"), "").unwrap();
    fs::write(fixture.path("d/d"), "").unwrap();
    let after = ListFiles { path: fixture.bytes("d"), depth: 2, skip: 2, limit: 10, after: b"e/f".to_vec() };
    match fixture.call(Operation::List(after)).result {
        Some(Reply::Listing(rest)) => assert_eq!((names(&rest), rest.next), (vec!["link".to_owned()], 3)),
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.failure(stat(fixture.bytes("d/none"))), IoFailureKind::NotFound);
    assert_eq!(fixture.failure(stat(fixture.bytes("d/e/f/g"))), IoFailureKind::NotADirectory);
}

fn io_listing_counts_entries_that_cannot_be_examined() {
    let fixture = Fixture::new();
    // The last of these directories have paths that are too long for a system call.
    let name = "b".repeat(200);
    let mut directory = fixture.directory.path().to_owned();
    fs::create_dir(directory.join("d")).unwrap();
    fs::write(directory.join("d/a"), "").unwrap();
    fs::write(directory.join("d/c"), "").unwrap();
    directory.push("d");
    let mut parent = fs::File::open(&directory).unwrap();
    for _ in 0..24 {
        rustix::fs::mkdirat(&parent, name.as_str(), rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        parent = rustix::fs::openat(&parent, name.as_str(), flags, rustix::fs::Mode::empty()).unwrap().into();
    }
    let list = |skip| {
        let list = ListFiles { path: fixture.bytes("d"), depth: 32, skip, limit: 100, after: Vec::new() };
        match fixture.call(Operation::List(list)).result {
            Some(Reply::Listing(listing)) => listing,
            other => panic!("{other:?}"),
        }
    };
    let all = list(0);
    assert_eq!((all.total, all.next), (26, 26));
    assert!(all.entries.len() > 3 && all.entries.len() < 26, "{}", all.entries.len());
    assert_eq!(all.entries.last().unwrap().path, b"c");
    // Entries in between are left out of `entries`, but count in `total` and `next`.
    let rest = list(24);
    assert_eq!((rest.entries.len(), rest.next), (1, 26));
    assert_eq!((list(26).entries.len(), list(26).next), (0, 26));
}

fn io_paths_outside_and_special_files_are_refused() {
    let fixture = Fixture::new();
    for path in ["", "relative", "/a/../etc", "/..", "/a\0b"] {
        assert_eq!(fixture.failure(stat(path.as_bytes().to_vec())), IoFailureKind::Invalid, "{path}");
    }
    make_fifo(&fixture.path("fifo"));
    let socket = std::os::unix::net::UnixListener::bind(fixture.path("socket")).unwrap();
    for path in
        [fixture.bytes("fifo"), fixture.bytes("socket"), b"/dev/null".to_vec(), b"/proc/version".to_vec()]
    {
        let name = String::from_utf8_lossy(&path).into_owned();
        assert_eq!(fixture.failure(read(path.clone())), IoFailureKind::NotAFile, "{name}");
        // `/proc/version` cannot be replaced, because `/proc` accepts no new files. The error depends on the kernel.
        let refused = fixture.failure(Operation::Write(small(path, "x")));
        assert!(
            matches!(
                refused,
                IoFailureKind::NotAFile | IoFailureKind::PermissionDenied | IoFailureKind::Other
            ) || name == "/proc/version",
            "{name}: {refused:?}"
        );
    }
    drop(socket);
    assert!(fs::symlink_metadata(fixture.path("fifo")).unwrap().file_type().is_fifo());
    assert_eq!(fixture.failure(read(fixture.bytes(""))), IoFailureKind::IsADirectory);
    let into_directory = Operation::Write(small(fixture.bytes(""), "x"));
    assert_eq!(fixture.failure(into_directory), IoFailureKind::IsADirectory);
    symlink("loop", fixture.path("loop")).unwrap();
    assert_eq!(fixture.failure(read(fixture.bytes("loop"))), IoFailureKind::Invalid);
    assert_eq!(fixture.failure(Operation::Write(small(fixture.bytes("loop"), "x"))), IoFailureKind::Invalid);
}

fn make_fifo(path: &Path) {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

fn io_writes_replace_files_atomically_on_conditions() {
    let fixture = Fixture::new();
    let path = fixture.bytes("a/b/file");
    assert_eq!(fixture.failure(Operation::Write(small(path.clone(), "one"))), IoFailureKind::NotFound);
    let written =
        entry(fixture.write(WriteFile { mkdirs: true, mode: Some(0o600), ..small(path.clone(), "one") }));
    assert_eq!((written.size, written.mode), (3, 0o600));
    let condition = |condition| Some(FileCondition { condition: Some(condition) });
    let absent = condition(file_condition::Condition::Absent(true));
    let refused = WriteFile { condition: absent, ..small(path.clone(), "two") };
    assert_eq!(fixture.failure(Operation::Write(refused)), IoFailureKind::PreconditionFailed);
    let fingerprint = |entry: &FileEntry| FileFingerprint {
        inode: entry.inode,
        size: entry.size,
        mtime_ns: entry.mtime_ns,
        ctime_ns: entry.ctime_ns,
    };
    let matches = condition(file_condition::Condition::Fingerprint(fingerprint(&written)));
    let replaced = entry(fixture.write(WriteFile { condition: matches, ..small(path.clone(), "three") }));
    // The permissions of the old file stay.
    assert_eq!((replaced.size, replaced.mode), (5, 0o600));
    let stale = WriteFile { condition: matches, ..small(path.clone(), "four") };
    assert_eq!(fixture.failure(Operation::Write(stale)), IoFailureKind::PreconditionFailed);
    assert_eq!(fs::read(fixture.path("a/b/file")).unwrap(), b"three");
    // Through a symlink, the target is written and the link stays.
    symlink("b/file", fixture.path("a/link")).unwrap();
    entry(fixture.write(small(fixture.bytes("a/link"), "linked")));
    assert_eq!(fs::read(fixture.path("a/b/file")).unwrap(), b"linked");
    assert!(fs::symlink_metadata(fixture.path("a/link")).unwrap().is_symlink());
    // Nothing is left beside the file.
    assert_eq!(fs::read_dir(fixture.path("a/b")).unwrap().count(), 1);
}

fn io_large_files_are_sent_within_the_credit() {
    let fixture = Fixture::new();
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number / 7) as u8).collect();
    // Written through a channel, in frames.
    let path = fixture.bytes("large");
    let write = WriteFile { path: path.clone(), ..WriteFile::default() };
    let id = fixture.start(IoLane::Bulk, 0, Operation::Write(write));
    let mut credit = fixture.reply(id).window;
    for piece in content.chunks(256 << 10) {
        while credit < piece.len() as u64 {
            credit += fixture.server.take_io(|message| match message {
                FromWorker::Credit(granted) if granted.id == id => Some(granted.bytes),
                _ => None,
            });
        }
        credit -= piece.len() as u64;
        fixture.send(id, IoFrame { data: Bytes::copy_from_slice(piece), ..IoFrame::default() });
    }
    fixture.send(id, IoFrame { end: true, ..IoFrame::default() });
    assert!(fixture.frame(id).end);
    assert!(!fixture.path("large").exists(), "it is not published yet");
    let publish = fixture.start(IoLane::Bulk, 0, Operation::Publish(PublishFile { write: id }));
    assert_eq!(entry(fixture.reply(publish)).size, content.len() as u64);
    assert_eq!(fs::read(fixture.path("large")).unwrap(), content);
    // Read within a window of half a mebibyte.
    let id = fixture.start(IoLane::Bulk, 512 << 10, read(path));
    assert_eq!(entry(fixture.reply(id)).size, content.len() as u64);
    let mut received = Vec::new();
    loop {
        let frame = fixture.frame(id);
        received.extend_from_slice(&frame.data);
        if frame.end {
            break;
        }
        let bytes = frame.data.len() as u64;
        fixture.server.send_io(IoLane::Bulk, ToWorker::Credit(IoCredit { id, bytes }));
    }
    assert_eq!(received, content);
}

fn io_cancelled_write_leaves_the_old_content() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), "old").unwrap();
    let write = WriteFile { path: fixture.bytes("file"), ..WriteFile::default() };
    let id = fixture.start(IoLane::Bulk, 0, Operation::Write(write));
    fixture.reply(id);
    fixture.send(id, IoFrame { data: Bytes::from_static(b"new"), end: true, ..IoFrame::default() });
    assert!(fixture.frame(id).end);
    fixture.server.send_io(IoLane::Bulk, ToWorker::Cancel(IoCancel { id }));
    let publish = fixture.start(IoLane::Bulk, 0, Operation::Publish(PublishFile { write: id }));
    assert_eq!(fixture.reply(publish).failure.unwrap().kind(), IoFailureKind::Invalid);
    assert_eq!(fs::read(fixture.path("file")).unwrap(), b"old");
    assert_eq!(fs::read_dir(fixture.directory.path()).unwrap().count(), 1);
}

fn io_batch_stops_at_the_first_failure() {
    use file_operation::Operation::{Copy, Mkdir, Move, Remove, Write};
    let fixture = Fixture::new();
    let path = |name| fixture.bytes(name);
    let result = fixture.batch(vec![
        Mkdir(MakeDirectory { path: path("d/e"), mode: Some(0o700), parents: true }),
        Write(small(path("d/e/f"), "text")),
        Copy(CopyPath { from: path("d"), to: path("copy"), recursive: true, replace: false }),
        Move(MovePath { from: path("copy/e/f"), to: path("moved"), replace: false }),
        Move(MovePath { from: path("d/e/f"), to: path("moved"), replace: false }),
        Remove(RemovePath { path: path("d"), recursive: true, force: false }),
    ]);
    assert_eq!(result.completed, 4);
    assert_eq!(result.failure.unwrap().kind(), IoFailureKind::AlreadyExists);
    assert_eq!(fs::read(fixture.path("moved")).unwrap(), b"text");
    assert_eq!(fs::metadata(fixture.path("copy/e")).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(fixture.path("d/e/f").exists());
    // A symlink is removed and not followed.
    symlink(fixture.path("d"), fixture.path("copy/link")).unwrap();
    // `recursive` removes a directory with its entries; with `force`, it is no failure if there is no entry.
    let remove = |name, recursive, force| Remove(RemovePath { path: fixture.bytes(name), recursive, force });
    assert_eq!(fixture.batch(vec![remove("copy", true, false), remove("none", false, true)]).completed, 2);
    assert!(fixture.path("d/e/f").exists() && !fixture.path("copy").exists());
    let failure = |operation| fixture.batch(vec![operation]).failure.unwrap().kind();
    assert_eq!(failure(remove("d", false, false)), IoFailureKind::NotEmpty);
    assert_eq!(failure(remove("none", false, false)), IoFailureKind::NotFound);
    let into_itself = CopyPath { from: path("d"), to: path("d/e/inside"), recursive: true, replace: false };
    assert_eq!(failure(Copy(into_itself)), IoFailureKind::Invalid);
}

fn io_failed_move_names_the_path_that_is_the_reason() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("directory/child")).unwrap();
    fs::create_dir(fixture.path("empty")).unwrap();
    fs::write(fixture.path("file"), "").unwrap();
    fs::write(fixture.path("other"), "").unwrap();
    let failure = |from: &str, to: &str, replace| {
        let (from, to) = (fixture.bytes(from), fixture.bytes(to));
        let moved = file_operation::Operation::Move(MovePath { from, to, replace });
        let failure = fixture.batch(vec![moved]).failure.unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(&failure.path));
        (failure.kind(), path.file_name().unwrap().to_str().unwrap().to_owned())
    };
    let at = |kind, name: &str| (kind, name.to_owned());
    let (keep, replace) = (false, true);
    assert_eq!(failure("file", "other", keep), at(IoFailureKind::AlreadyExists, "other"));
    assert_eq!(failure("empty", "directory", replace), at(IoFailureKind::NotEmpty, "directory"));
    assert_eq!(failure("file", "empty", replace), at(IoFailureKind::IsADirectory, "empty"));
    assert_eq!(failure("empty", "file", replace), at(IoFailureKind::NotADirectory, "file"));
    assert_eq!(failure("missing", "file", replace), at(IoFailureKind::NotFound, "missing"));
}

fn io_unknown_operation_is_unsupported() {
    let fixture = Fixture::new();
    // As an operation of a newer server: this agent decodes it as none.
    let batch = FileBatch { operations: vec![FileOperation { operation: None }] };
    match fixture.call(Operation::Batch(batch)).result {
        Some(Reply::Batch(FileBatchResult { completed: 0, failure: Some(failure) })) => {
            assert_eq!(failure.kind(), IoFailureKind::Unsupported);
        }
        other => panic!("{other:?}"),
    }
}

fn io_directories_that_are_removed_meanwhile_do_not_fail_a_read_or_a_copy() {
    let fixture = Fixture::new();
    let root = fixture.path("tree");
    fs::create_dir(&root).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs::create_dir(root.join("sub")).unwrap();
                fs::remove_dir(root.join("sub")).unwrap();
            }
        });
        let denied = (0..300).find_map(|_| {
            let read = Operation::ReadTree(ReadTree { path: bytes(&root) });
            let id = fixture.start(IoLane::Bulk, 4 << 20, read);
            let failed = |failure: &IoFailure| failure.kind() == IoFailureKind::PermissionDenied;
            if let Some(failure) = fixture.reply(id).failure.filter(failed) {
                return Some(failure);
            }
            loop {
                let frame = fixture.frame(id);
                if let Some(failure) = frame.failure.filter(failed) {
                    return Some(failure);
                }
                if frame.end {
                    break;
                }
            }
            let copy =
                CopyPath { from: bytes(&root), to: fixture.bytes("copy"), recursive: true, replace: true };
            fixture.batch(vec![file_operation::Operation::Copy(copy)]).failure.filter(failed)
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(denied, None);
    });
}

fn io_trees_round_trip_without_following_symlinks() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("tree/sub")).unwrap();
    fs::write(fixture.path("tree/sub/file"), "content").unwrap();
    fs::write(fixture.path("tree/empty"), "").unwrap();
    fs::write(fixture.path("tree/large"), vec![7; 300_000]).unwrap();
    symlink("sub/file", fixture.path("tree/link")).unwrap();
    fs::set_permissions(fixture.path("tree/sub"), fs::Permissions::from_mode(0o750)).unwrap();
    let id =
        fixture.start(IoLane::Bulk, 4 << 20, Operation::ReadTree(ReadTree { path: fixture.bytes("tree") }));
    assert_eq!(fixture.reply(id).failure, None);
    let mut entries = Vec::new();
    loop {
        let frame = fixture.frame(id);
        entries.extend(frame.entries);
        if frame.end {
            break;
        }
    }
    let write = |entries: Vec<TreeEntry>, target: &str| {
        let request = WriteTree { path: fixture.bytes(target), mkdirs: true };
        let id = fixture.start(IoLane::Bulk, 0, Operation::WriteTree(request));
        assert_eq!(fixture.reply(id).failure, None);
        for entry in entries {
            fixture.send(id, IoFrame { entries: vec![entry], ..IoFrame::default() });
        }
        fixture.send(id, IoFrame { end: true, ..IoFrame::default() });
        fixture.frame(id)
    };
    assert_eq!(write(entries, "a/copy").failure, None);
    assert_eq!(fs::read(fixture.path("a/copy/sub/file")).unwrap(), b"content");
    assert_eq!(fs::read(fixture.path("a/copy/large")).unwrap(), vec![7; 300_000]);
    assert_eq!(fs::read_link(fixture.path("a/copy/link")).unwrap(), Path::new("sub/file"));
    assert_eq!(fs::metadata(fixture.path("a/copy/sub")).unwrap().permissions().mode() & 0o777, 0o750);
    let times = |name: &str| fs::metadata(fixture.path(name)).unwrap().modified().unwrap();
    assert_eq!(times("tree/sub/file"), times("a/copy/sub/file"));
    assert_eq!(times("tree/sub"), times("a/copy/sub"));
    // Entries cannot leave the tree, neither by their names nor through symlinks.
    fs::create_dir(fixture.path("outside")).unwrap();
    let file = |path: &str| TreeEntry {
        path: path.as_bytes().to_vec(),
        kind: FileKind::File.into(),
        mode: 0o644,
        ..TreeEntry::default()
    };
    for path in ["../outside/x", "/tmp/x", "a//b", "."] {
        assert_eq!(
            write(vec![file(path)], "a/copy").failure.unwrap().kind(),
            IoFailureKind::Invalid,
            "{path}"
        );
    }
    symlink(fixture.path("outside"), fixture.path("a/copy/out")).unwrap();
    assert!(write(vec![file("out/x")], "a/copy").failure.is_some());
    assert_eq!(fs::read_dir(fixture.path("outside")).unwrap().count(), 0);
    let too_short = TreeEntry { size: 3, ..file("short") };
    assert!(write(vec![too_short], "a/copy").failure.is_some());
    assert!(!fixture.path("a/copy/short").exists());
}

fn io_watch_reports_changes_below_a_directory() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("d/sub")).unwrap();
    let watch = WatchFiles { path: fixture.bytes("d"), recursive: true };
    let id = fixture.start(IoLane::Interactive, 64 << 10, Operation::Watch(watch));
    assert_eq!(fixture.reply(id).failure, None);
    let mut changes = Vec::new();
    let mut wait_for = |kind: FileChangeKind, path: &str| loop {
        let found = changes
            .iter()
            .position(|change: &FileChange| change.kind() == kind && change.path == path.as_bytes());
        if let Some(found) = found {
            return changes.remove(found);
        }
        let frame = fixture.frame(id);
        assert!(!frame.end, "{kind:?} {path}: {changes:?}");
        changes.extend(frame.changes);
    };
    fs::create_dir(fixture.path("d/sub/new")).unwrap();
    assert!(wait_for(FileChangeKind::Created, "sub/new").is_directory);
    fs::write(fixture.path("d/sub/new/file"), "x").unwrap();
    wait_for(FileChangeKind::Created, "sub/new/file");
    wait_for(FileChangeKind::Modified, "sub/new/file");
    fs::rename(fixture.path("d/sub/new/file"), fixture.path("d/sub/new/renamed")).unwrap();
    assert_eq!(wait_for(FileChangeKind::Renamed, "sub/new/renamed").from, b"sub/new/file");
    // A renamed directory is watched at its new path.
    fs::rename(fixture.path("d/sub/new"), fixture.path("d/moved")).unwrap();
    wait_for(FileChangeKind::Renamed, "moved");
    fs::remove_file(fixture.path("d/moved/renamed")).unwrap();
    wait_for(FileChangeKind::Removed, "moved/renamed");
    fs::remove_dir_all(fixture.path("d")).unwrap();
    wait_for(FileChangeKind::Removed, "");
    assert!(fixture.frame(id).end);
}

fn io_ports_are_listed_and_connected() {
    let fixture = Fixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = u32::from(listener.local_addr().unwrap().port());
    let Some(Reply::Ports(listed)) = fixture.call(Operation::ListPorts(ListPorts {})).result else {
        panic!("no ports")
    };
    assert!(listed.ports.iter().any(|listening| listening.port == port));
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        stream.write_all(&received).unwrap();
    });
    let id = fixture.start(IoLane::Interactive, 64 << 10, Operation::OpenPort(OpenPort { port }));
    assert!(fixture.reply(id).window > 0);
    let send = |frame| fixture.server.send_io(IoLane::Interactive, ToWorker::Frame(frame));
    send(IoFrame { id, data: Bytes::from_static(b"hello"), end: true, ..IoFrame::default() });
    let mut received = Vec::new();
    loop {
        let frame = fixture.frame(id);
        received.extend_from_slice(&frame.data);
        if frame.end {
            break;
        }
    }
    assert_eq!(received, b"hello");
    echo.join().unwrap();
    // Nothing listens there any more.
    assert_eq!(fixture.failure(Operation::OpenPort(OpenPort { port })), IoFailureKind::NotListening);
    assert_eq!(fixture.failure(Operation::OpenPort(OpenPort { port: 70_000 })), IoFailureKind::Invalid);
}

fn io_worker_that_was_killed_is_started_again() {
    let fixture = Fixture::new();
    let children = fixture.server.children();
    assert_eq!(children.len(), 1);
    // SAFETY: the process is a child of the agent, which has not reaped it.
    assert_eq!(unsafe { libc::kill(children[0], libc::SIGKILL) }, 0);
    fixture.server.wait_for_io_end();
    fixture.server.start_io();
    entry(fixture.write(small(fixture.bytes("file"), "x")));
    // A second start replaces the worker, and a closed lane ends it.
    fixture.server.start_io();
    entry(fixture.call(stat(fixture.bytes("file"))));
    fixture.server.close_io();
    plain::assert_soon("the worker exits", || fixture.server.children().is_empty());
}

/// `Release` closes all files below a path, before the server replaces what is mounted there.
fn io_release_cancels_transfers() {
    let fixture = Fixture::new();
    fs::write(fixture.path("large"), vec![1; 1 << 20]).unwrap();
    // With a window of one byte, the worker waits for credit, and keeps the file open.
    let id = fixture.start(IoLane::Bulk, 1, read(fixture.bytes("large")));
    assert_eq!(fixture.reply(id).failure, None);
    let release = fixture.start(IoLane::Bulk, 0, Operation::Release(ReleaseFiles { path: b"/".to_vec() }));
    assert_eq!(fixture.reply(release).failure, None);
    assert!(fixture.frame(id).failure.is_some());
    entry(fixture.call(stat(fixture.bytes("large"))));
}

//! Tests of writes whose I/O worker is killed before each of its system calls, by `Tracer` (ptrace).
//!
//! [`Fixture`] sends requests to the worker; its methods return `None` if the worker was killed.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use workspace_agent_protocol::Bytes;
use workspace_agent_protocol::v1::io_from_guest::Payload as FromWorker;
use workspace_agent_protocol::v1::io_request::Operation;
use workspace_agent_protocol::v1::io_to_guest::Payload as ToWorker;
use workspace_agent_protocol::v1::{
    FileBatch, FileKind, FileOperation, IoFrame, IoLane, IoReply, IoRequest, PublishFile, TreeEntry,
    WriteFile, WriteTree, file_operation,
};

use crate::plain;
use crate::server::TestServer;
use crate::tracer::Tracer;
use crate::trials_as_root;

const OLD: &[u8] = b"old content";
/// Maximum number of system calls of a write. A worker that makes more is stuck in a loop.
const CALLS_MAX: usize = 400;

pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
    trials_as_root!["can trace an agent":
        io_worker_killed_in_a_small_write_leaves_the_old_or_the_new_file,
        io_worker_killed_in_a_large_write_leaves_the_old_or_the_new_file,
        io_worker_killed_in_a_batch_leaves_old_or_new_files,
        io_worker_killed_in_a_tree_leaves_old_or_new_files,
    ]
}

/// Agent as an ordinary process, and a directory for requests to its I/O worker.
struct Fixture {
    server: TestServer,
    directory: tempfile::TempDir,
}

impl Fixture {
    /// Starts an agent without an I/O worker, with an empty directory.
    fn new() -> Self {
        Self { server: plain::start(), directory: tempfile::tempdir().unwrap() }
    }

    /// Returns a path in the directory.
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a path in the directory, as requests have it.
    fn bytes(&self, name: &str) -> Vec<u8> {
        self.path(name).as_os_str().as_bytes().to_vec()
    }

    /// Returns the sorted names in the directory.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Sends a request, and returns its id. Does nothing else if the worker was killed.
    fn start(&self, lane: IoLane, operation: Operation) -> u64 {
        let id = self.server.next_id();
        let request = IoRequest { id, timeout_ms: 0, window: 0, operation: Some(operation) };
        self.server.send_io_unless_lost(lane, ToWorker::Request(request));
        id
    }

    /// Returns the reply to a request; `None` if the worker was killed.
    fn reply(&self, id: u64) -> Option<IoReply> {
        self.server.find_io_unless_lost(|message| match message {
            FromWorker::Reply(reply) if reply.id == id => Some(reply.clone()),
            _ => None,
        })
    }

    /// Waits for the last frame of a channel; `None` if the worker was killed.
    fn end(&self, id: u64) -> Option<()> {
        self.server.find_io_unless_lost(|message| match message {
            FromWorker::Frame(frame) if frame.id == id && frame.end => Some(()),
            _ => None,
        })
    }

    /// Sends a frame of content for the request `id`, unless the worker was killed.
    fn send(&self, id: u64, frame: IoFrame) {
        self.server.send_io_unless_lost(IoLane::Bulk, ToWorker::Frame(IoFrame { id, ..frame }));
    }

    /// Performs a write with a worker that is killed before each of its system calls in turn, until it succeeds.
    /// `prepare` makes the old files, and `check` gets true if the write was acknowledged.
    fn kill_at_each_call(
        &self,
        prepare: impl Fn(),
        write: impl Fn() -> Option<IoReply>,
        check: impl Fn(bool),
        names: &[&str],
    ) {
        let (mut killed, mut number) = (0, 0);
        loop {
            assert!(number < CALLS_MAX, "the write does not end");
            self.server.start_io();
            // What an earlier worker left is gone when the next one is connected.
            prepare();
            let before = self.names();
            assert!(before.iter().all(|name| names.contains(&name.as_str())), "{before:?} at {number}");
            let tracer = Tracer::kill_at(self.server.children()[0], number);
            let replied = write();
            let is_acknowledged = replied.is_some_and(|reply| reply.failure.is_none());
            let was_killed = tracer.finish();
            self.server.wait_for_io_end();
            check(is_acknowledged);
            if is_acknowledged && !was_killed {
                break;
            }
            killed += usize::from(was_killed);
            number += 1;
        }
        assert!(killed > 5, "it was killed {killed} times");
        assert_eq!(self.names(), names);
    }

    /// Checks that a file is old or new, and new if the write was acknowledged. Only `other` did not exist before.
    #[track_caller]
    fn assert_whole(&self, name: &str, new: &[u8], is_acknowledged: bool) {
        match fs::read(self.path(name)) {
            Ok(content) if content == new => {}
            Ok(content) => {
                assert!(content == OLD, "{name} has {} bytes", content.len());
                assert!(!is_acknowledged, "{name} is old");
            }
            Err(error) => assert!(!is_acknowledged && name == "other", "{name}: {error}"),
        }
    }
}

fn io_worker_killed_in_a_small_write_leaves_the_old_or_the_new_file() {
    let fixture = Fixture::new();
    let new = Bytes::from_static(b"new");
    let write = |name: &str| {
        let request =
            WriteFile { path: fixture.bytes(name), content: Some(new.clone()), ..WriteFile::default() };
        fixture.reply(fixture.start(IoLane::Interactive, Operation::Write(request)))
    };
    fixture.kill_at_each_call(
        || fs::write(fixture.path("file"), OLD).unwrap(),
        || write("file"),
        |is_acknowledged| fixture.assert_whole("file", &new, is_acknowledged),
        &["file"],
    );
    // A file that does not exist.
    fixture.kill_at_each_call(
        || drop(fs::remove_file(fixture.path("other"))),
        || write("other"),
        |is_acknowledged| fixture.assert_whole("other", &new, is_acknowledged),
        &["file", "other"],
    );
}

fn io_worker_killed_in_a_large_write_leaves_the_old_or_the_new_file() {
    let fixture = Fixture::new();
    let new: Vec<u8> = (0..500_000_u32).map(|number| (number / 7) as u8).collect();
    let write = || {
        let request = WriteFile { path: fixture.bytes("file"), ..WriteFile::default() };
        let id = fixture.start(IoLane::Bulk, Operation::Write(request));
        fixture.reply(id)?;
        for piece in new.chunks(200_000) {
            fixture.send(id, IoFrame { data: Bytes::copy_from_slice(piece), ..IoFrame::default() });
        }
        fixture.send(id, IoFrame { end: true, ..IoFrame::default() });
        fixture.end(id)?;
        let publish = Operation::Publish(PublishFile { write: id });
        fixture.reply(fixture.start(IoLane::Bulk, publish))
    };
    fixture.kill_at_each_call(
        || fs::write(fixture.path("file"), OLD).unwrap(),
        write,
        |is_acknowledged| fixture.assert_whole("file", &new, is_acknowledged),
        &["file"],
    );
}

fn io_worker_killed_in_a_batch_leaves_old_or_new_files() {
    let fixture = Fixture::new();
    let new = |name: &str| format!("new {name}").into_bytes();
    let operation = |name: &str| {
        let content = Some(Bytes::from(new(name)));
        let request = WriteFile { path: fixture.bytes(name), content, ..WriteFile::default() };
        FileOperation { operation: Some(file_operation::Operation::Write(request)) }
    };
    let names = ["a", "b"];
    fixture.kill_at_each_call(
        || names.iter().for_each(|name| fs::write(fixture.path(name), OLD).unwrap()),
        || {
            let operations = names.iter().map(|name| operation(name)).collect();
            let batch = Operation::Batch(FileBatch { operations });
            fixture.reply(fixture.start(IoLane::Interactive, batch))
        },
        |is_acknowledged| {
            names.iter().for_each(|name| fixture.assert_whole(name, &new(name), is_acknowledged));
            // In order.
            assert!(
                fs::read(fixture.path("b")).unwrap() == OLD || fs::read(fixture.path("a")).unwrap() != OLD
            );
        },
        &names,
    );
}

fn io_worker_killed_in_a_tree_leaves_old_or_new_files() {
    let fixture = Fixture::new();
    let entry = |name: &str, kind: FileKind, data: &'static [u8]| TreeEntry {
        path: name.into(),
        kind: kind.into(),
        mode: 0o644,
        size: data.len() as u64,
        data: Bytes::from_static(data),
        ..TreeEntry::default()
    };
    let write = || {
        let request = WriteTree { path: fixture.bytes(""), mkdirs: false };
        let id = fixture.start(IoLane::Bulk, Operation::WriteTree(request));
        let reply = fixture.reply(id)?;
        let link = TreeEntry { target: b"new".to_vec(), ..entry("link", FileKind::Symlink, b"") };
        let entries =
            vec![entry("file", FileKind::File, b"new"), entry("other", FileKind::File, b"new"), link];
        fixture.send(id, IoFrame { entries, ..IoFrame::default() });
        fixture.send(id, IoFrame { end: true, ..IoFrame::default() });
        fixture.end(id).map(|()| reply)
    };
    fixture.kill_at_each_call(
        || {
            fs::write(fixture.path("file"), OLD).unwrap();
            drop((fs::remove_file(fixture.path("other")), fs::remove_file(fixture.path("link"))));
            symlink("old", fixture.path("link")).unwrap();
        },
        write,
        |is_acknowledged| {
            fixture.assert_whole("file", b"new", is_acknowledged);
            fixture.assert_whole("other", b"new", is_acknowledged);
            let link = fs::read_link(fixture.path("link")).unwrap();
            assert!(link == Path::new("new") || (link == Path::new("old") && !is_acknowledged), "{link:?}");
        },
        &["file", "link", "other"],
    );
}

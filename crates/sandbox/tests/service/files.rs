//! Files, watches and ports of a running sandbox.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, `create` creates a sandbox
//! of the owner `alice`, and `sh` runs a shell command in a sandbox and returns its result.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;
use workspace_sandbox::{
    Bytes, FileChange, FileChangeKind, FileCondition, FileErrorKind, FileKind, FileOperation, FilePath,
    FileRead, NewCommit, NewFile, SandboxError, SandboxInfo, Scope, Service, TreeEntry, Watch,
};

use crate::home::{FOLLOW, TIMEOUT, TO_THE_END, TestHome, alice, create, request, sh, wait_until};
use crate::trials;

/// Last argument of [`Service::watch_files`]: everything below the directory is watched, too.
const RECURSIVE: bool = true;
/// Last argument of [`Service::write_tree`]: missing parents are created.
const MKDIRS: bool = true;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        entries_are_described_and_listed,
        small_and_large_files_round_trip,
        conditions_decide_about_writes,
        only_regular_files_of_the_sandbox_are_opened,
        batch_stops_at_the_first_failure,
        tree_round_trips,
        changes_are_reported,
        port_is_listed_and_connected,
        killed_worker_is_replaced,
        commit_contains_whole_files,
        files_of_other_owners_do_not_exist,
    ]
}

pub(crate) fn path(path: &str) -> FilePath {
    FilePath::new(path).unwrap()
}

pub(crate) fn new_file(at: &str) -> NewFile {
    NewFile { path: path(at), mode: None, mkdirs: false, condition: None }
}

/// Returns bytes without a pattern.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// A sandbox whose files are accessed.
struct Files<'a> {
    service: &'a Service,
    id: &'a str,
}

impl<'a> Files<'a> {
    fn of(service: &'a Service, info: &'a SandboxInfo) -> Self {
        Self { service, id: &info.sandbox.id }
    }

    async fn write(&self, file: &NewFile, content: &[u8]) -> Result<(), SandboxError> {
        let content = Bytes::copy_from_slice(content);
        self.service.write_file(&alice(), self.id, file, content).await.map(drop)
    }

    async fn read(&self, at: &str) -> Result<Vec<u8>, SandboxError> {
        self.read_range(at, 0, None).await
    }

    async fn read_range(&self, at: &str, offset: u64, length: Option<u64>) -> Result<Vec<u8>, SandboxError> {
        let mut read = self.service.read_file(&alice(), self.id, &path(at), offset, length).await?;
        let mut content = Vec::new();
        while let Some(piece) = read.next().await? {
            content.extend_from_slice(&piece);
        }
        Ok(content)
    }
}

/// Returns the kind of a failed operation.
#[track_caller]
pub(crate) fn kind_of<T: std::fmt::Debug>(result: Result<T, SandboxError>) -> FileErrorKind {
    match result {
        Err(SandboxError::File(error)) => error.kind,
        other => panic!("{other:?}"),
    }
}

async fn entries_are_described_and_listed(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    check_entries(&service, &info).await;
}

pub(crate) async fn check_entries(service: &Service, info: &SandboxInfo) {
    let id = info.sandbox.id.as_str();
    sh(service, info, "mkdir -p d/sub; printf abc > d/a; chmod 640 d/a; ln -s a d/link; touch d/sub/x").await;
    let entry = service.stat_file(&alice(), id, &path("/workspace/d/a"), FOLLOW).await.unwrap();
    assert_eq!((entry.kind, entry.mode, entry.size), (FileKind::File, 0o640, 3));
    assert_eq!(entry.path, b"/workspace/d/a");
    let link = service.stat_file(&alice(), id, &path("/workspace/d/link"), !FOLLOW).await.unwrap();
    assert_eq!((link.kind, link.target.as_slice()), (FileKind::Symlink, &b"a"[..]));
    let followed = service.stat_file(&alice(), id, &path("/workspace/d/link"), FOLLOW).await.unwrap();
    assert_eq!(followed.fingerprint, entry.fingerprint);
    let list = async |depth, range| {
        let listing = service.list_files(&alice(), id, &path("/workspace/d"), depth, range).await.unwrap();
        let names = listing.entries.into_iter().map(|entry| String::from_utf8(entry.path).unwrap());
        (names.collect::<Vec<_>>(), listing.total)
    };
    assert_eq!(list(1, (0, 100)).await, (vec!["a".to_owned(), "link".to_owned(), "sub".to_owned()], 3));
    assert_eq!(list(1, (1, 1)).await, (vec!["link".to_owned()], 3));
    assert_eq!(list(2, (3, 100)).await, (vec!["sub/x".to_owned()], 4));
    let missing = service.stat_file(&alice(), id, &path("/workspace/none"), FOLLOW).await;
    assert_eq!(kind_of(missing), FileErrorKind::NotFound);
}

async fn small_and_large_files_round_trip(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    check_content(&service, &info).await;
}

pub(crate) async fn check_content(service: &Service, info: &SandboxInfo) {
    let files = Files::of(service, info);
    for size in [0, 10, 64 << 10, 8 << 20] {
        let content = noise(size);
        files.write(&new_file("/workspace/file"), &content).await.unwrap();
        assert!(files.read("/workspace/file").await.unwrap() == content, "{size} bytes");
    }
    let content = noise(8 << 20);
    let range = files.read_range("/workspace/file", 1_000_000, Some(300_000)).await.unwrap();
    assert!(range == content[1_000_000..1_300_000]);
    let sum = sh(service, info, "wc -c < file; ls -A").await.stdout;
    assert_eq!(sum.split_whitespace().collect::<Vec<_>>(), ["8388608", "file"]);
    // A write that is given up leaves the old content.
    let mut write = service.start_write(&alice(), files.id, &new_file("/workspace/file")).await.unwrap();
    write.append(Bytes::from_static(b"new")).await.unwrap();
    drop(write);
    assert!(files.read("/workspace/file").await.unwrap() == content);
    let nested = NewFile { mkdirs: true, mode: Some(0o750), ..new_file("/workspace/a/b/c") };
    files.write(&nested, b"x").await.unwrap();
    let ran = sh(service, info, "ls -l a/b/c | cut -c 1-10; ls -A a/b").await;
    assert_eq!(ran.stdout, "-rwxr-x---\nc\n", "{ran:?}");
}

async fn conditions_decide_about_writes(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    check_conditions(&service, &info).await;
}

pub(crate) async fn check_conditions(service: &Service, info: &SandboxInfo) {
    let files = Files::of(service, info);
    let when = |condition| NewFile { condition: Some(condition), ..new_file("/workspace/file") };
    let refused = files.write(&when(FileCondition::Exists), b"x").await;
    assert_eq!(kind_of(refused), FileErrorKind::PreconditionFailed);
    files.write(&when(FileCondition::Absent), b"first").await.unwrap();
    let refused = files.write(&when(FileCondition::Absent), b"x").await;
    assert_eq!(kind_of(refused), FileErrorKind::PreconditionFailed);
    let (owner, at) = (alice(), path("/workspace/file"));
    let stat = || service.stat_file(&owner, files.id, &at, FOLLOW);
    let first = stat().await.unwrap().fingerprint;
    files.write(&when(FileCondition::Unchanged(first)), b"second").await.unwrap();
    let refused = files.write(&when(FileCondition::Unchanged(first)), b"x").await;
    assert_eq!(kind_of(refused), FileErrorKind::PreconditionFailed);
    // A change by a program counts, also while content is transferred.
    let second = stat().await.unwrap().fingerprint;
    let file = when(FileCondition::Unchanged(second));
    let mut write = service.start_write(&alice(), files.id, &file).await.unwrap();
    write.append(Bytes::from(noise(200_000))).await.unwrap();
    sh(service, info, "echo program > file").await;
    assert_eq!(kind_of(write.finish().await), FileErrorKind::PreconditionFailed);
    assert_eq!(files.read("/workspace/file").await.unwrap(), b"program\n");
}

async fn only_regular_files_of_the_sandbox_are_opened(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let files = Files::of(&service, &info);
    sh(&service, &info, "mkfifo fifo; mkdir d; ln -s fifo link; touch denied; chmod 000 denied").await;
    for (at, kind) in [
        ("/workspace/fifo", FileErrorKind::NotAFile),
        ("/workspace/link", FileErrorKind::NotAFile),
        ("/workspace/d", FileErrorKind::IsADirectory),
        ("/dev/null", FileErrorKind::NotAFile),
        ("/proc/1/status", FileErrorKind::NotAFile),
        ("/workspace/denied", FileErrorKind::PermissionDenied),
    ] {
        assert_eq!(kind_of(files.read(at).await), kind, "{at}");
    }
    for (at, kind) in
        [("/workspace/fifo", FileErrorKind::NotAFile), ("/workspace/d", FileErrorKind::IsADirectory)]
    {
        assert_eq!(kind_of(files.write(&new_file(at), b"x").await), kind, "{at}");
    }
    let inside = sh(&service, &info, "cat /etc/passwd").await.stdout;
    assert_eq!(String::from_utf8(files.read("/etc/passwd").await.unwrap()).unwrap(), inside);
}

async fn batch_stops_at_the_first_failure(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    check_batch(&service, &info).await;
}

pub(crate) async fn check_batch(service: &Service, info: &SandboxInfo) {
    let write = |at: &str, content: &'static [u8]| FileOperation::Write {
        file: new_file(at),
        content: Bytes::from_static(content),
    };
    let operations = vec![
        FileOperation::Mkdir { path: path("/workspace/a/b"), mode: None, parents: true },
        write("/workspace/a/b/one", b"1"),
        FileOperation::Copy {
            from: path("/workspace/a"),
            to: path("/workspace/c"),
            replace: false,
            recursive: true,
        },
        FileOperation::Move { from: path("/workspace/a/b/one"), to: path("/workspace/two"), replace: false },
        FileOperation::Chmod { path: path("/workspace/two"), mode: 0o400 },
        FileOperation::Remove { path: path("/workspace/a"), recursive: false, force: false },
        write("/workspace/never", b"x"),
    ];
    let result = service.file_batch(&alice(), &info.sandbox.id, operations).await.unwrap();
    assert_eq!(result.completed, 5);
    assert_eq!(result.failure.unwrap().kind, FileErrorKind::NotEmpty);
    assert_eq!(sh(service, info, "cat two c/b/one; ls").await.stdout, "11a\nc\ntwo\n");
}

async fn tree_round_trips(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    check_tree(&service, &info).await;
}

pub(crate) async fn check_tree(service: &Service, info: &SandboxInfo) {
    let id = info.sandbox.id.as_str();
    let make = "mkdir -p tree/sub/empty; head -c 700000 /dev/zero > tree/large; echo small > tree/sub/small; \
                chmod 750 tree/sub; ln -s sub/small tree/link; mkfifo tree/fifo; touch tree/nothing";
    sh(service, info, make).await;
    let mut reader = service.read_tree(&alice(), id, &path("/workspace/tree")).await.unwrap();
    let mut writer = service.write_tree(&alice(), id, &path("/workspace/a/copy"), MKDIRS).await.unwrap();
    let mut names = Vec::new();
    while let Some(entries) = reader.next().await.unwrap() {
        for entry in entries {
            if let TreeEntry::Header { path, .. } = &entry {
                names.push(String::from_utf8(path.clone()).unwrap());
            }
            writer.push(entry).await.unwrap();
        }
    }
    writer.finish().await.unwrap();
    names.sort();
    assert_eq!(names, ["large", "link", "nothing", "sub", "sub/empty", "sub/small"]);
    let compare = "rm tree/fifo; cmp tree/large a/copy/large && cmp tree/sub/small a/copy/sub/small && \
                   readlink a/copy/link; ls -ld a/copy/sub | cut -c 1-10; find a/copy | wc -l";
    let ran = sh(service, info, compare).await;
    assert_eq!(
        ran.stdout.split_whitespace().collect::<Vec<_>>(),
        ["sub/small", "drwxr-x---", "7"],
        "{ran:?}"
    );
    let hostile = |path: &str| TreeEntry::Header {
        path: path.into(),
        kind: FileKind::File,
        mode: 0o644,
        mtime_ns: 0,
        target: Vec::new(),
        size: 0,
    };
    for name in ["../out", "/out", "link/../out"] {
        let mut writer = service.write_tree(&alice(), id, &path("/workspace/a/copy"), !MKDIRS).await.unwrap();
        writer.push(hostile(name)).await.unwrap();
        assert_eq!(kind_of(writer.finish().await), FileErrorKind::Invalid, "{name}");
    }
}

/// Watch, with the changes that were received and not looked at.
struct Changes {
    watch: Watch,
    received: VecDeque<FileChange>,
}

impl Changes {
    /// Returns the next change; `None` at the end of the watch.
    async fn next(&mut self) -> Option<FileChange> {
        while self.received.is_empty() {
            self.received.extend(self.watch.next().await.unwrap()?);
        }
        self.received.pop_front()
    }

    /// Waits for a change of this kind and path.
    async fn wait_for(&mut self, kind: FileChangeKind, at: &str) {
        let found = async {
            while let Some(change) = self.next().await {
                if change.kind == kind && change.path == at.as_bytes() {
                    return;
                }
            }
            panic!("the watch ended before {kind:?} of {at}");
        };
        timeout(TIMEOUT, found).await.unwrap_or_else(|_| panic!("no {kind:?} of {at}"));
    }
}

async fn changes_are_reported(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    check_watch(&service, &info).await;
}

pub(crate) async fn check_watch(service: &Service, info: &SandboxInfo) {
    sh(service, info, "mkdir -p d/sub").await;
    let watch =
        service.watch_files(&alice(), &info.sandbox.id, &path("/workspace/d"), RECURSIVE).await.unwrap();
    let mut changes = Changes { watch, received: VecDeque::new() };
    sh(service, info, "echo x > d/sub/a; mv d/sub/a d/b; rm d/b; mkdir d/new; echo y > d/new/c").await;
    changes.wait_for(FileChangeKind::Created, "sub/a").await;
    changes.wait_for(FileChangeKind::Renamed, "b").await;
    changes.wait_for(FileChangeKind::Removed, "b").await;
    changes.wait_for(FileChangeKind::Created, "new/c").await;
    sh(service, info, "rm -r d").await;
    let ended = async { while changes.next().await.is_some() {} };
    timeout(TIMEOUT, ended).await.expect("the watch ends with its directory");
}

async fn port_is_listed_and_connected(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    check_port(&service, &info).await;
}

pub(crate) async fn check_port(service: &Service, info: &SandboxInfo) {
    let id = info.sandbox.id.as_str();
    let refused = service.connect_port(&alice(), id, 7000).await;
    assert_eq!(kind_of(refused), FileErrorKind::NotListening);
    let echo = "while :; do busybox nc -l -p 7000 -e busybox cat; done";
    service.run(&alice(), id, request(echo)).await.unwrap();
    wait_until("it listens", async || {
        let ports = service.list_ports(&alice(), id).await.unwrap();
        ports.iter().any(|port| port.port == 7000)
    })
    .await;
    let mut connection = service.connect_port(&alice(), id, 7000).await.unwrap();
    let content = noise(300_000);
    let send = async {
        connection.writer.send(Bytes::from(content.clone())).await.unwrap();
        connection.writer.end().await.unwrap();
    };
    let receive = async {
        let mut received = Vec::new();
        while let Some(data) = connection.reader.next().await.unwrap() {
            received.extend_from_slice(&data);
        }
        received
    };
    let ((), received) = timeout(TIMEOUT, async { tokio::join!(send, receive) }).await.unwrap();
    assert!(received == content, "{} bytes", received.len());
}

/// Returns the PIDs of the children of a process on this machine.
fn children(parent: i32) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        fields.split(' ').nth(1) == Some(parent.to_string().as_str())
    })
    .collect()
}

/// Returns the PID of the I/O worker of a sandbox in which no command runs.
pub(crate) async fn worker(home: &TestHome, info: &SandboxInfo) -> Pid {
    let agent = home.kind.pid(home.path(), &info.sandbox.id);
    // The supervisors of commands end a little after their commands.
    wait_until("only the worker runs", async || children(agent).len() == 1).await;
    Pid::from_raw(children(agent)[0]).unwrap()
}

/// Kills the I/O worker of a sandbox in which no command runs.
async fn kill_worker(home: &TestHome, info: &SandboxInfo) {
    kill_process(worker(home, info).await, Signal::KILL).unwrap();
}

/// Reads the rest of a file, which fails.
async fn failure_of(read: &mut FileRead) -> SandboxError {
    loop {
        match read.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the file was read to its end"),
            Err(error) => return error,
        }
    }
}

async fn killed_worker_is_replaced(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let files = Files::of(&service, &info);
    let content = noise(8 << 20);
    files.write(&new_file("/workspace/file"), &content).await.unwrap();
    let mut read =
        service.read_file(&alice(), files.id, &path("/workspace/file"), 0, TO_THE_END).await.unwrap();
    read.next().await.unwrap().unwrap();
    let mut write = service.start_write(&alice(), files.id, &new_file("/workspace/file")).await.unwrap();
    write.append(Bytes::from_static(b"half")).await.unwrap();
    kill_worker(home, &info).await;
    let failed = failure_of(&mut read).await;
    assert!(matches!(failed, SandboxError::AgentLost { .. }), "{failed}");
    let failed = write.finish().await.unwrap_err();
    assert!(matches!(failed, SandboxError::AgentLost { .. }), "{failed}");
    // The next request starts another worker, and nothing is left of the write.
    assert!(files.read("/workspace/file").await.unwrap() == content);
    assert_eq!(sh(&service, &info, "ls -A").await.stdout, "file\n");
}

async fn commit_contains_whole_files(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    const LEN: usize = 300_000;
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let (service, id, stop) = (service.clone(), info.sandbox.id.clone(), stop.clone());
        async move {
            let mut letters = (b'a'..=b'z').cycle();
            while !stop.load(Ordering::Relaxed) {
                let content = Bytes::from(vec![letters.next().unwrap(); LEN]);
                // A commit in progress delays a write, and may refuse it.
                match service.write_file(&alice(), &id, &new_file("/workspace/file"), content).await {
                    Ok(_) | Err(SandboxError::WorkspaceBusy { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    wait_until("it writes", async || sh(&service, &info, "ls").await.stdout == "file\n").await;
    for _ in 0..5 {
        let new = NewCommit { buffered: true, ..NewCommit::default() };
        let taken = service.commit(&alice(), &info.sandbox.id, new).await.unwrap();
        let tree = service.workspaces().store().restore(&taken.committed.snapshot.id).unwrap();
        let content = tree.read("file").unwrap();
        assert_eq!(content.len(), LEN);
        assert!(content.iter().all(|byte| *byte == content[0]), "it is mixed");
    }
    stop.store(true, Ordering::Relaxed);
    writing.await.unwrap();
}

async fn files_of_other_owners_do_not_exist(home: &TestHome) {
    let service = home.start().await;
    let info = create(&service).await;
    let (id, bob) = (info.sandbox.id.as_str(), Scope::Owner("bob".to_owned()));
    let file = path("/workspace/file");
    let content = Bytes::from_static(b"x");
    for outcome in [
        service.stat_file(&bob, id, &file, FOLLOW).await.map(drop),
        service.read_file(&bob, id, &file, 0, TO_THE_END).await.map(drop),
        service.write_file(&bob, id, &new_file("/workspace/file"), content).await.map(drop),
        service.file_batch(&bob, id, Vec::new()).await.map(drop),
        service.watch_files(&bob, id, &file, !RECURSIVE).await.map(drop),
        service.list_ports(&bob, id).await.map(drop),
        service.connect_port(&bob, id, 1).await.map(drop),
    ] {
        assert!(matches!(outcome, Err(SandboxError::NotFound { .. })), "{outcome:?}");
    }
}

//! File descriptors of the processes that serve a sandbox inside.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, and `create` creates a
//! sandbox of the owner `alice`.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use libtest_mimic::Trial;
use rustix::io::{FdFlags, fcntl_setfd};
use workspace_sandbox::Bytes;

use crate::files::{new_file, worker};
use crate::home::{TestHome, alice, create};
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![nothing_inside_inherits_files_of_the_server]
}

/// Returns the files that a process has open. `None` if this user may not see them.
fn open_files(pid: i32) -> Option<Vec<(i32, PathBuf)>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let file = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, std::fs::read_link(entry.path()).ok()?))
    };
    Some(entries.map(|entry| entry.unwrap()).filter_map(file).collect())
}

/// A program of the sandbox may take over a worker that is just starting.
async fn nothing_inside_inherits_files_of_the_server(home: &TestHome) {
    let path = home.path().join("inherited");
    let inherited = File::create(&path).unwrap();
    // Without close-on-exec, like a file that the parent of the server left open.
    fcntl_setfd(&inherited, FdFlags::empty()).unwrap();
    assert!(inherited.as_raw_fd() > 2);
    let service = home.start().await;
    let info = create(&service).await;
    let content = Bytes::from_static(b"content");
    service.write_file(&alice(), &info.sandbox.id, &new_file("/workspace/file"), content).await.unwrap();
    let worker = worker(home, &info).await.as_raw_nonzero().get();
    let agent = home.kind.pid(home.path(), &info.sandbox.id);
    for pid in [agent, worker] {
        let Some(files) = open_files(pid) else { return };
        assert!(files.iter().any(|(number, _)| *number == 0), "{files:?}");
        for (number, file) in &files {
            assert!(*file != path && !file.ends_with("data.mdb"), "{number} of {pid}: {file:?}");
            assert!(pid == agent || !file.starts_with(home.path()), "{number} of the worker: {file:?}");
        }
    }
    drop(inherited);
}

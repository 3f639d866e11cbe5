//! Writes of files while the disk of the sandbox is full.
//!
//! Helpers of `home.rs`: `TestHome` has the directory of a server and starts the service, and `sh` runs a shell command
//! in a sandbox and returns its result.

use libtest_mimic::Trial;
use workspace_sandbox::{
    Bytes, FileErrorKind, FileKind, FileOperation, NewSandbox, ResourceRequest, SandboxError, SandboxInfo,
    Service, TreeEntry,
};

use crate::files::{kind_of, new_file, noise, path};
use crate::home::{TestHome, alice, base, creator, sh};
use crate::snapshots::small_disk;
use crate::trials;

pub(crate) fn trials() -> Vec<Trial> {
    trials![nothing_is_written_to_a_full_workspace, nothing_is_written_to_a_full_directory_in_memory]
}

async fn nothing_is_written_to_a_full_workspace(home: &TestHome) {
    let Some(small) = small_disk(home, "size=48m") else { return };
    let change = |settings: &mut workspace_sandbox::Settings| {
        settings.workspaces_dir = small.join("workspaces");
        // The sandbox is not stopped.
        settings.disk_reserve_bytes = 0;
    };
    let service = home.start_with(change).await;
    let info = service.create(creator(), base()).await.unwrap();
    write_to_full(&service, &info, "/workspace").await;
}

async fn nothing_is_written_to_a_full_directory_in_memory(home: &TestHome) {
    let service = home.start().await;
    let resources = ResourceRequest { memory: Some(128 << 20), ..ResourceRequest::default() };
    let info = service.create(creator(), NewSandbox { resources, ..base() }).await.unwrap();
    write_to_full(&service, &info, "/home/sandbox").await;
}

/// Fills the disk of a directory, tries to write there, and frees the disk again.
async fn write_to_full(service: &Service, info: &SandboxInfo, directory: &str) {
    let id = info.sandbox.id.as_str();
    let at = |name: &str| format!("{directory}/d/{name}");
    let prepare = "mkdir d && printf old > d/file && printf old > d/other && { cat /dev/zero > fill 2>/dev/null; ls d; }";
    let ran = sh(service, info, &format!("cd {directory} && {prepare}")).await;
    assert_eq!(ran.stdout, "file\nother\n", "{ran:?}");
    let write = async |name: &str, len: usize| {
        service.write_file(&alice(), id, &new_file(&at(name)), Bytes::from(noise(len))).await
    };
    // In one message, and in pieces; over a file, and of a new one.
    for (name, len) in [("file", 10_000), ("new", 10_000), ("file", 3 << 20), ("new", 3 << 20)] {
        assert_eq!(kind_of(write(name, len).await), FileErrorKind::NoSpace, "{name} of {len} bytes");
    }
    let operations = vec![
        FileOperation::Chmod { path: path(&at("file")), mode: 0o600 },
        FileOperation::Write { file: new_file(&at("other")), content: Bytes::from(noise(10_000)) },
        FileOperation::Remove { path: path(&at("file")), recursive: false, force: false },
    ];
    let result = service.file_batch(&alice(), id, operations).await.unwrap();
    let failure = result.failure.unwrap();
    assert_eq!((result.completed, failure.kind), (1, FileErrorKind::NoSpace), "{failure}");
    assert_eq!(failure.path, at("other"));
    let copy = FileOperation::Copy {
        from: path(&format!("{directory}/fill")),
        to: path(&at("other")),
        replace: true,
        recursive: false,
    };
    let failure = service.file_batch(&alice(), id, vec![copy]).await.unwrap().failure.unwrap();
    assert_eq!(failure.kind, FileErrorKind::NoSpace, "{failure}");
    for len in [10_000, 3 << 20] {
        let failed = write_tree(service, id, &format!("{directory}/d"), noise(len)).await;
        assert_eq!(kind_of(failed), FileErrorKind::NoSpace, "a tree of {len} bytes");
    }
    let check = format!("cd {directory}; cat d/file d/other; ls -A d; rm fill");
    assert_eq!(sh(service, info, &check).await.stdout, "oldoldfile\nother\n");
    for len in [10_000, 3 << 20] {
        write("file", len).await.unwrap();
        write_tree(service, id, &format!("{directory}/d"), noise(len)).await.unwrap();
    }
    assert_eq!(sh(service, info, &format!("ls -A {directory}/d")).await.stdout, "file\nother\n");
}

/// Writes the file `other` of a directory as a tree.
async fn write_tree(service: &Service, id: &str, root: &str, content: Vec<u8>) -> Result<(), SandboxError> {
    let mkdirs = false;
    let mut writer = service.write_tree(&alice(), id, &path(root), mkdirs).await?;
    let header = TreeEntry::Header {
        path: b"other".to_vec(),
        kind: FileKind::File,
        mode: 0o644,
        mtime_ns: 0,
        target: Vec::new(),
        size: content.len() as u64,
    };
    writer.push(header).await?;
    for piece in content.chunks(100_000) {
        writer.push(TreeEntry::Content(Bytes::copy_from_slice(piece))).await?;
    }
    writer.finish().await
}

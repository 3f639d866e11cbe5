//! Copies files and directories into a sandbox and out of it, by the routes for files.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::thread::{self, JoinHandle};

use hyper::Method;
use tokio::sync::mpsc;
use workspace_api::files::{FileEntry, FileKind, TreeResult};
use workspace_state::{MemberPaths, Progress as _, unquote_path};

use super::Client;
use super::archive::{self, CopyError, SkippedEntries};
use super::copy::{ArchiveReader, ArchiveWriter, QUEUE_LENGTH, explain, has_own_error};
use super::files::{self, RemotePath};
use crate::error::{CommandError, Result, io_hint};
use crate::progress::Bars;
use crate::signals::Signals;

/// Thread that packs or unpacks an archive. It returns the entries that cannot be copied.
type ArchiveThread = JoinHandle<Result<SkippedEntries, CopyError>>;

/// Copies local files into one directory of a sandbox, under new names. Returns the entries that cannot be copied.
pub(crate) async fn put(
    client: &Client,
    sandbox: &str,
    directory: &RemotePath,
    sources: Vec<(PathBuf, String)>,
    progress: &Bars,
) -> Result<SkippedEntries> {
    let mut signals = Signals::new()?;
    let (sender, mut packed) = mpsc::channel(QUEUE_LENGTH);
    let packing = thread::spawn(move || archive::pack(&sources, ArchiveWriter::new(sender)));
    let (counted, receiver) = mpsc::channel(QUEUE_LENGTH);
    // Passes the pieces from the packing thread to the upload, and counts them for the progress bar.
    let count = async move {
        while let Some(piece) = packed.recv().await {
            progress.advance(piece.len() as u64);
            // The upload has ended.
            if counted.send(piece).await.is_err() {
                return;
            }
        }
    };
    let route = format!("{}?archive=tar", directory.route(sandbox, "files"));
    let upload =
        client.try_upload::<TreeResult>(&Method::PUT, &route, Box::new(ArchiveReader::new(receiver)));
    progress.begin_bytes("copying", None);
    let sent = {
        let (mut upload, mut count) = (pin!(upload), pin!(count));
        let mut is_counted = false;
        loop {
            tokio::select! {
                sent = &mut upload => break sent,
                () = &mut count, if !is_counted => is_counted = true,
                signal = signals.next() => return Err(CommandError::interrupted(signal)),
            }
        }
    };
    progress.end();
    finish(sent.map(|_| ()).map_err(|failure| client.explain(failure)), packing)
}

/// Copies a file or directory of a sandbox to a local path. Returns the entries that cannot be copied.
pub(crate) async fn get(
    client: &Client,
    sandbox: &str,
    (path, entry): (&RemotePath, &FileEntry),
    to: PathBuf,
    progress: &Bars,
) -> Result<SkippedEntries> {
    let mut signals = Signals::new()?;
    progress.begin_bytes("copying", None);
    let copied = async {
        match entry.kind {
            FileKind::File => {
                let advance = |bytes| progress.advance(bytes);
                files::get(client, sandbox, (path, entry), &to, advance).await?;
                Ok(SkippedEntries::default())
            }
            FileKind::Directory => {
                let route = format!("{}?archive=tar", path.route(sandbox, "files"));
                get_archive(client, &route, to, progress).await
            }
            FileKind::Symlink => {
                get_symlink(entry, &to)?;
                Ok(SkippedEntries::default())
            }
            FileKind::Special => {
                let paths = vec![PathBuf::from(path.quoted())];
                Ok(SkippedEntries { paths, unlisted: 0 })
            }
        }
    };
    let copied = tokio::select! {
        copied = copied => copied,
        signal = signals.next() => Err(CommandError::interrupted(signal)),
    };
    progress.end();
    copied
}

/// Unpacks the archive that a route returns into a local directory. Returns the entries that cannot be copied.
pub(crate) async fn get_archive(
    client: &Client,
    route: &str,
    to: PathBuf,
    progress: &Bars,
) -> Result<SkippedEntries> {
    let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
    // The members of the archive are named relative to `to`; their names do not begin with its name.
    let unpacking =
        thread::spawn(move || archive::unpack(ArchiveReader::new(receiver), &to, MemberPaths::Relative));
    // True if the unpacking thread ended early. Its own error is then reported.
    let mut was_stopped = false;
    let downloaded = files::download(client, route, async |data: &[u8]| {
        progress.advance(data.len() as u64);
        let sent = sender.send(data.to_vec()).await;
        was_stopped = sent.is_err();
        sent.map_err(|_| CommandError::failed("the archive could not be unpacked"))
    })
    .await;
    drop(sender);
    finish(if was_stopped { Ok(()) } else { downloaded }, unpacking)
}

/// Waits for the archive thread. Returns the entries that were not copied, or the error that ended the copy: that of
/// the transfer or that of the thread.
fn finish(transferred: Result<()>, archive_thread: ArchiveThread) -> Result<SkippedEntries> {
    let Ok(local_result) = archive_thread.join() else {
        return Err(CommandError::failed("the thread that packs or unpacks the archive panicked")
            .hint("this is a bug; part of the files may have been copied"));
    };
    match transferred {
        // An error that only follows from the other side's error is not reported.
        Err(error) if !has_own_error(&local_result) => Err(error),
        _ => local_result.map_err(explain),
    }
}

/// Creates a symlink like one in the sandbox. It replaces a file or another symlink, atomically.
fn get_symlink(entry: &FileEntry, to: &Path) -> Result<()> {
    let failed =
        |error: io::Error| CommandError::failed(format!("{}: {error}", to.display())).hint(io_hint(&error));
    let target = unquote_path(entry.target.as_deref().unwrap_or_default()).unwrap_or_default();
    if fs::symlink_metadata(to).is_ok_and(|metadata| metadata.is_dir()) {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let create = |path: &Path| std::os::unix::fs::symlink(OsStr::from_bytes(&target), path);
    let link = tempfile::Builder::new().make_in(directory, create).map_err(failed)?;
    link.into_temp_path().persist(to).map_err(|error| failed(error.error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symlink_entry(target: &str) -> FileEntry {
        FileEntry {
            path: "/workspace/link".to_owned(),
            kind: FileKind::Symlink,
            mode: "0777".to_owned(),
            size: 0,
            modified: "2026-01-01T00:00:00Z".to_owned(),
            etag: String::new(),
            uid: 0,
            gid: 0,
            target: Some(target.to_owned()),
        }
    }

    #[test]
    fn a_file_is_kept_if_it_cannot_be_replaced_by_a_symlink() {
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path().join("file");
        fs::write(&to, "content").unwrap();
        // No symlink has an empty target.
        assert!(get_symlink(&symlink_entry(""), &to).is_err());
        assert_eq!(fs::read_to_string(&to).unwrap(), "content");
        get_symlink(&symlink_entry("../a"), &to).unwrap();
        assert_eq!(fs::read_link(&to).unwrap(), Path::new("../a"));
        get_symlink(&symlink_entry("b"), &to).unwrap();
        assert_eq!(fs::read_link(&to).unwrap(), Path::new("b"));
        assert!(get_symlink(&symlink_entry("b"), directory.path()).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary files are left");
    }
}

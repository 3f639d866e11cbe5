//! Files of a sandbox on a server.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::header::HeaderName;
use tempfile::NamedTempFile;
use tokio::time::timeout;
use workspace_api::error_codes;
use workspace_api::files::{FileBatch, FileBatchResult, FileEntry, FileListing, FileOperation};
use workspace_state::{Timestamp, quote_path, unquote_path};

use super::percent::percent_encode;
use super::{Client, RequestError};
use crate::error::{CommandError, Result, io_hint};
use crate::time;

/// Directory in which relative paths start.
const WORKSPACE: &[u8] = b"/workspace/";
/// Time without a byte after which a download has failed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Mask of the mode bits that a local copy gets: no set-user-id, set-group-id and sticky bits.
const PERMISSION_MASK: u32 = 0o777;

/// Path of a file in a sandbox: absolute and without `..`. It need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemotePath(Vec<u8>);

impl RemotePath {
    /// Parses a path, which is below `/workspace` if it is relative. It may be quoted as `files ls` prints it.
    pub(crate) fn new(typed: &str) -> Result<Self> {
        let path = unquote_path(typed).ok_or_else(|| {
            CommandError::usage(format!("`{typed}` begins with a quote, but is not a quoted path"))
                .hint("write it as `workspace files ls` prints it, or begin it with `./`")
        })?;
        if path.split(|byte| *byte == b'/').any(|name| name == b"..") {
            return Err(CommandError::usage(format!("`{typed}` contains `..`"))
                .hint("use a path without `..`; relative paths start in /workspace"));
        }
        if path.starts_with(b"/") {
            Ok(Self(path.into_owned()))
        } else {
            Ok(Self([WORKSPACE, &path].concat()))
        }
    }

    /// Returns the path for messages and for JSON.
    pub(crate) fn quoted(&self) -> String {
        quote_path(&self.0).into_owned()
    }

    /// Returns the path as text; `None` if it is not UTF-8.
    pub(crate) fn as_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// Returns the last component.
    pub(crate) fn name(&self) -> &[u8] {
        let mut names = self.0.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        names.next_back().unwrap_or_default()
    }

    /// Returns the API path for this file; `kind` is the name of the route, such as `files` or `entries`.
    pub(crate) fn route(&self, sandbox: &str, kind: &str) -> String {
        let path = self.0.strip_prefix(b"/").unwrap_or(&self.0);
        let names: Vec<String> = path.split(|byte| *byte == b'/').map(percent_encode).collect();
        format!("/api/v1/sandboxes/{sandbox}/{kind}/{}", names.join("/"))
    }
}

/// Handling of a symlink at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtSymlink {
    /// Return the entry that the symlink points to.
    Follow,
    /// Return the symlink itself.
    Describe,
}

/// Returns the entry at a path; `None` if there is none.
pub(crate) async fn stat(
    client: &Client,
    sandbox: &str,
    path: &RemotePath,
    at_symlink: AtSymlink,
) -> Result<Option<FileEntry>, RequestError> {
    let follow = at_symlink == AtSymlink::Follow;
    let route = format!("{}?limit=1&follow={follow}", path.route(sandbox, "entries"));
    match client.try_get::<FileListing>(&route).await {
        Ok(listing) => Ok(Some(listing.entry)),
        Err(failure) if failure.is(error_codes::PATH_NOT_FOUND) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Receives the content at a route, and passes it to `take` piece by piece.
pub(crate) async fn download(
    client: &Client,
    route: &str,
    mut take: impl AsyncFnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let explain = |failure| client.explain(failure);
    let mut body = client.open(route, &[]).await.map_err(explain)?;
    loop {
        let stalled = |_| explain(RequestError::Disconnected("no byte arrived".to_owned()));
        let Some(frame) = timeout(IDLE_TIMEOUT, body.frame()).await.map_err(stalled)? else { return Ok(()) };
        let frame = frame.map_err(|error| explain(RequestError::Disconnected(error.to_string())))?;
        if let Ok(data) = frame.into_data() {
            take(&data).await?;
        }
    }
}

/// Copies a file to a local path, which is replaced when all content has arrived.
pub(crate) async fn get(
    client: &Client,
    sandbox: &str,
    (path, entry): (&RemotePath, &FileEntry),
    to: &Path,
    progress: impl Fn(u64),
) -> Result<()> {
    let failed =
        |error: io::Error| CommandError::failed(format!("{}: {error}", to.display())).hint(io_hint(&error));
    if fs::symlink_metadata(to).is_ok_and(|metadata| metadata.is_dir()) {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(directory).map_err(failed)?;
    download(client, &path.route(sandbox, "files"), async |data: &[u8]| {
        progress(data.len() as u64);
        file.write_all(data).map_err(failed)
    })
    .await?;
    set_attributes(file.as_file(), entry).map_err(failed)?;
    file.persist(to).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Gives a local file the permissions and the time of its original.
fn set_attributes(file: &File, entry: &FileEntry) -> io::Result<()> {
    let mode = u32::from_str_radix(&entry.mode, 8).unwrap_or(0o644) & PERMISSION_MASK;
    file.set_permissions(Permissions::from_mode(mode))?;
    match modified(entry) {
        Some(modified) => file.set_modified(modified),
        None => Ok(()),
    }
}

fn modified(entry: &FileEntry) -> Option<SystemTime> {
    // `now` matters only for ages and times without a UTC offset, which a server does not send.
    let Timestamp(nanoseconds) = time::parse(&entry.modified, &time::now())?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(u64::try_from(nanoseconds).ok()?))
}

/// Options of writing a file.
#[derive(Debug, Default)]
pub(crate) struct PutOptions {
    /// Permission bits in octal.
    pub(crate) mode: Option<String>,
    pub(crate) mkdirs: bool,
    /// Header with a condition on the present file, such as `If-Match`.
    pub(crate) condition: Option<(HeaderName, String)>,
}

/// Writes a file.
pub(crate) async fn put(
    client: &Client,
    sandbox: &str,
    path: &RemotePath,
    options: PutOptions,
    source: Box<dyn Read + Send>,
) -> Result<FileEntry> {
    let PutOptions { mode, mkdirs, condition } = options;
    let mode = mode.map(|mode| format!("&mode={mode}")).unwrap_or_default();
    let route = format!("{}?mkdirs={mkdirs}{mode}", path.route(sandbox, "files"));
    let sent = client.try_upload_with(&Method::PUT, &route, condition, source).await;
    sent.map_err(|failure| match failure.is(error_codes::PRECONDITION_FAILED) {
        true => CommandError::failed(format!("{} does not match the condition", path.quoted()))
            .hint("somebody changed or created it; read it again, and repeat your change"),
        false => client.explain(failure),
    })
}

/// Sends a batch of file operations. The result may have a failed operation.
pub(crate) async fn send_batch(client: &Client, sandbox: &str, batch: &FileBatch) -> Result<FileBatchResult> {
    client.post(&format!("/api/v1/sandboxes/{sandbox}/files"), batch).await
}

/// Performs file operations in order, up to the first that fails, which is an error.
pub(crate) async fn perform(client: &Client, sandbox: &str, operations: Vec<FileOperation>) -> Result<()> {
    let result = send_batch(client, sandbox, &FileBatch { operations }).await?;
    match result.failed {
        None => Ok(()),
        Some(failed) => {
            let error = failed.error;
            Err(CommandError::failed(error.message).hint(format!("docs/errors.md explains {}", error.name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_start_in_the_workspace_and_are_escaped() {
        for (typed, route) in [
            ("a/b c", "workspace/a/b%20c"),
            ("/etc/passwd", "etc/passwd"),
            ("/", ""),
            ("\"/tmp/\\377\\n\"", "tmp/%FF%0A"),
            ("a%2f?#", "workspace/a%252f%3F%23"),
        ] {
            let path = RemotePath::new(typed).unwrap();
            assert_eq!(
                path.route("sbx-1", "files"),
                format!("/api/v1/sandboxes/sbx-1/files/{route}"),
                "{typed}"
            );
        }
        for typed in ["..", "a/../b", "\"/a", "\"/a/..\""] {
            assert!(RemotePath::new(typed).is_err(), "{typed}");
        }
        assert_eq!(RemotePath::new("a/b/").unwrap().name(), b"b");
        assert_eq!(RemotePath::new("/").unwrap().name(), b"");
    }
}

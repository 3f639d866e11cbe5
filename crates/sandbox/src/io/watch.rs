//! Watching directories of a running sandbox.

use std::time::Duration;

use workspace_agent_protocol::v1;
use workspace_agent_protocol::v1::io_request::Operation;

use crate::error::Result;
use crate::io::channel::Channel;
use crate::io::path::FilePath;
use crate::io::worker::ChannelKind;
use crate::scope::Scope;
use crate::service::Service;

/// Maximum time until a directory is watched; a recursive watch reads all directories.
const WATCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChangeKind {
    /// An entry was created, or moved here from elsewhere.
    Created,
    /// Content was written.
    Modified,
    /// An entry was removed, or moved elsewhere.
    Removed,
    /// An entry was renamed inside the watched directory.
    Renamed,
    /// Permissions, owner, times or extended attributes changed.
    Attributes,
    /// Changes were lost: read the directory again.
    Dropped,
}

/// Change of a file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Kind of the change.
    pub kind: FileChangeKind,
    /// Path relative to the watched directory; empty for itself. It need not be UTF-8.
    pub path: Vec<u8>,
    /// Old path of a rename.
    pub from: Option<Vec<u8>>,
    /// True for a directory.
    pub is_directory: bool,
}

/// Watch of a directory or file. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch(Channel);

impl Service {
    /// Watches a directory, with `recursive` everything below it, or a file.
    pub async fn watch_files(
        &self,
        scope: &Scope,
        sandbox: &str,
        path: &FilePath,
        recursive: bool,
    ) -> Result<Watch> {
        let handle = self.find_running(scope, sandbox).await?;
        let operation = Operation::Watch(v1::WatchFiles { path: path.to_vec(), recursive });
        Ok(Watch(
            handle
                .io
                .open(
                    &handle.guest,
                    self.transfer_budget(&handle),
                    ChannelKind::Watch,
                    operation,
                    WATCH_TIMEOUT,
                )
                .await?,
        ))
    }
}

impl Watch {
    /// Waits for changes. `None` once the watched directory is removed.
    pub async fn next(&mut self) -> Result<Option<Vec<FileChange>>> {
        let frame = self.0.reader.receive_without_timeout().await?;
        Ok(frame.map(|frame| frame.changes.into_iter().filter_map(change).collect()))
    }
}

/// Converts a change that the worker reported; `None` for a kind that this server does not know.
fn change(change: v1::FileChange) -> Option<FileChange> {
    let kind = match change.kind() {
        v1::FileChangeKind::Created => FileChangeKind::Created,
        v1::FileChangeKind::Modified => FileChangeKind::Modified,
        v1::FileChangeKind::Removed => FileChangeKind::Removed,
        v1::FileChangeKind::Renamed => FileChangeKind::Renamed,
        v1::FileChangeKind::Attributes => FileChangeKind::Attributes,
        v1::FileChangeKind::Dropped => FileChangeKind::Dropped,
        v1::FileChangeKind::Unspecified => return None,
    };
    let from = (kind == FileChangeKind::Renamed).then_some(change.from);
    Some(FileChange { kind, path: change.path, from, is_directory: change.is_directory })
}

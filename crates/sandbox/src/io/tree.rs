//! Reading and writing whole directories of a running sandbox.

use std::sync::Arc;
use std::time::Duration;

use workspace_agent_protocol::Bytes;
use workspace_agent_protocol::v1::io_request::Operation;
use workspace_agent_protocol::v1::{self, IoFrame};

use crate::error::Result;
use crate::guest::handle::SandboxHandle;
use crate::io::channel::Channel;
use crate::io::files::{FileKind, kind_from, unexpected_reply};
use crate::io::lane::ENTRY_COST;
use crate::io::path::FilePath;
use crate::io::worker::ChannelKind;
use crate::scope::Scope;
use crate::service::Service;

/// Maximum time until the worker has opened a directory.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum cost of the entries of a frame, in bytes of credit.
const FRAME_COST_MAX: usize = 256 << 10;
/// Maximum number of entries in a frame.
const FRAME_ENTRIES_MAX: usize = 256;

/// Entry of a tree, or more content of the file before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeEntry {
    /// File, directory or symlink. The content of a file follows as [`TreeEntry::Content`].
    Header {
        /// Path relative to the tree. It need not be UTF-8.
        path: Vec<u8>,
        /// File, directory or symlink.
        kind: FileKind,
        /// Permissions.
        mode: u32,
        /// Modification time, in nanoseconds since 1970.
        mtime_ns: i64,
        /// Target of a symlink.
        target: Vec<u8>,
        /// Size of a file.
        size: u64,
    },
    /// Content of the file whose header came last.
    Content(Bytes),
}

/// Tree that is being read. Dropping it ends the transfer.
#[derive(Debug)]
pub struct TreeReader {
    handle: Arc<SandboxHandle>,
    channel: Channel,
}

/// Tree that is being written. Dropping it leaves the entries that were already written.
#[derive(Debug)]
pub struct TreeWriter {
    channel: Channel,
    /// Entries of the next frame.
    entries: Vec<v1::TreeEntry>,
    /// Cost of these entries, in bytes of credit.
    cost: usize,
}

impl Service {
    /// Reads a directory with its content, parents before children. Special files are left out.
    pub async fn read_tree(&self, scope: &Scope, sandbox: &str, path: &FilePath) -> Result<TreeReader> {
        let handle = self.find_running(scope, sandbox).await?;
        let operation = Operation::ReadTree(v1::ReadTree { path: path.to_vec() });
        let channel = handle
            .io
            .open(
                &handle.guest,
                self.transfer_budget(&handle),
                ChannelKind::Transfer,
                operation,
                OPEN_TIMEOUT,
            )
            .await?;
        Ok(TreeReader { handle, channel })
    }

    /// Writes entries into a directory, which is created, with `mkdirs` also its parents. Files that exist are
    /// replaced one by one; others stay.
    pub async fn write_tree(
        &self,
        scope: &Scope,
        sandbox: &str,
        path: &FilePath,
        mkdirs: bool,
    ) -> Result<TreeWriter> {
        let handle = self.find_running(scope, sandbox).await?;
        // A tree is written without shared access, which must not be held while a client is waited for. A snapshot may
        // contain a part of it; an automatic one then has a label that says so.
        handle.record_outside_changes();
        let operation = Operation::WriteTree(v1::WriteTree { path: path.to_vec(), mkdirs });
        let channel = handle
            .io
            .open(
                &handle.guest,
                self.transfer_budget(&handle),
                ChannelKind::Transfer,
                operation,
                OPEN_TIMEOUT,
            )
            .await?;
        Ok(TreeWriter { channel, entries: Vec::new(), cost: 0 })
    }
}

impl TreeReader {
    /// Returns the next entries; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Vec<TreeEntry>>> {
        let Some(frame) = self.channel.reader.receive().await? else { return Ok(None) };
        let mut entries = Vec::with_capacity(2 * frame.entries.len());
        for entry in frame.entries {
            if !entry.path.is_empty() {
                let kind = kind_from(entry.kind()).ok_or_else(|| unexpected_reply(&self.handle))?;
                entries.push(TreeEntry::Header {
                    kind,
                    path: entry.path,
                    mode: entry.mode & 0o7777,
                    mtime_ns: entry.mtime_ns,
                    target: entry.target,
                    size: entry.size,
                });
            }
            if !entry.data.is_empty() {
                entries.push(TreeEntry::Content(entry.data));
            }
        }
        Ok(Some(entries))
    }
}

impl TreeWriter {
    /// Adds an entry, as fast as the sandbox accepts them.
    pub async fn push(&mut self, entry: TreeEntry) -> Result<()> {
        match entry {
            TreeEntry::Header { path, kind, mode, mtime_ns, target, size } => {
                let kind = match kind {
                    FileKind::File => v1::FileKind::File,
                    FileKind::Directory => v1::FileKind::Directory,
                    FileKind::Symlink => v1::FileKind::Symlink,
                    FileKind::Special => v1::FileKind::Special,
                };
                let header = v1::TreeEntry { path, mode, mtime_ns, target, size, ..v1::TreeEntry::default() };
                self.add(v1::TreeEntry { kind: kind.into(), ..header }).await
            }
            TreeEntry::Content(mut data) => {
                while !data.is_empty() {
                    let piece = data.split_to(data.len().min(FRAME_COST_MAX / 2));
                    self.add(v1::TreeEntry { data: piece, ..v1::TreeEntry::default() }).await?;
                }
                Ok(())
            }
        }
    }

    async fn add(&mut self, entry: v1::TreeEntry) -> Result<()> {
        let cost = ENTRY_COST + entry.path.len() + entry.target.len() + entry.data.len();
        if self.cost + cost > FRAME_COST_MAX || self.entries.len() == FRAME_ENTRIES_MAX {
            self.flush().await?;
        }
        self.cost += cost;
        self.entries.push(entry);
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        let entries = std::mem::take(&mut self.entries);
        self.cost = 0;
        if entries.is_empty() {
            return Ok(());
        }
        let Channel { reader, writer, .. } = &mut self.channel;
        tokio::select! {
            sent = writer.send_frame(IoFrame { entries, ..IoFrame::default() }) => sent,
            // Without a timeout, since the worker sends nothing before the end unless it fails.
            failed = reader.receive_without_timeout() => failed.map(drop),
        }
    }

    /// Waits until everything is written and on disk.
    pub async fn finish(mut self) -> Result<()> {
        self.flush().await?;
        self.channel.writer.end().await?;
        while self.channel.reader.receive().await?.is_some() {}
        Ok(())
    }
}

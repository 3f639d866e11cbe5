//! Reading, writing and listing files of a running sandbox.

use std::sync::Arc;
use std::time::Duration;

use workspace_agent_protocol::Bytes;
use workspace_agent_protocol::v1::io_reply::Result as Reply;
use workspace_agent_protocol::v1::io_request::Operation;
use workspace_agent_protocol::v1::{self, IoReply};

use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::io::channel::{Channel, ChannelReader};
use crate::io::error::FileError;
use crate::io::memory::OwnerBudget;
use crate::io::path::FilePath;
use crate::io::worker::ChannelKind;
use crate::scope::Scope;
use crate::service::Service;

/// Maximum time of an operation on one file.
const FILE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time of a listing or a batch, which may remove or copy large directories.
const BATCH_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of content that is part of a request, in bytes.
const INLINE_MAX: usize = 64 << 10;
/// Maximum number of requests to the worker for one listing. A reply may have fewer entries than were requested.
const LISTING_REQUESTS_MAX: usize = 64;

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symlink.
    Symlink,
    /// FIFO, socket or device.
    Special,
}

/// File or directory in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Absolute path; in a listing, the path relative to its directory. It need not be UTF-8.
    pub path: Vec<u8>,
    /// Kind of the entry.
    pub kind: FileKind,
    /// Permissions, without the type.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Target of a symlink. It need not be UTF-8.
    pub target: Vec<u8>,
    /// User id inside the sandbox.
    pub uid: u32,
    /// Group id inside the sandbox.
    pub gid: u32,
    /// Value that differs whenever the file was replaced or changed.
    pub fingerprint: Fingerprint,
}

/// Value of a file that differs whenever the file was replaced or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    inode: u64,
    size: u64,
    /// Modification time in nanoseconds since 1970.
    mtime_ns: i64,
    /// Time of the last change of the inode, in nanoseconds since 1970.
    ctime_ns: i64,
}

impl Fingerprint {
    /// Parses the text of a fingerprint; `None` if it is not valid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('-').map(|number| u64::from_str_radix(number, 16).ok());
        let mut next = || numbers.next().flatten();
        let (inode, size, mtime_ns, ctime_ns) =
            (next()?, next()?, next()?.cast_signed(), next()?.cast_signed());
        numbers.next().is_none().then_some(Self { inode, size, mtime_ns, ctime_ns })
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { inode, size, mtime_ns, ctime_ns } = self;
        write!(formatter, "{inode:x}-{size:x}-{:x}-{:x}", mtime_ns.cast_unsigned(), ctime_ns.cast_unsigned())
    }
}

/// Page of the entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileListing {
    /// Directory itself.
    pub directory: FileEntry,
    /// Entries in the order of their paths.
    pub entries: Vec<FileEntry>,
    /// Number of all entries, including those on other pages.
    pub total: u64,
}

/// Condition on the present file for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileCondition {
    /// There is a file.
    Exists,
    /// There is no file.
    Absent,
    /// The file has this fingerprint.
    Unchanged(Fingerprint),
}

/// File to write.
#[derive(Debug, Clone)]
pub struct NewFile {
    /// Path of the file. A symlink is followed.
    pub path: FilePath,
    /// Permissions; `None` for those of the present file, or 0644.
    pub mode: Option<u32>,
    /// True if missing parent directories are created.
    pub mkdirs: bool,
    /// Condition on the present file; `None` to write in any case.
    pub condition: Option<FileCondition>,
}

/// Operation of a batch.
#[derive(Debug, Clone)]
pub enum FileOperation {
    /// Creates a directory.
    Mkdir {
        /// Path of the directory.
        path: FilePath,
        /// Permissions; `None` for 0755.
        mode: Option<u32>,
        /// True if missing parents are created, and an existing directory is no error.
        parents: bool,
    },
    /// Renames a file or directory.
    Move {
        /// Present path.
        from: FilePath,
        /// New path.
        to: FilePath,
        /// True if a file at the new path is replaced.
        replace: bool,
    },
    /// Copies a file or directory.
    Copy {
        /// Path of the original.
        from: FilePath,
        /// Path of the copy.
        to: FilePath,
        /// True if a file at the path of the copy is replaced.
        replace: bool,
        /// True if a directory is copied, with its content.
        recursive: bool,
    },
    /// Changes the permissions of a file or directory.
    Chmod {
        /// Path of the file or directory.
        path: FilePath,
        /// New permissions.
        mode: u32,
    },
    /// Removes a file or directory.
    Remove {
        /// Path to remove.
        path: FilePath,
        /// True if a directory is removed even if it is not empty.
        recursive: bool,
        /// True if a missing path is no error.
        force: bool,
    },
    /// Writes a file.
    Write {
        /// File to write.
        file: NewFile,
        /// Its content.
        content: Bytes,
    },
}

/// Result of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchResult {
    /// Number of operations that succeeded.
    pub completed: usize,
    /// Failure of the operation after these; the rest was not attempted.
    pub failure: Option<FileError>,
}

/// Content of a file that is being read. Dropping it ends the transfer.
#[derive(Debug)]
pub struct FileRead {
    /// File, as it was when it was opened.
    pub entry: FileEntry,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// Content of a small file, which the reply contained; `None` once it was returned.
    Whole(Option<Bytes>),
    /// Content that the worker sends in frames.
    Frames(ChannelReader),
}

impl FileRead {
    /// Returns the next piece of content; `None` at the end of the file.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        match &mut self.content {
            Content::Whole(content) => Ok(content.take().filter(|content| !content.is_empty())),
            Content::Frames(reader) => Ok(reader.receive().await?.map(|frame| frame.data)),
        }
    }
}

/// File whose content is being written. Dropping it leaves the present file as it is.
#[derive(Debug)]
pub struct FileWrite {
    service: Service,
    handle: Arc<SandboxHandle>,
    channel: Channel,
}

impl Service {
    /// Returns the entry at a path. Symlinks are followed; with `follow` false, a symlink in the last component is not.
    pub async fn stat_file(
        &self,
        scope: &Scope,
        sandbox: &str,
        path: &FilePath,
        follow: bool,
    ) -> Result<FileEntry> {
        let handle = self.find_running(scope, sandbox).await?;
        let operation = Operation::Stat(v1::StatFile { path: path.to_vec(), no_follow: !follow });
        let reply = handle.io.call(&handle.guest, operation, FILE_TIMEOUT).await?;
        entry_of_reply(&handle, reply)
    }

    /// Lists a directory down to `depth` levels: `limit` entries after the first `skip`, in the order of their paths.
    pub async fn list_files(
        &self,
        scope: &Scope,
        sandbox: &str,
        path: &FilePath,
        depth: u32,
        (skip, limit): (u64, u32),
    ) -> Result<FileListing> {
        let handle = self.find_running(scope, sandbox).await?;
        let (first, after) = list(&handle, path, depth, (skip, limit), Vec::new()).await?;
        let mut listing = PartialListing::new(first, after, (skip, limit));
        // A reply has a limited size, so the remaining entries are requested separately.
        for _ in 1..LISTING_REQUESTS_MAX {
            let Some(rest) = listing.missing() else { break };
            let (more, after) = list(&handle, path, depth, rest, listing.position.last.clone()).await?;
            listing.add(more, after);
        }
        Ok(listing.listing)
    }

    /// Reads a file from `offset`, `length` bytes or to its end.
    pub async fn read_file(
        &self,
        scope: &Scope,
        sandbox: &str,
        path: &FilePath,
        offset: u64,
        length: Option<u64>,
    ) -> Result<FileRead> {
        let handle = self.find_running(scope, sandbox).await?;
        let length = length.unwrap_or_default();
        let operation = Operation::Read(v1::ReadFile { path: path.to_vec(), offset, length });
        let channel = handle
            .io
            .open(
                &handle.guest,
                self.transfer_budget(&handle),
                ChannelKind::Transfer,
                operation,
                FILE_TIMEOUT,
            )
            .await?;
        let Channel { mut reply, reader, .. } = channel;
        let content = match reply.content.take() {
            Some(content) => Content::Whole(Some(content)),
            None => Content::Frames(reader),
        };
        Ok(FileRead { entry: entry_of_reply(&handle, reply)?, content })
    }

    /// Writes a file whose content is in memory; a small one in one request. The file has its old or its new content at
    /// any time, and the new content is on disk when this returns.
    pub async fn write_file(
        &self,
        scope: &Scope,
        sandbox: &str,
        file: &NewFile,
        content: Bytes,
    ) -> Result<FileEntry> {
        if content.len() > INLINE_MAX {
            let mut write = self.start_write(scope, sandbox, file).await?;
            write.append(content).await?;
            return write.finish().await;
        }
        let handle = self.find_running(scope, sandbox).await?;
        let memory = self.transfer_budget(&handle).reserve(content.len())?;
        let operation = Operation::Write(write_request(file, Some(content)));
        let _access = self.shared_access(&handle.id).await?;
        let reply = handle.io.call_counted(&handle.guest, operation, FILE_TIMEOUT, memory).await?;
        entry_of_reply(&handle, reply)
    }

    /// Starts writing a file of any size.
    pub async fn start_write(&self, scope: &Scope, sandbox: &str, file: &NewFile) -> Result<FileWrite> {
        let handle = self.find_running(scope, sandbox).await?;
        let operation = Operation::Write(write_request(file, None));
        let channel = handle
            .io
            .open(
                &handle.guest,
                self.transfer_budget(&handle),
                ChannelKind::Transfer,
                operation,
                FILE_TIMEOUT,
            )
            .await?;
        Ok(FileWrite { service: self.clone(), handle, channel })
    }

    /// Returns the budget for transfers of the owner of a sandbox.
    pub(crate) fn transfer_budget<'a>(&'a self, handle: &'a SandboxHandle) -> OwnerBudget<'a> {
        // Only sandboxes with an owner get requests.
        let owner = handle.owner().unwrap_or_default();
        OwnerBudget::new(self.0.settings.transfer_memory.as_deref(), owner)
    }

    /// Performs operations in order, up to the first that fails. No commit happens in between.
    pub async fn file_batch(
        &self,
        scope: &Scope,
        sandbox: &str,
        operations: Vec<FileOperation>,
    ) -> Result<BatchResult> {
        let handle = self.find_running(scope, sandbox).await?;
        let memory = self.transfer_budget(&handle).reserve(operations.iter().map(size_of_operation).sum())?;
        let operations = operations.into_iter().map(operation_message).collect();
        let batch = Operation::Batch(v1::FileBatch { operations });
        // A snapshot contains all of a batch or nothing.
        let _access = self.shared_access(&handle.id).await?;
        let reply = handle.io.call_counted(&handle.guest, batch, BATCH_TIMEOUT, memory).await?;
        match reply.result {
            Some(Reply::Batch(result)) => Ok(BatchResult {
                completed: result.completed as usize,
                failure: result.failure.as_ref().map(FileError::of),
            }),
            _ => Err(unexpected_reply(&handle)),
        }
    }
}

impl FileWrite {
    /// Appends content, as fast as the sandbox accepts it.
    pub async fn append(&mut self, content: Bytes) -> Result<()> {
        let Channel { reader, writer, .. } = &mut self.channel;
        tokio::select! {
            sent = writer.send(content) => sent,
            // Before the end, the worker only reports that it failed.
            failed = reader.receive_without_timeout() => Err(failed.err().unwrap_or_else(|| unexpected_reply(&self.handle))),
        }
    }

    /// Replaces the present file after the new content is on disk. Returns the new entry.
    pub async fn finish(mut self) -> Result<FileEntry> {
        self.channel.writer.end().await?;
        while self.channel.reader.receive().await?.is_some() {}
        let _access = self.service.shared_access(&self.handle.id).await?;
        let publish = Operation::Publish(v1::PublishFile { write: self.channel.writer.id() });
        // The guest keeps a written file on the lane that its content was sent on.
        let reply = self.handle.io.call_bulk(&self.handle.guest, publish, FILE_TIMEOUT).await?;
        entry_of_reply(&self.handle, reply)
    }
}

/// Position in a directory after the entries of a reply.
struct ListPosition {
    /// Number of the next entry. Entries that cannot be examined are not in the listing, but count.
    next: u64,
    /// Path of the last entry that was examined, after which the next reply begins. Empty for older guests, which begin
    /// with the entry of the number `next`.
    last: Vec<u8>,
}

/// Listing of which not all entries have been received.
struct PartialListing {
    listing: FileListing,
    /// Position after the last received entry.
    position: ListPosition,
    /// Position after the last requested entry.
    end: u64,
}

impl PartialListing {
    /// Starts with the first reply to a request for `limit` entries after the first `skip`, and the position after it.
    fn new(listing: FileListing, position: ListPosition, (skip, limit): (u64, u32)) -> Self {
        let end = listing.total.min(skip.saturating_add(limit.into()));
        Self { listing, position, end }
    }

    /// Returns how many entries to skip, and the number of the missing entries; `None` if there are none.
    fn missing(&self) -> Option<(u64, u32)> {
        let count = self.end.checked_sub(self.position.next).filter(|count| *count > 0)?;
        Some((self.position.next, u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// Adds the reply to a request for the missing entries, and the position after it.
    fn add(&mut self, more: FileListing, position: ListPosition) {
        // Otherwise entries were removed meanwhile, and there are no more.
        self.end = if position.next > self.position.next { self.end } else { self.position.next };
        self.position = position;
        self.listing.entries.extend(more.entries);
    }
}

/// Requests entries of a directory from the worker: those after the path `after`, or, if it is empty, after the first
/// `skip`. Returns those that fit into a reply, and the position after them.
async fn list(
    handle: &SandboxHandle,
    path: &FilePath,
    depth: u32,
    (skip, limit): (u64, u32),
    after: Vec<u8>,
) -> Result<(FileListing, ListPosition)> {
    let operation = Operation::List(v1::ListFiles { path: path.to_vec(), depth, skip, limit, after });
    let reply = handle.io.call(&handle.guest, operation, BATCH_TIMEOUT).await?;
    let Some(Reply::Listing(listing)) = reply.result else { return Err(unexpected_reply(handle)) };
    let v1::FileListing { directory: Some(directory), mut entries, total, next, last } = listing else {
        return Err(unexpected_reply(handle));
    };
    entries.truncate(limit as usize);
    // An older worker does not send the position. A worker could send any.
    let next = next.clamp(skip.saturating_add(entries.len() as u64), skip.saturating_add(limit.into()));
    let entries = entries.into_iter().map(|entry| entry_of_message(handle, entry)).collect::<Result<_>>()?;
    Ok((
        FileListing { directory: entry_of_message(handle, directory)?, entries, total },
        ListPosition { next, last },
    ))
}

/// Returns the error of a reply that does not fit the request.
pub(crate) fn unexpected_reply(handle: &SandboxHandle) -> SandboxError {
    handle.guest.lost_error("its I/O worker sent an unexpected reply")
}

fn entry_of_reply(handle: &SandboxHandle, reply: IoReply) -> Result<FileEntry> {
    match reply.result {
        Some(Reply::Entry(entry)) => entry_of_message(handle, entry),
        _ => Err(unexpected_reply(handle)),
    }
}

fn entry_of_message(handle: &SandboxHandle, entry: v1::FileEntry) -> Result<FileEntry> {
    let kind = kind_from(entry.kind()).ok_or_else(|| unexpected_reply(handle))?;
    let v1::FileEntry { path, mode, size, mtime_ns, ctime_ns, inode, target, uid, gid, .. } = entry;
    let fingerprint = Fingerprint { inode, size, mtime_ns, ctime_ns };
    Ok(FileEntry { path, kind, mode: mode & 0o7777, size, mtime_ns, target, uid, gid, fingerprint })
}

pub(crate) fn kind_from(kind: v1::FileKind) -> Option<FileKind> {
    match kind {
        v1::FileKind::File => Some(FileKind::File),
        v1::FileKind::Directory => Some(FileKind::Directory),
        v1::FileKind::Symlink => Some(FileKind::Symlink),
        v1::FileKind::Special => Some(FileKind::Special),
        v1::FileKind::Unspecified => None,
    }
}

fn write_request(file: &NewFile, content: Option<Bytes>) -> v1::WriteFile {
    let condition = file.condition.map(|condition| match condition {
        FileCondition::Exists => v1::file_condition::Condition::Exists(true),
        FileCondition::Absent => v1::file_condition::Condition::Absent(true),
        FileCondition::Unchanged(Fingerprint { inode, size, mtime_ns, ctime_ns }) => {
            let fingerprint = v1::FileFingerprint { inode, size, mtime_ns, ctime_ns };
            v1::file_condition::Condition::Fingerprint(fingerprint)
        }
    });
    v1::WriteFile {
        path: file.path.to_vec(),
        mode: file.mode,
        mkdirs: file.mkdirs,
        condition: condition.map(|condition| v1::FileCondition { condition: Some(condition) }),
        content,
    }
}

/// Returns the number of bytes of an operation that count for the memory budget: its content and paths.
fn size_of_operation(operation: &FileOperation) -> usize {
    match operation {
        FileOperation::Write { file, content } => file.path.as_bytes().len() + content.len(),
        FileOperation::Move { from, to, .. } | FileOperation::Copy { from, to, .. } => {
            from.as_bytes().len() + to.as_bytes().len()
        }
        FileOperation::Mkdir { path, .. }
        | FileOperation::Chmod { path, .. }
        | FileOperation::Remove { path, .. } => path.as_bytes().len(),
    }
}

fn operation_message(operation: FileOperation) -> v1::FileOperation {
    use workspace_agent_protocol::v1::file_operation::Operation;
    let operation = match operation {
        FileOperation::Mkdir { path, mode, parents } => {
            Operation::Mkdir(v1::MakeDirectory { path: path.to_vec(), mode, parents })
        }
        FileOperation::Move { from, to, replace } => {
            Operation::Move(v1::MovePath { from: from.to_vec(), to: to.to_vec(), replace })
        }
        FileOperation::Copy { from, to, replace, recursive } => {
            Operation::Copy(v1::CopyPath { from: from.to_vec(), to: to.to_vec(), replace, recursive })
        }
        FileOperation::Chmod { path, mode } => Operation::Chmod(v1::ChangeMode { path: path.to_vec(), mode }),
        FileOperation::Remove { path, recursive, force } => {
            Operation::Remove(v1::RemovePath { path: path.to_vec(), recursive, force })
        }
        FileOperation::Write { file, content } => Operation::Write(write_request(&file, Some(content))),
    };
    v1::FileOperation { operation: Some(operation) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: u64) -> FileEntry {
        let fingerprint = Fingerprint { inode: 1, size: 0, mtime_ns: 0, ctime_ns: 0 };
        let path = path.to_string().into_bytes();
        let (kind, target) = (FileKind::File, Vec::new());
        FileEntry { path, kind, mode: 0o644, size: 0, mtime_ns: 0, target, uid: 0, gid: 0, fingerprint }
    }

    fn position(next: u64) -> ListPosition {
        ListPosition { next, last: Vec::new() }
    }

    /// Returns entries like a worker whose replies have at most 4 of them, and which cannot examine those from 3 to 9.
    fn reply(skip: u64, limit: u32) -> (FileListing, ListPosition) {
        let (mut entries, mut next) = (Vec::new(), skip);
        while next < 20.min(skip + u64::from(limit)) && entries.len() < 4 {
            entries.extend((!(3..10).contains(&next)).then(|| entry(next)));
            next += 1;
        }
        (FileListing { directory: entry(100), entries, total: 20 }, position(next))
    }

    #[test]
    fn listing_has_each_entry_once_although_some_cannot_be_examined() {
        let (first, next) = reply(1, 15);
        let mut listing = PartialListing::new(first, next, (1, 15));
        assert_eq!(listing.missing(), Some((12, 4)));
        let (more, next) = reply(12, 4);
        listing.add(more, next);
        assert_eq!(listing.missing(), None);
        assert_eq!(listing.listing.entries, [1, 2, 10, 11, 12, 13, 14, 15].map(entry));
    }

    #[test]
    fn listing_ends_if_the_worker_makes_no_progress() {
        let nothing = || FileListing { directory: entry(100), entries: Vec::new(), total: 20 };
        let mut listing = PartialListing::new(nothing(), position(0), (0, 20));
        assert_eq!(listing.missing(), Some((0, 20)));
        listing.add(nothing(), position(0));
        assert_eq!(listing.missing(), None);
    }

    #[test]
    fn fingerprints_round_trip() {
        let fingerprint = Fingerprint { inode: 1, size: u64::MAX, mtime_ns: -1, ctime_ns: 17 };
        assert_eq!(Fingerprint::parse(&fingerprint.to_string()), Some(fingerprint));
        for text in ["", "1", "1-2-3", "1-2-3-4-5", "1-2-3-x", "1-2-3-11111111111111111"] {
            assert_eq!(Fingerprint::parse(text), None, "{text}");
        }
    }
}

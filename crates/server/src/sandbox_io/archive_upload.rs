//! Tar archives that are written into a directory of a sandbox, member by member.
//!
//! The body is forwarded to a thread that reads the archive, which sends its entries on to the I/O worker. Each of
//! these has a queue of limited size, so that the slowest sets the pace.

use std::collections::BTreeMap;

use axum::body::{Body, Bytes};
use http_body::Body as _;
use tokio::sync::mpsc;
use workspace_api::error_codes;
use workspace_api::files::TreeResult;
use workspace_catalog::now;
use workspace_sandbox::{FileKind, FilePath, SandboxError, Scope, TreeEntry, TreeWriter};
use workspace_state::{
    ArchiveError, ArchiveLimits, Cancel, Cancelled, TarMember, TarMemberKind, TarReader, Timestamp,
};

use super::location::FileLocation;
use super::upload::discard;
use crate::app::App;
use crate::archive_body::{
    BodyReader, LimitedReader, QUEUE_MAX, decompress, forward, import_error, too_large, too_slow,
};
use crate::error::ApiError;
use crate::owner_memory::ImportMemory;
use crate::store::blocking;

/// Maximum number of members of an archive.
const MEMBERS_MAX: u64 = 1_000_000;
/// Maximum size of the names in an archive in bytes.
const METADATA_MAX: u64 = 256 << 20;
/// Maximum number of batches of entries in the queue to the worker, and the approximate size of one in bytes.
const BATCHES_MAX: usize = 2;
const BATCH_BYTES: usize = 256 << 10;
/// Approximate size of an entry besides its names and content in bytes.
const ENTRY_BYTES: usize = 256;
/// Nanoseconds of a millisecond.
const NANOS_PER_MILLI: i64 = 1_000_000;

/// Directory that an archive is written into.
#[derive(Clone, Copy)]
pub(super) struct TargetDirectory<'a> {
    pub(super) scope: &'a Scope,
    pub(super) location: &'a FileLocation,
    /// True if missing parents of the directory are created, too.
    pub(super) mkdirs: bool,
    /// True if the client sends the body only after the server has begun to read it (`Expect: 100-continue`).
    pub(super) expects_continue: bool,
}

/// Writes an archive of at most `max` bytes into a directory. An error, also of the connection, leaves the files that
/// were already written.
pub(super) async fn receive(
    app: &App,
    owner: &str,
    target: TargetDirectory<'_>,
    body: Body,
    max: u64,
) -> Result<TreeResult, ApiError> {
    // If the length is known, an archive that is too large is refused before it is received.
    if body.size_hint().exact().is_some_and(|length| length > max) {
        return Err(too_large(max));
    }
    let FileLocation { sandbox, path } = target.location;
    let writer = match app.sandboxes.write_tree(target.scope, sandbox, path, target.mkdirs).await {
        Ok(writer) => writer,
        Err(error) => {
            if !target.expects_continue {
                discard(&mut body.into_data_stream()).await;
            }
            return Err(error.into());
        }
    };
    let (pieces, received_pieces) = mpsc::channel(QUEUE_MAX);
    let (entries, received_entries) = mpsc::channel(BATCHES_MAX);
    let cancel = app.shutdown.cancel().child();
    let cancel_guard = cancel.drop_guard();
    let reading = ArchiveThread {
        body: BodyReader::new(received_pieces),
        max,
        limits: ArchiveLimits {
            bytes: app.settings.max_upload_expanded.0,
            entries: MEMBERS_MAX,
            metadata: METADATA_MAX,
        },
        memory: app.upload_memory.reserve(owner).into(),
        cancel,
        entries: Batches { sender: entries, batch: Vec::new(), bytes: 0 },
    };
    let forwarding = tokio::time::timeout(app.settings.upload_timeout, forward(body, pieces, max));
    let (read, forwarded, pushed) =
        tokio::join!(blocking(move || reading.run()), forwarding, send_entries(writer, received_entries));
    cancel_guard.disarm();
    // Errors of the sandbox and of the body are returned first, because they also cause an error of the archive.
    let writer = pushed?;
    forwarded.unwrap_or_else(|_| Err(too_slow().detail("setting", "UPLOAD_TIMEOUT")))?;
    let Summary { mut result, links } = read?;
    writer.finish().await?;
    result.bytes += write_links(app, target, links).await?;
    Ok(result)
}

/// Sends entries to the worker as they come. Returns the writer without finishing it, because the archive may be
/// incomplete.
async fn send_entries(
    mut writer: TreeWriter,
    mut entries: mpsc::Receiver<Vec<TreeEntry>>,
) -> Result<TreeWriter, SandboxError> {
    while let Some(batch) = entries.recv().await {
        for entry in batch {
            writer.push(entry).await?;
        }
    }
    Ok(writer)
}

/// Hard link, which is written as a copy after all files.
struct Link {
    /// Path of the file in the archive.
    target: Vec<u8>,
    mode: u16,
    modified: Option<Timestamp>,
}

/// Archive that was read to its end.
struct Summary {
    result: TreeResult,
    /// Hard links by their paths.
    links: BTreeMap<Vec<u8>, Link>,
}

/// Reader of the archive, in a thread.
struct ArchiveThread {
    body: BodyReader,
    max: u64,
    limits: ArchiveLimits,
    memory: ImportMemory,
    cancel: Cancel,
    entries: Batches,
}

impl ArchiveThread {
    fn run(self) -> Result<Summary, ApiError> {
        let Self { body, max, limits, memory, cancel, mut entries } = self;
        let read_error = |source| import_error(ArchiveError::Read { source });
        let mut archive = LimitedReader::new(decompress(body).map_err(read_error)?, max);
        let mut reader = TarReader::new(&mut archive, limits, Some(&memory), cancel);
        let summary = read_members(&mut reader, &mut entries).map_err(import_error)?;
        entries.flush().map_err(import_error)?;
        Ok(summary)
    }
}

/// Sends all members of an archive to the worker, except hard links.
fn read_members(reader: &mut TarReader<'_>, entries: &mut Batches) -> Result<Summary, ArchiveError> {
    let mut result = TreeResult { files: 0, bytes: 0, skipped: 0 };
    let mut links: BTreeMap<Vec<u8>, Link> = BTreeMap::new();
    while let Some(TarMember { path, kind, mode, modified }) = reader.next_member()? {
        if let TarMemberKind::HardLink { target } = kind {
            // A link to a link is a link to its file.
            let target = links.get(&target).map_or(target, |link| link.target.clone());
            result.files += 1;
            links.insert(path, Link { target, mode, modified });
            continue;
        }
        // The last member of a path wins.
        if links.remove(&path).is_some() {
            result.files -= 1;
        }
        let (kind, target, size) = match kind {
            TarMemberKind::File { size } => (FileKind::File, Vec::new(), size),
            TarMemberKind::Symlink { target } => (FileKind::Symlink, target, 0),
            // Hard links were handled above.
            TarMemberKind::Directory | TarMemberKind::HardLink { .. } => (FileKind::Directory, Vec::new(), 0),
        };
        if kind == FileKind::File {
            result.files += 1;
            result.bytes += size;
        }
        entries.push(header(path, kind, mode, modified, target, size))?;
        reader.read_content(|data| entries.push(TreeEntry::Content(Bytes::copy_from_slice(data))))?;
    }
    result.skipped = reader.skipped();
    Ok(Summary { result, links })
}

fn header(
    path: Vec<u8>,
    kind: FileKind,
    mode: u16,
    modified: Option<Timestamp>,
    target: Vec<u8>,
    size: u64,
) -> TreeEntry {
    let mtime_ns = modified.map_or_else(|| now().saturating_mul(NANOS_PER_MILLI), |time| time.0);
    TreeEntry::Header { path, kind, mode: mode.into(), mtime_ns, target, size }
}

/// Entries on their way to the worker.
struct Batches {
    sender: mpsc::Sender<Vec<TreeEntry>>,
    batch: Vec<TreeEntry>,
    bytes: usize,
}

impl Batches {
    /// Adds an entry. Blocks while the queue is full, and fails if the receiver was dropped.
    fn push(&mut self, entry: TreeEntry) -> Result<(), ArchiveError> {
        self.bytes += match &entry {
            TreeEntry::Header { path, target, .. } => ENTRY_BYTES + path.len() + target.len(),
            TreeEntry::Content(data) => data.len(),
        };
        self.batch.push(entry);
        if self.bytes < BATCH_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), ArchiveError> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.sender.blocking_send(batch).map_err(|_| Cancelled.into())
    }
}

/// Writes hard links as copies of their files. The worker has no hard links, and resolves no path of an archive
/// through a symlink. Returns the size of the copies in bytes.
async fn write_links(
    app: &App,
    target: TargetDirectory<'_>,
    links: BTreeMap<Vec<u8>, Link>,
) -> Result<u64, ApiError> {
    if links.is_empty() {
        return Ok(0);
    }
    let FileLocation { sandbox, path: root } = target.location;
    let creates_parents = false;
    let mut writer = app.sandboxes.write_tree(target.scope, sandbox, root, creates_parents).await?;
    let mut bytes = 0;
    for (path, link) in links {
        let source = FilePath::new([root.as_bytes(), b"/", &link.target].concat())?;
        let mut read = app.sandboxes.read_file(target.scope, sandbox, &source, 0, None).await?;
        let size = read.entry.size;
        writer.push(header(path, FileKind::File, link.mode, link.modified, Vec::new(), size)).await?;
        let mut remaining = size;
        while remaining > 0 {
            let mut piece = read.next().await?.ok_or_else(|| changed(&source))?;
            piece.truncate(usize::try_from(remaining).unwrap_or(usize::MAX));
            remaining -= piece.len() as u64;
            writer.push(TreeEntry::Content(piece)).await?;
        }
        bytes += size;
    }
    writer.finish().await?;
    Ok(bytes)
}

fn changed(path: &FilePath) -> ApiError {
    ApiError::new(error_codes::FILE_CONFLICT, format!("{path}: the file changed while it was copied"))
        .detail("path", path.to_string())
}

#[cfg(test)]
mod tests {
    use workspace_state::TarWriter;

    use super::*;

    fn member(path: &str, kind: TarMemberKind) -> TarMember {
        TarMember { path: path.into(), kind, mode: 0o600, modified: Some(Timestamp(5)) }
    }

    fn read(members: &[(TarMember, &[u8])]) -> (Summary, Vec<TreeEntry>) {
        let mut writer = TarWriter::new();
        for (member, content) in members {
            writer.add_member(member).unwrap();
            writer.add_content(content).unwrap();
        }
        writer.finish().unwrap();
        let bytes = writer.take();
        let (sender, mut receiver) = mpsc::channel(100);
        let mut entries = Batches { sender, batch: Vec::new(), bytes: 0 };
        let mut input = &bytes[..];
        let mut reader = TarReader::new(&mut input, ArchiveLimits::default(), None, Cancel::new());
        let summary = read_members(&mut reader, &mut entries).unwrap();
        entries.flush().unwrap();
        drop(entries);
        let batches = std::iter::from_fn(|| receiver.blocking_recv());
        (summary, batches.flatten().collect())
    }

    #[test]
    fn links_are_resolved_to_files_and_replaced_by_later_members() {
        let link = |target: &str| TarMemberKind::HardLink { target: target.into() };
        let file = |size| TarMemberKind::File { size };
        let (summary, entries) = read(&[
            (member("a", file(3)), b"abc"),
            (member("b", link("a")), b""),
            (member("c", link("b")), b""),
            (member("b", file(1)), b"x"),
            (member("d", TarMemberKind::Directory), b""),
            (member("s", TarMemberKind::Symlink { target: b"/etc".to_vec() }), b""),
        ]);
        assert_eq!(summary.result, TreeResult { files: 3, bytes: 4, skipped: 0 });
        let links: Vec<_> = summary.links.iter().map(|(path, link)| (&path[..], &link.target[..])).collect();
        assert_eq!(links, [(&b"c"[..], &b"a"[..])]);
        let paths: Vec<&[u8]> = entries
            .iter()
            .filter_map(|entry| match entry {
                TreeEntry::Header { path, .. } => Some(&path[..]),
                TreeEntry::Content(_) => None,
            })
            .collect();
        assert_eq!(paths, [&b"a"[..], b"b", b"d", b"s"]);
    }

    #[test]
    fn reading_stops_if_nobody_receives_entries() {
        let (sender, receiver) = mpsc::channel(1);
        drop(receiver);
        let mut entries = Batches { sender, batch: Vec::new(), bytes: 0 };
        let large = TreeEntry::Content(Bytes::from(vec![0; BATCH_BYTES]));
        assert!(matches!(entries.push(large), Err(ArchiveError::Cancelled(_))));
    }
}

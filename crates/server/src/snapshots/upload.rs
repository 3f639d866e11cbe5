//! From the body of a request to a snapshot, without holding more of it than a few pieces.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use flate2::read::MultiGzDecoder;
use http_body::Body as _;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use workspace_api::error_codes;
use workspace_sandbox::zstd_reader;
use workspace_state::{
    ArchiveError, ArchiveLimits, ImportOptions, ImportReport, LimitKind, NewSnapshot, Quiet, Store,
    import_tar,
};

use crate::app::App;
use crate::error::ApiError;
use crate::owner_memory::{self, HeldByImport};
use crate::store::{blocking, cancelled, has_no_room};

/// Idle timeout of an upload.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time over which the rate of an upload is measured, and the bytes that must come in it. What an archive brings cannot
/// be told from what others removed, so no collection ends while one is coming.
const PACE: (Duration, u64) = (Duration::from_secs(60), 60 << 10);
/// Pieces on their way to the thread with the archive.
const QUEUE: usize = 4;
/// Bytes of a body that are read before that thread wants them.
const AHEAD: usize = 4 << 20;
/// Files, links and directories of an archive. Names and attributes are in memory until all of it has come.
const ENTRIES_MAX: u64 = 2_000_000;
/// Bytes of names and attributes of an archive.
const METADATA_MAX: u64 = 512 << 20;

/// Makes a snapshot of an archive that belongs to `owner`. Whatever goes wrong, the connection included, leaves nothing that can be
/// seen; what was written on the way goes with a collection, some time later. A client that leaves stops the work, unless the
/// snapshot is there already.
pub(super) async fn receive(
    app: &App,
    owner: String,
    new: NewSnapshot,
    body: Body,
) -> Result<ImportReport, ApiError> {
    // Who says at once that it is too much is told at once.
    let max = app.settings.max_upload.0;
    if body.size_hint().exact().is_some_and(|length| length > max) {
        return Err(too_large(max));
    }
    let permit = app.work_limits.upload(&owner).await?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let cancel = app.store.cancel().child();
    let stop = cancel.on_drop();
    let store = app.store.with_cancel(cancel);
    // On its own: a snapshot that was made is noted, also when the client leaves at that moment.
    let task_app = app.clone();
    let made = tokio::spawn(async move {
        let _permit = permit;
        make(&task_app, store, &owner, new, Incoming::new(receiver)).await
    });
    let came = feed(body, sender, max);
    let came = tokio::time::timeout(app.settings.upload_timeout, came).await;
    let came = came.unwrap_or_else(|_| Err(late().detail("setting", "UPLOAD_TIMEOUT")));
    let made = made.await.map_err(ApiError::internal)?;
    stop.disarm();
    // What is wrong with the body explains what is wrong with the archive.
    came?;
    made
}

/// A part of the body. Without the end, it did not come whole.
enum Piece {
    Data(Bytes),
    End,
}

/// Hands the body to the thread with the archive. It is read ahead of that thread: a server that waits for nothing but its
/// own thread does not notice that the client left.
///
/// An archive that is refused is taken to its end all the same: a client that is cut off while it sends does not hear why.
async fn feed(body: Body, sender: mpsc::Sender<Piece>, max: u64) -> Result<(), ApiError> {
    let mut pieces = body.into_data_stream();
    let (mut length, mut ended) = (0, false);
    let (mut ahead, mut waiting) = (VecDeque::new(), 0);
    let mut pace = Pace::new(Instant::now());
    while !ended || !ahead.is_empty() {
        let next = tokio::time::timeout(IDLE_TIMEOUT, pieces.next());
        tokio::select! {
            next = next, if !ended && waiting < AHEAD => {
                let Some(piece) = next.map_err(|_| late())? else {
                    ended = true;
                    ahead.push_back(Piece::End);
                    continue;
                };
                let broken = |_| ApiError::new(error_codes::ARCHIVE_INVALID, "the archive did not come whole");
                let piece = piece.map_err(broken)?;
                length += piece.len() as u64;
                if length > max {
                    return Err(too_large(max));
                }
                if pace.is_too_slow(piece.len() as u64, Instant::now()) {
                    return Err(late());
                }
                waiting += piece.len();
                ahead.push_back(Piece::Data(piece));
            }
            permit = sender.reserve(), if !ahead.is_empty() => {
                if waiting >= AHEAD {
                    // It was the client that had to wait.
                    pace = Pace::new(Instant::now());
                }
                let piece = ahead.pop_front();
                if let Some(Piece::Data(piece)) = &piece {
                    waiting -= piece.len();
                }
                if let (Ok(permit), Some(piece)) = (permit, piece) {
                    permit.send(piece);
                }
            }
        }
    }
    Ok(())
}

/// The rate at which a body comes.
struct Pace {
    since: Instant,
    bytes: u64,
}

impl Pace {
    fn new(since: Instant) -> Self {
        Self { since, bytes: 0 }
    }

    /// Counts bytes that came. Whether fewer came than must, in the time over which the rate is measured.
    fn is_too_slow(&mut self, bytes: u64, now: Instant) -> bool {
        self.bytes += bytes;
        if now.duration_since(self.since) < PACE.0 {
            return false;
        }
        let is_too_slow = self.bytes < PACE.1;
        *self = Self::new(now);
        is_too_slow
    }
}

fn late() -> ApiError {
    ApiError::new(
        error_codes::REQUEST_TIMEOUT,
        "the archive did not come in time; send it over a faster connection, or a smaller one",
    )
}

fn too_large(max: u64) -> ApiError {
    let message = format!("the archive has more than {max} bytes");
    ApiError::new(error_codes::PAYLOAD_TOO_LARGE, message)
        .detail("limit", max)
        .detail("setting", "MAX_UPLOAD")
}

async fn make(
    app: &App,
    store: Store,
    owner: &str,
    new: NewSnapshot,
    incoming: Incoming,
) -> Result<ImportReport, ApiError> {
    let bounds = Bounds {
        archive: app.settings.max_upload.0,
        expanded: app.settings.max_upload_expanded.0,
        memory: app.upload_memory.begin(owner).into(),
    };
    let stored = Arc::<AtomicU64>::default();
    let new = NewSnapshot { stored: Some(Arc::clone(&stored)), ..new };
    let report = blocking(move || import(&store, new, incoming, &bounds)).await?;
    let id = report.snapshot.id;
    if let Err(error) = app.snapshots().note(owner, &id, None, stored.load(Ordering::Relaxed)).await {
        let store = app.store.clone();
        if let Err(left) = blocking(move || Ok(store.remove_snapshots(&[id])?)).await {
            tracing::warn!(snapshot = %id, cause = left.cause(), "failed to remove a snapshot without an owner");
        }
        return Err(error.into());
    }
    Ok(report)
}

/// Bounds of one archive.
struct Bounds {
    /// Bytes of the archive without its compression.
    archive: u64,
    /// Bytes of its files.
    expanded: u64,
    /// Memory that it shares with other archives of its owner.
    memory: HeldByImport,
}

fn import(
    store: &Store,
    new: NewSnapshot,
    incoming: Incoming,
    bounds: &Bounds,
) -> Result<ImportReport, ApiError> {
    let opened = opened(incoming).map_err(|source| refusal(ArchiveError::Read { source }))?;
    let mut archive = Bounded::new(opened, bounds.archive);
    let limits = ArchiveLimits { bytes: bounds.expanded, entries: ENTRIES_MAX, metadata: METADATA_MAX };
    let options = ImportOptions { limits, memory: Some(&bounds.memory), ..ImportOptions::default() };
    import_tar(store, &mut archive, new, &options, &Quiet).map_err(refusal)
}

/// Maps an error of an import: it is the archive's, unless it is the store's.
fn refusal(error: ArchiveError) -> ApiError {
    match error {
        ArchiveError::Store(error) => error.into(),
        ArchiveError::Cancelled(_) => cancelled(),
        ArchiveError::TooLarge { kind, limit } => {
            let refused =
                ApiError::new(error_codes::PAYLOAD_TOO_LARGE, error.to_string()).detail("limit", limit);
            match kind {
                LimitKind::Bytes => refused.detail("setting", "MAX_UPLOAD_EXPANDED"),
                LimitKind::Entries | LimitKind::Metadata => refused,
            }
        }
        ArchiveError::OverBudget => over_budget(),
        ArchiveError::Read { source }
            if source.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<TooMuch>) =>
        {
            let message = source.to_string();
            ApiError::new(error_codes::PAYLOAD_TOO_LARGE, message).detail("setting", "MAX_UPLOAD")
        }
        error if has_no_room(&error) => crate::error_mapping::no_room().because(error),
        other => ApiError::new(error_codes::ARCHIVE_INVALID, other.to_string()),
    }
}

fn over_budget() -> ApiError {
    let limit = owner_memory::UPLOADS;
    let message = format!(
        "the names, the attributes and the pieces of files in archives of the same owner that are being taken need more \
         than {limit} bytes of memory together; send one archive after another, or smaller ones"
    );
    ApiError::new(error_codes::UPLOAD_LIMIT_EXCEEDED, message).detail("limit", limit)
}

/// The body as the store reads it, in a thread that may wait.
struct Incoming {
    pieces: mpsc::Receiver<Piece>,
    piece: Bytes,
    ended: bool,
}

impl Incoming {
    fn new(pieces: mpsc::Receiver<Piece>) -> Self {
        Self { pieces, piece: Bytes::new(), ended: false }
    }
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Data(piece)) => self.piece = piece,
                Some(Piece::End) => self.ended = true,
                None => return Err(io::Error::other("the archive did not come whole")),
            }
        }
        let len = self.piece.len().min(buffer.len());
        buffer[..len].copy_from_slice(&self.piece.split_to(len));
        Ok(len)
    }
}

/// Returns the archive, decompressed if it starts like gzip or zstd.
fn opened(mut incoming: Incoming) -> io::Result<Box<dyn Read>> {
    let mut start = Vec::with_capacity(4);
    incoming.by_ref().take(4).read_to_end(&mut start)?;
    let kind: Option<[u8; 4]> = start.as_slice().try_into().ok();
    let whole = BufReader::with_capacity(256 << 10, io::Cursor::new(start).chain(incoming));
    Ok(match kind {
        Some([0x1f, 0x8b, ..]) => Box::new(MultiGzDecoder::new(whole)),
        Some([0x28, 0xb5, 0x2f, 0xfd]) => Box::new(zstd_reader(whole)?),
        _ => Box::new(whole),
    })
}

/// An archive that ends with an error where it becomes too much: little that is compressed may be a lot.
struct Bounded {
    archive: Box<dyn Read>,
    max: u64,
    left: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("the archive has more than {0} bytes when it is unpacked")]
struct TooMuch(u64);

impl Bounded {
    fn new(archive: Box<dyn Read>, max: u64) -> Self {
        Self { archive, max, left: max }
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.archive.read(buffer)?;
        let left = self.left.checked_sub(len as u64);
        self.left = left.ok_or_else(|| io::Error::other(TooMuch(self.max)))?;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use workspace_state::export_tar;

    use super::super::tree::open;
    use super::*;
    use crate::owner_memory::OwnerMemory;

    fn read(pieces: Vec<Piece>, max: u64) -> io::Result<Vec<u8>> {
        let (sender, receiver) = mpsc::channel(pieces.len().max(1));
        for piece in pieces {
            sender.try_send(piece).ok().unwrap();
        }
        drop(sender);
        let archive = opened(Incoming::new(receiver))?;
        let mut bytes = Vec::new();
        Bounded::new(archive, max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn data(bytes: &[u8]) -> Piece {
        Piece::Data(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn pieces_of_any_size_are_put_together() {
        assert_eq!(read(vec![data(b"a"), data(b""), data(b"bcdef"), Piece::End], 6).unwrap(), b"abcdef");
        assert_eq!(read(vec![Piece::End], 1).unwrap(), b"");
    }

    #[test]
    fn truncated_archives_are_refused() {
        for pieces in [vec![], vec![data(b"a")], vec![data(b"abcdefgh")]] {
            assert!(read(pieces, 100).is_err());
        }
    }

    #[test]
    fn compressed_archives_count_with_their_extracted_size() {
        let zeros = vec![0; 1 << 20];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut gzip, &zeros).unwrap();
        for small in [gzip.finish().unwrap(), zstd::encode_all(&zeros[..], 1).unwrap()] {
            assert!(small.len() < zeros.len() / 20);
            assert_eq!(read(vec![data(&small), Piece::End], 1 << 20).unwrap(), zeros);
            let error = read(vec![data(&small), Piece::End], (1 << 20) - 1).unwrap_err();
            assert!(error.get_ref().unwrap().is::<TooMuch>(), "{error}");
            assert!(read(vec![data(&small)], 1 << 20).is_err(), "without an end");
        }
    }

    #[test]
    fn archives_of_one_owner_share_memory() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        let mut tree = store.empty_tree().unwrap();
        (0..100).for_each(|number| tree.write(format!("{number}"), Vec::new()).unwrap());
        let snapshot = tree.commit(NewSnapshot::default()).unwrap();
        let mut tar = Vec::new();
        export_tar(&open(&store, &snapshot).unwrap(), &mut tar, &Quiet).unwrap();
        let memory = OwnerMemory::new(40 << 10);
        let import = |owner: &str| {
            let (sender, receiver) = mpsc::channel(2);
            sender.try_send(data(&tar)).ok().unwrap();
            sender.try_send(Piece::End).ok().unwrap();
            let bounds = Bounds { archive: 1 << 20, expanded: 1 << 20, memory: memory.begin(owner).into() };
            let done = import(&store, NewSnapshot::default(), Incoming::new(receiver), &bounds);
            done.map(|_| bounds)
        };
        let running = import("alice").unwrap();
        let error = import("alice").err().unwrap();
        assert_eq!(error.code(), error_codes::UPLOAD_LIMIT_EXCEEDED, "{error:?}");
        import("bob").unwrap();
        drop(running);
        import("alice").unwrap();
    }

    #[test]
    fn a_body_that_trickles_is_too_slow() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::new(start);
        assert!((1..60).all(|second| !pace.is_too_slow(1, at(second))));
        assert!(pace.is_too_slow(1, at(60)));
        // Measured anew each time: what came quickly before does not count.
        let mut pace = Pace::new(start);
        assert!(!pace.is_too_slow(100 << 20, at(60)));
        assert!((61..120).all(|second| !pace.is_too_slow(1 << 10, at(second))));
        assert!(!pace.is_too_slow(1 << 10, at(120)));
        assert!(pace.is_too_slow(1 << 10, at(200)));
    }
}

//! Archives in request bodies: received piece by piece, and read in a thread.

use std::collections::VecDeque;
use std::io::{self, BufReader, Read};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use flate2::read::MultiGzDecoder;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use workspace_api::error_codes;
use workspace_sandbox::zstd_reader;
use workspace_state::{ArchiveError, LimitKind};

use crate::error::ApiError;
use crate::owner_memory;
use crate::store::{cancelled, is_disk_full_error};

/// Timeout for receiving the next piece of an archive.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval over which the rate of an upload is measured.
const RATE_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum number of bytes per [`RATE_INTERVAL`]. A slow upload is refused, because garbage collection cannot finish
/// while an upload runs: the objects of the upload look like garbage.
const RATE_MIN: u64 = 60 << 10;
/// Maximum number of pieces in the queue to the import thread.
pub(crate) const QUEUE_MAX: usize = 4;
/// Maximum number of bytes that are read ahead of the import thread.
const READ_AHEAD_MAX: usize = 4 << 20;

/// Part of the body. A body without `End` is incomplete.
pub(crate) enum Piece {
    Data(Bytes),
    End,
}

/// Sends the body to the import thread. The body is read ahead of that thread, because a disconnect is only noticed
/// while the body is read.
///
/// After the import has failed, the rest of the body is still received and dropped, because a client that is
/// disconnected while it sends does not get the error.
pub(crate) async fn forward(body: Body, sender: mpsc::Sender<Piece>, max: u64) -> Result<(), ApiError> {
    let mut pieces = body.into_data_stream();
    let (mut length, mut ended) = (0, false);
    let (mut queue, mut queued_bytes) = (VecDeque::new(), 0);
    let mut rate = RateCheck::new(Instant::now());
    while !ended || !queue.is_empty() {
        let next = tokio::time::timeout(IDLE_TIMEOUT, pieces.next());
        tokio::select! {
            next = next, if !ended && queued_bytes < READ_AHEAD_MAX => {
                let Some(piece) = next.map_err(|_| too_slow())? else {
                    ended = true;
                    queue.push_back(Piece::End);
                    continue;
                };
                let broken = |_| ApiError::new(error_codes::ARCHIVE_INVALID, "the archive is incomplete");
                let piece = piece.map_err(broken)?;
                length += piece.len() as u64;
                if length > max {
                    return Err(too_large(max));
                }
                if rate.is_too_slow(piece.len() as u64, Instant::now()) {
                    return Err(too_slow());
                }
                queued_bytes += piece.len();
                queue.push_back(Piece::Data(piece));
            }
            permit = sender.reserve(), if !queue.is_empty() => {
                if queued_bytes >= READ_AHEAD_MAX {
                    // The client had to wait for the server, so the measurement of its rate restarts.
                    rate = RateCheck::new(Instant::now());
                }
                let piece = queue.pop_front();
                if let Some(Piece::Data(piece)) = &piece {
                    queued_bytes -= piece.len();
                }
                // `permit` is an error after the import has failed: then the piece is dropped.
                if let (Ok(permit), Some(piece)) = (permit, piece) {
                    permit.send(piece);
                }
            }
        }
    }
    Ok(())
}

/// Check of the rate of an upload.
struct RateCheck {
    /// Start of the current [`RATE_INTERVAL`].
    interval_start: Instant,
    bytes: u64,
}

impl RateCheck {
    fn new(interval_start: Instant) -> Self {
        Self { interval_start, bytes: 0 }
    }

    /// Adds received bytes. Returns true if fewer than [`RATE_MIN`] bytes were received in the last interval.
    fn is_too_slow(&mut self, bytes: u64, now: Instant) -> bool {
        self.bytes += bytes;
        if now.duration_since(self.interval_start) < RATE_INTERVAL {
            return false;
        }
        let is_too_slow = self.bytes < RATE_MIN;
        *self = Self::new(now);
        is_too_slow
    }
}

/// Creates the error for an archive that was received too slowly.
pub(crate) fn too_slow() -> ApiError {
    ApiError::new(
        error_codes::REQUEST_TIMEOUT,
        "the archive was not received in time; use a faster connection, or send a smaller archive",
    )
}

/// Creates the error for an archive of more than `max` bytes.
pub(crate) fn too_large(max: u64) -> ApiError {
    let message = format!("the archive has more than {max} bytes");
    ApiError::new(error_codes::PAYLOAD_TOO_LARGE, message)
        .detail("limit", max)
        .detail("setting", "MAX_UPLOAD")
}

/// Blocking reader of the body, for the import thread.
pub(crate) struct BodyReader {
    pieces: mpsc::Receiver<Piece>,
    piece: Bytes,
    ended: bool,
}

impl BodyReader {
    pub(crate) fn new(pieces: mpsc::Receiver<Piece>) -> Self {
        Self { pieces, piece: Bytes::new(), ended: false }
    }
}

impl Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Data(piece)) => self.piece = piece,
                Some(Piece::End) => self.ended = true,
                None => return Err(io::Error::other("the archive is incomplete")),
            }
        }
        let len = self.piece.len().min(buffer.len());
        buffer[..len].copy_from_slice(&self.piece.split_to(len));
        Ok(len)
    }
}

/// Returns the archive, decompressed if it starts with the magic bytes of gzip or zstd.
pub(crate) fn decompress(mut body: BodyReader) -> io::Result<Box<dyn Read>> {
    let mut start = Vec::with_capacity(4);
    body.by_ref().take(4).read_to_end(&mut start)?;
    let kind: Option<[u8; 4]> = start.as_slice().try_into().ok();
    let whole = BufReader::with_capacity(256 << 10, io::Cursor::new(start).chain(body));
    Ok(match kind {
        Some([0x1f, 0x8b, ..]) => Box::new(MultiGzDecoder::new(whole)),
        Some([0x28, 0xb5, 0x2f, 0xfd]) => Box::new(zstd_reader(whole)?),
        _ => Box::new(whole),
    })
}

/// Reader that fails after `max` bytes of decompressed archive, because a small compressed archive may expand to a lot.
pub(crate) struct LimitedReader {
    archive: Box<dyn Read>,
    max: u64,
    remaining: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("the decompressed archive has more than {0} bytes")]
struct DecompressedTooLarge(u64);

impl LimitedReader {
    pub(crate) fn new(archive: Box<dyn Read>, max: u64) -> Self {
        Self { archive, max, remaining: max }
    }
}

impl Read for LimitedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.archive.read(buffer)?;
        let remaining = self.remaining.checked_sub(len as u64);
        self.remaining = remaining.ok_or_else(|| io::Error::other(DecompressedTooLarge(self.max)))?;
        Ok(len)
    }
}

/// Returns the limit in bytes that a decompressed archive exceeds; `None` for other errors.
fn decompressed_limit(error: &io::Error) -> Option<u64> {
    error.get_ref()?.downcast_ref().map(|DecompressedTooLarge(limit)| *limit)
}

/// Converts an error of an import.
pub(crate) fn import_error(error: ArchiveError) -> ApiError {
    match error {
        ArchiveError::Store(error) => error.into(),
        ArchiveError::Cancelled(_) => cancelled(),
        ArchiveError::TooLarge { kind, limit } => {
            let error =
                ApiError::new(error_codes::PAYLOAD_TOO_LARGE, error.to_string()).detail("limit", limit);
            match kind {
                LimitKind::Bytes => error.detail("setting", "MAX_UPLOAD_EXPANDED"),
                LimitKind::Entries | LimitKind::Metadata => error,
            }
        }
        ArchiveError::OverBudget => over_budget(),
        ArchiveError::Read { source } if decompressed_limit(&source).is_some() => {
            // `MAX_UPLOAD` limits the archive both compressed and decompressed; `MAX_UPLOAD_EXPANDED` limits the total
            // size of the files in it, which includes holes of sparse files.
            ApiError::new(error_codes::PAYLOAD_TOO_LARGE, source.to_string())
                .detail("limit", decompressed_limit(&source))
                .detail("setting", "MAX_UPLOAD")
        }
        error if is_disk_full_error(&error) => crate::error_mapping::disk_full().because(error),
        other => ApiError::new(error_codes::ARCHIVE_INVALID, other.to_string()),
    }
}

fn over_budget() -> ApiError {
    let limit = owner_memory::UPLOAD_BYTES_MAX;
    let message = format!(
        "the uploads of the same owner need more than {limit} bytes of memory for names, attributes and extents; send one \
         archive after another, or smaller ones"
    );
    ApiError::new(error_codes::UPLOAD_LIMIT_EXCEEDED, message).detail("limit", limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: Vec<Piece>, max: u64) -> io::Result<Vec<u8>> {
        let (sender, receiver) = mpsc::channel(pieces.len().max(1));
        for piece in pieces {
            sender.try_send(piece).ok().unwrap();
        }
        drop(sender);
        let archive = decompress(BodyReader::new(receiver))?;
        let mut bytes = Vec::new();
        LimitedReader::new(archive, max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn data(bytes: &[u8]) -> Piece {
        Piece::Data(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn pieces_of_any_size_are_joined() {
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
    fn compressed_archives_count_with_their_decompressed_size() {
        let zeros = vec![0; 1 << 20];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut gzip, &zeros).unwrap();
        for small in [gzip.finish().unwrap(), zstd::encode_all(&zeros[..], 1).unwrap()] {
            assert!(small.len() < zeros.len() / 20);
            assert_eq!(read(vec![data(&small), Piece::End], 1 << 20).unwrap(), zeros);
            let error = read(vec![data(&small), Piece::End], (1 << 20) - 1).unwrap_err();
            let error = import_error(ArchiveError::Read { source: error }).body("req-1").error;
            assert_eq!(error.name, "PAYLOAD_TOO_LARGE");
            assert_eq!(error.details["limit"], (1 << 20) - 1);
            assert_eq!(error.details["setting"], "MAX_UPLOAD");
            assert!(read(vec![data(&small)], 1 << 20).is_err(), "without an end");
        }
    }

    #[test]
    fn a_body_below_the_minimum_rate_is_too_slow() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut rate = RateCheck::new(start);
        assert!((1..60).all(|second| !rate.is_too_slow(1, at(second))));
        assert!(rate.is_too_slow(1, at(60)));
        // Each interval is measured separately: earlier fast ones do not count.
        let mut rate = RateCheck::new(start);
        assert!(!rate.is_too_slow(100 << 20, at(60)));
        assert!((61..120).all(|second| !rate.is_too_slow(1 << 10, at(second))));
        assert!(!rate.is_too_slow(1 << 10, at(120)));
        assert!(rate.is_too_slow(1 << 10, at(200)));
    }
}

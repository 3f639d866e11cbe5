//! What a command printed, from any byte on, while it runs and after.

use std::fs::File;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use workspace_agent_protocol::output::{Frame, Item, Reader};

pub use workspace_agent_protocol::output::Stream;

use crate::error::{Doing as _, Result, SandboxError};
use crate::live::{End, Progress};
use crate::place::Place;

/// How much is read at once.
const BATCH: usize = 512 << 10;
/// What a command that could not be run ends with, as with shells.
const NOT_ENTERED: i32 = 126;
const NOT_FOUND: i32 = 127;
/// How long to wait for the reason.
const EXPLANATION: Duration = Duration::from_secs(1);

/// A piece of what a command printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Output.
    Data {
        /// Where it came from.
        stream: Stream,
        /// When, in milliseconds since 1970.
        time: i64,
        /// Of its first byte.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// What was between these offsets is not kept any more.
    Gap {
        /// The first byte that is missing.
        from: u64,
        /// The first one that is there again.
        to: u64,
    },
    /// The command ended. Nothing follows.
    End(End),
}

/// Follows the output of a command.
#[derive(Debug)]
pub struct Output {
    reader: Option<Reader>,
    progress: watch::Receiver<Progress>,
    ended: bool,
}

impl Output {
    pub(crate) async fn open(
        place: &Place,
        id: &str,
        from: u64,
        progress: watch::Receiver<Progress>,
    ) -> Result<Self> {
        let (directory, id) = (place.output(), id.to_owned());
        let open = move || Reader::open(File::open(directory)?, &id, from);
        let reader = blocking(open).await?.doing(|| "read what a command printed".to_owned())?;
        Ok(Self { reader: Some(reader), progress, ended: false })
    }

    /// The next pieces, as many as are there; waits for the first. None after the end.
    pub async fn next(&mut self) -> Result<Option<Vec<Piece>>> {
        while !self.ended {
            // Before reading: what is told while it reads wakes the next wait.
            let end = self.progress.borrow_and_update().end.clone();
            let mut pieces = self.read().await?;
            if let Some(Piece::End(end)) = pieces.last_mut() {
                self.explain(end).await;
                self.ended = true;
            } else if let Some(end) = end.filter(|_| pieces.is_empty()) {
                // Its files do not say so: the disk was full, or the guest died.
                pieces.push(Piece::End(end));
                self.ended = true;
            }
            if !pieces.is_empty() {
                return Ok(Some(pieces));
            }
            if self.progress.changed().await.is_err() {
                let failed = Some("the sandbox is gone".to_owned());
                self.ended = true;
                return Ok(Some(vec![Piece::End(End { failed, ..End::default() })]));
            }
        }
        Ok(None)
    }

    /// Why a command could not be run is not in its files; the guest tells it at the same time.
    async fn explain(&mut self, end: &mut End) {
        if matches!(end.exit_code, NOT_ENTERED | NOT_FOUND) {
            let told = self.progress.wait_for(|progress| progress.end.is_some());
            if let Ok(Ok(progress)) = timeout(EXPLANATION, told).await {
                end.failed = progress.end.as_ref().and_then(|end| end.failed.clone());
            }
        }
    }

    async fn read(&mut self) -> Result<Vec<Piece>> {
        let Some(mut reader) = self.reader.take() else { return Ok(Vec::new()) };
        let read = move || {
            let pieces = read_batch(&mut reader);
            (reader, pieces)
        };
        let (reader, pieces) = blocking(read).await?;
        self.reader = Some(reader);
        pieces.doing(|| "read what a command printed".to_owned())
    }
}

fn read_batch(reader: &mut Reader) -> std::io::Result<Vec<Piece>> {
    let (mut pieces, mut size) = (Vec::new(), 0);
    while size < BATCH {
        let Some(item) = reader.next_item()? else { break };
        let piece = match item {
            Item::Gap { from, to } => Piece::Gap { from, to },
            Item::Frame(frame) => of_frame(frame),
        };
        if let Piece::Data { data, .. } = &piece {
            size += data.len();
        }
        let last = matches!(piece, Piece::End(_));
        pieces.push(piece);
        if last {
            break;
        }
    }
    Ok(pieces)
}

fn of_frame(frame: Frame) -> Piece {
    match frame.end() {
        Some(end) => Piece::End(End { exit_code: end.exit_code, timed_out: end.timed_out, failed: None }),
        None => {
            Piece::Data { stream: frame.stream, time: frame.time, offset: frame.offset, data: frame.data }
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.map_err(|error| SandboxError::Io {
        action: "read what a command printed".to_owned(),
        source: std::io::Error::other(error),
    })
}

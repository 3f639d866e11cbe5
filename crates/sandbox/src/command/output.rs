//! What a command printed, from any byte on, while it runs and after.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use workspace_agent_protocol::output::{Frame, Item, Reader};

pub use workspace_agent_protocol::output::Stream;

use crate::command::running::{End, Progress, RunningCommand};
use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::sandbox_dir::SandboxDir;

/// Bytes that are read at once, unless somebody wants fewer.
const BATCH: usize = 512 << 10;
/// Memory of a piece beside its bytes, about. Guests may write pieces of one byte.
pub(crate) const PIECE_OVERHEAD: usize = 128;
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

impl Piece {
    /// The offset behind it.
    fn behind(&self) -> Option<u64> {
        match self {
            Self::Data { offset, data, .. } => Some(offset + data.len() as u64),
            Self::Gap { to, .. } => Some(*to),
            Self::End(_) => None,
        }
    }
}

/// The files of a command's output, opened by the first read.
#[derive(Debug)]
struct Source {
    directory: PathBuf,
    id: String,
    from: u64,
    reader: Option<Reader>,
}

impl Source {
    fn open(&mut self) -> std::io::Result<&mut Reader> {
        match &mut self.reader {
            Some(reader) => Ok(reader),
            none => Ok(none.insert(Reader::open(File::open(&self.directory)?, &self.id, self.from)?)),
        }
    }
}

/// Follows the output of a command.
#[derive(Debug)]
pub struct Output {
    source: Option<Source>,
    /// A read that is under way; it has the source.
    reading: Option<JoinHandle<(Source, std::io::Result<Vec<Piece>>)>>,
    /// The last pieces, while it is being found out why the command could not be run.
    found: Option<Vec<Piece>>,
    progress: watch::Receiver<Progress>,
    /// The command, if it may run still, and its sandbox.
    of: Option<(Arc<SandboxHandle>, Arc<RunningCommand>)>,
    /// The offset that was asked for.
    from: u64,
    /// The offset behind what was given out last.
    given: u64,
    /// Bytes that are read at once.
    batch: usize,
    /// Nobody wants to know more than how it ends.
    only_end: bool,
    ended: bool,
}

impl Output {
    pub(crate) async fn open(
        dir: &SandboxDir,
        id: &str,
        from: u64,
        progress: watch::Receiver<Progress>,
        of: Option<(Arc<SandboxHandle>, Arc<RunningCommand>)>,
    ) -> Result<Self> {
        let mut source = Source { directory: dir.output(), id: id.to_owned(), from, reader: None };
        // Files of a command that ended may be gone, which the caller wants to know at once.
        if of.is_none() {
            let open = move || source.open().map(|_| ()).map(|()| source);
            let opened = spawn_blocking(open).await.map_err(|error| broken(std::io::Error::other(error)))?;
            source = opened.map_err(broken)?;
        }
        let source = Some(source);
        Ok(Self {
            source,
            reading: None,
            found: None,
            progress,
            of,
            from,
            given: 0,
            batch: BATCH,
            only_end: false,
            ended: false,
        })
    }

    /// The next pieces, as many as are there; waits for the first. None after the end, and when the service is
    /// closed before it. Who gives up waiting loses nothing.
    pub async fn next(&mut self) -> Result<Option<Vec<Piece>>> {
        while !self.ended {
            // Before reading: what is told while it reads wakes the next wait.
            let Progress { end, written } = self.progress.borrow_and_update().clone();
            if self.only_end {
                self.given = self.given.max(written);
            }
            // Whoever asks for more has what was given. Each time: its guest may have come back since.
            if let Some((handle, running)) = &self.of {
                handle.output_read(running, self.given).await;
            }
            let stale = self.reading.is_some();
            let mut pieces = match (self.found.take(), &end) {
                (Some(pieces), _) => pieces,
                (None, Some(end)) if self.only_end => vec![Piece::End(end.clone())],
                (None, None) if self.only_end || self.has_read(written) => Vec::new(),
                _ => self.read().await?,
            };
            if stale && pieces.is_empty() {
                // Begun before what was told last: it says nothing about now.
                continue;
            }
            if let Some(Piece::End(End { exit_code, .. })) = pieces.last() {
                let exit_code = *exit_code;
                self.found = Some(pieces);
                let why = self.explanation(exit_code).await;
                pieces = self.found.take().unwrap_or_default();
                if let Some(Piece::End(end)) = pieces.last_mut() {
                    end.failed = why;
                }
                self.ended = true;
            } else if let Some(end) = end.filter(|_| pieces.is_empty()) {
                // Its files do not say so: the disk was full, or the guest died.
                let from = self.given.max(self.from);
                if from < written {
                    pieces.push(Piece::Gap { from, to: written });
                }
                pieces.push(Piece::End(end));
                self.ended = true;
            }
            if !pieces.is_empty() {
                self.given = pieces.iter().filter_map(Piece::behind).next_back().unwrap_or(self.given);
                return Ok(Some(pieces));
            }
            let told = match &self.of {
                Some((handle, running)) => handle.changed(running, &mut self.progress).await?,
                None => self.progress.changed().await.is_ok(),
            };
            if !told {
                // Who removes a sandbox tells first how its commands ended. So the service was closed, and the
                // command goes on.
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Reads fewer bytes at once, for who holds them for long.
    pub fn read_at_most(&mut self, bytes: usize) {
        self.batch = bytes;
    }

    /// Reads nothing more: the next piece is the end. A command that waits for its readers goes on.
    pub fn skip_to_end(&mut self) {
        self.only_end = true;
        (self.source, self.reading) = (None, None);
    }

    /// Reports whether there is nothing to read, because all that the guest told of was given out. A guest that began the command
    /// before this server was started may not have told of all yet.
    fn has_read(&self, written: u64) -> bool {
        let told_of_all = self.of.as_ref().is_some_and(|(_, running)| running.was_started_here());
        told_of_all && self.reading.is_none() && written <= self.given.max(self.from)
    }

    /// Whether the end was told.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Why a command could not be run is not in its files; the guest tells it at the same time.
    async fn explanation(&mut self, exit_code: i32) -> Option<String> {
        if !matches!(exit_code, NOT_ENTERED | NOT_FOUND) {
            return None;
        }
        let told = self.progress.wait_for(|progress| progress.end.is_some());
        let progress = timeout(EXPLANATION, told).await.ok()?.ok()?;
        progress.end.as_ref().and_then(|end| end.failed.clone())
    }

    /// Who gives up waiting for it loses nothing: the next call waits for the same.
    async fn read(&mut self) -> Result<Vec<Piece>> {
        let batch = self.batch;
        let reading = match (&mut self.reading, self.source.take()) {
            (Some(reading), _) => reading,
            (none, Some(mut source)) => none.insert(spawn_blocking(move || {
                let pieces = source.open().and_then(|reader| read_batch(reader, batch));
                (source, pieces)
            })),
            (None, None) => return Ok(Vec::new()),
        };
        let read = reading.await;
        self.reading = None;
        let (source, pieces) = read.map_err(|error| broken(std::io::Error::other(error)))?;
        self.source = Some(source);
        pieces.map_err(broken)
    }
}

/// Whether there is anything of what a command printed, be it only its end.
pub(crate) async fn is_kept(dir: &SandboxDir, id: &str) -> Result<bool> {
    let (directory, id) = (dir.output(), id.to_owned());
    let look = move || workspace_agent_protocol::output::is_kept(File::open(directory)?, &id);
    let kept = spawn_blocking(look).await.map_err(|error| broken(std::io::Error::other(error)))?;
    kept.map_err(broken)
}

fn read_batch(reader: &mut Reader, batch: usize) -> std::io::Result<Vec<Piece>> {
    let (mut pieces, mut size) = (Vec::new(), 0);
    while size < batch {
        let Some(item) = reader.next_item()? else { break };
        let piece = match item {
            Item::Gap { from, to } => Piece::Gap { from, to },
            Item::Frame(frame) => of_frame(frame),
        };
        if let Piece::Data { data, .. } = &piece {
            size += data.len() + PIECE_OVERHEAD;
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

pub(crate) fn broken(source: std::io::Error) -> SandboxError {
    SandboxError::Io { action: "read what a command printed".to_owned(), source }
}

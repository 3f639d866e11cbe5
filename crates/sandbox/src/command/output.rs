//! Output of a command, from any offset on, while it runs and after.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use workspace_agent_protocol::output::{Frame, Item, Reader};

pub use workspace_agent_protocol::output::Stream;

use crate::command::running::{CommandExit, Progress, RunningCommand, TraceOutcome};
use crate::error::{Result, SandboxError};
use crate::guest::handle::SandboxHandle;
use crate::sandbox_dir::SandboxDir;

/// Bytes that are read at once by default.
const BATCH_BYTES: usize = 512 << 10;
/// Approximate memory of a piece in addition to its bytes. Guest agents may write pieces of one byte.
pub(crate) const PIECE_OVERHEAD: usize = 128;
/// Exit codes of a command that could not be run, as in shells.
const EXIT_NOT_EXECUTABLE: i32 = 126;
const EXIT_NOT_FOUND: i32 = 127;
/// Maximum time to wait for the reason why a command could not be run.
const FAILURE_REASON_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time to wait for the report of the outcome of tracing a command. The trace itself has another timeout.
const TRACE_REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Next part of the output of a command, a gap in it, or its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputPiece {
    /// Output.
    Data {
        /// Stream that it was written to.
        stream: Stream,
        /// Time in milliseconds since 1970.
        time: i64,
        /// Offset of its first byte.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Output between these offsets is not available: it is no longer kept, or could not be stored.
    Gap {
        /// Offset of the first missing byte.
        from: u64,
        /// Offset of the next available byte.
        to: u64,
    },
    /// The command exited, or could not be run. Nothing follows.
    Exit(CommandExit),
}

impl OutputPiece {
    /// Returns the offset after the piece; `None` for the exit.
    fn end_offset(&self) -> Option<u64> {
        match self {
            Self::Data { offset, data, .. } => Some(offset + data.len() as u64),
            Self::Gap { to, .. } => Some(*to),
            Self::Exit(_) => None,
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

/// Reader of the output of a command. It follows a running one.
#[derive(Debug)]
pub struct Output {
    source: Option<Source>,
    /// Read in progress; it owns the source.
    reading: Option<JoinHandle<(Source, std::io::Result<Vec<OutputPiece>>)>>,
    /// The last pieces, with the exit, while the reason why the command could not be run is awaited.
    last_pieces: Option<Vec<OutputPiece>>,
    /// Progress of the command, which tells of new output.
    progress: watch::Receiver<Progress>,
    /// The command, if it may still run, and its sandbox.
    running: Option<(Arc<SandboxHandle>, Arc<RunningCommand>)>,
    /// Offset that was requested.
    from: u64,
    /// Offset after the last piece that was returned.
    returned: u64,
    /// Bytes that are read at once.
    batch: usize,
    /// True if only the exit of the command is of interest.
    skips_to_exit: bool,
    /// True if the exit was returned.
    ended: bool,
}

impl Output {
    /// Opens the output of a command at the offset `from`. `running` is the command if it may still run, and its
    /// sandbox.
    pub(crate) async fn open(
        dir: &SandboxDir,
        id: &str,
        from: u64,
        progress: watch::Receiver<Progress>,
        running: Option<(Arc<SandboxHandle>, Arc<RunningCommand>)>,
    ) -> Result<Self> {
        let mut source = Source { directory: dir.output(), id: id.to_owned(), from, reader: None };
        // Files of a command that exited may have been removed, which must be reported immediately.
        if running.is_none() {
            let open = move || source.open().map(|_| ()).map(|()| source);
            let opened =
                spawn_blocking(open).await.map_err(|error| read_error(std::io::Error::other(error)))?;
            source = opened.map_err(read_error)?;
        }
        let source = Some(source);
        Ok(Self {
            source,
            reading: None,
            last_pieces: None,
            progress,
            running,
            from,
            returned: 0,
            batch: BATCH_BYTES,
            skips_to_exit: false,
            ended: false,
        })
    }

    /// Returns the next pieces, as many as there are; waits for the first. `None` after the exit, and when
    /// the service is closed before it. Nothing is lost when this future is dropped.
    pub async fn next(&mut self) -> Result<Option<Vec<OutputPiece>>> {
        while !self.ended {
            // Before reading: progress that is reported during the read wakes the next wait.
            let Progress { exit, written } = self.progress.borrow_and_update().clone();
            if self.skips_to_exit {
                self.returned = self.returned.max(written);
            }
            // A caller that asks for more has consumed the previous pieces. Sent each time: the guest agent may
            // have reconnected.
            if let Some((handle, running)) = &self.running {
                handle.report_read_offset(running, self.returned).await;
            }
            // True if a read is continued that began in an earlier call.
            let is_earlier_read = self.reading.is_some();
            let mut pieces = match (self.last_pieces.take(), &exit) {
                (Some(pieces), _) => pieces,
                (None, Some(exit)) if self.skips_to_exit => vec![OutputPiece::Exit(exit.clone())],
                (None, None) if self.skips_to_exit => Vec::new(),
                // Nothing is left to read; the exit is taken from the report of the guest agent.
                (None, _) if self.has_returned_all(written) => Vec::new(),
                _ => self.read().await?,
            };
            if is_earlier_read && pieces.is_empty() {
                // The read began before the last report, so there may be output by now.
                continue;
            }
            if let Some(OutputPiece::Exit(CommandExit { exit_code, .. })) = pieces.last() {
                let exit_code = *exit_code;
                self.last_pieces = Some(pieces);
                let (reason, trace) = self.rest_of_exit(exit_code).await;
                pieces = self.last_pieces.take().unwrap_or_default();
                if let Some(OutputPiece::Exit(exit)) = pieces.last_mut() {
                    (exit.failure_reason, exit.trace) = (reason, trace);
                }
                self.ended = true;
            } else if let Some(exit) = exit.filter(|_| pieces.is_empty()) {
                // Its files contain no exit status: the disk was full, or the guest agent died.
                let from = self.returned.max(self.from);
                if from < written {
                    pieces.push(OutputPiece::Gap { from, to: written });
                }
                pieces.push(OutputPiece::Exit(exit));
                self.ended = true;
            }
            if !pieces.is_empty() {
                self.returned =
                    pieces.iter().filter_map(OutputPiece::end_offset).next_back().unwrap_or(self.returned);
                return Ok(Some(pieces));
            }
            let has_progress = match &self.running {
                Some((handle, running)) => handle.wait_for_progress(running, &mut self.progress).await?,
                None => self.progress.changed().await.is_ok(),
            };
            if !has_progress {
                // The removal of a sandbox reports the exit of its commands first. So the service was closed,
                // and the command keeps running.
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Sets the number of bytes per read, for callers that keep them for long.
    pub fn set_batch_size(&mut self, bytes: usize) {
        self.batch = bytes;
    }

    /// Skips all output: the next piece is the exit. A command that waits for its readers continues.
    pub fn skip_to_exit(&mut self) {
        self.skips_to_exit = true;
        (self.source, self.reading) = (None, None);
    }

    /// Returns true if there is nothing to read, because all reported output was returned. A guest agent that
    /// started the command before this server was started may not have reported all yet.
    fn has_returned_all(&self, written: u64) -> bool {
        let is_all_reported = self.running.as_ref().is_some_and(|(_, running)| running.was_started_here());
        is_all_reported && self.reading.is_none() && written <= self.returned.max(self.from)
    }

    /// Returns true if the exit was returned.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Waits for the parts of an exit that are not in the files: the reason why the command could not be run, which the
    /// guest agent reports with the exit, and the outcome of tracing it.
    async fn rest_of_exit(&mut self, exit_code: i32) -> (Option<String>, TraceOutcome) {
        let may_have_failed = matches!(exit_code, EXIT_NOT_EXECUTABLE | EXIT_NOT_FOUND);
        let is_traced = self.running.as_ref().is_some_and(|(handle, _)| handle.is_traced());
        let limit = match (is_traced, may_have_failed) {
            (true, _) => TRACE_REPORT_TIMEOUT,
            (false, true) => FAILURE_REASON_TIMEOUT,
            (false, false) => Duration::ZERO,
        };
        let exited = self.progress.wait_for(|progress| progress.exit.is_some());
        match timeout(limit, exited).await {
            Ok(Ok(progress)) => {
                let exit = progress.exit.clone().unwrap_or_default();
                (exit.failure_reason.filter(|_| may_have_failed), exit.trace)
            }
            _ if is_traced => (None, TraceOutcome::Pending),
            _ => (None, TraceOutcome::None),
        }
    }

    /// Reads the next batch. If the future is dropped, the next call waits for the same read.
    async fn read(&mut self) -> Result<Vec<OutputPiece>> {
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
        let (source, pieces) = read.map_err(|error| read_error(std::io::Error::other(error)))?;
        self.source = Some(source);
        pieces.map_err(read_error)
    }
}

/// Returns true if a segment (file with a part of the output, see [`workspace_agent_protocol::output`]) of a command is
/// left, even one without any output.
pub(crate) async fn has_segments(dir: &SandboxDir, id: &str) -> Result<bool> {
    let (directory, id) = (dir.output(), id.to_owned());
    let check = move || workspace_agent_protocol::output::has_segments(File::open(directory)?, &id);
    let kept = spawn_blocking(check).await.map_err(|error| read_error(std::io::Error::other(error)))?;
    kept.map_err(read_error)
}

/// Returns the offsets between which the output of a command is kept; `None` if none is.
pub(crate) async fn kept_range(dir: &SandboxDir, id: &str) -> Result<Option<Range<u64>>> {
    let (directory, id) = (dir.output(), id.to_owned());
    let check = move || match File::open(directory) {
        Ok(directory) => workspace_agent_protocol::output::kept_range(directory, &id),
        // The sandbox was not started, or is being removed.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let kept = spawn_blocking(check).await.map_err(|error| read_error(std::io::Error::other(error)))?;
    kept.map_err(read_error)
}

fn read_batch(reader: &mut Reader, batch: usize) -> std::io::Result<Vec<OutputPiece>> {
    let (mut pieces, mut size) = (Vec::new(), 0);
    while size < batch {
        let Some(item) = reader.next_item()? else { break };
        let piece = match item {
            Item::Gap { from, to } => OutputPiece::Gap { from, to },
            Item::Frame(frame) => piece_of_frame(frame),
        };
        if let OutputPiece::Data { data, .. } = &piece {
            size += data.len() + PIECE_OVERHEAD;
        }
        let is_exit = matches!(piece, OutputPiece::Exit(_));
        pieces.push(piece);
        if is_exit {
            break;
        }
    }
    Ok(pieces)
}

fn piece_of_frame(frame: Frame) -> OutputPiece {
    match frame.exit_status() {
        Some(status) => OutputPiece::Exit(CommandExit {
            exit_code: status.exit_code,
            timed_out: status.timed_out,
            ..CommandExit::default()
        }),
        None => OutputPiece::Data {
            stream: frame.stream,
            time: frame.time,
            offset: frame.offset,
            data: frame.data,
        },
    }
}

pub(crate) fn read_error(source: std::io::Error) -> SandboxError {
    SandboxError::Io { action: "read the output of a command".to_owned(), source }
}

//! Copies files into a sandbox and out of it, if its guest agent is too old for the routes for files: `tar` runs in the
//! sandbox, and its input or output is the archive.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc;
use workspace_state::{MemberPaths, Progress as _};

use super::archive::{self, CopyError, SkippedEntries};
use super::command::INPUT_REQUEST_MAX;
use super::output::OutputFollower;
use super::{Client, CommandOptions, RemoteCommand, copy_script, quote};
use crate::error::{CommandError, Result, io_hint};
use crate::progress::Bars;
use crate::session::{CommandExit, OutputEvent, OutputStream as _, SIGKILL, Session as _, Stream};
use crate::signals::Signals;
use crate::text;

/// Maximum number of bytes sent without an acknowledgement; the last piece may exceed it.
const IN_FLIGHT_MAX: u64 = 4 * copy_script::INPUT_ACK_BYTES;
/// Number of pieces queued between the connection and the thread that packs or unpacks the archive.
pub(super) const QUEUE_LENGTH: usize = 4;
/// Minimum of the server's setting `OUTPUT_KEEP` (the bytes of output that it keeps per command) for a copy: the script
/// prints half of it without an acknowledgement.
const OUTPUT_KEEP_MIN: u64 = 2 * copy_script::OUTPUT_ACK_BYTES;

/// A file or directory in a sandbox: an absolute path without `..`, as directory and name for `tar`. It is UTF-8,
/// because it is part of a command line; the routes for files take any [`RemotePath`](super::files::RemotePath).
pub(crate) struct SandboxPath {
    directory: String,
    name: String,
}

impl SandboxPath {
    /// Parses a path, which is below `/workspace` if it is relative.
    pub(crate) fn new(typed: &str) -> Result<Self> {
        let mut parts: Vec<&str> = Vec::new();
        if !typed.starts_with('/') {
            parts.push("workspace");
        }
        for part in typed.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                return Err(CommandError::usage(format!("`{typed}` contains `..`"))
                    .hint("use a path without `..`; relative paths start in /workspace"));
            }
            parts.push(part);
        }
        match parts.split_last() {
            Some((name, directories)) => {
                Ok(Self { directory: format!("/{}", directories.join("/")), name: (*name).to_owned() })
            }
            None => {
                Err(CommandError::usage("the root of a sandbox can be neither source nor target of a copy")
                    .hint("specify a file or directory in it, for instance /workspace"))
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the directory that it is in.
    pub(crate) fn directory(&self) -> &str {
        &self.directory
    }

    /// Returns the path of an entry of this directory.
    pub(crate) fn join(&self, name: &str) -> Self {
        Self { directory: self.path(), name: name.to_owned() }
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.directory.trim_end_matches('/'), self.name)
    }
}

/// Returns true if the sandbox has a directory at that path.
pub(crate) async fn is_directory(client: &Client, sandbox: &str, path: &str) -> Result<bool> {
    let options = CommandOptions { command_line: quote(["test", "-d", path]), ..CommandOptions::default() };
    let mut output = RemoteCommand::start(client, sandbox, options).await?.output();
    loop {
        if let OutputEvent::Exited(exit) = output.next().await? {
            return Ok(exit.exit_code == 0);
        }
    }
}

/// Copies local files into one directory of a sandbox. `copies` are local paths with their targets, all in that
/// directory. Returns the sockets, pipes and devices, which are skipped.
pub(crate) async fn put(
    client: &Client,
    sandbox: &str,
    copies: Vec<(PathBuf, SandboxPath)>,
    progress: &Bars,
) -> Result<SkippedEntries> {
    let directory = copies.first().map(|(_, to)| to.directory.clone()).unwrap_or_default();
    let members = copies.into_iter().map(|(path, to)| (path, to.name)).collect::<Vec<_>>();
    let command_line = copy_script::unpack(&directory);
    let options = CommandOptions { command_line, stdin: true, ..CommandOptions::default() };
    let command = RemoteCommand::start(client, sandbox, options).await?;
    let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
    let packing = thread::spawn(move || archive::pack(&members, ArchiveWriter::new(sender)));
    let mut transfer = Transfer::new(command, progress)?;
    let end = transfer.put(receiver).await;
    transfer.finish(end, packing).await
}

/// Copies a file or directory of a sandbox to a local path. Returns the pipes and devices, which are skipped.
pub(crate) async fn get(
    client: &Client,
    sandbox: &str,
    from: &SandboxPath,
    to: PathBuf,
    progress: &Bars,
) -> Result<SkippedEntries> {
    let command_line = copy_script::pack(&from.directory, &from.name);
    let options = CommandOptions { command_line, stdin: true, ..CommandOptions::default() };
    let command = RemoteCommand::start(client, sandbox, options).await?;
    let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
    // The paths in the archive begin with `from.name`, in place of which `to` is written.
    let unpacking =
        thread::spawn(move || archive::unpack(ArchiveReader::new(receiver), &to, MemberPaths::BelowName));
    let mut transfer = Transfer::new(command, progress)?;
    let end = transfer.get(sender).await;
    transfer.finish(end, unpacking).await
}

/// Side that ended a copy.
enum TransferEnd {
    /// The script in the sandbox exited.
    Remote(CommandExit),
    /// The local thread stopped before the script exited.
    Local,
}

/// A running copy.
struct Transfer<'a> {
    command: RemoteCommand<'a>,
    output: OutputFollower<'a>,
    signals: Signals,
    progress: &'a Bars,
    /// Stderr of the script, which is that of `tar`.
    stderr: Vec<u8>,
}

impl<'a> Transfer<'a> {
    fn new(command: RemoteCommand<'a>, progress: &'a Bars) -> Result<Self> {
        progress.begin_bytes("copying", None);
        let output = command.output();
        Ok(Self { command, output, signals: Signals::new()?, progress, stderr: Vec::new() })
    }

    /// Sends the archive. The script prints one byte for each [`copy_script::INPUT_ACK_BYTES`] that it has read.
    async fn put(&mut self, mut pieces: mpsc::Receiver<Vec<u8>>) -> Result<TransferEnd> {
        let (mut sent, mut acknowledged, mut closed) = (0, 0, false);
        loop {
            tokio::select! {
                event = self.output.next() => match self.handle(event?)? {
                    TransferEvent::Data(acks) => acknowledged += acks.len() as u64 * copy_script::INPUT_ACK_BYTES,
                    TransferEvent::Exited(exit) => return Ok(TransferEnd::Remote(exit)),
                    TransferEvent::None => {}
                },
                piece = pieces.recv(), if !closed && sent < acknowledged + IN_FLIGHT_MAX => match piece {
                    Some(piece) => {
                        let length = piece.len() as u64;
                        self.command.write_input(piece).await?;
                        sent += length;
                        self.progress.advance(length);
                    }
                    None => {
                        closed = true;
                        self.command.close_input().await?;
                    }
                },
                signal = self.signals.next() => return Err(CommandError::interrupted(signal)),
            }
        }
    }

    /// Receives the archive, and sends a line to the script for each [`copy_script::OUTPUT_ACK_BYTES`] of it.
    async fn get(&mut self, to: mpsc::Sender<Vec<u8>>) -> Result<TransferEnd> {
        let (mut received, mut acknowledged) = (0, 0);
        loop {
            tokio::select! {
                event = self.output.next() => match self.handle(event?)? {
                    TransferEvent::Data(data) => {
                        received += data.len() as u64;
                        self.progress.advance(data.len() as u64);
                        if to.send(data).await.is_err() {
                            return Ok(TransferEnd::Local);
                        }
                        while received - acknowledged >= copy_script::OUTPUT_ACK_BYTES {
                            acknowledged += copy_script::OUTPUT_ACK_BYTES;
                            self.command.write_input(b"\n".to_vec()).await?;
                        }
                    }
                    TransferEvent::Exited(exit) => return Ok(TransferEnd::Remote(exit)),
                    TransferEvent::None => {}
                },
                signal = self.signals.next() => return Err(CommandError::interrupted(signal)),
            }
        }
    }

    /// Sorts an event of the script: stderr is collected, and the rest is returned.
    fn handle(&mut self, event: OutputEvent) -> Result<TransferEvent> {
        match event {
            OutputEvent::Data { stream: Stream::Stdout, data, .. } => Ok(TransferEvent::Data(data)),
            OutputEvent::Data { stream: Stream::Stderr, data, .. } => {
                self.stderr.extend_from_slice(&data);
                Ok(TransferEvent::None)
            }
            OutputEvent::Gap { .. } => Err(CommandError::failed("the server dropped part of the archive")
                .hint(format!(
                    "its setting OUTPUT_KEEP must be at least {}m for copies",
                    OUTPUT_KEEP_MIN >> 20
                ))),
            OutputEvent::Exited(exit) => Ok(TransferEvent::Exited(exit)),
        }
    }

    /// Ends the copy, and returns the special files that the local thread skipped. Kills the script if it may not have
    /// exited. After an error of the transfer, does not wait for the local thread, which ends by itself.
    async fn finish(
        self,
        end: Result<TransferEnd>,
        archive_thread: JoinHandle<Result<SkippedEntries, CopyError>>,
    ) -> Result<SkippedEntries> {
        self.progress.end();
        if !matches!(end, Ok(TransferEnd::Remote(_))) {
            // An error of the kill is ignored; the one that ended the copy is reported.
            drop(self.command.kill(SIGKILL).await);
        }
        let end = end?;
        let Ok(local_result) = archive_thread.join() else {
            return Err(CommandError::failed("the thread that packs or unpacks the archive panicked")
                .hint("this is a bug; part of the files may have been copied"));
        };
        match (end, local_result) {
            // An error that only follows from the other side's error is not reported.
            (TransferEnd::Remote(exit), local_result)
                if exit.exit_code != 0 && !has_own_error(&local_result) =>
            {
                Err(tar_error(&exit, &self.stderr))
            }
            (_, local_result) => local_result.map_err(explain),
        }
    }
}

/// Event of the script.
enum TransferEvent {
    /// Stdout of the script: acknowledgements of a [`Transfer::put`], the archive of a [`Transfer::get`].
    Data(Vec<u8>),
    /// The script exited.
    Exited(CommandExit),
    /// Nothing for the caller: output on stderr was added to [`Transfer::stderr`].
    None,
}

/// Returns true if packing or unpacking failed by itself, and not because the transfer or `tar` in the sandbox ended.
pub(super) fn has_own_error(local_result: &Result<SkippedEntries, CopyError>) -> bool {
    match local_result {
        Ok(_) | Err(CopyError::Send(_) | CopyError::Unpack(_)) => false,
        Err(CopyError::Io { error, .. }) => error.kind() != io::ErrorKind::BrokenPipe,
        Err(CopyError::Shortened(_) | CopyError::Refused(_) | CopyError::TooLarge(_)) => true,
    }
}

fn tar_error(exit: &CommandExit, stderr: &[u8]) -> CommandError {
    let stderr = String::from_utf8_lossy(stderr);
    let reason = match (&exit.failure_reason, stderr.trim()) {
        (Some(reason), _) => reason.clone(),
        (None, "") => format!("it exited with status {}", exit.exit_code),
        (None, stderr) => stderr.to_owned(),
    };
    let error = CommandError::failed(format!("`tar` failed in the sandbox: {reason}"));
    match exit.exit_code {
        127 => error.hint("the sandbox needs the programs `tar` and `dd`"),
        _ => error.hint("check the path in the sandbox; part of it may have been copied"),
    }
}

/// Converts an error of packing or unpacking to an error for the user.
pub(super) fn explain(error: CopyError) -> CommandError {
    match error {
        CopyError::Io { path, error } => {
            CommandError::failed(format!("{}: {error}", path.display())).hint(io_hint(&error))
        }
        CopyError::Shortened(path) => {
            CommandError::failed(format!("{} became shorter while it was copied", path.display()))
                .hint("copy it when no program changes it; part of the files may have been copied")
        }
        CopyError::Send(error) => CommandError::failed(format!("cannot send the archive: {error}"))
            .hint("`tar` in the sandbox may have ended early; part of the files may have been copied"),
        CopyError::Unpack(error) => {
            CommandError::failed(error.to_string()).hint("part of the files may have been copied")
        }
        CopyError::Refused(reason) => CommandError::failed(reason)
            .hint("earlier entries were copied; do not trust the content of this sandbox"),
        CopyError::TooLarge(reason) => CommandError::failed(reason)
            .hint("earlier entries were copied; copy the directories in it one by one"),
    }
}

/// Writer of an archive that passes it in pieces to the connection.
pub(super) struct ArchiveWriter {
    sender: mpsc::Sender<Vec<u8>>,
    /// Bytes that are not passed yet, less than [`INPUT_REQUEST_MAX`].
    piece: Vec<u8>,
}

impl ArchiveWriter {
    pub(super) fn new(sender: mpsc::Sender<Vec<u8>>) -> Self {
        Self { sender, piece: Vec::new() }
    }
}

impl Write for ArchiveWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(INPUT_REQUEST_MAX - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == INPUT_REQUEST_MAX {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.piece);
        self.sender.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Reader of an archive that receives pieces from the connection.
pub(super) struct ArchiveReader {
    receiver: mpsc::Receiver<Vec<u8>>,
    piece: Vec<u8>,
    /// Offset of the next byte in `piece`.
    offset: usize,
}

impl ArchiveReader {
    pub(super) fn new(receiver: mpsc::Receiver<Vec<u8>>) -> Self {
        Self { receiver, piece: Vec::new(), offset: 0 }
    }
}

impl Read for ArchiveReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.offset == self.piece.len() {
            match self.receiver.blocking_recv() {
                Some(piece) => (self.piece, self.offset) = (piece, 0),
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len() - self.offset);
        buffer[..count].copy_from_slice(&self.piece[self.offset..self.offset + count]);
        self.offset += count;
        Ok(count)
    }
}

/// Warns about skipped entries.
pub(crate) fn warn_of_skipped(skipped: &SkippedEntries) {
    for path in &skipped.paths {
        text::print_stderr(&format!(
            "warning: {} is not a file, directory or symlink, and was skipped",
            path.display()
        ));
    }
    if skipped.unlisted > 0 {
        text::print_stderr(&format!(
            "warning: {} more entries are not files, directories or symlinks, and were skipped",
            skipped.unlisted
        ));
    }
}

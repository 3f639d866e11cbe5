//! Files into a sandbox and out of it. There is no path of the API for that: `tar` runs inside, and its input or output
//! is the archive.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc;
use workspace_state::Progress as _;

use super::archive::{self, CopyError};
use super::input::{INPUT_MAX, Input};
use super::output::{End, Follower, OutputEvent, To};
use super::process::{self, CommandOptions};
use super::{Client, quote, script};
use crate::error::{CommandError, Result, io_hint};
use crate::progress::Bars;
use crate::signals::Signals;
use crate::text;

const SIGKILL: i32 = 9;
/// Largest number of bytes sent without an acknowledgement.
const IN_FLIGHT_MAX: u64 = 4 * script::IN;
/// Number of pieces queued between the thread with the archive and the connection.
const QUEUE_LENGTH: usize = 4;

/// A file or directory in a sandbox: an absolute path without `..`.
pub(crate) struct Inside {
    directory: String,
    name: String,
}

impl Inside {
    /// Parses a path, which is below `/workspace` if it is relative.
    pub(crate) fn new(typed: &str) -> Result<Self> {
        let mut parts: Vec<&str> = Vec::new();
        if !typed.starts_with('/') {
            parts.push("workspace");
        }
        for part in typed.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                return Err(CommandError::usage(format!("`{typed}` has a `..`"))
                    .hint("give a path inside without one; relative paths begin in /workspace"));
            }
            parts.push(part);
        }
        match parts.split_last() {
            Some((name, directories)) => {
                Ok(Self { directory: format!("/{}", directories.join("/")), name: (*name).to_owned() })
            }
            None => Err(CommandError::usage("the root of a sandbox cannot be copied as a whole")
                .hint("give a file or directory in it, for instance /workspace")),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of a name in this directory.
    pub(crate) fn with(&self, name: &str) -> Self {
        Self { directory: self.path(), name: name.to_owned() }
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.directory.trim_end_matches('/'), self.name)
    }
}

/// Returns true if the sandbox has a directory at that path.
pub(crate) async fn is_directory(client: &Client, sandbox: &str, path: &str) -> Result<bool> {
    let options = CommandOptions { line: quote(["test", "-d", path]), ..CommandOptions::default() };
    let command = process::start(client, sandbox, &options).await?;
    let mut follower = Follower::new(client, sandbox, &command);
    loop {
        if let OutputEvent::Ended(end) = follower.next().await? {
            return Ok(end.exit_code == 0);
        }
    }
}

/// Copies local files into a sandbox, each to a place in the same directory there.
pub(crate) async fn put(
    client: &Client,
    sandbox: &str,
    sources: Vec<(PathBuf, Inside)>,
    progress: &Bars,
) -> Result<Vec<PathBuf>> {
    let directory = sources.first().map(|(_, to)| to.directory.clone()).unwrap_or_default();
    let files = sources.into_iter().map(|(path, to)| (path, to.name)).collect::<Vec<_>>();
    let options =
        CommandOptions { line: script::unpack(&directory), stdin: true, ..CommandOptions::default() };
    let command = process::start(client, sandbox, &options).await?;
    let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
    let packing = thread::spawn(move || archive::pack(&files, Pieces { sender, piece: Vec::new() }));
    let mut copying = Copying::new(client, sandbox, &command, progress)?;
    let over = copying.put(receiver).await;
    copying.finish(over, packing).await
}

/// Copies a file or directory of a sandbox to a local path.
pub(crate) async fn get(
    client: &Client,
    sandbox: &str,
    from: &Inside,
    to: PathBuf,
    progress: &Bars,
) -> Result<Vec<PathBuf>> {
    let line = script::pack(&from.directory, &from.name);
    let command =
        process::start(client, sandbox, &CommandOptions { line, stdin: true, ..CommandOptions::default() })
            .await?;
    let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
    let unpacking =
        thread::spawn(move || archive::unpack(Arriving { receiver, piece: Vec::new(), at: 0 }, &to));
    let mut copying = Copying::new(client, sandbox, &command, progress)?;
    let over = copying.get(sender).await;
    copying.finish(over, unpacking).await
}

/// End of a copy: of `tar`, or of the local side of the archive before it.
enum Over {
    Ended(End),
    GivenUp,
}

struct Copying<'a> {
    client: &'a Client,
    names: (&'a str, &'a str),
    follower: Follower<'a>,
    input: Input<'a>,
    signals: Signals,
    progress: &'a Bars,
    /// Stderr of `tar`.
    said: Vec<u8>,
}

impl<'a> Copying<'a> {
    fn new(client: &'a Client, sandbox: &'a str, command: &'a str, progress: &'a Bars) -> Result<Self> {
        progress.begin_bytes("copying", None);
        Ok(Self {
            client,
            names: (sandbox, command),
            follower: Follower::new(client, sandbox, command),
            input: Input::new(client, sandbox, command),
            signals: Signals::new()?,
            progress,
            said: Vec::new(),
        })
    }

    async fn put(&mut self, mut pieces: mpsc::Receiver<Vec<u8>>) -> Result<Over> {
        let (mut sent, mut taken, mut closed) = (0, 0, false);
        loop {
            tokio::select! {
                did = self.follower.next() => match self.hear(did?)? {
                    Heard::Printed(dots) => taken += dots.len() as u64 * script::IN,
                    Heard::Ended(end) => return Ok(Over::Ended(end)),
                    Heard::Nothing => {}
                },
                piece = pieces.recv(), if !closed && sent < taken + IN_FLIGHT_MAX => {
                    let piece = piece.unwrap_or_default();
                    closed = piece.is_empty();
                    self.input.give(&piece, closed).await?;
                    sent += piece.len() as u64;
                    self.progress.advance(piece.len() as u64);
                }
                signal = self.signals.next() => return Err(CommandError::asked(signal)),
            }
        }
    }

    async fn get(&mut self, to: mpsc::Sender<Vec<u8>>) -> Result<Over> {
        let (mut received, mut answered) = (0, 0);
        loop {
            tokio::select! {
                did = self.follower.next() => match self.hear(did?)? {
                    Heard::Printed(data) => {
                        received += data.len() as u64;
                        self.progress.advance(data.len() as u64);
                        if to.send(data).await.is_err() {
                            return Ok(Over::GivenUp);
                        }
                        while received - answered >= script::OUT {
                            answered += script::OUT;
                            self.input.give(b"\n", false).await?;
                        }
                    }
                    Heard::Ended(end) => return Ok(Over::Ended(end)),
                    Heard::Nothing => {}
                },
                signal = self.signals.next() => return Err(CommandError::asked(signal)),
            }
        }
    }

    fn hear(&mut self, did: OutputEvent) -> Result<Heard> {
        match did {
            OutputEvent::Printed { to: To::Stdout, data, .. } => Ok(Heard::Printed(data)),
            OutputEvent::Printed { to: To::Stderr, data, .. } => {
                self.said.extend_from_slice(&data);
                Ok(Heard::Nothing)
            }
            OutputEvent::Gap { .. } => {
                Err(CommandError::failed("part of the archive was not kept by the server")
                    .hint("its setting OUTPUT_KEEP must be at least 8m for copies"))
            }
            OutputEvent::Ended(end) => Ok(Heard::Ended(end)),
        }
    }

    /// Returns the result of a copy. After a failure, `tar` is killed.
    async fn finish(
        self,
        over: Result<Over>,
        work: JoinHandle<Result<Vec<PathBuf>, CopyError>>,
    ) -> Result<Vec<PathBuf>> {
        self.progress.end();
        if !matches!(over, Ok(Over::Ended(_))) {
            let (sandbox, command) = self.names;
            // The first error is the one to tell.
            drop(process::kill(self.client, sandbox, command, SIGKILL).await);
        }
        let over = over?;
        let worked = work.join().unwrap_or_else(|_| Err(CopyError::Archive(io::ErrorKind::Other.into())));
        match (over, worked) {
            // What only follows from the other side's error is not worth telling.
            (Over::Ended(end), worked) if end.exit_code != 0 && !is_a_cause(&worked) => {
                Err(refused(&end, &self.said))
            }
            (_, worked) => worked.map_err(explain),
        }
    }
}

enum Heard {
    Printed(Vec<u8>),
    Ended(End),
    Nothing,
}

fn is_a_cause(worked: &Result<Vec<PathBuf>, CopyError>) -> bool {
    match worked {
        Ok(_) | Err(CopyError::Archive(_)) => false,
        Err(CopyError::Io { error, .. }) => error.kind() != io::ErrorKind::BrokenPipe,
        Err(CopyError::Refused(_)) => true,
    }
}

fn refused(end: &End, said: &[u8]) -> CommandError {
    let said = String::from_utf8_lossy(said);
    let why = match (&end.failed, said.trim()) {
        (Some(why), _) => why.clone(),
        (None, "") => format!("it ended with {}", end.exit_code),
        (None, said) => said.to_owned(),
    };
    let error = CommandError::failed(format!("`tar` in the sandbox says: {why}"));
    match end.exit_code {
        127 => error.hint("the sandbox needs the programs `tar` and `dd`"),
        _ => error.hint("check the path inside; part of it may have been copied"),
    }
}

fn explain(error: CopyError) -> CommandError {
    match error {
        CopyError::Io { path, error } => {
            CommandError::failed(format!("{}: {error}", path.display())).hint(io_hint(&error))
        }
        CopyError::Archive(error) => CommandError::failed(format!("the archive is broken: {error}"))
            .hint("part of it may have been copied"),
        CopyError::Refused(reason) => CommandError::failed(reason)
            .hint("what came before it was copied; do not trust what is in this sandbox"),
    }
}

/// Writer of an archive that sends pieces to the connection.
struct Pieces {
    sender: mpsc::Sender<Vec<u8>>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(INPUT_MAX - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == INPUT_MAX {
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
struct Arriving {
    receiver: mpsc::Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match self.receiver.blocking_recv() {
                Some(piece) => (self.piece, self.at) = (piece, 0),
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Warns of files that were left out.
pub(crate) fn warn_of_skipped(skipped: &[PathBuf]) {
    for path in skipped {
        let path: &Path = path;
        text::print_stderr(&format!(
            "warning: {} is not a file, directory or symlink, and was left out",
            path.display()
        ));
    }
}

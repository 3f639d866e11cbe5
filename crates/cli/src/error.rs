//! What went wrong, for the person who typed the command, and how that becomes an exit status.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use workspace_mount::MountError;
use workspace_state::{ArchiveError, DirectoryError, StoreError, TreeError, quote_path};

use crate::text;

/// Status 0: done.
const DONE: u8 = 0;
/// Status 1: not done.
const FAILED: u8 = 1;
/// Status 2: the command line makes no sense. The same as that of the argument parser.
const USAGE: u8 = 2;
/// Status 3: done, with something to know about.
const RESERVATIONS: u8 = 3;

/// How a command that worked ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All of it was done.
    Done,
    /// Done, but part of what was asked for is missing or damaged; stderr or the data says what.
    WithReservations,
}

impl Outcome {
    pub(crate) fn with_reservations_if(reservations: bool) -> Self {
        if reservations { Self::WithReservations } else { Self::Done }
    }
}

/// What kind of error it is; decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The work failed.
    Failed,
    /// What was typed cannot be done.
    Usage,
    /// Whoever read the output has gone away, which is how `| head` works: success.
    OutputClosed,
}

/// An error of a command: what happened, then what to do about it.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    pub(crate) hints: Vec<String>,
}

pub(crate) type Result<T, E = CommandError> = std::result::Result<T, E>;

impl CommandError {
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, message: message.into(), hints: Vec::new() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, ..Self::failed(message) }
    }

    /// Adds what to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// An error while writing the command's data.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self { kind: Kind::OutputClosed, ..Self::failed("the output was closed") }
        } else {
            Self::failed(format!("cannot write the output: {error}"))
        }
    }

    fn print(&self) {
        text::print_stderr(&format!("error: {}", self.message));
        for hint in &self.hints {
            text::print_stderr(&format!("hint: {hint}"));
        }
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        let hint = store_hint(&error);
        let failed = Self::failed(error.to_string());
        match hint {
            Some(hint) => failed.hint(hint),
            None => failed,
        }
    }
}

impl From<TreeError> for CommandError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Store(error) => error.into(),
            other => Self::failed(other.to_string()),
        }
    }
}

impl From<DirectoryError> for CommandError {
    fn from(error: DirectoryError) -> Self {
        let failed = Self::failed(error.to_string());
        match error {
            DirectoryError::Store(error) => error.into(),
            DirectoryError::LocalEdits { paths, .. } => failed.hint(local_edits(&paths)),
            DirectoryError::NotEmpty { .. } => {
                failed.hint("give a new or empty directory, or `--force` to replace what is there")
            }
            DirectoryError::Collision { .. } => {
                failed.hint("check out on a filesystem that tells upper and lower case apart")
            }
            DirectoryError::Io { source, .. } => match io_hint(&source) {
                Some(hint) => failed.hint(hint),
                None => failed,
            },
            _ => failed,
        }
    }
}

fn local_edits(paths: &[PathBuf]) -> String {
    const LISTED: usize = 10;
    let mut lines: Vec<String> =
        paths.iter().take(LISTED).map(|path| quote_path(path.as_os_str().as_bytes()).into_owned()).collect();
    if paths.len() > LISTED {
        lines.push(format!("and {} more", paths.len() - LISTED));
    }
    format!(
        "keep them with `workspace snapshot`, or overwrite them with `--force`:\n  {}",
        lines.join("\n  ")
    )
}

impl From<ArchiveError> for CommandError {
    fn from(error: ArchiveError) -> Self {
        let failed = Self::failed(error.to_string());
        match error {
            ArchiveError::Store(error) => error.into(),
            ArchiveError::Tree(error) => error.into(),
            ArchiveError::Write { source } => Self::output(&source),
            ArchiveError::Refused { .. } => failed.hint("nothing was imported"),
            _ => failed,
        }
    }
}

impl From<MountError> for CommandError {
    fn from(error: MountError) -> Self {
        let hint = error.hint();
        match error {
            MountError::Store(error) => error.into(),
            error => match hint {
                Some(hint) => Self::failed(error.to_string()).hint(hint),
                None => Self::failed(error.to_string()),
            },
        }
    }
}

fn store_hint(error: &StoreError) -> Option<String> {
    let hint = match error {
        StoreError::NotAStore { .. } => {
            "choose a store with `--store DIR` or WORKSPACE_STORE, or make one with `workspace snapshot DIR`"
        }
        StoreError::NewerFormat { .. } => "use a newer version of `workspace`",
        StoreError::Busy { .. } => "try again when it is done",
        StoreError::UnknownSnapshot(_) => "`workspace log` lists the snapshots of this store",
        StoreError::ReferenceMoved { name, .. } => {
            return Some(format!(
                "someone else moved it; look at `workspace log --ref {name}` and try again"
            ));
        }
        StoreError::Poisoned => "run `workspace verify`",
        StoreError::Io { source, .. } => return io_hint(source).map(str::to_owned),
        error if error.is_corruption() => "`workspace verify` names every damaged path",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// What to do about an error of the system, where there is something to do.
pub(crate) fn io_hint(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("nothing was lost; make room, for instance with `workspace gc`, and try again")
        }
        io::ErrorKind::PermissionDenied => Some("check who owns it and its permission bits"),
        io::ErrorKind::ReadOnlyFilesystem => {
            Some("a store must be writable, also for reading: locks live in it")
        }
        _ => None,
    }
}

/// Reports the end of a command and gives its status.
pub(crate) fn exit_code(result: Result<Outcome>) -> ExitCode {
    ExitCode::from(match result {
        Ok(Outcome::Done) => DONE,
        Ok(Outcome::WithReservations) => RESERVATIONS,
        Err(error) => match error.kind {
            Kind::OutputClosed => DONE,
            Kind::Failed => {
                error.print();
                FAILED
            }
            Kind::Usage => {
                error.print();
                USAGE
            }
        },
    })
}

/// Prints what the argument parser has to say: help, the version, or what is wrong.
pub(crate) fn print_usage(error: &clap::Error) -> ExitCode {
    match error.print() {
        // Help is data, and its reader may leave early too.
        Err(closed) if closed.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(FAILED),
        _ => ExitCode::from(if error.use_stderr() { USAGE } else { DONE }),
    }
}

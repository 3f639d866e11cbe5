//! Errors for the user, and their exit statuses.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use workspace_merge::TreeMergeError;
use workspace_mount::MountError;
use workspace_state::{ArchiveError, DirectoryError, StoreError, TreeError, quote_path};

use crate::remote::quote;
use crate::text;

/// Status 0: done.
const DONE: u8 = 0;
/// Status 1: not done.
const FAILED: u8 = 1;
/// Status 2: the command line makes no sense. The same as that of the argument parser.
const USAGE: u8 = 2;
/// Status 3: done, with something to know about.
const RESERVATIONS: u8 = 3;

/// Status 125 of `try`, `run`, `exec` and `shell`: not done; every other status is that of what ran inside.
const NOT_RUN: u8 = 125;
/// Status 255 of `merge-file` and `merge-tree`, as `git merge-file` has it: less than 128 is a number of conflicts, and 128
/// would be one to git, whose driver the command may be.
const NOT_MERGED: u8 = 255;
/// Status 128 of `merge-file`: what is no text is in conflict for git too, and no reason to give up all files.
const NOT_TEXT: u8 = 128;
/// Status 129 of both: the command line makes no sense.
const MERGE_USAGE: u8 = 129;
/// Added to the number of the signal that ended it.
const BY_SIGNAL: u8 = 128;

/// Outcome of a command that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All of it was done.
    Done,
    /// Done, but part of what was asked for is missing or damaged; stderr or the data says what.
    WithReservations,
    /// The program in the sandbox exited with this status.
    Exit(u8),
}

impl Outcome {
    pub(crate) fn with_reservations_if(reservations: bool) -> Self {
        if reservations { Self::WithReservations } else { Self::Done }
    }
}

/// Kind of an error, which decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The work failed.
    Failed,
    /// The command line is invalid.
    Usage,
    /// The reader of the output closed it, as `| head` does: success.
    OutputClosed,
    /// The program in the sandbox did not run, or its end is unknown.
    NotRun,
    /// A merge failed, whose status would tell the number of conflicts.
    NotMerged(u8),
    /// A signal ended this program.
    Interrupted(u8),
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

    /// Creates the error for an end by a signal.
    pub(crate) fn interrupted(signal: i32) -> Self {
        let signal = u8::try_from(signal).unwrap_or_default();
        Self { kind: Kind::Interrupted(signal), ..Self::failed("interrupted") }
    }

    /// Sets the status of a command whose status is otherwise that of the program it runs.
    pub(crate) fn not_run(self) -> Self {
        match self.kind {
            Kind::Failed => Self { kind: Kind::NotRun, ..self },
            _ => self,
        }
    }

    /// Sets the status of a command whose status is otherwise the number of conflicts.
    pub(crate) fn not_merged(self) -> Self {
        match self.kind {
            Kind::Failed => Self { kind: Kind::NotMerged(NOT_MERGED), ..self },
            Kind::Usage => Self { kind: Kind::NotMerged(MERGE_USAGE), ..self },
            _ => self,
        }
    }

    /// Creates the error for a file that cannot be merged because it is not text.
    pub(crate) fn not_text(message: impl Into<String>) -> Self {
        Self { kind: Kind::NotMerged(NOT_TEXT), ..Self::failed(message) }
    }

    /// Returns true for the error of a file that is not text.
    pub(crate) fn is_not_text(&self) -> bool {
        self.kind == Kind::NotMerged(NOT_TEXT)
    }

    /// Adds what to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Creates the error for a failed write of the command's output.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self { kind: Kind::OutputClosed, ..Self::failed("the output was closed") }
        } else {
            Self::failed(format!("cannot write the output: {error}")).hint(io_hint(error))
        }
    }

    fn print(&self) {
        text::print_stderr(&format!("error: {}", self.message));
        for hint in &self.hints {
            text::print_stderr(&format!("hint: {hint}"));
        }
        if self.hints.is_empty() {
            text::print_stderr(
                "hint: this was not expected; `workspace verify` tells whether the store is sound",
            );
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
            // Only imports make trees from what others give.
            other => Self::failed(other.to_string()).hint("no directory can hold this; it was not imported"),
        }
    }
}

impl From<TreeMergeError> for CommandError {
    fn from(error: TreeMergeError) -> Self {
        match error {
            TreeMergeError::Store(error) => error.into(),
            TreeMergeError::Tree(error) => error.into(),
            TreeMergeError::Strategy(error) => Self::failed(error.to_string()),
        }
    }
}

impl From<DirectoryError> for CommandError {
    fn from(error: DirectoryError) -> Self {
        let failed = Self::failed(error.to_string());
        match error {
            DirectoryError::Store(error) => error.into(),
            DirectoryError::LocalEdits { paths, .. } => failed.hint(format!(
                "keep them with `workspace snapshot`, or overwrite them with `--force`:\n  {}",
                listed_paths(&paths)
            )),
            DirectoryError::Unsaved { .. } => {
                failed.hint("`workspace snapshot` keeps it; `--force` writes over it")
            }
            DirectoryError::NotEmpty { .. } => failed
                .hint("give a new or empty directory, or one that was checked out or snapshotted before")
                .hint("`--force` writes into this one: what is in the way is overwritten, other files stay"),
            DirectoryError::Collision { .. } => {
                failed.hint("check out on a filesystem that tells upper and lower case apart")
            }
            DirectoryError::TooDeep { .. } => {
                failed.hint("move it up, or name it in a `.workspaceignore` file to leave it out")
            }
            DirectoryError::Incomplete { .. } => {
                failed.hint("give yourself the right to read it (`chmod u+r`), or remove it")
            }
            DirectoryError::Io { source, .. } => failed.hint(io_hint(&source)),
            _ => failed,
        }
    }
}

/// Paths one below the other, not too many.
pub(crate) fn listed_paths(paths: &[PathBuf]) -> String {
    const LISTED: usize = 10;
    let mut lines: Vec<String> =
        paths.iter().take(LISTED).map(|path| quote_path(path.as_os_str().as_bytes()).into_owned()).collect();
    if paths.len() > LISTED {
        lines.push(format!("and {} more", paths.len() - LISTED));
    }
    lines.join("\n  ")
}

impl From<ArchiveError> for CommandError {
    fn from(error: ArchiveError) -> Self {
        let failed = Self::failed(error.to_string());
        match error {
            ArchiveError::Store(error) => error.into(),
            ArchiveError::Tree(error) => error.into(),
            ArchiveError::Write { source } => Self::output(&source),
            ArchiveError::NotAnArchive { .. } => {
                failed.hint("what tar writes uncompressed is taken (ustar, GNU, pax): `tar -cf x.tar DIR`")
            }
            ArchiveError::Malformed { .. } | ArchiveError::Truncated { .. } => {
                failed.hint("nothing was imported; get or make the archive again")
            }
            ArchiveError::Read { source } => read_hint(failed, &source),
            ArchiveError::Refused { path, .. } if path.starts_with('/') => failed.hint(
                "nothing was imported; make the archive without `-P`, or with `--transform='s,^/*,,S'` beside it",
            ),
            ArchiveError::Refused { .. } => failed.hint("nothing was imported"),
            _ => failed,
        }
    }
}

/// Adds a hint to an error of reading an archive, which may end in the middle of a file.
fn read_hint(failed: CommandError, source: &io::Error) -> CommandError {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => failed.hint("nothing was imported; get or make the archive again"),
        _ => failed.hint(io_hint(source)),
    }
}

impl From<MountError> for CommandError {
    fn from(error: MountError) -> Self {
        let hint = error.hint();
        match error {
            MountError::Store(error) => error.into(),
            error => match hint {
                Some(hint) => Self::failed(error.to_string()).hint(hint),
                None => Self::failed(error.to_string()).hint("lazy-view.log in the store may say more"),
            },
        }
    }
}

const CHOOSE_STORE: &str = "`--store DIR` or WORKSPACE_STORE choose a store; `workspace snapshot` makes one, in a \
     directory that is new or empty";

/// Returns true if a file is in the place of the store's directory.
fn is_no_directory(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists)
}

fn store_hint(error: &StoreError) -> Option<String> {
    let hint = match error {
        StoreError::NotAStore { .. } => CHOOSE_STORE,
        StoreError::Io { source, .. } if is_no_directory(source) => CHOOSE_STORE,
        StoreError::NewerFormat { .. } => "use a newer version of `workspace`",
        StoreError::Busy { .. } => "try again when it is done",
        StoreError::InUse { .. } => "end the processes that have it open, or use it where they do",
        StoreError::UnknownSnapshot(_) => "`workspace log` lists the snapshots of this store",
        StoreError::ReferenceMoved { name, .. } => {
            return Some(format!(
                "someone else moved it; look at `workspace log --ref {name}` and try again"
            ));
        }
        StoreError::BadReferenceName(_) => "for instance `main`, `release-1.2` or `runs/42`",
        StoreError::Index { .. } => "`workspace verify --repair` rebuilds the index",
        StoreError::TooLarge(_) => "nothing was stored; give it in smaller parts",
        StoreError::Poisoned => "run `workspace verify`",
        StoreError::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            "the store can be read here, and not written; what writes needs it on a file system that can be written to"
        }
        StoreError::Io { source, .. } => io_hint(source),
        error if error.is_corruption() => "`workspace verify` names every damaged path",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns a hint for an error of the system.
pub(crate) fn io_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "nothing was lost; make room, for instance with `workspace gc`, and try again"
        }
        io::ErrorKind::PermissionDenied => "check who owns it and its permission bits",
        io::ErrorKind::ReadOnlyFilesystem => "give a place on a filesystem that can be written to",
        io::ErrorKind::NotFound => "check how it is spelled; a relative path begins in the current directory",
        io::ErrorKind::NotADirectory => "give a directory",
        io::ErrorKind::AlreadyExists => {
            "something else has that name; give a directory, or a name that is free"
        }
        io::ErrorKind::IsADirectory => "give a file",
        _ => "the system says no more here; its log (`dmesg`) may",
    }
}

/// Reports the end of a command and gives its status.
pub(crate) fn exit_code(result: Result<Outcome>) -> ExitCode {
    ExitCode::from(match result {
        Ok(Outcome::Done) => DONE,
        Ok(Outcome::WithReservations) => RESERVATIONS,
        Ok(Outcome::Exit(status)) => status,
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
            Kind::NotRun => {
                error.print();
                NOT_RUN
            }
            Kind::NotMerged(status) => {
                error.print();
                status
            }
            Kind::Interrupted(signal) => BY_SIGNAL.saturating_add(signal),
        },
    })
}

/// Prints what the argument parser has to say: help, the version, or what is wrong.
pub(crate) fn print_usage(error: &clap::Error) -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let printed = error.print();
    if let Some(line) = separated(error, &words) {
        text::print_stderr(&format!("hint: put `--` before the program: `workspace {line}`"));
    }
    match printed {
        // Help is data, and its reader may leave early too.
        Err(closed) if closed.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(FAILED),
        _ if !error.use_stderr() => ExitCode::from(DONE),
        // Two would be the number of conflicts there.
        _ if std::env::args_os().any(|word| word == "merge-file" || word == "merge-tree") => {
            ExitCode::from(MERGE_USAGE)
        }
        _ => ExitCode::from(USAGE),
    }
}

/// Commands that run a program, which stands behind `--`.
const RUNNING: [&str; 3] = ["run", "exec", "try"];

/// Returns the line that was meant when a program was given without `--`.
fn separated(error: &clap::Error, words: &[String]) -> Option<String> {
    if error.kind() != clap::error::ErrorKind::UnknownArgument {
        return None;
    }
    let Some(clap::error::ContextValue::String(program)) = error.get(clap::error::ContextKind::InvalidArg)
    else {
        return None;
    };
    let command = words.iter().position(|word| RUNNING.contains(&word.as_str()))?;
    if program.starts_with('-') || words.iter().any(|word| word == "--") {
        return None;
    }
    let at = words.iter().skip(command + 1).position(|word| word == program)? + command + 1;
    let line = words[..at].iter().map(String::as_str).chain(["--"]);
    Some(quote(line.chain(words[at..].iter().map(String::as_str))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_only_place_is_the_store_only_where_the_store_failed() {
        let (action, path) = ("create", PathBuf::from("there"));
        let source = || io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        let store = StoreError::Io { action, path: path.clone(), source: source() };
        assert!(CommandError::from(store).hints[0].contains("store"));
        let directory = DirectoryError::Io { action, path, source: source() };
        assert!(!CommandError::from(directory).hints[0].contains("store"));
    }
}

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

/// Success.
const EXIT_SUCCESS: u8 = 0;
/// Failure.
const EXIT_FAILURE: u8 = 1;
/// Usage error; the argument parser has the same status.
const EXIT_USAGE: u8 = 2;
/// Success with warnings.
const EXIT_WARNINGS: u8 = 3;

/// Failure of `try`, `run`, `exec` and `shell`, whose other statuses are those of the program.
const EXIT_NOT_RUN: u8 = 125;
/// Failure of `merge-file` and `merge-tree`, as of `git merge-file`. Statuses below 128 are numbers of conflicts, and
/// git also treats 128 from a merge driver as a conflict.
const EXIT_NOT_MERGED: u8 = 255;
/// Status of `merge-file` for a file that is not text: git treats it as a conflict and continues with other files.
const EXIT_NOT_TEXT: u8 = 128;
/// Usage error of `merge-file` and `merge-tree`.
const EXIT_MERGE_USAGE: u8 = 129;
/// Added to the signal number for the status of a program that a signal killed.
const EXIT_SIGNAL_BASE: u8 = 128;

/// Outcome of a command that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Success.
    Done,
    /// Success, but part of the result is missing or damaged; stderr or the output says what.
    WithWarnings,
    /// The program in the sandbox exited with this status.
    Exit(u8),
}

impl Outcome {
    pub(crate) fn with_warnings_if(has_warnings: bool) -> Self {
        if has_warnings { Self::WithWarnings } else { Self::Done }
    }
}

/// Kind of an error, which decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The work failed.
    Failed,
    /// The command line is invalid.
    Usage,
    /// The reader closed the output pipe, as `| head` does: success.
    OutputClosed,
    /// The program in the sandbox did not run, or its exit status is unknown.
    NotRun,
    /// A merge failed, with this exit status. Lower statuses are numbers of conflicts.
    NotMerged(u8),
    /// The signal with this number interrupted this program.
    Interrupted(u8),
}

/// Error of a command: what happened, and hints for the user.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) hints: Vec<String>,
}

pub(crate) type Result<T, E = CommandError> = std::result::Result<T, E>;

impl CommandError {
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Failed, message: message.into(), hints: Vec::new() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Usage, ..Self::failed(message) }
    }

    /// Creates the error for an interruption by a signal.
    pub(crate) fn interrupted(signal: i32) -> Self {
        let signal = u8::try_from(signal).unwrap_or_default();
        Self { kind: ErrorKind::Interrupted(signal), ..Self::failed("interrupted") }
    }

    /// Sets the exit status of a failure of this program, [`EXIT_NOT_RUN`] (125), for a command whose other statuses are
    /// those of the program that it runs. It also applies to failures after that program has run.
    pub(crate) fn with_own_failure_status(self) -> Self {
        match self.kind {
            ErrorKind::Failed => Self { kind: ErrorKind::NotRun, ..self },
            _ => self,
        }
    }

    /// Sets an exit status that is no number of conflicts, for a command whose other statuses are such numbers.
    pub(crate) fn with_not_merged_status(self) -> Self {
        match self.kind {
            ErrorKind::Failed => Self { kind: ErrorKind::NotMerged(EXIT_NOT_MERGED), ..self },
            ErrorKind::Usage => Self { kind: ErrorKind::NotMerged(EXIT_MERGE_USAGE), ..self },
            _ => self,
        }
    }

    /// Creates the error for a file that cannot be merged because it is not text.
    pub(crate) fn not_text(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::NotMerged(EXIT_NOT_TEXT), ..Self::failed(message) }
    }

    /// Returns true for the error of a file that is not text.
    pub(crate) fn is_not_text(&self) -> bool {
        self.kind == ErrorKind::NotMerged(EXIT_NOT_TEXT)
    }

    /// Adds a hint for the user.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Creates the error for a failed write of the command's output.
    pub(crate) fn output_failed(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self { kind: ErrorKind::OutputClosed, ..Self::failed("the output was closed") }
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
            text::print_stderr("hint: this error is unexpected; `workspace verify` checks the store");
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
        let failed = Self::failed(error.to_string());
        match error {
            TreeError::Store(error) => error.into(),
            TreeError::Content { source, .. } => failed.hint(io_hint(&source)),
            // The path comes from an archive, a git repository or a merge.
            _ => failed.hint("no directory can contain such an entry"),
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
                failed.hint("`workspace snapshot` keeps it; `--force` overwrites it")
            }
            DirectoryError::NotEmpty { .. } => failed
                .hint("use a new or empty directory, or one that was checked out or snapshotted before")
                .hint("`--force` writes into this directory: conflicting entries are overwritten, other files stay"),
            DirectoryError::Collision { .. } => {
                failed.hint("check out on a case-sensitive filesystem")
            }
            DirectoryError::TooDeep { .. } => {
                failed.hint("move it to a higher directory, or exclude it in a `.workspaceignore` file")
            }
            DirectoryError::Incomplete { .. } => {
                failed.hint("make it readable (`chmod u+r`), or remove it")
            }
            DirectoryError::Io { source, .. } => failed.hint(io_hint(&source)),
            _ => failed,
        }
    }
}

/// Formats paths as a list of limited length, one per line.
pub(crate) fn listed_paths(paths: &[PathBuf]) -> String {
    const PATHS_MAX: usize = 10;
    let mut lines: Vec<String> = paths
        .iter()
        .take(PATHS_MAX)
        .map(|path| quote_path(path.as_os_str().as_bytes()).into_owned())
        .collect();
    if paths.len() > PATHS_MAX {
        lines.push(format!("and {} more", paths.len() - PATHS_MAX));
    }
    lines.join("\n  ")
}

impl From<ArchiveError> for CommandError {
    fn from(error: ArchiveError) -> Self {
        let failed = Self::failed(error.to_string());
        match error {
            ArchiveError::Store(error) => error.into(),
            ArchiveError::Tree(error) => error.into(),
            ArchiveError::Write { source } => Self::output_failed(&source),
            ArchiveError::NotAnArchive { .. } => {
                failed.hint("the archive must be an uncompressed tar (ustar, GNU or pax): `tar -cf x.tar DIR`")
            }
            ArchiveError::Malformed { .. } | ArchiveError::Truncated { .. } => {
                failed.hint("nothing was imported; download or create the archive again")
            }
            ArchiveError::Read { source } => read_hint(failed, &source),
            ArchiveError::Refused { path, .. } if path.starts_with('/') => failed.hint(
                "nothing was imported; create the archive without `-P`, or with `--transform='s,^/*,,S'` as well",
            ),
            ArchiveError::Refused { .. } => failed.hint("nothing was imported"),
            _ => failed,
        }
    }
}

/// Adds a hint to an error of reading an archive, which may end in the middle of a file.
fn read_hint(failed: CommandError, source: &io::Error) -> CommandError {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => {
            failed.hint("nothing was imported; download or create the archive again")
        }
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
                None => Self::failed(error.to_string()).hint("lazy-mount.log in the store may have details"),
            },
        }
    }
}

const CHOOSE_STORE: &str = "`--store DIR` or WORKSPACE_STORE selects a store; `workspace snapshot` creates one, in a \
     directory that is new or empty";

/// Returns true if the error means that the path of the store is a file.
fn is_not_a_directory(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists)
}

/// Returns a hint for an error of the store; `None` if the user can do nothing about it.
fn store_hint(error: &StoreError) -> Option<String> {
    let hint = match error {
        StoreError::NotAStore { .. } => CHOOSE_STORE,
        StoreError::Io { source, .. } if is_not_a_directory(source) => CHOOSE_STORE,
        StoreError::UnsupportedFormat { .. } => "use a version of `workspace` that supports this format",
        StoreError::Busy { .. } => "try again when it is done",
        StoreError::InUse { .. } => "end the processes that have it open, or use it in their namespace",
        StoreError::UnknownSnapshot(_) => "`workspace log` lists the snapshots of this store",
        StoreError::ReferenceMoved { name, .. } => {
            return Some(format!(
                "another process moved it; check `workspace log --ref {name}` and try again"
            ));
        }
        StoreError::BadReferenceName(_) => "for instance `main`, `release-1.2` or `runs/42`",
        StoreError::Index { .. } => "`workspace verify --repair` rebuilds the index",
        StoreError::TooLarge(_) => "nothing was stored; split it into smaller parts",
        StoreError::Poisoned => "run `workspace verify`",
        StoreError::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            "the store is on a read-only filesystem: commands that write need a writable one"
        }
        StoreError::Io { source, .. } => io_hint(source),
        error if error.is_corruption() => "`workspace verify` lists every damaged path",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns a hint for an I/O error.
pub(crate) fn io_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "nothing was lost; free disk space, for instance with `workspace gc`, and try again"
        }
        io::ErrorKind::PermissionDenied => "check its owner and its permission bits",
        io::ErrorKind::ReadOnlyFilesystem => "use a path on a writable filesystem",
        io::ErrorKind::NotFound => "check the spelling; a relative path starts in the current directory",
        io::ErrorKind::NotADirectory => "specify a directory",
        io::ErrorKind::AlreadyExists => "another entry has that name; specify a directory, or an unused name",
        io::ErrorKind::IsADirectory => "specify a file",
        _ => "the system log (`dmesg`) may have details",
    }
}

/// Prints the error of a command, if it failed, and returns its exit status.
pub(crate) fn report_result(result: Result<Outcome>) -> ExitCode {
    ExitCode::from(match result {
        Ok(Outcome::Done) => EXIT_SUCCESS,
        Ok(Outcome::WithWarnings) => EXIT_WARNINGS,
        Ok(Outcome::Exit(status)) => status,
        Err(error) => match error.kind {
            ErrorKind::OutputClosed => EXIT_SUCCESS,
            ErrorKind::Failed => {
                error.print();
                EXIT_FAILURE
            }
            ErrorKind::Usage => {
                error.print();
                EXIT_USAGE
            }
            ErrorKind::NotRun => {
                error.print();
                EXIT_NOT_RUN
            }
            ErrorKind::NotMerged(status) => {
                error.print();
                status
            }
            ErrorKind::Interrupted(signal) => EXIT_SIGNAL_BASE.saturating_add(signal),
        },
    })
}

/// Prints help, version or usage error of the argument parser, and returns the exit status.
pub(crate) fn print_usage(error: &clap::Error) -> ExitCode {
    let args: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let printed = error.print();
    if let Some(line) = line_with_separator(error, &args) {
        text::print_stderr(&format!("hint: put `--` before the program: `workspace {line}`"));
    }
    if let Some((command, line)) = line_without_group(error, &args) {
        text::print_stderr(&format!("hint: `{command}` is a command of its own: `workspace {line}`"));
    }
    match printed {
        // A reader of the help may close the pipe early, as `| head` does.
        Err(write_error) if write_error.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(EXIT_FAILURE),
        _ if !error.use_stderr() => ExitCode::from(EXIT_SUCCESS),
        // Status 2 would be a number of conflicts.
        _ if std::env::args_os().any(|arg| arg == "merge-file" || arg == "merge-tree") => {
            ExitCode::from(EXIT_MERGE_USAGE)
        }
        _ => ExitCode::from(EXIT_USAGE),
    }
}

/// Commands that take a program after `--`.
const PROGRAM_COMMANDS: [&str; 3] = ["run", "exec", "try"];

/// Commands on sandboxes that are not in the group `sandbox`.
const UNGROUPED_COMMANDS: [&str; 6] = ["run", "exec", "shell", "ps", "logs", "cp"];

/// Returns a correction for an error such as `workspace sandbox exec`: the command on sandboxes, and the command line
/// without the word `sandbox`. `None` for another error.
fn line_without_group<'a>(error: &clap::Error, args: &'a [String]) -> Option<(&'a str, String)> {
    if error.kind() != clap::error::ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(clap::error::ContextValue::String(unknown)) =
        error.get(clap::error::ContextKind::InvalidSubcommand)
    else {
        return None;
    };
    let group = args.iter().position(|arg| arg == "sandbox")?;
    let command = args.iter().skip(group + 1).find(|arg| *arg == unknown)?;
    UNGROUPED_COMMANDS.contains(&command.as_str()).then(|| {
        let words = args[..group].iter().chain(&args[group + 1..]).map(String::as_str);
        (command.as_str(), quote(words))
    })
}

/// Returns a correction for an error such as `workspace run make`: the command line with `--` before the program.
/// `None` for another error.
fn line_with_separator(error: &clap::Error, args: &[String]) -> Option<String> {
    if error.kind() != clap::error::ErrorKind::UnknownArgument {
        return None;
    }
    let Some(clap::error::ContextValue::String(program)) = error.get(clap::error::ContextKind::InvalidArg)
    else {
        return None;
    };
    let command = args.iter().position(|arg| PROGRAM_COMMANDS.contains(&arg.as_str()))?;
    if program.starts_with('-') || args.iter().any(|arg| arg == "--") {
        return None;
    }
    let index = args.iter().skip(command + 1).position(|arg| arg == program)? + command + 1;
    let line = args[..index].iter().map(String::as_str).chain(["--"]);
    Some(quote(line.chain(args[index..].iter().map(String::as_str))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_read_only_hint_names_the_store_only_for_store_errors() {
        let (action, path) = ("create", PathBuf::from("there"));
        let source = || io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        let store = StoreError::Io { action, path: path.clone(), source: source() };
        assert!(CommandError::from(store).hints[0].contains("store"));
        let directory = DirectoryError::Io { action, path, source: source() };
        assert!(!CommandError::from(directory).hints[0].contains("store"));
    }
}

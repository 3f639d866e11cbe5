//! Errors of sandboxes.

use std::io;

use tokio::task::JoinError;
use workspace_catalog::{CatalogError, State};
use workspace_state::{Cancelled, SnapshotId};
use workspace_workspace::{WorkspaceError, is_disk_full_message};

use crate::build::recipe::RecipeError;
use crate::hooks::HookError;
use crate::io::error::FileError;
use crate::runtime::{RuntimeError, WorkspaceProcess};
use crate::template::TemplateError;

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, SandboxError>;

/// Error of this crate. The messages are for users.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain most fields")]
pub enum SandboxError {
    /// There is no such sandbox, or it belongs to another owner.
    #[error("there is no sandbox `{id}`")]
    NotFound { id: String },
    /// The state of the sandbox does not allow the operation.
    #[error("sandbox `{id}` is {state}{}", reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    NotRunning { id: String, state: State, reason: Option<String> },
    /// The sandbox is paused.
    #[error("sandbox `{id}` is paused; resume it first: `workspace sandbox resume {id}`, or `POST …/resume`")]
    Paused { id: String },
    /// Another operation on the sandbox takes longer than a request waits.
    #[error("another operation on sandbox `{id}` has been in progress for {seconds} s; try again")]
    Busy {
        id: String,
        /// Seconds that the request waited.
        seconds: u64,
    },
    /// Writers outside the sandbox, or an operation on its workspace, did not finish in time.
    #[error("the workspace of sandbox `{id}` has been in use for {seconds} s; try again")]
    WorkspaceBusy {
        id: String,
        /// Seconds that the request waited.
        seconds: u64,
    },
    /// One of the [`WorkspaceHooks`](crate::WorkspaceHooks) did not accept a new workspace.
    #[error("the workspace of the sandbox was not accepted: {source}")]
    CreationHook { source: HookError },
    /// One of the [`WorkspaceHooks`](crate::WorkspaceHooks) did not answer whether it keeps a workspace.
    #[error(
        "the files of sandbox `{id}` may be in use: {source}; none was deleted, and the server tries again"
    )]
    RemovalHook { id: String, source: HookError },
    /// The changes of a sandbox could not be completed, so it was not removed.
    #[error(
        "the changes in sandbox `{id}` could not be completed, so it was not deleted: {source}; try again, or delete it \
         with `complete=false` (`--discard`) to lose them"
    )]
    NotCompleted { id: String, source: Box<SandboxError> },
    /// A completion of the work in a sandbox could not be recorded.
    #[error("the completion could not be recorded: {source}")]
    WorkRecorder { source: HookError },
    /// A call to the runtime for an existing sandbox failed.
    #[error("sandbox `{id}`: {source}")]
    Operation { id: String, source: RuntimeError },
    /// The sandbox has expired and is about to be removed.
    #[error("sandbox `{id}` has expired")]
    Expired { id: String },
    /// The guest agent of the sandbox is not connected at present.
    #[error("the guest agent of sandbox `{id}` is not connected; try again")]
    AgentAway { id: String },
    /// The guest agent of the sandbox was lost, or did not respond in time.
    #[error("the guest agent of sandbox `{id}` does not respond: {reason}")]
    AgentLost { id: String, reason: String },
    /// The guest agent of the sandbox is older than the server, and lacks a feature.
    #[error("the guest agent of sandbox `{id}` is too old for this; fork the sandbox, and use the fork")]
    GuestOutdated { id: String },
    /// An operation on files or ports failed in the sandbox.
    #[error(transparent)]
    File(FileError),
    /// The limit of simultaneous transfers, watches or connections is reached.
    #[error("a sandbox may have {limit} {what} at once; wait for some to end")]
    TooManyTransfers {
        /// Plural noun.
        what: &'static str,
        limit: usize,
    },
    /// Transfers, watches and connections of the owner use too much memory.
    #[error("transfers and connections of the same owner use too much memory; wait for some to end")]
    TransferMemory,
    /// Another server runs the sandbox.
    #[error("sandbox `{id}` runs on server `{server}`; send the request there")]
    Elsewhere {
        id: String,
        /// Name of that server in the catalog.
        server: String,
    },
    /// The quota of sandboxes is used up.
    #[error("{what} may have {limit} sandboxes at most; delete some, or raise {setting}")]
    TooMany {
        /// Subject of the quota: the owner in backquotes, or the server.
        what: String,
        limit: u32,
        setting: &'static str,
    },
    /// The owner's quota of sandboxes that are paused on disk is used up.
    #[error(
        "`{owner}` may have {limit} sandboxes paused on disk at most; resume or delete some, or raise \
         MAX_PAUSED_PER_OWNER"
    )]
    TooManyPaused { owner: String, limit: u32 },
    /// The owner's quota of snapshots is used up.
    #[error("`{owner}` may have {limit} snapshots at most; delete some, or raise MAX_SNAPSHOTS_PER_OWNER")]
    TooManySnapshots { owner: String, limit: u32 },
    /// The owner's snapshots use up their quota of the store.
    #[error(
        "the snapshots and projects of `{owner}` take {} of the store, of {limit}; delete some, or raise \
         MAX_SNAPSHOT_BYTES_PER_OWNER. What you delete counts until garbage is collected, which has begun now",
        .bytes.map_or_else(|| "too many bytes".to_owned(), |bytes| format!("{bytes} bytes"))
    )]
    SnapshotsTooLarge {
        owner: String,
        /// `None` for an agent: content that it shares with files which it may not see does not count.
        bytes: Option<u64>,
        limit: u64,
    },
    /// The owner of the project has used up a quota of snapshots. An agent may not learn how much the owner has.
    #[error(
        "the owner of project `{project}` has used up the quota of snapshots: the owner can delete some, or the operator \
         can raise MAX_SNAPSHOTS_PER_OWNER or MAX_SNAPSHOT_BYTES_PER_OWNER"
    )]
    ProjectQuota { project: String },
    /// A note is too large.
    #[error("{field}: must have at most {limit} bytes")]
    NoteTooLarge { field: &'static str, limit: usize },
    /// The quota of notes is used up.
    #[error(
        "{what} may have {limit} {unit} at most; notes are deleted with their snapshots and sandboxes; or raise {setting}"
    )]
    TooManyNotes {
        /// Subject of the quota: the sandbox, or the owner in backquotes.
        what: String,
        limit: u64,
        /// Plural noun.
        unit: &'static str,
        setting: &'static str,
    },
    /// The snapshot after a command took too long.
    #[error("the files could not be read within {seconds} s")]
    TraceTimeout { seconds: u64 },
    /// The queue of creations is full.
    #[error("{waiting} sandboxes are already waiting to be created; try again")]
    QueueFull { waiting: usize },
    /// The owner has a sandbox of that name, and the request wants a unique one.
    #[error("a sandbox named `{name}` already exists{}", with_id(.sandbox))]
    NameTaken {
        name: String,
        /// Id of the sandbox that has the name; `None` while it is being created.
        sandbox: Option<String>,
    },
    /// The idempotency key was used for another request.
    #[error("idempotency key `{key}` was used for another request")]
    IdempotencyConflict { key: String },
    /// A parameter is not valid.
    #[error("{field}: {message}")]
    Invalid {
        field: &'static str,
        /// Problem, and allowed values.
        message: String,
    },
    /// There is no such template.
    #[error("there is no template `{name}`{hint}")]
    NoTemplate {
        name: String,
        /// Hint how to get it.
        hint: String,
    },
    /// A sandbox uses the template.
    #[error("sandbox `{sandbox}` was created from template `{name}`; delete it first")]
    TemplateUsed { name: String, sandbox: String },
    /// The templates of this runtime cannot be imported.
    #[error("the {runtime} runtime does not support imports; pull or load the image there")]
    NoImports { runtime: &'static str },
    /// A recipe has a mistake.
    #[error("the recipe has a mistake in {0}")]
    Recipe(#[from] RecipeError),
    /// A step of a template build failed.
    #[error("step {step} of the recipe (line {line}) failed: {reason}")]
    BuildFailed {
        /// Number of the step, from 1.
        step: usize,
        /// Line of the step in the recipe, from 1.
        line: usize,
        reason: String,
        /// Exit code of its command, if that is the reason.
        exit_code: Option<i32>,
    },
    /// A template build took too long.
    #[error(
        "the build took longer than {seconds} s, the limit of this server (BUILD_TIMEOUT); its finished steps are kept"
    )]
    BuildTimeout { seconds: u64 },
    /// The root filesystem of the sandbox cannot be kept.
    #[error("the root filesystem cannot be kept: {reason}")]
    RootUnavailable { reason: String },
    /// The head of a project cannot be followed here.
    #[error("the head of a project cannot be followed here: {reason}")]
    FollowUnavailable { reason: String },
    /// The workspace cannot be rebased here.
    #[error("the workspace cannot be rebased here: {reason}")]
    RebaseUnavailable { reason: String },
    /// The sandbox belongs to no project.
    #[error("sandbox `{id}` belongs to no project; create one with `project`")]
    NoProject { id: String },
    /// A sandbox cannot be restored to a snapshot, because its changes could not be told from those of others.
    #[error(
        "it is not known from which rebase of sandbox `{id}` snapshot `{snapshot}` is, because snapshots before it were \
         deleted, or the sandbox was rebased too often since; create another sandbox from it"
    )]
    BaseUnknown { id: String, snapshot: SnapshotId },
    /// The workspace is read-only.
    #[error("the workspace of sandbox `{id}` is read-only: {hint}")]
    ReadOnly { id: String, hint: &'static str },
    /// Commands of the sandbox cannot run as other users.
    #[error(
        "commands of this sandbox cannot run as `{user}`: that needs `root: kept`, and a server that runs as root with \
         the embedded runtime"
    )]
    UserUnavailable { user: String },
    /// Commands run in the sandbox whose root a restore would replace.
    #[error(
        "{count} commands run in sandbox `{id}`, and restoring its root filesystem ends all of them (`force`)"
    )]
    RootUsed { id: String, count: usize },
    /// Processes use the workspace that a restore would replace.
    #[error("{} of sandbox `{id}` use its workspace ({}); stop them, or let them be killed (`force`)", process_count(.processes), describe(.processes))]
    WorkspaceUsed { id: String, processes: Vec<WorkspaceProcess> },
    /// An operation on a workspace failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// A template could not be imported or removed.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The sandbox would exceed the maximum lifetime.
    #[error(
        "the lifetime of a sandbox is at most {limit} s with extensions (MAX_SANDBOX_LIFETIME), of which {left} s are left"
    )]
    Lifetime {
        /// Maximum lifetime, in seconds.
        limit: u64,
        /// Seconds of the maximum lifetime that are still available.
        left: u64,
    },
    /// There is no such command.
    #[error("there is no command `{id}` in this sandbox")]
    NoCommand { id: String },
    /// The command has ended and accepts no requests.
    #[error("command `{id}` has ended")]
    CommandEnded { id: String },
    /// The command does not accept input.
    #[error("command `{id}` does not accept input, or its input is closed; start it with `stdin`")]
    InputClosed { id: String },
    /// The guest agent disconnected while it was sent input.
    #[error(
        "the guest agent disconnected while input was sent to command `{id}`; some of it may have arrived"
    )]
    InputLost { id: String },
    /// The command does not read its input.
    #[error("command `{id}` does not read its input; {written} bytes were written")]
    InputFull {
        id: String,
        /// Bytes that were sent.
        written: usize,
    },
    /// There is no such terminal.
    #[error("there is no terminal `{id}` in this sandbox")]
    NoTerminal { id: String },
    /// The limit of terminals is reached.
    #[error("a sandbox may have {limit} terminals at most; close one")]
    TooManyTerminals { limit: u32 },
    /// The limit of running commands is reached.
    #[error("a sandbox may run {limit} commands at once; wait for one or end it, or raise MAX_COMMANDS")]
    TooManyCommands { limit: u32 },
    /// The command is known, but its output is no longer kept.
    #[error("the output of command `{id}` is no longer kept")]
    OutputGone { id: String },
    /// The sandbox could not be started: its guest agent did not connect, or the snapshot to resume it from is unknown.
    #[error("{message}")]
    Refused { message: String },
    /// The request was dropped, or the server stops. Partial work was undone.
    #[error("the operation was cancelled")]
    Cancelled,
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The catalog failed.
    #[error(transparent)]
    Catalog(CatalogError),
    /// Access to a file or directory of the server failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// Action that failed, as an infinitive.
        action: String,
        source: io::Error,
    },
}

impl SandboxError {
    /// Returns the error of a task that panicked or was aborted. `action` is an infinitive.
    pub(crate) fn task_failed(action: &str, error: JoinError) -> Self {
        Self::Io { action: action.to_owned(), source: io::Error::other(error) }
    }

    /// Returns true if a quota of snapshots is used up.
    pub fn is_snapshot_quota(&self) -> bool {
        matches!(
            self,
            Self::TooManySnapshots { .. } | Self::SnapshotsTooLarge { .. } | Self::ProjectQuota { .. }
        )
    }

    /// Returns true if the cause is a full disk of the server, also if another process reported it.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Workspace(error) => error.is_full(),
            Self::Catalog(error) => error.is_full(),
            Self::Template(error) => matches!(error, TemplateError::Full),
            // Runtimes and guest agents are other processes: their errors are text.
            Self::Runtime(RuntimeError::Failed { reason, .. })
            | Self::Operation { source: RuntimeError::Failed { reason, .. }, .. } => {
                is_disk_full_message(reason)
            }
            Self::Refused { message } => is_disk_full_message(message),
            Self::NotCompleted { source, .. } => source.is_full(),
            Self::WorkRecorder { source: HookError::Failed(failure) } => {
                failure.downcast_ref::<CatalogError>().is_some_and(CatalogError::is_full)
            }
            Self::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}

impl From<Cancelled> for SandboxError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<CatalogError> for SandboxError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::NotFound { what: "sandbox", id } => Self::NotFound { id },
            CatalogError::IdempotencyConflict { key } => Self::IdempotencyConflict { key },
            CatalogError::Nul { field } => Self::Invalid { field, message: "contains a NUL".to_owned() },
            other => Self::Catalog(other),
        }
    }
}

/// Replaces absolute paths in a text for clients by `…`, since they may be of the host. A path is replaced at the start
/// of a word; words are separated by whitespace and `=`. `/`, `/workspace` and paths below it, and paths below `/dev`,
/// stay.
pub fn without_host_paths(text: &str) -> String {
    let hide = |word: &str| {
        let punctuation = ['`', '\'', '"', '(', '[', ')', ']', ',', ';', ':', '.'];
        let path = word.trim_matches(punctuation);
        let inside = path == "/"
            || path == "/workspace"
            || path.starts_with("/workspace/")
            || path.starts_with("/dev/");
        if !path.starts_with('/') || inside { word.to_owned() } else { word.replace(path, "…") }
    };
    let is_separator = |character: char| character.is_whitespace() || character == '=';
    let words = text.split_inclusive(is_separator).map(|part| {
        let word = part.trim_end_matches(is_separator);
        hide(word) + &part[word.len()..]
    });
    words.collect()
}

/// Adds the failed action to an I/O error.
pub(crate) trait Context<T> {
    fn context(self, action: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, action: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| SandboxError::Io { action: action(), source: source.into() })
    }
}

fn with_id(sandbox: &Option<String>) -> String {
    sandbox.as_ref().map(|id| format!(": {id}")).unwrap_or_default()
}

fn process_count(processes: &[WorkspaceProcess]) -> String {
    if processes.len() == 1 { "1 process".to_owned() } else { format!("{} processes", processes.len()) }
}

/// Describes the first few processes.
fn describe(processes: &[WorkspaceProcess]) -> String {
    let shown = processes
        .iter()
        .take(5)
        .map(|process| format!("{} {}: {}", process.pid, process.command, process.usage));
    let more = if processes.len() > 5 { ", …" } else { "" };
    shown.collect::<Vec<_>>().join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_host_are_left_out_and_those_inside_stay() {
        for (text, expected) in [
            (
                "cannot remove `d` of /var/lib/x/sbx-1/1/tree: Directory not empty",
                "cannot remove `d` of …: Directory not empty",
            ),
            ("cannot read (/srv/a b), then `/srv/c`;", "cannot read (… b), then `…`;"),
            (
                "/workspace/a is in /workspace, a/b and / stay",
                "/workspace/a is in /workspace, a/b and / stay",
            ),
            (
                "mount failed:\n/var/lib/x\tlowerdir=/var/lib/a:/b,upperdir=/srv/c\nhint: free space\n",
                "mount failed:\n…\tlowerdir=…=…\nhint: free space\n",
            ),
            ("a == /dev/null\r\n", "a == /dev/null\r\n"),
            ("", ""),
        ] {
            assert_eq!(without_host_paths(text), expected);
        }
    }
}

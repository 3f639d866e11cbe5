//! Errors of sandboxes.

use std::io;

use workspace_catalog::{CatalogError, State};
use workspace_state::Cancelled;
use workspace_workspace::{WorkspaceError, is_disk_full_message};

use crate::runtime::{RuntimeError, WorkspaceUser};
use crate::template::TemplateError;

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, SandboxError>;

/// An error of this crate. Its texts are for users.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// There is no such sandbox, or it belongs to another owner.
    #[error("there is no sandbox `{id}`")]
    NotFound {
        /// Its id.
        id: String,
    },
    /// Its state does not allow the operation.
    #[error("sandbox `{id}` is {state}{}", reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    NotRunning {
        /// Its id.
        id: String,
        /// Its state.
        state: State,
        /// Reason of the state.
        reason: Option<String>,
    },
    /// Another operation on it takes long.
    #[error("another operation on sandbox `{id}` has been under way for {seconds} s; try again")]
    Busy {
        /// Its id.
        id: String,
        /// Seconds that were waited.
        seconds: u64,
    },
    /// The runtime failed with an existing sandbox.
    #[error("sandbox `{id}`: {source}")]
    Operation {
        /// Its id.
        id: String,
        /// The runtime's error.
        source: RuntimeError,
    },
    /// It has expired and is about to be removed.
    #[error("the time of sandbox `{id}` is over")]
    Expired {
        /// Its id.
        id: String,
    },
    /// Its guest agent is not connected at present.
    #[error("the guest agent of sandbox `{id}` is not connected; try again")]
    AgentAway {
        /// The sandbox.
        id: String,
    },
    /// Its guest agent was lost, or did not answer in time.
    #[error("the guest agent of sandbox `{id}` does not answer: {reason}")]
    AgentLost {
        /// The sandbox.
        id: String,
        /// Reason of the loss.
        reason: String,
    },
    /// Another server runs it.
    #[error("sandbox `{id}` runs on server `{node}`; send the request there")]
    Elsewhere {
        /// The sandbox.
        id: String,
        /// The server's name in the catalog.
        node: String,
    },
    /// The quota of sandboxes is used up.
    #[error("{what} may have {limit} sandboxes at most; delete some, or raise {setting}")]
    TooMany {
        /// Subject of the quota: the owner in backquotes, or the server.
        what: String,
        /// Largest number of sandboxes.
        limit: u32,
        /// Setting that raises the limit.
        setting: &'static str,
    },
    /// The owner's quota of snapshots is used up.
    #[error("`{owner}` may have {limit} snapshots at most; delete some, or raise MAX_SNAPSHOTS_PER_OWNER")]
    TooManySnapshots {
        /// The owner.
        owner: String,
        /// Largest number of snapshots.
        limit: u32,
    },
    /// The owner's snapshots use up their quota of the store.
    #[error(
        "the snapshots of `{owner}` take {bytes} bytes of the store, of {limit}; delete some, or raise \
         MAX_SNAPSHOT_BYTES_PER_OWNER. What you delete counts until garbage is collected, which has begun now"
    )]
    SnapshotsTooLarge {
        /// The owner.
        owner: String,
        /// Bytes that they use.
        bytes: u64,
        /// Largest number of bytes.
        limit: u64,
    },
    /// The queue of creations is full.
    #[error("{waiting} sandboxes wait to be made already; try again")]
    QueueFull {
        /// Number of creations in the queue.
        waiting: usize,
    },
    /// The owner has a sandbox of that name, and the request wants a unique one.
    #[error("there is a sandbox of the name `{name}` already{}", with_id(.sandbox))]
    NameTaken {
        /// The name.
        name: String,
        /// Id of the sandbox that has the name; `None` while it is being created.
        sandbox: Option<String>,
    },
    /// The same idempotency key came with another request.
    #[error("idempotency key `{key}` was used for another request")]
    OtherRequest {
        /// The key.
        key: String,
    },
    /// A parameter is not valid.
    #[error("{field}: {message}")]
    Invalid {
        /// Name of the parameter.
        field: &'static str,
        /// Problem, and allowed values.
        message: String,
    },
    /// There is no such template.
    #[error("there is no template `{name}`{hint}")]
    NoTemplate {
        /// Its name.
        name: String,
        /// Hint how to get it.
        hint: String,
    },
    /// A sandbox uses the template.
    #[error("sandbox `{sandbox}` was made of template `{name}`; delete it first")]
    TemplateUsed {
        /// The template.
        name: String,
        /// One of the sandboxes.
        sandbox: String,
    },
    /// The templates of this runtime cannot be imported.
    #[error("the {runtime} runtime takes no imports: pull or load the image there")]
    NoImports {
        /// Name of the runtime.
        runtime: &'static str,
    },
    /// Processes that use its workspace would have to be ended.
    #[error("{} of sandbox `{id}` use its workspace ({}); stop them, or let them be ended (`force`)", process_count(.users), describe(.users))]
    WorkspaceUsed {
        /// The sandbox.
        id: String,
        /// The processes.
        users: Vec<WorkspaceUser>,
    },
    /// An operation on a workspace failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// A template could not be imported or removed.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The sandbox would exceed the longest lifetime.
    #[error(
        "the lifetime of a sandbox is at most {limit} s with extensions (MAX_SANDBOX_LIFETIME), of which {left} s are left"
    )]
    Lifetime {
        /// Longest lifetime in seconds.
        limit: u64,
        /// Seconds that are left.
        left: u64,
    },
    /// There is no such command.
    #[error("there is no command `{id}` in this sandbox")]
    NoCommand {
        /// Its id.
        id: String,
    },
    /// The command has ended and takes no requests.
    #[error("command `{id}` has ended")]
    CommandEnded {
        /// Its id.
        id: String,
    },
    /// The command takes no input.
    #[error("command `{id}` takes no input, or none any more; start it with `stdin`")]
    InputClosed {
        /// Its id.
        id: String,
    },
    /// The guest agent disconnected while it was sent input.
    #[error("the guest agent went away while command `{id}` was given input; some of it may have arrived")]
    InputLost {
        /// Its id.
        id: String,
    },
    /// The command does not read its input.
    #[error("command `{id}` does not read its input; {written} bytes were passed on")]
    InputFull {
        /// Its id.
        id: String,
        /// Bytes that were sent.
        written: usize,
    },
    /// There is no such terminal.
    #[error("there is no terminal `{id}` in this sandbox")]
    NoTerminal {
        /// Its id.
        id: String,
    },
    /// The limit of terminals is reached.
    #[error("a sandbox may have {limit} terminals at most; close one")]
    TooManyTerminals {
        /// Largest number of terminals.
        limit: u32,
    },
    /// The limit of running commands is reached.
    #[error("a sandbox may run {limit} commands at once; wait for one or end it, or raise MAX_COMMANDS")]
    TooManyCommands {
        /// Largest number of running commands.
        limit: u32,
    },
    /// The command is known, but its output is not kept any more.
    #[error("what command `{id}` printed is no longer kept")]
    OutputGone {
        /// The command.
        id: String,
    },
    /// The guest agent failed.
    #[error("{message}")]
    Refused {
        /// Message of the failure.
        message: String,
    },
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
        /// Error of the system.
        source: io::Error,
    },
}

impl SandboxError {
    /// Returns true if a disk of the server was full, also if another process reported that.
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
            CatalogError::OtherRequest { key } => Self::OtherRequest { key },
            CatalogError::Nul { field } => {
                Self::Invalid { field, message: "holds the character NUL".to_owned() }
            }
            other => Self::Catalog(other),
        }
    }
}

/// Removes paths of the host from a text for clients. Paths inside a sandbox, and of devices, stay.
pub fn without_host_paths(text: &str) -> String {
    let hide = |word: &str| {
        let quotes = ['`', '\'', '"', '(', '[', ')', ']', ',', ';', ':', '.'];
        let path = word.trim_matches(quotes);
        let inside = path == "/"
            || path == "/workspace"
            || path.starts_with("/workspace/")
            || path.starts_with("/dev/");
        if !path.starts_with('/') || inside { word.to_owned() } else { word.replace(path, "…") }
    };
    text.split(' ').map(hide).collect::<Vec<_>>().join(" ")
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

fn process_count(users: &[WorkspaceUser]) -> String {
    if users.len() == 1 { "1 process".to_owned() } else { format!("{} processes", users.len()) }
}

/// Describes the first few processes.
fn describe(users: &[WorkspaceUser]) -> String {
    let shown = users.iter().take(5).map(|user| format!("{} {}: {}", user.pid, user.command, user.why));
    let more = if users.len() > 5 { ", …" } else { "" };
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
            ("", ""),
        ] {
            assert_eq!(without_host_paths(text), expected);
        }
    }
}

//! What can go wrong with a sandbox.

use std::io;

use workspace_catalog::{CatalogError, State};
use workspace_state::Cancelled;
use workspace_workspace::{WorkspaceError, is_disk_full_message};

use crate::runtime::{RuntimeError, WorkspaceUser};
use crate::template::TemplateError;

/// What the operations of this crate answer.
pub type Result<T> = std::result::Result<T, SandboxError>;

/// An error of this crate. The texts are for users.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// There is no such sandbox, or it is somebody else's.
    #[error("there is no sandbox `{id}`")]
    NotFound {
        /// Its id.
        id: String,
    },
    /// It cannot do that in its state.
    #[error("sandbox `{id}` is {state}{}", reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    NotRunning {
        /// Its id.
        id: String,
        /// Its state.
        state: State,
        /// Why it is in that state.
        reason: Option<String>,
    },
    /// Another operation on it takes long.
    #[error("another operation on sandbox `{id}` has been under way for {seconds} s; try again")]
    Busy {
        /// Its id.
        id: String,
        /// Time that was waited.
        seconds: u64,
    },
    /// The runtime could not do something to a sandbox that is there.
    #[error("sandbox `{id}`: {source}")]
    Operation {
        /// Its id.
        id: String,
        /// The runtime's error.
        source: RuntimeError,
    },
    /// Its time is up; it is removed soon.
    #[error("the time of sandbox `{id}` is over")]
    Expired {
        /// Its id.
        id: String,
    },
    /// Its guest agent is not connected just now.
    #[error("the guest agent of sandbox `{id}` is not connected; try again")]
    AgentAway {
        /// The sandbox.
        id: String,
    },
    /// Its guest agent was given up, or did not answer in time.
    #[error("the guest agent of sandbox `{id}` does not answer: {reason}")]
    AgentLost {
        /// The sandbox.
        id: String,
        /// What is known of it.
        reason: String,
    },
    /// Another server looks after it.
    #[error("the server `{node}` looks after {id}; ask there")]
    Elsewhere {
        /// The sandbox.
        id: String,
        /// The server's name in the catalog.
        node: String,
    },
    /// There are as many as there may be.
    #[error("{what} may have {limit} sandboxes at most; delete some, or raise {setting}")]
    TooMany {
        /// The owner.
        what: String,
        /// How many there may be.
        limit: u32,
        /// What raises the limit.
        setting: &'static str,
    },
    /// The owner has as many snapshots as it may have.
    #[error("`{owner}` may have {limit} snapshots at most; delete some, or raise MAX_SNAPSHOTS_PER_OWNER")]
    TooManySnapshots {
        /// The owner.
        owner: String,
        /// How many there may be.
        limit: u32,
    },
    /// The owner's snapshots take as much of the store as they may.
    #[error(
        "the snapshots of `{owner}` take {bytes} bytes of the store, of {limit}; delete some, or raise \
         MAX_SNAPSHOT_BYTES_PER_OWNER. What you delete counts until garbage is collected, which has begun now"
    )]
    SnapshotsTooLarge {
        /// The owner.
        owner: String,
        /// The bytes that they take.
        bytes: u64,
        /// The bytes that they may take.
        limit: u64,
    },
    /// Too many wait to be made.
    #[error("{waiting} sandboxes wait to be made already; try again")]
    QueueFull {
        /// How many wait.
        waiting: usize,
    },
    /// The owner has a sandbox of that name, and the request wants the only one.
    #[error("there is a sandbox of the name `{name}` already{}", with_id(.sandbox))]
    NameTaken {
        /// The name.
        name: String,
        /// Id of the sandbox that has it; none while that is being made.
        sandbox: Option<String>,
    },
    /// The same key came with another request.
    #[error("idempotency key `{key}` was used for another request")]
    OtherRequest {
        /// The key.
        key: String,
    },
    /// What was asked for is not valid.
    #[error("{field}: {message}")]
    Invalid {
        /// Where.
        field: &'static str,
        /// What is wrong, and what is allowed.
        message: String,
    },
    /// There is no such template.
    #[error("there is no template `{name}`{hint}")]
    NoTemplate {
        /// Its name.
        name: String,
        /// How to get it.
        hint: String,
    },
    /// A sandbox was made of it.
    #[error("sandbox `{sandbox}` was made of template `{name}`; delete it first")]
    TemplateUsed {
        /// The template.
        name: String,
        /// One of the sandboxes.
        sandbox: String,
    },
    /// Somebody else brings the templates of this runtime.
    #[error("the {runtime} runtime takes no imports: pull or load the image there")]
    NoImports {
        /// Which.
        runtime: &'static str,
    },
    /// Processes that use its workspace would have to end.
    #[error("{} of sandbox `{id}` use its workspace ({}); stop them, or let them be ended (`force`)", count(.users), told(.users))]
    WorkspaceUsed {
        /// The sandbox.
        id: String,
        /// Who.
        users: Vec<WorkspaceUser>,
    },
    /// Something about a workspace was not done.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// A template could not be imported or removed.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The sandbox would live longer than any may.
    #[error(
        "a sandbox may handle {limit} s in all (MAX_SANDBOX_LIFETIME); this one could be extended by {left} s"
    )]
    Lifetime {
        /// The longest life in seconds.
        limit: u64,
        /// How much is left.
        left: u64,
    },
    /// There is no such command.
    #[error("there is no command `{id}` in this sandbox")]
    NoCommand {
        /// Its id.
        id: String,
    },
    /// The command ended, and takes no orders.
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
    /// The guest agent went away while it was given input.
    #[error("the guest agent went away while command `{id}` was given input; some of it may have arrived")]
    InputLost {
        /// Its id.
        id: String,
    },
    /// The command does not read what it was given.
    #[error("command `{id}` does not read its input; {written} bytes were passed on")]
    InputFull {
        /// Its id.
        id: String,
        /// How much of what was given is on its way.
        written: usize,
    },
    /// There is no such terminal.
    #[error("there is no terminal `{id}` in this sandbox")]
    NoTerminal {
        /// Its id.
        id: String,
    },
    /// There are as many terminals as there may be.
    #[error("a sandbox may have {limit} terminals at most; close one")]
    TooManyTerminals {
        /// How many there may be.
        limit: u32,
    },
    /// As many commands run as may run at once.
    #[error("a sandbox may run {limit} commands at once; wait for one or end it, or raise MAX_COMMANDS")]
    TooManyCommands {
        /// How many may run.
        limit: u32,
    },
    /// The command is known, but what it printed is gone.
    #[error("what command `{id}` printed is no longer kept")]
    OutputGone {
        /// The command.
        id: String,
    },
    /// The guest agent could not do it.
    #[error("{message}")]
    Refused {
        /// Why.
        message: String,
    },
    /// Nobody waits for the operation any more, or the server stops. What was done of it was undone.
    #[error("the operation was cancelled")]
    Cancelled,
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The catalog failed.
    #[error(transparent)]
    Catalog(CatalogError),
    /// A file or directory of the server's failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// What the system said.
        source: io::Error,
    },
}

impl SandboxError {
    /// Whether there was no room on a disk of the server's, whoever noticed.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Workspace(error) => error.is_full(),
            Self::Catalog(error) => error.is_full(),
            Self::Template(error) => matches!(error, TemplateError::Full),
            // Runtimes and guest agents are other processes: what they say is text.
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

/// A text for clients: paths of the server's machine are left out. What is inside a sandbox, or a device, is not.
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

/// Says what was tried when the system refused.
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

fn count(users: &[WorkspaceUser]) -> String {
    if users.len() == 1 { "1 process".to_owned() } else { format!("{} processes", users.len()) }
}

/// The first few, for people.
fn told(users: &[WorkspaceUser]) -> String {
    let shown = users.iter().take(5).map(|user| format!("{} {}: {}", user.pid, user.command, user.why));
    let more = if users.len() > 5 { ", …" } else { "" };
    shown.collect::<Vec<_>>().join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_host_are_left_out_and_those_inside_stay() {
        for (text, told) in [
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
            assert_eq!(without_host_paths(text), told);
        }
    }
}

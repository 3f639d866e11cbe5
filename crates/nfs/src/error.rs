//! Errors of the functions that manage a server.

use std::io;
use std::path::PathBuf;

/// Failure of a function of [`NfsServer`](crate::NfsServer).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NfsError {
    /// None of the configured ports could be bound.
    #[error("cannot listen on any of the configured NFS ports of {address}")]
    CannotListen {
        /// Address of the settings.
        address: std::net::IpAddr,
        /// Failure of the last port.
        #[source]
        source: io::Error,
    },
    /// The server is running already.
    #[error("the NFS server is running already")]
    AlreadyRunning,
    /// A thread could not be started.
    #[error("cannot start a thread of the NFS server")]
    CannotStartThread(#[source] io::Error),
    /// Name that cannot be the name of an export.
    #[error(
        "`{name}` cannot be the name of an NFS export: it has 1 to 128 characters, of a-z, A-Z, 0-9, `-` and `_`"
    )]
    InvalidName {
        /// Name that was given.
        name: String,
    },
    /// Secret that cannot be part of a mount path.
    #[error("a mount secret has 16 to 128 characters, of a-z, A-Z, 0-9, `-` and `_`")]
    InvalidSecret,
    /// There is an export of this name.
    #[error("there is an NFS export `{name}` already")]
    ExportExists {
        /// Name of the export.
        name: String,
    },
    /// There is no export of this name.
    #[error("there is no NFS export `{name}`")]
    NoSuchExport {
        /// Name of the export.
        name: String,
    },
    /// The root of an export is not a directory, or cannot be used.
    #[error("cannot use the root directory of NFS export `{name}`")]
    UnusableRoot {
        /// Name of the export.
        name: String,
        /// Failure of the system call.
        #[source]
        source: io::Error,
    },
    /// An ordinary user can make an export only for itself.
    #[error("cannot serve NFS export `{name}` as user {uid}: the server runs as user {own}, and not as root")]
    CannotActAs {
        /// Name of the export.
        name: String,
        /// User of the export.
        uid: u32,
        /// User of this process.
        own: u32,
    },
    /// A file of the server's own directory could not be used.
    #[error("cannot use {}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Failure of the system call.
        #[source]
        source: io::Error,
    },
    /// Operations of an export did not end in time. The export is not reachable any more, but its directory
    /// is still in use.
    #[error("operations of NFS export `{name}` have not ended in time")]
    StillInUse {
        /// Name of the export.
        name: String,
    },
}

/// Formats an error with its sources, for the log.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

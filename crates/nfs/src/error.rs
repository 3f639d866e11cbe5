//! Errors of the functions that manage a server. Errors of NFS operations are status codes and not of this type.

use std::io;
use std::path::PathBuf;

/// Failure of a function of an [`NfsProvider`](crate::NfsProvider).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NfsError {
    /// None of the configured ports could be bound, or the bound socket cannot be used.
    #[error("cannot listen on any of the configured NFS ports of {address}")]
    CannotListen {
        /// Configured address to listen on.
        address: std::net::IpAddr,
        /// Error of the last port that was tried.
        #[source]
        source: io::Error,
    },
    /// The server listens already.
    #[error("the NFS server is running already")]
    AlreadyRunning,
    /// A thread of the server could not be started.
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
    /// List of clients of an export that cannot be read.
    #[error("cannot read the clients of NFS export `{name}`")]
    InvalidClients {
        /// Name of the export.
        name: String,
        /// Part of the list that is wrong.
        #[source]
        source: crate::clients::ParseClientListError,
    },
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
    /// The server does not run as root, so it cannot access files as another user.
    #[error("cannot serve NFS export `{name}` as user {uid}: the server runs as user {own}, and not as root")]
    CannotActAs {
        /// Name of the export.
        name: String,
        /// User of the export.
        uid: u32,
        /// User of this process.
        own: u32,
    },
    /// A file in the directory with the state of the server could not be used.
    #[error("cannot use {}", path.display())]
    State {
        /// Path of the file.
        path: PathBuf,
        /// Failure of the system call.
        #[source]
        source: io::Error,
    },
    /// The kernel's NFS server is managed by root only.
    #[error("only root can manage the kernel's NFS server: the server runs as user {own}")]
    NotRoot {
        /// User of this process.
        own: u32,
    },
    /// The program `exportfs` was not found.
    #[error("cannot find the program `exportfs`")]
    NoExportfs,
    /// The NFS server of the kernel does not run.
    #[error("the kernel's NFS server does not run: {} has no threads", directory.display())]
    NoKernelServer {
        /// Directory of its control files.
        directory: PathBuf,
    },
    /// The kernel's NFS server has no secrets in paths.
    #[error("NFS export `{name}` cannot have a secret: the kernel's NFS server does not support that")]
    SecretUnsupported {
        /// Name of the export.
        name: String,
    },
    /// The kernel cannot export a directory.
    #[error("the kernel cannot export the directory of NFS export `{name}`: {reason}")]
    NotExportable {
        /// Name of the export.
        name: String,
        /// Reason.
        reason: &'static str,
    },
    /// The program `exportfs` refused an export.
    #[error("exportfs refused NFS export `{name}`: {message}")]
    ExportRefused {
        /// Name of the export.
        name: String,
        /// Message of the program.
        message: String,
    },
    /// The program `exportfs` could not be run, or did not end.
    #[error("cannot run {}", program.display())]
    Exportfs {
        /// Path of the program.
        program: PathBuf,
        /// Failure of the system call.
        #[source]
        source: io::Error,
    },
    /// Operations on the former directory of an export did not end in time. Clients cannot start new operations on that
    /// directory, but it is still in use.
    #[error("operations of NFS export `{name}` have not ended in time")]
    StillInUse {
        /// Name of the export.
        name: String,
    },
}

/// Formats an error and its sources, separated by colons, for the log.
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

//! Failures that the I/O worker reports.

use workspace_agent_protocol::v1::{IoFailure, IoFailureKind};

use crate::error::SandboxError;

/// Maximum length of the path and the message of a failure, in bytes. A hostile worker may send longer ones.
const TEXT_MAX: usize = 8_192;

/// Kind of a failed file or port operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileErrorKind {
    /// There is no such file.
    NotFound,
    /// There is a file already.
    AlreadyExists,
    /// A component of the path is not a directory.
    NotADirectory,
    /// The file is a directory.
    IsADirectory,
    /// The directory is not empty.
    NotEmpty,
    /// The sandbox's user may not do it.
    PermissionDenied,
    /// The path or a parameter is not valid.
    Invalid,
    /// Neither a regular file nor a directory, or an interface of the kernel.
    NotAFile,
    /// The file does not match the condition of the request.
    PreconditionFailed,
    /// The disk of the sandbox is full.
    NoSpace,
    /// A limit of the worker was exceeded.
    LimitExceeded,
    /// The operation took too long.
    TimedOut,
    /// Nothing listens on the port.
    NotListening,
    /// The guest agent does not know the operation.
    Unsupported,
    /// Any other failure.
    Other,
}

/// Failed file or port operation in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", if path.is_empty() { String::new() } else { format!("{path}: ") })]
pub struct FileError {
    /// Kind of the failure.
    pub kind: FileErrorKind,
    /// Path inside the sandbox; empty if the failure is not about a file.
    pub path: String,
    /// Reason, for users.
    pub message: String,
}

impl FileError {
    pub(crate) fn of(failure: &IoFailure) -> Self {
        let kind = match failure.kind() {
            IoFailureKind::NotFound => FileErrorKind::NotFound,
            IoFailureKind::AlreadyExists => FileErrorKind::AlreadyExists,
            IoFailureKind::NotADirectory => FileErrorKind::NotADirectory,
            IoFailureKind::IsADirectory => FileErrorKind::IsADirectory,
            IoFailureKind::NotEmpty => FileErrorKind::NotEmpty,
            IoFailureKind::PermissionDenied => FileErrorKind::PermissionDenied,
            IoFailureKind::Invalid => FileErrorKind::Invalid,
            IoFailureKind::NotAFile => FileErrorKind::NotAFile,
            IoFailureKind::PreconditionFailed => FileErrorKind::PreconditionFailed,
            IoFailureKind::NoSpace => FileErrorKind::NoSpace,
            IoFailureKind::LimitExceeded => FileErrorKind::LimitExceeded,
            IoFailureKind::TimedOut => FileErrorKind::TimedOut,
            IoFailureKind::NotListening => FileErrorKind::NotListening,
            IoFailureKind::Unsupported => FileErrorKind::Unsupported,
            IoFailureKind::Unspecified | IoFailureKind::Other => FileErrorKind::Other,
        };
        let path = text(&failure.path);
        Self { kind, path, message: text(failure.message.as_bytes()) }
    }
}

/// Converts bytes of a worker to text without control characters.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_MAX)]);
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

/// Fails if the worker reported a failure.
pub(crate) fn check(failure: Option<&IoFailure>) -> Result<(), SandboxError> {
    match failure {
        Some(failure) => Err(SandboxError::File(FileError::of(failure))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_worker_are_cut_and_lose_control_characters() {
        let failure = IoFailure {
            kind: 99,
            errno: 0,
            path: [b"/a\n\xff".as_slice(), &[b'x'; 2 * TEXT_MAX]].concat(),
            message: "\u{1b}[2J".to_owned(),
        };
        let error = FileError::of(&failure);
        assert_eq!((error.kind, error.message.as_str()), (FileErrorKind::Other, "\u{fffd}[2J"));
        assert!(error.path.starts_with("/a\u{fffd}\u{fffd}x") && error.path.len() <= 2 * TEXT_MAX);
        let without_path = FileError { path: String::new(), message: "m".to_owned(), ..error };
        assert_eq!(without_path.to_string(), "m");
    }
}

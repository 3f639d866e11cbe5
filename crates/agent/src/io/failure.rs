//! Failures of requests, as they are sent to the server.

use std::io;

use rustix::io::Errno;
use workspace_agent_protocol::v1::{IoFailure, IoFailureKind as Kind};

/// Path in a failure that is not about a path.
pub(crate) const NO_PATH: &[u8] = b"";

/// Failure of a request.
#[derive(Debug)]
pub(crate) struct Failure(Box<IoFailure>);

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(kind: Kind, path: &[u8], message: impl Into<String>) -> Self {
        let failure = IoFailure { kind: kind.into(), path: path.to_vec(), message: message.into(), errno: 0 };
        Self(Box::new(failure))
    }

    pub(crate) fn invalid(path: &[u8], message: &str) -> Self {
        Self::new(Kind::Invalid, path, message)
    }

    /// Failure of a request that the server cancelled, or whose lane is closed. The server ignores it.
    pub(crate) fn cancelled() -> Self {
        Self::new(Kind::Other, NO_PATH, "the request was cancelled")
    }

    pub(crate) fn timed_out() -> Self {
        Self::new(Kind::TimedOut, NO_PATH, "the request took too long")
    }

    pub(crate) fn of_errno(errno: Errno, path: &[u8]) -> Self {
        let message = io::Error::from(errno).to_string();
        let failure = IoFailure {
            kind: kind_of(errno).into(),
            errno: errno.raw_os_error(),
            path: path.to_vec(),
            message,
        };
        Self(Box::new(failure))
    }

    pub(crate) fn into_message(self) -> IoFailure {
        *self.0
    }

    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.0.kind() == kind
    }
}

fn kind_of(errno: Errno) -> Kind {
    match errno {
        Errno::NOENT => Kind::NotFound,
        Errno::EXIST => Kind::AlreadyExists,
        Errno::NOTDIR => Kind::NotADirectory,
        Errno::ISDIR => Kind::IsADirectory,
        Errno::NOTEMPTY => Kind::NotEmpty,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Kind::PermissionDenied,
        Errno::INVAL | Errno::NAMETOOLONG | Errno::LOOP | Errno::ILSEQ => Kind::Invalid,
        // From opening a socket, or a FIFO without a reader.
        Errno::NXIO => Kind::NotAFile,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Kind::NoSpace,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Kind::LimitExceeded,
        Errno::CONNREFUSED => Kind::NotListening,
        Errno::TIMEDOUT => Kind::TimedOut,
        _ => Kind::Other,
    }
}

/// Converts the error of a system call to a failure with a path.
pub(crate) trait AtPath<T> {
    fn at(self, path: &[u8]) -> Result<T>;
}

impl<T> AtPath<T> for std::result::Result<T, Errno> {
    fn at(self, path: &[u8]) -> Result<T> {
        self.map_err(|errno| Failure::of_errno(errno, path))
    }
}

impl<T> AtPath<T> for io::Result<T> {
    fn at(self, path: &[u8]) -> Result<T> {
        self.map_err(|error| match Errno::from_io_error(&error) {
            Some(errno) => Failure::of_errno(errno, path),
            None => Failure::new(Kind::Other, path, error.to_string()),
        })
    }
}

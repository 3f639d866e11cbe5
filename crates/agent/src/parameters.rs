//! Start parameters of the agent: its token, the directory of output files, and for a network transport the
//! addresses and certificates of the server.
//!
//! The parent process passes them by file descriptor. A container runtime cannot do that; then the agent
//! connects to a socket on which the server sends the parameters to the first client. That is the agent,
//! since it is the first process of the sandbox.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Maximum time to wait for the server after it accepted the connection.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Source of the start parameters.
pub(crate) enum ParameterSource {
    /// File descriptors that the parent process passed.
    Descriptors { token: OwnedFd, output_directory: Option<OwnedFd> },
    /// Socket on which the server sends the parameters.
    Socket(PathBuf),
}

/// Start parameters as they were received.
pub(crate) struct ReceivedParameters {
    /// Token; for a network transport, the encoded
    /// [`StartParameters`](workspace_agent_protocol::start_parameters::StartParameters).
    pub(crate) bytes: Vec<u8>,
    /// Directory of output files; `None` if output is sent over the connection.
    pub(crate) output_directory: Option<OwnedFd>,
}

impl ParameterSource {
    pub(crate) fn receive(self) -> io::Result<ReceivedParameters> {
        match self {
            Self::Descriptors { token, output_directory } => {
                let mut bytes = Vec::new();
                File::from(token).read_to_end(&mut bytes)?;
                Ok(ReceivedParameters { bytes, output_directory })
            }
            Self::Socket(path) => receive_from(&path).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("cannot receive start parameters at {}: {error}", path.display()),
                )
            }),
        }
    }
}

fn receive_from(path: &Path) -> io::Result<ReceivedParameters> {
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
    // The descriptor comes with the first bytes; the rest is read until the server closes the connection.
    let mut first = [0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // Close-on-exec: commands must not inherit the directory.
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(&socket, &mut [IoSliceMut::new(&mut first)], &mut control, flags)?;
    let mut bytes = first[..received.bytes].to_vec();
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let output_directory = rights.flatten().next();
    socket.read_to_end(&mut bytes)?;
    Ok(ReceivedParameters { bytes, output_directory })
}

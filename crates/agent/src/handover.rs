//! Parameters of the agent: its token, the directory of output files, and for a network transport the
//! addresses and certificates of the server.
//!
//! A parent that can pass file descriptors does so. A container runtime cannot; then the agent connects to a
//! socket on which the server sends them to the first client. That is the agent: nothing else runs before it.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Longest time to wait for the server after it accepted the connection.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Source of the parameters.
pub(crate) enum Handover {
    /// File descriptors that the parent passed.
    Descriptors { token: OwnedFd, output: Option<OwnedFd> },
    /// Socket on which the server sends them.
    Socket(PathBuf),
}

/// Parameters of the agent.
pub(crate) struct StartParameters {
    /// Token; for a network transport, the encoded `Handover` of the protocol.
    pub(crate) bytes: Vec<u8>,
    /// Directory of output files; `None` if output is sent over the connection.
    pub(crate) output: Option<OwnedFd>,
}

impl Handover {
    pub(crate) fn take(self) -> io::Result<StartParameters> {
        match self {
            Self::Descriptors { token, output } => {
                let mut bytes = Vec::new();
                File::from(token).read_to_end(&mut bytes)?;
                Ok(StartParameters { bytes, output })
            }
            Self::Socket(path) => receive(&path).map_err(|error| {
                io::Error::new(error.kind(), format!("nothing was given at {}: {error}", path.display()))
            }),
        }
    }
}

fn receive(path: &Path) -> io::Result<StartParameters> {
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
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
    let output = rights.flatten().next();
    socket.read_to_end(&mut bytes)?;
    Ok(StartParameters { bytes, output })
}

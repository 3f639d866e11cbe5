//! What the agent is given when it starts: its token, over a network also where the server is and by what it is known,
//! and the directory of output files.
//!
//! Whoever can pass descriptors passes them. A container's runtime cannot; there the agent dials a socket on which
//! the server gives both to whoever comes first. That is the agent: nothing else runs before it.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// A server that accepted and says nothing is none.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the agent gets what it is given.
pub(crate) enum Handover {
    /// It was started with these.
    Descriptors { token: OwnedFd, output: Option<OwnedFd> },
    /// The server gives it there.
    Socket(PathBuf),
}

/// What the agent is given.
pub(crate) struct Given {
    /// The token; for who dials over a network, the protocol's `Handover`.
    pub(crate) bytes: Vec<u8>,
    /// The directory of output files. Without one, output goes over the connection to the server.
    pub(crate) output: Option<OwnedFd>,
}

impl Handover {
    pub(crate) fn take(self) -> io::Result<Given> {
        match self {
            Self::Descriptors { token, output } => {
                let mut bytes = Vec::new();
                File::from(token).read_to_end(&mut bytes)?;
                Ok(Given { bytes, output })
            }
            Self::Socket(path) => dial(&path).map_err(|error| {
                io::Error::new(error.kind(), format!("nothing was given at {}: {error}", path.display()))
            }),
        }
    }
}

fn dial(path: &Path) -> io::Result<Given> {
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut first = [0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // Nothing that is started later must have the directory.
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(&socket, &mut [IoSliceMut::new(&mut first)], &mut control, flags)?;
    let mut bytes = first[..received.bytes].to_vec();
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let output = rights.flatten().next();
    socket.read_to_end(&mut bytes)?;
    Ok(Given { bytes, output })
}

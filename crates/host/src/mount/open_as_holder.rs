//! Opening files with the capabilities of a namespace holder.
//!
//! In the namespaces of a namespace holder an ordinary user has root's capabilities over their own files, and
//! can open them regardless of their mode. One helper serves all requests; a helper per file would take
//! longer than reading the files.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, HostError, Result};
use crate::helper;
use crate::helper::client::PendingReply;
use crate::helper::error::{HelperError, HostErrorKind};
use crate::helper::fd_message::{pair, receive, send};
use crate::helper::protocol::Task;
use crate::mount::open_at::{attributes, open};
use crate::namespace::holder::NamespaceHolder;

/// Request, sent with a file descriptor.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Open an entry of the directory that is sent.
    Open { name: Vec<u8>, flags: u32 },
    /// Read the extended attributes of the file that is sent.
    Attributes,
}

/// Reply, sent with a file descriptor unless it is an error: the opened file, or a memory file with the attributes
/// as JSON.
type Reply = std::result::Result<(), HelperError>;

/// Access to files with the capabilities of a holder. Without a holder, this process opens them itself.
#[derive(Debug)]
pub struct HolderFiles {
    holder: NamespaceHolder,
    /// `None` before the first request, and after a request that the helper did not answer.
    connection: Mutex<Option<Connection>>,
}

/// Connection to a helper.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    /// Reply of the helper when it exits: an error is the reason.
    helper: PendingReply<()>,
}

impl HolderFiles {
    /// Creates access with the capabilities of this holder. The helper is started when it is first needed.
    pub fn of(holder: &NamespaceHolder) -> Self {
        Self { holder: holder.clone(), connection: Mutex::default() }
    }

    /// Opens the entry `name` of a directory. Does not follow a symlink, creates nothing, and does not block. The
    /// file may have been replaced by one of another type, so check the result. Mounts of the holder are not
    /// visible through a directory that was opened outside.
    pub fn open(&self, directory: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd> {
        match self.holder {
            NamespaceHolder::None => open(directory, name, flags),
            NamespaceHolder::Process(_) => self
                .request(&Request::Open { name: name.to_bytes().to_vec(), flags: flags.bits() }, directory),
        }
    }

    /// Returns names and values of the `user.*` extended attributes of an open file or directory. The
    /// kernel checks the permission to read them again, even for an open file.
    pub fn attributes(&self, file: BorrowedFd<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match self.holder {
            NamespaceHolder::None => attributes(file),
            NamespaceHolder::Process(_) => {
                let encoded = std::fs::File::from(self.request(&Request::Attributes, file)?);
                serde_json::from_reader(encoded).map_err(io::Error::from).context("read attributes")
            }
        }
    }

    fn request(&self, request: &Request, descriptor: BorrowedFd<'_>) -> Result<OwnedFd> {
        let mut idle_connection = self.connection.lock();
        let connection = match idle_connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.holder)?,
        };
        send(connection.socket.as_fd(), request, Some(descriptor)).context("request a file from a helper")?;
        match receive::<Reply>(connection.socket.as_fd()).context("wait for a file")? {
            None => {
                connection.helper.wait()?;
                Err(HostError::of_kind(HostErrorKind::Protocol, "the helper exited"))
            }
            Some((reply, descriptor)) => {
                *idle_connection = Some(connection);
                reply.map_err(HostError::Helper)?;
                descriptor.ok_or_else(|| {
                    HostError::of_kind(HostErrorKind::Protocol, "the helper sent no file descriptor")
                })
            }
        }
    }
}

impl Connection {
    fn open(holder: &NamespaceHolder) -> Result<Self> {
        let (socket, helper_socket) = pair().context("create a socket")?;
        let helper = helper::client::start(
            &OpenFilesAsHolderTask { holder: holder.clone() },
            &[helper_socket.as_fd()],
        )?;
        Ok(Self { socket, helper })
    }
}

/// Opens files with the capabilities of a holder until the other end of its socket is closed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OpenFilesAsHolderTask {
    holder: NamespaceHolder,
}

impl Task for OpenFilesAsHolderTask {
    const NAME: &'static str = "serve-files";
    type Reply = ();

    fn run(self, fds: Vec<OwnedFd>) -> Result<()> {
        serve(&self.holder, &fds)
    }
}

fn serve(holder: &NamespaceHolder, fds: &[OwnedFd]) -> Result<()> {
    let [socket] = fds else {
        return Err(HostError::other("the helper received no socket"));
    };
    holder.join()?;
    while let Some((request, descriptor)) = receive::<Request>(socket.as_fd()).context("wait for a name")? {
        let opened = descriptor
            .ok_or_else(|| HostError::other("the request has no file descriptor"))
            .and_then(|descriptor| handle(&request, descriptor.as_fd()));
        let (reply, opened) = match opened {
            Ok(opened) => (Ok(()), Some(opened)),
            Err(error) => (Err(error.into()), None),
        };
        let opened = opened.as_ref().map(OwnedFd::as_fd);
        send::<Reply>(socket.as_fd(), &reply, opened).context("send an open file")?;
    }
    Ok(())
}

fn handle(request: &Request, descriptor: BorrowedFd<'_>) -> Result<OwnedFd> {
    match request {
        Request::Open { name, flags } => {
            let name = CString::new(name.as_slice()).map_err(io::Error::from).context("open a name")?;
            open(descriptor, &name, OFlags::from_bits_retain(*flags))
        }
        Request::Attributes => {
            let encoded = serde_json::to_vec(&attributes(descriptor)?);
            let encoded = encoded.map_err(io::Error::from).context("send the attributes")?;
            let memory = rustix::fs::memfd_create("attributes", rustix::fs::MemfdFlags::CLOEXEC);
            let mut memory = std::fs::File::from(memory.context("create a memory file")?);
            io::Write::write_all(&mut memory, &encoded).context("send the attributes")?;
            io::Seek::rewind(&mut memory).context("send the attributes")?;
            Ok(memory.into())
        }
    }
}

//! Files opened with the holder's rights.
//!
//! An ordinary user is superuser over what is his in the namespaces of his holder: there he opens his files of whatever
//! mode. One helper does it for as long as somebody needs it; one for each file would take longer than reading them.

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, HostError, Result};
use crate::helper::client::{self, PendingReply};
use crate::helper::error::{HelperError, HostErrorKind};
use crate::helper::protocol::Task;
use crate::mount::open_at::{attributes, open};
use crate::namespace::holder::Holder;

/// Longer than any request: a name and numbers, each byte in at most four characters.
const MESSAGE: usize = 8 << 10;

/// What is wanted of the descriptor that goes with it.
#[derive(Debug, Serialize, Deserialize)]
enum Wanted {
    Open { name: Vec<u8>, flags: u32 },
    Attributes,
}

/// A descriptor goes with it unless it failed.
type Answer = std::result::Result<(), HelperError>;

/// The rights that a holder has over files.
#[derive(Debug)]
pub struct Rights {
    holder: Holder,
    line: Mutex<Option<Line>>,
}

/// The way to a helper.
#[derive(Debug)]
struct Line {
    socket: OwnedFd,
    helper: PendingReply<()>,
}

impl Rights {
    /// Those of this holder. A helper is started when it is needed.
    pub fn of(holder: &Holder) -> Self {
        Self { holder: holder.clone(), line: Mutex::default() }
    }

    /// Opens a name in a directory. It never follows a symlink, makes nothing and waits for nobody. What is opened may
    /// be of another kind than it was a moment ago; look at it. What the holder has mounted is not seen through a
    /// directory that was opened outside.
    pub fn open(&self, directory: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd> {
        match self.holder {
            Holder::Machine => open(directory, name, flags),
            Holder::Process(_) => {
                self.ask(&Wanted::Open { name: name.to_bytes().to_vec(), flags: flags.bits() }, directory)
            }
        }
    }

    /// The user attributes of an open file or directory, names and values: the kernel asks for the right to read whoever
    /// reads them, though he has it open.
    pub fn attributes(&self, file: BorrowedFd<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match self.holder {
            Holder::Machine => attributes(file),
            Holder::Process(_) => {
                let told = std::fs::File::from(self.ask(&Wanted::Attributes, file)?);
                serde_json::from_reader(told).map_err(io::Error::from).doing("read attributes")
            }
        }
    }

    fn ask(&self, wanted: &Wanted, descriptor: BorrowedFd<'_>) -> Result<OwnedFd> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match line.take() {
            Some(open) => open,
            None => Line::open(&self.holder)?,
        };
        send(open.socket.as_fd(), wanted, Some(descriptor)).doing("ask a helper for a file")?;
        match receive::<Answer>(open.socket.as_fd()).doing("wait for a file")? {
            None => {
                open.helper.wait()?;
                Err(HostError::of_kind(HostErrorKind::Protocol, "the helper ended"))
            }
            Some((answer, descriptor)) => {
                *line = Some(open);
                answer.map_err(HostError::Helper)?;
                descriptor.ok_or_else(|| HostError::other("nothing was opened"))
            }
        }
    }
}

impl Line {
    fn open(holder: &Holder) -> Result<Self> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .doing("make a socket")?;
        let helper = client::start(&ServeFilesTask { holder: holder.clone() }, &[theirs.as_fd()])?;
        Ok(Self { socket, helper })
    }
}

/// Opens files with the rights of a holder until the other end of its socket is closed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServeFilesTask {
    holder: Holder,
}

impl Task for ServeFilesTask {
    const NAME: &'static str = "serve-files";
    type Reply = ();

    fn run(self, fds: Vec<OwnedFd>) -> Result<()> {
        serve(&self.holder, &fds)
    }
}

fn serve(holder: &Holder, fds: &[OwnedFd]) -> Result<()> {
    let [socket] = fds else {
        return Err(HostError::other("nobody to open files for"));
    };
    holder.join()?;
    while let Some((wanted, descriptor)) = receive::<Wanted>(socket.as_fd()).doing("wait for a name")? {
        let got = descriptor
            .ok_or_else(|| HostError::other("nothing to open it in"))
            .and_then(|descriptor| get(&wanted, descriptor.as_fd()));
        let (answer, got) = match got {
            Ok(got) => (Ok(()), Some(got)),
            Err(error) => (Err(error.into()), None),
        };
        let got = got.as_ref().map(OwnedFd::as_fd);
        send::<Answer>(socket.as_fd(), &answer, got).doing("give what was opened")?;
    }
    Ok(())
}

fn get(wanted: &Wanted, descriptor: BorrowedFd<'_>) -> Result<OwnedFd> {
    match wanted {
        Wanted::Open { name, flags } => {
            let name = CString::new(name.as_slice()).map_err(io::Error::from).doing("open a name")?;
            open(descriptor, &name, OFlags::from_bits_retain(*flags))
        }
        Wanted::Attributes => {
            let found = serde_json::to_vec(&attributes(descriptor)?);
            let found = found.map_err(io::Error::from).doing("tell the attributes")?;
            let memory = rustix::fs::memfd_create("attributes", rustix::fs::MemfdFlags::CLOEXEC);
            let mut memory = std::fs::File::from(memory.doing("make room for attributes")?);
            io::Write::write_all(&mut memory, &found).doing("tell the attributes")?;
            io::Seek::rewind(&mut memory).doing("tell the attributes")?;
            Ok(memory.into())
        }
    }
}

fn send<T: Serialize>(socket: BorrowedFd<'_>, what: &T, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let text = serde_json::to_vec(what)?;
    let rights: Vec<_> = with.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !rights.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&rights));
    }
    sendmsg(socket, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// None when the other end is gone.
fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut text = [0; MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    Ok(Some((serde_json::from_slice(&text[..received.bytes])?, descriptor)))
}

//! Gives a guest agent its token, or more than that, and the directory for output where no descriptors can be passed to it.
//!
//! The server listens on `start.sock` beside the agent's socket and serves whoever comes first. That is the agent:
//! it is the first process of its container, and dials before it runs anything. Nothing is kept where others could
//! find it later, not even the socket.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};

use crate::sandbox_dir::{START, SandboxDir};

/// A guest that is gone is an error, no signal. Where there is no such flag, programs in Rust ignore the signal.
#[cfg(target_os = "linux")]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: SendFlags = SendFlags::empty();

/// An open socket on which a guest is waited for. Dropped, it is closed and gone.
#[derive(Debug)]
pub(crate) struct Handover {
    listener: UnixListener,
    output: File,
    socket: PathBuf,
}

impl Handover {
    /// Opens the socket.
    pub(crate) fn open(dir: &SandboxDir) -> io::Result<Self> {
        let listener = dir.listen_on(START)?;
        let output = File::open(dir.output())?;
        Ok(Self { listener, output, socket: dir.sockets().join(START) })
    }

    /// Waits for whoever comes first. As long as it is not given anything, it runs nothing.
    pub(crate) async fn guest(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Gives the bytes and the directory to the guest; nobody comes second.
    pub(crate) async fn give(self, mut guest: UnixStream, bytes: &[u8]) -> io::Result<()> {
        let sent = self.send(&guest, bytes).await?;
        guest.write_all(&bytes[sent..]).await
    }

    /// Sends the directory, and as many of the bytes as there is room for.
    async fn send(&self, guest: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
        let message = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors = [self.output.as_fd()];
            if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
                return Err(io::Error::other("no room for a descriptor"));
            }
            Ok(sendmsg(guest, &[IoSlice::new(bytes)], &mut control, NO_SIGNAL)?)
        };
        guest.async_io(Interest::WRITABLE, message).await
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        // With the whole place it may be gone already.
        let _ = std::fs::remove_file(&self.socket);
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

    use super::*;

    #[tokio::test]
    async fn who_comes_first_gets_all_and_nobody_comes_second() {
        let home = tempfile::tempdir().unwrap();
        let dir = SandboxDir::new(home.path().join("sbx-1"));
        dir.make().unwrap();
        std::fs::write(dir.output().join("mark"), "").unwrap();
        let handover = Handover::open(&dir).unwrap();
        let socket = dir.sockets().join(START);
        let dial = || std::os::unix::net::UnixStream::connect(&socket).unwrap();
        let (first, second) = (dial(), dial());
        let guest = handover.guest().await.unwrap();
        assert_eq!(guest.peer_cred().unwrap().pid(), Some(std::process::id() as i32));
        handover.give(guest, b"secret").await.unwrap();
        assert_eq!(receive(&first), (b"secret".to_vec(), true));
        assert_eq!(receive(&second), (Vec::new(), false));
        assert!(!socket.exists());
    }

    #[tokio::test]
    async fn much_is_given_as_a_whole() {
        let home = tempfile::tempdir().unwrap();
        let dir = SandboxDir::new(home.path().join("sbx-1"));
        dir.make().unwrap();
        let handover = Handover::open(&dir).unwrap();
        let mut guest = std::os::unix::net::UnixStream::connect(dir.sockets().join(START)).unwrap();
        let much = vec![7; 2 << 20];
        let reading = tokio::task::spawn_blocking(move || {
            let mut got = Vec::new();
            io::Read::read_to_end(&mut guest, &mut got).map(|_| got)
        });
        let guest = handover.guest().await.unwrap();
        handover.give(guest, &much).await.unwrap();
        assert_eq!(reading.await.unwrap().unwrap(), much);
    }

    /// What came, and whether a directory with the mark came with it.
    fn receive(socket: &std::os::unix::net::UnixStream) -> (Vec<u8>, bool) {
        let mut bytes = [0; 100];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
        // Who was never let in is thrown out when the socket goes.
        let Ok(got) = got else { return (Vec::new(), false) };
        let marked = control.drain().any(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.any(|one| {
                rustix::fs::accessat(&one, "mark", rustix::fs::Access::EXISTS, rustix::fs::AtFlags::empty())
                    .is_ok()
            }),
            _ => false,
        });
        (bytes[..got.bytes].to_vec(), marked)
    }
}

//! Passes a guest agent its start parameters (at least its token) and the directory for output, in runtimes
//! where it cannot inherit file descriptors.
//!
//! The server listens on `start.sock` beside the guest agent's socket and serves the first connection. That is the
//! agent: it is the first process of its container, and connects before it runs anything. The token is in no
//! file, and the socket is removed, so no later process can get them.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};

use crate::sandbox_dir::{START_SOCKET, SandboxDir};

/// Makes a closed connection an error instead of a signal. On systems without this flag, Rust programs ignore
/// the signal.
#[cfg(target_os = "linux")]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: SendFlags = SendFlags::empty();

/// A socket that waits for a guest agent. Dropping it closes and removes it.
#[derive(Debug)]
pub(crate) struct Handover {
    listener: UnixListener,
    output: File,
    socket: PathBuf,
}

impl Handover {
    /// Opens the socket.
    pub(crate) fn open(dir: &SandboxDir) -> io::Result<Self> {
        let listener = dir.listen_on(START_SOCKET)?;
        let output = File::open(dir.output())?;
        Ok(Self { listener, output, socket: dir.sockets().join(START_SOCKET) })
    }

    /// Waits for the first connection. The guest agent runs nothing until it has received its parameters.
    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Sends the encoded start parameters and the directory for output to the guest agent. No second connection is
    /// served.
    pub(crate) async fn send(self, mut guest: UnixStream, parameters: &[u8]) -> io::Result<()> {
        let sent = self.send_first(&guest, parameters).await?;
        guest.write_all(&parameters[sent..]).await
    }

    /// Sends the directory, and as many bytes of the parameters as fit. Returns their number.
    async fn send_first(&self, guest: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
        let message = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors = [self.output.as_fd()];
            if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
                return Err(io::Error::other("too many file descriptors for one message"));
            }
            Ok(sendmsg(guest, &[IoSlice::new(bytes)], &mut control, NO_SIGNAL)?)
        };
        guest.async_io(Interest::WRITABLE, message).await
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        // It may have been removed with the whole directory.
        let _ = std::fs::remove_file(&self.socket);
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

    use super::*;

    #[tokio::test]
    async fn only_the_first_connection_is_served() {
        let home = tempfile::tempdir().unwrap();
        let dir = SandboxDir::new(home.path().join("sbx-1"));
        dir.make().unwrap();
        std::fs::write(dir.output().join("mark"), "").unwrap();
        let handover = Handover::open(&dir).unwrap();
        let socket = dir.sockets().join(START_SOCKET);
        let dial = || std::os::unix::net::UnixStream::connect(&socket).unwrap();
        let (first, second) = (dial(), dial());
        let guest = handover.accept().await.unwrap();
        assert_eq!(guest.peer_cred().unwrap().pid(), Some(std::process::id() as i32));
        handover.send(guest, b"secret").await.unwrap();
        assert_eq!(receive(&first), (b"secret".to_vec(), true));
        assert_eq!(receive(&second), (Vec::new(), false));
        assert!(!socket.exists());
    }

    #[tokio::test]
    async fn large_data_is_sent_in_full() {
        let home = tempfile::tempdir().unwrap();
        let dir = SandboxDir::new(home.path().join("sbx-1"));
        dir.make().unwrap();
        let handover = Handover::open(&dir).unwrap();
        let mut guest = std::os::unix::net::UnixStream::connect(dir.sockets().join(START_SOCKET)).unwrap();
        let much = vec![7; 2 << 20];
        let reading = tokio::task::spawn_blocking(move || {
            let mut got = Vec::new();
            io::Read::read_to_end(&mut guest, &mut got).map(|_| got)
        });
        let guest = handover.accept().await.unwrap();
        handover.send(guest, &much).await.unwrap();
        assert_eq!(reading.await.unwrap().unwrap(), much);
    }

    /// Returns the received bytes, and true if a directory with the mark came with them.
    fn receive(socket: &std::os::unix::net::UnixStream) -> (Vec<u8>, bool) {
        let mut bytes = [0; 100];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
        // Connections that were not accepted are reset when the socket is closed.
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

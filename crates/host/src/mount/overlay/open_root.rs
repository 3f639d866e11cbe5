//! Opening the root of an overlay that is mounted in the namespaces of a namespace holder.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::local;
use crate::error::{Context as _, HostError, Result};
use crate::helper::error::HostErrorKind;
use crate::helper::protocol::Task;
use crate::helper::{self, fd_message};
use crate::namespace::holder::NamespaceHolder;

/// Opens the root of an overlay, and sends it over a socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OpenRootTask {
    holder: NamespaceHolder,
    mount_point: PathBuf,
}

/// Has a helper open the root of the overlay at a mount point.
pub(super) fn call(holder: &NamespaceHolder, mount_point: &Path) -> Result<OwnedFd> {
    let (socket, helper_socket) = fd_message::pair().context("create a socket")?;
    let task = OpenRootTask { holder: holder.clone(), mount_point: mount_point.to_owned() };
    let helper = helper::client::start(&task, &[helper_socket.as_fd()])?;
    drop(helper_socket);
    // The helper sends the root before its reply.
    helper.wait()?;
    let received = fd_message::receive::<()>(socket.as_fd()).context("receive a directory")?;
    received
        .and_then(|((), root)| root)
        .ok_or_else(|| HostError::of_kind(HostErrorKind::Protocol, "the helper sent no file descriptor"))
}

impl Task for OpenRootTask {
    const NAME: &'static str = "open-root";
    type Reply = ();

    fn run(self, fds: Vec<OwnedFd>) -> Result<()> {
        let [socket] = fds.as_slice() else {
            return Err(HostError::other("the helper received no socket"));
        };
        self.holder.join()?;
        let root = local::open_root(&self.mount_point)?;
        fd_message::send(socket.as_fd(), &(), Some(root.as_fd())).context("send a directory")
    }
}

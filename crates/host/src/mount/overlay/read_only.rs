//! Mounting a read-only overlay, run by a helper in the namespaces of a namespace holder.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::config::{Overlay, Xattrs};
use super::local;
use crate::error::Result;
use crate::helper::protocol::Task;
use crate::namespace::holder::NamespaceHolder;

/// Mounts an overlay without an upper directory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadOnlyOverlayTask {
    holder: NamespaceHolder,
    lower: Vec<PathBuf>,
    mount_point: PathBuf,
}

impl ReadOnlyOverlayTask {
    pub(super) fn new(holder: &NamespaceHolder, overlay: &Overlay<'_>) -> Self {
        let (lower, mount_point) = (overlay.lower.to_vec(), overlay.mount_point.to_owned());
        Self { holder: holder.clone(), lower, mount_point }
    }
}

impl Task for ReadOnlyOverlayTask {
    const NAME: &'static str = "read-only-overlay";
    type Reply = ();

    fn run(self, _fds: Vec<OwnedFd>) -> Result<()> {
        self.holder.join()?;
        let (lower, mount_point) = (self.lower.as_slice(), self.mount_point.as_path());
        local::mount(Xattrs::User, &Overlay { lower, upper: None, mount_point, idmap_uid: None })
    }
}

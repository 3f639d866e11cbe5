//! Overlay operations of an ordinary user, run by a helper in the namespaces of a namespace holder.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::config::{Overlay, Upper, Xattrs};
use super::{local, probe};
use crate::error::Result;
use crate::helper;
use crate::helper::protocol::Task;
use crate::mount::remove_tree::remove_tree;
use crate::namespace::holder::NamespaceHolder;

/// Operation on overlays, or on paths below them, in the namespaces of a holder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OverlayTask {
    holder: NamespaceHolder,
    operation: Operation,
}

#[derive(Debug, Serialize, Deserialize)]
enum Operation {
    Mount(Directories),
    /// Replaces the mount at the mount point by an overlay.
    Replace(Directories),
    /// Detaches all mounts at the path.
    Unmount(PathBuf),
    /// Checks that the filesystem at the path responds: a FUSE filesystem whose daemon has died does not.
    IsResponding(PathBuf),
    /// Tries all operations on overlays in a temporary directory below the path.
    ProbeBelow(PathBuf),
    /// Removes the file or the directory with all below.
    RemoveTree(PathBuf),
}

/// Directories of an overlay that can be written to, and its mount point.
#[derive(Debug, Serialize, Deserialize)]
struct Directories {
    lower: Vec<PathBuf>,
    upper: PathBuf,
    work: PathBuf,
    mount_point: PathBuf,
}

impl Directories {
    fn of(overlay: &Overlay<'_>, upper: &Upper<'_>) -> Self {
        Self {
            lower: overlay.lower.to_vec(),
            upper: upper.directory.to_owned(),
            work: upper.work.to_owned(),
            mount_point: overlay.mount_point.to_owned(),
        }
    }

    fn overlay(&self) -> Overlay<'_> {
        Overlay {
            lower: &self.lower,
            upper: Some(Upper { directory: &self.upper, work: &self.work }),
            mount_point: &self.mount_point,
            idmap_uid: None,
        }
    }
}

impl OverlayTask {
    pub(super) fn mount(holder: &NamespaceHolder, overlay: &Overlay<'_>, upper: &Upper<'_>) -> Self {
        Self { holder: holder.clone(), operation: Operation::Mount(Directories::of(overlay, upper)) }
    }

    pub(super) fn replace(holder: &NamespaceHolder, overlay: &Overlay<'_>, upper: &Upper<'_>) -> Self {
        Self { holder: holder.clone(), operation: Operation::Replace(Directories::of(overlay, upper)) }
    }

    pub(super) fn unmount(holder: &NamespaceHolder, mount_point: &Path) -> Self {
        Self { holder: holder.clone(), operation: Operation::Unmount(mount_point.to_owned()) }
    }

    pub(super) fn is_responding(holder: &NamespaceHolder, path: &Path) -> Self {
        Self { holder: holder.clone(), operation: Operation::IsResponding(path.to_owned()) }
    }

    pub(super) fn probe(holder: &NamespaceHolder, directory: &Path) -> Self {
        Self { holder: holder.clone(), operation: Operation::ProbeBelow(directory.to_owned()) }
    }

    pub(super) fn remove_tree(holder: &NamespaceHolder, path: &Path) -> Self {
        Self { holder: holder.clone(), operation: Operation::RemoveTree(path.to_owned()) }
    }
}

/// Has a helper run the task. Returns true if something was mounted (`Unmount`), or if the filesystem responds
/// (`IsResponding`); always true for the other operations.
pub(super) fn call(task: &OverlayTask) -> Result<bool> {
    helper::client::call(task, &[])
}

impl Task for OverlayTask {
    const NAME: &'static str = "overlay";
    type Reply = bool;

    fn run(self, _fds: Vec<OwnedFd>) -> Result<bool> {
        self.holder.join()?;
        match &self.operation {
            Operation::Mount(directories) => {
                local::mount(Xattrs::User, &directories.overlay()).map(|()| true)
            }
            Operation::Replace(directories) => {
                local::replace(Xattrs::User, &directories.overlay()).map(|()| true)
            }
            Operation::Unmount(mount_point) => local::unmount(mount_point),
            Operation::IsResponding(path) => local::is_responding(path),
            Operation::ProbeBelow(directory) => probe::run(Xattrs::User, directory, None).map(|()| true),
            Operation::RemoveTree(path) => remove_tree(path).map(|()| true),
        }
    }
}

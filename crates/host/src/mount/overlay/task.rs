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

/// An operation on overlays in the namespaces of a holder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OverlayTask {
    holder: NamespaceHolder,
    operation: Operation,
}

#[derive(Debug, Serialize, Deserialize)]
enum Operation {
    Mount(Directories),
    Replace(Directories),
    Unmount(PathBuf),
    IsResponding(PathBuf),
    Probe(PathBuf),
    Remove(PathBuf),
}

#[derive(Debug, Serialize, Deserialize)]
struct Directories {
    lower: Vec<PathBuf>,
    upper: PathBuf,
    work: PathBuf,
    at: PathBuf,
}

impl Directories {
    fn of(overlay: &Overlay<'_>, upper: &Upper<'_>) -> Self {
        Self {
            lower: overlay.lower.to_vec(),
            upper: upper.directory.to_owned(),
            work: upper.work.to_owned(),
            at: overlay.mount_point.to_owned(),
        }
    }

    fn overlay(&self) -> Overlay<'_> {
        Overlay {
            lower: &self.lower,
            upper: Some(Upper { directory: &self.upper, work: &self.work }),
            mount_point: &self.at,
            dedicated_uid: None,
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

    pub(super) fn unmount(holder: &NamespaceHolder, at: &Path) -> Self {
        Self { holder: holder.clone(), operation: Operation::Unmount(at.to_owned()) }
    }

    pub(super) fn is_responding(holder: &NamespaceHolder, path: &Path) -> Self {
        Self { holder: holder.clone(), operation: Operation::IsResponding(path.to_owned()) }
    }

    pub(super) fn probe(holder: &NamespaceHolder, directory: &Path) -> Self {
        Self { holder: holder.clone(), operation: Operation::Probe(directory.to_owned()) }
    }

    pub(super) fn remove(holder: &NamespaceHolder, path: &Path) -> Self {
        Self { holder: holder.clone(), operation: Operation::Remove(path.to_owned()) }
    }
}

/// Has a helper run the task. Returns the result of `Unmount` and `IsResponding`, and true for the others.
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
            Operation::Unmount(at) => local::unmount(at),
            Operation::IsResponding(path) => local::is_responding(path),
            Operation::Probe(directory) => probe::run(Xattrs::User, directory, None).map(|()| true),
            Operation::Remove(path) => remove_tree(path).map(|()| true),
        }
    }
}

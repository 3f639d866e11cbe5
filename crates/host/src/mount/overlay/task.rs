//! What a helper does for an ordinary user, in the namespaces of his holder.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::config::{Overlay, Xattrs};
use super::{local, probe};
use crate::error::{HostError, Result};
use crate::helper::client;
use crate::mount::remove_tree::remove_tree;
use crate::namespace::holder::Holder;

/// What the helper is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    holder: Holder,
    task: Task,
}

#[derive(Debug, Serialize, Deserialize)]
enum Task {
    Mount(Directories),
    Replace(Directories),
    Unmount(PathBuf),
    Answers(PathBuf),
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
    fn of(overlay: &Overlay<'_>) -> Self {
        Self {
            lower: overlay.lower.to_vec(),
            upper: overlay.upper.to_owned(),
            work: overlay.work.to_owned(),
            at: overlay.at.to_owned(),
        }
    }

    fn overlay(&self) -> Overlay<'_> {
        Overlay { lower: &self.lower, upper: &self.upper, work: &self.work, at: &self.at, user: None }
    }
}

impl Order {
    pub(super) fn mount(holder: &Holder, overlay: &Overlay<'_>) -> Self {
        Self { holder: holder.clone(), task: Task::Mount(Directories::of(overlay)) }
    }

    pub(super) fn replace(holder: &Holder, overlay: &Overlay<'_>) -> Self {
        Self { holder: holder.clone(), task: Task::Replace(Directories::of(overlay)) }
    }

    pub(super) fn unmount(holder: &Holder, at: &Path) -> Self {
        Self { holder: holder.clone(), task: Task::Unmount(at.to_owned()) }
    }

    pub(super) fn answers(holder: &Holder, path: &Path) -> Self {
        Self { holder: holder.clone(), task: Task::Answers(path.to_owned()) }
    }

    pub(super) fn probe(holder: &Holder, directory: &Path) -> Self {
        Self { holder: holder.clone(), task: Task::Probe(directory.to_owned()) }
    }

    pub(super) fn remove(holder: &Holder, path: &Path) -> Self {
        Self { holder: holder.clone(), task: Task::Remove(path.to_owned()) }
    }
}

/// What went wrong, on its way back. The numbers of errors are kept: who asked may know what to do about some.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    System { action: String, errno: i32 },
    Overlay { at: PathBuf, errno: i32, reason: String },
    Other(String),
}

impl Failure {
    pub(crate) fn of(error: HostError) -> Self {
        match (error.os_error(), error) {
            (Some(errno), HostError::System { action, .. }) => Self::System { action, errno },
            (Some(errno), HostError::Overlay { at, reason, .. }) => Self::Overlay { at, errno, reason },
            (_, error) => Self::Other(error.to_string()),
        }
    }

    pub(crate) fn into_error(self) -> HostError {
        match self {
            Self::System { action, errno } => {
                HostError::System { action, source: io::Error::from_raw_os_error(errno) }
            }
            Self::Overlay { at, errno, reason } => {
                HostError::Overlay { at, source: io::Error::from_raw_os_error(errno), reason }
            }
            Self::Other(text) => HostError::Helper(text),
        }
    }
}

/// What came of it; true if there was something to do.
type Answer = std::result::Result<bool, Failure>;

/// Has a helper do it.
pub(super) fn ask(order: &Order) -> Result<bool> {
    client::ask::<Answer>("overlay", order, &[])?.map_err(Failure::into_error)
}

/// What the helper does.
pub(crate) fn run(order: &Order) -> Result<Answer> {
    order.holder.join()?;
    let done = match &order.task {
        Task::Mount(directories) => local::mount(Xattrs::User, &directories.overlay()).map(|()| true),
        Task::Replace(directories) => local::replace(Xattrs::User, &directories.overlay()).map(|()| true),
        Task::Unmount(at) => local::unmount(at),
        Task::Answers(path) => local::answers(path),
        Task::Probe(directory) => probe::run(Xattrs::User, directory, None).map(|()| true),
        Task::Remove(path) => remove_tree(path).map(|()| true),
    };
    Ok(done.map_err(Failure::of))
}

//! Overlays: directories made of read-only layers with a writable one on top.
//!
//! The superuser mounts them here, in this process; for an ordinary user a helper does it in the namespaces of the
//! holder, where he has rights over what is his. Every path is absolute, and the same in both.
//!
//! Mounts are without devices and set-user-id programs, and private: what is mounted in them is seen nowhere else. An
//! upper must not be in two mounts at once; whoever calls this sees to it.

pub(crate) mod config;
mod context;
mod diagnosis;
mod idmapped;
pub(crate) mod local;
mod probe;
pub(crate) mod task;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Doing as _, HostError, Result};
use crate::mount::remove_tree;
use crate::namespace::holder::Holder;
use crate::namespace::{enter, id_map};
pub use config::{LAYERS, Overlay, Xattrs};
use task::OverlayTask;

/// Which attributes the overlays of this holder use. The superuser of another user namespace than the machine's, such
/// as that of a container, may not write trusted ones.
pub fn xattrs(holder: &Holder) -> Xattrs {
    match holder {
        Holder::Machine if id_map::is_initial_user_namespace() => Xattrs::Trusted,
        Holder::Machine | Holder::Process(_) => Xattrs::User,
    }
}

/// Mounts an overlay. Where something is mounted already, that is the error `EBUSY` ([`HostError::os_error`]).
pub fn mount(holder: &Holder, overlay: &Overlay<'_>) -> Result<()> {
    match holder {
        Holder::Machine => local::mount(xattrs(holder), overlay),
        Holder::Process(_) => task::call(&OverlayTask::mount(holder, overlay)).map(drop),
    }
}

/// Mounts an overlay in place of what is mounted there. Whoever opens a path below meanwhile finds the one or the
/// other; where the kernel is older than 6.7, for a moment nothing. Who has something open in the old one, or works
/// there, stays in it. What cannot be mounted replaces nothing.
pub fn replace(holder: &Holder, overlay: &Overlay<'_>) -> Result<()> {
    match holder {
        Holder::Machine => local::replace(xattrs(holder), overlay),
        Holder::Process(_) => task::call(&OverlayTask::replace(holder, overlay)).map(drop),
    }
}

/// Takes away every mount at a path, even while it is used: who uses it can go on. False if there is none.
pub fn unmount(holder: &Holder, at: &Path) -> Result<bool> {
    match holder {
        Holder::Machine => local::unmount(at),
        Holder::Process(_) => task::call(&OverlayTask::unmount(holder, at)),
    }
}

/// Takes away every mount at a path like [`unmount`], for good: its upper must not be mounted again. The kernel writes out
/// the whole filesystem of the upper when an overlay ends; the superuser's process does not wait for that.
pub fn abandon(holder: &Holder, at: &Path) -> Result<bool> {
    match holder {
        Holder::Machine => local::abandon(at),
        Holder::Process(_) => unmount(holder, at),
    }
}

/// The paths below a directory, itself not among them, at which something is mounted.
pub fn mounted(holder: &Holder, below: &Path) -> Result<Vec<PathBuf>> {
    let below = match fs::canonicalize(below) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.doing(format!("look at {}", below.display()))?,
    };
    match holder {
        Holder::Machine => local::mounted(Path::new("/proc/thread-self/mountinfo"), &below),
        Holder::Process(held) => {
            // Kept open: the number means no other process meanwhile.
            let _process = held.pidfd().ok_or_else(HostError::holder_gone)?;
            local::mounted(&PathBuf::from(format!("/proc/{}/mountinfo", held.pid())), &below)
        }
    }
}

/// Whether a filesystem answers at a path: one whose process has died does not.
pub fn answers(holder: &Holder, path: &Path) -> Result<bool> {
    match holder {
        Holder::Machine => local::answers(path),
        Holder::Process(_) => task::call(&OverlayTask::answers(holder, path)),
    }
}

/// Tries all of it in a directory made for that below `directory`, of which nothing stays. The error says what is
/// missing.
pub fn probe(holder: &Holder, directory: &Path) -> Result<()> {
    let tried = match holder {
        Holder::Machine => probe::run(xattrs(holder), directory, None),
        Holder::Process(_) => task::call(&OverlayTask::probe(holder, directory)).map(drop),
    };
    tried.map_err(|error| HostError::NoOverlay { directory: directory.to_owned(), reason: error.to_string() })
}

/// The same with layers that are shown to a user.
pub(crate) fn probe_shown(directory: &Path, user: u32) -> Result<()> {
    probe::run(xattrs(&Holder::Machine), directory, Some(user))
}

/// Removes a directory, or whatever is there, and all below with the holder's rights. It never follows a symlink, and
/// stops with an error before what is mounted. What is not there is gone.
pub fn remove_tree(holder: &Holder, path: &Path) -> Result<()> {
    match holder {
        Holder::Machine => remove_tree::remove_tree(path),
        Holder::Process(_) => task::call(&OverlayTask::remove(holder, path)).map(drop),
    }
}

/// A program that will run in the namespaces of the holder, with the holder's rights. It goes on when this process
/// ends.
pub fn command(holder: &Holder, program: &OsStr) -> std::process::Command {
    enter::command(holder, program)
}

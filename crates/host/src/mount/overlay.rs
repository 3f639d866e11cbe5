//! Overlays: directories of read-only layers with a writable one on top.
//!
//! Root mounts them in this process. For an ordinary user a helper mounts them in the namespaces of the
//! namespace holder, where the user has capabilities over their own files. Paths are absolute, and the same in
//! the namespaces of this process and of the holder.
//!
//! Mounts have no devices and no set-user-ID programs, and are private. The caller must not use one upper
//! directory in two mounts at a time.

pub(crate) mod config;
mod diagnosis;
mod fs_context;
mod idmapped;
pub(crate) mod local;
pub(crate) mod open_root;
mod probe;
pub(crate) mod read_only;
pub(crate) mod task;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::error::{Context as _, HostError, Result};
use crate::helper;
use crate::mount::remove_tree;
use crate::namespace::holder::NamespaceHolder;
use crate::namespace::{enter, id_map};
pub use config::{LAYERS_MAX, Overlay, Upper, Xattrs};
use read_only::ReadOnlyOverlayTask;
use task::OverlayTask;

/// Returns the extended attributes that overlays of this holder use. Root of another user namespace than the
/// initial one, such as that of a container, may not write trusted attributes.
pub fn xattrs(holder: &NamespaceHolder) -> Xattrs {
    match holder {
        NamespaceHolder::None if id_map::is_initial_user_namespace() => Xattrs::Trusted,
        NamespaceHolder::None | NamespaceHolder::Process(_) => Xattrs::User,
    }
}

/// Mounts an overlay. Fails with `EBUSY` ([`HostError::os_error`]) if the mount point has a mount.
pub fn mount(holder: &NamespaceHolder, overlay: &Overlay<'_>) -> Result<()> {
    match holder {
        NamespaceHolder::None => local::mount(xattrs(holder), overlay),
        NamespaceHolder::Process(_) => match &overlay.upper {
            Some(upper) => task::call(&OverlayTask::mount(holder, overlay, upper)).map(drop),
            None => helper::client::call(&ReadOnlyOverlayTask::new(holder, overlay), &[]),
        },
    }
}

/// Replaces the mount at the mount point by an overlay that can be written to. Processes keep their open files and
/// working directories in the old mount. If the new overlay cannot be created, the old mount stays.
///
/// A process that concurrently opens a path below sees the old or the new files. Before Linux 6.7, and if the
/// parent mount is shared, the directory is briefly empty instead, and stays so if the new mount cannot be
/// attached.
pub fn replace(holder: &NamespaceHolder, overlay: &Overlay<'_>) -> Result<()> {
    match (holder, &overlay.upper) {
        (NamespaceHolder::None, _) => local::replace(xattrs(holder), overlay),
        (NamespaceHolder::Process(_), Some(upper)) => {
            task::call(&OverlayTask::replace(holder, overlay, upper)).map(drop)
        }
        (NamespaceHolder::Process(_), None) => {
            Err(HostError::other("a read-only overlay replaces others only at an anchor"))
        }
    }
}

/// Detaches all mounts at a path, even if they are in use: processes keep their open files. Returns false if
/// there is no mount.
pub fn unmount(holder: &NamespaceHolder, mount_point: &Path) -> Result<bool> {
    match holder {
        NamespaceHolder::None => local::unmount(mount_point),
        NamespaceHolder::Process(_) => task::call(&OverlayTask::unmount(holder, mount_point)),
    }
}

/// Detaches all mounts at a path like [`unmount`]. The upper directory must not be mounted again. When an
/// overlay ends, the kernel syncs the whole filesystem of the upper directory; as root this function does not
/// wait for that.
pub fn abandon(holder: &NamespaceHolder, mount_point: &Path) -> Result<bool> {
    match holder {
        NamespaceHolder::None => local::abandon(mount_point),
        NamespaceHolder::Process(_) => unmount(holder, mount_point),
    }
}

/// Returns the mount points below a directory, without the directory itself.
pub fn mounted(holder: &NamespaceHolder, below: &Path) -> Result<Vec<PathBuf>> {
    let below = match fs::canonicalize(below) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.context(format!("stat {}", below.display()))?,
    };
    match holder {
        NamespaceHolder::None => local::mounted(Path::new("/proc/thread-self/mountinfo"), &below),
        NamespaceHolder::Process(process) => {
            let mounted =
                local::mounted(&PathBuf::from(format!("/proc/{}/mountinfo", process.pid())), &below);
            // If the holder is still running, its PID had not been reused when the file was read.
            if process.is_running() { mounted } else { Err(HostError::holder_gone()) }
        }
    }
}

/// Opens the root of the overlay at a mount point, for reading. Fails if nothing is mounted there.
///
/// This process can open the files below it, with its own permissions, even if the overlay is mounted in
/// other namespaces. The overlay exists until the descriptor is closed, also if it is unmounted before.
pub fn open_root(holder: &NamespaceHolder, mount_point: &Path) -> Result<OwnedFd> {
    match holder {
        NamespaceHolder::None => local::open_root(mount_point),
        NamespaceHolder::Process(_) => open_root::call(holder, mount_point),
    }
}

/// Returns whether the filesystem at a path responds. A FUSE filesystem whose daemon has died does not.
pub fn is_responding(holder: &NamespaceHolder, path: &Path) -> Result<bool> {
    match holder {
        NamespaceHolder::None => local::is_responding(path),
        NamespaceHolder::Process(_) => task::call(&OverlayTask::is_responding(holder, path)),
    }
}

/// Tries all operations in a temporary directory below `directory`. The error names the missing feature.
pub fn probe(holder: &NamespaceHolder, directory: &Path) -> Result<()> {
    let tried = match holder {
        NamespaceHolder::None => probe::run(xattrs(holder), directory, None),
        NamespaceHolder::Process(_) => task::call(&OverlayTask::probe(holder, directory)).map(drop),
    };
    tried.map_err(|error| HostError::NoOverlay { directory: directory.to_owned(), reason: error.to_string() })
}

/// Tries all operations like [`probe`], with layers that are id-mapped to a UID.
pub(crate) fn probe_idmapped(directory: &Path, dedicated_uid: u32) -> Result<()> {
    probe::run(xattrs(&NamespaceHolder::None), directory, Some(dedicated_uid))
}

/// Removes a file or a directory and all below, with the capabilities of the holder. Symlinks are not
/// followed. Fails at a mount point. Succeeds if `path` does not exist.
pub fn remove_tree(holder: &NamespaceHolder, path: &Path) -> Result<()> {
    match holder {
        NamespaceHolder::None => remove_tree::remove_tree(path),
        NamespaceHolder::Process(_) => task::call(&OverlayTask::remove_tree(holder, path)).map(drop),
    }
}

/// Builds a command that runs `program` in the namespaces of the holder, with its capabilities. The program is not
/// killed when this process exits.
pub fn command(holder: &NamespaceHolder, program: &OsStr) -> std::process::Command {
    enter::command(holder, program)
}

//! Mounts of the host that are left out for a program over the read-only host.
//!
//! The kernel creates no overlay over a directory that contains mounts from another user namespace, because it would
//! uncover the files below them. So the mounts at and below hidden paths are detached before an overlay is mounted
//! over a directory that contains them: the program could not see them anyway.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::thread::{CapabilitySet, capabilities};

use crate::error::{Context as _, Result};
use crate::mount::overlay::local;
use crate::namespace::id_map;

/// Returns true if mounts can be left out. Only root of the host can detach every mount.
pub fn can_omit_mounts() -> bool {
    id_map::is_initial_user_namespace()
        && capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Detaches the mounts at and below `paths` in a new mount namespace of this process, which must have one thread.
/// `paths` are hidden paths, see
/// [`ReadOnlyHostProgram::omitted_mounts`](super::ReadOnlyHostProgram::omitted_mounts). The mounts of the host do
/// not change.
pub(super) fn detach(paths: &[OsString]) -> Result<()> {
    if paths.is_empty() {
        return Ok(());
    }
    // SAFETY: the call takes an integer, and affects this process only.
    let status = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    let unshared = if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    unshared.context("create a mount namespace")?;
    // First, because below a shared mount the mounts of the host would be detached, too.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .context("make the mounts of a helper private")?;
    while detach_reachable(paths)? {}
    Ok(())
}

/// Detaches those mounts at and below `paths` that can be reached by their paths. Returns true if there were any: they
/// may have covered others.
fn detach_reachable(paths: &[OsString]) -> Result<bool> {
    let mut mounts = local::mount_points(Path::new("/proc/self/mountinfo"))?;
    mounts.retain(|mount: &PathBuf| paths.iter().any(|path| mount.starts_with(path)));
    // Inner mounts first: an outer one would take them with it.
    mounts.sort_by_key(|mount| Reverse(mount.components().count()));
    let mut has_detached = false;
    for mount in mounts {
        match unmount(mount.as_path(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => has_detached = true,
            // Covered by a mount on one of its parent directories, in which the path is no mount or does not exist.
            Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => {
                return Err(errno).context(format!("leave out the mount at {}", mount.display()));
            }
        }
    }
    Ok(has_detached)
}

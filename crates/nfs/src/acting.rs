//! User as which a thread accesses files.
//!
//! Each export has an identity: the user and group that its clients act as. A server that runs as root takes this
//! identity by `setfsuid` and `setfsgid`, whose effect is limited to the calling thread. The kernel then checks
//! permissions and sets owners of new files as for that user. A server that does not run as root accesses files as its
//! own user.

use std::cell::Cell;
use std::io;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::export::Identity;

thread_local! {
    /// Identity that this thread has taken; `None` before the first call of [`act_as`].
    static CURRENT: Cell<Option<Identity>> = const { Cell::new(None) };
}

/// Prepares a thread that serves requests: sets an empty umask for this thread alone, and makes quotas apply to it.
///
/// The seccomp filter of a container may forbid the `unshare` by which the thread gets its own umask. The umask of the
/// process applies then, and the server adds missing permissions to a new file by `chmod`.
pub(crate) fn prepare_thread() {
    // SAFETY: the call has no memory arguments. It affects this thread alone.
    if unsafe { libc::unshare(libc::CLONE_FS) } == 0 {
        rustix::process::umask(rustix::fs::Mode::empty());
    }
    if let Err(error) = respect_quotas() {
        tracing::warn!(%error, "NFS clients may exceed quotas of the kernel: failed to drop CAP_SYS_RESOURCE");
    }
}

/// Drops CAP_SYS_RESOURCE, with which the kernel ignores quotas. A thread of root keeps it after `setfsuid`.
fn respect_quotas() -> rustix::io::Result<()> {
    let mut sets = capabilities(None)?;
    if !sets.effective.contains(CapabilitySet::SYS_RESOURCE) {
        return Ok(());
    }
    sets.effective.remove(CapabilitySet::SYS_RESOURCE);
    set_capabilities(None, sets)
}

/// Makes the calling thread access files as this user from now on.
pub(crate) fn act_as(identity: Identity) -> io::Result<()> {
    let current = CURRENT.get();
    if current == Some(identity) {
        return Ok(());
    }
    let is_own = current.is_none() && identity == Identity::own();
    // If the process does not run as root, the user is that of the process: `Volume::open` has checked it.
    if !is_own && rustix::process::geteuid().is_root() {
        switch_identity(identity)?;
    }
    CURRENT.set(Some(identity));
    Ok(())
}

/// Sets the file system ids of the calling thread and removes its supplementary groups.
fn switch_identity(identity: Identity) -> io::Result<()> {
    // The wrapper in libc would change the groups of all threads.
    // SAFETY: the kernel does not read a list of length zero.
    if unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Both calls return the previous id and report no error. A call with an invalid id changes nothing, so it returns
    // the current id.
    // SAFETY: the calls have no memory arguments. They affect this thread alone.
    let (uid, gid) = unsafe {
        libc::setfsgid(identity.gid);
        libc::setfsuid(identity.uid);
        (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX))
    };
    let is_done = u32::try_from(uid) == Ok(identity.uid) && u32::try_from(gid) == Ok(identity.gid);
    if is_done { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cap_sys_resource_is_dropped_only_in_threads_that_serve_requests() {
        let before = capabilities(None).unwrap();
        let serving = std::thread::spawn(|| {
            prepare_thread();
            capabilities(None).unwrap()
        });
        let serving = serving.join().unwrap();
        assert_eq!(serving.effective, before.effective.difference(CapabilitySet::SYS_RESOURCE));
        assert_eq!(capabilities(None).unwrap(), before);
    }
}

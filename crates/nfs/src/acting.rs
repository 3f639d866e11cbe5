//! The user that a thread is for the file system.
//!
//! A server that runs as root takes the identity of the export with the file system ids of Linux, which belong to a
//! thread. The kernel then checks permissions and sets owners as for that user. Other servers can only be who they
//! are.

use std::cell::Cell;
use std::io;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::export::Identity;

thread_local! {
    /// Identity that this thread has; `None` as long as it was not asked for.
    static ACTING: Cell<Option<Identity>> = const { Cell::new(None) };
}

/// Prepares a thread that serves requests: its mask for new files is empty from now on, and is its own, and quotas
/// hold for it.
///
/// Filters of containers may forbid a mask of its own. Permissions that the mask of the process takes from a new file
/// are added afterwards then, which costs a system call.
pub(crate) fn prepare_thread() {
    // SAFETY: the call has no memory arguments. It affects this thread alone.
    if unsafe { libc::unshare(libc::CLONE_FS) } == 0 {
        rustix::process::umask(rustix::fs::Mode::empty());
    }
    if let Err(error) = respect_quotas() {
        tracing::warn!(%error, "NFS clients may exceed quotas of the kernel: failed to drop CAP_SYS_RESOURCE");
    }
}

/// Drops the capability that makes the kernel ignore quotas, which root keeps with the file system ids of another user.
fn respect_quotas() -> rustix::io::Result<()> {
    let mut sets = capabilities(None)?;
    if !sets.effective.contains(CapabilitySet::SYS_RESOURCE) {
        return Ok(());
    }
    sets.effective.remove(CapabilitySet::SYS_RESOURCE);
    set_capabilities(None, sets)
}

/// Makes the calling thread act as this user from now on.
pub(crate) fn act_as(identity: Identity) -> io::Result<()> {
    let acting = ACTING.get();
    if acting == Some(identity) {
        return Ok(());
    }
    let is_own = acting.is_none() && identity == Identity::own();
    // `Volume::open` has checked that others have the identity of the process.
    if !is_own && rustix::process::geteuid().is_root() {
        switch(identity)?;
    }
    ACTING.set(Some(identity));
    Ok(())
}

fn switch(identity: Identity) -> io::Result<()> {
    // SAFETY: a list of no groups is not read. The functions of libc for this would change all threads.
    if unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Both return the former id, and no error: an id that is not valid tells the present one.
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
    fn quotas_hold_for_threads_that_serve_requests_and_for_no_others() {
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

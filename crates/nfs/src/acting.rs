//! The user that a thread is for the file system.
//!
//! A server that runs as root takes the identity of the export with the file system ids of Linux, which belong to a
//! thread. The kernel then checks permissions and sets owners as for that user. Other servers can only be who they
//! are.

use std::cell::Cell;
use std::io;

use crate::export::Identity;

thread_local! {
    /// Identity that this thread has taken.
    static ACTING: Cell<Option<Identity>> = const { Cell::new(None) };
}

/// Prepares a thread that serves requests: its mask for new files is empty from now on, and is its own.
pub(crate) fn prepare_thread() -> io::Result<()> {
    // SAFETY: the call has no memory arguments. It affects this thread alone.
    if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    rustix::process::umask(rustix::fs::Mode::empty());
    Ok(())
}

/// Makes the calling thread act as this user from now on.
pub(crate) fn act_as(identity: Identity) -> io::Result<()> {
    if ACTING.get() == Some(identity) {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        // `Volume::open` has checked that it is the own user.
        ACTING.set(Some(identity));
        return Ok(());
    }
    ACTING.set(None);
    switch(identity)?;
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

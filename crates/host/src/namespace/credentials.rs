//! Credentials of a process: user, groups and capabilities.

use std::fs;

use crate::error::{Doing as _, Result};
use crate::process::end_with_parent;

/// The superuser's own id does not exist inside.
pub(crate) fn become_root_inside() -> Result<()> {
    // SAFETY: the calls take numbers.
    let done = unsafe { libc::setresgid(0, 0, 0) == 0 && libc::setresuid(0, 0, 0) == 0 };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()).doing("become somebody inside") }
}

/// Lets this process keep its rights when it becomes another user: `SECBIT_NO_SETUID_FIXUP`.
const KEEP_RIGHTS: libc::c_ulong = 1 << 2;

/// Calls `make` while the effective user of this process, which has one thread, is `owner`: a user namespace that it makes
/// is that user's. It keeps its rights, so that it may make namespaces where ordinary users may not.
pub(crate) fn with_owner<T>(owner: u32, make: impl FnOnce() -> Result<T>) -> Result<T> {
    let parent = rustix::process::getppid();
    become_effective(owner, KEEP_RIGHTS)?;
    let made = make();
    become_effective(0, 0)?;
    // A process that becomes another forgets that it is to end with its parent.
    end_with_parent();
    if rustix::process::getppid() != parent {
        return Err(crate::error::HostError::other("the server has ended"));
    }
    made
}

fn become_effective(user: u32, securebits: libc::c_ulong) -> Result<()> {
    let same = u32::MAX;
    // SAFETY: the calls take numbers.
    let done = unsafe {
        let first = libc::prctl(libc::PR_SET_SECUREBITS, securebits | KEEP_RIGHTS, 0, 0, 0);
        let second = libc::setresuid(same, user, same);
        let third = libc::prctl(libc::PR_SET_SECUREBITS, securebits, 0, 0, 0);
        first == 0 && second == 0 && third == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()).doing("become the owner of a namespace") }
}

/// Leaves the groups that whoever started the server is in beside his own. To be called before a user namespace is made: in a
/// new one nobody may. Neither may anybody in a user namespace around the server that says so.
pub(crate) fn leave_groups() -> Result<()> {
    let file = "/proc/self/setgroups";
    if fs::read_to_string(file).doing(format!("read {file}"))?.trim() == "deny" {
        return Ok(());
    }
    // SAFETY: an empty list.
    let done = unsafe { libc::setgroups(0, std::ptr::null()) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).doing("leave all groups") }
}

/// Becomes a user and gives up every right, for this process and all that come of it.
pub(crate) fn become_user(user: u32, group: u32) -> Result<()> {
    // SAFETY: system calls that take numbers, and structures made here that live through the call.
    unsafe {
        for capability in 0.. {
            if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
                break;
            }
        }
        let check = |result: libc::c_int, action: &str| {
            if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).doing(action) }
        };
        check(
            libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0),
            "drop ambient rights",
        )?;
        check(libc::setresgid(group, group, group), "become the group of the sandbox")?;
        check(libc::setresuid(user, user, user), "become the user of the sandbox")?;
        check(drop_capabilities(), "drop all rights")?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "give up new rights for good")
    }
}

/// What `capset` takes in its third version.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

/// Rights over files, users and processes that a superuser's programs expect: `CAP_CHOWN`, `CAP_DAC_OVERRIDE`, `CAP_FOWNER`,
/// `CAP_FSETID`, `CAP_KILL`, `CAP_SETGID` and `CAP_SETUID`. In a namespace of its own they hold for nothing of the machine's
/// that can be written to.
const FILES: u32 = 0b1111_1011;

/// Gives up every right but those over files, for this process and all that come of it.
pub(crate) fn keep_file_rights() -> Result<()> {
    let check = |result: libc::c_int, action: &str| {
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).doing(action) }
    };
    // SAFETY: system calls that take numbers, and structures made here that live through the call.
    unsafe {
        for capability in 0..64 {
            let kept = capability < 32 && FILES & (1 << capability) != 0;
            if !kept && libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
                break;
            }
        }
        check(
            libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0),
            "drop ambient rights",
        )?;
        check(set_capabilities(FILES), "drop rights")?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "give up new rights for good")
    }
}

/// What allows to change networks, `CAP_NET_ADMIN`.
const NETWORKS: u32 = 1 << 12;

/// Becomes a user, if one is given, and gives up every right but that to change networks.
pub(crate) fn keep_networks(user: Option<u32>) -> Result<()> {
    let check = |result: libc::c_int, action: &str| {
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).doing(action) }
    };
    // SAFETY: system calls that take numbers, an empty list, and structures made here that live through the call.
    unsafe {
        if let Some(user) = user {
            check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0), "keep rights")?;
            check(libc::setgroups(0, std::ptr::null()), "leave all groups")?;
            check(libc::setresgid(user, user, user), "become nobody's group")?;
            check(libc::setresuid(user, user, user), "become nobody")?;
        }
        check(set_capabilities(NETWORKS), "drop rights")?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "give up new rights for good")
    }
}

unsafe fn drop_capabilities() -> libc::c_int {
    // SAFETY: as of this one.
    unsafe { set_capabilities(0) }
}

/// Leaves these of the first 32 capabilities, in force and permitted, and no others.
unsafe fn set_capabilities(kept: u32) -> libc::c_int {
    let header = CapabilityHeader { version: 0x2008_0522, pid: 0 };
    // In force, permitted, and inherited.
    let sets = [[kept, kept, 0], [0; 3]];
    // SAFETY: the structures are as the kernel wants them, and live through the call.
    unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) as libc::c_int }
}

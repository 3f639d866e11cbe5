//! Credentials of a process: user, groups and capabilities.

use std::fs;
use std::io;

use linux_raw_sys::general::{
    __user_cap_data_struct, __user_cap_header_struct, _LINUX_CAPABILITY_VERSION_3, CAP_CHOWN,
    CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL, CAP_NET_ADMIN, CAP_SETGID, CAP_SETUID,
};

use crate::error::{Context as _, Result};
use crate::process::kill_on_parent_exit;

/// Becomes root of the current user namespace. The user that created the process may have another id there, or none.
pub(crate) fn become_root_inside() -> Result<()> {
    // SAFETY: the calls take integers.
    let done = unsafe { libc::setresgid(0, 0, 0) == 0 && libc::setresuid(0, 0, 0) == 0 };
    if done { Ok(()) } else { Err(io::Error::last_os_error()).context("become root of the namespace") }
}

/// Securebits under which a change of the user keeps capabilities.
const KEEP_CAPABILITIES: libc::c_ulong = libc::SECBIT_NO_SETUID_FIXUP as libc::c_ulong;

/// Calls `create` with `owner` as the effective user, so that a user namespace that it creates belongs to that
/// user. The process keeps its capabilities, so that it may create namespaces where ordinary users may not.
/// It must have one thread.
pub(crate) fn with_owner<T>(owner: u32, create: impl FnOnce() -> Result<T>) -> Result<T> {
    let parent = rustix::process::getppid();
    become_effective(owner, KEEP_CAPABILITIES).context("act as the owner of a namespace")?;
    let result = create();
    become_effective(0, 0).context("become root again")?;
    // Changing credentials resets the parent death signal.
    kill_on_parent_exit();
    if rustix::process::getppid() != parent {
        return Err(crate::error::HostError::other("the helper server has exited"));
    }
    result
}

/// Sets the effective user. Capabilities are kept during the change, and afterwards if `securebits` say so.
fn become_effective(user: u32, securebits: libc::c_ulong) -> io::Result<()> {
    let unchanged = u32::MAX;
    // SAFETY: the calls take integers.
    let done = unsafe {
        let first = libc::prctl(libc::PR_SET_SECUREBITS, securebits | KEEP_CAPABILITIES, 0, 0, 0);
        let second = libc::setresuid(unchanged, user, unchanged);
        let third = libc::prctl(libc::PR_SET_SECUREBITS, securebits, 0, 0, 0);
        first == 0 && second == 0 && third == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Drops the supplementary groups of the user who started the server. Must be called before a user namespace
/// is created, because `setgroups` is denied in a new one. Does nothing if it is denied in the current one.
pub(crate) fn drop_supplementary_groups() -> Result<()> {
    let file = "/proc/self/setgroups";
    if fs::read_to_string(file).context(format!("read {file}"))?.trim() == "deny" {
        return Ok(());
    }
    // SAFETY: an empty list.
    let done = unsafe { libc::setgroups(0, std::ptr::null()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("drop all groups") }
}

/// Becomes a user without capabilities, irrevocably: `no_new_privs` is set.
pub(crate) fn become_user(user: u32, group: u32) -> Result<()> {
    // SAFETY: system calls that take integers, and structures that outlive the calls.
    unsafe {
        for capability in 0.. {
            if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
                break;
            }
        }
        let check = |result: libc::c_int, action: &str| {
            if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context(action) }
        };
        check(
            libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0),
            "drop ambient capabilities",
        )?;
        check(libc::setresgid(group, group, group), "become the group of the sandbox")?;
        check(libc::setresuid(user, user, user), "become the user of the sandbox")?;
        check(drop_capabilities(), "drop all capabilities")?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs")
    }
}

/// Becomes a user that may become other users: it has [`ROOT_PROGRAM_CAPABILITIES`], which the program that is executed
/// next keeps. `no_new_privs` is set.
pub(crate) fn become_user_that_may_act_as_others(user: u32, group: u32) -> Result<()> {
    let check = |result: libc::c_int, action: &str| {
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context(action) }
    };
    // SAFETY: system calls that take integers, and structures that outlive the calls.
    unsafe {
        drop_from_bounding_set();
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0), "keep capabilities")?;
        check(libc::setresgid(group, group, group), "become the group of the sandbox")?;
        check(libc::setresuid(user, user, user), "become the user of the sandbox")?;
        check(set_inheritable_capabilities(ROOT_PROGRAM_CAPABILITIES), "drop capabilities")?;
        for capability in (0..32).filter(|capability| ROOT_PROGRAM_CAPABILITIES & (1 << capability) != 0) {
            let raised = libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0);
            check(raised, "keep capabilities of the guest agent")?;
        }
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs")
    }
}

/// Drops all capabilities except [`ROOT_PROGRAM_CAPABILITIES`] from the bounding set.
unsafe fn drop_from_bounding_set() {
    for capability in 0..64 {
        let kept = capability < 32 && ROOT_PROGRAM_CAPABILITIES & (1 << capability) != 0;
        // SAFETY: the call takes integers. It fails for capabilities that the kernel does not have.
        if !kept && unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            break;
        }
    }
}

/// Capabilities over files, users and processes that programs of root expect. In a user namespace they apply only to
/// files whose owners are mapped into it. Of these, only those of the sandbox are writable: files of the host are
/// mounted read-only, or not at all.
const ROOT_PROGRAM_CAPABILITIES: u32 = 1 << CAP_CHOWN
    | 1 << CAP_DAC_OVERRIDE
    | 1 << CAP_FOWNER
    | 1 << CAP_FSETID
    | 1 << CAP_KILL
    | 1 << CAP_SETGID
    | 1 << CAP_SETUID;

/// Drops all capabilities except [`ROOT_PROGRAM_CAPABILITIES`], irrevocably.
pub(crate) fn keep_root_program_capabilities() -> Result<()> {
    let check = |result: libc::c_int, action: &str| {
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context(action) }
    };
    // SAFETY: system calls that take integers, and structures that outlive the calls.
    unsafe {
        drop_from_bounding_set();
        check(
            libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0),
            "drop ambient capabilities",
        )?;
        check(set_capabilities(ROOT_PROGRAM_CAPABILITIES), "drop capabilities")?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs")
    }
}

/// Becomes `user`, if one is given, and drops all capabilities except `CAP_NET_ADMIN`, irrevocably.
pub(crate) fn keep_net_admin(user: Option<u32>) -> Result<()> {
    let check = |result: libc::c_int, action: &str| {
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context(action) }
    };
    // SAFETY: system calls that take integers, an empty list, and structures that outlive the calls.
    unsafe {
        if let Some(user) = user {
            check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0), "keep capabilities")?;
            check(libc::setgroups(0, std::ptr::null()), "drop all groups")?;
            check(libc::setresgid(user, user, user), "become the group of the network daemon")?;
            check(libc::setresuid(user, user, user), "become the user of the network daemon")?;
        }
        check(set_capabilities(1 << CAP_NET_ADMIN), "drop capabilities")?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs")
    }
}

unsafe fn drop_capabilities() -> libc::c_int {
    // SAFETY: see `set_capabilities`.
    unsafe { set_capabilities(0) }
}

/// Sets the effective and permitted capabilities. `kept` has a bit for each of the first 32.
unsafe fn set_capabilities(kept: u32) -> libc::c_int {
    // SAFETY: see `set_all_capabilities`.
    unsafe { set_all_capabilities(kept, 0) }
}

/// Sets the effective, permitted and inheritable capabilities.
unsafe fn set_inheritable_capabilities(kept: u32) -> libc::c_int {
    // SAFETY: see `set_all_capabilities`.
    unsafe { set_all_capabilities(kept, kept) }
}

unsafe fn set_all_capabilities(kept: u32, inheritable: u32) -> libc::c_int {
    let header = __user_cap_header_struct { version: _LINUX_CAPABILITY_VERSION_3, pid: 0 };
    let set = |bits, inheritable| __user_cap_data_struct { effective: bits, permitted: bits, inheritable };
    // The second structure has the capabilities from 32 on.
    let sets = [set(kept, inheritable), set(0, 0)];
    // SAFETY: the structures have the layout of this version, and outlive the call.
    unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) as libc::c_int }
}

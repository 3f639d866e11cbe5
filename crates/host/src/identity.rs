//! Who a process is: which users exist in its namespace, and what it may do.

use std::fs;

use rustix::process::Pid;

use crate::error::{Doing as _, Result};

/// Ids that exist inside, and what they are outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    /// The first inside.
    pub(crate) inside: u32,
    /// The first outside.
    pub(crate) outside: u32,
    /// How many.
    pub(crate) count: u32,
}

/// Says which users and groups exist in the namespace of `child`, which was just made.
pub(crate) fn map(child: Pid, users: &[Range], groups: &[Range]) -> Result<()> {
    let lines = |ranges: &[Range]| -> String {
        let line = |range: &Range| format!("{} {} {}\n", range.inside, range.outside, range.count);
        ranges.iter().map(line).collect()
    };
    let write = |file: &str, text: &str| {
        fs::write(format!("/proc/{child}/{file}"), text).doing(format!("write {file} of a new namespace"))
    };
    // Without this nobody but the superuser may say which groups there are; and nothing inside needs to leave one.
    write("setgroups", "deny")?;
    write("gid_map", &lines(groups))?;
    write("uid_map", &lines(users))
}

/// The superuser's own id does not exist inside.
pub(crate) fn become_root_inside() -> Result<()> {
    // SAFETY: the calls take numbers.
    let done = unsafe { libc::setresgid(0, 0, 0) == 0 && libc::setresuid(0, 0, 0) == 0 };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()).doing("become somebody inside") }
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

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

/// Number of the machine's own user namespace, the same on every kernel (`PROC_USER_INIT_INO`).
const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Whether this process is in the machine's own user namespace, so that its superuser is the machine's.
pub(crate) fn is_initial_user_namespace() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self/ns/user").is_ok_and(|namespace| namespace.ino() == INITIAL_USER_NAMESPACE)
}

impl Range {
    /// Whether there is a superuser inside, and so more than one user.
    pub(crate) fn has_root(self) -> bool {
        self.inside == 0
    }

    /// The same ids, each mapped to itself.
    pub(crate) fn as_itself(self) -> Self {
        Self { outside: self.inside, ..self }
    }

    /// The first id after it.
    pub(crate) fn end(self) -> u64 {
        u64::from(self.inside) + u64::from(self.count)
    }
}

/// Ids that exist in the user namespace of this process, for users and for groups alike, in ascending order. What they
/// are outside of it does not matter here: `outside` is 0.
pub(crate) fn mapped() -> Result<Vec<Range>> {
    let read = |file: &str| fs::read_to_string(file).doing(format!("read {file}"));
    Ok(common(&read("/proc/self/uid_map")?, &read("/proc/self/gid_map")?))
}

/// Ids that are in both maps.
fn common(users: &str, groups: &str) -> Vec<Range> {
    let (users, groups) = (ranges(users), ranges(groups));
    let both = |one: &Range, other: &Range| {
        let start = one.inside.max(other.inside);
        let count = one.end().min(other.end()).checked_sub(start.into()).filter(|count| *count > 0)?;
        Some(Range { inside: start, outside: 0, count: u32::try_from(count).ok()? })
    };
    let mut found: Vec<Range> =
        users.iter().flat_map(|one| groups.iter().filter_map(|other| both(one, other))).collect();
    found.sort_by_key(|range| range.inside);
    found
}

/// Lines of a map: first id inside, first id outside, count.
pub(crate) fn ranges(map: &str) -> Vec<Range> {
    let range = |line: &str| {
        let mut numbers = line.split_whitespace().map(|number| number.parse().ok());
        Some(Range { inside: numbers.next()??, outside: numbers.next()??, count: numbers.next()?? })
    };
    map.lines().filter_map(range).collect()
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
    crate::entry::end_with_parent();
    if rustix::process::getppid() != parent {
        return Err(crate::error::HostError::Helper("the server has ended".to_owned()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_common_that_are_in_both_maps() {
        let found = |users: &str, groups: &str| -> Vec<(u32, u32)> {
            common(users, groups).into_iter().map(|range| (range.inside, range.count)).collect()
        };
        let all = "         0          0 4294967295\n";
        assert_eq!(found(all, all), [(0, u32::MAX)]);
        assert_eq!(found("0 100000 65536\n", all), [(0, 65_536)]);
        assert_eq!(found("0 1000 1\n1 100000 5000\n", "0 1000 1\n1 200000 4000\n"), [(0, 1), (1, 4000)]);
        assert_eq!(found("0 0 10\n", "20 0 10\n"), []);
        assert_eq!(found("", all), []);
    }
}

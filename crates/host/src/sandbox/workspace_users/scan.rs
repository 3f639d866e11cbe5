//! Looking at the processes of a sandbox, from its own mounts.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags, openat, readlinkat, statx};
use rustix::io::Errno;

use crate::error::{Doing as _, HostError, Result};
use crate::process::Status;
use crate::sandbox::layout::WORKSPACE;
use crate::sandbox::workspace_user::{User, Users, Why};

/// The first process inside: the guest agent.
const FIRST: i32 = 1;

/// A process that uses the workspace, held: its number means nobody else as long as this is there.
pub(super) struct Found {
    pub(super) user: User,
    pub(super) started: u64,
    pub(super) directory: OwnedFd,
}

impl Found {
    /// What no other process has.
    pub(super) fn identity(&self) -> (i32, u64) {
        (self.user.pid, self.started)
    }
}

/// All of them that use the workspace now.
pub(super) fn found(whose: Users) -> Result<Vec<Found>> {
    let all = directory(CWD, "/proc").doing("look at the sandbox's processes")?;
    let mounts = mounts(all.as_fd())?;
    let numbers = names(all.as_fd(), ".").doing("list the sandbox's processes")?;
    let numbers = numbers.iter().filter_map(|name| name.parse::<i32>().ok()).filter(|pid| *pid != FIRST);
    let mut found = Vec::new();
    for pid in numbers {
        match look(all.as_fd(), pid, &mounts, whose) {
            Ok(user) => found.extend(user),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error).doing("look at a process of the sandbox"),
        }
    }
    Ok(found)
}

/// How many bytes files without a name take that somebody inside has open. Those who do not let themselves be looked
/// into have what they have from others.
pub(super) fn deleted() -> Result<u64> {
    let all = directory(CWD, "/proc").doing("look at the sandbox's processes")?;
    let mounts = mounts(all.as_fd())?;
    let numbers = names(all.as_fd(), ".").doing("list the sandbox's processes")?;
    let mut files = HashMap::new();
    for pid in numbers.iter().filter(|name| name.parse::<i32>().is_ok_and(|pid| pid != FIRST)) {
        match add_deleted(all.as_fd(), pid, &mounts, &mut files) {
            Err(error) if !is_gone(&error) && error.kind() != io::ErrorKind::PermissionDenied => {
                return Err(error).doing("look at a process of the sandbox");
            }
            _ => {}
        }
    }
    Ok(files.into_values().sum())
}

/// Files by what tells them apart; several may have one open.
fn add_deleted(
    all: BorrowedFd<'_>,
    pid: &str,
    mounts: &HashSet<u64>,
    files: &mut HashMap<(u32, u32, u64), u64>,
) -> io::Result<()> {
    let process = directory(all, pid)?;
    for thread in names(process.as_fd(), "task")? {
        let descriptors = format!("task/{thread}/fd");
        for name in names(process.as_fd(), &descriptors)? {
            let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
            let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
            let Ok(found) = statx(&process, format!("{descriptors}/{name}"), flags, wanted) else { continue };
            if found.stx_nlink == 0 && mounts.contains(&found.stx_mnt_id) {
                let file = (found.stx_dev_major, found.stx_dev_minor, found.stx_ino);
                files.insert(file, found.stx_blocks * 512);
            }
        }
    }
    Ok(())
}

/// The mounts at the workspace and below; none where it is not mounted.
fn mounts(all: BorrowedFd<'_>) -> Result<HashSet<u64>> {
    let table = text(all, "1/mountinfo").doing("look at the sandbox's mounts")?;
    if table.is_empty() {
        return Err(HostError::sandbox_ended());
    }
    Ok(table.lines().filter_map(workspace_mount).collect())
}

/// The number of a mount that is at the workspace, or below.
fn workspace_mount(line: &str) -> Option<u64> {
    let mut fields = line.split(' ');
    let number = fields.next()?.parse().ok()?;
    is_inside(fields.nth(3)?).then_some(number)
}

fn is_inside(path: &str) -> bool {
    path.strip_prefix(WORKSPACE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// One process, if it uses the workspace.
fn look(all: BorrowedFd<'_>, pid: i32, mounts: &HashSet<u64>, whose: Users) -> io::Result<Option<Found>> {
    let process = directory(all, &pid.to_string())?;
    let status = Status::parse(&text(process.as_fd(), "stat")?)?;
    let why = match why(process.as_fd(), mounts, whose) {
        // Those that look after commands do not let themselves be looked into either; they use nothing there.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            (status.parent != FIRST).then_some(Why::Hidden)
        }
        why => why?,
    };
    let Some(why) = why else { return Ok(None) };
    let command = text(process.as_fd(), "comm")?.trim_end().to_owned();
    Ok(Some(Found { user: User { pid, command, why }, started: status.started, directory: process }))
}

/// How a process uses one of these mounts, if it does. Threads may have directories and descriptors of their own.
fn why(process: BorrowedFd<'_>, mounts: &HashSet<u64>, whose: Users) -> io::Result<Option<Why>> {
    let mut mapped = None;
    for thread in names(process, "task")? {
        let used = thread_uses(process, &thread, mounts, whose).or_else(none_if_gone)?;
        if used.is_some() {
            return Ok(used);
        }
        if mapped.is_none() {
            // All threads share their memory; one that has ended tells nothing.
            mapped = maps(process, &thread).or_else(none_if_gone)?;
        }
    }
    Ok((mapped == Some(true)).then_some(Why::Mapping))
}

fn thread_uses(
    process: BorrowedFd<'_>,
    thread: &str,
    mounts: &HashSet<u64>,
    whose: Users,
) -> io::Result<Option<Why>> {
    for (name, why) in [("cwd", Why::Cwd), ("root", Why::Root)] {
        let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        let path = format!("task/{thread}/{name}");
        match statx(process, &path, flags, StatxFlags::MNT_ID) {
            Ok(found)
                if mounts.contains(&found.stx_mnt_id)
                    && (why, whose) == (Why::Cwd, Users::Bound)
                    && is_workspace(process, &path)? => {}
            Ok(found) if mounts.contains(&found.stx_mnt_id) => return Ok(Some(why)),
            // One that has ended has none.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let descriptors = format!("task/{thread}/fdinfo");
    for name in names(process, &descriptors)? {
        let told = text(process, &format!("{descriptors}/{name}"))
            .or_else(|error| if is_gone(&error) { Ok(String::new()) } else { Err(error) })?;
        let mount = told.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
        if mount.is_some_and(|mount| mounts.contains(&mount)) {
            return Ok(Some(Why::Descriptor));
        }
    }
    Ok(None)
}

/// Returns whether a link of `/proc` is to the root of the workspace. Only that has this path, since it is mounted there.
fn is_workspace(process: BorrowedFd<'_>, path: &str) -> io::Result<bool> {
    match readlinkat(process, path, Vec::new()) {
        Err(Errno::NOENT) => Ok(false),
        link => Ok(link?.as_bytes() == WORKSPACE.as_bytes()),
    }
}

/// Whether something in the workspace is mapped; none if there is no memory any more.
fn maps(process: BorrowedFd<'_>, thread: &str) -> io::Result<Option<bool>> {
    let maps = text(process, &format!("task/{thread}/maps"))?;
    // Five fields, then spaces, then the path, in which there may be spaces too.
    let path = |line: &str| line.splitn(6, ' ').nth(5).map(|path| is_inside(path.trim_start()));
    Ok((!maps.is_empty()).then(|| maps.lines().filter_map(path).any(|inside| inside)))
}

/// Whether that is how the kernel says that a process, a thread or a descriptor is there no more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

fn none_if_gone<T>(error: io::Error) -> io::Result<Option<T>> {
    if is_gone(&error) { Ok(None) } else { Err(error) }
}

/// Opened for real: what is only looked at cannot be signalled.
fn directory(at: impl std::os::fd::AsFd, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(openat(at, path, flags, Mode::empty())?)
}

/// The names in a directory.
fn names(at: BorrowedFd<'_>, path: &str) -> io::Result<Vec<String>> {
    let entries = Dir::new(directory(at, path)?)?;
    let name = |name: &CStr| name.to_str().ok().filter(|name| !name.starts_with('.')).map(str::to_owned);
    let names = entries.filter_map(|entry| entry.map(|entry| name(entry.file_name())).transpose());
    names.map(|name| name.map_err(io::Error::from)).collect()
}

/// What a file says. Names in it may be of any bytes.
fn text(at: BorrowedFd<'_>, path: &str) -> io::Result<String> {
    let file = openat(at, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
    let mut bytes = Vec::new();
    File::from(file).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_the_workspace_are_those_at_it_and_below() {
        let line = |at: &str| format!("57 23 0:28 /a {at} rw,nosuid - overlay overlay rw");
        for (at, inside) in [
            ("/workspace", true),
            ("/workspace/a/b", true),
            ("/workspaces", false),
            ("/", false),
            ("/run/workspace", false),
        ] {
            assert_eq!(workspace_mount(&line(at)), inside.then_some(57), "{at}");
        }
    }
}

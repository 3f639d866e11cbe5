//! Inspecting the processes of a sandbox, from its mount namespace.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags, openat, readlinkat, statx};
use rustix::io::Errno;

use crate::error::{Context as _, HostError, Result};
use crate::process::Status;
use crate::sandbox::layout::WORKSPACE;
use crate::sandbox::workspace_user::{User, Users, Why};

/// PID of the first process inside, the guest agent.
const AGENT_PID: i32 = 1;

/// Process that uses the workspace. While this exists, its PID is not reused.
pub(super) struct Found {
    pub(super) user: User,
    pub(super) start_time: u64,
    pub(super) directory: OwnedFd,
}

impl Found {
    /// Returns PID and start time, which identify a process.
    pub(super) fn identity(&self) -> (i32, u64) {
        (self.user.pid, self.start_time)
    }
}

/// Returns all processes that use the workspace now.
pub(super) fn scan(whose: Users) -> Result<Vec<Found>> {
    let all = open_dir(CWD, "/proc").context("open /proc of the sandbox")?;
    let mounts = workspace_mounts(all.as_fd())?;
    let numbers = list_dir(all.as_fd(), ".").context("list the processes of the sandbox")?;
    let numbers = numbers.iter().filter_map(|name| name.parse::<i32>().ok()).filter(|pid| *pid != AGENT_PID);
    let mut found = Vec::new();
    for pid in numbers {
        match inspect(all.as_fd(), pid, &mounts, whose) {
            Ok(user) => found.extend(user),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error).context("inspect a process of the sandbox"),
        }
    }
    Ok(found)
}

/// Returns the disk usage, in bytes, of deleted files that are open inside. Processes that cannot be
/// inspected are skipped: they inherited their files from others.
pub(super) fn deleted_bytes() -> Result<u64> {
    let all = open_dir(CWD, "/proc").context("open /proc of the sandbox")?;
    let mounts = workspace_mounts(all.as_fd())?;
    let numbers = list_dir(all.as_fd(), ".").context("list the processes of the sandbox")?;
    let mut files = HashMap::new();
    for pid in numbers.iter().filter(|name| name.parse::<i32>().is_ok_and(|pid| pid != AGENT_PID)) {
        match add_deleted(all.as_fd(), pid, &mounts, &mut files) {
            Err(error) if !is_gone(&error) && error.kind() != io::ErrorKind::PermissionDenied => {
                return Err(error).context("inspect a process of the sandbox");
            }
            _ => {}
        }
    }
    Ok(files.into_values().sum())
}

/// Adds the deleted files of a process, by device and inode, because several processes may have one open.
fn add_deleted(
    all: BorrowedFd<'_>,
    pid: &str,
    mounts: &HashSet<u64>,
    files: &mut HashMap<(u32, u32, u64), u64>,
) -> io::Result<()> {
    let process = open_dir(all, pid)?;
    for thread in list_dir(process.as_fd(), "task")? {
        let descriptors = format!("task/{thread}/fd");
        for name in list_dir(process.as_fd(), &descriptors)? {
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

/// Returns the ids of mounts at the workspace and below; none if it is not mounted.
fn workspace_mounts(all: BorrowedFd<'_>) -> Result<HashSet<u64>> {
    let table = read_file(all, "1/mountinfo").context("read the mounts of the sandbox")?;
    if table.is_empty() {
        return Err(HostError::sandbox_ended());
    }
    Ok(table.lines().filter_map(workspace_mount).collect())
}

/// Returns the mount id of a line of `mountinfo`, if it is at the workspace or below.
fn workspace_mount(line: &str) -> Option<u64> {
    let mut fields = line.split(' ');
    let number = fields.next()?.parse().ok()?;
    is_inside(fields.nth(3)?).then_some(number)
}

fn is_inside(path: &str) -> bool {
    path.strip_prefix(WORKSPACE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Inspects one process. Returns `None` if it does not use the workspace.
fn inspect(all: BorrowedFd<'_>, pid: i32, mounts: &HashSet<u64>, whose: Users) -> io::Result<Option<Found>> {
    let process = open_dir(all, &pid.to_string())?;
    let status = Status::parse(&read_file(process.as_fd(), "stat")?)?;
    let why = match use_of(process.as_fd(), mounts, whose) {
        // Supervisors of commands cannot be inspected either; they use nothing there.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            (status.parent != AGENT_PID).then_some(Why::Hidden)
        }
        why => why?,
    };
    let Some(why) = why else { return Ok(None) };
    let command = read_file(process.as_fd(), "comm")?.trim_end().to_owned();
    Ok(Some(Found { user: User { pid, command, why }, start_time: status.start_time, directory: process }))
}

/// Returns how a process uses one of these mounts, if it does. Threads may have their own directories and
/// files.
fn use_of(process: BorrowedFd<'_>, mounts: &HashSet<u64>, whose: Users) -> io::Result<Option<Why>> {
    let mut mapped = None;
    for thread in list_dir(process, "task")? {
        let used = thread_use(process, &thread, mounts, whose).or_else(none_if_gone)?;
        if used.is_some() {
            return Ok(used);
        }
        if mapped.is_none() {
            // All threads share their memory; one that has ended has none.
            mapped = has_mapping(process, &thread).or_else(none_if_gone)?;
        }
    }
    Ok((mapped == Some(true)).then_some(Why::Mapping))
}

fn thread_use(
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
            // A thread that has ended has none.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let descriptors = format!("task/{thread}/fdinfo");
    for name in list_dir(process, &descriptors)? {
        let info = read_file(process, &format!("{descriptors}/{name}"))
            .or_else(|error| if is_gone(&error) { Ok(String::new()) } else { Err(error) })?;
        let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
        if mount.is_some_and(|mount| mounts.contains(&mount)) {
            return Ok(Some(Why::Descriptor));
        }
    }
    Ok(None)
}

/// Returns whether a link in `/proc` points to the root of the workspace. No other directory has this path,
/// because it is a mount point.
fn is_workspace(process: BorrowedFd<'_>, path: &str) -> io::Result<bool> {
    match readlinkat(process, path, Vec::new()) {
        Err(Errno::NOENT) => Ok(false),
        link => Ok(link?.as_bytes() == WORKSPACE.as_bytes()),
    }
}

/// Returns whether a file of the workspace is mapped. `None` if there is no memory any more.
fn has_mapping(process: BorrowedFd<'_>, thread: &str) -> io::Result<Option<bool>> {
    let maps = read_file(process, &format!("task/{thread}/maps"))?;
    // Five fields, then spaces, then the path, which may contain spaces.
    let path = |line: &str| line.splitn(6, ' ').nth(5).map(|path| is_inside(path.trim_start()));
    Ok((!maps.is_empty()).then(|| maps.lines().filter_map(path).any(|inside| inside)))
}

/// Returns whether the error means that a process, thread or file descriptor does not exist any more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

fn none_if_gone<T>(error: io::Error) -> io::Result<Option<T>> {
    if is_gone(&error) { Ok(None) } else { Err(error) }
}

/// Opened without `O_PATH`, because it must be possible to signal a process by it.
fn open_dir(at: impl std::os::fd::AsFd, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(openat(at, path, flags, Mode::empty())?)
}

/// Returns the names in a directory.
fn list_dir(at: BorrowedFd<'_>, path: &str) -> io::Result<Vec<String>> {
    let entries = Dir::new(open_dir(at, path)?)?;
    let name = |name: &CStr| name.to_str().ok().filter(|name| !name.starts_with('.')).map(str::to_owned);
    let names = entries.filter_map(|entry| entry.map(|entry| name(entry.file_name())).transpose());
    names.map(|name| name.map_err(io::Error::from)).collect()
}

/// Reads a file. Names in it may have any bytes.
fn read_file(at: BorrowedFd<'_>, path: &str) -> io::Result<String> {
    let file = openat(at, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
    let mut bytes = Vec::new();
    File::from(file).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_mounts_are_at_the_workspace_or_below() {
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

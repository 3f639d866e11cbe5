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
use crate::sandbox::workspace_process::{ProcessScope, WorkspaceProcess, WorkspaceUse};

/// PID of the init process inside, the guest agent.
const AGENT_PID: i32 = 1;

/// Process that uses the workspace.
pub(super) struct FoundProcess {
    pub(super) process: WorkspaceProcess,
    /// Start time in clock ticks since boot, which tells it from a later process with its PID.
    pub(super) start_time: u64,
    /// Directory of the process in `/proc`. It refers to this process even if the PID is reused.
    pub(super) directory: OwnedFd,
}

impl FoundProcess {
    /// Returns PID and start time, which identify a process.
    pub(super) fn identity(&self) -> (i32, u64) {
        (self.process.pid, self.start_time)
    }
}

/// Returns all processes that use the workspace now.
pub(super) fn scan(scope: ProcessScope) -> Result<Vec<FoundProcess>> {
    let proc = open_dir(CWD, "/proc").context("open /proc of the sandbox")?;
    let mounts = workspace_mounts(proc.as_fd())?;
    let names = list_dir(proc.as_fd(), ".").context("list the processes of the sandbox")?;
    let pids = names.iter().filter_map(|name| name.parse::<i32>().ok()).filter(|pid| *pid != AGENT_PID);
    let mut found = Vec::new();
    for pid in pids {
        match inspect(proc.as_fd(), pid, &mounts, scope) {
            Ok(process) => found.extend(process),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error).context("inspect a process of the sandbox"),
        }
    }
    Ok(found)
}

/// Returns the disk usage, in bytes, of deleted files that are open inside. Processes that cannot be
/// inspected are skipped: they inherited their files from others.
pub(super) fn deleted_bytes() -> Result<u64> {
    let proc = open_dir(CWD, "/proc").context("open /proc of the sandbox")?;
    let mounts = workspace_mounts(proc.as_fd())?;
    let names = list_dir(proc.as_fd(), ".").context("list the processes of the sandbox")?;
    let mut files = HashMap::new();
    for pid in names.iter().filter(|name| name.parse::<i32>().is_ok_and(|pid| pid != AGENT_PID)) {
        match add_deleted(proc.as_fd(), pid, &mounts, &mut files) {
            Err(error) if !is_gone(&error) && error.kind() != io::ErrorKind::PermissionDenied => {
                return Err(error).context("inspect a process of the sandbox");
            }
            _ => {}
        }
    }
    Ok(files.into_values().sum())
}

/// Adds the sizes of the deleted files of a process, by device and inode, because several processes may have the
/// same file open.
fn add_deleted(
    proc: BorrowedFd<'_>,
    pid: &str,
    mounts: &HashSet<u64>,
    files: &mut HashMap<(u32, u32, u64), u64>,
) -> io::Result<()> {
    let process = open_dir(proc, pid)?;
    for thread in list_dir(process.as_fd(), "task")? {
        let descriptors = format!("task/{thread}/fd");
        for name in list_dir(process.as_fd(), &descriptors)? {
            let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
            let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
            let Ok(found) = statx(&process, format!("{descriptors}/{name}"), flags, mask) else { continue };
            if found.stx_nlink == 0 && mounts.contains(&found.stx_mnt_id) {
                let file = (found.stx_dev_major, found.stx_dev_minor, found.stx_ino);
                files.insert(file, found.stx_blocks * 512);
            }
        }
    }
    Ok(())
}

/// Returns the ids of mounts at the workspace and below; none if it is not mounted.
fn workspace_mounts(proc: BorrowedFd<'_>) -> Result<HashSet<u64>> {
    let table = read_file(proc, "1/mountinfo").context("read the mounts of the sandbox")?;
    if table.is_empty() {
        return Err(HostError::sandbox_ended());
    }
    Ok(table.lines().filter_map(workspace_mount).collect())
}

/// Returns the mount id of a line of `mountinfo`, if it is at the workspace or below.
fn workspace_mount(line: &str) -> Option<u64> {
    let mut fields = line.split(' ');
    let mount_id = fields.next()?.parse().ok()?;
    is_in_workspace(fields.nth(3)?).then_some(mount_id)
}

fn is_in_workspace(path: &str) -> bool {
    path.strip_prefix(WORKSPACE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Inspects one process. Returns `None` if it does not use the workspace.
fn inspect(
    proc: BorrowedFd<'_>,
    pid: i32,
    mounts: &HashSet<u64>,
    scope: ProcessScope,
) -> io::Result<Option<FoundProcess>> {
    let process = open_dir(proc, &pid.to_string())?;
    let status = Status::parse(&read_file(process.as_fd(), "stat")?)?;
    let usage = match use_of(process.as_fd(), mounts, scope) {
        // Supervisors of commands, children of the agent, cannot be inspected either, but use no workspace.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            (status.parent != AGENT_PID).then_some(WorkspaceUse::Hidden)
        }
        usage => usage?,
    };
    let Some(usage) = usage else { return Ok(None) };
    let command = read_file(process.as_fd(), "comm")?.trim_end().to_owned();
    Ok(Some(FoundProcess {
        process: WorkspaceProcess { pid, command, usage },
        start_time: status.start_time,
        directory: process,
    }))
}

/// Returns the first use of one of these mounts by a process. Each thread may have its own working directory
/// and files.
fn use_of(
    process: BorrowedFd<'_>,
    mounts: &HashSet<u64>,
    scope: ProcessScope,
) -> io::Result<Option<WorkspaceUse>> {
    let mut mapped = None;
    for thread in list_dir(process, "task")? {
        let used = thread_use(process, &thread, mounts, scope).or_else(none_if_gone)?;
        if used.is_some() {
            return Ok(used);
        }
        if mapped.is_none() {
            // All threads share their memory. An exited thread has none.
            mapped = has_mapping(process, &thread).or_else(none_if_gone)?;
        }
    }
    Ok((mapped == Some(true)).then_some(WorkspaceUse::Mapping))
}

fn thread_use(
    process: BorrowedFd<'_>,
    thread: &str,
    mounts: &HashSet<u64>,
    scope: ProcessScope,
) -> io::Result<Option<WorkspaceUse>> {
    for (name, usage) in [("cwd", WorkspaceUse::Cwd), ("root", WorkspaceUse::Root)] {
        let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        let path = format!("task/{thread}/{name}");
        match statx(process, &path, flags, StatxFlags::MNT_ID) {
            Ok(found)
                if mounts.contains(&found.stx_mnt_id)
                    && (usage, scope) == (WorkspaceUse::Cwd, ProcessScope::Blocking)
                    && is_workspace(process, &path)? =>
            {
                // A replacement of the workspace moves this working directory to the new one, so it does not block.
            }
            Ok(found) if mounts.contains(&found.stx_mnt_id) => return Ok(Some(usage)),
            // An exited thread has neither.
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
            return Ok(Some(WorkspaceUse::Descriptor));
        }
    }
    Ok(None)
}

/// Returns true if a link in `/proc` points to the root of the workspace. No other directory has this path,
/// because it is a mount point.
fn is_workspace(process: BorrowedFd<'_>, path: &str) -> io::Result<bool> {
    match readlinkat(process, path, Vec::new()) {
        Err(Errno::NOENT) => Ok(false),
        link => Ok(link?.as_bytes() == WORKSPACE.as_bytes()),
    }
}

/// Returns true if a file of the workspace is mapped; `None` for an exited thread.
fn has_mapping(process: BorrowedFd<'_>, thread: &str) -> io::Result<Option<bool>> {
    let maps = read_file(process, &format!("task/{thread}/maps"))?;
    // Five fields, then spaces, then the path, which may contain spaces.
    let maps_workspace =
        |line: &str| line.splitn(6, ' ').nth(5).map(|path| is_in_workspace(path.trim_start()));
    Ok((!maps.is_empty()).then(|| maps.lines().filter_map(maps_workspace).any(|is_mapped| is_mapped)))
}

/// Returns true if the error means that a process, thread or file descriptor no longer exists.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

fn none_if_gone<T>(error: io::Error) -> io::Result<Option<T>> {
    if is_gone(&error) { Ok(None) } else { Err(error) }
}

/// Opens a directory without `O_PATH`, so that a process can be signalled through its directory in `/proc`.
fn open_dir(parent: impl std::os::fd::AsFd, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(openat(parent, path, flags, Mode::empty())?)
}

/// Returns the names in a directory.
fn list_dir(parent: BorrowedFd<'_>, path: &str) -> io::Result<Vec<String>> {
    let entries = Dir::new(open_dir(parent, path)?)?;
    let name = |name: &CStr| name.to_str().ok().filter(|name| !name.starts_with('.')).map(str::to_owned);
    let names = entries.filter_map(|entry| entry.map(|entry| name(entry.file_name())).transpose());
    names.map(|name| name.map_err(io::Error::from)).collect()
}

/// Reads a file. Names in it may not be valid UTF-8; such bytes are replaced.
fn read_file(parent: BorrowedFd<'_>, path: &str) -> io::Result<String> {
    let file = openat(parent, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
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

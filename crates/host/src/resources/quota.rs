//! Project quotas: limits of directories that the filesystem enforces.
//!
//! Each file carries the id of a project. A filesystem with project quotas counts the files of each project, and
//! rejects writes beyond the limit of the project. (These are not the projects of a server.) A directory gets its own
//! project, which everything below inherits. The project id is derived from the inode number of the directory, so that
//! no allocation has to be recorded. If the project with that id has files already, because another directory has the
//! same id, the next ids are tried.
//!
//! The owner of a file may move it to another project, and so out of the limit, but not from inside a user
//! namespace. So a quota binds the processes of sandboxes, and is used for their directories only.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use linux_raw_sys::general::{FS_XFLAG_PROJINHERIT, fsxattr};
use linux_raw_sys::ioctl::{FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR};

use crate::error::{Context as _, HostError, Result};
use crate::resources::disk_usage::DiskUsage;

/// First project id for sandboxes. Administrators use small ids.
const FIRST_PROJECT: u32 = 1 << 31;
/// Number of project ids that are tried. An inode number may not fit into a project id, so two directories
/// may collide.
const ATTEMPTS: u32 = 64;
/// Unit of limits, in bytes.
const BLOCK: u64 = 1024;
/// Number of bytes of the limit per allowed file: an empty file takes no block, but space for its inode.
const BYTES_PER_FILE: u64 = 4096;
/// Minimum number of allowed files.
const FILES_MIN: u64 = 1 << 12;

/// `struct fs_quota_stat`, which no crate defines. Only the flags are used.
#[repr(C)]
#[derive(Default)]
struct QuotaStatus {
    version: i8,
    flags: u16,
    rest: [u64; 9],
}

/// Command of `quotactl` that reads a [`QuotaStatus`]. No crate defines it.
const Q_XGETQSTAT: libc::c_int = 0x5805;
/// Type of quotas of projects, not of users or groups. No crate defines it.
const PRJQUOTA: libc::c_int = 2;
/// Flags of [`QuotaStatus`] for projects whose usage is counted and whose limits are enforced:
/// `FS_QUOTA_PDQ_ACCT` and `FS_QUOTA_PDQ_ENFD`, which no crate defines.
const ENFORCED: u16 = 1 << 4 | 1 << 5;

/// Limits an empty directory to this many bytes. Fails with [`HostError::NoQuota`] where that is not
/// possible.
pub fn limit(directory: &Path, bytes: u64) -> Result<()> {
    let no_quota =
        |reason: &str| HostError::NoQuota { directory: directory.to_owned(), reason: reason.to_owned() };
    if !rustix::process::geteuid().is_root() {
        return Err(no_quota("only root can set quotas"));
    }
    let file = open(directory).context(open_action(directory))?;
    if !is_enforced(&file) {
        return Err(no_quota("its filesystem has no project quotas; mount it with the option prjquota"));
    }
    let project = match project(&file).context("read a project id")? {
        0 => assign_project(&file).context(format!("assign a project id to {}", directory.display()))?,
        id if id >= FIRST_PROJECT => id,
        _ => return Err(no_quota("it belongs to another project")),
    };
    set(&file, project, &limits(bytes)).context("set a quota")
}

/// Lets an empty directory share the limit of `limited`, a directory on the same filesystem, so that both count
/// together. Does nothing if `limited` has no limit.
pub fn share(directory: &Path, limited: &Path) -> Result<()> {
    let Some((_, project)) = open_limited(limited)? else { return Ok(()) };
    let file = open(directory).context(open_action(directory))?;
    set_project(&file, project).context(format!("assign a project id to {}", directory.display()))
}

/// Returns the usage of a directory with a limit; `None` if it is not counted. Empty files count as 0 bytes.
pub fn used(directory: &Path) -> Result<Option<DiskUsage>> {
    let Some((file, project)) = open_limited(directory)? else { return Ok(None) };
    let quota = get(&file, project).context("read a quota")?;
    Ok(Some(DiskUsage { bytes: quota.dqb_curspace, files: quota.dqb_curinodes, is_lower_bound: false }))
}

/// Removes the limit of a directory, which may have none or may not exist.
pub fn release(directory: &Path) -> Result<()> {
    let Some((file, project)) = open_limited(directory)? else { return Ok(()) };
    // Limits of 0 are no limits.
    let none = libc::dqblk { dqb_valid: libc::QIF_LIMITS, ..empty() };
    set(&file, project, &none).context("remove a quota")
}

/// Opens a directory that has a project id of a sandbox and a quota.
fn open_limited(directory: &Path) -> Result<Option<(File, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let file = match open(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.context(open_action(directory))?,
    };
    if !is_enforced(&file) {
        return Ok(None);
    }
    let project = project(&file).context("read a project id")?;
    Ok((project >= FIRST_PROJECT).then_some((file, project)))
}

fn open(directory: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(directory)
}

fn open_action(directory: &Path) -> String {
    format!("open {}", directory.display())
}

/// Returns a quota with zero in all fields: no limits and no usage.
fn empty() -> libc::dqblk {
    // SAFETY: the structure consists of integers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

/// Returns a quota with limits of blocks and of files, rounded down.
fn limits(bytes: u64) -> libc::dqblk {
    libc::dqblk {
        dqb_bhardlimit: bytes / BLOCK,
        dqb_ihardlimit: (bytes / BYTES_PER_FILE).max(FILES_MIN),
        dqb_valid: libc::QIF_LIMITS,
        ..empty()
    }
}

/// Returns the first project id to try for a directory.
fn first_project(inode: u64) -> u32 {
    FIRST_PROJECT | u32::try_from(inode % u64::from(FIRST_PROJECT)).unwrap_or_default()
}

/// Assigns the id of a project that has no files.
fn assign_project(directory: &File) -> io::Result<u32> {
    let first = first_project(directory.metadata()?.ino());
    for project in (0..ATTEMPTS).map(|offset| FIRST_PROJECT | first.wrapping_add(offset)) {
        // The highest id means that there is no project.
        if project != u32::MAX && get(directory, project)?.dqb_curinodes == 0 {
            set_project(directory, project)?;
            return Ok(project);
        }
    }
    Err(io::Error::other("all project ids are in use"))
}

fn project(directory: &File) -> io::Result<u32> {
    Ok(attributes(directory)?.fsx_projid)
}

fn attributes(directory: &File) -> io::Result<fsxattr> {
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut attributes: fsxattr = unsafe { std::mem::zeroed() };
    let request = FS_IOC_FSGETXATTR as libc::Ioctl;
    // SAFETY: the kernel writes a structure of this layout, whose size is in the request.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), request, &raw mut attributes) }.into())?;
    Ok(attributes)
}

fn set_project(directory: &File, project: u32) -> io::Result<()> {
    let before = attributes(directory)?;
    // New files in the directory inherit its project.
    let after =
        fsxattr { fsx_xflags: before.fsx_xflags | FS_XFLAG_PROJINHERIT, fsx_projid: project, ..before };
    let request = FS_IOC_FSSETXATTR as libc::Ioctl;
    // SAFETY: the kernel reads a structure of this layout, whose size is in the request.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), request, &raw const after) }.into())
}

/// Returns true if the filesystem counts projects and enforces their limits.
fn is_enforced(directory: &File) -> bool {
    let mut status = QuotaStatus { version: 1, ..QuotaStatus::default() };
    // SAFETY: the kernel writes a structure of this layout.
    let found = unsafe { quotactl(directory, Q_XGETQSTAT, 0, (&raw mut status).cast()) };
    found.is_ok() && status.flags & ENFORCED == ENFORCED
}

/// Returns usage and limits of a project. An unknown one has neither.
fn get(directory: &File, project: u32) -> io::Result<libc::dqblk> {
    let mut quota = empty();
    // SAFETY: the kernel writes a structure of this layout.
    match unsafe { quotactl(directory, libc::Q_GETQUOTA, project, (&raw mut quota).cast()) } {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(empty()),
        found => found.map(|()| quota),
    }
}

fn set(directory: &File, project: u32, quota: &libc::dqblk) -> io::Result<()> {
    // SAFETY: the kernel reads a structure of this layout.
    unsafe { quotactl(directory, libc::Q_SETQUOTA, project, (&raw const *quota).cast_mut().cast()) }
}

/// Calls `quotactl_fd(2)`, which exists since Linux 5.14.
///
/// # Safety
///
/// `data` points to a structure of the type that `command` reads or writes.
unsafe fn quotactl(
    file: &File,
    command: libc::c_int,
    project: u32,
    data: *mut libc::c_void,
) -> io::Result<()> {
    let command = libc::QCMD(command, PRJQUOTA);
    // SAFETY: see the contract of this function.
    check(unsafe { libc::syscall(libc::SYS_quotactl_fd, file.as_raw_fd(), command, project, data) })
}

fn check(returned: libc::c_long) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_status_has_the_layout_of_the_kernel() {
        assert_eq!((size_of::<QuotaStatus>(), std::mem::offset_of!(QuotaStatus, flags)), (80, 2));
    }

    #[test]
    fn limits_are_rounded_down() {
        let quota = limits((4 << 20) + 1023);
        assert_eq!((quota.dqb_bhardlimit, quota.dqb_ihardlimit), (4 << 10, FILES_MIN));
        assert_eq!(limits(10 << 30).dqb_ihardlimit, 10 << 18);
    }

    #[test]
    fn project_ids_are_in_the_range_of_sandboxes() {
        for inode in [0, 2, u64::from(u32::MAX), u64::MAX] {
            assert!(first_project(inode) >= FIRST_PROJECT);
        }
        assert_ne!(first_project(2), first_project(3));
    }
}

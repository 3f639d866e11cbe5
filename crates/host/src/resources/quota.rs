//! Project quotas: limits of directories that the filesystem enforces.
//!
//! A filesystem with project quotas counts the files of a project and rejects writes beyond its limit. A
//! directory gets its own project, which everything below inherits. The project id is derived from the inode
//! of the directory, so that no other existing directory has the same and no allocation has to be recorded.
//!
//! A process in a user namespace cannot move a file to another project, but its owner outside could. So
//! quotas are for sandboxes only.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::error::{Context as _, HostError, Result};
use crate::resources::disk_usage::Usage;

/// Lowest project id of ours. Administrators use small ones.
const FIRST_PROJECT: u32 = 1 << 31;
/// Number of project ids that are tried. An inode number may not fit into a project id, so two directories
/// may collide.
const ATTEMPTS: u32 = 64;
/// Unit of limits, in bytes.
const BLOCK: u64 = 1024;
/// Number of bytes per file of the limit of files: an empty file takes no block, but space for its inode. A
/// file with content takes as much anyway.
const BYTES_PER_FILE: u64 = 4096;
/// Minimum of the limit of files.
const FILES_MIN: u64 = 1 << 12;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// `struct if_dqblk`.
#[repr(C)]
#[derive(Default)]
struct Quota {
    blocks_max: u64,
    blocks_soft: u64,
    bytes: u64,
    files_max: u64,
    files_soft: u64,
    files: u64,
    blocks_time: u64,
    files_time: u64,
    valid: u32,
}

/// `struct fs_quota_stat`, of which only the flags are used.
#[repr(C)]
#[derive(Default)]
struct Status {
    version: i8,
    flags: u16,
    rest: [u64; 9],
}

const GET_ATTRIBUTES: libc::Ioctl = request(2, 31);
const SET_ATTRIBUTES: libc::Ioctl = request(1, 32);
/// `FS_XFLAG_PROJINHERIT`: new files in the directory belong to its project.
const PROJECT_INHERIT: u32 = 0x200;

const GET_QUOTA: u32 = 0x0080_0007;
const SET_QUOTA: u32 = 0x0080_0008;
const GET_STATUS: u32 = 0x5805;
/// `PRJQUOTA`: the quota of a project, not of a user or a group.
const PROJECT_QUOTA: u32 = 2;
/// Flags for projects whose usage is counted and whose limits are enforced.
const ENFORCED: u16 = 0b11 << 4;
/// Fields in [`Quota::valid`]: the limits of blocks and of files.
const VALID_LIMITS: u32 = 0b101;

/// Returns the number of an ioctl on [`Attributes`].
const fn request(direction: libc::Ioctl, number: libc::Ioctl) -> libc::Ioctl {
    direction << 30 | (size_of::<Attributes>() as libc::Ioctl) << 16 | (b'X' as libc::Ioctl) << 8 | number
}

/// Limits an empty directory to this many bytes. Fails with [`HostError::NoQuota`] where that is not
/// possible.
pub fn limit(directory: &Path, bytes: u64) -> Result<()> {
    let no_quota =
        |reason: &str| HostError::NoQuota { directory: directory.to_owned(), reason: reason.to_owned() };
    if !rustix::process::geteuid().is_root() {
        return Err(no_quota("only the superuser may set them"));
    }
    let file = open(directory).context(opening(directory))?;
    if !is_enforced(&file) {
        return Err(no_quota("its filesystem keeps none: it needs the mount option prjquota"));
    }
    let project = match project(&file).context("read a project id")? {
        0 => assign_project(&file).context(format!("take {} into a project", directory.display()))?,
        ours if ours >= FIRST_PROJECT => ours,
        _ => return Err(no_quota("it belongs to another project")),
    };
    set(&file, project, &Quota::of(bytes)).context("set a quota")
}

/// Returns the usage of a directory with a limit, or `None` if it is not counted. Empty files take no bytes
/// here.
pub fn used(directory: &Path) -> Result<Option<Usage>> {
    let Some((file, project)) = limited(directory)? else { return Ok(None) };
    let Quota { bytes, files, .. } = get(&file, project).context("read a quota")?;
    Ok(Some(Usage { bytes, files, at_least: false }))
}

/// Removes the limit of a directory, which may have none or may not exist.
pub fn release(directory: &Path) -> Result<()> {
    let Some((file, project)) = limited(directory)? else { return Ok(()) };
    set(&file, project, &Quota { valid: VALID_LIMITS, ..Quota::default() }).context("remove a quota")
}

/// Opens a directory with a project of ours that is counted.
fn limited(directory: &Path) -> Result<Option<(File, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let file = match open(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.context(opening(directory))?,
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

fn opening(directory: &Path) -> String {
    format!("open {}", directory.display())
}

impl Quota {
    /// Returns the limits, rounded down.
    fn of(bytes: u64) -> Self {
        let files_max = (bytes / BYTES_PER_FILE).max(FILES_MIN);
        Self { blocks_max: bytes / BLOCK, files_max, valid: VALID_LIMITS, ..Self::default() }
    }
}

/// Returns the first project id to try for a directory.
fn first_project(inode: u64) -> u32 {
    FIRST_PROJECT | u32::try_from(inode % u64::from(FIRST_PROJECT)).unwrap_or_default()
}

/// Assigns a project id that has no files.
fn assign_project(directory: &File) -> io::Result<u32> {
    let first = first_project(directory.metadata()?.ino());
    for number in (0..ATTEMPTS).map(|more| FIRST_PROJECT | first.wrapping_add(more)) {
        // The highest id means none.
        if number != u32::MAX && get(directory, number)?.files == 0 {
            set_project(directory, number)?;
            return Ok(number);
        }
    }
    Err(io::Error::other("all numbers are taken"))
}

fn project(directory: &File) -> io::Result<u32> {
    Ok(attributes(directory)?.project)
}

fn attributes(directory: &File) -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes a structure of this layout, whose size is in the request.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), GET_ATTRIBUTES, &raw mut attributes) }.into())?;
    Ok(attributes)
}

fn set_project(directory: &File, project: u32) -> io::Result<()> {
    let before = attributes(directory)?;
    let after = Attributes { flags: before.flags | PROJECT_INHERIT, project, ..before };
    // SAFETY: the kernel reads a structure of this layout, whose size is in the request.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), SET_ATTRIBUTES, &raw const after) }.into())
}

/// Returns whether the filesystem counts projects and enforces their limits.
fn is_enforced(directory: &File) -> bool {
    let mut status = Status { version: 1, ..Status::default() };
    // SAFETY: the kernel writes a structure of this layout.
    let found = unsafe { quotactl(directory, GET_STATUS, 0, (&raw mut status).cast()) };
    found.is_ok() && status.flags & ENFORCED == ENFORCED
}

/// Returns usage and limits of a project. An unknown one has neither.
fn get(directory: &File, project: u32) -> io::Result<Quota> {
    let mut quota = Quota::default();
    // SAFETY: the kernel writes a structure of this layout.
    match unsafe { quotactl(directory, GET_QUOTA, project, (&raw mut quota).cast()) } {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Quota::default()),
        found => found.map(|()| quota),
    }
}

fn set(directory: &File, project: u32, quota: &Quota) -> io::Result<()> {
    // SAFETY: the kernel reads a structure of this layout.
    unsafe { quotactl(directory, SET_QUOTA, project, (&raw const *quota).cast_mut().cast()) }
}

/// `quotactl_fd(2)`, since Linux 5.14.
///
/// # Safety
///
/// `data` points to what `command` reads or writes.
unsafe fn quotactl(file: &File, command: u32, project: u32, data: *mut libc::c_void) -> io::Result<()> {
    let command = command << 8 | PROJECT_QUOTA;
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
    fn structures_have_the_layout_of_the_kernel() {
        assert_eq!((GET_ATTRIBUTES, SET_ATTRIBUTES), (0x801c_581f, 0x401c_5820));
        assert_eq!(std::mem::offset_of!(Attributes, project), 12);
        assert_eq!(size_of::<Quota>(), size_of::<libc::dqblk>());
        assert_eq!(std::mem::offset_of!(Quota, valid), std::mem::offset_of!(libc::dqblk, dqb_valid));
        assert_eq!((size_of::<Status>(), std::mem::offset_of!(Status, flags)), (80, 2));
    }

    #[test]
    fn limits_are_rounded_down() {
        let quota = Quota::of((4 << 20) + 1023);
        assert_eq!((quota.blocks_max, quota.files_max), (4 << 10, FILES_MIN));
        assert_eq!(Quota::of(10 << 30).files_max, 10 << 18);
    }

    #[test]
    fn project_ids_are_in_our_range() {
        for inode in [0, 2, u64::from(u32::MAX), u64::MAX] {
            assert!(first_project(inode) >= FIRST_PROJECT);
        }
        assert_ne!(first_project(2), first_project(3));
    }
}

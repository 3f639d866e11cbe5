//! How much a directory may hold, seen to by its filesystem.
//!
//! A filesystem with project quotas counts the files of a project and refuses those that have none left. A directory
//! gets a project of its own, which everything below inherits. Its number comes of the directory's inode: no other
//! directory that exists has the same, so that nobody has to remember which are taken.
//!
//! Whoever is in a user namespace cannot give a file to another project; its owner outside could. So it holds only
//! those in.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::error::{Doing as _, HostError, Result};
use crate::resources::disk_usage::Usage;

/// The lowest number of our projects. People give theirs small ones.
const PROJECTS: u32 = 1 << 31;
/// How many numbers are tried, where an inode's does not fit into a project's and another may have the same.
const ATTEMPTS: u32 = 64;
/// Limits are told in blocks.
const BLOCK: u64 = 1024;
/// A file that holds nothing takes room that no block is counted for. There may be one for so many bytes, which is
/// what one with something in it takes anyway,
const BYTES_PER_FILE: u64 = 4096;
/// and so many at least.
const FILES_MIN: u64 = 1 << 12;

/// The kernel's `struct fsxattr`.
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

/// The kernel's `struct if_dqblk`.
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

/// The kernel's `struct fs_quota_stat`, of which the flags are of use.
#[repr(C)]
#[derive(Default)]
struct Status {
    version: i8,
    flags: u16,
    rest: [u64; 9],
}

const GET_ATTRIBUTES: libc::Ioctl = request(2, 31);
const SET_ATTRIBUTES: libc::Ioctl = request(1, 32);
/// What is made in a directory belongs to its project.
const INHERIT: u32 = 0x200;

const GET_QUOTA: u32 = 0x0080_0007;
const SET_QUOTA: u32 = 0x0080_0008;
const GET_STATUS: u32 = 0x5805;
/// Of a project, rather than of a user or a group.
const OF_PROJECT: u32 = 2;
/// Projects are counted, and limits of theirs are kept.
const KEPT: u16 = 0b11 << 4;
/// In [`Quota::valid`]: the limits of blocks and of files.
const LIMITS: u32 = 0b101;

/// The number of an ioctl on [`Attributes`].
const fn request(direction: libc::Ioctl, number: libc::Ioctl) -> libc::Ioctl {
    direction << 30 | (size_of::<Attributes>() as libc::Ioctl) << 16 | (b'X' as libc::Ioctl) << 8 | number
}

/// Lets a directory that is empty hold so many bytes. Where that cannot be had, [`HostError::NoQuota`] says why.
pub fn limit(directory: &Path, bytes: u64) -> Result<()> {
    let no_quota =
        |reason: &str| HostError::NoQuota { directory: directory.to_owned(), reason: reason.to_owned() };
    if !rustix::process::geteuid().is_root() {
        return Err(no_quota("only the superuser may set them"));
    }
    let file = open(directory).doing(opening(directory))?;
    if !is_kept(&file) {
        return Err(no_quota("its filesystem keeps none: it needs the mount option prjquota"));
    }
    let project = match project(&file).doing("look at a project")? {
        0 => take(&file).doing(format!("take {} into a project", directory.display()))?,
        ours if ours >= PROJECTS => ours,
        _ => return Err(no_quota("it belongs to another project")),
    };
    set(&file, project, &Quota::of(bytes)).doing("set a quota")
}

/// Usage of a directory with a limit; none where nobody counts it. A file that holds nothing takes no bytes here.
pub fn used(directory: &Path) -> Result<Option<Usage>> {
    let Some((file, project)) = limited(directory)? else { return Ok(None) };
    let Quota { bytes, files, .. } = get(&file, project).doing("look at a quota")?;
    Ok(Some(Usage { bytes, files, at_least: false }))
}

/// Lifts the limit of a directory, which may have none, or may not be there.
pub fn release(directory: &Path) -> Result<()> {
    let Some((file, project)) = limited(directory)? else { return Ok(()) };
    set(&file, project, &Quota { valid: LIMITS, ..Quota::default() }).doing("lift a quota")
}

/// A directory that has a project of ours, which is counted.
fn limited(directory: &Path) -> Result<Option<(File, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let file = match open(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.doing(opening(directory))?,
    };
    if !is_kept(&file) {
        return Ok(None);
    }
    let project = project(&file).doing("look at a project")?;
    Ok((project >= PROJECTS).then_some((file, project)))
}

fn open(directory: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(directory)
}

fn opening(directory: &Path) -> String {
    format!("open {}", directory.display())
}

impl Quota {
    /// Not a byte more.
    fn of(bytes: u64) -> Self {
        let files_max = (bytes / BYTES_PER_FILE).max(FILES_MIN);
        Self { blocks_max: bytes / BLOCK, files_max, valid: LIMITS, ..Self::default() }
    }
}

/// The number to try first for a directory.
fn first_number(inode: u64) -> u32 {
    PROJECTS | u32::try_from(inode % u64::from(PROJECTS)).unwrap_or_default()
}

/// Gives a directory a project that nobody has: one without files.
fn take(directory: &File) -> io::Result<u32> {
    let first = first_number(directory.metadata()?.ino());
    for number in (0..ATTEMPTS).map(|more| PROJECTS | first.wrapping_add(more)) {
        // The highest number stands for none.
        if number != u32::MAX && get(directory, number)?.files == 0 {
            join(directory, number)?;
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
    checked(unsafe { libc::ioctl(directory.as_raw_fd(), GET_ATTRIBUTES, &raw mut attributes) }.into())?;
    Ok(attributes)
}

fn join(directory: &File, project: u32) -> io::Result<()> {
    let before = attributes(directory)?;
    let after = Attributes { flags: before.flags | INHERIT, project, ..before };
    // SAFETY: the kernel reads a structure of this layout, whose size is in the request.
    checked(unsafe { libc::ioctl(directory.as_raw_fd(), SET_ATTRIBUTES, &raw const after) }.into())
}

/// Whether the filesystem counts projects and keeps their limits. One that knows no quotas says so by an error.
fn is_kept(directory: &File) -> bool {
    let mut status = Status { version: 1, ..Status::default() };
    // SAFETY: the kernel writes a structure of this layout.
    let found = unsafe { control(directory, GET_STATUS, 0, (&raw mut status).cast()) };
    found.is_ok() && status.flags & KEPT == KEPT
}

/// What a project has and may have. One that nobody heard of has nothing.
fn get(directory: &File, project: u32) -> io::Result<Quota> {
    let mut quota = Quota::default();
    // SAFETY: the kernel writes a structure of this layout.
    match unsafe { control(directory, GET_QUOTA, project, (&raw mut quota).cast()) } {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Quota::default()),
        found => found.map(|()| quota),
    }
}

fn set(directory: &File, project: u32, quota: &Quota) -> io::Result<()> {
    // SAFETY: the kernel reads a structure of this layout.
    unsafe { control(directory, SET_QUOTA, project, (&raw const *quota).cast_mut().cast()) }
}

/// `quotactl_fd(2)`, since Linux 5.14.
///
/// # Safety
///
/// `data` is what `command` reads or writes.
unsafe fn control(file: &File, command: u32, project: u32, data: *mut libc::c_void) -> io::Result<()> {
    let command = command << 8 | OF_PROJECT;
    // SAFETY: as the caller promises.
    checked(unsafe { libc::syscall(libc::SYS_quotactl_fd, file.as_raw_fd(), command, project, data) })
}

fn checked(returned: libc::c_long) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_is_told_has_its_layout() {
        assert_eq!((GET_ATTRIBUTES, SET_ATTRIBUTES), (0x801c_581f, 0x401c_5820));
        assert_eq!(std::mem::offset_of!(Attributes, project), 12);
        assert_eq!(size_of::<Quota>(), size_of::<libc::dqblk>());
        assert_eq!(std::mem::offset_of!(Quota, valid), std::mem::offset_of!(libc::dqblk, dqb_valid));
        assert_eq!((size_of::<Status>(), std::mem::offset_of!(Status, flags)), (80, 2));
    }

    #[test]
    fn a_limit_is_never_more_than_was_said() {
        let quota = Quota::of((4 << 20) + 1023);
        assert_eq!((quota.blocks_max, quota.files_max), (4 << 10, FILES_MIN));
        assert_eq!(Quota::of(10 << 30).files_max, 10 << 18);
    }

    #[test]
    fn numbers_are_in_a_range_of_our_own() {
        for inode in [0, 2, u64::from(u32::MAX), u64::MAX] {
            assert!(first_number(inode) >= PROJECTS);
        }
        assert_ne!(first_number(2), first_number(3));
    }
}

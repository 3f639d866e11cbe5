//! Status of files by `statx`, and the inode by which a file is recognised.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::table::{Inode, Seen};

/// Status of a file.
#[derive(Clone, Copy)]
pub(crate) struct Stat(pub(crate) Statx);

/// Returns the status of a directory entry. Follows no symlink. Fails with ACCESS for a mount point, because the files
/// below it belong to another file system.
pub(crate) fn stat_at(directory: impl AsFd, name: &CStr) -> Result<Stat, Errno> {
    let stat = statx(directory.as_fd(), name)?;
    if stat.0.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(Errno::ACCESS);
    }
    Ok(stat)
}

/// Returns the status of a directory entry like [`stat_at`], but also for a mount point.
pub(super) fn stat_any(directory: impl AsFd, name: &CStr) -> Result<Stat, Errno> {
    statx(directory.as_fd(), name)
}

/// Returns the status of an open file.
pub(crate) fn stat_open(file: impl AsFd) -> Result<Stat, Errno> {
    statx(file.as_fd(), c"")
}

fn statx(directory: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME).map(Stat)
}

impl Stat {
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.0.stx_mode.into())
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == FileType::Directory
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.kind() == FileType::RegularFile
    }

    /// Returns true if the file has no link any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.0.stx_nlink == 0
    }

    pub(super) fn device(&self) -> u64 {
        u64::from(self.0.stx_dev_major) << 32 | u64::from(self.0.stx_dev_minor)
    }

    /// Returns the inode: device, number and birth time. The device is zero if it is that of the export's root.
    pub(super) fn inode(&self, root_device: u64) -> Inode {
        let device = self.device();
        let time = self.0.stx_btime;
        let seconds = u64::from_ne_bytes(time.tv_sec.to_ne_bytes());
        let born = seconds.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.into());
        let has_birth = self.0.stx_mask & StatxFlags::BTIME.bits() != 0;
        Inode {
            device: if device == root_device { 0 } else { device },
            number: self.0.stx_ino,
            born: if has_birth { born } else { 0 },
        }
    }

    /// Returns the file in the form in which the table of file handles compares and stores it.
    pub(super) fn seen(&self, root_device: u64) -> Seen {
        let inode = self.inode(root_device);
        // In an overlay, files of different layers may have the same inode number on different devices.
        let fileid = inode.number ^ inode.device.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Seen { inode, fileid, is_linked: !self.is_directory() && self.0.stx_nlink > 1 }
    }
}

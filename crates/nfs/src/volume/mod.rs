//! Directory of an export in one of its generations.

mod open_files;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags};

pub(crate) use self::open_files::OpenFileCount;
use crate::error::NfsError;
use crate::server::Rules;
use crate::table::{Inode, Table};

/// `f_type` of an overlay, from `linux/magic.h`.
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;

/// Directory of an export in one of its generations: its root, the files that clients know, and open descriptors.
pub(crate) struct Volume {
    rules: Arc<Rules>,
    generation: u64,
    root: OwnedFd,
    root_device: u64,
    table: Mutex<Table>,
    open_files: Arc<OpenFileCount>,
}

impl Volume {
    /// Opens a directory for an export. Its table is kept if it is that of the same directory and revision.
    pub(crate) fn open(
        rules: Arc<Rules>,
        root: OwnedFd,
        revision: &str,
        table: &Path,
        open_files: &Arc<OpenFileCount>,
    ) -> Result<Self, NfsError> {
        check_identity(&rules)?;
        let unusable = |source: io::Error| NfsError::UnusableRoot { name: rules.name.clone(), source };
        let stat = stat(root.as_fd(), c"").map_err(|error| unusable(error.into()))?;
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::Directory {
            return Err(unusable(io::ErrorKind::NotADirectory.into()));
        }
        let root_device = device(&stat);
        let copies_up = is_overlay(root.as_fd()).map_err(unusable)?;
        let boot_id = boot_id().map_err(unusable)?;
        let table = Table::open(table, inode(&stat, root_device), revision, copies_up, boot_id)?;
        Ok(Self {
            generation: table.generation(),
            rules,
            root,
            root_device,
            table: Mutex::new(table),
            open_files: Arc::clone(open_files),
        })
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Random number of this state of the export; part of every handle.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Closes descriptors that were not used for a while.
    pub(crate) fn close_idle(&self) {}

    /// Closes all descriptors but the root.
    pub(crate) fn close_all(&self) {}

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_identity(rules: &Rules) -> Result<(), NfsError> {
    let own = rustix::process::geteuid().as_raw();
    let uid = rules.identity.uid;
    if own == 0 || own == uid {
        return Ok(());
    }
    Err(NfsError::CannotActAs { name: rules.name.clone(), uid, own })
}

/// Returns the status of an entry of a directory, or of the directory itself if `name` is empty. Follows no link
/// and triggers no mount.
pub(crate) fn stat(directory: BorrowedFd<'_>, name: &std::ffi::CStr) -> rustix::io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

fn device(stat: &Statx) -> u64 {
    u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor)
}

/// Returns the inode of a file, relative to the device of the root.
pub(crate) fn inode(stat: &Statx, root_device: u64) -> Inode {
    let device = device(stat);
    let seconds = u64::from_ne_bytes(stat.stx_btime.tv_sec.to_ne_bytes());
    let born = seconds.wrapping_mul(1_000_000_000).wrapping_add(stat.stx_btime.tv_nsec.into());
    Inode {
        device: if device == root_device { 0 } else { device },
        number: stat.stx_ino,
        born: if stat.stx_mask & StatxFlags::BTIME.bits() == 0 { 0 } else { born },
    }
}

fn is_overlay(root: BorrowedFd<'_>) -> io::Result<bool> {
    let status = rustix::fs::fstatfs(root)?;
    Ok(u64::try_from(status.f_type) == Ok(OVERLAYFS_MAGIC))
}

fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id")?;
    let mut id = [0; 16];
    id.copy_from_slice(&blake3::hash(&text).as_bytes()[..16]);
    Ok(id)
}

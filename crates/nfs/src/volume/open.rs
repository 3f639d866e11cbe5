//! Opening of files for reading and writing, and changes of their attributes.
//!
//! Files are opened by an `O_PATH` descriptor whose inode was compared with the expected one, and then by
//! `/proc/self/fd`. So no other file is opened or changed when a local process replaces the entry at the same moment.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Gid, Mode as FileMode, OFlags, Timestamps, Uid};
use rustix::io::Errno;

use super::Volume;
use super::descriptors::{Descriptor, OpenMode};
use super::locate::{Files, FoundFile, Locator, open_path};
use super::stat::{Stat, stat_open};
use crate::table::FileId;
use crate::wire::Status;

/// Bits of a mode that `chmod` sets.
const PERMISSIONS: u32 = 0o7777;

/// Set-group-id bit of a mode.
const SETGID: u32 = 0o2000;

/// Permissions of the owner to read and write.
const OWNER_READ_WRITE: u32 = 0o600;

// `Files` is a volume for the time of one operation. It can look files up by their ids, which may take long.
impl Files<'_> {
    /// Opens a regular file to read, or returns its cached descriptor. Fails with ISDIR for a directory, and with INVAL
    /// for files of other types.
    pub(crate) fn open_to_read(&self, id: FileId) -> Result<Arc<Descriptor>, Status> {
        match self.descriptors.get(id).filter(|open| open.can_read()) {
            Some(open) => Ok(open),
            None => self.open_file(id, &[(OFlags::RDONLY, OpenMode::Read)]),
        }
    }

    /// Opens a regular file to write, or returns its cached descriptor. Fails like
    /// [`open_to_read`](Self::open_to_read).
    pub(crate) fn open_to_write(&self, id: FileId) -> Result<Arc<Descriptor>, Status> {
        match self.descriptors.get(id).filter(|open| open.can_write()) {
            Some(open) => Ok(open),
            None => {
                self.open_file(id, &[(OFlags::RDWR, OpenMode::ReadWrite), (OFlags::WRONLY, OpenMode::Write)])
            }
        }
    }

    /// Opens a regular file with the first of `attempts` that its permissions allow, and caches the descriptor.
    fn open_file(&self, id: FileId, attempts: &[(OFlags, OpenMode)]) -> Result<Arc<Descriptor>, Status> {
        let path = self.path_descriptor(&self.find_file(id)?)?;
        let stat = stat_open(&path)?;
        if stat.is_directory() {
            return Err(Status::IsDir);
        }
        if !stat.is_regular() {
            return Err(Status::Inval);
        }
        let (fd, mode) = self.reopen(&path, &stat, attempts)?;
        let open = Arc::new(Descriptor { fd, mode });
        self.descriptors.insert(id, &open);
        Ok(open)
    }
}

impl Volume {
    /// Caches the descriptor of a file that was just created.
    pub(crate) fn keep_open(&self, id: FileId, fd: OwnedFd) {
        self.descriptors.insert(id, &Arc::new(Descriptor { fd, mode: OpenMode::ReadWrite }));
    }

    /// Closes the cached descriptor of a file if it is open for writing. Call it when the client has probably written
    /// all it wanted: as long as the descriptor is open, the file cannot be executed (ETXTBSY).
    pub(crate) fn end_writing(&self, id: FileId) {
        self.descriptors.remove_writable(id);
    }

    /// Opens the file of an `O_PATH` descriptor with the first of `attempts` that its permissions allow.
    ///
    /// The owner may always read and write, as with other NFS servers. A client checks permissions when a program opens
    /// a file, and NFSv3 has no state that proves this check in a later READ or WRITE. If the permissions of a file
    /// of the export's user forbid the access, the permissions to read and write are added while the file is opened.
    fn reopen(
        &self,
        path: &OwnedFd,
        stat: &Stat,
        attempts: &[(OFlags, OpenMode)],
    ) -> Result<(OwnedFd, OpenMode), Errno> {
        let link = proc_link(path);
        // If a local process holds a lease of the file, `open` waits up to 45 seconds until the lease is broken. With
        // NONBLOCK it fails with AGAIN at once, and the kernel breaks the lease meanwhile.
        let common_flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let open = |(flags, mode): (OFlags, OpenMode)| {
            rustix::fs::open(&*link, flags | common_flags, FileMode::empty()).map(|fd| (fd, mode))
        };
        for attempt in attempts {
            match open(*attempt) {
                Err(Errno::ACCESS) => {}
                result => return result,
            }
        }
        if stat.0.stx_uid != self.rules.identity.uid {
            return Err(Errno::ACCESS);
        }
        let permissions = u32::from(stat.0.stx_mode) & PERMISSIONS;
        let temporary = permissions | OWNER_READ_WRITE;
        if temporary == permissions {
            return Err(Errno::ACCESS);
        }
        rustix::fs::chmod(&*link, FileMode::from_raw_mode(temporary))?;
        let opened = open(attempts[0]);
        restore_permissions(path, temporary, permissions)?;
        opened
    }

    /// Opens a file with `O_PATH`. Fails with STALE if the inode there is another one.
    fn path_descriptor(&self, file: &FoundFile) -> Result<OwnedFd, Status> {
        let fd = match &file.locator {
            Locator::Open(open) if open.mode == OpenMode::Directory => {
                return Ok(open.fd.try_clone().map_err(|_| Errno::MFILE)?);
            }
            Locator::Open(open) => reopen_path(&open.fd)?,
            Locator::Entry { parent, name } => open_path(parent, name, OFlags::empty())?,
        };
        // Inodes have no device if it is that of the export's root.
        let inode = stat_open(&fd)?.inode(self.root_device);
        if inode == file.stat.inode(self.root_device) { Ok(fd) } else { Err(Status::Stale) }
    }

    /// Changes permissions, owner and times of a file. Works on a descriptor whose inode was checked, so it follows no
    /// symlink that replaces the entry at the same moment.
    pub(crate) fn set_attributes(&self, file: &FoundFile, changes: &Changes) -> Result<(), Status> {
        if changes.is_empty() {
            return Ok(());
        }
        let fd = self.path_descriptor(file)?;
        if changes.uid.is_some() || changes.gid.is_some() {
            let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
            rustix::fs::chownat(&fd, c"", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = changes.mode {
            rustix::fs::chmod(&*proc_link(&fd), FileMode::from_raw_mode(mode & 0o7777))?;
        }
        if let Some(times) = &changes.times {
            rustix::fs::utimensat(&fd, c"", times, AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }
}

/// Attributes to change. Those that are `None` stay as they are.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) times: Option<Timestamps>,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.mode.is_none() && self.uid.is_none() && self.gid.is_none() && self.times.is_none()
    }
}

/// Replaces the permissions `temporary` with `permissions`. Does nothing if a local process has set other permissions
/// in the meantime.
fn restore_permissions(path: &OwnedFd, temporary: u32, permissions: u32) -> Result<(), Errno> {
    let present = u32::from(stat_open(path)?.0.stx_mode) & PERMISSIONS;
    // The kernel has cleared the setgid bit if the file belongs to a group in which the user is not.
    if (present ^ temporary) & !SETGID != 0 {
        return Ok(());
    }
    rustix::fs::chmod(&*proc_link(path), FileMode::from_raw_mode(permissions))
}

/// Returns the path `/proc/self/fd/N`, which opens the file of a descriptor without a lookup by name.
fn proc_link(fd: &OwnedFd) -> Box<CStr> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    CString::new(path).expect("the path has no NUL").into_boxed_c_str()
}

/// Opens the file of a descriptor again with `O_PATH`.
fn reopen_path(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::fs::open(&*proc_link(fd), OFlags::PATH | OFlags::CLOEXEC, FileMode::empty())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn permissions_that_were_set_in_the_meantime_stay() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = OwnedFd::from(file.reopen().unwrap());
        for (present, expected) in [(0o600, 0o400), (0o640, 0o640)] {
            fs::set_permissions(file.path(), Permissions::from_mode(present)).unwrap();
            restore_permissions(&path, 0o600, 0o400).unwrap();
            assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o7777, expected);
        }
    }
}

//! Opening of files for reading and writing, and changes of their attributes.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Gid, Mode as FileMode, OFlags, Timestamps, Uid};
use rustix::io::Errno;

use super::Volume;
use super::descriptors::{Descriptor, Mode};
use super::locate::{Files, Node, Place, open_path};
use super::stat::{Stat, stat_open};
use crate::table::FileId;
use crate::wire::Status;

/// Bits of a mode that `chmod` sets.
const PERMISSIONS: u32 = 0o7777;

const SETGID: u32 = 0o2000;

const OWNER_READS_AND_WRITES: u32 = 0o600;

impl Files<'_> {
    /// Opens a regular file to read. The descriptor is kept for the next call.
    pub(crate) fn open_to_read(&self, id: FileId) -> Result<Arc<Descriptor>, Status> {
        match self.descriptors.get(id).filter(|open| open.can_read()) {
            Some(open) => Ok(open),
            None => self.open_file(id, &[(OFlags::RDONLY, Mode::Read)]),
        }
    }

    /// Opens a regular file to write. The descriptor is kept for the next call.
    pub(crate) fn open_to_write(&self, id: FileId) -> Result<Arc<Descriptor>, Status> {
        match self.descriptors.get(id).filter(|open| open.can_write()) {
            Some(open) => Ok(open),
            None => self.open_file(id, &[(OFlags::RDWR, Mode::ReadWrite), (OFlags::WRONLY, Mode::Write)]),
        }
    }

    fn open_file(&self, id: FileId, attempts: &[(OFlags, Mode)]) -> Result<Arc<Descriptor>, Status> {
        let path = self.path_descriptor(&self.node(id)?)?;
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
    /// Keeps the descriptor of a file that was just created.
    pub(crate) fn keep_open(&self, id: FileId, fd: OwnedFd) {
        self.descriptors.insert(id, &Arc::new(Descriptor { fd, mode: Mode::ReadWrite }));
    }

    /// Closes the descriptor of a file if it is for writing: the client has written what it wanted to. As long as it is
    /// open, the file cannot be executed.
    pub(crate) fn end_writing(&self, id: FileId) {
        self.descriptors.remove_writable(id);
    }

    /// Opens a file that an `O_PATH` descriptor names. The owner may always read and write, as with other servers:
    /// a client checks permissions when a program opens a file, and has none to show later.
    fn reopen(
        &self,
        path: &OwnedFd,
        stat: &Stat,
        attempts: &[(OFlags, Mode)],
    ) -> Result<(OwnedFd, Mode), Errno> {
        let link = proc_link(path);
        // A lease of a program in the export would make the kernel wait for 45 seconds: with NONBLOCK it fails with AGAIN,
        // and takes the lease back meanwhile.
        let always = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let open = |(flags, mode): (OFlags, Mode)| {
            rustix::fs::open(&*link, flags | always, FileMode::empty()).map(|fd| (fd, mode))
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
        let temporary = permissions | OWNER_READS_AND_WRITES;
        if temporary == permissions {
            return Err(Errno::ACCESS);
        }
        rustix::fs::chmod(&*link, FileMode::from_raw_mode(temporary))?;
        let opened = open(attempts[0]);
        restore_permissions(path, temporary, permissions)?;
        opened
    }

    /// Opens the file of a node with `O_PATH`, and checks that it is the same.
    fn path_descriptor(&self, node: &Node) -> Result<OwnedFd, Status> {
        let fd = match &node.place {
            Place::Open(open) if open.mode == Mode::Directory => {
                return Ok(open.fd.try_clone().map_err(|_| Errno::MFILE)?);
            }
            Place::Open(open) => open_link(&open.fd)?,
            Place::Entry { parent, name } => open_path(parent, name, OFlags::empty())?,
        };
        let inode = stat_open(&fd)?.inode(self.root_device);
        if inode == node.stat.inode(self.root_device) { Ok(fd) } else { Err(Status::Stale) }
    }

    /// Changes permissions, owner and times. None is followed to another file, should the entry be replaced
    /// by a symlink at this moment.
    pub(crate) fn set_attributes(&self, node: &Node, changes: &Changes) -> Result<(), Status> {
        if changes.is_empty() {
            return Ok(());
        }
        let fd = self.path_descriptor(node)?;
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

/// Attributes to change.
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

/// Takes temporary permissions back. Others that somebody has set in the meantime stay.
fn restore_permissions(path: &OwnedFd, temporary: u32, permissions: u32) -> Result<(), Errno> {
    let present = u32::from(stat_open(path)?.0.stx_mode) & PERMISSIONS;
    // The kernel takes this bit from files of a group in which the user is not.
    if (present ^ temporary) & !SETGID != 0 {
        return Ok(());
    }
    rustix::fs::chmod(&*proc_link(path), FileMode::from_raw_mode(permissions))
}

/// Path that leads to the file of a descriptor and nowhere else.
fn proc_link(fd: &OwnedFd) -> Box<CStr> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    CString::new(path).expect("the path has no NUL").into_boxed_c_str()
}

fn open_link(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
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

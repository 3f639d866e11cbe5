//! Reading the files of a workspace whatever their modes are.
//!
//! An agent may take the right to read a file or a directory from its own user (mode 000, 0300). The superuser reads it
//! all the same. An ordinary user's server opens it through a helper in the namespaces of the holder, which is privileged
//! over the user's own files; no mode is changed for it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Stat, Timespec, Timestamps, fchmod, fstat, futimens, openat, readlinkat,
    statat,
};
use rustix::io::Errno;
use workspace_host::Holder;
use workspace_host::HostError;
use workspace_host::privileged_files::PrivilegedFiles;
use workspace_state::{Reading, Xattrs, open_plain, user_attributes};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Opens names with our own rights, and with those of the holder where our own are not enough.
pub(crate) struct Access {
    files: PrivilegedFiles,
}

impl Access {
    pub(crate) fn new(holder: &Holder) -> Self {
        Self { files: PrivilegedFiles::of(holder) }
    }

    /// Opens a name in a directory. Never follows a link, waits for nobody.
    pub(crate) fn open(&self, directory: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match openat(directory, name, flags, Mode::empty()) {
            Err(Errno::ACCESS | Errno::PERM) => {
                let name = CString::new(name).map_err(io::Error::other)?;
                self.files.open(directory, &name, flags).map_err(system)
            }
            opened => Ok(opened?),
        }
    }

    /// Opens a file for reading.
    pub(crate) fn open_file(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        match open_plain(directory, name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.open(directory, name, OFlags::RDONLY)
            }
            opened => opened,
        }
    }

    /// Opens the directory at a path of the machine. Only its own mode may keep us out, not one above it.
    pub(crate) fn open_root(&self, path: &Path) -> io::Result<OwnedFd> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return self.open(CWD, path.as_os_str().as_bytes(), DIRECTORY);
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(CWD, parent, flags, Mode::empty())?;
        self.open(parent.as_fd(), name.as_bytes(), DIRECTORY)
    }

    pub(crate) fn stat(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Stat> {
        match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::ACCESS | Errno::PERM) => Ok(fstat(self.open(directory, name, OFlags::PATH)?)?),
            found => Ok(found?),
        }
    }

    pub(crate) fn read_link(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
        let target = match readlinkat(directory, name, Vec::new()) {
            Err(Errno::ACCESS | Errno::PERM) => {
                readlinkat(self.open(directory, name, OFlags::PATH)?, "", Vec::new())?
            }
            target => target?,
        };
        Ok(target.into_bytes())
    }

    pub(crate) fn attributes(&self, file: BorrowedFd<'_>) -> io::Result<Xattrs> {
        match user_attributes(file) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Ok(self.files.attributes(file).map_err(system)?.into_iter().collect())
            }
            found => found,
        }
    }

    /// Opens a directory beneath another name by name, each with the rights that it takes.
    fn open_beneath(&self, root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
        let mut at = self.open(root, b".", DIRECTORY)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = self.open(at.as_fd(), name, DIRECTORY)?;
        }
        Ok(at)
    }
}

/// Changes directories of a workspace whatever their modes are.
pub(crate) struct Changer {
    access: Access,
}

impl Changer {
    pub(crate) fn new(holder: &Holder) -> Self {
        Self { access: Access::new(holder) }
    }

    /// Changes the directory at `path` below `root`, whose times stay. Never follows a link: whatever the agent puts in
    /// the place of a directory, nothing else is changed.
    pub(crate) fn change(
        &self,
        root: &Path,
        path: &Path,
        work: &dyn Fn(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> io::Result<()> {
        let root = self.access.open_root(root)?;
        let directory = self.access.open_beneath(root.as_fd(), path.as_os_str().as_bytes())?;
        Ok(change_keeping_times(directory.as_fd(), work)?)
    }
}

fn change_keeping_times(
    directory: BorrowedFd<'_>,
    work: &dyn Fn(BorrowedFd<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let before = fstat(directory)?;
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps {
        last_access: time(before.st_atime, before.st_atime_nsec as _),
        last_modification: time(before.st_mtime, before.st_mtime_nsec as _),
    };
    let mode = Mode::from_raw_mode(before.st_mode & 0o7777);
    match work(directory) {
        // Its owner may change its mode.
        Err(Errno::ACCESS) => {
            fchmod(directory, mode | Mode::RWXU)?;
            let done = work(directory);
            fchmod(directory, mode)?;
            done?;
        }
        done => done?,
    }
    futimens(directory, &times)
}

/// The system's own error, so that a missing file is told from a forbidden one.
fn system(error: HostError) -> io::Error {
    error.os_error().map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error)
}

/// Reads a directory that workspaces of files of their own are in.
pub(crate) struct Reader {
    access: Access,
    still: bool,
}

impl Reader {
    pub(crate) fn new(holder: &Holder, still: bool) -> Self {
        Self { access: Access::new(holder), still }
    }
}

impl Reading for Reader {
    fn open(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        self.access.open_file(directory, name)
    }

    fn open_directory(&self, root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
        match workspace_state::platform::open_beneath(root, path, DIRECTORY) {
            Err(Errno::ACCESS | Errno::PERM) => self.access.open_beneath(root, path),
            opened => Ok(opened?),
        }
    }

    fn stat(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Stat> {
        self.access.stat(directory, name)
    }

    fn read_link(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
        self.access.read_link(directory, name)
    }

    fn attributes(&self, file: BorrowedFd<'_>) -> io::Result<Xattrs> {
        self.access.attributes(file)
    }

    fn is_still(&self) -> bool {
        self.still
    }
}

//! Access to the files of a workspace regardless of their modes.
//!
//! An agent may remove its own permission to read a file or directory (mode 000, 0300). A server that runs as
//! root can read it anyway. An unprivileged server opens it through a *helper process* in the user namespace of
//! the *namespace holder* (the process that keeps the namespaces of an unprivileged server). In that namespace, the
//! helper process has capabilities over the user's files. Reading does not change modes. Changing the entries of a
//! directory without write permission changes the mode of the directory temporarily.

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
use workspace_host::HostError;
use workspace_host::NamespaceHolder;
use workspace_host::open_as_holder::HolderFiles;
use workspace_state::{DirectoryReader, Xattrs, user_xattrs};

use crate::writers::Writers;

/// Flags to open a directory for reading.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Opens the root directory of a workspace, at an absolute path, for reading, whatever its mode is.
pub(crate) fn open_root(holder: &NamespaceHolder, path: &Path) -> io::Result<OwnedFd> {
    FileOpener::new(holder).open_root(path)
}

/// Opens files with the permissions of this process, or through a helper process if access is denied.
pub(crate) struct FileOpener {
    /// Access through the helper process, which is started when it is first needed.
    files: HolderFiles,
}

impl FileOpener {
    pub(crate) fn new(holder: &NamespaceHolder) -> Self {
        Self { files: HolderFiles::of(holder) }
    }

    /// Opens an entry of a directory. Does not follow symlinks and does not block.
    pub(crate) fn open(&self, directory: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match openat(directory, name, flags, Mode::empty()) {
            Err(Errno::ACCESS | Errno::PERM) => {
                let name = CString::new(name).map_err(io::Error::other)?;
                self.files.open(directory, &name, flags).map_err(to_io_error)
            }
            opened => Ok(opened?),
        }
    }

    /// Opens a file for reading.
    pub(crate) fn open_file(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        self.open(directory, name, OFlags::RDONLY)
    }

    /// Opens the directory at an absolute path that a walk starts from, such as the root directory of a workspace. This
    /// process must have access to all parent directories: only the last component may need the helper process.
    pub(crate) fn open_root(&self, path: &Path) -> io::Result<OwnedFd> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return self.open(CWD, path.as_os_str().as_bytes(), DIRECTORY);
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(CWD, parent, flags, Mode::empty())?;
        self.open(parent.as_fd(), name.as_bytes(), DIRECTORY)
    }

    /// Returns the status of an entry of a directory, without following a symlink.
    pub(crate) fn stat(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Stat> {
        match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::ACCESS | Errno::PERM) => Ok(fstat(self.open(directory, name, OFlags::PATH)?)?),
            result => Ok(result?),
        }
    }

    /// Returns the target of a symlink.
    pub(crate) fn read_link(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
        let target = match readlinkat(directory, name, Vec::new()) {
            Err(Errno::ACCESS | Errno::PERM) => {
                readlinkat(self.open(directory, name, OFlags::PATH)?, "", Vec::new())?
            }
            target => target?,
        };
        Ok(target.into_bytes())
    }

    /// Reads the `user.*` extended attributes of an open file or directory. The kernel checks the permission again, so
    /// it may deny them to this process even if the helper process opened the file.
    pub(crate) fn xattrs(&self, file: BorrowedFd<'_>) -> io::Result<Xattrs> {
        match user_xattrs(file) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // `attributes` are the same extended attributes, read by the helper process.
                Ok(self.files.attributes(file).map_err(to_io_error)?.into_iter().collect())
            }
            result => result,
        }
    }

    /// Opens a directory beneath another one, component by component, because each one may need the helper process.
    fn open_beneath(&self, root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
        let mut directory = self.open(root, b".", DIRECTORY)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            directory = self.open(directory.as_fd(), name, DIRECTORY)?;
        }
        Ok(directory)
    }
}

/// Changes the entries of directories regardless of the modes of the directories.
pub(crate) struct DirectoryEditor {
    opener: FileOpener,
}

impl DirectoryEditor {
    pub(crate) fn new(holder: &NamespaceHolder) -> Self {
        Self { opener: FileOpener::new(holder) }
    }

    /// Runs `work` on the directory at `path` below `root`, and restores the times of that directory. If `work` fails
    /// with `EACCES`, makes the directory writable temporarily and runs `work` again. Does not follow symlinks: the
    /// agent may have replaced a directory by a symlink.
    pub(crate) fn change(
        &self,
        root: &Path,
        path: &Path,
        work: &dyn Fn(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> io::Result<()> {
        let root = self.opener.open_root(root)?;
        let directory = self.opener.open_beneath(root.as_fd(), path.as_os_str().as_bytes())?;
        Ok(change_keeping_times(directory.as_fd(), work)?)
    }
}

/// Runs `work` on a directory, and restores the times of the directory, as [`DirectoryEditor::change`] describes.
fn change_keeping_times(
    directory: BorrowedFd<'_>,
    work: &dyn Fn(BorrowedFd<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let stat = fstat(directory)?;
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec as _),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec as _),
    };
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    match work(directory) {
        // This process owns the directory, so it may change the mode temporarily.
        Err(Errno::ACCESS) => {
            fchmod(directory, mode | Mode::RWXU)?;
            let result = work(directory);
            fchmod(directory, mode)?;
            result?;
        }
        result => result?,
    }
    futimens(directory, &times)
}

/// Converts an error of the helper process. Keeps its errno, so that callers can distinguish `ENOENT` from `EACCES`.
fn to_io_error(error: HostError) -> io::Error {
    error.os_error().map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error)
}

/// Reader for plain directories: workspaces of the providers clone and copy, and directories that are imported.
/// Overlays have a reader of their own (`upper.rs`).
pub(crate) struct Reader {
    opener: FileOpener,
    /// State of the processes that write to the directory. If they are stopped, each file is read only once.
    writers: Writers,
}

impl Reader {
    pub(crate) fn new(holder: &NamespaceHolder, writers: Writers) -> Self {
        Self { opener: FileOpener::new(holder), writers }
    }
}

impl DirectoryReader for Reader {
    fn open(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        self.opener.open_file(directory, name)
    }

    fn open_directory(&self, root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
        match workspace_state::platform::open_beneath(root, path, DIRECTORY) {
            Err(Errno::ACCESS | Errno::PERM) => self.opener.open_beneath(root, path),
            opened => Ok(opened?),
        }
    }

    fn stat(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Stat> {
        self.opener.stat(directory, name)
    }

    fn read_link(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
        self.opener.read_link(directory, name)
    }

    fn xattrs(&self, file: BorrowedFd<'_>) -> io::Result<Xattrs> {
        self.opener.xattrs(file)
    }

    fn is_quiescent(&self) -> bool {
        self.writers == Writers::Stopped
    }
}

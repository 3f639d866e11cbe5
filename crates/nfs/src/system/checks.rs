//! Checks of what the NFS server of the kernel needs, and of the directories that it can export.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::error::NfsError;
use crate::export::Identity;

/// File in the directory of the kernel's server with the number of its threads.
const THREADS_FILE: &str = "threads";

/// Fails unless this process is root.
pub(super) fn check_root() -> Result<(), NfsError> {
    let uid = rustix::process::geteuid();
    if uid.is_root() { Ok(()) } else { Err(NfsError::NotRoot { own: uid.as_raw() }) }
}

/// Returns true if the NFS server of the kernel runs. `directory` is where its control files are mounted.
pub(super) fn is_running(directory: &Path) -> bool {
    let threads = fs::read_to_string(directory.join(THREADS_FILE)).unwrap_or_default();
    threads.trim().parse::<u32>().is_ok_and(|threads| threads > 0)
}

/// Returns the path by which the kernel can export an open directory. Fails if this process does not reach the
/// directory by a path, as with a mount in another mount namespace, or if its file system has no file handles, as with
/// an overlay.
pub(super) fn exportable_path(name: &str, root: &OwnedFd) -> Result<PathBuf, NfsError> {
    let unusable = |source: io::Error| NfsError::UnusableRoot { name: name.to_owned(), source };
    let path = fs::read_link(format!("/proc/self/fd/{}", root.as_raw_fd())).map_err(unusable)?;
    let stat = rustix::fs::fstat(root.as_fd()).map_err(|error| unusable(error.into()))?;
    let is_directory = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    if !is_directory {
        return Err(unusable(io::ErrorKind::NotADirectory.into()));
    }
    let not_exportable = |reason| NfsError::NotExportable { name: name.to_owned(), reason };
    let is_same = rustix::fs::lstat(&path)
        .is_ok_and(|found| (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino));
    if !is_same {
        return Err(not_exportable("it is mounted in another mount namespace"));
    }
    if path.to_str().is_none() {
        return Err(not_exportable("its path is not UTF-8"));
    }
    if !has_file_handles(root) {
        return Err(not_exportable("its file system, such as an overlay, has no file handles"));
    }
    Ok(path)
}

/// Fails if clients would act as root: they could create devices, and programs that run as root.
pub(super) fn check_identity(name: &str, identity: Identity) -> Result<(), NfsError> {
    if identity.uid == 0 || identity.gid == 0 {
        let reason = "its files belong to root, and clients would act as root";
        return Err(NfsError::NotExportable { name: name.to_owned(), reason });
    }
    Ok(())
}

/// Returns true if the file system of a directory has file handles, which the kernel needs to export it.
fn has_file_handles(directory: &OwnedFd) -> bool {
    /// `struct file_handle` with room for the longest handle.
    #[repr(C)]
    struct FileHandle {
        length: libc::c_uint,
        kind: libc::c_int,
        bytes: [u8; MAX_HANDLE_SZ as usize],
    }
    /// Maximum length of a handle in bytes, from `linux/fcntl.h`.
    const MAX_HANDLE_SZ: libc::c_uint = 128;
    let mut handle = FileHandle { length: MAX_HANDLE_SZ, kind: 0, bytes: [0; MAX_HANDLE_SZ as usize] };
    let mut mount_id: libc::c_int = 0;
    let empty = CString::default();
    // SAFETY: the kernel writes at most `length` bytes behind the two fields, and one number to `mount_id`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            directory.as_raw_fd(),
            empty.as_ptr(),
            &raw mut handle,
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    result == 0
}

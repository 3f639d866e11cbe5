//! Opening names in directories with untrusted content, without following symlinks.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, fgetxattr, flistxattr, openat};
use rustix::io::Errno;

use crate::error::{Context as _, Result};

/// Opens the entry `name` of a directory. Does not follow a symlink, and does not block. Fails with `EINVAL` if
/// the flags would create a file, or the name leads out of the directory.
pub(crate) fn open(directory: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd> {
    let action = || format!("open {}", name.to_string_lossy());
    let creates = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
    let leaves_directory = name.to_bytes().contains(&b'/') || name.to_bytes() == b"..";
    if creates || leaves_directory {
        return Err(Errno::INVAL).context(action());
    }
    let safe_flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(directory, name, flags | safe_flags, Mode::empty()).context(action())
}

/// Maximum size that the kernel allows for a value, and for the list of all names (`XATTR_SIZE_MAX`,
/// `XATTR_LIST_MAX`).
const XATTR_MAX: usize = 64 << 10;

/// Returns names and values of the `user.*` extended attributes of an open file.
pub(crate) fn attributes(file: BorrowedFd<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let action = "read attributes";
    let mut names = vec![0; XATTR_MAX];
    let length = match flistxattr(file, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        length => length.context(action)?,
    };
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; XATTR_MAX];
        match fgetxattr(file, name, &mut value[..]) {
            // Concurrently removed.
            Err(Errno::NODATA) => {}
            length => {
                value.truncate(length.context(action)?);
                found.push((name.to_vec(), value));
            }
        }
    }
    Ok(found)
}

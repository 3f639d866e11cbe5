//! Replaces OURS by the result.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{XattrFlags, fsetxattr, getxattr, listxattr};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use super::read_error;
use crate::error::{CommandError, Result, io_hint};

/// Set-uid and set-gid bits.
const SET_ID_BITS: u32 = 0o6000;
/// Maximum size of a list or value of extended attributes on Linux.
const XATTR_MAX: usize = 64 << 10;

/// Fails unless the path is a writable regular file: the result replaces it.
pub(super) fn check_replaceable(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).map_err(|error| read_error(path, &error))?;
    let shown = path.display();
    if !metadata.is_file() {
        return Err(CommandError::failed(format!("{shown} is not a regular file and cannot be overwritten"))
            .hint("`-p` prints the result"));
    }
    let opened = fs::OpenOptions::new().append(true).open(path);
    opened
        .map(drop)
        .map_err(|error| CommandError::failed(format!("cannot write {shown}: {error}")).hint(io_hint(&error)))
}

/// Replaces the content of a file atomically. The target of a symlink is replaced, not the symlink.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<()> {
    let write_error = |error: io::Error| {
        CommandError::failed(format!("cannot write {}: {error}", path.display())).hint(io_hint(&error))
    };
    let path = fs::canonicalize(path).map_err(write_error)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let new = NamedTempFile::new_in(directory).map_err(|error| {
        let shown = directory.display();
        CommandError::failed(format!("cannot create a file in {shown}: {}", error.kind()))
            .hint("OURS is replaced by a new file, so its directory must be writable; `-p` prints the result")
    })?;
    replace(&path, new, content).map_err(write_error)
}

fn replace(path: &Path, mut new: NamedTempFile, content: &[u8]) -> io::Result<()> {
    new.write_all(content)?;
    keep_attributes(path, new.as_file())?;
    new.persist(path).map(drop).map_err(|error| error.error)
}

/// Copies owner, extended attributes and mode to the new file, as far as that is allowed.
fn keep_attributes(path: &Path, new: &fs::File) -> io::Result<()> {
    let (old, now) = (fs::metadata(path)?, new.metadata()?);
    let owner = (old.uid() != now.uid()).then_some(old.uid());
    let group = (old.gid() != now.gid()).then_some(old.gid());
    for (owner, group) in [(owner, None), (None, group)] {
        match fchown(new, owner, group) {
            // EINVAL: the owner has no id in this user namespace.
            Err(error)
                if !matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) =>
            {
                return Err(error);
            }
            _ => {}
        }
    }
    copy_xattrs(path, new)?;
    let now = new.metadata()?;
    let has_same_owner = (now.uid(), now.gid()) == (old.uid(), old.gid());
    // Without the former owner, set-id bits would grant the rights of another user.
    let mode = if has_same_owner { old.mode() } else { old.mode() & !SET_ID_BITS };
    // The last step, because a change of the owner clears set-id bits.
    new.set_permissions(fs::Permissions::from_mode(mode))
}

/// Copies extended attributes, except those that the system does not allow to set.
fn copy_xattrs(path: &Path, new: &fs::File) -> io::Result<()> {
    let mut names = vec![0; XATTR_MAX];
    let length = match listxattr(path, &mut names[..]) {
        Err(Errno::NOTSUP) => return Ok(()),
        listed => listed?,
    };
    let mut value = vec![0; XATTR_MAX];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let length = getxattr(path, name, &mut value[..])?;
        match fsetxattr(new, name, &value[..length], XattrFlags::empty()) {
            Err(Errno::PERM | Errno::ACCESS | Errno::NOTSUP) => {}
            set => set?,
        }
    }
    Ok(())
}

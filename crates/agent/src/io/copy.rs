//! Copying files and directories inside the sandbox.

use std::os::fd::OwnedFd;

use rustix::fs::{Dir, FileType, Mode, OFlags, Stat, copy_file_range, fstat, openat, readlinkat, syncfs};
use rustix::io::Errno;
use workspace_agent_protocol::v1::{CopyPath, IoFailureKind};

use super::channel::RequestHandle;
use super::failure::{AtPath as _, Failure, Result};
use super::path::{Located, NameInParent, Parents, locate_at, open_directory, open_file, open_parent};
use super::write::{PendingFile, write_symlink};

/// Maximum number of bytes that are copied between two checks for cancellation.
const STEP_MAX: usize = 16 << 20;

/// Copies an entry: a symlink itself, and a directory with its content if `recursive` is set. Special files inside a
/// directory are left out.
pub(crate) fn copy(handle: &RequestHandle, request: &CopyPath) -> Result<()> {
    let (from, to) =
        (open_parent(&request.from, Parents::MustExist)?, open_parent(&request.to, Parents::MustExist)?);
    let source = locate_at(&from.parent, &from.name, &request.from)?;
    let replaced = to.stat().at(&request.to)?;
    if replaced.is_some() && !request.replace {
        return Err(Failure::of_errno(Errno::EXIST, &request.to));
    }
    if source.file_type() == FileType::Directory && !request.recursive {
        let message = "this is a directory; copy it recursively";
        return Err(Failure::new(IoFailureKind::IsADirectory, &request.from, message));
    }
    if replaced.is_some_and(|replaced| is_same(&replaced, &source.stat)) {
        return Err(Failure::invalid(&request.to, "this is the entry itself"));
    }
    if source.file_type() == FileType::Directory && is_inside(&to.parent, &source.stat).at(&request.to)? {
        return Err(Failure::invalid(&request.to, "a directory cannot be copied into itself"));
    }
    let copy = Copy { handle, from: &request.from, to: &request.to };
    match source.file_type() {
        FileType::Directory => copy.copy_directory(&source, &to),
        FileType::Symlink => copy.copy_symlink(&from, &to),
        _ => {
            let copied = copy.copy_file(&source, to)?;
            copied.sync()?;
            copied.publish().map(drop)
        }
    }
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Returns true if a directory is the same as another one, or inside it. Compares inodes up to the root, because paths
/// can contain symlinks.
fn is_inside(directory: &OwnedFd, other: &Stat) -> std::result::Result<bool, Errno> {
    let mut current =
        directory.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mut stat = fstat(&current)?;
    loop {
        if is_same(&stat, other) {
            return Ok(true);
        }
        let parent =
            openat(&current, "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let of_parent = fstat(&parent)?;
        // The root is its own parent.
        if is_same(&of_parent, &stat) {
            return Ok(false);
        }
        (current, stat) = (parent, of_parent);
    }
}

/// Copy operation of a request.
struct Copy<'a> {
    handle: &'a RequestHandle,
    /// Paths of the request, for failures.
    from: &'a [u8],
    to: &'a [u8],
}

/// Directory whose content is being copied, and its copy.
struct Level {
    from: OwnedFd,
    /// Entries of `from` that are not copied yet.
    entries: Dir,
    to: OwnedFd,
    /// Mode that the copy gets when its content is complete.
    mode: Mode,
}

impl Copy<'_> {
    /// Copies the content of a file. The caller publishes the copy: gives it the name of the target.
    fn copy_file(&self, source: &Located, to: NameInParent) -> Result<PendingFile> {
        let file = open_file(source, self.from)?;
        let mut pending = PendingFile::create_at(to, source.stat.st_mode & 0o777, self.to)?;
        let mut remaining = u64::try_from(source.stat.st_size).unwrap_or_default();
        while remaining > 0 {
            self.handle.check_cancelled()?;
            let step = usize::try_from(remaining).unwrap_or(usize::MAX).min(STEP_MAX);
            match copy_file_range(&file, None, pending.file(), None, step) {
                Ok(0) => break,
                Ok(copied) => remaining = remaining.saturating_sub(copied as u64),
                // The file systems do not support the call.
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    pending.append_from(&file, self.from)?;
                    break;
                }
                Err(error) => return Err(Failure::of_errno(error, self.to)),
            }
        }
        Ok(pending)
    }

    fn copy_symlink(&self, from: &NameInParent, to: &NameInParent) -> Result<()> {
        let link = readlinkat(&from.parent, from.name.as_slice(), Vec::new()).at(self.from)?;
        write_symlink(link.to_bytes(), to).at(self.to)
    }

    /// Copies a directory with its content, and syncs the copy.
    fn copy_directory(&self, from: &Located, to: &NameInParent) -> Result<()> {
        // Not recursive: a tree may be deeper than the stack of a thread.
        let mut levels = vec![self.enter(from, &to.parent, &to.name)?];
        while let Some(level) = levels.last_mut() {
            self.handle.check_cancelled()?;
            let Some(item) = level.entries.next() else {
                // Last, since a directory may forbid writing.
                rustix::fs::fchmod(&level.to, level.mode).at(self.to)?;
                // One sync instead of one for each file.
                if let [last] = levels.as_slice() {
                    syncfs(&last.to).at(self.to)?;
                }
                levels.pop();
                continue;
            };
            let item = item.at(self.from)?;
            let name = item.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let source = locate_at(&level.from, name, self.from)?;
            let entry = |parent: &OwnedFd| -> Result<NameInParent> {
                let parent = parent.try_clone().at(self.from)?;
                Ok(NameInParent { parent, name: name.to_vec() })
            };
            match source.file_type() {
                FileType::Directory => {
                    let next = self.enter(&source, &level.to, name)?;
                    levels.push(next);
                }
                FileType::Symlink => self.copy_symlink(&entry(&level.from)?, &entry(&level.to)?)?,
                FileType::RegularFile => self.copy_file(&source, entry(&level.to)?)?.publish_unsynced()?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Opens a directory, and creates and opens its copy, which is the entry `name` of `to`. The copy may exist as a
    /// directory already.
    fn enter(&self, from: &Located, to: &OwnedFd, name: &[u8]) -> Result<Level> {
        let directory = open_directory(from, self.from)?;
        match rustix::fs::mkdirat(to, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(Failure::of_errno(error, self.to)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = openat(to, name, flags, Mode::empty()).at(self.to)?;
        let entries = Dir::read_from(&directory).at(self.from)?;
        let mode = Mode::from_raw_mode(from.stat.st_mode & 0o7777);
        Ok(Level { from: directory, entries, to: copy, mode })
    }
}

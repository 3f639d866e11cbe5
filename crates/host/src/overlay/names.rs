//! Files by name in a directory that may hold anything: a name is never followed to where it points.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fgetxattr, flistxattr, openat, openat2,
    renameat, unlinkat,
};
use rustix::io::Errno;

use crate::error::{Doing as _, HostError, Result};

pub(crate) fn open(directory: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd> {
    let action = || format!("open {}", name.to_string_lossy());
    let makes = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
    let leads_away = name.to_bytes().contains(&b'/') || name.to_bytes() == b"..";
    if makes || leads_away {
        return Err(Errno::INVAL).doing(action());
    }
    let always = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(directory, name, flags | always, Mode::empty()).doing(action())
}

/// The user attributes of an open file: names and values.
pub(crate) fn attributes(file: BorrowedFd<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let action = "read attributes";
    let mut names = vec![0; 64 << 10];
    let length = match flistxattr(file, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        length => length.doing(action)?,
    };
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; 64 << 10];
        match fgetxattr(file, name, &mut value[..]) {
            // Gone in between.
            Err(Errno::NODATA) => {}
            length => {
                value.truncate(length.doing(action)?);
                found.push((name.to_vec(), value));
            }
        }
    }
    Ok(found)
}

/// So deep a walk goes at once; what lies deeper is brought up first, so that no tree is too deep.
const DEEP: usize = 64;
/// So often a directory is emptied again that somebody fills.
const PATIENCE: usize = 100;

pub(super) fn remove_tree(path: &Path) -> Result<()> {
    let action = || format!("remove {}", path.display());
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL).doing(action());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match openat(CWD, parent, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        parent => parent.doing(action())?,
    };
    let name = CString::new(name.as_encoded_bytes()).map_err(std::io::Error::from).doing(action())?;
    let mut removal = Removal { top: None, brought_up: 0 };
    removal.remove(parent.as_fd(), &name, 0).map_err(|(inside, errno)| HostError::System {
        action: format!("remove {} of {}", inside.to_string_lossy(), path.display()),
        source: errno.into(),
    })
}

/// What was not removed, and why.
type Failed = (CString, Errno);

struct Removal {
    /// The directory that is removed.
    top: Option<OwnedFd>,
    /// Directories that were moved to there.
    brought_up: usize,
}

impl Removal {
    /// Removes one name, whatever it is.
    fn remove(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        depth: usize,
    ) -> std::result::Result<(), Failed> {
        match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // The second where it is a directory and the rules of POSIX hold.
            Err(Errno::ISDIR | Errno::PERM) => self.remove_directory(parent, name, depth),
            Err(errno) => Err((name.to_owned(), errno)),
        }
    }

    fn remove_directory(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        depth: usize,
    ) -> std::result::Result<(), Failed> {
        let failed = |errno| (name.to_owned(), errno);
        // Most are empty, or have been emptied.
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => {}
            Err(errno) => return Err(failed(errno)),
        }
        if depth > DEEP && self.bring_up(parent, name).map_err(failed)? {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        let directory =
            openat2(parent, name, flags, Mode::empty(), resolve).map_err(|errno| match errno {
                // Something is mounted there.
                Errno::XDEV => failed(Errno::BUSY),
                errno => failed(errno),
            })?;
        if depth == 0 {
            self.top = Some(rustix::io::fcntl_dupfd_cloexec(&directory, 3).map_err(failed)?);
        }
        let mut patience = PATIENCE;
        loop {
            let before = self.brought_up;
            self.empty(directory.as_fd(), name, depth)?;
            match unlinkat(parent, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTEMPTY | Errno::EXIST) if self.brought_up > before => {}
                // Somebody still makes files there.
                Err(Errno::NOTEMPTY | Errno::EXIST) if patience > 0 => patience -= 1,
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// Removes everything in a directory.
    fn empty(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        depth: usize,
    ) -> std::result::Result<(), Failed> {
        let failed = |errno| (name.to_owned(), errno);
        let entries = Dir::read_from(directory).map_err(failed)?;
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let inside = entry.file_name();
            if matches!(inside.to_bytes(), b"." | b"..") {
                continue;
            }
            match entry.file_type() {
                FileType::Directory => self.remove_directory(directory, inside, depth + 1)?,
                _ => self.remove(directory, inside, depth + 1)?,
            }
        }
        Ok(())
    }

    /// Moves a directory to the top, to be removed from there.
    fn bring_up(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<bool> {
        let Some(top) = &self.top else { return Ok(false) };
        loop {
            self.brought_up += 1;
            let new = format!("workspace-removal-{}", self.brought_up);
            match renameat(parent, name, top, new) {
                Ok(()) => return Ok(true),
                // The name is taken.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

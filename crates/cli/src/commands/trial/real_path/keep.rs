//! Writing the changes of a trial to its directory.
//!
//! First everything is checked, and if anything was changed meanwhile by somebody else, nothing is written. Then the plan is
//! noted in the place of the trial, and each change is made by one rename: whatever ends this in between, the plan and the
//! upper are still there, and doing it again completes it.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown,
    fsetxattr, futimens, linkat, mkdirat, mknodat, openat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::upper::{Attributes, Change, Kind, Target, join, kind, split, xattrs_of_file};

/// Reason why changes were not kept.
#[derive(Debug)]
pub(super) enum KeepError {
    /// These were changed meanwhile, and nothing was written.
    Changed(Vec<Vec<u8>>),
    Failed(Vec<u8>, io::Error),
}

/// Counts of what was done.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) written: u64,
    pub(super) removed: u64,
}

/// Strictness towards changes of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checks {
    All,
    /// A part may be done.
    Again,
    None,
}

pub(super) struct Keep<'a> {
    pub(super) target: &'a Target,
    pub(super) upper: &'a Path,
    pub(super) changes: &'a [Change],
    /// Names of what is not complete yet begin with it.
    pub(super) id: &'a str,
    /// Changed after that is changed meanwhile.
    pub(super) started: (i64, i64),
    pub(super) checks: Checks,
}

impl Keep<'_> {
    /// The paths that others changed meanwhile.
    pub(super) fn conflicts(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut conflicts = Vec::new();
        if self.checks != Checks::None {
            for change in self.changes {
                if let Some(path) = self.conflict(change)? {
                    conflicts.push(path);
                }
            }
        }
        Ok(conflicts)
    }

    /// Makes all changes.
    pub(super) fn run(&self) -> Result<Kept, KeepError> {
        let failed = |path: &[u8]| {
            let path = path.to_vec();
            move |error| KeepError::Failed(path, error)
        };
        let mut kept = Kept::default();
        for (number, change) in self.changes.iter().enumerate() {
            if self.checks != Checks::None
                && let Some(path) = self.conflict(change).map_err(failed(&change.path))?
            {
                return Err(KeepError::Changed(vec![path]));
            }
            self.make(number, change, &mut kept).map_err(failed(&change.path))?;
        }
        // A directory that is closed to its owner would let nothing more in.
        for change in self.changes.iter().rev() {
            if let Kind::Directory(attributes) = &change.kind {
                self.finish_directory(&change.path, attributes).map_err(failed(&change.path))?;
            }
        }
        let root = self.target.directory(b"").map_err(failed(b""))?;
        if let Some(root) = root {
            rustix::fs::syncfs(&root).map_err(|errno| KeepError::Failed(Vec::new(), errno.into()))?;
        }
        Ok(kept)
    }

    fn is_newer(&self, seconds: i64, nanoseconds: i64) -> bool {
        (seconds, nanoseconds) > self.started
    }

    fn was_changed(&self, stat: &Stat) -> bool {
        #[allow(
            clippy::useless_conversion,
            clippy::unnecessary_cast,
            reason = "the types differ between machines"
        )]
        self.is_newer(stat.st_ctime as i64, stat.st_ctime_nsec as i64)
    }

    /// The path that somebody changed meanwhile where this change would go.
    fn conflict(&self, change: &Change) -> io::Result<Option<Vec<u8>>> {
        let path = &change.path;
        let Some(found) = self.target.stat(path)? else {
            // It was there, and somebody has taken it away.
            let moved =
                change.copied_up && !matches!(change.kind, Kind::Remove) && self.checks == Checks::All;
            return Ok(moved.then(|| path.clone()));
        };
        match (&change.kind, kind(&found)) {
            (Kind::Directory(_), FileType::Directory) => Ok(None),
            (_, FileType::Directory) => self.newer_below(path, &found),
            _ if self.checks == Checks::Again && self.is_done(change, &found)? => Ok(None),
            _ => Ok(self.was_changed(&found).then(|| path.clone())),
        }
    }

    /// Anything in a tree that is to go and that somebody changed, or put there.
    fn newer_below(&self, path: &[u8], found: &Stat) -> io::Result<Option<Vec<u8>>> {
        let mut open = vec![(path.to_vec(), *found)];
        while let Some((path, found)) = open.pop() {
            if self.was_changed(&found) {
                return Ok(Some(path));
            }
            if kind(&found) != FileType::Directory {
                continue;
            }
            for name in self.target.names(&path)? {
                let path = join(&path, &name);
                if let Some(found) = self.target.stat(&path)? {
                    open.push((path, found));
                }
            }
        }
        Ok(None)
    }

    /// Tells if a change was made before, by one that was interrupted.
    fn is_done(&self, change: &Change, found: &Stat) -> io::Result<bool> {
        let at = self.upper.join(OsStr::from_bytes(&change.path));
        Ok(match &change.kind {
            Kind::File(attributes) => {
                kind(found) == FileType::RegularFile
                    && u64::try_from(found.st_size).ok() == Some(fs::symlink_metadata(at)?.len())
                    && modified(found) == attributes.modified
                    && found.st_mode & 0o7777 == attributes.mode
            }
            Kind::Symlink(to) => kind(found) == FileType::Symlink && self.target.link(&change.path)? == *to,
            Kind::Fifo(_) => kind(found) == FileType::Fifo,
            Kind::Link(to) => self.target.stat(to)?.is_some_and(|other| other.st_ino == found.st_ino),
            Kind::Remove | Kind::Directory(_) => false,
        })
    }

    /// The directory that a path is in, and its name there.
    fn parent(&self, path: &[u8]) -> io::Result<(OwnedFd, CString)> {
        let (parent, name) = split(path);
        let parent = self.target.directory(parent)?.ok_or(io::ErrorKind::NotFound)?;
        Ok((parent, CString::new(name)?))
    }

    fn temporary(&self, number: usize) -> io::Result<CString> {
        Ok(CString::new(format!(".workspace-{}-{number}", self.id))?)
    }

    fn make(&self, number: usize, change: &Change, kept: &mut Kept) -> io::Result<()> {
        let (parent, name) = match self.parent(&change.path) {
            // What it was in is gone with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && matches!(change.kind, Kind::Remove) => {
                return Ok(());
            }
            parent => parent?,
        };
        let temporary = self.temporary(number)?;
        // Left by one that was interrupted.
        self.remove_tree(&change.path, &temporary)?;
        let before = match statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            found => Some(found?),
        };
        if self.checks == Checks::Again
            && let Some(before) = &before
            && self.is_done(change, before)?
        {
            return Ok(());
        }
        let was_directory = before.as_ref().is_some_and(|it| kind(it) == FileType::Directory);
        match &change.kind {
            Kind::Remove => {
                if before.is_some() {
                    self.take_away(&change.path, &parent, &name, &temporary)?;
                    kept.removed += 1;
                }
                return Ok(());
            }
            Kind::Directory(attributes) => {
                if !was_directory {
                    if before.is_some() {
                        self.take_away(&change.path, &parent, &name, &temporary)?;
                    }
                    mkdirat(&parent, &name, Mode::RWXU)?;
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let made: File = openat(&parent, &name, flags, Mode::empty())?.into();
                    own(&made, attributes)?;
                    kept.written += 1;
                }
                return Ok(());
            }
            Kind::File(attributes) => self.write_file(&change.path, &parent, &temporary, attributes)?,
            Kind::Link(to) => {
                let (source, source_name) = self.parent(to)?;
                linkat(&source, &source_name, &parent, &temporary, AtFlags::empty())?;
            }
            Kind::Symlink(to) => symlinkat(OsStr::from_bytes(to), &parent, &temporary)?,
            Kind::Fifo(attributes) => {
                mknodat(&parent, &temporary, FileType::Fifo, Mode::from_raw_mode(attributes.mode), 0)?;
            }
        }
        if was_directory {
            let aside = CString::new([temporary.as_bytes(), b"-old"].concat())?;
            self.take_away(&change.path, &parent, &name, &aside)?;
        }
        renameat(&parent, &temporary, &parent, &name)?;
        // Of two names of one file the kernel renames none.
        match unlinkat(&parent, &temporary, AtFlags::empty()) {
            Err(Errno::NOENT) => {}
            removed => removed?,
        }
        kept.written += 1;
        Ok(())
    }

    /// Takes away a file or a whole tree by one rename, then removes it.
    fn take_away(&self, path: &[u8], parent: &OwnedFd, name: &CString, aside: &CString) -> io::Result<()> {
        self.remove_tree(path, aside)?;
        renameat(parent, name, parent, aside)?;
        self.remove_tree(path, aside)
    }

    /// Removes what has a name of this trial's beside a path.
    fn remove_tree(&self, path: &[u8], name: &CString) -> io::Result<()> {
        let path = join(split(path).0, name.as_bytes());
        let Some(found) = self.target.stat(&path)? else { return Ok(()) };
        let (parent, name) = self.parent(&path)?;
        if kind(&found) != FileType::Directory {
            return Ok(unlinkat(&parent, &name, AtFlags::empty())?);
        }
        let mut directories = vec![path.clone()];
        let mut next = 0;
        while let Some(directory) = directories.get(next).cloned() {
            next += 1;
            self.open_up(&directory)?;
            let Some(opened) = self.target.directory(&directory)? else { continue };
            for name in self.target.names(&directory)? {
                match unlinkat(&opened, OsStr::from_bytes(&name), AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::ISDIR | Errno::PERM) => directories.push(join(&directory, &name)),
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        for directory in directories.iter().rev() {
            let (parent, name) = self.parent(directory)?;
            unlinkat(&parent, &name, AtFlags::REMOVEDIR)?;
        }
        Ok(())
    }

    /// Lets its owner into a directory that is to go.
    fn open_up(&self, path: &[u8]) -> io::Result<()> {
        let Some(found) = self.target.stat(path)? else { return Ok(()) };
        if found.st_mode & 0o700 != 0o700 {
            let (parent, name) = self.parent(path)?;
            rustix::fs::chmodat(&parent, &name, Mode::RWXU, AtFlags::empty())?;
        }
        Ok(())
    }

    fn write_file(
        &self,
        path: &[u8],
        parent: &OwnedFd,
        temporary: &CString,
        attributes: &Attributes,
    ) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut to: File = openat(parent, temporary, flags, Mode::RUSR | Mode::WUSR)?.into();
        let mut from = File::open(self.upper.join(OsStr::from_bytes(path)))?;
        let written = io::copy(&mut from, &mut to).and_then(|_| {
            own(&to, attributes)?;
            let (tv_sec, tv_nsec) = attributes.modified;
            let time = Timespec { tv_sec, tv_nsec };
            Ok(futimens(&to, &Timestamps { last_access: time, last_modification: time })?)
        });
        if written.is_err() {
            // The error is the one to tell.
            let _ = unlinkat(parent, temporary, AtFlags::empty());
        }
        written
    }

    fn finish_directory(&self, path: &[u8], attributes: &Attributes) -> io::Result<()> {
        match self.target.directory(path)? {
            Some(directory) => {
                let directory = File::from(directory);
                own(&directory, attributes)?;
                Ok(fchmod(&directory, Mode::from_raw_mode(attributes.mode))?)
            }
            None => Ok(()),
        }
    }
}

fn modified(stat: &Stat) -> (i64, i64) {
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "the types differ between machines"
    )]
    (stat.st_mtime as i64, stat.st_mtime_nsec as i64)
}

/// Gives a file its owner, attributes and mode, in that order: a new owner takes some bits of the mode away. A directory gets
/// its mode when all is in it.
fn own(file: &File, attributes: &Attributes) -> io::Result<()> {
    let found = rustix::fs::fstat(file)?;
    if (found.st_uid, found.st_gid) != (attributes.user, attributes.group) {
        fchown(file, Some(Uid::from_raw(attributes.user)), Some(Gid::from_raw(attributes.group)))?;
    }
    for (name, _) in xattrs_of_file(file).unwrap_or_default() {
        if !attributes.xattrs.iter().any(|(kept, _)| *kept == name) {
            rustix::fs::fremovexattr(file.as_fd(), &CString::new(name)?)?;
        }
    }
    for (name, value) in &attributes.xattrs {
        fsetxattr(file.as_fd(), &CString::new(name.clone())?, value, XattrFlags::empty())?;
    }
    if kind(&found) != FileType::Directory {
        fchmod(file, Mode::from_raw_mode(attributes.mode))?;
    }
    Ok(())
}

//! Writes the changes of a trial to the target directory.
//!
//! First all changed paths are checked; if another process changed one of them since the start of the trial, nothing is
//! written. Then the plan (the list of changes) is recorded in the trial directory by the caller, and each change is
//! made by one rename. After an interruption the plan and the upper directory still exist, and another run completes
//! the writes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags, chownat,
    fchmod, fchown, fsetxattr, fstat, futimens, linkat, mkdirat, mknodat, openat, renameat, seek, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::upper::{
    Attributes, Change, ChangeKind, FileFingerprint, TargetDir, file_type, join, mtime, split, xattrs_of_file,
};

/// Reason why changes were not kept.
#[derive(Debug)]
pub(super) enum KeepError {
    /// Other processes changed these paths while the changes were written.
    Changed(Vec<Vec<u8>>),
    /// The change at this path could not be made. The path is empty for the target directory itself.
    Failed(Vec<u8>, io::Error),
}

/// Numbers of written and removed paths.
#[derive(Debug, Default)]
pub(super) struct WriteCounts {
    pub(super) written: u64,
    pub(super) removed: u64,
}

/// Checks for changes by other processes in the target directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checks {
    /// All checks: no change of the trial has been written yet.
    All,
    /// Checks for a resumed write, in which some changes of the trial may have been written before.
    Resumed,
    /// No checks: changes by other processes are overwritten.
    None,
}

/// State of a parent directory of a change, compared with the start of the trial.
#[derive(Debug, Clone, Copy)]
enum Ancestor {
    /// The same directory. Its entries may have changed.
    InPlace,
    /// Another directory, which was moved there.
    Replaced,
    Missing,
}

/// Writer of the changes in the directory `upper` to the target directory.
pub(super) struct ChangeWriter<'a> {
    pub(super) target: &'a TargetDir,
    pub(super) upper: &'a Path,
    /// Changes, parents before their entries.
    pub(super) changes: &'a [Change],
    /// Id of the trial, part of temporary names.
    pub(super) id: &'a str,
    /// Start of the trial: paths with a later ctime were changed by other processes.
    pub(super) started: (i64, i64),
    pub(super) checks: Checks,
}

impl ChangeWriter<'_> {
    /// Checks all changes before the first write. Returns the paths that other processes changed.
    pub(super) fn find_conflicts(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut conflicts = BTreeSet::new();
        let mut ancestors = HashMap::new();
        let planned_directories: HashSet<&[u8]> = self
            .changes
            .iter()
            .filter(|change| matches!(change.kind, ChangeKind::Directory(_)))
            .map(|change| change.path.as_slice())
            .collect();
        for change in self.changes {
            let conflict = match self.checks {
                Checks::All => match self.ancestor_conflict(change, &planned_directories, &mut ancestors)? {
                    Some(path) => Some(path),
                    None => self.conflict(change)?,
                },
                Checks::Resumed => self.changed_since_check(change)?,
                Checks::None => None,
            };
            conflicts.extend(conflict);
        }
        Ok(conflicts.into_iter().collect())
    }

    /// Makes all changes.
    pub(super) fn run(&self) -> Result<WriteCounts, KeepError> {
        let failed = |path: &[u8]| {
            let path = path.to_vec();
            move |error| KeepError::Failed(path, error)
        };
        let mut counts = WriteCounts::default();
        for (number, change) in self.changes.iter().enumerate() {
            if self.checks != Checks::None
                && let Some(path) = self.changed_since_check(change).map_err(failed(&change.path))?
            {
                return Err(KeepError::Changed(vec![path]));
            }
            self.apply_change(number, change, &mut counts).map_err(failed(&change.path))?;
        }
        // Last, because nothing can be written to a directory that its owner cannot enter.
        for change in self.changes.iter().rev() {
            if let ChangeKind::Directory(attributes) = &change.kind {
                self.finish_directory(&change.path, attributes).map_err(failed(&change.path))?;
            }
        }
        let root = self.target.open_directory(b"").map_err(failed(b""))?;
        if let Some(root) = root {
            rustix::fs::syncfs(&root).map_err(|errno| KeepError::Failed(Vec::new(), errno.into()))?;
        }
        Ok(counts)
    }

    /// Returns true if the ctime is after the start of the trial.
    fn was_changed(&self, stat: &Stat) -> bool {
        ctime(stat) > self.started
    }

    /// Returns the path that another process changed since the start of the trial: that of the change, or one below it.
    fn conflict(&self, change: &Change) -> io::Result<Option<Vec<u8>>> {
        let path = &change.path;
        let Some(found) = self.target.stat(path)? else {
            let was_removed = match &change.kind {
                ChangeKind::Remove => false,
                // Directories are never renamed in an upper, so another process removed this one.
                ChangeKind::Directory(_) => change.copied_up,
                // A file that the program moved or linked here is copied up, too, and did not exist here before. If the
                // parent directory is unchanged, no other process removed a file.
                _ => change.copied_up && self.parent_was_changed(path)?,
            };
            return Ok(was_removed.then(|| path.clone()));
        };
        match (&change.kind, file_type(&found)) {
            (ChangeKind::Directory(_), FileType::Directory) => Ok(None),
            (_, FileType::Directory) => self.newer_below(path, &found, |it| self.was_changed(it)),
            _ => Ok(self.was_changed(&found).then(|| path.clone())),
        }
    }

    fn parent_was_changed(&self, path: &[u8]) -> io::Result<bool> {
        let Some(parent) = self.target.open_directory(split(path).0)? else { return Ok(false) };
        Ok(self.was_changed(&fstat(&parent)?))
    }

    /// Returns the parent directory of a change that another process replaced or removed.
    ///
    /// A directory that is moved to another name gets a new ctime and keeps its mtime; new entries change both.
    fn ancestor_conflict(
        &self,
        change: &Change,
        planned_directories: &HashSet<&[u8]>,
        known: &mut HashMap<Vec<u8>, Ancestor>,
    ) -> io::Result<Option<Vec<u8>>> {
        let mut ancestors = Vec::new();
        let mut parent = split(&change.path).0;
        while !parent.is_empty() {
            ancestors.push(parent);
            parent = split(parent).0;
        }
        for path in ancestors.into_iter().rev() {
            let ancestor = match known.get(path) {
                Some(ancestor) => *ancestor,
                None => {
                    let ancestor = self.compare_ancestor(path)?;
                    known.insert(path.to_vec(), ancestor);
                    ancestor
                }
            };
            let conflicts = match ancestor {
                Ancestor::InPlace => false,
                Ancestor::Replaced => true,
                // If the parent directory is missing, the removal is done.
                Ancestor::Missing => {
                    !planned_directories.contains(path) && !matches!(change.kind, ChangeKind::Remove)
                }
            };
            if conflicts {
                return Ok(Some(path.to_vec()));
            }
        }
        if change.below_opaque && self.parent_was_changed(&change.path)? {
            return Ok(Some(split(&change.path).0.to_vec()));
        }
        Ok(None)
    }

    /// Compares a parent directory of a change with its state at the start of the trial.
    fn compare_ancestor(&self, path: &[u8]) -> io::Result<Ancestor> {
        let Some(directory) = self.target.open_directory(path)? else { return Ok(Ancestor::Missing) };
        let found = fstat(&directory)?;
        if self.was_changed(&found) && mtime(&found) != ctime(&found) {
            return Ok(Ancestor::Replaced);
        }
        Ok(Ancestor::InPlace)
    }

    /// Returns the path that another process changed since [`Self::find_conflicts`] or [`record_before`] looked at it.
    /// Replacing one hard link of a file changes the ctime of the others, so the ctime of files is not compared here.
    fn changed_since_check(&self, change: &Change) -> io::Result<Option<Vec<u8>>> {
        let path = &change.path;
        let Some(found) = self.target.stat(path)? else { return Ok(None) };
        match (&change.kind, file_type(&found)) {
            (ChangeKind::Directory(_), FileType::Directory) => Ok(None),
            (_, FileType::Directory) => self.newer_below(path, &found, |it| {
                if file_type(it) == FileType::Directory {
                    self.was_changed(it)
                } else {
                    mtime(it) > self.started
                }
            }),
            _ if self.checks == Checks::Resumed && self.is_done(change, &found)? => Ok(None),
            _ => Ok((change.before != Some(FileFingerprint::from_stat(&found))).then(|| path.clone())),
        }
    }

    /// Returns a path that another process changed or created, at or below `path`, which a change replaces or removes.
    /// `found` is the stat of `path`.
    fn newer_below(
        &self,
        path: &[u8],
        found: &Stat,
        is_newer: impl Fn(&Stat) -> bool,
    ) -> io::Result<Option<Vec<u8>>> {
        let mut pending = vec![(path.to_vec(), *found)];
        while let Some((path, found)) = pending.pop() {
            if is_newer(&found) {
                return Ok(Some(path));
            }
            if file_type(&found) != FileType::Directory {
                continue;
            }
            for name in self.target.names(&path)? {
                let path = join(&path, &name);
                if let Some(found) = self.target.stat(&path)? {
                    pending.push((path, found));
                }
            }
        }
        Ok(None)
    }

    /// Returns true if an interrupted run made the change before. False for removals and directories, which can be
    /// repeated.
    fn is_done(&self, change: &Change, found: &Stat) -> io::Result<bool> {
        let upper_path = self.upper.join(OsStr::from_bytes(&change.path));
        Ok(match &change.kind {
            ChangeKind::File(attributes) => {
                file_type(found) == FileType::RegularFile
                    && u64::try_from(found.st_size).ok() == Some(fs::symlink_metadata(upper_path)?.len())
                    && mtime(found) == attributes.modified
                    && found.st_mode & 0o7777 == attributes.mode
            }
            ChangeKind::Symlink(to) => {
                file_type(found) == FileType::Symlink && self.target.read_link(&change.path)? == *to
            }
            ChangeKind::Fifo(attributes) => {
                file_type(found) == FileType::Fifo && attributes.match_owner_and_mode(found)
            }
            ChangeKind::Link(to) => self.target.stat(to)?.is_some_and(|other| other.st_ino == found.st_ino),
            ChangeKind::Remove | ChangeKind::Directory(_) => false,
        })
    }

    /// Opens the parent directory of a path, and returns it with the name.
    fn open_parent(&self, path: &[u8]) -> io::Result<(OwnedFd, CString)> {
        let (parent, name) = split(path);
        let parent = self.target.open_directory(parent)?.ok_or(io::ErrorKind::NotFound)?;
        Ok((parent, CString::new(name)?))
    }

    /// Returns the name under which a change is prepared before it is renamed to its path.
    fn temporary(&self, number: usize) -> io::Result<CString> {
        Ok(CString::new(format!(".workspace-{}-{number}", self.id))?)
    }

    /// Makes one change. `number` is its index, for unique temporary names.
    fn apply_change(&self, number: usize, change: &Change, counts: &mut WriteCounts) -> io::Result<()> {
        let (parent, name) = match self.open_parent(&change.path) {
            // An earlier change or another process removed the parent directory.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && matches!(change.kind, ChangeKind::Remove) =>
            {
                return Ok(());
            }
            parent => parent?,
        };
        let temporary = self.temporary(number)?;
        let old_name = CString::new([temporary.as_bytes(), b"-old"].concat())?;
        // An interrupted run may have left these entries.
        self.remove_tree(&change.path, &temporary)?;
        self.remove_tree(&change.path, &old_name)?;
        let before = match statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            found => Some(found?),
        };
        if self.checks == Checks::Resumed
            && let Some(before) = &before
            && self.is_done(change, before)?
        {
            return Ok(());
        }
        let was_directory = before.as_ref().is_some_and(|it| file_type(it) == FileType::Directory);
        match &change.kind {
            ChangeKind::Remove => {
                if before.is_some() {
                    self.remove_by_rename(&change.path, &parent, &name, &temporary)?;
                    counts.removed += 1;
                }
                return Ok(());
            }
            ChangeKind::Directory(attributes) => {
                if !was_directory {
                    if before.is_some() {
                        self.remove_by_rename(&change.path, &parent, &name, &temporary)?;
                    }
                    mkdirat(&parent, &name, Mode::RWXU)?;
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let created: File = openat(&parent, &name, flags, Mode::empty())?.into();
                    set_attributes(&created, attributes)?;
                    counts.written += 1;
                }
                return Ok(());
            }
            ChangeKind::File(attributes) => self.write_file(&change.path, &parent, &temporary, attributes)?,
            ChangeKind::Link(to) => {
                let (source, source_name) = self.open_parent(to)?;
                linkat(&source, &source_name, &parent, &temporary, AtFlags::empty())?;
            }
            ChangeKind::Symlink(to) => symlinkat(OsStr::from_bytes(to), &parent, &temporary)?,
            ChangeKind::Fifo(attributes) => create_fifo(&parent, &temporary, attributes)?,
        }
        if was_directory {
            self.remove_by_rename(&change.path, &parent, &name, &old_name)?;
        }
        renameat(&parent, &temporary, &parent, &name)?;
        // rename() does nothing if both names are links to the same file.
        match unlinkat(&parent, &temporary, AtFlags::empty()) {
            Err(Errno::NOENT) => {}
            removed => removed?,
        }
        counts.written += 1;
        Ok(())
    }

    /// Renames a file or tree to a temporary name, then removes it.
    fn remove_by_rename(
        &self,
        path: &[u8],
        parent: &OwnedFd,
        name: &CString,
        temporary: &CString,
    ) -> io::Result<()> {
        self.remove_tree(path, temporary)?;
        renameat(parent, name, parent, temporary)?;
        self.remove_tree(path, temporary)
    }

    /// Removes a temporary entry of this trial beside a path.
    ///
    /// `crates/host` removes trees below a path that nobody else changes. Here other processes may replace any part of
    /// the path, so each step is resolved below the target.
    fn remove_tree(&self, path: &[u8], name: &CString) -> io::Result<()> {
        let path = join(split(path).0, name.as_bytes());
        let Some(found) = self.target.stat(&path)? else { return Ok(()) };
        let (parent, name) = self.open_parent(&path)?;
        if file_type(&found) != FileType::Directory {
            return Ok(unlinkat(&parent, &name, AtFlags::empty())?);
        }
        let mut directories = vec![path.clone()];
        let mut next = 0;
        while let Some(directory) = directories.get(next).cloned() {
            next += 1;
            self.grant_owner_access(&directory)?;
            let Some(opened) = self.target.open_directory(&directory)? else { continue };
            for name in self.target.names(&directory)? {
                match unlinkat(&opened, OsStr::from_bytes(&name), AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::ISDIR | Errno::PERM) => directories.push(join(&directory, &name)),
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        for directory in directories.iter().rev() {
            let (parent, name) = self.open_parent(directory)?;
            unlinkat(&parent, &name, AtFlags::REMOVEDIR)?;
        }
        Ok(())
    }

    /// Grants the owner access to a directory that is to be removed.
    fn grant_owner_access(&self, path: &[u8]) -> io::Result<()> {
        let Some(found) = self.target.stat(path)? else { return Ok(()) };
        if found.st_mode & 0o700 != 0o700 {
            let (parent, name) = self.open_parent(path)?;
            // Another process may put a symlink there at any time, so the mode is set through a file descriptor.
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            set_mode(&openat(&parent, &name, flags, Mode::empty())?, 0o700)?;
        }
        Ok(())
    }

    /// Copies a file from the upper directory to the name `temporary` in the directory `parent`.
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
        let written = copy(&mut from, &mut to).and_then(|()| {
            set_attributes(&to, attributes)?;
            let (tv_sec, tv_nsec) = attributes.modified;
            let time = Timespec { tv_sec, tv_nsec };
            Ok(futimens(&to, &Timestamps { last_access: time, last_modification: time })?)
        });
        if written.is_err() {
            // The first error is the one to report.
            let _ = unlinkat(parent, temporary, AtFlags::empty());
        }
        written
    }

    /// Sets owner, extended attributes and mode of a directory whose entries are complete.
    fn finish_directory(&self, path: &[u8], attributes: &Attributes) -> io::Result<()> {
        match self.target.open_directory(path)? {
            Some(directory) => {
                let directory = File::from(directory);
                set_attributes(&directory, attributes)?;
                Ok(fchmod(&directory, Mode::from_raw_mode(attributes.mode))?)
            }
            None => Ok(()),
        }
    }
}

/// Returns the ctime in seconds and nanoseconds.
fn ctime(stat: &Stat) -> (i64, i64) {
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "the types differ between machines"
    )]
    (stat.st_ctime as i64, stat.st_ctime_nsec as i64)
}

/// Records the fingerprint of the present file at the path of each change, for [`ChangeWriter::changed_since_check`].
pub(super) fn record_before(target: &TargetDir, changes: &mut [Change]) -> io::Result<()> {
    for change in changes {
        change.before = target.stat(&change.path)?.map(|found| FileFingerprint::from_stat(&found));
    }
    Ok(())
}

/// Copies a file and keeps its holes (sparse regions).
fn copy(from: &mut File, to: &mut File) -> io::Result<()> {
    let length = from.metadata()?.len();
    let mut offset = 0;
    while offset < length {
        let start = match seek(&*from, SeekFrom::Data(offset)) {
            Ok(start) => start,
            // The rest is a hole.
            Err(Errno::NXIO) => break,
            // The filesystem does not support holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => offset,
            Err(errno) => return Err(errno.into()),
        };
        let end = match seek(&*from, SeekFrom::Hole(start)) {
            Ok(end) => end,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => length,
            Err(errno) => return Err(errno.into()),
        };
        seek(&*from, SeekFrom::Start(start))?;
        seek(&*to, SeekFrom::Start(start))?;
        let copied = io::copy(&mut io::Read::take(&mut *from, end - start), to)?;
        if copied < end - start {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        offset = end;
    }
    to.set_len(length)
}

/// Creates a fifo with owner and mode. The umask would change a mode that is set at its creation.
fn create_fifo(parent: &OwnedFd, name: &CString, attributes: &Attributes) -> io::Result<()> {
    mknodat(parent, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let created = openat(parent, name, flags, Mode::empty())?;
    let found = fstat(&created)?;
    if (found.st_uid, found.st_gid) != (attributes.user, attributes.group) {
        let (user, group) = (Uid::from_raw(attributes.user), Gid::from_raw(attributes.group));
        chownat(&created, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    }
    set_mode(&created, attributes.mode)
}

/// Sets the mode of a file that is opened with `O_PATH`.
fn set_mode(opened: &OwnedFd, mode: u32) -> io::Result<()> {
    let fd_path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    fs::set_permissions(fd_path, fs::Permissions::from_mode(mode))
}

/// Sets owner, attributes and mode of a file, in that order, because a new owner clears bits of the mode. The mode of a
/// directory is set when its entries are complete.
fn set_attributes(file: &File, attributes: &Attributes) -> io::Result<()> {
    let found = fstat(file)?;
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
    if file_type(&found) != FileType::Directory {
        fchmod(file, Mode::from_raw_mode(attributes.mode))?;
    }
    Ok(())
}

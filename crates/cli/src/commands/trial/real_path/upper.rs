//! The changes of a trial (`workspace try`), read from the upper directory of the overlay over the target directory.
//! *The program* is the one that was tried, not `workspace`.
//!
//! No process writes to the upper directory any more, and other users have no access to it, so plain paths are safe.
//! Other processes use the target directory: it is read through file descriptors, and no symlink in it is followed.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, XattrFlags, openat, openat2, statat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use workspace_state::Cancel;

/// Prefix of the attributes that the kernel sets in an upper directory.
const OVERLAY_PREFIX: &[u8] = b"user.overlay.";
/// Prefix of escaped attributes, which the program set itself.
const ESCAPED_PREFIX: &[u8] = b"user.overlay.overlay.";
/// Attribute with the original mode of an entry that its owner could not read. A later scan of the same upper directory
/// reads it. The program cannot set it, because overlayfs escapes or rejects attributes with this prefix.
const ORIGINAL_MODE_XATTR: &str = "user.overlay.workspace-mode";
/// POSIX access control lists. Without them, the group bits would grant access to more users.
pub(super) const ACL_XATTRS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
const SET_ID_BITS: u32 = 0o6000;
const COMPARE_BUFFER_SIZE: usize = 64 << 10;

/// A change, at a path relative to the target directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) path: Vec<u8>,
    pub(super) kind: ChangeKind,
    /// True if overlayfs copied the entry up: it existed in the target directory, or an existing file was moved or
    /// linked here. Also true for removals.
    pub(super) copied_up: bool,
    /// True for the removal of an entry whose parent directory the program replaced by a new one (opaque in overlayfs).
    #[serde(default)]
    pub(super) below_opaque: bool,
    /// Fingerprint of the file at the path in the target directory when `record_before` looked at it, by which a later
    /// change by another process is detected; `None` if there was no file, or before that.
    #[serde(default)]
    pub(super) before: Option<FileFingerprint>,
}

impl Change {
    fn new(path: Vec<u8>, kind: ChangeKind) -> Self {
        Self { path, kind, copied_up: false, below_opaque: false, before: None }
    }
}

/// Properties of a file that do not change when another hard link of it is replaced or removed, unlike its ctime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileFingerprint {
    inode: u64,
    size: i64,
    modified: (i64, i64),
}

impl FileFingerprint {
    pub(super) fn from_stat(stat: &Stat) -> Self {
        #[allow(
            clippy::useless_conversion,
            clippy::unnecessary_cast,
            reason = "the types differ between machines"
        )]
        Self { inode: stat.st_ino as u64, size: stat.st_size as i64, modified: mtime(stat) }
    }
}

/// Returns the mtime in seconds and nanoseconds.
pub(super) fn mtime(stat: &Stat) -> (i64, i64) {
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "the types differ between machines"
    )]
    (stat.st_mtime as i64, stat.st_mtime_nsec as i64)
}

/// Kind of a change, with the new content; the content of a file is in the upper directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum ChangeKind {
    Remove,
    Directory(Attributes),
    File(Attributes),
    /// Hard link to the file at this path: an earlier change, or an unchanged file.
    Link(Vec<u8>),
    /// Symlink with this target.
    Symlink(Vec<u8>),
    Fifo(Attributes),
}

/// Metadata of a changed entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Attributes {
    /// Permission bits, without the file type.
    pub(super) mode: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    /// Mtime in seconds and nanoseconds.
    pub(super) modified: (i64, i64),
    /// Names and values, as [`xattrs_of_file`] returns them.
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Content of an upper directory.
#[derive(Debug, Default)]
pub(super) struct UpperContent {
    /// Changes, parents before their entries.
    pub(super) changes: Vec<Change>,
    /// Paths that cannot be kept, with reasons. `make_trees` adds those whose former content cannot be read for the
    /// diff.
    pub(super) skipped: Vec<(Vec<u8>, String)>,
    /// Paths that lose a property when they are kept, with a description of the property.
    pub(super) lost_properties: Vec<(Vec<u8>, String)>,
    /// Modes of files and directories of the upper directory before they were made readable, by inode.
    modes: HashMap<u64, u32>,
}

/// Target directory, opened. All paths are relative to it, and no method follows a symlink or leaves it.
pub(super) struct TargetDir {
    root: OwnedFd,
}

impl TargetDir {
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { root: openat(CWD, directory, flags, Mode::empty())? })
    }

    /// Returns device and inode of the directory.
    pub(super) fn identity(&self) -> io::Result<(u64, u64)> {
        let found = rustix::fs::fstat(&self.root)?;
        #[allow(
            clippy::useless_conversion,
            clippy::unnecessary_cast,
            reason = "the types differ between machines"
        )]
        Ok((found.st_dev as u64, found.st_ino as u64))
    }

    /// Opens a directory. `None` if the path is not a directory or does not exist. The file descriptor is `O_PATH` if
    /// the directory cannot be listed.
    pub(super) fn open_directory(&self, path: &[u8]) -> io::Result<Option<OwnedFd>> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match self.open_at(path, flags) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            // A directory that can be entered, but not listed.
            Err(Errno::ACCESS) => {
                match self.open_at(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC) {
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
                    opened => Ok(Some(opened?)),
                }
            }
            opened => Ok(Some(opened?)),
        }
    }

    fn open_at(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        openat2(&self.root, OsStr::from_bytes(path), flags, Mode::empty(), how)
    }

    /// Opens a regular file for reading, without blocking on a fifo.
    pub(super) fn open_file(&self, path: &[u8]) -> io::Result<fs::File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(self.open_at(path, flags)?.into())
    }

    pub(super) fn stat(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        let (parent, name) = split(path);
        let Some(parent) = self.open_directory(parent)? else { return Ok(None) };
        match statat(&parent, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    pub(super) fn read_link(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let (parent, name) = split(path);
        let parent = self.open_directory(parent)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(rustix::fs::readlinkat(&parent, OsStr::from_bytes(name), Vec::new())?.into_bytes())
    }

    /// Returns the names in a directory; none if the path is not a directory.
    pub(super) fn names(&self, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let Some(directory) = self.open_directory(path)? else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Splits a path into parent and name. The parent of a path without a slash is empty: the target directory.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

pub(super) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() { name.to_vec() } else { [parent, b"/", name].concat() }
}

pub(super) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Scan of an upper directory.
pub(super) struct Scan<'a> {
    pub(super) upper: &'a Path,
    pub(super) target: &'a TargetDir,
    pub(super) cancel: &'a Cancel,
}

/// Directory of the upper directory that is still to be read.
struct PendingDir {
    path: Vec<u8>,
    /// True if overlayfs hides the entries of the lower directory, because the program replaced it or a parent.
    opaque: bool,
}

impl Scan<'_> {
    pub(super) fn run(&self) -> io::Result<UpperContent> {
        let mut content = UpperContent::default();
        self.make_readable(self.upper, &fs::symlink_metadata(self.upper)?, &mut content)?;
        let mut pending = vec![PendingDir { path: Vec::new(), opaque: false }];
        // By inode: the indexes of the changes that are hard links of a file, and the path of an unchanged hard link.
        let mut links: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut unchanged: HashMap<u64, Vec<u8>> = HashMap::new();
        while let Some(PendingDir { path, opaque }) = pending.pop() {
            self.cancel.check().map_err(io::Error::other)?;
            let directory = self.upper_path(&path);
            // Names in the upper directory; if it is opaque, all other names of the lower directory were removed.
            let mut seen = BTreeSet::new();
            for entry in fs::read_dir(&directory)? {
                self.cancel.check().map_err(io::Error::other)?;
                let entry = entry?;
                let name = entry.file_name().as_bytes().to_vec();
                let path = join(&path, &name);
                seen.insert(name);
                let stat = entry.path().symlink_metadata()?;
                let file_type = stat.file_type();
                // Overlayfs marks a removed entry with a whiteout: a character device 0:0.
                if file_type.is_char_device() && stat.rdev() == 0 {
                    if self.target.stat(&path)?.is_some() {
                        content
                            .changes
                            .push(Change { copied_up: true, ..Change::new(path, ChangeKind::Remove) });
                    }
                } else if file_type.is_dir() {
                    let mode = self.make_readable(&entry.path(), &stat, &mut content)?;
                    let is_opaque = opaque || has_flag(&entry.path(), "user.overlay.opaque");
                    let attributes = attributes(&entry.path(), &stat, mode)?;
                    let before = self.target.stat(&path)?;
                    let is_same = before.as_ref().is_some_and(|before| {
                        self::file_type(before) == FileType::Directory
                            && attributes.match_owner_and_mode(before)
                    }) && self.has_same_xattrs(&path, &attributes)?;
                    if !is_same {
                        let change = Change::new(path.clone(), ChangeKind::Directory(attributes));
                        content.changes.push(Change { copied_up: is_copied_up(&entry.path()), ..change });
                    }
                    pending.push(PendingDir { path, opaque: is_opaque });
                } else if file_type.is_file() {
                    let mode = self.make_readable(&entry.path(), &stat, &mut content)?;
                    let mut attributes = attributes(&entry.path(), &stat, mode)?;
                    if attributes.mode & SET_ID_BITS != 0 && !self.had_set_id(&path, &attributes)? {
                        attributes.mode &= !SET_ID_BITS;
                        content
                            .lost_properties
                            .push((path.clone(), "its set-user-id and set-group-id bits".to_owned()));
                    }
                    if self.is_unchanged(&path, &entry.path(), &stat, &attributes)? {
                        unchanged.entry(stat.ino()).or_insert(path);
                        continue;
                    }
                    if stat.nlink() > 1 {
                        links.entry(stat.ino()).or_default().push(content.changes.len());
                    }
                    let change = Change::new(path, ChangeKind::File(attributes));
                    content.changes.push(Change { copied_up: is_copied_up(&entry.path()), ..change });
                } else if file_type.is_symlink() {
                    let to = fs::read_link(entry.path())?.as_os_str().as_bytes().to_vec();
                    let before =
                        self.target.stat(&path)?.filter(|it| self::file_type(it) == FileType::Symlink);
                    if before.is_none() || self.target.read_link(&path)? != to {
                        content.changes.push(Change::new(path, ChangeKind::Symlink(to)));
                    }
                } else if file_type.is_fifo() {
                    let attributes = attributes(&entry.path(), &stat, stat.mode())?;
                    let is_same = self.target.stat(&path)?.is_some_and(|before| {
                        self::file_type(&before) == FileType::Fifo && attributes.match_owner_and_mode(&before)
                    });
                    if !is_same {
                        content.changes.push(Change::new(path, ChangeKind::Fifo(attributes)));
                    }
                } else {
                    content.skipped.push((path, "a socket or device cannot be kept".to_owned()));
                }
            }
            if opaque {
                for name in self.target.names(&path)? {
                    if !seen.contains(&name) {
                        let removal = Change::new(join(&path, &name), ChangeKind::Remove);
                        content.changes.push(Change { copied_up: true, below_opaque: true, ..removal });
                    }
                }
            }
        }
        content.convert_hard_links(&links, &unchanged);
        content.changes.sort_by(|one, other| one.path.cmp(&other.path));
        content.order_links();
        Ok(content)
    }

    /// Returns the path in the upper directory; without a trailing slash for its root.
    fn upper_path(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.upper.to_owned() } else { self.upper.join(OsStr::from_bytes(path)) }
    }

    /// Makes an entry readable that its owner cannot read, and returns its original mode. The mode is recorded by
    /// inode, because other hard links of the file then have the new mode, too.
    fn make_readable(&self, path: &Path, stat: &fs::Metadata, content: &mut UpperContent) -> io::Result<u32> {
        if let Some(mode) = content.modes.get(&stat.ino()) {
            return Ok(*mode);
        }
        let mode = original_mode(path).unwrap_or(stat.mode());
        let needed = if stat.is_dir() { 0o700 } else { 0o400 };
        if stat.mode() & needed != needed {
            let readable_mode = stat.mode() & 0o7777 | needed;
            // Setting the attribute needs write permission.
            fs::set_permissions(path, fs::Permissions::from_mode(readable_mode | 0o200))?;
            let recorded =
                rustix::fs::lsetxattr(path, ORIGINAL_MODE_XATTR, &mode.to_le_bytes(), XattrFlags::empty());
            fs::set_permissions(path, fs::Permissions::from_mode(readable_mode))?;
            recorded?;
        }
        if mode != stat.mode() || stat.mode() & needed != needed {
            content.modes.insert(stat.ino(), mode);
        }
        Ok(mode)
    }

    /// Returns true if the file in the target directory has the same owner, and the same set-user-id and set-group-id
    /// bits.
    fn had_set_id(&self, path: &[u8], attributes: &Attributes) -> io::Result<bool> {
        Ok(self.target.stat(path)?.is_some_and(|before| {
            file_type(&before) == FileType::RegularFile
                && (before.st_uid, before.st_gid) == (attributes.user, attributes.group)
                && before.st_mode & SET_ID_BITS == attributes.mode & SET_ID_BITS
        }))
    }

    /// Returns true if the directory in the target directory has the same extended attributes.
    fn has_same_xattrs(&self, path: &[u8], attributes: &Attributes) -> io::Result<bool> {
        let Some(directory) = self.target.open_directory(path)? else { return Ok(false) };
        match xattrs_of_file(&directory.into()) {
            // Only `O_PATH` could open the directory, because it cannot be listed: counts as unchanged.
            Err(error) if error.raw_os_error() == Some(Errno::BADF.raw_os_error()) => Ok(true),
            found => Ok(found? == attributes.xattrs),
        }
    }

    /// Returns true if the file in the target directory has the same metadata, except its times, and the same content
    /// as the file `new` in the upper directory. Overlayfs copies a file up when a program only opens it for writing.
    fn is_unchanged(
        &self,
        path: &[u8],
        new: &Path,
        stat: &fs::Metadata,
        attributes: &Attributes,
    ) -> io::Result<bool> {
        let Some(before) = self.target.stat(path)? else { return Ok(false) };
        if file_type(&before) != FileType::RegularFile
            || u64::try_from(before.st_size).ok() != Some(stat.len())
            || !attributes.match_owner_and_mode(&before)
        {
            return Ok(false);
        }
        let Ok(old) = self.target.open_file(path) else { return Ok(false) };
        if xattrs_of_file(&old)? != attributes.xattrs {
            return Ok(false);
        }
        same_content(old, fs::File::open(new)?, self.cancel)
    }
}

fn same_content(mut one: fs::File, mut other: fs::File, cancel: &Cancel) -> io::Result<bool> {
    let (mut a, mut b) = (vec![0; COMPARE_BUFFER_SIZE], vec![0; COMPARE_BUFFER_SIZE]);
    loop {
        cancel.check().map_err(io::Error::other)?;
        let (x, y) = (read_full(&mut one, &mut a)?, read_full(&mut other, &mut b)?);
        if a[..x] != b[..y] {
            return Ok(false);
        }
        if x == 0 {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full, or to the end. Returns the number of bytes.
fn read_full(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl UpperContent {
    /// Turns the changes that are hard links of one file into [`ChangeKind::Link`]s: to the unchanged hard link of the
    /// file, or else to the first of them, which stays a [`ChangeKind::File`]. Both maps have inodes as keys.
    fn convert_hard_links(&mut self, links: &HashMap<u64, Vec<usize>>, unchanged: &HashMap<u64, Vec<u8>>) {
        for (inode, all) in links {
            let mut all: Vec<usize> = all.clone();
            all.sort_by(|one, other| self.changes[*one].path.cmp(&self.changes[*other].path));
            let to = match unchanged.get(inode) {
                Some(path) => path.clone(),
                None => self.changes[all.remove(0)].path.clone(),
            };
            for index in all {
                self.changes[index].kind = ChangeKind::Link(to.clone());
            }
        }
    }

    /// Moves hard links to the end, after their targets.
    fn order_links(&mut self) {
        self.changes.sort_by_key(|change| matches!(change.kind, ChangeKind::Link(_)));
    }
}

impl Attributes {
    /// Returns true if an entry with this stat has the same owner and mode.
    pub(super) fn match_owner_and_mode(&self, stat: &Stat) -> bool {
        (self.mode, self.user, self.group) == (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid)
    }
}

/// Reads the metadata of an entry. `mode` is its original mode, which `stat` does not have once the entry was made
/// readable.
fn attributes(path: &Path, stat: &fs::Metadata, mode: u32) -> io::Result<Attributes> {
    let can_have_xattrs = stat.is_file() || stat.is_dir();
    let xattrs = if can_have_xattrs { xattrs_of_file(&fs::File::open(path)?)? } else { Vec::new() };
    Ok(Attributes {
        mode: mode & 0o7777,
        user: stat.uid(),
        group: stat.gid(),
        modified: (stat.mtime(), stat.mtime_nsec()),
        xattrs,
    })
}

/// Returns the user attributes and access control lists, sorted by name, as the program sees them: without those of
/// overlayfs, and unescaped.
pub(super) fn xattrs_of_file(file: &fs::File) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; 64 << 10];
    let length = match rustix::fs::flistxattr(file.as_fd(), &mut names[..]) {
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        length => length?,
    };
    names.truncate(length);
    let mut all = Vec::new();
    let is_kept = |name: &&[u8]| name.starts_with(b"user.") || ACL_XATTRS.contains(name);
    for name in names.split(|byte| *byte == 0).filter(is_kept) {
        let visible_name = match name.strip_prefix(ESCAPED_PREFIX) {
            Some(rest) => [OVERLAY_PREFIX, rest].concat(),
            None if name.starts_with(OVERLAY_PREFIX) => continue,
            None => name.to_vec(),
        };
        let mut value = vec![0; 64 << 10];
        let name = CString::new(name).map_err(io::Error::other)?;
        let length = rustix::fs::fgetxattr(file.as_fd(), &name, &mut value[..])?;
        value.truncate(length);
        all.push((visible_name, value));
    }
    all.sort();
    Ok(all)
}

/// Returns true if an attribute of overlayfs has the value `y`.
fn has_flag(path: &Path, name: &str) -> bool {
    let mut value = [0; 4];
    rustix::fs::lgetxattr(path, name, &mut value[..]).is_ok_and(|length| &value[..length] == b"y")
}

/// Reads the mode that [`Scan::make_readable`] recorded; `None` if it did not change this entry.
fn original_mode(path: &Path) -> Option<u32> {
    let mut value = [0; 4];
    let length = rustix::fs::lgetxattr(path, ORIGINAL_MODE_XATTR, &mut value[..]).ok()?;
    (length == value.len()).then(|| u32::from_le_bytes(value))
}

/// Returns true if overlayfs copied the entry up from the lower directory.
fn is_copied_up(path: &Path) -> bool {
    let mut value = [0; 512];
    rustix::fs::lgetxattr(path, "user.overlay.origin", &mut value[..]).is_ok()
}

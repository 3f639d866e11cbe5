//! Directories beneath the root of an extraction (the directory that an archive is extracted into): opens, creates and
//! removes them. The kernel never follows a symlink here. `resolve` reads symlinks and follows them within the root.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, readlinkat, statat, unlinkat};
use rustix::io::Errno;

use super::{Extractor, IMPLIED_DIRECTORY_MODE, behind_symlink, create_directory, failed, mode};
use crate::archive::error::{Result, refused};
use crate::platform::{DIRECTORY_HANDLE_FLAGS, RawDir, open_beneath};
use crate::tree_path::{DEPTH_MAX, join};

/// Flags that open a directory for listing.
pub(super) const LIST_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Flags that open a directory only as the start of other operations.
const TRAVERSE_FLAGS: OFlags =
    DIRECTORY_HANDLE_FLAGS.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Maximum number of symlinks that are followed for one path; the limit of Linux.
const LINKS_MAX: usize = 40;

/// Open directory beneath the root of the extraction.
pub(super) struct ExtractDir {
    pub(super) fd: OwnedFd,
    /// Path from the root, without symlinks; empty for the root itself.
    pub(super) path: Vec<u8>,
}

impl ExtractDir {
    /// Returns the path of an entry from the root.
    pub(super) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        join(&self.path, name)
    }
}

/// Returns the type of an entry without following a symlink; `None` if the entry does not exist.
pub(super) fn file_type(parent: &ExtractDir, name: &[u8]) -> Result<Option<FileType>> {
    match statat(&parent.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(failed(&parent.path_of(name))(error)),
    }
}

/// Opens a subdirectory; a symlink is an error.
fn open_in(parent: &ExtractDir, name: &[u8]) -> Result<ExtractDir> {
    let path = parent.path_of(name);
    let fd = openat(&parent.fd, name, TRAVERSE_FLAGS, Mode::empty()).map_err(failed(&path))?;
    Ok(ExtractDir { fd, path })
}

/// Entries to keep when a directory is emptied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// No entries.
    Nothing,
    /// Entries that the current image layer created.
    Created,
}

/// A directory that is being removed.
struct Removal {
    /// Path from the root.
    path: Vec<u8>,
    /// Names of the subdirectories that are still to be removed.
    directories: Vec<Vec<u8>>,
}

impl Extractor {
    /// Opens a directory by the components of its path from the root. Creates missing directories.
    pub(super) fn open_or_create_directory(&mut self, names: &[Vec<u8>]) -> Result<ExtractDir> {
        if let Some(directory) = self.open_plain_directory(names)? {
            return Ok(directory);
        }
        let mut directory = self.open(Vec::new())?;
        for name in names {
            let path = directory.path_of(name);
            directory = match file_type(&directory, name)? {
                Some(FileType::Directory) => open_in(&directory, name)?,
                None => self.create_implied(&directory, name)?,
                Some(FileType::Symlink) if !self.is_image_layer() => return Err(behind_symlink(&path)),
                Some(FileType::Symlink) => match self.follow_symlink(&directory, name)? {
                    Some(directory) => directory,
                    None => {
                        self.remove(&directory, name)?;
                        self.create_implied(&directory, name)?
                    }
                },
                Some(_) => return Err(refused(&path, "a file is in the place of the directory")),
            };
        }
        Ok(directory)
    }

    /// Opens a directory by the components of its path from the root. Returns `None` if it does not exist. For a copy,
    /// also if a component is a symlink; for an image layer, symlinks are resolved.
    pub(super) fn open_existing_directory(&self, names: &[Vec<u8>]) -> Result<Option<ExtractDir>> {
        if let Some(directory) = self.open_plain_directory(names)? {
            return Ok(Some(directory));
        }
        if !self.is_image_layer() {
            return Ok(None);
        }
        self.resolve(Vec::new(), names.iter().rev().cloned().collect())
    }

    /// Opens a directory by the components of its path from the root. Returns `None` if it does not exist, or if a
    /// component is a symlink.
    fn open_plain_directory(&self, names: &[Vec<u8>]) -> Result<Option<ExtractDir>> {
        let path = names.join(&b'/');
        match open_beneath(&self.root, &path, TRAVERSE_FLAGS) {
            Ok(fd) => Ok(Some(ExtractDir { fd, path })),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(failed(&path)(error)),
        }
    }

    /// Opens a directory by its path from the root, which must exist and have no symlinks.
    fn open(&self, path: Vec<u8>) -> Result<ExtractDir> {
        let fd = open_beneath(&self.root, &path, TRAVERSE_FLAGS).map_err(failed(&path))?;
        Ok(ExtractDir { fd, path })
    }

    /// Creates a missing parent directory of a member.
    fn create_implied(&mut self, parent: &ExtractDir, name: &[u8]) -> Result<ExtractDir> {
        self.usage.add_entries(1)?;
        create_directory(parent, name, mode(IMPLIED_DIRECTORY_MODE))?;
        self.record_created(parent, name)?;
        open_in(parent, name)
    }

    /// Opens the directory that a symlink leads to; `None` if it does not lead to a directory.
    pub(super) fn follow_symlink(&self, parent: &ExtractDir, name: &[u8]) -> Result<Option<ExtractDir>> {
        let components = parent.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        self.resolve(components.map(<[u8]>::to_vec).collect(), vec![name.to_vec()])
    }

    /// Resolves a path with its symlinks as if the root of the extraction were `/`. `resolved` has the components of
    /// the directory to start from, and `rest` the components of the path in reverse order. Returns `None` if the path
    /// does not lead to a directory, or has more than [`LINKS_MAX`] symlinks.
    fn resolve(&self, mut resolved: Vec<Vec<u8>>, mut rest: Vec<Vec<u8>>) -> Result<Option<ExtractDir>> {
        let mut links = 0;
        while let Some(name) = rest.pop() {
            match &name[..] {
                b"" | b"." => continue,
                b".." => {
                    resolved.pop();
                    continue;
                }
                _ => {}
            }
            let Some(directory) = self.open_plain_directory(&resolved)? else { return Ok(None) };
            match file_type(&directory, &name)? {
                Some(FileType::Directory) if resolved.len() < DEPTH_MAX => resolved.push(name),
                Some(FileType::Symlink) if links < LINKS_MAX => {
                    links += 1;
                    let target = readlinkat(&directory.fd, &name[..], Vec::new());
                    let target = target.map_err(failed(&directory.path_of(&name)))?.into_bytes();
                    if target.starts_with(b"/") {
                        resolved.clear();
                    }
                    rest.extend(target.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec));
                }
                _ => return Ok(None),
            }
        }
        self.open_plain_directory(&resolved)
    }

    /// Removes an entry with everything below it, if it exists.
    pub(super) fn remove(&mut self, parent: &ExtractDir, name: &[u8]) -> Result<()> {
        let path = parent.path_of(name);
        match file_type(parent, name)? {
            None => return Ok(()),
            Some(FileType::Directory) => self.remove_content(path.clone(), Keep::Nothing)?,
            Some(_) => {}
        }
        self.unlink(&path)
    }

    /// Removes all entries from a directory, except those that the current image layer created.
    pub(super) fn remove_lower_entries(&mut self, parent: &ExtractDir) -> Result<()> {
        self.remove_content(parent.path.clone(), Keep::Created)
    }

    /// Removes the entries of the directory `top`; with [`Keep::Created`], except those that the current image layer
    /// created. Keeps only one directory open at a time, so the depth is not limited by open files. No other removal of
    /// a tree can leave out entries.
    fn remove_content(&mut self, top: Vec<u8>, keep: Keep) -> Result<()> {
        let mut stack = vec![self.unlink_files(top, keep)?];
        while let Some(removal) = stack.last_mut() {
            if let Some(name) = removal.directories.pop() {
                let path = join(&removal.path, &name);
                stack.push(self.unlink_files(path, keep)?);
                continue;
            }
            let Some(done) = stack.pop() else { break };
            if !stack.is_empty() {
                self.remove_emptied(&done.path, keep)?;
            }
        }
        Ok(())
    }

    /// Removes all entries of a directory except subdirectories and entries to keep. Returns the subdirectories, which
    /// the caller has to empty and remove.
    fn unlink_files(&self, path: Vec<u8>, keep: Keep) -> Result<Removal> {
        self.options.cancel.check()?;
        let fd = open_beneath(&self.root, &path, LIST_FLAGS).map_err(failed(&path))?;
        let inode = fstat(&fd).map_err(failed(&path))?.st_ino;
        let (mut directories, mut names) = (Vec::new(), Vec::new());
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries = RawDir::new(&fd, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(failed(&path))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        let directory = ExtractDir { fd, path };
        for name in names {
            match file_type(&directory, &name)? {
                Some(FileType::Directory) => directories.push(name),
                Some(_) if keep == Keep::Created && self.created.contains(&(inode, name.clone().into())) => {}
                _ => {
                    let unlinked = unlinkat(&directory.fd, &name[..], AtFlags::empty());
                    unlinked.map_err(failed(&directory.path_of(&name)))?;
                }
            }
        }
        Ok(Removal { path: directory.path, directories })
    }

    /// Removes an emptied directory. With [`Keep::Created`], keeps a directory that the current image layer created, or
    /// that still has entries.
    fn remove_emptied(&self, path: &[u8], keep: Keep) -> Result<()> {
        let (parent_path, name) = split(path);
        let parent = self.open(parent_path.to_vec())?;
        let inode = fstat(&parent.fd).map_err(failed(path))?.st_ino;
        if keep == Keep::Created && self.created.contains(&(inode, name.into())) {
            return Ok(());
        }
        match unlinkat(&parent.fd, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if keep == Keep::Created => Ok(()),
            done => done.map_err(failed(path)),
        }
    }

    /// Removes an entry that is not a directory, or an empty directory, if it exists.
    fn unlink(&self, path: &[u8]) -> Result<()> {
        let (parent_path, name) = split(path);
        let parent = self.open(parent_path.to_vec())?;
        let flags = match file_type(&parent, name)? {
            Some(FileType::Directory) => AtFlags::REMOVEDIR,
            Some(_) => AtFlags::empty(),
            None => return Ok(()),
        };
        unlinkat(&parent.fd, name, flags).map_err(failed(path))
    }
}

/// Splits a path into its parent and its last component.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(cut) => (&path[..cut], &path[cut + 1..]),
        None => (b"", path),
    }
}

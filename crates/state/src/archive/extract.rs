//! Extraction of archives into directories of the file system.
//!
//! An archive may be hostile. Every operation is relative to an open directory and uses a single file name,
//! so the kernel never follows a symlink. If the path of a member leads through a symlink, [`ExtractProfile::Copy`]
//! refuses the member, and [`ExtractProfile::ImageLayer`] resolves the symlink as if the target directory were `/`.
//! Owners, set-id bits, extended attributes, devices and pipes are not extracted.

mod directory;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fchmod, fstat, futimens, linkat, mkdirat, openat, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::error::{ArchiveError, Result, refused};
use super::limits::{ArchiveLimits, REPORTED_PATHS_MAX, Usage, check_relative, path_components};
use super::member::{Kind, Member};
use super::reader::Reader;
use super::sparse::SparseRun;
use crate::cancel::Cancel;
use crate::node::{is_valid_name, is_valid_target};
use crate::platform::{DIRECTORY_HANDLE_FLAGS, EntryHandle, mode_from_u32, open_beneath};
use crate::quote::shorten_path;
use crate::snapshot::Timestamp;
use directory::{ExtractDir, file_type};

/// Mode bits that are extracted: permissions, without set-id and sticky bits.
const PERMISSIONS: u16 = 0o777;
/// Mode of a missing parent directory that has no member of its own.
const IMPLIED_DIRECTORY_MODE: u16 = 0o755;
/// Permission bits that the owner of a directory needs to create entries in it.
const OWNER_ALL: u16 = 0o700;
/// Name prefix of a whiteout: a member of an image layer that removes an entry of lower layers.
const WHITEOUT: &[u8] = b".wh.";
/// Name of an opaque whiteout: a member that removes all entries of lower image layers from its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Purpose of an extraction, which decides how entries are replaced and which metadata is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtractProfile {
    /// A copy of a user's files. Modes and times are kept. Existing files stay unless a member has their
    /// path; a directory and another kind of entry never replace each other.
    Copy {
        /// Name of the entry that the archive becomes in the directory.
        name: Vec<u8>,
        /// Relation of the members' paths to that entry.
        paths: MemberPaths,
    },
    /// Layers of a container image, extracted in order, the lowest first. Whiteouts remove entries of lower layers,
    /// and an entry of any kind replaces an entry of any other kind. Exception: a directory does not replace a symlink
    /// to a directory, but its entries are created in the target of the symlink. Permissions are kept, and owners get
    /// all rights on their directories. Times are not kept.
    ImageLayer,
}

/// Relation of the paths in an archive to the entry that the archive becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberPaths {
    /// The first component of every path stands for that entry; its value in the archive is ignored.
    BelowName,
    /// Paths are relative to that entry, which is a directory.
    Relative,
}

/// Options of an extraction.
#[derive(Debug, Clone)]
pub struct ExtractOptions {
    /// Purpose of the extraction.
    pub profile: ExtractProfile,
    /// Limits for all archives of one extractor together.
    pub limits: ArchiveLimits,
    /// Cancels the extraction when it is set.
    pub cancel: Cancel,
}

/// Result of an extraction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtractReport {
    /// Total size of the files in bytes, including holes.
    pub bytes: u64,
    /// Paths of devices and pipes, which are not extracted: the first thousand.
    pub skipped: Vec<Vec<u8>>,
    /// Number of all members that were not extracted.
    pub skipped_count: u64,
}

/// Extracts archives into one directory.
pub struct Extractor {
    /// Directory that archives are extracted into.
    root: OwnedFd,
    options: ExtractOptions,
    usage: Usage,
    report: ExtractReport,
    /// Modes and times of the directories of a copy, by path. They are set after the last member: a directory may not
    /// be writable, and adding entries changes its time.
    directories: BTreeMap<Vec<u8>, (Mode, Option<Timestamp>)>,
    /// Entries that the current image layer created: inode number of the directory, and name. An opaque whiteout of
    /// this layer does not remove them.
    created: HashSet<(u64, Box<[u8]>)>,
}

impl Extractor {
    /// Creates an extractor into `directory`, which must exist.
    pub fn new(directory: &Path, options: ExtractOptions) -> Result<Self> {
        let opened = rustix::fs::open(directory, DIRECTORY_HANDLE_FLAGS | OFlags::CLOEXEC, Mode::empty());
        Ok(Self {
            root: opened.map_err(failed(directory.as_os_str().as_encoded_bytes()))?,
            usage: Usage::new(options.limits),
            options,
            report: ExtractReport::default(),
            directories: BTreeMap::new(),
            created: HashSet::new(),
        })
    }

    /// Extracts one archive. Files extracted before an error are kept.
    pub fn extract(&mut self, input: &mut dyn Read) -> Result<()> {
        self.created.clear();
        let mut reader = Reader::new(input, self.options.cancel.clone());
        while let Some(member) = reader.next()? {
            self.extract_member(member, &mut reader)?;
        }
        self.finish_directories()
    }

    /// Returns the result of all extractions so far.
    pub fn report(&self) -> &ExtractReport {
        &self.report
    }

    fn is_image_layer(&self) -> bool {
        self.options.profile == ExtractProfile::ImageLayer
    }

    /// Extracts one member, skips it, or applies it as a whiteout.
    fn extract_member(&mut self, mut member: Member, reader: &mut Reader<'_>) -> Result<()> {
        self.usage.add_member(&member)?;
        let path = self.target_components(&member.path)?;
        let Some((name, parents)) = path.split_last() else {
            // The member stands for the target directory itself, which is not changed.
            return Ok(());
        };
        if let Kind::Other(_) = member.kind {
            self.skip(std::mem::take(&mut member.path));
            return Ok(());
        }
        let parent = self.open_or_create_directory(parents)?;
        if self.is_image_layer() && name.starts_with(WHITEOUT) {
            return self.apply_whiteout(&parent, name);
        }
        match member.kind {
            Kind::Directory => self.extract_directory(&parent, name, &member)?,
            Kind::Symlink => self.extract_symlink(&parent, name, &member)?,
            Kind::HardLink => self.extract_hard_link(&parent, name, &member)?,
            _ => self.extract_file(&parent, name, member, reader)?,
        }
        self.record_created(&parent, name)
    }

    /// Converts a path in the archive to the components of a path relative to the target directory.
    fn target_components(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        if let ExtractProfile::Copy { .. } = self.options.profile {
            check_relative(path)?;
        }
        let mut names: Vec<Vec<u8>> = path_components(path)?.into_iter().map(<[u8]>::to_vec).collect();
        if let ExtractProfile::Copy { name, paths } = &self.options.profile {
            match (paths, names.is_empty()) {
                (MemberPaths::Relative, _) => names.insert(0, name.clone()),
                (MemberPaths::BelowName, false) => names[0].clone_from(name),
                (MemberPaths::BelowName, true) => return Err(refused(path, "it has no name")),
            }
        }
        Ok(names)
    }

    /// Records a member that is not extracted.
    fn skip(&mut self, path: Vec<u8>) {
        self.report.skipped_count += 1;
        if self.report.skipped.len() < REPORTED_PATHS_MAX {
            self.report.skipped.push(path);
        }
    }

    fn extract_directory(&mut self, parent: &ExtractDir, name: &[u8], member: &Member) -> Result<()> {
        let path = parent.path_of(name);
        let mode = mode(member.mode & PERMISSIONS | OWNER_ALL);
        match file_type(parent, name)? {
            Some(FileType::Directory) if !self.is_image_layer() => {}
            Some(FileType::Directory) => {
                let opened =
                    openat(&parent.fd, name, directory::LIST_FLAGS, Mode::empty()).map_err(failed(&path))?;
                return fchmod(&opened, mode).map_err(failed(&path));
            }
            Some(FileType::Symlink) if !self.is_image_layer() => return Err(behind_symlink(&path)),
            // A symlink to a directory is kept: later entries of the layer are created in its target.
            Some(FileType::Symlink) if self.follow_symlink(parent, name)?.is_some() => return Ok(()),
            Some(_) if !self.is_image_layer() => {
                return Err(refused(&path, "a file is in the place of the directory"));
            }
            Some(_) => {
                self.remove_replaced(parent, name)?;
                create_directory(parent, name, mode)?;
            }
            None => create_directory(parent, name, mode)?,
        }
        if !self.is_image_layer() {
            let mode = self::mode(member.mode & PERMISSIONS);
            self.directories.insert(path, (mode, member.modified));
        }
        Ok(())
    }

    fn extract_file(
        &mut self,
        parent: &ExtractDir,
        name: &[u8],
        mut member: Member,
        reader: &mut Reader<'_>,
    ) -> Result<()> {
        let path = parent.path_of(name);
        self.usage.add_bytes(member.size)?;
        let map = reader.sparse_map(&mut member)?;
        self.remove_replaced(parent, name)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&parent.fd, name, flags, Mode::RUSR | Mode::WUSR).map_err(failed(&path))?;
        let mut file = File::from(opened);
        let write_error = |source: io::Error| failed(&path)(source);
        match &map {
            None => reader.read_content(member.stored, |data| file.write_all(data).map_err(write_error))?,
            Some(map) => {
                for run in map.runs() {
                    match run {
                        SparseRun::Hole(len) => skip_over(&mut file, len).map_err(write_error)?,
                        SparseRun::Data(len) => {
                            reader.read_content(len, |data| file.write_all(data).map_err(write_error))?;
                        }
                    }
                }
                // `skip_over` does not extend the file over a hole at the end.
                file.set_len(member.size).map_err(write_error)?;
            }
        }
        // The mode must not depend on the umask.
        fchmod(&file, mode(member.mode & PERMISSIONS)).map_err(failed(&path))?;
        if let Some(modified) = member.modified.filter(|_| !self.is_image_layer()) {
            futimens(&file, &modified.file_times()).map_err(failed(&path))?;
        }
        self.report.bytes += member.size;
        Ok(())
    }

    fn extract_symlink(&mut self, parent: &ExtractDir, name: &[u8], member: &Member) -> Result<()> {
        let path = parent.path_of(name);
        if !is_valid_target(&member.target) {
            return Err(refused(&path, "its symlink target is empty, too long or contains a NUL byte"));
        }
        self.remove_replaced(parent, name)?;
        symlinkat(&member.target[..], &parent.fd, name).map_err(failed(&path))?;
        match member.modified.filter(|_| !self.is_image_layer()) {
            Some(modified) => set_times(&parent.fd, name, modified).map_err(failed(&path)),
            None => Ok(()),
        }
    }

    /// Creates another name for a file that was extracted before.
    fn extract_hard_link(&mut self, parent: &ExtractDir, name: &[u8], member: &Member) -> Result<()> {
        let path = parent.path_of(name);
        let target = self.target_components(&member.target)?;
        let bad_target = || {
            let target = shorten_path(&member.target).into_owned();
            refused(
                &path,
                format!("it is a link to `{target}`, which is not a file that was extracted before it"),
            )
        };
        let (target_name, target_parents) = target.split_last().ok_or_else(bad_target)?;
        let target_directory = self.open_existing_directory(target_parents)?.ok_or_else(bad_target)?;
        match file_type(&target_directory, target_name)? {
            None | Some(FileType::Directory) => return Err(bad_target()),
            Some(_) if target_directory.path_of(target_name) == path => return Ok(()),
            Some(_) => {}
        }
        self.remove_replaced(parent, name)?;
        match linkat(&target_directory.fd, &target_name[..], &parent.fd, name, AtFlags::empty()) {
            // The target was in the directory that the link replaced, and was removed with it.
            Err(Errno::NOENT) => Err(bad_target()),
            Err(Errno::MLINK) => Err(refused(&path, "it has more names than a file can have")),
            done => done.map_err(failed(&path)),
        }
    }

    /// Removes an existing entry that a member replaces. For a copy, the entry must not be a directory.
    fn remove_replaced(&mut self, parent: &ExtractDir, name: &[u8]) -> Result<()> {
        match file_type(parent, name)? {
            None => Ok(()),
            Some(FileType::Directory) if !self.is_image_layer() => {
                Err(refused(&parent.path_of(name), "it would take the place of a directory"))
            }
            Some(_) => self.remove(parent, name),
        }
    }

    /// Removes the entries of lower layers that a whiteout names.
    fn apply_whiteout(&mut self, parent: &ExtractDir, name: &[u8]) -> Result<()> {
        if name == OPAQUE {
            return self.remove_lower_entries(parent);
        }
        let hidden = &name[WHITEOUT.len()..];
        if !is_valid_name(hidden) {
            return Err(refused(&parent.path_of(name), "it removes an impossible name"));
        }
        self.remove(parent, hidden)
    }

    /// Records an entry that the current image layer created. Does nothing for a copy.
    fn record_created(&mut self, parent: &ExtractDir, name: &[u8]) -> Result<()> {
        if self.is_image_layer() {
            let inode = fstat(&parent.fd).map_err(failed(&parent.path))?.st_ino;
            self.created.insert((inode, name.into()));
        }
        Ok(())
    }

    /// Sets modes and times of directories, children before parents. Looks up each directory again by its path, without
    /// following symlinks. Ignores directories that no longer exist.
    fn finish_directories(&mut self) -> Result<()> {
        for (path, (mode, modified)) in std::mem::take(&mut self.directories).into_iter().rev() {
            self.options.cancel.check()?;
            let (parent_path, name) = match path.iter().rposition(|byte| *byte == b'/') {
                Some(cut) => (&path[..cut], &path[cut + 1..]),
                None => (&b""[..], &path[..]),
            };
            let set = || -> Result<(), Errno> {
                let parent = open_beneath(&self.root, parent_path, DIRECTORY_HANDLE_FLAGS)?;
                let handle = EntryHandle::open_entry(&parent, name)?;
                if FileType::from_raw_mode(handle.stat()?.st_mode) != FileType::Directory {
                    return Err(Errno::NOTDIR);
                }
                if let Some(modified) = modified {
                    set_times(&parent, name, modified)?;
                }
                handle.chmod(mode)
            };
            match set() {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(failed(&path)(error)),
            }
        }
        Ok(())
    }
}

/// Converts permission bits to a [`Mode`].
fn mode(bits: u16) -> Mode {
    Mode::from_raw_mode(mode_from_u32(u32::from(bits)))
}

/// Creates a directory with exactly this mode.
fn create_directory(parent: &ExtractDir, name: &[u8], exact_mode: Mode) -> Result<()> {
    let path = parent.path_of(name);
    mkdirat(&parent.fd, name, exact_mode).map_err(failed(&path))?;
    // The mode must not depend on the umask.
    let opened = openat(&parent.fd, name, directory::LIST_FLAGS, Mode::empty()).map_err(failed(&path))?;
    fchmod(&opened, exact_mode).map_err(failed(&path))
}

/// Sets access and modification time of an entry, without following a symlink.
fn set_times(parent: impl AsFd, name: &[u8], modified: Timestamp) -> Result<(), Errno> {
    utimensat(parent, name, &modified.file_times(), AtFlags::SYMLINK_NOFOLLOW)
}

/// Leaves a hole of `len` bytes at the position of a file, by seeking forward.
fn skip_over(file: &mut File, len: u64) -> io::Result<()> {
    let too_large = || io::Error::from(Errno::FBIG);
    let len = i64::try_from(len).map_err(|_| too_large())?;
    file.seek(SeekFrom::Current(len)).map_err(|_| too_large()).map(drop)
}

/// Returns the error for a member of a copy whose path leads through a symlink.
fn behind_symlink(path: &[u8]) -> ArchiveError {
    refused(path, "a symlink is in the place of the directory, and nothing is extracted through it")
}

/// Returns a function for `map_err` that adds the path of the member to a system error.
fn failed<E: Into<io::Error>>(path: &[u8]) -> impl FnOnce(E) -> ArchiveError {
    let path = shorten_path(path).into_owned();
    move |error| ArchiveError::Extract { path, source: error.into() }
}

//! Writing files: a new file replaces the old one, atomically.
//!
//! The content goes to a file without a name (`O_TMPFILE`) in the directory of the target, so that nothing is left if
//! the write is cancelled or the worker killed. A file that replaces another gets a temporary name for a moment, since
//! only a name can replace another. On file systems without `O_TMPFILE`, the file has such a name from the start.
//! `journal.rs` records these names, and the next worker removes the files that a killed one left.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fchmod, fstat, linkat, openat, renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use workspace_agent_protocol::v1::file_condition::Condition;
use workspace_agent_protocol::v1::{FileCondition, FileEntry, IoFailureKind, IoReply, WriteFile};

use super::channel::{ReceivedFrames, RequestHandle};
use super::failure::{AtPath as _, Failure, Result};
use super::journal::{self, RecordedName, random_name};
use super::path::{NameInParent, Parents, describe, is_type, open_parent_of_target, proc_path};
use super::tree::times;

/// Bytes of content that the server may send before the worker has consumed them (see `channel.rs`).
const WINDOW: u64 = 1 << 20;
/// Maximum number of received bytes that are not synced. The server gives up a worker that sends nothing for a minute,
/// so a sync must not have gigabytes to write: it would take too long on a slow disk.
const UNSYNCED_MAX: usize = 32 << 20;
/// Permissions of a new file, if the request says none.
const FILE_MODE: u32 = 0o644;
/// Lock that is held from checking the condition of a write until the file is replaced.
static REPLACEMENT: Mutex<()> = Mutex::new(());
/// Maximum time that a worker waits for a file that is being replaced, before it exits.
const REPLACEMENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Written file that is not published yet: it has not replaced its target. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct PendingFile {
    target: NameInParent,
    file: File,
    /// Temporary name in the directory of the target; `None` for a file without a name.
    name: Option<TemporaryName>,
    /// Condition on the present file, under which it may be replaced.
    condition: Option<FileCondition>,
    /// Path of the request, for failures.
    path: Vec<u8>,
}

/// Name of a file that is not published yet, in the directory of its target.
#[derive(Debug)]
struct TemporaryName {
    name: Vec<u8>,
    /// Record of the name in the journal, which is removed when this is dropped. `None` if it could not be recorded:
    /// then a worker that is killed leaves the file.
    _recorded: Option<RecordedName>,
}

impl TemporaryName {
    /// Makes a name, and records it.
    fn new(directory: &OwnedFd) -> std::result::Result<Self, Errno> {
        let name = random_name()?;
        Ok(Self { _recorded: journal::record(directory, &name), name })
    }
}

/// Waits until no file is being replaced, and prevents further replacements: a worker that exits during one would leave
/// a temporary name.
pub(crate) fn finish_replacements() {
    if let Some(guard) = REPLACEMENT.try_lock_for(REPLACEMENT_TIMEOUT) {
        std::mem::forget(guard);
    }
}

/// Writes a file whose content is in the request.
pub(crate) fn write_all(mut request: WriteFile) -> Result<FileEntry> {
    let content = request.content.take().unwrap_or_default();
    let mut pending = PendingFile::create(request)?;
    pending.append(&content)?;
    pending.sync()?;
    pending.publish()
}

/// Receives the content of a file on the channel, and returns the complete and synced file.
pub(crate) fn receive(
    handle: &RequestHandle,
    frames: &mut ReceivedFrames,
    request: WriteFile,
) -> Result<PendingFile> {
    let mut pending = PendingFile::create(request)?;
    handle.block_on(handle.reply(IoReply { window: WINDOW, ..IoReply::default() }))?;
    let mut unsynced = 0;
    while let Some(frame) = frames.blocking_receive()? {
        pending.append(&frame.data)?;
        unsynced += frame.data.len();
        if unsynced >= UNSYNCED_MAX {
            pending.sync_content()?;
            unsynced = 0;
        }
        handle.block_on(handle.grant(frame.data.len()))?;
    }
    pending.sync()?;
    Ok(pending)
}

impl PendingFile {
    pub(crate) fn create(request: WriteFile) -> Result<Self> {
        let WriteFile { path, mode, mkdirs, condition, .. } = request;
        let parents = if mkdirs { Parents::Create } else { Parents::MustExist };
        let target = open_parent_of_target(&path, parents)?;
        let present = target.stat().at(&path)?;
        check_replaceable(present.as_ref(), &path)?;
        // Checked again when the file is published. The early check spares the client from sending the content.
        check_condition(condition.as_ref(), present.as_ref(), &path)?;
        let (file, name) = create_file(&target.parent).at(&path)?;
        let pending = Self { target, file: File::from(file), name, condition, path };
        let mode = mode.unwrap_or_else(|| present.map_or(FILE_MODE, |stat| stat.st_mode & 0o777));
        fchmod(&pending.file, Mode::from_raw_mode(mode)).at(&pending.path)?;
        Ok(pending)
    }

    /// Creates a file for a target, which replaces a symlink instead of following it.
    pub(crate) fn create_at(target: NameInParent, mode: u32, path: &[u8]) -> Result<Self> {
        let present = target.stat().at(path)?;
        let replaced = present.filter(|stat| !is_type(stat, FileType::Symlink));
        check_replaceable(replaced.as_ref(), path)?;
        let (file, name) = create_file(&target.parent).at(path)?;
        let pending = Self { target, file: File::from(file), name, condition: None, path: path.to_vec() };
        fchmod(&pending.file, Mode::from_raw_mode(mode)).at(path)?;
        Ok(pending)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Appends the rest of another file.
    pub(crate) fn append_from(&mut self, source: &OwnedFd, path: &[u8]) -> Result<()> {
        let mut source = File::from(source.try_clone().at(path)?);
        std::io::copy(&mut source, &mut self.file).map(drop).at(path)
    }

    pub(crate) fn append(&mut self, data: &[u8]) -> Result<()> {
        self.file.write_all(data).at(&self.path)
    }

    /// Makes the content durable that was appended so far.
    fn sync_content(&self) -> Result<()> {
        self.file.sync_data().at(&self.path)
    }

    /// Makes the content and the metadata durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_all().at(&self.path)
    }

    /// Sets the modification time, in nanoseconds since 1970.
    pub(crate) fn set_time(&self, mtime_ns: i64) -> Result<()> {
        rustix::fs::futimens(&self.file, &times(mtime_ns)).at(&self.path)
    }

    /// Replaces the target, and returns the new entry. The replacement is durable.
    pub(crate) fn publish(self) -> Result<FileEntry> {
        let published = self.replace()?;
        sync_directory(&published.target.parent).at(&published.path)?;
        let no_symlink_target = Vec::new();
        Ok(describe(&published.path, &fstat(&published.file).at(&published.path)?, no_symlink_target))
    }

    /// Replaces the target. The caller makes the replacement durable.
    pub(crate) fn publish_unsynced(self) -> Result<()> {
        self.replace().map(drop)
    }

    fn replace(mut self) -> Result<Self> {
        let _replacement = REPLACEMENT.lock();
        if self.name.is_none() && self.checked_present()?.is_none() {
            match link(&self.file, &self.target.parent, &self.target.name) {
                // Created meanwhile.
                Err(Errno::EXIST) => {}
                linked => return linked.at(&self.path).map(|()| self),
            }
        }
        if self.name.is_none() {
            let name = TemporaryName::new(&self.target.parent).at(&self.path)?;
            link(&self.file, &self.target.parent, &name.name).at(&self.path)?;
            // Dropping the file removes the name, if it cannot replace the target.
            self.name = Some(name);
        }
        self.checked_present()?;
        if let Some(TemporaryName { name, .. }) = &self.name {
            let parent = &self.target.parent;
            renameat(parent, name.as_slice(), parent, self.target.name.as_slice()).at(&self.path)?;
        }
        self.name = None;
        Ok(self)
    }

    /// Returns the present file. Fails if it may not be replaced, or does not meet the condition. A symlink may be
    /// replaced: [`Self::create_at`] is for that, and [`Self::create`] followed all symlinks, so another process made
    /// this one since.
    fn checked_present(&self) -> Result<Option<Stat>> {
        let present = self.target.stat().at(&self.path)?;
        check_replaceable(present.as_ref().filter(|stat| !is_type(stat, FileType::Symlink)), &self.path)?;
        check_condition(self.condition.as_ref(), present.as_ref(), &self.path)?;
        Ok(present)
    }
}

/// Creates a symlink to `link_target` at `location`. Replaces anything but a directory there, atomically.
pub(crate) fn write_symlink(link_target: &[u8], location: &NameInParent) -> std::result::Result<(), Errno> {
    let _replacement = REPLACEMENT.lock();
    let NameInParent { parent, name } = location;
    match symlinkat(link_target, parent, name.as_slice()) {
        Err(Errno::EXIST) => {}
        created => return created,
    }
    let temporary = TemporaryName::new(parent)?;
    let temporary_name = temporary.name.as_slice();
    symlinkat(link_target, parent, temporary_name)?;
    let renamed = renameat(parent, temporary_name, parent, name.as_slice());
    if renamed.is_err() {
        // If this fails, a symlink with a random name is left behind, which is not fatal.
        let _ = unlinkat(parent, temporary_name, AtFlags::empty());
    }
    renamed
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if let Some(temporary) = self.name.take() {
            // If this fails, a file with a random name is left behind, which is not fatal.
            let _ = unlinkat(&self.target.parent, temporary.name.as_slice(), AtFlags::empty());
        }
    }
}

/// Fails for an entry that a file may not replace: a directory, and a special file, which may be in use.
fn check_replaceable(present: Option<&Stat>, path: &[u8]) -> Result<()> {
    match present {
        None => Ok(()),
        Some(stat) if is_type(stat, FileType::RegularFile) => Ok(()),
        Some(stat) if is_type(stat, FileType::Directory) => {
            Err(Failure::new(IoFailureKind::IsADirectory, path, "this is a directory"))
        }
        Some(_) => Err(Failure::new(IoFailureKind::NotAFile, path, "this is not a regular file")),
    }
}

fn check_condition(condition: Option<&FileCondition>, present: Option<&Stat>, path: &[u8]) -> Result<()> {
    // No condition depends on the target of a symlink, so it is not read.
    let present = present.map(|stat| describe(path, stat, Vec::new()));
    let (is_met, message) = match condition.and_then(|condition| condition.condition) {
        None => (true, ""),
        Some(Condition::Exists(_)) => (present.is_some(), "the file does not exist"),
        Some(Condition::Absent(_)) => (present.is_none(), "the file exists"),
        Some(Condition::Fingerprint(wanted)) => {
            let is_same = present.is_some_and(|present| {
                (present.inode, present.size, present.mtime_ns, present.ctime_ns)
                    == (wanted.inode, wanted.size, wanted.mtime_ns, wanted.ctime_ns)
            });
            (is_same, "the file was changed or removed")
        }
    };
    if is_met { Ok(()) } else { Err(Failure::new(IoFailureKind::PreconditionFailed, path, message)) }
}

/// Creates a file for writing in a directory, without a name where the file system supports that.
fn create_file(directory: &OwnedFd) -> std::result::Result<(OwnedFd, Option<TemporaryName>), Errno> {
    let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::from_raw_mode(0o600));
    match openat(directory, ".", flags | OFlags::TMPFILE, mode) {
        Ok(file) => Ok((file, None)),
        // Older kernels do not know the flag and see an attempt to write a directory.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let temporary = TemporaryName::new(directory)?;
            let name = temporary.name.as_slice();
            let file = openat(directory, name, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
            Ok((file, Some(temporary)))
        }
        Err(error) => Err(error),
    }
}

/// Gives a file without a name one.
fn link(file: &File, directory: &OwnedFd, name: &[u8]) -> std::result::Result<(), Errno> {
    // `AT_EMPTY_PATH` needs a capability; the link in `/proc` does not.
    linkat(rustix::fs::CWD, proc_path(file), directory, name, AtFlags::SYMLINK_FOLLOW)
}

/// Makes new names in a directory durable. A directory that may not be read cannot be opened for that; then the name is
/// durable with the next sync of the file system.
pub(crate) fn sync_directory(directory: &OwnedFd) -> std::result::Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(directory, ".", flags, Mode::empty()) {
        Ok(directory) => rustix::fs::fsync(directory),
        Err(Errno::ACCESS) => Ok(()),
        Err(error) => Err(error),
    }
}

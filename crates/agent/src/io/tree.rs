//! Reading and writing whole directories, as frames of entries.
//!
//! An entry has the path, kind and attributes of a file, directory or symlink, and the first piece of content of a
//! file. Entries with an empty path follow for the other pieces.

use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Timespec, Timestamps, openat, readlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use workspace_agent_protocol::Bytes;
use workspace_agent_protocol::v1::{FileKind, IoFailureKind, IoFrame, IoReply, TreeEntry, WriteTree};

use super::channel::{ReceivedFrames, RequestHandle};
use super::failure::{AtPath as _, Failure, NO_PATH, Result};
use super::list::join;
use super::path::{
    LastSymlink, Located, NameInParent, describe, is_inside, locate, locate_at, make_directories,
    open_directory, open_file, proc_path,
};
use super::read::read_at;
use super::write::{PendingFile, write_symlink};

/// Maximum number of entries in a frame.
const FRAME_ENTRIES_MAX: usize = 256;
/// Maximum cost of a frame in bytes.
const FRAME_COST_MAX: usize = 256 << 10;
/// Maximum number of bytes of content in one entry.
const PIECE_MAX: usize = 128 << 10;
/// Cost of an entry in bytes, beside its path, the target of a symlink and its content.
const ENTRY_COST: usize = 256;
/// Bytes that the server may send before the worker has consumed them (see `channel.rs`).
const WINDOW: u64 = 1 << 20;

/// Sends a directory with its content. Special files are left out.
pub(crate) fn read(handle: &RequestHandle, path: &[u8]) -> Result<()> {
    let located = locate(path, LastSymlink::Follow)?;
    let root = open_directory(&located, path)?;
    handle.block_on(handle.reply(IoReply::default()))?;
    let mut sender = TreeSender { handle, root: path, entries: Vec::new(), cost: 0 };
    sender.send_content(root)?;
    sender.flush()?;
    handle.block_on(handle.end())
}

/// Returns the cost of an entry: the number of bytes by which it reduces the credit that the receiver has granted. The
/// server computes the same.
fn cost(entry: &TreeEntry) -> usize {
    ENTRY_COST + entry.path.len() + entry.target.len() + entry.data.len()
}

/// Collects entries into frames.
struct TreeSender<'a> {
    handle: &'a RequestHandle,
    /// Path of the request, for failures.
    root: &'a [u8],
    entries: Vec<TreeEntry>,
    /// Estimated size of `entries` in bytes.
    cost: usize,
}

impl TreeSender<'_> {
    /// Adds an entry, and sends the frame before it if that is full.
    fn push(&mut self, entry: TreeEntry) -> Result<()> {
        let cost = cost(&entry);
        if self.cost + cost > FRAME_COST_MAX || self.entries.len() == FRAME_ENTRIES_MAX {
            self.flush()?;
        }
        self.cost += cost;
        self.entries.push(entry);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let (entries, cost) = (std::mem::take(&mut self.entries), std::mem::take(&mut self.cost));
        self.handle.block_on(self.handle.send(IoFrame { entries, ..IoFrame::default() }, cost))
    }

    /// Sends the content of a directory, parents before children.
    fn send_content(&mut self, root: OwnedFd) -> Result<()> {
        // Not recursive: a tree may be deeper than the stack of a thread.
        let entries = Dir::read_from(&root).at(self.root)?;
        // Directory, its entries that are not sent yet, and its path relative to the root.
        let mut levels = vec![(root, entries, Vec::new())];
        while let Some((directory, entries, prefix)) = levels.last_mut() {
            self.handle.check_cancelled()?;
            let Some(item) = entries.next() else {
                levels.pop();
                continue;
            };
            let item = item.at(self.root)?;
            let name = item.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let path = join(prefix, name);
            let located = match locate_at(&*directory, name, &path) {
                // Removed by another process.
                Err(failure) if failure.is(IoFailureKind::NotFound) => continue,
                located => located?,
            };
            match located.file_type() {
                FileType::Directory => {
                    let child = open_directory(&located, &path)?;
                    let entries = Dir::read_from(&child).at(&path)?;
                    self.push(header(&path, &located, Vec::new()))?;
                    levels.push((child, entries, path));
                }
                FileType::Symlink => {
                    let link = readlinkat(&located.fd, b"".as_slice(), Vec::new()).at(&path)?;
                    self.push(header(&path, &located, link.into_bytes()))?;
                }
                FileType::RegularFile => self.send_file(&path, &located)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends a file, in several entries if it is large.
    fn send_file(&mut self, path: &[u8], located: &Located) -> Result<()> {
        let file = open_file(located, path)?;
        let mut entry = header(path, located, Vec::new());
        let size = entry.size;
        let mut position = 0;
        loop {
            self.handle.check_cancelled()?;
            let wanted = usize::try_from(size - position).unwrap_or(usize::MAX).min(PIECE_MAX);
            let data = read_at(&file, position, wanted).at(path)?;
            // A file that has become shorter is filled up with zeros, as by tar.
            entry.data = if data.len() == wanted { data } else { padded(&data, wanted) };
            position += wanted as u64;
            self.push(entry)?;
            if position >= size {
                return Ok(());
            }
            entry = TreeEntry::default();
        }
    }
}

fn padded(data: &[u8], len: usize) -> Bytes {
    let mut data = data.to_vec();
    data.resize(len, 0);
    data.into()
}

/// Returns an entry without content.
fn header(path: &[u8], located: &Located, target: Vec<u8>) -> TreeEntry {
    let entry = describe(path, &located.stat, target);
    TreeEntry {
        path: entry.path,
        kind: entry.kind,
        mode: entry.mode,
        mtime_ns: entry.mtime_ns,
        target: entry.target,
        size: if entry.kind == i32::from(FileKind::File) { entry.size } else { 0 },
        data: Bytes::new(),
    }
}

/// Writes tree entries from the channel into a directory, which is created unless it exists.
pub(crate) fn write(handle: &RequestHandle, frames: &mut ReceivedFrames, request: &WriteTree) -> Result<()> {
    let root = match request.mkdirs {
        true => make_directories(&request.path)?,
        false => existing_or_new(&request.path)?,
    };
    let mut writer = TreeWriter { root, parent: None, file: None, directories: Vec::new() };
    handle.block_on(handle.reply(IoReply { window: WINDOW, ..IoReply::default() }))?;
    while let Some(frame) = frames.blocking_receive()? {
        handle.check_cancelled()?;
        let cost = frame.entries.iter().map(cost).sum();
        for entry in &frame.entries {
            writer.write_entry(entry)?;
        }
        handle.block_on(handle.grant(cost))?;
    }
    writer.finish(&request.path)?;
    handle.block_on(handle.end())
}

/// Opens a directory, or creates it in an existing one.
fn existing_or_new(path: &[u8]) -> Result<OwnedFd> {
    match locate(path, LastSymlink::Follow) {
        Ok(located) => open_directory(&located, path),
        Err(failure) if failure.is(IoFailureKind::NotFound) => {
            let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
            let slash = path[..end].iter().rposition(|byte| *byte == b'/');
            let parent = slash.map_or(&b"/"[..], |slash| &path[..=slash]);
            // Fails if the parent does not exist.
            locate(parent, LastSymlink::Follow)?;
            make_directories(path)
        }
        Err(failure) => Err(failure),
    }
}

/// Writes the entries of a tree. Symlinks that the tree or other processes made are never followed.
struct TreeWriter {
    root: OwnedFd,
    /// Path and descriptor of the directory of the last entry, since the next entry is likely in the same.
    parent: Option<(Vec<u8>, OwnedFd)>,
    /// File whose content is incomplete.
    file: Option<PartialFile>,
    /// Paths of directories with the mode and the modification time that are set at the end.
    directories: Vec<(Vec<u8>, u32, i64)>,
}

/// File of which not all content has arrived.
struct PartialFile {
    pending: PendingFile,
    /// Number of bytes that are missing.
    remaining: u64,
    /// Modification time to set, in nanoseconds since 1970.
    mtime_ns: i64,
}

impl TreeWriter {
    fn write_entry(&mut self, entry: &TreeEntry) -> Result<()> {
        if entry.path.is_empty() {
            return self.append_content(&entry.data);
        }
        let path = entry.path.clone();
        if self.file.is_some() {
            return Err(Failure::invalid(&path, "the file before this entry is incomplete"));
        }
        if !is_inside(&path) {
            return Err(Failure::invalid(&path, "the path is not inside the tree"));
        }
        let target = self.open_parent(&path)?;
        match entry.kind() {
            FileKind::Directory => self.make_directory(&target, entry),
            FileKind::Symlink => write_symlink(&entry.target, &target).at(&path),
            FileKind::File => {
                let pending = PendingFile::create_at(target, entry.mode & 0o7777, &path)?;
                self.file = Some(PartialFile { pending, remaining: entry.size, mtime_ns: entry.mtime_ns });
                self.append_content(&entry.data)
            }
            _ => Err(Failure::invalid(&path, "a tree has only files, directories and symlinks")),
        }
    }

    /// Appends content to the current file, and publishes it when it is complete.
    fn append_content(&mut self, data: &[u8]) -> Result<()> {
        let Some(mut file) = self.file.take() else {
            return Err(Failure::invalid(NO_PATH, "there is content without a file"));
        };
        let Some(remaining) = file.remaining.checked_sub(data.len() as u64) else {
            return Err(Failure::invalid(NO_PATH, "a file has more content than its size"));
        };
        file.pending.append(data)?;
        if remaining > 0 {
            self.file = Some(PartialFile { remaining, ..file });
            return Ok(());
        }
        file.pending.set_time(file.mtime_ns)?;
        file.pending.publish_unsynced()
    }

    fn make_directory(&mut self, target: &NameInParent, entry: &TreeEntry) -> Result<()> {
        let make = || rustix::fs::mkdirat(&target.parent, target.name.as_slice(), Mode::from_raw_mode(0o700));
        match make() {
            Ok(()) => {}
            Err(Errno::EXIST) if is_directory(target)? => {}
            // Anything but a directory is replaced, also a special file.
            Err(Errno::EXIST) => {
                unlinkat(&target.parent, target.name.as_slice(), AtFlags::empty()).at(&entry.path)?;
                make().at(&entry.path)?;
            }
            Err(error) => return Err(Failure::of_errno(error, &entry.path)),
        }
        self.directories.push((entry.path.clone(), entry.mode & 0o7777, entry.mtime_ns));
        Ok(())
    }

    /// Opens the directory of an entry, component by component. Missing ones are created.
    fn open_parent(&mut self, path: &[u8]) -> Result<NameInParent> {
        let (prefix, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        let parent = match &self.parent {
            Some((last, parent)) if last == prefix => parent,
            _ => {
                let parent = self.open(prefix)?;
                &self.parent.insert((prefix.to_vec(), parent)).1
            }
        };
        Ok(NameInParent { parent: parent.try_clone().at(path)?, name: name.to_vec() })
    }

    /// Opens a directory of the tree with `O_PATH`, and creates missing ones.
    fn open(&self, path: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut directory = self.root.try_clone().at(path)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            directory = match openat(&directory, name, flags, Mode::empty()) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(&directory, name, super::path::DIRECTORY_MODE).at(path)?;
                    openat(&directory, name, flags, Mode::empty()).at(path)?
                }
                opened => opened.at(path)?,
            };
        }
        Ok(directory)
    }

    /// Sets the modes and times of directories, which entries in them would change, and makes everything durable.
    fn finish(mut self, path: &[u8]) -> Result<()> {
        if self.file.is_some() {
            return Err(Failure::invalid(path, "the last file is incomplete"));
        }
        // Children first: a parent may become inaccessible.
        for (path, mode, mtime_ns) in std::mem::take(&mut self.directories).into_iter().rev() {
            let directory = self.open(&path)?;
            let name = proc_path(&directory);
            rustix::fs::chmod(&name, Mode::from_raw_mode(mode)).at(&path)?;
            utimensat(rustix::fs::CWD, &name, &times(mtime_ns), AtFlags::empty()).at(&path)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(&self.root, ".", flags, Mode::empty()).at(path)?;
        // One sync instead of one for each file.
        rustix::fs::syncfs(root).at(path)
    }
}

fn is_directory(target: &NameInParent) -> Result<bool> {
    let stat = target.stat().at(&target.name)?;
    Ok(stat.is_some_and(|stat| super::path::is_type(&stat, FileType::Directory)))
}

/// Returns times that set the modification time and leave the access time.
pub(crate) fn times(mtime_ns: i64) -> Timestamps {
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ };
    let (seconds, nanoseconds) = (mtime_ns.div_euclid(1_000_000_000), mtime_ns.rem_euclid(1_000_000_000));
    Timestamps {
        last_access: omit,
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ },
    }
}

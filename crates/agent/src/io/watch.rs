//! Watching directories with inotify.
//!
//! The kernel queues changes while the server is slow to accept them, and drops them when its queue is full. That is
//! reported as a change of its own, so that the client can read the directory again.

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use workspace_agent_protocol::v1::{
    FileChange, FileChangeKind as Kind, IoFailureKind, IoFrame, IoReply, WatchFiles,
};

use super::channel::RequestHandle;
use super::failure::{AtPath as _, Failure, Result};
use super::list::{join, open_child};
use super::path::{LastSymlink, Located, locate, open_directory, proc_path};

/// Maximum number of watched directories.
const DIRECTORIES_MAX: usize = 8_192;
/// Size of the buffer for events, in bytes.
const BUFFER: usize = 16 << 10;
/// Number of bytes that a change takes of the server's credit, beside its names.
const CHANGE_COST: usize = 64;
/// Maximum number of changes in a frame.
const FRAME_CHANGES_MAX: usize = 64;
/// Maximum cost of a frame in bytes; less than the window of a watch.
const FRAME_COST_MAX: usize = 32 << 10;

/// Maximum time for the second half of a rename to come.
const MOVE_TIMEOUT: Duration = Duration::from_millis(20);
/// Maximum number of reads that wait for the second half of a rename.
const MOVE_READS_MAX: usize = 8;

/// Watch descriptor, flags, cookie and name of an event.
type InotifyEvent = (i32, ReadFlags, u32, Vec<u8>);

/// Reports changes until the watched entry is removed or the server cancels the request.
pub(crate) async fn watch(handle: &RequestHandle, request: &WatchFiles) -> Result<()> {
    let path = &request.path;
    let located = locate(path, LastSymlink::Follow)?;
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).at(path)?;
    let mut watcher = Watcher {
        inotify: register(inotify).at(path)?,
        root: path.clone(),
        recursive: request.recursive,
        directories: HashMap::new(),
        pending: VecDeque::new(),
        moved: None,
        overflowed: false,
    };
    watcher.watch_root(&located)?;
    drop(located);
    handle.reply(IoReply::default()).await?;
    loop {
        watcher.read().await.at(path)?;
        if std::mem::take(&mut watcher.overflowed) {
            watcher.watch_again()?;
        }
        while let Some((changes, cost)) = watcher.next_frame() {
            handle.send(IoFrame { changes, ..IoFrame::default() }, cost).await?;
        }
        handle.check_cancelled()?;
        if watcher.directories.is_empty() {
            return handle.end().await;
        }
    }
}

fn register(inotify: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the result, which keeps it open and does not replace it.
    let registered = unsafe { AsyncFd::register_with_interest(inotify, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}

struct Watcher {
    inotify: AsyncFd<OwnedFd>,
    /// Absolute path of the watched entry. It is not kept open, because the kernel reports the removal of a directory
    /// only when no process has it open.
    root: Vec<u8>,
    recursive: bool,
    /// Paths of watched entries relative to the root, by their watch descriptors. The root has the empty path, and may
    /// be a file.
    directories: HashMap<i32, Vec<u8>>,
    /// Changes to send.
    pending: VecDeque<FileChange>,
    /// First half of a rename: its cookie, path, and whether it is a directory.
    moved: Option<(u32, Vec<u8>, bool)>,
    /// Set if the kernel dropped events.
    overflowed: bool,
}

impl Watcher {
    fn flags() -> WatchFlags {
        WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
    }

    /// Watches the root, and with `recursive` everything below it.
    fn watch_root(&mut self, located: &Located) -> Result<()> {
        let path = self.root.clone();
        self.add(located.proc_path(), Vec::new()).at(&path)?;
        if self.recursive && located.file_type() == FileType::Directory {
            let directory = open_directory(located, &path)?;
            if !self.add_children(directory, b"", ReportEntries::No).at(&path)? {
                let message = format!("more than {DIRECTORIES_MAX} directories cannot be watched");
                return Err(Failure::new(IoFailureKind::LimitExceeded, &path, message));
            }
        }
        Ok(())
    }

    /// Watches everything anew: directories may have been created or renamed by changes that were dropped.
    fn watch_again(&mut self) -> Result<()> {
        let path = self.root.clone();
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).at(&path)?;
        self.inotify = register(inotify).at(&path)?;
        self.directories.clear();
        self.moved = None;
        match locate(&path, LastSymlink::Follow) {
            Ok(located) => self.watch_root(&located),
            Err(failure) if failure.is(IoFailureKind::NotFound) => {
                self.push(Kind::Removed, b"", false);
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Watches the entry at `proc_path`, a path below `/proc/self/fd`. `path` is its path relative to the root.
    fn add(&mut self, proc_path: String, path: Vec<u8>) -> std::result::Result<(), Errno> {
        let descriptor = inotify::add_watch(self.inotify.get_ref(), proc_path, Self::flags())?;
        self.directories.insert(descriptor, path);
        Ok(())
    }

    /// Watches all directories below `directory`, whose path relative to the root is `prefix`. Returns false if there
    /// are too many.
    fn add_children(
        &mut self,
        directory: OwnedFd,
        prefix: &[u8],
        report: ReportEntries,
    ) -> std::result::Result<bool, Errno> {
        let mut queue = vec![(directory, prefix.to_vec())];
        while let Some((directory, prefix)) = queue.pop() {
            for item in Dir::read_from(&directory)? {
                let item = item?;
                let name = item.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                let path = join(&prefix, name);
                let is_directory = item.file_type() == FileType::Directory;
                if report == ReportEntries::Yes {
                    self.push(Kind::Created, &path, is_directory);
                }
                if !is_directory {
                    continue;
                }
                if self.directories.len() == DIRECTORIES_MAX {
                    return Ok(false);
                }
                // `None` if the directory was removed since it was listed.
                if let Some(child) = open_child(&directory, name)? {
                    self.add(proc_path(&child), path.clone())?;
                    queue.push((child, path));
                }
            }
        }
        Ok(true)
    }

    /// Waits for events, and turns them into changes. The two halves of a rename may come separately.
    async fn read(&mut self) -> std::io::Result<()> {
        let events = self.wait_for_events().await?;
        self.handle_all(events)?;
        for _ in 0..MOVE_READS_MAX {
            if self.moved.is_none() {
                return Ok(());
            }
            match tokio::time::timeout(MOVE_TIMEOUT, self.wait_for_events()).await {
                Ok(events) => self.handle_all(events?)?,
                Err(_) => break,
            }
        }
        self.finish_move();
        Ok(())
    }

    fn handle_all(&mut self, events: Vec<InotifyEvent>) -> std::io::Result<()> {
        for (descriptor, flags, cookie, name) in events {
            self.handle(descriptor, flags, cookie, &name)?;
        }
        Ok(())
    }

    /// Waits for events of the kernel.
    async fn wait_for_events(&self) -> std::io::Result<Vec<InotifyEvent>> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let read = |fd: &OwnedFd| {
            let mut reader = inotify::Reader::new(fd, &mut buffer);
            let mut events = Vec::new();
            loop {
                let event = match reader.next() {
                    Ok(event) => event,
                    Err(Errno::AGAIN) if !events.is_empty() => return Ok(events),
                    Err(error) => return Err(error.into()),
                };
                let name = event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default();
                events.push((event.wd(), event.events(), event.cookie(), name));
                if reader.is_buffer_empty() {
                    return Ok(events);
                }
            }
        };
        self.inotify.async_io(Interest::READABLE, read).await
    }

    fn handle(&mut self, descriptor: i32, flags: ReadFlags, cookie: u32, name: &[u8]) -> std::io::Result<()> {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.push(Kind::Dropped, b"", false);
            self.overflowed = true;
            return Ok(());
        }
        let Some(directory) = self.directories.get(&descriptor).cloned() else { return Ok(()) };
        let path = if name.is_empty() { directory.clone() } else { join(&directory, name) };
        let is_directory = flags.contains(ReadFlags::ISDIR);
        if !flags.contains(ReadFlags::MOVED_TO) {
            self.finish_move();
        }
        if flags.contains(ReadFlags::IGNORED) {
            self.directories.remove(&descriptor);
        } else if flags.contains(ReadFlags::MOVED_FROM) {
            self.moved = Some((cookie, path, is_directory));
        } else if flags.contains(ReadFlags::MOVED_TO) {
            self.moved_to(cookie, path, is_directory)?;
        } else if flags.contains(ReadFlags::CREATE) {
            self.push(Kind::Created, &path, is_directory);
            self.watch_new(&path, is_directory)?;
        } else if flags.contains(ReadFlags::DELETE) {
            self.push(Kind::Removed, &path, is_directory);
        } else if flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
            // The removal of a subdirectory is reported by its parent.
            if directory.is_empty() {
                self.push(Kind::Removed, b"", is_directory);
                self.directories.clear();
            }
        } else if flags.contains(ReadFlags::ATTRIB) {
            self.push(Kind::Attributes, &path, is_directory);
        } else if flags.intersects(ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE) {
            self.push(Kind::Modified, &path, is_directory);
        }
        Ok(())
    }

    /// Handles the second half of a rename, or a move from outside.
    fn moved_to(&mut self, cookie: u32, path: Vec<u8>, is_directory: bool) -> std::io::Result<()> {
        match self.moved.take() {
            Some((first, from, _)) if first == cookie => {
                self.rename_directories(&from, &path);
                let kind = Kind::Renamed.into();
                self.pending.push_back(FileChange { kind, path, from, is_directory });
                Ok(())
            }
            other => {
                self.moved = other;
                self.finish_move();
                self.push(Kind::Created, &path, is_directory);
                self.watch_new(&path, is_directory)
            }
        }
    }

    /// Ends a rename whose second half did not arrive: the entry was moved out of the watched directory, and is
    /// reported as removed.
    fn finish_move(&mut self) {
        if let Some((_, path, is_directory)) = self.moved.take() {
            self.push(Kind::Removed, &path, is_directory);
            self.forget_directories(&path);
        }
    }

    /// Watches a new directory, and reports entries that were created in it before that.
    fn watch_new(&mut self, path: &[u8], is_directory: bool) -> std::io::Result<()> {
        if !is_directory || !self.recursive {
            return Ok(());
        }
        let Some(directory) = self.open(path)? else { return Ok(()) };
        let is_complete = self.directories.len() < DIRECTORIES_MAX && {
            self.add(proc_path(&directory), path.to_vec())?;
            self.add_children(directory, path, ReportEntries::Yes)?
        };
        if !is_complete {
            self.push(Kind::Dropped, path, true);
        }
        Ok(())
    }

    /// Opens a directory below the root. `None` if it was removed meanwhile.
    fn open(&self, path: &[u8]) -> std::io::Result<Option<OwnedFd>> {
        Ok(open_child(rustix::fs::CWD, &join(&self.root, path))?)
    }

    fn rename_directories(&mut self, from: &[u8], to: &[u8]) {
        for path in self.directories.values_mut() {
            if let Some(rest) = below(path, from) {
                *path = [to, rest].concat();
            }
        }
    }

    fn forget_directories(&mut self, path: &[u8]) {
        let gone: Vec<i32> = self
            .directories
            .iter()
            .filter(|(_, directory)| below(directory, path).is_some())
            .map(|(descriptor, _)| *descriptor)
            .collect();
        for descriptor in gone {
            self.directories.remove(&descriptor);
            // Fails if the kernel has removed the watch with its directory.
            let _ = inotify::remove_watch(self.inotify.get_ref(), descriptor);
        }
    }

    /// Adds a change. Repeated writes to a file become one.
    fn push(&mut self, kind: Kind, path: &[u8], is_directory: bool) {
        let change = FileChange { kind: kind.into(), path: path.to_vec(), from: Vec::new(), is_directory };
        if self.pending.back() != Some(&change) {
            self.pending.push_back(change);
        }
    }

    /// Takes the changes of the next frame, with their cost: the number of bytes that they take of the server's credit.
    fn next_frame(&mut self) -> Option<(Vec<FileChange>, usize)> {
        let (mut changes, mut total) = (Vec::new(), 0);
        while let Some(change) = self.pending.front() {
            let cost = CHANGE_COST + change.path.len() + change.from.len();
            if !changes.is_empty() && (total + cost > FRAME_COST_MAX || changes.len() == FRAME_CHANGES_MAX) {
                break;
            }
            total += cost;
            changes.extend(self.pending.pop_front());
        }
        (!changes.is_empty()).then_some((changes, total))
    }
}

/// Reporting of the entries of a directory as created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportEntries {
    /// For a new directory: its entries were created before it was watched.
    Yes,
    /// For a directory that existed when the watch began.
    No,
}

/// Returns the rest of a path that is the same as another (empty) or below it (with its slash).
fn below<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(directory)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_inside_a_directory_are_below_it() {
        assert_eq!(below(b"a/b", b"a"), Some(&b"/b"[..]));
        assert_eq!(below(b"a", b"a"), Some(&b""[..]));
        assert_eq!(below(b"ab", b"a"), None);
        assert_eq!(below(b"b/a", b"a"), None);
    }
}

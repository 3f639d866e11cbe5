//! Watching directories with inotify.
//!
//! The kernel queues changes while the server is slow to accept them, and drops them when its queue is full. That is
//! reported as a change of its own, so that the client can read the directory again.

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use workspace_agent_protocol::v1::{
    FileChange, FileChangeKind as Kind, IoFailureKind, IoFrame, IoReply, WatchFiles,
};

use super::channel::RequestHandle;
use super::failure::{AtPath as _, Failure, Result};
use super::list::{entries_of, join, open_child};
use super::path::{LastSymlink, Located, is_type, locate, open_directory, proc_path};

/// Maximum number of watched directories.
const DIRECTORIES_MAX: usize = 8_192;
/// Size of the buffer for events, in bytes.
const BUFFER_SIZE: usize = 16 << 10;
/// Cost of a change in bytes, beside its paths. A frame is sent when the server has granted the cost of its changes.
const CHANGE_COST: usize = 64;
/// Maximum number of changes in a frame.
const FRAME_CHANGES_MAX: usize = 64;
/// Maximum cost of a frame in bytes. It is less than the 64 KiB that the server grants a watch at first (its window,
/// `ChannelKind::window` in `crates/sandbox/src/io/worker.rs`), so that a frame can always be sent.
const FRAME_COST_MAX: usize = 32 << 10;

/// Maximum time between the two events of a rename, one of the old path and one of the new path.
const MOVE_TIMEOUT: Duration = Duration::from_millis(20);
/// Maximum number of reads that wait for the second half of a rename.
const MOVE_READS_MAX: usize = 8;

/// Watch descriptor, flags, cookie and name of an event.
type InotifyEvent = (i32, ReadFlags, u32, Vec<u8>);

/// Reports changes until the watched entry is removed or the server cancels the request. The caller drops this future
/// when the request is cancelled; the check in the loop only ends the sending of a long queue.
pub(crate) async fn watch(handle: &RequestHandle, request: &WatchFiles) -> Result<()> {
    let path = &request.path;
    let mut watcher = Watcher::new(path, request.recursive)?;
    // Tells the client that it misses no change from here on.
    handle.reply(IoReply::default()).await?;
    loop {
        watcher.read().await.at(path)?;
        watcher.recover()?;
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
    /// Device and inode of the watched entry.
    root_id: (u64, u64),
    /// True if subdirectories are watched, too.
    recursive: bool,
    /// Paths of watched entries relative to the root, by their watch descriptors. The root has the empty path, and may
    /// be a file.
    directories: HashMap<i32, Vec<u8>>,
    /// Changes to send.
    pending: VecDeque<FileChange>,
    /// First half of a rename: its cookie, the old path, and true if it is a directory. `None` if no rename is pending.
    moved: Option<(u32, Vec<u8>, bool)>,
    /// Set if the kernel dropped events.
    overflowed: bool,
    /// Set if new directories could not be watched, because the path of the root leads elsewhere: a parent of the root
    /// was renamed, or a symlink in the path was replaced.
    lost_root: bool,
}

impl Watcher {
    /// Watches the entry at a path, and with `recursive` everything below it.
    fn new(path: &[u8], recursive: bool) -> Result<Self> {
        let located = locate(path, LastSymlink::Follow)?;
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).at(path)?;
        let mut watcher = Self {
            inotify: register(inotify).at(path)?,
            root: path.to_vec(),
            root_id: id_of(&located.stat),
            recursive,
            directories: HashMap::new(),
            pending: VecDeque::new(),
            moved: None,
            overflowed: false,
            lost_root: false,
        };
        watcher.watch_root(&located)?;
        Ok(watcher)
    }

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
        self.root_id = id_of(&located.stat);
        if !self.recursive || located.file_type() != FileType::Directory {
            self.add(located.proc_path(), b"").at(&path)?;
            return Ok(());
        }
        let directory = open_directory(located, &path)?;
        if !self.add_tree(directory, b"", ReportEntries::No).at(&path)? {
            let message = format!("more than {DIRECTORIES_MAX} directories cannot be watched");
            return Err(Failure::new(IoFailureKind::LimitExceeded, &path, message));
        }
        Ok(())
    }

    /// Watches everything anew if changes were missed. Nothing is to be done if the watch of the root has ended since.
    fn recover(&mut self) -> Result<()> {
        let lost_root = std::mem::take(&mut self.lost_root) && !self.directories.is_empty();
        if lost_root {
            self.push(Kind::Dropped, b"", false);
        }
        if std::mem::take(&mut self.overflowed) || lost_root { self.watch_again() } else { Ok(()) }
    }

    /// Watches everything anew: directories may have been created or renamed by changes that were missed.
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
    fn add(&mut self, proc_path: String, path: &[u8]) -> std::result::Result<Added, Errno> {
        // Returns the same descriptor again for an entry that is watched.
        let descriptor = inotify::add_watch(self.inotify.get_ref(), proc_path, Self::flags())?;
        match self.directories.get(&descriptor) {
            Some(known) if known == path => return Ok(Added::Known),
            None if self.directories.len() == DIRECTORIES_MAX => {
                inotify::remove_watch(self.inotify.get_ref(), descriptor)?;
                return Ok(Added::TooMany);
            }
            _ => {}
        }
        self.directories.insert(descriptor, path.to_vec());
        Ok(Added::New)
    }

    /// Watches `directory`, whose path relative to the root is `path`, and all directories below it. Returns false if
    /// there are too many.
    fn add_tree(
        &mut self,
        directory: OwnedFd,
        path: &[u8],
        report: ReportEntries,
    ) -> std::result::Result<bool, Errno> {
        let added = self.add(proc_path(&directory), path)?;
        if added == Added::TooMany {
            return Ok(false);
        }
        let mut queue = vec![(directory, path.to_vec(), added)];
        while let Some((directory, prefix, added)) = queue.pop() {
            for item in entries_of(&directory)? {
                let item = item?;
                let name = item.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                let path = join(&prefix, name);
                let is_directory = match item.file_type() {
                    FileType::Directory => true,
                    // Some file systems do not say the type.
                    FileType::Unknown => statat(&directory, item.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                        .is_ok_and(|stat| is_type(&stat, FileType::Directory)),
                    _ => false,
                };
                if report == ReportEntries::OfNewDirectories && added == Added::New {
                    self.push(Kind::Created, &path, is_directory);
                }
                if !is_directory {
                    continue;
                }
                // `None` if the directory was removed or renamed since it was listed, or may not be read: it is then
                // not watched. After a rename, its event has it watched at the new path.
                if let Some(child) = open_child(&directory, name)? {
                    let added = self.add(proc_path(&child), &path)?;
                    if added == Added::TooMany {
                        return Ok(false);
                    }
                    queue.push((child, path, added));
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
        let mut buffer = [MaybeUninit::uninit(); BUFFER_SIZE];
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

    /// Handles an event of inotify. `cookie` connects the two halves of a rename.
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
            self.moved_to(cookie, &path, is_directory)?;
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
    fn moved_to(&mut self, cookie: u32, path: &[u8], is_directory: bool) -> std::io::Result<()> {
        match self.moved.take() {
            Some((first, from, _)) if first == cookie => {
                self.rename_directories(&from, path);
                let kind = Kind::Renamed.into();
                self.enqueue(FileChange { kind, path: path.to_vec(), from, is_directory });
                // Events are handled late. When the creation of this directory, or of one below it, was handled, it may
                // have been renamed already, so that nothing was found at `from`: it is watched now. If another
                // directory had taken the name `from` by then, that one was watched under `from`, and
                // `rename_directories` has just changed its path to `path` by mistake. Its own creation event, which
                // follows, corrects it.
                self.watch_new(path, is_directory)
            }
            other => {
                self.moved = other;
                self.finish_move();
                self.push(Kind::Created, path, is_directory);
                self.watch_new(path, is_directory)
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

    /// Watches a new or renamed directory with all directories below it. Reports the entries of those that were not
    /// watched yet, because they were created before.
    fn watch_new(&mut self, path: &[u8], is_directory: bool) -> std::io::Result<()> {
        if !is_directory || !self.recursive {
            return Ok(());
        }
        let Some(root) = self.open_root()? else {
            self.lost_root = true;
            return Ok(());
        };
        let Some(directory) = open_below(root, path)? else { return Ok(()) };
        if !self.add_tree(directory, path, ReportEntries::OfNewDirectories)? {
            self.push(Kind::Dropped, path, true);
        }
        Ok(())
    }

    /// Opens the root with `O_PATH`. `None` if its path does not lead to the watched directory any more.
    fn open_root(&self) -> std::result::Result<Option<OwnedFd>, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(self.root.as_slice(), flags, Mode::empty()) {
            Ok(root) => Ok((id_of(&fstat(&root)?) == self.root_id).then_some(root)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error),
        }
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
            self.enqueue(change);
        }
    }

    /// Adds a change. One whose paths do not fit into a frame is replaced by the report that changes were lost.
    fn enqueue(&mut self, change: FileChange) {
        if cost(&change) > FRAME_COST_MAX {
            self.push(Kind::Dropped, b"", false);
        } else {
            self.pending.push_back(change);
        }
    }

    /// Takes the changes of the next frame, with their cost in bytes.
    fn next_frame(&mut self) -> Option<(Vec<FileChange>, usize)> {
        let (mut changes, mut total) = (Vec::new(), 0);
        while let Some(change) = self.pending.front() {
            let cost = cost(change);
            if !changes.is_empty() && (total + cost > FRAME_COST_MAX || changes.len() == FRAME_CHANGES_MAX) {
                break;
            }
            total += cost;
            changes.extend(self.pending.pop_front());
        }
        (!changes.is_empty()).then_some((changes, total))
    }
}

/// Returns the device and the inode of an entry.
fn id_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Opens a directory below the root. `None` if it was removed or renamed meanwhile, or may not be read: it is then not
/// watched.
///
/// Opens one component at a time. In a path of several, the kernel would follow a symlink that has replaced a parent
/// meanwhile, and a directory outside of the root would be watched. The whole path may also be too long for the kernel.
fn open_below(root: OwnedFd, path: &[u8]) -> std::result::Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = root;
    let mut names = path.split(|byte| *byte == b'/');
    let last = names.next_back().unwrap_or_default();
    for name in names {
        directory = match openat(&directory, name, flags, Mode::empty()) {
            Ok(parent) => parent,
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT | Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    open_child(&directory, last)
}

/// Result of watching an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Added {
    /// The entry is watched now.
    New,
    /// The entry is already watched at this path.
    Known,
    /// The entry is not watched, because [`DIRECTORIES_MAX`] are.
    TooMany,
}

/// Reporting of the entries of directories as created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportEntries {
    /// Reports the entries of directories that were not watched: they were created before that.
    OfNewDirectories,
    /// Reports none: the directories existed when the watch began.
    No,
}

/// Returns the number of bytes that the server must have granted for a change.
fn cost(change: &FileChange) -> usize {
    CHANGE_COST + change.path.len() + change.from.len()
}

/// Returns the rest of a path that is the same as another (empty) or below it (with its slash).
fn below<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(directory)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    const RECURSIVE: bool = true;

    /// Returns the kind and the paths of a change: the new one, then the old one of a rename.
    fn summary(change: &FileChange) -> (Kind, &str, &str) {
        fn text(path: &[u8]) -> &str {
            std::str::from_utf8(path).unwrap()
        }
        (change.kind(), text(&change.path), text(&change.from))
    }

    #[tokio::test]
    async fn a_directory_that_was_renamed_before_its_creation_was_handled_is_watched() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("old")).unwrap();
        let mut watcher = Watcher::new(directory.path().as_os_str().as_bytes(), RECURSIVE).unwrap();
        fs::create_dir_all(path("temporary/sub")).unwrap();
        fs::rename(path("temporary"), path("final")).unwrap();
        // The watched parent of a new directory is renamed.
        fs::create_dir(path("old/new")).unwrap();
        fs::rename(path("old"), path("renamed")).unwrap();
        // Another directory takes the name.
        fs::create_dir(path("first")).unwrap();
        fs::rename(path("first"), path("second")).unwrap();
        fs::create_dir(path("first")).unwrap();
        watcher.read().await.unwrap();
        let changes: Vec<_> = watcher.pending.iter().map(summary).collect();
        assert!(changes.contains(&(Kind::Renamed, "final", "temporary")), "{changes:?}");
        assert!(changes.contains(&(Kind::Created, "final/sub", "")), "{changes:?}");
        watcher.pending.clear();
        let files = ["final/file", "final/sub/file", "renamed/new/file", "second/file", "first/file"];
        for file in files {
            fs::write(path(file), "").unwrap();
        }
        watcher.read().await.unwrap();
        let changes: Vec<_> = watcher.pending.iter().map(summary).collect();
        for file in files {
            assert!(changes.contains(&(Kind::Created, file, "")), "{file}: {changes:?}");
        }
    }

    #[tokio::test]
    async fn the_rename_of_a_parent_of_the_root_is_reported_when_a_new_directory_cannot_be_watched() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("parent/root")).unwrap();
        let mut watcher = Watcher::new(path("parent/root").as_os_str().as_bytes(), RECURSIVE).unwrap();
        fs::rename(path("parent"), path("renamed")).unwrap();
        // Another tree takes the path. It must not be reported as the content of the renamed one.
        fs::create_dir_all(path("parent/root/new")).unwrap();
        fs::create_dir(path("renamed/root/new")).unwrap();
        watcher.read().await.unwrap();
        watcher.recover().unwrap();
        let changes: Vec<_> = watcher.pending.iter().map(summary).collect();
        assert_eq!(changes, [(Kind::Created, "new", ""), (Kind::Dropped, "", "")]);
        // The path is watched again, and now leads to the other tree.
        watcher.pending.clear();
        fs::write(path("parent/root/new/file"), "").unwrap();
        watcher.read().await.unwrap();
        let changes: Vec<_> = watcher.pending.iter().map(summary).collect();
        assert!(changes.contains(&(Kind::Created, "new/file", "")), "{changes:?}");

        watcher.pending.clear();
        fs::rename(path("parent"), path("renamed-too")).unwrap();
        fs::create_dir(path("renamed-too/root/another")).unwrap();
        watcher.read().await.unwrap();
        watcher.recover().unwrap();
        let changes: Vec<_> = watcher.pending.iter().map(summary).collect();
        assert_eq!(
            changes,
            [(Kind::Created, "another", ""), (Kind::Dropped, "", ""), (Kind::Removed, "", "")]
        );
        assert!(watcher.directories.is_empty());
    }

    #[test]
    fn a_directory_without_search_permission_does_not_end_a_watch() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let set_mode =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        fs::create_dir_all(path("readable/sub")).unwrap();
        set_mode(directory.path(), 0o755);
        set_mode(&path("readable"), 0o444);
        let watch = async || {
            // Without a user id of 0, the kernel checks the permissions of files in this thread.
            // SAFETY: the call takes an integer. The previous user is restored below.
            unsafe { libc::syscall(libc::SYS_setfsuid, 65_534) };
            let watcher = Watcher::new(directory.path().as_os_str().as_bytes(), true);
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_setfsuid, libc::geteuid()) };
            watcher.map(|watcher| watcher.directories.len())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let watched = runtime.block_on(watch());
        set_mode(&path("readable"), 0o755);
        assert_eq!(watched.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_new_directory_with_a_path_longer_than_the_kernel_accepts_does_not_end_the_watch() {
        let directory = tempfile::tempdir().unwrap();
        let name = "d".repeat(250);
        let mut parent = OwnedFd::from(fs::File::open(directory.path()).unwrap());
        let descend = |parent: &OwnedFd, name: &str| {
            rustix::fs::mkdirat(parent, name, Mode::RWXU).unwrap();
            open_child(parent, name.as_bytes()).unwrap().unwrap()
        };
        for _ in 0..17 {
            parent = descend(&parent, &name);
        }
        let mut watcher = Watcher::new(directory.path().as_os_str().as_bytes(), RECURSIVE).unwrap();
        let new = descend(&parent, "new");
        watcher.read().await.unwrap();
        let path = format!("{}/new", vec![name; 17].join("/"));
        assert_eq!(watcher.pending.iter().map(summary).collect::<Vec<_>>(), [(Kind::Created, &*path, "")]);
        watcher.pending.clear();
        descend(&new, "sub");
        watcher.read().await.unwrap();
        let path = format!("{path}/sub");
        assert_eq!(watcher.pending.iter().map(summary).collect::<Vec<_>>(), [(Kind::Created, &*path, "")]);
    }

    #[tokio::test]
    async fn a_change_that_does_not_fit_into_a_frame_is_reported_as_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let mut watcher = Watcher::new(directory.path().as_os_str().as_bytes(), RECURSIVE).unwrap();
        let is_directory = false;
        watcher.push(Kind::Created, &vec![b'a'; FRAME_COST_MAX], is_directory);
        let (changes, cost) = watcher.next_frame().unwrap();
        assert_eq!(changes.iter().map(summary).collect::<Vec<_>>(), [(Kind::Dropped, "", "")]);
        assert!(cost <= FRAME_COST_MAX);
    }

    #[test]
    fn a_parent_that_was_replaced_by_a_symlink_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("outside/c")).unwrap();
        fs::create_dir_all(path("root/b/c")).unwrap();
        let open = |below: &[u8]| {
            let root = fs::File::open(path("root")).unwrap();
            open_below(root.into(), below).unwrap()
        };
        assert!(open(b"b/c").is_some() && open(b"b").is_some());
        fs::rename(path("root/b"), path("root/former")).unwrap();
        std::os::unix::fs::symlink("../outside", path("root/b")).unwrap();
        assert!(open(b"b/c").is_none() && open(b"b").is_none());
        assert!(open(b"former/c").is_some() && open(b"former/none/c").is_none());
    }

    #[test]
    fn only_paths_inside_a_directory_are_below_it() {
        assert_eq!(below(b"a/b", b"a"), Some(&b"/b"[..]));
        assert_eq!(below(b"a", b"a"), Some(&b""[..]));
        assert_eq!(below(b"ab", b"a"), None);
        assert_eq!(below(b"b/a", b"a"), None);
    }
}
